//! Whether every effect had an intent, happened once, and was by the one who held the lease.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::Value;

use super::history::History;
use crate::run::Truth;
use crate::server::{Change, Verb};
use crate::trace::Who;
use crate::world::{Done, OPERATOR};

pub(super) fn violations(truth: &Truth<'_>, history: &History) -> Vec<String> {
    let mut found = scalings(truth, history);
    found.extend(webhooks(truth, history));
    found.extend(holders(truth, history));
    found.extend(cleanliness(truth));
    found
}

/// Workloads that are scaled down by policies, and what the change was.
fn scaled(change: &Change) -> Option<(u64, u64)> {
    let workload = matches!(&*change.kind.plural, "deployments" | "statefulsets" | "replicasets");
    if !workload || &*change.user != OPERATOR {
        return None;
    }
    let replicas = |object: &Option<std::sync::Arc<Value>>| object.as_deref()?["spec"]["replicas"].as_u64();
    Some((replicas(&change.before)?, replicas(&change.after)?)).filter(|(before, after)| before != after)
}

/// A workload goes down once for each firing, is remembered before, and comes back to what it was.
fn scalings(truth: &Truth<'_>, history: &History) -> Vec<String> {
    let mut found = Vec::new();
    let mut downs: BTreeMap<(String, String, String), u32> = BTreeMap::new();
    for change in truth.changes {
        let Some((before, after)) = scaled(change) else { continue };
        let (namespace, name) = (change.namespace(), change.name());
        let managers = history.list("namespacemanagers", namespace, change.revision - 1);
        let remembered = managers
            .iter()
            .flat_map(|manager| manager["status"]["scaledDown"].as_array().into_iter().flatten())
            .find(|workload| workload["uid"].as_str() == Some(&*change.uid));
        let Some(remembered) = remembered else {
            found.push(format!(
                "CRASH-ONLY: {namespace}/{name} went from {before} to {after} and is not remembered"
            ));
            continue;
        };
        let size = remembered["replicas"].as_u64();
        if after == 0 {
            let firing = managers.iter().find_map(|m| m["status"]["intent"]["id"].as_str()).unwrap_or("none");
            let key = (firing.to_owned(), namespace.to_owned(), name.to_owned());
            *downs.entry(key).or_default() += 1;
            if size != Some(before) {
                found.push(format!(
                    "CRASH-ONLY: {namespace}/{name} had {before} replicas; {size:?} is remembered"
                ));
            }
        } else if size != Some(after) {
            found.push(format!(
                "CRASH-ONLY: {namespace}/{name} was woken to {after}; {size:?} was remembered"
            ));
        }
    }
    for ((firing, namespace, name), count) in downs {
        if count > 1 || firing == "none" {
            found.push(format!("ONCE: {namespace}/{name} was scaled down {count} times by firing {firing}"));
        }
    }
    found
}

/// Every webhook that was received was intended, and its attempts have one id and one body.
fn webhooks(truth: &Truth<'_>, history: &History) -> Vec<String> {
    let mut found = Vec::new();
    let mut bodies: BTreeMap<&str, BTreeSet<&[u8]>> = BTreeMap::new();
    for received in truth.received {
        bodies.entry(&received.id).or_default().insert(&received.body);
        let revision = history.revision_at(received.at);
        let known = truth.changes.iter().take_while(|change| change.revision <= revision).any(|change| {
            change
                .after
                .as_deref()
                .is_some_and(|after| after["status"]["intent"]["id"] == received.id.as_str())
        });
        if !known {
            found.push(format!("CRASH-ONLY: webhook {} was sent without an intent", received.id));
        }
    }
    for (id, bodies) in bodies {
        if bodies.len() > 1 {
            found.push(format!("ONCE: webhook {id} was sent with {} different bodies", bodies.len()));
        }
    }
    found
}

/// Who writes holds the lease when the write is sent. Leases themselves and Events are written by everybody.
fn holders(truth: &Truth<'_>, history: &History) -> Vec<String> {
    let mut found = Vec::new();
    for done in truth.done.iter().filter(|done| needs_lease(done)) {
        let Who::Replica { replica, life } = done.who else { continue };
        let me = format!("replica-{replica}.{life}");
        // What was decided while the lease was held may be sent a moment later.
        let held = |revision: u64| {
            let lease = history.at("leases", "coppice-system", "coppice-operator", revision);
            lease.is_some_and(|lease| lease["spec"]["holderIdentity"] == me.as_str())
        };
        if !history.revisions_between(done.sent.saturating_sub(Duration::from_millis(5)), done.sent).any(held)
        {
            found.push(format!(
                "LEASE: {me} sent {} {} without holding the lease",
                done.request.method, done.request.path
            ));
        }
    }
    found
}

fn needs_lease(done: &Done) -> bool {
    let path = &done.request.path;
    done.code < 300 && !path.contains("/leases") && !path.contains("/events") && !path.ends_with("reviews")
}

/// Nothing that we wrote keeps anything from going away.
fn cleanliness(truth: &Truth<'_>) -> Vec<String> {
    let ours = truth.changes.iter().filter(|change| &*change.user == OPERATOR);
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
    left.map(|change| {
        format!(
            "LEAVES CLEANLY: finalizers or owners of {} {} were changed",
            change.kind.plural,
            change.name()
        )
    })
    .collect()
}
