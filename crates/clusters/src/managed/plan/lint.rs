//! What holds for every step of a `ManagedCluster`, by what the step looks like ([`coppice_api::lint`]). Builds with debug assertions check
//! every step that they plan.

use coppice_api::condition::READY;
use coppice_api::lint::{self, PlanViolation};
use coppice_api::reason::ReasonPlace;
use coppice_clusters_api::managed_cluster::{RECONCILING, STALLED};
use coppice_clusters_api::names::{ANNOTATION_CONFIRM_DELETION, ANNOTATION_HASH, LABEL_MANAGED_CLUSTER};
use coppice_clusters_api::{ClusterState, ManagedClusterStatus};
use serde_json::Value;

use super::{CONFIRM, FORCE, LiveFact, Managed, ManagedStep, has_made_nothing};
use crate::managed::at;
use crate::managed::live::is_deleting;
use crate::plan::lint::when;

/// Where users see the reason of each condition.
const PLACES: [(&str, ReasonPlace); 3] =
    [(READY, ReasonPlace::Access), (RECONCILING, ReasonPlace::Access), (STALLED, ReasonPlace::Access)];

/// The rules that this step breaks; [`plan`](super::plan) breaks none.
pub(super) fn lint(observed: &Managed, step: &ManagedStep) -> Vec<PlanViolation> {
    if coppice_mutants::any_active() {
        // A bug on purpose is to be found by what the program does.
        return Vec::new();
    }
    let Managed { deleting, has_finalizer, .. } = observed;
    match step {
        ManagedStep::Wait(_) => Vec::new(),
        ManagedStep::Look => when(observed.live != LiveFact::Unread, PlanViolation::Forbidden),
        ManagedStep::AddFinalizer => when(*has_finalizer || *deleting, PlanViolation::Forbidden),
        ManagedStep::RemoveFinalizer => when(!is_over(observed), PlanViolation::Forbidden),
        ManagedStep::SaveStatus(status) => saved(observed, status),
        ManagedStep::Create(object) => creation(observed, object),
        ManagedStep::Patch(change) => patch(observed, change),
        ManagedStep::Delete => deletion(observed),
    }
}

/// The object, if it is there, is ours, and is the one that status names; where its answer got lost status names none.
fn known_live(observed: &Managed) -> Option<&Value> {
    let LiveFact::Made(live) = &observed.live else { return None };
    let (made, uid) = (&observed.status.cluster, at(live, "/metadata/uid").as_str());
    let may_be = observed.deleting && made.is_none();
    (may_be || made.as_ref().is_some_and(|made| Some(made.uid.as_str()) == uid)).then_some(live)
}

/// Whether it is being deleted, and nothing is there that was made for it, or ever was.
fn is_over(observed: &Managed) -> bool {
    let is_gone = match &observed.live {
        LiveFact::Unread | LiveFact::Refused(_) | LiveFact::WaitsForTurn { .. } => false,
        LiveFact::Unserved(_) | LiveFact::Absent | LiveFact::Foreign => true,
        LiveFact::Made(_) => known_live(observed).is_none(),
    };
    observed.deleting && observed.has_finalizer && (is_gone || has_made_nothing(observed))
}

