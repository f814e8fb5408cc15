//! Decides: `coppice_lifecycle::plan`, the same function that `coppice plan` and `coppice explain` call.

use coppice_lifecycle::{Plan, Rest};

use super::observe::Observation;

/// The plan for what was observed.
pub(super) fn plan(observation: &Observation) -> Plan {
    coppice_lifecycle::plan(&observation.as_observed(), observation.at)
}

/// Whether there is nothing to do and nothing to write, which is found out at a small part of a plan's price.
pub(super) fn rest(observation: &Observation) -> Option<Rest> {
    coppice_lifecycle::rest(&observation.as_observed(), observation.at)
}
