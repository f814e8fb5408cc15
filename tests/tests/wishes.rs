//! Hold, suspend, extend, rearm, notice; and what happens to a wish when the world changes under it.

use anyhow::ensure;
use coppice_plane::ADMIN;
use coppice_tests::receiver::Receiver;
use coppice_tests::{Stage, together};
use serde_json::Value;

type Test = anyhow::Result<()>;

const DUE: &str = "policies: [{name: end, when: {ttl: {after: 1s}}, then: {delete: {}}}]";

async fn patch(stage: &Stage, namespace: &str, patch: &str) -> anyhow::Result<Value> {
    stage.patch("nsman", namespace, "m", patch).await
}

/// The policy is due: its verdict has been written.
fn due(manager: &Value) -> bool {
    manager["status"]["policies"][0]["result"] == "True"
}

#[test]
fn suspend_keeps_a_due_namespace_until_it_is_lifted() -> Test {
    together(async |stage, _| {
        let uid = stage.namespace("suspended").await?;
        stage.manager("suspended", "m", &format!("{{suspend: true, {DUE}}}")).await?;
        let manager = stage.manager_until("suspended", "m", "due", due).await?;
        ensure!(manager["status"]["phase"] == "Suspended", "{manager:#}");
        patch(stage, "suspended", r#"{"spec":{"suspend":false}}"#).await?;
        stage.deleted("suspended", &uid).await
    })
}

#[test]
fn a_hold_keeps_a_due_namespace_until_it_ends_by_itself() -> Test {
    together(async |stage, _| {
        let uid = stage.namespace("held").await?;
        #[allow(clippy::disallowed_methods, reason = "the hold is to end during the test")]
        let until = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(15);
        stage
            .manager("held", "m", &format!("{{hold: {{until: '{until:.0}', reason: debugging}}, {DUE}}}"))
            .await?;
        let manager = stage.phase("held", "m", "Held").await?;
        ensure!(manager["status"]["next"]["message"].as_str().is_some_and(|m| m.contains("debugging")));
        stage.deleted("held", &uid).await?;
        let delete = stage.namespace_deletes()?.into_iter().find(|e| e.name == "held");
        let received: jiff::Timestamp = delete.map(|e| e.received.to_string()).unwrap_or_default().parse()?;
        let held_until: jiff::Timestamp = format!("{until:.0}").parse()?;
        ensure!(received >= held_until, "deleted at {received}, held until {held_until}");
        Ok(())
    })
}

#[test]
fn extend_until_moves_the_end_and_an_edited_policy_is_decided_afresh() -> Test {
    together(async |stage, _| {
        stage.namespace("extended").await?;
        stage.manager("extended", "m", "{extendUntil: '2099-01-01T00:00:00Z', policies: [{name: end, when: {ttl: {after: 1s}}, then: {delete: {}}}]}").await?;
        let manager = stage.phase("extended", "m", "Active").await?;
        ensure!(manager["status"]["next"]["due"] == "2099-01-01T00:00:00Z", "{manager:#}");
        patch(stage, "extended", r#"{"spec":{"policies":[{"name":"later","when":{"ttl":{"after":"2h"}},"then":{"delete":{}}}],"extendUntil":null}}"#).await?;
        let later = |m: &Value| m["status"]["next"]["policy"] == "later";
        let manager = stage.manager_until("extended", "m", "the new policy", later).await?;
        ensure!(manager["status"]["phase"] == "Active" && manager["status"]["firings"] == 0);
        Ok(())
    })
}

#[test]
fn it_fires_once_and_again_only_when_rearmed() -> Test {
    together(async |stage, _| {
        let receiver = Receiver::start(&[]).await?;
        stage.namespace("rearm").await?;
        let spec = |rearm: &str| {
            format!(
                "{{{rearm} policies: [{{name: tell, when: {{ttl: {{after: 1s}}}}, then: {{webhook: {{url: '{}'}}}}}}]}}",
                receiver.url
            )
        };
        stage.manager("rearm", "m", &spec("")).await?;
        stage.phase("rearm", "m", "Fired").await?;
        // A change of anything but the policies is looked at and does not fire.
        patch(stage, "rearm", r#"{"spec":{"extendUntil":"2020-01-01T00:00:00Z"}}"#).await?;
        stage.phase("rearm", "m", "Fired").await?;
        patch(stage, "rearm", r#"{"spec":{"rearm":5}}"#).await?;
        let manager = stage.phase("rearm", "m", "Fired").await?;
        ensure!(manager["status"]["firings"] == 1 && receiver.received().len() == 1);
        patch(stage, "rearm", r#"{"spec":{"rearm":1}}"#).await?;
        let twice = |m: &Value| m["status"]["firings"] == 2 && m["status"]["phase"] == "Fired";
        stage.manager_until("rearm", "m", "a second firing", twice).await?;
        let ids: std::collections::BTreeSet<_> =
            receiver.received().iter().map(|r| r.header("webhook-id").to_owned()).collect();
        ensure!(ids.len() == 2 && receiver.received().len() == 2, "{ids:?}");
        Ok(())
    })
}

#[test]
fn notice_is_given_before_the_end_and_extending_withdraws_it() -> Test {
    together(async |stage, _| {
        stage.namespace("notice").await?;
        let spec = "{policies: [{name: end, when: {ttl: {after: 1h}}, then: {delete: {notice: 2h}}}]}";
        stage.manager("notice", "m", spec).await?;
        let manager = stage.phase("notice", "m", "Pending").await?;
        ensure!(
            manager["status"]["next"]["reason"] == "NoticeRunning"
                && manager["status"]["notice"]["notBefore"].is_string()
        );
        let announced = stage
            .until("the announcement about the namespace", async || {
                stage.events("default", "notice", "DeletionAnnounced").await.ok().filter(|e| !e.is_empty())
            })
            .await?;
        ensure!(announced[0].contains("will be deleted at"), "{announced:?}");
        patch(stage, "notice", r#"{"spec":{"extendUntil":"2099-01-01T00:00:00Z"}}"#).await?;
        let manager = stage.phase("notice", "m", "Active").await?;
        ensure!(manager["status"]["notice"].is_null());
        Ok(())
    })
}

#[test]
fn notice_runs_its_time_before_the_deletion() -> Test {
    together(async |stage, _| {
        let uid = stage.namespace("short-notice").await?;
        let spec = "{policies: [{name: end, when: {ttl: {after: 1s}}, then: {delete: {notice: 4s}}}]}";
        stage.manager("short-notice", "m", spec).await?;
        let manager =
            stage.manager_until("short-notice", "m", "notice", |m| m["status"]["notice"].is_object()).await?;
        stage.deleted("short-notice", &uid).await?;
        let not_before: jiff::Timestamp =
            manager["status"]["notice"]["notBefore"].as_str().unwrap_or_default().parse()?;
        let delete = stage.namespace_deletes()?.into_iter().find(|e| e.name == "short-notice");
        let received: jiff::Timestamp = delete.map(|e| e.received.to_string()).unwrap_or_default().parse()?;
        ensure!(received >= not_before, "deleted at {received}, announced for {not_before}");
        Ok(())
    })
}

#[test]
fn a_manager_that_is_deleted_takes_its_step_with_it() -> Test {
    together(async |stage, _| {
        let receiver = Receiver::start(&[503; 100]).await?;
        stage.namespace("withdrawn").await?;
        let spec = format!(
            "{{policies: [{{name: tell, when: {{ttl: {{after: 1s}}}}, then: {{webhook: {{url: '{}'}}}}}}]}}",
            receiver.url
        );
        stage.manager("withdrawn", "m", &spec).await?;
        let failed = |m: &Value| m["status"]["intent"]["attempts"].as_u64().is_some_and(|n| n >= 2);
        let manager = stage.manager_until("withdrawn", "m", "two failed attempts", failed).await?;
        ensure!(manager["status"]["conditions"][0]["reason"] == "Retrying");
        ensure!(manager["status"]["next"]["due"].is_string(), "when it is tried again");
        stage.kubectl(ADMIN, &["delete", "nsman", "m", "-n", "withdrawn"]).await?;
        let before = receiver.received().len();
        // A second manager's firing shows that time has passed and work goes on.
        let other = Receiver::start(&[503, 503, 503]).await?;
        stage.manager("withdrawn", "second", &spec.replace(&receiver.url, &other.url)).await?;
        stage.phase("withdrawn", "second", "Fired").await?;
        ensure!(receiver.received().len() <= before + 1, "attempts went on after the manager was deleted");
        Ok(())
    })
}

#[test]
fn a_namespace_that_is_terminating_already_is_left_alone() -> Test {
    together(async |stage, _| {
        stage.namespace("leaving").await?;
        // Something that keeps the namespace from going away.
        stage
            .apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: stays, namespace: leaving, finalizers: [example.org/stays]}}")
            .await?;
        stage
            .manager(
                "leaving",
                "m",
                "{policies: [{name: end, when: {ttl: {after: 6s}}, then: {delete: {}}}]}",
            )
            .await?;
        stage.phase("leaving", "m", "Active").await?;
        // The manager is kept for a moment as well, so that there is something to look at.
        patch(stage, "leaving", r#"{"metadata":{"finalizers":["example.org/stays"]}}"#).await?;
        stage.kubectl(ADMIN, &["delete", "namespace", "leaving", "--wait=false"]).await?;
        let leaving = async || {
            let manager = stage.get("nsman", "leaving", "m").await.ok()??;
            manager["metadata"]["deletionTimestamp"].is_string().then_some(())
        };
        stage.until("the manager is being deleted", leaving).await?;
        // Time for the ttl to pass: another namespace's ttl of the same length, begun later, has fired.
        let uid = stage.namespace("leaving-after").await?;
        stage
            .manager(
                "leaving-after",
                "m",
                "{policies: [{name: end, when: {ttl: {after: 6s}}, then: {delete: {}}}]}",
            )
            .await?;
        stage.deleted("leaving-after", &uid).await?;
        ensure!(!stage.namespace_deletes()?.iter().any(|e| e.name == "leaving"));
        for (kind, name) in [("configmap", "stays"), ("nsman", "m")] {
            stage.patch(kind, "leaving", name, r#"{"metadata":{"finalizers":null}}"#).await?;
        }
        Ok(())
    })
}

#[test]
fn a_recreated_namespace_is_untouched_by_its_predecessors_timer() -> Test {
    together(async |stage, _| {
        let first = stage.namespace("again").await?;
        let spec = |after: &str| {
            format!(
                "{{policies: [{{name: end, when: {{ttl: {{after: {after}}}}}, then: {{delete: {{}}}}}}]}}"
            )
        };
        stage.manager("again", "m", &spec("8s")).await?;
        stage.phase("again", "m", "Active").await?;
        stage.kubectl(ADMIN, &["delete", "namespace", "again"]).await?;
        let second = stage.namespace("again").await?;
        ensure!(first != second);
        stage.manager("again", "m", &spec("1h")).await?;
        stage.phase("again", "m", "Active").await?;
        // The predecessor's time passes: another namespace's, begun later, has passed.
        let uid = stage.namespace("again-witness").await?;
        stage.manager("again-witness", "m", &spec("8s")).await?;
        stage.deleted("again-witness", &uid).await?;
        ensure!(!stage.is_deleted("again", &second).await);
        ensure!(!stage.namespace_deletes()?.iter().any(|e| e.name == "again"));
        Ok(())
    })
}

#[test]
fn kubectl_get_alone_says_what_will_happen_next() -> Test {
    together(async |stage, _| {
        stage.namespace("columns").await?;
        let spec = "{policies: [{name: pods, when: {podsSucceed: {initialDelay: 0s}}, then: {scaleDown: {}}}, \
                     {name: end, when: {ttl: {until: '2099-01-01T00:00:00Z'}}, then: {delete: {}}}]}";
        stage.manager("columns", "m", spec).await?;
        let counted = |m: &Value| m["status"]["policies"][0]["reason"] == "TooFewPods";
        stage.manager_until("columns", "m", "counted pods", counted).await?;
        let table = stage.kubectl(ADMIN, &["get", "nsman", "-n", "columns"]).await?;
        let words: Vec<&str> = table.lines().flat_map(|line| line.split("  ")).map(str::trim).collect();
        for word in ["PHASE", "NEXT", "DUE", "WHY", "Active", "delete", "2099-01-01T00:00:00Z"] {
            ensure!(words.contains(&word), "{word} is not in {table}");
        }
        let why = "scaleDown: 0 of at least 1 pods have succeeded (minPods); delete: the ttl ends at 2099-01-01T00:00:00Z";
        ensure!(table.contains(why), "{table}");
        Ok(())
    })
}

#[test]
fn nothing_is_written_while_nothing_changes() -> Test {
    together(async |stage, _| {
        stage.namespace("quiet").await?;
        stage
            .manager(
                "quiet",
                "m",
                "{policies: [{name: p, when: {podsSucceed: {initialDelay: 0s}}, then: {delete: {}}}]}",
            )
            .await?;
        stage.pod("quiet", "a", "run", "component: main").await?;
        let running = |m: &Value| m["status"]["next"]["message"] == "pod a is Running";
        let manager = stage.manager_until("quiet", "m", "a running pod", running).await?;
        let revision = &manager["metadata"]["resourceVersion"];
        stage
            .until("that write is in the audit log", async || {
                let audit = stage.plane.audit().ok()?;
                let wrote = |e: &Value| e["metadata"]["resourceVersion"] == *revision;
                audit.iter().any(|e| e.response.as_ref().is_some_and(wrote)).then_some(())
            })
            .await?;
        let writes = || -> anyhow::Result<usize> {
            let audit = stage.plane.audit()?;
            let ours = audit
                .iter()
                .filter(|e| e.user == coppice_plane::OPERATOR && e.namespace == "quiet" && e.is_write());
            Ok(ours.count())
        };
        let before = writes()?;
        // Twenty changes that wake the manager and mean nothing to it.
        for n in 0..20 {
            let label = format!("{{\"metadata\":{{\"labels\":{{\"n\":\"{n}\"}}}}}}");
            stage.patch("pod", "quiet", "a", &label).await?;
        }
        stage.pod("quiet", "b", "fail", "component: main").await?;
        let failed = |m: &Value| m["status"]["next"]["message"] == "pod b has failed";
        stage.manager_until("quiet", "m", "a failed pod", failed).await?;
        // One write for the change; one more Event or status at most for what pod b went through on its way.
        ensure!(writes()? <= before + 2, "{} writes", writes()? - before);
        Ok(())
    })
}

#[test]
fn a_receiver_of_the_consol_operator_gets_the_body_it_knows() -> Test {
    together(async |stage, _| {
        let receiver = Receiver::start(&[]).await?;
        stage.namespace("example-04").await?;
        let spec = format!(
            "{{policies: [{{name: tell the receiver, when: {{podsSucceed: {{initialDelay: 1s, minPods: 0, \
             selector: {{matchLabels: {{component: main}}}}}}}}, then: {{webhook: {{url: '{}', format: consol}}}}}}]}}",
            receiver.url
        );
        stage.manager("example-04", "example-04", &spec).await?;
        stage.phase("example-04", "example-04", "Fired").await?;
        let body = String::from_utf8(receiver.received()[0].body.clone())?;
        let expected = format!(
            r#"{{"namespaceManager":{{"namespace":"example-04","name":"example-04"}},"policy":{{"name":"tell the receiver","condition":{{"type":"PODS_SUCCEED","params":{{"ttlSeconds":null,"podLabels":{{"component":"main"}},"initialDelaySeconds":1,"periodSeconds":10,"minChecks":null}}}},"action":{{"type":"WEBHOOK","params":{{"selectors":null,"url":"{}"}}}}}},"namespace":"example-04"}}"#,
            receiver.url
        );
        ensure!(body == expected, "{body}\n{expected}");
        Ok(())
    })
}
