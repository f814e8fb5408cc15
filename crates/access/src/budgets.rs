//! How many calls a minute are made by each `ClusterProvider`, for credentials and for Shoots, in the memory of the leader.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use coppice_clusters::{Budget, Turn, Urgency};
use jiff::Timestamp;

use crate::cluster_access::AccessKey;
use crate::managed_cluster::ClusterKey;

/// Who makes calls.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Caller {
    /// A `ClusterAccess`, of a credential or a change of its rights.
    Access(AccessKey),
    /// A `ManagedCluster`, of a look at its Shoot with what is written then.
    Cluster(ClusterKey),
}

impl Caller {
    fn namespace(&self) -> &str {
        match self {
            Self::Access(key) => key.namespace(),
            Self::Cluster(key) => key.namespace(),
        }
    }
}

impl From<&AccessKey> for Caller {
    fn from(key: &AccessKey) -> Self {
        Self::Access(key.clone())
    }
}

impl From<&ClusterKey> for Caller {
    fn from(key: &ClusterKey) -> Self {
        Self::Cluster(key.clone())
    }
}

/// The budget of each provider, by its name. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Budgets(Arc<Mutex<BTreeMap<String, Budget<Caller>>>>);

impl Budgets {
    /// Asks for a call, of so many a minute.
    pub(crate) fn take(
        &self,
        provider: &str,
        caller: impl Into<Caller>,
        urgency: Urgency,
        per_minute: u32,
        now: Timestamp,
    ) -> Turn {
        let (caller, per_minute) = (caller.into(), usize::try_from(per_minute).unwrap_or(usize::MAX));
        self.all().entry(provider.to_owned()).or_default().take(
            (caller.namespace(), &caller),
            urgency,
            per_minute,
            now,
        )
    }

    /// Grants nothing until then: what the provider leads to has too many requests.
    pub(crate) fn throttle(&self, provider: &str, until: Timestamp) {
        self.all().entry(provider.to_owned()).or_default().throttle(until);
    }

    /// Until when nothing is asked of what the provider leads to; none if something may be.
    pub(crate) fn throttled_until(&self, provider: &str, now: Timestamp) -> Option<Timestamp> {
        self.all().get(provider)?.throttled_until(now)
    }

    /// What was granted to it last was not asked for.
    pub(crate) fn give_back(&self, provider: &str, caller: impl Into<Caller>) {
        if let Some(budget) = self.all().get_mut(provider) {
            budget.give_back(&caller.into());
        }
    }

    /// When one that waits is to ask again; none if it does not wait, or that time has come.
    pub(crate) fn asks_again(
        &self,
        provider: &str,
        caller: impl Into<Caller>,
        now: Timestamp,
    ) -> Option<Timestamp> {
        self.all().get(provider)?.asks_again(&caller.into(), now)
    }

    /// Since when one waits; none if it does not.
    pub(crate) fn waits_since(&self, provider: &str, caller: impl Into<Caller>) -> Option<Timestamp> {
        self.all().get(provider)?.waits_since(&caller.into())
    }

    /// It waits for none of them any more.
    pub(crate) fn stop_waiting(&self, caller: impl Into<Caller>) {
        let caller = caller.into();
        self.all().values_mut().for_each(|budget| budget.stop_waiting(&caller));
    }

    /// How many wait for one provider.
    pub(crate) fn waiting(&self, provider: &str, now: Timestamp) -> i64 {
        let waiting = self.all().get(provider).map_or(0, |budget| budget.waiting(now));
        i64::try_from(waiting).unwrap_or(i64::MAX)
    }

    /// Removes the budgets of all others.
    pub(crate) fn retain(&self, is_kept: impl Fn(&str) -> bool) {
        self.all().retain(|provider, _| is_kept(provider));
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<String, Budget<Caller>>> {
        // A panic leaves valid data: at worst somebody waits who was granted.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn clusters_and_accesses_have_one_budget_and_what_is_urgent_goes_first() {
        let (budgets, access) = (Budgets::default(), AccessKey::new("team", "shop"));
        // Of the same name, and another caller.
        let cluster = ClusterKey::new("team", "shop");
        assert_eq!(budgets.take("p", &cluster, Urgency::Routine, 1, at(0)), Turn::Granted);
        assert_eq!(budgets.take("p", &access, Urgency::Expiring, 1, at(1)), Turn::NotBefore(at(60)));
        assert!(matches!(budgets.take("p", &cluster, Urgency::Routine, 1, at(2)), Turn::NotBefore(_)));
        assert_eq!(budgets.waiting("p", at(3)), 2);
        // The credential that expires goes before a look at a cluster.
        assert!(matches!(budgets.take("p", &cluster, Urgency::Routine, 1, at(60)), Turn::NotBefore(_)));
        assert_eq!(budgets.take("p", &access, Urgency::Expiring, 1, at(60)), Turn::Granted);
    }
}
