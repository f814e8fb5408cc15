//! A suite of the tests alone: a program that creates one object, under an account and with a Lease of its own. It shows that the
//! campaigns work on any suite.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use coppice_campaign::oracle::{DestructiveStep, EndState, Findings, History, Rule};
use coppice_campaign::suite::Suite;
use coppice_runtime::lease::{Election, LeaseSettings};
use coppice_runtime::metrics::Metrics;
use coppice_runtime::server_clock::ServerClock;
use coppice_sim::run::RunRecord;
use coppice_sim::scenario::objects::namespace;
use coppice_sim::scenario::{Scenario, ScriptStep};
use coppice_sim::server::Request;
use coppice_sim::{Program, ReplicaContext};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{ObjectMeta, PostParams};
use serde_json::json;
use tokio_util::sync::CancellationToken;

/// The suite.
pub(crate) const SUITE: Suite = Suite {
    name: "marker",
    about: "a program that creates one ConfigMap",
    programs: || vec![Arc::new(Marker { same_name: true })],
    scenarios,
    small: created,
    apart: Vec::new,
    generated: &[],
    rules,
    own_budget: |_, _| None,
    end_state,
    end_lines,
    effects,
    one_place_in: 7,
    fixed_seeds: 100,
    fresh_seeds: 20,
    digests: "tests/marker/digests.txt",
};

/// The same with a bug: each life of a replica that leads creates another object.
pub(crate) const BROKEN: Suite = Suite { programs: || vec![Arc::new(Marker { same_name: false })], ..SUITE };

/// There is at most one marker.
pub(crate) const ONE_MARKER: Rule = Rule("ONE MARKER");

/// The program's namespace, its Lease, and the object that it creates.
const NAME: &str = "marker";

/// Creates the `ConfigMap` `marker` in the namespace `marker`.
struct Marker {
    /// Whether the object always has the same name, so that there cannot be two.
    same_name: bool,
}

impl Program for Marker {
    fn account(&self) -> &'static str {
        "system:serviceaccount:marker:marker"
    }

    fn lease(&self) -> (&str, &str) {
        (NAME, NAME)
    }

    fn run(&self, context: ReplicaContext) -> BoxFuture<'static, anyhow::Result<()>> {
        run(self.same_name, context).boxed()
    }
}

async fn run(same_name: bool, mut context: ReplicaContext) -> anyhow::Result<()> {
    let metrics = Metrics::new(NAME);
    let clients = context.clients(&ServerClock::new(context.clock.clone()), &metrics);
    let seed = context.rng.next_u64();
    let lease = LeaseSettings { seed, ..LeaseSettings::new(NAME, NAME, &context.identity) };
    let (election, gate) = Election::new(clients.clone(), lease, context.clock.clone(), metrics)?;
    let name = if same_name { NAME.to_owned() } else { format!("{NAME}-{}", context.identity) };
    let mark = async {
        let mut leads = gate.subscribe();
        let permit = loop {
            match gate.permit() {
                Ok(permit) => break permit,
                Err(_) => leads.changed().await?,
            }
        };
        let markers: Api<ConfigMap> = Api::namespaced(permit.client(&clients).clone(), NAME);
        let metadata = ObjectMeta { name: Some(name), ..ObjectMeta::default() };
        let marker = ConfigMap { metadata, ..ConfigMap::default() };
        match markers.create(&PostParams::default(), &marker).await {
            Ok(_) => std::future::pending().await,
            // It is there.
            Err(kube::Error::Api(status)) if status.code == 409 => std::future::pending().await,
            // The next life tries again.
            Err(error) => anyhow::bail!(error),
        }
    };
    tokio::select! {
        biased;
        lost = election.run(CancellationToken::new()) => Ok(lost.map(drop)?),
        ended = mark => ended,
    }
}

fn scenarios() -> Vec<Scenario> {
    let mut there = scenario("marker-there", "somebody else has created the marker");
    let object = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": NAME } });
    there.setup.push(Request::post("/api/v1/namespaces/marker/configmaps", &object));
    let mut killed =
        scenario("marker-killed", "the replica that leads is killed after the marker is created");
    killed.script = vec![ScriptStep::kill_leader(20)];
    vec![created(), there, killed]
}

fn created() -> Scenario {
    scenario("marker-created", "the marker is created")
}

fn scenario(name: &'static str, about: &'static str) -> Scenario {
    Scenario {
        name,
        about,
        setup: vec![namespace(NAME)],
        script: Vec::new(),
        receiver: Vec::new(),
        replicas: 2,
        read_fault: None,
        webhooks: false,
        target: None,
        ends: vec!["markers: 1"],
        lasts: Duration::from_mins(1),
    }
}

fn rules(record: &RunRecord<'_>, history: &History, _: &[DestructiveStep<'_>], found: &mut Findings) {
    let all = history.list("configmaps", NAME, history.revision_at(record.lasted));
    let markers =
        all.iter().filter(|object| is_marker(object["metadata"]["name"].as_str().unwrap_or_default()));
    let markers = markers.count();
    if markers > 1 {
        found.add(ONE_MARKER, &format!("there are {markers}"));
    }
}

/// There is another `ConfigMap` in each namespace.
fn is_marker(name: &str) -> bool {
    name.starts_with(NAME)
}

fn end_state(record: &RunRecord<'_>) -> EndState {
    let (mut objects, mut effects) = (BTreeMap::new(), BTreeMap::new());
    for change in record.changes.iter().filter(|change| is_marker(change.name())) {
        if &*change.kind.plural == "configmaps" {
            objects.insert(format!("configmaps {}", change.name()), json!(change.after.is_some()));
            *effects.entry("create".to_owned()).or_default() += usize::from(record.is_own(change));
        }
    }
    EndState { objects, effects }
}

fn end_lines(end: &EndState) -> Vec<String> {
    vec![format!("markers: {}", end.objects.len())]
}

fn effects(record: &RunRecord<'_>) -> Vec<String> {
    end_state(record).effects.iter().map(|(what, times)| format!("{what} {times}")).collect()
}
