//! Carries out the one next write of a plan that was made on fresh reads.

use std::collections::BTreeSet;

use coppice_actions::decision::{
    self, DecidedBy, Decision, Deleted, FreshFacts as _, MAX_FACT_AGE, StepContext, Stopped,
};
use coppice_actions::governor::{Reservation, ReservationError};
use coppice_api::names::{ANNOTATION_MOVED_FROM, FINALIZER, LABEL_CHILDREN, TREE_QUOTA_NAME};
use coppice_api::steps::Intent;
use coppice_api::{Reason, SubnamespacePhase};
use coppice_controllers::{Applied, StatusWriter};
use coppice_kinds::{Namespaces, SubnamespaceObject, Subnamespaces, TreeQuota, TreeQuotas};
use coppice_lifecycle::facts::NamespaceFacts;
use coppice_lifecycle::governor::Share;
use coppice_lifecycle::record::StepOutcome;
use coppice_runtime::kind::Kind as _;
use coppice_runtime::leader::Permit;
use coppice_runtime::object::OwnKind as _;
use coppice_runtime::read;
use coppice_runtime::write::{self, WriteError};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::moving::{MoveTarget, Moving};
use super::observe::{self, Observation, ReadError, Written};
use super::plan::{self, MoveStep, NewNamespacePlace, Step, SubnamespacePlan};
use super::{SubnamespaceKey, report};
use crate::context::TreeContext;
use crate::error::ProgressError;
use crate::writes;

/// How carrying out a plan went.
pub(super) enum SubnamespaceProgress {
    /// Everything is read and decided again.
    Again,
    /// It is decided again on what is known after a write.
    Written(Box<Observation>),
    /// There is nothing to do until then, or until something changes.
    CheckAt(Option<Timestamp>),
    /// It is tried again with backoff.
    Failed(ProgressError<ReadError>),
}

/// Decides, and does the one thing that is next, on what is known after a write or else on what is read now.
pub(super) async fn next(
    context: &TreeContext,
    permit: &Permit,
    key: &SubnamespaceKey,
    known: Option<Box<Observation>>,
) -> SubnamespaceProgress {
    let (observation, fresh) = match known {
        Some(known) => (known, false),
        None => match observe::fresh(context, key).await {
            Ok(Some(observation)) => (Box::new(observation), true),
            Ok(None) => return SubnamespaceProgress::CheckAt(None),
            Err(error) => return SubnamespaceProgress::Failed(ProgressError::Read(error)),
        },
    };
    let plan = plan::plan(&observation);
    let SubnamespacePlan { status, step, .. } = &plan;
    let object = &observation.object;
    if let Some(error) = &object.status_error {
        return SubnamespaceProgress::Failed(ProgressError::Status(error.clone()));
    }
    if fresh && observation.namespace.is_none() && !matches!(step, Step::CreateNamespace(_)) {
        // Of an attempt before nobody knew what came of it: it is not there, and not created now.
        context.end_creation(object);
    }
    let nothing_to_do = *step == Step::Nothing && *status != *object.status;
    if nothing_to_do
        && !fresh
        && observation.waits_for_its_quota()
        && let Some(newer) = newer_quota(context, &observation).await
    {
        return outcome(context, observation, Ok(Written::OwnQuota(newer)));
    }
    if !plan::is_durable(status, &object.status) || nothing_to_do {
        let written = write_status(context, permit, object, &plan).await;
        return outcome(context, observation, written.map(Written::Object));
    }
    let SubnamespacePlan { step, next_check, events, .. } = plan;
    match step {
        Step::Nothing => SubnamespaceProgress::CheckAt(next_check),
        Step::DeleteNamespace(intent) => delete(context, permit, key, intent, observation.share()).await,
        Step::DeleteBelow(lowest) => match delete_below(context, permit, &observation, &lowest.0).await {
            // What came of it the watch says, before anything else is decided: only caches know what is far below.
            Ok(is_deleted) => {
                if is_deleted {
                    report::events(&context.shared, object, &events);
                }
                SubnamespaceProgress::CheckAt(next_check)
            }
            Err(error) => {
                if let Some(why) = refusal(&error) {
                    say(context, permit, object, &why).await;
                }
                SubnamespaceProgress::Failed(error)
            }
        },
        step => {
            let done = carry_out(context, permit, &observation, step).await;
            if let Err(WriteError::Refused(error)) = &done {
                say(context, permit, object, &error.message).await;
            }
            outcome(context, observation, done)
        }
    }
}

