//! The command line with the real operator behind it, as a tenant with the rights that the installation gives.

use anyhow::ensure;
use coppice_plane::{ADMIN, ALICE};
use coppice_tests::test_cluster::binary;
use coppice_tests::{Operator, TestCluster, on_own_plane};
use serde_json::Value;

use super::cluster_managers::record;

type Test = anyhow::Result<()>;

/// Runs `coppice` as a user: exit code, standard output, standard error.
pub(crate) async fn coppice(
    test_cluster: &TestCluster,
    user: &str,
    args: &[&str],
) -> anyhow::Result<(i32, String, String)> {
    let output = tokio::process::Command::new(binary("coppice")?)
        .args(args)
        .env("KUBECONFIG", test_cluster.plane.kubeconfig(user)?)
        .output()
        .await?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok((output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr)))
}

pub(crate) async fn tenant(test_cluster: &TestCluster, namespace: &str) -> anyhow::Result<String> {
    let uid = test_cluster.namespace(namespace).await?;
    let grant = ["create", "rolebinding", "alice", "-n", namespace, "--clusterrole=admin", "--user=alice"];
    test_cluster.kubectl(ADMIN, &grant).await?;
    // The roles of the installation are added to `admin` a moment after they were created.
    let may = ["auth", "can-i", "patch", "namespacemanagers.coppice.dev", "-n", namespace];
    test_cluster
        .until("alice may write managers", async || test_cluster.kubectl(ALICE, &may).await.ok())
        .await?;
    Ok(uid)
}

#[test]
fn a_tenant_holds_releases_and_wakes_also_after_the_operator_was_restarted() -> Test {
    on_own_plane(async {
        let test_cluster = TestCluster::start_without_pods().await?;
        let mut operator = Operator::start(&test_cluster).await?;
        let uid = tenant(&test_cluster, "team-a").await?;
        let manager = "{apiVersion: coppice.dev/v1alpha1, kind: NamespaceManager, metadata: {name: SLEEP, namespace: team-a}, spec: SPEC}";
        let deployment = "{apiVersion: apps/v1, kind: Deployment, metadata: {name: d, namespace: team-a}, spec: {replicas: 3, \
             selector: {matchLabels: {a: d}}, template: {metadata: {labels: {a: d}}, spec: {containers: [{name: c, image: busybox}]}}}}";
        test_cluster.kubectl_stdin(ALICE, &["apply", "-f", "-"], deployment).await?;
        let sleep = manager
            .replace("SLEEP", "sleep")
            .replace("SPEC", "{policies: [{name: sleep, when: {ttl: {after: 1s}}, then: {scaleDown: {}}}]}");
        test_cluster.kubectl_stdin(ALICE, &["apply", "-f", "-"], &sleep).await?;
        test_cluster.phase("team-a", "sleep", "Fired").await?;
        let size = async || -> anyhow::Result<Value> {
            Ok(test_cluster.get("deploy", "team-a", "d").await?.unwrap_or_default()["spec"]["replicas"]
                .clone())
        };
        ensure!(size().await? == 0);
        operator.terminate().await?;
        let _operator = Operator::start(&test_cluster).await?;
        let (code, out, err) =
            coppice(&test_cluster, ALICE, &["wake", "team-a/sleep", "--timeout=300s"]).await?;
        ensure!(code == 0, "{code}: {out}{err}");
        ensure!(size().await? == 3, "{out}{err}");

        let end = manager.replace("SLEEP", "end").replace(
            "SPEC",
            "{hold: {until: '2099-01-01T00:00:00Z'}, policies: [{name: end, when: {ttl: {after: 1s}}, then: {delete: {}}}]}",
        );
        test_cluster.kubectl_stdin(ALICE, &["apply", "-f", "-"], &end).await?;
        test_cluster.phase("team-a", "end", "Held").await?;
        let (code, out, err) = coppice(&test_cluster, ALICE, &["explain", "team-a/end"]).await?;
        ensure!(code == 0 && out.contains("held until 2099-01-01T00:00:00Z"), "{code}: {out}{err}");
        let (code, out, err) =
            coppice(&test_cluster, ALICE, &["extend", "team-a/end", "--until", "2099-06-01T00:00:00Z"])
                .await?;
        ensure!(code == 0, "{code}: {out}{err}");
        let (code, out, err) = coppice(&test_cluster, ALICE, &["release", "team-a/end"]).await?;
        ensure!(code == 0, "{code}: {out}{err}");
        let active = test_cluster.phase("team-a", "end", "Active").await?;
        ensure!(active["status"]["next"]["due"] == "2099-06-01T00:00:00Z");
        let (code, out, err) =
            coppice(&test_cluster, ALICE, &["plan", "-n", "team-a", "--at", "2099-07-01T00:00:00Z"]).await?;
        ensure!(out.contains("delete"), "{code}: {out}{err}");
        ensure!(!test_cluster.is_deleted("team-a", &uid).await, "a plan changes nothing");
        let (_, out, err) = coppice(&test_cluster, ADMIN, &["doctor"]).await?;
        ensure!(out.contains("coppiceconfigs.coppice.dev"), "{out}{err}");
        Ok(())
    })
}

