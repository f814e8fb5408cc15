//! What was observed, as plain data: three-valued, with its age.

use std::sync::{Arc, OnceLock};

use coppice_api::{Labels, Reason};
use jiff::Timestamp;

pub use crate::annotations::{AnnotationKeys, AnnotationNotRead, Annotations};
use crate::health::facts::{JobHealth, PodHealth};

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
        /// The message.
        message: String,
    },
}

/// The fields of a namespace that decisions need.
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
    /// Its annotations, as far as they were read.
    pub annotations: Annotations,
    /// Whether it is being deleted.
    pub terminating: bool,
}

/// The fields of a pod that decisions need.
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
    /// What its health depends on; none of a pod that is well.
    pub health: Option<Box<PodHealth>>,
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
    /// The node does not report the state of the pod.
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

/// The fields of a Job that decisions need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobFacts {
    /// Its name.
    pub name: Box<str>,
    /// Its uid, to which its pods refer.
    pub uid: Box<str>,
    /// The labels that its pods get.
    pub pod_labels: Labels,
    /// Whether it has finished.
    pub state: JobState,
    /// How many of its pods have succeeded, also those that are gone.
    pub succeeded: u32,
    /// Whether it is being deleted.
    pub terminating: bool,
    /// What its health depends on; none of one that is complete and that no CronJob has created.
    pub health: Option<Box<JobHealth>>,
}

/// Whether a Job has finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobState {
    /// It has neither completed nor failed; it may be suspended.
    Unfinished,
    /// It has its condition `Complete`.
    Complete,
    /// It has its condition `Failed`.
    Failed,
}

/// The facts that the conditions of a manager evaluate.
#[derive(Clone, Debug)]
pub struct NamespaceSnapshot<'a> {
    /// The namespace.
    pub namespace: &'a NamespaceFacts,
    /// Its pods.
    pub pods: Fact<ObjectSlice<'a, PodFacts>>,
    /// Its Jobs.
    pub jobs: Fact<ObjectSlice<'a, JobFacts>>,
    job_index: OnceLock<JobIndex>,
}

impl<'a> NamespaceSnapshot<'a> {
    /// What is known of a namespace.
    pub const fn new(
        namespace: &'a NamespaceFacts,
        pods: Fact<ObjectSlice<'a, PodFacts>>,
        jobs: Fact<ObjectSlice<'a, JobFacts>>,
    ) -> Self {
        Self { namespace, pods, jobs, job_index: OnceLock::new() }
    }

    /// The Job of each of these pods: computed once, for the first policy that needs it.
    pub(crate) fn job_index(
        &self,
        pods: ObjectSlice<'_, PodFacts>,
        jobs: ObjectSlice<'_, JobFacts>,
    ) -> &JobIndex {
        self.job_index.get_or_init(|| JobIndex::of(pods, jobs))
    }
}

/// Which of the Jobs each pod has, by position. A search for each pod and each policy would let one tenant occupy the
/// operator with some thousands of each. Nothing is allocated where no pod has a Job.
#[derive(Clone, Debug, Default)]
pub(crate) struct JobIndex {
    of_pod: Vec<Option<usize>>,
    succeeded: Vec<u64>,
}

impl JobIndex {
    fn of(pods: ObjectSlice<'_, PodFacts>, jobs: ObjectSlice<'_, JobFacts>) -> Self {
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

/// Counts objects read and uids compared, for tests that limit them.
pub(crate) mod work {
    #[cfg(test)]
    thread_local!(static DONE: std::cell::Cell<u64> = const { std::cell::Cell::new(0) });

    pub(crate) fn done() {
        #[cfg(test)]
        DONE.with(|done| done.set(done.get() + 1));
    }

    /// The count since the last call.
    #[cfg(test)]
    pub(crate) fn take() -> u64 {
        DONE.with(|done| done.replace(0))
    }
}

/// Objects of one kind, borrowed from wherever they are kept, so that a decision copies nothing.
#[derive(Debug)]
pub enum ObjectSlice<'a, T> {
    /// One after the other.
    Slice(&'a [T]),
    /// Shared with a cache.
    Shared(&'a [Arc<T>]),
}

// Derives would require the same of T.
impl<T> Clone for ObjectSlice<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for ObjectSlice<'_, T> {}

impl<'a, T> ObjectSlice<'a, T> {
    /// Nothing.
    pub const EMPTY: Self = Self::Slice(&[]);

    /// Each of them, in their order.
    pub fn iter(self) -> impl Iterator<Item = &'a T> {
        let (plain, shared): (&[T], &[Arc<T>]) = match self {
            Self::Slice(plain) => (plain, &[]),
            Self::Shared(shared) => (&[], shared),
        };
        plain.iter().chain(shared.iter().map(AsRef::as_ref)).inspect(|_| work::done())
    }

    /// The n-th of them.
    pub fn get(self, n: usize) -> Option<&'a T> {
        match self {
            Self::Slice(plain) => plain.get(n),
            Self::Shared(shared) => shared.get(n).map(AsRef::as_ref),
        }
    }
}
