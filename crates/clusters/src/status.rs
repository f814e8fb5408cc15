//! The status that follows from what was done.

use coppice_api::Reason;
use coppice_api::condition::{self, ConditionState, READY};
use coppice_clusters_api::cluster_access::{MAX_SUPERSEDED, REACHABLE, VERIFIED, WRITTEN};
use coppice_clusters_api::{AccessPhase, Cause, ClusterAccessStatus, IssueIntent, LastError, OtherError};
use jiff::Timestamp;

use crate::budget::Turn;
use crate::observed::{AccessObservation, IssueProgress, ManagedFact, OutputFact, OutputSecret, Validity};
use crate::plan::unusable;
use crate::revocation::{are_too_many, note_pending, supersede};
use crate::rights::namespaces;
use crate::rotation::{next_rotation, restored_again};
use crate::withdrawal;

/// The longest text of an error, in characters.
const MAX_MESSAGE: usize = 1024;

/// A status as everybody sees it: phase, dates and conditions follow from the rest.
pub(crate) fn complete(
    observed: &AccessObservation,
    mut status: ClusterAccessStatus,
    now: Timestamp,
) -> ClusterAccessStatus {
    let validity = validity(&status);
    if let Some(intent) = &mut status.intent {
        intent.written_until = written_until(observed, intent);
        intent.waits_until = waits_until(observed, intent);
        intent.throttled = is_throttled(observed, intent);
    }
    status.identity = observed.spec.issuer.identity(&observed.uid).or(status.identity.take());
    status.pending_revocations.retain(|pending| status.superseded.contains(&pending.credential));
    status.superseded_certificates.retain(|certificate| now < certificate.not_after);
    status.next_rotation = validity.map(|validity| next_rotation(&observed.spec, &observed.uid, validity));
    status.phase = Some(phase(&status, now));
    conditions(observed, &mut status, now);
    status
}

/// From when until when the credential of a status is valid.
pub(crate) fn validity(status: &ClusterAccessStatus) -> Option<Validity> {
    status.credential.as_ref()?;
    Some(Validity { not_before: status.not_before?, not_after: status.not_after? })
}

fn phase(status: &ClusterAccessStatus, now: Timestamp) -> AccessPhase {
    if status.revoking_since.is_some() {
        return AccessPhase::Revoking;
    }
    let refused = [
        Reason::SecretNotOurs,
        Reason::SecretUnusable,
        Reason::KubeconfigRefused,
        Reason::TargetChanged,
        Reason::ClusterDeleted,
        Reason::ProviderMissing,
        Reason::NotAllowed,
        Reason::InvalidSpec,
    ];
    match &status.last_error {
        Some(error) if refused.iter().any(|reason| reason.as_str() == error.reason) => AccessPhase::Refused,
        Some(_) => AccessPhase::Degraded,
        None if status.intent.is_some() && status.credential.is_some() => AccessPhase::Rotating,
        None if holds_valid(status, now) => AccessPhase::Ready,
        None if status.credential.is_some() => AccessPhase::Degraded,
        None => AccessPhase::Pending,
    }
}

/// Whether the Secret holds a credential that has not expired.
fn holds_valid(status: &ClusterAccessStatus, now: Timestamp) -> bool {
    status.held_until().is_some_and(|until| now < until)
}

/// Until when what the Secret holds of an intent is valid. It is written once it was tried out: what a crash left there counts, unless it
/// was tried out again and is not valid.
fn written_until(observed: &AccessObservation, intent: &IssueIntent) -> Option<Timestamp> {
    let found = match &observed.output {
        OutputFact::Watched(_) => return intent.written_until,
        OutputFact::Ours(found) if found.credential.as_ref() == Some(&intent.credential) => found,
        OutputFact::Absent | OutputFact::Foreign | OutputFact::Ours(_) => return None,
    };
    let counts = match observed.progress.of(&intent.credential) {
        None | Some(IssueProgress::Proven(_)) => true,
        Some(IssueProgress::Verified(_, sha256)) => *sha256 == found.revision.sha256,
        Some(_) => false,
    };
    found.validity.filter(|_| counts).map(|validity| validity.not_after)
}

