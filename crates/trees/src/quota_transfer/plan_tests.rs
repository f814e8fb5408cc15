use std::collections::BTreeMap;
use std::sync::Arc;

use coppice_api::quota_transfer::TransferStop;
use coppice_kinds::{QuotaTransfers, TreeQuota, TreeQuotas};
use coppice_quantity::time::ServerTime;
use coppice_runtime::kind::Kind;
use serde_json::{Value, json};

use super::super::observe::Near;
use super::super::route::Route;
use super::*;

const ID: &str = "web/more/u-1";

fn now() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

fn read<K: Kind<Context = ()>>(object: Value) -> Arc<K::Object> {
    Arc::new(K::project(serde_json::from_value(object).unwrap(), &()).unwrap())
}

fn merged(mut one: Value, other: &Value) -> Value {
    for (key, value) in other.as_object().into_iter().flatten() {
        one[key] = value.clone();
    }
    one
}

/// A transfer of 2 pods from `web` through `shop` to `data`.
fn object(metadata: &Value, spec: &Value, status: &Value) -> Arc<QuotaTransferObject> {
    let all = json!({
        "name": "more", "namespace": "web", "uid": "u-1", "resourceVersion": "5", "generation": 1,
        "creationTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["coppice.dev/cleanup"]
    });
    let asked = json!({
        "to": "data", "through": "shop", "amount": {"pods": "2"}, "reason": "load test", "requester": "ann",
        "approvedBy": "zoe"
    });
    let object = json!({"metadata": merged(all, metadata), "spec": merged(asked, spec), "status": status});
    read::<QuotaTransfers>(object)
}

/// A quota that is in force, as its ledger says.
fn quota(namespace: &str, own: &str, used: &str, ledger: &Value) -> Arc<TreeQuota> {
    read::<TreeQuotas>(json!({
        "metadata": {
            "name": "coppice", "namespace": namespace, "uid": "q", "resourceVersion": "3", "labels": {"coppice.dev/tree": "shop"},
            "annotations": {"coppice.dev/ledger": ledger.to_string()}
        },
        "spec": {"hard": {"pods": own}}, "status": {"hard": {"pods": own}, "used": {"pods": used}}
    }))
}

fn way() -> Vec<TransferStop> {
    let stops = [("web", "u-web"), ("shop", ""), ("data", "u-data")];
    let stops = stops.map(|(name, uid)| TransferStop { namespace: name.to_owned(), uid: uid.to_owned() });
    stops.to_vec()
}

fn observation(object: Arc<QuotaTransferObject>, near: Vec<(usize, Option<Arc<TreeQuota>>)>) -> Observation {
    let near = near.into_iter().map(|(place, quota)| {
        let record = Record {
            allotment: Resources::of(&BTreeMap::from([("pods".to_owned(), "5".parse().unwrap())])).unwrap(),
            decided: 0,
        };
        (place, Near { quota, record })
    });
    Observation {
        object,
        route: Ok(Route { tree: "shop".to_owned(), path: way() }),
        near: near.collect(),
        source: None,
        stale: None,
        time: ServerTime::certain(now()),
    }
}

/// The status once it has begun.
fn begun(status: &Value) -> Value {
    let path = serde_json::to_value(way()).unwrap();
    merged(
        json!({"tree": "shop", "amount": "2 pods", "path": path, "phase": "Moving", "begunAt": "2026-01-01T00:00:00Z"}),
        status,
    )
}

fn five(namespace: &str, used: &str) -> Arc<TreeQuota> {
    quota(namespace, "5", used, &json!({"allotment": {"pods": "5"}, "given": {"pods": "0"}}))
}

/// A quota of 5 of which 2 are held for the transfer.
fn holding(namespace: &str) -> Arc<TreeQuota> {
    let held = json!({ID: {"amount": {"pods": "2"}, "since": "2026-01-01T00:00:00Z"}});
    quota(namespace, "3", "0", &json!({"allotment": {"pods": "5"}, "given": {"pods": "0"}, "held": held}))
}

/// The quota of a source from which 2 have gone to a namespace under this name.
fn remembering(to: &str) -> Arc<TreeQuota> {
    let applied = json!({"more": {"to": to, "id": format!("u-{to}"), "amount": {"pods": "2"}, "at": "2025-12-31T00:00:00Z"}});
    quota("web", "5", "0", &json!({"allotment": {"pods": "5"}, "given": {"pods": "0"}, "applied": applied}))
}

