//! Whether a cluster manager asked for a deletion when it was sent, judged more simply than the operator does.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use coppice_sim::run::RunRecord;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::rule::{GOVERNED, HELD, OBSERVES, RECREATED, SUSPENDED, TTL};
use super::{approved, delivered, health, notices, one_deletion, superseded, webhooks};
use crate::oracle::notice::{self, RESOLUTION, span};
use crate::oracle::rule::{ONCE, REQUESTED};
use crate::oracle::{Broken, DestructiveAction, DestructiveStep, Findings, HONOURED, History, instant};
use crate::suite::lifecycle::{EvidenceScope, by_managers, evidence_holds, matches, scalings};

/// A decision may rest on what was read so long before its request is sent: two seconds (H3), and what it takes to send it.
const READ: Duration = Duration::from_millis(2200);
/// Events of a watch are late by less than this.
const LATE: Duration = Duration::from_secs(30);

pub(super) fn check(
    record: &RunRecord<'_>,
    history: &History,
    steps: &[DestructiveStep<'_>],
    found: &mut Findings,
) {
    fired_once(history, found);
    webhooks::check(record, history, steps, found);
    notices::once(record, history, found);
    delivered::check(record, history, found);
    notices::within_hours(record, history, found);
    notices::addressed(record, history, found);
    notices::joined(record, history, found);
    scalings("managednamespaces", record, history, found);
    let deletions: Vec<_> = steps.iter().filter(|step| step.action == DestructiveAction::Delete).collect();
    for (n, step) in deletions.iter().enumerate() {
        // Runs are shorter than a day. What was deleted a moment ago may not be known to every cache.
        let known = step.done.sent.saturating_sub(LATE);
        let same =
            |before: &&&DestructiveStep<'_>| before.namespace == step.namespace && before.done.sent < known;
        let before = deletions[..n].iter().filter(same).count();
        if before >= 3 {
            found.add(RECREATED, &format!("{}, which was deleted {before} times before", step.what()));
        }
    }
    for step in steps {
        if one_deletion::of_manager(history, step) {
            by_managers(record, history, step, found);
            continue;
        }
        let age = if step.action == DestructiveAction::Delete { READ } else { HONOURED };
        let revisions = history.revisions_between(step.done.sent.saturating_sub(age), step.done.sent);
        let mut last = found.require(REQUESTED, false, || "no cluster manager governs it".to_owned());
        for revision in revisions {
            last = justified(record, history, step, revision, found);
            if last.is_ok() {
                break;
            }
        }
        if let Err((rule, why)) = last {
            found.add(rule, &format!("{}, but {why}", step.what()));
        }
    }
}

/// A namespace is deleted once by its record, which goes with it. A policy that does something else does it once, until its
/// condition has been false in between: in these scenarios, unless a user extends or rearms, or another manager governs.
fn fired_once(history: &History, found: &mut Findings) {
    for versions in history.all("managednamespaces") {
        let mut fired = BTreeMap::new();
        let mut last = &Value::Null;
        for record in versions.iter().filter_map(|(_, record)| record.as_deref()) {
            let (spec, status) = (&record["spec"], &record["status"]);
            let firing = &status["lastFiring"];
            if firing["id"] == *last || firing["id"].is_null() {
                continue;
            }
            last = &firing["id"];
            let deletes = firing["action"] == "delete";
            let policy = if deletes { "deletion".to_owned() } else { firing["policy"].to_string() };
            let asked = (!deletes).then(|| {
                [&status["manager"]["uid"], &spec["extendUntil"], &spec["rearm"]].map(Value::to_string)
            });
            let uid = record["metadata"]["uid"].to_string();
            if fired.insert((uid, policy.clone()), asked.clone()) == Some(asked) {
                let namespace = &record["metadata"]["namespace"];
                found.add(ONCE, &format!("{policy} of {namespace} was carried out once more"));
            }
        }
    }
}

/// The cluster manager that governs a namespace at a revision.
pub(in crate::suite) fn governing<'a>(
    history: &'a History,
    namespace: &str,
    revision: u64,
) -> Option<&'a Value> {
    let object = history.at("namespaces", "", namespace, revision)?;
    let metadata = &object["metadata"];
    let managers = history.list("clusternamespacemanagers", "", revision).into_iter();
    let selecting = managers.filter(|manager| selects(&manager["spec"]["selector"], namespace, metadata));
    let winner = selecting.max_by_key(|manager| {
        let (spec, selector) = (&manager["spec"], &manager["spec"]["selector"]);
        let more_specific = (
            selector["labels"].is_object(),
            selector["annotations"].is_array(),
            selector["names"].is_array(),
        );
        let name = Reverse(manager["metadata"]["name"].as_str().unwrap_or_default());
        (spec["mode"] == "Enforce", spec["priority"].as_i64().unwrap_or(0), more_specific, name)
    });
    winner.map(|manager| &**manager)
}

