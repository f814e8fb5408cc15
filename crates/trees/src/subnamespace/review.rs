//! Whether a `Subnamespace` would be carried out as it is written. Decides by the same plan as the controller.

mod mutant_behavior;

use std::sync::Arc;

use coppice_api::condition::{self, READY};
use coppice_api::{Reason, SubnamespacePhase};
use coppice_kinds::SubnamespaceObject;
use coppice_mutants::{Mutant, active};
use tokio::sync::Semaphore;

use super::observe::{self, Observation};
use super::plan::{plan, reason_of};
use crate::admission::Review;
use crate::context::{TreeContext, Why};
use crate::position::Place;
use crate::reads;

/// What is known of it. `before`: what is stored, if anything is. What would be refused is read again: caches are behind now and then,
/// and nobody is turned away for that.
pub(crate) async fn review(
    context: &TreeContext,
    at_once: &Semaphore,
    object: SubnamespaceObject,
    before: Option<SubnamespaceObject>,
) -> anyhow::Result<Review> {
    if object.terminating || before.as_ref().is_some_and(|before| before.spec == object.spec) {
        return Ok(Review::Allowed);
    }
    // What does not say what it means to this version is left to the controller.
    if object.decoded().is_err() {
        return Ok(Review::Unknown);
    }
    let as_planned =
        |object: SubnamespaceObject| Arc::new(SubnamespaceObject { has_finalizer: true, ..object });
    let (object, before) = (as_planned(object), before.map(as_planned));
    let cached = observe::cached_around(context, Arc::clone(&object));
    if cached.stale.is_some() {
        return Ok(Review::Unknown);
    }
    let Some((reason, message)) = refused(&cached) else {
        if active(Mutant::ReviewReserves) {
            return Ok(mutant_behavior::reserve(context, &cached.object));
        }
        return Ok(Review::Allowed);
    };
    if active(Mutant::DeniedByCaches) {
        return Ok(Review::Denied { reason, message });
    }
    let Ok(_read) = at_once.try_acquire() else { return Ok(Review::Unknown) };
    let above = reads::place(context, &object.namespace).await?;
    let Place::In(position) = above.place else { return Ok(Review::Unknown) };
    // What the namespace above has may not be there yet: it comes.
    let comes = |above: &Arc<SubnamespaceObject>| above.status.phase == Some(SubnamespacePhase::Pending);
    if above.creators.first().is_some_and(comes) {
        return Ok(Review::Unknown);
    }
    let fresh = observe::fresh_around(context, object).await?;
    let fresh = Observation { parent_position: Ok(position), ..fresh };
    let Some((reason, message)) = refused(&fresh) else { return Ok(Review::Allowed) };
    // Who changes something else than what is refused anyway may do so.
    if before.is_some_and(|before| is_nothing_new(context, &fresh.object, before, reason)) {
        return Ok(Review::Allowed);
    }
    Ok(Review::Denied { reason, message })
}

/// Whether what is stored is refused for this reason already, and not by what is changed.
fn is_nothing_new(
    context: &TreeContext,
    object: &SubnamespaceObject,
    before: Arc<SubnamespaceObject>,
    reason: Reason,
) -> bool {
    if reason == Reason::QuotaRefused {
        let specs = object.decoded().ok().zip(before.decoded().ok());
        return specs.is_some_and(|(now, before)| now.asks_as(before));
    }
    refused(&observe::cached_around(context, before)).is_some_and(|(known, _)| known == reason)
}

/// Why what is asked for would not be carried out; nothing where that is not so, or not for certain.
fn refused(observation: &Observation) -> Option<Why> {
    // Its tree may come a moment later, with all that is said in one file.
    if observation.stale.is_some() || observation.parent_position.is_err() {
        return None;
    }
    let object = &observation.object;
    let plan = plan(observation);
    if let Some(refused) =
        plan.status.refused.filter(|refused| object.status.refused.as_ref() != Some(refused))
    {
        return Some((Reason::QuotaRefused, refused.message));
    }
    if plan.status.phase != Some(SubnamespacePhase::Refused) {
        return None;
    }
    let ready = condition::find(&plan.status.conditions, READY)?;
    let reason = reason_of(&ready.reason)?;
    // So a namespace that exists is adopted: first there is the Subnamespace, then it is marked.
    (reason != Reason::NameTaken).then(|| (reason, ready.message.clone()))
}
