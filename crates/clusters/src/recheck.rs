//! When the credential that a Secret holds is tried out again: once a day, where it is not replaced before that, as one is that is valid for
//! weeks. Until then nobody asks the target about it.
//!
//! It is asked by that credential alone: neither the kubeconfig of the target nor an issuer is needed for it. What fails keeps the
//! credential, is said in status, and is tried again after 1 to 30 minutes.

use coppice_api::Reason;
use coppice_clusters_api::{ClusterAccessStatus, LastError};
use jiff::{SignedDuration, Timestamp};

use crate::observed::{AccessObservation, OutputFact};
use crate::plan::AccessStep;
use crate::rotation::{earlier_by_uid, later, next_rotation};
use crate::status::{complete, validity};

/// So long after it was written or tried out last, less a jitter from the uid.
const EVERY: SignedDuration = SignedDuration::from_hours(24);
/// What it may say that has failed: of everything else nothing follows from one that is valid.
const OF_THIS: [Reason; 4] =
    [Reason::VerificationFailed, Reason::TargetUnreachable, Reason::TargetThrottled, Reason::TargetRefused];

/// When that is due; none if it is not.
pub(crate) fn next(observed: &AccessObservation) -> Option<Timestamp> {
    let AccessObservation { spec, status, uid, deleting, .. } = observed;
    let validity = validity(status)?;
    let is_held = status.output.is_some() && status.intent.is_none() && status.superseded.is_empty();
    let is_of_this = |error: &LastError| {
        error.other.is_none() && OF_THIS.iter().any(|reason| reason.as_str() == error.reason)
    };
    let has_failed = status.last_error.as_ref().is_some_and(|error| !is_of_this(error));
    if *deleting || spec.suspend || !is_held || has_failed {
        return None;
    }
    let last = status.verified_at.unwrap_or(validity.not_before);
    let next = later(last, SignedDuration::from_secs(earlier_by_uid(EVERY.as_secs(), uid)));
    Some(next).filter(|next| *next < next_rotation(spec, uid, validity))
}

/// That it is tried out now, if it is due and the Secret holds what was written to it.
pub(crate) fn due(observed: &AccessObservation, now: Timestamp) -> Option<AccessStep> {
    next(observed).filter(|next| *next <= now)?;
    match (&observed.output, &observed.status.output) {
        // The Secret is read first, by who does it: whoever finds no place in the target reads nothing.
        (OutputFact::Watched(_), _) => Some(AccessStep::TryOutAgain),
        (OutputFact::Ours(found), Some(known)) if found.revision == *known => Some(AccessStep::TryOutAgain),
        _ => None,
    }
}

/// What the Secret holds was tried out again, and is valid.
pub fn tried_out_again(observed: &AccessObservation, now: Timestamp) -> ClusterAccessStatus {
    // In whole seconds, so that people can read it: a moment early.
    let at = Timestamp::from_second(now.as_second()).unwrap_or(now);
    let status = ClusterAccessStatus { verified_at: Some(at), last_error: None, ..observed.status.clone() };
    complete(observed, status, now)
}

#[cfg(test)]
mod tests {
    use coppice_api::condition::{self, READY};
    use coppice_clusters_api::cluster_access::VERIFIED;
    use coppice_clusters_api::{AccessPhase, Cause};
    use coppice_quantity::Duration;

    use super::*;
    use crate::observed::Validity;
    use crate::plan::tests::{at, saved, secret, settled};
    use crate::{failed, plan};

    const DAY: i64 = 86_400;

    /// One with a credential for so many days, which is settled.
    fn valid_for(days: i64) -> AccessObservation {
        let mut observed = settled();
        observed.spec.ttl = Duration::from_secs(days.unsigned_abs() * DAY.unsigned_abs());
        let until = Validity { not_before: at(0), not_after: at(days * DAY) };
        observed.status.not_after = Some(until.not_after);
        observed.status = complete(&observed, observed.status.clone(), at(0));
        observed
    }

