//! Each rule finds the step that breaks it. That no step breaks one, every other test shows.

use coppice_api::config::{Blocked, ReservationEntry};
use coppice_api::lint::PlanViolation::{
    self, Forbidden, HistoryChanged, NothingNew, OfAnotherGeneration, ReadyTooEarly, ReasonOutOfPlace,
};

use super::super::lint::lint;
use super::*;

type Key = Result<SigningKey, KeyProblem>;

fn key() -> SigningKey {
    SigningKey::generate(&SystemRandom::new()).unwrap()
}

fn observed(config: Option<Config>, key: Option<Key>) -> Observation {
    Observation { config, key, breakers: Vec::new(), template_problems: Vec::new() }
}

/// What is found where this status is written instead, and there is this key.
fn found(key: Option<Key>, change: impl FnOnce(&mut CoppiceConfigStatus)) -> Vec<PlanViolation> {
    let mut status = written(&json!({}), &json!({}), None);
    change(&mut status);
    let seen = observed(Some(config(&json!({}), &json!({}))), key);
    lint(&seen, Some(&ConfigStep::WriteStatus(Box::new(status))))
}

#[test]
fn what_is_there_is_not_created() {
    let there = || Some(config(&json!({}), &json!({})));
    let creates = |config, key, step: ConfigStep| lint(&observed(config, key), Some(&step));
    assert_eq!(creates(None, None, ConfigStep::CreateConfig), []);
    assert_eq!(creates(there(), None, ConfigStep::CreateKey), []);
    assert_eq!(creates(there(), None, ConfigStep::CreateConfig), [Forbidden]);
    assert_eq!(creates(None, Some(Err(unreadable())), ConfigStep::CreateConfig), [Forbidden]);
    assert_eq!(creates(there(), Some(Err(unreadable())), ConfigStep::CreateKey), [Forbidden]);
}

#[test]
fn a_status_says_what_is_in_force_once_it_is_and_of_which_spec() {
    assert_eq!(found(Some(Ok(key())), |_| {}), []);
    assert_eq!(found(None, |_| {}), [ReadyTooEarly]);
    assert_eq!(found(Some(Err(unreadable())), |_| {}), [ReadyTooEarly]);
    assert_eq!(found(Some(Ok(key())), |status| status.observed_generation = Some(2)), [OfAnotherGeneration]);
    assert_eq!(found(Some(Ok(key())), |status| status.conditions[0].message.clear()), [ReasonOutOfPlace]);
    let status = written(&json!({}), &json!({}), None);
    let seen = observed(Some(config(&json!({}), &serde_json::to_value(&status).unwrap())), Some(Ok(key())));
    assert_eq!(lint(&seen, Some(&ConfigStep::WriteStatus(Box::new(status)))), [NothingNew]);
}

#[test]
fn nothing_is_taken_from_the_ledger() {
    let reserves = |status: &mut CoppiceConfigStatus| {
        status.governor.reservations.push(ReservationEntry { at: at(0), steps: 1 });
    };
    assert_eq!(found(Some(Ok(key())), reserves), [HistoryChanged]);
    let blocks = |status: &mut CoppiceConfigStatus| {
        let (reason, message) = ("Reconciled".to_owned(), "nothing stops it".to_owned());
        status.governor.blocked = Some(Blocked { reason, message, since: at(0) });
    };
    assert_eq!(found(Some(Ok(key())), blocks), [ReasonOutOfPlace]);
    let pods = breaker::opened("pods", 60, 60, false, at(0));
    let ledger = json!({"governor": {"breaker": pods}});
    let closed = ConfigStep::WriteStatus(Box::new(written(&json!({}), &json!({}), None)));
    let acknowledged =
        |spec: &Value| lint(&observed(Some(config(spec, &ledger)), Some(Ok(key()))), Some(&closed));
    assert_eq!(acknowledged(&json!({})), [HistoryChanged]);
    assert_eq!(acknowledged(&json!({"governor": {"acknowledge": pods.id}})), []);
}
