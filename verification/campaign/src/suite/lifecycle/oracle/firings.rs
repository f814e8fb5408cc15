//! Whether what fired did so once, and what was scaled down is remembered.

use std::collections::BTreeMap;

use coppice_sim::run::RunRecord;
use serde_json::Value;

use super::rule::{ORIGINAL_REPLICAS, REVERTED};
use crate::oracle::rule::ONCE;
use crate::oracle::{Findings, History, scaled};

/// So often a workload is scaled down that something else scales up again.
const MAX_IN_A_ROW: u32 = 3;

pub(super) fn check(record: &RunRecord<'_>, history: &History, found: &mut Findings) {
    scalings("namespacemanagers", record, history, found);
    firings(history, found);
}

/// A workload goes down once for each firing, is remembered before by an object of this kind, and comes back to what it was.
pub(in crate::suite) fn scalings(
    kind: &str,
    record: &RunRecord<'_>,
    history: &History,
    found: &mut Findings,
) {
    let mut scale_downs: BTreeMap<(String, &str, &str), u32> = BTreeMap::new();
    // Since it was woken, by uid.
    let mut in_a_row: BTreeMap<&str, u32> = BTreeMap::new();
    for change in record.changes.iter().filter(|change| record.is_own(change)) {
        let Some((before, after)) = scaled(change) else { continue };
        let (namespace, name) = (change.namespace(), change.name());
        let managers = history.list(kind, namespace, change.revision - 1);
        let mut all =
            managers.iter().flat_map(|m| m["status"]["scaledDown"].as_array().into_iter().flatten());
        let Some(recorded) = all.find(|workload| workload["uid"].as_str() == Some(&*change.uid)) else {
            let what = format!("{namespace}/{name} went from {before} to {after} and is not remembered");
            found.add(ORIGINAL_REPLICAS, &what);
            continue;
        };
        // CronJobs have no replicas.
        let size = recorded["replicas"].as_u64().unwrap_or(1);
        let in_a_row = in_a_row.entry(&change.uid).or_default();
        *in_a_row = if after == 0 { *in_a_row + 1 } else { 0 };
        if *in_a_row > MAX_IN_A_ROW {
            found.add(
                REVERTED,
                &format!("{namespace}/{name} is scaled down for the {in_a_row}th time in a row"),
            );
        }
        if after == 0 {
            let firing = managers.iter().find_map(|m| m["status"]["intent"]["id"].as_str()).unwrap_or("none");
            *scale_downs.entry((firing.to_owned(), namespace, name)).or_default() += 1;
            if size != before {
                found.add(
                    ORIGINAL_REPLICAS,
                    &format!("{namespace}/{name} had {before} replicas; {size} is remembered"),
                );
            }
        } else if size != after {
            found.add(
                ORIGINAL_REPLICAS,
                &format!("{namespace}/{name} was woken to {after}; {size} was remembered"),
            );
        }
    }
    for ((firing, namespace, name), count) in scale_downs {
        if count > 1 {
            found.add(ONCE, &format!("{namespace}/{name} was scaled down {count} times by firing {firing}"));
        }
    }
}

/// Policies that have fired do not fire again, unless they change or `rearm` names that firing.
fn firings(history: &History, found: &mut Findings) {
    for versions in history.all("namespacemanagers") {
        // What the last firing was of, and how many there were with it.
        let mut fired: Option<(&Value, &Value, &Value)> = None;
        let (mut before, mut asked) = (&Value::Null, &Value::Null);
        for manager in versions.iter().map(|(_, version)| version.as_deref().unwrap_or(&Value::Null)) {
            let (metadata, spec, status) = (&manager["metadata"], &manager["spec"], &manager["status"]);
            let intent = &status["intent"];
            let decided = intent["id"].is_string()
                && intent["action"] != "wake"
                && before["intent"]["id"] != intent["id"];
            let again =
                fired.filter(|(uid, policies, _)| *uid == &metadata["uid"] && *policies == &spec["policies"]);
            if let Some((_, _, count)) = again.filter(|_| decided)
                && spec["rearm"] != *count
            {
                let name = &metadata["namespace"];
                found.add(ONCE, &format!("{name} fires again after firing {count}, without having changed"));
            }
            if decided {
                asked = &spec["policies"];
            }
            if status["lastFiring"]["id"] != before["lastFiring"]["id"] {
                fired = Some((&metadata["uid"], asked, &status["firings"]));
            }
            before = status;
        }
    }
}
