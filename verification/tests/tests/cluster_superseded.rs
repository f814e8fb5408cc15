//! Namespaces that take the place of older ones, and who may say what a namespace was made for, on a real API server.

use anyhow::ensure;
use coppice_plane::{ADMIN, ALICE};
use coppice_tests::{TestCluster, condition, on_shared_plane};
use serde_json::{Value, json};

use super::access_control::raw_requests::{MERGE, Wire};
use super::cli::coppice;
use super::cluster_managers::record;
use super::cluster_notices::namespace;

type Test = anyhow::Result<()>;

/// Deletes what is superseded. The branch is an annotation, all else are labels.
fn manager(name: &str) -> String {
    format!(
        "{{apiVersion: coppice.dev/v1alpha1, kind: ClusterNamespaceManager, metadata: {{name: {name}}}, spec: {{mode: Enforce, \
         selector: {{names: ['{name}-*']}}, settle: 1s, health: {{}}, identity: {{project: {name}.example/project, pipeline: \
         {name}.example/pipeline, branch: {name}.example/branch}}, supersede: {{by: [Branch]}}, policies: [{{name: end, when: \
         {{phase: {{in: [Superseded]}}}}, then: {{delete: {{notice: 2s}}}}}}]}}}}"
    )
}

/// A namespace that a pipeline of the project `shop` has made for the branch `main`.
async fn made(
    test_cluster: &TestCluster,
    manager: &str,
    name: &str,
    pipeline: &str,
) -> anyhow::Result<String> {
    let namespace = format!(
        "{{apiVersion: v1, kind: Namespace, metadata: {{name: {name}, labels: {{{manager}.example/project: shop, \
         {manager}.example/pipeline: '{pipeline}'}}, annotations: {{{manager}.example/branch: main}}}}}}"
    );
    test_cluster.apply(&namespace).await?;
    test_cluster.account(name).await?;
    let object = test_cluster.get("namespace", "", name).await?.unwrap_or_default();
    Ok(object["metadata"]["uid"].as_str().unwrap_or_default().to_owned())
}

#[test]
fn a_namespace_goes_when_the_one_of_a_later_pipeline_is_ready() -> Test {
    on_shared_plane(async |test_cluster, _| {
        test_cluster.apply(&manager("super")).await?;
        let old = made(test_cluster, "super", "super-9", "9").await?;
        made(test_cluster, "super", "super-8", "8").await?;
        let well = |status: &Value| status["phase"] == "Ok";
        let known = record(test_cluster, "super-9", "how it is", well).await?;
        ensure!(condition(&known, "Identified")["reason"] == "Identified", "{known:#}");
        record(test_cluster, "super-8", "how it is", well).await?;
        let (code, said, error) = coppice(test_cluster, ADMIN, &["hold", "super-8", "--for", "1h"]).await?;
        ensure!(code == 0, "{said}{error}");

        let new = made(test_cluster, "super", "super-10", "10").await?;
        let waits = |status: &Value| well(status) && status["readyAt"].is_null();
        record(test_cluster, "super-10", "that it is not ready", waits).await?;
        let still = record(test_cluster, "super-9", "that it stays", well).await?;
        ensure!(still["status"]["supersededBy"].is_null(), "{still:#}");

        test_cluster.pod("super-10", "web", "run", "a: b").await?;
        let superseded = |status: &Value| status["supersededBy"]["uid"] == *new;
        let held = record(test_cluster, "super-8", "what has taken its place", superseded).await?;
        ensure!(held["status"]["phase"] == "Superseded", "{held:#}");
        test_cluster.deleted("super-9", &old).await?;
        let list = test_cluster.list("delns", "").await?;
        let of = list.iter().find(|one| one["spec"]["uid"] == *old).cloned().unwrap_or_default();
        let spec = &of["spec"];
        ensure!(spec["reason"] == "Superseded", "{of:#}");
        ensure!(spec["evidence"]["supersededBy"] == format!("super-10 (uid {new})"), "{of:#}");

        let (code, said, error) = coppice(test_cluster, ADMIN, &["explain", "super-8"]).await?;
        ensure!(code == 0, "{said}{error}");
        ensure!(said.contains(&format!("super-10 (uid {new})")), "{said}");
        let shown = test_cluster.kubectl(ADMIN, &["get", "mns", "-n", "super-8", "--no-headers"]).await?;
        ensure!(shown.split_whitespace().nth(1) == Some("Superseded"), "{shown}");
        record(test_cluster, "super-10", "that it stays", well).await?;
        Ok(())
    })
}

