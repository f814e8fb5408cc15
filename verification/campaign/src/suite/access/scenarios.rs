//! What people do with a `ClusterAccess`, and how it ends.

use std::sync::OnceLock;
use std::time::Duration;

use coppice_clusters_api::names::SYSTEM_NAMESPACE;
use coppice_sim::scenario::objects::namespace;
use coppice_sim::scenario::{Scenario, ScriptStep};
use coppice_sim::server::Request;
use coppice_sim::target::{ADMIN_TOKEN, SignerSettings, TargetSettings};
use serde_json::{Value, json};

use super::SERVER;

/// Those that seeds choose from.
pub(super) fn all() -> Vec<Scenario> {
    vec![rotated(), requested(), capped(), target_away(), slow(), deleted_while_rotating(), narrowed()]
}

/// One credential is issued, and nothing else.
pub(super) fn small() -> Scenario {
    let mut scenario = scenario("access-small", "a credential is issued");
    scenario.setup.push(access(&spec("24h")));
    scenario.replicas = 1;
    scenario.ends = vec!["access team/ci: Ready", "valid credentials: 1"];
    scenario.lasts = Duration::from_secs(30);
    scenario
}

/// A target that grants what is asked for, two replicas, a minute and a half.
pub(super) fn scenario(name: &'static str, about: &'static str) -> Scenario {
    let mut setup = definitions().to_vec();
    setup.extend([namespace(SYSTEM_NAMESPACE), namespace("team"), kubeconfig()]);
    Scenario {
        name,
        about,
        setup,
        script: Vec::new(),
        receiver: Vec::new(),
        replicas: 2,
        read_fault: None,
        webhooks: false,
        target: Some(TargetSettings {
            setup: vec![namespace("shop")],
            longest: Duration::from_hours(24 * 30),
            latency: Duration::ZERO,
            signer: SignerSettings::default(),
        }),
        ends: Vec::new(),
        lasts: Duration::from_secs(90),
    }
}

/// Creates the kinds of the program.
fn definitions() -> &'static [Request] {
    static DEFINITIONS: OnceLock<Vec<Request>> = OnceLock::new();
    DEFINITIONS.get_or_init(|| {
        let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        coppice_clusters_api::crds().iter().map(|crd| Request::post(path, &json!(crd))).collect()
    })
}

/// Creates the Secret with the kubeconfig of the target's administrator.
fn kubeconfig() -> Request {
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "target",
        "clusters": [{ "name": "target", "cluster": { "server": SERVER } }],
        "users": [{ "name": "admin", "user": { "token": ADMIN_TOKEN } }],
        "contexts": [{ "name": "target", "context": { "cluster": "target", "user": "admin" } }],
    });
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": { "name": "target", "labels": { "coppice.dev/access": "kubeconfig" } },
        "stringData": { "kubeconfig": config.to_string() },
    });
    Request::post("/api/v1/namespaces/team/secrets", &secret)
}

const ACCESSES: &str = "/apis/coppice.dev/v1alpha1/namespaces/team/clusteraccesses";

/// Creates the `ClusterAccess`.
pub(super) fn access(spec: &Value) -> Request {
    let object = json!({
        "apiVersion": "coppice.dev/v1alpha1", "kind": "ClusterAccess",
        "metadata": { "name": "ci" }, "spec": spec,
    });
    Request::post(ACCESSES, &object)
}

/// Credentials for this time, which are replaced after a tenth of it.
pub(super) fn spec(ttl: &str) -> Value {
    json!({
        "cluster": { "kubeconfigSecret": { "name": "target" } },
        "rights": rights(&["pods", "secrets"]),
        "ttl": ttl, "rotateAt": 10,
        "output": { "secret": "ci-kubeconfig" },
    })
}

/// To get and list these.
fn rights(resources: &[&str]) -> Value {
    let rule = json!({ "apiGroups": [""], "resources": resources, "verbs": ["get", "list"] });
    json!({ "role": { "namespace": "shop", "rules": [rule] } })
}

