use std::collections::BTreeMap;
use std::sync::Arc;

use coppice_api::Labels;
use coppice_api::config::{CoppiceConfigSpec, GovernorStatus, ReservationEntry};
use coppice_api::names::LABEL_PROTECTED;
use coppice_api::steps::Action;
use coppice_kinds::{InvalidQuota, NamespaceTrees, Subnamespaces, TreeQuota, TreeQuotas};
use coppice_lifecycle::PlatformSettings;
use coppice_lifecycle::facts::Annotations;
use coppice_quantity::Quantity;
use coppice_quantity::time::ServerTime;
use coppice_runtime::kind::Kind;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::super::moving::MoveTarget;
use super::*;

pub(in crate::subnamespace) fn now() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

fn read<K: Kind<Context = ()>>(object: Value) -> Arc<K::Object> {
    Arc::new(K::project(serde_json::from_value(object).unwrap(), &()).unwrap())
}

pub(in crate::subnamespace) fn namespace(name: &str, labels: &[(&str, &str)]) -> NamespaceFacts {
    NamespaceFacts {
        name: name.to_owned(),
        uid: format!("uid-of-{name}"),
        resource_version: "7".to_owned(),
        created: now(),
        labels: labels.iter().copied().collect::<Labels>(),
        annotations: Annotations::default(),
        terminating: false,
    }
}

/// A quota that is in force, as its ledger says.
pub(in crate::subnamespace) fn quota(
    namespace: &str,
    allotment: &str,
    given: &str,
    used: &str,
) -> Arc<TreeQuota> {
    let own = allotment.parse::<Quantity>().unwrap().checked_sub(given.parse().unwrap()).unwrap();
    let ledger = json!({"allotment": {"pods": allotment}, "given": {"pods": given}}).to_string();
    read::<TreeQuotas>(json!({
        "metadata": {
            "name": "coppice", "namespace": namespace, "uid": "q", "resourceVersion": "3", "labels": {"coppice.dev/tree": "shop"},
            "annotations": {"coppice.dev/ledger": ledger}
        },
        "spec": {"hard": {"pods": own}}, "status": {"hard": {"pods": own}, "used": {"pods": used}}
    }))
}

pub(in crate::subnamespace) fn object(
    pods: &str,
    metadata: &Value,
    status: &Value,
) -> Arc<SubnamespaceObject> {
    let mut all = json!({
        "name": "shop-web", "namespace": "shop", "uid": "u-1", "resourceVersion": "5", "generation": 1,
        "creationTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["coppice.dev/cleanup"]
    });
    for (key, value) in metadata.as_object().into_iter().flatten() {
        all[key] = value.clone();
    }
    read::<Subnamespaces>(
        json!({"metadata": all, "spec": {"quota": {"hard": {"pods": pods}}}, "status": status}),
    )
}

pub(in crate::subnamespace) fn tree(spec: &Value) -> Position {
    let mut all = json!({"root": "shop", "quota": {"hard": {"pods": "10"}}});
    for (key, value) in spec.as_object().into_iter().flatten() {
        all[key] = value.clone();
    }
    let metadata = json!({"name": "shop", "uid": "t", "resourceVersion": "1", "creationTimestamp": "2026-01-01T00:00:00Z"});
    let tree = read::<NamespaceTrees>(
        json!({"metadata": metadata, "spec": all, "status": {"rootUid": "uid-of-shop"}}),
    );
    Position::new(&tree, tree.spec.as_ref().unwrap(), vec!["shop".into()])
}

/// A Subnamespace that asks for 4 of the 10 pods of its root, and was just created.
pub(in crate::subnamespace) fn observation() -> Observation {
    Observation {
        object: object("4", &json!({}), &json!({})),
        parent_position: Ok(tree(&json!({}))),
        parent: Some(Arc::new(namespace("shop", &[]))),
        parent_quota: Some(quota("shop", "10", "0", "0")),
        namespace: None,
        quota: None,
        children: crate::allotment::Children::default(),
        below: Vec::new(),
        above: Vec::new(),
        siblings: Vec::new(),
        copies: 0,
        transfers: 0,
        moving: None,
        predecessor: false,
        tree_size: 1,
        stale: None,
        settings: Arc::new(PlatformSettings::new(CoppiceConfigSpec::default(), "coppice-system", Vec::new())),
        budget: GovernorStatus::default(),
        managed: 1,
        time: ServerTime::certain(now()),
        started: Instant::now(),
    }
}

