//! The end of an access that is being deleted and cannot be understood, since its spec or status was written by another version or past
//! the API server's checks: which cluster its credential is in is not known, so that it is given up when `forgetAfter` is over.

use coppice_clusters::revocation_deadline;
use coppice_clusters_api::cluster_access::FORGET_AFTER;
use coppice_quantity::Duration;
use coppice_runtime::error::chain;
use coppice_runtime::leader::Permit;
use coppice_runtime::queue::ReconcileResult;
use coppice_runtime::read;
use coppice_runtime::write::{self, WriteError};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::{AccessKey, ClusterAccessController, observe, report};
use crate::kinds::{Access, ClusterAccesses};

/// Why it is not known when the access is given up.
#[derive(Debug, thiserror::Error)]
enum GivenUpAtError {
    /// The API server refused the read, or did not answer.
    #[error("{}", chain(.0))]
    Get(#[from] kube::Error),
    /// When it was deleted cannot be understood.
    #[error("deletionTimestamp: {0}")]
    DeletionTimestamp(#[from] jiff::Error),
}

/// Takes our finalizer off once `forgetAfter` is over, or at once where nothing was issued.
pub(super) async fn finalize(
    controller: &ClusterAccessController,
    permit: &Permit,
    key: &AccessKey,
) -> ReconcileResult {
    let access = match observe::fresh(controller, key).await {
        Ok(Some(access)) if access.terminating && access.has_finalizer && access.decoded().is_err() => access,
        Ok(_) => return ReconcileResult::Done,
        Err(error) => return controller.failed(key, &error.to_string()),
    };
    let skipped = may_have_credentials(&access);
    if skipped {
        match given_up_at(controller, key).await {
            Ok(at) if controller.now() < at => return controller.at(Some(at)),
            Ok(_) => {}
            Err(error) => return controller.failed(key, &error.to_string()),
        }
    }
    match write::remove_finalizer::<ClusterAccesses>(&controller.clients, permit, &access).await {
        Ok(_) => {
            report::ended(controller, &access, skipped.then_some("its spec or status cannot be understood"));
            ReconcileResult::Done
        }
        Err(WriteError::Gone) => ReconcileResult::Done,
        Err(error) => controller.failed(key, &error.to_string()),
    }
}

/// Whether something may have been issued, as far as its status is understood.
fn may_have_credentials(access: &Access) -> bool {
    access.status_error.is_some() || access.status.has_touched_target()
}

/// When it is given up: so long after the deletion as its spec says, if that much of it is understood.
async fn given_up_at(
    controller: &ClusterAccessController,
    key: &AccessKey,
) -> Result<Timestamp, GivenUpAtError> {
    let path = format!("{}/{}", read::path::<ClusterAccesses>(&key.namespace), key.name);
    let object = controller.clients.reads.request::<Value>(read::request(&path)?).await?;
    let deleted = object["metadata"]["deletionTimestamp"].as_str().unwrap_or_default();
    let deleted = deleted.parse::<Timestamp>()?;
    let written = object["spec"]["forgetAfter"].as_str().and_then(|text| text.parse::<Duration>().ok());
    let cluster = &object["spec"]["cluster"];
    let provider = cluster["provider"]["name"].as_str().or(cluster["gardener"]["provider"].as_str());
    let provider = provider.or(object["status"]["managedCluster"]["provider"].as_str());
    let least = provider.and_then(|name| controller.providers.min_forget_after(name));
    let forget_after = SignedDuration::from_secs(written.unwrap_or(FORGET_AFTER).as_secs_i64());
    Ok(revocation_deadline(deleted, forget_after.max(least.unwrap_or(SignedDuration::ZERO))))
}

#[cfg(test)]
#[path = "undecodable_tests.rs"]
mod tests;
