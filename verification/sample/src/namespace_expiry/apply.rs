//! Carries a plan out: the status, or else the one deletion, whose outcome is written then.

use std::sync::Arc;

use coppice_actions::decision::{self, Decision, Deleted, StepContext, Stopped};
use coppice_actions::governor::{Reservation, ReservationError};
use coppice_api::DeletedNamespaceSpec;
use coppice_api::steps::Intent;
use coppice_lifecycle::facts::NamespaceFacts;
use coppice_lifecycle::plan::PlannedEvent;
use coppice_lifecycle::record::{self, StepOutcome};
use coppice_lifecycle::steps;
use coppice_runtime::error::chain;
use coppice_runtime::leader::Permit;
use coppice_runtime::object::OwnKind as _;
use coppice_runtime::write::{self, WriteError};
use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

use super::NamespaceExpiries;
use super::observe::{self, Observation};
use super::plan::{self, ExpiryPlan};
use crate::kind::NamespaceExpiryStatus;
use crate::object::{Expiries, Expiry};

/// What was done.
#[derive(Default)]
pub(super) struct Applied {
    /// When to look again.
    pub(super) next: Option<Timestamp>,
    pub(super) events: Vec<PlannedEvent>,
}

/// Why a plan was not carried out.
#[derive(Debug, thiserror::Error)]
pub(super) enum ApplyError {
    /// What it rests on could not be read.
    #[error("what it rests on cannot be read: {}", chain(.0))]
    Read(#[from] kube::Error),
    /// Fresh reads ask for something else than the caches.
    #[error("the caches are behind")]
    CacheBehind,
    /// Status could not be written.
    #[error("{0}")]
    Write(#[from] WriteError),
}

impl ApplyError {
    /// A label of metrics.
    pub(super) const fn category(&self) -> &'static str {
        match self {
            Self::Read(_) | Self::Write(_) => "api",
            Self::CacheBehind => "behind",
        }
    }
}

pub(super) async fn apply(
    controller: &NamespaceExpiries,
    permit: &Permit,
    observation: &Observation,
    plan: ExpiryPlan,
) -> Result<Applied, ApplyError> {
    if plan.status != *observation.expiry.status {
        return save_plan(controller, permit, observation, plan).await;
    }
    match plan.step {
        Some(intent) => delete(controller, permit, &observation.expiry.name, &intent).await,
        None => Ok(Applied { next: plan.next_check, events: Vec::new() }),
    }
}

async fn save_plan(
    controller: &NamespaceExpiries,
    permit: &Permit,
    observation: &Observation,
    plan: ExpiryPlan,
) -> Result<Applied, ApplyError> {
    let (expiry, mut events, began) = (&observation.expiry, plan.events, Instant::now());
    let written = save(controller, permit, expiry, &plan.status).await?;
    let (mut status, mut moved) = (plan.status, events.clone());
    let longer = steps::prolong_notice(&mut status.steps, &expiry.status.steps, began.elapsed(), &mut moved);
    // Another replica may lead by now, and have decided on what there is.
    if longer && permit.check().is_ok() {
        match save(controller, permit, &written, &status).await {
            Ok(_) => events = moved,
            Err(error) => {
                tracing::warn!(expiry = %expiry.name, %error, "the notice is shorter by what its write took");
            }
        }
    }
    // The store has learned the change from the answer: no event wakes this key.
    Ok(Applied { next: Some(controller.shared.now()), events })
}

/// Writes a status on the revision that it was decided on.
async fn save(
    controller: &NamespaceExpiries,
    permit: &Permit,
    expiry: &Expiry,
    status: &NamespaceExpiryStatus,
) -> Result<Expiry, WriteError> {
    let written = write::status::<Expiries>(&controller.shared.clients, permit, expiry, status).await;
    controller.shared.metrics.status_written(written.is_ok());
    match &written {
        Ok(written) => controller.expiries.update_if_newer("", written.clone()),
        // Whether or not the watch has reported it.
        Err(WriteError::Gone) => {
            controller.expiries.remove_if("", &expiry.name, |known| known.uid == expiry.uid);
        }
        Err(_) => {}
    }
    written
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
    intent: &Intent,
) -> Result<Applied, ApplyError> {
    let shared = &controller.shared;
    let context = StepContext { managed: controller.expiries.len() as u64, ..shared.step(permit) };
    let decision = ExpiryDecision { controller, name, intent };
    let (outcome, verified) = match decision::delete_namespace(context, &decision).await {
        Ok((Deleted::Accepted(now), verified)) => {
            if let Some(now) = now {
                shared.namespaces.update_if_newer("", *now);
            }
            (StepOutcome::Deleted, verified)
        }
        Ok((Deleted::AlreadyGone, verified)) => (StepOutcome::AlreadyGone, verified),
        Err(Stopped::Interrupted(error)) => return Err(error),
        Err(Stopped::NoNamespace) => return Err(ApplyError::CacheBehind),
        Err(Stopped::NotReserved(_, ReservationError::Denied(denied))) => {
            // The plan says why as soon as the cache knows.
            let soon = shared.now().saturating_add(SignedDuration::from_secs(1)).unwrap_or(Timestamp::MAX);
            let next = denied.retry_at.map_or(soon, |at| at.min(soon));
            return Ok(Applied { next: Some(next), events: Vec::new() });
        }
        Err(Stopped::NotReserved(verified, error @ ReservationError::Unavailable(_))) => {
            (StepOutcome::failed(error.to_string()), verified)
        }
        Err(Stopped::Failed(verified, error)) => (StepOutcome::failed(error), verified),
    };
    record_outcome(controller, permit, intent, &outcome, verified).await
}

/// Writes an outcome down, with what the next plan would say. If that fails, the next plan finds the intent, and the
/// namespace as it is then.
async fn record_outcome(
    controller: &NamespaceExpiries,
    permit: &Permit,
    intent: &Intent,
    outcome: &StepOutcome,
    mut verified: Observation,
) -> Result<Applied, ApplyError> {
    let before = Arc::clone(&verified.expiry);
    let mut after = Expiry::clone(&before);
    let mut events = record::apply(&mut after.status.steps, intent, outcome, controller.shared.now());
    verified.expiry = Arc::new(after);
    let plan = plan::plan(&verified);
    save(controller, permit, &before, &plan.status).await?;
    events.extend(plan.events);
    Ok(Applied { next: plan.next_check, events })
}

impl ExpiryDecision<'_> {
    fn require_same_step(&self, observation: Observation) -> Result<Observation, ApplyError> {
        let same = plan::plan(&observation).step.as_ref() == Some(self.intent);
        if same { Ok(observation) } else { Err(ApplyError::CacheBehind) }
    }
}

