//! What was observed, as plain data: three-valued, with its age.

use std::sync::{Arc, OnceLock};

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
        /// Why: `NotSynced`, `Stale`, `Forbidden`, `Undecodable` or `TooLarge`.
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
    owners: OnceLock<Owners>,
}

impl<'a> World<'a> {
    /// What is known of a namespace.
    pub const fn new(
        namespace: &'a NamespaceFacts,
        pods: Fact<Many<'a, PodFacts>>,
        jobs: Fact<Many<'a, JobFacts>>,
    ) -> Self {
        Self { namespace, pods, jobs, owners: OnceLock::new() }
    }

    /// Which Job each of these pods has: found once, when the first policy asks.
    pub(crate) fn owners(&self, pods: Many<'_, PodFacts>, jobs: Many<'_, JobFacts>) -> &Owners {
        self.owners.get_or_init(|| Owners::of(pods, jobs))
    }
}

/// Which of the Jobs each pod has, by position. A search for each pod and each policy would let one tenant occupy the
/// operator with some thousands of each. Nothing is allocated where no pod has a Job.
#[derive(Clone, Debug, Default)]
pub(crate) struct Owners {
    of_pod: Vec<Option<usize>>,
    succeeded: Vec<u64>,
}

impl Owners {
    fn of(pods: Many<'_, PodFacts>, jobs: Many<'_, JobFacts>) -> Self {
        if pods.iter().all(|pod| pod.job.is_none()) {
            return Self::default();
        }
        let mut by_uid: Vec<(&str, usize)> =
            jobs.iter().enumerate().map(|(at, job)| (&*job.uid, at)).collect();
        by_uid.sort_unstable_by(|a, b| {
            work::done();
            a.cmp(b)
        });
        let job_of = |pod: &PodFacts| {
            let uid = pod.job.as_deref()?;
            let first = by_uid.partition_point(|(other, _)| {
                work::done();
                *other < uid
            });
            by_uid.get(first).filter(|(other, _)| *other == uid).map(|(_, at)| *at)
        };
        let of_pod: Vec<_> = pods.iter().map(job_of).collect();
        let mut succeeded = vec![0; by_uid.len()];
        for (pod, job) in pods.iter().zip(&of_pod) {
            if let Some(at) = job.filter(|_| pod.phase == PodPhase::Succeeded && !pod.terminating) {
                succeeded[at] += 1;
            }
        }
        Self { of_pod, succeeded }
    }

    /// The position of the Job of the n-th pod, if it is among them.
    pub(crate) fn job_of(&self, pod: usize) -> Option<usize> {
        self.of_pod.get(pod).copied().flatten()
    }

    /// How many pods of the n-th Job are there and have succeeded.
    pub(crate) fn succeeded(&self, job: usize) -> u64 {
        self.succeeded.get(job).copied().unwrap_or(0)
    }
}

/// Counts what tests limit: objects looked at, and uids compared.
pub(crate) mod work {
    #[cfg(test)]
    thread_local!(static DONE: std::cell::Cell<u64> = const { std::cell::Cell::new(0) });

    pub(crate) fn done() {
        #[cfg(test)]
        DONE.with(|done| done.set(done.get() + 1));
    }

    /// How much has been done since this was asked last.
    #[cfg(test)]
    pub(crate) fn take() -> u64 {
        DONE.with(|done| done.replace(0))
    }
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
        plain.iter().chain(shared.iter().map(AsRef::as_ref)).inspect(|_| work::done())
    }

    /// The n-th of them.
    pub fn get(self, n: usize) -> Option<&'a T> {
        match self {
            Self::Plain(plain) => plain.get(n),
            Self::Shared(shared) => shared.get(n).map(AsRef::as_ref),
        }
    }
}
