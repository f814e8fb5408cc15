//! The same under cluster managers that look at the health of workloads: records, Deployments and `ReplicaSets`.
#![allow(clippy::print_stdout, reason = "this is what the benchmark is for")]

use std::time::Duration;

use serde_json::Value;

use super::objects::namespace_name;
use super::process::{Measured, Sample, Series};
use super::report::{Report, Run};
use super::{ScaleArgs, ScaleRun, build, count, finish};

/// So long the operator has nothing to do.
const IDLE: Duration = Duration::from_mins(1);

/// Of so many namespaces one is due, and waits for its manager to settle, which takes longer than any run.
const DUE: usize = 200;

/// Three cluster managers, each of a third of the namespaces, with so long to settle. One enforces. And one that enforces, of the few
/// that are due, with so long to settle.
fn managers(settle: &str, settle_due: &str) -> String {
    let due = format!(
        "{{apiVersion: coppice.dev/v1alpha1, kind: ClusterNamespaceManager, metadata: {{name: due}}, spec: {{mode: Enforce, priority: 1, \
         selector: {{names: ['team-000-*']}}, settle: {settle_due}, ttl: {{after: 1s}}, health: {{}}, policies: [{{name: stale, when: \
         {{phase: {{in: [Stale]}}}}, then: {{delete: {{notice: 1s}}}}}}]}}}}\n---\n"
    );
    let spec = |name: &str, mode: &str, names: &str| {
        format!(
            "{{apiVersion: coppice.dev/v1alpha1, kind: ClusterNamespaceManager, metadata: {{name: {name}}}, spec: {{mode: {mode}, \
             selector: {{names: [{names}]}}, settle: {settle}, ttl: {{after: 300d}}, health: {{}}, policies: [{{name: stale, when: \
             {{phase: {{in: [Stale]}}}}, then: {{delete: {{notice: 1h}}}}}}, {{name: failed, when: {{phase: {{in: [Failed]}}}}, then: \
             {{delete: {{notice: 1h}}}}}}]}}}}\n---\n"
        )
    };
    [
        spec(
            "first",
            "Enforce",
            "'team-00*', 'team-01*', 'team-02*', 'team-03*', 'team-04*', 'team-05*', 'team-06*'",
        ),
        spec(
            "second",
            "Observe",
            "'team-07*', 'team-08*', 'team-09*', 'team-10*', 'team-11*', 'team-12*', 'team-13*'",
        ),
        spec("third", "Observe", "'team-14*', 'team-15*', 'team-16*', 'team-17*', 'team-18*', 'team-19*'"),
        due,
    ]
    .concat()
}

impl ScaleRun {
    /// The runs with cluster managers; nothing in a namespace has a manager of its own.
    pub(super) async fn governed_runs(&self) -> anyhow::Result<Report> {
        let ScaleArgs { namespaces, pods, workloads, .. } = self.settings;
        self.seed("namespaces", (0..namespaces).map(|n| self.objects.namespace(n))).await?;
        let every = (0..pods).map(|n| self.objects.pod(n % namespaces, n / namespaces, 0));
        self.seed("pods", every).await?;
        let each = || (0..workloads).map(|n| (n % namespaces, n / namespaces));
        self.seed("Deployments", each().map(|(n, which)| self.objects.deployment(n, which))).await?;
        self.seed("ReplicaSets", each().map(|(n, which)| self.objects.replica_set(n, which))).await?;
        self.test_cluster.apply(&managers("5m", "4h")).await?;
        let mut runs = vec![self.start("governed, first pass", namespaces).await?];
        runs.push(self.start("governed, started again", 0).await?);
        runs.push(self.changed_manager().await?);
        for run in &runs {
            self.check_governed(run)?;
        }
        Ok(Report {
            build: build(&self.program),
            pod_bytes: self.settings.pod_bytes,
            runs,
            kib_per_pod: None,
        })
    }

