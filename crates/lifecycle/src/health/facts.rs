//! The fields of workloads that their health depends on.

use jiff::Timestamp;

use crate::facts::{JobFacts, ObjectSlice, PodFacts};

/// Everything in a namespace that can fail.
#[derive(Clone, Copy, Debug)]
pub struct Workloads<'a> {
    /// Its Deployments.
    pub deployments: ObjectSlice<'a, WorkloadFacts>,
    /// Its `ReplicaSet`s.
    pub replica_sets: ObjectSlice<'a, WorkloadFacts>,
    /// Its `StatefulSet`s.
    pub stateful_sets: ObjectSlice<'a, WorkloadFacts>,
    /// Its `DaemonSet`s.
    pub daemon_sets: ObjectSlice<'a, WorkloadFacts>,
    /// Its Jobs.
    pub jobs: ObjectSlice<'a, JobFacts>,
    /// Its pods.
    pub pods: ObjectSlice<'a, PodFacts>,
    /// Its `PersistentVolumeClaim`s that are not bound.
    pub claims: ObjectSlice<'a, ClaimFacts>,
}

impl Workloads<'_> {
    /// Nothing at all.
    pub const EMPTY: Self = Self {
        deployments: ObjectSlice::EMPTY,
        replica_sets: ObjectSlice::EMPTY,
        stateful_sets: ObjectSlice::EMPTY,
        daemon_sets: ObjectSlice::EMPTY,
        jobs: ObjectSlice::EMPTY,
        pods: ObjectSlice::EMPTY,
        claims: ObjectSlice::EMPTY,
    };
}

/// The controller of an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ControllerRef {
    /// The API group of its kind.
    pub group: Box<str>,
    /// Its kind.
    pub kind: Box<str>,
    /// Its name.
    pub name: Box<str>,
}

impl ControllerRef {
    /// Whether it is of this kind. Other groups may have kinds of that name, too.
    pub fn is(&self, group: &str, kind: &str) -> bool {
        &*self.group == group && &*self.kind == kind
    }
}

/// What a status says about a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailureReport {
    /// Since when.
    pub since: Timestamp,
    /// The reason, as Kubernetes writes it.
    pub reason: Box<str>,
    /// The message, shortened.
    pub message: Box<str>,
}

/// A workload that asks for a number of pods: a `Deployment`, `ReplicaSet`, `StatefulSet` or `DaemonSet`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkloadFacts {
    /// Its name.
    pub name: Box<str>,
    /// When it was created.
    pub created_at: Timestamp,
    /// What controls it, if anything.
    pub owner: Option<ControllerRef>,
    /// Whether it has fewer pods than its spec asks for, and those are ready: one that waits for a pod is not short of them.
    pub short: bool,
    /// Why its pods are not created, if its status says so.
    pub refused: Option<FailureReport>,
    /// How its roll-out is; only of a Deployment.
    pub rollout: Rollout,
}

/// How the roll-out of a Deployment is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rollout {
    /// It has ended, or the kind has no deadlines.
    Ended,
    /// It is under way, within its own deadline or without any.
    UnderWay,
    /// It has not gone on within its deadline, or cannot begin.
    Stopped(FailureReport),
}

/// What the health of a Job depends on, besides its [state](crate::facts::JobState).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobHealth {
    /// When it was created.
    pub created_at: Timestamp,
    /// The `CronJob`, or whatever controls it, if anything.
    pub owner: Option<ControllerRef>,
    /// Whether it is to run and has no pod.
    pub short: bool,
    /// Why it has failed, if so.
    pub failed: Option<FailureReport>,
}

/// What the health of a pod depends on, of pods that may not be well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodHealth {
    /// What controls it, if anything.
    pub owner: Option<ControllerRef>,
    /// Whether it is ready.
    pub readiness: PodReadiness,
    /// Why no node can take it, if so.
    pub unschedulable: Option<FailureReport>,
    /// Whether it is not to be scheduled yet: something holds it back on purpose.
    pub gated: bool,
    /// Why it has failed, if its status says so.
    pub failed: Option<FailureReport>,
    /// Its containers that do not simply run, init containers included.
    pub containers: Vec<ContainerFacts>,
    /// The claims that it uses; only of a pod that no node can take.
    pub claims: Vec<Box<str>>,
}

/// Whether a pod is ready, as far as its node says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodReadiness {
    /// It is.
    Ready,
    /// It is not.
    NotReady {
        /// Since when.
        since: Timestamp,
    },
    /// Nobody says: it neither counts as ready nor fails for it.
    Unknown,
}

impl PodReadiness {
    /// Since when it is not ready, if that is known.
    pub const fn not_ready_since(self) -> Option<Timestamp> {
        match self {
            Self::NotReady { since } => Some(since),
            Self::Ready | Self::Unknown => None,
        }
    }
}

/// A container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerFacts {
    /// Its name.
    pub name: Box<str>,
    /// Whether it has started more than twice.
    pub restarts: bool,
    /// What it does now.
    pub state: ContainerState,
    /// How its run before this one ended, if there was one.
    pub last: Option<Termination>,
}

/// What a container does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContainerState {
    /// It waits.
    Waiting {
        /// What for, as Kubernetes writes it.
        reason: Box<str>,
        /// The message, shortened; empty where it changes all the time.
        message: Box<str>,
    },
    /// It runs.
    Running {
        /// Since when.
        since: Timestamp,
        /// Whether its startup probe has not succeeded yet.
        starting: bool,
    },
    /// It has ended.
    Ended(Termination),
}

/// How a run of a container ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Termination {
    /// Its exit code: zero for success.
    pub exit_code: i32,
    /// The reason, as Kubernetes writes it.
    pub reason: Box<str>,
    /// What it wrote about that (`terminationMessagePath`), in one line and shortened; empty of one that ended with success.
    pub message: Box<str>,
}

/// A `PersistentVolumeClaim` that is not bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimFacts {
    /// Its name.
    pub name: Box<str>,
    /// When it was created.
    pub created_at: Timestamp,
    /// Whether its volume is lost; otherwise it waits for one.
    pub lost: bool,
}