/// Until when an intent waits for the budget of its provider, or for those that go first in its target.
fn waits_until(observed: &AccessObservation, intent: &IssueIntent) -> Option<Timestamp> {
    match observed.turn {
        Turn::Unasked => intent.waits_until.filter(|_| !observed.spec.suspend),
        Turn::Granted => None,
        Turn::NotBefore(at) | Turn::Throttled { asks_again: at, .. } => Some(whole_second_after(at)),
    }
}

/// In whole seconds, so that people can read it: a moment late.
pub(crate) fn whole_second_after(at: Timestamp) -> Timestamp {
    let second = at.as_second() + i64::from(at.subsec_nanosecond() > 0);
    Timestamp::from_second(second).unwrap_or(at)
}

/// Whether an intent waits since its cluster or garden has too many requests.
fn is_throttled(observed: &AccessObservation, intent: &IssueIntent) -> bool {
    match observed.turn {
        Turn::Unasked => intent.throttled && intent.waits_until.is_some(),
        Turn::Throttled { .. } => true,
        Turn::Granted | Turn::NotBefore(_) => false,
    }
}

/// What a credential waits for, if it does.
fn waits_for(observed: &AccessObservation, status: &ClusterAccessStatus) -> Option<String> {
    let intent = status.intent.as_ref()?;
    let until = intent.waits_until?;
    let why = match observed.spec.cluster.provider_name() {
        Some(provider) if intent.throttled => {
            format!("what ClusterProvider {provider} leads to has too many requests (429)")
        }
        Some(provider) => format!("callsPerMinute of ClusterProvider {provider} is used up"),
        None => "its target has too many requests (429)".to_owned(),
    };
    Some(format!(
        "The next credential waits, since {why}: it is asked for at {until}, or later if others are more urgent."
    ))
}

/// Reason and message of everything that failed, the most important first.
fn failures(error: &LastError) -> impl Iterator<Item = (&str, &str)> {
    let other = error.other.iter().map(|other| (other.reason.as_str(), other.message.as_str()));
    std::iter::once((error.reason.as_str(), error.message.as_str())).chain(other)
}

fn conditions(observed: &AccessObservation, status: &mut ClusterAccessStatus, now: Timestamp) {
    let all: Vec<(&str, &str)> = status.last_error.iter().flat_map(failures).collect();
    let failed = |reason: Reason| {
        let found = all.iter().find(|(of, _)| *of == reason.as_str());
        found.map(|(reason, message)| state("False", reason, message))
    };
    let is_written = status.output.is_some() || status.held_until().is_some();
    let known = |message: &str| match (&status.credential, is_written) {
        (Some(_), _) => state("True", Reason::CredentialValid.as_str(), message),
        (None, true) => {
            let message = "The Secret holds a credential, which is to be tried out again.";
            state("Unknown", Reason::NotIssued.as_str(), message)
        }
        (None, false) => state("Unknown", Reason::NotIssued.as_str(), "No credential was issued yet."),
    };
    let reachable =
        failed(Reason::TargetUnreachable).or_else(|| failed(Reason::TargetChanged)).unwrap_or_else(|| {
            known("The target's API server has answered, as the cluster that credentials were issued in.")
        });
    let verified = failed(Reason::VerificationFailed).unwrap_or_else(|| {
        let last = status.verified_at.map_or(String::new(), |at| format!(" It was last tried out at {at}."));
        known(&format!(
            "The credential permits what was asked for, and no more, as far as it was tried.{last}"
        ))
    });
    let written = if is_written {
        state("True", Reason::CredentialValid.as_str(), "The Secret holds the credential.")
    } else {
        let why =
            [Reason::SecretNotOurs, Reason::SecretUnusable, Reason::RestoredTooOften, Reason::WriteFailed];
        why.into_iter()
            .find_map(failed)
            .unwrap_or_else(|| state("False", Reason::NotIssued.as_str(), "The Secret holds no credential."))
    };
    let ready = ready(observed, status, now);
    let all = [(READY, ready), (REACHABLE, reachable), (VERIFIED, verified), (WRITTEN, written)];
    for (type_, state) in all {
        let generation = generation_of(observed, status, type_, &state);
        condition::set(&mut status.conditions, type_, state, generation, now);
    }
}

