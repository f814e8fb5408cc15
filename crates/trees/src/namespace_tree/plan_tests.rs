use coppice_api::Labels;
use coppice_api::condition::WITHIN_QUOTA;
use coppice_api::config::CoppiceConfigSpec;
use coppice_api::names::LABEL_CHILDREN;
use coppice_hierarchy::Lowering;
use coppice_kinds::{NamespaceTrees, TreeQuotas};
use coppice_lifecycle::PlatformSettings;
use coppice_lifecycle::facts::Annotations;
use coppice_quantity::time::ServerTime;
use coppice_runtime::kind::Kind;
use serde_json::{Value, json};
use std::sync::Arc;

use super::*;

fn now() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

fn read<K: Kind<Context = ()>>(object: Value) -> Arc<K::Object> {
    Arc::new(K::project(serde_json::from_value(object).unwrap(), &()).unwrap())
}

/// The namespace `shop` with these labels.
fn root(labels: &[(&str, &str)]) -> NamespaceFacts {
    NamespaceFacts {
        name: "shop".to_owned(),
        uid: "uid-of-shop".to_owned(),
        resource_version: "7".to_owned(),
        created: now(),
        labels: labels.iter().copied().collect::<Labels>(),
        annotations: Annotations::default(),
        terminating: false,
    }
}

const LABELLED: &[(&str, &str)] = &[("coppice.dev/root", "shop"), ("shop.tree.coppice.dev/depth", "0")];

/// A quota with a ledger that says it has these pods.
fn quota(pods: &str) -> Arc<TreeQuota> {
    let ledger = json!({"allotment": {"pods": pods}, "given": {}}).to_string();
    read::<TreeQuotas>(json!({
        "metadata": {
            "name": "coppice", "namespace": "shop", "uid": "q", "resourceVersion": "3", "labels": {"coppice.dev/tree": "shop"},
            "annotations": {"coppice.dev/ledger": ledger}
        },
        "spec": {"hard": {"pods": pods}}, "status": {"hard": {"pods": pods}, "used": {"pods": "2"}}
    }))
}

/// A tree of 10 pods, whose metadata is this besides.
fn tree(metadata: &Value, status: &Value) -> Arc<coppice_kinds::Tree> {
    tree_of(&json!({"pods": "10"}), metadata, status)
}

/// The same with this quota.
fn tree_of(hard: &Value, metadata: &Value, status: &Value) -> Arc<coppice_kinds::Tree> {
    let mut all = json!({
        "name": "shop", "uid": "t", "resourceVersion": "1", "generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z",
        "finalizers": ["coppice.dev/cleanup"]
    });
    for (key, value) in metadata.as_object().into_iter().flatten() {
        all[key] = value.clone();
    }
    let spec = json!({"root": "shop", "quota": {"hard": hard}});
    read::<NamespaceTrees>(json!({"metadata": all, "spec": spec, "status": status}))
}

/// A tree that is set up.
fn ready() -> Observation {
    Observation {
        tree: tree(&json!({}), &json!({"rootUid": "uid-of-shop"})),
        root: Some(Arc::new(root(LABELLED))),
        quota: Some(quota("10")),
        other: None,
        children: 0,
        below: Resources::default(),
        size: 1,
        left: Vec::new(),
        absent_partitions: Vec::new(),
        stranded: None,
        stale: None,
        settings: Arc::new(PlatformSettings::new(CoppiceConfigSpec::default(), "platform", Vec::new())),
        time: ServerTime::certain(now()),
    }
}

/// The same while it is being deleted.
fn deleted() -> Observation {
    let metadata = json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0});
    Observation { tree: tree(&metadata, &json!({"rootUid": "uid-of-shop"})), ..ready() }
}

/// Status, reason and message of `Ready`.
fn said(plan: &TreePlan) -> (String, String, String) {
    let ready = condition::find(&plan.status.conditions, READY).unwrap();
    (ready.status.clone(), ready.reason.clone(), ready.message.clone())
}

/// Nothing is done for this reason, which is said in these words.
#[track_caller]
fn waits(seen: &Observation, reason: Reason, words: &str) {
    let plan = plan(seen);
    let (_, because, message) = said(&plan);
    assert_eq!((plan.step, because.as_str()), (Step::Nothing, reason.as_str()), "{message}");
    assert!(message.contains(words), "{message}");
}