fn selects(selector: &Value, name: &str, metadata: &Value) -> bool {
    // Patterns of the scenarios: a star at the beginning or at the end.
    let glob = |pattern: &Value| match pattern.as_str().unwrap_or_default() {
        prefix if prefix.ends_with('*') => name.starts_with(prefix.trim_end_matches('*')),
        suffix => suffix.strip_prefix('*').map_or(suffix == name, |suffix| name.ends_with(suffix)),
    };
    selector["names"].as_array().is_none_or(|names| names.iter().any(glob))
        && !selector["exclude"].as_array().into_iter().flatten().any(glob)
        && (selector["labels"].is_null() || matches(&selector["labels"], &metadata["labels"]))
        && selector["annotations"].as_array().into_iter().flatten().all(|wanted| {
            let value = &metadata["annotations"][wanted["key"].as_str().unwrap_or_default()];
            !value.is_null() && (wanted["value"].is_null() || wanted["value"] == *value)
        })
}

/// Whether the cluster managers, as they were at a revision, justify the step at the time at which it was sent.
fn justified(
    record: &RunRecord<'_>,
    history: &History,
    step: &DestructiveStep<'_>,
    revision: u64,
    found: &Findings,
) -> Result<(), Broken> {
    let nobody = || "no cluster manager selects it".to_owned();
    let Some(manager) = governing(history, step.namespace, revision) else {
        return found.require(REQUESTED, false, nobody);
    };
    let (spec, now) = (&manager["spec"], step.now(record));
    found.require(SUSPENDED, spec["suspend"] != true, || "its cluster manager is suspended".to_owned())?;
    let user = history.at("managednamespaces", step.namespace, "coppice", revision);
    let user = user.map_or(&Value::Null, |record| &record["spec"]);
    let held_until = instant(&user["hold"]["until"]).map(|until| match &spec["limits"]["maxHold"] {
        max if max.is_string() => until.min(held_since(record, history, step.namespace) + span(max)),
        _ => until,
    });
    let held = held_until.is_some_and(|until| now < until);
    found.require(HELD, !held, || "it is held".to_owned())?;
    let policies = spec["policies"].as_array().map(Vec::as_slice).unwrap_or_default();
    let named = |policy: &&Value| step.intent.is_none_or(|intent| intent["policy"] == policy["name"]);
    let Some(policy) = policies.iter().find(named) else {
        return found.require(REQUESTED, false, || "no policy says so".to_owned());
    };
    let acts = spec["mode"] == "Enforce" && policy["mode"] != "Observe";
    found.require(OBSERVES, acts, || "its policy only observes".to_owned())?;
    let phases = policy["when"]["phase"]["in"].as_array().map(Vec::as_slice).unwrap_or_default();
    let policy_ttl = &policy["when"]["ttl"]["after"];
    let by_ttl = policy_ttl.is_string() || phases.iter().any(|phase| phase == "Stale");
    let ttl = if policy_ttl.is_string() { policy_ttl } else { &spec["ttl"]["after"] };
    let pods = &policy["when"]["podsSucceed"];
    if pods.is_object() {
        let scope = EvidenceScope { history, namespace: step.namespace };
        evidence_holds(scope, pods, revision, found)?;
    } else if phases.iter().any(|phase| phase == "Superseded") {
        superseded::check(history, step, revision, found)?;
    } else if !by_ttl {
        health::check(history, step, (&spec["health"], phases, revision), found)?;
    }
    let namespace = history.at("namespaces", "", step.namespace, revision);
    let created =
        namespace.and_then(|n| instant(&n["metadata"]["creationTimestamp"])).unwrap_or(Timestamp::MAX);
    let key = spec["ttl"]["fromAnnotation"].as_str().filter(|_| !policy_ttl.is_string());
    let annotated = key.zip(namespace).map(|(key, namespace)| annotation(namespace, key));
    let ttl = annotated.filter(|own| own.is_string()).unwrap_or(ttl);
    let own = created.saturating_add(span(ttl)).unwrap_or(Timestamp::MAX);
    let latest = &spec["limits"]["maxTTL"];
    let latest = if latest.is_string() {
        created.saturating_add(span(latest)).unwrap_or(Timestamp::MAX)
    } else {
        Timestamp::MAX
    };
    let due = instant(&user["extendUntil"]["at"]).map_or(own, |extended| own.max(extended.min(latest)));
    found.require(TTL, !by_ttl || now >= due, || format!("its time ends at {due}, and it was {now}"))?;
    let key = key.filter(|_| by_ttl);
    settled(history, step, (manager, revision), key.map(|key| (key, span(ttl))), found)?;
    approved::check(record, history, step, (manager, revision), found)?;
    let nothing = Value::Null;
    let noticed =
        history.at("managednamespaces", step.namespace, "coppice", revision).map_or(&nothing, |r| &**r);
    let notice = span(&policy["then"]["delete"]["notice"]);
    let place = ("managednamespaces", noticed);
    notice::has_run((record, history), place, (&policy["name"], notice), now, found)?;
    notices::check(record, (spec, noticed), step, notice, found)
}

