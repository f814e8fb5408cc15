//! A small cluster to decide in: what tests change is chained, what they ask is one word.
#![allow(dead_code, unreachable_pub, missing_docs, reason = "each test file uses its part")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "test support")]

pub mod cluster;
pub mod fleet;
pub mod health;
pub mod notices;
pub mod web;

use coppice_api::condition::{self, READY};
use coppice_api::config::{CoppiceConfigSpec, GovernorStatus};
use coppice_api::manager::{NamespaceManagerSpec, NamespaceManagerStatus, Phase, PolicyStatus};
use coppice_api::{DecodeError, Labels, Reason};
use coppice_lifecycle::cluster::{ClusterManagerFacts, ValidClusterManager};
use coppice_lifecycle::facts::{
    Annotations, Fact, JobFacts, JobState, NamespaceFacts, NamespaceSnapshot, ObjectSlice, PodFacts, PodPhase,
};
use coppice_lifecycle::limits::NamespaceLimits;
use coppice_lifecycle::lint::PlanViolation;
use coppice_lifecycle::other_deletion::OtherDeletion;
use coppice_lifecycle::pending_webhook::PendingWebhook;
use coppice_lifecycle::plan::lint::lint;
use coppice_lifecycle::plan::{Delivery, ManagerFacts, Observed, PlannedEvent};
use coppice_lifecycle::record::{self, StepOutcome};
use coppice_lifecycle::{Plan, PlatformSettings, Steady, ValidSpec};
use coppice_quantity::time::{ClockUncertainty, MAX_CLOCK_SKEW, ServerTime};
use jiff::{SignedDuration, Timestamp};

/// The namespace was created at this instant.
pub fn start() -> Timestamp {
    "2026-03-01T12:00:00Z".parse().unwrap()
}

pub fn at(seconds: i64) -> Timestamp {
    start() + SignedDuration::from_secs(seconds)
}

#[derive(Clone, Debug)]
pub struct Scene {
    pub spec: NamespaceManagerSpec,
    pub status: NamespaceManagerStatus,
    pub namespace: NamespaceFacts,
    pub pods: Vec<PodFacts>,
    pub jobs: Vec<JobFacts>,
    pub facts_since: Timestamp,
    pub unknown: Option<Reason>,
    pub config: CoppiceConfigSpec,
    pub budget: GovernorStatus,
    pub skew: Option<SignedDuration>,
    pub stale: Option<(Reason, String)>,
    /// Who else deletes the namespace.
    pub other: Option<OtherDeletion>,
    pub webhook: Option<PendingWebhook>,
    pub delivery: Delivery,
    pub terminating: bool,
    pub generation: i64,
    pub events: Vec<PlannedEvent>,
    pub own_namespace: String,
    pub before: usize,
    pub settings_missing: bool,
    /// Why the spec cannot be understood, if so.
    pub undecodable: Option<DecodeError>,
    /// The namespace was not seen yet.
    pub unseen: bool,
    /// The cluster managers: by name, or why one cannot be understood.
    pub cluster_managers: Vec<(String, Result<ValidClusterManager, DecodeError>)>,
}

impl Scene {
    /// A manager with this spec in namespace `team-a`, uid `ns-1`.
    pub fn new(spec: &str) -> Self {
        Self {
            spec: yaml(spec),
            status: NamespaceManagerStatus::default(),
            namespace: NamespaceFacts {
                name: "team-a".to_owned(),
                uid: "ns-1".to_owned(),
                resource_version: "7".to_owned(),
                created: start(),
                labels: Labels::default(),
                annotations: Annotations::default(),
                terminating: false,
            },
            pods: Vec::new(),
            jobs: Vec::new(),
            facts_since: start(),
            unknown: None,
            config: CoppiceConfigSpec::default(),
            budget: GovernorStatus::default(),
            skew: Some(SignedDuration::ZERO),
            stale: None,
            other: None,
            webhook: None,
            delivery: Delivery::None,
            terminating: false,
            generation: 1,
            events: Vec::new(),
            own_namespace: "coppice-system".to_owned(),
            before: 0,
            settings_missing: false,
            undecodable: None,
            unseen: false,
            cluster_managers: Vec::new(),
        }
    }

    /// One policy with this condition and action.
    pub fn policy(when: &str, then: &str) -> Self {
        Self::new(&format!("policies: [{{name: p, when: {when}, then: {then}}}]"))
    }

    pub fn edit(&mut self, change: impl FnOnce(&mut NamespaceManagerSpec)) -> &mut Self {
        change(&mut self.spec);
        self.generation += 1;
        self
    }

    pub fn pod(&mut self, name: &str, phase: PodPhase) -> &mut PodFacts {
        self.pods.push(PodFacts {
            name: name.into(),
            labels: [("component", "main")].into_iter().collect(),
            phase,
            terminating: false,
            job: None,
            health: None,
        });
        self.pods.sort_by(|a, b| a.name.cmp(&b.name));
        self.pods.iter_mut().find(|p| &*p.name == name).unwrap()
    }

    pub fn job(&mut self, name: &str, state: JobState, succeeded: u32) -> &mut JobFacts {
        self.jobs.push(JobFacts {
            name: name.into(),
            uid: format!("uid-{name}").into(),
            pod_labels: [("component", "main")].into_iter().collect(),
            state,
            succeeded,
            terminating: false,
            health: None,
        });
        self.jobs.last_mut().unwrap()
    }

