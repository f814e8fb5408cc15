//! What Kubernetes' own controllers, its scheduler and its kubelets do, each as small steps over the server.
//!
//! [`Models::ready`] names the steps that could run now, in a fixed order; whoever drives the models chooses one and
//! [runs](Models::run) it. Each step reads the current state and does what one pass of the real controller does, in
//! the real controller's name. Steps come from the log of changes, so that they cost nothing while nothing happens.

mod definitions;
mod deployments;
mod garbage;
mod jobs;
mod namespaces;
mod pods;
mod quotas;
mod replicas;
mod statefulsets;
mod support;
mod tenancy;

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::kinds::ServedKind;
use super::store::{Change, ObjectKey, Revision};
use super::{Server, meta};

/// One thing that one controller could do now. Which object it is about is part of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ControllerStep {
    /// The service account `default` of a namespace.
    ServiceAccount(ObjectKey),
    /// The certificates of the API server in a namespace.
    RootCa(ObjectKey),
    /// A definition that is being deleted.
    Definition(ObjectKey),
    /// A namespace that is being deleted.
    Namespace(ObjectKey),
    /// A Deployment and its replica sets.
    Deployment(ObjectKey),
    /// A ReplicaSet and its pods.
    ReplicaSet(ObjectKey),
    /// A StatefulSet and its pods.
    StatefulSet(ObjectKey),
    /// A Job and its pods.
    Job(ObjectKey),
    /// A pod that needs a node.
    Bind(ObjectKey),
    /// What a quota says of its namespace.
    Quota(ObjectKey),
    /// What the kubelet does next to a pod.
    Kubelet(ObjectKey),
    /// An object, by uid, whose owners may be gone.
    Collect(String),
    /// An object, by uid, that is being deleted and has dependents.
    Release(String),
}

/// Which controllers there are. All of them by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each switches one controller, independently of the others"
)]
pub struct Enabled {
    /// Namespaces that are deleted are emptied.
    pub namespaces: bool,
    /// Objects whose owners are gone are deleted.
    pub garbage: bool,
    /// New namespaces get a service account and certificates.
    pub tenancy: bool,
    /// Workloads make pods: `Deployment`, `ReplicaSet`, `StatefulSet` and `Job`.
    pub workloads: bool,
    /// Quotas count what the objects of their namespace use.
    pub quotas: bool,
    /// Pods are scheduled and do what their labels say.
    pub pods: bool,
}

impl Default for Enabled {
    fn default() -> Self {
        Self { namespaces: true, garbage: true, tenancy: true, workloads: true, quotas: true, pods: true }
    }
}

/// The controllers, and what they have still to process.
#[derive(Clone, Debug)]
pub struct Models {
    enabled: Enabled,
    /// Changes up to here were processed.
    seen: Revision,
    due: BTreeMap<ControllerStep, Timestamp>,
    order: BTreeSet<(Timestamp, ControllerStep)>,
    garbage: garbage::Graph,
    stages: pods::Stages,
    failures: BTreeMap<ControllerStep, u32>,
    /// Quotas by namespace.
    quotas: BTreeSet<ObjectKey>,
}

impl Models {
    /// All controllers, with everything that has happened so far still to process.
    pub fn new(_server: &Server) -> Self {
        Self::with(Enabled::default())
    }

    /// Some controllers.
    pub fn with(enabled: Enabled) -> Self {
        Self {
            enabled,
            seen: 0,
            due: BTreeMap::new(),
            order: BTreeSet::new(),
            garbage: garbage::Graph::default(),
            stages: pods::Stages::default(),
            failures: BTreeMap::new(),
            quotas: BTreeSet::new(),
        }
    }

    /// When the next step is due: now or before if there is one to run now; none if there is nothing to wait for.
    pub fn pending(&mut self, server: &Server, now: Timestamp) -> Option<Timestamp> {
        self.observe(server);
        self.order.first().map(|(at, _)| (*at).max(now))
    }

