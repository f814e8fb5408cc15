//! What cluster managers do to namespaces: the operator's own plan for a record, unfolded without doing anything.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use coppice_api::condition::{self, READY};
use coppice_api::health::HealthSeen;
use coppice_api::{ManagedNamespaceSpec, ManagedNamespaceStatus, Reason};
use coppice_lifecycle::cluster::census::{Census, Counted, Counts, census};
use coppice_lifecycle::cluster::selection::{Contest, UnknownSelection, contest};
use coppice_lifecycle::cluster::{
    ClusterManagerFacts, ClusterObserved, HealthFacts, NamespaceStep, RecordFacts, SuccessorFacts, plan,
};
use coppice_lifecycle::facts::NamespaceFacts;
use coppice_lifecycle::limits::NamespaceLimits;
use coppice_lifecycle::other_deletion::OtherDeletion;
use coppice_lifecycle::pending_webhook::PendingWebhook;
use coppice_lifecycle::plan::Delivery;
use coppice_quantity::time::ServerTime;
use jiff::Timestamp;
use thiserror::Error;

use super::{LifecycleSnapshot, MAX_PASSES};
use crate::connect::failed;
use crate::facts::{ClusterManager, Manager, NamespaceRecord};

/// Why the cluster managers, and what they do, are not known.
#[derive(Clone, Debug, Error)]
pub(crate) enum UnknownManagers {
    #[error("{:#}", failed("cluster managers cannot be listed", .0))]
    Managers(Arc<kube::Error>),
    #[error("{:#}", failed("the records of namespaces cannot be listed", .0))]
    Records(Arc<kube::Error>),
}

impl UnknownManagers {
    /// They cannot be listed.
    pub(super) fn managers(error: kube::Error) -> Self {
        Self::Managers(Arc::new(error))
    }

    /// Nor can their records.
    pub(super) fn records(error: kube::Error) -> Self {
        Self::Records(Arc::new(error))
    }
}

/// The cluster managers, and the records of the namespaces.
#[derive(Clone, Debug)]
pub(crate) struct Governed {
    /// By name; or why they are not known: then records are shown as the operator reports them.
    pub(crate) managers: Result<Vec<ClusterManager>, UnknownManagers>,
    /// By namespace.
    pub(crate) records: BTreeMap<String, NamespaceRecord>,
}

/// What becomes of a namespace.
#[derive(Clone, Debug)]
pub(crate) struct GovernedPlan {
    /// The status of its record, after all that it only records has been recorded.
    pub(crate) status: ManagedNamespaceStatus,
    /// Whether something is done to it now: what the status says comes next.
    pub(crate) now: bool,
    /// When time alone can change the plan.
    pub(crate) next_check: Option<Timestamp>,
}

impl Governed {
    /// The cluster managers, as the pure functions take them; none if they are not known.
    pub(crate) fn facts(&self) -> Option<Vec<ClusterManagerFacts<'_>>> {
        Some(self.managers.as_ref().ok()?.iter().map(ClusterManager::facts).collect())
    }

    /// The counts that the operator reports, as of an instant; none if the cluster managers are not known.
    pub(super) fn reported_census(&self, at: Timestamp) -> Option<Census> {
        let counts = |manager: &ClusterManager| {
            let status = &manager.status;
            let counts = Counts {
                digest: status.policy_digest.clone().unwrap_or_default(),
                namespaces: status.namespaces.clone(),
                enforce: status.enforce.clone(),
                newly_due: None,
                ..Counts::default()
            };
            (manager.name().to_owned(), counts)
        };
        let managers = self.managers.as_ref().ok()?.iter().map(counts).collect();
        Some(Census {
            at: whole_second(at),
            managers,
            enforced: 0,
            per_hour: 0,
            successors: None,
            recreated: None,
            next_check: None,
        })
    }
}

/// The first whole second that is not earlier: a record that is written now says that it is governed since then.
fn whole_second(at: Timestamp) -> Timestamp {
    let up = at.as_second() + i64::from(at.subsec_nanosecond() > 0);
    Timestamp::from_second(up).unwrap_or(at)
}

