//! The one next step for a `ClusterAccess`, from whatever state there is.
//!
//! The order is what makes it safe to end anywhere: an intent with the id of the credential is durable before anything is done for it;
//! a credential is tried out before it is written; the one before is revoked once the Secret holds the new one and status says so.
//! After a crash an intent is taken up again: what the Secret holds of it is tried out, or else its credential is made again, bound to
//! another Secret in the target, so that what was issued for it before is not valid.

use coppice_api::Reason;
use coppice_clusters_api::{Cause, ClusterAccessStatus, IssueIntent, OutputRevision};
use jiff::Timestamp;

use crate::observed::{IssueProgress, Observed, OutputFact, OutputSecret, Progress, Validity};
use crate::rotation::{later, next_attempt, next_rotation};
use crate::status::{self, begun, complete, failed, validity};

/// What is done next.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Nothing until then; without a date, until something changes.
    Wait(Option<Timestamp>),
    /// Put our finalizer on it: nothing is issued that nobody would revoke.
    AddFinalizer,
    /// Save this status.
    SaveStatus(Box<ClusterAccessStatus>),
    /// Read the Secret from the API server.
    ReadOutput,
    /// Apply the service account, the role and the bindings in the target, and remove those that it is not to have any more.
    ApplyRights,
    /// Make the Secret in the target that the credential will be bound to; one of that name is deleted first.
    Bind {
        /// The credential.
        credential: String,
    },
    /// Have a token issued that is bound to that Secret.
    RequestToken {
        /// The credential.
        credential: String,
    },
    /// Try the token out.
    Verify {
        /// The credential.
        credential: String,
    },
    /// Write the kubeconfig into the Secret, in one request, on the revision that was read; without one it is created.
    WriteOutput {
        /// The credential.
        credential: String,
        /// From when until when it is valid.
        validity: Validity,
        /// The revision.
        on: Option<OutputRevision>,
    },
    /// Try out what the Secret holds.
    VerifyWritten {
        /// The credential that it is to be.
        credential: String,
    },
    /// Delete the Secret in the target that a superseded credential is bound to.
    Revoke {
        /// The credential.
        credential: String,
    },
    /// Delete every such Secret of this `ClusterAccess`.
    RevokeAll,
    /// Delete its bindings, its role and its service account in the target.
    RemoveRights,
    /// Delete the Secret with the kubeconfig, as it was read.
    DeleteOutput(OutputRevision),
    /// Take our finalizer off.
    RemoveFinalizer {
        /// Whether nothing was revoked, since the target could not be reached for too long.
        skipped: bool,
    },
}

/// What is done next.
pub fn plan(observed: &Observed, now: Timestamp) -> Step {
    if observed.deleting { deletion(observed, now) } else { upkeep(observed, now) }
}

fn upkeep(observed: &Observed, now: Timestamp) -> Step {
    let status = &observed.status;
    if observed.spec.suspend || waits_until(observed, now).is_some() {
        return rest(observed, now);
    }
    if !observed.has_finalizer {
        return Step::AddFinalizer;
    }
    if let Some(intent) = &status.intent {
        return issue(observed, intent, now);
    }
    match cause(observed, now) {
        Err(step) => return *step,
        Ok(Some(cause)) => return save(begun(observed, cause, now)),
        Ok(None) => {}
    }
    if let Some(credential) = status.superseded.first() {
        return Step::Revoke { credential: credential.clone() };
    }
    if status.observed_generation != Some(observed.generation) {
        return match observed.progress {
            Progress::RightsApplied => save(status::rights_applied(observed, now)),
            _ => Step::ApplyRights,
        };
    }
    rest(observed, now)
}

fn save(status: ClusterAccessStatus) -> Step {
    Step::SaveStatus(Box::new(status))
}

/// Until when nothing is tried again.
fn waits_until(observed: &Observed, now: Timestamp) -> Option<Timestamp> {
    let error = observed.status.last_error.as_ref()?;
    let next = next_attempt(error);
    (error.generation == observed.generation && now < next).then_some(next)
}

/// Nothing to do: the status says how things are, and when to look again.
fn rest(observed: &Observed, now: Timestamp) -> Step {
    let status = complete(observed, observed.status.clone(), now);
    if status != observed.status {
        return save(status);
    }
    let expiry = status.not_after.filter(|at| *at > now);
    if observed.spec.suspend {
        return Step::Wait(expiry);
    }
    let rotation = status.next_rotation.filter(|at| *at > now);
    Step::Wait([waits_until(observed, now), rotation, expiry].into_iter().flatten().min())
}

/// Why another credential is to be issued; none if the Secret holds what it is to hold. `Err`: what has to be done to know it.
fn cause(observed: &Observed, now: Timestamp) -> Result<Option<Cause>, Box<Step>> {
    let (spec, status) = (&observed.spec, &observed.status);
    let intact = is_intact(observed, now)?;
    let Some(validity) = validity(status) else { return Ok(Some(Cause::First)) };
    if !intact {
        return Ok(Some(Cause::Lost));
    }
    if spec.rotate.is_some() && spec.rotate != status.rotated {
        return Ok(Some(Cause::Requested));
    }
    Ok((next_rotation(spec, &observed.uid, validity) <= now).then_some(Cause::Due))
}

