//! The bodies of webhooks.

use std::collections::BTreeMap;

use coppice_api::manager::{Intent, WebhookFormat};
use serde::Serialize;

use crate::valid_spec::{ValidPolicy, ValidWebhook};

/// The manager that a webhook speaks for.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct ManagerRef<'a> {
    /// Its namespace.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
}

/// The body of a webhook. It depends only on the decision, so that every attempt sends the same.
pub(crate) fn body(
    manager_ref: ManagerRef<'_>,
    policy: &ValidPolicy,
    webhook: &ValidWebhook,
    intent: &Intent,
) -> Vec<u8> {
    // Both bodies are maps with string keys and plain values, which serde_json cannot fail to write.
    match webhook.format {
        WebhookFormat::Coppice => serde_json::to_vec(&CoppiceBody::new(manager_ref, policy, intent)),
        WebhookFormat::Consol => serde_json::to_vec(&consol::Body::new(manager_ref, policy, webhook)),
    }
    .unwrap_or_default()
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CoppiceBody<'a> {
    /// The kind of event, as Standard Webhooks suggests.
    #[serde(rename = "type")]
    kind: &'static str,
    firing: &'a str,
    decided_at: String,
    namespace: NamespaceRef<'a>,
    manager: ManagerRef<'a>,
    policy: &'a ValidPolicy,
    reason: &'a str,
    evidence: &'a BTreeMap<String, String>,
}

#[derive(Serialize)]
struct NamespaceRef<'a> {
    name: &'a str,
    uid: &'a str,
}

impl<'a> CoppiceBody<'a> {
    fn new(manager_ref: ManagerRef<'a>, policy: &'a ValidPolicy, intent: &'a Intent) -> Self {
        Self {
            kind: "policy.fired",
            firing: &intent.id,
            decided_at: intent.decided_at.to_string(),
            namespace: NamespaceRef { name: manager_ref.namespace, uid: &intent.uid },
            manager: manager_ref,
            policy,
            reason: &intent.reason,
            evidence: &intent.evidence,
        }
    }
}

/// The body of the ConSol k8s-namespace-manager: every key present, absent values null.
mod consol {
    use super::{BTreeMap, ManagerRef, Serialize, ValidPolicy, ValidWebhook};
    use crate::valid_spec::{PolicyCondition, TtlEnd};

    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    pub(super) struct Body<'a> {
        namespace_manager: ManagerRef<'a>,
        policy: PolicyBody<'a>,
        namespace: &'a str,
    }

    #[derive(Serialize)]
    struct PolicyBody<'a> {
        name: &'a str,
        condition: Condition<'a>,
        action: Action<'a>,
    }

    #[derive(Serialize)]
    struct Condition<'a> {
        #[serde(rename = "type")]
        kind: &'static str,
        params: ConditionParams<'a>,
    }

    #[derive(Default, Serialize)]
    #[serde(rename_all = "camelCase")]
    struct ConditionParams<'a> {
        ttl_seconds: Option<u64>,
        pod_labels: Option<&'a BTreeMap<String, String>>,
        initial_delay_seconds: Option<u64>,
        period_seconds: Option<u64>,
        min_checks: Option<u64>,
    }

    #[derive(Serialize)]
    struct Action<'a> {
        #[serde(rename = "type")]
        kind: &'static str,
        params: ActionParams<'a>,
    }

    #[derive(Serialize)]
    struct ActionParams<'a> {
        selectors: Option<()>,
        url: Option<&'a str>,
    }

    /// That operator's default; there is no period here, but its receivers expect a number.
    const PERIOD_SECONDS: u64 = 10;

    impl<'a> Body<'a> {
        pub(super) fn new(
            manager_ref: ManagerRef<'a>,
            policy: &'a ValidPolicy,
            webhook: &'a ValidWebhook,
        ) -> Self {
            let (kind, params) = match &policy.condition {
                PolicyCondition::PodsSucceed(pods) => (
                    "PODS_SUCCEED",
                    ConditionParams {
                        pod_labels: pods.selector.as_ref().and_then(|s| s.match_labels.as_ref()),
                        initial_delay_seconds: Some(pods.initial_delay.as_secs()),
                        period_seconds: Some(PERIOD_SECONDS),
                        ..ConditionParams::default()
                    },
                ),
                PolicyCondition::Ttl(end) => {
                    let ttl_seconds = match end {
                        TtlEnd::After(after) => Some(after.as_secs()),
                        TtlEnd::Until(_) => None,
                    };
                    ("TTL", ConditionParams { ttl_seconds, ..ConditionParams::default() })
                }
            };
            Self {
                namespace_manager: manager_ref,
                policy: PolicyBody {
                    name: &policy.name,
                    condition: Condition { kind, params },
                    action: Action {
                        kind: "WEBHOOK",
                        params: ActionParams { selectors: None, url: Some(&webhook.url) },
                    },
                },
                namespace: manager_ref.namespace,
            }
        }
    }
}
