//! One run: a scenario, a seed, and faults.

use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use coppice_mutants::Mutant;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::fault::{DateFault, Fault, FaultRates, Faults, PlannedFault};
use crate::operator::RELIST;
use crate::receiver::{Received, Receiver};
use crate::replica::{Program, ReplicaSettings, keep_running};
use crate::scenario::objects::{config, done, namespace};
use crate::scenario::{ReadFault, Scenario, ScriptAction};
use crate::server::{Change, Request, Server};
use crate::simulation::{Done, Incarnation, Simulation, code_of, describe};
use crate::target::TargetServer;
use crate::trace::{Actor, Trace};
use crate::webhook::{AskedWebhook, CallOuts};

/// When every run begins.
pub const RUN_START: &str = "2026-01-01T00:00:00Z";
/// The cluster is steady this long after the last fault and the last act: what failed again and again is retried after
/// five minutes at most.
const SETTLE_TIME: Duration = Duration::from_mins(6);
/// Everything is listed again within this time.
const RELISTED: Duration = Duration::from_secs(RELIST.as_secs() * 3 / 2);
/// For this long nothing may be written at the end.
pub const QUIET: Duration = Duration::from_secs(90);

/// What to run.
#[derive(Clone)]
pub struct RunPlan {
    /// The scenario.
    pub scenario: Scenario,
    /// Decides every random choice.
    pub seed: u64,
    /// The planned faults.
    pub faults: Vec<PlannedFault>,
    /// The fault rates.
    pub fault_rates: Option<FaultRates>,
    /// What is wrong with the dates of answers.
    pub dates: Option<DateFault>,
    /// The replicas: what each runs, and by how much its clock is wrong.
    pub replicas: Vec<ReplicaSettings>,
    /// A deliberate bug of the operator.
    pub mutant: Option<Mutant>,
}

impl RunPlan {
    /// A run in which nothing goes wrong. Each program has as many replicas as the scenario says.
    pub fn without_faults(programs: &[Arc<dyn Program>], scenario: Scenario, seed: u64) -> Self {
        let each = |program| vec![ReplicaSettings::new(Arc::clone(program)); scenario.replicas];
        let replicas = programs.iter().flat_map(each).collect();
        Self { scenario, seed, faults: Vec::new(), fault_rates: None, dates: None, replicas, mutant: None }
    }
}

/// What happened in a run, as the API server and the receiver know it.
pub struct RunRecord<'a> {
    /// When the run began.
    pub began: Timestamp,
    /// How long it lasted.
    pub lasted: Duration,
    /// Every change of an object, in order.
    pub changes: &'a [Change],
    /// Every write that a replica sent.
    pub done: &'a [Done],
    /// When a replica, which one, was answered that there is nothing of what there is
    /// ([`ReadAnswer::Nothing`](crate::scenario::ReadAnswer)).
    pub emptied: &'a [(usize, Duration)],
    /// When a replica read something, the opening of watches and Leases apart.
    pub reads: &'a [Duration],
    /// What was wrong with reads for a time.
    pub read_fault: Option<ReadFault>,
    /// The second API server, if the scenario has one.
    pub target: Option<&'a TargetServer>,
    /// What the receiver of webhooks got.
    pub received: &'a [Received],
    /// What admission webhooks were asked.
    pub asked: &'a [AskedWebhook],
    /// Requests, answers and faults, in order.
    pub trace: &'a Trace,
    /// The replicas.
    pub replicas: &'a [ReplicaSettings],
    /// What the scenario's people tried, and could not do.
    pub refused: &'a [String],
    /// The faults that there were.
    pub fired: &'a [PlannedFault],
    /// How many writes the replicas sent, those of Leases apart.
    pub writes: u64,
    /// How many events were on their way to them.
    pub events: u64,
}

impl RunRecord<'_> {
    /// Whether a change was made by a program that ran, and not by people or the rest of Kubernetes.
    pub fn is_own(&self, change: &Change) -> bool {
        self.replicas.iter().any(|replica| replica.program.account() == &*change.user)
    }
}

