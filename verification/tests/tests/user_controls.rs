//! Hold, suspend, extend, rearm, notice; and what becomes of them when the cluster changes meanwhile.

use anyhow::ensure;
use coppice_plane::ADMIN;
use coppice_tests::receiver::Receiver;
use coppice_tests::{TestCluster, condition, on_shared_plane};
use serde_json::Value;

type Test = anyhow::Result<()>;

const DUE: &str = "policies: [{name: end, when: {ttl: {after: 1s}}, then: {delete: {}}}]";

async fn patch(test_cluster: &TestCluster, namespace: &str, patch: &str) -> anyhow::Result<Value> {
    test_cluster.patch("nsman", namespace, "m", patch).await
}

/// The policy is due: its verdict has been written.
fn due(manager: &Value) -> bool {
    manager["status"]["policies"][0]["result"] == "True"
}

#[test]
fn suspend_keeps_a_due_namespace_until_it_is_lifted() -> Test {
    on_shared_plane(async |test_cluster, _| {
        let uid = test_cluster.namespace("suspended").await?;
        test_cluster.manager("suspended", "m", &format!("{{suspend: true, {DUE}}}")).await?;
        let manager = test_cluster.manager_until("suspended", "m", "due", due).await?;
        ensure!(manager["status"]["phase"] == "Suspended", "{manager:#}");
        patch(test_cluster, "suspended", r#"{"spec":{"suspend":false}}"#).await?;
        test_cluster.deleted("suspended", &uid).await
    })
}

#[test]
fn a_hold_keeps_a_due_namespace_until_it_ends_by_itself() -> Test {
    on_shared_plane(async |test_cluster, _| {
        let uid = test_cluster.namespace("held").await?;
        let spec = format!("{{hold: {{until: '2099-01-01T00:00:00Z', reason: debugging}}, {DUE}}}");
        test_cluster.manager("held", "m", &spec).await?;
        let manager = test_cluster.phase("held", "m", "Held").await?;
        ensure!(manager["status"]["next"]["message"].as_str().is_some_and(|m| m.contains("debugging")));
        // Only now, so that it is seen to be held however slow the machine is.
        #[allow(clippy::disallowed_methods, reason = "the hold is to end during the test")]
        let until = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(3);
        patch(test_cluster, "held", &format!(r#"{{"spec":{{"hold":{{"until":"{until:.0}"}}}}}}"#)).await?;
        test_cluster.deleted("held", &uid).await?;
        let delete = test_cluster.namespace_deletes()?.into_iter().find(|e| e.name == "held");
        let received: jiff::Timestamp = delete.map(|e| e.received.to_string()).unwrap_or_default().parse()?;
        let held_until: jiff::Timestamp = format!("{until:.0}").parse()?;
        ensure!(received >= held_until, "deleted at {received}, held until {held_until}");
        Ok(())
    })
}

#[test]
fn extend_until_moves_the_end_and_an_edited_policy_is_decided_again() -> Test {
    on_shared_plane(async |test_cluster, _| {
        test_cluster.namespace("extended").await?;
        test_cluster.manager("extended", "m", "{extendUntil: '2099-01-01T00:00:00Z', policies: [{name: end, when: {ttl: {after: 1s}}, then: {delete: {}}}]}").await?;
        let manager = test_cluster.phase("extended", "m", "Active").await?;
        ensure!(manager["status"]["next"]["due"] == "2099-01-01T00:00:00Z", "{manager:#}");
        patch(test_cluster, "extended", r#"{"spec":{"policies":[{"name":"later","when":{"ttl":{"after":"2h"}},"then":{"delete":{}}}],"extendUntil":null}}"#).await?;
        let later = |m: &Value| m["status"]["next"]["policy"] == "later";
        let manager = test_cluster.manager_until("extended", "m", "the new policy", later).await?;
        ensure!(manager["status"]["phase"] == "Active" && manager["status"]["firings"] == 0);
        Ok(())
    })
}

#[test]
fn it_fires_once_and_again_only_when_rearmed() -> Test {
    on_shared_plane(async |test_cluster, _| {
        let receiver = Receiver::start(&[]).await?;
        test_cluster.namespace("rearm").await?;
        let spec = |rearm: &str| {
            format!(
                "{{{rearm} policies: [{{name: tell, when: {{ttl: {{after: 1s}}}}, then: {{webhook: {{url: '{}'}}}}}}]}}",
                receiver.url
            )
        };
        test_cluster.manager("rearm", "m", &spec("")).await?;
        test_cluster.phase("rearm", "m", "Fired").await?;
        // A change of anything but the policies is looked at and does not fire.
        patch(test_cluster, "rearm", r#"{"spec":{"extendUntil":"2020-01-01T00:00:00Z"}}"#).await?;
        test_cluster.phase("rearm", "m", "Fired").await?;
        patch(test_cluster, "rearm", r#"{"spec":{"rearm":5}}"#).await?;
        let manager = test_cluster.phase("rearm", "m", "Fired").await?;
        ensure!(manager["status"]["firings"] == 1 && receiver.ids().len() == 1, "{:?}", receiver.ids());
        patch(test_cluster, "rearm", r#"{"spec":{"rearm":1}}"#).await?;
        let twice = |m: &Value| m["status"]["firings"] == 2 && m["status"]["phase"] == "Fired";
        test_cluster.manager_until("rearm", "m", "a second firing", twice).await?;
        ensure!(receiver.ids().len() == 2, "{:?}", receiver.ids());
        Ok(())
    })
}

#[test]
fn notice_is_given_before_the_end_and_extending_withdraws_it() -> Test {
    on_shared_plane(async |test_cluster, _| {
        test_cluster.namespace("notice").await?;
        let spec = "{policies: [{name: end, when: {ttl: {after: 1h}}, then: {delete: {notice: 2h}}}]}";
        test_cluster.manager("notice", "m", spec).await?;
        let manager = test_cluster.phase("notice", "m", "Pending").await?;
        ensure!(
            manager["status"]["next"]["reason"] == "NoticeRunning"
                && manager["status"]["notice"]["notBefore"].is_string()
        );
        let announced = test_cluster
            .until("the announcement about the namespace", async || {
                test_cluster
                    .events("default", "notice", "DeletionAnnounced")
                    .await
                    .ok()
                    .filter(|e| !e.is_empty())
            })
            .await?;
        ensure!(announced[0].contains("will be deleted at"), "{announced:?}");
        patch(test_cluster, "notice", r#"{"spec":{"extendUntil":"2099-01-01T00:00:00Z"}}"#).await?;
        let manager = test_cluster.phase("notice", "m", "Active").await?;
        ensure!(manager["status"]["notice"].is_null());
        Ok(())
    })
}

#[test]
fn notice_runs_its_time_before_the_deletion() -> Test {
    on_shared_plane(async |test_cluster, _| {
        let uid = test_cluster.namespace("short-notice").await?;
        let spec = "{policies: [{name: end, when: {ttl: {after: 1s}}, then: {delete: {notice: 4s}}}]}";
        test_cluster.manager("short-notice", "m", spec).await?;
        test_cluster.deleted("short-notice", &uid).await?;
        // The Event survives the namespace; the status shows the notice for a few seconds only.
        let announced = async || {
            let notes = test_cluster.events("default", "short-notice", "DeletionAnnounced").await.ok()?;
            let (_, rest) = notes.first()?.split_once("will be deleted at ")?;
            rest.split(' ').next()?.parse::<jiff::Timestamp>().ok()
        };
        let not_before = test_cluster.until("the announcement about the namespace", announced).await?;
        let delete = test_cluster.namespace_deletes()?.into_iter().find(|e| e.name == "short-notice");
        let received: jiff::Timestamp = delete.map(|e| e.received.to_string()).unwrap_or_default().parse()?;
        ensure!(received >= not_before, "deleted at {received}, announced for {not_before}");
        Ok(())
    })
}

#[test]
fn a_manager_that_is_deleted_takes_its_step_with_it() -> Test {
    on_shared_plane(async |test_cluster, _| {
        let receiver = Receiver::start(&[503; 100]).await?;
        test_cluster.namespace("withdrawn").await?;
        let spec = format!(
            "{{policies: [{{name: tell, when: {{ttl: {{after: 1s}}}}, then: {{webhook: {{url: '{}'}}}}}}]}}",
            receiver.url
        );
        test_cluster.manager("withdrawn", "m", &spec).await?;
        // Not while the next attempt is under way: then nothing says when it is tried again.
        let failed = |m: &Value| {
            let status = &m["status"];
            let twice = status["intent"]["attempts"].as_u64().is_some_and(|n| n >= 2);
            twice && status["next"]["due"].is_string() && condition(m, "Ready")["reason"] == "Retrying"
        };
        test_cluster.manager_until("withdrawn", "m", "two failed attempts", failed).await?;
        test_cluster.kubectl(ADMIN, &["delete", "nsman", "m", "-n", "withdrawn"]).await?;
        let before = receiver.received().len();
        // A second manager's firing shows that time has passed and work goes on.
        let other = Receiver::start(&[503, 503, 503]).await?;
        test_cluster.manager("withdrawn", "second", &spec.replace(&receiver.url, &other.url)).await?;
        test_cluster.phase("withdrawn", "second", "Fired").await?;
        ensure!(receiver.received().len() <= before + 1, "attempts went on after the manager was deleted");
        Ok(())
    })
}

#[test]
fn a_namespace_that_is_terminating_already_is_skipped() -> Test {
    on_shared_plane(async |test_cluster, _| {
        test_cluster.namespace("leaving").await?;
        // Something that keeps the namespace from going away.
        test_cluster
            .apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: stays, namespace: leaving, finalizers: [example.org/stays]}}")
            .await?;
        let ttl = |after: &str| {
            format!(
                "{{policies: [{{name: end, when: {{ttl: {{after: {after}}}}}, then: {{delete: {{}}}}}}]}}"
            )
        };
        test_cluster.manager("leaving", "m", &ttl("9h")).await?;
        test_cluster.phase("leaving", "m", "Active").await?;
        // The manager is kept for a moment as well, so that there is something to look at.
        patch(test_cluster, "leaving", r#"{"metadata":{"finalizers":["example.org/stays"]}}"#).await?;
        test_cluster.kubectl(ADMIN, &["delete", "namespace", "leaving", "--wait=false"]).await?;
        let leaving = async || {
            let manager = test_cluster.get("nsman", "leaving", "m").await.ok()??;
            manager["metadata"]["deletionTimestamp"].is_string().then_some(())
        };
        test_cluster.until("the manager is being deleted", leaving).await?;
        // Due only now, however slow the machine is.
        let due =
            r#"{"spec":{"policies":[{"name":"end","when":{"ttl":{"after":"1s"}},"then":{"delete":{}}}]}}"#;
        patch(test_cluster, "leaving", due).await?;
        // Time for the ttl to pass: another namespace's ttl of the same length, begun later, has fired.
        let uid = test_cluster.namespace("leaving-after").await?;
        test_cluster.manager("leaving-after", "m", &ttl("1s")).await?;
        test_cluster.deleted("leaving-after", &uid).await?;
        ensure!(!test_cluster.namespace_deletes()?.iter().any(|e| e.name == "leaving"));
        for (kind, name) in [("configmap", "stays"), ("nsman", "m")] {
            test_cluster.patch(kind, "leaving", name, r#"{"metadata":{"finalizers":null}}"#).await?;
        }
        Ok(())
    })
}

#[test]
fn a_recreated_namespace_is_untouched_by_its_predecessors_timer() -> Test {
    on_shared_plane(async |test_cluster, _| {
        let first = test_cluster.namespace("again").await?;
        let spec = |after: &str| {
            format!(
                "{{policies: [{{name: end, when: {{ttl: {{after: {after}}}}}, then: {{delete: {{}}}}}}]}}"
            )
        };
        test_cluster.manager("again", "m", &spec("1h")).await?;
        test_cluster.phase("again", "m", "Active").await?;
        test_cluster.manager("again", "m", &spec("40s")).await?;
        let reconciled = async || {
            let manager = test_cluster.get("nsman", "again", "m").await.ok()?;
            // On a slow machine the time passes before it is deleted here: then the manager is gone, which is as good.
            let Some(manager) = manager else { return Some(()) };
            (manager["status"]["observedGeneration"] == manager["metadata"]["generation"]).then_some(())
        };
        test_cluster.until("a timer of 40 s", reconciled).await?;
        test_cluster.kubectl(ADMIN, &["delete", "namespace", "again", "--ignore-not-found"]).await?;
        let second = test_cluster.namespace("again").await?;
        ensure!(first != second);
        test_cluster.manager("again", "m", &spec("1h")).await?;
        test_cluster.phase("again", "m", "Active").await?;
        // The predecessor's time passes: another namespace's, begun later, has passed.
        let uid = test_cluster.namespace("again-witness").await?;
        test_cluster.manager("again-witness", "m", &spec("40s")).await?;
        test_cluster.deleted("again-witness", &uid).await?;
        ensure!(!test_cluster.is_deleted("again", &second).await);
        let deletes = test_cluster.namespace_deletes()?;
        ensure!(!deletes.iter().any(|e| e.precondition("uid") == Some(second.as_str())), "{deletes:?}");
        Ok(())
    })
}

#[test]
fn kubectl_get_alone_says_what_will_happen_next() -> Test {
    on_shared_plane(async |test_cluster, _| {
        test_cluster.namespace("columns").await?;
        let spec = "{policies: [{name: pods, when: {podsSucceed: {initialDelay: 0s}}, then: {scaleDown: {}}}, \
                     {name: end, when: {ttl: {until: '2099-01-01T00:00:00Z'}}, then: {delete: {}}}]}";
        test_cluster.manager("columns", "m", spec).await?;
        let counted = |m: &Value| m["status"]["policies"][0]["reason"] == "TooFewPods";
        test_cluster.manager_until("columns", "m", "counted pods", counted).await?;
        let table = test_cluster.kubectl(ADMIN, &["get", "nsman", "-n", "columns"]).await?;
        let words: Vec<&str> = table.lines().flat_map(|line| line.split("  ")).map(str::trim).collect();
        for word in ["PHASE", "NEXT", "DUE", "Active", "delete", "2099-01-01T00:00:00Z"] {
            ensure!(words.contains(&word), "{word} is not in {table}");
        }
        ensure!(!words.contains(&"WHY"), "{table}");
        let table = test_cluster.kubectl(ADMIN, &["get", "nsman", "-n", "columns", "-o", "wide"]).await?;
        let why = "scaleDown: 0 of at least 1 pod has succeeded (minPods); delete: the ttl ends at 2099-01-01T00:00:00Z";
        ensure!(table.contains(why), "{table}");
        Ok(())
    })
}

#[test]
fn nothing_is_written_while_nothing_changes() -> Test {
    on_shared_plane(async |test_cluster, _| {
        test_cluster.namespace("quiet").await?;
        test_cluster
            .manager(
                "quiet",
                "m",
                "{policies: [{name: p, when: {podsSucceed: {initialDelay: 0s}}, then: {delete: {}}}]}",
            )
            .await?;
        test_cluster.pod("quiet", "a", "run", "component: main").await?;
        let running = |m: &Value| m["status"]["next"]["message"] == "pod a is Running";
        let manager = test_cluster.manager_until("quiet", "m", "a running pod", running).await?;
        let revision = &manager["metadata"]["resourceVersion"];
        test_cluster
            .until("that write is in the audit log", async || {
                let audit = test_cluster.plane.audit().ok()?;
                let wrote = |e: &Value| e["metadata"]["resourceVersion"] == *revision;
                audit.iter().any(|e| e.response.as_ref().is_some_and(wrote)).then_some(())
            })
            .await?;
        let writes = || -> anyhow::Result<usize> {
            let audit = test_cluster.plane.audit()?;
            // One that is refused, or given up by a busy API server, is made again.
            let ours = audit.iter().filter(|e| {
                let wrote = e.is_write() && e.succeeded();
                wrote && e.user == coppice_plane::OPERATOR && e.namespace == "quiet"
            });
            Ok(ours.count())
        };
        let before = writes()?;
        // Twenty changes that wake the manager and mean nothing to it.
        for n in 0..20 {
            let label = format!("{{\"metadata\":{{\"labels\":{{\"n\":\"{n}\"}}}}}}");
            test_cluster.patch("pod", "quiet", "a", &label).await?;
        }
        test_cluster.pod("quiet", "b", "fail", "component: main").await?;
        let failed = |m: &Value| m["status"]["next"]["message"] == "pod b has failed";
        test_cluster.manager_until("quiet", "m", "a failed pod", failed).await?;
        // One write for the change; one more Event or status at most for what pod b went through on its way.
        ensure!(writes()? <= before + 2, "{} writes", writes()? - before);
        Ok(())
    })
}

#[test]
fn a_receiver_of_the_consol_operator_gets_the_body_it_knows() -> Test {
    on_shared_plane(async |test_cluster, _| {
        let receiver = Receiver::start(&[]).await?;
        test_cluster.namespace("example-04").await?;
        let spec = format!(
            "{{policies: [{{name: tell the receiver, when: {{podsSucceed: {{initialDelay: 1s, minPods: 0, \
             selector: {{matchLabels: {{component: main}}}}}}}}, then: {{webhook: {{url: '{}', format: consol}}}}}}]}}",
            receiver.url
        );
        test_cluster.manager("example-04", "example-04", &spec).await?;
        test_cluster.phase("example-04", "example-04", "Fired").await?;
        let body = String::from_utf8(receiver.received()[0].body.clone())?;
        let expected = format!(
            r#"{{"namespaceManager":{{"namespace":"example-04","name":"example-04"}},"policy":{{"name":"tell the receiver","condition":{{"type":"PODS_SUCCEED","params":{{"ttlSeconds":null,"podLabels":{{"component":"main"}},"initialDelaySeconds":1,"periodSeconds":10,"minChecks":null}}}},"action":{{"type":"WEBHOOK","params":{{"selectors":null,"url":"{}"}}}}}},"namespace":"example-04"}}"#,
            receiver.url
        );
        ensure!(body == expected, "{body}\n{expected}");
        Ok(())
    })
}