/// The same once it has its namespace and what it asked for.
pub(in crate::subnamespace) fn ready() -> Observation {
    let status = json!({
        "namespaceUid": "uid-of-shop-web", "request": {"hard": {"pods": "4"}}, "allotment": {"hard": {"pods": "4"}, "decided": 0},
        "phase": "Ready"
    });
    let mut own = namespace("shop-web", &[]);
    let position = tree(&json!({})).below("shop-web");
    own.labels =
        position.labels(Some("u-1")).iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    Observation {
        object: object("4", &json!({}), &status),
        namespace: Some(Arc::new(own)),
        quota: Some(quota("shop-web", "4", "0", "1")),
        parent_quota: Some(quota("shop", "10", "4", "0")),
        tree_size: 2,
        ..observation()
    }
}

/// The same while it is being deleted.
pub(in crate::subnamespace) fn deleted() -> Observation {
    let ready = ready();
    let status = serde_json::to_value(&*ready.object.status).unwrap();
    let metadata = json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0});
    Observation { object: object("4", &metadata, &status), ..ready }
}

/// The reason and the message of `Ready`.
fn why(plan: &SubnamespacePlan) -> (Reason, String) {
    let ready = condition::find(&plan.status.conditions, READY).unwrap();
    (reason_of(&ready.reason).unwrap(), ready.message.clone())
}

/// Nothing is done for this reason, which is said in these words.
#[track_caller]
fn refused(observation: &Observation, reason: Reason, words: &str) {
    let plan = plan(observation);
    assert_eq!(plan.step, Step::Nothing);
    let (said, message) = why(&plan);
    assert!(said == reason && message.contains(words), "{said}: {message}");
    assert!(plan.status.intent().is_none());
}

trait Intended {
    fn intent(&self) -> Option<&Intent>;
}

impl Intended for SubnamespaceStatus {
    fn intent(&self) -> Option<&Intent> {
        self.steps.intent.as_ref()
    }
}

#[test]
fn a_finalizer_comes_first_and_then_the_namespace() {
    let mut seen = observation();
    let place = match plan(&seen).step {
        Step::CreateNamespace(place) => place.0,
        other => panic!("{other:?}"),
    };
    assert_eq!((place.path().as_str(), place.depth()), ("shop/shop-web", 1));
    seen.object = object("4", &json!({"finalizers": []}), &json!({}));
    assert_eq!(plan(&seen).step, Step::AddFinalizer);
}

#[test]
fn the_uid_of_what_was_created_is_durable_before_anything_is_given() {
    let mut seen = ready();
    seen.object = object("4", &json!({}), &json!({}));
    let plan = plan(&seen);
    assert_eq!(plan.status.namespace_uid.as_deref(), Some("uid-of-shop-web"));
    assert!(!is_durable(&plan.status, &seen.object.status));
    assert_eq!(plan.step, Step::Nothing);
}

#[test]
fn a_namespace_that_was_there_before_is_not_touched() {
    let mut seen = observation();
    for labels in [&[][..], &[(LABEL_SUBNAMESPACE, "somebody-else")]] {
        seen.namespace = Some(Arc::new(namespace("shop-web", labels)));
        refused(&seen, Reason::NameTaken, "existing namespaces are never taken into a tree by their name");
    }
    let leaving = NamespaceFacts { terminating: true, ..namespace("shop-web", &[]) };
    seen.namespace = Some(Arc::new(leaving));
    refused(&seen, Reason::NamespaceTerminating, "another one is created when it is gone");
}

