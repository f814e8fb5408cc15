use std::collections::BTreeMap;
use std::sync::Arc;

use coppice_kinds::DeletedNamespaces;
use coppice_lifecycle::plan::Delivery;
use coppice_runtime::decode;
use serde_json::{Value, json};

use super::*;

const CREATED: &str = "2026-01-01T00:00:00Z";
/// An attempt at the decision failed before this one.
const ATTEMPTED: &str = "2026-01-01T00:05:00Z";

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn record(status: &Value) -> DeletionRecord {
    let spec = json!({
        "namespace": "team-a", "uid": "u", "namespaceCreated": CREATED, "manager": "m", "policy": "p",
        "decidedAt": CREATED, "attemptedAt": ATTEMPTED, "reason": "TtlElapsed",
    });
    let metadata = json!({"name": "fire-1", "uid": "r", "creationTimestamp": CREATED});
    let object = json!({"metadata": metadata, "spec": spec, "status": status}).to_string();
    decode::item::<DeletedNamespaces>(&object, &()).unwrap().object.unwrap()
}

/// The plan for a record with this status, where nothing else is remarkable.
fn planned(status: &Value, namespace: NamespaceState, now: &str) -> DeletedNamespacePlan {
    let record = Arc::new(record(status));
    plan(&Observation {
        record,
        namespace,
        decided: true,
        surplus: false,
        deliveries: BTreeMap::new(),
        now: at(now),
    })
}

fn waits_until(next_check: Option<&str>) -> DeletedNamespacePlan {
    DeletedNamespacePlan { step: None, next_check: next_check.map(at) }
}

#[test]
fn a_record_follows_its_namespace() {
    let now = "2026-01-01T00:00:10Z";
    let terminating = json!({"phase": "Terminating"});
    let mark = |phase| at_once(DeletedNamespaceStep::Mark(phase));
    for (status, namespace, expected) in [
        (&json!({}), NamespaceState::Present, waits_until(Some("2026-01-01T00:00:15Z"))),
        (&json!({}), NamespaceState::Terminating, mark(DeletionPhase::Terminating)),
        (&json!({}), NamespaceState::Gone, mark(DeletionPhase::Deleted)),
        (&terminating, NamespaceState::Terminating, waits_until(None)),
        (&terminating, NamespaceState::Gone, mark(DeletionPhase::Deleted)),
        (&json!({}), NamespaceState::Unknown, waits_until(Some("2026-01-01T00:00:15Z"))),
        (&terminating, NamespaceState::Unknown, waits_until(Some("2026-01-01T00:00:15Z"))),
    ] {
        assert_eq!(planned(status, namespace, now), expected, "{status} {namespace:?}");
    }
}

#[test]
fn a_record_of_a_deletion_that_was_given_up_is_withdrawn_once_its_attempt_has_ended() {
    let given_up = |now: &str, namespace| {
        let record = Arc::new(record(&json!({})));
        plan(&Observation {
            record,
            namespace,
            decided: false,
            surplus: true,
            deliveries: BTreeMap::new(),
            now: at(now),
        })
    };
    let present = NamespaceState::Present;
    assert_eq!(given_up("2026-01-01T00:05:59Z", present), waits_until(Some("2026-01-01T00:06:00Z")));
    assert_eq!(given_up("2026-01-01T00:06:00Z", present), at_once(DeletedNamespaceStep::Withdraw));
    // What has begun is never withdrawn.
    let marked = at_once(DeletedNamespaceStep::Mark(DeletionPhase::Terminating));
    assert_eq!(given_up("2026-01-01T00:06:00Z", NamespaceState::Terminating), marked);
    let unknown = given_up("2026-01-01T00:06:00Z", NamespaceState::Unknown);
    assert_eq!(unknown.step, None, "unknown is no verdict");
}

#[test]
fn a_record_is_kept_for_thirty_days_after_its_namespace_was_gone() {
    let gone = json!({"phase": "Deleted", "deletedAt": "2026-01-02T00:00:00Z"});
    let before = planned(&gone, NamespaceState::Gone, "2026-01-31T23:59:59Z");
    assert_eq!(before, waits_until(Some("2026-02-01T00:00:00Z")));
    let expired = at_once(DeletedNamespaceStep::Expire);
    assert_eq!(planned(&gone, NamespaceState::Gone, "2026-02-01T00:00:00Z"), expired);
    // A namespace that a finalizer keeps has its record for as long as it is there.
    let terminating = json!({"phase": "Terminating"});
    assert_eq!(planned(&terminating, NamespaceState::Terminating, "2027-01-01T00:00:00Z"), waits_until(None));
    // One that another version wrote is evidence, too.
    let foreign = json!({"phase": "Archived"});
    let before = planned(&foreign, NamespaceState::Gone, "2026-01-30T23:59:59Z");
    assert_eq!(before, waits_until(Some("2026-01-31T00:00:00Z")));
    assert_eq!(planned(&foreign, NamespaceState::Gone, "2026-01-31T00:00:00Z"), expired);
}

