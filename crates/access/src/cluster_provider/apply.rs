//! Saves a status.

use coppice_clusters_api::ClusterProviderStatus;
use coppice_runtime::leader::Permit;
use coppice_runtime::write::{self, WriteError};

use super::ClusterProviderController;
use crate::kinds::{ClusterProviders, Provider};

/// Writes it on the revision that was read; the object as it is then.
pub(super) async fn apply(
    controller: &ClusterProviderController,
    permit: &Permit,
    provider: &Provider,
    status: &ClusterProviderStatus,
) -> Result<Provider, WriteError> {
    let written = write::status::<ClusterProviders>(&controller.clients, permit, provider, status).await?;
    controller.shared.providers.store.update_if_newer("", written.clone());
    Ok(written)
}
