//! A run of the simulation, and what came of it by the rules.

use std::collections::BTreeMap;

use coppice_sim::AskedWebhook;
use coppice_sim::fault::PlannedFault;
pub use coppice_sim::run::RunPlan;
use coppice_sim::trace::Trace;

use crate::oracle::{self, EndState, Rule};
use crate::suite::Suite;

/// What came of a run.
#[derive(Clone, Debug)]
pub struct RunResult {
    /// What happened.
    pub trace: Trace,
    /// The faults that there were.
    pub fired: Vec<PlannedFault>,
    /// How many writes the programs sent, those of Leases apart.
    pub writes: u64,
    /// How many events were on their way to them.
    pub events: u64,
    /// What admission webhooks were asked.
    pub asked: Vec<AskedWebhook>,
    /// What must not happen and did.
    pub violations: Vec<String>,
    /// How often rules had something to judge, by their names; of those that count it.
    pub judged: BTreeMap<&'static str, u64>,
    /// How it ended.
    pub end: EndState,
    /// The same in words, as scenarios state it.
    pub end_lines: Vec<String>,
    /// What the programs did that cannot be repeated, in order.
    pub effects: Vec<String>,
}

impl RunResult {
    /// In which way the end differs from what a scenario states. A line that ends in `*` leaves the rest open.
    pub fn unlike(&self, stated: &[&str]) -> Vec<String> {
        oracle::unlike(&self.end_lines, stated)
    }
}

/// Runs a plan of a suite to its end and judges it.
///
/// # Errors
/// If the setup of its scenario is refused.
pub fn run(suite: &Suite, plan: &RunPlan) -> anyhow::Result<RunResult> {
    run_without(suite, plan, None)
}

/// The same; one of the rules is not asked for.
///
/// # Errors
/// As [`run`].
pub fn run_without(suite: &Suite, plan: &RunPlan, without: Option<Rule>) -> anyhow::Result<RunResult> {
    coppice_sim::run::run(plan, |record| {
        let end = (suite.end_state)(record);
        let (violations, judged) = oracle::judge(suite, record, without).into_parts();
        RunResult {
            trace: record.trace.clone(),
            fired: record.fired.to_vec(),
            writes: record.writes,
            events: record.events,
            asked: record.asked.to_vec(),
            violations,
            judged,
            end_lines: (suite.end_lines)(&end),
            end,
            effects: (suite.effects)(record),
        }
    })
}