#[test]
fn in_a_chain_an_older_one_names_the_latest_and_keeps_its_date() -> Test {
    on_shared_plane(async |test_cluster, _| {
        test_cluster.apply(&manager("chain").replace("notice: 2s", "notice: 1h")).await?;
        let ready = async |pipeline: &str| -> anyhow::Result<String> {
            let name = format!("chain-{pipeline}");
            let uid = made(test_cluster, "chain", &name, pipeline).await?;
            test_cluster.pod(&name, "web", "run", "a: b").await?;
            let ready = |status: &Value| status["phase"] == "Ok" && status["readyAt"].is_string();
            record(test_cluster, &name, "that it is ready", ready).await?;
            Ok(uid)
        };
        let announced = async |name: &str, successor: &str| {
            let announced = |status: &Value| {
                status["phase"] == "Superseded"
                    && status["supersededBy"]["uid"] == *successor
                    && status["notice"].is_object()
            };
            record(test_cluster, name, "what has taken its place", announced).await
        };
        ready("8").await?;
        let second = ready("9").await?;
        let before = announced("chain-8", &second).await?;
        let third = ready("10").await?;
        announced("chain-9", &third).await?;
        let after = announced("chain-8", &third).await?;
        ensure!(after["status"]["supersededBy"]["namespace"] == "chain-10", "{after:#}");
        for part in ["/supersededBy/since", "/phaseSince", "/notice/givenAt", "/notice/notBefore"] {
            let at = |record: &Value| record["status"].pointer(part).cloned();
            ensure!(at(&before).is_some() && at(&before) == at(&after), "{part}: {before:#} {after:#}");
        }
        let latest = test_cluster.get("mns", "chain-10", "coppice").await?.unwrap_or_default();
        let status = &latest["status"];
        ensure!(status["phase"] == "Ok" && status["supersededBy"].is_null(), "{latest:#}");
        Ok(())
    })
}

#[test]
fn without_waiting_it_is_enough_that_a_later_one_for_the_merge_request_or_the_commit_exists() -> Test {
    on_shared_plane(async |test_cluster, _| {
        let manager = manager("exist")
            .replace(
                "branch: exist.example/branch",
                "mergeRequest: exist.example/mr, commit: exist.example/commit",
            )
            .replace("by: [Branch]", "by: [MergeRequest, Commit], waitUntilReady: false")
            .replace("notice: 2s", "notice: 1h");
        test_cluster.apply(&manager).await?;
        let made_for = [
            ("exist-1", "exist.example/mr: '7'"),
            ("exist-2", "exist.example/mr: '7'"),
            ("exist-3", "exist.example/commit: abc123"),
            ("exist-4", "exist.example/commit: abc123"),
            ("exist-5", "exist.example/mr: '8', exist.example/commit: def456"),
        ];
        for (pipeline, (name, what)) in (1..).zip(made_for) {
            let identity = format!("exist.example/project: shop, exist.example/pipeline: '{pipeline}'");
            namespace(test_cluster, name, &format!("labels: {{{identity}, {what}}}")).await?;
        }
        for (older, later) in [("exist-1", "exist-2"), ("exist-3", "exist-4")] {
            let replaced = |status: &Value| {
                status["phase"] == "Superseded" && status["supersededBy"]["namespace"] == later
            };
            record(test_cluster, older, "what has taken its place", replaced).await?;
        }
        // No pod runs in any of them.
        let stays = |status: &Value| {
            status["phase"] == "Ok" && status["supersededBy"].is_null() && status["readyAt"].is_null()
        };
        for name in ["exist-2", "exist-4", "exist-5"] {
            let found = record(test_cluster, name, "that it stays", stays).await?;
            ensure!(condition(&found, "Identified")["status"] == "True", "{found:#}");
        }
        Ok(())
    })
}

#[test]
fn a_successor_that_is_deleted_takes_its_verdict_back() -> Test {
    on_shared_plane(async |test_cluster, _| {
        test_cluster.apply(&manager("back").replace("notice: 2s", "notice: 1h")).await?;
        made(test_cluster, "back", "back-1", "1").await?;
        made(test_cluster, "back", "back-2", "2").await?;
        test_cluster.pod("back-2", "web", "run", "a: b").await?;
        let announced =
            |status: &Value| status["phase"] == "Superseded" && status["notice"]["reason"] == "Superseded";
        record(test_cluster, "back-1", "that it will be deleted", announced).await?;
        test_cluster.kubectl(ADMIN, &["delete", "namespace", "back-2", "--wait=false"]).await?;
        let stays = |status: &Value| {
            status["phase"] == "Ok" && status["notice"].is_null() && status["supersededBy"].is_null()
        };
        record(test_cluster, "back-1", "that it stays", stays).await?;
        Ok(())
    })
}

