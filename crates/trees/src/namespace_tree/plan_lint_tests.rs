//! Each rule finds the plan that breaks it. That no plan breaks one, every other test shows.

use coppice_api::lint::PlanViolation::{
    self, Forbidden, HistoryChanged, NoPrecondition, OfAnotherGeneration, Protected, ReadyTooEarly,
    ReasonOutOfPlace, Silent,
};

use super::super::lint::lint;
use super::*;

/// What is found after one thing about what was observed, or about its plan, is another.
fn found(mut seen: Observation, change: impl FnOnce(&mut Observation, &mut TreePlan)) -> Vec<PlanViolation> {
    let mut planned = plan(&seen);
    change(&mut seen, &mut planned);
    lint(&seen, &planned)
}

#[test]
fn a_status_is_about_the_spec_that_there_is_and_says_why() {
    assert_eq!(found(ready(), |_, _| {}), []);
    assert_eq!(found(ready(), |_, plan| plan.status.observed_generation = Some(2)), [OfAnotherGeneration]);
    assert_eq!(found(ready(), |_, plan| plan.status.conditions.clear()), [Silent]);
    assert_eq!(found(ready(), |_, plan| plan.status.conditions[0].message.clear()), [ReasonOutOfPlace]);
    assert_eq!(found(ready(), |_, plan| plan.status.root_uid = None), [HistoryChanged]);
    let unseen = |_: &mut Observation, plan: &mut TreePlan| {
        let message = "it comes apart".to_owned();
        plan.events.push(PlannedEvent { warning: false, reason: Reason::Detaching, message });
    };
    assert_eq!(found(ready(), unseen), [ReasonOutOfPlace]);
}

#[test]
fn a_tree_is_ready_with_nothing_to_be_done_and_where_that_is_known() {
    assert_eq!(found(ready(), |_, plan| plan.step = Step::AddFinalizer), [ReadyTooEarly, Forbidden]);
    let stale = |seen: &mut Observation, _: &mut TreePlan| {
        seen.stale = Some((Reason::NotSynced, "not listed yet".to_owned()));
    };
    assert_eq!(found(ready(), stale), [ReadyTooEarly]);
    assert_eq!(found(deleted(), stale), [Forbidden]);
}

#[test]
fn a_tree_that_ends_takes_away_what_is_its_own_once_nothing_is_below() {
    assert_eq!(found(deleted(), |_, _| {}), []);
    assert_eq!(found(deleted(), |seen, _| seen.children = 1), [Forbidden]);
    assert_eq!(found(deleted(), |seen, _| seen.root = None), [NoPrecondition]);
    assert_eq!(found(deleted(), |seen, _| seen.tree = ready().tree), [Forbidden]);
    assert_eq!(found(deleted(), |_, plan| plan.step = Step::ReleaseQuota), [Forbidden]);
    assert_eq!(found(deleted(), |_, plan| plan.step = Step::RemoveFinalizer), [Forbidden]);
    let theirs = |seen: &mut Observation, _: &mut TreePlan| {
        Arc::get_mut(seen.quota.as_mut().unwrap()).unwrap().tree = Some("other".into());
    };
    assert_eq!(found(deleted(), theirs), [Forbidden]);
    let sets = |_: &mut Observation, plan: &mut TreePlan| {
        let labels = BTreeMap::from([("coppice.dev/root".to_owned(), Some("shop".to_owned()))]);
        plan.step = Step::Label(NamespaceChanges { labels, annotations: BTreeMap::new() });
    };
    assert_eq!(found(deleted(), sets), [Forbidden]);
}

#[test]
fn the_root_is_the_one_that_status_names_that_of_no_other_tree_and_none_of_the_system() {
    let new = || Observation { root: Some(Arc::new(root(&[]))), quota: None, ..ready() };
    assert_eq!(found(new(), |_, _| {}), []);
    let root_is = |change: &dyn Fn(&mut NamespaceFacts)| {
        let mut other = root(&[]);
        change(&mut other);
        found(new(), |seen, _| seen.root = Some(Arc::new(other)))
    };
    assert_eq!(root_is(&|root| root.uid = "another".to_owned()), [NoPrecondition]);
    assert_eq!(root_is(&|root| root.name = "kube-system".to_owned()), [Protected]);
    assert_eq!(root_is(&|root| root.terminating = true), [Forbidden]);
    assert_eq!(found(new(), |seen, _| seen.other = Some("it is another one's".to_owned())), [Forbidden]);
    let bare = |seen: &mut Observation, _: &mut TreePlan| {
        seen.tree = tree(&json!({"finalizers": []}), &json!({"rootUid": "uid-of-shop"}));
    };
    assert_eq!(found(new(), bare), [Forbidden]);
}

#[test]
fn a_namespace_without_a_root_leaves_a_tree_that_ends_with_nothing_of_it() {
    let lost = || {
        let namespace = NamespaceFacts { name: "shop-web".to_owned(), ..root(LABELLED) };
        let quota = Some(quota("4"));
        let stranded = Some(Stranded { namespace: Arc::new(namespace), quota, children: 0, copies: 0 });
        Observation { root: None, quota: None, left: vec!["shop/shop-web".to_owned()], stranded, ..deleted() }
    };
    assert_eq!(found(lost(), |_, _| {}), []);
    assert_eq!(found(lost(), |seen, _| seen.stranded = None), [NoPrecondition]);
    assert_eq!(found(lost(), |seen, _| seen.root = ready().root), [Forbidden]);
    let copies = |seen: &mut Observation, _: &mut TreePlan| {
        seen.stranded.as_mut().unwrap().copies = 1;
    };
    assert_eq!(found(lost(), copies), [Forbidden]);
}
