//! The one next step for a `ClusterAccess`, from whatever state there is.
//!
//! The order is what makes it safe to end anywhere: which cluster the target is, and an intent with the id of the credential, are
//! durable before anything is done for it; a credential is tried out before it is written; the one before is revoked once the Secret
//! holds the new one and status says so. After a crash an intent is taken up again: what the Secret holds of it is tried out, or else
//! its credential is made again. A token is then bound to another Secret in the target, so that what was issued for it before is not
//! valid; of a certificate that got lost nobody has the key.
//!
//! What takes something away in the target, narrower rights and revocations, waits for nothing that keeps credentials from being
//! issued.

pub(crate) mod lint;
mod step;

use coppice_api::Reason;
use coppice_clusters_api::cluster_access::MAX_NAMESPACES;
use coppice_clusters_api::{Cause, ClusterAccessStatus, IssueIntent, LastError};
use jiff::{SignedDuration, Timestamp};

pub use self::step::AccessStep;
use crate::budget::Turn;
use crate::observed::{
    AccessObservation, IssueProgress, KubeconfigFact, Obstacle, OutputFact, OutputSecret, Progress,
};
use crate::provider::Permission;
use crate::recheck;
use crate::revocation::{are_too_many, revoke_superseded};
use crate::rights::namespaces;
use crate::rotation::{is_newly_due, next_attempt, next_restoration, next_rotation, revocation_deadline};
use crate::source::{cluster_goes, is_no_longer_refused, names_cluster, not_ready};
use crate::status::{self, begun, complete, failed, validity};
use crate::withdrawal::{before_rights, is_said, no_longer_allowed, refusal, withdrawn_meanwhile};

/// What is done next.
pub fn plan(observed: &AccessObservation, now: Timestamp) -> AccessStep {
    let step = next(observed, now);
    debug_assert_eq!(lint::lint(observed, &step, now), Vec::new(), "{step:?}");
    step
}

fn next(observed: &AccessObservation, now: Timestamp) -> AccessStep {
    let step = if observed.deleting { deletion(observed, now) } else { upkeep(observed, now) };
    if !step.is_in_target() {
        return step;
    }
    let before = not_yet_in_target(observed, now);
    let before =
        before.or_else(|| names_namespaces(observed, now).filter(|_| step == AccessStep::ApplyRights));
    before.unwrap_or(step)
}

/// What comes before rights are applied: status names each namespace that they will be in, since they are looked for nowhere else when they
/// are to go.
fn names_namespaces(observed: &AccessObservation, now: Timestamp) -> Option<AccessStep> {
    let known = observed.status.namespaces.as_ref()?;
    let mut all = namespaces(&observed.spec.rights);
    if all.iter().all(|namespace| known.contains(namespace)) {
        return None;
    }
    all.extend(known.iter().cloned());
    let namespaces = (all.len() <= MAX_NAMESPACES).then(|| all.into_iter().collect());
    Some(save(complete(observed, ClusterAccessStatus { namespaces, ..observed.status.clone() }, now)))
}

/// What comes before anything is done in the target: it is known which cluster that is, status says so, and it is the one that
/// everything was issued in.
fn not_yet_in_target(observed: &AccessObservation, now: Timestamp) -> Option<AccessStep> {
    let Some(found) = &observed.target else { return Some(AccessStep::Identify) };
    match &observed.status.target {
        Some(known) if known.uid == found.uid => None,
        Some(_) => {
            let cluster = &observed.spec.cluster;
            let restore = if cluster.gardener.is_some() {
                "delete this ClusterAccess, since its Shoot was replaced by another one of that name"
            } else if cluster.cluster_api.is_some() {
                "delete this ClusterAccess, since its Cluster was replaced by another one of that name"
            } else if cluster.provider.is_some() {
                "ask the platform for a kubeconfig of the cluster before"
            } else {
                "write a kubeconfig of the cluster before into that Secret"
            };
            let message = format!(
                "the kubeconfig of spec.cluster leads to another cluster than the one that this ClusterAccess began with; nothing is done there, and \
                 nothing was revoked: {restore}, and create another ClusterAccess for this one"
            );
            Some(save(failed(observed, Reason::TargetChanged, &message, now)))
        }
        // By an earlier version, which did not write down in which cluster.
        None if observed.status.has_touched_target() && observed.progress != Progress::AccountFound(true) => {
            if observed.progress != Progress::AccountFound(false) {
                return Some(AccessStep::FindAccount);
            }
            let message = "an earlier version of Coppice has issued credentials, and the cluster of spec.cluster has no account of this ClusterAccess; nothing is done \
                 there, and nothing was revoked: write a kubeconfig of the cluster before into that Secret, or delete this ClusterAccess and create another one";
            Some(save(failed(observed, Reason::TargetChanged, message, now)))
        }
        None => {
            let target = Some(found.clone());
            let is_new = !observed.status.has_touched_target();
            let namespaces = is_new.then(|| namespaces(&observed.spec.rights).into_iter().collect());
            let status = ClusterAccessStatus { target, namespaces, ..observed.status.clone() };
            Some(save(complete(observed, status, now)))
        }
    }
}

