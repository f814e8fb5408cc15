//! Counts for the status of each cluster manager.

use std::collections::BTreeMap;

use coppice_api::cluster_manager::{DueCounts, GovernedBy, NamespaceCounts, PolicyDue};
use jiff::Timestamp;

use super::RecordFacts;
use super::phase::phase;
use super::selection::{Candidate, ClusterManagerFacts, contest};
use crate::facts::NamespaceFacts;
use crate::settings::PlatformSettings;

/// So many names are shown.
const SAMPLE: usize = 10;
/// So many other managers are shown.
const MAX_OTHERS: usize = 16;

/// What there is for each cluster manager.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// By the name of the manager.
    pub managers: BTreeMap<String, Counts>,
    /// The namespaces to which a policy of a cluster manager may do something, and that are not managed anyway.
    pub enforced: u64,
    /// When time alone changes a count.
    pub next_check: Option<Timestamp>,
}

/// What there is for one cluster manager.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Namespaces.
    pub namespaces: NamespaceCounts,
    /// What is due.
    pub enforce: DueCounts,
}

/// A namespace with its record.
#[derive(Clone, Copy, Debug)]
pub struct Counted<'a> {
    /// The namespace.
    pub namespace: &'a NamespaceFacts,
    /// Its record, if there is one.
    pub record: Option<RecordFacts<'a>>,
    /// Whether it is among the managed namespaces anyway.
    pub managed: bool,
}

/// Counts. The order of the managers does not matter; that of the namespaces decides which of them are shown. None if a
/// manager cannot be understood: then it is not known who governs what.
pub fn census<'a>(
    namespaces: impl IntoIterator<Item = Counted<'a>>,
    managers: &[ClusterManagerFacts<'_>],
    settings: &PlatformSettings,
    now: Timestamp,
) -> Option<Census> {
    let mut census = Census::default();
    for manager in managers {
        census.managers.entry(manager.name.to_owned()).or_default();
    }
    // One that is being deleted is nobody's any more.
    for counted in namespaces.into_iter().filter(|counted| !counted.namespace.terminating) {
        let contest = contest(managers.iter().copied(), counted.namespace).ok()?;
        let Some(winner) = contest.winner else { continue };
        for (loser, _) in &contest.losers {
            let counts = census.managers.entry(loser.name.to_owned()).or_default();
            counts.namespaces.selected += 1;
            count_other(&mut counts.namespaces.governed_by, winner.name);
        }
        let may_act = !winner.spec.suspend && winner.spec.policies().iter().any(|policy| policy.enforces);
        let protected = settings.protection(counted.namespace).is_some();
        census.enforced += u64::from(may_act && !protected && !counted.managed);
        let counts = census.managers.entry(winner.name.to_owned()).or_default();
        let changes = count_governed(counts, counted, &winner, settings, now);
        census.next_check = census.next_check.into_iter().chain(changes).min();
    }
    Some(census)
}

/// Counts a namespace for the manager that governs it. Returns when time alone changes that.
fn count_governed(
    counts: &mut Counts,
    Counted { namespace, record, .. }: Counted<'_>,
    manager: &Candidate<'_>,
    settings: &PlatformSettings,
    now: Timestamp,
) -> Option<Timestamp> {
    counts.namespaces.selected += 1;
    counts.namespaces.governed += 1;
    let recorded = record.and_then(|record| record.status.manager.as_ref());
    counts.namespaces.recorded += u32::from(recorded.is_some_and(|recorded| manager.is(recorded)));
    let spec = record.and_then(|record| record.spec.ok());
    let hold = spec.and_then(|spec| spec.hold.as_ref()).filter(|hold| now < hold.until);
    if settings.protection(namespace).is_some() {
        return None;
    }
    if let Some(hold) = hold {
        return Some(hold.until);
    }
    let extended = spec.and_then(|spec| spec.extend_until.as_ref()).map(|extension| extension.at);
    let finding = phase(manager.spec, namespace, extended, now);
    let (mut due, mut next) = (false, None);
    for policy in manager.spec.policies() {
        match finding.due(&policy.condition) {
            Some(at) if at <= now => {
                due = true;
                count_policy(&mut counts.enforce.policies, &policy.name);
            }
            at => next = next.into_iter().chain(at).min(),
        }
    }
    if due {
        counts.enforce.due += 1;
        if counts.enforce.sample.len() < SAMPLE {
            counts.enforce.sample.push(namespace.name.clone());
        }
    }
    next
}

fn count_policy(policies: &mut Vec<PolicyDue>, name: &str) {
    match policies.iter_mut().find(|policy| policy.name == name) {
        Some(known) => known.due += 1,
        None => policies.push(PolicyDue { name: name.to_owned(), due: 1 }),
    }
    policies.sort_unstable_by(|a, b| a.name.cmp(&b.name));
}

fn count_other(others: &mut Vec<GovernedBy>, name: &str) {
    match others.iter().position(|other| other.name == name) {
        Some(known) => others[known].namespaces += 1,
        None if others.len() < MAX_OTHERS => {
            others.push(GovernedBy { name: name.to_owned(), namespaces: 1 });
            others.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        }
        None => {}
    }
}