fn why(plan: &TransferPlan) -> (TransferPhase, String, String) {
    let ready = condition::find(&plan.status.conditions, READY).unwrap();
    (plan.status.phase.unwrap(), ready.reason.clone(), ready.message.clone())
}

/// It ends in this way, with these words, and an Event about it.
#[track_caller]
fn ends(observation: &Observation, phase: TransferPhase, reason: Reason, words: &str) {
    let plan = plan(observation);
    assert_eq!(plan.step, Step::Nothing);
    let (said, because, message) = why(&plan);
    assert!(
        said == phase && because == reason.as_str() && message.contains(words),
        "{said:?} {because}: {message}"
    );
    assert_eq!((plan.status.ended_at, plan.status.at), (Some(now()), None));
    let warning = phase != TransferPhase::Completed;
    assert_eq!(plan.events, [PlannedEvent { warning, reason, message }]);
}

const NONE: Value = Value::Null;

#[test]
fn a_finalizer_comes_first_then_an_approval_and_then_the_way() {
    let bare = object(&json!({"finalizers": []}), &NONE, &json!({}));
    let first = plan(&observation(bare, Vec::new()));
    assert_eq!((first.step, first.status), (Step::AddFinalizer, QuotaTransferStatus::default()));

    let asked = object(&NONE, &json!({"approvedBy": null}), &json!({}));
    let waits = plan(&observation(asked, Vec::new()));
    let (phase, reason, message) = why(&waits);
    assert_eq!(
        (waits.step, phase, reason.as_str()),
        (Step::Nothing, TransferPhase::PendingApproval, "PendingApproval")
    );
    assert!(message.contains("in web and data, or in shop: coppice transfer approve web/more"), "{message}");
    assert!(waits.status.path.is_empty() && waits.events.len() == 1);
    // It is said once.
    let again = object(&NONE, &json!({"approvedBy": null}), &serde_json::to_value(&waits.status).unwrap());
    assert!(plan(&observation(Arc::clone(&again), Vec::new())).is_steady(&again.status));

    let approved = plan(&observation(object(&NONE, &NONE, &json!({})), Vec::new()));
    assert_eq!(
        (&approved.step, &approved.status.path, why(&approved).0),
        (&Step::Nothing, &way(), TransferPhase::Moving)
    );
    assert_eq!((approved.status.tree.as_str(), approved.status.amount.as_str()), ("shop", "2 pods"));
}

#[test]
fn what_stays_below_the_one_who_asks_needs_no_approval() {
    for (source_or_target, spec) in [
        ("the source", json!({"approvedBy": null, "through": "web"})),
        ("the target", json!({"approvedBy": null, "through": "data"})),
    ] {
        let plan = plan(&observation(object(&NONE, &spec, &json!({})), Vec::new()));
        assert_eq!(why(&plan).0, TransferPhase::Moving, "{source_or_target}");
    }
}

#[test]
fn what_can_never_be_done_is_refused_and_what_is_not_known_is_waited_for() {
    let refused = TransferPhase::Refused;
    for (amount, words) in [
        (json!({"pods": "0"}), "more than 0"),
        (json!({}), "more than 0"),
        (json!({"pods": "1.5"}), "1500m is not a whole number"),
    ] {
        let asked = object(&NONE, &json!({"amount": amount}), &json!({}));
        ends(&observation(asked, Vec::new()), refused, Reason::TransferRefused, words);
    }
    let mut seen = observation(object(&NONE, &NONE, &json!({})), Vec::new());
    seen.route = Err(NoRoute::Never("there is no way".to_owned()));
    ends(&seen, refused, Reason::TransferRefused, "there is no way");
    seen.route = Err(NoRoute::Unknown((Reason::NotInTree, "it is being set up".to_owned())));
    let waits = plan(&seen);
    assert_eq!(
        (&waits.step, waits.status.ended_at, why(&waits).0),
        (&Step::Nothing, None, TransferPhase::Pending)
    );
    seen.stale = Some((Reason::NotSynced, "not synced".to_owned()));
    let stale = plan(&seen);
    assert_eq!((&stale.step, why(&stale).1.as_str()), (&Step::Nothing, "NotSynced"));
    assert_eq!(condition::find(&stale.status.conditions, READY).unwrap().status, "Unknown");
    assert_eq!(
        (waits.status.observed_generation, stale.status.observed_generation),
        (Some(1), None),
        "nothing is decided by it yet"
    );
}

