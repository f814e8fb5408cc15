//! A namespace under cluster managers, with its record.
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
use coppice_api::{Labels, ManagedNamespaceSpec, ManagedNamespaceStatus, Reason};
use coppice_lifecycle::PlatformSettings;
use coppice_lifecycle::cluster::census::{Census, Counted, Counts, census};
use coppice_lifecycle::cluster::recreated::{PastDeletion, Recreated};
use coppice_lifecycle::cluster::{
    AddressKey, ClusterManagerFacts, ClusterObserved, HealthFacts, NamespacePlan, NamespaceStep, RecordFacts,
    SuccessorFacts, ValidClusterManager, lint, plan,
};
use coppice_lifecycle::facts::{Annotations, Fact, NamespaceFacts, ObjectSlice, PodFacts};
use coppice_lifecycle::lint::PlanViolation;
use coppice_lifecycle::other_deletion::OtherDeletion;
use coppice_lifecycle::plan::Delivery;
use coppice_lifecycle::record::{self, StepOutcome};
use coppice_quantity::time::{ClockUncertainty, ServerTime};
use jiff::{SignedDuration, Timestamp};

pub(crate) use super::web::web;

/// The namespace `ci-1` was created then.
pub(crate) fn at(seconds: i64) -> Timestamp {
    "2026-03-01T12:00:00Z".parse::<Timestamp>().unwrap() + SignedDuration::from_secs(seconds)
}

/// A ttl of 100 s, ten seconds to settle, and these fields besides.
pub(crate) fn spec(more: &str, policy: &str) -> String {
    format!(
        "{{selector: {{names: ['ci-*']}}, settle: 10s, ttl: {{after: 100s}}, {more} policies: [{{name: end, {policy} \
         when: {{phase: {{in: [Stale]}}}}, then: {{delete: {{}}}}}}]}}"
    )
}

pub(crate) fn enforcing() -> String {
    spec("mode: Enforce,", "")
}

#[allow(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(crate) struct Scene {
    pub managers: Vec<(String, ValidClusterManager)>,
    /// Of every manager.
    pub generation: i64,
    pub namespace: NamespaceFacts,
    pub record: Option<ManagedNamespaceStatus>,
    pub spec: ManagedNamespaceSpec,
    pub config: CoppiceConfigSpec,
    pub settings_missing: bool,
    pub stale: Option<(Reason, String)>,
    pub other: Option<OtherDeletion>,
    pub webhook: Option<coppice_lifecycle::pending_webhook::PendingWebhook>,
    pub undecodable: bool,
    /// The pods of the namespace.
    pub pods: Vec<PodFacts>,
    /// Since when pods and Jobs have been followed.
    pub pods_since: i64,
    /// When anything was heard of them last, if not now.
    pub pods_heard: Option<i64>,
    /// Why the pods are not known, if so.
    pub pods_unknown: Option<(Reason, String)>,
    /// What is known of the attempt at a webhook.
    pub delivery: Delivery,
    /// What is known of the attempts to tell the owner, by key.
    pub deliveries: BTreeMap<String, Delivery>,
    /// Tells recipients in the record apart.
    pub address_key: Option<AddressKey>,
    /// How many other namespaces there are, as old as this one, and without records; none if they are not counted.
    pub others: Option<usize>,
    /// Whether these have the same record instead.
    pub others_alike: bool,
    pub certain: bool,
    /// When it was counted, if not now.
    pub counted_at: Option<i64>,
    /// Whether the record is being deleted.
    pub record_terminating: bool,
    /// The settings that it was counted under, if not those in force.
    pub counted_under: Option<CoppiceConfigSpec>,
    /// The deletions of namespaces of this name: the uid, and when.
    pub deletions: Vec<(&'static str, i64)>,
    pub events: Vec<Reason>,
}

