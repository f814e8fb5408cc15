//! Several namespaces under one cluster manager, which are counted, compared and planned together.
#![allow(
    dead_code,
    unused_imports,
    clippy::unwrap_used,
    clippy::panic,
    missing_docs,
    reason = "a test that cannot go on has failed; each uses a part"
)]

use std::collections::BTreeMap;

use coppice_api::config::{CoppiceConfigSpec, GovernorStatus};
use coppice_api::{Labels, ManagedNamespaceSpec, ManagedNamespaceStatus, NamespacePhase, Reason};
use coppice_lifecycle::PlatformSettings;
use coppice_lifecycle::cluster::census::{Census, Counted, Counts, census};
use coppice_lifecycle::cluster::recreated::Recreated;
use coppice_lifecycle::cluster::{
    ClusterManagerFacts, ClusterObserved, HealthFacts, NamespacePlan, NamespaceStep, RecordFacts,
    SuccessorFacts, ValidClusterManager, plan,
};
use coppice_lifecycle::facts::{
    AnnotationKeys, Annotations, Fact, NamespaceFacts, ObjectSlice, PodFacts, PodPhase,
};
use coppice_lifecycle::health::Workloads;
use coppice_lifecycle::health::facts::{FailureReport, PodHealth, PodReadiness, Rollout, WorkloadFacts};
use coppice_lifecycle::plan::Delivery;
use coppice_lifecycle::record::{self, StepOutcome};
use coppice_quantity::time::ServerTime;
use jiff::{SignedDuration, Timestamp};

pub(crate) use super::web::web;

/// Ten seconds to settle; 100 until something that fails is `Failing`, 50 more until it is `Failed`; a notice of a minute.
pub(crate) const MANAGER: &str = "{mode: Enforce, selector: {names: ['ci-*']}, settle: 10s, \
    health: {settlingPeriod: 100s, gracePeriod: 50s, recoveryPeriod: 20s}, \
    identity: {project: project, environment: environment, pipeline: pipeline, run: run, branch: branch, commit: commit}, \
    policies: [{name: end, when: {phase: {in: [Superseded]}}, then: {delete: {notice: 60s}}}], \
    supersede: {by: [Branch, Commit]}}";

/// So many rounds settle everything.
const ROUNDS: usize = 20;

pub(crate) fn at(seconds: i64) -> Timestamp {
    "2026-03-01T12:00:00Z".parse::<Timestamp>().unwrap() + SignedDuration::from_secs(seconds)
}

/// A namespace that CI has made.
#[derive(Clone)]
#[allow(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(crate) struct Environment {
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) created: i64,
    pub(crate) record: Option<ManagedNamespaceStatus>,
    pub(crate) spec: ManagedNamespaceSpec,
    /// Whether its pod is ready; otherwise it is pending.
    pub(crate) ready: bool,
    /// Since when its pod runs without being ready, if it does.
    pub(crate) starts_since: Option<i64>,
    /// Whether its Deployment has stopped.
    pub(crate) fails: bool,
    /// Whether its workloads cannot be listed.
    pub(crate) unknown: bool,
    /// Whether its pod has succeeded.
    pub(crate) succeeded: bool,
    /// Whether it has no pod at all.
    pub(crate) empty: bool,
    /// Whether its record is being deleted.
    pub(crate) record_terminating: bool,
    pub(crate) terminating: bool,
    pub(crate) gone: bool,
}

impl Environment {
    pub(crate) fn new(labels: &[(&str, &str)]) -> Self {
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let (record, spec) = (None, ManagedNamespaceSpec::default());
        Self {
            labels,
            created: 0,
            record,
            spec,
            ready: false,
            starts_since: None,
            fails: false,
            unknown: false,
            succeeded: false,
            empty: false,
            record_terminating: false,
            terminating: false,
            gone: false,
        }
    }

    /// The same with this label, or without it if it is empty.
    pub(crate) fn with(mut self, key: &str, value: &str) -> Self {
        self.labels.remove(key);
        if !value.is_empty() {
            self.labels.insert(key.to_owned(), value.to_owned());
        }
        self
    }

    pub(crate) fn ready(self) -> Self {
        Self { ready: true, ..self }
    }

