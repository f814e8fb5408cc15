//! Whether every effect had an intent, happened once, and was by the one who held the lease.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::Value;

use super::destructive::scaled;
use super::history::History;
use super::invariant::{Findings, Invariant};
use coppice_sim::run::RunRecord;
use coppice_sim::server::Verb;
use coppice_sim::trace::Actor;
use coppice_sim::{Done, OPERATOR};

pub(super) fn check(record: &RunRecord<'_>, history: &History, found: &mut Findings) {
    scalings(record, history, found);
    firings(history, found);
    webhooks(record, history, found);
    holders(record, history, found);
    cleanliness(record, found);
}

/// A workload goes down once for each firing, is remembered before, and comes back to what it was.
fn scalings(record: &RunRecord<'_>, history: &History, found: &mut Findings) {
    let mut scale_downs: BTreeMap<(String, &str, &str), u32> = BTreeMap::new();
    for change in record.changes.iter().filter(|change| &*change.user == OPERATOR) {
        let Some((before, after)) = scaled(change) else { continue };
        let (namespace, name) = (change.namespace(), change.name());
        let managers = history.list("namespacemanagers", namespace, change.revision - 1);
        let mut all =
            managers.iter().flat_map(|m| m["status"]["scaledDown"].as_array().into_iter().flatten());
        let Some(recorded) = all.find(|workload| workload["uid"].as_str() == Some(&*change.uid)) else {
            let what = format!("{namespace}/{name} went from {before} to {after} and is not remembered");
            found.add(Invariant::OriginalReplicas, &what);
            continue;
        };
        // CronJobs have no replicas.
        let size = recorded["replicas"].as_u64().unwrap_or(1);
        if after == 0 {
            let firing = managers.iter().find_map(|m| m["status"]["intent"]["id"].as_str()).unwrap_or("none");
            *scale_downs.entry((firing.to_owned(), namespace, name)).or_default() += 1;
            if size != before {
                found.add(
                    Invariant::OriginalReplicas,
                    &format!("{namespace}/{name} had {before} replicas; {size} is remembered"),
                );
            }
        } else if size != after {
            found.add(
                Invariant::OriginalReplicas,
                &format!("{namespace}/{name} was woken to {after}; {size} was remembered"),
            );
        }
    }
    for ((firing, namespace, name), count) in scale_downs {
        if count > 1 {
            found.add(
                Invariant::Once,
                &format!("{namespace}/{name} was scaled down {count} times by firing {firing}"),
            );
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
                found.add(
                    Invariant::Once,
                    &format!("{name} fires again after firing {count}, without having changed"),
                );
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

/// Every webhook that was received was intended, and its attempts have one id and one body.
fn webhooks(record: &RunRecord<'_>, history: &History, found: &mut Findings) {
    let mut bodies: BTreeMap<&str, BTreeSet<&[u8]>> = BTreeMap::new();
    for received in record.received {
        bodies.entry(&received.id).or_default().insert(&received.body);
        let revision = history.revision_at(received.at);
        let known = record.changes.iter().take_while(|change| change.revision <= revision).any(|change| {
            change
                .after
                .as_deref()
                .is_some_and(|after| after["status"]["intent"]["id"] == received.id.as_str())
        });
        if !known {
            found.add(Invariant::IntentFirst, &format!("webhook {} was sent without an intent", received.id));
        }
    }
    for (id, bodies) in bodies {
        if bodies.len() > 1 {
            found.add(
                Invariant::Once,
                &format!("webhook {id} was sent with {} different bodies", bodies.len()),
            );
        }
    }
}

/// Who writes holds the lease when the write is sent. Leases themselves and Events are written by everybody.
fn holders(record: &RunRecord<'_>, history: &History, found: &mut Findings) {
    for done in record.done.iter().filter(|done| needs_lease(done)) {
        let Actor::Replica { replica, incarnation } = done.who else { continue };
        let me = format!("replica-{replica}.{incarnation}");
        // What was decided while the lease was held may be sent a moment later.
        let held = |revision: u64| {
            let lease = history.at("leases", "coppice-system", "coppice-operator", revision);
            lease.is_some_and(|lease| lease["spec"]["holderIdentity"] == me.as_str())
        };
        if !history.revisions_between(done.sent.saturating_sub(Duration::from_millis(5)), done.sent).any(held)
        {
            let (method, path) = (&done.request.method, &done.request.path);
            found.add(Invariant::Lease, &format!("{me} sent {method} {path} without holding the lease"));
        }
    }
}

fn needs_lease(done: &Done) -> bool {
    let path = &done.request.path;
    done.code < 300 && !path.contains("/leases") && !path.contains("/events") && !path.ends_with("reviews")
}

/// Nothing that we wrote keeps anything from going away.
fn cleanliness(record: &RunRecord<'_>, found: &mut Findings) {
    let ours = record.changes.iter().filter(|change| &*change.user == OPERATOR);
    let field = |object: &Option<std::sync::Arc<Value>>, field: &str| {
        object.as_deref().map_or(Value::Null, |object| object["metadata"][field].clone())
    };
    let left = ours.filter(|change| {
        // An update that removes an object has taken away its last finalizer.
        let deletes = matches!(change.verb, Verb::Delete | Verb::DeleteCollection);
        let differs = |f: &&str| field(&change.before, f) != field(&change.after, f);
        match change.after {
            Some(_) => ["finalizers", "ownerReferences"].iter().any(differs),
            None => !deletes,
        }
    });
    for change in left {
        let (kind, name) = (&change.kind.plural, change.name());
        found
            .add(Invariant::NoForeignChanges, &format!("finalizers or owners of {kind} {name} were changed"));
    }
}
