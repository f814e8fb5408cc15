//! Policies as the JSON whose digest was written before digests had versions. It never changes: statuses hold it, and a
//! field that has been added since has no place in it.

use std::collections::BTreeMap;

use coppice_api::Selector;
use coppice_api::manager::{Policy, WebhookFormat};
use serde::Serialize;

use super::canonical::operator_name;

pub(super) fn encode(policies: &[Policy]) -> Vec<u8> {
    let policies: Vec<Json<'_>> = policies.iter().map(Json::from).collect();
    serde_json::to_vec(&policies).unwrap_or_default()
}

#[derive(Serialize)]
struct Json<'a> {
    name: &'a str,
    when: When<'a>,
    then: Then<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct When<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    ttl: Option<Ttl>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pods_succeed: Option<PodsSucceed<'a>>,
}

#[derive(Serialize)]
struct Ttl {
    #[serde(skip_serializing_if = "Option::is_none")]
    after: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PodsSucceed<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    selector: Option<Select<'a>>,
    initial_delay: String,
    min_pods: u32,
    settle: String,
    ignore_retried: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Then<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    delete: Option<Delete>,
    #[serde(skip_serializing_if = "Option::is_none")]
    scale_down: Option<ScaleDown<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    webhook: Option<Webhook<'a>>,
}

#[derive(Serialize)]
struct Delete {
    notice: String,
}

#[derive(Serialize)]
struct ScaleDown<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    selectors: Option<Vec<Workloads<'a>>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Workloads<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    api_version: Option<&'a str>,
    kind: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    selector: Option<Select<'a>>,
}

#[derive(Serialize)]
struct Webhook<'a> {
    url: &'a str,
    format: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Select<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    match_labels: Option<&'a BTreeMap<String, String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    match_expressions: Option<Vec<Require<'a>>>,
}

#[derive(Serialize)]
struct Require<'a> {
    key: &'a str,
    operator: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    values: Option<&'a [String]>,
}

impl<'a> From<&'a Policy> for Json<'a> {
    fn from(policy: &'a Policy) -> Self {
        let ttl = policy.when.ttl.as_ref().map(|ttl| Ttl {
            after: ttl.after.map(|after| after.to_string()),
            until: ttl.until.map(|until| until.to_string()),
        });
        let pods_succeed = policy.when.pods_succeed.as_ref().map(|pods| PodsSucceed {
            selector: pods.selector.as_ref().map(Select::from),
            initial_delay: pods.initial_delay.to_string(),
            min_pods: pods.min_pods,
            settle: pods.settle.to_string(),
            ignore_retried: pods.ignore_retried,
        });
        let scale_down = policy.then.scale_down.as_ref().map(|scale_down| ScaleDown {
            selectors: scale_down.selectors.as_ref().map(|selectors| {
                let workloads = selectors.iter().map(|workloads| Workloads {
                    api_version: workloads.api_version.as_deref(),
                    kind: &workloads.kind,
                    selector: workloads.selector.as_ref().map(Select::from),
                });
                workloads.collect()
            }),
        });
        let webhook = policy.then.webhook.as_ref().map(|webhook| Webhook {
            url: &webhook.url,
            format: match webhook.format {
                WebhookFormat::Coppice => "coppice",
                WebhookFormat::Consol => "consol",
            },
        });
        let delete = policy.then.delete.as_ref().map(|delete| Delete { notice: delete.notice.to_string() });
        Self {
            name: &policy.name,
            when: When { ttl, pods_succeed },
            then: Then { delete, scale_down, webhook },
        }
    }
}

impl<'a> From<&'a Selector> for Select<'a> {
    fn from(selector: &'a Selector) -> Self {
        let requirements = selector.match_expressions.as_ref().map(|requirements| {
            let requirements = requirements.iter().map(|requirement| Require {
                key: &requirement.key,
                operator: operator_name(requirement.operator),
                values: requirement.values.as_deref(),
            });
            requirements.collect()
        });
        Self { match_labels: selector.match_labels.as_ref(), match_expressions: requirements }
    }
}
