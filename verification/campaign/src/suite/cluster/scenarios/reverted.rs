//! Something that scales workloads up again each time.

use std::time::Duration;

use coppice_sim::scenario::objects::{change_record, cluster_manager, deployment, namespace, record_of};
use coppice_sim::scenario::{Scenario, ScriptStep};
use coppice_sim::server::{Request, Server};
use serde_json::json;

use super::scenario;

type Condition = fn(&Server) -> bool;

/// Whether so many policies have fired, nothing is under way, and the workload has this many replicas.
fn is_after<const FIRINGS: i64, const REPLICAS: i64>(server: &Server) -> bool {
    let status = &record_of(server, "dev")["status"];
    let web = server.object("apps", "deployments", "dev", "web");
    status["firings"] == FIRINGS
        && status["intent"].is_null()
        && web.is_some_and(|web| web["spec"]["replicas"] == REPLICAS)
}

/// A user lets the policy fire again each time that a GitOps tool has restored the replicas.
pub(super) fn reverted() -> Scenario {
    let mut scenario = scenario(
        "cluster-reverted",
        "a workload is scaled down three times, and something scales it up again each time",
    );
    scenario.setup.extend([
        namespace("dev"),
        deployment("dev", "web", 3),
        cluster_manager(
            "dev",
            &json!({
                "mode": "Enforce", "selector": { "names": ["dev"] }, "settle": "10s", "ttl": { "after": "10h" },
                "policies": [{ "name": "sleep", "when": { "ttl": { "after": "20s" } }, "then": { "scaleDown": {} } }],
            }),
        ),
    ]);
    let rounds: [(i64, Condition, Condition); 3] = [
        (1, is_after::<1, 0>, is_after::<1, 3>),
        (2, is_after::<2, 0>, is_after::<2, 3>),
        (3, is_after::<3, 0>, is_after::<3, 3>),
    ];
    for (firing, scaled_down, restored) in rounds {
        let restore = |_: &Server| {
            let replicas = json!({ "spec": { "replicas": 3 } });
            let path = "/apis/apps/v1/namespaces/dev/deployments/web";
            Request::patch(path, "application/merge-patch+json", &replicas)
        };
        let rearm = move |_: &Server| change_record("dev", &json!({ "rearm": firing }));
        scenario.script.push(ScriptStep::at(20, restore).once(scaled_down));
        scenario.script.push(ScriptStep::at(20, rearm).once(restored));
    }
    scenario.lasts = Duration::from_mins(11);
    scenario.ends =
        vec!["dev: there, Ok RevertedTooOften, web 3 scaled 3x", "dev: governs 1, due 0, Reconciled"];
    scenario
}
