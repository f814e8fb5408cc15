//! The status of a `ManagedCluster` that follows from what was seen and done.

use coppice_api::Reason;
use coppice_api::condition::{self, ConditionState, READY};
use coppice_clusters_api::managed_cluster::{RECONCILING, STALLED};
use coppice_clusters_api::{ClusterError, ClusterState, FailureClass, MadeCluster, ManagedClusterStatus};
use jiff::{SignedDuration, Timestamp};

use super::plan::{Managed, managed_urgency};
use super::{Failure, Shape};
use crate::budget::Urgency;
use crate::status::whole_second_after;

/// The longest text of an error, in characters.
const MAX_MESSAGE: usize = 1024;
/// What failed is tried again after so long, then twice as long each time.
const FIRST_RETRY: i64 = 15;
/// At most.
const LAST_RETRY: i64 = 600;
/// What waits for somebody is looked at again after so long.
const LOOK_AGAIN: i64 = 300;
/// A look at what is under way waits for so long until status says so; what somebody has asked for says it at once.
const SAID_AFTER: SignedDuration = SignedDuration::from_mins(1);
/// What was said of that stays for so long after its time: one that waits is not written again and again.
const SAID_FOR: SignedDuration = SignedDuration::from_mins(5);

/// When what failed is tried again: at once if the spec was changed since; none if that alone helps.
pub(super) fn next_attempt(observed: &Managed) -> Option<Timestamp> {
    let error = observed.status.last_error.as_ref().filter(|error| error.generation == observed.generation);
    let Some(error) = error else { return Some(Timestamp::MIN) };
    let seconds = match error.class {
        FailureClass::Transient => {
            let doubled = error.attempts.saturating_sub(1).min(10);
            (FIRST_RETRY << doubled).min(LAST_RETRY)
        }
        FailureClass::WaitingForInput => LOOK_AGAIN,
        FailureClass::Permanent if observed.deleting => LOOK_AGAIN,
        FailureClass::Permanent => return None,
    };
    Some(error.at.saturating_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX))
}

/// It is under way to another state.
pub(super) fn under_way(
    observed: &Managed,
    state: ClusterState,
    message: &str,
    now: Timestamp,
) -> ManagedClusterStatus {
    let mut status = observed.status.clone();
    if status.state != Some(state) || status.waiting_since.is_none() {
        // After a failure it still waits for the same.
        let waits_on = status.state == Some(ClusterState::Failed)
            && status.observed_generation == Some(observed.generation);
        status.waiting_since = status.waiting_since.filter(|_| waits_on).or(Some(now));
    }
    let reason = match state {
        ClusterState::Planning => Reason::ClusterPlanned,
        ClusterState::Updating => Reason::ClusterUpdating,
        ClusterState::Deleting => Reason::ClusterDeleting,
        ClusterState::Creating | ClusterState::Ready | ClusterState::Failed => Reason::ClusterCreating,
    };
    status.state = Some(state);
    (status.last_error, status.asks_again) = (None, None);
    let says = |is| condition_state(is, reason, message);
    let stalled = condition_state("False", reason, "Nothing has to be done about it.");
    complete(observed.generation, status, [says("False"), says("True"), stalled], now)
}

/// Another desired state is written, or was.
pub(super) fn written(observed: &Managed, hash: &str, now: Timestamp) -> ManagedClusterStatus {
    let (state, message) = match observed.status.created {
        None => (ClusterState::Creating, "The cluster is being made."),
        Some(_) => (ClusterState::Updating, "The cluster is being changed."),
    };
    let mut status = under_way(observed, state, message, now);
    if status.hash.as_deref() != Some(hash) {
        status.waiting_since = Some(now);
    }
    status.hash = Some(hash.to_owned());
    status
}

/// The object is there.
pub(super) fn made(observed: &Managed, shape: Shape, uid: &str) -> ManagedClusterStatus {
    let mut status = observed.status.clone();
    status.cluster = Some(MadeCluster {
        kind: shape.kind().to_owned(),
        namespace: observed.object_namespace.clone(),
        name: observed.name.clone(),
        uid: uid.to_owned(),
        project: observed.project.clone(),
    });
    status
}

