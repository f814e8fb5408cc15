//! Whether webhooks were intended, and every write was by the one who held the lease.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use coppice_api::names::{FINALIZER, GROUP};
use coppice_sim::Done;
use coppice_sim::receiver::Received;
use coppice_sim::run::RunRecord;
use coppice_sim::server::{Change, Verb};
use coppice_sim::target::TargetServer;
use coppice_sim::trace::Actor;
use serde_json::Value;

use super::history::History;
use super::rule::{Findings, INTENT_FIRST, LEASE, NO_FOREIGN_CHANGES, ONCE};

pub(super) fn check(record: &RunRecord<'_>, history: &History, found: &mut Findings) {
    webhooks(record, history, found);
    holders(record, history, found);
    cleanliness(record, found);
}

/// Every webhook that was received was intended, and its attempts have one id and one body; every message to an owner had been
/// written down.
fn webhooks(record: &RunRecord<'_>, history: &History, found: &mut Findings) {
    let mut bodies: BTreeMap<&str, BTreeSet<&[u8]>> = BTreeMap::new();
    for received in record.received {
        // A message to an owner says how things are at each attempt.
        let to_owner = received.id.starts_with("notice-");
        if !to_owner {
            bodies.entry(&received.id).or_default().insert(&received.body);
        }
        let revision = history.revision_at(received.at);
        let is_known = |id: &str| {
            record.changes.iter().take_while(|change| change.revision <= revision).any(|change| {
                let status = change.after.as_deref().map_or(&Value::Null, |after| &after["status"]);
                let mut notices = status["notices"].as_array().into_iter().flatten();
                status["intent"]["id"] == id || to_owner && notices.any(|notice| notice["key"] == id)
            })
        };
        // Of messages that were joined the first and the last.
        if !joins(received).map_or_else(|| is_known(&received.id), |ends| ends.into_iter().all(is_known)) {
            found.add(INTENT_FIRST, &format!("webhook {} was sent without an intent", received.id));
        }
    }
    for (id, bodies) in bodies {
        if bodies.len() > 1 {
            found.add(ONCE, &format!("webhook {id} was sent with {} different bodies", bodies.len()));
        }
    }
}

/// The ids of the first and the last of the messages that a message joins: a digest of all of them follows in its own id. None if it is one
/// by itself.
pub(crate) fn joins(received: &Received) -> Option<[&str; 2]> {
    let (first, last) = received.id.split_once("-to-")?;
    Some([first, last.rsplit_once('-')?.0])
}

/// Who writes holds the lease when the write is sent, to another cluster, too. Leases themselves and Events are written by everybody.
fn holders(record: &RunRecord<'_>, history: &History, found: &mut Findings) {
    let in_target = record.target.map(TargetServer::done).unwrap_or_default();
    for done in record.done.iter().chain(in_target).filter(|done| needs_lease(done)) {
        let Actor::Replica { replica, .. } = done.who else { continue };
        let Some(settings) = record.replicas.get(replica) else { continue };
        let (me, (namespace, name)) = (done.who.to_string(), settings.program.lease());
        // What was decided while the lease was held may be sent a moment later.
        let held = |revision: u64| {
            let lease = history.at("leases", namespace, name, revision);
            lease.is_some_and(|lease| lease["spec"]["holderIdentity"] == me.as_str())
        };
        if !history.revisions_between(done.sent.saturating_sub(Duration::from_millis(5)), done.sent).any(held)
        {
            let (method, path) = (&done.request.method, &done.request.path);
            found.add(LEASE, &format!("{me} sent {method} {path} without holding the lease"));
        }
    }
}

fn needs_lease(done: &Done) -> bool {
    let path = &done.request.path;
    done.code < 300 && !path.contains("/leases") && !path.contains("/events") && !path.ends_with("reviews")
}

/// Nothing that we wrote keeps anything from going away.
fn cleanliness(record: &RunRecord<'_>, found: &mut Findings) {
    let ours = record.changes.iter().filter(|change| record.is_own(change));
    let left = ours.filter(|change| {
        // An update that removes an object has taken away its last finalizer.
        let deletes = matches!(change.verb, Verb::Delete | Verb::DeleteCollection);
        let differs = || holds(change.before.as_deref(), change) != holds(change.after.as_deref(), change);
        if change.after.is_some() { differs() } else { !deletes && differs() }
    });
    for change in left {
        let (kind, name) = (&change.kind.plural, change.name());
        found.add(NO_FOREIGN_CHANGES, &format!("finalizers or owners of {kind} {name} were changed"));
    }
}

/// What keeps an object from going away: owners and finalizers, but that by which our own kinds are cleaned up after, and owners of these.
fn holds(object: Option<&Value>, change: &Change) -> [Value; 2] {
    let metadata = object.map_or(&Value::Null, |object| &object["metadata"]);
    let is_ours = |finalizer: &Value| change.kind.group == GROUP && *finalizer == FINALIZER;
    let finalizers = metadata["finalizers"].as_array().into_iter().flatten();
    let others: Vec<Value> = finalizers.filter(|finalizer| !is_ours(finalizer)).cloned().collect();
    let owners = metadata["ownerReferences"].as_array().into_iter().flatten();
    let is_of_ours = |owner: &Value| {
        owner["apiVersion"]
            .as_str()
            .and_then(|version| version.split_once('/'))
            .is_some_and(|of| of.0 == GROUP)
    };
    let other_owners: Vec<Value> = owners.filter(|owner| !is_of_ours(owner)).cloned().collect();
    [others.into(), other_owners.into()]
}
