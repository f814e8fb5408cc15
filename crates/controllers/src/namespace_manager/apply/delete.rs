//! Deleting the namespace: read everything again, decide again, store the record, reserve budget, and only then delete that
//! very revision.

use std::time::Duration;

use coppice_actions::delete::{self, Deletion};
use coppice_actions::deletion_record::{self, StoredRecord};
use coppice_actions::governor::{Reservation, ReservationError};
use coppice_api::manager::Intent;
use coppice_api::{DeletedNamespaceSpec, Reason};
use coppice_kinds::Manager;
use coppice_lifecycle::record::StepOutcome;
use coppice_mutants::Mutant;
use coppice_runtime::leader::Permit;

use super::super::observe::{self, Observation};
use super::super::plan;
use super::result::{Interruption, StepError, StepResult};
use super::{in_one_second, mutant_behavior};
use crate::context::{ControllerContext, ManagerKey};

/// The namespace changes under our hands, or is read too slowly, at most this often before the attempt counts as failed.
const MAX_ATTEMPTS: usize = 5;
/// Facts that are older than this when it comes to acting are read again (H3). Only the namespace is guarded by the request itself:
/// a hold that is written after its manager was read is not seen, so that time must be short.
pub(super) const MAX_FACT_AGE: Duration = Duration::from_secs(2);
/// A reservation that is older than this does not count any more.
pub(super) const MAX_RESERVATION_AGE: Duration = Duration::from_secs(5);

pub(super) async fn execute(
    shared: &ControllerContext,
    permit: &Permit,
    key: &ManagerKey,
    intent: &Intent,
) -> Result<StepResult, Interruption> {
    let (mut verified, record, reservation) = authorize(shared, permit, key, intent).await?;
    let mut lost = "the API server took too long to record the reservation";
    for _ in 0..MAX_ATTEMPTS {
        let Some(namespace) = &verified.namespace else { return Ok(StepResult::Gone) };
        if reservation.age() > MAX_RESERVATION_AGE {
            break;
        }
        if verified.age() > MAX_FACT_AGE {
            lost = "the API server took too long to answer what it rests on";
        } else {
            let deletion = delete::namespace(
                &shared.clients,
                permit,
                &reservation,
                &verified.settings,
                &record,
                namespace,
            )
            .await;
            let manager = Manager::clone(&verified.manager);
            match deletion {
                Ok(Deletion::Done(now)) => {
                    // The watch's event wakes other managers of the namespace, but only if the cache does not have the
                    // change yet.
                    if let Some(now) = now.filter(|_| shared.managers_in(&key.namespace).len() == 1) {
                        shared.namespaces.update_if_newer("", *now);
                    }
                    return Ok(StepResult::Completed(StepOutcome::Deleted, manager));
                }
                Ok(Deletion::AlreadyGone) => {
                    return Ok(StepResult::Completed(StepOutcome::AlreadyGone, manager));
                }
                Err(error) => {
                    return Ok(StepResult::Completed(StepOutcome::failed(error.to_string()), manager));
                }
                Ok(Deletion::Changed) => lost = "the namespace changed between reading and deleting it",
            }
        }
        verified = reverify_reserved(shared, key, intent, &reservation).await?;
    }
    let error = format!("not deleted: {lost}");
    Ok(StepResult::Completed(StepOutcome::failed(error), Manager::clone(&verified.manager)))
}

/// Stores what is about to be deleted, and why: it remains when the manager is gone with its namespace.
pub(super) async fn store_record(
    shared: &ControllerContext,
    permit: &Permit,
    verified: &Observation,
    intent: &Intent,
) -> Result<StoredRecord, StepResult> {
    let Some(namespace) = &verified.namespace else { return Err(StepResult::Gone) };
    let spec = DeletedNamespaceSpec {
        namespace: namespace.name.clone(),
        uid: intent.uid.clone(),
        namespace_created: namespace.created,
        manager: verified.manager.name.to_string(),
        policy: intent.policy.clone(),
        decided_at: intent.decided_at,
        attempted_at: shared.now_in_milliseconds(),
        reason: intent.reason.clone(),
        evidence: intent.evidence.clone(),
    };
    deletion_record::store(&shared.clients, permit, &intent.id, &spec).await.map_err(|error| {
        let error =
            format!("not deleted: its record, DeletedNamespace/{}, is not stored: {error}", intent.id);
        StepResult::Completed(StepOutcome::failed(error), Manager::clone(&verified.manager))
    })
}