/// Deletes the Subnamespace below that caches have chosen; false where fresh reads show that it must stay or is another. A deletion
/// cannot be taken back, so the caches do not decide alone, nor does consent that was read long ago (H3).
async fn delete_below(
    context: &TreeContext,
    permit: &Permit,
    observation: &Observation,
    chosen: &SubnamespaceObject,
) -> Result<bool, ProgressError<ReadError>> {
    let clients = &context.shared.clients;
    let (parent, name) = (&*chosen.namespace, &*chosen.name);
    let (now, namespace) = tokio::try_join!(
        read::get::<Subnamespaces>(&clients.reads, parent, name),
        read::get::<Namespaces>(&clients.reads, "", name),
    )
    .map_err(unread)?;
    let Some(now) = now else { return Ok(false) };
    let own = namespace.filter(|namespace| plan::is_namespace_of(namespace, &now));
    if !plan::may_still_go(chosen, &now, own.as_ref(), &observation.settings) {
        return Ok(false);
    }
    // Whoever creates a namespace below another one marks that one first.
    if own.is_some_and(|own| own.labels.get(LABEL_CHILDREN).is_some()) {
        let children = read::list::<Subnamespaces>(&clients.reads, name).await;
        if !children.map_err(unread)?.is_empty() {
            return Ok(false);
        }
    }
    // The reads have taken their time, since the permit was given and since the consent was read.
    if permit.check().is_err() {
        return Ok(false);
    }
    if observation.age() > MAX_FACT_AGE {
        return Err(ProgressError::FactsTooOld);
    }
    match write::delete::<Subnamespaces>(clients, permit, &now).await {
        Ok(()) => Ok(true),
        Err(WriteError::Conflict | WriteError::Gone) => Ok(false),
        Err(error) => Err(ProgressError::Write(error)),
    }
}

fn unread(error: impl Into<ReadError>) -> ProgressError<ReadError> {
    ProgressError::Read(error.into())
}

/// What status says of a deletion below that was not made, and may not be for long.
fn refusal(error: &ProgressError<ReadError>) -> Option<String> {
    match error {
        ProgressError::Write(WriteError::Refused(why)) => Some(why.message.clone()),
        ProgressError::FactsTooOld => Some(error.to_string()),
        _ => None,
    }
}

/// The quota of the namespace, if it is another than it was known to be: Kubernetes may have put it in force while the last writes were made.
async fn newer_quota(context: &TreeContext, observation: &Observation) -> Option<TreeQuota> {
    let known = observation.quota.as_deref()?;
    let client = &context.shared.clients.reads;
    let now = read::get::<TreeQuotas>(client, &observation.object.name, TREE_QUOTA_NAME).await.ok()??;
    (now.uid == known.uid && now.resource_version != known.resource_version).then_some(now)
}

/// Whether what failed has happened is seen by who reads again.
fn outcome(
    context: &TreeContext,
    observation: Box<Observation>,
    written: Result<Written, WriteError>,
) -> SubnamespaceProgress {
    match written {
        Ok(written) => observation
            .after(context, written)
            .map_or(SubnamespaceProgress::Again, |known| SubnamespaceProgress::Written(Box::new(known))),
        Err(WriteError::Conflict | WriteError::Gone) => SubnamespaceProgress::Again,
        Err(error @ (WriteError::Ambiguous(_) | WriteError::Refused(_))) => {
            SubnamespaceProgress::Failed(ProgressError::Write(error))
        }
    }
}

