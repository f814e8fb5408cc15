//! What holds for every plan of the settings, by what the plan looks like ([`coppice_api::lint`]). Builds with debug assertions
//! check every plan that they make.

use coppice_api::CoppiceConfigStatus;
use coppice_api::condition::READY;
use coppice_api::config::Breaker;
use coppice_api::lint::{self, PlanViolation};
use coppice_api::reason::ReasonPlace;
use coppice_kinds::Config;
use coppice_lifecycle::breaker;

use super::super::observe::Observation;
use super::ConfigStep;

/// The rules that this step breaks; [`plan`](super::plan) breaks none.
pub(super) fn lint(observation: &Observation, step: Option<&ConfigStep>) -> Vec<PlanViolation> {
    if coppice_mutants::any_active() {
        // A bug on purpose is to be found by what the program does.
        return Vec::new();
    }
    let is_absent = observation.key.is_none();
    match (step, &observation.config) {
        (None, _) => Vec::new(),
        // What is there is not created, and no key takes the place of another.
        (Some(ConfigStep::CreateConfig), None) | (Some(ConfigStep::CreateKey), Some(_)) if is_absent => {
            Vec::new()
        }
        (Some(ConfigStep::WriteStatus(status)), Some(config)) if config.status_error.is_none() => {
            written(observation, config, status)
        }
        (Some(_), _) => vec![PlanViolation::Forbidden],
    }
}

/// A status is about the spec that there is, says that it is in force where that is known, and takes nothing from the ledger.
fn written(observation: &Observation, config: &Config, after: &CoppiceConfigStatus) -> Vec<PlanViolation> {
    let (before, generation) = (&*config.status, config.generation);
    let mut findings = lint::conditions(
        &before.conditions,
        &after.conditions,
        generation,
        &[(READY, ReasonPlace::Settings)],
    );
    if after == before {
        findings.push(PlanViolation::NothingNew);
    }
    let seen = (before.observed_generation, after.observed_generation);
    findings.extend(lint::observed_generation(seen.0, seen.1, generation));
    let in_force = config.spec.is_ok()
        && observation.template_problems.is_empty()
        && matches!(observation.key, Some(Ok(_)));
    if lint::says_ready(&before.conditions, &after.conditions) && !in_force {
        findings.push(PlanViolation::ReadyTooEarly);
    }
    findings.extend(ledger(config, after));
    findings
}

/// A breaker stays until it is acknowledged, and what is reserved stays reserved.
fn ledger(config: &Config, after: &CoppiceConfigStatus) -> Vec<PlanViolation> {
    let (before, after) = (&config.status.governor, &after.governor);
    let is_acknowledged = |open: &Breaker| {
        config.spec.as_ref().is_ok_and(|spec| breaker::is_acknowledged(&spec.governor, open))
    };
    let is_open = before.breaker.as_ref().is_some_and(|open| !is_acknowledged(open));
    let is_closed = is_open && before.breaker != after.breaker;
    let forgets =
        before.reservations != after.reservations || before.tree_reservations != after.tree_reservations;
    let mut findings = Vec::new();
    if is_closed || forgets {
        findings.push(PlanViolation::HistoryChanged);
    }
    let blocked = after.blocked.as_ref().filter(|_| after.blocked != before.blocked);
    let place = ReasonPlace::Governor;
    if blocked.is_some_and(|blocked| !lint::is_said(&blocked.reason, &blocked.message, place)) {
        findings.push(PlanViolation::ReasonOutOfPlace);
    }
    findings
}
