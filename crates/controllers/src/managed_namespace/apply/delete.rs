//! Deleting a namespace on the decision of a cluster manager. The order is that of
//! [`decision`](coppice_actions::decision).

use std::sync::Arc;

use coppice_actions::decision::{self as step, Deleted};
use coppice_api::steps::Intent;
use coppice_lifecycle::facts::NamespaceFacts;
use coppice_lifecycle::record::StepOutcome;
use coppice_runtime::leader::Permit;

use super::decision::{self, Interruption, RecordDecision, StepEnd, Verified};
use crate::context::ControllerContext;

pub(super) async fn execute(
    shared: &ControllerContext,
    permit: &Permit,
    name: &str,
    intent: &Intent,
) -> Result<StepEnd, Interruption> {
    let decision = RecordDecision { shared, name, intent };
    let deleted = step::delete_namespace(shared.step(permit), &decision).await;
    let (deleted, verified) = deleted.map_err(|stopped| decision::interruption(shared, stopped))?;
    let (outcome, now) = match deleted {
        Deleted::Accepted(now) => (StepOutcome::Deleted, now.or_else(|| going(&verified))),
        Deleted::AlreadyGone => (StepOutcome::AlreadyGone, going(&verified)),
    };
    let namespace = now.map(|namespace| Arc::new(*namespace));
    Ok(StepEnd { namespace, ..StepEnd::new(outcome, verified.record) })
}

/// The namespace that was read again, as one that is being deleted.
fn going(verified: &Verified) -> Option<Box<NamespaceFacts>> {
    let namespace = verified.observation.namespace.as_deref().ok()?;
    Some(Box::new(NamespaceFacts { terminating: true, ..namespace.clone() }))
}
