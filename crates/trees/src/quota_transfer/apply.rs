//! Carries out the one next write of a plan that was made on fresh reads.

use coppice_api::names::TREE_QUOTA_NAME;
use coppice_hierarchy::release;
use coppice_kinds::{QuotaTransferObject, QuotaTransfers, TreeQuotas};
use coppice_runtime::error::chain;
use coppice_runtime::leader::Permit;
use coppice_runtime::read::{self, ListError};
use coppice_runtime::write::{self, WriteError};
use jiff::Timestamp;

use super::observe::{self, Observation};
use super::plan::{self, Step, TransferPlan};
use super::{QuotaTransferKey, held, id, report};
use crate::context::TreeContext;
use crate::error::ProgressError;
use crate::writes;

/// How carrying out a plan went.
pub(super) enum TransferProgress {
    /// Everything is read and decided again.
    Again,
    /// There is nothing to do until then, or until something changes.
    CheckAt(Option<Timestamp>),
    /// It is tried again with backoff.
    Failed(ProgressError<ListError>),
}

/// Reads, decides, and does the one thing that is next.
pub(super) async fn next(context: &TreeContext, permit: &Permit, key: &QuotaTransferKey) -> TransferProgress {
    let observation = match observe::fresh(context, key).await {
        Ok(Some(observation)) => observation,
        // Whatever has changed enqueues this again.
        Ok(None) => return TransferProgress::CheckAt(None),
        Err(error) => return TransferProgress::Failed(ProgressError::Read(error)),
    };
    let object = &*observation.object;
    if let Some(error) = &object.status_error {
        return TransferProgress::Failed(ProgressError::Status(error.clone()));
    }
    let plan = plan::plan(&observation);
    if plan.found_nowhere {
        // The amount is nowhere only if all quotas were so at one time.
        match observe::fresh(context, key).await {
            Ok(Some(again)) if again.revisions() == observation.revisions() => {}
            Ok(_) => return TransferProgress::Again,
            Err(error) => return TransferProgress::Failed(ProgressError::Read(error)),
        }
    }
    let TransferPlan { status, step, next_check, events, .. } = plan;
    if status != *object.status {
        let written = write::status::<QuotaTransfers>(&context.shared.clients, permit, object, &status).await;
        if let Ok(written) = &written {
            report::events(&context.shared, object, &events);
            report::blocked(&context.shared, &object.status, &written.status);
        }
        return outcome(written.map(drop));
    }
    if step == Step::Nothing {
        return TransferProgress::CheckAt(next_check);
    }
    let done = carry_out(context, permit, &observation, step).await;
    // Of one that has ended all is said: only its finalizer is left, and after that nothing is written.
    if let Err(WriteError::Refused(error)) = &done
        && object.status.ended_at.is_none()
    {
        let status = report::refused(object, &error.message, context.shared.now());
        if status != *object.status {
            // What cannot be written is in the log.
            let _ = write::status::<QuotaTransfers>(&context.shared.clients, permit, object, &status).await;
        }
    }
    outcome(done)
}

/// Whether it happened is seen by who reads again.
fn outcome(written: Result<(), WriteError>) -> TransferProgress {
    match written {
        Ok(()) | Err(WriteError::Conflict | WriteError::Gone) => TransferProgress::Again,
        Err(error @ (WriteError::Ambiguous(_) | WriteError::Refused(_))) => {
            TransferProgress::Failed(ProgressError::Write(error))
        }
    }
}

async fn carry_out(
    context: &TreeContext,
    permit: &Permit,
    observation: &Observation,
    step: Step,
) -> Result<(), WriteError> {
    let (clients, object) = (&context.shared.clients, &*observation.object);
    match step {
        Step::Nothing => Ok(()),
        Step::AddFinalizer => write::add_finalizer::<QuotaTransfers>(clients, permit, object).await.map(drop),
        Step::RemoveFinalizer => {
            write::remove_finalizer::<QuotaTransfers>(clients, permit, object).await.map(drop)
        }
        Step::Quota(place, ledger) => {
            let namespace = object.status.path.get(place).map(|stop| &*stop.namespace);
            let quota = observation.near.get(&place).and_then(|near| near.quota.as_deref());
            let (Some(namespace), Some(quota)) = (namespace, quota) else { return Err(WriteError::Gone) };
            writes::quota(context, permit, (&object.status.tree, namespace), Some(quota), &ledger)
                .await
                .map(drop)
        }
    }
}

/// Why what is left could not be released.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReleaseError {
    #[error("{}", chain(.0))]
    Read(kube::Error),
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// Gives a namespace as its own quota what its ledger still holds for a transfer that has ended or is gone: a write that arrived late
/// has taken it, or somebody has removed the finalizer.
pub(super) async fn release_left_over(
    context: &TreeContext,
    permit: &Permit,
    key: &QuotaTransferKey,
) -> Result<(), ReleaseError> {
    let known = context.transfers.get(&key.source, &key.name);
    let prefix = format!("{key}/");
    let mut left: Vec<(Box<str>, String)> = Vec::new();
    context.quotas.for_each(|quota| {
        let of_key = held(quota).filter(|held| held.starts_with(&prefix));
        let of_others = of_key.filter(|held| !known.as_deref().is_some_and(|known| lives_as(known, held)));
        left.extend(of_others.map(|id| (quota.namespace.clone(), id.to_owned())));
    });
    let client = &context.shared.clients.reads;
    for (namespace, id) in left {
        // The quota first: what ends after that has released what it held, or is found by the next look.
        let quota = read::get::<TreeQuotas>(client, &namespace, TREE_QUOTA_NAME).await;
        let quota = quota.map_err(ReleaseError::Read)?;
        let object = read::get::<QuotaTransfers>(client, &key.source, &key.name).await;
        let object = object.map_err(ReleaseError::Read)?;
        if object.is_some_and(|object| lives_as(&object, &id)) {
            continue;
        }
        let understood = quota.as_ref().and_then(|quota| quota.quota.as_ref().ok());
        let released = understood.and_then(|quota| release(&quota.ledger, &id));
        let (Some(quota), Some(released)) = (&quota, released) else { continue };
        let tree = quota.tree.as_deref().unwrap_or_default();
        writes::quota(context, permit, (tree, &namespace), Some(quota), &released).await?;
        report::left_over(&id, &namespace);
    }
    Ok(())
}

/// Whether this is the transfer that a ledger means, and it has not ended.
fn lives_as(object: &QuotaTransferObject, held_for: &str) -> bool {
    object.status.ended_at.is_none() && id(object) == held_for
}

#[cfg(test)]
#[path = "apply_tests.rs"]
mod tests;
