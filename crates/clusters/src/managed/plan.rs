//! The one next step for a `ManagedCluster`, from whatever state there is.
//!
//! What is to be written is decided by the digest of the desired state, which is on the object beside the fields that were written: a
//! spec that was restored, or an object that was, is compared by what it says, not by a number. That it is so counts when the object's
//! status is about the generation that was written.

mod lint;

use coppice_api::Reason;
use coppice_clusters_api::names::{
    ANNOTATION_APPLIED, ANNOTATION_AUTHENTICATION, ANNOTATION_CONFIRM_DELETION, ANNOTATION_HASH,
    LABEL_MANAGED_CLUSTER,
};
use coppice_clusters_api::{ClusterState, ManagedClusterSpec, ManagedClusterStatus, ZoneAddresses};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::live::{
    OPERATION, RETRY, is_deleting, is_repeated, is_to_be_retried, look_again, may_be_forced,
    reconciliation_state,
};
use super::status::{
    deletion_asked, failed, forced, is_late, made, next_attempt, ready, under_way, waits_for_turn, written,
};
use super::{Failure, ReconciliationState, Settings, Shape, addresses, at, desired, patch};
use crate::budget::Urgency;

/// While something is under way, it is looked at again after so long.
const LOOK_SOON: SignedDuration = SignedDuration::from_secs(15);
/// While nothing is.
const LOOK_LATER: SignedDuration = SignedDuration::from_mins(1);
/// So long it is waited for what is under way, until that counts as failed.
pub const DEADLINE: SignedDuration = SignedDuration::from_hours(1);
/// So long an object may still be made of which nobody knows whether it was: API servers end a request after a minute.
const CREATION: SignedDuration = SignedDuration::from_mins(2);
/// The fields that were written are kept in an annotation of the object, and all of its annotations have 256 KiB at most.
const MAX_APPLIED: usize = 192 << 10;
/// Without this annotation Gardener deletes nothing.
pub const CONFIRM: &str = "confirmation.gardener.cloud/deletion";
/// With this annotation Gardener forgets what it could not delete.
pub const FORCE: &str = "confirmation.gardener.cloud/force-deletion";

/// A `ManagedCluster` as it was read, and what is known of the object that is made for it.
#[derive(Clone, Debug)]
pub struct Managed {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// The generation of its spec.
    pub generation: i64,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// Whether our finalizer keeps it.
    pub has_finalizer: bool,
    /// Its spec.
    pub spec: ManagedClusterSpec,
    /// Its status.
    pub status: ManagedClusterStatus,
    /// The namespace of the object that is made for it; empty while it is not known.
    pub object_namespace: String,
    /// The uid of the Project of Gardener that this is the namespace of; none of Cluster API, and while it is not known.
    pub project: Option<String>,
    /// The object that is made for it.
    pub live: LiveFact,
}

/// What is known of the object.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum LiveFact {
    /// In this reconcile nobody has looked yet.
    #[default]
    Unread,
    /// There is no such kind where it is to be made: what to do about that.
    Unserved(String),
    /// It cannot be looked at, or is not to be made: why.
    Refused(Failure),
    /// It was not looked at, since the calls of its provider are used up, or its garden has too many requests.
    WaitsForTurn {
        /// Since when it waits for one.
        since: Timestamp,
        /// When it asks again.
        until: Timestamp,
        /// Whether its garden has too many requests (429), or had them a moment ago.
        is_throttled: bool,
    },
    /// There is none.
    Absent,
    /// There is one of that name that was not made for this `ManagedCluster`.
    Foreign,
    /// There is ours.
    Made(Value),
}

/// What is done next.
#[derive(Clone, Debug, PartialEq)]
pub enum ManagedStep {
    /// Nothing until then; without a date, until something changes.
    Wait(Option<Timestamp>),
    /// Put our finalizer on it: nothing is made that nobody would delete.
    AddFinalizer,
    /// Save this status.
    SaveStatus(Box<ManagedClusterStatus>),
    /// Read the object.
    Look,
    /// Create the object.
    Create(Value),
    /// Change the object, as a JSON merge patch, if it is as it was read.
    Patch(Value),
    /// Delete the object, if it is as it was read.
    Delete,
    /// Take our finalizer off.
    RemoveFinalizer,
}

/// The next step.
pub fn plan(observed: &Managed, now: Timestamp) -> ManagedStep {
    let step = next(observed, now);
    debug_assert_eq!(lint::lint(observed, &step), Vec::new(), "{step:?}");
    step
}

