//! What holds for every plan of a `DeletedNamespace`, by what the plan looks like ([`coppice_api::lint`]). Builds with debug
//! assertions check every plan that they make.

use coppice_api::DeletionPhase;
use coppice_api::lint::PlanViolation;
use coppice_api::notify::{MessageDelivery, MessageState};

use super::super::observe::{NamespaceState, Observation};
use super::{DeletedNamespacePlan, DeletedNamespaceStep, KEPT_FOR, SETTLED_AFTER};

/// The rules that this plan breaks; [`plan`](super::plan) breaks none.
pub(super) fn lint(observation: &Observation, plan: &DeletedNamespacePlan) -> Vec<PlanViolation> {
    if coppice_mutants::any_active() {
        // A bug on purpose is to be found by what the program does.
        return Vec::new();
    }
    let (record, Some(step)) = (&observation.record, &plan.step) else { return Vec::new() };
    let expires = matches!(step, DeletedNamespaceStep::Expire);
    let mut findings = match step {
        DeletedNamespaceStep::Mark(phase) => mark(observation, *phase),
        DeletedNamespaceStep::Record(notices) => notifications(observation, notices),
        DeletedNamespaceStep::Deliver(keys) => attempts(observation, keys),
        DeletedNamespaceStep::Withdraw => forbidden(!is_given_up(observation)),
        DeletedNamespaceStep::Expire => forbidden(!is_old_enough(observation) || is_pending(observation)),
        DeletedNamespaceStep::MakeRoom => {
            forbidden(!is_complete(observation) || !observation.surplus || is_pending(observation))
        }
    };
    // One that cannot be understood is only kept, and no longer than others; one that somebody deletes is left alone.
    if record.terminating || !is_understood(observation) && !expires {
        findings.push(PlanViolation::Forbidden);
    }
    findings
}

fn forbidden(is: bool) -> Vec<PlanViolation> {
    if is { vec![PlanViolation::Forbidden] } else { Vec::new() }
}

fn is_understood(observation: &Observation) -> bool {
    observation.record.spec.is_ok() && observation.record.status_error.is_none()
}

/// Whether it says that its namespace is gone.
fn is_complete(observation: &Observation) -> bool {
    is_understood(observation) && observation.record.status.phase == Some(DeletionPhase::Deleted)
}

/// Whether a message is still to be sent.
fn is_pending(observation: &Observation) -> bool {
    let record = &observation.record;
    let notifies = record.spec.as_ref().is_ok_and(|fields| fields.notification.is_some());
    let mut notices = record.status.notices.iter();
    is_complete(observation) && notifies && notices.any(|one| one.state == MessageState::Pending)
}

/// A phase follows the one before, and is that of the namespace.
fn mark(observation: &Observation, phase: DeletionPhase) -> Vec<PlanViolation> {
    let known = observation.record.status.phase;
    let (follows, state) = match phase {
        DeletionPhase::Terminating => (known.is_none(), NamespaceState::Terminating),
        DeletionPhase::Deleted => (known != Some(DeletionPhase::Deleted), NamespaceState::Gone),
    };
    let mut findings = forbidden(observation.namespace != state);
    if !follows {
        findings.push(PlanViolation::HistoryChanged);
    }
    findings
}

/// Of messages that are known nothing is taken back, and what is written is new.
fn notifications(observation: &Observation, notices: &[MessageDelivery]) -> Vec<PlanViolation> {
    let known = &observation.record.status.notices;
    let is_kept = |before: &MessageDelivery| {
        let after = notices.iter().find(|after| after.key == before.key);
        let is_over = before.state != MessageState::Pending;
        after.is_some_and(|after| after.attempts >= before.attempts && (!is_over || after == before))
    };
    let mut findings = forbidden(!is_complete(observation));
    if notices == known {
        findings.push(PlanViolation::NothingNew);
    }
    if !known.iter().all(is_kept) {
        findings.push(PlanViolation::HistoryChanged);
    }
    findings
}

/// What is sent is written down, and was not delivered before.
fn attempts(observation: &Observation, keys: &[String]) -> Vec<PlanViolation> {
    let known = &observation.record.status.notices;
    let is_written =
        |key: &String| known.iter().any(|one| one.key == *key && one.state == MessageState::Pending);
    let mut findings = forbidden(!is_complete(observation));
    if keys.is_empty() || !keys.iter().all(is_written) {
        findings.push(PlanViolation::StepWithoutIntent);
    }
    findings
}

/// Whether nobody stands by the decision, its namespace is there, and every request of its last attempt has ended.
fn is_given_up(observation: &Observation) -> bool {
    let attempted = observation.record.spec.as_ref().ok().map(|fields| fields.attempted_at);
    observation.record.status.phase.is_none()
        && observation.namespace == NamespaceState::Present
        && !observation.decided
        && attempted.is_some_and(|at| observation.now.duration_since(at) >= SETTLED_AFTER)
}

/// Whether it has been kept for long enough: from when its namespace was gone, or of one of which nothing is known, from when it was made.
fn is_old_enough(observation: &Observation) -> bool {
    let record = &observation.record;
    let gone = record.status.deleted_at.filter(|_| is_complete(observation));
    let from = gone.unwrap_or(record.created);
    let is_known = is_understood(observation)
        && !is_complete(observation)
        && observation.namespace != NamespaceState::Unknown;
    !is_known && observation.now.duration_since(from) >= KEPT_FOR
}