/// A status says something new, is about the spec that there is, says that all is well where it is, and forgets nothing that was made.
fn saved(observed: &Managed, after: &ManagedClusterStatus) -> Vec<PlanViolation> {
    let (before, generation) = (&observed.status, observed.generation);
    let mut findings = lint::conditions(&before.conditions, &after.conditions, generation, &PLACES);
    findings.extend(when(after == before, PlanViolation::NothingNew));
    let seen = (before.observed_generation, after.observed_generation);
    findings.extend(lint::observed_generation(seen.0, seen.1, generation));
    let is_ready = after.state == Some(ClusterState::Ready)
        && after.last_error.is_none()
        && after.waiting_since.is_none()
        && !observed.deleting
        && known_live(observed).is_some();
    let says_ready = lint::says_ready(&before.conditions, &after.conditions);
    findings.extend(when(says_ready && !is_ready, PlanViolation::ReadyTooEarly));
    let error = after.last_error.as_ref().filter(|_| after.last_error != before.last_error);
    let is_said = error.is_none_or(|error| lint::is_said(&error.reason, &error.message, ReasonPlace::Access));
    findings.extend(when(!is_said, PlanViolation::ReasonOutOfPlace));
    let forgets = before.cluster.is_some() && before.cluster != after.cluster
        || before.created.is_some() && before.created != after.created
        || !after.addresses.starts_with(&before.addresses);
    findings.extend(when(forgets, PlanViolation::HistoryChanged));
    let after_so_long = observed.spec.deletion.and_then(|deletion| deletion.force_after);
    let may_be_forced = observed.deleting && after_so_long.is_some();
    findings.extend(when(after.forced != before.forced && !may_be_forced, PlanViolation::Forbidden));
    findings
}

/// What is made was decided before, carries our label, and has the place of nothing that was made.
fn creation(observed: &Managed, object: &Value) -> Vec<PlanViolation> {
    let (status, metadata) = (&observed.status, &object["metadata"]);
    let is_next = observed.live == LiveFact::Absent
        && status.cluster.is_none()
        && observed.has_finalizer
        && !observed.deleting;
    let is_decided = status.hash.as_deref() == metadata["annotations"][ANNOTATION_HASH].as_str()
        && status.hash.is_some()
        && status.observed_generation == Some(observed.generation);
    let is_its_own = metadata["labels"][LABEL_MANAGED_CLUSTER] == *observed.uid
        && metadata["name"] == *observed.name
        && metadata["namespace"] == *observed.object_namespace;
    let mut findings = when(!is_next, PlanViolation::Forbidden);
    findings.extend(when(!is_decided, PlanViolation::StepWithoutIntent));
    findings.extend(when(!is_its_own, PlanViolation::NoPrecondition));
    findings
}

/// What is changed is the object that was made, in a way that status says; it is confirmed to go where it is to, and forced where that is
/// asked for.
fn patch(observed: &Managed, change: &Value) -> Vec<PlanViolation> {
    let (status, annotations) = (&observed.status, &change["metadata"]["annotations"]);
    let has = |name: &str| !annotations[name].is_null();
    let confirms = has(CONFIRM) || has(ANNOTATION_CONFIRM_DELETION);
    let is_asked = observed.deleting && status.waiting_since.is_some();
    let is_forced = observed.deleting && status.forced.is_some();
    let mut findings = when(known_live(observed).is_none(), PlanViolation::NoPrecondition);
    let is_allowed =
        observed.has_finalizer && (is_asked || !confirms) && (is_forced || !has(FORCE)) && change.is_object();
    findings.extend(when(!is_allowed, PlanViolation::Forbidden));
    let hash = annotations[ANNOTATION_HASH].as_str();
    findings.extend(when(hash.is_some() && hash != status.hash.as_deref(), PlanViolation::StepWithoutIntent));
    findings
}

/// What is deleted is the object that was made, once it is confirmed to go, and status says since when.
fn deletion(observed: &Managed) -> Vec<PlanViolation> {
    let (status, live) = (&observed.status, known_live(observed));
    let is_said = status.state == Some(ClusterState::Deleting) && status.waiting_since.is_some();
    let is_confirmed = live.is_some_and(|live| {
        let annotations = at(live, "/metadata/annotations");
        annotations[CONFIRM] == "true" || annotations[ANNOTATION_CONFIRM_DELETION] == *observed.uid
    });
    let is_asked = observed.deleting && observed.has_finalizer && !live.is_some_and(is_deleting);
    let mut findings = when(live.is_none(), PlanViolation::NoPrecondition);
    findings.extend(when(!is_said, PlanViolation::StepWithoutIntent));
    findings.extend(when(!is_asked || !is_confirmed, PlanViolation::Forbidden));
    findings
}
