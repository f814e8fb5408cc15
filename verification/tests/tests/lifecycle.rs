//! What a `NamespaceManager` does, seen from outside: on a real API server, by the real operator.

use anyhow::{Context as _, ensure};
use coppice_plane::ADMIN;
use coppice_tests::receiver::Receiver;
use coppice_tests::{condition, on_shared_plane};
use serde_json::Value;

type Test = anyhow::Result<()>;

const SUCCEED: &str = "component: main";

/// The DELETE of a namespace that took effect, once it is in the audit log: a conflict had none, and one whose answer came too
/// late may have had.
pub(crate) async fn effective_delete(
    test_cluster: &coppice_tests::TestCluster,
    name: &str,
) -> anyhow::Result<coppice_plane::AuditEvent> {
    test_cluster
        .until("the DELETE is in the audit log", async || {
            let deletes = test_cluster.namespace_deletes().ok()?;
            deletes.into_iter().rfind(|e| e.name == name && e.code != Some(409))
        })
        .await
}

#[test]
fn a_ttl_deletes_the_namespace_not_before_its_time() -> Test {
    on_shared_plane(async |test_cluster, _| {
        let uid = test_cluster.namespace("ttl").await?;
        let created =
            test_cluster.get("namespace", "", "ttl").await?.unwrap_or_default()["metadata"]["creationTimestamp"]
                .clone();
        let ttl = |after: &str| {
            format!(
                "{{policies: [{{name: end, when: {{ttl: {{after: {after}}}}}, then: {{delete: {{}}}}}}]}}"
            )
        };
        test_cluster.manager("ttl", "m", &ttl("1h")).await?;
        let manager = test_cluster.phase("ttl", "m", "Active").await?;
        ensure!(
            manager["status"]["next"]["action"] == "delete" && manager["status"]["next"]["due"].is_string()
        );
        // Only now, so that it is seen to be Active however slow the machine is.
        test_cluster.manager("ttl", "m", &ttl("20s")).await?;
        test_cluster.deleted("ttl", &uid).await?;
        let delete = effective_delete(test_cluster, "ttl").await?;
        let created_at: jiff::Timestamp = created.as_str().unwrap_or_default().parse()?;
        let age = delete.received.duration_since(created_at).as_secs_f64();
        ensure!(age >= 21.0, "deleted {age} s after the second in which it was created: too early");
        ensure!(delete.precondition("uid") == Some(&uid) && delete.precondition("resourceVersion").is_some());
        // The audit log leads to what remains of it.
        let decision = delete.user_agent.split_once("(decision ").map(|(_, id)| id.trim_end_matches(')'));
        let decision = decision.context("the DELETE names no decision")?;
        let complete = async || {
            let record = test_cluster.get("delns", "", decision).await.ok()??;
            (record["status"]["phase"] == "Deleted").then_some(record)
        };
        let record = test_cluster.until("its record says that it is gone", complete).await?;
        let spec = &record["spec"];
        ensure!(spec["uid"] == *uid && spec["namespaceCreated"] == created, "{record:#}");
        ensure!(
            spec["manager"] == "m" && spec["policy"] == "end" && spec["reason"] == "TtlElapsed",
            "{record:#}"
        );
        ensure!(
            spec["evidence"]["due"].is_string() && record["status"]["deletedAt"].is_string(),
            "{record:#}"
        );
        // Before the request that it is about.
        let by_us = test_cluster.by_operator()?;
        let stored = by_us.iter().find(|e| e.verb == "create" && e.name == decision);
        ensure!(stored.is_some_and(|stored| stored.received <= delete.received), "{stored:?}");
        // What happened stays visible when the namespace is gone.
        let notes = async || {
            test_cluster
                .events("default", "ttl", "NamespaceDeleted")
                .await
                .ok()
                .filter(|notes| !notes.is_empty())
        };
        let notes = test_cluster.until("the Event about the namespace", notes).await?;
        ensure!(notes.iter().any(|note| note.contains("NamespaceManager m")), "{notes:?}");
        Ok(())
    })
}

#[test]
fn pods_that_succeed_delete_the_namespace_and_one_that_fails_keeps_it() -> Test {
    on_shared_plane(async |test_cluster, _| {
        let spec = "{policies: [{name: done, when: {podsSucceed: {initialDelay: 0s, selector: {matchLabels: {component: main}}}}, then: {delete: {}}}]}";
        let good = test_cluster.namespace("pods-good").await?;
        test_cluster.namespace("pods-bad").await?;
        for (namespace, outcome) in [("pods-good", "succeed"), ("pods-bad", "fail")] {
            test_cluster.manager(namespace, "m", spec).await?;
            // In this order: as soon as the main pod has succeeded, nothing can be created any more.
            test_cluster.pod(namespace, "aside", "run", "component: other").await?;
            test_cluster.pod(namespace, "main", outcome, SUCCEED).await?;
        }
        test_cluster.deleted("pods-good", &good).await?;
        let reason = |m: &Value| m["status"]["policies"][0]["reason"] == "PodFailed";
        let manager = test_cluster.manager_until("pods-bad", "m", "PodFailed", reason).await?;
        ensure!(manager["status"]["next"]["message"] == "pod main has failed");
        Ok(())
    })
}

