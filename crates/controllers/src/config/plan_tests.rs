use coppice_api::config::Breaker;
use coppice_kinds::{Config, Configs};
use coppice_notify::key::{SigningKey, SystemRandom};
use coppice_runtime::kind::Kind as _;
use serde_json::{Value, json};

use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_790_000_000 + second).unwrap()
}

fn config(spec: &Value, status: &Value) -> Config {
    let metadata = json!({ "name": "coppice", "uid": "u", "resourceVersion": "1", "generation": 1 });
    let wire = json!({ "metadata": metadata, "spec": spec, "status": status });
    Configs::project(serde_json::from_value(wire).unwrap(), &()).unwrap()
}

/// The next step when this is observed.
fn next(
    config: Option<Config>,
    key: Option<Result<SigningKey, KeyProblem>>,
    breakers: Vec<Breaker>,
) -> Option<ConfigStep> {
    let setup = OperatorOptions { own_namespace: "coppice-system".to_owned(), scale_kinds: Vec::new() };
    plan(&Observation { config, key, breakers, template_problems: Vec::new() }, &setup, 0, at(100))
}

fn status(step: Option<ConfigStep>) -> CoppiceConfigStatus {
    match step {
        Some(ConfigStep::WriteStatus(status)) => *status,
        other => panic!("{other:?}"),
    }
}

/// The status that is written when this spec and this ledger are observed, and these breakers are known.
fn written(spec: &Value, ledger: &Value, breakers: impl IntoIterator<Item = Breaker>) -> CoppiceConfigStatus {
    let key = SigningKey::generate(&SystemRandom::new()).unwrap();
    let config = config(spec, &json!({ "governor": ledger }));
    status(next(Some(config), Some(Ok(key)), breakers.into_iter().collect()))
}

fn unreadable() -> KeyProblem {
    let source = kube::Error::Service("no route to host".into());
    KeyProblem::Unreadable { place: "Secret coppice-system/coppice-webhook-key".to_owned(), source }
}

fn reason(status: &CoppiceConfigStatus) -> Option<&str> {
    status.governor.blocked.as_ref().map(|blocked| blocked.reason.as_str())
}

#[test]
fn a_breaker_that_was_noticed_is_written_and_stays_until_it_is_acknowledged() {
    let pods = breaker::opened("pods", 60, 60, false, at(0));
    let opened = written(&json!({}), &json!({}), Some(pods.clone()));
    assert_eq!((opened.governor.breaker.as_ref(), reason(&opened)), (Some(&pods), Some("BreakerOpen")));
    let ledger = json!(opened.governor);
    let jobs = breaker::opened("jobs", 60, 60, false, at(50));
    let kept = written(&json!({}), &ledger, Some(jobs.clone()));
    assert_eq!(kept.governor.breaker.as_ref(), Some(&pods), "one at a time");
    let acknowledged = json!({ "governor": { "acknowledge": pods.id } });
    let closed = written(&acknowledged, &ledger, Some(pods.clone()));
    assert_eq!((closed.governor.breaker.as_ref(), reason(&closed)), (None, None));
    let next = written(&acknowledged, &ledger, Some(jobs.clone()));
    assert_eq!((next.governor.breaker, next.governor.blocked.unwrap().since), (Some(jobs), at(100)));
}

#[test]
fn a_spec_that_cannot_be_understood_closes_no_breaker_and_loses_none() {
    let (spec, pods) = (json!({ "governor": 1 }), breaker::opened("pods", 60, 60, false, at(0)));
    let opened = written(&spec, &json!({}), Some(pods.clone()));
    assert_eq!(opened.governor.breaker.as_ref(), Some(&pods));
    assert_eq!(written(&spec, &json!(opened.governor), None).governor.breaker, Some(pods));
}

#[test]
fn paused_opens_no_breaker_that_has_to_be_acknowledged() {
    let status = written(&json!({ "governor": { "paused": true } }), &json!({}), None);
    assert_eq!((status.governor.breaker.as_ref(), reason(&status)), (None, Some("Paused")));
}

#[test]
fn a_key_that_cannot_be_read_or_created_keeps_no_breaker_out_of_the_ledger() {
    let pods = breaker::opened("pods", 60, 60, false, at(0));
    let known = json!({ "webhookKey": "whpk_1" });
    let observed = || Some(config(&json!({}), &known));
    let opened = status(next(observed(), Some(Err(unreadable())), vec![pods.clone()]));
    assert_eq!(opened.governor.breaker.as_ref(), Some(&pods));
    assert_eq!(opened.webhook_key.as_deref(), Some("whpk_1"), "nothing says that it is another");
    assert_eq!(opened.conditions, [], "nor whether the entries are in force");
    assert_eq!(opened.observed_generation, None, "so that this status is about no spec yet");

    let opened = status(next(observed(), None, vec![pods.clone()]));
    assert_eq!(opened.conditions, [], "it is in force once the key is there");
    assert_eq!(opened.observed_generation, None);
    assert_eq!(opened.governor.breaker, Some(pods));
    assert_eq!(next(observed(), None, Vec::new()), Some(ConfigStep::CreateKey));
    assert_eq!(next(None, Some(Err(unreadable())), Vec::new()), None, "this may not be the very first start");
    assert_eq!(next(None, None, Vec::new()), Some(ConfigStep::CreateConfig));
}

#[path = "plan_lint_tests.rs"]
mod lint;
