use coppice_api::names::{ANNOTATION_PATH, LABEL_PARENT};
use coppice_hierarchy::Record;
use coppice_kinds::SubnamespaceAnnotations;

use super::super::super::moving::{MoveTarget, Moving};
use super::*;

const LEAVING: &str = "shop-web";
const DELETED: &str = "2026-01-01T00:00:00Z";

/// The Subnamespace of namespace `shop-web-a` in `shop-web`, which has 3 of its 4 pods, while `shop-web` is being deleted; the root `shop`
/// stays.
fn orphan() -> Observation {
    let status = json!({
        "namespaceUid": "uid-of-shop-web-a", "request": {"hard": {"pods": "3"}}, "allotment": {"hard": {"pods": "3"}, "decided": 2},
        "phase": "Deleting"
    });
    let metadata = json!({
        "name": "shop-web-a", "namespace": LEAVING, "deletionTimestamp": DELETED, "deletionGracePeriodSeconds": 0
    });
    let mut own = namespace("shop-web-a", &[]);
    let position = tree(&json!({})).below(LEAVING).below("shop-web-a");
    own.labels =
        position.labels(Some("u-1")).iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    Observation {
        object: object("3", &metadata, &status),
        parent_position: Ok(tree(&json!({})).below(LEAVING)),
        parent: Some(Arc::new(NamespaceFacts { terminating: true, ..namespace(LEAVING, &[]) })),
        parent_quota: None,
        namespace: Some(Arc::new(own)),
        quota: Some(quota("shop-web-a", "3", "0", "1")),
        moving: Some(MoveTarget::Found(above(None))),
        ..observation()
    }
}

fn above(successor: Option<Arc<SubnamespaceObject>>) -> Moving {
    let status =
        json!({"namespaceUid": "uid-of-shop-web", "allotment": {"hard": {"pods": "4"}, "decided": 5}});
    Moving {
        above: Arc::new(namespace("shop", &[])),
        position: tree(&json!({})),
        quota: Some(quota("shop", "10", "4", "0")),
        leaving: object("4", &json!({"uid": "u-leaving", "deletionTimestamp": null}), &status),
        successor,
        between: Vec::new(),
    }
}

/// The Subnamespace that takes over.
fn successor(status: &Value) -> Arc<SubnamespaceObject> {
    let metadata =
        json!({"name": "shop-web-a", "uid": "u-2", "annotations": {"coppice.dev/moved-from": "u-1"}});
    object("3", &metadata, status)
}

/// One with all that it says of the other, while this much is arriving and the ledger of the one that moves is as given.
fn on_the_way(child: Option<&str>, arriving: Option<&str>) -> Observation {
    let mut moving = above(Some(successor(&json!({"request": {"hard": {"pods": "3"}}}))));
    let amounts = |pods: &str| Resources::parse([("pods", pods.parse().unwrap())]).unwrap();
    let ledger = |quota: &mut Option<Arc<TreeQuota>>, change: &dyn Fn(&mut coppice_hierarchy::Ledger)| {
        let quota = Arc::get_mut(quota.as_mut().unwrap()).unwrap().quota.as_mut().unwrap();
        change(&mut quota.ledger);
        quota.hard = quota.ledger.own();
    };
    ledger(&mut moving.quota, &|ledger| {
        if let Some(pods) = arriving {
            let held = coppice_hierarchy::HeldAmount { amount: amounts(pods), since: now() };
            ledger.given = ledger.given.minus(&held.amount);
            ledger.arriving.insert("u-2".to_owned(), held);
        }
    });
    let mut seen = orphan();
    ledger(&mut seen.quota, &|ledger| ledger.changed_by = child.map(Into::into));
    seen.moving = Some(MoveTarget::Found(moving));
    seen
}

#[track_caller]
fn moves(seen: &Observation) -> Step {
    let plan = plan(seen);
    let (reason, message) = why(&plan);
    let words = "namespace shop-web is being deleted: namespace shop-web-a moves to shop, with its quota and all below it";
    assert!(reason == Reason::MovedToAncestor && message.starts_with(words), "{reason}: {message}");
    assert!(plan.status.intent().is_none());
    plan.step
}

#[test]
fn a_namespace_whose_parent_is_deleted_gets_a_successor_in_the_nearest_one_that_stays() {
    let Step::Move(MoveStep::CreateSuccessor(spec)) = moves(&orphan()) else { panic!("it is not created") };
    assert_eq!(serde_json::to_value(&spec).unwrap()["quota"]["hard"]["pods"], "3");
    // Consent to a cascade was for where it was.
    let mut seen = orphan();
    let object = SubnamespaceObject::clone(&seen.object);
    let spec = json!({"cascadeUntil": "2026-01-01T01:00:00Z"});
    let spec = Ok(Arc::new(serde_json::from_value(spec).unwrap()));
    seen.object = Arc::new(SubnamespaceObject { spec, ..object });
    let Step::Move(MoveStep::CreateSuccessor(spec)) = moves(&seen) else { panic!("it is not created") };
    assert_eq!(spec.cascade_until, None);
}