impl Scene {
    pub(crate) fn new(manager: &str) -> Self {
        Self {
            managers: vec![("ci".to_owned(), serde_yaml::from_str(manager).unwrap())],
            generation: 1,
            namespace: NamespaceFacts {
                name: "ci-1".to_owned(),
                uid: "ns-1".to_owned(),
                resource_version: "7".to_owned(),
                created: at(0),
                labels: Labels::default(),
                annotations: Annotations::default(),
                terminating: false,
            },
            record: Some(ManagedNamespaceStatus::default()),
            spec: ManagedNamespaceSpec::default(),
            config: CoppiceConfigSpec::default(),
            settings_missing: false,
            stale: None,
            other: None,
            webhook: None,
            undecodable: false,
            pods: Vec::new(),
            pods_since: 0,
            pods_heard: None,
            pods_unknown: None,
            delivery: Delivery::None,
            deliveries: BTreeMap::new(),
            address_key: Some(AddressKey::new(&[7; 32])),
            others: Some(0),
            others_alike: false,
            certain: true,
            counted_at: None,
            record_terminating: false,
            counted_under: None,
            deletions: Vec::new(),
            events: Vec::new(),
        }
    }

    pub(crate) fn manager(&mut self, spec: &str) {
        self.managers[0].1 = serde_yaml::from_str(spec).unwrap();
        self.generation += 1;
    }