    fn facts(&self, name: &str) -> NamespaceFacts {
        NamespaceFacts {
            name: name.to_owned(),
            uid: format!("uid-{name}"),
            resource_version: "7".to_owned(),
            created: at(self.created),
            labels: self.labels.iter().map(|(key, value)| (&**key, &**value)).collect::<Labels>(),
            annotations: Annotations::of(&AnnotationKeys::All, [] as [(&str, &str); 0]),
            terminating: self.terminating,
        }
    }

    fn pod(&self) -> PodFacts {
        let phase = match (self.succeeded, self.ready || self.starts_since.is_some()) {
            (true, _) => PodPhase::Succeeded,
            (false, true) => PodPhase::Running,
            (false, false) => PodPhase::Pending,
        };
        let health = self.starts_since.map(|since| {
            Box::new(PodHealth {
                owner: None,
                readiness: PodReadiness::NotReady { since: at(since) },
                unschedulable: None,
                gated: false,
                failed: None,
                containers: Vec::new(),
                claims: Vec::new(),
            })
        });
        let (labels, job) = (Labels::default(), None);
        PodFacts { name: "web-1".into(), labels, phase, terminating: false, job, health }
    }
}

pub(crate) struct Fleet {
    manager: ValidClusterManager,
    generation: i64,
    all: BTreeMap<&'static str, Environment>,
    /// Whether the namespaces have been compared.
    pub(crate) compared: bool,
    /// Whether the successor's workloads are read again, and how: whether a pod of it is ready.
    pub(crate) read_again: Option<bool>,
    /// Whether deletions are carried out.
    pub(crate) carries_out: bool,
    /// What was deleted, in this order.
    pub(crate) deleted: Vec<&'static str>,
    pub(crate) events: Vec<Reason>,
    now: i64,
}

impl Fleet {
    pub(crate) fn new(manager: &str) -> Self {
        Self {
            manager: serde_yaml::from_str(manager).unwrap(),
            generation: 1,
            all: BTreeMap::new(),
            compared: true,
            read_again: None,
            carries_out: true,
            deleted: Vec::new(),
            events: Vec::new(),
            now: 0,
        }
    }

    pub(crate) fn manager(&mut self, spec: &str) {
        self.manager = serde_yaml::from_str(spec).unwrap();
        self.generation += 1;
    }

    pub(crate) fn add(&mut self, name: &'static str, created: i64, environment: Environment) {
        self.all.insert(name, Environment { created, ..environment });
    }

    pub(crate) fn get(&mut self, name: &str) -> &mut Environment {
        self.all.get_mut(name).unwrap()
    }

    pub(crate) fn status(&self, name: &str) -> &ManagedNamespaceStatus {
        self.all[name].record.as_ref().unwrap()
    }

    pub(crate) fn phase(&self, name: &str) -> NamespacePhase {
        self.status(name).phase.unwrap()
    }

    /// What the record says of what comes next.
    pub(crate) fn reason(&self, name: &str) -> String {
        self.status(name).next.as_ref().unwrap().reason.clone()
    }

    pub(crate) fn record_mut(&mut self, name: &str) -> &mut ManagedNamespaceStatus {
        self.get(name).record.as_mut().unwrap()
    }

    /// What is done about a namespace now.
    pub(crate) fn step(&self, name: &str) -> NamespaceStep {
        self.plan(name, &self.census()).step
    }

    /// The step that is under way ends like this.
    pub(crate) fn ends(&mut self, name: &str, outcome: &StepOutcome) {
        let now = at(self.now);
        let status = self.record_mut(name);
        let intent = status.steps.intent.clone().unwrap();
        record::apply_to_record(status, &intent, outcome, now);
    }

    /// Moves the clock, and plans all namespaces until there is nothing more to write.
    pub(crate) fn settle(&mut self, second: i64) {
        self.now = second;
        for _ in 0..ROUNDS {
            if !self.round() {
                return;
            }
        }
        panic!("the records never stand still");
    }

    fn round(&mut self) -> bool {
        self.all.retain(|_, environment| !environment.gone);
        let counts = self.census();
        let names: Vec<_> = self.all.keys().copied().collect();
        let mut changed = false;
        for name in names {
            let plan = self.plan(name, &counts);
            self.events.extend(plan.events.iter().map(|event| event.reason));
            let environment = self.all.get_mut(name).unwrap();
            match plan.step {
                NamespaceStep::Create => environment.record = Some(ManagedNamespaceStatus::default()),
                NamespaceStep::WriteStatus(status) => environment.record = Some(*status),
                NamespaceStep::Delete(_) if self.carries_out => {
                    self.deleted.push(name);
                    environment.terminating = true;
                    continue;
                }
                NamespaceStep::Delete(_)
                | NamespaceStep::Nothing
                | NamespaceStep::ScaleDown(..)
                | NamespaceStep::Webhook(..)
                | NamespaceStep::Wake(_) => continue,
            }
            changed = true;
        }
        changed
    }

