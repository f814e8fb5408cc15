//! Whether owners were notified before their namespaces were deleted, and of each thing once, by what a receiver got. Whether each of them
//! was is for [`delivered`](super::delivered).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use coppice_sim::receiver::{Received, ReceiverBehavior};
use coppice_sim::run::RunRecord;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::governed::governing;
use super::rule::{HOURS, JOINED, NOTIFIED, ONE_KEY, RECIPIENT};
use crate::oracle::notice::{RESOLUTION, span};
use crate::oracle::{Broken, DestructiveStep, Findings, History, instant, joins};

/// So many messages are sent to somebody one by one ...
const ONE_BY_ONE: usize = 20;
/// ... within so long. What is more is held for as long, and joined.
const WITHIN: Duration = Duration::from_mins(5);
/// Who is notified follows from what was read so long before at most: a cache of which nothing is heard is believed for 90 seconds.
const KNOWN: Duration = Duration::from_secs(91);

/// Every message to an owner that a webhook brought, with what it says.
fn messages<'a>(record: &'a RunRecord<'_>) -> impl Iterator<Item = (&'a Received, Value)> {
    record.received.iter().filter_map(|received| {
        let said: Value = serde_json::from_slice(&received.body).ok()?;
        (said["type"] == "owner.notice").then_some((received, said))
    })
}

/// What a message to a person says; none if it is a webhook.
pub(super) fn text(received: &Received) -> Option<String> {
    received.to.as_ref()?;
    let said: Value = serde_json::from_slice(&received.body).ok()?;
    Some(said["text"].as_str()?.to_owned())
}

/// The namespaces that a message to a person is about.
fn named(text: &str) -> BTreeSet<&str> {
    text.split("Namespace ").skip(1).filter_map(|rest| rest.split([' ', '*']).next()).collect()
}

/// What an announcement says.
fn announcement(namespace: &str) -> String {
    format!("Namespace {namespace} will be deleted")
}

/// When something was received.
fn time(record: &RunRecord<'_>, received: &Received) -> Timestamp {
    record.began + SignedDuration::try_from(received.at).unwrap_or_default()
}

/// Whether notice has run since the announcement that the record of a namespace has was received; or where the manager proceeds
/// undelivered, since it does.
pub(super) fn check(
    record: &RunRecord<'_>,
    (spec, noticed): (&Value, &Value),
    step: &DestructiveStep<'_>,
    notice: SignedDuration,
    found: &Findings,
) -> Result<(), Broken> {
    let notify = &spec["notify"];
    if notify.is_null() || notice.is_zero() {
        return Ok(());
    }
    let (now, given) = (step.now(record), &noticed["status"]["notice"]["givenAt"]);
    let announces = |said: &Value| {
        said["for"] == "DeletionAnnounced" && said["namespace"] == step.namespace && said["givenAt"] == *given
    };
    let brought = messages(record).filter(|(_, said)| announces(said)).map(|(received, _)| received);
    let headline = announcement(step.namespace);
    let since = instant(given).unwrap_or(now);
    let read = record.received.iter().filter(|received| {
        let names = text(received).is_some_and(|text| text.contains(&headline));
        names && since <= time(record, received) + RESOLUTION
    });
    let notified = brought.chain(read).filter(|received| received.is_taken());
    let notified = notified.map(|received| time(record, received)).min();
    let proceeds = (notify["undelivered"]["then"] == "Proceed")
        .then(|| instant(given).map(|given| given + span(&notify["undelivered"]["after"])))
        .flatten();
    let from = notified.into_iter().chain(proceeds).min();
    let is_over = from.is_some_and(|from| from + notice - RESOLUTION <= now);
    found.require(NOTIFIED, is_over, || format!("its owner was notified at {notified:?}, and it was {now}"))
}

