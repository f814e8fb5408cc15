//! Carrying out a destructive decision, whatever kind of object it was made for, in the order that every one of them
//! keeps: decide again on fresh reads, store what remains, reserve, decide again, act.

use std::time::Duration;

use coppice_api::notify::DeletionNotification;
use coppice_api::steps::Intent;
use coppice_api::{DeletedNamespaceSpec, Losses, Steps};
use coppice_kinds::Configs;
use coppice_lifecycle::facts::NamespaceFacts;
use coppice_lifecycle::governor::Share;
use coppice_lifecycle::settings::PlatformSettings;
use coppice_quantity::time::in_milliseconds;
use coppice_runtime::client::Clients;
use coppice_runtime::leader::Permit;
use coppice_runtime::server_clock::ServerClock;
use coppice_runtime::store::Store;

use crate::delete::{self, DeleteError, DeletionOutcome};
use crate::deletion_record::{self, StoreRecordError, StoredRecord};
use crate::governor::{Governor, Reservation, ReservationError};

/// The namespace changes under our hands, or is read too slowly, at most this often before the attempt counts as failed.
const MAX_ATTEMPTS: usize = 5;
/// Facts that are older than this when it comes to acting are read again (H3). Only the namespace is guarded by the request itself:
/// a hold that is written after its object was read is not seen, so that time must be short.
pub const MAX_FACT_AGE: Duration = Duration::from_secs(2);
/// A reservation that is older than this does not count any more.
pub const MAX_RESERVATION_AGE: Duration = Duration::from_secs(5);

/// A decision that is written down as an intent, and how to make it again.
pub trait Decision: Sync {
    /// What it rests on.
    type Observation: FreshFacts + Send + Sync;
    /// Why it is not carried out: another decision takes its place, or none can be made.
    type Interruption;

    /// The intent.
    fn intent(&self) -> &Intent;

    /// Reads everything again and decides again: before the step is reserved (none) by the settings and the budget that are read,
    /// afterwards by those that it was reserved under, which do not count it yet. An observation only if exactly the same step
    /// results.
    fn reverify(
        &self,
        reservation: Option<&Reservation>,
    ) -> impl Future<Output = Result<Self::Observation, Self::Interruption>> + Send;

    /// Decides again on what was read a moment ago, under the settings and the budget of the reservation.
    fn reverify_under(
        &self,
        observation: Self::Observation,
        reservation: &Reservation,
    ) -> Result<Self::Observation, Self::Interruption>;

    /// The object that decides.
    fn decided_by(&self, observation: &Self::Observation) -> DecidedBy;
}

/// The object that decides, as the record of a deletion names it.
#[derive(Clone, Debug)]
pub struct DecidedBy {
    /// Its kind.
    pub kind: &'static str,
    /// Its name.
    pub name: String,
    /// What the notice of the deletion says that is lost with the namespace; none without such a notice.
    pub losses: Option<Losses>,
    /// What its owner is notified of once the namespace is gone; none where nobody is.
    pub notification: Option<DeletionNotification>,
}

impl DecidedBy {
    /// The object of this kind and name that has decided an intent, and with it these steps.
    pub fn new(kind: &'static str, name: impl Into<String>, intent: &Intent, steps: &Steps) -> Self {
        let notice = steps.notice.as_ref();
        let notice = notice.filter(|notice| notice.policy == intent.policy && notice.uid == intent.uid);
        let losses = notice.and_then(|notice| notice.losses.clone());
        Self { kind, name: name.into(), losses, notification: None }
    }
}

/// What was read for a decision.
pub trait FreshFacts {
    /// The namespace; none if there is none.
    fn namespace(&self) -> Option<&NamespaceFacts>;
    /// The settings.
    fn settings(&self) -> &PlatformSettings;
    /// How old the oldest of it may be.
    fn age(&self) -> Duration;
}

/// What carrying out takes, besides a decision.
#[derive(Clone, Copy)]
pub struct StepContext<'a> {
    /// The API server.
    pub clients: &'a Clients,
    /// The lease.
    pub permit: &'a Permit,
    /// Where the step is reserved.
    pub governor: &'a Governor,
    /// The cache of the settings.
    pub configs: &'a Store<Configs>,
    /// What of the budget it takes from.
    pub share: Share<'a>,
    /// The API server's time.
    pub clock: &'a ServerClock,
}

/// Why a decision was not carried out.
#[derive(Debug)]
pub enum Stopped<O, I> {
    /// It was decided otherwise, or could not be decided again.
    Interrupted(I),
    /// There is no such namespace any more.
    NoNamespace,
    /// The lease was lost meanwhile. Nothing is recorded: another replica may lead by now, and go on with the intent.
    NotLeading,
    /// It could not be reserved.
    NotReserved(O, ReservationError),
    /// An attempt failed.
    Failed(O, AttemptError),
}

/// Why an attempt to delete a namespace failed.
#[derive(Debug, thiserror::Error)]
pub enum AttemptError {
    /// Its record could not be stored.
    #[error("not deleted: its record, DeletedNamespace/{decision}, is not stored: {error}")]
    NotStored {
        /// The id of the decision.
        decision: String,
        /// Why.
        error: StoreRecordError,
    },
    /// The request failed.
    #[error(transparent)]
    Request(DeleteError),
    /// It was given up.
    #[error("not deleted: {0}")]
    GivenUp(WhyGivenUp),
}