fn upkeep(observed: &AccessObservation, now: Timestamp) -> AccessStep {
    let (spec, status) = (&observed.spec, &observed.status);
    if waits_until(observed, now).is_some() || (spec.suspend && !observed.has_finalizer) {
        return withdrawn_meanwhile(observed, now).unwrap_or_else(|| steady(observed, now));
    }
    if let Some(step) = not_ready(observed, now) {
        return step;
    }
    if !observed.has_finalizer {
        return AccessStep::AddFinalizer;
    }
    if let Some(step) = names_cluster(observed, now) {
        return step;
    }
    // Whether that is still so: what fails beside it would hide it.
    let was_unusable = |error: &LastError| {
        [Reason::SecretNotOurs, Reason::SecretUnusable].iter().any(|reason| reason.as_str() == error.reason)
    };
    if matches!(observed.output, OutputFact::Watched(_))
        && !spec.suspend
        && status.last_error.as_ref().is_some_and(was_unusable)
    {
        return AccessStep::ReadOutput;
    }
    // Neither do rights that cannot be applied keep a credential from being revoked, nor the other way round: they take turns.
    if status
        .last_error
        .as_ref()
        .is_some_and(|error| is_of_this_spec(observed, error) && error.attempts % 2 == 1)
        && !is_newly_due(observed, now)
        && let Some(step) = revoke_superseded(observed, now)
    {
        return step;
    }
    // Without an intent the target has nothing of it.
    if status.sequence > 0 && !is_applied(observed) {
        if matches!(
            observed.progress,
            Progress::RightsApplied | Progress::Issuing(_, IssueProgress::Prepared)
        ) {
            return save(status::rights_applied(observed, now));
        }
        if let Some(step) = before_rights(observed, now) {
            return step;
        }
        // Gardener's issuers have rights of their own. Which cluster it is comes first.
        if spec.issuer.is_of_garden() && status.target.is_some() {
            return save(status::rights_applied(observed, now));
        }
        let turn = if observed.narrows { None } else { waits_for_turn(observed, now) };
        return turn.unwrap_or(AccessStep::ApplyRights);
    }
    if status.sequence > 0
        && let Some(step) = no_longer_allowed(observed, now)
    {
        return step;
    }
    if spec.suspend {
        let step = revoke_superseded(observed, now).or_else(|| left_by_crash(observed, now));
        return step.unwrap_or_else(|| steady(observed, now));
    }
    if let Some((reason, message)) = unusable(observed) {
        let step = revoke_superseded(observed, now);
        return step.unwrap_or_else(|| save(failed(observed, reason, &message, now)));
    }
    if let Some(intent) = &status.intent {
        return issue(observed, intent, now);
    }
    match cause(observed, now) {
        Err(step) => return *step,
        Ok(Some(cause)) if !are_too_many(status, now) => {
            return not_issued(observed, now).unwrap_or_else(|| begin(observed, cause, now));
        }
        Ok(_) => {}
    }
    let step = revoke_superseded(observed, now).or_else(|| recheck::due(observed, now));
    step.unwrap_or_else(|| steady(observed, now))
}

/// Whether the target has the rights of the spec as it is now.
fn is_applied(observed: &AccessObservation) -> bool {
    observed.status.observed_generation == Some(observed.generation)
}

/// What comes before anything is issued.
fn not_issued(observed: &AccessObservation, now: Timestamp) -> Option<AccessStep> {
    not_allowed(observed, now).or_else(|| cluster_goes(observed, now))
}

