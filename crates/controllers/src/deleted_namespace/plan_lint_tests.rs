//! Each rule finds the plan that breaks it. That no plan breaks one, every other test shows.

use coppice_api::lint::PlanViolation::{self, Forbidden, HistoryChanged, NothingNew, StepWithoutIntent};

use super::super::lint::lint;
use super::*;

/// What is found about this step, a year later, for a record with this status whose namespace is gone.
fn found(
    status: &Value,
    change: impl FnOnce(&mut Observation),
    step: DeletedNamespaceStep,
) -> Vec<PlanViolation> {
    let mut seen = Observation {
        record: Arc::new(record(status)),
        namespace: NamespaceState::Gone,
        decided: false,
        surplus: true,
        deliveries: BTreeMap::new(),
        now: at("2027-01-01T00:00:00Z"),
    };
    change(&mut seen);
    lint(&seen, &at_once(step))
}

fn deleted() -> Value {
    json!({"phase": "Deleted", "deletedAt": CREATED})
}

fn present(seen: &mut Observation) {
    seen.namespace = NamespaceState::Present;
}

#[test]
fn a_phase_follows_the_one_before_and_is_that_of_the_namespace() {
    let mark = DeletedNamespaceStep::Mark;
    assert_eq!(found(&json!({}), |_| {}, mark(DeletionPhase::Deleted)), []);
    assert_eq!(found(&deleted(), |_| {}, mark(DeletionPhase::Deleted)), [HistoryChanged]);
    assert_eq!(found(&json!({}), present, mark(DeletionPhase::Deleted)), [Forbidden]);
    assert_eq!(found(&json!({}), |_| {}, mark(DeletionPhase::Terminating)), [Forbidden]);
}

#[test]
fn a_record_goes_after_its_time_for_another_or_with_a_decision_that_was_given_up_and_not_otherwise() {
    use DeletedNamespaceStep::{Expire, MakeRoom, Withdraw};
    assert_eq!(found(&deleted(), |_| {}, Expire), []);
    assert_eq!(found(&deleted(), |seen| seen.now = at("2026-01-30T00:00:00Z"), Expire), [Forbidden]);
    assert_eq!(found(&json!({}), present, Expire), [Forbidden]);
    let terminating = |seen: &mut Observation| Arc::get_mut(&mut seen.record).unwrap().terminating = true;
    assert_eq!(found(&deleted(), terminating, Expire), [Forbidden]);
    assert_eq!(found(&deleted(), |_| {}, MakeRoom), []);
    assert_eq!(found(&deleted(), |seen| seen.surplus = false, MakeRoom), [Forbidden]);
    assert_eq!(found(&json!({}), present, Withdraw), []);
    assert_eq!(found(&json!({}), |_| {}, Withdraw), [Forbidden]);
    let stands = |seen: &mut Observation| (seen.namespace, seen.decided) = (NamespaceState::Present, true);
    assert_eq!(found(&json!({}), stands, Withdraw), [Forbidden]);
    // One that another version wrote is kept until its time, and nothing else is done to it.
    let foreign = json!({"phase": "Archived"});
    assert_eq!(found(&foreign, |_| {}, Expire), []);
    assert_eq!(found(&foreign, |_| {}, DeletedNamespaceStep::Mark(DeletionPhase::Deleted)), [Forbidden]);
}

#[test]
fn a_message_is_written_down_before_it_is_sent_and_is_not_forgotten() {
    let message = json!({"key": "k", "channel": "mail", "to": "a***@b.c"});
    let notification: DeletionNotification =
        serde_json::from_value(json!({"why": "it expired", "messages": [message]})).unwrap();
    let begun = deletion_notification::begin(&notification, at(CREATED));
    let found = |notices: &[MessageDelivery], step| {
        let status = json!({"phase": "Deleted", "deletedAt": CREATED, "notices": notices});
        let notified = |seen: &mut Observation| {
            let record = Arc::get_mut(&mut seen.record).unwrap();
            let fields = Arc::get_mut(record.spec.as_mut().unwrap()).unwrap();
            fields.notification = Some(Box::new(notification.clone()));
        };
        found(&status, notified, step)
    };
    for forgets in [DeletedNamespaceStep::Expire, DeletedNamespaceStep::MakeRoom] {
        assert_eq!(found(&begun, forgets), [Forbidden]);
    }
    let deliver = |key: &str| DeletedNamespaceStep::Deliver(vec![key.to_owned()]);
    assert_eq!(found(&begun, deliver("k")), []);
    assert_eq!(found(&begun, deliver("another")), [StepWithoutIntent]);
    assert_eq!(found(&begun, DeletedNamespaceStep::Deliver(Vec::new())), [StepWithoutIntent]);
    let mut failed = begun.clone();
    failed[0].attempts = 1;
    assert_eq!(found(&begun, DeletedNamespaceStep::Record(failed)), []);
    assert_eq!(found(&begun, DeletedNamespaceStep::Record(begun.clone())), [NothingNew]);
    assert_eq!(found(&begun, DeletedNamespaceStep::Record(Vec::new())), [HistoryChanged]);
    let mut delivered = begun.clone();
    delivered[0].state = MessageState::Delivered;
    assert_eq!(found(&delivered, DeletedNamespaceStep::Record(begun)), [HistoryChanged]);
}