impl LifecycleSnapshot {
    /// Which cluster managers select a namespace, and which of them governs it; none if they or the namespace are not known.
    pub(crate) fn contest(&self, namespace: &str) -> Option<Result<Contest<'_>, UnknownSelection<'_>>> {
        let facts = self.namespaces.get(namespace)?;
        let managers = self.governed.managers.as_ref().ok()?;
        Some(contest(managers.iter().map(ClusterManager::facts), facts))
    }

    /// The limits of the managers in a namespace. Where the cluster managers may not be read, none are known; a warning says so, if
    /// one of them governs the namespace.
    pub(crate) fn limits(&self, namespace: &str) -> NamespaceLimits<'_> {
        match (self.namespaces.get(namespace), &self.governed.managers) {
            (Some(namespace), Ok(managers)) => {
                NamespaceLimits::of(managers.iter().map(ClusterManager::facts), namespace)
            }
            (None, _) | (_, Err(_)) => NamespaceLimits::None,
        }
    }

    /// What the records will say of those namespaces whose manager waits for pods, or compares namespaces: what was recorded under
    /// another manager, or another spec, says nothing of these. A namespace that has not been looked at by its manager is taken for
    /// ready: more may be superseded, and nothing is that is not shown.
    pub(crate) fn judged_records(&self, at: Timestamp) -> BTreeMap<&str, ManagedNamespaceStatus> {
        let judged = self.namespaces.keys().filter_map(|name| {
            let winner = self.contest(name).and_then(Result::ok)?.winner?;
            if !winner.spec.needs_pods() && winner.spec.supersede.is_none() {
                return None;
            }
            let mut status = self.governed_plan(name, at)?.status;
            let recorded = self.governed.records.get(name).and_then(|record| record.status.manager.as_ref());
            if !recorded.is_some_and(|known| winner.is(known)) {
                status.ready_at = Some(at);
            }
            Some((name.as_str(), status))
        });
        judged.collect()
    }

    /// Takes what the records will say for what they say, where a manager compares namespaces: each is held against the record of
    /// another.
    pub(crate) fn assume_looked_at(&mut self, at: Timestamp) {
        let compares = |name: &&str| {
            let winner = self.contest(name).and_then(Result::ok).and_then(|contest| contest.winner);
            winner.is_some_and(|winner| winner.spec.supersede.is_some())
        };
        let judged = self.judged_records(at).into_iter().filter(|(name, _)| compares(name));
        let judged: Vec<_> = judged.map(|(name, status)| (name.to_owned(), status)).collect();
        for (namespace, status) in judged {
            let new = || NamespaceRecord::assumed(&namespace);
            self.governed.records.entry(namespace.clone()).or_insert_with(new).status = status;
        }
    }

    /// Takes what fails by the record of a namespace for failing on where another spec governs: that begins its periods again, and
    /// whatever does not recover within these becomes due by it.
    pub(crate) fn assume_failing(&mut self, at: Timestamp) {
        let fails = |(namespace, record): (&String, &NamespaceRecord)| {
            let recorded = &record.status;
            let winner = self.contest(namespace).and_then(Result::ok)?.winner?;
            let fails = recorded.health.as_ref().is_some_and(|health| health.seen == HealthSeen::Failing);
            let is_governed = recorded.manager.as_ref().is_some_and(|known| winner.is(known));
            if !fails || is_governed || winner.spec.health.is_none() {
                return None;
            }
            let status = ManagedNamespaceStatus {
                health: recorded.health.clone(),
                failing: recorded.failing.clone(),
                failing_more: recorded.failing_more,
                ..self.governed_plan(namespace, at)?.status
            };
            Some((namespace.clone(), status))
        };
        let failing: Vec<_> = self.governed.records.iter().filter_map(fails).collect();
        for (namespace, status) in failing {
            if let Some(record) = self.governed.records.get_mut(&namespace) {
                record.status = status;
            }
        }
    }

    /// A namespace to be counted, with its record or what that will say.
    pub(crate) fn counted<'a>(
        &'a self,
        namespace: &'a NamespaceFacts,
        judged: &'a BTreeMap<&str, ManagedNamespaceStatus>,
    ) -> Counted<'a> {
        const NOTHING_ASKED: &ManagedNamespaceSpec =
            &ManagedNamespaceSpec { hold: None, extend_until: None, rearm: None, wake: None };
        let record = self.governed.records.get(&namespace.name).map(NamespaceRecord::facts);
        let record = match (judged.get(namespace.name.as_str()), record) {
            (Some(status), Some(record)) => Some(RecordFacts { status, ..record }),
            (Some(status), None) => Some(RecordFacts {
                uid: "",
                generation: 1,
                terminating: false,
                spec: Ok(NOTHING_ASKED),
                status,
            }),
            (None, record) => record,
        };
        Counted { namespace, record, managed: self.own_managers.contains(&namespace.name) }
    }

    /// Counts what there is for each cluster manager, and how many namespaces are managed. Needs every namespace.
    pub(crate) fn count(&mut self, at: Timestamp) {
        let Some(managers) = self.governed.facts() else { return };
        let judged = self.judged_records(at);
        let counted = self.namespaces.values().map(|namespace| self.counted(namespace, &judged));
        let own = self.own_managers.len() as u64;
        let census = census(counted, &managers, &self.settings, own, at);
        self.managed = own + census.as_ref().map_or(0, |census| census.enforced);
        self.census = census.map(|census| Census { at: whole_second(at), ..census });
    }

    /// The namespaces that are known, or have a record.
    pub(crate) fn known_namespaces(&self) -> BTreeSet<&str> {
        self.namespaces.keys().chain(self.governed.records.keys()).map(String::as_str).collect()
    }

    /// What becomes of a namespace under its cluster manager; none if it has no record and gets none.
    pub(crate) fn governed_plan(&self, namespace: &str, now: Timestamp) -> Option<GovernedPlan> {
        let record = self.governed.records.get(namespace);
        let reported = || {
            let status = record?.status.clone();
            Some(GovernedPlan { status, now: false, next_check: None })
        };
        let Some(managers) = self.governed.facts() else { return reported() };
        // What the status says cannot be understood: nothing is decided.
        if record.is_some_and(|record| record.status_error.is_some()) {
            return reported();
        }
        let new_spec = ManagedNamespaceSpec::default();
        let mut status = record.map(|record| record.status.clone()).unwrap_or_default();
        let mut exists = record.is_some();
        let mut unfolded = GovernedPlan { status: status.clone(), now: false, next_check: None };
        for _ in 0..MAX_PASSES {
            let facts = match record {
                Some(record) => RecordFacts { status: &status, ..record.facts() },
                None => RecordFacts {
                    uid: "",
                    generation: 1,
                    terminating: false,
                    spec: Ok(&new_spec),
                    status: &status,
                },
            };
            let plan = plan(&self.observed(namespace, exists.then_some(facts), &managers, now)?, time(now));
            unfolded.next_check = plan.next_check;
            match plan.step {
                NamespaceStep::Create => exists = true,
                NamespaceStep::WriteStatus(written) => status = *written,
                NamespaceStep::Delete(_)
                | NamespaceStep::ScaleDown(..)
                | NamespaceStep::Webhook(..)
                | NamespaceStep::Wake(_) => {
                    unfolded.now = true;
                    break;
                }
                NamespaceStep::Nothing => break,
            }
        }
        unfolded.status = status;
        exists.then_some(unfolded)
    }

    fn observed<'a>(
        &'a self,
        name: &str,
        record: Option<RecordFacts<'a>>,
        managers: &'a [ClusterManagerFacts<'a>],
        now: Timestamp,
    ) -> Option<ClusterObserved<'a>> {
        let unreadable = || (Reason::NotSynced, "the namespace could not be read".to_owned());
        let namespace = self.namespaces.get(name).ok_or_else(unreadable);
        let other = namespace.as_ref().ok().and_then(|namespace| self.deletion_by_managers(namespace, now));
        let successors = self.census.as_ref().and_then(|census| census.successors.as_ref());
        let successor = successors.map_or(SuccessorFacts::AsRecorded, |all| {
            let later = all.get(name).map(|later| &*later.name);
            let found =
                later.and_then(|name| Some((self.namespaces.get(name)?, self.governed.records.get(name)?)));
            found.map_or(SuccessorFacts::None, |(namespace, record)| SuccessorFacts::Found {
                namespace,
                record: record.facts(),
                workloads: None,
            })
        });
        // A record of a namespace that is not known is all that there is of it.
        (namespace.is_ok() || record.is_some()).then_some(ClusterObserved {
            health: HealthFacts::AsRecorded,
            pods: self.pods.fact(name),
            jobs: self.jobs.fact(name),
            pods_heard: now,
            delivery: Delivery::None,
            deliveries: &coppice_lifecycle::plan::NO_DELIVERIES,
            address_key: None,
            namespace,
            record,
            successor,
            managers,
            settings: &self.settings,
            budget: &self.budget,
            managed: self.managed,
            census: self.census.as_ref(),
            // The caches that count are the operator's; what is wrong with them, the record says.
            stale: None,
            other,
            webhook: self.webhook_under_way(name, None),
        })
    }

    /// The managers in a namespace.
    fn managers_in(&self, namespace: &str) -> impl Iterator<Item = &Manager> {
        // They are sorted by namespace, and there may be thousands.
        let from = self.managers.partition_point(|manager| manager.namespace() < namespace);
        self.managers[from..].iter().take_while(move |manager| manager.namespace() == namespace)
    }

    /// A webhook that is under way of a manager in a namespace, other than `but`.
    pub(super) fn webhook_under_way(&self, namespace: &str, but: Option<&str>) -> Option<PendingWebhook> {
        let uid = &self.namespaces.get(namespace)?.uid;
        let mut managers = self.managers_in(namespace).filter(|manager| but != Some(manager.name()));
        managers.find_map(|manager| {
            let by = format!("NamespaceManager {}", manager.name());
            PendingWebhook::of(by, &manager.status.steps, uid)
        })
    }

    /// What the managers in a namespace say of deleting it, as the operator does: the first of them.
    fn deletion_by_managers(&self, namespace: &NamespaceFacts, now: Timestamp) -> Option<OtherDeletion> {
        let managers = self.managers_in(&namespace.name);
        OtherDeletion::first(managers.filter_map(|manager| {
            let by = format!("NamespaceManager {}", manager.name());
            let said = (&manager.status.steps, manager.status.next.as_ref());
            OtherDeletion::of(by, false, said, namespace, now)
        }))
    }

    /// What the record of a namespace says of deleting it.
    pub(super) fn deletion_by_record(&self, namespace: &str, now: Timestamp) -> Option<OtherDeletion> {
        let status = &self.governed.records.get(namespace)?.status;
        let by = format!("ClusterNamespaceManager {}", status.manager.as_ref()?.name);
        OtherDeletion::of(
            by,
            true,
            (&status.steps, status.next.as_ref()),
            self.namespaces.get(namespace)?,
            now,
        )
    }
}

/// The clock that counts is the operator's.
fn time(now: Timestamp) -> ServerTime {
    ServerTime::certain(now)
}

impl GovernedPlan {
    /// Whether it relies on something that could not be known.
    pub(crate) fn is_unknown(&self) -> bool {
        condition::find(&self.status.conditions, READY).is_some_and(|ready| ready.status == "Unknown")
    }

    /// Whether no cluster manager selects the namespace: there is only a record from before.
    pub(crate) fn is_not_governed(&self) -> bool {
        self.status.next.as_ref().is_some_and(|next| next.reason == Reason::NotGoverned.as_str())
    }
}
