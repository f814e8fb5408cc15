//! What was observed, as plain data: three-valued, with its age.

use std::sync::Arc;

use coppice_api::{Labels, Reason};
use jiff::Timestamp;

/// Something observed, or the reason why it is not known. Unknown is never a verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fact<T> {
    /// It was observed.
    Known {
        /// What was observed.
        value: T,
        /// Since when the source has been followed without a gap: nothing that happened after this was missed.
        since: Timestamp,
    },
    /// It was not, or not recently enough.
    Unknown {
        /// Why: `NotSynced`, `Stale` or `Forbidden`.
        reason: Reason,
        /// The same for people.
        message: String,
    },
}

/// A namespace, as far as deciding needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceFacts {
    /// Its name.
    pub name: String,
    /// Its uid: a namespace of the same name with another uid is another namespace.
    pub uid: String,
    /// The revision that was observed; the precondition of a deletion.
    pub resource_version: String,
    /// When it was created, by the API server's clock, cut to a second.
    pub created: Timestamp,
    /// Its labels.
    pub labels: Labels,
    /// Whether it is being deleted.
    pub terminating: bool,
}

/// A pod, as far as deciding needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodFacts {
    /// Its name.
    pub name: Box<str>,
    /// Its labels.
    pub labels: Labels,
    /// Its phase.
    pub phase: PodPhase,
    /// Whether it is being deleted.
    pub terminating: bool,
    /// The uid of the Job that controls it.
    pub job: Option<Box<str>>,
}

/// A pod's phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodPhase {
    /// Not all containers have started, or no phase was reported yet.
    Pending,
    /// At least one container runs.
    Running,
    /// All containers ended with success and will not be restarted.
    Succeeded,
    /// All containers ended, at least one in failure.
    Failed,
    /// The node could not be asked.
    Unknown,
}

impl PodPhase {
    /// Reads the phase of a pod's status. Anything else than the four known phases is unknown.
    pub fn parse(text: Option<&str>) -> Self {
        match text {
            None | Some("" | "Pending") => Self::Pending,
            Some("Running") => Self::Running,
            Some("Succeeded") => Self::Succeeded,
            Some("Failed") => Self::Failed,
            Some(_) => Self::Unknown,
        }
    }

    /// The phase as Kubernetes writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Running => "Running",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
            Self::Unknown => "Unknown",
        }
    }
}

/// A Job, as far as deciding needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobFacts {
    /// Its name.
    pub name: Box<str>,
    /// Its uid, to which its pods refer.
    pub uid: Box<str>,
    /// The labels that its pods get.
    pub pod_labels: Labels,
    /// Whether it is over.
    pub state: JobState,
    /// How many of its pods have succeeded, also those that are gone.
    pub succeeded: u32,
    /// Whether it is being deleted.
    pub terminating: bool,
}

/// Whether a Job is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobState {
    /// It has neither completed nor failed; it may be suspended.
    Unfinished,
    /// It has its condition `Complete`.
    Complete,
    /// It has its condition `Failed`.
    Failed,
}

/// Everything that the conditions of a manager look at.
#[derive(Clone, Debug)]
pub struct World<'a> {
    /// The namespace.
    pub namespace: &'a NamespaceFacts,
    /// Its pods.
    pub pods: Fact<Many<'a, PodFacts>>,
    /// Its Jobs.
    pub jobs: Fact<Many<'a, JobFacts>>,
}

/// Objects of one kind, borrowed from wherever they are kept, so that a decision copies nothing.
#[derive(Debug)]
pub enum Many<'a, T> {
    /// One after the other.
    Plain(&'a [T]),
    /// Shared with a cache.
    Shared(&'a [Arc<T>]),
}

// Derived, they would ask the same of T.
impl<T> Clone for Many<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Many<'_, T> {}

impl<'a, T> Many<'a, T> {
    /// Nothing.
    pub const NONE: Self = Self::Plain(&[]);

    /// Each of them, in their order.
    pub fn iter(self) -> impl Iterator<Item = &'a T> {
        let (plain, shared): (&[T], &[Arc<T>]) = match self {
            Self::Plain(plain) => (plain, &[]),
            Self::Shared(shared) => (&[], shared),
        };
        plain.iter().chain(shared.iter().map(AsRef::as_ref))
    }
}
