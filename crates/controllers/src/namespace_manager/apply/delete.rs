//! Deleting the namespace that a manager lives in, on its decision. The order is that of
//! [`decision`](coppice_actions::decision); here is how a manager decides again.

use std::time::Duration;

use coppice_actions::decision::{self, DecidedBy, Decision, Deleted, FreshFacts, Stopped};
use coppice_actions::governor::{Reservation, ReservationError};
use coppice_api::Reason;
use coppice_api::manager::Intent;
use coppice_kinds::{Manager, Managers};
use coppice_lifecycle::PlatformSettings;
use coppice_lifecycle::facts::NamespaceFacts;
use coppice_lifecycle::record::StepOutcome;
use coppice_mutants::Mutant;
use coppice_runtime::leader::Permit;
use coppice_runtime::object::OwnKind as _;

use super::super::observe::{self, Observation};
use super::super::plan;
use super::mutant_behavior;
use super::result::{Interruption, StepResult};
use crate::context::{ControllerContext, ManagerKey};
use crate::status_writer::StepError;

/// The decision of a manager, in the intent of its status.
pub(super) struct ManagerDecision<'a> {
    pub(super) shared: &'a ControllerContext,
    pub(super) key: &'a ManagerKey,
    pub(super) intent: &'a Intent,
}

pub(super) async fn execute(
    shared: &ControllerContext,
    permit: &Permit,
    key: &ManagerKey,
    intent: &Intent,
) -> Result<StepResult, Interruption> {
    let decision = ManagerDecision { shared, key, intent };
    match decision::delete_namespace(shared.step(permit), &decision).await {
        Ok((deleted, verified)) => {
            let outcome = match deleted {
                Deleted::Accepted(now) => {
                    // The watch's event enqueues other managers of the namespace, but only if the cache does not have the
                    // change yet. One that was deleted in between was not read with its annotations.
                    let now = now.filter(|now| now.terminating);
                    if let Some(now) = now.filter(|_| shared.managers_in(&key.namespace).len() == 1) {
                        shared.namespaces.update_if_newer("", *now);
                    }
                    StepOutcome::Deleted
                }
                Deleted::AlreadyGone => StepOutcome::AlreadyGone,
            };
            Ok(StepResult::Completed(outcome, Manager::clone(&verified.manager)))
        }
        Err(stopped) => Err(interruption(shared, stopped)),
    }
}

/// What becomes of a step that was not carried out.
pub(super) fn interruption(
    shared: &ControllerContext,
    stopped: Stopped<Observation, Interruption>,
) -> Interruption {
    let failed = |error: String, verified: Observation| {
        StepResult::Completed(StepOutcome::failed(error), Manager::clone(&verified.manager)).into()
    };
    match stopped {
        Stopped::Interrupted(interruption) => interruption,
        Stopped::NoNamespace => StepResult::Gone.into(),
        Stopped::NotLeading => StepResult::Wait(None).into(),
        Stopped::NotReserved(_, ReservationError::Denied(denied)) => {
            shared.lifecycle_metrics.blocked(denied.reason.as_str());
            // The plan says so as soon as the cache knows.
            StepResult::Wait(shared.in_one_second().min(denied.retry_at.or(shared.in_one_second()))).into()
        }
        Stopped::NotReserved(verified, error @ ReservationError::Unavailable(_)) => {
            shared.lifecycle_metrics.blocked(Reason::GovernorUnavailable.as_str());
            failed(error.to_string(), verified)
        }
        Stopped::Failed(verified, error) => failed(error.to_string(), verified),
    }
}

impl Decision for ManagerDecision<'_> {
    type Observation = Observation;
    type Interruption = Interruption;

    fn intent(&self) -> &Intent {
        self.intent
    }

    async fn reverify(&self, reservation: Option<&Reservation>) -> Result<Observation, Interruption> {
        let Self { shared, key, intent } = self;
        let under = |observation: Observation| match reservation {
            Some(reservation) => observation.under(shared, reservation),
            None => observation,
        };
        if let Some(trusted) = mutant_behavior::reverify_with(shared, key, intent).await {
            return Ok(under(trusted));
        }
        match observe::fresh(shared, key).await {
            Ok(Some(observation)) => Ok(require_same_step(under(observation), intent)?),
            Ok(None) => Err(StepResult::Gone.into()),
            Err(error) => {
                let error = StepError::Facts(error.into());
                match shared.managers.get(&key.namespace, &key.name) {
                    Some(manager) if manager.status.steps.intent.as_ref() == Some(*intent) => {
                        let outcome = StepOutcome::failed(error.to_string());
                        Err(StepResult::Completed(outcome, Manager::clone(&manager)).into())
                    }
                    _ => Err(error.into()),
                }
            }
        }
    }

    fn reverify_under(
        &self,
        observation: Observation,
        reservation: &Reservation,
    ) -> Result<Observation, Interruption> {
        Ok(require_same_step(observation.under(self.shared, reservation), self.intent)?)
    }

    fn decided_by(&self, observation: &Observation) -> DecidedBy {
        let manager = &observation.manager;
        DecidedBy::new(Managers::KIND, &*manager.name, self.intent, &manager.status.steps)
    }
}

impl FreshFacts for Observation {
    fn namespace(&self) -> Option<&NamespaceFacts> {
        self.namespace.as_deref()
    }

    fn settings(&self) -> &PlatformSettings {
        &self.settings
    }

    fn age(&self) -> Duration {
        self.age()
    }
}

/// Whether what was observed asks for the step of this intent.
#[allow(clippy::result_large_err, reason = "rare, and moved once")]
fn require_same_step(observation: Observation, intent: &Intent) -> Result<Observation, StepResult> {
    let plan = plan::plan(&observation);
    if coppice_mutants::active(Mutant::KeyedByName) {
        return Ok(observation);
    }
    if plan.step.as_ref().is_some_and(|step| step.intent() == intent) {
        return Ok(observation);
    }
    let manager = Manager::clone(&observation.manager);
    let holds = manager.status.steps.intent.as_ref() == Some(intent);
    match observation.read_error.filter(|_| holds) {
        Some(error) => Err(StepResult::Completed(StepOutcome::failed(error), manager)),
        None => Err(StepResult::Replanned(manager, Box::new(plan))),
    }
}
