//! A namespace whose cluster manager looks at its health.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::panic,
    missing_docs,
    reason = "a test that cannot go on has failed"
)]

use std::collections::BTreeMap;

use coppice_api::channel::{Channel, WebhookChannel};
use coppice_api::config::{CoppiceConfigSpec, GovernorStatus};
use coppice_api::{Labels, ManagedNamespaceSpec, ManagedNamespaceStatus, NamespacePhase, Reason};
use coppice_lifecycle::PlatformSettings;
use coppice_lifecycle::cluster::census::{Counted, census};
use coppice_lifecycle::cluster::{
    ClusterManagerFacts, ClusterObserved, HealthFacts, NamespacePlan, NamespaceStep, RecordFacts,
    SuccessorFacts, ValidClusterManager, plan,
};
use coppice_lifecycle::facts::{AnnotationKeys, Annotations, Fact, NamespaceFacts, ObjectSlice, PodFacts};
use coppice_lifecycle::health::Workloads;
use coppice_lifecycle::health::facts::{FailureReport, Rollout, WorkloadFacts};
use coppice_lifecycle::plan::Delivery;
use coppice_quantity::time::ServerTime;
use jiff::{SignedDuration, Timestamp};

/// The namespace `ci-1` was created then.
pub(crate) fn at(seconds: i64) -> Timestamp {
    "2026-03-01T12:00:00Z".parse::<Timestamp>().unwrap() + SignedDuration::from_secs(seconds)
}

/// Ten seconds until a manager acts; 100 s to settle, 50 of grace and 20 to recover; and this policy.
pub(crate) fn spec(when: &str, notice: &str) -> String {
    format!(
        "{{mode: Enforce, selector: {{names: ['ci-*']}}, settle: 10s, ttl: {{after: 5000s}}, \
         health: {{settlingPeriod: 100s, gracePeriod: 50s, recoveryPeriod: 20s}}, \
         policies: [{{name: end, when: {{phase: {when}}}, then: {{delete: {{notice: {notice}}}}}}}]}}"
    )
}

#[allow(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(crate) struct Scene {
    pub(crate) manager: ValidClusterManager,
    pub(crate) generation: i64,
    pub(crate) status: ManagedNamespaceStatus,
    pub(crate) spec: ManagedNamespaceSpec,
    /// The annotation `ttl` of the namespace.
    pub(crate) own_ttl: Option<&'static str>,
    /// Whether the namespace is being deleted.
    pub(crate) terminating: bool,
    pub(crate) fails: bool,
    /// What is said of each workload that fails, and how many there are.
    pub(crate) said: String,
    pub(crate) workloads: usize,
    /// Its pods, whether or not anything else fails.
    pub(crate) pods: Vec<PodFacts>,
    pub(crate) known: bool,
    pub(crate) followed: Timestamp,
    /// If its workloads were just read: what the watches had shown to be failing until then.
    pub(crate) before: Option<&'static str>,
    pub(crate) stale: Option<(Reason, String)>,
    /// What is known of the attempts to tell the owner, by key.
    pub(crate) deliveries: BTreeMap<String, Delivery>,
    pub(crate) events: Vec<Reason>,
    pub(crate) deleted: Option<i64>,
    /// Whether a scale-down is carried out.
    pub(crate) scales: bool,
    pub(crate) now: i64,
}

impl Scene {
    pub(crate) fn new(manager: &str) -> Self {
        let mut scene = Self {
            manager: serde_yaml::from_str(manager).unwrap(),
            generation: 1,
            status: ManagedNamespaceStatus::default(),
            spec: ManagedNamespaceSpec::default(),
            own_ttl: None,
            terminating: false,
            fails: false,
            said: "late".to_owned(),
            workloads: 1,
            pods: Vec::new(),
            known: true,
            followed: at(-1000),
            before: None,
            stale: None,
            deliveries: BTreeMap::new(),
            events: Vec::new(),
            deleted: None,
            scales: false,
            now: 0,
        };
        scene.look();
        scene
    }

    pub(crate) fn namespace(&self) -> NamespaceFacts {
        NamespaceFacts {
            name: "ci-1".to_owned(),
            uid: "ns-1".to_owned(),
            resource_version: "7".to_owned(),
            created: at(0),
            labels: Labels::default(),
            annotations: Annotations::of(&AnnotationKeys::All, self.own_ttl.map(|ttl| ("ttl", ttl))),
            terminating: self.terminating,
        }
    }

