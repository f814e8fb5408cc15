//! One policy of that operator: condition and action.

use coppice_api::Selector;
use coppice_api::manager::{
    Delete, PodsSucceed, Policy, ScaleDown, Then, Ttl, Webhook, WebhookFormat, When, WorkloadSelector,
};
use coppice_destination::{AllowList, Destination};
use coppice_quantity::Duration;
use serde_json::Value;

use crate::import::Remarks;
use crate::import::fields::{FieldError, Fields};

use super::Counterpart;

/// That operator's defaults.
const TTL_SECONDS: i64 = 1800;
const INITIAL_DELAY_SECONDS: i64 = 60;
const PERIOD_SECONDS: i64 = 10;

/// A policy carried over.
pub(super) struct ConvertedPolicy {
    /// None if it cannot be.
    pub(super) policy: Option<Policy>,
    /// The condition as that operator compared it.
    pub(super) condition: Value,
}

/// The parameters of every condition, with that operator's defaults filled in where ours need a value.
struct Params {
    ttl: i64,
    delay: i64,
    period: Option<i64>,
    delay_written: bool,
    ttl_written: bool,
}

pub(super) fn import(
    value: &Value,
    counterpart: Counterpart<'_>,
    path: &str,
    remarks: &mut Remarks,
) -> Result<ConvertedPolicy, FieldError> {
    let policy = Fields::of(value, path)?;
    policy.unknown(&["name", "condition", "action"], remarks);
    let name = policy.text("name")?.ok_or_else(|| policy.wrong("name", "required"))?;
    let length = name.chars().count();
    if length == 0 || length > 100 {
        return Err(policy.wrong("name", &format!("has {length} characters; 1 to 100 are accepted")));
    }
    let condition = Fields::of(&value["condition"], &policy.path_of("condition"))?;
    condition.unknown(&["type", "params"], remarks);
    let (when, params) = import_condition(&name, &condition, remarks)?;
    let action = Fields::of(&value["action"], &policy.path_of("action"))?;
    action.unknown(&["type", "params"], remarks);
    let then = import_action(&name, counterpart, &action, remarks)?;
    if then.as_ref().is_some_and(|t| t.webhook.is_some()) {
        webhook_remarks(&name, &when, &params, remarks);
    }
    Ok(ConvertedPolicy {
        policy: then.map(|then| Policy { name, when, then }),
        condition: value["condition"].clone(),
    })
}

fn import_condition(
    name: &str,
    condition: &Fields<'_>,
    remarks: &mut Remarks,
) -> Result<(When, Params), FieldError> {
    let kind =
        condition.text("type")?.ok_or_else(|| condition.wrong("type", "required: TTL or PODS_SUCCEED"))?;
    let fields = condition.below("params")?;
    fields.unknown(&["ttlSeconds", "podLabels", "initialDelaySeconds", "periodSeconds"], remarks);
    let (ttl, delay) = (fields.integer("ttlSeconds")?, fields.integer("initialDelaySeconds")?);
    let params = Params {
        ttl: ttl.unwrap_or(TTL_SECONDS),
        delay: delay.unwrap_or(INITIAL_DELAY_SECONDS),
        period: fields.integer("periodSeconds")?,
        delay_written: delay.is_some(),
        ttl_written: ttl.is_some(),
    };
    match kind.as_str() {
        "TTL" => Ok((import_ttl(name, params.ttl, remarks), params)),
        "PODS_SUCCEED" => {
            let labels = fields.labels("podLabels")?;
            Ok((import_pods(name, labels, &params, remarks), params))
        }
        other => Err(condition.wrong("type", &format!("{other:?} is unknown: TTL or PODS_SUCCEED"))),
    }
}

fn import_ttl(name: &str, seconds: i64, remarks: &mut Remarks) -> When {
    let after = Duration::from_secs(seconds.max(1).unsigned_abs());
    if seconds < 1 {
        remarks
            .differs(format!("policy {name:?}: ttlSeconds {seconds} was over at once; the least here is 1s"));
    } else if after.as_secs() != seconds.unsigned_abs() {
        remarks.differs(format!(
            "policy {name:?}: ttlSeconds {seconds} is more than a century and becomes {after}"
        ));
    } else {
        remarks.note(format!(
            "policy {name:?}: the ttl ends up to one second later, since creation times have a resolution of a second"
        ));
    }
    When { ttl: Some(Ttl { after: Some(after), until: None }), pods_succeed: None }
}

fn import_pods(
    name: &str,
    labels: Option<std::collections::BTreeMap<String, String>>,
    params: &Params,
    remarks: &mut Remarks,
) -> When {
    // A negative delay was over at once, as zero is.
    let initial_delay = Duration::from_secs(u64::try_from(params.delay).unwrap_or(0));
    if params.delay > initial_delay.as_secs_i64() {
        remarks.differs(format!(
            "policy {name:?}: initialDelaySeconds {} is more than a century and becomes {initial_delay}",
            params.delay
        ));
    }
    remarks.note(format!(
        "policy {name:?}: periodSeconds has no counterpart: pods and Jobs are watched, so a change is seen at once"
    ));
    remarks.note(format!(
        "policy {name:?}: the pods of a Job count once the Job is complete, never earlier than there; pods that are \
         being deleted count for nothing"
    ));
    remarks.note(format!(
        "policy {name:?}: minPods is 0, because there no pods at all were a success; 1 is safer if pods may be slow to appear"
    ));
    let selector = labels.map(|labels| Selector { match_labels: Some(labels), match_expressions: None });
    let pods = PodsSucceed {
        selector,
        initial_delay,
        min_pods: 0,
        settle: Duration::ZERO,
        // There, one failed pod kept the condition false for good.
        ignore_retried: false,
    };
    When { ttl: None, pods_succeed: Some(pods) }
}

