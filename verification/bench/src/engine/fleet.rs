//! Namespaces, managers and pods in memory, as the operator's caches hold them, and passes over them.

use std::hint::black_box;

use anyhow::{Context as _, ensure};
use coppice_api::config::{CoppiceConfigSpec, GovernorStatus};
use coppice_api::manager::{NamespaceManagerSpec, NamespaceManagerStatus};
use coppice_lifecycle::facts::{
    Annotations, Fact, NamespaceFacts, NamespaceSnapshot, ObjectSlice, PodFacts, PodPhase,
};
use coppice_lifecycle::limits::NamespaceLimits;
use coppice_lifecycle::plan::{Delivery, ManagerFacts, Observed};
use coppice_lifecycle::{PlatformSettings, ValidSpec, plan, steady};
use coppice_quantity::time::ServerTime;
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

/// A manager has one to so many policies.
const MAX_POLICIES: usize = 5;
/// Of so many namespaces one is due.
const DUE_ONE_IN: usize = 100;
/// Statuses stand still after a few plans; more is a loop.
const ROUNDS: usize = 10;

/// What a fleet is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Shape {
    /// Namespaces, each with one manager of one to five policies.
    pub namespaces: usize,
    /// Pods in each namespace.
    pub pods: usize,
    /// Whether one namespace in a hundred is due; otherwise none is.
    pub due: bool,
}

struct Member {
    namespace: NamespaceFacts,
    valid_spec: ValidSpec,
    status: NamespaceManagerStatus,
    pods: Vec<PodFacts>,
}

/// Namespaces whose statuses have settled: planning any of them again says nothing new, unless it is due.
pub struct Fleet {
    members: Vec<Member>,
    settings: PlatformSettings,
    budget: GovernorStatus,
    created: Timestamp,
    now: Timestamp,
}

/// What a pass over a fleet has found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Managers whose status is to be written.
    pub changed: usize,
    /// Managers looked at.
    pub evaluated: usize,
}

impl Fleet {
    /// Builds it. An error means that this benchmark does not measure what it says.
    pub fn new(shape: Shape) -> anyhow::Result<Self> {
        let created: Timestamp = "2026-03-01T12:00:00Z".parse().context("the instant of creation")?;
        let mut fleet = Self {
            members: Vec::with_capacity(shape.namespaces),
            settings: PlatformSettings::new(CoppiceConfigSpec::default(), "coppice-system", Vec::new()),
            budget: GovernorStatus::default(),
            created,
            // The last second before the first of them are due.
            now: created + SignedDuration::from_hours(1),
        };
        for n in 0..shape.namespaces {
            let mut member = Member {
                namespace: namespace(n, created),
                valid_spec: spec(n, shape.due && n.is_multiple_of(DUE_ONE_IN))?.try_into()?,
                status: NamespaceManagerStatus::default(),
                pods: (0..shape.pods).map(pod).collect(),
            };
            fleet.settle(&mut member)?;
            fleet.members.push(member);
        }
        if shape.due {
            // What ends after one hour is due one second later, since creation times are cut.
            fleet.now += SignedDuration::from_secs(1);
        }
        Ok(fleet)
    }

    /// How many namespaces it has.
    pub const fn len(&self) -> usize {
        self.members.len()
    }

    /// True for a fleet of nobody.
    pub const fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    fn settle(&self, member: &mut Member) -> anyhow::Result<()> {
        for _ in 0..ROUNDS {
            let plan = plan(&self.observe(member), ServerTime::certain(self.now));
            if plan.status == member.status {
                return Ok(());
            }
            member.status = plan.status;
        }
        anyhow::bail!("the status of {} never stands still", member.namespace.name)
    }

    /// What the operator does for each look at a manager: borrows the pods of its namespace, asks whether the manager rests,
    /// and if not, for a plan. True if its status is to be written.
    fn needs_write(&self, member: &Member) -> bool {
        let (observed, now) = (self.observe(member), ServerTime::certain(self.now));
        steady(&observed, now).is_none() && plan(&observed, now).status != member.status
    }

    fn observe<'a>(&'a self, member: &'a Member) -> Observed<'a> {
        Observed {
            manager: ManagerFacts {
                namespace: &member.namespace.name,
                name: "lifecycle",
                uid: "5ca10002-0000-4e00-8000-000000000001",
                generation: 1,
                terminating: false,
                spec: Ok(&member.valid_spec),
                status: &member.status,
            },
            snapshot: Some(NamespaceSnapshot::new(
                &member.namespace,
                Fact::Known { value: ObjectSlice::Slice(&member.pods), since: self.created },
                Fact::Known { value: ObjectSlice::EMPTY, since: self.created },
            )),
            before: 0,
            settings: &self.settings,
            limits: NamespaceLimits::None,
            budget: &self.budget,
            managed: self.members.len() as u64,
            stale: None,
            other: None,
            webhook: None,
            delivery: Delivery::None,
        }
    }