/// Everything that a deletion needs: facts read again that still ask for it, its record, and a reservation by settings that
/// still allow it.
async fn authorize(
    shared: &ControllerContext,
    permit: &Permit,
    key: &ManagerKey,
    intent: &Intent,
) -> Result<(Observation, StoredRecord, Reservation), Interruption> {
    // Before the reservation, so that neither caches that are behind nor a record that cannot be stored cost budget.
    let verified = reverify(shared, key, intent).await?;
    let record = store_record(shared, permit, &verified, intent).await?;
    let (verified, reservation) = reserve_and_reverify(shared, permit, key, intent, verified).await?;
    Ok((verified, record, reservation))
}

/// Reserves a step that a fresh read asks for.
pub(super) async fn reserve_and_reverify(
    shared: &ControllerContext,
    permit: &Permit,
    key: &ManagerKey,
    intent: &Intent,
    verified: Observation,
) -> Result<(Observation, Reservation), Interruption> {
    let reservation = reserve(shared, permit, &verified).await?;
    let verified = if verified.age() > MAX_FACT_AGE {
        reverify_reserved(shared, key, intent, &reservation).await?
    } else {
        require_same_step(verified.under(shared, &reservation), intent)?
    };
    Ok((verified, reservation))
}

pub(super) async fn reserve(
    shared: &ControllerContext,
    permit: &Permit,
    verified: &Observation,
) -> Result<Reservation, StepResult> {
    let reserved = shared
        .governor
        .reserve(&shared.clients, permit, &shared.configs, shared.managed(), || shared.time())
        .await;
    reserved.map_err(|error| match error {
        ReservationError::Denied(denied) => {
            shared.metrics.blocked(denied.reason.as_str());
            // The plan says so as soon as the cache knows.
            StepResult::Wait(in_one_second(shared).min(denied.retry_at.or(in_one_second(shared))))
        }
        error @ ReservationError::Unavailable(_) => {
            shared.metrics.blocked(Reason::GovernorUnavailable.as_str());
            let outcome = StepOutcome::failed(error.to_string());
            StepResult::Completed(outcome, Manager::clone(&verified.manager))
        }
    })
}

/// Reads everything again and decides again: continues only if exactly the same step results.
pub(super) async fn reverify(
    shared: &ControllerContext,
    key: &ManagerKey,
    intent: &Intent,
) -> Result<Observation, Interruption> {
    reverify_with(shared, key, intent, |observation| observation).await
}

/// The same once the step is reserved: under the settings and the budget of the reservation, which includes this step.
pub(super) async fn reverify_reserved(
    shared: &ControllerContext,
    key: &ManagerKey,
    intent: &Intent,
    reservation: &Reservation,
) -> Result<Observation, Interruption> {
    reverify_with(shared, key, intent, |observation| observation.under(shared, reservation)).await
}

async fn reverify_with(
    shared: &ControllerContext,
    key: &ManagerKey,
    intent: &Intent,
    under: impl FnOnce(Observation) -> Observation,
) -> Result<Observation, Interruption> {
    if let Some(trusted) = mutant_behavior::reverify_with(shared, key, intent).await {
        return Ok(under(trusted));
    }
    match observe::fresh(shared, key).await {
        Ok(Some(observation)) => Ok(require_same_step(under(observation), intent)?),
        Ok(None) => Err(StepResult::Gone.into()),
        Err(error) => {
            let error = StepError::Facts(error);
            match shared.managers.get(&key.namespace, &key.name) {
                Some(manager) if manager.status.steps.intent.as_ref() == Some(intent) => {
                    let outcome = StepOutcome::failed(error.to_string());
                    Err(StepResult::Completed(outcome, Manager::clone(&manager)).into())
                }
                _ => Err(error.into()),
            }
        }
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