#[test]
fn a_namespace_that_an_administrator_has_marked_is_adopted_if_there_is_room_for_what_it_is_to_have() {
    let marked = |labels: &[(&str, &str)]| {
        let labels = [&[(LABEL_SUBNAMESPACE, "u-1")], labels].concat();
        Some(Arc::new(namespace("shop-web", &labels)))
    };
    let observation = || Observation { namespace: marked(&[]), ..observation() };
    let adopted = plan(&observation());
    assert_eq!(adopted.status.namespace_uid.as_deref(), Some("uid-of-shop-web"));
    assert_eq!(adopted.step, Step::Nothing);
    // What limits it holds from then on: without room for it nothing would start there any more.
    let full = Observation { parent_quota: Some(quota("shop", "10", "8", "0")), ..observation() };
    refused(&full, Reason::QuotaRefused, "needs 4 more, and shop can give 2");
    let with = |spec: Value| Observation { parent_position: Ok(tree(&spec)), ..observation() };
    refused(
        &with(json!({"names": ["{root}-x*"]})),
        Reason::NameNotAllowed,
        "name it by one of spec.names, here shop-x*",
    );
    let protected = Observation { namespace: marked(&[(LABEL_PROTECTED, "")]), ..observation() };
    refused(&protected, Reason::NamespaceProtected, "it cannot be adopted");
    let theirs = marked(&[("coppice.dev/root", "other"), ("coppice.dev/parent", "other")]);
    let theirs = Observation { namespace: theirs, ..observation() };
    refused(&theirs, Reason::NameTaken, "namespace shop-web belongs to a tree already");
    let mut others = quota("shop-web", "4", "0", "0");
    Arc::get_mut(&mut others).unwrap().quota = Err(InvalidQuota::Ledger { why: "it is missing".to_owned() });
    Arc::get_mut(&mut others).unwrap().tree = None;
    let others = Observation { quota: Some(others), ..observation() };
    refused(&others, Reason::QuotaTaken, "that belongs to no tree, and is not taken over: delete it");
}

#[test]
fn what_the_tree_does_not_permit_is_not_created() {
    let with = |spec: Value| Observation { parent_position: Ok(tree(&spec)), ..observation() };
    refused(
        &with(json!({"names": ["{root}-x*"]})),
        Reason::NameNotAllowed,
        "name it by one of spec.names, here shop-x*",
    );
    let full = Observation { tree_size: 2, ..with(json!({"maxNamespaces": 2})) };
    refused(&full, Reason::TooManyNamespaces, "has 2 namespaces and permits 2");
    let below = tree(&json!({"maxDepth": 1, "names": ["*"]})).below("deep");
    let deep = Observation { parent_position: Ok(below), ..observation() };
    refused(&deep, Reason::TooDeep, "would be 2 below the root");
    let nowhere = (Reason::NotInTree, "namespace shop belongs to no tree".to_owned());
    refused(&Observation { parent_position: Err(nowhere), ..observation() }, Reason::NotInTree, "no tree");
    let leaving = NamespaceFacts { terminating: true, ..namespace("shop", &[]) };
    let leaving = Observation { parent: Some(Arc::new(leaving)), ..observation() };
    refused(&leaving, Reason::NamespaceTerminating, "shop is being deleted");
}

#[test]
fn nothing_is_created_for_what_would_be_refused() {
    let mut seen = observation();
    seen.parent_quota = Some(quota("shop", "10", "3", "5"));
    refused(&seen, Reason::QuotaRefused, "pods: needs 4 more, and shop can give 2");
    seen.object = object("1.5", &json!({}), &json!({}));
    refused(&seen, Reason::InvalidSpec, "1500m is not a whole number");
}

#[test]
fn of_what_is_not_known_nothing_is_decided() {
    let stale = || Some((Reason::NotSynced, "the watch of namespaces has not synced".to_owned()));
    for seen in [observation(), ready(), deleted()] {
        let seen = Observation { stale: stale(), ..seen };
        refused(&seen, Reason::NotSynced, "not synced");
        let plan = plan(&seen);
        assert_eq!(condition::find(&plan.status.conditions, READY).unwrap().status, "Unknown");
    }
}

