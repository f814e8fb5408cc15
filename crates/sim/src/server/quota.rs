//! The admission of new objects by `ResourceQuota`, for numbers of objects. As the real server does it, `status.hard` limits, and what is
//! admitted is added to `status.used` in the same step, which the quota controller corrects later.

use std::sync::Arc;

use serde_json::{Value, json};

use super::Server;
use super::admission::AdmissionDenied;
use super::kinds::Kind;
use super::meta;
use super::models::quotas::Counted;
use super::status::StatusError;
use super::store::Verb;
use super::write::{Caller, Expected, Target};

/// Who writes what was admitted.
const USER: &str = "system:apiserver";

impl Server {
    /// Counts a new object in the quotas of its namespace, unless one of them has no room for it.
    pub(super) fn admit_by_quota(
        &mut self,
        caller: &Caller<'_>,
        kind: &Kind,
        namespace: &str,
        name: &str,
    ) -> Result<(), StatusError> {
        let Some(quotas) = self.kinds.served().find(|k| k.group.is_empty() && k.plural == "resourcequotas")
        else {
            return Ok(());
        };
        let quotas = Arc::clone(quotas);
        let all: Vec<Arc<Value>> =
            self.store.range(quotas.store, namespace, None).map(|(_, quota)| Arc::clone(quota)).collect();
        let limiting: Vec<(Arc<Value>, Vec<String>)> = all
            .into_iter()
            .map(|quota| {
                let names = counting(&quota, kind);
                (quota, names)
            })
            .filter(|(_, names)| !names.is_empty())
            .collect();
        for (quota, names) in &limiting {
            fits(quota, names).map_err(|error| {
                let (reason, message) = ("Forbidden".to_owned(), error.to_string());
                let refusal = AdmissionDenied { code: 403, reason, message, cause: None };
                StatusError::denied(kind, name, &refusal)
            })?;
        }
        if caller.dry_run {
            return Ok(());
        }
        let admission = Caller {
            now: caller.now,
            user: USER,
            verb: Verb::Update,
            subresource: "status",
            manager: "kube-apiserver",
            dry_run: false,
        };
        for (quota, names) in limiting {
            let target = Target { kind: &quotas, namespace, name: meta::name(&quota) };
            self.update(&admission, target, &Expected::default(), |_, old| {
                let mut quota = old.as_ref().clone();
                for name in &names {
                    let used = number(&quota["status"]["used"][name]).unwrap_or(0);
                    quota["status"]["used"][name] = json!((used + 1).to_string());
                }
                Ok(quota)
            })?;
        }
        Ok(())
    }
}

/// The names under which a quota that is in force counts objects of a kind.
fn counting(quota: &Value, kind: &Kind) -> Vec<String> {
    let hard = quota["status"]["hard"].as_object().into_iter().flatten();
    let counts = |name: &str| {
        Counted::of(name).is_some_and(|counted| counted.group == kind.group && counted.plural == kind.plural)
    };
    hard.filter(|(name, _)| counts(name)).map(|(name, _)| name.clone()).collect()
}

/// Why there is no room for one more, in the words of the API server.
#[derive(Debug, thiserror::Error)]
enum NoRoom {
    /// What is used has not been counted yet.
    #[error("status unknown for quota: {quota}, resources: {}", names.join(","))]
    Uncounted { quota: String, names: Vec<String> },
    /// All is used.
    #[error("exceeded quota: {quota}, requested: {requested}, used: {used}, limited: {limited}")]
    Exceeded { quota: String, requested: String, used: String, limited: String },
}

/// Whether there is room for one more.
fn fits(quota: &Value, names: &[String]) -> Result<(), NoRoom> {
    let (status, quota) = (&quota["status"], meta::name(quota).to_owned());
    let uncounted: Vec<String> =
        names.iter().filter(|name| status["used"][*name].is_null()).cloned().collect();
    if !uncounted.is_empty() {
        return Err(NoRoom::Uncounted { quota, names: uncounted });
    }
    let amount = |of: &str, name: &str| number(&status[of][name]).unwrap_or(0);
    let full: Vec<&String> =
        names.iter().filter(|name| amount("used", name) + 1 > amount("hard", name)).collect();
    if full.is_empty() {
        return Ok(());
    }
    let list = |of: &dyn Fn(&str) -> u64| {
        let each: Vec<String> = full.iter().map(|name| format!("{name}={}", of(name))).collect();
        each.join(",")
    };
    Err(NoRoom::Exceeded {
        quota,
        requested: list(&|_| 1),
        used: list(&|name| amount("used", name)),
        limited: list(&|name| amount("hard", name)),
    })
}

fn number(amount: &Value) -> Option<u64> {
    amount.as_str()?.parse().ok()
}