fn removed(keys: &[&str]) -> Step {
    let labels = keys.iter().map(|key| ((*key).to_owned(), None)).collect();
    let annotations = BTreeMap::from([(ANNOTATION_PATH.to_owned(), None)]);
    Step::Label(NamespaceChanges { labels, annotations })
}

#[test]
fn a_quota_that_was_lost_is_made_again_without_what_those_below_have() {
    let labels = [LABELLED, &[(LABEL_CHILDREN, "u")]].concat();
    let below: Resources = serde_json::from_value(json!({"pods": "4"})).unwrap();
    // Also while the tree ends: what they have returns to it.
    for seen in [ready(), deleted()] {
        let root = Some(Arc::new(root(&labels)));
        let plan = plan(&Observation { root, quota: None, children: 1, below: below.clone(), ..seen });
        let Step::Quota(ledger) = plan.step else { panic!("{:?}", plan.step) };
        assert_eq!(
            (ledger.own().to_string(), ledger.given.to_string()),
            ("6 pods".to_owned(), "4 pods".to_owned())
        );
    }
}

#[test]
fn while_a_smaller_quota_is_not_in_force_it_says_who_has_to_do_that() {
    let mut lowered = quota("20");
    let own = Arc::get_mut(&mut lowered).unwrap().quota.as_mut().unwrap();
    own.hard = serde_json::from_value(json!({"pods": "10"})).unwrap();
    own.ledger.lowering = Some(Box::new(Lowering { to: own.hard.clone(), since: now() }));
    let seen = Observation { quota: Some(lowered), ..ready() };
    waits(&seen, Reason::QuotaChanging, "see whether kube-controller-manager runs");
}

#[test]
fn a_tree_is_set_up_with_its_finalizer_first_and_its_quota_last() {
    let mut seen = Observation {
        tree: tree(&json!({"finalizers": []}), &json!({})),
        root: Some(Arc::new(root(&[]))),
        quota: None,
        ..ready()
    };
    assert_eq!(plan(&seen).step, Step::AddFinalizer);
    seen.tree = tree(&json!({}), &json!({}));
    let labelled = plan(&seen);
    assert_eq!(labelled.status.root_uid.as_deref(), Some("uid-of-shop"));
    let Step::Label(changes) = labelled.step else { panic!("{:?}", labelled.step) };
    let labels: Vec<_> = changes.labels.into_iter().collect();
    let expected = LABELLED.iter().map(|(key, value)| ((*key).to_owned(), Some((*value).to_owned())));
    assert_eq!(labels, expected.collect::<Vec<_>>());
    assert_eq!(changes.annotations[ANNOTATION_PATH].as_deref(), Some("shop"));
    seen.root = ready().root;
    assert!(matches!(plan(&seen).step, Step::Quota(_)));
    let done = plan(&ready());
    assert_eq!(done.step, Step::Nothing);
    assert_eq!(said(&done).0, "True", "{}", said(&done).2);
    assert_eq!((done.status.allotted.as_str(), done.status.namespaces), ("10 pods", 1));
}

#[test]
fn a_tree_is_ready_once_the_quota_of_its_root_is_in_force_and_another_total_is_not_said_to_be() {
    let mut before = quota("10");
    Arc::get_mut(&mut before).unwrap().quota.as_mut().unwrap().enforced =
        serde_json::from_value(json!({"pods": "4"})).unwrap();
    let seen = |tree: Arc<coppice_kinds::Tree>| Observation { tree, quota: Some(before.clone()), ..ready() };
    let words = "Kubernetes has not put the quota of the root in force yet";
    waits(&seen(ready().tree), Reason::QuotaChanging, words);
    assert_eq!(said(&plan(&seen(ready().tree))).0, "False");
    // What was said of the spec before says nothing of this one; what was said of this one stays while one below is given something.
    for (said_of, is_ready) in [(1, false), (2, true)] {
        let status = json!({"rootUid": "uid-of-shop", "conditions": [{
            "type": "Ready", "status": "True", "reason": "Reconciled", "message": "it was", "observedGeneration": said_of,
            "lastTransitionTime": "2026-01-01T00:00:00Z"
        }]});
        let later = seen(tree(&json!({"generation": 2}), &status));
        if is_ready {
            assert_eq!(said(&plan(&later)).0, "True");
        } else {
            waits(&later, Reason::QuotaChanging, words);
        }
    }
}