/// What comes before anything is given to anybody in a target whose kubeconfig the platform keeps: its `ClusterProvider` allows it.
pub(crate) fn not_allowed(observed: &AccessObservation, now: Timestamp) -> Option<AccessStep> {
    observed.spec.cluster.provider_name()?;
    let (reason, message) = match &observed.permission {
        Permission::Unread => return Some(AccessStep::ReadProvider),
        Permission::Allowed => return None,
        Permission::Refused(reason, message) => (*reason, refusal(observed, message, now)),
    };
    if is_said(observed, reason, &message) {
        return revoke_superseded(observed, now).or_else(|| Some(steady(observed, now)));
    }
    Some(save(failed(observed, reason, &message, now)))
}

/// What comes before a target is asked for a credential, or for more rights, by a kubeconfig of the platform: its budget has a call left. By
/// another kubeconfig: nobody goes first, while the target has too many requests. Revocations do not wait for that.
fn waits_for_turn(observed: &AccessObservation, now: Timestamp) -> Option<AccessStep> {
    let asks_again = match observed.turn {
        Turn::Unasked => return Some(AccessStep::TakeTurn),
        Turn::Granted => return None,
        Turn::NotBefore(asks_again) | Turn::Throttled { asks_again, .. } => asks_again,
    };
    let revoke = revoke_superseded(observed, now);
    // What has too many requests is asked for nothing, revocations included. These do not wait for those that are more urgent.
    let throttled_until = match observed.turn {
        Turn::Throttled { until, .. } if now < until => Some(until),
        _ => None,
    };
    let (step, asks_again) = match (revoke, throttled_until) {
        (Some(revoke), None) => (revoke, asks_again),
        (Some(_), Some(until)) => (steady(observed, now), asks_again.min(until)),
        (None, _) => (steady(observed, now), asks_again),
    };
    let AccessStep::Wait(until) = step else { return Some(step) };
    Some(AccessStep::Wait(Some(until.map_or(asks_again, |until| until.min(asks_again)))))
}

/// What a crash left in the Secret is tried out and adopted also where nothing is issued: it is what the Secret holds.
fn left_by_crash(observed: &AccessObservation, now: Timestamp) -> Option<AccessStep> {
    let intent = observed.status.intent.as_ref()?;
    match &observed.output {
        OutputFact::Watched(Some((uid, revision))) => {
            let known = observed.status.output.as_ref();
            let is_known =
                known.is_some_and(|known| *uid == known.uid && *revision == known.resource_version);
            (!is_known).then_some(AccessStep::ReadOutput)
        }
        OutputFact::Ours(found) if found.credential.as_ref() == Some(&intent.credential) => {
            let message = "the credential in the Secret is not valid, and while spec.suspend is true no other is issued";
            let invalid = || save(failed(observed, Reason::VerificationFailed, message, now));
            Some(written(observed, intent, found, now).unwrap_or_else(invalid))
        }
        _ => None,
    }
}

/// Another credential is begun; not at once for a Secret that somebody deletes or edits again and again.
fn begin(observed: &AccessObservation, cause: Cause, now: Timestamp) -> AccessStep {
    let restored = observed.status.restored.as_ref().filter(|_| cause == Cause::Lost);
    match restored.map(next_restoration).filter(|next| now < *next) {
        Some(_) => {
            let message = format!(
                "the Secret {} was deleted or edited again, and each time takes another credential: find out who does that; it is written again \
                 after a pause",
                observed.spec.output.secret
            );
            save(failed(observed, Reason::RestoredTooOften, &message, now))
        }
        None => save(begun(observed, cause, now)),
    }
}

pub(crate) fn save(status: ClusterAccessStatus) -> AccessStep {
    AccessStep::SaveStatus(Box::new(status))
}

/// Until when nothing is tried again.
fn waits_until(observed: &AccessObservation, now: Timestamp) -> Option<Timestamp> {
    let error = observed.status.last_error.as_ref()?;
    if is_no_longer_refused(observed) {
        return None;
    }
    // A Secret that nothing could be written into is gone.
    if error.reason == Reason::SecretUnusable.as_str()
        && matches!(observed.output, OutputFact::Watched(None) | OutputFact::Absent)
    {
        return None;
    }
    // It may be allowed by now. What failed in the target besides is tried again later.
    let by_provider = [Reason::ProviderMissing, Reason::NotAllowed];
    if !observed.deleting
        && error.other.is_none()
        && by_provider.iter().any(|reason| reason.as_str() == error.reason)
    {
        return None;
    }
    if is_newly_due(observed, now) {
        return None;
    }
    let next = next_attempt(error);
    (is_of_this_spec(observed, error) && now < next).then_some(next)
}