#[test]
fn a_job_counts_when_it_is_complete_and_not_in_between() -> Test {
    on_shared_plane(async |test_cluster, _| {
        let uid = test_cluster.namespace("job").await?;
        test_cluster
            .manager(
                "job",
                "m",
                "{policies: [{name: done, when: {podsSucceed: {initialDelay: 0s}}, then: {delete: {}}}]}",
            )
            .await?;
        test_cluster
            .apply(
                "{apiVersion: batch/v1, kind: Job, metadata: {name: j, namespace: job}, spec: {completions: 3, parallelism: 2, \
                 template: {metadata: {labels: {plane.coppice.dev/outcome: succeed}}, \
                 spec: {restartPolicy: Never, containers: [{name: c, image: busybox}]}}}}",
            )
            .await?;
        test_cluster.deleted("job", &uid).await?;
        // The witness: when we asked for the deletion, the Job's completion had been written. What is written is seen before
        // it is in the audit log.
        let received = async || {
            let audit = test_cluster.plane.audit().ok()?;
            let deleted =
                audit.iter().find(|e| e.verb == "delete" && e.resource == "namespaces" && e.name == "job")?;
            let complete = audit
                .iter()
                .filter(|e| e.resource == "jobs" && e.subresource == "status" && e.namespace == "job");
            let complete = complete.filter(|e| format!("{:?}", e.request).contains("Complete"));
            Some((deleted.received, complete.map(|e| e.received).min()?))
        };
        let (deleted, complete) = test_cluster.until("both are in the audit log", received).await?;
        ensure!(deleted > complete, "deleted before the Job was complete");
        Ok(())
    })
}

