//! Whether a `QuotaTransfer` would be carried out as it is written. Decides by the same plan as the controller.

use std::sync::Arc;

use coppice_api::condition::{self, READY};
use coppice_api::{Reason, TransferPhase};
use coppice_kinds::QuotaTransferObject;
use coppice_runtime::read::ListError;
use tokio::sync::Semaphore;

use super::observe::{self, Observation};
use super::plan::plan;
use crate::admission::Review;
use crate::context::TreeContext;

/// What is known of one that is created. What would be refused is read again.
pub(crate) async fn review(
    context: &TreeContext,
    at_once: &Semaphore,
    object: QuotaTransferObject,
) -> Result<Review, ListError> {
    if object.decoded().is_err() {
        return Ok(Review::Unknown);
    }
    let object = Arc::new(QuotaTransferObject { has_finalizer: true, ..object });
    let cached = observe::cached_around(context, Arc::clone(&object));
    if cached.stale.is_some() {
        return Ok(Review::Unknown);
    }
    match begun(&cached) {
        Begun::Refused(_) => {}
        Begun::Waits => return Ok(Review::Allowed),
        Begun::On(object) => {
            if refused(&observe::cached_around(context, Arc::new(object))).is_none() {
                return Ok(Review::Allowed);
            }
        }
    }
    let Ok(_read) = at_once.try_acquire() else { return Ok(Review::Unknown) };
    let message = match begun(&observe::fresh_around(context, object).await?) {
        Begun::Refused(message) => Some(message),
        Begun::Waits => None,
        Begun::On(object) => refused(&observe::fresh_around(context, Arc::new(object)).await?),
    };
    Ok(message.map_or(Review::Allowed, |message| Review::Denied { reason: Reason::TransferRefused, message }))
}

/// What the first step of a transfer would be.
enum Begun {
    /// It is refused.
    Refused(String),
    /// It waits for somebody, or for something that is not known.
    Waits,
    /// It would be this one.
    On(QuotaTransferObject),
}

fn begun(observation: &Observation) -> Begun {
    if let Some(message) = refused(observation) {
        return Begun::Refused(message);
    }
    let status = plan(observation).status;
    if status.path.is_empty() {
        return Begun::Waits;
    }
    let object = &observation.object;
    Begun::On(QuotaTransferObject { status: Box::new(status), ..(**object).clone() })
}

fn refused(observation: &Observation) -> Option<String> {
    let plan = plan(observation);
    let refused = observation.stale.is_none() && plan.status.phase == Some(TransferPhase::Refused);
    let ready = condition::find(&plan.status.conditions, READY).filter(|_| refused)?;
    Some(ready.message.clone())
}