/// Whether the Secret holds what was written to it.
fn is_intact(observed: &Observed, now: Timestamp) -> Result<bool, Box<Step>> {
    match (&observed.output, &observed.status.output) {
        (OutputFact::Watched(Some((uid, revision))), Some(known))
            if *uid == known.uid && *revision == known.resource_version =>
        {
            Ok(true)
        }
        (OutputFact::Watched(_), _) => Err(Box::new(Step::ReadOutput)),
        (OutputFact::Foreign, _) => Err(Box::new(not_ours(observed, now))),
        (OutputFact::Ours(found), Some(known)) if found.revision == *known => Ok(true),
        (OutputFact::Ours(found), Some(known)) if found.revision.sha256 == known.sha256 => {
            // Its metadata was changed.
            let output = Some(found.revision.clone());
            let status = ClusterAccessStatus { output, ..observed.status.clone() };
            Err(Box::new(save(complete(observed, status, now))))
        }
        (OutputFact::Absent | OutputFact::Ours(_), _) => Ok(false),
    }
}

fn not_ours(observed: &Observed, now: Timestamp) -> Step {
    let message = format!(
        "the Secret {} was not made for this ClusterAccess and is left as it is: delete it, or write the name of another one into a new ClusterAccess",
        observed.spec.output.secret
    );
    save(failed(observed, Reason::SecretNotOurs, &message, now))
}

/// The next step for a credential that is being issued.
fn issue(observed: &Observed, intent: &IssueIntent, now: Timestamp) -> Step {
    let on = match &observed.output {
        OutputFact::Watched(_) => return Step::ReadOutput,
        OutputFact::Foreign => return not_ours(observed, now),
        OutputFact::Absent => None,
        OutputFact::Ours(found) => {
            if let Some(step) = written(observed, intent, found, now) {
                return step;
            }
            Some(found.revision.clone())
        }
    };
    let credential = intent.credential.clone();
    match (observed.progress.of(&credential), &observed.progress) {
        (Some(IssueProgress::Bound), _) => Step::RequestToken { credential },
        (Some(IssueProgress::Issued(_)), _) => Step::Verify { credential },
        (Some(IssueProgress::Verified(validity, _)), _) => {
            Step::WriteOutput { credential, validity: *validity, on }
        }
        (None, Progress::RightsApplied) => Step::Bind { credential },
        _ => Step::ApplyRights,
    }
}

/// The next step where the Secret holds a value for the credential that is being issued; none if that value is not valid.
fn written(observed: &Observed, intent: &IssueIntent, found: &OutputSecret, now: Timestamp) -> Option<Step> {
    if found.credential.as_ref() != Some(&intent.credential) {
        return None;
    }
    let adopt = |validity, rights| save(status::adopted(observed, intent, (found, validity), rights, now));
    match (observed.progress.of(&intent.credential), found.validity) {
        // With rights applied it was disproven before.
        (None, Some(_)) if observed.progress != Progress::RightsApplied => {
            Some(Step::VerifyWritten { credential: intent.credential.clone() })
        }
        (Some(IssueProgress::Proven), Some(validity)) => Some(adopt(validity, false)),
        (Some(IssueProgress::Verified(validity, sha256)), _) if *sha256 == found.revision.sha256 => {
            Some(adopt(*validity, true))
        }
        _ => None,
    }
}

/// The next step for a `ClusterAccess` that is being deleted: revoke, remove the rights, delete the Secret.
fn deletion(observed: &Observed, now: Timestamp) -> Step {
    let status = &observed.status;
    if !observed.has_finalizer {
        return Step::Wait(None);
    }
    let Some(since) = status.revoking_since else {
        let status = ClusterAccessStatus { revoking_since: Some(now), last_error: None, ..status.clone() };
        return save(complete(observed, status, now));
    };
    let forgotten_at =
        later(since, jiff::SignedDuration::from_secs(observed.spec.forget_after.as_secs_i64()));
    let skipped = status.last_error.is_some() && now >= forgotten_at;
    // Without an intent nothing was ever done in the target.
    if status.sequence > 0 && !skipped {
        if let Some(next) = waits_until(observed, now) {
            return Step::Wait(Some(next.min(forgotten_at)));
        }
        match observed.progress {
            Progress::RightsRemoved => {}
            Progress::AllRevoked => return Step::RemoveRights,
            _ => return Step::RevokeAll,
        }
    }
    match &observed.output {
        OutputFact::Watched(_) => Step::ReadOutput,
        OutputFact::Ours(found) => Step::DeleteOutput(found.revision.clone()),
        OutputFact::Absent | OutputFact::Foreign => Step::RemoveFinalizer { skipped },
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
pub(crate) mod tests;
