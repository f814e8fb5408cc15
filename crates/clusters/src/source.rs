//! Which cluster a `ClusterAccess` is for that names a `ManagedCluster`, and what comes before anything is issued for a cluster that may go.
//!
//! A `ManagedCluster` stands for what it makes: a `Cluster` or a `Shoot` of its name. Which one that is, status says before anything is
//! issued, so that what was issued can be revoked when the `ManagedCluster` is gone.

use coppice_api::Reason;
use coppice_clusters_api::{
    CapiCluster, ClusterAccessStatus, ClusterSource, ClusterState, GardenerShoot, ManagedClusterSpec,
    ManagedClusterStatus, NamedCluster,
};
use jiff::Timestamp;

use crate::observed::{AccessObservation, ClusterFact, ManagedFact};
use crate::plan::{AccessStep, is_of_this_spec, save, steady};
use crate::status::{complete, failed};

/// A `ManagedCluster`, as those see it who name it.
#[derive(Clone, Copy, Debug)]
pub struct FoundCluster<'a> {
    /// Its uid.
    pub uid: &'a str,
    /// Its spec; none if that or its status cannot be understood.
    pub spec: Option<&'a ManagedClusterSpec>,
    /// Its status.
    pub status: &'a ManagedClusterStatus,
    /// Whether it is being deleted.
    pub deleting: bool,
}

/// A `ManagedCluster` that no credential is issued for yet, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("No credential is issued yet: ManagedCluster {name} {cause}.")]
pub struct ManagedClusterNotReady {
    name: String,
    cause: NotReadyCause,
}

/// Why no credential is issued yet for a `ManagedCluster`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotReadyCause {
    /// There is none of that name.
    #[error("does not exist in this namespace")]
    Missing,
    /// It is being deleted.
    #[error("is being deleted")]
    Deleting,
    /// Its spec or its status has values that are not known.
    #[error("cannot be understood by this version of Coppice")]
    NotUnderstood,
    /// Its cluster was never ready.
    #[error("was not ready yet, its state is {}", .0.as_str())]
    State(ClusterState),
    /// Its status has no state.
    #[error(
        "was not looked at yet: if that stays so, ask the platform whether ManagedClusters are switched on"
    )]
    NotObserved,
    /// By its name there is another cluster by now, or none: the reason in its status.
    #[error("does not have the cluster any more that it made ({0})")]
    ClusterLost(String),
}

/// The cluster that a `ClusterAccess` is for, where `found` is the `ManagedCluster` of the name that it has: beside that name what it stands
/// for, if that is known; and what is known of the `ManagedCluster`.
pub fn resolve(
    cluster: &ClusterSource,
    status: &ClusterAccessStatus,
    found: Option<FoundCluster<'_>>,
) -> (ClusterSource, ManagedFact) {
    let Some(named) = &cluster.managed_cluster else { return (cluster.clone(), ManagedFact::NotNamed) };
    let name = named.name.as_str();
    match (&status.managed_cluster, found) {
        (Some(known), Some(found)) if known.uid == found.uid => {
            let fact = if found.deleting { ManagedFact::Deleting } else { ManagedFact::Stays };
            (stands_for(cluster, name, known), fact)
        }
        // Another one of its name has another cluster.
        (Some(known), _) => (stands_for(cluster, name, known), ManagedFact::Gone),
        (None, found) => match ready(found) {
            Ok(ready) => (stands_for(cluster, name, &ready), ManagedFact::Ready(ready)),
            Err(cause) => {
                let why = ManagedClusterNotReady { name: name.to_owned(), cause };
                (cluster.clone(), ManagedFact::Waits(why))
            }
        },
    }
}

/// What is written into status of one whose cluster was ready, which has its name; or why it is waited for.
fn ready(found: Option<FoundCluster<'_>>) -> Result<NamedCluster, NotReadyCause> {
    let found = found.ok_or(NotReadyCause::Missing)?;
    if found.deleting {
        return Err(NotReadyCause::Deleting);
    }
    let spec = found.spec.ok_or(NotReadyCause::NotUnderstood)?;
    if found.status.created.is_none() {
        return Err(found.status.state.map_or(NotReadyCause::NotObserved, NotReadyCause::State));
    }
    let lost = [Reason::ClusterGone, Reason::ClusterNotOurs, Reason::TargetChanged];
    if let Some(error) = &found.status.last_error
        && lost.iter().any(|reason| reason.as_str() == error.reason)
    {
        return Err(NotReadyCause::ClusterLost(error.reason.clone()));
    }
    let provider = spec.provider.gardener.as_ref().map(|shoot| shoot.cluster_provider.clone());
    Ok(NamedCluster { uid: found.uid.to_owned(), provider })
}

