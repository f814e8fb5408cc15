//! What a cluster manager asks for about the health of its namespaces, checked.

use coppice_api::health::{
    FailureBudget, HealthReason, HealthSpec, IgnoreRule, LONGEST_WINDOW, ReasonAdvice, SHORTEST_WINDOW,
};
use coppice_quantity::Duration;

use crate::health::HealthSettings;

/// The shortest and the longest window of a failure budget.
const WINDOWS: (Duration, Duration) =
    (Duration::from_secs(SHORTEST_WINDOW), Duration::from_secs(LONGEST_WINDOW));

/// When namespaces are unstable, failing and failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValidHealth {
    /// The periods of the clocks.
    pub settings: HealthSettings,
    /// What is no failure.
    pub ignore: Vec<IgnoreRule>,
    /// What to do about reasons, where the platform says it in its own words.
    advice: Vec<ReasonAdvice>,
}

impl ValidHealth {
    /// What to do about a reason: in the platform's words, or else in ours.
    pub fn advice(&self, reason: HealthReason) -> &str {
        let own = self.advice.iter().find(|one| one.reason == reason);
        own.map_or_else(|| reason.advice(), |one| &one.text)
    }
}

/// What is wrong with the health that is asked for, and what to write instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HealthError {
    /// Nothing is looked at.
    #[error("sources is empty: leave it out, or write Workloads")]
    NoSource,
    /// What fails for a moment would fail.
    #[error("settlingPeriod must be at least 1s")]
    ZeroSettlingPeriod,
    /// What works for a moment would have recovered.
    #[error("recoveryPeriod must be at least 1s")]
    ZeroRecoveryPeriod,
    /// The window is too short or too long.
    #[error("failureBudget.window must be between 1m and 7d")]
    Window,
    /// The budget is nothing, or more than its window.
    #[error("failureBudget.max must be at least 1s and at most window")]
    Budget,
    /// A rule ignores everything.
    #[error("ignore: write kind, name or reason in each rule")]
    EmptyIgnoreRule,
}

impl TryFrom<HealthSpec> for ValidHealth {
    type Error = HealthError;

    fn try_from(spec: HealthSpec) -> Result<Self, HealthError> {
        let HealthSpec {
            sources,
            settling_period,
            grace_period,
            recovery_period,
            failure_budget,
            ignore,
            advice,
        } = spec;
        let FailureBudget { window, max } = failure_budget;
        let empty = |rule: &IgnoreRule| rule.kind.is_none() && rule.name.is_none() && rule.reason.is_none();
        let errors = [
            (sources.is_empty(), HealthError::NoSource),
            (settling_period.is_zero(), HealthError::ZeroSettlingPeriod),
            (recovery_period.is_zero(), HealthError::ZeroRecoveryPeriod),
            (window < WINDOWS.0 || WINDOWS.1 < window, HealthError::Window),
            (max.is_zero() || window < max, HealthError::Budget),
            (ignore.iter().any(empty), HealthError::EmptyIgnoreRule),
        ];
        if let Some((_, error)) = errors.into_iter().find(|(wrong, _)| *wrong) {
            return Err(error);
        }
        let settings = HealthSettings {
            settling: settling_period,
            grace: grace_period,
            recovery: recovery_period,
            budget: failure_budget,
        };
        Ok(Self { settings, ignore, advice })
    }
}
