//! Very many of something in one namespace.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::ensure;
use coppice_tests::{Operator, Stage, together};
use serde_json::Value;

type Test = anyhow::Result<()>;

/// More than a page of 500. `COPPICE_TEST_WORKLOADS=4000` is what is promised.
fn workloads() -> usize {
    std::env::var("COPPICE_TEST_WORKLOADS").ok().and_then(|text| text.parse().ok()).unwrap_or(600)
}

#[test]
fn very_many_workloads_are_scaled_down_and_remembered_without_a_request_to_read_each() -> Test {
    together(async |stage, operator| {
        let count = workloads();
        stage.namespace("many-workloads").await?;
        let mut yaml = String::new();
        for n in 0..count {
            // Paused: pods would only cost time.
            writeln!(
                yaml,
                "---\n{{apiVersion: apps/v1, kind: Deployment, metadata: {{name: d-{n}, namespace: many-workloads}}, spec: {{paused: true, \
                 replicas: 1, selector: {{matchLabels: {{a: d}}}}, template: {{metadata: {{labels: {{a: d}}}}, \
                 spec: {{containers: [{{name: c, image: busybox}}]}}}}}}}}"
            )?;
        }
        let begun = std::time::Instant::now();
        stage.create_all(&yaml).await?;
        eprintln!("{count} Deployments created in {:.1} s", begun.elapsed().as_secs_f64());
        let begun = std::time::Instant::now();
        let spec = "{policies: [{name: sleep, when: {ttl: {after: 1s}}, then: {scaleDown: {selectors: [{kind: Deployment}]}}}]}";
        stage.manager("many-workloads", "m", spec).await?;
        let manager = fired(stage, operator).await?;
        eprintln!("and scaled down in {:.1} s", begun.elapsed().as_secs_f64());
        ensure!(manager["status"]["scaledDown"].as_array().map(Vec::len) == Some(count));
        let sizes = stage.list("deployments", "many-workloads").await?;
        ensure!(sizes.len() == count && sizes.iter().all(|d| d["spec"]["replicas"] == 0));
        let requests = stage.by_operator()?;
        // A change that met another of the same Deployment is made again.
        let of = |verb: &str| {
            let matching = requests.iter().filter(|e| {
                let about = e.resource == "deployments" && e.namespace == "many-workloads";
                about && e.verb == verb && e.succeeded()
            });
            matching.count()
        };
        let (gets, lists, patches) = (of("get"), of("list"), of("patch"));
        ensure!(gets < 20, "{gets} requests to read a workload");
        ensure!(patches == count, "{patches} changes of {count} workloads");
        // A look takes a page for each 500; there is one for each batch of at most two seconds.
        ensure!(lists >= count.div_ceil(500) && lists < count / 4, "{lists} lists");
        Ok(())
    })
}

/// As long as that takes: every few seconds some more are remembered.
async fn fired(stage: &Stage, operator: &Operator) -> anyhow::Result<Value> {
    let mut known = 0;
    loop {
        let more = stage
            .until("more are scaled down", async || {
                let manager = stage.get("nsman", "many-workloads", "m").await.ok()??;
                let now = manager["status"]["scaledDown"].as_array().map_or(0, Vec::len);
                (manager["status"]["phase"] == "Fired" || now > known).then_some((manager, now))
            })
            .await;
        let (manager, now) = more.map_err(|error| error.context(operator.last_lines()))?;
        if manager["status"]["phase"] == "Fired" {
            return Ok(manager);
        }
        known = now;
    }
}

#[test]
fn of_very_many_managers_the_twenty_oldest_count_and_the_others_are_refused() -> Test {
    together(async |stage, _| {
        const COUNTED: usize = 20;
        stage.namespace("many-managers").await?;
        let spec = "{policies: [{name: end, when: {ttl: {after: 9h}}, then: {delete: {}}}]}";
        // Named so that the oldest do not come first.
        for n in 0..COUNTED {
            stage.manager("many-managers", &format!("old-{n:02}"), spec).await?;
        }
        later_second(stage).await?;
        for name in ["a-young", "b-young"] {
            stage.manager("many-managers", name, spec).await?;
            let manager = stage.phase("many-managers", name, "Refused").await?;
            let next = &manager["status"]["next"];
            ensure!(next["reason"] == "TooManyManagers", "{next}");
            ensure!(next["message"].as_str().is_some_and(|message| message.contains("20")), "{next}");
        }
        for n in 0..COUNTED {
            stage.phase("many-managers", &format!("old-{n:02}"), "Active").await?;
        }
        // One makes room for the older of the two, which have the same age or not: then the name decides.
        let admin = stage.admin().await?;
        admin.delete("nsman", "many-managers", "old-07", &serde_json::json!({})).await?;
        stage.phase("many-managers", "a-young", "Active").await?;
        stage.phase("many-managers", "b-young", "Refused").await?;
        Ok(())
    })
}

/// Waits until what is created is younger than what was created before: the API server counts in whole seconds.
async fn later_second(stage: &Stage) -> Test {
    let created = async |name: &str| -> Option<String> {
        let probe = format!(
            "{{apiVersion: v1, kind: ConfigMap, metadata: {{name: {name}, namespace: many-managers}}}}"
        );
        stage.apply(&probe).await.ok()?;
        let probe = stage.get("configmap", "many-managers", name).await.ok()??;
        probe["metadata"]["creationTimestamp"].as_str().map(str::to_owned)
    };
    let first = created("probe").await;
    let count = AtomicUsize::new(0);
    let later = async || {
        let name = format!("probe-{}", count.fetch_add(1, Ordering::Relaxed));
        (created(&name).await? > first.clone()?).then_some(())
    };
    stage.until("the next second", later).await
}
