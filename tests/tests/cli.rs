//! The command line with the real operator behind it, as a tenant with the rights that the installation gives.

use anyhow::ensure;
use coppice_plane::{ADMIN, ALICE};
use coppice_tests::stage::binary;
use coppice_tests::{Operator, Stage, alone};
use serde_json::Value;

type Test = anyhow::Result<()>;

/// Runs `coppice` as a user: exit code, standard output, standard error.
async fn coppice(stage: &Stage, user: &str, args: &[&str]) -> anyhow::Result<(i32, String, String)> {
    let output = tokio::process::Command::new(binary("coppice")?)
        .args(args)
        .env("KUBECONFIG", stage.plane.kubeconfig(user)?)
        .output()
        .await?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok((output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr)))
}

async fn tenant(stage: &Stage, namespace: &str) -> anyhow::Result<String> {
    let uid = stage.namespace(namespace).await?;
    let grant = ["create", "rolebinding", "alice", "-n", namespace, "--clusterrole=admin", "--user=alice"];
    stage.kubectl(ADMIN, &grant).await?;
    // The roles of the installation are added to `admin` a moment after they were created.
    let may = ["auth", "can-i", "patch", "namespacemanagers.coppice.dev", "-n", namespace];
    stage.until("alice may write managers", async || stage.kubectl(ALICE, &may).await.ok()).await?;
    Ok(uid)
}

#[test]
fn a_tenant_holds_releases_and_wakes_also_after_the_operator_was_restarted() -> Test {
    alone(async {
        let stage = Stage::start().await?;
        let mut operator = Operator::start(&stage).await?;
        let uid = tenant(&stage, "team-a").await?;
        let manager = "{apiVersion: coppice.dev/v1alpha1, kind: NamespaceManager, metadata: {name: SLEEP, namespace: team-a}, spec: SPEC}";
        let deployment = "{apiVersion: apps/v1, kind: Deployment, metadata: {name: d, namespace: team-a}, spec: {replicas: 3, \
             selector: {matchLabels: {a: d}}, template: {metadata: {labels: {a: d}}, spec: {containers: [{name: c, image: busybox}]}}}}";
        stage.kubectl_stdin(ALICE, &["apply", "-f", "-"], deployment).await?;
        let sleep = manager
            .replace("SLEEP", "sleep")
            .replace("SPEC", "{policies: [{name: sleep, when: {ttl: {after: 1s}}, then: {scaleDown: {}}}]}");
        stage.kubectl_stdin(ALICE, &["apply", "-f", "-"], &sleep).await?;
        stage.phase("team-a", "sleep", "Fired").await?;
        let size = async || -> anyhow::Result<Value> {
            Ok(stage.get("deploy", "team-a", "d").await?.unwrap_or_default()["spec"]["replicas"].clone())
        };
        ensure!(size().await? == 0);
        operator.terminate().await?;
        let _operator = Operator::start(&stage).await?;
        let (code, out, err) = coppice(&stage, ALICE, &["wake", "team-a/sleep"]).await?;
        ensure!(code == 0, "{code}: {out}{err}");
        ensure!(size().await? == 3, "{out}{err}");

        let end = manager.replace("SLEEP", "end").replace(
            "SPEC",
            "{hold: {until: '2099-01-01T00:00:00Z'}, policies: [{name: end, when: {ttl: {after: 1s}}, then: {delete: {}}}]}",
        );
        stage.kubectl_stdin(ALICE, &["apply", "-f", "-"], &end).await?;
        stage.phase("team-a", "end", "Held").await?;
        let (code, out, err) = coppice(&stage, ALICE, &["explain", "team-a/end"]).await?;
        ensure!(code == 0 && out.contains("held until 2099-01-01T00:00:00Z"), "{code}: {out}{err}");
        let (code, out, err) =
            coppice(&stage, ALICE, &["extend", "team-a/end", "--until", "2099-06-01T00:00:00Z"]).await?;
        ensure!(code == 0, "{code}: {out}{err}");
        let (code, out, err) = coppice(&stage, ALICE, &["release", "team-a/end"]).await?;
        ensure!(code == 0, "{code}: {out}{err}");
        let active = stage.phase("team-a", "end", "Active").await?;
        ensure!(active["status"]["next"]["due"] == "2099-06-01T00:00:00Z");
        let (code, out, err) =
            coppice(&stage, ALICE, &["plan", "-n", "team-a", "--at", "2099-07-01T00:00:00Z"]).await?;
        ensure!(out.contains("delete"), "{code}: {out}{err}");
        ensure!(!stage.is_deleted("team-a", &uid).await, "a plan changes nothing");
        let (_, out, err) = coppice(&stage, ADMIN, &["doctor"]).await?;
        ensure!(out.contains("coppiceconfigs.coppice.dev"), "{out}{err}");
        Ok(())
    })
}

#[test]
fn simulate_tells_from_the_live_cluster_what_the_operator_then_does_and_writes_nothing() -> Test {
    alone(async {
        let stage = Stage::start_at_once().await?;
        let _operator = Operator::start(&stage).await?;
        let mut uids = Vec::new();
        for (namespace, action) in [("ends", "delete"), ("stays", "scaleDown")] {
            uids.push(stage.namespace(namespace).await?);
            let spec = format!(
                "{{policies: [{{name: end, when: {{ttl: {{after: 45s}}}}, then: {{{action}: {{}}}}}}]}}"
            );
            stage.manager(namespace, "m", &spec).await?;
            stage.phase(namespace, "m", "Active").await?;
        }
        let writes = || -> anyhow::Result<usize> {
            Ok(stage.plane.audit()?.iter().filter(|e| e.user == ADMIN && e.is_write()).count())
        };
        let before = writes()?;
        let (code, out, err) = coppice(&stage, ADMIN, &["simulate", "--for", "1h", "-o", "json"]).await?;
        ensure!(code == 0, "{code}: {out}{err}");
        ensure!(writes()? == before, "it wrote");
        let told: Value = serde_json::from_str(&out)?;
        let fate = |namespace: &str| {
            let fates = told["managers"].as_array().into_iter().flatten();
            fates.filter(|fate| fate["namespace"] == *namespace).collect::<Vec<_>>()
        };
        let fates = (fate("ends"), fate("stays"));
        let ([ends], [stays]) = (fates.0.as_slice(), fates.1.as_slice()) else {
            anyhow::bail!("a fate for each manager: {out}")
        };
        ensure!(stays["deleted"].is_null() && stays["phase"] == "Fired", "{stays:#}");
        let foretold: jiff::Timestamp = ends["deleted"].as_str().unwrap_or_default().parse()?;
        stage.deleted("ends", &uids[0]).await?;
        let delete = stage.namespace_deletes()?.into_iter().find(|e| e.name == "ends" && e.succeeded());
        let delete = delete.ok_or_else(|| anyhow::anyhow!("no DELETE in the audit log"))?;
        let late = delete.received.duration_since(foretold);
        ensure!(
            late.abs() < jiff::SignedDuration::from_secs(5),
            "foretold for {foretold}, came {late:#} later"
        );
        Ok(())
    })
}