/// It is as its spec says; others have changed so many of its fields.
pub(super) fn ready(observed: &Managed, drifted: usize, now: Timestamp) -> ManagedClusterStatus {
    let mut status = observed.status.clone();
    status.state = Some(ClusterState::Ready);
    status.created = status.created.or(Some(now));
    (status.waiting_since, status.last_error, status.asks_again) = (None, None, None);
    let mut message = "The cluster is as its spec says.".to_owned();
    if drifted > 0 {
        let name = &observed.name;
        message = format!(
            "The cluster was made as its spec says, and others have changed {drifted} of its fields since: see coppice cluster drift {name}."
        );
    }
    let reason = Reason::ClusterReady;
    let idle = || condition_state("False", reason, "Nothing is under way.");
    complete(observed.generation, status, [condition_state("True", reason, &message), idle(), idle()], now)
}

/// It waits for the calls of its provider, or for its garden, which has too many requests; none if status says so already, or does not have to.
pub(super) fn waits_for_turn(
    observed: &Managed,
    (since, until): (Timestamp, Timestamp),
    is_throttled: bool,
    now: Timestamp,
) -> Option<ManagedClusterStatus> {
    let provider = &observed.spec.provider.gardener.as_ref()?.cluster_provider;
    let error = observed.status.last_error.as_ref().filter(|error| error.generation == observed.generation);
    // What is done, and what waits for somebody, waits for no call.
    let is_done = !observed.deleting && observed.status.state == Some(ClusterState::Ready);
    let is_look = managed_urgency(observed) == Urgency::Routine;
    let is_stalled = error.is_some_and(|error| error.class != FailureClass::Transient);
    if is_stalled || is_look && (is_done || now.duration_since(since) < SAID_AFTER) {
        return None;
    }
    let mut status = observed.status.clone();
    // Which of these two it is may change each minute: it is not written as often.
    let of_turns = [Reason::ProviderCallsSpent, Reason::TargetThrottled];
    let said = condition::find(&status.conditions, RECONCILING)
        .filter(|said| of_turns.iter().any(|reason| said.reason == reason.as_str()))
        .filter(|said| said.observed_generation == Some(observed.generation));
    let is_current = |at: Timestamp| now.duration_since(at) < SAID_FOR;
    if said.is_some() && status.asks_again.is_some_and(is_current) {
        return None;
    }
    let at = whole_second_after(until);
    let (reason, why) = if is_throttled {
        let why = format!("the garden of ClusterProvider {provider} has too many requests (429)");
        (Reason::TargetThrottled, why)
    } else {
        (Reason::ProviderCallsSpent, format!("callsPerMinute of ClusterProvider {provider} is used up"))
    };
    let message =
        format!("It waits, since {why}: the garden is asked at {at}, or later if others are more urgent.");
    status.asks_again = Some(at);
    if error.is_none() && status.last_error.take().is_some() && !observed.deleting {
        // What failed with a spec before says nothing about this one.
        status.state = None;
        status.waiting_since = None;
    }
    let is_of_before = status.observed_generation != Some(observed.generation) && !observed.deleting;
    if is_of_before && status.state == Some(ClusterState::Ready) {
        // The cluster is as another spec says.
        status.state = None;
    }
    status.state = status.state.or(Some(match (status.created, &status.hash) {
        (Some(_), _) => ClusterState::Updating,
        (None, Some(_)) => ClusterState::Creating,
        (None, None) => ClusterState::Planning,
    }));
    let mut set = |type_: &str, is: &'static str, message: &str| {
        let state = condition_state(is, reason, message);
        condition::set(&mut status.conditions, type_, state, observed.generation, now);
    };
    set(RECONCILING, "True", &message);
    // A failure is said as long as nothing else is known.
    if error.is_none() {
        set(READY, "False", &message);
        set(STALLED, "False", "Nothing has to be done about it.");
    }
    Some(status)
}