#[test]
fn a_root_that_cannot_be_one_is_not_touched() {
    let new = Observation { tree: tree(&json!({}), &json!({})), root: None, quota: None, ..ready() };
    waits(&new, Reason::RootMissing, "there is no namespace shop: create it");
    waits(
        &Observation { root: None, ..ready() },
        Reason::RootMissing,
        "there is no namespace shop any more: delete this NamespaceTree (kubectl delete namespacetree shop), and create another one if \
         the namespace is created again",
    );
    let other = Some("it is the root of NamespaceTree old".to_owned());
    waits(
        &Observation { other, ..ready() },
        Reason::RootTaken,
        "it is the root of NamespaceTree old; delete this NamespaceTree, and create one for another namespace",
    );
    let another = NamespaceFacts { uid: "another".to_owned(), ..root(&[]) };
    let another = Observation { root: Some(Arc::new(another)), quota: None, ..ready() };
    waits(&another, Reason::RootMissing, "is another one than when the tree was set up");
    let leaving = NamespaceFacts { terminating: true, ..root(&[]) };
    let leaving = Observation { root: Some(Arc::new(leaving)), ..ready() };
    waits(&leaving, Reason::NamespaceTerminating, "namespace shop is being deleted");
}

#[test]
fn a_namespace_of_kubernetes_or_coppice_is_no_root_and_one_that_the_platform_protects_may_be() {
    let with_root = |name: &str| {
        let mut tree = coppice_kinds::Tree::clone(&tree(&json!({"finalizers": []}), &json!({})));
        let mut spec = tree.spec.unwrap();
        name.clone_into(&mut Arc::make_mut(&mut spec).root);
        tree.spec = Ok(spec);
        let namespace = NamespaceFacts { name: name.to_owned(), ..root(&[]) };
        Observation { tree: Arc::new(tree), root: Some(Arc::new(namespace)), quota: None, ..ready() }
    };
    for name in ["default", "kube-system"] {
        let words =
            format!("namespace {name} cannot be the root of a tree: it belongs to Kubernetes; delete");
        waits(&with_root(name), Reason::NamespaceProtected, &words);
    }
    for name in ["coppice-system", "platform"] {
        waits(&with_root(name), Reason::NamespaceProtected, "it is Coppice's own; delete this NamespaceTree");
    }
    let refused = plan(&with_root("kube-system"));
    let [event] = &refused.events[..] else { panic!("{:?}", refused.events) };
    assert_eq!((event.warning, event.reason), (true, Reason::NamespaceProtected));
    let mut protected = with_root("shop");
    let config = CoppiceConfigSpec {
        protected: serde_json::from_value(json!({"names": ["shop"]})).unwrap(),
        ..CoppiceConfigSpec::default()
    };
    protected.settings = Arc::new(PlatformSettings::new(config, "platform", Vec::new()));
    assert_eq!(plan(&protected).step, Step::AddFinalizer);
}

#[test]
fn a_root_that_is_deleted_leaves_those_below_it_without_one_which_is_said_with_their_names() {
    let left: Vec<String> = (1..=7).map(|at| format!("shop/shop-{at}")).collect();
    let leaving = || Some(Arc::new(NamespaceFacts { terminating: true, ..root(LABELLED) }));
    let seen = Observation { root: leaving(), left: left.clone(), size: 8, ..ready() };
    waits(
        &seen,
        Reason::RootDeleted,
        "namespace shop is being deleted, and the number of namespaces below it that are left without a root is 7: shop/shop-1, \
         shop/shop-2, shop/shop-3, shop/shop-4, shop/shop-5 and 2 more; they stay",
    );
    waits(&seen, Reason::RootDeleted, "keep all of them without a tree (coppice tree detach shop)");
    let begun = plan(&seen);
    let [event] = &begun.events[..] else { panic!("{:?}", begun.events) };
    assert_eq!((event.warning, event.reason, &event.message), (true, Reason::RootDeleted, &said(&begun).2));
    // With fewer of them it is the same, and no further Event.
    let status = serde_json::to_value(&begun.status).unwrap();
    let stored = tree(&json!({}), &status);
    let fewer =
        Observation { tree: Arc::clone(&stored), root: leaving(), left: left[..1].to_vec(), ..ready() };
    waits(&fewer, Reason::RootDeleted, "without a root is 1: shop/shop-1; they stay");
    assert_eq!(plan(&fewer).events, []);
    let gone = Observation { tree: Arc::clone(&stored), root: None, left: left.clone(), ..ready() };
    waits(&gone, Reason::RootDeleted, "namespace shop is gone, and");
    waits(&gone, Reason::RootDeleted, "keep all of them without a tree (coppice tree detach shop)");
    let another = Some(Arc::new(NamespaceFacts { uid: "another".to_owned(), ..root(&[]) }));
    let another = Observation { root: another, left, ..ready() };
    waits(&another, Reason::RootDeleted, "namespace shop was deleted, and is another one now, and");
    // The last one is gone.
    waits(
        &Observation { tree: stored, root: leaving(), ..ready() },
        Reason::NamespaceTerminating,
        "being deleted",
    );
}