#[test]
fn a_ready_one_has_nothing_to_do_and_a_larger_request_is_taken_from_above() {
    let mut seen = ready();
    let steady = plan(&seen);
    assert_eq!((why(&steady).0, steady.step), (Reason::Reconciled, Step::Nothing));
    let status = serde_json::to_value(&*seen.object.status).unwrap();
    seen.object = object("6", &json!({}), &status);
    let Step::ParentQuota(ledger) = plan(&seen).step else { panic!("{:?}", plan(&seen).step) };
    assert_eq!(
        (ledger.own().to_string(), ledger.given.to_string()),
        ("4 pods".to_owned(), "6 pods".to_owned())
    );
}

#[test]
fn it_is_ready_once_the_quota_is_in_force_and_another_request_is_not_said_to_be() {
    let pending = |seen: &Observation| {
        let plan = plan(seen);
        assert_eq!((plan.status.phase, &plan.step), (Some(SubnamespacePhase::Pending), &Step::Nothing));
        assert_eq!(
            why(&plan),
            (
                Reason::QuotaChanging,
                "Kubernetes has not put the quota of the namespace in force yet".to_owned()
            )
        );
    };
    let mut seen = ready();
    Arc::get_mut(seen.quota.as_mut().unwrap()).unwrap().quota.as_mut().unwrap().enforced =
        Resources::default();
    pending(&seen);
    // What was said of the spec before says nothing of this one; what was said of this one stays, also while a transfer changes it.
    for (said_of, is_pending) in [(1, true), (2, false)] {
        let mut status = serde_json::to_value(&*seen.object.status).unwrap();
        status["conditions"] = json!([{
            "type": "Ready", "status": "True", "reason": "Reconciled", "message": "it was", "observedGeneration": said_of,
            "lastTransitionTime": "2026-01-01T00:00:00Z"
        }]);
        let object = object("4", &json!({"generation": 2}), &status);
        let later = Observation { object, quota: seen.quota.clone(), ..ready() };
        if is_pending {
            pending(&later);
        } else {
            assert_eq!(plan(&later).status.phase, Some(SubnamespacePhase::Ready));
        }
    }
}

/// The quota of `shop` while a change of the allotment of `shop-web` is under way.
fn changing(from: &str, to: &str, transfer: Option<&str>) -> Arc<TreeQuota> {
    let change = json!({
        "number": 1, "from": {"pods": from}, "to": {"pods": to}, "since": "2026-01-01T00:00:00Z", "transfer": transfer
    });
    let ledger =
        json!({"allotment": {"pods": "10"}, "given": {"pods": "6"}, "changes": {"u-1": change}}).to_string();
    read::<TreeQuotas>(json!({
        "metadata": {
            "name": "coppice", "namespace": "shop", "uid": "q", "resourceVersion": "3", "labels": {"coppice.dev/tree": "shop"},
            "annotations": {"coppice.dev/ledger": ledger}
        },
        "spec": {"hard": {"pods": "4"}}, "status": {"hard": {"pods": "4"}, "used": {"pods": "0"}}
    }))
}

#[test]
fn a_change_that_somebody_else_disturbed_is_given_up_at_once_and_not_remembered() {
    let status = serde_json::to_value(&*ready().object.status).unwrap();
    // Whether it was asked for, was granted before, or is a transfer's.
    for (pods, transfer) in [("6", None), ("4", None), ("4", Some("shop/t/u"))] {
        let seen = Observation {
            object: object(pods, &json!({}), &status),
            parent_quota: Some(changing("5", "6", transfer)),
            ..ready()
        };
        let plan = plan(&seen);
        let Step::OwnQuota(ledger) = &plan.step else { panic!("{pods} {transfer:?}: {:?}", plan.step) };
        assert_eq!((ledger.decided, ledger.allotment.to_string().as_str()), (1, "5 pods"));
        assert_eq!(plan.status.refused, None);
    }
}

