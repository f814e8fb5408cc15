//! Namespaces as of a CI system under cluster managers. One is superseded; then ten are under one cluster manager, which
//! first observes and then enforces.
#![allow(clippy::print_stdout, reason = "this is what the demo is for")]

use std::time::{Duration, Instant};

use anyhow::Context as _;
use coppice_api::cluster_manager::Mode;
use coppice_api::condition::{self, APPROVED};
use coppice_api::{ClusterNamespaceManager, CoppiceConfig, ManagedNamespace, ManagedNamespaceStatus};
use coppice_api::{NamespacePhase, Reason};
use coppice_plane::{DELAY_ANNOTATION, OUTCOME_LABEL};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};

use super::cluster::Cluster;
use super::screen::Screen;
use super::superseded::{self, StandIns};
use super::table::Table;
use super::{TIMEOUT, apply_until_taken, pause};
use crate::Operator;

/// The annotation by which the creator of a namespace gives it a ttl.
const TTL: &str = "ci.example.org/ttl";
/// What is older than this when a manager begins to enforce was there before: to delete much of it takes approval.
const THERE_BEFORE: SignedDuration = SignedDuration::from_secs(122);
/// A pod that flaps fails for so long, and runs for so long.
const FLAP: Duration = Duration::from_secs(4);
/// So much would be deleted while the manager observes.
const DUE: u32 = 3;
/// So much is due by its switch to `Enforce`: what fails has to fail for as long again.
const NEWLY_DUE: u32 = 2;

const MANAGER: &str = "{apiVersion: coppice.dev/v1alpha1, kind: ClusterNamespaceManager, metadata: {name: ci}, spec: {selector: \
                       {names: ['ci-*']}, settle: 5s, ttl: {after: 1h, fromAnnotation: TTL}, health: {settlingPeriod: 8s, \
                       gracePeriod: 6s, recoveryPeriod: 5s, failureBudget: {window: 1m, max: 10s}}, policies: [{name: delete \
                       the failed, when: {phase: {in: [Failed]}}, then: {delete: {notice: 10s}}}, {name: delete the stale, \
                       when: {phase: {in: [Stale]}}, then: {delete: {notice: 10s}}}]}}";

/// One namespace, and what becomes of it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Case {
    Healthy,
    SlowStart,
    Crashing,
    Recovering,
    Flapping,
    Expiring,
    Held,
    Extended,
    Protected,
    Recreated,
}

impl Case {
    const ALL: [Self; 10] = [
        Self::Healthy,
        Self::SlowStart,
        Self::Crashing,
        Self::Recovering,
        Self::Flapping,
        Self::Expiring,
        Self::Held,
        Self::Extended,
        Self::Protected,
        Self::Recreated,
    ];

