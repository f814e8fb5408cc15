//! Specs are validated once, and written again as they were.

#![allow(clippy::panic, reason = "helpers of tests")]

use coppice_api::Reason;
use coppice_api::condition::ACCEPTED;
use coppice_api::manager::{NamespaceManagerSpec, Phase};
use coppice_lifecycle::ValidSpec;
use coppice_lifecycle::plan::Step;
use coppice_lifecycle::record::StepOutcome;
use serde_json::{Value, to_value};

use crate::support::{Scene, yaml};

fn spec(when: &str, then: &str) -> NamespaceManagerSpec {
    yaml(&format!("{{policies: [{{name: p, when: {when}, then: {then}}}]}}"))
}

#[test]
fn what_the_rules_of_the_crd_would_refuse_is_refused_with_what_to_write() {
    let (ttl, delete) = ("{ttl: {after: 1h}}", "{delete: {}}");
    for (when, then, message) in [
        ("{}", delete, "write exactly one condition"),
        ("{ttl: {after: 1h}, podsSucceed: {}}", delete, "write exactly one condition"),
        ("{ttl: {}}", delete, "write exactly one of after and until"),
        ("{ttl: {after: 1h, until: '2026-12-01T00:00:00Z'}}", delete, "write exactly one of after and until"),
        ("{ttl: {after: 0s}}", delete, "ttl.after must be at least 1s"),
        ("{podsSucceed: {selector: {}}}", delete, "leave the selector out"),
        (ttl, "{}", "write exactly one action"),
        (ttl, "{delete: {}, scaleDown: {}}", "write exactly one action"),
        (ttl, "{scaleDown: {selectors: []}}", "selectors is empty: leave it out"),
    ] {
        let error = ValidSpec::try_from(spec(when, then)).unwrap_err().to_string();
        assert!(error.starts_with("policy \"p\": ") && error.contains(message), "{when} {then}: {error}");
    }
}

/// URLs that the CRD's rules accept, and that no webhook can be sent to.
const IMPOSSIBLE_URLS: [(&str, &str); 4] = [
    ("http://me:secret@hook.team-a.svc/", "has a user or a password"),
    ("http://hook.team-a.svc/#top", "has a fragment (#...), which is never sent; leave it out"),
    ("http://hook.team-a.svc:0/", "has the port 0; write a port from 1 to 65535, or none"),
    ("http://a..b/", "is not a DNS name"),
];

#[test]
fn a_url_that_no_webhook_can_be_sent_to_is_refused_with_its_policy_and_stops_no_waking() {
    let (ttl, scale_down) = ("ttl: {after: 40s}", "{scaleDown: {}}");
    for (url, message) in IMPOSSIBLE_URLS {
        let mut scene = Scene::policy(&format!("{{{ttl}}}"), scale_down);
        scene.settle(41);
        scene.outcome(&StepOutcome::ScaledDown { workloads: 1 }, 42);
        let workload = "[{apiVersion: apps/v1, kind: Deployment, name: web, uid: u, replicas: 2}]";
        scene.status.steps.scaled_down = yaml(workload);
        let hook =
            format!("policies: [{{name: hook, when: {{{ttl}}}, then: {{webhook: {{url: '{url}'}}}}}}]");
        scene.edit(|spec| spec.policies = yaml::<NamespaceManagerSpec>(&hook).policies);
        scene.settle(43);
        assert_eq!((scene.phase(), scene.condition(ACCEPTED)), (Phase::Refused, ("False", "InvalidSpec")));
        let said = &scene.status.next.as_ref().unwrap().message;
        assert!(said.starts_with("policy \"hook\": the webhook URL ") && said.contains(message), "{said}");
        scene.edit(|spec| spec.wake = Some(1));
        assert!(matches!(scene.settle(44).step, Some(Step::Wake(_))), "{url}: {:?}", scene.status);
    }
}

#[test]
fn what_was_decided_before_is_given_up_or_ended_although_a_url_is_impossible_by_now() {
    let (url, _) = IMPOSSIBLE_URLS[0];
    let hook = |url: &str| {
        format!("{{name: hook, when: {{ttl: {{after: 9h}}}}, then: {{webhook: {{url: '{url}'}}}}}}")
    };
    let spec = |url: &str| {
        format!(
            "policies: [{{name: p, when: {{ttl: {{after: 40s}}}}, then: {{delete: {{}}}}}}, {}]",
            hook(url)
        )
    };
    let mut scene = Scene::new(&spec("http://hook.team-a.svc/"));
    assert!(matches!(scene.settle(41).step, Some(Step::Delete(_))));
    scene.edit(|changed| *changed = yaml(&spec(url)));
    assert_eq!(scene.settle(42).step, None);
    assert!(scene.status.steps.intent.is_none(), "it is given up: {:?}", scene.status);
    assert!(scene.event_reasons().contains(&Reason::Abandoned));
    assert_eq!((scene.phase(), scene.next_reason()), (Phase::Refused, "InvalidSpec"));
    scene.edit(|changed| changed.policies.truncate(1));
    assert!(matches!(scene.settle(43).step, Some(Step::Delete(_))), "the other policy");
}

/// The body of a webhook and `coppice list -o json` show the policies as `v1alpha1` writes them.
#[test]
fn a_valid_spec_is_written_as_it_was_read() {
    let controls = "suspend: true, hold: {until: '2026-12-01T00:00:00Z', reason: r}, rearm: 2, wake: 1, \
                    extendUntil: '2026-12-02T00:00:00Z'";
    for when in [
        "{ttl: {after: 90s}}",
        "{ttl: {until: '2026-12-01T00:00:00Z'}}",
        "{podsSucceed: {}}",
        "{podsSucceed: {selector: {matchLabels: {a: b}}, minPods: 0, settle: 5s, ignoreRetried: false}}",
    ] {
        for then in [
            "{delete: {}}",
            "{delete: {notice: 15m}}",
            "{scaleDown: {}}",
            "{scaleDown: {selectors: [{kind: Deployment, selector: {matchLabels: {a: b}}}]}}",
            "{webhook: {url: 'HTTP://Receiver.a.svc/Hook?x=1', format: consol}}",
        ] {
            let text = format!("{{{controls}, policies: [{{name: p, when: {when}, then: {then}}}]}}");
            let written: NamespaceManagerSpec = yaml(&text);
            let valid = ValidSpec::try_from(written.clone()).unwrap();
            assert_eq!(json(&valid), json(&written), "{text}");
            assert_eq!(serde_json::from_value::<ValidSpec>(json(&valid)).unwrap(), valid, "{text}");
        }
    }
}

fn json(value: &impl serde::Serialize) -> Value {
    to_value(value).unwrap_or_else(|e| panic!("{e}"))
}
