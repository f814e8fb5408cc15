//! What is missing, one step at a time. Pure.

mod lint;

use coppice_api::condition::{self, ConditionState, READY};
use coppice_api::config::GovernorSpec;
use coppice_api::{CoppiceConfigStatus, Reason};
use coppice_lifecycle::PlatformSettings;
use coppice_lifecycle::{breaker, governor};
use jiff::Timestamp;

use super::observe::{KeyProblem, Observation};
use crate::context::OperatorOptions;

/// One step.
#[derive(Debug, PartialEq)]
pub(super) enum ConfigStep {
    /// Create the settings, all defaults.
    CreateConfig,
    /// Create the webhook key.
    CreateKey,
    /// Report what is in force.
    WriteStatus(Box<CoppiceConfigStatus>),
}

/// The next step; none if nothing is missing.
pub(super) fn plan(
    observation: &Observation,
    setup: &OperatorOptions,
    managed: u64,
    now: Timestamp,
) -> Option<ConfigStep> {
    let step = missing(observation, setup, managed, now);
    debug_assert_eq!(lint::lint(observation, step.as_ref()), Vec::new(), "{step:?}");
    step
}

fn missing(
    observation: &Observation,
    setup: &OperatorOptions,
    managed: u64,
    now: Timestamp,
) -> Option<ConfigStep> {
    let Some(config) = &observation.config else {
        // On the very first start alone: settings that were deleted later may have paused everything, or protected much.
        return observation.key.is_none().then_some(ConfigStep::CreateConfig);
    };
    if config.status_error.is_some() {
        // Another version wrote the ledger in it: left unchanged. Nothing destructive can be reserved on it.
        return observation.key.is_none().then_some(ConfigStep::CreateKey);
    }
    let mut status = (*config.status).clone();
    status.observed_generation = Some(config.generation);
    status.version = Some(env!("CARGO_PKG_VERSION").to_owned());
    let mut problems = Vec::new();
    // What is acknowledged by a spec that cannot be understood is not known: nothing.
    let governor =
        config.spec.as_ref().map_or_else(|_| GovernorSpec::default(), |spec| spec.governor.clone());
    status.governor = breaker::with_known(&governor, status.governor, &observation.breakers);
    match &config.spec {
        Ok(spec) => {
            problems
                .extend(PlatformSettings::new((**spec).clone(), &setup.own_namespace, Vec::new()).problems);
            problems.extend(observation.template_problems.iter().cloned());
            status.governor = governor::current_budget(&spec.governor, &status.governor, managed, now);
        }
        Err(error) => problems.push(format!("{error}; no destructive step is taken")),
    }
    match &observation.key {
        Some(Ok(key)) => status.webhook_key = Some(key.public().to_string()),
        // The breaker waits for no Secret: nothing else can be relied on while it is open.
        None if status.governor.breaker == config.status.governor.breaker => {
            return Some(ConfigStep::CreateKey);
        }
        // Not known, or created next: what is said of it stays, and of which spec; it is read again before anything else is said.
        None | Some(Err(KeyProblem::Unreadable { .. })) => {
            status.observed_generation = config.status.observed_generation;
            return (status != *config.status).then(|| ConfigStep::WriteStatus(Box::new(status)));
        }
        Some(Err(problem)) => {
            status.webhook_key = None;
            problems.push(format!("{problem}; webhooks wait: correct or delete the Secret"));
        }
    }
    set_ready(&mut status, config.generation, &problems, now);
    (status != *config.status).then(|| ConfigStep::WriteStatus(Box::new(status)))
}

fn set_ready(status: &mut CoppiceConfigStatus, generation: i64, problems: &[String], now: Timestamp) {
    let (value, reason, message) = if problems.is_empty() {
        ("True", Reason::Reconciled, "every entry of spec is in force".to_owned())
    } else {
        ("False", Reason::InvalidEntries, problems.join("; "))
    };
    let state = ConditionState { status: value, reason: reason.to_string(), message };
    condition::set(&mut status.conditions, READY, state, generation, now);
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
