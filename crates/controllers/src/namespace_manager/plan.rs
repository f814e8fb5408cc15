//! Decides: `coppice_lifecycle::plan`, the same function that `coppice plan` and `coppice explain` call.

use coppice_lifecycle::{Plan, Steady};

use super::observe::Observation;

/// The plan for what was observed.
pub(super) fn plan(observation: &Observation) -> Plan {
    coppice_lifecycle::plan(&observation.as_observed(), observation.at)
}

/// Whether the manager is steady, which costs a small part of a plan.
pub(super) fn steady(observation: &Observation) -> Option<Steady> {
    coppice_lifecycle::steady(&observation.as_observed(), observation.at)
}
