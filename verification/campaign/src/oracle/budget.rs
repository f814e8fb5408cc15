//! Whether more was destroyed in a time than may be: deletions and scale-downs together, a scale-down being one step however many
//! workloads it is about. What has a budget of its own is counted by the suite that knows it.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::Value;

use super::history::History;
use super::rule::{Findings, PER_HOUR, PER_MINUTE, SHARE};
use super::steps::{DestructiveAction, DestructiveStep};
use crate::suite::Suite;
use coppice_sim::run::RunRecord;

/// Reserved a minute apart, two steps are sent so far apart at least: a step may be sent some seconds after its reservation.
pub(crate) const MINUTE: Duration = Duration::from_secs(54);
pub(crate) const HOUR: Duration = Duration::from_secs(3594);
/// What was reserved under other settings may be sent so much later.
const RESERVATION_DELAY: Duration = Duration::from_secs(6);

pub(super) fn check(
    suite: &Suite,
    record: &RunRecord<'_>,
    history: &History,
    steps: &[DestructiveStep<'_>],
    found: &mut Findings,
) {
    let mut scaled = BTreeSet::new();
    let mut times: Vec<Duration> = Vec::new();
    for step in steps.iter().filter(|step| (suite.own_budget)(history, step).is_none()) {
        // Deletions and the first workload of each scale-down.
        let firing = step.intent.map_or(&Value::Null, |intent| &intent["id"]).as_str();
        if step.action == DestructiveAction::Delete || scaled.insert((step.namespace, firing)) {
            times.push(step.done.sent);
        }
    }
    times.sort_unstable();
    let managed = managed(record, history);
    for (n, last) in times.iter().enumerate() {
        let known = history.revisions_between(last.saturating_sub(RESERVATION_DELAY), *last);
        let settings: Vec<Option<&Value>> = known.map(|r| history.settings(r)).collect();
        let most = |limit: &dyn Fn(&Value) -> u64| {
            settings
                .iter()
                .map(|c| limit(c.map_or(&Value::Null, |c| &c["spec"]["governor"])))
                .max()
                .unwrap_or(0)
        };
        let number = |value: &Value, default: u64| value.as_u64().unwrap_or(default);
        // Caches may be behind, and namespaces leave: of all that were managed until then.
        let of = managed.iter().filter(|(at, _)| at <= last).map(|(_, count)| *count).max().unwrap_or(0);
        let share = |governor: &Value| {
            let text = governor["maxShare"].as_str().unwrap_or("20%");
            let percent: u64 = text.trim_end_matches('%').parse().unwrap_or(0);
            (of * percent / 100).max(number(&governor["atLeast"], 10))
        };
        let limits = [
            (PER_MINUTE, MINUTE, most(&|g| number(&g["perMinute"], 30))),
            (PER_HOUR, HOUR, most(&|g| number(&g["perHour"], 300))),
            (SHARE, HOUR, most(&share)),
        ];
        for (rule, window, limit) in limits {
            let within = times[..=n].iter().filter(|first| last.saturating_sub(**first) < window);
            let count = within.count() as u64;
            if count > limit {
                found.add(
                    rule,
                    &format!("{count} steps until {last:?}, of at most {limit} (of {of} managed)"),
                );
            }
        }
    }
}

/// How many namespaces had managers, from when on.
fn managed(record: &RunRecord<'_>, history: &History) -> Vec<(Duration, u64)> {
    let mut managers = BTreeSet::new();
    let changes = record.changes.iter().filter(|change| &*change.kind.plural == "namespacemanagers");
    let counts = changes.map(|change| {
        let place = (change.namespace(), change.name());
        if change.after.is_some() {
            managers.insert(place);
        } else {
            managers.remove(&place);
        }
        let namespaces: BTreeSet<&str> = managers.iter().map(|(namespace, _)| *namespace).collect();
        (history.time_of(change.revision), namespaces.len() as u64)
    });
    counts.collect()
}
