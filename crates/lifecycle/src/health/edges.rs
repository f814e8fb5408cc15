//! How a namespace comes from one phase of its health to another: the table that [`advance`](super::advance) follows, and
//! that the diagram in `docs/kinds/managednamespace.md` is generated from.

use coppice_api::HealthState;

/// Why the state changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EdgeCause {
    /// Something fails.
    SomethingFails,
    /// Something has been failing for `settlingPeriod` without a break.
    Settled,
    /// The failure budget is spent, and something fails.
    FailureBudgetSpent,
    /// It has been `Failing` for `gracePeriod`, the time in which nothing failed not counted.
    GraceOver,
    /// Nothing has failed for `recoveryPeriod`.
    Recovered,
    /// The workloads were not followed for a time: what happened meanwhile is not known.
    Missed,
}

impl EdgeCause {
    /// The cause for people.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::SomethingFails => "something fails",
            Self::Settled => "fails for settlingPeriod",
            Self::FailureBudgetSpent => "failureBudget is spent",
            Self::GraceOver => "still so after gracePeriod",
            Self::Recovered => "nothing fails for recoveryPeriod",
            Self::Missed => "a watch had a gap",
        }
    }
}

/// A change of state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    /// The state before.
    pub from: HealthState,
    /// Why it changes.
    pub cause: EdgeCause,
    /// The state after.
    pub to: HealthState,
}

const fn edge(from: HealthState, cause: EdgeCause, to: HealthState) -> Edge {
    Edge { from, cause, to }
}

/// Every change of state there is; of several that apply the first is taken.
pub const EDGES: [Edge; 9] = [
    edge(HealthState::Ok, EdgeCause::SomethingFails, HealthState::Unstable),
    edge(HealthState::Unstable, EdgeCause::Settled, HealthState::Failing),
    edge(HealthState::Unstable, EdgeCause::FailureBudgetSpent, HealthState::Failing),
    edge(HealthState::Unstable, EdgeCause::Recovered, HealthState::Ok),
    edge(HealthState::Failing, EdgeCause::Missed, HealthState::Unstable),
    edge(HealthState::Failing, EdgeCause::GraceOver, HealthState::Failed),
    edge(HealthState::Failing, EdgeCause::Recovered, HealthState::Ok),
    edge(HealthState::Failed, EdgeCause::Missed, HealthState::Unstable),
    edge(HealthState::Failed, EdgeCause::Recovered, HealthState::Ok),
];
