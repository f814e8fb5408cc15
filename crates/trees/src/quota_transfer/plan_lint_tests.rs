//! Each rule finds the plan that breaks it. That no plan breaks one, every other test shows.

use coppice_api::lint::PlanViolation::{
    self, Forbidden, HistoryChanged, ReadyTooEarly, ReasonOutOfPlace, StepWithoutIntent,
};

use super::super::lint::lint;
use super::*;

/// What is found after one thing about what was observed, or about its plan, is another.
fn found(
    mut seen: Observation,
    change: impl FnOnce(&mut Observation, &mut TransferPlan),
) -> Vec<PlanViolation> {
    let mut planned = plan(&seen);
    change(&mut seen, &mut planned);
    lint(&seen, &planned)
}

/// One whose amount is about to be taken.
fn taken() -> Observation {
    observation(object(&NONE, &NONE, &begun(&json!({}))), vec![(0, Some(five("web", "3")))])
}

/// One that has arrived, and is about to end.
fn arrived() -> Observation {
    let quotas =
        vec![(0, Some(remembering("data"))), (1, Some(five("shop", "0"))), (2, Some(five("data", "0")))];
    observation(object(&NONE, &NONE, &begun(&json!({"at": "data"}))), quotas)
}

#[test]
fn a_quota_is_written_by_what_is_written_down_of_the_way() {
    assert_eq!(found(taken(), |_, _| {}), []);
    let at = |_: &mut Observation, plan: &mut TransferPlan| plan.status.at = Some("web".to_owned());
    assert_eq!(found(taken(), at), [StepWithoutIntent]);
    let elsewhere = |_: &mut Observation, plan: &mut TransferPlan| {
        let Step::Quota(place, _) = &mut plan.step else { panic!("no quota") };
        *place = 3;
    };
    assert_eq!(found(taken(), elsewhere), [Forbidden]);
    let stale = |seen: &mut Observation, _: &mut TransferPlan| {
        seen.stale = Some((Reason::NotSynced, "not listed yet".to_owned()));
    };
    assert_eq!(found(taken(), stale), [Forbidden]);
    let bare = |seen: &mut Observation, _: &mut TransferPlan| {
        seen.object = object(&json!({"finalizers": []}), &NONE, &begun(&json!({})));
    };
    assert_eq!(found(taken(), bare), [Forbidden]);
    assert_eq!(found(taken(), |_, plan| plan.step = Step::RemoveFinalizer), [Forbidden]);
    assert_eq!(found(taken(), |_, plan| plan.step = Step::AddFinalizer), [Forbidden]);
}

#[test]
fn it_has_moved_once_it_has_ended_and_keeps_its_way() {
    assert_eq!(found(arrived(), |_, _| {}), []);
    assert_eq!(found(arrived(), |_, plan| plan.status.ended_at = None), [ReadyTooEarly, HistoryChanged]);
    assert_eq!(found(arrived(), |_, plan| plan.status.path.clear()), [HistoryChanged]);
    assert_eq!(found(arrived(), |_, plan| plan.events[0].message.clear()), [ReasonOutOfPlace]);
    let gone = json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0});
    let ended = begun(&json!({"endedAt": "2026-01-01T00:00:00Z", "phase": "Completed"}));
    let ended = || observation(object(&gone, &NONE, &ended), Vec::new());
    assert_eq!(found(ended(), |_, _| {}), []);
    assert_eq!(found(ended(), |_, plan| plan.status.ended_at = None), [HistoryChanged, StepWithoutIntent]);
}

#[test]
fn nothing_begins_before_everybody_agrees() {
    let waits = || observation(object(&NONE, &json!({"approvedBy": null}), &json!({})), Vec::new());
    assert_eq!(found(waits(), |_, _| {}), []);
    assert_eq!(found(waits(), |_, plan| plan.status.path = way()), [Forbidden]);
}
