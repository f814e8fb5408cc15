//! Whether an object fits into the quotas of its namespace, as the API server's admission decides it
//! (`pkg/admission/plugin/resourcequota`).

use std::sync::Arc;

use coppice_quantity::Quantity;
use jiff::Timestamp;
use serde_json::Value;

use super::super::meta;
use super::pods;
use super::usage::{Amounts, add, amounts, usage, used_by};

/// An object that is to be stored.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate<'a> {
    /// Group and plural of its kind.
    pub(super) kind: (&'a str, &'a str),
    /// What is to be stored.
    pub(super) object: &'a Value,
    /// What there is; none if it is new.
    pub(super) old: Option<&'a Value>,
}

/// What a quota is to say once an object is stored.
#[derive(Debug)]
pub(super) struct QuotaUsage {
    /// The quota that it was decided by, in that revision.
    pub(super) quota: Arc<Value>,
    /// What is used then of each resource that the object uses.
    pub(super) used: Amounts,
}

/// Why an object is not stored, in the words of the API server.
#[derive(Debug, thiserror::Error)]
pub(super) enum QuotaAdmissionError {
    /// A container does not say what it needs.
    #[error("failed quota: {quota}: {what}")]
    Unstated { quota: String, what: String },
    /// What is used has not been counted yet.
    #[error("status unknown for quota: {quota}, resources: {}", resources.join(","))]
    Uncounted { quota: String, resources: Vec<String> },
    /// There is not as much left.
    #[error("exceeded quota: {quota}, requested: {requested}, used: {used}, limited: {limited}")]
    Exceeded { quota: String, requested: String, used: String, limited: String },
}

/// What the quotas are to say once an object is stored. Limits are those in force: `status.hard`.
pub(super) fn check(
    quotas: &[Arc<Value>],
    candidate: Candidate<'_>,
    now: Timestamp,
) -> Result<Vec<QuotaUsage>, QuotaAdmissionError> {
    let mut limiting = Vec::new();
    for quota in quotas.iter().filter(|quota| !is_scoped(quota)) {
        let status = &quota["status"];
        let names = status["hard"].as_object().into_iter().flatten().map(|(name, _)| name.as_str());
        let names: Vec<&str> = names.filter(|name| used_by(name) == Some(candidate.kind)).collect();
        if names.is_empty() {
            continue;
        }
        let name = || meta::name(quota).to_owned();
        if candidate.kind == ("", "pods")
            && let Some(what) = pods::unstated(candidate.object, &names)
        {
            return Err(QuotaAdmissionError::Unstated { quota: name(), what });
        }
        if names.iter().any(|name| status["used"][*name].is_null()) {
            let resources = names.into_iter().map(str::to_owned).collect();
            return Err(QuotaAdmissionError::Uncounted { quota: name(), resources });
        }
        limiting.push((quota, names));
    }
    if limiting.is_empty() {
        return Ok(Vec::new());
    }
    let more = added(candidate, now);
    let mut usages = Vec::new();
    for (quota, names) in limiting {
        let mut requested = more.clone();
        requested.retain(|name, _| names.contains(&name.as_str()));
        if requested.is_empty() {
            continue;
        }
        let hard = amounts(&quota["status"]["hard"]);
        let mut before = amounts(&quota["status"]["used"]);
        before.retain(|name, _| requested.contains_key(name));
        let mut used = before.clone();
        add(&mut used, &requested);
        let beyond = |name: &str| used.get(name) > hard.get(name);
        let list = |amounts: &Amounts| {
            let exceeded = amounts.iter().filter(|(name, _)| beyond(name));
            let each: Vec<String> = exceeded.map(|(name, amount)| format!("{name}={amount}")).collect();
            each.join(",")
        };
        if requested.keys().any(|name| beyond(name)) {
            let quota = meta::name(quota).to_owned();
            let (requested, used, limited) = (list(&requested), list(&before), list(&hard));
            return Err(QuotaAdmissionError::Exceeded { quota, requested, used, limited });
        }
        usages.push(QuotaUsage { quota: Arc::clone(quota), used });
    }
    Ok(usages)
}

/// Whether a quota counts some objects only. Which ones is not evaluated: it limits nothing here.
pub(in crate::server) fn is_scoped(quota: &Value) -> bool {
    let spec = &quota["spec"];
    let scopes = [&spec["scopes"], &spec["scopeSelector"]["matchExpressions"]];
    scopes.into_iter().any(|list| list.as_array().is_some_and(|list| !list.is_empty()))
}

/// What an object uses, beyond what it used before.
fn added(candidate: Candidate<'_>, now: Timestamp) -> Amounts {
    let mut more = usage(candidate.kind, candidate.object, now);
    if let Some(old) = candidate.old {
        let before = usage(candidate.kind, old, now);
        for (name, amount) in &mut more {
            let before = before.get(name).copied().unwrap_or_default();
            *amount = amount.checked_sub(before).unwrap_or_default();
        }
    }
    more.retain(|_, amount| *amount > Quantity::ZERO);
    more
}