#[test]
fn what_keeps_another_spec_from_being_in_force_is_said_once_as_well() {
    let taken = |generation: i64, status: &Value| Observation {
        tree: tree(&json!({"generation": generation}), status),
        other: Some("it is that of NamespaceTree a".to_owned()),
        ..ready()
    };
    let mut status = json!({"rootUid": "uid-of-shop"});
    for (generation, expected) in [(1, 1), (1, 0), (2, 1), (2, 0)] {
        let planned = plan(&taken(generation, &status));
        let said = planned.events.iter().filter(|event| event.warning && event.reason == Reason::RootTaken);
        assert_eq!(said.count(), expected, "generation {generation}");
        status = serde_json::to_value(&planned.status).unwrap();
    }
}

#[test]
fn a_tree_that_is_deleted_after_its_root_stays_until_nothing_is_left_below_it() {
    let left = vec!["shop/shop-web".to_owned(), "shop/shop-web/shop-web-ci".to_owned()];
    let gone = Observation { root: None, quota: None, left, size: 3, ..deleted() };
    waits(&gone, Reason::RootDeleted, "namespace shop is gone, and the number of namespaces below it");
    waits(&gone, Reason::RootDeleted, "shop/shop-web, shop/shop-web/shop-web-ci; they stay");
    waits(&gone, Reason::RootDeleted, "(kubectl delete namespace NAME), or keep all of them without a tree");
    waits(&gone, Reason::RootDeleted, "; the tree stays until they are gone");
    assert!(plan(&gone).events.iter().any(|event| event.warning && event.reason == Reason::RootDeleted));
    let another = Some(Arc::new(NamespaceFacts { uid: "another".to_owned(), ..root(&[]) }));
    let another = Observation { root: another, ..gone };
    waits(&another, Reason::RootDeleted, "namespace shop was deleted, and is another one now, and");
    // Whichever namespace has the name now: with the last one below it the tree goes.
    for root in [None, another.root.clone()] {
        let seen = Observation { root, quota: None, left: Vec::new(), ..deleted() };
        assert_eq!(plan(&seen).step, Step::RemoveFinalizer);
    }
}

#[test]
fn a_namespace_that_has_lost_its_root_and_its_subnamespace_is_taken_out_of_a_tree_that_is_detached() {
    let labels = [("coppice.dev/root", "shop"), ("coppice.dev/parent", "shop"), ("team", "web")];
    let namespace = NamespaceFacts { name: "shop-web".to_owned(), ..root(&labels) };
    let left = vec!["shop/shop-web".to_owned()];
    let seen = |quota: Option<Arc<TreeQuota>>, children| {
        let stranded = Some(Stranded { namespace: Arc::new(namespace.clone()), quota, children, copies: 0 });
        Observation { root: None, quota: None, left: left.clone(), stranded, ..deleted() }
    };
    waits(&seen(Some(quota("4")), 2), Reason::Detaching, "2 Subnamespaces in namespace shop-web first");
    let mut with_copies = seen(Some(quota("4")), 0);
    if let Some(stranded) = &mut with_copies.stranded {
        stranded.copies = 3;
    }
    waits(&with_copies, Reason::Detaching, "3 copies in namespace shop-web become its own first");
    assert_eq!(plan(&with_copies).next_check, Some(now() + COPIES_LOOKED_AT));
    if let Some(stranded) = &mut with_copies.stranded {
        stranded.copies = 1;
    }
    waits(&with_copies, Reason::Detaching, "1 copy in namespace shop-web becomes its own first");
    let mut holding = quota("4");
    let held = json!({"allotment": {"pods": "4"}, "given": {}, "held": {"a/b/c": {"amount": {"pods": "1"}, "since": "2026-01-01T00:00:00Z"}}});
    let held = serde_json::from_value::<Ledger>(held).unwrap().held;
    Arc::get_mut(&mut holding).unwrap().quota.as_mut().unwrap().ledger.held = held;
    waits(&seen(Some(holding), 0), Reason::Detaching, "QuotaTransfers from namespace shop-web end first (1)");
    assert_eq!(plan(&seen(Some(quota("4")), 0)).step, Step::ReleaseStranded);
    let mut own = quota("4");
    Arc::get_mut(&mut own).unwrap().tree = None;
    for released in [Some(own), None] {
        let Step::LabelStranded(changes) = plan(&seen(released, 0)).step else { panic!("its labels") };
        let keys: Vec<&str> = changes.labels.keys().map(String::as_str).collect();
        assert_eq!(keys, ["coppice.dev/parent", "coppice.dev/root"]);
        assert!(changes.labels.values().all(Option::is_none));
    }
}

