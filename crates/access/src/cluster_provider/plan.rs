//! Decides: what `coppice-clusters` says.

use coppice_clusters::provider_status;
use coppice_clusters_api::ClusterProviderStatus;
use jiff::Timestamp;

use super::observe::Observation;
use crate::kinds::Provider;

/// The status as it has to be; none if it is so.
pub(super) fn plan(
    provider: &Provider,
    observation: Observation,
    now: Timestamp,
) -> Option<ClusterProviderStatus> {
    let Observation { usage, usable } = observation;
    let usable = usable.map_err(|failure| (failure.reason, failure.message));
    let status = provider_status((&*provider.status, provider.generation), usage, usable, now);
    (status != *provider.status).then_some(status)
}
