//! How the decision of a cluster manager about a namespace is made again, before and while it is carried out.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use coppice_actions::decision::{DecidedBy, Decision, FreshFacts, Stopped};
use coppice_actions::governor::{Reservation, ReservationError};
use coppice_api::Reason;
use coppice_api::steps::Intent;
use coppice_kinds::{ClusterManagers, NamespaceRecord};
use coppice_lifecycle::PlatformSettings;
use coppice_lifecycle::cluster::{NamespacePlan, NamespaceStep};
use coppice_lifecycle::facts::NamespaceFacts;
use coppice_lifecycle::message::MessagesWhenGone;
use coppice_lifecycle::record::StepOutcome;
use coppice_runtime::object::OwnKind as _;
use jiff::{SignedDuration, Timestamp};

use super::super::observe::{self, Observation};
use super::super::plan;
use crate::context::ControllerContext;
use crate::deletion_notification;
use crate::status_writer::StepError;

/// How an attempt at a step ended.
pub(super) struct StepEnd {
    /// Its outcome.
    pub(super) outcome: StepOutcome,
    /// The record that has its intent.
    pub(super) record: NamespaceRecord,
    /// The uids of workloads that it recorded and did not scale down.
    pub(super) unchanged: BTreeSet<String>,
    /// The namespace as it is now, where that is known.
    pub(super) namespace: Option<Arc<NamespaceFacts>>,
}

impl StepEnd {
    pub(super) const fn new(outcome: StepOutcome, record: NamespaceRecord) -> Self {
        Self { outcome, record, unchanged: BTreeSet::new(), namespace: None }
    }
}

/// Why a decision is not carried out.
pub(super) enum Interruption {
    /// Fresh reads give another plan, for this record.
    Replanned(NamespaceRecord, Box<NamespacePlan>),
    /// The attempt failed, which is recorded.
    Failed(StepOutcome, NamespaceRecord),
    /// The record has changed: decide again, on this one.
    Changed(NamespaceRecord),
    /// Nothing can be done before then, or before something changes.
    Wait(Option<Timestamp>),
    /// It failed, and what became of it cannot be recorded.
    Error(StepError),
}

/// The decision in the record of a namespace.
pub(super) struct RecordDecision<'a> {
    pub(super) shared: &'a ControllerContext,
    pub(super) name: &'a str,
    pub(super) intent: &'a Intent,
}

/// What becomes of a decision that was not carried out.
pub(super) fn interruption(
    shared: &ControllerContext,
    stopped: Stopped<Verified, Interruption>,
) -> Interruption {
    let failed =
        |error: String, verified: Verified| Interruption::Failed(StepOutcome::failed(error), verified.record);
    match stopped {
        Stopped::Interrupted(interruption) => interruption,
        Stopped::NoNamespace | Stopped::NotLeading => Interruption::Wait(None),
        Stopped::NotReserved(_, ReservationError::Denied(denied)) => {
            shared.lifecycle_metrics.blocked(denied.reason.as_str());
            // The plan says so as soon as the cache knows.
            let soon = shared.now().checked_add(SignedDuration::from_secs(1)).ok();
            Interruption::Wait(soon.min(denied.retry_at.or(soon)))
        }
        Stopped::NotReserved(verified, error @ ReservationError::Unavailable(_)) => {
            shared.lifecycle_metrics.blocked(Reason::GovernorUnavailable.as_str());
            failed(error.to_string(), verified)
        }
        Stopped::Failed(verified, error) => failed(error.to_string(), verified),
    }
}

/// What was read again, and asks for the step.
pub(super) struct Verified {
    pub(super) observation: Observation,
    pub(super) record: NamespaceRecord,
    /// What its owner is notified of once it is gone.
    notification: MessagesWhenGone,
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

    fn decided_by(&self, verified: &Verified) -> DecidedBy {
        let status = &verified.record.status;
        // A record with an intent has one.
        let manager = status.manager.as_ref().map(|manager| manager.name.clone()).unwrap_or_default();
        let decided = DecidedBy::new(ClusterManagers::KIND, manager, self.intent, &status.steps);
        DecidedBy {
            notification: deletion_notification::recorded(self.shared, &verified.notification),
            ..decided
        }
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

/// Whether what was observed asks for the step of this intent.
#[allow(clippy::result_large_err, reason = "rare, and moved once")]
fn require_same_step(observation: Observation, intent: &Intent) -> Result<Verified, Interruption> {
    let Some(record) = observation.record.as_deref().cloned() else { return Err(Interruption::Wait(None)) };
    let plan = plan::plan(&observation);
    match &plan.step {
        NamespaceStep::Delete(same) if **same == *intent => {
            Ok(Verified { observation, record, notification: plan.notification })
        }
        // How the namespace is changes all the time where much of it fails, and by what is scaled down: that is written with the
        // outcome.
        _ if plan.goes_on => {
            let holds = record.status.steps.intent.as_ref() == Some(intent);
            if holds {
                Ok(Verified { observation, record, notification: plan.notification })
            } else {
                Err(Interruption::Changed(record))
            }
        }
        _ => Err(Interruption::Replanned(record, Box::new(plan))),
    }
}
