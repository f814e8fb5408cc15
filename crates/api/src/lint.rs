//! What holds for every plan, of whatever kind it is, and the rules about what its status says: said a second time, by what a status
//! looks like and not by how it is made, so that a mistake has to be made twice.
//!
//! Nothing here is needed for a decision: builds with debug assertions, and so all tests, check every plan.

use crate::Reason;
use crate::condition::{self, Condition, READY};
use crate::reason::ReasonPlace;

/// A rule that a plan breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanViolation {
    /// A step without the intent that was observed, or a plan that drops the intent of its step.
    StepWithoutIntent,
    /// An intent, of a step or new, without an id, a reason or the digest of the policies.
    Unexplained,
    /// An intent, of a step or new, that does not name the namespace's uid: its requests would have no precondition. Or a step about another
    /// object than the one that was observed.
    NoPrecondition,
    /// An intent whose action is not that of its policy.
    NotOfItsPolicy,
    /// A destructive intent, of a step or new, in a namespace that is protected.
    Protected,
    /// A step while something says that there is none: spec, namespace, facts, settings or budget.
    Forbidden,
    /// A deletion before its notice has run.
    BeforeNotice,
    /// A notice with an earlier date than before.
    NoticeMovedEarlier,
    /// A notice of a policy that does not delete.
    NoticeOfNothing,
    /// What has been done is not what status says, such as firings, or workloads that are scaled down.
    HistoryChanged,
    /// Nothing is done, and status does not say why.
    Silent,
    /// A status that is to be written says nothing new: it would be written again and again.
    NothingNew,
    /// A status says that all is well while there is something to be done, or it is not known to be.
    ReadyTooEarly,
    /// A status or a condition is about a generation that there is not yet, or about none.
    OfAnotherGeneration,
    /// A condition, an error or an Event without a message, or with a reason that users do not see there.
    ReasonOutOfPlace,
}

/// The rules that those conditions break which a plan changes, of an object of this generation. `places`: by the type of a condition, where
/// users see its reason.
pub fn conditions(
    before: &[Condition],
    after: &[Condition],
    generation: i64,
    places: &[(&str, ReasonPlace)],
) -> Vec<PlanViolation> {
    let mut findings = Vec::new();
    for condition in after.iter().filter(|condition| !before.contains(condition)) {
        let place = places.iter().find(|(type_, _)| *type_ == condition.type_).map(|(_, place)| *place);
        let is_verdict = ["True", "False", "Unknown"].contains(&condition.status.as_str());
        if !is_verdict || !place.is_some_and(|place| is_said(&condition.reason, &condition.message, place)) {
            findings.push(PlanViolation::ReasonOutOfPlace);
        }
        // Somebody may have restored an earlier object with its status: as for `observed_generation`.
        let was_ahead =
            condition::find(before, &condition.type_).and_then(|before| before.observed_generation);
        let seen = condition.observed_generation;
        if seen.is_none_or(|about| about > generation && seen != was_ahead) {
            findings.push(PlanViolation::OfAnotherGeneration);
        }
    }
    findings
}

/// Whether there is something for people, and a reason that they see at this place.
pub fn is_said(reason: &str, message: &str, place: ReasonPlace) -> bool {
    let known = Reason::parse(reason);
    !message.trim().is_empty() && known.is_some_and(|reason| reason.places().contains(&place))
}

/// What a status is about is not ahead of the object, of this generation, unless it was before.
pub fn observed_generation(
    before: Option<i64>,
    after: Option<i64>,
    generation: i64,
) -> Option<PlanViolation> {
    let is_ahead = after.is_some_and(|seen| seen > generation) && after != before;
    is_ahead.then_some(PlanViolation::OfAnotherGeneration)
}

/// Whether a plan says that all is well, where it was not said before, or otherwise.
pub fn says_ready(before: &[Condition], after: &[Condition]) -> bool {
    let ready = condition::find(after, READY).filter(|ready| ready.status == "True");
    ready.is_some_and(|ready| !before.contains(ready))
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::PlanViolation::{OfAnotherGeneration, ReasonOutOfPlace};
    use super::*;
    use crate::condition::ConditionState;

    /// A status with one condition.
    fn only(
        type_: &str,
        status: &'static str,
        reason: &str,
        message: &str,
        generation: i64,
    ) -> Vec<Condition> {
        let state = ConditionState { status, reason: reason.to_owned(), message: message.to_owned() };
        let mut conditions = Vec::new();
        condition::set(&mut conditions, type_, state, generation, Timestamp::UNIX_EPOCH);
        conditions
    }

    /// What is found about a `Ready` that was another one before.
    fn found(status: &'static str, reason: &str, message: &str, generation: i64) -> Vec<PlanViolation> {
        let after = only(READY, status, reason, message, generation);
        assert_eq!(conditions(&after, &after, 0, &[]), [], "what was said before is not judged");
        conditions(&[], &after, 2, &[(READY, ReasonPlace::Ready)])
    }

    #[test]
    fn a_condition_has_a_verdict_a_reason_of_its_place_a_message_and_a_generation_that_there_is() {
        assert_eq!(found("True", "Reconciled", "all is well", 2), []);
        assert_eq!(found("Maybe", "Reconciled", "all is well", 2), [ReasonOutOfPlace]);
        assert_eq!(found("True", "Reconciled", " ", 2), [ReasonOutOfPlace]);
        assert_eq!(found("True", "OfAnotherVersion", "all is well", 2), [ReasonOutOfPlace]);
        assert_eq!(found("True", "Paused", "all is well", 2), []);
        assert_eq!(found("True", "ScaledDown", "all is well", 2), [ReasonOutOfPlace]);
        assert_eq!(found("True", "Reconciled", "all is well", 3), [OfAnotherGeneration]);
        let about = |generation, message| only(READY, "True", "Reconciled", message, generation);
        let restored = |before: i64, after: i64| {
            conditions(&about(before, "it was"), &about(after, "it is"), 1, &[(READY, ReasonPlace::Ready)])
        };
        assert_eq!(restored(5, 5), [], "an earlier object has its later status");
        assert_eq!(restored(5, 4), [OfAnotherGeneration]);
        let of_nobody = only("Odd", "True", "Reconciled", "all is well", 1);
        assert_eq!(conditions(&[], &of_nobody, 2, &[(READY, ReasonPlace::Ready)]), [ReasonOutOfPlace]);
    }

    #[test]
    fn a_status_is_about_no_generation_that_there_is_not_yet() {
        assert_eq!(observed_generation(None, Some(2), 2), None);
        assert_eq!(observed_generation(Some(1), Some(3), 2), Some(OfAnotherGeneration));
        assert_eq!(observed_generation(Some(3), Some(3), 2), None, "somebody has restored an earlier object");
    }

    #[test]
    fn that_all_is_well_is_said_where_it_was_not_said_so_before() {
        let of = |status, message| only(READY, status, "Reconciled", message, 1);
        assert!(
            says_ready(&[], &of("True", "so")) && says_ready(&of("True", "so"), &of("True", "otherwise"))
        );
        assert!(!says_ready(&of("True", "so"), &of("True", "so")) && !says_ready(&[], &of("False", "so")));
    }
}
