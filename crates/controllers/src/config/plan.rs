//! What is missing, one step at a time. Pure.

use coppice_api::{CoppiceConfigStatus, Reason};
use coppice_lifecycle::Law;
use coppice_lifecycle::governor;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use super::observe::Observation;
use crate::shared::Setup;

/// One step.
#[derive(Debug, PartialEq)]
pub(super) enum Step {
    /// Create the settings, all defaults.
    CreateConfig,
    /// Create the webhook key.
    CreateKey,
    /// Say what is in force.
    WriteStatus(Box<CoppiceConfigStatus>),
}

/// The next step; none if everything is as it should be.
pub(super) fn plan(observation: &Observation, setup: &Setup, managed: u64, now: Timestamp) -> Option<Step> {
    let Some(config) = &observation.config else {
        // On the very first start alone: settings that were deleted later may have paused everything, or protected much.
        return observation.key.is_none().then_some(Step::CreateConfig);
    };
    let Some(key) = &observation.key else { return Some(Step::CreateKey) };
    if config.status_error.is_some() {
        // It holds the ledger, by another version: left as it is. Nothing destructive can be booked on it.
        return None;
    }
    let mut status = (*config.status).clone();
    status.observed_generation = Some(config.generation);
    status.version = Some(env!("CARGO_PKG_VERSION").to_owned());
    status.webhook_key = key.as_ref().ok().map(|key| key.public().to_string());
    let mut problems = Vec::new();
    match &config.spec {
        Ok(spec) => {
            problems.extend(Law::new((**spec).clone(), &setup.own_namespace, Vec::new()).problems);
            status.governor = governor::review(&spec.governor, &status.governor, managed, now);
        }
        Err(error) => problems.push(format!("{error}; every destructive step is paused")),
    }
    problems.extend(key.as_ref().err().map(|e| format!("{e}; webhooks wait: correct or delete the Secret")));
    set_ready(&mut status, config.generation, &problems, now);
    (status != *config.status).then(|| Step::WriteStatus(Box::new(status)))
}

fn set_ready(status: &mut CoppiceConfigStatus, generation: i64, problems: &[String], now: Timestamp) {
    let (value, reason, message) = if problems.is_empty() {
        ("True", Reason::Understood, "every entry of spec is in force".to_owned())
    } else {
        ("False", Reason::InvalidEntries, problems.join("; "))
    };
    let before = status.conditions.iter().find(|c| c.type_ == "Ready" && c.status == value);
    let since = before.map_or_else(
        || Time(Timestamp::from_second(now.as_second()).unwrap_or(now)),
        |c| c.last_transition_time.clone(),
    );
    let condition = Condition {
        type_: "Ready".to_owned(),
        status: value.to_owned(),
        reason: reason.to_string(),
        message,
        observed_generation: Some(generation),
        last_transition_time: since,
    };
    status.conditions.retain(|c| c.type_ != "Ready");
    status.conditions.push(condition);
}
