//! Carries a plan out: the status, or else the one deletion, whose outcome is written then.

use std::collections::BTreeSet;

use coppice_actions::decision::{self, DecidedBy, Decision, Deleted, StepContext, Stopped};
use coppice_actions::governor::{Reservation, ReservationError};
use coppice_api::steps::Intent;
use coppice_controllers::{Applied, EventBatch, FactsError, StatusWriter, StepError};
use coppice_lifecycle::governor::Share;
use coppice_lifecycle::record::StepOutcome;
use coppice_runtime::leader::Permit;
use coppice_runtime::object::OwnKind as _;
use jiff::{SignedDuration, Timestamp};

use super::NamespaceExpiries;
use super::observe::{self, Observation};
use super::plan::{self, ExpiryPlan};
use crate::kind::NamespaceExpiryStatus;
use crate::object::{Expiries, Expiry};

/// Why a decision is not carried out.
pub(super) enum Interruption {
    /// Fresh reads ask for something else than the caches.
    CacheBehind,
    /// What it rests on could not be read.
    Failed(FactsError),
}

impl From<kube::Error> for Interruption {
    fn from(error: kube::Error) -> Self {
        Self::Failed(error.into())
    }
}

pub(super) async fn apply(
    controller: &NamespaceExpiries,
    permit: &Permit,
    observation: &Observation,
    plan: ExpiryPlan,
) -> (Applied<Expiry>, EventBatch) {
    let ExpiryPlan { status, step, next_check, events } = plan;
    if status != *observation.expiry.status {
        let batch = EventBatch { events, intent: status.steps.intent.clone() };
        return writer(controller, permit).save_plan(&observation.expiry, &status, batch).await;
    }
    match step {
        Some(intent) => delete(controller, permit, &observation.expiry.name, intent).await,
        None => (Applied::CheckAt(next_check), EventBatch::default()),
    }
}

/// Writes status. What comes next is decided by the next pass.
fn writer<'a>(
    controller: &'a NamespaceExpiries,
    permit: &'a Permit,
) -> StatusWriter<'a, Expiries, impl Fn(&Expiry, NamespaceExpiryStatus) -> NamespaceExpiryStatus> {
    let with_next_plan = |_: &Expiry, status| status;
    StatusWriter { shared: &controller.shared, permit, store: &controller.expiries, with_next_plan }
}

/// The decision of a `NamespaceExpiry`, in the intent of its status.
struct ExpiryDecision<'a> {
    controller: &'a NamespaceExpiries,
    name: &'a str,
    intent: &'a Intent,
}

async fn delete(
    controller: &NamespaceExpiries,
    permit: &Permit,
    name: &str,
    intent: Intent,
) -> (Applied<Expiry>, EventBatch) {
    let shared = &controller.shared;
    let context =
        StepContext { share: Share::Managers(controller.expiries.len() as u64), ..shared.step(permit) };
    let decision = ExpiryDecision { controller, name, intent: &intent };
    let nothing = |applied| (applied, EventBatch::default());
    let (outcome, verified) = match decision::delete_namespace(context, &decision).await {
        Ok((Deleted::Accepted(now), verified)) => {
            if let Some(now) = now {
                shared.namespaces.update_if_newer("", *now);
            }
            (StepOutcome::Deleted, verified)
        }
        Ok((Deleted::AlreadyGone, verified)) => (StepOutcome::AlreadyGone, verified),
        Err(Stopped::Interrupted(Interruption::CacheBehind) | Stopped::NoNamespace) => {
            return nothing(Applied::CacheBehind);
        }
        Err(Stopped::NotLeading) => return nothing(Applied::CheckAt(None)),
        Err(Stopped::Interrupted(Interruption::Failed(error))) => {
            return nothing(Applied::Failed(StepError::Facts(error)));
        }
        Err(Stopped::NotReserved(_, ReservationError::Denied(denied))) => {
            // The plan says why as soon as the cache knows.
            let soon = shared.now().saturating_add(SignedDuration::from_secs(1)).unwrap_or(Timestamp::MAX);
            let next = denied.retry_at.map_or(soon, |at| at.min(soon));
            return nothing(Applied::CheckAt(Some(next)));
        }
        Err(Stopped::NotReserved(verified, error @ ReservationError::Unavailable(_))) => {
            (StepOutcome::failed(error.to_string()), verified)
        }
        Err(Stopped::Failed(verified, error)) => (StepOutcome::failed(error.to_string()), verified),
    };
    let expiry = Expiry::clone(&verified.expiry);
    writer(controller, permit).record_outcome(intent, outcome, expiry, &BTreeSet::new()).await
}

impl ExpiryDecision<'_> {
    fn require_same_step(&self, observation: Observation) -> Result<Observation, Interruption> {
        let same = plan::plan(&observation).step.as_ref() == Some(self.intent);
        if same { Ok(observation) } else { Err(Interruption::CacheBehind) }
    }
}

impl Decision for ExpiryDecision<'_> {
    type Observation = Observation;
    type Interruption = Interruption;

    fn intent(&self) -> &Intent {
        self.intent
    }

    async fn reverify(&self, reservation: Option<&Reservation>) -> Result<Observation, Interruption> {
        let fresh = observe::fresh(self.controller, self.name).await?.ok_or(Interruption::CacheBehind)?;
        match reservation {
            Some(reservation) => self.reverify_under(fresh, reservation),
            None => self.require_same_step(fresh),
        }
    }

    fn reverify_under(
        &self,
        observation: Observation,
        reservation: &Reservation,
    ) -> Result<Observation, Interruption> {
        self.require_same_step(observation.under(&self.controller.shared, reservation))
    }

    fn decided_by(&self, observation: &Observation) -> DecidedBy {
        DecidedBy {
            kind: Expiries::KIND,
            name: observation.expiry.name.to_string(),
            losses: None,
            notification: None,
        }
    }
}