#[test]
fn a_change_that_was_begun_and_is_refused_is_written_down_first() {
    let seen = ready();
    let status = serde_json::to_value(&*seen.object.status).unwrap();
    // Too much is in use for what is asked for.
    let seen = Observation {
        object: object("0", &json!({}), &status),
        parent_quota: Some(changing("4", "0", None)),
        ..seen
    };
    let decided = plan(&seen);
    assert_eq!(decided.step, Step::Nothing);
    let refused = decided.status.refused.as_ref().unwrap();
    assert!(refused.message.contains("shop-web uses 1"), "{}", refused.message);
    let status = serde_json::to_value(&decided.status).unwrap();
    let seen = Observation { object: object("0", &json!({}), &status), ..seen };
    assert!(matches!(plan(&seen).step, Step::OwnQuota(_)));
}

#[test]
fn what_was_granted_before_can_be_asked_for_again_while_something_else_is_carried_out() {
    let status = serde_json::to_value(&*ready().object.status).unwrap();
    let has_six = || {
        let mut own = quota("shop-web", "6", "0", "1");
        Arc::get_mut(&mut own).unwrap().quota.as_mut().unwrap().ledger.decided = 1;
        Some(own)
    };
    // 6 were given, which is not recorded yet, and 4 are asked for, as before.
    for (transfer, then) in [(None, Some("4 pods")), (Some("shop/t/u"), None)] {
        let parent_quota = Some(changing("4", "6", transfer));
        let object_with = |status: &Value| object("4", &json!({}), status);
        let seen = Observation { object: object_with(&status), parent_quota, quota: has_six(), ..ready() };
        let recorded = plan(&seen).status;
        assert_eq!(recorded.allotment.as_ref().unwrap().hard.get("pods"), Some(Quantity::from(6_u32)));
        let object = object_with(&serde_json::to_value(&recorded).unwrap());
        let parent_quota = Some(quota("shop", "10", "6", "0"));
        let next = plan(&Observation { object, parent_quota, quota: has_six(), ..ready() }).step;
        let begun = match &next {
            Step::ParentQuota(ledger) => Some(ledger.changes["u-1"].to.to_string()),
            _ => None,
        };
        assert_eq!(begun.as_deref(), then, "{transfer:?}: {next:?}");
    }
}

#[test]
fn a_quota_that_cannot_be_understood_gives_and_takes_nothing() {
    let metadata = json!({"name": "coppice", "namespace": "shop", "uid": "q", "resourceVersion": "3"});
    let foreign = read::<TreeQuotas>(json!({"metadata": metadata, "spec": {"hard": {"pods": "5"}}}));
    let status = serde_json::to_value(&*ready().object.status).unwrap();
    let seen =
        Observation { parent_quota: Some(foreign), object: object("6", &json!({}), &status), ..ready() };
    refused(&seen, Reason::QuotaTaken, "that belongs to no tree");
}

#[test]
fn a_deletion_is_written_down_before_it_is_carried_out() {
    let mut seen = deleted();
    let decided = plan(&seen);
    assert_eq!(decided.step, Step::Nothing);
    let intent = decided.status.intent().unwrap().clone();
    assert_eq!((intent.uid.as_str(), intent.action), ("uid-of-shop-web", Action::Delete));
    assert!(!is_durable(&decided.status, &seen.object.status));
    let metadata = json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0});
    seen.object = object("4", &metadata, &serde_json::to_value(&decided.status).unwrap());
    assert_eq!(plan(&seen).step, Step::DeleteNamespace(intent));
}

#[test]
fn what_others_are_below_or_what_is_protected_is_not_deleted() {
    let below = object("1", &json!({"name": "shop-web-a", "namespace": "shop-web"}), &json!({}));
    let parent = Observation { children: vec![below].into(), ..deleted() };
    refused(&parent, Reason::HasChildren, "has a Subnamespace below it, and stays");
    let mut shielded = deleted();
    let own = shielded.namespace.take().unwrap();
    let labels = own.labels.iter().chain([(LABEL_PROTECTED, "")]).collect::<Labels>();
    shielded.namespace = Some(Arc::new(NamespaceFacts { labels, ..(*own).clone() }));
    refused(&shielded, Reason::NamespaceProtected, "protected");
    let moving = Some(MoveTarget::Nowhere((Reason::NotInTree, "the root is being deleted".to_owned())));
    let gone = Observation { parent: None, moving, ..deleted() };
    refused(&gone, Reason::NamespaceTerminating, "namespace shop-web stays until somebody deletes it");
}

