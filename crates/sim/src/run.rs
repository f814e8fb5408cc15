//! One run: a story, a seed, and what goes wrong.

use std::pin::pin;
use std::sync::OnceLock;
use std::time::Duration;

use coppice_runtime::mutants::{self, Mutant};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::fault::{Dates, Fault, Faults, Planned, Weather};
use crate::oracle::{self, EndState, Rule};
use crate::receiver::{Received, Receiver};
use crate::replica::{ReplicaSettings, keep_running};
use crate::scenario::objects::{config, done, namespace};
use crate::scenario::{Does, Scenario};
use crate::server::{Change, Request, Server};
use crate::trace::{Trace, Who};
use crate::world::{Done, Life, World, code_of, describe};

/// When every run begins.
pub(crate) const BEGINNING: &str = "2026-01-01T00:00:00Z";
/// So long after the last fault and the last act everything is as it should be: what failed again and again is tried again
/// after five minutes at most.
const SETTLES: Duration = Duration::from_mins(6);
/// Everything is listed anew within this time.
const RELISTED: Duration = Duration::from_mins(13);
/// For so long nothing may be written at the end.
pub(crate) const QUIET: Duration = Duration::from_secs(90);

/// What to run.
#[derive(Clone)]
pub struct Plan {
    /// The story.
    pub scenario: Scenario,
    /// Decides all that is left to chance.
    pub seed: u64,
    /// Faults that are wanted.
    pub faults: Vec<Planned>,
    /// Faults by chance.
    pub weather: Option<Weather>,
    /// What is wrong with the dates of answers.
    pub dates: Option<Dates>,
    /// By how much each replica's clock is wrong, and how they are set up.
    pub replicas: Vec<ReplicaSettings>,
    /// A bug that the operator has.
    pub mutant: Option<Mutant>,
    /// A rule that is not asked for.
    pub without: Option<Rule>,
}

impl Plan {
    /// A run in which nothing goes wrong.
    pub fn undisturbed(scenario: Scenario, seed: u64) -> Self {
        let replicas = vec![ReplicaSettings::default(); scenario.replicas];
        Self {
            scenario,
            seed,
            faults: Vec::new(),
            weather: None,
            dates: None,
            replicas,
            mutant: None,
            without: None,
        }
    }
}

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What happened.
    pub trace: Trace,
    /// The faults that there were.
    pub fired: Vec<Planned>,
    /// How many writes the operator sent, those of its Lease apart.
    pub writes: u64,
    /// How many events were on their way to it.
    pub events: u64,
    /// What must not happen and did.
    pub violations: Vec<String>,
    /// How it ended.
    pub end: EndState,
}

/// What happened, as the API server and the receiver know it.
pub(crate) struct Truth<'a> {
    pub(crate) began: Timestamp,
    pub(crate) lasted: Duration,
    pub(crate) changes: &'a [Change],
    pub(crate) done: &'a [Done],
    pub(crate) reads: &'a [Duration],
    pub(crate) received: &'a [Received],
    pub(crate) trace: &'a Trace,
    pub(crate) replicas: &'a [ReplicaSettings],
    /// What the story's people did in vain.
    pub(crate) refused: &'a [String],
}

/// Runs a plan to its end.
pub fn run(plan: &Plan) -> anyhow::Result<Outcome> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
    mutants::activate(plan.mutant);
    let outcome = runtime.block_on(within(plan));
    mutants::activate(None);
    outcome
}

