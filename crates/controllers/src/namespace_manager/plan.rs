//! Decides: `coppice_lifecycle::plan`, the same function that `coppice plan` and `coppice explain` call.

use coppice_lifecycle::Plan;

use super::observe::Observation;

/// The plan for what was observed.
pub(super) fn plan(observation: &Observation) -> Plan {
    coppice_lifecycle::plan(&observation.as_observed(), observation.at)
}