#[test]
fn subnamespaces_that_are_left_in_a_root_that_ended_by_force_come_apart_once_it_is_there_again() {
    let detaching = |root: Option<Arc<NamespaceFacts>>| {
        let seen = deleted();
        let mut tree = coppice_kinds::Tree::clone(&seen.tree);
        let mut spec = tree.spec.unwrap();
        Arc::make_mut(&mut spec).deletion_policy = coppice_api::DeletionPolicy::Detach;
        tree.spec = Ok(spec);
        let left = vec!["shop/shop-web".to_owned()];
        Observation { tree: Arc::new(tree), root, quota: None, left, children: 1, ..seen }
    };
    waits(&detaching(None), Reason::Detaching, "create it again (kubectl create namespace shop)");
    let another = NamespaceFacts { uid: "another".to_owned(), ..root(&[]) };
    waits(&detaching(Some(Arc::new(another))), Reason::Detaching, ": 1 Subnamespace in namespace shop first");
}

#[test]
fn what_is_not_known_changes_nothing() {
    let stale = Some((Reason::NotSynced, "namespaces are not listed yet".to_owned()));
    for seen in [ready(), deleted()] {
        let plan = plan(&Observation { stale: stale.clone(), root: None, quota: None, ..seen });
        assert_eq!(plan.step, Step::Nothing);
        assert_eq!(said(&plan).0, "Unknown");
    }
}

#[test]
fn a_tree_stays_while_there_are_namespaces_below_its_root() {
    let seen = Observation { children: 2, size: 3, ..deleted() };
    waits(&seen, Reason::HasChildren, "kubectl get subnamespaces -n shop");
    let events = plan(&seen).events;
    assert!(events.iter().any(|event| event.warning && event.reason == Reason::HasChildren));
}

#[test]
fn a_tree_that_is_detached_leaves_its_quota_and_takes_its_labels_away() {
    let detached = |seen: Observation| {
        let mut tree = coppice_kinds::Tree::clone(&seen.tree);
        let mut spec = tree.spec.unwrap();
        Arc::make_mut(&mut spec).deletion_policy = coppice_api::DeletionPolicy::Detach;
        tree.spec = Ok(spec);
        Observation { tree: Arc::new(tree), ..seen }
    };
    // The policy says what becomes of a tree that is deleted, and deletes none.
    assert_eq!(plan(&detached(ready())).step, Step::Nothing);
    let seen = Observation { children: 1, size: 4, ..detached(deleted()) };
    waits(&seen, Reason::Detaching, "the tree is being detached: 3 namespaces first");
    let seen = detached(deleted());
    assert_eq!(plan(&seen).step, Step::ReleaseQuota);
    let mut theirs = quota("10");
    Arc::get_mut(&mut theirs).unwrap().tree = None;
    let seen = Observation { quota: Some(theirs), ..seen };
    assert_eq!(plan(&seen).step, removed(&["coppice.dev/root", "shop.tree.coppice.dev/depth"]));
}

