//! Deletes every `ClusterAccess`, by which what was issued for it is revoked.

use anyhow::bail;
use coppice_runtime::client::Clients;
use coppice_runtime::leader::Gate;
use coppice_runtime::write::{self, Revision, WriteError};
use tokio::time::{Instant, sleep};

use super::{PAUSE, StepError, WRITES_WAIT, each, listed_until};
use crate::kinds::{Access, ClusterAccesses};

/// Deletes every one that is not being deleted.
///
/// # Errors
/// If the API server refuses one, or does not do it in time: then no finalizer is taken off, by which more would be left than was asked for.
pub(super) async fn delete_all(clients: &Clients, gate: &Gate) -> anyhow::Result<()> {
    let end = Instant::now() + WRITES_WAIT;
    loop {
        let mut living = listed_until::<ClusterAccesses>(clients, end).await?;
        living.retain(|access| !access.terminating);
        if living.is_empty() {
            return Ok(());
        }
        tracing::info!(
            "{} ClusterAccesses are deleted, by which their credentials are revoked",
            living.len()
        );
        let results = each(living, |access| delete(clients.clone(), gate.clone(), access)).await;
        let failed = results.into_iter().find_map(|(at, result)| result.err().map(|error| (at, error)));
        let Some((at, error)) = failed else { continue };
        let is_refused = matches!(error, StepError::Write(WriteError::Refused(_)));
        if is_refused || Instant::now() + PAUSE >= end {
            bail!(
                "ClusterAccess {at} could not be deleted: {error}. With --credentials revoke the account needs the right to delete ClusterAccesses; or \
                 delete them yourself: kubectl delete clacc -A --all --wait=false"
            );
        }
        tracing::warn!("ClusterAccess {at} is not deleted yet: {error}");
        sleep(PAUSE.max(clients.backpressure.remaining())).await;
    }
}

/// Deletes one, whatever revision there is of it; its place, and what came of it. It has our finalizer then if anything was issued for it:
/// after an uninstallation that kept it, it has none.
async fn delete(clients: Clients, gate: Gate, access: Access) -> (String, Result<(), StepError>) {
    let deleted = async {
        let permit = gate.permit()?;
        if !access.has_finalizer && (access.status.has_touched_target() || access.status_error.is_some()) {
            write::add_finalizer::<ClusterAccesses>(&clients, &permit, &access).await?;
        }
        let at = (&*access.namespace, &*access.name);
        let revision = Revision { uid: &access.uid, resource_version: None };
        match write::delete_object::<ClusterAccesses>(&clients, &permit, at, revision).await {
            Ok(()) | Err(WriteError::Gone) => Ok(()),
            Err(error) => Err(StepError::from(error)),
        }
    };
    let deleted = deleted.await;
    (format!("{}/{}", access.namespace, access.name), deleted)
}
