//! What status says already, and whether it was said of what spec asks for now.

use coppice_api::condition::{self, READY};
use coppice_api::{Reason, SubnamespacePhase};
use coppice_kinds::SubnamespaceObject;

use super::{State, Step, SubnamespacePlan, reason_of};

/// The phase, unless another spec was ready or refused.
pub(super) fn phase(object: &SubnamespaceObject) -> SubnamespacePhase {
    let seen = object.status.observed_generation == Some(object.generation);
    let other =
        |phase: &SubnamespacePhase| matches!(phase, SubnamespacePhase::Ready | SubnamespacePhase::Refused);
    object.status.phase.filter(|phase| seen || !other(phase)).unwrap_or(SubnamespacePhase::Pending)
}

impl SubnamespacePlan {
    /// While one write follows another the state is what it was, each of them is short; but what was said of another spec, or of a
    /// write that failed, says nothing of this one.
    pub(super) fn unchanged(&self, object: &SubnamespaceObject, message: &str) -> State {
        let ready = condition::find(&self.status.conditions, READY)
            .filter(|ready| ready.observed_generation == Some(object.generation))
            .filter(|_| self.step != Step::Nothing || self.next_check.is_none());
        let reason = ready.and_then(|ready| reason_of(&ready.reason)).filter(|why| *why != Reason::Retrying);
        let said = ready.map(|ready| (&*ready.status, ready.message.clone()));
        match (self.status.phase, reason, said) {
            (Some(phase @ SubnamespacePhase::Ready), Some(reason), Some(("True", message)))
            | (Some(phase @ SubnamespacePhase::Refused), Some(reason), Some(("False", message))) => {
                State { phase, reason, message }
            }
            _ => State::pending(Reason::QuotaChanging, message),
        }
    }
}
