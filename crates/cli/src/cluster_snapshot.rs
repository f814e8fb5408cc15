//! The inputs of plans, at one instant: from a cluster or from files.

use std::collections::{BTreeMap, BTreeSet};

use coppice_api::config::GovernorStatus;
use coppice_api::{CoppiceConfigSpec, Reason};
use coppice_lifecycle::facts::{Fact, JobFacts, NamespaceFacts, ObjectSlice, PodFacts};
use coppice_lifecycle::governor::hourly_limit;
use coppice_lifecycle::plan::MAX_MANAGERS;
use coppice_lifecycle::settings::{PlatformSettings, ScaleKind};
use jiff::Timestamp;

use crate::facts::{Config, Manager};

/// The snapshot of what there is.
#[derive(Debug)]
pub(crate) struct ClusterSnapshot {
    /// The managers that were asked for, by namespace and name.
    pub(crate) managers: Vec<Manager>,
    /// Namespace and name of the managers that have too many older ones beside them.
    pub(crate) excess_managers: BTreeSet<(String, String)>,
    /// Every namespace that is known.
    pub(crate) namespaces: BTreeMap<String, NamespaceFacts>,
    pub(crate) pods: ByNamespace<PodFacts>,
    pub(crate) jobs: ByNamespace<JobFacts>,
    pub(crate) settings: PlatformSettings,
    pub(crate) budget: GovernorStatus,
    /// How many namespaces are managed.
    pub(crate) managed: u64,
    /// Remarks on how the snapshot was made.
    pub(crate) warnings: Vec<String>,
}

/// Objects of one kind, as far as they could be read.
#[derive(Debug)]
pub(crate) struct ByNamespace<T> {
    known: BTreeMap<String, Vec<T>>,
    /// The first object of a namespace that cannot be decoded; of one that does not say where it is, `""`.
    odd: BTreeMap<String, String>,
    /// Why nothing is known, if so.
    unknown: Option<(Reason, String)>,
}

impl<T> Default for ByNamespace<T> {
    fn default() -> Self {
        Self { known: BTreeMap::new(), odd: BTreeMap::new(), unknown: None }
    }
}

impl<T> ByNamespace<T> {
    /// Nothing is known, and why.
    pub(crate) fn unknown(reason: Reason, message: String) -> Self {
        Self { unknown: Some((reason, message)), ..Self::default() }
    }

    /// Adds an object.
    pub(crate) fn add(&mut self, namespace: &str, object: T) {
        self.known.entry(namespace.to_owned()).or_default().push(object);
    }

    /// Records an object that cannot be decoded, with a warning about it.
    pub(crate) fn add_odd(&mut self, namespace: &str, message: String) {
        self.odd.entry(namespace.to_owned()).or_insert(message);
    }

    /// Whether there is any object in the namespace.
    pub(crate) fn is_empty(&self, namespace: &str) -> bool {
        self.known.get(namespace).is_none_or(Vec::is_empty)
    }

    /// Sorts what is known, so that messages name the same objects as the operator's.
    pub(crate) fn sort_by(&mut self, name: impl Fn(&T) -> &str) {
        self.known.values_mut().for_each(|all| all.sort_by(|a, b| name(a).cmp(name(b))));
    }

    /// What is known of a namespace. How long the operator has followed it cannot be known here; what it recorded in
    /// status is trusted.
    pub(crate) fn fact(&self, namespace: &str) -> Fact<ObjectSlice<'_, T>> {
        if let Some((reason, message)) = &self.unknown {
            return Fact::Unknown { reason: *reason, message: message.clone() };
        }
        if let Some(message) = self.odd.get(namespace).or_else(|| self.odd.get("")) {
            return Fact::Unknown { reason: Reason::Undecodable, message: message.clone() };
        }
        let value = self.known.get(namespace).map_or(ObjectSlice::EMPTY, |all| ObjectSlice::Slice(all));
        Fact::Known { value, since: Timestamp::MIN }
    }
}