    /// When it looks again, as long as nothing changes.
    fn waits_until(observed: &AccessObservation, now: Timestamp) -> Timestamp {
        let AccessStep::Wait(Some(until)) = plan(observed, now) else { panic!("{:?}", plan(observed, now)) };
        until
    }

    #[test]
    fn what_is_valid_for_weeks_is_tried_out_once_a_day_and_nothing_is_asked_before_that() {
        let mut observed = valid_for(30);
        let first = waits_until(&observed, at(1));
        assert!((at(77_760)..=at(DAY)).contains(&first), "a day, less a tenth at most: {first}");
        assert_eq!(waits_until(&observed, at(first.as_second() - 1)), first);
        assert_eq!(plan(&observed, first), AccessStep::TryOutAgain);
        observed.output = OutputFact::Ours(secret("u-1", "7"));
        assert_eq!(plan(&observed, first), AccessStep::TryOutAgain);
        observed.status = tried_out_again(&observed, first);
        assert_eq!(observed.status.verified_at, Some(first));
        let verified = condition::find(&observed.status.conditions, VERIFIED).unwrap();
        let says = format!("It was last tried out at {first}.");
        assert!(verified.status == "True" && verified.message.ends_with(&says), "{verified:?}");
        let second = waits_until(&observed, first);
        assert_eq!(second.duration_since(first), first.duration_since(at(0)));
        assert_eq!(plan(&observed, second), AccessStep::TryOutAgain);
    }

    #[test]
    fn what_is_replaced_within_a_day_is_not_tried_out_in_between() {
        let observed = settled();
        assert_eq!(next(&observed), None);
        let rotation = observed.status.next_rotation.unwrap();
        assert_eq!(plan(&observed, at(1)), AccessStep::Wait(Some(rotation)));
    }

    #[test]
    fn what_the_target_does_not_take_any_more_is_said_and_kept_and_tried_out_again() {
        let mut observed = valid_for(30);
        let now = waits_until(&observed, at(1));
        observed.status = failed(&observed, Reason::VerificationFailed, "not taken", now);
        let status = &observed.status;
        assert_eq!((status.phase, status.credential.as_deref()), (Some(AccessPhase::Degraded), Some("u-1")));
        for type_ in [READY, VERIFIED] {
            let condition = condition::find(&status.conditions, type_).unwrap();
            assert_eq!((&*condition.status, &*condition.reason), ("False", "VerificationFailed"), "{type_}");
        }
        assert!(status.held_until().is_none() && status.output.is_some() && status.intent.is_none());
        let again = waits_until(&observed, now);
        assert_eq!(again.duration_since(now), SignedDuration::from_mins(1));
        assert_eq!(plan(&observed, again), AccessStep::TryOutAgain);
        let valid = AccessObservation { status: tried_out_again(&observed, again), ..observed.clone() };
        assert_eq!((valid.status.phase, &valid.status.last_error), (Some(AccessPhase::Ready), &None));
        // Another one is issued when somebody asks for it.
        observed.spec.rotate = Some("now".to_owned());
        let begun = saved(plan(&observed, again));
        assert_eq!(begun.intent.map(|intent| intent.cause), Some(Cause::Requested));
    }

    #[test]
    fn nothing_else_that_failed_is_taken_back_by_one_that_is_valid() {
        let observed = valid_for(30);
        let now = next(&observed).unwrap();
        for reason in [Reason::NotAllowed, Reason::SecretUnusable, Reason::TargetChanged] {
            let status = failed(&observed, reason, "no", now);
            assert_eq!(next(&AccessObservation { status, ..observed.clone() }), None, "{reason}");
        }
        let deleted = AccessObservation { deleting: true, ..observed.clone() };
        assert_eq!(next(&deleted), None);
        let mut suspended = observed;
        suspended.spec.suspend = true;
        assert_eq!(next(&suspended), None);
    }
}
