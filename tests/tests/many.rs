//! Very many of something in one namespace.

use std::fmt::Write as _;

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
