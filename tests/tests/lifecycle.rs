//! What a `NamespaceManager` does, seen from outside: on a real API server, by the real operator.

use anyhow::ensure;
use coppice_tests::receiver::Receiver;
use coppice_tests::together;
use serde_json::Value;

type Test = anyhow::Result<()>;

const SUCCEED: &str = "component: main";

/// How many seconds passed between a namespace's creation and the API server's receiving our DELETE.
fn age_at_delete(stage: &coppice_tests::Stage, name: &str, created: &str) -> anyhow::Result<f64> {
    let deletes = stage.namespace_deletes()?;
    let delete = deletes.iter().find(|e| e.name == name && e.succeeded());
    let received: jiff::Timestamp = delete.map(|e| e.received.to_string()).unwrap_or_default().parse()?;
    Ok(received.duration_since(created.parse()?).as_secs_f64())
}

#[test]
fn a_ttl_deletes_the_namespace_not_before_its_time() -> Test {
    together(async |stage, _| {
        let uid = stage.namespace("ttl").await?;
        let created =
            stage.get("namespace", "", "ttl").await?.unwrap_or_default()["metadata"]["creationTimestamp"]
                .clone();
        stage
            .manager("ttl", "m", "{policies: [{name: end, when: {ttl: {after: 20s}}, then: {delete: {}}}]}")
            .await?;
        let manager = stage.phase("ttl", "m", "Active").await?;
        ensure!(
            manager["status"]["next"]["action"] == "delete" && manager["status"]["next"]["due"].is_string()
        );
        stage.deleted("ttl", &uid).await?;
        let age = age_at_delete(stage, "ttl", created.as_str().unwrap_or_default())?;
        ensure!(age >= 21.0, "deleted {age} s after the second in which it was created: too early");
        let delete = stage.namespace_deletes()?.into_iter().find(|e| e.name == "ttl" && e.succeeded());
        let delete = delete.ok_or_else(|| anyhow::anyhow!("no DELETE in the audit log"))?;
        ensure!(delete.precondition("uid") == Some(&uid) && delete.precondition("resourceVersion").is_some());
        // What happened stays visible when the namespace is gone.
        let notes = async || {
            stage.events("default", "ttl", "NamespaceDeleted").await.ok().filter(|notes| !notes.is_empty())
        };
        let notes = stage.until("the Event about the namespace", notes).await?;
        ensure!(notes.iter().any(|note| note.contains("NamespaceManager m")), "{notes:?}");
        Ok(())
    })
}

#[test]
fn pods_that_succeed_delete_the_namespace_and_one_that_fails_keeps_it() -> Test {
    together(async |stage, _| {
        let spec = "{policies: [{name: done, when: {podsSucceed: {initialDelay: 0s, selector: {matchLabels: {component: main}}}}, then: {delete: {}}}]}";
        let good = stage.namespace("pods-good").await?;
        stage.namespace("pods-bad").await?;
        for (namespace, outcome) in [("pods-good", "succeed"), ("pods-bad", "fail")] {
            stage.manager(namespace, "m", spec).await?;
            // In this order: as soon as the main pod has succeeded, nothing can be created any more.
            stage.pod(namespace, "aside", "run", "component: other").await?;
            stage.pod(namespace, "main", outcome, SUCCEED).await?;
        }
        stage.deleted("pods-good", &good).await?;
        let reason = |m: &Value| m["status"]["policies"][0]["reason"] == "PodFailed";
        let manager = stage.manager_until("pods-bad", "m", "PodFailed", reason).await?;
        ensure!(manager["status"]["next"]["message"] == "pod main has failed");
        Ok(())
    })
}