#[test]
fn where_there_are_too_many_the_oldest_that_are_complete_go_first() {
    let gone = json!({"phase": "Deleted", "deletedAt": CREATED});
    let surplus = |status: &Value, namespace| {
        let record = Arc::new(record(status));
        plan(&Observation {
            record,
            namespace,
            decided: true,
            surplus: true,
            deliveries: BTreeMap::new(),
            now: at(CREATED),
        })
    };
    assert_eq!(surplus(&gone, NamespaceState::Gone), at_once(DeletedNamespaceStep::MakeRoom));
    assert_eq!(surplus(&json!({}), NamespaceState::Present).step, None);
    let this = record(&gone);
    let later = OldestKept(at("2026-01-01T00:00:01Z"), "fire-0".into());
    assert!(later.is_after(&this) && !OldestKept::of(&this).is_after(&this));
}

#[test]
fn a_record_that_somebody_deletes_is_left_alone() {
    let gone = json!({"phase": "Deleted", "deletedAt": CREATED});
    let record = Arc::new(DeletionRecord { terminating: true, ..record(&gone) });
    let now = at("2027-01-01T00:00:00Z");
    let observation = Observation {
        record,
        namespace: NamespaceState::Gone,
        decided: false,
        surplus: true,
        deliveries: BTreeMap::new(),
        now,
    };
    assert_eq!(plan(&observation), waits_until(None));
}

#[test]
fn messages_are_sent_once_the_namespace_is_gone_and_recorded_before_that() {
    let gone_at = "2026-01-02T00:00:00Z";
    let notification =
        json!({"why": "it expired", "messages": [{"key": "notice-1", "channel": "mail", "to": "a***@b.c"}]});
    let planned_of = |surplus, notices: Value, namespace, delivery: Option<Delivery>, now: &str| {
        let mut known = record(&json!({"phase": "Deleted", "deletedAt": gone_at, "notices": notices}));
        Arc::get_mut(known.spec.as_mut().unwrap()).unwrap().notification =
            Some(serde_json::from_value(notification.clone()).unwrap());
        let deliveries = delivery.into_iter().map(|one| ("notice-1".to_owned(), one)).collect();
        let record = Arc::new(known);
        plan(&Observation { record, namespace, decided: true, surplus, deliveries, now: at(now) })
    };
    let planned = |notices, namespace, delivery, now| planned_of(false, notices, namespace, delivery, now);
    let gone = NamespaceState::Gone;
    let Some(DeletedNamespaceStep::Record(begun)) = planned(json!([]), gone, None, gone_at).step else {
        panic!()
    };
    assert_eq!((begun.len(), begun[0].given_at, begun[0].attempts), (1, at(gone_at), 0));
    let begun = serde_json::to_value(&begun).unwrap();
    let deliver = planned(begun.clone(), gone, None, gone_at);
    assert_eq!(deliver.step, Some(DeletedNamespaceStep::Deliver(vec!["notice-1".to_owned()])));
    let waits = planned(begun.clone(), gone, Some(Delivery::InFlight), gone_at);
    assert_eq!((waits.step, waits.next_check), (None, None), "the end of the attempt enqueues it");
    let refused =
        Delivery::Failed { error: "no".to_owned(), permanent: false, retry_after: None, by_channel: false };
    let Some(DeletedNamespaceStep::Record(failed)) =
        planned(begun.clone(), gone, Some(refused), gone_at).step
    else {
        panic!()
    };
    let again = planned(serde_json::to_value(&failed).unwrap(), gone, None, gone_at);
    assert_eq!((again.step, again.next_check), (None, failed[0].next_attempt));
    let delivered = Delivery::Delivered("250".to_owned());
    let Some(DeletedNamespaceStep::Record(notified)) = planned(begun, gone, Some(delivered), gone_at).step
    else {
        panic!()
    };
    let notified = serde_json::to_value(&notified).unwrap();
    assert_eq!(planned(notified.clone(), gone, None, gone_at), waits_until(Some("2026-02-01T00:00:00Z")));
    // Where there are too many records, it goes once nothing is to be sent.
    let again = planned_of(true, serde_json::to_value(&failed).unwrap(), gone, None, gone_at);
    assert_eq!((again.step, again.next_check), (None, failed[0].next_attempt));
    assert_eq!(planned_of(true, notified, gone, None, gone_at).step, Some(DeletedNamespaceStep::MakeRoom));
}

#[path = "plan_lint_tests.rs"]
mod lint;
