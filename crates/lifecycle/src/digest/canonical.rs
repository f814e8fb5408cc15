//! Policies as bytes, for digests of version 2.
//!
//! Every field is written by hand: its name and what it holds, in the order below; a field with its default is absent. A
//! field that is added later changes nothing where it is not used. Where it is used, the digest has to name the next
//! version, so that a Coppice that does not know the field does not take the policies for others than those that fired.

use coppice_api::Selector;
use coppice_api::manager::{Delete, PodsSucceed, Policy, ScaleDown, Then, Ttl, Webhook, WebhookFormat, When};
use coppice_api::selector::{LabelOperator, Requirement};
use coppice_quantity::Duration;

pub(super) fn encode(policies: &[Policy]) -> Vec<u8> {
    let mut out = Encoder(Vec::with_capacity(256));
    for policy in policies {
        out.within("policy", |out| {
            out.field("name", &policy.name);
            when(out, &policy.when);
            then(out, &policy.then);
        });
    }
    out.0
}

/// Strings with their lengths: no two policies have the same bytes.
pub(super) struct Encoder(pub(super) Vec<u8>);

impl Encoder {
    pub(super) fn word(&mut self, word: &str) {
        self.0.extend((word.len() as u64).to_be_bytes());
        self.0.extend(word.as_bytes());
    }

    pub(super) fn field(&mut self, name: &str, value: &str) {
        self.word("=");
        self.word(name);
        self.word(value);
    }

    pub(super) fn within(&mut self, name: &str, inner: impl FnOnce(&mut Self)) {
        self.word("{");
        self.word(name);
        inner(self);
        self.word("}");
    }

    pub(super) fn seconds(&mut self, name: &str, value: Duration, default: Duration) {
        if value != default {
            self.field(name, &value.as_secs().to_string());
        }
    }
}

fn when(out: &mut Encoder, when: &When) {
    let When { ttl, pods_succeed } = when;
    if let Some(ttl) = ttl {
        self::ttl(out, ttl);
    }
    if let Some(pods) = pods_succeed {
        self::pods_succeed(out, pods);
    }
}

pub(super) fn ttl(out: &mut Encoder, Ttl { after, until }: &Ttl) {
    out.within("ttl", |out| {
        if let Some(after) = after {
            out.field("after", &after.as_secs().to_string());
        }
        if let Some(until) = until {
            out.field("until", &until.as_nanosecond().to_string());
        }
    });
}

pub(super) fn pods_succeed(out: &mut Encoder, pods: &PodsSucceed) {
    let PodsSucceed { selector, initial_delay, min_pods, settle, ignore_retried } = pods;
    out.within("podsSucceed", |out| {
        select(out, selector.as_ref());
        out.seconds("initialDelay", *initial_delay, Duration::from_secs(60));
        if *min_pods != 1 {
            out.field("minPods", &min_pods.to_string());
        }
        out.seconds("settle", *settle, Duration::ZERO);
        if !ignore_retried {
            out.field("ignoreRetried", "false");
        }
    });
}

fn then(out: &mut Encoder, then: &Then) {
    let Then { delete, scale_down, webhook } = then;
    if let Some(Delete { notice }) = delete {
        out.within("delete", |out| out.seconds("notice", *notice, Duration::ZERO));
    }
    if let Some(what) = scale_down {
        self::scale_down(out, what);
    }
    if let Some(Webhook { url, format }) = webhook {
        self::webhook(out, url, *format);
    }
}

pub(super) fn webhook(out: &mut Encoder, url: &str, format: WebhookFormat) {
    out.within("webhook", |out| {
        out.field("url", url);
        match format {
            WebhookFormat::Coppice => {}
            WebhookFormat::Consol => out.field("format", "consol"),
        }
    });
}

pub(super) fn scale_down(out: &mut Encoder, ScaleDown { selectors }: &ScaleDown) {
    out.within("scaleDown", |out| {
        let Some(selectors) = selectors else { return };
        out.within("selectors", |out| {
            for workloads in selectors {
                out.within("workloads", |out| {
                    if let Some(api_version) = &workloads.api_version {
                        out.field("apiVersion", api_version);
                    }
                    out.field("kind", &workloads.kind);
                    select(out, workloads.selector.as_ref());
                });
            }
        });
    });
}

pub(super) fn select(out: &mut Encoder, selector: Option<&Selector>) {
    let Some(Selector { match_labels, match_expressions }) = selector else { return };
    out.within("selector", |out| {
        if let Some(labels) = match_labels {
            out.within("matchLabels", |out| {
                for (key, value) in labels {
                    out.field(key, value);
                }
            });
        }
        if let Some(requirements) = match_expressions {
            out.within("matchExpressions", |out| {
                for requirement in requirements {
                    require(out, requirement);
                }
            });
        }
    });
}

fn require(out: &mut Encoder, requirement: &Requirement) {
    let Requirement { key, operator, values } = requirement;
    out.within("requirement", |out| {
        out.field("key", key);
        out.field("operator", operator_name(*operator));
        if let Some(values) = values {
            out.within("values", |out| {
                for value in values {
                    out.word(value);
                }
            });
        }
    });
}

pub(super) const fn operator_name(operator: LabelOperator) -> &'static str {
    match operator {
        LabelOperator::In => "In",
        LabelOperator::NotIn => "NotIn",
        LabelOperator::Exists => "Exists",
        LabelOperator::DoesNotExist => "DoesNotExist",
    }
}