    /// The steps that could run now.
    pub fn ready(&mut self, server: &Server, now: Timestamp) -> Vec<ControllerStep> {
        self.observe(server);
        let mut ready: Vec<ControllerStep> =
            self.order.iter().take_while(|(at, _)| *at <= now).map(|(_, step)| step.clone()).collect();
        ready.sort();
        ready
    }

    /// Runs one step.
    pub fn run(&mut self, server: &mut Server, now: Timestamp, step: &ControllerStep) {
        self.observe(server);
        self.remove(step);
        let again = match step {
            ControllerStep::ServiceAccount(key) => tenancy::service_account(server, now, key.name()),
            ControllerStep::RootCa(key) => tenancy::root_ca(server, now, key.name()),
            ControllerStep::Definition(key) => definitions::clean_up(server, now, key.name()),
            ControllerStep::Namespace(key) => namespaces::empty(server, now, key.name()),
            ControllerStep::Deployment(key) => deployments::sync(server, now, key),
            ControllerStep::ReplicaSet(key) => replicas::sync(server, now, key),
            ControllerStep::StatefulSet(key) => statefulsets::sync(server, now, key),
            ControllerStep::Job(key) => jobs::sync(server, now, key),
            ControllerStep::Quota(key) => quotas::count(server, now, key),
            ControllerStep::Bind(key) => pods::bind(server, now, key),
            ControllerStep::Kubelet(key) => self.stages.play(server, now, key),
            ControllerStep::Collect(uid) => self.garbage.collect(server, now, uid),
            ControllerStep::Release(uid) => self.garbage.release(server, now, uid),
        };
        match again {
            Requeue::No => {
                self.failures.remove(step);
            }
            Requeue::At(at) => {
                self.failures.remove(step);
                self.add(step.clone(), at);
            }
            Requeue::AfterFailure => {
                let failures = self.failures.entry(step.clone()).or_default();
                *failures += 1;
                // 5 ms, doubled each time, a minute at most: as the real controllers' queues do it.
                let millis = 5i64.saturating_mul(1 << (*failures - 1).min(14)).min(60_000);
                let pause = jiff::SignedDuration::from_millis(millis);
                self.add(step.clone(), now.saturating_add(pause).unwrap_or(Timestamp::MAX));
            }
        }
    }

    /// Makes a step due later, unless something happens before.
    pub fn postpone(&mut self, step: &ControllerStep, at: Timestamp) {
        self.remove(step);
        self.add(step.clone(), at);
    }

    /// Runs the step that has been due for longest, if one could run now; whether there was one.
    pub fn step(&mut self, server: &mut Server, now: Timestamp) -> bool {
        self.observe(server);
        let Some((_, step)) = self.order.first().filter(|(at, _)| *at <= now).cloned() else { return false };
        self.run(server, now, &step);
        true
    }

    /// Runs steps until none could run now.
    pub fn settle(&mut self, server: &mut Server, now: Timestamp) {
        while self.step(server, now) {}
    }

    fn add(&mut self, step: ControllerStep, at: Timestamp) {
        match self.due.get(&step) {
            Some(known) if *known <= at => {}
            known => {
                if let Some(known) = known {
                    self.order.remove(&(*known, step.clone()));
                }
                self.order.insert((at, step.clone()));
                self.due.insert(step, at);
            }
        }
    }

    fn remove(&mut self, step: &ControllerStep) {
        if let Some(at) = self.due.remove(step) {
            self.order.remove(&(at, step.clone()));
        }
    }

    /// Takes in what has changed.
    fn observe(&mut self, server: &Server) {
        if self.seen == server.revision() {
            return;
        }
        let since = std::mem::replace(&mut self.seen, server.revision());
        for change in server.changes_since(since) {
            self.enqueue_for(change);
        }
    }

