//! Decides: `coppice_lifecycle::cluster::plan`.

use coppice_kinds::{cluster_manager_facts, record_facts};
use coppice_lifecycle::cluster::{self, ClusterObserved, NamespacePlan};

use super::observe::Observation;

/// The plan for what was observed.
pub(super) fn plan(observation: &Observation) -> NamespacePlan {
    let managers: Vec<_> = observation.managers.iter().map(|one| cluster_manager_facts(one)).collect();
    let observed = ClusterObserved {
        namespace: observation.namespace.as_deref().map_err(Clone::clone),
        record: observation.record.as_deref().map(record_facts),
        managers: &managers,
        health: observation.health.facts(),
        pods: observation.pods.pods(),
        jobs: observation.pods.jobs(),
        pods_heard: observation.pods.heard,
        settings: &observation.settings,
        budget: &observation.budget,
        managed: observation.managed,
        census: observation.census.as_deref(),
        successor: observation.successor.facts(),
        stale: observation.stale.clone(),
        other: observation.other.clone(),
        webhook: observation.webhook.clone(),
        delivery: observation.delivery.clone(),
        deliveries: &observation.deliveries,
        address_key: observation.address_key.as_deref(),
    };
    cluster::plan(&observed, observation.at)
}