async fn within(plan: &Plan) -> anyhow::Result<Outcome> {
    let faults = Faults::new(plan.seed, plan.faults.clone(), plan.weather);
    let began: Timestamp = BEGINNING.parse()?;
    let server = installed(began)?.clone();
    let world = World::new(plan.seed, began, server, faults, Receiver::new(&plan.scenario.receiver));
    for request in &plan.scenario.setup {
        let answer = world.request(Who::User("admin"), request);
        anyhow::ensure!(
            done(&answer),
            "the setup of {}: {} {}: {answer:?}",
            plan.scenario.name,
            request.method,
            request.path
        );
    }
    // The operator creates the settings at its very first start alone. Where the story has some, this is refused.
    world.request(Who::User("admin"), &config(&json!({})));
    world.with(|state| {
        state.unreadable = plan.scenario.unreadable;
        state.dates = plan.dates;
    });
    world.with(|state| state.lives = plan.replicas.iter().map(|_| Life::default()).collect());
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(world.clone().run_cluster());
    for (replica, settings) in plan.replicas.iter().enumerate() {
        tasks.spawn(keep_running(world.clone(), replica, settings.clone()));
    }
    let storm = plan.weather.map_or(Duration::ZERO, |weather| weather.until);
    let late = plan.faults.iter().map(|planned| match planned.fault {
        Fault::Late(by) | Fault::Delayed(by) | Fault::CutOff(by) | Fault::Away(by) => by,
        _ => Duration::ZERO,
    });
    let calm = plan.scenario.lasts.max(storm) + late.sum::<Duration>();
    let until = if plan.faults.is_empty() && plan.weather.is_none() { calm } else { calm + SETTLES } + QUIET;
    let mut refused = Vec::new();
    // What was not seen is seen with the next list.
    let waits = tokio::time::timeout(until + RELISTED, play(&world, &plan.scenario, &mut refused));
    if waits.await.is_err() {
        refused.push("what somebody waited for has not happened".to_owned());
    }
    tokio::time::sleep(until.saturating_sub(world.elapsed())).await;
    if world.with(|state| state.faults.fired().iter().any(|planned| planned.fault == Fault::Dropped)) {
        // What an API server never does is made up for by the next list anew.
        tokio::time::sleep(RELISTED + QUIET).await;
    }
    let lasted = world.elapsed();
    Ok(world.with(|state| {
        let truth = Truth {
            began: world.began(),
            lasted,
            changes: state.server.changes_since(0),
            done: &state.done,
            reads: &state.reads,
            received: state.receiver.received(),
            trace: &state.trace,
            replicas: &plan.replicas,
            refused: &refused,
        };
        Outcome {
            violations: oracle::violations(&truth, plan.without),
            end: oracle::end_state(&truth),
            trace: state.trace.clone(),
            fired: state.faults.fired().to_vec(),
            writes: state.faults.writes(),
            events: state.faults.events(),
        }
    }))
}

/// Plays the script.
async fn play(world: &World, scenario: &Scenario, refused: &mut Vec<String>) {
    for act in &scenario.script {
        tokio::time::sleep(act.at.saturating_sub(world.elapsed())).await;
        loop {
            let mut revised = pin!(world.revised());
            revised.as_mut().enable();
            if act.once.is_none_or(|once| world.with(|state| once(&state.server))) {
                break;
            }
            revised.await;
        }
        while !world.away().is_zero() {
            tokio::time::sleep(world.away()).await;
        }
        let Does::Asks(asks) = &act.does else {
            if let Some(leader) = world.leader() {
                world.kill(leader);
            }
            continue;
        };
        let request = world.with(|state| asks(&state.server));
        let answer = world.request(Who::User(act.who), &request);
        if !done(&answer) && !act.may_fail {
            refused.push(describe(&request, code_of(&answer)));
        }
    }
}

/// A server as it is before the operator is there. Made once, because compiling the schemas takes longer than a run.
pub(crate) fn installed(began: Timestamp) -> anyhow::Result<&'static Server> {
    static INSTALLED: OnceLock<Server> = OnceLock::new();
    if let Some(server) = INSTALLED.get() {
        return Ok(server);
    }
    let mut server = Server::new(began);
    for request in installation() {
        let answer = server.handle(began, "admin", &request);
        anyhow::ensure!(done(&answer), "the installation: {} {}: {answer:?}", request.method, request.path);
    }
    Ok(INSTALLED.get_or_init(|| server))
}

/// What is there before the operator is: its kinds, its namespace, and its key for webhooks, which would be random otherwise.
fn installation() -> Vec<Request> {
    let crds = coppice_api::crds().into_iter().map(|crd| {
        Request::post(
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
            &serde_json::to_value(&crd).unwrap_or(Value::Null),
        )
    });
    let key = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": { "name": "coppice-webhook-key", "namespace": "coppice-system" },
        "data": { "key": KEY },
    });
    let rest =
        [namespace("coppice-system"), Request::post("/api/v1/namespaces/coppice-system/secrets", &key)];
    crds.chain(rest).collect()
}

/// A key that signs nothing outside of a simulation, 32 times the letter `s`; in base64 twice, as it is written and as Secrets are.
const KEY: &str = "d2hza19jM056YzNOemMzTnpjM056YzNOemMzTnpjM056YzNOemMzTnpjM056YzNNPQ==";
