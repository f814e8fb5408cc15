//! What the operator would do to a cluster in the time to come: the real one, in virtual time, on a copy of what there is.
//!
//! Nothing goes wrong here, and nobody does anything: pods stay as they are, every webhook is taken. Only time passes.

pub mod svg_timeline;
mod timeline;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
pub use coppice_controllers::OperatorOptions;
use coppice_quantity::count;
use coppice_runtime::intervals::ResyncIntervals;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

pub use timeline::{ManagerForecast, TimelineEntry};

use crate::fault::Faults;
use crate::operator::Operator;
use crate::receiver::Receiver;
use crate::replica::{ReplicaSettings, keep_running};
use crate::run::{RUN_START, installed};
use crate::server::models::{Enabled, Models};
use crate::server::{Server, meta};
use crate::simulation::{Incarnation, Simulation};

/// The lease of the only replica there is: it need not renew it often.
const LEASE: [Duration; 3] = [Duration::from_hours(26), Duration::from_hours(24), Duration::from_hours(6)];
/// What the operator reads, or changes, besides its own kinds and namespaces.
pub const WATCHED_KINDS: [(&str, &str); 8] = [
    ("v1", "Pod"),
    ("v1", "PersistentVolumeClaim"),
    ("batch/v1", "Job"),
    ("apps/v1", "Deployment"),
    ("apps/v1", "StatefulSet"),
    ("apps/v1", "DaemonSet"),
    ("apps/v1", "ReplicaSet"),
    ("batch/v1", "CronJob"),
];

/// What to simulate.
#[derive(Clone, Debug)]
pub struct SimulationRequest {
    /// The present.
    pub began: Timestamp,
    /// How far to look ahead.
    pub lasts: Duration,
    /// What there is: namespaces, managers, cluster managers and records, settings, and what [`WATCHED_KINDS`] names; of records of
    /// deletions those count for which names are left alone. With `apiVersion` and `kind`.
    pub objects: Vec<Value>,
    /// How the operator is installed.
    pub setup: OperatorOptions,
}

/// The result of a simulation.
#[derive(Clone, Debug)]
pub struct Forecast {
    /// From when.
    pub began: Timestamp,
    /// Until when.
    pub until: Timestamp,
    /// Everything that the operator would report, in order.
    pub timeline: Vec<TimelineEntry>,
    /// What becomes of each manager and its namespace, in the order of their names.
    pub managers: Vec<ManagerForecast>,
    /// What was assumed, and what could not be read.
    pub notes: Vec<String>,
}

/// Looks ahead. Must not be called on a thread that runs a tokio runtime.
pub fn simulate(request: &SimulationRequest) -> anyhow::Result<Forecast> {
    let until = SignedDuration::try_from(request.lasts).ok();
    let until = until.and_then(|lasts| request.began.checked_add(lasts).ok());
    let until = until.context("the time to look ahead is too long")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
    runtime.block_on(async {
        let (server, notes) = copy(request)?;
        let simulation = Simulation::new(0, request.began, server, Faults::none(), Receiver::default());
        let copied = simulation.with(|state| {
            // Only namespaces go, and what is in them: what workloads would make of their pods is not known.
            let still = Enabled {
                workloads: false,
                pods: false,
                quotas: false,
                tenancy: false,
                garbage: false,
                ..Enabled::default()
            };
            state.models = Models::with(still);
            state.incarnations = vec![Incarnation::default()];
            state.trace.stop_recording();
            state.server.revision()
        });
        let operator = Operator {
            setup: request.setup.clone(),
            intervals: ResyncIntervals::for_simulation(),
            lease: Some(LEASE),
        };
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(simulation.clone().run_cluster_in_order());
        tasks.spawn(keep_running(simulation.clone(), 0, ReplicaSettings::new(Arc::new(operator))));
        tokio::time::sleep(request.lasts).await;
        let (timeline, managers) =
            simulation.with(|state| timeline::read(&state.server, copied, request.began));
        Ok(Forecast { began: request.began, until, timeline, managers, notes })
    })
}

/// A server that holds what there is.
fn copy(request: &SimulationRequest) -> anyhow::Result<(Server, Vec<String>)> {
    let began = request.began;
    // What there is before the operator is may be older than the present, and not younger.
    let mut server = installed(RUN_START.parse()?)?.clone();
    let mut notes = Vec::new();
    let mut known = BTreeSet::from([request.setup.own_namespace.clone()]);
    let kind = |object: &Value| object["kind"].as_str().unwrap_or_default().to_owned();
    let adopt = |server: &mut Server, object: &Value, notes: &mut Vec<String>| {
        if let Err(why) = server.adopt(began, object) {
            notes.push(format!("left out: {} {}: {why}", kind(object), place(object)));
        }
    };
    adopt(&mut server, &namespace(&request.setup.own_namespace), &mut notes);
    let (namespaces, rest): (Vec<_>, Vec<_>) = request.objects.iter().partition(|o| kind(o) == "Namespace");
    for object in namespaces {
        known.insert(meta::name(object).to_owned());
        adopt(&mut server, object, &mut notes);
    }
    let mut other = 0_u32;
    for object in rest {
        let version = object["apiVersion"].as_str().unwrap_or_default();
        let ours = version.starts_with("coppice.dev/");
        if !ours && !WATCHED_KINDS.contains(&(version, kind(object).as_str())) {
            other += 1;
            continue;
        }
        let is_deletion = ours && kind(object) == "DeletedNamespace";
        if is_deletion && !is_counted(object, began) {
            continue;
        }
        let needs = meta::namespace(object);
        if !needs.is_empty() && known.insert(needs.to_owned()) {
            notes.push(format!("namespace {needs} was not given: it is assumed to be made now"));
            adopt(&mut server, &namespace(needs), &mut notes);
        }
        // Whatever takes finalizers off is not there, and they would keep their namespace terminating; nor is anybody notified.
        let left_out: &[(&str, &str)] = match (ours, is_deletion) {
            (false, _) => &[("metadata", "finalizers")],
            (true, true) => &[("spec", "notification"), ("status", "notices")],
            (true, false) => &[],
        };
        adopt(&mut server, &without(object, left_out), &mut notes);
    }
    if other > 0 {
        let are = if other == 1 { "is" } else { "are" };
        let left_out = count(other, "object");
        notes.push(format!("{left_out} of kinds that the operator does not look at {are} left out"));
    }
    Ok((server, notes))
}

/// Whether a record of a deletion is one of those by which a name that was deleted too often is left alone.
fn is_counted(record: &Value, began: Timestamp) -> bool {
    let attempted = record["spec"]["attemptedAt"].as_str().and_then(|at| at.parse::<Timestamp>().ok());
    record["spec"]["managerKind"] == "ClusterNamespaceManager"
        && record["status"]["phase"] == "Deleted"
        && attempted.is_some_and(|at| began.duration_since(at) < SignedDuration::from_hours(24))
}

/// An object without these fields of its parts.
fn without(object: &Value, fields: &[(&str, &str)]) -> Value {
    let mut object = object.clone();
    for (part, field) in fields {
        if let Some(part) = object.get_mut(*part).and_then(Value::as_object_mut) {
            part.remove(*field);
        }
    }
    object
}

fn namespace(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } })
}

fn place(object: &Value) -> String {
    match meta::namespace(object) {
        "" => meta::name(object).to_owned(),
        namespace => format!("{namespace}/{}", meta::name(object)),
    }
}
