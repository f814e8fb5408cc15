//! Very many of something in one namespace.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::ensure;
use coppice_tests::{Operator, TestCluster, on_shared_plane};
use serde_json::Value;

type Test = anyhow::Result<()>;

/// More than a page of 500. `COPPICE_TEST_WORKLOADS=4000` is what is promised.
fn workloads() -> usize {
    std::env::var("COPPICE_TEST_WORKLOADS").ok().and_then(|text| text.parse().ok()).unwrap_or(520)
}

#[test]
fn very_many_workloads_are_scaled_down_and_recorded_without_a_request_to_read_each() -> Test {
    on_shared_plane(async |test_cluster, operator| {
        let count = workloads();
        test_cluster.namespace("many-workloads").await?;
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
        test_cluster.create_all(&yaml).await?;
        eprintln!("{count} Deployments created in {:.1} s", begun.elapsed().as_secs_f64());
        let begun = std::time::Instant::now();
        let spec = "{policies: [{name: sleep, when: {ttl: {after: 1s}}, then: {scaleDown: {selectors: [{kind: Deployment}]}}}]}";
        test_cluster.manager("many-workloads", "m", spec).await?;
        let manager = fired(test_cluster, "many-workloads", operator).await?;
        eprintln!("and scaled down in {:.1} s", begun.elapsed().as_secs_f64());
        ensure!(manager["status"]["scaledDown"].as_array().map(Vec::len) == Some(count));
        let sizes = test_cluster.list("deployments", "many-workloads").await?;
        ensure!(sizes.len() == count && sizes.iter().all(|d| d["spec"]["replicas"] == 0));
        let requests = test_cluster.by_operator()?;
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
        // The sizes say that it was all of them: one that was answered too late counts as failed here.
        ensure!(patches <= count, "{patches} changes of {count} workloads");
        // A look takes a page for each 500; there is one for each batch of at most two seconds.
        ensure!(lists >= count.div_ceil(500) && lists < count / 4, "{lists} lists");
        Ok(())
    })
}

