//! What the operator would do to a cluster in the time to come: the real one, in virtual time, on a copy of what there is.
//!
//! Nothing goes wrong here, and nobody does anything: pods stay as they are, every webhook is taken. Only time passes.

pub mod picture;
mod timeline;

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::Context as _;
pub use coppice_controllers::Setup;
use coppice_runtime::pace::Pace;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

pub use timeline::{Entry, Fate};

use crate::fault::Faults;
use crate::receiver::Receiver;
use crate::replica::{ReplicaSettings, keep_running};
use crate::run::{BEGINNING, installed};
use crate::server::models::{Enabled, Models};
use crate::server::{Server, meta};
use crate::world::{Life, World};

/// The lease of the only replica there is: it need not renew it often.
const LEASE: [Duration; 3] = [Duration::from_hours(26), Duration::from_hours(24), Duration::from_hours(6)];
/// What the operator looks at, or changes, besides its own kinds and namespaces.
pub const LOOKED_AT: [(&str, &str); 6] = [
    ("v1", "Pod"),
    ("batch/v1", "Job"),
    ("apps/v1", "Deployment"),
    ("apps/v1", "StatefulSet"),
    ("apps/v1", "ReplicaSet"),
    ("batch/v1", "CronJob"),
];

/// What is asked.
#[derive(Clone, Debug)]
pub struct Question {
    /// The present.
    pub began: Timestamp,
    /// How far to look ahead.
    pub lasts: Duration,
    /// What there is: namespaces, managers, settings, and what [`LOOKED_AT`] names. With `apiVersion` and `kind`.
    pub objects: Vec<Value>,
    /// How the operator is installed.
    pub setup: Setup,
}

/// The answer.
#[derive(Clone, Debug)]
pub struct Forecast {
    /// From when.
    pub began: Timestamp,
    /// Until when.
    pub until: Timestamp,
    /// Everything that the operator would tell, in order.
    pub timeline: Vec<Entry>,
    /// What becomes of each manager and its namespace, in the order of their names.
    pub fates: Vec<Fate>,
    /// What was assumed, and what could not be looked at.
    pub notes: Vec<String>,
}

/// Looks ahead. Must not be called on a thread that runs a tokio runtime.
pub fn simulate(question: &Question) -> anyhow::Result<Forecast> {
    let until = SignedDuration::try_from(question.lasts).ok();
    let until = until.and_then(|lasts| question.began.checked_add(lasts).ok());
    let until = until.context("the time to look ahead is too long")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
    runtime.block_on(async {
        let (server, notes) = copy(question)?;
        let world = World::new(0, question.began, server, Faults::none(), Receiver::default());
        let copied = world.with(|state| {
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
            state.lives = vec![Life::default()];
            state.trace.mute();
            state.server.revision()
        });
        let settings = ReplicaSettings {
            setup: question.setup.clone(),
            pace: Pace::unhurried(),
            lease: Some(LEASE),
            ..ReplicaSettings::default()
        };
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(world.clone().run_cluster_in_order());
        tasks.spawn(keep_running(world.clone(), 0, settings));
        tokio::time::sleep(question.lasts).await;
        let (timeline, fates) = world.with(|state| timeline::read(&state.server, copied, question.began));
        Ok(Forecast { began: question.began, until, timeline, fates, notes })
    })
}

/// A server that holds what there is.
fn copy(question: &Question) -> anyhow::Result<(Server, Vec<String>)> {
    let began = question.began;
    // What there is before the operator is may be older than the present, and not younger.
    let mut server = installed(BEGINNING.parse()?)?.clone();
    let mut notes = Vec::new();
    let mut known = BTreeSet::from([question.setup.own_namespace.clone()]);
    let kind = |object: &Value| object["kind"].as_str().unwrap_or_default().to_owned();
    let adopt = |server: &mut Server, object: &Value, notes: &mut Vec<String>| {
        if let Err(why) = server.adopt(began, object) {
            notes.push(format!("left out: {} {}: {why}", kind(object), place(object)));
        }
    };
    adopt(&mut server, &namespace(&question.setup.own_namespace), &mut notes);
    let (namespaces, rest): (Vec<_>, Vec<_>) = question.objects.iter().partition(|o| kind(o) == "Namespace");
    for object in namespaces {
        known.insert(meta::name(object).to_owned());
        adopt(&mut server, object, &mut notes);
    }
    let mut other = 0;
    for object in rest {
        let version = object["apiVersion"].as_str().unwrap_or_default();
        let ours = version.starts_with("coppice.dev/");
        if !ours && !LOOKED_AT.contains(&(version, kind(object).as_str())) {
            other += 1;
            continue;
        }
        let needs = meta::namespace(object);
        if !needs.is_empty() && known.insert(needs.to_owned()) {
            notes.push(format!("namespace {needs} was not given: it is assumed to be made now"));
            adopt(&mut server, &namespace(needs), &mut notes);
        }
        adopt(&mut server, object, &mut notes);
    }
    if other > 0 {
        notes.push(format!("{other} objects of kinds that the operator does not look at are left out"));
    }
    Ok((server, notes))
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