fn next(observed: &Managed, now: Timestamp) -> ManagedStep {
    if observed.deleting {
        return deletion(observed, now);
    }
    if !observed.has_finalizer {
        return ManagedStep::AddFinalizer;
    }
    match next_attempt(observed) {
        Some(at) if at <= now => {}
        at => return ManagedStep::Wait(at),
    }
    let next = match &observed.live {
        LiveFact::Unread => return ManagedStep::Look,
        LiveFact::WaitsForTurn { since, until, is_throttled } => {
            return wait_for_turn(observed, (*since, *until), *is_throttled, now);
        }
        LiveFact::Unserved(message) => Err(Failure::waiting(Reason::ClusterKindMissing, message.clone())),
        LiveFact::Refused(failure) => Err(failure.clone()),
        LiveFact::Foreign => Err(not_ours(observed)),
        LiveFact::Absent => absent(observed, now),
        LiveFact::Made(live) => present(observed, live, now),
    };
    next.unwrap_or_else(|failure| save(failed(observed, &failure, now)))
}

/// What `coppice cluster plan` shows as well: what is live, and what it is to be.
pub fn merged(live: &Value, desired: &Value) -> Value {
    patch::merge(live, desired, &last_applied(live))
}

/// The fields that were written last, as the object has them.
pub fn last_applied(live: &Value) -> Value {
    let text = at(live, "/metadata/annotations")[ANNOTATION_APPLIED].as_str();
    text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

/// The fields that a spec decides, with the addresses that its zones have.
pub fn desired_of(observed: &Managed, live: &Value) -> Result<Value, Failure> {
    let settings = Settings {
        name: observed.name.clone(),
        uid: observed.uid.clone(),
        addresses: addresses_of(observed, live)?,
    };
    let desired = desired(&observed.spec, live, &settings)?;
    let bytes = desired.to_string().len();
    if bytes > MAX_APPLIED {
        return Err(Failure::permanent(
            Reason::InvalidSpec,
            format!(
                "spec.workers: write fewer or shorter labels, annotations, taints and zones: what is made of them has {bytes} bytes, and an object keeps \
                 {MAX_APPLIED}"
            ),
        ));
    }
    Ok(desired)
}

/// The addresses that its zones have, and those of its new zones.
fn addresses_of(observed: &Managed, live: &Value) -> Result<Vec<ZoneAddresses>, Failure> {
    let mut has = observed.status.addresses.clone();
    let Some(gardener) = &observed.spec.provider.gardener else { return Ok(has) };
    for zone in addresses::of_live(live) {
        if !has.iter().any(|known| known.zone == zone.zone) {
            has.push(zone);
        }
    }
    let nodes = observed.spec.networks.as_ref().and_then(|networks| networks.nodes.as_deref());
    let zones = addresses::zones(&observed.spec, live);
    addresses::extended(gardener.infrastructure, nodes.unwrap_or_default(), &has, &zones)
}

/// Nothing is there yet.
fn absent(observed: &Managed, now: Timestamp) -> Result<ManagedStep, Failure> {
    let (shape, status) = (Shape::of(&observed.spec), &observed.status);
    if let Some(before) = &status.cluster {
        return Err(gone(&before.kind, "is gone"));
    }
    if let Some(step) = keep_addresses(observed, &Value::Null, now)? {
        return Ok(step);
    }
    let desired = desired_of(observed, &Value::Null)?;
    let hash = patch::hash(&desired);
    if !is_written(observed, &hash) {
        return Ok(save(written(observed, &hash, now)));
    }
    let named = json!({
        "apiVersion": shape.api_version(), "kind": shape.kind(),
        "metadata": {"name": observed.name, "namespace": observed.object_namespace, "annotations": annotations(&desired, &hash)},
    });
    Ok(ManagedStep::Create(patch::merge(&named, &desired, &Value::Null)))
}

/// Addresses are durable before they are used.
fn keep_addresses(observed: &Managed, live: &Value, now: Timestamp) -> Result<Option<ManagedStep>, Failure> {
    let addresses = addresses_of(observed, live)?;
    if addresses == observed.status.addresses {
        return Ok(None);
    }
    let (state, message) = match observed.status.created {
        None => (ClusterState::Planning, "Its zones were given addresses."),
        Some(_) => (ClusterState::Updating, "Its new zones were given addresses."),
    };
    let mut status = under_way(observed, state, message, now);
    status.addresses = addresses;
    Ok(Some(save(status)))
}

/// Whether status says that this desired state is written, or will be.
fn is_written(observed: &Managed, hash: &str) -> bool {
    let status = &observed.status;
    // After a failure the same is tried again.
    let is_under_way =
        matches!(status.state, Some(ClusterState::Creating | ClusterState::Updating | ClusterState::Failed));
    is_under_way
        && status.hash.as_deref() == Some(hash)
        && status.observed_generation == Some(observed.generation)
}

/// It is there.
fn present(observed: &Managed, live: &Value, now: Timestamp) -> Result<ManagedStep, Failure> {
    let (shape, status) = (Shape::of(&observed.spec), &observed.status);
    let uid = at(live, "/metadata/uid").as_str().unwrap_or_default();
    match &status.cluster {
        None => return Ok(save(made(observed, shape, uid))),
        Some(before) if before.uid != uid => {
            return Err(gone(&before.kind, "is gone, and there is another one of its name"));
        }
        Some(before) if is_deleting(live) => {
            return Err(gone(&before.kind, "is being deleted by somebody else"));
        }
        Some(_) => {}
    }
    if let Some(step) = keep_addresses(observed, live, now)? {
        return Ok(step);
    }
    let desired = desired_of(observed, live)?;
    let hash = patch::hash(&desired);
    // Without the fields that were written nobody knows what is to be taken away later.
    let is_kept = patch::hash(&last_applied(live)) == hash;
    if !is_kept || at(live, "/metadata/annotations")[ANNOTATION_HASH] != *hash {
        if !is_written(observed, &hash) {
            return Ok(save(written(observed, &hash, now)));
        }
        let mut next = merged(live, &desired);
        for (name, value) in annotations(&desired, &hash).as_object().into_iter().flatten() {
            next["metadata"]["annotations"][name] = value.clone();
        }
        // What is beside a Shoot changes no generation of it: Gardener would read it some time within a day.
        if let Some(operation) = is_beside_changed(live, &desired).then(|| look_again(live)) {
            next["metadata"]["annotations"][OPERATION] = json!(operation);
        }
        return Ok(ManagedStep::Patch(patch::merge_patch(live, &next)));
    }
    let found = if is_ready(observed, &hash) && is_repeated(live) {
        ReconciliationState::Succeeded
    } else {
        reconciliation_state(shape, live)
    };
    let status = match found {
        ReconciliationState::Failed(_) if is_failure_said(observed) && is_to_be_retried(live, now) => {
            return Ok(annotate(OPERATION, RETRY));
        }
        ReconciliationState::Failed(failure) => return Err(failure),
        ReconciliationState::Succeeded => {
            let status = ready(observed, patch::drift(live, &desired).len(), now);
            return Ok(save_or_look(
                observed,
                ManagedClusterStatus { hash: Some(hash), ..status },
                LOOK_LATER,
                now,
            ));
        }
        ReconciliationState::InProgress(message) => {
            let (state, what) = match status.created {
                None => (ClusterState::Creating, "made"),
                Some(_) => (ClusterState::Updating, "changed"),
            };
            overdue(observed, &message, now)?;
            let status = under_way(
                observed,
                state,
                &format!("The cluster is being {what}: {}.", short(&message)),
                now,
            );
            ManagedClusterStatus { hash: Some(hash), ..status }
        }
    };
    Ok(save_or_look(observed, status, LOOK_SOON, now))
}

/// Whether status says that it is so, as its spec has it now.
fn is_ready(observed: &Managed, hash: &str) -> bool {
    let status = &observed.status;
    status.state == Some(ClusterState::Ready)
        && status.hash.as_deref() == Some(hash)
        && status.observed_generation == Some(observed.generation)
}

/// Whether the configuration by which a Shoot knows users is another one, and nobody has asked Gardener for something else.
fn is_beside_changed(live: &Value, desired: &Value) -> bool {
    let has = at(live, "/metadata/annotations");
    has[ANNOTATION_AUTHENTICATION] != at(desired, "/metadata/annotations")[ANNOTATION_AUTHENTICATION]
        && has[OPERATION].is_null()
}

/// Whether status says what the provider could not do.
fn is_failure_said(observed: &Managed) -> bool {
    let error = observed.status.last_error.as_ref();
    error.is_some_and(|error| {
        error.generation == observed.generation && error.reason == Reason::ClusterFailed.as_str()
    })
}

fn annotate(name: &str, value: &str) -> ManagedStep {
    ManagedStep::Patch(json!({"metadata": {"annotations": {name: value}}}))
}

/// Ends what is being deleted.
fn deletion(observed: &Managed, now: Timestamp) -> ManagedStep {
    if !observed.has_finalizer {
        return ManagedStep::Wait(None);
    }
    // No garden is asked for those whom it was never asked for.
    if has_made_nothing(observed) {
        return ManagedStep::RemoveFinalizer;
    }
    match next_attempt(observed) {
        Some(at) if at <= now => {}
        at => return ManagedStep::Wait(at),
    }
    let live = match &observed.live {
        LiveFact::Unread => return ManagedStep::Look,
        LiveFact::WaitsForTurn { since, until, is_throttled } => {
            return wait_for_turn(observed, (*since, *until), *is_throttled, now);
        }
        LiveFact::Refused(failure) => return save(failed(observed, failure, now)),
        LiveFact::Absent if observed.status.cluster.is_none() => return unmade(observed, now),
        LiveFact::Absent | LiveFact::Foreign | LiveFact::Unserved(_) => return ManagedStep::RemoveFinalizer,
        LiveFact::Made(live) => live,
    };
    let uid = at(live, "/metadata/uid").as_str();
    if observed.status.cluster.as_ref().is_some_and(|made| Some(made.uid.as_str()) != uid) {
        return ManagedStep::RemoveFinalizer;
    }
    if observed.status.state != Some(ClusterState::Deleting) {
        return save(under_way(observed, ClusterState::Deleting, "The cluster is being deleted.", now));
    }
    let annotated = |name: &str, value: &str| at(live, "/metadata/annotations")[name] == value;
    let is_shoot = Shape::of(&observed.spec) == Shape::Shoot;
    if !is_deleting(live) {
        // No single request deletes a cluster: of a Shoot Gardener sees to that, of a `Cluster` the policy of our account.
        let (name, value) =
            if is_shoot { (CONFIRM, "true") } else { (ANNOTATION_CONFIRM_DELETION, observed.uid.as_str()) };
        let since = observed.status.waiting_since;
        if since.is_none_or(|since| is_late(since, now)) {
            let status = removed(observed, since, name, now).unwrap_or_else(|| deletion_asked(observed, now));
            return save(status);
        }
        return if annotated(name, value) { ManagedStep::Delete } else { annotate(name, value) };
    }
    if is_shoot && may_be_forced(live) && is_to_be_forced(observed, now) && !annotated(FORCE, "true") {
        let Some(since) = observed.status.forced else { return save(forced(observed, now)) };
        return removed(observed, Some(since), FORCE, now).map_or_else(|| annotate(FORCE, "true"), save);
    }
    if is_to_be_retried(live, now) {
        return annotate(OPERATION, RETRY);
    }
    let description = at(live, "/status/lastOperation")["description"].as_str();
    let message = description.unwrap_or("its provider has not finished");
    if let Err(failure) = overdue(observed, message, now) {
        return save(failed(observed, &failure, now));
    }
    let message = format!("The cluster is being deleted: {}.", short(message));
    save_or_look(observed, under_way(observed, ClusterState::Deleting, &message, now), LOOK_SOON, now)
}

/// Waits for the calls of its provider, and says so.
fn wait_for_turn(
    observed: &Managed,
    (since, until): (Timestamp, Timestamp),
    is_throttled: bool,
    now: Timestamp,
) -> ManagedStep {
    let said = waits_for_turn(observed, (since, until), is_throttled, now);
    said.map_or(ManagedStep::Wait(Some(until)), save)
}

/// Ends what was about to be made, and is not there: nobody else would delete what a request still makes that was sent before.
fn unmade(observed: &Managed, now: Timestamp) -> ManagedStep {
    let since =
        observed.status.waiting_since.filter(|_| observed.status.state == Some(ClusterState::Deleting));
    let Some(since) = since else {
        return save(under_way(observed, ClusterState::Deleting, "The cluster is being deleted.", now));
    };
    let until = since.saturating_add(CREATION).unwrap_or(Timestamp::MAX);
    if now < until { ManagedStep::Wait(Some(until)) } else { ManagedStep::RemoveFinalizer }
}

/// How urgent it is to ask its provider: what somebody has asked for goes before what is new, and that before a look at what is under way or
/// done.
pub fn managed_urgency(observed: &Managed) -> Urgency {
    let is_said = if observed.deleting {
        observed.status.state == Some(ClusterState::Deleting)
    } else {
        observed.status.observed_generation == Some(observed.generation)
    };
    match (has_made_nothing(observed), is_said) {
        (true, _) => Urgency::New,
        (false, false) => Urgency::Forced,
        (false, true) => Urgency::Routine,
    }
}

/// Whether nothing was made or handed over, nor is a creation under way whose answer got lost.
fn has_made_nothing(observed: &Managed) -> bool {
    observed.status.hash.is_none() && observed.status.cluster.is_none()
}

/// Whether a deletion has lasted for as long as the spec says.
fn is_to_be_forced(observed: &Managed, now: Timestamp) -> bool {
    let after = observed.spec.deletion.and_then(|deletion| deletion.force_after);
    let since = observed.status.waiting_since;
    after.zip(since).is_some_and(|(after, since)| {
        now.duration_since(since) >= SignedDuration::from_secs(after.as_secs_i64())
    })
}

/// What is waited for too long has failed; it is still looked at.
fn overdue(observed: &Managed, message: &str, now: Timestamp) -> Result<(), Failure> {
    let Some(since) = observed.status.waiting_since else { return Ok(()) };
    if now.duration_since(since) < DEADLINE {
        return Ok(());
    }
    Err(Failure::transient(
        Reason::ClusterOverdue,
        format!(
            "since {since} it is waited for what is under way, which is longer than an hour: {}",
            short(message)
        ),
    ))
}

/// Says once that a deletion waits for this annotation of ours, and not why, where nothing else is known of that. It is tried again all the same:
/// somebody may take it off whenever it was written.
fn removed(
    observed: &Managed,
    since: Option<Timestamp>,
    annotation: &str,
    now: Timestamp,
) -> Option<ManagedClusterStatus> {
    let (status, kind, name) = (&observed.status, Shape::of(&observed.spec).kind(), &observed.name);
    let is_known = status.last_error.as_ref().is_some_and(|error| error.generation == observed.generation)
        || status.asks_again.is_some();
    let since = since.filter(|since| !is_known && is_late(*since, now))?;
    let message = format!(
        "since {since} the {kind} {name} was to have the annotation {annotation}, and to be deleted by that: if this stays so, find out who \
         removes the annotation"
    );
    Some(failed(observed, &Failure::transient(Reason::ClusterRefused, message), now))
}

/// A status, unless it says the same already: then the object is looked at again after so long.
fn save_or_look(
    observed: &Managed,
    status: ManagedClusterStatus,
    after: SignedDuration,
    now: Timestamp,
) -> ManagedStep {
    if status == observed.status {
        return ManagedStep::Wait(Some(now.saturating_add(after).unwrap_or(Timestamp::MAX)));
    }
    save(status)
}

fn save(status: ManagedClusterStatus) -> ManagedStep {
    ManagedStep::SaveStatus(Box::new(status))
}

/// What others say, as far as a condition shows it.
fn short(message: &str) -> String {
    message.chars().take(512).collect()
}

fn annotations(desired: &Value, hash: &str) -> Value {
    json!({ANNOTATION_APPLIED: desired.to_string(), ANNOTATION_HASH: hash})
}

fn not_ours(observed: &Managed) -> Failure {
    let (kind, name) = (Shape::of(&observed.spec).kind(), &observed.name);
    if observed.status.cluster.is_some() {
        return Failure::waiting(
            Reason::ClusterNotOurs,
            format!(
                "the {kind} {name} does not have the label {LABEL_MANAGED_CLUSTER}={} any more: put it on again if that is the one that was made, or delete \
                 this ManagedCluster, which leaves that as it is",
                observed.uid
            ),
        );
    }
    Failure::waiting(
        Reason::ClusterNotOurs,
        format!(
            "there is a {kind} {name} that was not made for this ManagedCluster: write a ManagedCluster of another name, or hand that over by the label \
             {LABEL_MANAGED_CLUSTER}={}",
            observed.uid
        ),
    )
}

fn gone(kind: &str, what: &str) -> Failure {
    Failure::waiting(
        Reason::ClusterGone,
        format!(
            "the {kind} that was made {what}: delete this ManagedCluster, and write another one for an empty cluster"
        ),
    )
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
