//! A run of the simulation, and what came of it by the rules.

use coppice_sim::fault::PlannedFault;
pub use coppice_sim::run::RunPlan;
use coppice_sim::trace::Trace;

use crate::digest;
use crate::oracle::{self, EndState, Invariant};

/// What came of a run.
#[derive(Clone, Debug)]
pub struct RunResult {
    /// What happened.
    pub trace: Trace,
    /// The faults that there were.
    pub fired: Vec<PlannedFault>,
    /// How many writes the operator sent, those of its Lease apart.
    pub writes: u64,
    /// How many events were on their way to it.
    pub events: u64,
    /// What must not happen and did.
    pub violations: Vec<String>,
    /// How it ended.
    pub end: EndState,
    /// What the operator did that cannot be repeated, in order.
    pub effects: Vec<String>,
}

/// Runs a plan to its end and judges it.
///
/// # Errors
/// If the setup of its scenario is refused.
pub fn run(plan: &RunPlan) -> anyhow::Result<RunResult> {
    run_without(plan, None)
}

/// The same; one of the rules is not asked for.
///
/// # Errors
/// As [`run`].
pub fn run_without(plan: &RunPlan, without: Option<Invariant>) -> anyhow::Result<RunResult> {
    coppice_sim::run::run(plan, |record| RunResult {
        trace: record.trace.clone(),
        fired: record.fired.to_vec(),
        writes: record.writes,
        events: record.events,
        violations: oracle::violations(record, without),
        end: oracle::end_state(record),
        effects: digest::effects(record),
    })
}
