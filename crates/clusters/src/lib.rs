//! Decisions about other clusters and credentials for them: what is done next for a `ClusterAccess`, as which objects its rights are written
//! into the target, which certificates and which kubeconfigs are used, and by what a credential is tried out; and for a `ManagedCluster`
//! ([`managed`]).
//!
//! The *output* of a `ClusterAccess` is the tenant's Secret, named by `spec.output`, that the kubeconfig with the credential is written into.
//! The *target* is the other cluster, which issues the credential.
//!
//! Pure: no client, no clock. A controller in `coppice-access` observes, asks [`plan`](plan::plan), and carries out the one step.

mod budget;
pub mod certificate;
pub mod kubeconfig;
pub mod kyma;
pub mod largest;
pub mod managed;
mod narrowing;
pub mod observed;
pub mod plan;
pub mod probe;
mod provider;
mod recheck;
mod revocation;
pub mod rights;
pub mod rotation;
mod source;
mod status;
mod withdrawal;

pub use budget::{Budget, Turn, Urgency, urgency};
pub use narrowing::narrows;
pub use observed::{
    AccessObservation, ClusterFact, IssueProgress, KubeconfigFact, ManagedFact, Obstacle, OutputFact,
    OutputSecret, Progress, Validity,
};
pub use plan::{AccessStep, plan};
pub use provider::{
    GrantVerdict, Permission, Usage, grant_verdict, needs_labels, permission, provider_status, valid_until,
};
pub use recheck::tried_out_again;
pub use rotation::revocation_deadline;
pub use source::{FoundCluster, ManagedClusterNotReady, NotReadyCause, resolve};
pub use status::{adopted, failed, revoked, rights_applied};
pub use withdrawal::rights_taken;