#[test]
fn caches_alone_move_nothing() {
    let seen = Observation { moving: None, ..orphan() };
    assert_eq!(plan(&seen).step, Step::Read);
}

#[test]
fn what_it_was_given_is_said_before_anything_moves() {
    let seen =
        Observation { moving: Some(MoveTarget::Found(above(Some(successor(&json!({})))))), ..orphan() };
    let Step::Move(MoveStep::SuccessorStatus(status)) = moves(&seen) else { panic!("it is not said") };
    assert_eq!(status.request, seen.object.status.request);
}

#[test]
fn the_quota_goes_first_and_then_the_namespace() {
    let Step::OwnQuota(fenced) = moves(&on_the_way(None, None)) else { panic!("it is not fenced") };
    assert_eq!(fenced.changed_by.as_deref(), Some("u-2"));
    let Step::Move(MoveStep::AncestorQuota(expected)) = moves(&on_the_way(Some("u-2"), None)) else {
        panic!("not expected")
    };
    assert_eq!(expected.arriving["u-2"].amount, Resources::default());
    let Step::Move(MoveStep::AncestorQuota(begun)) = moves(&on_the_way(Some("u-2"), Some("0"))) else {
        panic!("not begun")
    };
    let change = &begun.changes["u-leaving"];
    assert_eq!((change.number, change.moves.as_deref()), (6, Some("u-2")));
    assert_eq!((change.from.to_string(), change.to.to_string()), ("4 pods".to_owned(), "1 pods".to_owned()));
    let Step::Move(MoveStep::Label(changes)) = moves(&on_the_way(Some("u-2"), Some("3"))) else {
        panic!("it stays")
    };
    let label = |key: &str| changes.labels[key].as_deref();
    assert_eq!((label(LABEL_SUBNAMESPACE), label(LABEL_PARENT)), (Some("u-2"), Some("shop")));
    assert_eq!(label("shop-web.tree.coppice.dev/depth"), None);
    assert_eq!(changes.annotations[ANNOTATION_PATH].as_deref(), Some("shop/shop-web-a"));
}

#[test]
fn once_the_namespace_is_the_successors_nothing_is_left_to_do() {
    let mut seen = on_the_way(Some("u-2"), Some("3"));
    let labels = [(LABEL_SUBNAMESPACE, "u-2")];
    seen.namespace = Some(Arc::new(namespace("shop-web-a", &labels)));
    assert_eq!(plan(&seen).step, Step::RemoveFinalizer);
}

#[test]
fn where_it_cannot_go_it_stays_and_says_why() {
    let why = (Reason::NotInTree, "all namespaces above are being deleted, too".to_owned());
    let nowhere = Observation { moving: Some(MoveTarget::Nowhere(why)), ..orphan() };
    let words =
        "namespace shop-web-a stays until somebody deletes it: all namespaces above are being deleted, too";
    refused(&nowhere, Reason::NamespaceTerminating, words);
    let other = object("1", &json!({"name": "shop-web-a", "uid": "u-3"}), &json!({}));
    let taken = Observation { moving: Some(MoveTarget::Found(above(Some(other)))), ..orphan() };
    refused(&taken, Reason::MovedToAncestor, "delete that (kubectl delete sns shop-web-a -n shop)");
    let mut more = on_the_way(Some("u-2"), Some("0"));
    more.quota = Some(quota("shop-web-a", "5", "0", "0"));
    let quota = Arc::get_mut(more.quota.as_mut().unwrap()).unwrap().quota.as_mut().unwrap();
    quota.ledger.changed_by = Some("u-2".into());
    refused(&more, Reason::MovedToAncestor, "it has more than is recorded of Subnamespace shop/shop-web");
}

#[test]
fn one_that_is_deleted_itself_ends_where_it_is_unless_its_quota_has_gone() {
    let ends = |seen: Observation| {
        let own = NamespaceFacts::clone(seen.namespace.as_deref().unwrap());
        Observation {
            namespace: Some(Arc::new(NamespaceFacts { terminating: true, ..own })),
            quota: None,
            ..seen
        }
    };
    for seen in [orphan(), on_the_way(None, None), on_the_way(Some("u-2"), Some("0"))] {
        refused(&ends(seen), Reason::NamespaceTerminating, "is being deleted");
    }
    assert!(matches!(moves(&ends(on_the_way(Some("u-2"), Some("3")))), Step::Move(MoveStep::Label(_))));
    // All that the parent had returns with it, whether or not its quota is still there.
    let gone = Observation { namespace: None, quota: None, moving: None, ..orphan() };
    assert_eq!(plan(&gone).step, Step::RemoveFinalizer);
    let gone = Observation { parent_quota: Some(quota(LEAVING, "4", "3", "0")), ..gone };
    assert_eq!(plan(&gone).step, Step::RemoveFinalizer);
}

/// The successor, in the root.
fn arriving(namespace: Option<NamespaceFacts>, predecessor: bool) -> Observation {
    let object = successor(&json!({"request": {"hard": {"pods": "3"}}}));
    Observation { object, namespace: namespace.map(Arc::new), predecessor, ..observation() }
}