/// The managers that are not followed because their namespace has too many, by namespace and name.
pub(crate) fn excess_managers(managers: &[Manager]) -> BTreeSet<(String, String)> {
    let mut by_namespace: BTreeMap<&str, Vec<&Manager>> = BTreeMap::new();
    for manager in managers {
        by_namespace.entry(manager.namespace()).or_default().push(manager);
    }
    let beyond = by_namespace.into_values().flat_map(|mut all| {
        all.sort_by_key(|m| (m.meta.creation_timestamp.as_ref().map_or(Timestamp::MAX, |at| at.0), m.name()));
        all.into_iter().skip(MAX_MANAGERS)
    });
    beyond.map(|m| (m.namespace().to_owned(), m.name().to_owned())).collect()
}

/// The compiled settings, with the budget's ledger. Settings that are absent have their defaults; settings that
/// cannot be understood pause every destructive step, as in the operator.
pub(crate) fn settings(
    config: Option<Config>,
    own_namespace: &str,
    scale_kinds: Vec<ScaleKind>,
    warnings: &mut Vec<String>,
) -> (PlatformSettings, GovernorStatus) {
    let (spec, budget) = match config {
        None => (CoppiceConfigSpec::default(), GovernorStatus::default()),
        Some(config) => {
            let spec = config.spec.unwrap_or_else(|error| {
                warnings.push(format!("CoppiceConfig/coppice: {error}; every destructive step is paused"));
                let mut spec = CoppiceConfigSpec::default();
                spec.governor.paused = true;
                spec
            });
            (spec, config.status.governor)
        }
    };
    let settings = PlatformSettings::new(spec, own_namespace, scale_kinds);
    warnings.extend(
        settings.problems.iter().map(|p| format!("CoppiceConfig/coppice: {p}; the entry permits nothing")),
    );
    (settings, budget)
}

/// The number of managed namespaces that gives the hourly limit which the operator reports: the count itself may not be
/// visible to the user.
pub(crate) fn managed_by_limit(settings: &PlatformSettings, budget: &GovernorStatus) -> u64 {
    let settings = &settings.config.governor;
    let percent = settings.max_share.of(100).max(1);
    let managed = (u64::from(budget.hourly_limit) * 100).div_ceil(percent);
    if hourly_limit(settings, managed) == budget.hourly_limit { managed } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_not_be_read_is_unknown_and_never_empty() {
        let pods = ByNamespace::<u8>::unknown(Reason::Forbidden, "no".to_owned());
        assert!(matches!(pods.fact("a"), Fact::Unknown { reason: Reason::Forbidden, .. }));
        let none = ByNamespace::<u8>::default();
        assert!(matches!(none.fact("a"), Fact::Known { value, .. } if value.iter().next().is_none()));
        let mut jobs = ByNamespace::<u8>::default();
        let of = |jobs: &ByNamespace<u8>, namespace| match jobs.fact(namespace) {
            Fact::Known { .. } => None,
            Fact::Unknown { reason, message } => Some((reason, message)),
        };
        for message in ["first", "second"] {
            jobs.add_odd("a", message.to_owned());
        }
        assert_eq!(of(&jobs, "a"), Some((Reason::Undecodable, "first".to_owned())));
        assert_eq!(of(&jobs, "b"), None, "elsewhere all is known");
        jobs.add_odd("", "nowhere".to_owned());
        assert_eq!(of(&jobs, "b"), Some((Reason::Undecodable, "nowhere".to_owned())));
    }

    #[test]
    fn the_reported_limit_gives_back_a_count_with_the_same_limit() {
        let settings = PlatformSettings::new(CoppiceConfigSpec::default(), "coppice-system", Vec::new());
        for managed in [0, 1, 50, 51, 99, 1000, 100_000] {
            let limit = hourly_limit(&settings.config.governor, managed);
            let budget = GovernorStatus { hourly_limit: limit, ..GovernorStatus::default() };
            assert_eq!(
                hourly_limit(&settings.config.governor, managed_by_limit(&settings, &budget)),
                limit,
                "{managed}"
            );
        }
    }
}