    fn facts(&self) -> ClusterManagerFacts<'_> {
        let (spec, generation) = (Ok(&self.manager), self.generation);
        ClusterManagerFacts { name: "ci", uid: "m", generation, terminating: false, spec }
    }

    fn record(environment: &Environment) -> Option<RecordFacts<'_>> {
        let (spec, status) = (Ok(&environment.spec), environment.record.as_ref()?);
        let terminating = environment.record_terminating;
        Some(RecordFacts { uid: "record", generation: 1, terminating, spec, status })
    }

    fn settings() -> PlatformSettings {
        PlatformSettings::new(CoppiceConfigSpec::default(), "coppice-system", Vec::new())
    }

    fn census(&self) -> Census {
        let facts: Vec<_> = self.all.iter().map(|(name, one)| (one.facts(name), one)).collect();
        let counted = facts.iter().map(|(namespace, environment)| Counted {
            namespace,
            record: Self::record(environment),
            managed: false,
        });
        let counts = census(counted, &[self.facts()], &Self::settings(), 0, at(self.now)).unwrap();
        Census { recreated: Some(Recreated::of([], at(self.now))), ..counts }
    }

    pub(crate) fn counts(&self) -> Counts {
        self.census().managers["ci"].clone()
    }

    fn plan(&self, name: &str, counts: &Census) -> NamespacePlan {
        let environment = &self.all[name];
        let report =
            FailureReport { since: at(0), reason: "ProgressDeadlineExceeded".into(), message: "late".into() };
        let web = [WorkloadFacts {
            name: "web".into(),
            created_at: at(0),
            owner: None,
            short: false,
            refused: None,
            rollout: Rollout::Stopped(report),
        }];
        let pods = [environment.pod()];
        let deployments = if environment.fails { ObjectSlice::Slice(&web) } else { ObjectSlice::EMPTY };
        let pods = if environment.empty { ObjectSlice::EMPTY } else { ObjectSlice::Slice(&pods) };
        let workloads = Workloads { deployments, pods, ..Workloads::EMPTY };
        let unknown = (Reason::Forbidden, "its workloads cannot be listed".to_owned());
        let health = if environment.unknown {
            HealthFacts::Unknown { reason: unknown.0, message: unknown.1 }
        } else {
            HealthFacts::Known { workloads, followed: at(-1000), before: None }
        };
        let namespace = environment.facts(name);
        let later = counts.successors.as_ref().unwrap().get(name);
        let later = later
            .and_then(|later| self.all.get_key_value(&*later.name))
            .and_then(|(name, later)| Some((later.facts(name), Self::record(later)?)));
        let pod_again = [Environment { ready: self.read_again == Some(true), ..environment.clone() }.pod()];
        let again = Workloads { pods: ObjectSlice::Slice(&pod_again), ..Workloads::EMPTY };
        let successor = match &later {
            _ if !self.compared => SuccessorFacts::Unknown,
            None => SuccessorFacts::None,
            Some((namespace, record)) => {
                let known =
                    |_| Box::new(HealthFacts::Known { workloads: again, followed: at(-1000), before: None });
                let workloads = self.read_again.map(known);
                SuccessorFacts::Found { namespace, record: *record, workloads }
            }
        };
        let (settings, budget) = (Self::settings(), GovernorStatus::default());
        let observed = ClusterObserved {
            namespace: Ok(&namespace),
            record: Self::record(environment),
            managers: &[self.facts()],
            health,
            pods: Fact::Known { value: ObjectSlice::EMPTY, since: at(0) },
            jobs: Fact::Known { value: ObjectSlice::EMPTY, since: at(0) },
            pods_heard: at(self.now),
            settings: &settings,
            budget: &budget,
            managed: self.all.len() as u64,
            census: Some(counts),
            successor,
            stale: None,
            other: None,
            webhook: None,
            delivery: Delivery::None,
            deliveries: &coppice_lifecycle::plan::NO_DELIVERIES,
            address_key: None,
        };
        plan(&observed, ServerTime::certain(at(self.now)))
    }
}
