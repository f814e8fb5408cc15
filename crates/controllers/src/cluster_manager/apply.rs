//! Writes what is new.

use coppice_kinds::ClusterManagers;
use coppice_runtime::leader::Permit;
use coppice_runtime::write::{self, WriteError};

use super::plan::StatusWrite;
use super::report;
use crate::context::ControllerContext;

/// Why a status was not written.
#[derive(Debug, thiserror::Error)]
#[error("ClusterNamespaceManager {manager}: {error}")]
pub(super) struct ManagerStatusError {
    manager: String,
    error: WriteError,
}

impl ManagerStatusError {
    /// A label of metrics.
    pub(super) const fn category(&self) -> &'static str {
        match self.error {
            WriteError::Conflict => "behind",
            WriteError::Gone | WriteError::Ambiguous(_) | WriteError::Refused(_) => "api",
        }
    }

    /// Whether that is usual: something changed a moment ago.
    pub(super) const fn is_race(&self) -> bool {
        matches!(self.error, WriteError::Conflict)
    }
}

/// Writes every status. One that cannot be written keeps no other from it.
pub(super) async fn apply(
    shared: &ControllerContext,
    permit: &Permit,
    writes: Vec<StatusWrite>,
) -> Result<(), ManagerStatusError> {
    let mut failed = Ok(());
    for StatusWrite { manager, status } in writes {
        let written = write::status::<ClusterManagers>(&shared.clients, permit, &manager, &status).await;
        shared.metrics.status_written(written.is_ok());
        match written {
            Ok(written) => {
                report::waits(shared, &manager, &written);
                shared.cluster_managers.update_if_newer("", written);
            }
            Err(WriteError::Gone) => {}
            Err(error) => failed = Err(ManagerStatusError { manager: manager.name.to_string(), error }),
        }
    }
    failed
}

#[cfg(test)]
#[path = "apply_tests.rs"]
mod tests;
