//! The steps of a `ClusterAccess`.

use coppice_clusters_api::{ClusterAccessStatus, OutputRevision};
use jiff::Timestamp;

use super::is_applied;
use crate::observed::{AccessObservation, Validity};

/// What is done next.
#[derive(Clone, Debug, PartialEq)]
pub enum AccessStep {
    /// Nothing until then; without a date, until something changes.
    Wait(Option<Timestamp>),
    /// Put our finalizer on it: nothing is issued that nobody would revoke.
    AddFinalizer,
    /// Save this status.
    SaveStatus(Box<ClusterAccessStatus>),
    /// Read the kubeconfig of the target, and keep it in memory.
    ReadKubeconfig,
    /// Read the Secret from the API server.
    ReadOutput,
    /// Look whether the `Cluster` of Cluster API stays, and the `ManagedCluster` that the cache does not have.
    ReadCluster,
    /// Look what the `ClusterProvider` allows.
    ReadProvider,
    /// Ask its budget for a call; without one, whether others go first in the target.
    TakeTurn,
    /// Ask the target which cluster it is.
    Identify,
    /// Ask the target whether it has the service account of this `ClusterAccess`.
    FindAccount,
    /// Ask the target which rights this `ClusterAccess` has there.
    FindRights,
    /// Remove its roles and bindings in the target. The service account stays, and with it the credential, without any right.
    TakeRights,
    /// Apply the service account, the role and the bindings in the target, and remove those that it is not to have any more.
    ApplyRights,
    /// Make in the target what the credential is issued from: of a token the Secret that it will be bound to, of a certificate the signing
    /// request, with another key. One of that name is deleted first.
    Request {
        /// The credential.
        credential: String,
    },
    /// Have it issued from that.
    Issue {
        /// The credential.
        credential: String,
    },
    /// Try it out.
    Verify {
        /// The credential.
        credential: String,
    },
    /// Write the kubeconfig into the Secret, in one request, on the revision that was read; without one it is created.
    WriteOutput {
        /// The credential.
        credential: String,
        /// From when until when it is valid.
        validity: Validity,
        /// The revision.
        on: Option<OutputRevision>,
    },
    /// Try out what the Secret holds.
    VerifyWritten {
        /// The credential that it is to be.
        credential: String,
    },
    /// Try out again what the Secret holds, by that alone. It is read first.
    TryOutAgain,
    /// Delete the Secret in the target that a superseded credential is bound to.
    Revoke {
        /// The credential.
        credential: String,
    },
    /// Delete everything that a credential of this `ClusterAccess` is issued from: no token is valid then.
    RevokeAll,
    /// Delete its bindings, its role and its service account in the target.
    RemoveRights,
    /// Delete the Secret with the kubeconfig, as it was read.
    DeleteOutput(OutputRevision),
    /// Take our finalizer off.
    RemoveFinalizer {
        /// Whether nothing was revoked, since the target could not be reached for too long.
        skipped: bool,
    },
}

impl AccessStep {
    /// Whether a reconcile that begins with it goes on in the target, and so waits for a place there. What is done here alone, such as
    /// a status that is saved, waits for none.
    pub fn waits_for_place(&self, observed: &AccessObservation) -> bool {
        match self {
            Self::Identify | Self::TryOutAgain | Self::TakeTurn => true,
            // It is read to issue a credential, and would be read again each time that there is no place.
            Self::ReadOutput => observed.status.intent.is_some() && !observed.deleting,
            // It is read to apply other rights.
            Self::ReadProvider => observed.status.sequence > 0 && !is_applied(observed),
            step => step.is_in_target(),
        }
    }

    /// Whether a reconcile that begins with it goes on with what waits for the budget of its provider, or for those that go first in its target.
    /// All else is done before that.
    pub fn waits_for_turn(&self, observed: &AccessObservation) -> bool {
        match self {
            Self::TakeTurn => true,
            // That is how the issue of a credential begins.
            Self::ReadOutput => observed.status.intent.is_some() && !observed.deleting,
            // And a change of rights.
            Self::ReadProvider => observed.status.sequence > 0 && !is_applied(observed) && !observed.narrows,
            _ => false,
        }
    }

    /// Whether it is done in the target, or says something about it.
    pub(super) const fn is_in_target(&self) -> bool {
        matches!(
            self,
            Self::FindAccount
                | Self::FindRights
                | Self::TakeRights
                | Self::ApplyRights
                | Self::Request { .. }
                | Self::Issue { .. }
                | Self::Verify { .. }
                | Self::VerifyWritten { .. }
                | Self::Revoke { .. }
                | Self::RevokeAll
                | Self::RemoveRights
        )
    }
}