/// Whether it failed with the spec as it is now: another one is tried at once.
pub(crate) fn is_of_this_spec(observed: &AccessObservation, error: &LastError) -> bool {
    error.generation == observed.generation
}

/// Nothing to do: the status says how things are, and when to look again.
pub(crate) fn steady(observed: &AccessObservation, now: Timestamp) -> AccessStep {
    // It is in memory when it is needed for a revocation and is gone, and it is seen when the target has moved.
    if observed.status.sequence > 0 && observed.kubeconfig == KubeconfigFact::Unread {
        return AccessStep::ReadKubeconfig;
    }
    let status = complete(observed, observed.status.clone(), now);
    if status != observed.status {
        return save(status);
    }
    let expiry = [status.not_after, status.held_until()].into_iter().flatten().filter(|at| *at > now).min();
    let rotation = status.next_rotation.filter(|at| *at > now && !observed.spec.suspend);
    // Those that have expired are listed no more.
    let superseded = status.superseded_certificates.iter().map(|certificate| certificate.not_after).min();
    let revocation = status.revokes_at.filter(|at| *at > now);
    let check = recheck::next(observed).filter(|at| *at > now);
    let all = [waits_until(observed, now), rotation, expiry, superseded, revocation, check];
    AccessStep::Wait(all.into_iter().flatten().min())
}

/// Why another credential is to be issued; none if the Secret holds what it is to hold. `Err`: what has to be done to know it.
fn cause(observed: &AccessObservation, now: Timestamp) -> Result<Option<Cause>, Box<AccessStep>> {
    let (spec, status) = (&observed.spec, &observed.status);
    let intact = is_intact(observed, now)?;
    let Some(validity) = validity(status) else { return Ok(Some(Cause::First)) };
    if !intact {
        return Ok(Some(Cause::Lost));
    }
    if let (KubeconfigFact::Endpoint(endpoint), Some(target)) = (&observed.kubeconfig, &status.target)
        && *endpoint != target.endpoint
    {
        return Ok(Some(Cause::Moved));
    }
    if spec.rotate.is_some() && spec.rotate != status.rotated {
        return Ok(Some(Cause::Requested));
    }
    Ok((next_rotation(spec, &observed.uid, validity) <= now).then_some(Cause::Due))
}

/// Whether the Secret holds what was written to it.
fn is_intact(observed: &AccessObservation, now: Timestamp) -> Result<bool, Box<AccessStep>> {
    match (&observed.output, &observed.status.output) {
        (OutputFact::Watched(Some((uid, revision))), Some(known))
            if *uid == known.uid && *revision == known.resource_version =>
        {
            Ok(true)
        }
        (OutputFact::Watched(_), _) => Err(Box::new(AccessStep::ReadOutput)),
        (OutputFact::Ours(found), Some(known)) if found.revision == *known => Ok(true),
        (OutputFact::Ours(found), Some(known)) if found.revision.sha256 == known.sha256 => {
            // Its metadata was changed.
            let output = Some(found.revision.clone());
            let status = ClusterAccessStatus { output, ..observed.status.clone() };
            Err(Box::new(save(complete(observed, status, now))))
        }
        (OutputFact::Absent | OutputFact::Foreign | OutputFact::Ours(_), _) => Ok(false),
    }
}

/// Why nothing can be written into the Secret, and what to do.
pub(crate) fn unusable(observed: &AccessObservation) -> Option<(Reason, String)> {
    let secret = &observed.spec.output.secret;
    match &observed.output {
        OutputFact::Foreign => Some((
            Reason::SecretNotOurs,
            format!(
                "the Secret {secret} was not made for this ClusterAccess and is left as it is: delete it, or write the name of another one into a new \
                 ClusterAccess"
            ),
        )),
        OutputFact::Ours(OutputSecret { obstacle: Some(obstacle), .. }) => {
            let why = match obstacle {
                Obstacle::Immutable => "is immutable",
                Obstacle::OtherType => "has another type than Opaque, which cannot be changed",
            };
            let message =
                format!("the Secret {secret} {why}: delete it, and it is made again with a credential");
            Some((Reason::SecretUnusable, message))
        }
        _ => None,
    }
}

