//! The bodies of webhooks.

use std::collections::BTreeMap;

use coppice_api::manager::{Intent, PodsSucceed, WebhookFormat};
use serde::Serialize;

use crate::cluster::{ClusterCondition, ValidClusterPolicy};
use crate::valid_spec::{PolicyCondition, TtlEnd, ValidPolicy, ValidWebhook};

/// The manager that a webhook speaks for.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct ManagerRef<'a> {
    /// Its kind; none for a `NamespaceManager`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) kind: Option<&'static str>,
    /// Its namespace; none of a cluster-scoped one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) namespace: Option<&'a str>,
    /// Its name.
    pub(crate) name: &'a str,
}

/// What a policy waits for.
pub(crate) enum Condition<'a> {
    /// The age of the namespace, or an instant.
    Ttl(TtlEnd),
    /// The success of its pods.
    PodsSucceed(&'a PodsSucceed),
    /// Its phase.
    Phase,
}

/// A policy that bodies describe.
pub(crate) trait Described: Serialize {
    /// Its name.
    fn name(&self) -> &str;
    /// What it waits for.
    fn condition(&self) -> Condition<'_>;
}

impl Described for ValidPolicy {
    fn name(&self) -> &str {
        &self.name
    }

    fn condition(&self) -> Condition<'_> {
        match &self.condition {
            PolicyCondition::PodsSucceed(pods) => Condition::PodsSucceed(pods),
            PolicyCondition::Ttl(end) => Condition::Ttl(*end),
        }
    }
}

impl Described for ValidClusterPolicy {
    fn name(&self) -> &str {
        &self.name
    }

    fn condition(&self) -> Condition<'_> {
        match &self.condition {
            ClusterCondition::PodsSucceed(pods) => Condition::PodsSucceed(pods),
            ClusterCondition::Ttl(end) => Condition::Ttl(*end),
            ClusterCondition::Phase { .. } => Condition::Phase,
        }
    }
}

/// The body of a webhook about a namespace. It depends only on the decision, so that every attempt sends the same.
pub(crate) fn body(
    manager: ManagerRef<'_>,
    namespace: &str,
    policy: &impl Described,
    webhook: &ValidWebhook,
    intent: &Intent,
) -> Vec<u8> {
    // Both bodies are maps with string keys and plain values, which serde_json cannot fail to write.
    match webhook.format {
        WebhookFormat::Coppice => serde_json::to_vec(&CoppiceBody {
            kind: "policy.fired",
            firing: &intent.id,
            decided_at: intent.decided_at.to_string(),
            namespace: NamespaceRef { name: namespace, uid: &intent.uid },
            manager,
            policy,
            reason: &intent.reason,
            evidence: &intent.evidence,
        }),
        WebhookFormat::Consol => {
            serde_json::to_vec(&consol::Body::new(manager.name, namespace, policy, &webhook.url))
        }
    }
    .unwrap_or_default()
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CoppiceBody<'a, P> {
    /// The kind of event, as Standard Webhooks suggests.
    #[serde(rename = "type")]
    kind: &'static str,
    firing: &'a str,
    decided_at: String,
    namespace: NamespaceRef<'a>,
    manager: ManagerRef<'a>,
    policy: &'a P,
    reason: &'a str,
    evidence: &'a BTreeMap<String, String>,
}

#[derive(Serialize)]
struct NamespaceRef<'a> {
    name: &'a str,
    uid: &'a str,
}

/// The body of the ConSol k8s-namespace-manager: every key present, absent values null.
mod consol {
    use super::{BTreeMap, Condition as PolicyCondition, Described, ManagerRef, Serialize, TtlEnd};

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
            manager: &'a str,
            namespace: &'a str,
            policy: &'a impl Described,
            url: &'a str,
        ) -> Self {
            let (kind, params) = match policy.condition() {
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
                // It has no such condition, and specs that ask for this are refused.
                PolicyCondition::Phase => ("PHASE", ConditionParams::default()),
            };
            Self {
                namespace_manager: ManagerRef { kind: None, namespace: Some(namespace), name: manager },
                policy: PolicyBody {
                    name: policy.name(),
                    condition: Condition { kind, params },
                    action: Action {
                        kind: "WEBHOOK",
                        params: ActionParams { selectors: None, url: Some(url) },
                    },
                },
                namespace,
            }
        }
    }
}
