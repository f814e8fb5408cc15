//! What stops a scale-down that is under way: `paused`, a hold, and `suspend`.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use coppice_plane::proxy::{FaultRule, Match, ProxyFault, TraceEntry};
use coppice_tests::fault_injection::{FaultTestbed, Replica, with_timeout};
use coppice_tests::{TestCluster, on_own_plane};
use serde_json::{Value, json};

use crate::large_namespaces::fired;

type Test = anyhow::Result<()>;

const SCALE_DOWN: &str = "{policies: [{name: sleep, when: {ttl: {after: 1s}}, then: {scaleDown: {}}}]}";
/// So many scale-downs are done when somebody interferes, and more are under way.
const IN_PROGRESS: usize = 5;
/// What two seconds are enough for at that pace, and some that are changed at once.
const BATCH: usize = 50;
/// So slow that there is time to interfere, whatever the operator does at once.
const SLOW: Duration = Duration::from_millis(200);

/// Deployments of one replica each. They are paused: their sizes are what is looked at, and pods would only cost time.
///
/// Each has been seen by its controller: a status that is first written while it is being scaled down would make the change
/// conflict, and with enough of them nothing is scaled down before somebody interferes.
async fn deployments(test_cluster: &TestCluster, namespace: &str, count: usize) -> Test {
    test_cluster.namespace(namespace).await?;
    let mut yaml = String::new();
    for n in 0..count {
        writeln!(
            yaml,
            "---\n{{apiVersion: apps/v1, kind: Deployment, metadata: {{name: d-{n}, namespace: {namespace}}}, spec: {{paused: true, \
             replicas: 1, selector: {{matchLabels: {{a: d}}}}, template: {{metadata: {{labels: {{a: d}}}}, \
             spec: {{containers: [{{name: c, image: busybox}}]}}}}}}}}"
        )?;
    }
    test_cluster.create_all(&yaml).await?;
    let seen = async || {
        let all = test_cluster.list("deployments", namespace).await.ok()?;
        let seen = all.iter().filter(|d| d["status"]["observedGeneration"] == d["metadata"]["generation"]);
        (seen.count() == count).then_some(())
    };
    test_cluster.until("the controller has seen every Deployment", seen).await
}

/// The names of the Deployments that are scaled down, in order, and how many are not.
async fn scaled_down(test_cluster: &TestCluster, namespace: &str) -> anyhow::Result<(Vec<String>, usize)> {
    let all = test_cluster.list("deployments", namespace).await?;
    let (scaled_down, awake): (Vec<_>, Vec<_>) = all.iter().partition(|d| d["spec"]["replicas"] == 0);
    let mut names: Vec<_> = scaled_down.iter().map(|d| d["metadata"]["name"].to_string()).collect();
    names.sort();
    Ok((names, awake.len()))
}

/// What a manager remembers, in order: each with the one replica that it had.
fn recorded(manager: &Value) -> anyhow::Result<Vec<String>> {
    let entries = manager["status"]["scaledDown"].as_array().cloned().unwrap_or_default();
    ensure!(entries.iter().all(|entry| entry["replicas"] == 1), "{entries:?}");
    let mut names: Vec<_> = entries.iter().map(|entry| entry["name"].to_string()).collect();
    names.sort();
    Ok(names)
}

