//! Everything that plans are made of, at one instant: from a cluster or from files.

use std::collections::{BTreeMap, BTreeSet};

use coppice_api::CoppiceConfigSpec;
use coppice_api::config::GovernorStatus;
use coppice_lifecycle::facts::{Fact, JobFacts, Many, NamespaceFacts, PodFacts};
use coppice_lifecycle::governor::hourly_limit;
use coppice_lifecycle::law::{Law, ScaleKind};
use coppice_lifecycle::plan::MAX_MANAGERS;
use jiff::Timestamp;

use crate::facts::{Config, Manager};

/// What there is.
#[derive(Debug)]
pub(crate) struct Snapshot {
    /// The managers that were asked for, by namespace and name.
    pub(crate) managers: Vec<Manager>,
    /// Namespace and name of the managers that have too many older ones beside them.
    pub(crate) too_many: BTreeSet<(String, String)>,
    /// Every namespace that is known.
    pub(crate) namespaces: BTreeMap<String, NamespaceFacts>,
    pub(crate) pods: ByNamespace<PodFacts>,
    pub(crate) jobs: ByNamespace<JobFacts>,
    pub(crate) law: Law,
    pub(crate) ledger: GovernorStatus,
    /// How many namespaces are managed.
    pub(crate) managed: u64,
    /// What to say about how this came about.
    pub(crate) warnings: Vec<String>,
}

/// Objects of one kind, as far as they could be read.
#[derive(Debug)]
pub(crate) struct ByNamespace<T> {
    known: BTreeMap<String, Vec<T>>,
    /// Why nothing is known, if so.
    unknown: Option<(coppice_api::Reason, String)>,
}

impl<T> Default for ByNamespace<T> {
    fn default() -> Self {
        Self { known: BTreeMap::new(), unknown: None }
    }
}

impl<T> ByNamespace<T> {
    /// Nothing is known, and why.
    pub(crate) fn unknown(reason: coppice_api::Reason, message: String) -> Self {
        Self { unknown: Some((reason, message)), ..Self::default() }
    }

    /// Adds an object.
    pub(crate) fn add(&mut self, namespace: &str, object: T) {
        self.known.entry(namespace.to_owned()).or_default().push(object);
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
    /// status is believed.
    pub(crate) fn fact(&self, namespace: &str) -> Fact<Many<'_, T>> {
        if let Some((reason, message)) = &self.unknown {
            return Fact::Unknown { reason: *reason, message: message.clone() };
        }
        let value = self.known.get(namespace).map_or(Many::NONE, |all| Many::Plain(all));
        Fact::Known { value, since: Timestamp::MIN }
    }
}

/// The managers that are not followed because their namespace has too many, by namespace and name.
pub(crate) fn too_many(managers: &[Manager]) -> BTreeSet<(String, String)> {
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

/// The law by the settings, with the budget's ledger. Settings that are absent have their defaults; settings that
/// cannot be understood pause every destructive step, as in the operator.
pub(crate) fn law(
    config: Option<Config>,
    own_namespace: &str,
    scale_kinds: Vec<ScaleKind>,
    warnings: &mut Vec<String>,
) -> (Law, GovernorStatus) {
    let (spec, ledger) = match config {
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
    let law = Law::new(spec, own_namespace, scale_kinds);
    warnings.extend(
        law.problems.iter().map(|p| format!("CoppiceConfig/coppice: {p}; the entry permits nothing")),
    );
    (law, ledger)
}

/// So many namespaces must be managed for the hourly limit that the operator reports: the count itself may not be
/// visible to the user.
pub(crate) fn managed_by_limit(law: &Law, ledger: &GovernorStatus) -> u64 {
    let settings = &law.config.governor;
    let percent = settings.max_share.of(100).max(1);
    let managed = (u64::from(ledger.hourly_limit) * 100).div_ceil(percent);
    if hourly_limit(settings, managed) == ledger.hourly_limit { managed } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coppice_api::Reason;

    #[test]
    fn what_could_not_be_read_is_unknown_and_never_empty() {
        let pods = ByNamespace::<u8>::unknown(Reason::Forbidden, "no".to_owned());
        assert!(matches!(pods.fact("a"), Fact::Unknown { reason: Reason::Forbidden, .. }));
        let none = ByNamespace::<u8>::default();
        assert!(matches!(none.fact("a"), Fact::Known { value, .. } if value.iter().next().is_none()));
    }

    #[test]
    fn the_reported_limit_gives_back_a_count_with_the_same_limit() {
        let law = Law::new(CoppiceConfigSpec::default(), "coppice-system", Vec::new());
        for managed in [0, 1, 50, 51, 99, 1000, 100_000] {
            let limit = hourly_limit(&law.config.governor, managed);
            let ledger = GovernorStatus { hourly_limit: limit, ..GovernorStatus::default() };
            assert_eq!(
                hourly_limit(&law.config.governor, managed_by_limit(&law, &ledger)),
                limit,
                "{managed}"
            );
        }
    }
}