/// Owners are notified of one thing under one key: by the bodies of webhooks, and for every channel by what records have of messages, which
/// are sent under no other keys (CRASH-ONLY).
pub(super) fn once(record: &RunRecord<'_>, history: &History, found: &mut Findings) {
    let mut keys: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for (received, said) in messages(record) {
        let what = ["uid", "for", "givenAt"].map(|field| said[field].as_str().unwrap_or_default().to_owned());
        keys.entry(what.join(" ")).or_default().insert(&received.id);
    }
    let mut known = BTreeSet::new();
    for object in history.all("managednamespaces").chain(history.all("deletednamespaces")).flatten() {
        let Some(object) = object.1.as_deref() else { continue };
        let (spec, status) = (&object["spec"], &object["status"]);
        // A message is of the manager that governed when it was written down, and to whom it said then.
        let of = [&status["namespaceUid"], &spec["uid"], &status["manager"]["uid"]];
        for notice in status["notices"].as_array().into_iter().flatten() {
            let Some(key) = notice["key"].as_str().filter(|key| known.insert(*key)) else { continue };
            let what = ["for", "givenAt", "channel", "to", "toDigest"].map(|field| &notice[field]);
            let what: Vec<_> = of.into_iter().chain(what).map(Value::to_string).collect();
            keys.entry(what.join(" ")).or_default().insert(key);
        }
    }
    for (what, keys) in keys.iter().filter(|(_, keys)| keys.len() > 1) {
        found.add(ONE_KEY, &format!("{what} was sent under {} keys", keys.len()));
    }
    joined_once(record, history, found);
}

/// How long what joins messages was held at most before it was received: for five minutes, and, if it came again, for a fifth of the time
/// since it was sent before. Of an attempt that was not received nothing is known here: it may have been at any time.
fn held(all: &[Received], n: usize) -> Duration {
    let received = &all[n];
    if joins(received).is_none() {
        return Duration::ZERO;
    }
    let before = all[..n].iter().rev().find(|before| before.id == received.id);
    WITHIN + received.at.saturating_sub(before.map_or(Duration::ZERO, |before| before.at)) / 5
}

/// Messages go to whom namespaces name.
pub(super) fn addressed(record: &RunRecord<'_>, history: &History, found: &mut Findings) {
    for (n, received) in record.received.iter().enumerate() {
        let (Some(to), Some(text)) = (received.to.as_deref(), text(received)) else { continue };
        let age = KNOWN + held(record.received, n);
        let refused: BTreeSet<&str> = record.received[..n]
            .iter()
            .filter(|before| before.behavior == ReceiverBehavior::Refuses)
            .filter_map(|before| before.to.as_deref())
            .collect();
        for namespace in named(&text) {
            let mut revisions = history.revisions_between(received.at.saturating_sub(age), received.at);
            if !revisions.any(|revision| is_for(history, (namespace, revision), to, &refused)) {
                found.add(RECIPIENT, &format!("{to} got a message about {namespace} at {:?}", received.at));
            }
        }
    }
}

/// Whether messages about a namespace go to this address, at a revision.
fn is_for(history: &History, (namespace, revision): (&str, u64), to: &str, refused: &BTreeSet<&str>) -> bool {
    let Some(manager) = governing(history, namespace, revision) else { return false };
    let Some(object) = history.at("namespaces", "", namespace, revision) else { return false };
    let owner = &manager["spec"]["owner"];
    let sources = owner["annotations"].as_array().into_iter().flatten();
    let own: Vec<&str> = sources
        .filter_map(|source| object["metadata"]["annotations"][source["key"].as_str()?].as_str())
        .collect();
    let falls_back = own.iter().all(|own| refused.contains(own));
    own.contains(&to) || falls_back && ["slack", "email"].iter().any(|kind| owner["fallback"][kind] == to)
}

/// Which replicas have led. What one of them has sent, the next one does not know.
fn leaders(history: &History) -> BTreeSet<&str> {
    let leases = history.all("leases").flatten();
    leases.filter_map(|(_, lease)| lease.as_deref()?["spec"]["holderIdentity"].as_str()).collect()
}