#[test]
fn the_amount_is_taken_recorded_moved_and_released() {
    let at = |place: &str| object(&NONE, &NONE, &begun(&json!({"at": place})));
    let taken =
        plan(&observation(object(&NONE, &NONE, &begun(&json!({}))), vec![(0, Some(five("web", "3")))]));
    let Step::Quota(0, ledger) = &taken.step else { panic!("{:?}", taken.step) };
    assert_eq!(
        (ledger.own().to_string(), ledger.held[ID].amount.to_string()),
        ("3 pods".to_owned(), "2 pods".to_owned())
    );

    let seen = |place, web: &Arc<TreeQuota>| {
        observation(place, vec![(0, Some(Arc::clone(web))), (1, Some(five("shop", "0")))])
    };
    let begun_only = object(&NONE, &NONE, &begun(&json!({})));
    let recorded = plan(&seen(begun_only, &holding("web")));
    assert_eq!((recorded.step, recorded.status.at.as_deref()), (Step::Nothing, Some("web")));

    let moved = plan(&seen(at("web"), &holding("web")));
    let Step::Quota(1, ledger) = &moved.step else { panic!("{:?}", moved.step) };
    assert_eq!(ledger.changes["u-web"].transfer.as_deref(), Some(ID));
    // A step is taken on what status says now.
    assert_eq!(moved.status, *at("web").status);

    let released =
        plan(&observation(at("data"), vec![(1, Some(five("shop", "0"))), (2, Some(holding("data")))]));
    let Step::Quota(2, ledger) = &released.step else { panic!("{:?}", released.step) };
    assert!(ledger.held.is_empty());
}

#[test]
fn it_has_arrived_returned_or_dissolved_only_where_it_is_found_nowhere() {
    let quotas =
        || vec![(0, Some(remembering("data"))), (1, Some(five("shop", "0"))), (2, Some(five("data", "0")))];
    let seen = |status: Value| observation(object(&NONE, &NONE, &begun(&status)), quotas());
    let (completed, refused) = (TransferPhase::Completed, TransferPhase::Refused);
    let arrived = seen(json!({"at": "data"}));
    ends(&arrived, completed, Reason::QuotaMoved, "namespace data has 2 pods from namespace web");
    let returned = seen(json!({"at": "web", "failure": "data is gone"}));
    ends(&returned, refused, Reason::TransferReversed, "data is gone; namespace web has its quota again");
    let dissolved = seen(json!({"at": "shop"}));
    ends(&dissolved, refused, Reason::TransferReversed, "had come to namespace shop");
    for nowhere in [&arrived, &returned, &dissolved] {
        assert!(plan(nowhere).found_nowhere);
    }
    let refused_at_once =
        observation(object(&NONE, &NONE, &begun(&json!({}))), vec![(0, Some(five("web", "4")))]);
    ends(&refused_at_once, refused, Reason::TransferRefused, "web");
    assert!(!plan(&refused_at_once).found_nowhere);
}

#[test]
fn the_source_remembers_it_before_it_has_ended_and_does_the_same_no_second_time() {
    let arrived = object(&NONE, &NONE, &begun(&json!({"at": "data"})));
    let quotas = |web| vec![(0, Some(web)), (1, Some(five("shop", "0"))), (2, Some(five("data", "0")))];
    let remembers = plan(&observation(Arc::clone(&arrived), quotas(five("web", "0"))));
    let Step::Quota(0, ledger) = &remembers.step else { panic!("{:?}", remembers.step) };
    let (applied, own) = (&ledger.applied["more"], ledger.own().to_string());
    assert_eq!(
        (applied.to.as_str(), applied.id.as_str(), applied.amount.to_string(), applied.at, own),
        ("data", "u-data", "2 pods".to_owned(), now(), "5 pods".to_owned())
    );
    // Where the source is gone nobody can ask for the same.
    let alone =
        observation(arrived, vec![(0, None), (1, Some(five("shop", "0"))), (2, Some(five("data", "0")))]);
    ends(&alone, TransferPhase::Completed, Reason::QuotaMoved, "namespace data has 2 pods");

    let begins = |web| observation(object(&NONE, &NONE, &begun(&json!({}))), vec![(0, Some(web))]);
    let words = "namespace data got 2 pods from namespace web at 2025-12-31T00:00:00Z, by a QuotaTransfer of this name that is gone";
    ends(&begins(remembering("data")), TransferPhase::Completed, Reason::AlreadyApplied, words);
    // Nobody has to agree to what is done.
    let unapproved = object(&NONE, &json!({"approvedBy": null}), &json!({}));
    let waits = |web| Observation { source: Some(web), ..observation(Arc::clone(&unapproved), Vec::new()) };
    ends(&waits(remembering("data")), TransferPhase::Completed, Reason::AlreadyApplied, words);
    for other in [remembering("search"), five("web", "0")] {
        assert_eq!(plan(&waits(other)).status.phase, Some(TransferPhase::PendingApproval));
    }
    // To another target it is another transfer.
    let other = plan(&begins(remembering("search")));
    assert!(
        matches!(&other.step, Step::Quota(0, ledger) if ledger.held.contains_key(ID)),
        "{:?}",
        other.step
    );
}