pub(super) fn change(spec: &Value) -> Request {
    let path = format!("{ACCESSES}/ci");
    Request::patch(&path, "application/merge-patch+json", &json!({ "spec": spec }))
}

pub(super) fn delete() -> Request {
    Request::delete(&format!("{ACCESSES}/ci"))
}

/// How everything ends that is deleted.
pub(super) fn gone() -> Vec<&'static str> {
    vec!["access team/ci: gone", "valid credentials: 0"]
}

fn rotated() -> Scenario {
    let about = "a credential for ten minutes is replaced after one, and ends with its ClusterAccess";
    let mut scenario = scenario("access-rotated", about);
    scenario.setup.push(access(&spec("10m")));
    scenario.script = vec![ScriptStep::at(100, |_| delete())];
    scenario.ends = gone();
    scenario.lasts = Duration::from_secs(130);
    scenario
}

fn requested() -> Scenario {
    let about = "a credential is replaced on request, while the leader is killed";
    let mut scenario = scenario("access-requested", about);
    scenario.setup.push(access(&spec("24h")));
    let asked = ScriptStep::at(30, |_| change(&json!({ "rotate": "again" })));
    let killed = ScriptStep { at: Duration::from_millis(30_050), ..ScriptStep::kill_leader(30) };
    scenario.script = vec![asked, killed];
    scenario.ends = vec!["access team/ci: Ready, rotated again", "valid credentials: 1"];
    scenario
}

fn capped() -> Scenario {
    let about = "the target grants ten minutes, whatever is asked for: that is what counts";
    let mut scenario = scenario("access-capped", about);
    scenario.setup.push(access(&spec("24h")));
    if let Some(target) = &mut scenario.target {
        target.longest = Duration::from_mins(10);
    }
    scenario.script = vec![ScriptStep::at(100, |_| delete())];
    scenario.ends = gone();
    scenario.lasts = Duration::from_secs(130);
    scenario
}

fn target_away() -> Scenario {
    let about = "nobody reaches the target when a credential is to be replaced: it is once that is there";
    let mut scenario = scenario("access-target-away", about);
    scenario.setup.push(access(&spec("10m")));
    scenario.script = vec![ScriptStep::target_away(45, 40), ScriptStep::at(200, |_| delete())];
    scenario.ends = gone();
    scenario.lasts = Duration::from_secs(230);
    scenario
}

fn slow() -> Scenario {
    let about = "each request takes a second to the target, and one after the other half a minute";
    let mut scenario = scenario("access-slow-target", about);
    scenario.setup.push(access(&spec("24h")));
    if let Some(target) = &mut scenario.target {
        target.latency = Duration::from_secs(1);
    }
    scenario.script = vec![ScriptStep::at(60, |_| change(&json!({ "rotate": "again" })))];
    scenario.ends = vec!["access team/ci: Ready, rotated again", "valid credentials: 1"];
    scenario.lasts = Duration::from_secs(150);
    scenario
}

fn deleted_while_rotating() -> Scenario {
    let about = "a ClusterAccess is deleted while its credential is replaced";
    let mut scenario = scenario("access-deleted-while-rotating", about);
    scenario.setup.push(access(&spec("24h")));
    let asked = ScriptStep::at(30, |_| change(&json!({ "rotate": "again" })));
    let deleted = ScriptStep { at: Duration::from_millis(30_060), ..ScriptStep::at(30, |_| delete()) };
    scenario.script = vec![asked, deleted];
    scenario.ends = gone();
    scenario
}

fn narrowed() -> Scenario {
    let about = "a ClusterAccess asks for fewer rights: its credential has no others from then on";
    let mut scenario = scenario("access-narrowed", about);
    scenario.setup.push(access(&spec("24h")));
    scenario.script = vec![ScriptStep::at(45, |_| change(&json!({ "rights": rights(&["pods"]) })))];
    scenario.ends = vec!["access team/ci: Ready", "valid credentials: 1"];
    scenario
}
