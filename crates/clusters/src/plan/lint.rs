//! What holds for every step of a `ClusterAccess`, by what the step looks like ([`coppice_api::lint`]). Builds with debug assertions check
//! every step that they plan.

use coppice_api::condition::{self, READY};
use coppice_api::lint::{self, PlanViolation};
use coppice_api::reason::ReasonPlace;
use coppice_clusters_api::ClusterAccessStatus;
use coppice_clusters_api::cluster_access::{MAX_CERTIFICATES, MAX_SUPERSEDED, REACHABLE, VERIFIED, WRITTEN};
use jiff::Timestamp;

use super::AccessStep;
use crate::budget::Turn;
use crate::observed::{AccessObservation, ClusterFact, IssueProgress, KubeconfigFact, OutputFact, Progress};
use crate::provider::{GrantVerdict, Permission};
use crate::revocation::are_too_many;
use crate::rights::namespaces;
use crate::status::validity;

/// Where users see the reason of each condition.
const PLACES: [(&str, ReasonPlace); 4] = [
    (READY, ReasonPlace::Access),
    (REACHABLE, ReasonPlace::Access),
    (VERIFIED, ReasonPlace::Access),
    (WRITTEN, ReasonPlace::Access),
];

/// The rules that this step breaks; [`plan`](super::plan) breaks none.
pub(super) fn lint(observed: &AccessObservation, step: &AccessStep, now: Timestamp) -> Vec<PlanViolation> {
    if coppice_mutants::any_active() {
        // A bug on purpose is to be found by what the program does.
        return Vec::new();
    }
    let mut findings = match step {
        AccessStep::SaveStatus(status) => saved(observed, status, now),
        step => when(!is_allowed(observed, step, now), PlanViolation::Forbidden),
    };
    // It is done in the cluster that status names.
    let (target, known) = (&observed.target, &observed.status.target);
    let is_same =
        target.as_ref().is_some_and(|found| known.as_ref().is_some_and(|known| known.uid == found.uid));
    let is_asked = target.is_some() && *step == AccessStep::FindAccount;
    findings.extend(when(step.is_in_target() && !is_same && !is_asked, PlanViolation::NoPrecondition));
    findings.extend(when(!is_written(observed, step), PlanViolation::StepWithoutIntent));
    findings
}

/// The rule that is broken, if it is.
pub(crate) fn when(is: bool, violation: PlanViolation) -> Vec<PlanViolation> {
    if is { vec![violation] } else { Vec::new() }
}

/// Whether status says what the step is for, before it is taken.
fn is_written(observed: &AccessObservation, step: &AccessStep) -> bool {
    let status = &observed.status;
    let is_intent =
        |credential: &str| status.intent.as_ref().is_some_and(|intent| intent.credential == credential);
    match step {
        AccessStep::Request { credential }
        | AccessStep::Issue { credential }
        | AccessStep::Verify { credential }
        | AccessStep::VerifyWritten { credential } => is_intent(credential),
        AccessStep::WriteOutput { credential, .. } => {
            let is_verified = matches!(observed.progress.of(credential), Some(IssueProgress::Verified(..)));
            is_intent(credential) && is_verified
        }
        AccessStep::Revoke { credential } => {
            status.superseded.contains(credential) && status.credential.as_ref() != Some(credential)
        }
        AccessStep::ApplyRights => {
            let all = namespaces(&observed.spec.rights);
            status.namespaces.as_ref().is_none_or(|known| all.iter().all(|one| known.contains(one)))
        }
        AccessStep::RevokeAll if observed.deleting => status.revoking_since.is_some(),
        AccessStep::RemoveFinalizer { skipped: true } => status.last_error.is_some(),
        _ => true,
    }
}

/// Whether nothing that is known says that there is no such step.
fn is_allowed(observed: &AccessObservation, step: &AccessStep, now: Timestamp) -> bool {
    let AccessObservation { deleting, has_finalizer, spec, status, .. } = observed;
    // What is given is allowed by whoever keeps the kubeconfig, and nothing is given that nobody would revoke.
    let (has_provider, is_kept) = (spec.cluster.provider_name().is_some(), *has_finalizer && !deleting);
    let is_permitted = !has_provider || observed.permission == Permission::Allowed;
    match step {
        AccessStep::Wait(_) | AccessStep::SaveStatus(_) | AccessStep::FindAccount => true,
        AccessStep::AddFinalizer => !has_finalizer && !deleting,
        AccessStep::Request { .. } | AccessStep::Issue { .. } | AccessStep::Verify { .. } => {
            is_kept && is_permitted && !spec.suspend
        }
        AccessStep::WriteOutput { on, .. } => {
            // Nothing is written over that was not made for it, or that it does not name.
            let is_ours = match &observed.output {
                OutputFact::Absent => on.is_none(),
                OutputFact::Ours(found) => found.obstacle.is_none() && on.as_ref() == Some(&found.revision),
                OutputFact::Watched(_) | OutputFact::Foreign => false,
            };
            is_kept && is_permitted && !spec.suspend && is_ours
        }
        AccessStep::VerifyWritten { .. } => is_kept && matches!(observed.output, OutputFact::Ours(_)),
        AccessStep::ApplyRights => is_kept && (is_permitted || observed.narrows),
        // Unknown is no verdict.
        AccessStep::FindRights => has_provider && observed.grant == GrantVerdict::Unknown,
        AccessStep::TakeRights => has_provider && observed.grant == GrantVerdict::RightsNotAllowed,
        AccessStep::Revoke { .. } => !deleting,
        AccessStep::RevokeAll => *deleting || status.revokes_at.is_some_and(|at| at <= now),
        AccessStep::RemoveRights => *deleting && observed.progress == Progress::AllRevoked,
        AccessStep::DeleteOutput(revision) => {
            let is_read = matches!(&observed.output, OutputFact::Ours(found) if found.revision == *revision);
            *deleting && is_read
        }
        AccessStep::RemoveFinalizer { skipped } => *deleting && *has_finalizer && is_over(observed, *skipped),
        AccessStep::TryOutAgain => !deleting && !spec.suspend && status.output.is_some(),
        // What was read is not read again.
        AccessStep::ReadKubeconfig => observed.kubeconfig == KubeconfigFact::Unread,
        AccessStep::ReadOutput => matches!(observed.output, OutputFact::Watched(_)),
        AccessStep::ReadCluster => observed.cluster == ClusterFact::Unread,
        AccessStep::ReadProvider => {
            observed.permission == Permission::Unread || observed.grant == GrantVerdict::Unread
        }
        AccessStep::TakeTurn => observed.turn == Turn::Unasked,
        AccessStep::Identify => observed.target.is_none(),
    }
}