#[test]
fn why_it_returns_is_durable_before_it_does() {
    let gone = json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0});
    let quotas = || vec![(0, Some(holding("web"))), (1, Some(five("shop", "0")))];
    let status = begun(&json!({"at": "web"}));
    let reversed = plan(&observation(object(&gone, &NONE, &status), quotas()));
    assert_eq!((reversed.step, reversed.status.phase), (Step::Nothing, Some(TransferPhase::Reversing)));
    assert!(reversed.status.failure.as_ref().is_some_and(|why| why.contains("was deleted")));
    let status = serde_json::to_value(&reversed.status).unwrap();
    let back = plan(&observation(object(&gone, &NONE, &status), quotas()));
    assert!(matches!(&back.step, Step::Quota(0, ledger) if ledger.held.is_empty()), "{:?}", back.step);
}

#[test]
fn what_has_not_begun_or_has_ended_goes_at_once() {
    let gone = json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0});
    let not_begun = object(&gone, &json!({"approvedBy": null}), &json!({"phase": "PendingApproval"}));
    ends(
        &observation(not_begun, Vec::new()),
        TransferPhase::Refused,
        Reason::TransferRefused,
        "before it had begun",
    );
    let ended =
        object(&gone, &NONE, &begun(&json!({"endedAt": "2026-01-01T00:00:00Z", "phase": "Completed"})));
    let seen = observation(Arc::clone(&ended), Vec::new());
    assert_eq!(plan(&seen).step, Step::RemoveFinalizer);
    assert_eq!(plan(&seen).status, *ended.status);
}

#[test]
fn what_is_approved_once_it_has_ended_changes_nothing_and_status_is_about_that_spec_too() {
    let ready = json!({
        "type": "Ready", "status": "True", "reason": "AlreadyApplied", "message": "nothing is transferred again",
        "observedGeneration": 1, "lastTransitionTime": "2026-01-01T00:00:00Z"
    });
    let ended = json!({
        "observedGeneration": 1, "phase": "Completed", "endedAt": "2026-01-01T00:00:00Z", "conditions": [ready]
    });
    let approved = object(&json!({"generation": 2, "finalizers": []}), &NONE, &ended);
    let said = plan(&observation(Arc::clone(&approved), Vec::new()));
    let mut expected = (*approved.status).clone();
    expected.observed_generation = Some(2);
    expected.conditions[0].observed_generation = Some(2);
    assert_eq!((said.step, &said.status, said.events), (Step::Nothing, &expected, Vec::new()));
    let seen = object(
        &json!({"generation": 2, "finalizers": []}),
        &NONE,
        &serde_json::to_value(&said.status).unwrap(),
    );
    assert!(plan(&observation(Arc::clone(&seen), Vec::new())).is_steady(&seen.status));
}

#[test]
fn a_quota_that_cannot_be_understood_stops_it() {
    let metadata = json!({"name": "coppice", "namespace": "web", "uid": "q", "resourceVersion": "3"});
    let foreign = read::<TreeQuotas>(json!({"metadata": metadata, "spec": {"hard": {"pods": "5"}}}));
    let seen = observation(object(&NONE, &NONE, &begun(&json!({}))), vec![(0, Some(foreign))]);
    let stopped = plan(&seen);
    assert_eq!((&stopped.step, why(&stopped).1.as_str()), (&Step::Nothing, "QuotaTaken"));
    assert_eq!(stopped.status.ended_at, None);
}

#[path = "plan_lint_tests.rs"]
mod lint;