#[test]
fn what_is_gone_returns_its_quota_before_its_object_goes() {
    let seen = Observation { namespace: None, quota: None, ..deleted() };
    let Step::ParentQuota(ledger) = plan(&seen).step else { panic!("{:?}", plan(&seen).step) };
    assert_eq!(ledger.changes["u-1"].to, Resources::default());
    // Deleted by somebody else, with the object still there: it goes, too, once everything is back.
    let status = json!({"namespaceUid": "uid-of-shop-web", "allotment": {"hard": {}, "decided": 1}});
    let returned = Observation {
        object: object("4", &json!({}), &status),
        namespace: None,
        quota: None,
        parent_quota: Some(quota("shop", "10", "0", "0")),
        ..ready()
    };
    assert_eq!(plan(&returned).step, Step::DeleteObject);
}

#[test]
fn a_namespace_of_the_same_name_that_came_later_is_another() {
    let mut seen = deleted();
    let own = seen.namespace.take().unwrap();
    seen.namespace = Some(Arc::new(NamespaceFacts { uid: "another".to_owned(), ..(*own).clone() }));
    seen.quota = None;
    assert!(!matches!(plan(&seen).step, Step::DeleteNamespace(_)));
    assert!(plan(&seen).status.intent().is_none());
}

#[test]
fn what_the_tree_requires_is_named_by_every_new_request() {
    let requires = || {
        Ok(tree(
            &json!({"quota": {"hard": {"pods": "10", "cpu": "4"}, "required": ["pods", "requests.cpu"]}}),
        ))
    };
    let new = Observation { parent_position: requires(), ..observation() };
    let object = SubnamespaceObject { has_finalizer: true, ..(*new.object).clone() };
    let new = Observation { object: Arc::new(object), ..new };
    let planned = plan(&new);
    let ready = condition::find(&planned.status.conditions, READY).unwrap();
    assert_eq!((planned.step, ready.reason.as_str()), (Step::Nothing, "InvalidSpec"));
    let words = "spec.quota.hard does not name cpu, which NamespaceTree shop requires (spec.quota.required)";
    assert!(ready.message.starts_with(words), "{}", ready.message);
    // What was granted before stays granted.
    let granted = Observation { parent_position: requires(), ..super::tests::ready() };
    let planned = plan(&granted);
    assert_eq!(planned.status.phase, Some(SubnamespacePhase::Ready), "{:?}", planned.status.conditions);
}

/// With this in `spec.metadata`.
fn asking(seen: Observation, metadata: &Value) -> Observation {
    let status = serde_json::to_value(&*seen.object.status).unwrap();
    let mut spec = json!({"quota": {"hard": {"pods": "4"}}});
    spec["metadata"] = metadata.clone();
    let all = json!({
        "name": "shop-web", "namespace": "shop", "uid": "u-1", "resourceVersion": "5", "generation": 1,
        "creationTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["coppice.dev/cleanup"]
    });
    let object = read::<Subnamespaces>(json!({"metadata": all, "spec": spec, "status": status}));
    Observation { object, ..seen }
}

/// In a tree that says this of metadata, below a root with the label `team=shop`.
fn in_tree(seen: Observation, metadata: &Value) -> Observation {
    let parent_position = Ok(tree(&json!({"metadata": metadata})));
    Observation { parent_position, parent: Some(Arc::new(namespace("shop", &[("team", "shop")]))), ..seen }
}

#[test]
fn what_a_namespace_is_created_with_is_durable_before() {
    let rules = json!({"allowed": {"labels": ["tier"]}, "inherited": {"labels": ["team"]}});
    let mut seen = in_tree(asking(observation(), &json!({"labels": {"tier": "web"}})), &rules);
    let planned = plan(&seen);
    assert_eq!(planned.status.metadata.labels, ["team", "tier"]);
    assert!(!is_durable(&planned.status, &seen.object.status));
    let labels = |plan: &SubnamespacePlan| match &plan.step {
        Step::CreateNamespace(place) => serde_json::to_value(&place.1.labels).unwrap(),
        other => panic!("{other:?}"),
    };
    assert_eq!(labels(&planned), json!({"team": "shop", "tier": "web"}));
    let mut object = SubnamespaceObject::clone(&seen.object);
    object.status = Box::new(planned.status);
    seen.object = Arc::new(object);
    assert!(is_durable(&plan(&seen).status, &seen.object.status));
}

