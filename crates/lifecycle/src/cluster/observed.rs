//! Counts what policies that observe would have done, over time and across restarts.

use std::collections::BTreeMap;

use coppice_api::ManagedNamespaceStatus;
use coppice_api::observed::{ObservedCounts, ObservedOutcome, ObservedPolicy, WouldHaveActed};
use coppice_quantity::Duration;
use coppice_quantity::time::in_milliseconds;
use jiff::{SignedDuration, Timestamp};

use super::ValidClusterManager;
use crate::condition::later;

/// What was written so long ago is in every cache. Only that is counted, each of it once: counts say until when they are.
const SEEN: Duration = Duration::from_secs(10);

/// What the records of the namespaces that a cluster manager governs, or has governed, remember of its policies, by policy.
pub type NotedOutcomes = BTreeMap<String, Vec<NotedPolicy>>;

/// What one record remembers of one policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotedPolicy {
    /// When it would have acted.
    pub at: Timestamp,
    /// What became of the namespace, and when.
    pub outcome: Option<(ObservedOutcome, Timestamp)>,
    /// When the manager did not govern it any more; none if it does.
    pub left: Option<Timestamp>,
}

impl NotedPolicy {
    const fn new(acted: &WouldHaveActed, left: Option<Timestamp>) -> Self {
        let outcome = match (acted.outcome, acted.outcome_at) {
            (Some(outcome), Some(at)) => Some((outcome, at)),
            _ => None,
        };
        Self { at: acted.at, outcome, left }
    }
}

/// What a record remembers: the uid and the digest of a manager, the name of its policy, and what that would have done. Of the
/// manager that the record is about, and of those which governed the namespace before, whatever governs it now.
pub(super) fn remembered(
    status: &ManagedNamespaceStatus,
) -> impl Iterator<Item = (&str, &str, &str, NotedPolicy)> {
    let governs = status.manager.iter().flat_map(|manager| {
        let acted = status.would_have_acted.iter();
        acted.map(|acted| (&*manager.uid, &*manager.digest, &*acted.policy, NotedPolicy::new(acted, None)))
    });
    let before = status.observed_before.iter().map(|before| {
        let noted = NotedPolicy::new(&before.acted, Some(before.until));
        (&*before.manager_uid, &*before.digest, &*before.acted.policy, noted)
    });
    governs.chain(before)
}

/// Adds it. Returns when it will be counted, if that is to come.
pub(super) fn note(
    noted: &mut NotedOutcomes,
    policy: &str,
    one: NotedPolicy,
    now: Timestamp,
) -> Option<Timestamp> {
    match noted.get_mut(policy) {
        Some(known) => known.push(one),
        None => drop(noted.insert(policy.to_owned(), vec![one])),
    }
    let times = [Some(one.at), one.outcome.map(|(_, at)| at), one.left].into_iter().flatten();
    times.map(|at| later(at, SEEN)).filter(|at| now < *at).min()
}

/// The counts that go on from those `before`, of the same spec; none if no policy of it observes.
pub fn counts(
    before: Option<&ObservedCounts>,
    manager: &ValidClusterManager,
    noted: &NotedOutcomes,
    now: Timestamp,
) -> Option<ObservedCounts> {
    let observing = || manager.policies().iter().filter(|policy| !policy.enforces);
    observing().next()?;
    let seen = now.checked_sub(SignedDuration::from_secs(SEEN.as_secs_i64())).unwrap_or(Timestamp::MIN);
    let since = before.map_or_else(|| in_milliseconds(now), |before| before.since);
    let last = before.map(|before| before.until);
    let until = last.map_or(seen, |last| last.max(seen));
    let is_new = |at: Timestamp| at <= until && last.is_none_or(|last| last < at);
    let mut policies: Vec<_> = observing()
        .map(|policy| {
            let known = before.and_then(|before| before.policies.iter().find(|one| one.name == policy.name));
            let mut of_policy = known.cloned().unwrap_or_default();
            policy.name.clone_into(&mut of_policy.name);
            count(
                &mut of_policy,
                noted.get(&policy.name).map(Vec::as_slice).unwrap_or_default(),
                until,
                is_new,
            );
            of_policy
        })
        .collect();
    policies.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    Some(match before.filter(|before| before.policies == policies) {
        Some(same) => same.clone(),
        None => ObservedCounts { since, until: in_milliseconds(until), policies },
    })
}

fn count(
    policy: &mut ObservedPolicy,
    noted: &[NotedPolicy],
    until: Timestamp,
    is_new: impl Fn(Timestamp) -> bool,
) {
    let mut there = 0u32;
    for one in noted.iter().filter(|one| one.at <= until) {
        policy.would_have_acted += u32::from(is_new(one.at));
        // What has left is there until that is counted.
        there += u32::from(one.left.is_none_or(|left| until < left));
        policy.not_governed += u32::from(one.left.is_some_and(&is_new));
        let Some((outcome, _)) = one.outcome.filter(|(_, at)| is_new(*at)) else { continue };
        match outcome {
            ObservedOutcome::Recovered => policy.recovered += 1,
            ObservedOutcome::Extended => policy.extended += 1,
            ObservedOutcome::Held => policy.held += 1,
        }
    }
    // Nothing is ever noted twice, and what was noted stays as long as its namespace is there and governed.
    let known = there.saturating_add(policy.not_governed);
    policy.deleted_by_others = policy.deleted_by_others.max(policy.would_have_acted.saturating_sub(known));
}