/// What was announced to somebody together with others is not announced to them under another id, while one replica leads; in these
/// scenarios each namespace is announced once.
fn joined_once(record: &RunRecord<'_>, history: &History, found: &mut Findings) {
    if leaders(history).len() > 1 {
        return;
    }
    let mut ids: BTreeMap<(&str, String), BTreeSet<&str>> = BTreeMap::new();
    for received in record.received.iter().filter(|received| received.is_taken()) {
        let (Some(to), Some(text)) = (received.to.as_deref(), text(received)) else { continue };
        for namespace in named(&text).into_iter().filter(|name| text.contains(&announcement(name))) {
            ids.entry((to, namespace.to_owned())).or_default().insert(&received.id);
        }
    }
    let joined: BTreeSet<&str> =
        record.received.iter().filter(|one| joins(one).is_some()).map(|one| &*one.id).collect();
    for ((_, namespace), ids) in ids.iter().filter(|(_, ids)| ids.len() > 1 && !ids.is_disjoint(&joined)) {
        found.add(ONE_KEY, &format!("{namespace} was announced under {ids:?}"));
    }
}

/// Nobody gets many messages one by one.
pub(super) fn joined(record: &RunRecord<'_>, history: &History, found: &mut Findings) {
    let most = (ONE_BY_ONE + 1) * leaders(history).len().max(1);
    let mut by_recipient: BTreeMap<&str, Vec<(Duration, &str)>> = BTreeMap::new();
    for received in record.received {
        let Some(to) = &received.to else { continue };
        let messages = by_recipient.entry(to).or_default();
        // Another attempt is no further message.
        if messages.iter().all(|(_, id)| *id != received.id) {
            messages.push((received.at, &received.id));
        }
    }
    for (to, messages) in by_recipient {
        let within =
            |from: Duration| messages.iter().filter(move |(at, _)| (from..from + WITHIN).contains(at));
        let crowd = messages.iter().map(|(at, _)| within(*at).count()).max().unwrap_or(0);
        if crowd > most {
            found.add(JOINED, &format!("{to} got {crowd} messages within five minutes"));
        }
    }
}

/// Nobody is notified outside working hours. In these scenarios they are in UTC, and on each day.
pub(super) fn within_hours(record: &RunRecord<'_>, history: &History, found: &mut Findings) {
    for (n, received) in record.received.iter().enumerate() {
        let revision = history.revision_at(received.at);
        let managers: Vec<(String, &Value)> = match text(received) {
            Some(text) => {
                let of = |name: &str| Some((name.to_owned(), governing(history, name, revision)?));
                named(&text).into_iter().filter_map(of).collect()
            }
            None => by_webhook(history, received, revision).into_iter().collect(),
        };
        // What is joined was due before it was held.
        let held = held(record.received, n);
        let [due, at] = [received.at.saturating_sub(held), received.at]
            .map(|at| record.began + SignedDuration::try_from(at).unwrap_or_default());
        for (namespace, manager) in managers {
            let hours = &manager["spec"]["notify"]["workingHours"];
            let (Some(from), Some(to)) = (hours["from"].as_str(), hours["to"].as_str()) else { continue };
            let [due, time] = [due, at].map(|at| at.strftime("%H:%M").to_string());
            if &*time < from || &*due >= to {
                found.add(HOURS, &format!("{namespace} was notified at {at}"));
            }
        }
    }
}

/// The namespace that a webhook is about, if it is to an owner, and the manager that has it sent.
fn by_webhook<'a>(history: &'a History, received: &Received, revision: u64) -> Option<(String, &'a Value)> {
    let said: Value = serde_json::from_slice(&received.body).ok()?;
    let manager = said["manager"].as_str().filter(|_| said["type"] == "owner.notice")?;
    let manager = history.at("clusternamespacemanagers", "", manager, revision)?;
    Some((said["namespace"].to_string(), manager))
}