/// A node that falls silent before it has said that a pod is ready, as others than a kubelet write it.
#[test]
fn a_namespace_of_which_nobody_says_that_it_is_ready_supersedes_none() -> Test {
    on_shared_plane(async |test_cluster, _| {
        test_cluster.apply(&manager("silent")).await?;
        let old = made(test_cluster, "silent", "silent-1", "1").await?;
        made(test_cluster, "silent", "silent-2", "2").await?;
        test_cluster.pod("silent-2", "web", "pending", "a: b").await?;
        let creating = async || {
            let pod = test_cluster.get("pod", "silent-2", "web").await.ok()??;
            let state = &pod["status"]["containerStatuses"][0]["state"];
            (state["waiting"]["reason"] == "ContainerCreating").then_some(())
        };
        test_cluster.until("its node waits for its container", creating).await?;
        let runs = async |ready: &str| {
            let conditions = json!([{"type": "Ready", "status": ready, "reason": "NodeStatusUnknown"}]);
            let status = json!({"status": {"phase": "Running", "conditions": conditions}}).to_string();
            let of = ["patch", "pod", "web", "-n", "silent-2", "--subresource=status", "--type=merge", "-p"];
            test_cluster.kubectl(ADMIN, &[&of[..], &[&*status]].concat()).await
        };
        runs("Unknown").await?;
        // All pods are watched together: when the operator knows of this one, it knows of the other.
        test_cluster.namespace("silent-other").await?;
        test_cluster.pod("silent-other", "web", "run", "a: b").await?;
        let ready = |status: &Value| status["readyAt"].is_string();
        record(test_cluster, "silent-other", "that it would be a successor", ready).await?;
        // And what it writes for a hold it decides with that.
        let (code, said, error) = coppice(test_cluster, ADMIN, &["hold", "silent-2", "--for", "1h"]).await?;
        ensure!(code == 0, "{said}{error}");
        let well = |status: &Value| status["phase"] == "Ok";
        let waits = record(test_cluster, "silent-2", "how it is", well).await?;
        ensure!(waits["status"]["readyAt"].is_null(), "{waits:#}");
        ensure!(waits["status"]["failing"].is_null(), "it does not fail, either: {waits:#}");
        let stays = record(test_cluster, "silent-1", "that it stays", well).await?;
        ensure!(stays["status"]["supersededBy"].is_null(), "{stays:#}");
        runs("True").await?;
        record(test_cluster, "silent-2", "that it is ready", ready).await?;
        test_cluster.deleted("silent-1", &old).await
    })
}

/// A tenant who may change their own namespace, and wants that of somebody else to go.
#[test]
fn a_tenant_cannot_supersede_what_others_have_made() -> Test {
    on_shared_plane(async |test_cluster, _| {
        test_cluster.apply(&manager("forge")).await?;
        made(test_cluster, "forge", "forge-theirs", "5").await?;
        test_cluster.namespace("forge-own").await?;
        test_cluster.pod("forge-own", "web", "run", "a: b").await?;
        let ready = |status: &Value| status["readyAt"].is_string();
        record(test_cluster, "forge-own", "that it would be a successor", ready).await?;
        let verbs = [
            "--verb=get,update,patch",
            "--resource=namespaces,namespaces/status",
            "--resource-name=forge-own",
        ];
        test_cluster.kubectl(ADMIN, &[&["create", "clusterrole", "forge"][..], &verbs].concat()).await?;
        let user = format!("--user={ALICE}");
        test_cluster
            .kubectl(ADMIN, &["create", "clusterrolebinding", "forge", "--clusterrole=forge", &user])
            .await?;
        let alice = Wire::new(test_cluster, ALICE)?;
        let label =
            |key: &str, value: &str| json!({"metadata": {"labels": {format!("forge.example/{key}"): value}}});
        let own = "/api/v1/namespaces/forge-own";
        // A policy with parameters is ignored until the API server has found their kind and this object of it.
        let sentence = "only those who may create namespaces may change it";
        test_cluster
            .until("the policy of identities is in force", async || {
                let answer =
                    alice.send("PATCH", &format!("{own}?dryRun=All"), MERGE, label("project", "shop")).await;
                answer.ok()?.refused(sentence).then_some(())
            })
            .await?;
        let annotation = json!({"metadata": {"annotations": {"forge.example/branch": "main"}}});
        for change in [label("project", "shop"), label("pipeline", "999"), annotation] {
            for path in [own.to_owned(), format!("{own}/status")] {
                let answer = alice.send("PATCH", &path, MERGE, change.clone()).await?;
                ensure!(answer.refused(sentence), "{path} {change}: {answer:?}");
            }
            for answer in alice.every_write(own, &change).await? {
                ensure!(answer.refused(sentence), "{change}: {answer:?}");
            }
        }
        let answer = alice.send("PATCH", own, MERGE, label("pipeline", "999")).await?;
        ensure!(answer.refused("ClusterNamespaceManager forge reads forge.example/pipeline"), "{answer:?}");
        // Anything else is theirs; whoever may create namespaces says what they are made for.
        let answer = alice.send("PATCH", own, MERGE, json!({"metadata": {"labels": {"team": "a"}}})).await?;
        ensure!(answer.accepted(), "{answer:?}");
        let admin = Wire::new(test_cluster, ADMIN)?;
        for change in [label("project", "shop"), label("pipeline", "4")] {
            let answer = admin.send("PATCH", own, MERGE, change).await?;
            ensure!(answer.accepted(), "{answer:?}");
        }
        // What stands there already nobody takes away.
        let removed = json!({"metadata": {"labels": {"forge.example/project": null}}});
        let answer = alice.send("PATCH", own, MERGE, removed).await?;
        ensure!(answer.refused(sentence), "{answer:?}");
        let well = |status: &Value| status["phase"] == "Ok";
        record(test_cluster, "forge-theirs", "that it stays", well).await?;
        Ok(())
    })
}
