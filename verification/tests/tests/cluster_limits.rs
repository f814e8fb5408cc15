//! How far the users of a governed namespace may go, on a real API server.

use anyhow::{Context as _, ensure};
use coppice_plane::ADMIN;
use coppice_tests::receiver::Receiver;
use coppice_tests::{condition, on_shared_plane};
use jiff::SignedDuration;
use serde_json::Value;

use super::cli::coppice;
use super::cluster_managers::record;
use super::lifecycle::effective_delete;

type Test = anyhow::Result<()>;

fn manager(name: &str, spec: &str) -> String {
    format!(
        "{{apiVersion: coppice.dev/v1alpha1, kind: ClusterNamespaceManager, metadata: {{name: {name}}}, spec: {{mode: Enforce, \
         selector: {{names: ['{name}-*']}}, settle: 1s, {spec}}}}}"
    )
}

#[test]
fn managers_work_within_the_limits_of_their_cluster_manager() -> Test {
    on_shared_plane(async |test_cluster, _| {
        let limits = |actions: &str| {
            manager("limits", &format!("limits: {{minNotice: 6s, tenantActions: [{actions}]}}"))
        };
        test_cluster.apply(&limits("delete")).await?;
        let uid = test_cluster.namespace("limits-ends").await?;
        test_cluster.namespace("limits-sleeps").await?;
        let sleep = "{policies: [{name: sleep, when: {ttl: {after: 1s}}, then: {scaleDown: {}}}]}";
        test_cluster.manager("limits-sleeps", "m", sleep).await?;
        let end = |after: &str| {
            format!(
                "{{policies: [{{name: end, when: {{ttl: {{after: {after}}}}}, then: {{delete: {{}}}}}}]}}"
            )
        };
        test_cluster.manager("limits-ends", "m", &end("1h")).await?;
        let says = |m: &Value| condition(m, "Accepted")["message"].to_string().contains("for 6s at least");
        let said = test_cluster.manager_until("limits-ends", "m", "what is changed", says).await?;
        let accepted = condition(&said, "Accepted");
        ensure!(accepted["status"] == "True" && accepted["reason"] == "Accepted", "{accepted:#}");
        // Only now, so that what is written about it was seen.
        test_cluster.manager("limits-ends", "m", &end("1s")).await?;
        test_cluster.deleted("limits-ends", &uid).await?;
        let delete = effective_delete(test_cluster, "limits-ends").await?;
        let audit = test_cluster.plane.audit()?;
        let asked = audit.iter().rfind(|e| {
            e.resource == "namespacemanagers"
                && e.namespace == "limits-ends"
                && ["patch", "update"].contains(&&*e.verb)
                && e.subresource.is_empty()
        });
        let waited = delete.received.duration_since(asked.context("nobody asked for it")?.received);
        ensure!(
            waited >= SignedDuration::from_secs(6),
            "deleted {waited} after it was asked for, without notice"
        );

        let refused = |m: &Value| condition(m, "Accepted")["reason"] == "ActionNotAllowed";
        let sleeps = test_cluster.manager_until("limits-sleeps", "m", "that it is refused", refused).await?;
        let message = condition(&sleeps, "Accepted")["message"].to_string();
        ensure!(
            message.contains(
                "scaleDown is not among tenantActions (spec.limits of ClusterNamespaceManager limits)"
            ),
            "{message}"
        );
        let (_, said, error) = coppice(test_cluster, ADMIN, &["explain", "limits-sleeps/m"]).await?;
        ensure!(said.contains("is not among tenantActions"), "{said}{error}");
        // Permitted from now on: nobody has to write the manager again.
        test_cluster.apply(&limits("delete, scaleDown")).await?;
        test_cluster.phase("limits-sleeps", "m", "Fired").await?;
        Ok(())
    })
}

