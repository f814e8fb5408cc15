//! Counts what policies that observe would have done, over time and across restarts.

use std::collections::BTreeMap;

use coppice_api::observed::{ObservedCounts, ObservedOutcome, ObservedPolicy, WouldHaveActed};
use coppice_quantity::Duration;
use coppice_quantity::time::in_milliseconds;
use jiff::{SignedDuration, Timestamp};

use super::ValidClusterManager;
use crate::condition::later;

/// What was written so long ago is in every cache. Only that is counted, each of it once: counts say until when they are.
const SEEN: Duration = Duration::from_secs(10);

/// What the records of a cluster manager's namespaces remember, by policy.
pub type NotedOutcomes = BTreeMap<String, Vec<(Timestamp, Option<(ObservedOutcome, Timestamp)>)>>;

/// Adds what a record remembers. Returns when it will be counted, if that is to come.
pub(super) fn note(noted: &mut NotedOutcomes, all: &[WouldHaveActed], now: Timestamp) -> Option<Timestamp> {
    let mut next = None;
    for one in all {
        let outcome = one.outcome.zip(one.outcome_at);
        let times = [Some(one.at), outcome.map(|(_, at)| at)].into_iter().flatten();
        let counted = times.map(|at| later(at, SEEN)).filter(|at| now < *at);
        next = counted.chain(next).min();
        match noted.get_mut(&one.policy) {
            Some(known) => known.push((one.at, outcome)),
            None => drop(noted.insert(one.policy.clone(), vec![(one.at, outcome)])),
        }
    }
    next
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
    noted: &[(Timestamp, Option<(ObservedOutcome, Timestamp)>)],
    until: Timestamp,
    is_new: impl Fn(Timestamp) -> bool,
) {
    let mut there = 0u32;
    for (at, outcome) in noted.iter().filter(|(at, _)| *at <= until) {
        there += 1;
        policy.would_have_acted += u32::from(is_new(*at));
        let Some((outcome, _)) = outcome.filter(|(_, at)| is_new(*at)) else { continue };
        match outcome {
            ObservedOutcome::Recovered => policy.recovered += 1,
            ObservedOutcome::Extended => policy.extended += 1,
            ObservedOutcome::Held => policy.held += 1,
        }
    }
    // Nothing is ever noted twice, and what was noted stays as long as its namespace is governed.
    policy.gone = policy.gone.max(policy.would_have_acted.saturating_sub(there));
}