#[test]
fn nothing_is_created_with_what_the_tree_does_not_allow() {
    let asked = asking(observation(), &json!({"labels": {"owner": "me"}}));
    refused(&asked, Reason::MetadataNotAllowed, "spec.metadata.labels names owner");
    // Nor adopted.
    let marked = Some(Arc::new(namespace("shop-web", &[(LABEL_SUBNAMESPACE, "u-1")])));
    refused(&Observation { namespace: marked, ..asked }, Reason::MetadataNotAllowed, "names owner");
}

#[test]
fn what_is_not_allowed_any_more_stays_and_the_quota_is_kept_all_the_same() {
    let mut seen = asking(ready(), &json!({"labels": {"owner": "me"}}));
    refused(&seen, Reason::MetadataNotAllowed, "spec.metadata.labels names owner");
    seen.quota = Some(quota("shop-web", "3", "0", "1"));
    assert!(!matches!(plan(&seen).step, Step::Nothing | Step::Label(_)), "{:?}", plan(&seen).step);
}

#[test]
fn a_namespace_is_labelled_like_the_one_above_until_it_is() {
    let seen = in_tree(ready(), &json!({"inherited": {"labels": ["team"]}}));
    let planned = plan(&seen);
    let expected = BTreeMap::from([("team".to_owned(), Some("shop".to_owned()))]);
    assert_eq!(planned.step, Step::Label(NamespaceChanges::labels(expected)));
    assert_eq!(planned.status.metadata.labels, ["team"]);
    // While nothing is known of the namespace above, nothing changes.
    let unknown = Observation { parent: None, ..seen };
    assert_eq!(plan(&unknown).step, Step::Nothing);
}

#[test]
fn what_is_too_long_to_be_inherited_is_said() {
    let rules = json!({"inherited": {"annotations": ["example.org/note"]}});
    let read = coppice_lifecycle::facts::AnnotationKeys::named(["example.org/note"]);
    let long = "x".repeat(300);
    let noted = |facts: &NamespaceFacts, note: Option<&str>| {
        let annotations = Annotations::of(&read, note.map(|note| ("example.org/note", note)));
        Some(Arc::new(NamespaceFacts { annotations, ..facts.clone() }))
    };
    let seen = in_tree(ready(), &rules);
    let parent = noted(seen.parent.as_deref().unwrap(), Some(&long));
    let namespace = noted(seen.namespace.as_deref().unwrap(), None);
    let seen = Observation { parent, namespace, ..seen };
    let planned = plan(&seen);
    assert_eq!((&planned.step, planned.status.phase), (&Step::Nothing, Some(SubnamespacePhase::Ready)));
    let (_, message) = why(&planned);
    assert!(
        message.ends_with(
            "not inherited from shop: the annotation example.org/note, which is longer than 256 characters"
        ),
        "{message}"
    );
}

#[test]
fn managers_that_have_spent_their_share_delay_no_deletion() {
    let spent = vec![ReservationEntry { at: now(), steps: 10 }];
    let of_managers = GovernorStatus { reservations: spent, ..GovernorStatus::default() };
    let planned = plan(&Observation { budget: of_managers, ..deleted() });
    assert!(planned.status.steps.intent.is_some(), "{:?}", why(&planned));
}

#[path = "plan_cascade_tests.rs"]
pub(in crate::subnamespace) mod cascade;
#[path = "plan_detach_tests.rs"]
mod detach;
#[path = "plan_lint_tests.rs"]
mod lint;
#[path = "plan_moving_tests.rs"]
mod moving;
#[path = "plan_overdraft_tests.rs"]
mod overdraft;
#[path = "plan_own_events_tests.rs"]
mod own_events;
#[path = "plan_refusal_tests.rs"]
mod refusal;
