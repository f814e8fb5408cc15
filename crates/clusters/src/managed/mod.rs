//! What is made and done for a `ManagedCluster`.
//!
//! The desired state is made by extenders, in a fixed order, each a function of the spec, of what is live and of settings: those in
//! [`topology`] make a `Cluster` of Cluster API, those in [`shoot`] a `Shoot` of Gardener. It has nothing but the fields that the spec
//! decides. [`patch`] merges it into what is live, where all other fields stay. [`plan`](plan::plan) decides the next step.

pub mod addresses;
mod infrastructure;
pub mod live;
pub mod patch;
mod permission;
pub mod plan;
pub mod shoot;
mod status;
pub mod topology;

use std::collections::BTreeMap;

use coppice_api::Reason;
use coppice_clusters_api::names::LABEL_MANAGED_CLUSTER;
use coppice_clusters_api::{FailureClass, ManagedClusterSpec, WorkerPool, ZoneAddresses};
use serde_json::{Map, Value, json};

pub use live::ReconciliationState;
pub use permission::{made_elsewhere, project};
pub use plan::{LiveFact, Managed, ManagedStep, managed_urgency, plan};
pub use status::{failed, not_understood};

/// As which object a cluster is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A `Cluster` of Cluster API.
    Topology,
    /// A `Shoot` of Gardener.
    Shoot,
}

impl Shape {
    /// That which a spec asks for.
    pub const fn of(spec: &ManagedClusterSpec) -> Self {
        if spec.provider.gardener.is_some() { Self::Shoot } else { Self::Topology }
    }

    /// The kind of the object.
    pub const fn kind(self) -> &'static str {
        match self {
            Self::Topology => "Cluster",
            Self::Shoot => "Shoot",
        }
    }

    /// Its API version.
    pub const fn api_version(self) -> &'static str {
        match self {
            Self::Topology => "cluster.x-k8s.io/v1beta2",
            Self::Shoot => "core.gardener.cloud/v1beta1",
        }
    }

    /// The extenders, in their order.
    pub fn extenders(self) -> &'static [Extender] {
        match self {
            Self::Topology => &topology::EXTENDERS,
            Self::Shoot => &shoot::EXTENDERS,
        }
    }
}

/// What an extender knows besides the spec and what is live.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The name of the ManagedCluster, and of the object.
    pub name: String,
    /// The uid of the ManagedCluster.
    pub uid: String,
    /// Which addresses each zone has.
    pub addresses: Vec<ZoneAddresses>,
}

/// Why something was not done, and what becomes of that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Why.
    pub reason: Reason,
    /// What becomes of it.
    pub class: FailureClass,
    /// What happened and what to do, for people.
    pub message: String,
}

impl Failure {
    /// One that somebody has to do something about.
    pub fn waiting(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, class: FailureClass::WaitingForInput, message: message.into() }
    }

    /// One that is tried again.
    pub fn transient(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, class: FailureClass::Transient, message: message.into() }
    }

    /// One that only another spec resolves.
    pub fn permanent(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, class: FailureClass::Permanent, message: message.into() }
    }
}

/// Adds to the desired state: which fields, of a spec, of what is live (null: nothing), and of settings.
pub type ExtendFn = fn(&ManagedClusterSpec, &Value, &Settings) -> Result<Value, Failure>;

/// An [`ExtendFn`] and its name.
pub type Extender = (&'static str, ExtendFn);

/// The fields that a spec decides: those of all extenders, in their order.
pub fn desired(spec: &ManagedClusterSpec, live: &Value, settings: &Settings) -> Result<Value, Failure> {
    let mut desired = json!({"metadata": {"labels": {LABEL_MANAGED_CLUSTER: settings.uid}}});
    for (_, extend) in Shape::of(spec).extenders() {
        desired = patch::merge(&desired, &extend(spec, live, settings)?, &Value::Null);
    }
    Ok(desired)
}

/// A field at a path of what is live; null if there is none.
fn at<'a>(live: &'a Value, pointer: &str) -> &'a Value {
    static NONE: Value = Value::Null;
    live.pointer(pointer).unwrap_or(&NONE)
}

/// The item of that name in a list of what is live; null if there is none.
fn named<'a>(live: &'a Value, pointer: &str, name: &str) -> &'a Value {
    static NONE: Value = Value::Null;
    let found = at(live, pointer).as_array().and_then(|all| all.iter().find(|item| item["name"] == name));
    found.unwrap_or(&NONE)
}

/// The zones of a pool: those that it has, then others of the spec. None is taken away.
fn pool_zones(pool: &WorkerPool, live: &Value) -> Vec<String> {
    let has = live["zones"].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned);
    let mut zones: Vec<String> = has.collect();
    for zone in &pool.zones {
        if !zones.contains(zone) {
            zones.push(zone.clone());
        }
    }
    zones
}

/// The later of two versions; the desired one where that of what is live is none.
fn later(desired: &str, live: &str) -> String {
    let is_later = numbers(live).is_some_and(|live| numbers(desired).is_some_and(|desired| live > desired));
    if is_later { live.to_owned() } else { desired.to_owned() }
}

/// The numbers of a version.
fn numbers(version: &str) -> Option<Vec<u64>> {
    let version = version.strip_prefix('v').unwrap_or(version);
    version.split('.').map(|number| number.parse().ok()).collect()
}

/// An object of the fields that have a value.
fn object<const N: usize>(fields: [(&str, Value); N]) -> Value {
    let given = fields.into_iter().filter(|(_, value)| !value.is_null());
    Value::Object(given.map(|(name, value)| (name.to_owned(), value)).collect::<Map<_, _>>())
}

/// A map of texts; null if it is empty.
fn texts(map: &BTreeMap<String, String>) -> Value {
    if map.is_empty() { Value::Null } else { json!(map) }
}

#[cfg(test)]
#[path = "golden_tests.rs"]
mod golden_tests;