/// The generation that a condition is about: that all is well is so of the spec whose rights the target has, and not yet of a later one; and
/// of a credential only of the spec with whose rights it was tried out.
fn generation_of(
    observed: &AccessObservation,
    status: &ClusterAccessStatus,
    type_: &str,
    state: &ConditionState,
) -> i64 {
    if state.status != "True" {
        return observed.generation;
    }
    let before = condition::find(&status.conditions, type_).filter(|before| before.status == "True");
    let before = before.and_then(|before| before.observed_generation);
    let is_tried_out = type_ == VERIFIED && status.credential == observed.status.credential;
    // Rights that were taken away are those of the spec that this was said of before.
    let known = before.filter(|_| is_tried_out).or(status.observed_generation).or(before);
    known.unwrap_or(observed.generation)
}

fn ready(observed: &AccessObservation, status: &ClusterAccessStatus, now: Timestamp) -> ConditionState {
    let error = status.last_error.as_ref().map(|error| (error.reason.as_str(), message_of(error)));
    if status.revoking_since.is_some() {
        let message = error.map_or("Its credential is being revoked.".to_owned(), |(_, message)| message);
        return state("False", Reason::Revoking.as_str(), &message);
    }
    let waits = waits_for(observed, status);
    let after = waits.as_ref().map_or(String::new(), |waits| format!(" {waits}"));
    match (status.held_until(), error) {
        (Some(until), None) if now < until => {
            let last = status.superseded_certificates.iter().map(|before| before.not_after).max();
            let before = last.map_or(String::new(), |last| {
                format!(" Those before it cannot be revoked: the last one expires at {last}.")
            });
            let message =
                format!("The Secret holds a credential that is valid until {until}.{before}{after}");
            state("True", Reason::CredentialValid.as_str(), &message)
        }
        (Some(until), Some((_, why))) if now < until => {
            let message = format!("The credential in the Secret is valid until {until}; {why}");
            state("True", Reason::CredentialValid.as_str(), &message)
        }
        (_, Some((reason, message))) => state("False", reason, &message),
        (Some(until), None) => {
            let message = format!("The credential in the Secret expired at {until}.{after}");
            state("False", Reason::CredentialExpired.as_str(), &message)
        }
        _ if observed.spec.suspend => {
            state("False", Reason::Suspended.as_str(), "spec.suspend is true: no credential is issued.")
        }
        _ => {
            if let ManagedFact::Waits(why) = &observed.managed {
                return state("False", Reason::ClusterNotReady.as_str(), &why.to_string());
            }
            let message = waits.as_deref().unwrap_or("A credential is being issued.");
            state("False", Reason::NotIssued.as_str(), message)
        }
    }
}

/// What a status says about everything that failed.
fn message_of(error: &LastError) -> String {
    failures(error).map(|(_, message)| message).collect::<Vec<_>>().join("; besides, ")
}

fn state(status: &'static str, reason: &str, message: &str) -> ConditionState {
    ConditionState { status, reason: reason.to_owned(), message: message.to_owned() }
}

/// What is about to be issued, and why.
pub(crate) fn begun(observed: &AccessObservation, cause: Cause, now: Timestamp) -> ClusterAccessStatus {
    let mut status = observed.status.clone();
    status.sequence += 1;
    status.intent = Some(IssueIntent {
        credential: format!("{}-{}", observed.uid, status.sequence),
        cause,
        since: now,
        rotate: observed.spec.rotate.clone(),
        written_until: None,
        waits_until: None,
        throttled: false,
    });
    if cause == Cause::Lost {
        status.output = None;
        status.restored = Some(restored_again(status.restored.as_ref(), now));
    }
    status.last_error = None;
    complete(observed, status, now)
}

