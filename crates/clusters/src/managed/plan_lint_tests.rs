//! Each rule finds the step that breaks it. That no step breaks one, every other test shows.

use coppice_api::lint::PlanViolation::{
    self, Forbidden, HistoryChanged, NoPrecondition, NothingNew, OfAnotherGeneration, ReadyTooEarly,
    ReasonOutOfPlace, StepWithoutIntent,
};
use coppice_clusters_api::MadeCluster;

use super::super::lint::lint;
use super::*;

/// One whose object is about to be made, and the step that makes it.
fn creation() -> (Managed, Value) {
    let mut observed = managed(small());
    observed.live = LiveFact::Absent;
    let ManagedStep::SaveStatus(status) = plan(&observed, at_second(0)) else { panic!("not said") };
    observed.status = *status;
    let ManagedStep::Create(object) = plan(&observed, at_second(0)) else { panic!("not made") };
    (observed, object)
}

/// What is found after one thing about what was observed, or about the object that is made, is another.
fn made(change: impl FnOnce(&mut Managed, &mut Value)) -> Vec<PlanViolation> {
    let (mut observed, mut object) = creation();
    change(&mut observed, &mut object);
    lint(&observed, &ManagedStep::Create(object))
}

#[test]
fn what_is_made_was_decided_before_and_is_in_the_place_of_nothing() {
    assert_eq!(made(|_, _| {}), []);
    assert_eq!(made(|observed, _| observed.status.hash = None), [StepWithoutIntent]);
    assert_eq!(made(|observed, _| observed.generation = 2), [StepWithoutIntent]);
    assert_eq!(made(|observed, _| observed.deleting = true), [Forbidden]);
    assert_eq!(made(|observed, _| observed.has_finalizer = false), [Forbidden]);
    assert_eq!(made(|observed, _| observed.live = LiveFact::Foreign), [Forbidden]);
    assert_eq!(made(|_, object| object["metadata"]["labels"] = Value::Null), [NoPrecondition]);
    assert_eq!(made(|_, object| object["metadata"]["name"] = json!("another")), [NoPrecondition]);
}

/// What is found about a change of these annotations of one that is ready.
fn annotated(change: impl FnOnce(&mut Managed), annotations: &Value) -> Vec<PlanViolation> {
    let mut observed = ready_cluster(small());
    change(&mut observed);
    lint(&observed, &ManagedStep::Patch(json!({"metadata": {"annotations": annotations}})))
}

fn another(observed: &mut Managed) {
    let made = observed.status.cluster.clone().unwrap();
    observed.status.cluster = Some(MadeCluster { uid: "another".to_owned(), ..made });
}

#[test]
fn what_is_changed_or_deleted_is_what_was_made_and_goes_once_it_is_confirmed() {
    assert_eq!(annotated(|_| {}, &json!({"a": "b"})), []);
    assert_eq!(annotated(another, &json!({"a": "b"})), [NoPrecondition]);
    assert_eq!(annotated(|observed| observed.has_finalizer = false, &json!({"a": "b"})), [Forbidden]);
    assert_eq!(annotated(|_| {}, &json!({ANNOTATION_HASH: "another"})), [StepWithoutIntent]);
    assert_eq!(annotated(|_| {}, &json!({ANNOTATION_CONFIRM_DELETION: "u"})), [Forbidden]);
    let ends = |observed: &mut Managed| {
        (observed.deleting, observed.status.waiting_since) = (true, Some(at_second(100)));
    };
    assert_eq!(annotated(ends, &json!({ANNOTATION_CONFIRM_DELETION: "u"})), []);
    assert_eq!(annotated(ends, &json!({FORCE: "true"})), [Forbidden], "nobody has said so");

    let mut observed = ready_cluster(small());
    assert_eq!(lint(&observed, &ManagedStep::Delete), [StepWithoutIntent, Forbidden]);
    ends(&mut observed);
    observed.status.state = Some(ClusterState::Deleting);
    assert_eq!(lint(&observed, &ManagedStep::Delete), [Forbidden], "it is not confirmed");
    live(&mut observed)["metadata"]["annotations"][ANNOTATION_CONFIRM_DELETION] = json!("u");
    assert_eq!(lint(&observed, &ManagedStep::Delete), []);
    assert_eq!(lint(&observed, &ManagedStep::RemoveFinalizer), [Forbidden], "it is there");
    observed.live = LiveFact::Unread;
    assert_eq!(lint(&observed, &ManagedStep::RemoveFinalizer), [Forbidden], "nobody has looked");
    observed.live = LiveFact::Absent;
    assert_eq!(lint(&observed, &ManagedStep::RemoveFinalizer), []);
    assert_eq!(lint(&observed, &ManagedStep::Look), [Forbidden], "somebody has");
    assert_eq!(lint(&observed, &ManagedStep::AddFinalizer), [Forbidden]);
}

/// What is found where one that is ready saves this status.
fn saving(change: impl FnOnce(&mut ManagedClusterStatus)) -> Vec<PlanViolation> {
    let observed = ready_cluster(small());
    let mut status = observed.status.clone();
    change(&mut status);
    lint(&observed, &ManagedStep::SaveStatus(Box::new(status)))
}

#[test]
fn a_status_says_something_new_that_is_so_and_forgets_nothing_that_was_made() {
    assert_eq!(saving(|_| {}), [NothingNew]);
    assert_eq!(saving(|status| status.asks_again = Some(at_second(100))), []);
    assert_eq!(saving(|status| status.observed_generation = Some(9)), [OfAnotherGeneration]);
    assert_eq!(saving(|status| status.cluster = None), [HistoryChanged]);
    assert_eq!(saving(|status| status.created = None), [HistoryChanged]);
    assert_eq!(saving(|status| status.forced = Some(at_second(100))), [Forbidden]);
    let says = |status: &mut ManagedClusterStatus, message: &str| {
        let ready = status.conditions.iter_mut().find(|condition| condition.type_ == condition::READY);
        message.clone_into(&mut ready.unwrap().message);
    };
    assert_eq!(saving(|status| says(status, "")), [ReasonOutOfPlace]);
    let early = |status: &mut ManagedClusterStatus| {
        says(status, "it will be as its spec says");
        status.state = Some(ClusterState::Updating);
    };
    assert_eq!(saving(early), [ReadyTooEarly]);
    let odd = |status: &mut ManagedClusterStatus| {
        let observed = managed(small());
        let failure = Failure::transient(Reason::ClusterFailed, "");
        status.last_error = failed(&observed, &failure, at_second(100)).last_error;
    };
    assert_eq!(saving(odd), [ReasonOutOfPlace]);
}
