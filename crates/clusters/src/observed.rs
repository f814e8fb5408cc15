//! What a decision rests on.

use coppice_clusters_api::{
    ClusterAccessSpec, ClusterAccessStatus, NamedCluster, OutputRevision, TargetIdentity,
};
use jiff::{SignedDuration, Timestamp};

use crate::budget::Turn;
use crate::provider::{GrantVerdict, Permission};
use crate::source::ManagedClusterNotReady;

/// A `ClusterAccess` as it was read, and what is known around it.
#[derive(Clone, Debug)]
pub struct AccessObservation {
    /// Its uid.
    pub uid: String,
    /// The generation of its spec.
    pub generation: i64,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// Whether our finalizer keeps it.
    pub has_finalizer: bool,
    /// Its spec; beside the name of a `ManagedCluster` what that stands for, if that is [known](crate::resolve).
    pub spec: ClusterAccessSpec,
    /// Its status.
    pub status: ClusterAccessStatus,
    /// The kubeconfig that its spec names.
    pub kubeconfig: KubeconfigFact,
    /// The `ManagedCluster` that its spec names.
    pub managed: ManagedFact,
    /// The `Cluster` that its spec names.
    pub cluster: ClusterFact,
    /// What the `ClusterProvider` allows that its spec names.
    pub permission: Permission,
    /// What that says of what the target has by now.
    pub grant: GrantVerdict,
    /// Whether the budget of that has a call left; without one, whether others go first in the target.
    pub turn: Turn,
    /// For how long at least that has it tried to revoke what was issued.
    pub min_forget_after: Option<SignedDuration>,
    /// Whether its rights only take away from those that the target has.
    pub narrows: bool,
    /// The cluster that answered to it in this reconcile; none if that was not asked yet.
    pub target: Option<TargetIdentity>,
    /// The user of the certificate that the Secret holds, where Gardener chooses that; none if it was not read.
    pub user_name: Option<String>,
    /// The Secret that its spec names.
    pub output: OutputFact,
    /// What was done since the reconcile began, and is forgotten when the program ends.
    pub progress: Progress,
}

/// What is known of the kubeconfig of the target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum KubeconfigFact {
    /// This replica has not read it yet, or not for long, or it has changed since.
    #[default]
    Unread,
    /// It is for this [endpoint](TargetIdentity::endpoint).
    Endpoint(String),
    /// It is that of a garden: where the Shoot is, is known once something is done there.
    OfGarden,
    /// There is none, or it is not used: why, whoever needs it finds out.
    Unusable,
}

/// What is known of the `ManagedCluster` that makes the target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ManagedFact {
    /// It names none.
    #[default]
    NotNamed,
    /// Nothing was done for it yet, and its cluster was not ready: what is waited for.
    Waits(ManagedClusterNotReady),
    /// Nothing was done for it yet, and its cluster was ready: status is to say this first.
    Ready(NamedCluster),
    /// The one that status names is there and not being deleted.
    Stays,
    /// It is being deleted.
    Deleting,
    /// It is gone, or there is another one of its name.
    Gone,
}

/// What is known of the `Cluster` of Cluster API that the target is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClusterFact {
    /// In this reconcile nobody has looked yet.
    #[default]
    Unread,
    /// It is there and not being deleted, or this API server does not have the kind.
    Stays,
    /// It is being deleted.
    Deleting,
    /// It is gone.
    Gone,
}

/// What is known of the output: the tenant's Secret that the kubeconfig is written into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutputFact {
    /// What the watch of Secrets with our label says: the uid and the revision of ours, if there is one. The watch may lag.
    Watched(Option<(String, String)>),
    /// What the API server has answered: there is none.
    Absent,
    /// There is one that was not made for this `ClusterAccess`.
    Foreign,
    /// There is ours.
    Ours(OutputSecret),
}

/// Our Secret, as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputSecret {
    /// Its revision, and the digest of its value.
    pub revision: OutputRevision,
    /// The credential that its annotations name.
    pub credential: Option<String>,
    /// From when until when that is valid, as its annotations say.
    pub validity: Option<Validity>,
    /// Why nothing can be written into it, if so.
    pub obstacle: Option<Obstacle>,
}

/// Why nothing can be written into a Secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// It is immutable.
    Immutable,
    /// It has another type than Opaque, which cannot be changed.
    OtherType,
}

/// From when until when a credential is valid, as the target granted it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// From when.
    pub not_before: Timestamp,
    /// Until when.
    pub not_after: Timestamp,
}

/// How far a reconcile has come, in memory alone: after a crash everything is begun again from what is durable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Progress {
    /// Nothing was done yet.
    #[default]
    Nothing,
    /// Whether the target has the service account of this `ClusterAccess`, where status does not say which target it has.
    AccountFound(bool),
    /// The target has the service account, the role and the bindings of this generation of the spec.
    RightsApplied,
    /// A credential is being issued: which, and how far. Of another one it says nothing.
    Issuing(String, IssueProgress),
    /// Of a deletion: nothing that was issued is valid any more.
    AllRevoked,
    /// Of a deletion: the target has nothing of this `ClusterAccess` any more.
    RightsRemoved,
}

/// How far a credential has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IssueProgress {
    /// The target has what it is issued from, made just now: a token that was bound to a Secret of that name before is not valid any
    /// more.
    Requested,
    /// It was issued.
    Issued(Validity),
    /// It was tried out, and is to be written as a value with this digest.
    Verified(Validity, String),
    /// What the Secret holds of it was tried out, and is valid. It was written with this [endpoint](TargetIdentity::endpoint); if that is
    /// not the target's any more, it was not tried out.
    Proven(String),
    /// What the Secret holds of it is not valid.
    Disproven,
    /// The same, and the target has the rights since.
    Prepared,
}

impl Progress {
    /// The same, and the target has the service account, the role and the bindings.
    #[must_use]
    pub fn with_rights(self) -> Self {
        match self {
            Self::Issuing(credential, IssueProgress::Disproven | IssueProgress::Prepared) => {
                Self::Issuing(credential, IssueProgress::Prepared)
            }
            _ => Self::RightsApplied,
        }
    }

    /// How far this credential has come.
    pub(crate) fn of(&self, credential: &str) -> Option<&IssueProgress> {
        match self {
            Self::Issuing(of, progress) if of == credential => Some(progress),
            _ => None,
        }
    }
}