    pub(crate) fn manager(&self) -> ClusterManagerFacts<'_> {
        let generation = self.generation;
        ClusterManagerFacts { name: "ci", uid: "m", generation, terminating: false, spec: Ok(&self.manager) }
    }

    pub(crate) fn record(&self) -> RecordFacts<'_> {
        let (spec, status) = (Ok(&self.spec), &self.status);
        RecordFacts { uid: "record", generation: 1, terminating: false, spec, status }
    }

    pub(crate) fn plan(&self) -> NamespacePlan {
        let failing = |name: &str| WorkloadFacts {
            name: name.into(),
            created_at: at(0),
            owner: None,
            short: false,
            refused: None,
            rollout: Rollout::Stopped(FailureReport {
                since: at(0),
                reason: "ProgressDeadlineExceeded".into(),
                message: self.said.as_str().into(),
            }),
        };
        let web: Vec<_> = (0..self.workloads)
            .map(|n| failing(&if n == 0 { "web".to_owned() } else { format!("web-{n:02}") }))
            .collect();
        let before = self.before.map(|name| [failing(name)]);
        let before = before.as_ref().map(|failing| {
            let deployments = ObjectSlice::Slice(failing);
            Box::new(Workloads { deployments, ..Workloads::EMPTY })
        });
        let deployments = if self.fails { ObjectSlice::Slice(&web) } else { ObjectSlice::EMPTY };
        let health = if self.known {
            let pods = ObjectSlice::Slice(&self.pods);
            let workloads = Workloads { deployments, pods, ..Workloads::EMPTY };
            HealthFacts::Known { workloads, followed: self.followed, before }
        } else {
            let message = "no update of pods has been received for 90 seconds".to_owned();
            HealthFacts::Unknown { reason: Reason::Stale, message }
        };
        let namespace = self.namespace();
        let webhook =
            WebhookChannel { url: "https://ci.example.org/hook".to_owned(), ..WebhookChannel::default() };
        let hook = Channel { name: "hook".to_owned(), webhook: Some(webhook), ..Channel::default() };
        let config = CoppiceConfigSpec { channels: vec![hook], ..CoppiceConfigSpec::default() };
        let settings = PlatformSettings::new(config, "coppice-system", Vec::new());
        let counted = [Counted { namespace: &namespace, record: Some(self.record()), managed: false }];
        let counts = census(counted, &[self.manager()], &settings, 0, at(self.now));
        let observed = ClusterObserved {
            namespace: Ok(&namespace),
            record: Some(self.record()),
            managers: &[self.manager()],
            health,
            settings: &settings,
            budget: &GovernorStatus::default(),
            managed: 1,
            census: counts.as_ref(),
            successor: SuccessorFacts::None,
            stale: self.stale.clone(),
            other: None,
            webhook: None,
            pods: Fact::Known { value: ObjectSlice::EMPTY, since: at(0) },
            jobs: Fact::Known { value: ObjectSlice::EMPTY, since: at(0) },
            pods_heard: at(self.now),
            delivery: Delivery::None,
            deliveries: &self.deliveries,
            address_key: None,
        };
        plan(&observed, ServerTime::certain(at(self.now)))
    }

    /// Plans, and writes what there is to write, until there is nothing more. Returns when to look again.
    pub(crate) fn look(&mut self) -> Option<i64> {
        for _ in 0..9 {
            let plan = self.plan();
            self.events.extend(plan.events.iter().map(|event| event.reason));
            match plan.step {
                NamespaceStep::WriteStatus(status) => self.status = *status,
                NamespaceStep::Delete(_) => {
                    self.deleted = self.deleted.or(Some(self.now));
                    return None;
                }
                NamespaceStep::ScaleDown(..) => {
                    self.scales = true;
                    return None;
                }
                NamespaceStep::Nothing
                | NamespaceStep::Create
                | NamespaceStep::Webhook(..)
                | NamespaceStep::Wake(_) => {
                    return plan.next_check.map(|next| next.duration_since(at(0)).as_secs());
                }
            }
        }
        panic!("it never comes to rest: {:?}", self.status);
    }

    /// Lets time pass, and looks whenever the plan asks for it. Returns the phases with the second in which each was seen.
    pub(crate) fn pass(&mut self, until: i64) -> Vec<(i64, NamespacePhase)> {
        let mut phases = Vec::new();
        while let Some(next) = self.look().filter(|next| *next <= until) {
            assert!(next > self.now, "looks again at {next}");
            let before = self.status.phase;
            self.now = next;
            self.look();
            if self.status.phase != before {
                phases.push((self.now, self.status.phase.unwrap()));
            }
        }
        if self.deleted.is_none() {
            self.now = until;
            self.look();
        }
        phases
    }

    pub(crate) fn fails(&mut self, fails: bool) -> &mut Self {
        self.fails = fails;
        self.look();
        self
    }

    pub(crate) fn next(&self) -> &str {
        &self.status.next.as_ref().unwrap().reason
    }
}