fn import_action(
    name: &str,
    counterpart: Counterpart<'_>,
    action: &Fields<'_>,
    remarks: &mut Remarks,
) -> Result<Option<Then>, FieldError> {
    let kind = action
        .text("type")?
        .ok_or_else(|| action.wrong("type", "required: DELETE, SCALE_DOWN or WEBHOOK"))?;
    let params = action.below("params")?;
    params.unknown(&["selectors", "url"], remarks);
    match kind.as_str() {
        "DELETE" => Ok(Some(Then { delete: Some(Delete::default()), ..Then::default() })),
        "SCALE_DOWN" => Ok(import_scale_down(name, &params, remarks)?
            .map(|scale_down| Then { scale_down: Some(scale_down), ..Then::default() })),
        "WEBHOOK" => Ok(import_webhook(name, counterpart, &params, remarks)?
            .map(|webhook| Then { webhook: Some(webhook), ..Then::default() })),
        other => Err(action.wrong("type", &format!("{other:?} is unknown: DELETE, SCALE_DOWN or WEBHOOK"))),
    }
}

fn import_scale_down(
    name: &str,
    params: &Fields<'_>,
    remarks: &mut Remarks,
) -> Result<Option<ScaleDown>, FieldError> {
    let list = params.list("selectors")?.unwrap_or_default();
    if list.is_empty() {
        return Ok(Some(ScaleDown { selectors: None }));
    }
    let mut selectors = Vec::new();
    for (index, value) in list.iter().enumerate() {
        let fields = Fields::of(value, &format!("{}[{index}]", params.path_of("selectors")))?;
        fields.unknown(&["kind", "labels"], remarks);
        let kind = fields.text("kind")?.ok_or_else(|| fields.wrong("kind", "required"))?;
        let labels = fields.labels("labels")?;
        let known = ["Deployment", "StatefulSet"].into_iter().find(|known| known.eq_ignore_ascii_case(&kind));
        let Some(known) = known else {
            remarks.differs(format!(
                "policy {name:?}: the selector of kind {kind:?} is left out: that operator skipped it, and nothing of that kind \
                 was ever scaled down; take it out of the old manifest, or add a selector to the new one, whose kinds are \
                 Deployment, StatefulSet, ReplicaSet, CronJob and those in scaleKinds of the chart"
            ));
            continue;
        };
        selectors.push(WorkloadSelector {
            api_version: None,
            kind: known.to_owned(),
            selector: labels.map(|labels| Selector { match_labels: Some(labels), match_expressions: None }),
        });
    }
    if selectors.is_empty() {
        remarks.differs(format!(
            "policy {name:?} is left out: none of its selectors meant anything to that operator, so that it fired \
             without doing anything, and the manager was deactivated"
        ));
        return Ok(None);
    }
    Ok(Some(ScaleDown { selectors: Some(selectors) }))
}

fn import_webhook(
    name: &str,
    counterpart: Counterpart<'_>,
    params: &Fields<'_>,
    remarks: &mut Remarks,
) -> Result<Option<Webhook>, FieldError> {
    let Some(url) = params.text("url")? else {
        remarks.differs(format!(
            "policy {name:?} is left out: it has no url; that operator tried again indefinitely and never succeeded"
        ));
        return Ok(None);
    };
    let (default_hosts, _) = AllowList::parse(&coppice_api::config::Tenants::default().webhook_hosts);
    match Destination::parse(&url) {
        Err(error) => remarks.differs(format!("policy {name:?}: {error}")),
        Ok(destination) if !counterpart.permits(default_hosts, &destination) => {
            remarks.differs(format!(
                "policy {name:?}: webhooks to {} are refused unless CoppiceConfig/coppice lists {:?} in spec.tenants.webhookHosts",
                destination.host(),
                destination.entry()
            ));
        }
        Ok(_) => {}
    }
    Ok(Some(Webhook { url, format: WebhookFormat::Consol }))
}

fn webhook_remarks(name: &str, when: &When, params: &Params, remarks: &mut Remarks) {
    remarks.note(format!(
        "policy {name:?}: the webhook has the same body, and signature headers besides; it is given up after {} failed \
         attempts, where that operator went on indefinitely",
        coppice_lifecycle::record::WEBHOOK_ATTEMPTS
    ));
    let pods = when.pods_succeed.is_some();
    if let Some(period) = params.period.filter(|period| pods && *period != PERIOD_SECONDS) {
        remarks.differs(format!(
            "policy {name:?}: the webhook's body says periodSeconds {PERIOD_SECONDS} instead of {period}"
        ));
    }
    let filled_in = if pods { !params.delay_written || params.period.is_none() } else { !params.ttl_written };
    if filled_in {
        remarks.note(format!(
            "policy {name:?}: the webhook's body has a number where that operator sent null for a default"
        ));
    }
}
