use coppice_api::names::{ANNOTATION_PATH, LABEL_SUBNAMESPACE};

use super::*;

/// The same in a tree that is being detached.
fn detaching(seen: Observation) -> Observation {
    let metadata = json!({
        "name": "shop", "uid": "t", "resourceVersion": "1", "creationTimestamp": "2026-01-01T00:00:00Z",
        "deletionTimestamp": "2026-01-01T00:00:00Z"
    });
    let spec = json!({"root": "shop", "quota": {"hard": {"pods": "10"}}, "deletionPolicy": "Detach"});
    let tree = read::<NamespaceTrees>(
        json!({"metadata": metadata, "spec": spec, "status": {"rootUid": "uid-of-shop"}}),
    );
    Observation {
        parent_position: Ok(Position::new(&tree, tree.spec.as_ref().unwrap(), vec!["shop".into()])),
        ..seen
    }
}

/// Without a label of the tree.
fn unlabelled(seen: Observation) -> Observation {
    Observation { namespace: Some(Arc::new(namespace("shop-web", &[]))), ..seen }
}

#[test]
fn a_namespace_is_taken_out_of_its_tree_from_the_bottom_up_and_stays() {
    // Whether or not somebody has deleted the Subnamespace: then, too, nothing of the namespace is deleted.
    for seen in [ready, deleted] {
        let below = Observation { children: vec![ready().object].into(), ..detaching(seen()) };
        refused(&below, Reason::Detaching, "a Subnamespace below this namespace first");
        let moving = Observation { transfers: 2, ..detaching(seen()) };
        refused(&moving, Reason::Detaching, "QuotaTransfers that have begun end first (2)");
        let ledger = json!({"allotment": {"pods": "4"}, "given": {}, "held": {"a/b/c": {"amount": {"pods": "1"}, "since": "2026-01-01T00:00:00Z"}}});
        let held = serde_json::from_value::<coppice_hierarchy::Ledger>(ledger);
        let mut holding = quota("shop-web", "4", "0", "1");
        Arc::get_mut(&mut holding).unwrap().quota.as_mut().unwrap().ledger.held = held.unwrap().held;
        let holding = Observation { quota: Some(holding), ..detaching(seen()) };
        refused(&holding, Reason::Detaching, "QuotaTransfers that have begun end first (1)");
        let copied = Observation { copies: 3, ..detaching(seen()) };
        refused(&copied, Reason::Detaching, "3 copies become the namespace's own first");
        let copied = Observation { copies: 1, ..detaching(seen()) };
        refused(&copied, Reason::Detaching, "1 copy becomes the namespace's own first");
        assert_eq!(plan(&detaching(seen())).step, Step::ReleaseQuota);
        let mut own = quota("shop-web", "4", "0", "1");
        Arc::get_mut(&mut own).unwrap().tree = None;
        let released = Observation { quota: Some(own), ..detaching(seen()) };
        let Step::Label(changes) = plan(&released).step else { panic!("{:?}", plan(&released).step) };
        assert!(
            changes.labels.values().all(Option::is_none) && changes.labels.contains_key(LABEL_SUBNAMESPACE)
        );
        assert_eq!(changes.annotations, BTreeMap::from([(ANNOTATION_PATH.to_owned(), None)]));
        let out = plan(&unlabelled(released));
        assert_eq!((&out.step, out.status.phase), (&Step::Nothing, Some(SubnamespacePhase::Detached)));
        assert!(out.status.namespace_uid.is_none() && !is_durable(&out.status, &seen().object.status));
    }
}

#[test]
fn what_is_on_its_way_arrives_before_a_namespace_is_taken_out() {
    // The quota of the namespace has less than the ledger of the one above says.
    let seen = Observation { quota: Some(quota("shop-web", "3", "0", "1")), ..detaching(ready()) };
    assert!(matches!(plan(&seen).step, Step::OwnQuota(_) | Step::ParentQuota(_)), "{:?}", plan(&seen).step);
    // A namespace without a quota would have any amount.
    let seen = Observation { quota: None, ..detaching(ready()) };
    assert!(matches!(plan(&seen).step, Step::OwnQuota(_)), "{:?}", plan(&seen).step);
}

#[test]
fn below_a_root_that_is_being_deleted_a_namespace_is_taken_out_with_the_quota_that_it_has() {
    let root = NamespaceFacts { terminating: true, ..namespace("shop", &[]) };
    let moving = Some(MoveTarget::Nowhere((Reason::NotInTree, "the root is being deleted".to_owned())));
    let seen =
        Observation { parent: Some(Arc::new(root)), parent_quota: None, moving, ..detaching(deleted()) };
    assert_eq!(plan(&seen).step, Step::ReleaseQuota);
    // The same in another one of its name.
    let another = NamespaceFacts { uid: "another".to_owned(), ..namespace("shop", &[]) };
    let parent = Some(Arc::new(another));
    assert_eq!(
        plan(&Observation { parent, parent_quota: None, ..detaching(ready()) }).step,
        Step::ReleaseQuota
    );
    // One that is missing in a root that stays is waited for.
    let missing = Observation { parent_quota: None, ..detaching(ready()) };
    refused(&missing, Reason::QuotaChanging, "the quota of namespace shop is missing");
}

#[test]
fn of_what_was_taken_out_only_the_object_goes_whatever_else_is_seen() {
    let status = json!({"phase": "Detached", "allotment": {"hard": {"pods": "4"}, "decided": 0}});
    let lost = (Reason::NotInTree, "namespace shop belongs to no tree".to_owned());
    let marked = Some(Arc::new(namespace("shop-web", &[(LABEL_SUBNAMESPACE, "u-1")])));
    for parent_position in [detaching(ready()).parent_position, Err(lost)] {
        let seen = Observation {
            object: object("4", &json!({}), &status),
            namespace: marked.clone(),
            parent_position: parent_position.clone(),
            ..ready()
        };
        assert_eq!(plan(&seen).step, Step::DeleteObject);
        let going = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
        let seen = Observation { object: object("4", &going, &status), parent_position, ..seen };
        assert_eq!(plan(&seen).step, Step::RemoveFinalizer);
    }
}

#[test]
fn nothing_is_created_in_a_tree_that_is_being_detached_nor_is_it_in_the_way() {
    let planned = plan(&detaching(observation()));
    assert_eq!((&planned.step, planned.status.phase), (&Step::Nothing, Some(SubnamespacePhase::Detached)));
    assert!(why(&planned).1.contains("no namespace is created in it"));
    // Of a namespace that it did not create, nothing is touched.
    let taken = Observation {
        namespace: Some(Arc::new(namespace("shop-web", &[("team", "x")]))),
        ..detaching(observation())
    };
    assert_eq!(
        (plan(&taken).step, plan(&taken).status.phase),
        (Step::Nothing, Some(SubnamespacePhase::Detached))
    );
}