#[test]
fn a_tree_that_ends_takes_its_quota_and_labels_away_before_its_finalizer() {
    assert_eq!(plan(&deleted()).step, Step::DeleteQuota);
    let labelled = [LABELLED, &[(LABEL_CHILDREN, "u"), ("team", "shop")]].concat();
    let seen = Observation { quota: None, root: Some(Arc::new(root(&labelled))), ..deleted() };
    assert_eq!(
        plan(&seen).step,
        removed(&[LABEL_CHILDREN, "coppice.dev/root", "shop.tree.coppice.dev/depth"])
    );
    let seen = Observation { root: Some(Arc::new(root(&[("team", "shop")]))), ..seen };
    assert_eq!(plan(&seen).step, Step::RemoveFinalizer);
    // Of another namespace of this name, and of a quota of another tree, nothing.
    let another = NamespaceFacts { uid: "another".to_owned(), ..root(LABELLED) };
    let seen = Observation { root: Some(Arc::new(another)), ..deleted() };
    assert_eq!(plan(&seen).step, Step::RemoveFinalizer);
    let mut theirs = quota("10");
    Arc::get_mut(&mut theirs).unwrap().tree = Some("other".into());
    let seen = Observation { quota: Some(theirs), ..deleted() };
    assert!(matches!(plan(&seen).step, Step::Label(_)));
}

#[test]
fn a_quota_that_another_tree_has_left_is_this_ones_and_of_two_trees_of_a_root_the_younger_takes_nothing() {
    let mut left = quota("10");
    Arc::get_mut(&mut left).unwrap().tree = Some("other".into());
    let seen = Observation { quota: Some(Arc::clone(&left)), ..ready() };
    assert!(matches!(plan(&seen).step, Step::Quota(_)));
    let other = Some("it is the root of NamespaceTree other".to_owned());
    let seen = Observation { quota: Some(left), other, children: 1, ..deleted() };
    assert_eq!(plan(&seen).step, Step::RemoveFinalizer);
    // Nor is a ledger believed in a quota that Coppice did not write.
    let mut forged = quota("1000");
    Arc::get_mut(&mut forged).unwrap().tree = None;
    waits(
        &Observation { quota: Some(forged), ..ready() },
        Reason::QuotaTaken,
        "is not taken over: delete it",
    );
}

#[test]
fn what_is_used_in_the_root_beyond_its_quota_is_said_until_it_is_worked_off() {
    let with = |status: &Value, used: &str, seen: Observation| {
        let mut quota = quota("10");
        let used = BTreeMap::from([("pods".to_owned(), used.parse().unwrap())]);
        Arc::get_mut(&mut quota).unwrap().quota.as_mut().unwrap().used = Resources::of(&used).unwrap();
        Observation { tree: tree(&json!({}), status), quota: Some(quota), ..seen }
    };
    let within = |plan: &TreePlan| {
        let condition = condition::find(&plan.status.conditions, WITHIN_QUOTA)?;
        Some((condition.status.clone(), condition.message.clone()))
    };
    let set_up = serde_json::to_value(plan(&ready()).status).unwrap();
    let begun = plan(&with(&set_up, "12", ready()));
    let (status, message) = within(&begun).unwrap();
    assert_eq!((&*status, said(&begun).0.as_str()), ("False", "True"));
    assert!(message.contains("quota of pods: 12 of 10 pods"), "{message}");
    assert!(begun.events.iter().any(|event| event.warning && event.reason == Reason::Overdraft));
    let stored = serde_json::to_value(&begun.status).unwrap();
    let seen = with(&stored, "11", ready());
    assert!(plan(&seen).is_steady(&seen.tree.status), "{:?}", plan(&seen).status);
    let ends = "2026-01-01T00:01:00Z".parse().unwrap();
    assert_eq!(plan(&with(&stored, "10", ready())).next_check, Some(ends));
    let later = Observation { time: ServerTime::certain(ends), ..ready() };
    let ended = plan(&with(&stored, "10", later));
    assert_eq!(within(&ended).map(|(status, _)| status).as_deref(), Some("True"));
    assert!(ended.events.iter().any(|event| !event.warning && event.reason == Reason::OverdraftEnded));
    // Where the root is another one nothing is said of it.
    let another = Some(Arc::new(NamespaceFacts { uid: "another".to_owned(), ..root(LABELLED) }));
    assert_eq!(within(&plan(&with(&set_up, "12", Observation { root: another, ..ready() }))), None);
}