#[test]
fn a_successor_takes_up_its_namespace_and_never_creates_one() {
    let waits = arriving(None, true);
    refused(&waits, Reason::MovedToAncestor, "is being moved here");
    let others = arriving(Some(namespace("shop-web-a", &[(LABEL_SUBNAMESPACE, "u-1")])), true);
    refused(&others, Reason::MovedToAncestor, "is being moved here");
    assert_eq!(plan(&arriving(None, false)).step, Step::DeleteObject);
    let taken = plan(&arriving(Some(namespace("shop-web-a", &[(LABEL_SUBNAMESPACE, "u-2")])), true));
    assert_eq!(taken.status.namespace_uid.as_deref(), Some("uid-of-shop-web-a"));
    let [event] = &taken.events[..] else { panic!("{:?}", taken.events) };
    assert_eq!((event.reason, event.warning), (Reason::MovedToAncestor, false));
}

/// Its grandparent is deleted as well, so it is on its way further up; then a late write gives it to the first successor after all.
#[test]
fn where_a_late_write_gives_it_to_another_successor_that_one_passes_it_on() {
    let own = namespace("shop-web-a", &[(LABEL_SUBNAMESPACE, "u-1")]);
    let last = successor(&json!({"request": {"hard": {"pods": "3"}}}));
    let last = SubnamespaceObject {
        annotations: SubnamespaceAnnotations { moved_from: Some("u-0".into()) },
        ..SubnamespaceObject::clone(&last)
    };
    let mut seen = on_the_way(Some("u-2"), Some("3"));
    if let Some(MoveTarget::Found(moving)) = &mut seen.moving {
        moving.successor = Some(Arc::new(last.clone()));
    }
    // The one with the label:
    assert!(matches!(moves(&seen), Step::Move(MoveStep::Label(_))));
    let without = Observation { moving: on_the_way(None, None).moving, ..orphan() };
    let Observation { moving: Some(MoveTarget::Found(mut moving)), .. } = without else { panic!("it moves") };
    moving.successor = Some(Arc::new(last.clone()));
    let taken = Observation { moving: Some(MoveTarget::Found(moving)), ..orphan() };
    refused(&taken, Reason::MovedToAncestor, "there is another Subnamespace shop-web-a there");
    // The other one, whose predecessor has seen the label and is gone:
    let waits = Observation { object: Arc::new(last), quota: seen.quota, ..arriving(Some(own), false) };
    refused(&waits, Reason::MovedToAncestor, "is being moved here");
}

#[test]
fn a_successor_that_comes_back_from_a_backup_is_not_deleted() {
    let Some(MoveTarget::Found(moving)) = on_the_way(None, None).moving else { panic!("it moves") };
    let seen =
        Observation { object: successor(&json!({})), parent_quota: moving.quota, ..arriving(None, false) };
    refused(
        &seen,
        Reason::MovedToAncestor,
        "create the Subnamespace again without the annotation coppice.dev/moved-from",
    );
}

#[test]
fn a_successor_returns_what_has_arrived_for_a_namespace_that_is_gone() {
    let Some(MoveTarget::Found(moving)) = on_the_way(None, Some("3")).moving else { panic!("it moves") };
    let seen = Observation { parent_quota: moving.quota, ..arriving(None, false) };
    let Step::ParentQuota(returned) = plan(&seen).step else { panic!("{:?}", plan(&seen).step) };
    assert!(returned.arriving.is_empty());
    assert_eq!(returned.own().to_string(), "9 pods", "the rest is that of the one that leaves");
}

#[test]
fn what_is_under_way_of_a_namespace_that_is_being_deleted_is_decided_in_its_record() {
    let mut seen = ready();
    let own = NamespaceFacts::clone(seen.namespace.as_deref().unwrap());
    seen.namespace = Some(Arc::new(NamespaceFacts { terminating: true, ..own }));
    seen.quota = None;
    assert_eq!(plan(&seen).step, Step::Nothing);
    let quota = Arc::get_mut(seen.parent_quota.as_mut().unwrap()).unwrap().quota.as_mut().unwrap();
    let amounts = |pods: &str| Resources::parse([("pods", pods.parse().unwrap())]).unwrap();
    quota.ledger.changes.insert(
        "u-1".to_owned(),
        coppice_hierarchy::AllotmentChange {
            number: 1,
            from: amounts("4"),
            to: amounts("1"),
            since: now(),
            transfer: None,
            moves: Some("u-2".to_owned()),
        },
    );
    let plan = plan(&seen);
    assert_eq!(recorded_of(&plan), Record { allotment: amounts("1"), decided: 1 });
    assert_eq!(why(&plan).0, Reason::NamespaceTerminating);
}

fn recorded_of(plan: &SubnamespacePlan) -> Record {
    let allotment = plan.status.allotment.as_ref().unwrap();
    let decided = u64::try_from(allotment.decided).unwrap();
    Record { allotment: Resources::recorded(&allotment.hard).unwrap(), decided }
}
