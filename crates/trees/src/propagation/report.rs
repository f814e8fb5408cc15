//! Says in the status of a Subnamespace whether its namespace has what is copied into it; Events and log.

use coppice_api::condition::{self, ConditionState, PROPAGATED};
use coppice_controllers::reference;
use coppice_kinds::{SubnamespaceObject, Subnamespaces};
use coppice_runtime::leader::Permit;
use coppice_runtime::read;
use coppice_runtime::write::{self, WriteError};

use crate::context::TreeContext;

/// What Events say was being done.
const ACTION: &str = "Propagate";

/// Sets the condition, if it is another than before. It is about the spec that the namespace was last made as: by the labels that a later
/// one asks for there may be other copies.
pub(super) async fn condition(
    context: &TreeContext,
    permit: &Permit,
    object: &SubnamespaceObject,
    state: ConditionState,
) -> Result<(), WriteError> {
    if says(object, &state) {
        return Ok(());
    }
    // The other controller writes this status, too, and the cache is always a little behind it.
    let clients = &context.shared.clients;
    let newest = read::get::<Subnamespaces>(&clients.reads, &object.namespace, &object.name).await;
    let Some(newest) = newest?.filter(|newest| newest.uid == object.uid) else { return Ok(()) };
    if says(&newest, &state) || newest.status_error.is_some() {
        return Ok(());
    }
    // Where status is about another one by now, its watch brings that.
    let seen = object.status.observed_generation;
    let Some(generation) = seen.filter(|_| newest.status.observed_generation == seen) else { return Ok(()) };
    let mut status = (*newest.status).clone();
    let (bad, reason, message) = (state.status == "False", state.reason.clone(), state.message.clone());
    let now = context.shared.now();
    condition::set(&mut status.conditions, PROPAGATED, state, generation, now);
    write::status::<Subnamespaces>(clients, permit, &newest, &status).await?;
    let metrics = &context.shared.lifecycle_metrics;
    metrics.newly_blocked_by(PROPAGATED, &newest.status.conditions, &status.conditions);
    if bad {
        tracing::warn!(parent = %newest.namespace, subnamespace = %newest.name, reason, "{message}");
        let about = reference::<Subnamespaces>(&newest);
        context.shared.events.publish(about, true, &reason, ACTION, &message);
    }
    Ok(())
}

/// Whether the status says this already.
fn says(object: &SubnamespaceObject, state: &ConditionState) -> bool {
    condition::find(&object.status.conditions, PROPAGATED).is_some_and(|condition| {
        condition.status == state.status
            && condition.reason == state.reason
            && condition.message == state.message
            && condition.observed_generation == object.status.observed_generation
    })
}

/// Reports that something was not done.
pub(super) fn failed(namespace: &str, error: &str) {
    tracing::warn!(namespace, error, "not all was copied; it is tried again");
}