    const fn namespace(self) -> &'static str {
        match self {
            Self::Healthy => "ci-healthy",
            Self::SlowStart => "ci-slow-start",
            Self::Crashing => "ci-crashing",
            Self::Recovering => "ci-recovering",
            Self::Flapping => "ci-flapping",
            Self::Expiring => "ci-expiring",
            Self::Held => "ci-held",
            Self::Extended => "ci-extended",
            Self::Protected => "ci-protected",
            Self::Recreated => "ci-recreated",
        }
    }

    const fn expected(self) -> &'static str {
        match self {
            Self::Healthy => "still there: nothing is wrong with it",
            Self::SlowStart => "still there: what starts slowly is no failure",
            Self::Crashing => "deleted: it had failed for long enough",
            Self::Recovering => "still there: it failed, and recovered in time",
            Self::Flapping => "Failing: it fails again and again",
            Self::Expiring => "deleted: its ttl was over",
            Self::Held => "still there though its ttl is over: it is held",
            Self::Extended => "still there though its ttl is over: it was extended",
            Self::Protected => "still there though its ttl is over: it is protected",
            Self::Recreated => "deleted, created again, and left alone since: it is another one now",
        }
    }

    /// Whether the ttl that its creator gave it is over from the start.
    const fn expires(self) -> bool {
        matches!(self, Self::Expiring | Self::Held | Self::Extended | Self::Protected | Self::Recreated)
    }

    const fn is_deleted(self) -> bool {
        matches!(self, Self::Crashing | Self::Expiring | Self::Recreated)
    }

    fn yaml(self) -> String {
        let ttl = if self.expires() { format!("{TTL}: 30s") } else { String::new() };
        let label = if self == Self::Protected { "coppice.dev/protected: 'true'" } else { "" };
        let name = self.namespace();
        let namespace = format!(
            "{{apiVersion: v1, kind: Namespace, metadata: {{name: {name}, labels: {{{label}}}, annotations: {{{ttl}}}}}}}"
        );
        let until = "'2099-01-01T00:00:00Z'";
        let record = match self {
            Self::Held => format!("hold: {{until: {until}, reason: somebody looks at it}}"),
            Self::Extended => format!("extendUntil: {{at: {until}}}"),
            _ => return namespace,
        };
        format!(
            "{namespace}\n---\n{{apiVersion: coppice.dev/v1alpha1, kind: ManagedNamespace, metadata: {{name: coppice, \
             namespace: {name}}}, spec: {{{record}}}}}"
        )
    }

    /// The pod in it, which does what its label says.
    fn pod(self) -> Option<String> {
        let (outcome, delay) = match self {
            Self::Healthy => ("run", "0s"),
            Self::SlowStart => ("run", "1h"),
            Self::Crashing | Self::Recovering | Self::Flapping => ("crashloop", "0s"),
            _ => return None,
        };
        Some(format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: web, namespace: {}, labels: {{{OUTCOME_LABEL}: {outcome}}}, \
             annotations: {{{DELAY_ANNOTATION}: {delay}}}}}, spec: {{containers: [{{name: main, image: example.com/none}}]}}}}",
            self.namespace()
        ))
    }

    /// Whether its outcome is seen, by its namespace and the status of its record.
    fn seen(
        self,
        namespace: Option<&Namespace>,
        status: &ManagedNamespaceStatus,
        first: Option<&str>,
    ) -> bool {
        let there = namespace.is_some_and(|namespace| namespace.metadata.deletion_timestamp.is_none());
        let waits = |reason: Reason| status.next.as_ref().is_some_and(|next| next.reason == reason.as_str());
        let was = |phase| status.past_phases.iter().any(|past| past.phase == phase);
        // Its workloads may not have been listed at first.
        let failed =
            [NamespacePhase::Unstable, NamespacePhase::Failing, NamespacePhase::Failed].into_iter().any(was);
        let (ok, stale) = (Some(NamespacePhase::Ok), Some(NamespacePhase::Stale));
        match self {
            Self::Crashing | Self::Expiring => namespace.is_none(),
            Self::Healthy | Self::SlowStart => there && status.phase == ok && !failed,
            Self::Recovering => there && status.phase == ok && was(NamespacePhase::Unstable),
            Self::Flapping => there && status.phase == Some(NamespacePhase::Failing),
            Self::Held => there && status.phase == stale && waits(Reason::Held),
            Self::Extended => there && status.phase == ok,
            Self::Protected => there && status.phase == stale && waits(Reason::NamespaceProtected),
            Self::Recreated => {
                let uid = namespace.and_then(|namespace| namespace.metadata.uid.as_deref());
                there
                    && status.phase == ok
                    && uid.is_some()
                    && uid != first
                    && status.namespace_uid.as_deref() == uid
            }
        }
    }
}

/// Creates the namespaces: they are there before the manager is.
pub(super) async fn prepare(cluster: &Cluster) -> anyhow::Result<()> {
    let all: Vec<_> = Case::ALL.iter().map(|case| case.yaml()).collect();
    cluster.apply(&all.join("\n---\n")).await
}

