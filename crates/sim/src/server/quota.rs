//! The admission of objects by `ResourceQuota`. As the real server does it, `status.hard` limits, and what is admitted is added to
//! `status.used` in the same step, by compare-and-swap; the quota controller corrects that later.

mod check;
pub(super) mod pods;
#[cfg(test)]
mod tests;
pub(super) mod usage;

use std::sync::Arc;

use serde_json::Value;

pub(super) use check::is_scoped;
use check::{Candidate, QuotaUsage};

use super::Server;
use super::admission::AdmissionDenied;
use super::meta;
use super::status::StatusError;
use super::store::Verb;
use super::write::{Caller, Expected, Target};

/// Who writes what was admitted.
const USER: &str = "system:apiserver";

impl Server {
    /// Counts an object in the quotas of its namespace, unless one of them has no room for it. `old` is what it replaces.
    pub(super) fn admit_by_quota(
        &mut self,
        caller: &Caller<'_>,
        target: Target<'_>,
        object: &Value,
        old: Option<&Value>,
    ) -> Result<(), StatusError> {
        let Target { kind, namespace, name } = target;
        let replaced = matches!(&*kind.plural, "persistentvolumeclaims" | "services")
            && kind.group.is_empty()
            && caller.subresource.is_empty();
        if namespace.is_empty() || old.is_some() && !replaced {
            return Ok(());
        }
        let Some(quotas) = self.kinds.at("", "v1", "resourcequotas").cloned() else { return Ok(()) };
        let all: Vec<Arc<Value>> =
            self.store.range(quotas.store, namespace, None).map(|(_, quota)| Arc::clone(quota)).collect();
        let candidate = Candidate { kind: (&*kind.group, &*kind.plural), object, old };
        let usages = check::check(&all, candidate, caller.now).map_err(|refusal| {
            let (reason, message) = ("Forbidden".to_owned(), refusal.to_string());
            let refusal = AdmissionDenied { code: 403, reason, message, cause: None };
            StatusError::denied(kind, name, &refusal)
        })?;
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
        for QuotaUsage { quota, used } in usages {
            let target = Target { kind: &quotas, namespace, name: meta::name(&quota) };
            // With the revision that was read: where somebody was faster, it is a conflict.
            let mut reserved = quota.as_ref().clone();
            for (name, amount) in used {
                reserved["status"]["used"][name] = amount.to_string().into();
            }
            self.update(&admission, target, &Expected::default(), |_, _| Ok(reserved))?;
        }
        Ok(())
    }
}
