//! How many name a `ClusterProvider`, to have credentials issued or Shoots made, and how its kubeconfig is.

use coppice_clusters::{KubeconfigFact, Usage};
use coppice_clusters_api::ClusterProviderSpec;

use super::ClusterProviderController;
use crate::kinds::Provider;
use crate::target::Failure;
use crate::targets::ReadError;

/// What its status rests on.
pub(super) struct Observation {
    /// Who uses it.
    pub(super) usage: Usage,
    /// Whether its kubeconfig can be used.
    pub(super) usable: Result<(), Failure>,
}

/// Counts, and reads the kubeconfig unless it is in memory. `Err`: it is not known how that is.
pub(super) async fn observe(
    controller: &ClusterProviderController,
    provider: &Provider,
    spec: &ClusterProviderSpec,
) -> Result<Observation, ReadError> {
    let shared = &controller.shared;
    let waiting = shared.providers.budgets.waiting(&*provider.name, controller.server_clock.now().now());
    let mut usage = Usage { waiting, ..Usage::default() };
    shared.accesses.for_each(|access| {
        let cluster = shared.providers.cluster_of(access);
        if cluster.is_some_and(|cluster| cluster.provider_name() == Some(&*provider.name)) {
            usage.add(&access.namespace, &access.name);
        }
    });
    shared.providers.managed.for_each(|managed| {
        let shoot = managed.spec.as_ref().ok().and_then(|spec| spec.provider.gardener.as_ref());
        if shoot.is_some_and(|shoot| *shoot.cluster_provider == *provider.name) {
            usage.add_cluster(&managed.namespace, &managed.name);
        }
    });
    let source = shared.providers.source(spec);
    let usable = match shared.targets.fact(&source) {
        KubeconfigFact::Endpoint(_) | KubeconfigFact::OfGarden => Ok(()),
        KubeconfigFact::Unread | KubeconfigFact::Unusable => {
            match shared.targets.read(&controller.clients, &source).await {
                Ok(Some(_)) => Ok(()),
                Ok(None) => Err(source.missing()),
                Err(ReadError::Unusable(failure)) => Err(failure),
                Err(error @ ReadError::Unknown { .. }) => return Err(error),
            }
        }
    };
    let namespace = shared.providers.namespace();
    let usable = usable.map_err(|Failure { reason, message, .. }| {
        Failure::new(reason, format!("spec.credential: {message} (in the namespace {namespace})"))
    });
    Ok(Observation { usage, usable })
}