/// The Secret holds the credential of the intent, which was tried out, with this address and these authorities. That before it is to be
/// revoked, or is listed until it expires if it cannot be.
pub fn adopted(
    observed: &AccessObservation,
    intent: &IssueIntent,
    (output, validity): (&OutputSecret, Validity),
    endpoint: &str,
    now: Timestamp,
) -> ClusterAccessStatus {
    let mut status = observed.status.clone();
    supersede(observed, &mut status, now);
    status.credential = Some(intent.credential.clone());
    (status.not_before, status.not_after) = (Some(validity.not_before), Some(validity.not_after));
    (status.output, status.verified_at) = (Some(output.revision.clone()), None);
    status.rotated.clone_from(&intent.rotate);
    if observed.spec.issuer.is_of_garden() {
        status.identity.clone_from(&observed.user_name);
    }
    // Rights in any other were removed when those of this generation were applied, which came before.
    status.namespaces = Some(namespaces(&observed.spec.rights).into_iter().collect());
    if let Some(target) = &mut status.target {
        endpoint.clone_into(&mut target.endpoint);
    }
    (status.intent, status.last_error) = (None, None);
    complete(observed, status, now)
}

/// The target has the rights of this generation of the spec.
pub fn rights_applied(observed: &AccessObservation, now: Timestamp) -> ClusterAccessStatus {
    let status = ClusterAccessStatus {
        observed_generation: Some(observed.generation),
        last_error: None,
        ..observed.status.clone()
    };
    complete(observed, status, now)
}

/// A superseded credential is not valid any more.
pub fn revoked(observed: &AccessObservation, credential: &str, now: Timestamp) -> ClusterAccessStatus {
    let mut status = observed.status.clone();
    status.superseded.retain(|superseded| superseded != credential);
    status.last_error = None;
    complete(observed, status, now)
}

/// A step failed: it is tried again later, and what the Secret holds stays.
pub fn failed(
    observed: &AccessObservation,
    reason: Reason,
    message: &str,
    now: Timestamp,
) -> ClusterAccessStatus {
    let mut status = observed.status.clone();
    let before = status.last_error.as_ref().filter(|error| error.generation == observed.generation);
    let attempts = before.map_or(0, |error| error.attempts).saturating_add(1);
    // What another reason says about the target or the Secret is not hidden by it.
    let full = reason == Reason::TargetRefused && !observed.deleting && are_too_many(&status, now);
    let (reason, message) = if full {
        let full =
            "credentials wait to be revoked, and no other is issued until one of them is, or has expired";
        (Reason::TooManySuperseded, format!("{MAX_SUPERSEDED} {full}: {message}"))
    } else {
        (reason, message.to_owned())
    };
    // While the Secret cannot be written, that is what somebody has to change first: what fails beside it does not hide it.
    // The same of what is not allowed any more.
    let first = unusable(observed).or_else(|| withdrawal::first(observed, now));
    let first = first.filter(|(first, _)| *first != reason && !observed.deleting);
    let (reason, message, other) = match first {
        Some((first, why)) => {
            (first, why, Some(OtherError { reason: reason.to_string(), message: cut(&message) }))
        }
        None => (reason, message, None),
    };
    if !holds_the_same(observed) {
        status.output = None;
    }
    note_pending(&mut status, now);
    status.last_error = Some(LastError {
        reason: reason.to_string(),
        message: cut(&message),
        generation: observed.generation,
        attempts,
        at: now,
        other,
    });
    complete(observed, status, now)
}

fn cut(message: &str) -> String {
    message.chars().take(MAX_MESSAGE).collect()
}

/// Whether the Secret holds what status says, as far as it was read.
fn holds_the_same(observed: &AccessObservation) -> bool {
    match (&observed.output, &observed.status.output) {
        (OutputFact::Watched(_), _) => true,
        (OutputFact::Ours(found), Some(known)) => found.revision.sha256 == known.sha256,
        _ => false,
    }
}

#[cfg(test)]
#[path = "status_tests.rs"]
mod tests;