#[test]
fn scale_down_remembers_and_wake_gives_back_exactly() -> Test {
    on_shared_plane(async |test_cluster, _| {
        test_cluster.namespace("scale").await?;
        let workload = |kind: &str, name: &str, replicas: u32, labels: &str| {
            format!(
                "---\n{{apiVersion: apps/v1, kind: {kind}, metadata: {{name: {name}, namespace: scale, labels: {{{labels}}}}}, \
                 spec: {{replicas: {replicas}, serviceName: s, selector: {{matchLabels: {{app: {name}}}}}, \
                 template: {{metadata: {{labels: {{app: {name}}}}}, spec: {{containers: [{{name: c, image: busybox}}]}}}}}}}}\n"
            )
            .replace(if kind == "Deployment" { "serviceName: s, " } else { "nothing to replace" }, "")
        };
        let yaml = [
            workload("Deployment", "chosen", 5, "isScaleDown: 'yes'"),
            workload("Deployment", "other", 3, "isScaleDown: 'no'"),
            workload("StatefulSet", "set", 2, "a: b"),
            "---\n{apiVersion: batch/v1, kind: CronJob, metadata: {name: cron, namespace: scale}, spec: {schedule: '0 0 1 1 *', \
             jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: busybox}]}}}}}}\n"
                .to_owned(),
        ];
        test_cluster.apply(&yaml.concat()).await?;
        test_cluster
            .manager(
                "scale",
                "m",
                "{policies: [{name: sleep, when: {ttl: {after: 1s}}, then: {scaleDown: {selectors: [\
                 {kind: Deployment, selector: {matchLabels: {isScaleDown: 'yes'}}}, {kind: StatefulSet}, {kind: CronJob}]}}}]}",
            )
            .await?;
        // As a script does.
        for type_ in ["Accepted", "Fired", "Ready"] {
            let until = format!("--for=condition={type_}");
            let wait = ["wait", "-n", "scale", "nsman/m", &until, "--timeout=300s"];
            test_cluster.kubectl(ADMIN, &wait).await?;
        }
        let manager = test_cluster.phase("scale", "m", "Fired").await?;
        let conditions =
            ["Accepted", "Fired", "Ready"].map(|type_| condition(&manager, type_)["reason"].clone());
        ensure!(conditions == ["Accepted", "ScaledDown", "Reconciled"], "{conditions:?}");
        ensure!(manager["status"]["scaledDown"].as_array().map(Vec::len) == Some(3), "{manager:#}");
        let sizes = async || -> anyhow::Result<Vec<Value>> {
            let mut sizes = Vec::new();
            for (kind, name) in [("deploy", "chosen"), ("deploy", "other"), ("sts", "set")] {
                sizes.push(
                    test_cluster.get(kind, "scale", name).await?.unwrap_or_default()["spec"]["replicas"]
                        .clone(),
                );
            }
            sizes.push(
                test_cluster.get("cronjob", "scale", "cron").await?.unwrap_or_default()["spec"]["suspend"]
                    .clone(),
            );
            Ok(sizes)
        };
        ensure!(
            sizes().await? == [0.into(), 3.into(), 0.into(), true.into()] as [Value; 4],
            "{:?}",
            sizes().await?
        );
        test_cluster.patch("nsman", "scale", "m", r#"{"spec":{"wake":1}}"#).await?;
        test_cluster.manager_until("scale", "m", "awake", |m| m["status"]["scaledDown"].is_null()).await?;
        ensure!(
            sizes().await? == [5.into(), 3.into(), 2.into(), false.into()] as [Value; 4],
            "{:?}",
            sizes().await?
        );
        Ok(())
    })
}

#[test]
fn a_webhook_is_signed_and_retried_under_one_id() -> Test {
    on_shared_plane(async |test_cluster, _| {
        let receiver = Receiver::start(&[503, 500]).await?;
        let uid = test_cluster.namespace("hook").await?;
        let spec = format!(
            "{{policies: [{{name: tell, when: {{ttl: {{after: 1s}}}}, then: {{webhook: {{url: '{}'}}}}}}]}}",
            receiver.url
        );
        test_cluster.manager("hook", "m", &spec).await?;
        let manager = test_cluster.phase("hook", "m", "Fired").await?;
        ensure!(manager["status"]["lastFiring"]["result"] == "WebhookDelivered");
        let requests = receiver.received();
        // More if the answer to one of them was lost.
        ensure!(requests.len() >= 3, "two failures and a success, not {}", requests.len());
        let id = manager["status"]["lastFiring"]["id"].as_str().unwrap_or_default();
        let config = test_cluster.get("coppiceconfig", "", "coppice").await?.unwrap_or_default();
        let key: coppice_notify::key::PublicKey =
            config["status"]["webhookKey"].as_str().unwrap_or_default().parse()?;
        for request in &requests {
            ensure!(request.header("webhook-id") == id);
            let timestamp = request.header("webhook-timestamp").parse()?;
            key.verify(id, timestamp, &request.body, request.header("webhook-signature"))?;
            ensure!(request.body == requests[0].body, "every attempt sends the same");
        }
        let body: Value = serde_json::from_slice(&requests[0].body)?;
        ensure!(
            body["namespace"]["uid"] == uid.as_str()
                && body["firing"] == id
                && body["manager"]["name"] == "m"
        );
        Ok(())
    })
}

#[test]
fn many_that_are_due_at_once_take_turns_and_none_fails() -> Test {
    on_shared_plane(async |test_cluster, _| {
        #[allow(clippy::disallowed_methods, reason = "they are to be due together, during the test")]
        let due = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(15);
        let names: Vec<String> = (0..24).map(|n| format!("burst-{n}")).collect();
        let objects = names.iter().map(|name| {
            format!(
                "---\n{{apiVersion: v1, kind: Namespace, metadata: {{name: {name}}}}}\n---\n\
                 {{apiVersion: coppice.dev/v1alpha1, kind: NamespaceManager, metadata: {{name: m, namespace: {name}}}, spec: \
                 {{policies: [{{name: end, when: {{ttl: {{until: '{due:.0}'}}}}, then: {{delete: {{}}}}}}]}}}}\n"
            )
        });
        test_cluster.apply(&objects.collect::<String>()).await?;
        let deleted = async || {
            let namespaces = test_cluster.list("namespaces", "").await.ok()?;
            let deletes = test_cluster.namespace_deletes().ok()?;
            let done = |name: &String| {
                let stays = |n: &Value| {
                    n["metadata"]["name"] == name.as_str() && n["metadata"]["deletionTimestamp"].is_null()
                };
                deletes.iter().any(|e| e.name == *name) && !namespaces.iter().any(stays)
            };
            names.iter().all(done).then_some(())
        };
        test_cluster.until("all of them are deleted", deleted).await?;
        for name in &names {
            let failed = test_cluster.events("default", name, "ActionFailed").await?;
            // Turns collide on no machine; what fails otherwise is the doing of a machine with too much to do.
            let clashes = ["met other writers", "changed between"];
            let collided = failed.iter().any(|message| clashes.iter().any(|how| message.contains(how)));
            ensure!(!collided, "{name}: {failed:?}");
            let asked = test_cluster
                .namespace_deletes()?
                .into_iter()
                .filter(|e| e.name == *name && e.succeeded())
                .count();
            // None if it took effect, and its answer did not come in time.
            ensure!(asked <= 1, "{name} was deleted {asked} times");
        }
        Ok(())
    })
}