/// Whether something was to be done so long ago that it was waited for: because that was refused, its garden was away, or somebody undoes it.
pub(super) fn is_late(since: Timestamp, now: Timestamp) -> bool {
    now.duration_since(since) >= SignedDuration::from_secs(LOOK_AGAIN)
}

/// Its object is about to be deleted: how long that lasts, after which it is forced, counts from now on.
pub(super) fn deletion_asked(observed: &Managed, now: Timestamp) -> ManagedClusterStatus {
    let mut status = observed.status.clone();
    (status.waiting_since, status.asks_again) = (Some(now), None);
    status
}

/// Its deletion is to be forced.
pub(super) fn forced(observed: &Managed, now: Timestamp) -> ManagedClusterStatus {
    let mut status = observed.status.clone();
    status.forced = Some(now);
    status
}

/// Something was not done.
pub fn failed(observed: &Managed, failure: &Failure, now: Timestamp) -> ManagedClusterStatus {
    not_done(&observed.status, (observed.generation, observed.deleting), failure, now)
}

/// The spec of one with this status, of this generation, which is being deleted or not, cannot be understood; none if status says so already.
/// Another version may understand it, so that it is looked at again.
pub fn not_understood(
    before: &ManagedClusterStatus,
    (generation, deleting): (i64, bool),
    why: &str,
    now: Timestamp,
) -> Option<ManagedClusterStatus> {
    let message = format!(
        "{why}; nothing is done until the spec is corrected, or a version of Coppice runs that understands it"
    );
    let message: String = message.chars().take(MAX_MESSAGE).collect();
    let failure = Failure::waiting(Reason::InvalidSpec, message);
    let is_said = |error: &ClusterError| error.generation == generation && error.message == failure.message;
    if before.last_error.as_ref().is_some_and(is_said) {
        return None;
    }
    Some(not_done(before, (generation, deleting), &failure, now))
}

fn not_done(
    before: &ManagedClusterStatus,
    (generation, deleting): (i64, bool),
    Failure { reason, class, message }: &Failure,
    now: Timestamp,
) -> ManagedClusterStatus {
    let mut status = before.clone();
    status.asks_again = None;
    let before = status.last_error.as_ref().filter(|error| error.generation == generation);
    let attempts = before.map_or(0, |error| error.attempts).saturating_add(1);
    let message: String = message.chars().take(MAX_MESSAGE).collect();
    if deleting && status.state != Some(ClusterState::Deleting) {
        // What was waited for before says nothing about how long a deletion has lasted, after which it is forced.
        status.waiting_since = None;
    }
    status.state = Some(if deleting { ClusterState::Deleting } else { ClusterState::Failed });
    let is = |is: bool| if is { "True" } else { "False" };
    let stalls = *class != FailureClass::Transient;
    let conditions = [
        condition_state("False", *reason, &message),
        condition_state(is(!stalls), *reason, &message),
        condition_state(is(stalls), *reason, &message),
    ];
    status.last_error = Some(ClusterError {
        reason: reason.to_string(),
        class: *class,
        message,
        generation,
        attempts,
        at: now,
    });
    complete(generation, status, conditions, now)
}

fn condition_state(status: &'static str, reason: Reason, message: &str) -> ConditionState {
    ConditionState { status, reason: reason.to_string(), message: message.to_owned() }
}

/// With `Ready`, `Reconciling` and `Stalled`.
fn complete(
    generation: i64,
    mut status: ManagedClusterStatus,
    [ready, reconciling, stalled]: [ConditionState; 3],
    now: Timestamp,
) -> ManagedClusterStatus {
    status.observed_generation = Some(generation);
    for (type_, state) in [(READY, ready), (RECONCILING, reconciling), (STALLED, stalled)] {
        condition::set(&mut status.conditions, type_, state, generation, now);
    }
    status
}