    pub fn job_pod(&mut self, name: &str, phase: PodPhase, job: &str) -> &mut PodFacts {
        let pod = self.pod(name, phase);
        pod.job = Some(format!("uid-{job}").into());
        pod
    }

    fn fact<'a, T>(&self, all: &'a [T]) -> Fact<ObjectSlice<'a, T>> {
        match self.unknown {
            Some(reason) => Fact::Unknown { reason, message: "not known".to_owned() },
            None => Fact::Known { value: ObjectSlice::Slice(all), since: self.facts_since },
        }
    }

    /// The clocks differ by as much as the scene says: one of them shows `now`, the other a later time.
    fn time(&self, now: Timestamp) -> ServerTime {
        match self.skew {
            None => ServerTime::uncertain(ClockUncertainty::NoServerTime, now, []),
            Some(skew) if skew.abs() <= MAX_CLOCK_SKEW => ServerTime::certain(now),
            Some(skew) => ServerTime::uncertain(ClockUncertainty::Differs, now, [now + skew.abs()]),
        }
    }

    /// The plan as of this many seconds after the namespace's creation.
    pub fn plan(&self, seconds: i64) -> Plan {
        self.plan_at(at(seconds))
    }

    pub fn plan_at(&self, now: Timestamp) -> Plan {
        self.plan_and_steady(now).0
    }

    /// What is observed.
    pub fn observe<T>(&self, look: impl FnOnce(&Observed<'_>) -> T) -> T {
        let mut settings = PlatformSettings::new(self.config.clone(), &self.own_namespace, Vec::new());
        if self.settings_missing {
            settings = PlatformSettings::missing(&self.own_namespace, Vec::new());
        }
        let valid_spec = ValidSpec::try_from(self.spec.clone())
            .map_err(|error| DecodeError::Spec { why: error.to_string() });
        look(&Observed {
            manager: ManagerFacts {
                namespace: &self.namespace.name,
                name: "m",
                uid: "manager-1",
                generation: self.generation,
                terminating: self.terminating,
                spec: self.undecodable.as_ref().map_or(valid_spec.as_ref(), Err),
                status: &self.status,
            },
            snapshot: (!self.unseen).then(|| {
                NamespaceSnapshot::new(&self.namespace, self.fact(&self.pods), self.fact(&self.jobs))
            }),
            before: self.before,
            settings: &settings,
            limits: NamespaceLimits::of(
                self.cluster_managers.iter().map(|(name, spec)| ClusterManagerFacts {
                    name,
                    uid: name,
                    generation: 1,
                    terminating: false,
                    spec: spec.as_ref(),
                }),
                &self.namespace,
            ),
            budget: &self.budget,
            managed: 1,
            stale: self.stale.clone(),
            other: self.other.clone(),
            webhook: self.webhook.clone(),
            delivery: self.delivery.clone(),
        })
    }

    /// The plan, and whether the manager is steady. One that is has the plan that says so.
    pub fn plan_and_steady(&self, now: Timestamp) -> (Plan, Option<Steady>) {
        let time = self.time(now);
        let (plan, steady) = self.observe(|observed| {
            (coppice_lifecycle::plan(observed, time), coppice_lifecycle::steady(observed, time))
        });
        if let Some(steady) = steady {
            let nothing = Plan {
                status: self.status.clone(),
                step: None,
                next_check: steady.next_check,
                events: Vec::new(),
            };
            assert_eq!(plan, nothing, "it is steady, and has a plan");
        }
        (plan, steady)
    }

    /// The rules that a plan breaks, as of this many seconds after the namespace's creation.
    pub fn lint(&self, plan: &Plan, seconds: i64) -> Vec<PlanViolation> {
        self.observe(|observed| lint(observed, self.time(at(seconds)), plan))
    }

    /// Does what the operator does: makes status durable until it stands still, and returns the last plan.
    pub fn settle(&mut self, seconds: i64) -> Plan {
        for _ in 0..10 {
            let plan = self.plan(seconds);
            if plan.status == self.status {
                return plan;
            }
            assert!(
                plan.step.is_none() || plan.status.steps.intent == self.status.steps.intent,
                "no effect before its intent"
            );
            self.events.extend(plan.events);
            self.status = plan.status;
        }
        panic!("the plan never stands still: {:#?}", self.status);
    }

    /// Records the outcome of the intent in status.
    pub fn outcome(&mut self, outcome: &StepOutcome, seconds: i64) -> &mut Self {
        let intent = self.status.steps.intent.clone().expect("there is an intent");
        let events = record::apply_to_manager(&mut self.status, &intent, outcome, at(seconds));
        self.events.extend(events);
        self
    }

    pub fn event_reasons(&mut self) -> Vec<Reason> {
        std::mem::take(&mut self.events).into_iter().map(|n| n.reason).collect()
    }

    pub fn phase(&self) -> Phase {
        self.status.phase.unwrap()
    }

    pub fn verdict(&self) -> &PolicyStatus {
        &self.status.policies[0]
    }

    pub fn next_reason(&self) -> &str {
        &self.status.next.as_ref().unwrap().reason
    }

    pub fn ready(&self) -> (&str, &str) {
        self.condition(READY)
    }

    /// Status and reason of a condition.
    pub fn condition(&self, type_: &str) -> (&str, &str) {
        let condition = condition::find(&self.status.conditions, type_).unwrap();
        (&condition.status, &condition.reason)
    }
}

pub fn yaml<T: serde::de::DeserializeOwned>(text: &str) -> T {
    serde_yaml::from_str(text).unwrap_or_else(|e| panic!("{text}: {e}"))
}