async fn carry_out(
    context: &TreeContext,
    permit: &Permit,
    observation: &Observation,
    step: Step,
) -> Result<Written, WriteError> {
    let (clients, object) = (&context.shared.clients, &*observation.object);
    let position = match &observation.moving {
        Some(MoveTarget::Found(moving)) => Some(&moving.position),
        _ => observation.parent_position.as_ref().ok(),
    };
    let tree = position.map_or("", |position| &*position.tree.name);
    match step {
        Step::Nothing | Step::Read | Step::DeleteNamespace(_) | Step::DeleteBelow(_) => Ok(Written::Other),
        Step::Move(step) => move_up(context, permit, observation, step).await.map(|()| Written::Other),
        Step::AddFinalizer => {
            write::add_finalizer::<Subnamespaces>(clients, permit, object).await.map(Written::Object)
        }
        Step::RemoveFinalizer => {
            // That nothing of it is left there is believed only if it is still as it was before the object was read.
            let client = &context.shared.clients.reads;
            let again = read::get::<TreeQuotas>(client, &object.namespace, TREE_QUOTA_NAME).await?;
            let known = observation.parent_quota.as_ref().map(|quota| &quota.resource_version);
            if again.as_ref().map(|quota| &quota.resource_version) != known {
                return Err(WriteError::Conflict);
            }
            let removed = write::remove_finalizer::<Subnamespaces>(clients, permit, object).await;
            removed.map(|_| Written::Other)
        }
        Step::DeleteObject => {
            write::delete::<Subnamespaces>(clients, permit, object).await.map(|()| Written::Other)
        }
        Step::CreateNamespace(place) => {
            let Some(parent) = &observation.parent else { return Err(WriteError::Gone) };
            create_namespace(context, permit, parent, (object, &place)).await.map(Written::NewNamespace)
        }
        Step::Label(changes) => {
            let Some(namespace) = observation.own_namespace() else { return Err(WriteError::Gone) };
            writes::metadata(context, permit, namespace, &changes).await.map(|()| Written::Other)
        }
        Step::ParentQuota(ledger) => {
            let now = observation.parent_quota.as_deref();
            let written = writes::quota(context, permit, (tree, &object.namespace), now, &ledger).await;
            written.map(Written::ParentQuota)
        }
        Step::ReleaseQuota => {
            let Some(quota) = observation.quota.as_deref() else { return Err(WriteError::Gone) };
            writes::release_quota(context, permit, quota).await.map(|()| Written::Other)
        }
        Step::OwnQuota(ledger) => {
            let now = observation.quota.as_deref();
            let written = writes::quota(context, permit, (tree, &object.name), now, &ledger).await;
            written.map(Written::OwnQuota)
        }
    }
}

/// Marks the namespace above, and creates this one, if the tree may have one more: what others are creating at the same time counts.
async fn create_namespace(
    context: &TreeContext,
    permit: &Permit,
    parent: &NamespaceFacts,
    (object, NewNamespacePlace(position, metadata)): (&SubnamespaceObject, &NewNamespacePlace),
) -> Result<NamespaceFacts, WriteError> {
    if !context.begin_creation(position, object) {
        return Err(WriteError::Conflict);
    }
    let created = match writes::mark_parent(context, permit, parent, &object.uid).await {
        Ok(()) => {
            let child = (&*object.name, &*object.uid);
            writes::create_namespace(context, permit, child, (position, metadata)).await
        }
        Err(error) => Err(error),
    };
    // Otherwise it is there, or may be.
    if let Err(WriteError::Conflict | WriteError::Gone | WriteError::Refused(_)) = &created {
        context.end_creation(object);
    }
    created
}