impl Decision for ExpiryDecision<'_> {
    type Observation = Observation;
    type Interruption = ApplyError;

    fn id(&self) -> &str {
        &self.intent.id
    }

    async fn reverify(&self, reservation: Option<&Reservation>) -> Result<Observation, ApplyError> {
        let fresh = observe::fresh(self.controller, self.name).await?.ok_or(ApplyError::CacheBehind)?;
        match reservation {
            Some(reservation) => self.reverify_under(fresh, reservation),
            None => self.require_same_step(fresh),
        }
    }

    fn reverify_under(
        &self,
        observation: Observation,
        reservation: &Reservation,
    ) -> Result<Observation, ApplyError> {
        self.require_same_step(observation.under(&self.controller.shared, reservation))
    }

    fn record(&self, observation: &Observation, namespace: &NamespaceFacts) -> DeletedNamespaceSpec {
        DeletedNamespaceSpec {
            namespace: namespace.name.clone(),
            uid: self.intent.uid.clone(),
            namespace_created: namespace.created,
            manager_kind: Expiries::KIND.to_owned(),
            manager: observation.expiry.name.to_string(),
            policy: self.intent.policy.clone(),
            decided_at: self.intent.decided_at,
            attempted_at: self.controller.shared.now_in_milliseconds(),
            reason: self.intent.reason.clone(),
            evidence: self.intent.evidence.clone(),
        }
    }
}