#[test]
fn a_webhook_to_a_host_that_the_limits_do_not_have_is_refused_and_not_sent() -> Test {
    on_shared_plane(async |test_cluster, _| {
        // The settings permit this address: what is refused, the limits refuse.
        let receiver = Receiver::start(&[]).await?;
        let host = receiver.url.trim_start_matches("http://").split('/').next().unwrap_or_default();
        let limits = |hosts: &str| manager("hosts", &format!("limits: {{webhookHosts: [{hosts}]}}"));
        test_cluster.apply(&limits("hooks.example.org")).await?;
        test_cluster.namespace("hosts-a").await?;
        let governed = |status: &Value| status["manager"]["name"] == "hosts";
        record(test_cluster, "hosts-a", "who governs it", governed).await?;
        let spec = format!(
            "{{policies: [{{name: tell, when: {{ttl: {{after: 1s}}}}, then: {{webhook: {{url: '{}'}}}}}}]}}",
            receiver.url
        );
        test_cluster.manager("hosts-a", "m", &spec).await?;
        let refused = test_cluster.phase("hosts-a", "m", "Refused").await?;
        let accepted = condition(&refused, "Accepted");
        let why = format!(
            "policy \"tell\": the webhook goes to the address 127.0.0.1, and only an IP entry permits an IP address: the entry \
             \"{host}\" in spec.limits.webhookHosts of that ClusterNamespaceManager would (spec.limits of \
             ClusterNamespaceManager hosts)"
        );
        ensure!(
            accepted["reason"] == "HostNotAllowed"
                && accepted["message"].as_str().is_some_and(|said| said.contains(&why)),
            "{refused:#}, and not {why}"
        );
        ensure!(refused["status"]["next"]["reason"] == "HostNotAllowed", "{refused:#}");
        let (_, said, error) = coppice(test_cluster, ADMIN, &["explain", "hosts-a/m"]).await?;
        ensure!(said.contains(&format!("the entry \"{host}\"")), "{said}{error}");
        ensure!(receiver.ids().is_empty(), "it was sent: {:?}", receiver.ids());
        // The entry that was named permits it, and nobody has to write the manager again.
        test_cluster.apply(&limits(&format!("hooks.example.org, '{host}'"))).await?;
        test_cluster.phase("hosts-a", "m", "Fired").await?;
        ensure!(receiver.ids().len() == 1, "{:?}", receiver.ids());
        Ok(())
    })
}

#[test]
fn holds_and_extensions_count_up_to_the_limits() -> Test {
    on_shared_plane(async |test_cluster, _| {
        let uid = test_cluster.namespace("bounds-a").await?;
        let policies = "policies: [{name: end, when: {phase: {in: [Stale]}}, then: {delete: {}}}]";
        let spec = format!("ttl: {{after: 1s}}, limits: {{maxTTL: 1h, maxHold: 10m}}, {policies}");
        // Held before it is governed, for ever.
        let (code, _, error) = coppice(test_cluster, ADMIN, &["hold", "bounds-a", "--for", "9h"]).await?;
        ensure!(code == 0, "{error}");
        test_cluster.apply(&manager("bounds", &spec)).await?;
        let exceeded = |status: &Value| {
            condition(&serde_json::json!({ "status": status }), "WithinLimits")["reason"] == "LimitExceeded"
        };
        let held = record(test_cluster, "bounds-a", "that the hold is too long", exceeded).await?;
        let status = &held["status"];
        ensure!(status["held"]["since"].is_string() && status["limits"]["maxHold"] == "10m", "{status:#}");
        let events = async || {
            let events = test_cluster.events("bounds-a", "coppice", "LimitExceeded").await.ok()?;
            (!events.is_empty()).then_some(events)
        };
        let events = test_cluster.until("the Event about it", events).await?;
        ensure!(events[0].contains(": at most 10m after the first hold, of "), "{events:?}");
        let (code, said, error) = coppice(test_cluster, ADMIN, &["hold", "bounds-a", "--for", "5h"]).await?;
        let note = "only: its ClusterNamespaceManager permits 10m";
        ensure!(code == 0 && (said + &error).contains(note), "{error}");
        let (code, said, error) = coppice(test_cluster, ADMIN, &["extend", "bounds-a", "--by", "5h"]).await?;
        ensure!(
            code == 0 && (said + &error).contains("only: its ClusterNamespaceManager permits no later end"),
            "{error}"
        );
        let both = |status: &Value| {
            let said =
                condition(&serde_json::json!({ "status": status }), "WithinLimits")["message"].to_string();
            said.contains("spec.extendUntil asks for ") && said.contains("; spec.hold asks for ")
        };
        record(test_cluster, "bounds-a", "that both are too long", both).await?;
        let (_, said, _) = coppice(test_cluster, ADMIN, &["explain", "bounds-a"]).await?;
        ensure!(said.contains("\n  Limits:     spec.extendUntil asks for "), "{said}");
        // With the limits at hand it is due now, and nothing keeps it.
        let short = format!("ttl: {{after: 1s}}, limits: {{maxTTL: 1s, maxHold: 1s}}, {policies}");
        test_cluster.apply(&manager("bounds", &short)).await?;
        test_cluster.deleted("bounds-a", &uid).await?;
        Ok(())
    })
}
