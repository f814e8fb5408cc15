//! Deleting a namespace on the decision of a cluster manager. The order is that of
//! [`decision`](coppice_actions::decision); here is how it is decided again.

use std::sync::Arc;
use std::time::Duration;

use coppice_actions::decision::{self, Decision, Deleted, FreshFacts, Stopped};
use coppice_actions::governor::{Reservation, ReservationError};
use coppice_api::Reason;
use coppice_api::steps::Intent;
use coppice_kinds::{ClusterManagers, NamespaceRecord};
use coppice_lifecycle::PlatformSettings;
use coppice_lifecycle::cluster::{RecordPlan, RecordStep};
use coppice_lifecycle::facts::NamespaceFacts;
use coppice_lifecycle::record::StepOutcome;
use coppice_runtime::leader::Permit;
use coppice_runtime::object::OwnKind as _;
use jiff::{SignedDuration, Timestamp};

use super::super::observe::{self, Observation};
use super::super::plan;
use crate::context::ControllerContext;
use crate::status_writer::StepError;

/// Why a decision is not carried out.
pub(super) enum Interruption {
    /// Fresh reads give another plan, for this record.
    Replanned(NamespaceRecord, Box<RecordPlan>),
    /// The attempt failed, which is recorded.
    Failed(StepOutcome, NamespaceRecord),
    /// Nothing can be done before then, or before something changes.
    Wait(Option<Timestamp>),
    /// It failed, and what became of it cannot be recorded.
    Error(StepError),
}

/// The decision in the record of a namespace.
struct RecordDecision<'a> {
    shared: &'a ControllerContext,
    name: &'a str,
    intent: &'a Intent,
}

/// What came of a deletion: the outcome, the record that has its intent, and the namespace as it is now.
type Executed = (StepOutcome, NamespaceRecord, Option<Box<NamespaceFacts>>);

pub(super) async fn execute(
    shared: &ControllerContext,
    permit: &Permit,
    name: &str,
    intent: &Intent,
) -> Result<Executed, Interruption> {
    let decision = RecordDecision { shared, name, intent };
    let failed =
        |error: String, verified: Verified| Interruption::Failed(StepOutcome::failed(error), verified.record);
    match decision::delete_namespace(shared.step(permit), &decision).await {
        Ok((Deleted::Accepted(now), verified)) => {
            let now = now.or_else(|| going(&verified));
            Ok((StepOutcome::Deleted, verified.record, now))
        }
        Ok((Deleted::AlreadyGone, verified)) => {
            let now = going(&verified);
            Ok((StepOutcome::AlreadyGone, verified.record, now))
        }
        Err(Stopped::Interrupted(interruption)) => Err(interruption),
        Err(Stopped::NoNamespace) => Err(Interruption::Wait(None)),
        Err(Stopped::NotReserved(_, ReservationError::Denied(denied))) => {
            shared.lifecycle_metrics.blocked(denied.reason.as_str());
            // The plan says so as soon as the cache knows.
            let soon = shared.now().checked_add(SignedDuration::from_secs(1)).ok();
            Err(Interruption::Wait(soon.min(denied.retry_at.or(soon))))
        }
        Err(Stopped::NotReserved(verified, error @ ReservationError::Unavailable(_))) => {
            shared.lifecycle_metrics.blocked(Reason::GovernorUnavailable.as_str());
            Err(failed(error.to_string(), verified))
        }
        Err(Stopped::Failed(verified, error)) => Err(failed(error, verified)),
    }
}

/// The namespace that was read again, as one that is being deleted.
fn going(verified: &Verified) -> Option<Box<NamespaceFacts>> {
    let namespace = verified.observation.namespace.as_deref().ok()?;
    Some(Box::new(NamespaceFacts { terminating: true, ..namespace.clone() }))
}

/// What was read again, and asks for the deletion.
struct Verified {
    observation: Observation,
    record: NamespaceRecord,
}

impl Decision for RecordDecision<'_> {
    type Observation = Verified;
    type Interruption = Interruption;

    fn intent(&self) -> &Intent {
        self.intent
    }

    async fn reverify(&self, reservation: Option<&Reservation>) -> Result<Verified, Interruption> {
        let Self { shared, name, intent } = self;
        let observation = match observe::fresh(shared, name, intent).await {
            Ok(Some(observation)) => observation,
            Ok(None) => return Err(Interruption::Wait(None)),
            Err(error) => {
                let error = StepError::Facts(error);
                let holds =
                    |record: &Arc<NamespaceRecord>| record.status.steps.intent.as_ref() == Some(*intent);
                return Err(match shared.record(name).filter(holds) {
                    Some(record) => {
                        let outcome = StepOutcome::failed(error.to_string());
                        Interruption::Failed(outcome, NamespaceRecord::clone(&record))
                    }
                    None => Interruption::Error(error),
                });
            }
        };
        let observation = match reservation {
            Some(reservation) => observation.under(shared, reservation),
            None => observation,
        };
        require_same_step(observation, intent)
    }

    fn reverify_under(
        &self,
        verified: Verified,
        reservation: &Reservation,
    ) -> Result<Verified, Interruption> {
        require_same_step(verified.observation.under(self.shared, reservation), self.intent)
    }

    fn decided_by(&self, verified: &Verified) -> (&'static str, String) {
        // A record with an intent has one.
        let manager = verified.record.status.manager.as_ref();
        (ClusterManagers::KIND, manager.map(|manager| manager.name.clone()).unwrap_or_default())
    }
}

impl FreshFacts for Verified {
    fn namespace(&self) -> Option<&NamespaceFacts> {
        self.observation.namespace.as_deref().ok()
    }

    fn settings(&self) -> &PlatformSettings {
        &self.observation.settings
    }

    fn age(&self) -> Duration {
        self.observation.age()
    }
}

/// Whether what was observed asks for the deletion of this intent.
#[allow(clippy::result_large_err, reason = "rare, and moved once")]
fn require_same_step(observation: Observation, intent: &Intent) -> Result<Verified, Interruption> {
    let Some(record) = observation.record.as_deref().cloned() else { return Err(Interruption::Wait(None)) };
    let plan = plan::plan(&observation);
    match &plan.step {
        RecordStep::Delete(same) if **same == *intent => Ok(Verified { observation, record }),
        _ => Err(Interruption::Replanned(record, Box::new(plan))),
    }
}