#[test]
fn a_refusal_keeps_its_numbers_for_as_long_as_it_is_for_the_same_resource() {
    let both = |cpu: &str, pods: &str| -> Resources {
        serde_json::from_value(json!({"cpu": cpu, "pods": pods})).unwrap()
    };
    let with = |status: &Value, used: Resources| {
        let mut quota = quota("20");
        let own = Arc::get_mut(&mut quota).unwrap().quota.as_mut().unwrap();
        own.ledger.allotment = both("8", "20");
        (own.hard, own.enforced, own.used) = (both("8", "20"), both("8", "20"), used);
        let tree = tree_of(&json!({"cpu": "4", "pods": "10"}), &json!({}), status);
        Observation { tree, quota: Some(quota), ..ready() }
    };
    let refused = plan(&with(&json!({"rootUid": "uid-of-shop"}), both("1", "12")));
    let (_, reason, message) = said(&refused);
    assert_eq!(reason, "QuotaRefused");
    assert!(message.starts_with("pods: shop uses 12 "), "{message}");
    let stored = serde_json::to_value(&refused.status).unwrap();
    let fewer = with(&stored, both("1", "11"));
    assert!(plan(&fewer).is_steady(&fewer.tree.status), "{:?}", plan(&fewer).status);
    // The pods are few enough by now, and something else is not.
    let (_, reason, message) = said(&plan(&with(&stored, both("6", "2"))));
    assert_eq!(reason, "QuotaRefused");
    assert!(message.starts_with("cpu: shop uses 6 "), "{message}");
}

#[test]
fn what_is_no_quota_is_not_written_and_is_said_with_what_to_write_instead() {
    for (hard, words) in [
        (
            json!({"cpus": "4"}),
            "spec.quota.hard: \"cpus\" is not a resource that quotas count: write one such as cpu, ",
        ),
        (
            json!({"pods": "1.5"}),
            "spec.quota.hard: pods: 1500m is not a whole number, and objects are counted: write one without",
        ),
        (
            json!({"count/jobs.batch": "1.5"}),
            "spec.quota.hard: count/jobs.batch: 1500m is not a whole number",
        ),
        (
            json!({"nvidia.com/gpu": "4"}),
            "spec.quota.hard: quotas count \"nvidia.com/gpu\" by its requests only: write requests.nvidia.com/gpu",
        ),
        (
            json!({"cpu": "500u"}),
            "spec.quota.hard: cpu: 500u is finer than quotas are: write a whole number of thousandths",
        ),
        (
            json!({"cpu": "1", "requests.cpu": "2"}),
            "spec.quota.hard: cpu is there twice: cpu and requests.cpu",
        ),
    ] {
        let wrong = tree_of(&hard, &json!({"finalizers": []}), &json!({}));
        let new = Observation { tree: wrong, root: Some(Arc::new(root(&[]))), quota: None, ..ready() };
        waits(&new, Reason::InvalidSpec, words);
        assert_eq!(said(&plan(&new)).0, "False", "{hard}");
        // A tree that had a quota before has it until the new one can be understood.
        let changed = Observation {
            tree: tree_of(&hard, &json!({}), &json!({"rootUid": "uid-of-shop", "allotment": {"pods": "10"}})),
            ..ready()
        };
        waits(&changed, Reason::InvalidSpec, words);
        assert_eq!(plan(&changed).status.allotted, "10 pods", "{hard}");
    }
}

#[test]
fn a_partition_that_nobody_has_created_is_said_while_the_tree_is_ready() {
    let absent = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let seen = Observation { absent_partitions: absent(&["shop-gpu", "shop-arm"]), ..ready() };
    let begun = plan(&seen);
    let (status, reason, message) = said(&begun);
    assert_eq!((status.as_str(), reason.as_str(), &begun.step), ("True", "Reconciled", &Step::Nothing));
    let words = "; spec.partitions names what is no namespace right below shop yet: shop-gpu, shop-arm";
    assert!(message.ends_with(words), "{message}");
    assert_eq!(begun.events, []);
    let stored = tree(&json!({}), &serde_json::to_value(&begun.status).unwrap());
    let again = Observation { tree: Arc::clone(&stored), ..seen };
    assert!(plan(&again).is_steady(&stored.status));
    let many = Observation { absent_partitions: absent(&["a", "b", "c", "d", "e", "f"]), ..ready() };
    assert!(said(&plan(&many)).2.ends_with("yet: a, b, c, d, e and 1 more"), "{}", said(&plan(&many)).2);
    // It is there.
    let created = Observation { tree: stored, ..ready() };
    assert_eq!(said(&plan(&created)).2, "the tree has the quota that spec gives it");
}

#[path = "plan_lint_tests.rs"]
mod lint;
