//! What is taken away of what was given, once a `ClusterProvider` does not allow it any more.
//!
//! The rights go at once, the credential after a pause in which a mistake can be put right: by then nobody needs another one. What is not
//! known is no verdict: where the provider is gone or cannot be read nothing is taken away.

use coppice_api::Reason;
use coppice_clusters_api::ClusterAccessStatus;
use jiff::{SignedDuration, Timestamp};

use crate::observed::{AccessObservation, Progress};
use crate::plan::{AccessStep, is_of_this_spec, not_allowed, save};
use crate::provider::{GrantVerdict, Permission, valid_until};
use crate::rotation::later;
use crate::status::{complete, failed};

/// For so long a credential is kept that is not allowed any more.
const KEPT_FOR: SignedDuration = SignedDuration::from_mins(10);

/// What comes before other rights are applied: they are allowed, or only take some away of those that the target is known to have. These
/// wait for nothing.
pub(crate) fn before_rights(observed: &AccessObservation, now: Timestamp) -> Option<AccessStep> {
    let is_known = matches!(
        observed.grant,
        GrantVerdict::Allowed | GrantVerdict::CredentialNotAllowed | GrantVerdict::RightsNotAllowed
    );
    if refused(observed).is_some() && is_known && observed.narrows {
        return None;
    }
    no_longer_allowed(observed, now).or_else(|| not_allowed(observed, now))
}

/// What is to be done since what was given is not allowed any more, or is again; none if nothing is now.
pub(crate) fn no_longer_allowed(observed: &AccessObservation, now: Timestamp) -> Option<AccessStep> {
    observed.spec.cluster.provider_name()?;
    match observed.grant {
        GrantVerdict::Settled => return None,
        GrantVerdict::Unread => return Some(AccessStep::ReadProvider),
        _ if observed.permission == Permission::Allowed => return allowed_again(observed, now),
        _ => {}
    }
    let message = refused(observed)?;
    match observed.grant {
        GrantVerdict::Unknown => return Some(AccessStep::FindRights),
        GrantVerdict::RightsNotAllowed => return Some(AccessStep::TakeRights),
        _ => {}
    }
    let is_to_go = is_credential_to_go(observed);
    match observed.status.revokes_at {
        None if is_to_go => {
            let status = ClusterAccessStatus { revokes_at: Some(kept_until(now)), ..observed.status.clone() };
            return Some(says_refused(observed, status, message, now));
        }
        Some(_) if !is_to_go => {
            let status = ClusterAccessStatus { revokes_at: None, ..observed.status.clone() };
            return Some(says_refused(observed, status, message, now));
        }
        Some(at) if at <= now && observed.progress == Progress::AllRevoked => {
            return Some(says_refused(observed, without_credential(observed), message, now));
        }
        Some(at) if at <= now => return Some(AccessStep::RevokeAll),
        _ => {}
    }
    let message_of_now = refusal(observed, message, now);
    (!is_said(observed, Reason::NotAllowed, &message_of_now))
        .then(|| says_refused(observed, observed.status.clone(), message, now))
}

/// The same while something else that failed is tried again later: that keeps nothing that is withdrawn. What failed of the withdrawal itself
/// waits as everything else does.
pub(crate) fn withdrawn_meanwhile(observed: &AccessObservation, now: Timestamp) -> Option<AccessStep> {
    let status = &observed.status;
    let error = status.last_error.as_ref().filter(|_| status.sequence > 0)?;
    let is_to_look = observed.grant == GrantVerdict::Unread || first(observed, now).is_some();
    // It is said beside what is said of the Secret.
    let was_tried = error.reason == Reason::NotAllowed.as_str() || error.other.is_some();
    if !is_to_look || was_tried {
        return None;
    }
    no_longer_allowed(observed, now)
}

/// The target has no rights for it any more, since they are not allowed.
pub fn rights_taken(observed: &AccessObservation, now: Timestamp) -> ClusterAccessStatus {
    let status = ClusterAccessStatus { observed_generation: None, ..observed.status.clone() };
    let mut taken = AccessObservation { status, ..observed.clone() };
    if is_credential_to_go(&taken) && taken.status.revokes_at.is_none() {
        taken.status.revokes_at = Some(kept_until(now));
    }
    let message = refused(observed).unwrap_or("its rights are not allowed any more");
    failed(&taken, Reason::NotAllowed, &refusal(&taken, message, now), now)
}