#[test]
fn a_job_counts_when_it_is_complete_and_not_in_between() -> Test {
    together(async |stage, _| {
        let uid = stage.namespace("job").await?;
        stage
            .manager(
                "job",
                "m",
                "{policies: [{name: done, when: {podsSucceed: {initialDelay: 0s}}, then: {delete: {}}}]}",
            )
            .await?;
        stage
            .apply(
                "{apiVersion: batch/v1, kind: Job, metadata: {name: j, namespace: job}, spec: {completions: 3, parallelism: 2, \
                 template: {metadata: {labels: {plane.coppice.dev/outcome: succeed}}, \
                 spec: {restartPolicy: Never, containers: [{name: c, image: busybox}]}}}}",
            )
            .await?;
        stage.deleted("job", &uid).await?;
        // The witness: when we asked for the deletion, the Job's completion had been written.
        let audit = stage.plane.audit()?;
        let deleted =
            audit.iter().find(|e| e.verb == "delete" && e.resource == "namespaces" && e.name == "job");
        let complete = audit
            .iter()
            .filter(|e| e.resource == "jobs" && e.subresource == "status" && e.namespace == "job");
        let complete =
            complete.filter(|e| format!("{:?}", e.request).contains("Complete")).map(|e| e.received).min();
        let (Some(deleted), Some(complete)) = (deleted, complete) else {
            anyhow::bail!("not in the audit log")
        };
        ensure!(deleted.received > complete, "deleted before the Job was complete");
        Ok(())
    })
}

#[test]
fn scale_down_remembers_and_wake_gives_back_exactly() -> Test {
    together(async |stage, _| {
        stage.namespace("scale").await?;
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
        stage.apply(&yaml.concat()).await?;
        stage
            .manager(
                "scale",
                "m",
                "{policies: [{name: sleep, when: {ttl: {after: 1s}}, then: {scaleDown: {selectors: [\
                 {kind: Deployment, selector: {matchLabels: {isScaleDown: 'yes'}}}, {kind: StatefulSet}, {kind: CronJob}]}}}]}",
            )
            .await?;
        let manager = stage.phase("scale", "m", "Fired").await?;
        ensure!(manager["status"]["scaledDown"].as_array().map(Vec::len) == Some(3), "{manager:#}");
        let sizes = async || -> anyhow::Result<Vec<Value>> {
            let mut sizes = Vec::new();
            for (kind, name) in [("deploy", "chosen"), ("deploy", "other"), ("sts", "set")] {
                sizes.push(
                    stage.get(kind, "scale", name).await?.unwrap_or_default()["spec"]["replicas"].clone(),
                );
            }
            sizes.push(
                stage.get("cronjob", "scale", "cron").await?.unwrap_or_default()["spec"]["suspend"].clone(),
            );
            Ok(sizes)
        };
        ensure!(
            sizes().await? == [0.into(), 3.into(), 0.into(), true.into()] as [Value; 4],
            "{:?}",
            sizes().await?
        );
        stage.patch("nsman", "scale", "m", r#"{"spec":{"wake":1}}"#).await?;
        stage.manager_until("scale", "m", "awake", |m| m["status"]["scaledDown"].is_null()).await?;
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
    together(async |stage, _| {
        let receiver = Receiver::start(&[503, 500]).await?;
        let uid = stage.namespace("hook").await?;
        let spec = format!(
            "{{policies: [{{name: tell, when: {{ttl: {{after: 1s}}}}, then: {{webhook: {{url: '{}'}}}}}}]}}",
            receiver.url
        );
        stage.manager("hook", "m", &spec).await?;
        let manager = stage.phase("hook", "m", "Fired").await?;
        ensure!(manager["status"]["lastFiring"]["result"] == "WebhookDelivered");
        let requests = receiver.received();
        ensure!(requests.len() == 3, "two failures and a success, not {}", requests.len());
        let id = manager["status"]["lastFiring"]["id"].as_str().unwrap_or_default();
        let config = stage.get("coppiceconfig", "", "coppice").await?.unwrap_or_default();
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
    together(async |stage, operator| {
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
        stage.apply(&objects.collect::<String>()).await?;
        let deleted = async || {
            let deletes = stage.namespace_deletes().ok()?;
            let done = |name: &String| deletes.iter().any(|e| e.name == *name && e.succeeded());
            names.iter().all(done).then_some(())
        };
        stage.until("all of them are deleted", deleted).await?;
        for name in &names {
            let failed = stage.events("default", name, "ActionFailed").await?;
            ensure!(failed.is_empty(), "{name}: {failed:?}");
            let asked =
                stage.namespace_deletes()?.into_iter().filter(|e| e.name == *name && e.succeeded()).count();
            ensure!(asked == 1, "{name} was deleted {asked} times");
        }
        let unavailable = operator.metric("coppice_blocked_total{reason=\"GovernorUnavailable\"}").await?;
        ensure!(unavailable.is_none(), "{unavailable:?} bookings failed");
        Ok(())
    })
}