    /// Plans every namespace once.
    pub fn pass(&self) -> Found {
        let mut found = Found::default();
        for member in &self.members {
            found.evaluated += 1;
            found.changed += usize::from(black_box(self.needs_write(black_box(member))));
        }
        found
    }

    /// A pod of the n-th namespace changes its phase, and that namespace is planned again; true if its status changes.
    pub fn change(&mut self, n: usize) -> bool {
        let at = n % self.members.len();
        if let Some(pod) = self.members[at].pods.last_mut() {
            pod.phase = if pod.phase == PodPhase::Running { PodPhase::Pending } else { PodPhase::Running };
        }
        black_box(self.needs_write(black_box(&self.members[at])))
    }

    /// An error unless exactly those are due that are meant to be.
    pub fn check(&self, shape: Shape) -> anyhow::Result<()> {
        let found = self.pass();
        let due = if shape.due { shape.namespaces.div_ceil(DUE_ONE_IN) } else { 0 };
        ensure!(found.evaluated == shape.namespaces, "looked at {} namespaces", found.evaluated);
        ensure!(found.changed == due, "{} namespaces are due instead of {due}", found.changed);
        Ok(())
    }
}

pub(super) fn namespace(n: usize, created: Timestamp) -> NamespaceFacts {
    let name = format!("team-{:03}-preview-{n:05}", n % 200);
    let team = format!("team-{:03}", n % 200);
    let labels = [("kubernetes.io/metadata.name", name.as_str()), ("stage", "preview"), ("team", &team)];
    NamespaceFacts {
        labels: labels.into_iter().collect(),
        uid: format!("5ca10001-0000-4e00-8000-{n:012x}"),
        resource_version: "7".to_owned(),
        created,
        annotations: Annotations::default(),
        terminating: false,
        name,
    }
}

/// One to five policies; what ends after an hour is due, the rest is far away.
fn spec(n: usize, due: bool) -> anyhow::Result<NamespaceManagerSpec> {
    let after = if due { "1h" } else { "300d" };
    let all = [
        format!("{{name: end, when: {{ttl: {{after: {after}}}}}, then: {{delete: {{}}}}}}"),
        "{name: passed, when: {podsSucceed: {initialDelay: 60s}}, then: {scaleDown: {}}}".to_owned(),
        "{name: worker passed, when: {podsSucceed: {selector: {matchLabels: {app.kubernetes.io/name: worker}}}}, \
         then: {scaleDown: {}}}"
            .to_owned(),
        "{name: tell, when: {ttl: {until: '2026-12-24T18:00:00Z'}}, then: {scaleDown: {}}}".to_owned(),
        "{name: end of the year, when: {ttl: {until: '2026-12-31T23:00:00Z'}}, then: {delete: {}}}".to_owned(),
    ];
    // So that those that are due, one in a hundred, have every number of policies, too.
    let policies = &all[..=(n + n / DUE_ONE_IN) % MAX_POLICIES];
    let text = format!("policies: [{}]", policies.join(", "));
    serde_yaml::from_str(&text).with_context(|| text)
}

pub(super) fn pod(which: usize) -> PodFacts {
    const APPS: [&str; 5] = ["frontend", "backend", "database", "worker", "mail"];
    let app = APPS[which % APPS.len()];
    let hash = format!("{:010x}", which * 7919);
    let labels = [
        ("app.kubernetes.io/instance", "preview"),
        ("app.kubernetes.io/managed-by", "Helm"),
        ("app.kubernetes.io/name", app),
        ("pod-template-hash", &hash),
    ];
    PodFacts {
        name: format!("{app}-{hash}-{which:05x}").into(),
        labels: labels.into_iter().collect(),
        phase: PodPhase::Running,
        terminating: false,
        job: None,
        health: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_in_a_hundred_is_due_or_none() {
        for (due, expected) in [(true, 3), (false, 0)] {
            let shape = Shape { namespaces: 250, pods: 5, due };
            let fleet = Fleet::new(shape).unwrap();
            assert_eq!(fleet.pass(), Found { changed: expected, evaluated: 250 });
            fleet.check(shape).unwrap();
        }
        let fleet = Fleet::new(Shape { namespaces: 250, pods: 0, due: false }).unwrap();
        assert!(fleet.check(Shape { namespaces: 250, pods: 0, due: true }).is_err());
    }

    #[test]
    fn a_change_of_a_running_pod_is_noticed_where_the_status_names_it() {
        let mut fleet = Fleet::new(Shape { namespaces: 5, pods: 3, due: false }).unwrap();
        assert!(!fleet.change(0), "a single ttl does not look at pods");
        assert_eq!(fleet.members[0].pods[2].phase, PodPhase::Pending);
        assert!(!fleet.change(5), "the sixth is the first again");
        assert_eq!(fleet.members[0].pods[2].phase, PodPhase::Running);
    }
}