/// What is said first of a step that failed: that what was given is not allowed any more, which hides nothing else.
pub(crate) fn first(observed: &AccessObservation, now: Timestamp) -> Option<(Reason, String)> {
    let is_to_go = matches!(
        observed.grant,
        GrantVerdict::Unknown | GrantVerdict::RightsNotAllowed | GrantVerdict::CredentialNotAllowed
    );
    let message = refused(observed).filter(|_| is_to_go)?;
    Some((Reason::NotAllowed, refusal(observed, message, now)))
}

/// Whether status says that of this spec.
pub(crate) fn is_said(observed: &AccessObservation, reason: Reason, message: &str) -> bool {
    observed.status.last_error.as_ref().is_some_and(|error| {
        let other = error.other.as_ref().map(|other| (&other.reason, &other.message));
        let mut all = std::iter::once((&error.reason, &error.message)).chain(other);
        is_of_this_spec(observed, error)
            && all.any(|(of, said)| of == reason.as_str() && message.starts_with(said.as_str()))
    })
}

/// Why something is not allowed, and what becomes of what was issued.
pub(crate) fn refusal(observed: &AccessObservation, message: &str, now: Timestamp) -> String {
    let status = &observed.status;
    if let Some(at) = status.revokes_at {
        return format!("{message}; what was issued is revoked at {at}, unless it is allowed by then");
    }
    let is_kept = !observed.spec.issuer.is_revocable();
    match valid_until(status).filter(|until| is_kept && now < *until) {
        Some(until) => {
            format!("{message}; what was issued cannot be revoked: the last certificate expires at {until}")
        }
        None => message.to_owned(),
    }
}

/// Why its provider does not allow what it asks for, if it is there and says so.
fn refused(observed: &AccessObservation) -> Option<&str> {
    match &observed.permission {
        Permission::Refused(Reason::NotAllowed, message) => Some(message),
        _ => None,
    }
}

/// Whether somebody may have a credential that can be revoked, and is not allowed, or has lost its rights.
fn is_credential_to_go(observed: &AccessObservation) -> bool {
    let status = &observed.status;
    let left_by_crash = status.intent.as_ref().and_then(|intent| intent.written_until);
    let has_one = status.credential.is_some() || !status.superseded.is_empty() || left_by_crash.is_some();
    let is_to_go =
        observed.grant == GrantVerdict::CredentialNotAllowed || status.observed_generation.is_none();
    observed.spec.issuer.is_revocable() && has_one && is_to_go
}

/// In whole seconds, so that people can read it.
fn kept_until(now: Timestamp) -> Timestamp {
    let at = later(now, KEPT_FOR);
    Timestamp::from_second(at.as_second()).unwrap_or(at)
}

fn says_refused(
    observed: &AccessObservation,
    status: ClusterAccessStatus,
    message: &str,
    now: Timestamp,
) -> AccessStep {
    let observed = AccessObservation { status, ..observed.clone() };
    save(failed(&observed, Reason::NotAllowed, &refusal(&observed, message, now), now))
}

/// Nothing that was issued is valid any more. The Secret holds what it held.
fn without_credential(observed: &AccessObservation) -> ClusterAccessStatus {
    ClusterAccessStatus {
        credential: None,
        not_before: None,
        not_after: None,
        verified_at: None,
        output: None,
        intent: None,
        superseded: Vec::new(),
        revokes_at: None,
        ..observed.status.clone()
    }
}

/// What status says of that is over.
fn allowed_again(observed: &AccessObservation, now: Timestamp) -> Option<AccessStep> {
    let status = &observed.status;
    let was_refused =
        status.last_error.as_ref().is_some_and(|error| error.reason == Reason::NotAllowed.as_str());
    if !was_refused && status.revokes_at.is_none() {
        return None;
    }
    let last_error = status.last_error.clone().filter(|_| !was_refused);
    let status = ClusterAccessStatus { revokes_at: None, last_error, ..status.clone() };
    Some(save(complete(observed, status, now)))
}

#[cfg(test)]
#[path = "withdrawal_tests.rs"]
mod tests;