/// Lets a scale-down of so many begin, does something in the midst of it, and waits until the manager gives this reason.
/// The manager, and how many are scaled down: some, not all, and each of them is remembered.
async fn interrupted(
    testbed: &FaultTestbed,
    replica: &Replica,
    namespace: &str,
    (kind, of, name, patch): (&str, &str, &str, &str),
    reason: &str,
) -> anyhow::Result<(Value, usize)> {
    let test_cluster = &testbed.test_cluster;
    let changes = Match::verb("patch").resource("deployments").namespace(namespace);
    let slow = replica.proxy.add(FaultRule::new(changes.clone(), ProxyFault::Delay(SLOW)));
    test_cluster.manager(namespace, "m", SCALE_DOWN).await?;
    let some = |entries: &[TraceEntry]| {
        let done = entries.iter().filter(|entry| entry.status == Some(200) && changes.selects(entry));
        (done.count() >= IN_PROGRESS).then_some(())
    };
    let waited = with_timeout("some are scaled down", replica.proxy.trace().wait_until(some)).await;
    waited.with_context(|| replica.operator.last_lines())?;
    test_cluster.patch(kind, of, name, patch).await?;
    let stopped = |m: &Value| m["status"]["next"]["reason"] == reason;
    test_cluster
        .manager_until(namespace, "m", reason, stopped)
        .await
        .with_context(|| replica.operator.last_lines())?;
    drop(slow);
    // Whatever it still does is done when it has renewed its lease again and again.
    testbed.quiet().await?;
    let (names, awake) = scaled_down(test_cluster, namespace).await?;
    let last_lines = || replica.operator.last_lines();
    ensure!(awake > 0, "{reason}: all {} were scaled down: {}", names.len(), last_lines());
    ensure!(!names.is_empty(), "{reason}: nothing was scaled down: {}", last_lines());
    let manager = test_cluster.manager_until(namespace, "m", reason, stopped).await?;
    let known = recorded(&manager)?;
    // Sizes are written before they are changed: of one batch more can be remembered than was scaled down.
    let difference = || format!("scaled down: {names:?}, remembered: {known:?}: {}", last_lines());
    ensure!(names.iter().all(|name| known.contains(name)), difference());
    ensure!(known.len() <= names.len() + BATCH, difference());
    Ok((manager, names.len()))
}

#[test]
fn paused_stops_a_scale_down_under_way_and_lets_it_go_on() -> Test {
    on_own_plane(async {
        const COUNT: usize = 400;
        let testbed = FaultTestbed::start_without_pods().await?;
        let test_cluster = &testbed.test_cluster;
        let replica = Replica::start(test_cluster).await?;
        deployments(test_cluster, "many", COUNT).await?;
        let pause = ("coppiceconfig", "", "coppice", r#"{"spec":{"governor":{"paused":true}}}"#);
        let (_, done) = interrupted(&testbed, &replica, "many", pause, "Paused").await?;
        ensure!(done < COUNT / 2, "{done} of {COUNT} were scaled down");
        test_cluster
            .patch("coppiceconfig", "", "coppice", r#"{"spec":{"governor":{"paused":false}}}"#)
            .await?;
        // As long as it goes on, however slow the machine is.
        let manager = fired(test_cluster, "many", &replica.operator).await?;
        ensure!(recorded(&manager)?.len() == COUNT && manager["status"]["firings"] == 1);
        ensure!(scaled_down(test_cluster, "many").await?.1 == 0);
        Ok(())
    })
}

#[test]
fn a_hold_or_suspend_ends_a_scale_down_under_way_and_what_sleeps_can_be_woken() -> Test {
    on_own_plane(async {
        let testbed = FaultTestbed::start_without_pods().await?;
        let test_cluster = &testbed.test_cluster;
        let replica = Replica::start(test_cluster).await?;
        for (namespace, patch, reason) in [
            ("held", r#"{"spec":{"hold":{"until":"2099-01-01T00:00:00Z"}}}"#, "Held"),
            ("suspended", r#"{"spec":{"suspend":true}}"#, "Suspended"),
        ] {
            deployments(test_cluster, namespace, 150).await?;
            let (manager, _) =
                interrupted(&testbed, &replica, namespace, ("nsman", namespace, "m", patch), reason).await?;
            ensure!(manager["status"]["intent"].is_null(), "{:#}", manager["status"]);
            let wake = json!({"spec": {"wake": manager["status"]["firings"]}}).to_string();
            test_cluster.patch("nsman", namespace, "m", &wake).await?;
            let woken = |m: &Value| m["status"]["scaledDown"].is_null();
            let woken = test_cluster.manager_until(namespace, "m", "awake", woken).await;
            woken.with_context(|| replica.operator.last_lines())?;
            ensure!(scaled_down(test_cluster, namespace).await?.0.is_empty(), "{reason}: not all were woken");
        }
        Ok(())
    })
}
