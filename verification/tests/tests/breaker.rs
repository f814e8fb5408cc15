//! The breaker, opened by a list that collapses.

use std::fmt::Write as _;

use anyhow::{Context as _, ensure};
use coppice_plane::ADMIN;
use coppice_plane::proxy::{Break, FakeResponse, FaultRule, Match, ProxyFault};
use coppice_tests::fault_injection::{FAST_LEASE, Replica};
use coppice_tests::{TestCluster, on_own_plane};
use serde_json::{Value, json};

use crate::cli::coppice;

type Test = anyhow::Result<()>;

const DUE: &str = "{policies: [{name: end, when: {ttl: {after: 1s}}, then: {delete: {}}}]}";
/// So many are known when an empty list comes after a gap.
const JOBS: usize = 50;

/// Suspended, so that they need no pods.
async fn jobs(test_cluster: &TestCluster) -> Test {
    test_cluster.namespace("work").await?;
    let mut yaml = String::new();
    for n in 0..JOBS {
        writeln!(
            yaml,
            "---\n{{apiVersion: batch/v1, kind: Job, metadata: {{name: j-{n}, namespace: work}}, spec: {{suspend: true, \
             template: {{spec: {{restartPolicy: Never, containers: [{{name: c, image: busybox}}]}}}}}}}}"
        )?;
    }
    test_cluster.create_all(&yaml).await
}

/// Waits for the id of the breaker that is open.
async fn open_breaker(test_cluster: &TestCluster) -> anyhow::Result<String> {
    let id = async || {
        let config = test_cluster.get("coppiceconfig", "", "coppice").await.ok()??;
        config["status"]["governor"]["breaker"]["id"].as_str().map(str::to_owned)
    };
    test_cluster.until("the breaker is open", id).await
}

#[test]
fn a_list_that_collapses_stops_everything_until_it_is_acknowledged() -> Test {
    on_own_plane(async {
        let test_cluster = TestCluster::start_without_pods().await?;
        jobs(&test_cluster).await?;
        let mut replica = Replica::start(&test_cluster).await?;
        let known = async || {
            let known = replica.operator.metric("coppice_watch_objects{kind=\"jobs\"}").await.ok()??;
            (known >= 50.0).then_some(())
        };
        test_cluster.until("the operator knows the Jobs", known).await?;

        let nothing = json!({
            "apiVersion": "batch/v1", "kind": "JobList", "metadata": {"resourceVersion": "1"}, "items": [],
        });
        let lists = Match::verb("list").resource("jobs").namespace("");
        let empty = replica
            .proxy
            .add(FaultRule::new(lists, ProxyFault::FakeResponse(FakeResponse::json(200, &nothing))));
        replica.proxy.break_watches(&Match::any().resource("jobs"), Break::Expire);
        let id = open_breaker(&test_cluster).await.with_context(|| replica.operator.last_lines())?;
        ensure!(id.starts_with("jobs-"), "{id}");
        drop(empty);

        let uid = test_cluster.namespace("due").await?;
        test_cluster.manager("due", "m", DUE).await?;
        let stopped = |m: &Value| m["status"]["next"]["reason"] == "BreakerOpen";
        let manager = test_cluster.manager_until("due", "m", "BreakerOpen", stopped).await?;
        let message = manager["status"]["next"]["message"].to_string();
        ensure!(message.contains(&format!("`coppice acknowledge {id}`")), "{message}");
        let metric = replica.operator.metric("coppice_breaker_open{source=\"jobs\"}").await?;
        ensure!(metric == Some(1.0), "{metric:?}");

        // It is open after a restart, too, though everything is listed again.
        replica.operator.terminate().await?;
        replica.again(&test_cluster, &FAST_LEASE).await?;
        replica.leads(&test_cluster).await?;
        let shown = async || {
            let open = replica.operator.metric("coppice_breaker_open{source=\"jobs\"}").await.ok()??;
            (open > 0.0).then_some(())
        };
        test_cluster.until("the next process shows the breaker", shown).await?;
        ensure!(open_breaker(&test_cluster).await? == id);
        ensure!(!test_cluster.is_deleted("due", &uid).await && test_cluster.namespace_deletes()?.is_empty());

        let (code, _, err) = coppice(&test_cluster, ADMIN, &["acknowledge", "pods-1"]).await?;
        ensure!(code == 1 && err.contains(&format!("the one that is: {id} ")), "{code}: {err}");
        let (code, out, err) = coppice(&test_cluster, ADMIN, &["acknowledge", &id]).await?;
        ensure!(code == 0 && out.contains(&format!("breaker {id} acknowledged: ")), "{code}: {out}{err}");
        test_cluster.deleted("due", &uid).await?;
        for reason in ["BreakerOpen", "BreakerClosed"] {
            let written = async || {
                let notes = test_cluster.events("default", "coppice", reason).await.ok()?;
                notes.iter().any(|note| note.contains(&id)).then_some(())
            };
            test_cluster.until(&format!("an Event {reason} about the settings"), written).await?;
        }
        let config = test_cluster.settings().await?;
        ensure!(config["status"]["governor"]["breaker"].is_null(), "{config:#}");
        Ok(())
    })
}
