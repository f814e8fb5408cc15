//! Specs are validated once, and written again as they were.

#![allow(clippy::panic, reason = "helpers of tests")]

use coppice_api::manager::NamespaceManagerSpec;
use coppice_lifecycle::ValidSpec;
use serde_json::{Value, to_value};

mod support;

use support::yaml;

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
        (ttl, "{webhook: {url: 'ftp://a.b/'}}", "http"),
    ] {
        let error = ValidSpec::try_from(spec(when, then)).unwrap_err().to_string();
        assert!(error.starts_with("policy \"p\": ") && error.contains(message), "{when} {then}: {error}");
    }
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