/// When a namespace was held for the first time: in the scenarios no day goes by without a hold.
fn held_since(record: &RunRecord<'_>, history: &History, namespace: &str) -> Timestamp {
    let mut versions = history.versions("managednamespaces", namespace, "coppice");
    let first =
        versions.find(|(_, version)| version.as_deref().is_some_and(|v| !v["spec"]["hold"].is_null()));
    let since = first.map(|(revision, _)| history.time_of(*revision)).unwrap_or_default();
    record.began + SignedDuration::try_from(since).unwrap_or_default()
}

/// In the scenarios a duration, if it is there.
pub(super) fn annotation<'a>(object: &'a Value, key: &str) -> &'a Value {
    &object["metadata"]["annotations"][key]
}

/// Whether the same spec of the same manager governed the same namespace for as long as it says, with no longer ttl by the
/// annotation with this key, if that is what it is deleted by.
fn settled(
    history: &History,
    step: &DestructiveStep<'_>,
    (manager, revision): (&Value, u64),
    own_ttl: Option<(&str, SignedDuration)>,
    found: &Findings,
) -> Result<(), Broken> {
    let settle = span(&manager["spec"]["settle"]).checked_sub(RESOLUTION).unwrap_or_default();
    let from = step.done.sent.saturating_sub(Duration::try_from(settle).unwrap_or_default());
    let mut then = history.revisions_between(from, step.done.sent).take_while(|then| *then <= revision);
    let uid = history.uid_of(step.namespace, revision);
    let broken = then.find(|then| {
        let same = |other: &Value| {
            other["metadata"]["uid"] == manager["metadata"]["uid"]
                && without_consent(&other["spec"]) == without_consent(&manager["spec"])
        };
        let namespace = history.at("namespaces", "", step.namespace, *then);
        let longer = own_ttl.zip(namespace).is_some_and(|((key, ttl), namespace)| {
            let before = annotation(namespace, key);
            span(if before.is_string() { before } else { &manager["spec"]["ttl"]["after"] }) > ttl
        });
        longer
            || history.uid_of(step.namespace, *then) != uid
            || !governing(history, step.namespace, *then).is_some_and(same)
    });
    found.require(GOVERNED, broken.is_none(), || {
        let at = broken.map(|revision| history.time_of(revision)).unwrap_or_default();
        format!("at {at:?} it was governed in another way, and settle is {}", manager["spec"]["settle"])
    })
}

/// A spec without what decides nothing about namespaces.
pub(super) fn without_consent(spec: &Value) -> Value {
    let mut spec = spec.clone();
    let limits = ["maxTTL", "maxHold"].map(|limit| spec["limits"][limit].clone());
    let without = |part: Option<&mut Value>, names: &[&str]| {
        if let Some(fields) = part.and_then(Value::as_object_mut) {
            fields.retain(|name, _| !names.contains(&&**name));
        }
    };
    without(Some(&mut spec), &["suspend", "approval", "owner", "notify"]);
    if spec["supersede"].is_null() {
        without(Some(&mut spec), &["identity"]);
    }
    without(spec.pointer_mut("/identity"), &["links"]);
    without(spec.pointer_mut("/health"), &["advice"]);
    spec["limits"] = Value::from(limits.to_vec());
    spec
}