/// A step of a namespace to the nearest one above that is not being deleted.
async fn move_up(
    context: &TreeContext,
    permit: &Permit,
    observation: &Observation,
    step: MoveStep,
) -> Result<(), WriteError> {
    let (clients, object) = (&context.shared.clients, &*observation.object);
    let Some(MoveTarget::Found(moving)) = &observation.moving else { return Err(WriteError::Gone) };
    let Moving { above, position, quota, successor, .. } = moving;
    match step {
        MoveStep::CreateSuccessor(spec) => {
            let annotations = json!({ANNOTATION_MOVED_FROM: object.uid});
            let created = json!({
                "apiVersion": Subnamespaces::GROUP_PATH.trim_start_matches("/apis/"), "kind": Subnamespaces::KIND,
                "metadata": {
                    "name": object.name, "namespace": above.name, "finalizers": [FINALIZER], "annotations": annotations
                },
                "spec": spec
            });
            write::create_object::<Subnamespaces>(clients, permit, &above.name, &created).await.map(drop)
        }
        MoveStep::SuccessorStatus(status) => {
            let Some(successor) = successor else { return Err(WriteError::Gone) };
            write::status::<Subnamespaces>(clients, permit, successor, &status).await.map(drop)
        }
        MoveStep::AncestorQuota(ledger) => {
            let place = (&*position.tree.name, &*above.name);
            writes::quota(context, permit, place, quota.as_deref(), &ledger).await.map(drop)
        }
        MoveStep::Label(changes) => {
            let namespace = observation.own_namespace();
            let (Some(namespace), Some(successor)) = (namespace, successor) else {
                return Err(WriteError::Gone);
            };
            if above.labels.get(LABEL_CHILDREN) != Some(&*successor.uid) {
                writes::mark_parent(context, permit, above, &successor.uid).await?;
            }
            writes::metadata(context, permit, namespace, &changes).await
        }
    }
}

/// Where all there is to do is to say that it is ready: says so on what the caches know, since nothing rests on it. Whether that was said.
pub(super) async fn says_ready(
    context: &TreeContext,
    permit: &Permit,
    object: &SubnamespaceObject,
    plan: &SubnamespacePlan,
) -> bool {
    let SubnamespacePlan { status, step, .. } = plan;
    let ready = status.phase == Some(SubnamespacePhase::Ready);
    if !ready || *step != Step::Nothing || !plan::is_durable(status, &object.status) {
        return false;
    }
    write_status(context, permit, object, plan).await.is_ok()
}

/// Puts the finalizer on one that is new. Nothing else is decided by that, so siblings need not wait for it, and what cannot be written is
/// written later.
pub(super) async fn add_finalizer(
    context: &TreeContext,
    permit: &Permit,
    object: &SubnamespaceObject,
    plan: &SubnamespacePlan,
) {
    if plan.step == Step::AddFinalizer {
        let _ = write::add_finalizer::<Subnamespaces>(&context.shared.clients, permit, object).await;
    }
}

/// Makes a status durable, then publishes its Events. Returns the object as it is then.
async fn write_status(
    context: &TreeContext,
    permit: &Permit,
    object: &SubnamespaceObject,
    plan: &SubnamespacePlan,
) -> Result<SubnamespaceObject, WriteError> {
    let SubnamespacePlan { status, events, own_events, .. } = plan;
    let written = write::status::<Subnamespaces>(&context.shared.clients, permit, object, status).await?;
    context.unseen.add(&written);
    report::events(&context.shared, object, events);
    report::own_events(&context.shared, object, own_events);
    report::blocked(&context.shared, &object.status, &written.status);
    Ok(written)
}

/// Says in status what the API server has refused.
async fn say(context: &TreeContext, permit: &Permit, object: &SubnamespaceObject, error: &str) {
    let status = report::refused(object, error, context.shared.now());
    if status != *object.status {
        // What cannot be written is in the log.
        let _ = write::status::<Subnamespaces>(&context.shared.clients, permit, object, &status).await;
    }
}

/// Why a decision is not carried out.
enum Interruption {
    /// Fresh reads ask for something else.
    Changed,
    /// What it rests on could not be read.
    Failed(ReadError),
}

/// The decision of a Subnamespace, in the intent of its status.
struct DeleteDecision<'a> {
    context: &'a TreeContext,
    key: &'a SubnamespaceKey,
    intent: &'a Intent,
}

