//! Carries out the one next write of a plan that was made on fresh reads.

use coppice_api::names::TREE_QUOTA_NAME;
use coppice_kinds::{NamespaceTrees, Tree, TreeQuotas};
use coppice_runtime::leader::Permit;
use coppice_runtime::write::{self, Revision, WriteError};
use jiff::Timestamp;

use super::observe::{self, Observation, ReadError};
use super::plan::{self, Step, TreePlan};
use super::report;
use crate::context::TreeContext;
use crate::error::ProgressError;
use crate::writes;

/// How carrying out a plan went.
pub(super) enum TreeProgress {
    /// Everything is read and decided again.
    Again,
    /// There is nothing to do until then, or until something changes.
    CheckAt(Option<Timestamp>),
    /// It is tried again with backoff.
    Failed(ProgressError<ReadError>),
}

/// Reads, decides, and does the one thing that is next.
pub(super) async fn next(context: &TreeContext, permit: &Permit, name: &str) -> TreeProgress {
    let observation = match observe::fresh(context, name).await {
        Ok(Some(observation)) => observation,
        Ok(None) => return TreeProgress::CheckAt(None),
        Err(error) => return TreeProgress::Failed(ProgressError::Read(error)),
    };
    let (tree, clients) = (&observation.tree, &context.shared.clients);
    if let Some(error) = &tree.status_error {
        return TreeProgress::Failed(ProgressError::Status(error.clone()));
    }
    let TreePlan { status, step, next_check, events } = plan::plan(&observation);
    // The uid is durable before anything is done to the namespace.
    let durable = status.root_uid == tree.status.root_uid;
    if !durable || step == Step::Nothing && status != *tree.status {
        let written = write::status::<NamespaceTrees>(clients, permit, tree, &status).await;
        if let Ok(written) = &written {
            report::events(&context.shared, tree, &events);
            report::blocked(&context.shared, &tree.status, &written.status);
        }
        return outcome(written.map(drop));
    }
    if step == Step::Nothing {
        return TreeProgress::CheckAt(next_check);
    }
    let done = carry_out(context, permit, &observation, step).await;
    if let Err(WriteError::Refused(error)) = &done {
        let status = report::refused(tree, &error.message, context.shared.now());
        if status != *tree.status {
            // What cannot be written is in the log.
            let _ = write::status::<NamespaceTrees>(clients, permit, tree, &status).await;
        }
    }
    outcome(done)
}

/// Says how many namespaces a tree has on what the caches know, since nothing rests on it. Whether that was said.
pub(super) async fn says_size(context: &TreeContext, permit: &Permit, tree: &Tree, plan: &TreePlan) -> bool {
    let written = write::status::<NamespaceTrees>(&context.shared.clients, permit, tree, &plan.status).await;
    written.is_ok()
}

/// Whether it happened is seen by who reads again.
fn outcome(written: Result<(), WriteError>) -> TreeProgress {
    match written {
        Ok(()) | Err(WriteError::Conflict | WriteError::Gone) => TreeProgress::Again,
        Err(error @ (WriteError::Ambiguous(_) | WriteError::Refused(_))) => {
            TreeProgress::Failed(ProgressError::Write(error))
        }
    }
}

async fn carry_out(
    context: &TreeContext,
    permit: &Permit,
    observation: &Observation,
    step: Step,
) -> Result<(), WriteError> {
    let (clients, tree) = (&context.shared.clients, &*observation.tree);
    if let Some(stranded) = &observation.stranded {
        match &step {
            Step::ReleaseStranded => {
                let Some(quota) = stranded.quota.as_deref() else { return Err(WriteError::Gone) };
                return writes::release_quota(context, permit, quota).await;
            }
            Step::LabelStranded(changes) => {
                return writes::metadata(context, permit, &stranded.namespace, changes).await;
            }
            _ => {}
        }
    }
    let Some(root) = &observation.root else {
        return match step {
            Step::RemoveFinalizer => {
                write::remove_finalizer::<NamespaceTrees>(clients, permit, tree).await.map(drop)
            }
            _ => Err(WriteError::Gone),
        };
    };
    match step {
        Step::Nothing | Step::ReleaseStranded | Step::LabelStranded(_) => Ok(()),
        Step::AddFinalizer => write::add_finalizer::<NamespaceTrees>(clients, permit, tree).await.map(drop),
        Step::RemoveFinalizer => {
            write::remove_finalizer::<NamespaceTrees>(clients, permit, tree).await.map(drop)
        }
        Step::Label(changes) => writes::metadata(context, permit, root, &changes).await,
        Step::Quota(ledger) => {
            let now = observation.quota.as_deref();
            writes::quota(context, permit, (&tree.name, &root.name), now, &ledger).await.map(drop)
        }
        Step::ReleaseQuota => {
            let Some(quota) = observation.quota.as_deref() else { return Err(WriteError::Gone) };
            writes::release_quota(context, permit, quota).await
        }
        Step::DeleteQuota => {
            let Some(quota) = &observation.quota else { return Err(WriteError::Gone) };
            let revision = Revision { uid: &quota.uid, resource_version: Some(&quota.resource_version) };
            write::delete_object::<TreeQuotas>(clients, permit, (&root.name, TREE_QUOTA_NAME), revision).await
        }
    }
}

#[cfg(test)]
#[path = "apply_tests.rs"]
mod tests;