    fn facts(&self) -> Vec<ClusterManagerFacts<'_>> {
        self.managers
            .iter()
            .map(|(name, spec)| {
                let generation = self.generation;
                ClusterManagerFacts { name, uid: name, generation, terminating: false, spec: Ok(spec) }
            })
            .collect()
    }

    fn record_facts(&self) -> Option<RecordFacts<'_>> {
        self.record.as_ref().map(|status| RecordFacts {
            uid: "record",
            generation: 1,
            terminating: self.record_terminating,
            spec: Ok(&self.spec),
            status,
        })
    }

    /// What there is for the first manager at an instant.
    pub(crate) fn counts(&self, seconds: i64) -> Counts {
        self.all_counts(seconds)[&self.managers[0].0].clone()
    }

    /// The same for each manager.
    pub(crate) fn all_counts(&self, seconds: i64) -> BTreeMap<String, Counts> {
        self.census(self.record_facts(), &self.facts(), at(seconds)).unwrap().managers
    }

    /// What there is for each of the managers.
    fn census(
        &self,
        record: Option<RecordFacts<'_>>,
        managers: &[ClusterManagerFacts<'_>],
        now: Timestamp,
    ) -> Option<Census> {
        let counted = Counted { namespace: &self.namespace, record, managed: false };
        let others: Vec<_> = (0..self.others.unwrap_or_default())
            .map(|n| NamespaceFacts {
                name: format!("ci-other-{n}"),
                uid: format!("other-{n}"),
                created: at(0),
                ..self.namespace.clone()
            })
            .collect();
        let others = others.iter().map(|namespace| {
            let record = record.filter(|_| self.others_alike);
            Counted { namespace, record, managed: false }
        });
        let counted_under = self.counted_under.clone().unwrap_or_else(|| self.config.clone());
        let counted_under = PlatformSettings::new(counted_under, "coppice-system", Vec::new());
        let counted_at = self.counted_at.map_or(now, at);
        let census = census(others.chain([counted]), managers, &counted_under, 0, counted_at);
        let deletions = self.deletions.iter().map(|(uid, seconds)| PastDeletion {
            namespace: "ci-1",
            uid,
            at: at(*seconds),
        });
        let recreated = Recreated::of(deletions, now);
        census.map(|census| Census { recreated: Some(recreated), ..census })
    }

    pub(crate) fn plan(&self, now: Timestamp) -> NamespacePlan {
        let made = self.observing(now, plan);
        assert_eq!(self.lint(&made, now), [], "{made:#?}");
        made
    }

    /// The rules that a plan breaks in this scene.
    pub(crate) fn lint(&self, broken: &NamespacePlan, now: Timestamp) -> Vec<PlanViolation> {
        self.observing(now, |observed, time| lint::lint(observed, time, broken))
    }

    fn observing<T>(&self, now: Timestamp, decide: impl FnOnce(&ClusterObserved<'_>, ServerTime) -> T) -> T {
        let managers = self.facts();
        let settings = if self.settings_missing {
            PlatformSettings::missing("coppice-system", Vec::new())
        } else {
            PlatformSettings::new(self.config.clone(), "coppice-system", Vec::new())
        };
        let record = self.record_facts();
        let census = self.census(record, &managers, now);
        let undecodable = (Reason::Undecodable, "its labels are no labels".to_owned());
        let observed = ClusterObserved {
            namespace: if self.undecodable { Err(undecodable) } else { Ok(&self.namespace) },
            record,
            managers: &managers,
            health: HealthFacts::NotWatched,
            pods: self.pods_unknown.clone().map_or_else(
                || Fact::Known { value: ObjectSlice::Slice(&self.pods), since: at(self.pods_since) },
                |(reason, message)| Fact::Unknown { reason, message },
            ),
            jobs: Fact::Known { value: ObjectSlice::EMPTY, since: at(self.pods_since) },
            pods_heard: self.pods_heard.map_or(now, at),
            settings: &settings,
            budget: &GovernorStatus::default(),
            managed: 1,
            census: census.as_ref().filter(|_| self.others.is_some()),
            successor: SuccessorFacts::None,
            stale: self.stale.clone(),
            other: self.other.clone(),
            webhook: self.webhook.clone(),
            delivery: self.delivery.clone(),
            deliveries: &self.deliveries,
            address_key: self.address_key.as_ref(),
        };
        let time = if self.certain {
            ServerTime::certain(now)
        } else {
            ServerTime::uncertain(ClockUncertainty::Differs, now, [now + SignedDuration::from_hours(1)])
        };
        decide(&observed, time)
    }

    /// Plans again and again at one instant, as long as there is something to write. Returns the last plan.
    pub(crate) fn settled(&mut self, seconds: i64) -> NamespacePlan {
        for _ in 0..9 {
            let plan = self.plan(at(seconds));
            self.events.extend(plan.events.iter().map(|event| event.reason));
            match plan.step {
                NamespaceStep::WriteStatus(status) => self.record = Some(*status),
                NamespaceStep::Create => self.record = Some(ManagedNamespaceStatus::default()),
                NamespaceStep::Nothing
                | NamespaceStep::Delete(_)
                | NamespaceStep::ScaleDown(..)
                | NamespaceStep::Webhook(..)
                | NamespaceStep::Wake(_) => {
                    let again = self.plan(at(seconds));
                    assert_eq!(again.step, plan.step, "the same facts give the same plan");
                    return plan;
                }
            }
        }
        panic!("it never comes to rest: {:?}", self.record);
    }

    pub(crate) fn status(&self) -> &ManagedNamespaceStatus {
        self.record.as_ref().unwrap()
    }

    /// What the record says at an instant: its reason and the message; the action if a step is carried out then.
    pub(crate) fn says(&mut self, seconds: i64) -> String {
        let plan = self.settled(seconds);
        let next = self.status().next.as_ref().unwrap();
        match plan.step {
            NamespaceStep::Delete(_) => "delete".to_owned(),
            NamespaceStep::ScaleDown(..) => "scaleDown".to_owned(),
            NamespaceStep::Wake(_) => "wake".to_owned(),
            NamespaceStep::Webhook(..) => "webhook".to_owned(),
            _ => format!("{}: {}", next.reason, next.message),
        }
    }

    /// The step that is under way ends like this.
    pub(crate) fn ends(&mut self, outcome: &StepOutcome, seconds: i64) {
        let status = self.record.as_mut().unwrap();
        let intent = status.steps.intent.clone().unwrap();
        let events = record::apply_to_record(status, &intent, outcome, at(seconds));
        self.events.extend(events.iter().map(|event| event.reason));
    }

    /// The same without the message.
    pub(crate) fn reason(&mut self, seconds: i64) -> String {
        self.says(seconds).split(':').next().unwrap().to_owned()
    }
}