/// Runs a plan to its end, and answers what is made of its record.
///
/// # Errors
/// If the installation or the setup of the scenario is refused.
pub fn run<R>(plan: &RunPlan, judge: impl FnOnce(&RunRecord<'_>) -> R) -> anyhow::Result<R> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
    coppice_mutants::activate(plan.mutant);
    let result = runtime.block_on(run_async(plan, judge));
    coppice_mutants::activate(None);
    result
}

async fn run_async<R>(plan: &RunPlan, judge: impl FnOnce(&RunRecord<'_>) -> R) -> anyhow::Result<R> {
    let faults = Faults::new(plan.seed, plan.faults.clone(), plan.fault_rates);
    let began: Timestamp = RUN_START.parse()?;
    let server = installed(began)?.clone();
    let simulation =
        Simulation::new(plan.seed, began, server, faults, Receiver::new(&plan.scenario.receiver));
    for request in &plan.scenario.setup {
        let answer = simulation.request(Actor::User("admin"), request);
        anyhow::ensure!(
            done(&answer),
            "the setup of {}: {} {}: {answer:?}",
            plan.scenario.name,
            request.method,
            request.path
        );
    }
    // The operator creates the settings at its very first start alone. Where the scenario has some, this is refused.
    simulation.request(Actor::User("admin"), &config(&json!({})));
    let target =
        plan.scenario.target.as_ref().map(|settings| TargetServer::new(began, settings)).transpose()?;
    simulation.with(|state| {
        state.read_fault = plan.scenario.read_fault;
        state.dates = plan.dates;
        state.target = target;
    });
    simulation
        .with(|state| state.incarnations = plan.replicas.iter().map(|_| Incarnation::default()).collect());
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(simulation.clone().run_cluster());
    for (replica, settings) in plan.replicas.iter().enumerate() {
        tasks.spawn(keep_running(simulation.clone(), replica, settings.clone()));
    }
    let faults_until = plan.fault_rates.map_or(Duration::ZERO, |fault_rates| fault_rates.until);
    let late = plan.faults.iter().map(|planned| match planned.fault {
        Fault::Late(by) | Fault::Delayed(by) | Fault::CutOff(by) | Fault::Away(by) => by,
        _ => Duration::ZERO,
    });
    let quiet_from = plan.scenario.lasts.max(faults_until) + late.sum::<Duration>();
    let until = if plan.faults.is_empty() && plan.fault_rates.is_none() {
        quiet_from
    } else {
        quiet_from + SETTLE_TIME
    } + QUIET;
    let mut refused = Vec::new();
    // The next list recovers missed events.
    let waits = tokio::time::timeout(until + RELISTED, play(&simulation, plan, &mut refused));
    if waits.await.is_err() {
        refused.push("what somebody waited for has not happened".to_owned());
    }
    tokio::time::sleep(until.saturating_sub(simulation.elapsed())).await;
    if simulation.with(|state| state.faults.fired().iter().any(|planned| planned.fault == Fault::Dropped)) {
        // An API server never drops an event; the next list recovers it.
        tokio::time::sleep(RELISTED + QUIET).await;
    }
    let lasted = simulation.elapsed();
    Ok(simulation.with(|state| {
        judge(&RunRecord {
            began: simulation.began(),
            lasted,
            changes: state.server.changes_since(0),
            done: &state.done,
            emptied: &state.emptied,
            reads: &state.reads,
            read_fault: plan.scenario.read_fault,
            target: state.target.as_ref(),
            received: state.receiver.received(),
            asked: &state.asked,
            trace: &state.trace,
            replicas: &plan.replicas,
            refused: &refused,
            fired: state.faults.fired(),
            writes: state.faults.writes(),
            events: state.faults.events(),
        })
    }))
}

/// Plays the script.
async fn play(simulation: &Simulation, plan: &RunPlan, refused: &mut Vec<String>) {
    let call_outs = CallOuts::new(simulation, plan);
    for act in &plan.scenario.script {
        tokio::time::sleep(act.at.saturating_sub(simulation.elapsed())).await;
        loop {
            let mut revised = pin!(simulation.revised());
            revised.as_mut().enable();
            if act.once.is_none_or(|once| simulation.with(|state| once(&state.server))) {
                break;
            }
            revised.await;
        }
        simulation.wait_while_away().await;
        let asks = match &act.action {
            ScriptAction::Request(asks) => asks,
            ScriptAction::KillLeader => {
                for (n, replica) in plan.replicas.iter().enumerate() {
                    if simulation.leader(replica.program.lease()) == Some(n) {
                        simulation.kill(n);
                    }
                }
                continue;
            }
            ScriptAction::CompactHistory => {
                simulation.compact_history();
                continue;
            }
            ScriptAction::TargetAway(by) => {
                simulation.take_target_away(*by);
                continue;
            }
        };
        let request = simulation.with(|state| asks(&state.server));
        let answer = match call_outs.denial(act.who, &request).await {
            Some(denial) => denial,
            None => simulation.request(Actor::User(act.who), &request),
        };
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

/// Of these the operator reads nothing: they come with the program of trees.
const OF_TREES: [&str; 3] = ["NamespaceTree", "QuotaTransfer", "Subnamespace"];

/// What is there before the operator is: its kinds, its namespace, and its key for webhooks, which would be random otherwise.
fn installation() -> Vec<Request> {
    let crds = coppice_api::crds().into_iter();
    let crds = crds.filter(|crd| !OF_TREES.contains(&crd.spec.names.kind.as_str())).map(|crd| {
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