/// Whether every outcome was seen.
pub(super) async fn run(
    cluster: &Cluster,
    operator: &Operator,
    stand_ins: &StandIns,
    screen: &Screen,
) -> anyhow::Result<bool> {
    println!("\nCluster managers: a platform team governs namespaces by ClusterNamespaceManagers.\n");
    if !superseded::run(&cluster.kubeconfig(), operator, stand_ins, superseded::NOTICE, screen).await? {
        return Ok(false);
    }
    println!("Then {} namespaces are governed by one ClusterNamespaceManager.", Case::ALL.len());
    println!("  It observes first: nothing is done, and the manager counts what it would have done.\n");
    for pod in Case::ALL.iter().filter_map(|case| case.pod()) {
        apply_until_taken(cluster, &pod).await?;
    }
    cluster.apply(&MANAGER.replace("TTL", TTL)).await?;
    let mut demonstration = Demonstration {
        client: cluster.client().await?,
        table: Table::new(screen, "ci-"),
        deadline: Instant::now() + TIMEOUT,
        flaps: Instant::now(),
        open: Case::ALL.to_vec(),
        first: None,
    };
    if !demonstration.observe().await? || !demonstration.enforce().await? {
        return Ok(false);
    }
    demonstration.follow(|demonstration| demonstration.open.is_empty()).await?;
    println!();
    for case in &demonstration.open {
        println!("NOT SEEN  {}: {}", case.namespace(), case.expected());
    }
    Ok(demonstration.open.is_empty())
}

struct Demonstration {
    client: Client,
    table: Table,
    deadline: Instant,
    /// Since when a pod flaps.
    flaps: Instant,
    /// What has not been seen.
    open: Vec<Case>,
    /// The uid of the first of the namespaces that are created again.
    first: Option<String>,
}

impl Demonstration {
    /// Until the manager counts what is due, and everything was there before.
    async fn observe(&mut self) -> anyhow::Result<bool> {
        self.first = self.namespace(Case::Recreated).await?.and_then(|namespace| namespace.uid());
        let counted = self
            .until(async |demonstration| {
                let status = demonstration.manager().await?.status.unwrap_or_default();
                Ok(status.enforce.due == DUE && demonstration.age().await? > THERE_BEFORE)
            })
            .await?;
        if !counted {
            println!("\nNOT SEEN  ClusterNamespaceManager ci: {DUE} namespaces are due");
            return Ok(false);
        }
        for case in Case::ALL.into_iter().filter(|case| case.is_deleted()) {
            if self.namespace(case).await?.is_none_or(|found| found.metadata.deletion_timestamp.is_some()) {
                println!("\nNOT EXPECTED  {}: deleted by a manager that observes", case.namespace());
                return Ok(false);
            }
        }
        self.table.row("-", "as expected", &format!("{DUE} namespaces are due, and nothing was done"));
        Ok(true)
    }

    /// Switches the manager to `Enforce`, which needs approval, and gives it.
    #[allow(clippy::disallowed_methods, reason = "a program for people, not a decision")]
    async fn enforce(&mut self) -> anyhow::Result<bool> {
        self.budget(NEWLY_DUE - 1).await?;
        self.patch(json!({"mode": Mode::Enforce})).await?;
        self.table.row("-", "switched to Enforce", &format!("the budget is {} step an hour", NEWLY_DUE - 1));
        let asked = self
            .until(async |demonstration| {
                let status = demonstration.manager().await?.status.unwrap_or_default();
                let approved = condition::find(&status.conditions, APPROVED);
                Ok(approved.is_some_and(|approved| approved.reason == Reason::ApprovalNeeded.as_str()))
            })
            .await?;
        if !asked {
            println!("\nNOT SEEN  ClusterNamespaceManager ci: it waits for approval");
            return Ok(false);
        }
        self.table.row("-", "as expected", "more is due than the budget of an hour: it waits for approval");
        let digest = self.manager().await?.status.and_then(|status| status.policy_digest);
        let valid_until = Timestamp::now() + SignedDuration::from_hours(1);
        let approval = json!({"digest": digest, "namespaces": NEWLY_DUE, "validUntil": valid_until.round(jiff::Unit::Second)?});
        self.patch(json!({"approval": approval})).await?;
        self.budget(100).await?;
        self.table.row("-", "approved", "by spec.approval; the budget is 100 steps an hour");
        Ok(true)
    }

    /// Looks at everything, and prints what is new, until something holds; whether it does, in time.
    async fn until(&mut self, holds: impl AsyncFn(&Self) -> anyhow::Result<bool>) -> anyhow::Result<bool> {
        while Instant::now() < self.deadline {
            self.look(false).await?;
            if holds(self).await? {
                return Ok(true);
            }
            pause().await;
        }
        Ok(false)
    }

