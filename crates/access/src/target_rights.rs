//! Which rights of an access its target may have, in the memory of the leader: by that it is known whether others only take some away.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use coppice_clusters::narrows;
use coppice_clusters_api::{ClusterAccessSpec, Rights};

use crate::cluster_access::AccessKey;

/// So many are kept that were not applied to the end.
const MAX_ATTEMPTS: usize = 4;

/// Those of accesses by a `ClusterProvider`, in their specs: what was applied, and what was begun since.
#[derive(Debug, Default)]
pub(crate) struct TargetRights(Mutex<BTreeMap<AccessKey, Vec<Arc<ClusterAccessSpec>>>>);

impl TargetRights {
    /// They are being applied: the target may have some of them, and of those before.
    pub(crate) fn begins(&self, key: &AccessKey, spec: &Arc<ClusterAccessSpec>) {
        let mut all = self.all();
        let known = all.entry(key.clone()).or_default();
        if known.iter().any(|known| known.rights == spec.rights) {
            return;
        }
        if known.len() > MAX_ATTEMPTS {
            known.remove(1);
        }
        known.push(Arc::clone(spec));
    }

    /// They are applied: the target has no others.
    pub(crate) fn ended(&self, key: &AccessKey, spec: &Arc<ClusterAccessSpec>) {
        self.all().insert(key.clone(), vec![Arc::clone(spec)]);
    }

    /// The target has these, as it has said; or none any more.
    pub(crate) fn found(&self, key: &AccessKey, spec: &ClusterAccessSpec, rights: Vec<Rights>) {
        let of = |rights| Arc::new(ClusterAccessSpec { rights, ..spec.clone() });
        self.all().insert(key.clone(), rights.into_iter().map(of).collect());
    }

    /// Those that the target may have; none if it is not known which.
    pub(crate) fn known(&self, key: &AccessKey) -> Option<Vec<Arc<ClusterAccessSpec>>> {
        self.all().get(key).cloned()
    }

    /// Whether rights only take away from those; also where these are not known yet, so that nothing that takes away ever waits for that.
    pub(crate) fn are_narrowed(&self, key: &AccessKey, rights: &Rights) -> bool {
        self.all().get(key).is_none_or(|known| {
            let before: Vec<&Rights> = known.iter().map(|spec| &spec.rights).collect();
            narrows(rights, &before)
        })
    }

    /// Removes all others.
    pub(crate) fn retain(&self, is_kept: impl Fn(&AccessKey) -> bool) {
        self.all().retain(|key, _| is_kept(key));
    }

    /// Removes those of one.
    pub(crate) fn remove_access(&self, key: &AccessKey) {
        self.all().remove(key);
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<AccessKey, Vec<Arc<ClusterAccessSpec>>>> {
        // A panic leaves valid data: at worst a change is counted that takes away.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn spec(namespaces: &[&str]) -> Arc<ClusterAccessSpec> {
        let spec = json!({
            "cluster": {"provider": {"name": "p"}}, "output": {"secret": "out"},
            "rights": {"bind": {"clusterRole": "view", "namespaces": namespaces}},
        });
        Arc::new(serde_json::from_value(spec).unwrap())
    }

    #[test]
    fn what_takes_away_is_known_by_what_the_target_may_have() {
        let (rights, key) = (TargetRights::default(), AccessKey::new("team", "ci"));
        let (one, two, many) = (spec(&["a"]), spec(&["a", "b"]), spec(&["a", "b", "c"]));
        // After a restart, once.
        assert!(rights.are_narrowed(&key, &two.rights));
        rights.begins(&key, &two);
        rights.ended(&key, &two);
        assert!(rights.are_narrowed(&key, &one.rights));
        assert!(!rights.are_narrowed(&key, &two.rights) && !rights.are_narrowed(&key, &many.rights));
        // Begun, and perhaps there in part: what was there before takes it away.
        rights.begins(&key, &many);
        assert!(rights.are_narrowed(&key, &two.rights) && !rights.are_narrowed(&key, &many.rights));
        rights.ended(&key, &two);
        assert!(!rights.are_narrowed(&key, &two.rights));
        for n in 0..100 {
            rights.begins(&key, &spec(&[format!("n{n}").as_str()]));
        }
        assert_eq!(rights.all().get(&key).map(Vec::len), Some(MAX_ATTEMPTS + 1));
        assert!(rights.are_narrowed(&key, &one.rights), "what was applied is still known");
        rights.remove_access(&key);
        assert!(rights.all().is_empty() && rights.known(&key).is_none());
        // What the target itself says.
        rights.found(&key, &one, vec![two.rights.clone()]);
        assert!(rights.are_narrowed(&key, &one.rights) && !rights.are_narrowed(&key, &many.rights));
        rights.found(&key, &one, Vec::new());
        assert!(!rights.are_narrowed(&key, &one.rights));
        assert_eq!(rights.known(&key), Some(Vec::new()));
    }
}