fn stands_for(cluster: &ClusterSource, name: &str, known: &NamedCluster) -> ClusterSource {
    let name = name.to_owned();
    match known.provider.clone() {
        Some(provider) => {
            let gardener = Some(GardenerShoot { provider, shoot: name });
            ClusterSource { gardener, ..cluster.clone() }
        }
        None => ClusterSource { cluster_api: Some(CapiCluster { name }), ..cluster.clone() },
    }
}

/// Whether status still says that its issuer is not one for the cluster of its `ManagedCluster`, and that is not so any more: another one of its
/// name may have another provider.
pub(crate) fn is_no_longer_refused(observed: &AccessObservation) -> bool {
    let is_so = match &observed.managed {
        ManagedFact::Waits(_) => false,
        ManagedFact::Ready(ready) => is_without_issuer(observed, ready),
        ManagedFact::NotNamed | ManagedFact::Stays | ManagedFact::Deleting | ManagedFact::Gone => true,
    };
    let error = observed.status.last_error.as_ref();
    !is_so && error.is_some_and(|error| error.reason == Reason::InvalidSpec.as_str())
}

/// Whether it issues nothing and never has, and status still says what was refused to the spec before.
fn asks_for_nothing(observed: &AccessObservation) -> bool {
    let error = observed.status.last_error.as_ref();
    observed.spec.suspend
        && observed.status.sequence == 0
        && error.is_some_and(|error| !is_of_this_spec(observed, error))
}

/// Whether its provider is not Gardener, and its issuer is.
fn is_without_issuer(observed: &AccessObservation, ready: &NamedCluster) -> bool {
    ready.provider.is_none() && observed.spec.issuer.is_of_garden()
}

/// What comes before anything is done for one that names a `ManagedCluster`: that was ready, and its provider has the issuer.
pub(crate) fn not_ready(observed: &AccessObservation, now: Timestamp) -> Option<AccessStep> {
    if is_no_longer_refused(observed) || asks_for_nothing(observed) {
        let status = ClusterAccessStatus { last_error: None, ..observed.status.clone() };
        return Some(save(complete(observed, status, now)));
    }
    match &observed.managed {
        ManagedFact::Waits(_) => Some(steady(observed, now)),
        ManagedFact::Ready(ready) if is_without_issuer(observed, ready) => {
            let message = "spec.issuer: write TokenRequest or ClientCertificate into a new ClusterAccess, since this ManagedCluster is made by Cluster API, \
                           and GardenerAdmin and GardenerViewer issue for Shoots alone";
            Some(save(failed(observed, Reason::InvalidSpec, message, now)))
        }
        _ => None,
    }
}

/// Status says which `ManagedCluster` it is for before anything is issued.
pub(crate) fn names_cluster(observed: &AccessObservation, now: Timestamp) -> Option<AccessStep> {
    let ManagedFact::Ready(ready) = &observed.managed else { return None };
    let status = ClusterAccessStatus { managed_cluster: Some(ready.clone()), ..observed.status.clone() };
    Some(save(complete(observed, status, now)))
}

/// What comes before anything is issued for a cluster that is made by Cluster API or by a `ManagedCluster`: nobody needs a credential of one
/// that is about to go. What was issued for it is left alone, since it may be needed until the very end.
pub(crate) fn cluster_goes(observed: &AccessObservation, now: Timestamp) -> Option<AccessStep> {
    let (cluster, secret) = (&observed.spec.cluster, &observed.spec.output.secret);
    let managed = cluster.managed_cluster.as_ref().map(|named| format!("ManagedCluster {}", named.name));
    let (what, is) = match (&observed.managed, managed) {
        // A cache may lack what is there.
        (ManagedFact::Gone, _) if observed.cluster == ClusterFact::Unread => {
            return Some(AccessStep::ReadCluster);
        }
        (ManagedFact::Deleting, Some(managed)) => (managed, "is being deleted"),
        (ManagedFact::Gone, Some(managed)) => (managed, "is gone"),
        _ => {
            let cluster = cluster.cluster_api.as_ref()?;
            let is = match observed.cluster {
                ClusterFact::Unread => return Some(AccessStep::ReadCluster),
                ClusterFact::Stays => return None,
                ClusterFact::Deleting => "is being deleted",
                ClusterFact::Gone => "is gone",
            };
            (format!("Cluster {}", cluster.name), is)
        }
    };
    let message = format!(
        "the {what} {is}: no credential is issued for it any more, and what the Secret {secret} holds is valid until it expires: delete this \
         ClusterAccess"
    );
    Some(save(failed(observed, Reason::ClusterDeleted, &message, now)))
}

#[cfg(test)]
#[path = "source_tests.rs"]
mod tests;