async fn delete(
    context: &TreeContext,
    permit: &Permit,
    key: &SubnamespaceKey,
    intent: Intent,
    share: Share<'_>,
) -> SubnamespaceProgress {
    let shared = &context.shared;
    let step = StepContext { share, ..shared.step(permit) };
    let decision = DeleteDecision { context, key, intent: &intent };
    let (outcome, verified) = match decision::delete_namespace(step, &decision).await {
        Ok((Deleted::Accepted(_), verified)) => (StepOutcome::Deleted, verified),
        Ok((Deleted::AlreadyGone, verified)) => (StepOutcome::AlreadyGone, verified),
        Err(Stopped::Interrupted(Interruption::Changed) | Stopped::NoNamespace) => {
            return SubnamespaceProgress::Again;
        }
        Err(Stopped::NotLeading) => return SubnamespaceProgress::CheckAt(None),
        Err(Stopped::Interrupted(Interruption::Failed(error))) => {
            return SubnamespaceProgress::Failed(ProgressError::Facts(error));
        }
        Err(Stopped::NotReserved(_, ReservationError::Denied(denied))) => {
            shared.lifecycle_metrics.blocked(denied.reason.as_str());
            // The plan says why as soon as the cache knows.
            let soon = shared.now().saturating_add(SignedDuration::from_secs(1)).unwrap_or(Timestamp::MAX);
            return SubnamespaceProgress::CheckAt(Some(denied.retry_at.map_or(soon, |at| at.min(soon))));
        }
        Err(Stopped::NotReserved(verified, error @ ReservationError::Unavailable(_))) => {
            shared.lifecycle_metrics.blocked(Reason::GovernorUnavailable.as_str());
            (StepOutcome::failed(error.to_string()), verified)
        }
        Err(Stopped::Failed(verified, error)) => (StepOutcome::failed(error.to_string()), verified),
    };
    let with_next_plan = |_: &SubnamespaceObject, status| status;
    let writer = StatusWriter { shared, permit, store: &context.subnamespaces, with_next_plan };
    let object = SubnamespaceObject::clone(&verified.object);
    let (applied, batch) = writer.record_outcome(intent, outcome, object, &BTreeSet::new()).await;
    report::events(shared, &verified.object, &batch.events);
    match applied {
        Applied::Replan(_) | Applied::CacheBehind => SubnamespaceProgress::Again,
        Applied::CheckAt(at) => SubnamespaceProgress::CheckAt(at),
        Applied::Failed(error) => SubnamespaceProgress::Failed(ProgressError::Record(error)),
    }
}

impl DeleteDecision<'_> {
    fn require_same_step(&self, observation: Observation) -> Result<Observation, Interruption> {
        let same =
            matches!(plan::plan(&observation).step, Step::DeleteNamespace(intent) if intent == *self.intent);
        if same { Ok(observation) } else { Err(Interruption::Changed) }
    }
}

impl Decision for DeleteDecision<'_> {
    type Observation = Observation;
    type Interruption = Interruption;

    fn intent(&self) -> &Intent {
        self.intent
    }

    async fn reverify(&self, reservation: Option<&Reservation>) -> Result<Observation, Interruption> {
        let fresh = observe::fresh(self.context, self.key).await.map_err(Interruption::Failed)?;
        let fresh = fresh.ok_or(Interruption::Changed)?;
        match reservation {
            Some(reservation) => self.reverify_under(fresh, reservation),
            None => self.require_same_step(fresh),
        }
    }

    fn reverify_under(
        &self,
        observation: Observation,
        reservation: &Reservation,
    ) -> Result<Observation, Interruption> {
        self.require_same_step(observation.under(self.context, reservation))
    }

    fn decided_by(&self, observation: &Observation) -> DecidedBy {
        let name = format!("{}/{}", observation.object.namespace, observation.object.name);
        DecidedBy { kind: Subnamespaces::KIND, name, losses: None, notification: None }
    }
}

#[cfg(test)]
#[path = "apply_tests.rs"]
mod tests;