    /// Starts the operator and changes every cluster manager under it, which every record has to say.
    async fn changed_manager(&self) -> anyhow::Result<Run> {
        println!("running the operator: every cluster manager changes, and all is looked at once more ...");
        let mut operator = Measured::spawn(&self.test_cluster, &self.program)?;
        let mut samples: Vec<(&'static str, Sample)> = vec![("ready", operator.ready().await?)];
        samples.push(("settled", operator.settled(|_| true).await?));
        let written = operator.metrics().await?.sum("coppice_status_writes_total");
        self.test_cluster.apply(&managers("6m", "5h")).await?;
        samples.push(("managers changed", operator.sample()?));
        self.decided_for_all().await?;
        samples.push(("decided for all", operator.sample()?));
        let enough = written + count(self.settings.namespaces);
        operator.wait(|s| s.sum("coppice_status_writes_total") >= enough).await?;
        samples.push(("all records written", operator.sample()?));
        samples.push(("settled again", operator.settled(|_| true).await?));
        let idle = operator.idle(IDLE).await?;
        samples.push(("idle for 60 s", operator.sample()?));
        self.nothing_was_done(&operator.metrics().await?).await?;
        let run = finish(operator, "governed, managers changed", samples).await?;
        Ok(Run { idle: Some(idle), ..run })
    }

    /// Whether the operator, since its managers changed, has announced and deleted nothing of what is due.
    async fn nothing_was_done(&self, series: &Series) -> anyhow::Result<()> {
        let deletes = series.deletes("namespaces");
        anyhow::ensure!(deletes < 0.5, "{deletes} requests to delete a namespace");
        let due = self.settings.namespaces.div_ceil(DUE);
        let manager = self.test_cluster.get("cnsman", "", "due").await?.unwrap_or_default();
        anyhow::ensure!(
            manager["status"]["enforce"]["due"] == due,
            "not {due} are due: {:#}",
            manager["status"]
        );
        for n in (0..self.settings.namespaces).step_by(DUE) {
            let record =
                self.test_cluster.get("mns", &namespace_name(n), "coppice").await?.unwrap_or_default();
            let status = &record["status"];
            let waits = status["manager"]["name"] == "due" && status["next"]["reason"] == "Settling";
            anyhow::ensure!(waits && status["notice"].is_null(), "it does not wait: {status:#}");
        }
        Ok(())
    }

    /// Waits until every cluster manager says what its present spec makes due: then that is decided for each namespace.
    async fn decided_for_all(&self) -> anyhow::Result<()> {
        let counted = |manager: &Value| {
            let generation = &manager["metadata"]["generation"];
            let conditions = manager["status"]["conditions"].as_array();
            let approved = conditions.into_iter().flatten().find(|condition| condition["type"] == "Approved");
            approved.is_some_and(|approved| approved["observedGeneration"] == *generation)
        };
        let all = async || {
            let managers = self.test_cluster.list("cnsman", "").await.ok()?;
            managers.iter().all(counted).then_some(())
        };
        self.test_cluster.until("every cluster manager is counted by its present spec", all).await
    }

    /// Whether what was in the caches is what was seeded.
    fn check_governed(&self, run: &Run) -> anyhow::Result<()> {
        let ScaleArgs { namespaces, pods, workloads, .. } = self.settings;
        let same = |seen: f64, meant: usize| (seen - count(meant)).abs() < 0.5;
        let [records, deployments, replica_sets] = run.governed;
        anyhow::ensure!(same(run.objects[2], pods), "{} pods were seen", run.objects[2]);
        anyhow::ensure!(same(records, namespaces), "{records} records were seen");
        // Those that nothing is wrong with are not kept.
        anyhow::ensure!(same(deployments, 0), "{deployments} Deployments were kept");
        anyhow::ensure!(same(replica_sets, workloads), "{replica_sets} ReplicaSets were seen");
        Ok(())
    }
}