    fn enqueue_for(&mut self, change: &Change) {
        let (at, key, enabled) = (change.at, &change.key, self.enabled);
        let deleting = change.after.as_ref().is_some_and(|o| meta::deleting(o));
        match (change.kind.group.as_ref(), change.kind.plural.as_ref()) {
            ("", "namespaces") => {
                if enabled.tenancy && change.before.is_none() {
                    self.add(ControllerStep::ServiceAccount(key.clone()), at);
                    self.add(ControllerStep::RootCa(key.clone()), at);
                }
                if enabled.namespaces && deleting {
                    self.add(ControllerStep::Namespace(key.clone()), meta::later(at, namespaces::GRACE));
                }
            }
            ("", "serviceaccounts") if enabled.tenancy && change.after.is_none() => {
                self.add(ControllerStep::ServiceAccount(ObjectKey::new("", key.namespace())), at);
            }
            ("", "configmaps") if enabled.tenancy && key.name() == tenancy::ROOT_CA => {
                self.add(ControllerStep::RootCa(ObjectKey::new("", key.namespace())), at);
            }
            ("apiextensions.k8s.io", _) if deleting => self.add(ControllerStep::Definition(key.clone()), at),
            ("", "pods") if enabled.pods && change.after.is_some() => {
                self.add(ControllerStep::Bind(key.clone()), at);
                self.add(ControllerStep::Kubelet(key.clone()), at);
            }
            _ => {}
        }
        if enabled.quotas {
            self.enqueue_quotas(change);
        }
        if enabled.workloads {
            self.enqueue_workload(change);
        }
        if enabled.garbage {
            for step in self.garbage.observe(change) {
                self.add(step, at);
            }
        }
    }

    /// A new quota counts at once; the quotas of a namespace count again when objects come or go, or use another amount.
    fn enqueue_quotas(&mut self, change: &Change) {
        let is_quota = change.kind.group.is_empty() && change.kind.plural == "resourcequotas";
        match (is_quota, &change.after) {
            (true, Some(_)) => {
                self.quotas.insert(change.key.clone());
                self.add(ControllerStep::Quota(change.key.clone()), change.at);
            }
            (true, None) => {
                self.quotas.remove(&change.key);
            }
            _ => {}
        }
        let amounts = ["persistentvolumeclaims", "pods", "services"].contains(&&*change.kind.plural);
        let counted = change.before.is_none() || change.after.is_none() || amounts;
        if self.quotas.is_empty() || !counted || change.namespace().is_empty() {
            return;
        }
        let first = ObjectKey::new(change.namespace(), "");
        let of_namespace = self.quotas.range(first..).take_while(|key| key.namespace() == change.namespace());
        for key in of_namespace.cloned().collect::<Vec<_>>() {
            self.add(ControllerStep::Quota(key), change.at);
        }
    }

    fn enqueue_workload(&mut self, change: &Change) {
        if let Some(step) = workload(&change.kind, change.key.clone()) {
            self.add(step, change.at);
        }
        // The object's controller reconciles it again.
        let states = [&change.before, &change.after];
        for owner in states.into_iter().flatten().flat_map(|object| meta::owners(object)) {
            if owner["controller"] != true {
                continue;
            }
            let key = ObjectKey::new(change.key.namespace(), owner["name"].as_str().unwrap_or_default());
            let step = match owner["kind"].as_str() {
                Some("Deployment") => ControllerStep::Deployment(key),
                Some("ReplicaSet") => ControllerStep::ReplicaSet(key),
                Some("StatefulSet") => ControllerStep::StatefulSet(key),
                Some("Job") => ControllerStep::Job(key),
                _ => continue,
            };
            self.add(step, change.at);
        }
    }
}

fn workload(kind: &ServedKind, key: ObjectKey) -> Option<ControllerStep> {
    match (kind.group.as_ref(), kind.plural.as_ref()) {
        ("apps", "deployments") => Some(ControllerStep::Deployment(key)),
        ("apps", "replicasets") => Some(ControllerStep::ReplicaSet(key)),
        ("apps", "statefulsets") => Some(ControllerStep::StatefulSet(key)),
        ("batch", "jobs") => Some(ControllerStep::Job(key)),
        _ => None,
    }
}

/// Whether a step has to be run again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Requeue {
    /// Only when something changes.
    No,
    /// At this instant, also if nothing changes.
    At(Timestamp),
    /// Soon: something was in the way.
    AfterFailure,
}
