//! What stops a scale-down that is under way: the kill switch, a hold, and `suspend`.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use coppice_plane::proxy::{Fault, Match, Rule};
use coppice_tests::faulty::{Replica, World, soon};
use coppice_tests::{Stage, alone};
use serde_json::{Value, json};

type Test = anyhow::Result<()>;

const SLEEP: &str = "{policies: [{name: sleep, when: {ttl: {after: 1s}}, then: {scaleDown: {}}}]}";
/// So many scale-downs are under way or done when somebody interferes.
const UNDER_WAY: u64 = 5;
/// What two seconds are enough for at that pace, and some that are changed at once.
const BATCH: usize = 50;
/// So slow that there is time to interfere, whatever the operator does at once.
const SLOW: Duration = Duration::from_millis(200);

/// Deployments of one replica each. They are paused: their sizes are what is looked at, and pods would only cost time.
async fn deployments(stage: &Stage, namespace: &str, count: usize) -> Test {
    stage.namespace(namespace).await?;
    let mut yaml = String::new();
    for n in 0..count {
        writeln!(
            yaml,
            "---\n{{apiVersion: apps/v1, kind: Deployment, metadata: {{name: d-{n}, namespace: {namespace}}}, spec: {{paused: true, \
             replicas: 1, selector: {{matchLabels: {{a: d}}}}, template: {{metadata: {{labels: {{a: d}}}}, \
             spec: {{containers: [{{name: c, image: busybox}}]}}}}}}}}"
        )?;
    }
    stage.create_all(&yaml).await
}

/// The names of the Deployments that are scaled down, in order, and how many are not.
async fn asleep(stage: &Stage, namespace: &str) -> anyhow::Result<(Vec<String>, usize)> {
    let all = stage.list("deployments", namespace).await?;
    let (asleep, awake): (Vec<_>, Vec<_>) = all.iter().partition(|d| d["spec"]["replicas"] == 0);
    let mut names: Vec<_> = asleep.iter().map(|d| d["metadata"]["name"].to_string()).collect();
    names.sort();
    Ok((names, awake.len()))
}

/// What a manager remembers, in order: each with the one replica that it had.
fn remembered(manager: &Value) -> anyhow::Result<Vec<String>> {
    let entries = manager["status"]["scaledDown"].as_array().cloned().unwrap_or_default();
    ensure!(entries.iter().all(|entry| entry["replicas"] == 1), "{entries:?}");
    let mut names: Vec<_> = entries.iter().map(|entry| entry["name"].to_string()).collect();
    names.sort();
    Ok(names)
}

/// Lets a scale-down of so many begin, does something in the midst of it, and waits until the manager gives this reason.
/// The manager, and how many are scaled down: some, not all, and each of them is remembered.
async fn interrupted(
    world: &World,
    replica: &Replica,
    namespace: &str,
    (kind, of, name, patch): (&str, &str, &str, &str),
    reason: &str,
) -> anyhow::Result<(Value, usize)> {
    let stage = &world.stage;
    let changes = || Match::verb("patch").resource("deployments").namespace(namespace);
    let slow = replica.proxy.add(Rule::new(changes(), Fault::Delay(SLOW)));
    stage.manager(namespace, "m", SLEEP).await?;
    let waited = soon("scaling down has begun", slow.applied(UNDER_WAY)).await;
    waited.with_context(|| replica.operator.last_lines())?;
    stage.patch(kind, of, name, patch).await?;
    let stopped = |m: &Value| m["status"]["next"]["reason"] == reason;
    stage
        .manager_until(namespace, "m", reason, stopped)
        .await
        .with_context(|| replica.operator.last_lines())?;
    drop(slow);
    // Whatever it still does is done when it has renewed its lease again and again.
    world.quiet().await?;
    let (names, awake) = asleep(stage, namespace).await?;
    ensure!(awake > 0, "{reason}: all {} were scaled down", names.len());
    ensure!(!names.is_empty(), "{reason}: nothing was scaled down");
    let manager = stage.manager_until(namespace, "m", reason, stopped).await?;
    let known = remembered(&manager)?;
    // Sizes are written before they are changed: of one batch more can be remembered than was scaled down.
    ensure!(names.iter().all(|name| known.contains(name)), "scaled down: {names:?}, remembered: {known:?}");
    ensure!(known.len() <= names.len() + BATCH, "scaled down: {names:?}, remembered: {known:?}");
    Ok((manager, names.len()))
}

#[test]
fn the_kill_switch_stops_a_scale_down_under_way_and_lets_it_go_on() -> Test {
    alone(async {
        const COUNT: usize = 400;
        let world = World::start().await?;
        let stage = &world.stage;
        let replica = Replica::start(stage).await?;
        deployments(stage, "many", COUNT).await?;
        let pause = ("coppiceconfig", "", "coppice", r#"{"spec":{"governor":{"paused":true}}}"#);
        let (_, done) = interrupted(&world, &replica, "many", pause, "Paused").await?;
        ensure!(done < COUNT / 2, "{done} of {COUNT} were scaled down");
        stage.patch("coppiceconfig", "", "coppice", r#"{"spec":{"governor":{"paused":false}}}"#).await?;
        let manager =
            stage.phase("many", "m", "Fired").await.with_context(|| replica.operator.last_lines())?;
        ensure!(remembered(&manager)?.len() == COUNT && manager["status"]["firings"] == 1);
        ensure!(asleep(stage, "many").await?.1 == 0);
        Ok(())
    })
}

#[test]
fn a_hold_or_suspend_ends_a_scale_down_under_way_and_what_sleeps_can_be_woken() -> Test {
    alone(async {
        let world = World::start().await?;
        let stage = &world.stage;
        let replica = Replica::start(stage).await?;
        for (namespace, patch, reason) in [
            ("held", r#"{"spec":{"hold":{"until":"2099-01-01T00:00:00Z"}}}"#, "Held"),
            ("suspended", r#"{"spec":{"suspend":true}}"#, "Suspended"),
        ] {
            deployments(stage, namespace, 150).await?;
            let (manager, _) =
                interrupted(&world, &replica, namespace, ("nsman", namespace, "m", patch), reason).await?;
            ensure!(manager["status"]["intent"].is_null(), "{:#}", manager["status"]);
            let wake = json!({"spec": {"wake": manager["status"]["firings"]}}).to_string();
            stage.patch("nsman", namespace, "m", &wake).await?;
            let woken = |m: &Value| m["status"]["scaledDown"].is_null();
            let woken = stage.manager_until(namespace, "m", "awake", woken).await;
            woken.with_context(|| replica.operator.last_lines())?;
            ensure!(asleep(stage, namespace).await?.0.is_empty(), "{reason}: not all were woken");
        }
        Ok(())
    })
}