/// Deletes the namespace `governed` so long after its creation, with so much notice before.
fn cluster_manager(after: &str, notice: &str) -> String {
    format!(
        "{{apiVersion: coppice.dev/v1alpha1, kind: ClusterNamespaceManager, metadata: {{name: previews}}, spec: {{mode: Enforce, \
         selector: {{names: [governed]}}, settle: 1s, ttl: {{after: {after}}}, policies: [{{name: end, when: {{phase: {{in: \
         [Stale]}}}}, then: {{delete: {{notice: {notice}}}}}}}]}}}}"
    )
}

/// A namespace under a cluster manager that deletes it an hour after its creation: its uid, and when that is.
async fn governed(test_cluster: &TestCluster) -> anyhow::Result<(String, jiff::Timestamp)> {
    test_cluster.apply(&cluster_manager("1h", "10m")).await?;
    let uid = test_cluster.namespace("governed").await?;
    let runs = |status: &Value| status["next"]["due"].is_string();
    record(test_cluster, "governed", "when it ends", runs).await?;
    let namespace = test_cluster.get("namespace", "", "governed").await?.unwrap_or_default();
    let created: jiff::Timestamp =
        namespace["metadata"]["creationTimestamp"].as_str().unwrap_or_default().parse()?;
    Ok((uid, created + jiff::SignedDuration::from_hours(1)))
}

/// Whether the forecast has the namespace once, and for that time.
fn forecast_is_right(fates: &[&Value], (_, due): &(String, jiff::Timestamp)) -> Test {
    let [fate] = fates else { anyhow::bail!("one fate for the governed namespace: {fates:#?}") };
    ensure!(fate["manager"] == "previews" && fate["managerKind"] == "ClusterNamespaceManager", "{fate:#}");
    let forecast: jiff::Timestamp = fate["deleted"].as_str().unwrap_or_default().parse()?;
    // In whole seconds, and counted every three.
    let late = forecast.duration_since(*due);
    ensure!(!late.is_negative() && late.as_secs() < 10, "forecast for {forecast}, due at {due}");
    Ok(())
}

#[test]
fn simulate_predicts_from_the_live_cluster_what_the_operator_does_and_writes_nothing() -> Test {
    on_own_plane(async {
        let test_cluster = TestCluster::start_without_pods_at_once().await?;
        let _operator = Operator::start(&test_cluster).await?;
        let namespaces = [("ends", "delete"), ("stays", "scaleDown")];
        let spec = |after: &str, action: &str| {
            format!(
                "{{policies: [{{name: end, when: {{ttl: {{after: {after}}}}}, then: {{{action}: {{}}}}}}]}}"
            )
        };
        let mut known = Vec::new();
        for (namespace, action) in namespaces {
            let uid = test_cluster.namespace(namespace).await?;
            // So long that it has not passed when the cluster is read, however slow the machine is.
            test_cluster.manager(namespace, "m", &spec("1h", action)).await?;
            let manager = test_cluster.phase(namespace, "m", "Active").await?;
            let due = manager["status"]["next"]["due"].as_str().unwrap_or_default();
            known.push((uid, due.parse::<jiff::Timestamp>()?));
        }
        let governed = governed(&test_cluster).await?;
        let writes = || -> anyhow::Result<usize> {
            Ok(test_cluster.plane.audit()?.iter().filter(|e| e.user == ADMIN && e.is_write()).count())
        };
        let before = writes()?;
        let (code, out, err) =
            coppice(&test_cluster, ADMIN, &["simulate", "--for", "2h", "-o", "json"]).await?;
        ensure!(code == 0, "{code}: {out}{err}");
        ensure!(writes()? == before, "it wrote");
        let predicted: Value = serde_json::from_str(&out)?;
        let fate = |namespace: &str| {
            let fates = predicted["managers"].as_array().into_iter().flatten();
            fates.filter(|fate| fate["namespace"] == *namespace).collect::<Vec<_>>()
        };
        let fates = (fate("ends"), fate("stays"));
        let ([ends], [stays]) = (fates.0.as_slice(), fates.1.as_slice()) else {
            anyhow::bail!("a fate for each manager: {out}")
        };
        ensure!(stays["deleted"].is_null() && stays["phase"] == "Fired", "{stays:#}");
        let forecast: jiff::Timestamp = ends["deleted"].as_str().unwrap_or_default().parse()?;
        let [(doomed, due), (kept, _)] = known.as_slice() else { anyhow::bail!("two namespaces: {known:?}") };
        // What the operator itself says; in virtual time it makes no difference how fast this machine is.
        let late = forecast.duration_since(*due);
        ensure!(!late.is_negative() && late.as_secs() < 5, "forecast for {forecast}, due at {due}");
        forecast_is_right(&fate("governed"), &governed)?;
        // What was forecast is what happens when the time has come, which is made to come now.
        for (namespace, action) in namespaces {
            test_cluster.manager(namespace, "m", &spec("1s", action)).await?;
        }
        test_cluster.apply(&cluster_manager("1s", "1s")).await?;
        test_cluster.deleted("governed", &governed.0).await?;
        test_cluster.deleted("ends", doomed).await?;
        test_cluster.phase("stays", "m", "Fired").await?;
        ensure!(!test_cluster.is_deleted("stays", kept).await);
        let deletes = test_cluster.namespace_deletes()?;
        let meant = [("ends", doomed.as_str()), ("governed", governed.0.as_str())];
        let is_meant = |e: &coppice_plane::AuditEvent| {
            meant.iter().any(|(name, uid)| e.name == *name && e.precondition("uid") == Some(uid))
        };
        ensure!(deletes.iter().all(is_meant), "{deletes:?}");
        Ok(())
    })
}