#[test]
fn workloads_of_another_kind_are_scaled_down_without_a_request_to_read_each_and_woken() -> Test {
    on_shared_plane(async |test_cluster, _| {
        const COUNT: usize = 30;
        test_cluster.namespace("many-widgets").await?;
        let widget = |n| {
            format!(
                "---\n{{apiVersion: example.com/v1, kind: Widget, metadata: {{name: w-{n}, namespace: many-widgets}}, \
                 spec: {{replicas: 7, workers: {{count: 2}}}}}}\n"
            )
        };
        let widgets: String = (0..COUNT).map(widget).collect();
        // Their kind is served a moment after its definition is accepted.
        test_cluster
            .until("widgets can be created", async || test_cluster.create_all(&widget(COUNT)).await.ok())
            .await?;
        test_cluster.create_all(&widgets).await?;
        let spec = "{policies: [{name: sleep, when: {ttl: {after: 1s}}, then: {scaleDown: {selectors: \
                    [{apiVersion: example.com/v1, kind: Widget}]}}}]}";
        test_cluster.manager("many-widgets", "m", spec).await?;
        let manager = test_cluster.phase("many-widgets", "m", "Fired").await?;
        let remembered = manager["status"]["scaledDown"].as_array().cloned().unwrap_or_default();
        ensure!(
            remembered.len() == COUNT + 1 && remembered.iter().all(|w| w["replicas"] == 2),
            "{remembered:?}"
        );
        let requests = test_cluster.by_operator()?;
        let gets = requests.iter().filter(|e| e.resource == "widgets" && e.verb == "get").count();
        ensure!(gets == 0, "{gets} requests to read a workload");
        test_cluster.patch("nsman", "many-widgets", "m", r#"{"spec": {"wake": 1}}"#).await?;
        let woken = async || {
            let widgets = test_cluster.list("widgets", "many-widgets").await.ok()?;
            let awake = |w: &Value| w["spec"]["workers"]["count"] == 2 && w["spec"]["replicas"] == 7;
            (widgets.len() == COUNT + 1 && widgets.iter().all(awake)).then_some(())
        };
        test_cluster.until("every widget has its replicas back", woken).await
    })
}

/// As long as that takes: every few seconds some more are remembered. When all are, the changes that met a status of the
/// Deployment controller, nearly all of them, are made in another round: some more are scaled down each time that is looked.
pub(crate) async fn fired(
    test_cluster: &TestCluster,
    namespace: &str,
    operator: &Operator,
) -> anyhow::Result<Value> {
    let (mut known, mut changed) = (0, 0);
    loop {
        let more = test_cluster
            .until("more are remembered", async || {
                let manager = test_cluster.get("nsman", namespace, "m").await.ok()??;
                let now = manager["status"]["scaledDown"].as_array().map_or(0, Vec::len);
                (manager["status"]["phase"] == "Fired" || now > known).then_some((manager, now))
            })
            .await;
        match more {
            Ok((manager, _)) if manager["status"]["phase"] == "Fired" => return Ok(manager),
            Ok((_, now)) => known = now,
            Err(error) => {
                let now = scaled_down(test_cluster, namespace).await?;
                if now <= changed {
                    return Err(error.context(operator.last_lines()));
                }
                changed = now;
            }
        }
    }
}

/// How many Deployments have no replicas.
async fn scaled_down(test_cluster: &TestCluster, namespace: &str) -> anyhow::Result<usize> {
    let all = test_cluster.list("deployments", namespace).await?;
    Ok(all.iter().filter(|deployment| deployment["spec"]["replicas"] == 0).count())
}

#[test]
fn of_very_many_managers_the_twenty_oldest_count_and_the_others_are_refused() -> Test {
    on_shared_plane(async |test_cluster, _| {
        const COUNTED: usize = 20;
        test_cluster.namespace("many-managers").await?;
        let spec = "{policies: [{name: end, when: {ttl: {after: 9h}}, then: {delete: {}}}]}";
        // Named so that the oldest do not come first.
        for n in 0..COUNTED {
            test_cluster.manager("many-managers", &format!("old-{n:02}"), spec).await?;
        }
        later_second(test_cluster).await?;
        for name in ["a-young", "b-young"] {
            test_cluster.manager("many-managers", name, spec).await?;
            let manager = test_cluster.phase("many-managers", name, "Refused").await?;
            let next = &manager["status"]["next"];
            ensure!(next["reason"] == "TooManyManagers", "{next}");
            ensure!(next["message"].as_str().is_some_and(|message| message.contains("20")), "{next}");
        }
        for n in 0..COUNTED {
            test_cluster.phase("many-managers", &format!("old-{n:02}"), "Active").await?;
        }
        // One makes room for the older of the two, which have the same age or not: then the name decides.
        let admin = test_cluster.admin().await?;
        admin.delete("nsman", "many-managers", "old-07", &serde_json::json!({})).await?;
        test_cluster.phase("many-managers", "a-young", "Active").await?;
        test_cluster.phase("many-managers", "b-young", "Refused").await?;
        Ok(())
    })
}

/// Waits until what is created is younger than what was created before: the API server counts in whole seconds.
async fn later_second(test_cluster: &TestCluster) -> Test {
    let created = async |name: &str| -> Option<String> {
        let probe = format!(
            "{{apiVersion: v1, kind: ConfigMap, metadata: {{name: {name}, namespace: many-managers}}}}"
        );
        test_cluster.apply(&probe).await.ok()?;
        let probe = test_cluster.get("configmap", "many-managers", name).await.ok()??;
        probe["metadata"]["creationTimestamp"].as_str().map(str::to_owned)
    };
    let first = created("probe").await;
    let count = AtomicUsize::new(0);
    let later = async || {
        let name = format!("probe-{}", count.fetch_add(1, Ordering::Relaxed));
        (created(&name).await? > first.clone()?).then_some(())
    };
    test_cluster.until("the next second", later).await
}