/// Whether nothing is left of one that is being deleted: neither the Secret, nor anything in the target, unless that is skipped.
fn is_over(observed: &AccessObservation, skipped: bool) -> bool {
    let is_gone = matches!(observed.output, OutputFact::Absent | OutputFact::Foreign);
    let has_nothing = !observed.status.has_touched_target()
        || observed.spec.issuer.is_of_garden()
        || observed.progress == Progress::RightsRemoved;
    is_gone && (has_nothing || skipped)
}

/// A status says something new, is about the spec that there is, and forgets nothing that may be valid.
fn saved(observed: &AccessObservation, after: &ClusterAccessStatus, now: Timestamp) -> Vec<PlanViolation> {
    let (before, generation) = (&observed.status, observed.generation);
    let mut findings = lint::conditions(&before.conditions, &after.conditions, generation, &PLACES);
    findings.extend(when(after == before, PlanViolation::NothingNew));
    let seen = (before.observed_generation, after.observed_generation);
    findings.extend(lint::observed_generation(seen.0, seen.1, generation));
    let says_ready = condition::find(&after.conditions, READY).is_some_and(|ready| ready.status == "True");
    let is_held = after.held_until().is_some_and(|until| now < until) && after.revoking_since.is_none();
    findings.extend(when(says_ready && !is_held, PlanViolation::ReadyTooEarly));
    let place = ReasonPlace::Access;
    let is_said = after.last_error.as_ref().is_none_or(|error| {
        let other = error.other.as_ref().map(|other| (&other.reason, &other.message));
        let mut all = std::iter::once((&error.reason, &error.message)).chain(other);
        after.last_error == before.last_error
            || all.all(|(reason, message)| lint::is_said(reason, message, place))
    });
    findings.extend(when(!is_said, PlanViolation::ReasonOutOfPlace));
    findings.extend(when(!is_explained(observed, after, now), PlanViolation::Unexplained));
    findings.extend(when(forgets(observed, after, now), PlanViolation::HistoryChanged));
    findings
}

/// Whether a credential that is begun has the next number, and may be issued.
fn is_explained(observed: &AccessObservation, after: &ClusterAccessStatus, now: Timestamp) -> bool {
    let before = &observed.status;
    let begun = |status: &ClusterAccessStatus| status.intent.as_ref().map(|intent| intent.credential.clone());
    let Some(credential) = begun(after).filter(|_| begun(after) != begun(before)) else { return true };
    let is_permitted =
        observed.spec.cluster.provider_name().is_none() || observed.permission == Permission::Allowed;
    after.sequence == before.sequence + 1
        && credential == format!("{}-{}", observed.uid, after.sequence)
        && is_permitted
        && observed.has_finalizer
        && !observed.deleting
        && !observed.spec.suspend
        && !are_too_many(before, now)
}

/// Whether something is lost of what was done: the target, or a credential that may be valid and was not revoked.
fn forgets(observed: &AccessObservation, after: &ClusterAccessStatus, now: Timestamp) -> bool {
    let before = &observed.status;
    let uid = |status: &ClusterAccessStatus| status.target.as_ref().map(|target| target.uid.clone());
    let is_moved = before.target.is_some() && uid(before) != uid(after);
    if observed.progress == Progress::AllRevoked {
        return is_moved;
    }
    let is_known = |credential: &String| {
        let listed = after.superseded_certificates.iter().any(|listed| listed.credential == *credential);
        after.superseded.contains(credential) || listed
    };
    // Of as many as may be listed one goes that has expired, or expires first.
    let (tokens, certificates) = (before.superseded.len(), before.superseded_certificates.len());
    let has_room = tokens < MAX_SUPERSEDED && certificates < MAX_CERTIFICATES;
    let is_valid = validity(before).is_some_and(|validity| now < validity.not_after);
    let replaced = before.credential.iter().filter(|_| is_valid && before.credential != after.credential);
    is_moved || has_room && !before.superseded.iter().chain(replaced).all(is_known)
}
