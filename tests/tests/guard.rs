//! What the API server itself refuses, whoever asks: the admission policies of the installation.

use anyhow::ensure;
use coppice_plane::{ADMIN, OPERATOR};
use coppice_tests::{Operator, Stage, alone, together};
use serde_json::{Value, json};

type Test = anyhow::Result<()>;

/// Deletes a namespace as the operator's account, with these preconditions.
async fn delete(stage: &Stage, name: &str, preconditions: Value) -> anyhow::Result<String> {
    let body = json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions});
    let uri = format!("/api/v1/namespaces/{name}");
    stage.kubectl_stdin(OPERATOR, &["delete", "--raw", &uri, "-f", "-"], &body.to_string()).await
}

fn refused(answer: &anyhow::Result<String>, sentence: &str) -> bool {
    answer.as_ref().err().is_some_and(|error| error.to_string().contains(sentence))
}

#[test]
fn our_account_cannot_delete_without_preconditions_or_what_is_protected() -> Test {
    together(async |stage, _| {
        for name in ["plain", "guarded-by-name"] {
            stage.namespace(name).await?;
        }
        stage.namespace("labelled").await?;
        stage.kubectl(ADMIN, &["label", "namespace", "labelled", "coppice.dev/protected=true"]).await?;
        let of = async |name: &str| -> anyhow::Result<Value> {
            let object = stage.get("namespace", "", name).await?.unwrap_or_default();
            Ok(
                json!({"uid": object["metadata"]["uid"], "resourceVersion": object["metadata"]["resourceVersion"]}),
            )
        };
        let good = of("plain").await?;
        let without_revision = delete(stage, "plain", json!({"uid": good["uid"]})).await;
        ensure!(refused(&without_revision, "with the uid and the resourceVersion"), "{without_revision:?}");
        let another = json!({"uid": "11111111-2222-3333-4444-555555555555", "resourceVersion": good["resourceVersion"]});
        let wrong = delete(stage, "plain", another).await;
        ensure!(refused(&wrong, "Conflict") || refused(&wrong, "recondition"), "{wrong:?}");
        for name in ["guarded-by-name", "labelled", "coppice-system"] {
            let answer = delete(stage, name, of(name).await?).await;
            ensure!(refused(&answer, "is protected"), "{name}: {answer:?}");
        }
        delete(stage, "plain", of("plain").await?).await?;
        Ok(())
    })
}

#[test]
fn nobody_else_writes_status() -> Test {
    together(async |stage, _| {
        stage.namespace("forged").await?;
        stage
            .manager("forged", "m", "{policies: [{name: end, when: {ttl: {after: 9h}}, then: {delete: {}}}]}")
            .await?;
        stage.phase("forged", "m", "Active").await?;
        let forged = r#"{"status":{"firings":7}}"#;
        let patch =
            ["patch", "nsman", "m", "-n", "forged", "--subresource=status", "--type=merge", "-p", forged];
        let answer = stage.kubectl(ADMIN, &patch).await;
        ensure!(refused(&answer, "Only Coppice writes status"), "{answer:?}");
        Ok(())
    })
}

#[test]
fn a_status_of_another_version_is_left_alone() -> Test {
    alone(async {
        let stage = Stage::start().await?;
        stage.namespace("newer").await?;
        stage
            .manager("newer", "m", "{policies: [{name: end, when: {ttl: {after: 1s}}, then: {delete: {}}}]}")
            .await?;
        // Written by a later version, as its account: a phase that this one does not know. The schema of this version
        // would not take it, so the schema goes first.
        let crd = "crd/namespacemanagers.coppice.dev";
        let open = r#"[{"op":"remove","path":"/spec/versions/0/schema/openAPIV3Schema/properties/status/properties/phase/enum"}]"#;
        stage.kubectl(ADMIN, &["patch", crd, "--type=json", "-p", open]).await?;
        let status = r#"{"status":{"phase":"Hibernating","firings":3}}"#;
        let write =
            ["patch", "nsman", "m", "-n", "newer", "--subresource=status", "--type=merge", "-p", status];
        stage.kubectl(ADMIN, &["delete", "validatingadmissionpolicybinding", "coppice-status"]).await?;
        stage.until("the status is written", async || stage.kubectl(ADMIN, &write).await.ok()).await?;
        let _operator = Operator::start(&stage).await?;
        stage
            .until("an Event says so", async || {
                let events = stage.events("newer", "m", "StatusNotUnderstood").await.ok()?;
                (!events.is_empty()).then_some(())
            })
            .await?;
        let manager = stage.get("nsman", "newer", "m").await?.unwrap_or_default();
        ensure!(
            manager["status"] == json!({"phase": "Hibernating", "firings": 3}),
            "{:#}",
            manager["status"]
        );
        ensure!(stage.namespace_deletes()?.iter().all(|e| e.name != "newer"));
        Ok(())
    })
}