/// The next step for a credential that is being issued.
fn issue(observed: &AccessObservation, intent: &IssueIntent, now: Timestamp) -> AccessStep {
    let on = match &observed.output {
        OutputFact::Watched(_) => return AccessStep::ReadOutput,
        OutputFact::Absent | OutputFact::Foreign => None,
        OutputFact::Ours(found) => {
            if let Some(step) = written(observed, intent, found, now) {
                return step;
            }
            Some(found.revision.clone())
        }
    };
    if let Some(step) = not_issued(observed, now).or_else(|| waits_for_turn(observed, now)) {
        return step;
    }
    let credential = intent.credential.clone();
    match (observed.progress.of(&credential), &observed.progress) {
        (Some(IssueProgress::Requested), _) => AccessStep::Issue { credential },
        (Some(IssueProgress::Issued(_)), _) => AccessStep::Verify { credential },
        (Some(IssueProgress::Verified(validity, _)), _) => {
            AccessStep::WriteOutput { credential, validity: *validity, on }
        }
        (Some(IssueProgress::Prepared), _) | (None, Progress::RightsApplied) => {
            AccessStep::Request { credential }
        }
        _ => AccessStep::ApplyRights,
    }
}

/// The next step where the Secret holds a value for the credential that is being issued; none if that value is not valid.
fn written(
    observed: &AccessObservation,
    intent: &IssueIntent,
    found: &OutputSecret,
    now: Timestamp,
) -> Option<AccessStep> {
    if found.credential.as_ref() != Some(&intent.credential) {
        return None;
    }
    let adopt =
        |validity, endpoint: &str| save(status::adopted(observed, intent, (found, validity), endpoint, now));
    match (observed.progress.of(&intent.credential), found.validity) {
        (None, Some(_)) => Some(AccessStep::VerifyWritten { credential: intent.credential.clone() }),
        // With an address that is another by now it is replaced next.
        (Some(IssueProgress::Proven(endpoint)), Some(validity)) => Some(adopt(validity, endpoint)),
        (Some(IssueProgress::Verified(validity, sha256)), _) if *sha256 == found.revision.sha256 => {
            let endpoint = observed.target.as_ref().map_or("", |target| &target.endpoint);
            Some(adopt(*validity, endpoint))
        }
        _ => None,
    }
}

/// The next step for a `ClusterAccess` that is being deleted: revoke, remove the rights, delete the Secret.
fn deletion(observed: &AccessObservation, now: Timestamp) -> AccessStep {
    let status = &observed.status;
    if !observed.has_finalizer {
        return AccessStep::Wait(None);
    }
    let Some(since) = status.revoking_since else {
        let status = ClusterAccessStatus { revoking_since: Some(now), last_error: None, ..status.clone() };
        return save(complete(observed, status, now));
    };
    // Whatever its author wrote since, it is no shorter than the platform has it.
    let forget_after = SignedDuration::from_secs(observed.spec.forget_after.as_secs_i64());
    let forget_after = forget_after.max(observed.min_forget_after.unwrap_or(SignedDuration::ZERO));
    let deadline = revocation_deadline(since, forget_after);
    // What Gardener has issued cannot be revoked, and has nothing in the target.
    let is_of_garden = observed.spec.issuer.is_of_garden();
    let is_done = is_of_garden || observed.progress == Progress::RightsRemoved;
    let skipped = !is_done && status.last_error.is_some() && now >= deadline;
    if status.has_touched_target() && !is_of_garden && !skipped {
        if let Some(next) = waits_until(observed, now) {
            return AccessStep::Wait(Some(next.min(deadline)));
        }
        match observed.progress {
            Progress::RightsRemoved => {}
            Progress::AllRevoked => return AccessStep::RemoveRights,
            _ => return AccessStep::RevokeAll,
        }
    }
    match &observed.output {
        OutputFact::Watched(_) => AccessStep::ReadOutput,
        OutputFact::Ours(found) => AccessStep::DeleteOutput(found.revision.clone()),
        OutputFact::Absent | OutputFact::Foreign => AccessStep::RemoveFinalizer { skipped },
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
pub(crate) mod tests;

#[cfg(test)]
#[path = "plan_cluster_tests.rs"]
mod cluster_tests;

#[cfg(test)]
#[path = "plan_garden_tests.rs"]
mod garden_tests;