/// Why an attempt was given up before it had an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WhyGivenUp {
    /// The reservation was too old when it could be used.
    #[error("the API server took too long to record the reservation")]
    ReservationTooOld,
    /// The facts were too old when they could be used.
    #[error("the API server took too long to answer what it rests on")]
    FactsTooOld,
    /// The namespace was never as it had been read.
    #[error("the namespace changed between reading and deleting it")]
    NamespaceChanged,
}

/// How a decision to delete was carried out.
#[derive(Debug)]
pub enum Deleted {
    /// The API server has accepted it; the namespace as it returned it, if it did.
    Accepted(Option<Box<NamespaceFacts>>),
    /// The namespace was being deleted or gone already.
    AlreadyGone,
}

/// What a decision needs to be carried out.
pub struct Authorized<O> {
    /// Facts, read again, that still ask for it under the settings of the reservation.
    pub observation: O,
    /// Its record.
    pub record: StoredRecord,
    /// Its part of the budget.
    pub reservation: Reservation,
}

type StoppedOf<D> = Stopped<<D as Decision>::Observation, <D as Decision>::Interruption>;

/// Deletes the namespace that a decision is about.
///
/// # Errors
/// Why it is not deleted by this attempt.
pub async fn delete_namespace<D: Decision>(
    context: StepContext<'_>,
    decision: &D,
) -> Result<(Deleted, D::Observation), StoppedOf<D>> {
    let Authorized { mut observation, record, mut reservation } = authorize(context, decision).await?;
    let mut why = WhyGivenUp::ReservationTooOld;
    for _ in 0..MAX_ATTEMPTS {
        let Some(namespace) = observation.namespace() else { return Err(Stopped::NoNamespace) };
        if reservation.age() > MAX_RESERVATION_AGE {
            break;
        }
        if observation.age() > MAX_FACT_AGE {
            why = WhyGivenUp::FactsTooOld;
        } else {
            let settings = observation.settings();
            let StepContext { clients, permit, .. } = context;
            match delete::namespace(clients, permit, reservation, settings, &record, namespace).await {
                Ok(DeletionOutcome::Done(now)) => return Ok((Deleted::Accepted(now), observation)),
                Ok(DeletionOutcome::AlreadyGone) => return Ok((Deleted::AlreadyGone, observation)),
                Ok(DeletionOutcome::Changed(unused)) => {
                    why = WhyGivenUp::NamespaceChanged;
                    reservation = *unused;
                }
                Err(DeleteError::NotLeading(_)) => return Err(Stopped::NotLeading),
                Err(error) => return Err(Stopped::Failed(observation, AttemptError::Request(error))),
            }
        }
        observation = decision.reverify(Some(&reservation)).await.map_err(Stopped::Interrupted)?;
    }
    Err(Stopped::Failed(observation, AttemptError::GivenUp(why)))
}

/// Everything that a deletion needs. The record and the fresh reads come before the reservation, so that neither a record that
/// cannot be stored nor caches that are behind cost budget.
///
/// # Errors
/// If one of them cannot be had.
pub async fn authorize<D: Decision>(
    context: StepContext<'_>,
    decision: &D,
) -> Result<Authorized<D::Observation>, StoppedOf<D>> {
    let observation = decision.reverify(None).await.map_err(Stopped::Interrupted)?;
    let Some(namespace) = observation.namespace() else { return Err(Stopped::NoNamespace) };
    let intent = decision.intent();
    let DecidedBy { kind, name: manager, losses, notification } = decision.decided_by(&observation);
    let spec = DeletedNamespaceSpec {
        namespace: namespace.name.clone(),
        uid: intent.uid.clone(),
        namespace_created: namespace.created,
        manager_kind: kind.to_owned(),
        manager,
        policy: intent.policy.clone(),
        decided_at: intent.decided_at,
        attempted_at: in_milliseconds(context.clock.now().now()),
        reason: intent.reason.clone(),
        evidence: intent.evidence.clone(),
        losses,
        notification,
    };
    let stored = deletion_record::store(context.clients, context.permit, &intent.id, &spec).await;
    let record = match stored {
        Ok(record) => record,
        Err(error) => {
            let error = AttemptError::NotStored { decision: intent.id.clone(), error };
            return Err(Stopped::Failed(observation, error));
        }
    };
    let (observation, reservation) = reserve(context, decision, observation).await?;
    Ok(Authorized { observation, record, reservation })
}

/// Reserves a step that fresh reads ask for, and decides again under the settings of the reservation.
///
/// # Errors
/// If there is no budget, or those settings ask for something else.
pub async fn reserve<D: Decision>(
    context: StepContext<'_>,
    decision: &D,
    observation: D::Observation,
) -> Result<(D::Observation, Reservation), StoppedOf<D>> {
    let StepContext { clients, permit, governor, configs, share, clock } = context;
    let reservation = match governor.reserve(clients, permit, configs, share, || clock.now()).await {
        Ok(reservation) => reservation,
        Err(error) => return Err(Stopped::NotReserved(observation, error)),
    };
    let verified = if observation.age() > MAX_FACT_AGE {
        decision.reverify(Some(&reservation)).await
    } else {
        decision.reverify_under(observation, &reservation)
    };
    Ok((verified.map_err(Stopped::Interrupted)?, reservation))
}

#[cfg(test)]
#[path = "decision_tests.rs"]
pub(crate) mod tests;