    /// The same, and notes which outcomes are seen.
    async fn follow(&mut self, done: impl Fn(&Self) -> bool) -> anyhow::Result<()> {
        while !done(self) && Instant::now() < self.deadline {
            self.look(true).await?;
            pause().await;
        }
        Ok(())
    }

    async fn look(&mut self, outcomes: bool) -> anyhow::Result<()> {
        self.table.update(&self.client).await?;
        let deletions = self.open.iter().any(|case| case.is_deleted());
        let mut still = Vec::new();
        for case in std::mem::take(&mut self.open) {
            let namespace = self.namespace(case).await?;
            if case == Case::Recreated && outcomes && namespace.is_none() {
                let again =
                    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": case.namespace()}});
                let namespaces: Api<Namespace> = Api::all(self.client.clone());
                namespaces.create(&kube::api::PostParams::default(), &serde_json::from_value(again)?).await?;
                self.table.row(case.namespace(), "created again", "by somebody who still needs it");
            }
            let status = self.status(case).await?;
            let unstable = status.phase == Some(NamespacePhase::Unstable);
            match case {
                Case::Recovering if unstable => self.pod(case, "run").await?,
                Case::Flapping => {
                    let turns = self.flaps.elapsed().as_secs() / FLAP.as_secs();
                    self.pod(case, if turns.is_multiple_of(2) { "crashloop" } else { "run" }).await?;
                }
                _ => {}
            }
            // What is still there in the end counts when all others are gone; what flaps fails only for a moment.
            let counts = case == Case::Flapping || outcomes && (case.is_deleted() || !deletions);
            if counts && case.seen(namespace.as_ref(), &status, self.first.as_deref()) {
                self.table.row(case.namespace(), "as expected", case.expected());
                if case == Case::Flapping {
                    self.pod(case, "run").await?;
                }
            } else {
                still.push(case);
            }
        }
        self.open = still;
        Ok(())
    }

    async fn namespace(&self, case: Case) -> anyhow::Result<Option<Namespace>> {
        Ok(Api::<Namespace>::all(self.client.clone()).get_opt(case.namespace()).await?)
    }

    /// The age of the youngest.
    #[allow(clippy::disallowed_methods, reason = "a program for people, not a decision")]
    async fn age(&self) -> anyhow::Result<SignedDuration> {
        let mut age = SignedDuration::MAX;
        for case in Case::ALL {
            let created = self.namespace(case).await?.and_then(|namespace| namespace.creation_timestamp());
            let created = created.with_context(|| format!("namespace {} is gone", case.namespace()))?;
            age = age.min(Timestamp::now().duration_since(created.0));
        }
        Ok(age)
    }

    async fn status(&self, case: Case) -> anyhow::Result<ManagedNamespaceStatus> {
        let records: Api<ManagedNamespace> = Api::namespaced(self.client.clone(), case.namespace());
        Ok(records.get_opt("coppice").await?.and_then(|record| record.status).unwrap_or_default())
    }

    async fn manager(&self) -> anyhow::Result<ClusterNamespaceManager> {
        Ok(Api::all(self.client.clone()).get("ci").await?)
    }

    async fn patch(&self, spec: Value) -> anyhow::Result<()> {
        let managers: Api<ClusterNamespaceManager> = Api::all(self.client.clone());
        let patch = Patch::Merge(json!({"spec": spec}));
        managers.patch("ci", &PatchParams::default(), &patch).await?;
        Ok(())
    }

    async fn budget(&self, per_hour: u32) -> anyhow::Result<()> {
        let configs: Api<CoppiceConfig> = Api::all(self.client.clone());
        let patch = Patch::Merge(json!({"spec": {"governor": {"perHour": per_hour}}}));
        configs.patch("coppice", &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Makes a pod run or fail, if it does not already.
    async fn pod(&self, case: Case, outcome: &str) -> anyhow::Result<()> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), case.namespace());
        let Some(pod) = pods.get_opt("web").await? else { return Ok(()) };
        if pod.labels().get(OUTCOME_LABEL).is_some_and(|now| now == outcome) {
            return Ok(());
        }
        let patch = Patch::Merge(json!({"metadata": {"labels": {OUTCOME_LABEL: outcome}}}));
        pods.patch("web", &PatchParams::default(), &patch).await?;
        Ok(())
    }
}
