//! Deleting the namespace: read everything afresh, decide again, book, and only then delete that very revision.

use std::time::Duration;

use coppice_api::Reason;
use coppice_api::manager::Intent;
use coppice_lifecycle::record::Outcome;
use coppice_runtime::delete::{self, Deletion};
use coppice_runtime::error::chain;
use coppice_runtime::governor::{Booking, BookingError};
use coppice_runtime::kinds::Manager;
use coppice_runtime::leader::Permit;
use coppice_runtime::mutants::{self, Mutant};

use super::super::observe::{self, Observation};
use super::super::plan;
use super::{Carried, mutated, soon};
use crate::shared::{Key, Shared};

/// The namespace changes under our hands, or is read too slowly, at most this often before the attempt counts as failed.
const ROUNDS: usize = 5;
/// Facts that are older than this when it comes to acting are read again (H3). Only the namespace is guarded by the request itself:
/// a hold that is written after its manager was read is not seen, so that time must be short.
pub(super) const OLDEST: Duration = Duration::from_secs(2);
/// A booking that is older than this does not count any more.
pub(super) const BOOKED: Duration = Duration::from_secs(5);

pub(super) async fn carry_out(
    shared: &Shared,
    permit: &Permit,
    key: &Key,
    intent: &Intent,
) -> Result<Carried, String> {
    let (mut confirmed, booking) = match cleared(shared, permit, key, intent).await? {
        Ok(cleared) => cleared,
        Err(carried) => return Ok(carried),
    };
    let mut lost = "the API server took too long to take the booking";
    for _ in 0..ROUNDS {
        let Some(namespace) = &confirmed.namespace else { return Ok(Carried::Gone) };
        if booking.age() > BOOKED {
            break;
        }
        if confirmed.age() > OLDEST {
            lost = "the API server took too long to answer what it rests on";
        } else {
            let deletion =
                delete::namespace(&shared.clients, permit, &booking, &confirmed.law, &intent.uid, namespace)
                    .await;
            let manager = Manager::clone(&confirmed.manager);
            match deletion {
                Ok(Deletion::Done(now)) => {
                    // Other managers of the namespace are woken by the watch's news of it: it is to be news then.
                    if let Some(now) = now.filter(|_| shared.managers_in(&key.namespace).len() == 1) {
                        shared.namespaces.learn("", *now);
                    }
                    return Ok(Carried::Ended(Outcome::Deleted, manager));
                }
                Err(error) => return Ok(Carried::Ended(Outcome::failed(error.to_string()), manager)),
                Ok(Deletion::Changed) => lost = "the namespace changed between reading and deleting it",
            }
        }
        confirmed = match reverify(shared, key, intent, &booking).await? {
            Ok(again) => again,
            Err(carried) => return Ok(carried),
        };
    }
    let error = format!("not deleted: {lost}");
    Ok(Carried::Ended(Outcome::failed(error), Manager::clone(&confirmed.manager)))
}

/// Everything that a destructive step needs: facts read afresh that still ask for it, and a booking by settings that
/// still allow it.
async fn cleared(
    shared: &Shared,
    permit: &Permit,
    key: &Key,
    intent: &Intent,
) -> Result<Result<(Observation, Booking), Carried>, String> {
    // Before the booking, so that caches that are behind cost no budget.
    match confirm(shared, key, intent).await? {
        Ok(confirmed) => booked(shared, permit, key, intent, confirmed).await,
        Err(carried) => Ok(Err(carried)),
    }
}

/// Books a step that a fresh look asks for.
pub(super) async fn booked(
    shared: &Shared,
    permit: &Permit,
    key: &Key,
    intent: &Intent,
    confirmed: Observation,
) -> Result<Result<(Observation, Booking), Carried>, String> {
    let booking = match book(shared, permit, &confirmed).await {
        Ok(booking) => booking,
        Err(carried) => return Ok(Err(carried)),
    };
    let confirmed = if confirmed.age() > OLDEST {
        reverify(shared, key, intent, &booking).await?
    } else {
        still(confirmed.under(shared, &booking), intent)
    };
    Ok(confirmed.map(|confirmed| (confirmed, booking)))
}

pub(super) async fn book(
    shared: &Shared,
    permit: &Permit,
    confirmed: &Observation,
) -> Result<Booking, Carried> {
    let booked = shared
        .counter
        .book(&shared.clients, permit, &shared.configs, shared.managed(), || shared.time())
        .await;
    booked.map_err(|error| match error {
        BookingError::Denied(denied) => {
            shared.metrics.blocked(denied.reason.as_str());
            // The plan says so as soon as the cache knows.
            Carried::Wait(soon(shared).min(denied.retry_at.or(soon(shared))))
        }
        error @ BookingError::Unavailable(_) => {
            shared.metrics.blocked(Reason::GovernorUnavailable.as_str());
            let outcome = Outcome::failed(error.to_string());
            Carried::Ended(outcome, Manager::clone(&confirmed.manager))
        }
    })
}

/// Reads everything afresh and decides again: goes on only if the very same step comes out.
pub(super) async fn confirm(
    shared: &Shared,
    key: &Key,
    intent: &Intent,
) -> Result<Result<Observation, Carried>, String> {
    look(shared, key, intent, |observation| observation).await
}

/// The same once the step is booked: under the settings and the budget that it was booked under, of which it has its part.
pub(super) async fn reverify(
    shared: &Shared,
    key: &Key,
    intent: &Intent,
    booking: &Booking,
) -> Result<Result<Observation, Carried>, String> {
    look(shared, key, intent, |observation| observation.under(shared, booking)).await
}

async fn look(
    shared: &Shared,
    key: &Key,
    intent: &Intent,
    under: impl FnOnce(Observation) -> Observation,
) -> Result<Result<Observation, Carried>, String> {
    if let Some(trusted) = mutated::look(shared, key, intent).await {
        return Ok(Ok(under(trusted)));
    }
    match observe::fresh(shared, key).await {
        Ok(Some(observation)) => Ok(still(under(observation), intent)),
        Ok(None) => Ok(Err(Carried::Gone)),
        Err(error) => {
            let error = format!("the facts could not be read afresh: {}", chain(&error));
            match shared.managers.get(&key.namespace, &key.name) {
                Some(manager) if manager.status.intent.as_ref() == Some(intent) => {
                    Ok(Err(Carried::Ended(Outcome::failed(error), Manager::clone(&manager))))
                }
                _ => Err(error),
            }
        }
    }
}

/// Whether what was observed asks for the step of this intent.
#[allow(clippy::result_large_err, reason = "rare, and moved once")]
fn still(observation: Observation, intent: &Intent) -> Result<Observation, Carried> {
    let plan = plan::plan(&observation);
    if mutants::active(Mutant::KeyedByName) {
        return Ok(observation);
    }
    if plan.effect.as_ref().is_some_and(|effect| effect.intent() == intent) {
        return Ok(observation);
    }
    let manager = Manager::clone(&observation.manager);
    let holds = manager.status.intent.as_ref() == Some(intent);
    match observation.unread.filter(|_| holds) {
        Some(error) => Err(Carried::Ended(Outcome::failed(error), manager)),
        None => Err(Carried::Replanned(manager, Box::new(plan))),
    }
}
