//! Reports what has happened: Events and log.

use coppice_api::Reason;
use coppice_clusters::managed::{LiveFact, Managed, Shape};
use coppice_clusters_api::names::LABEL_MANAGED_CLUSTER;
use coppice_clusters_api::{ClusterState, ManagedClusterStatus};
use coppice_runtime::object::reference;

use super::{ClusterKey, ManagedClusterController};
use crate::kinds::{ManagedClusterObject, ManagedClusters};
use crate::metrics::blocked_by;

/// What Events say was being done.
const ACTION: &str = "ManageCluster";
/// What a forced deletion may leave behind.
const FORCED: &str = "The deletion has failed for as long as spec.deletion.forceAfter says, and is forced: what was made in the account of the cloud may \
                      be left there. Look for it, and delete it";

/// Reports what a status that was written says and the one before did not.
pub(super) fn saved(
    controller: &ManagedClusterController,
    managed: &ManagedClusterObject,
    before: &ManagedClusterStatus,
) {
    let after = &managed.status;
    controller.metrics.newly_blocked(why(before), why(after));
    if after.forced.is_some() && before.forced.is_none() {
        publish(controller, managed, true, Reason::DeletionForced.as_str(), FORCED);
    }
    if after.state == Some(ClusterState::Ready) && before.state != Some(ClusterState::Ready) {
        let message = "The cluster is as its spec says";
        publish(controller, managed, false, Reason::ClusterReady.as_str(), message);
    }
    let Some(error) = &after.last_error else { return };
    // The first attempt of several of this spec with this reason: the others are in status.
    let same = before
        .last_error
        .as_ref()
        .is_some_and(|before| before.reason == error.reason && before.generation == error.generation);
    if !same {
        publish(controller, managed, true, &error.reason, &error.message);
    }
}

/// Why its cluster is not as its spec says.
fn why(status: &ManagedClusterStatus) -> Option<&str> {
    blocked_by(status.last_error.as_ref().map(|error| error.reason.as_str()), &status.conditions)
}

/// Reports that it is gone, and whether its cluster is.
pub(super) fn ended(
    controller: &ManagedClusterController,
    managed: &ManagedClusterObject,
    observed: &Managed,
) {
    if matches!(observed.live, LiveFact::Foreign | LiveFact::Made(_)) {
        let (kind, name) = (Shape::of(&observed.spec).kind(), &observed.name);
        let message = format!(
            "The {kind} {name} was not deleted: it is not the one that was made, or has lost the label {LABEL_MANAGED_CLUSTER}={}. Delete it if nobody needs it",
            observed.uid
        );
        return publish(controller, managed, true, Reason::ClusterNotOurs.as_str(), &message);
    }
    tracing::info!(namespace = %managed.namespace, cluster = %managed.name, "it has no cluster any more; it is gone");
}

fn publish(
    controller: &ManagedClusterController,
    managed: &ManagedClusterObject,
    warning: bool,
    reason: &str,
    message: &str,
) {
    tracing::info!(namespace = %managed.namespace, cluster = %managed.name, reason, "{message}");
    let of = (reference::<ManagedClusters>(managed), managed.generation);
    controller.events.publish_of_spec(of, warning, reason, ACTION, message);
}

/// Reports an object that is left alone because it was written by another version, or past the API server's checks.
pub(super) fn not_understood(key: &ClusterKey, error: &str) {
    tracing::error!(cluster = %key, "{error}; nothing is done: correct it, or run the version of Coppice that wrote it");
}

/// Reports that something was not done.
pub(super) fn failed(key: &ClusterKey, error: &str) {
    tracing::warn!(cluster = %key, error, "not done; it is tried again");
}
