//! Carries out a plan. What it deletes was decided on fresh reads.

use coppice_api::condition::ConditionState;
use coppice_api::names::{ANNOTATION_PROPAGATED_UID, LABEL_PROPAGATED_FROM};
use coppice_api::{Reason, SubnamespacePhase};
use coppice_kinds::{
    CopiedKind, LimitRanges, Namespaces, NetworkPolicies, Propagated, RoleBindings, SubnamespaceObject,
};
use coppice_runtime::kind::Kind;
use coppice_runtime::leader::Permit;
use coppice_runtime::read;
use coppice_runtime::write::{self, CreateError, Revision, WriteError};
use serde_json::{Map, Value, json};

use super::observe::{self, Named, Observation, ReadError};
use super::plan::{self, MissingCopy, PropagationPlan, Step};
use super::report;
use crate::context::TreeContext;
use crate::error::ProgressError;

/// How carrying out a plan went.
pub(super) enum PropagationProgress {
    /// There is nothing more to do until something changes.
    Done,
    /// Something was not as it was observed.
    Outdated,
    /// It is tried again with backoff.
    Failed(ProgressError<ReadError>),
}

/// Brings about what a namespace is to have of those above it.
pub(super) async fn apply(context: &TreeContext, permit: &Permit, namespace: &str) -> PropagationProgress {
    let mut observation = observe::cached(context, namespace);
    let mut plan = plan::plan(&observation);
    let deletes = deletions(&plan.steps);
    if !deletes.is_empty() {
        observation = match observe::fresh(context, namespace, &deletes).await {
            Ok(observation) => observation,
            Err(error) => return PropagationProgress::Failed(ProgressError::Read(error)),
        };
        plan = plan::plan(&observation);
    }
    if let Err(error) = hold_back_rights(context, &observation, &mut plan).await {
        return PropagationProgress::Failed(ProgressError::Read(error));
    }
    let (mut outdated, mut failed, mut unsure) = (false, None, false);
    for step in std::mem::take(&mut plan.steps) {
        match &step {
            // Nobody has rights in a namespace before what limits them is there; what the API server refuses does not come.
            Step::Create(source) if source.kind == CopiedKind::RoleBinding && (outdated || unsure) => {
                plan.modes = None;
                continue;
            }
            // It has not been read again.
            Step::Delete(copy)
                if !deletes.get(&copy.kind).is_some_and(|names| names.contains(&copy.name)) =>
            {
                outdated = true;
                continue;
            }
            _ => {}
        }
        match carry_out(context, permit, namespace, &step).await {
            Ok(()) => {}
            Err(CreateError::Write(WriteError::Gone))
                if creates_binding(&step) && is_there(context, namespace).await =>
            {
                plan.problems.push(no_role(&step));
            }
            Err(
                CreateError::NamespaceTerminating(_)
                | CreateError::Write(WriteError::Conflict | WriteError::Gone),
            ) => outdated = true,
            Err(CreateError::Write(WriteError::Refused(error))) => {
                plan.problems.push(refused(&step, &error.message));
                failed.get_or_insert(WriteError::Refused(error));
            }
            Err(CreateError::Write(error @ WriteError::Ambiguous(_))) => {
                failed.get_or_insert(error);
                (unsure, plan.modes) = (true, None);
            }
        }
    }
    if outdated {
        return PropagationProgress::Outdated;
    }
    if let (Some(creator), Some(state)) = (&observation.creator, plan.state())
        && !is_early(creator, &state)
        && let Err(error) = report::condition(context, permit, creator, state).await
    {
        return match error {
            WriteError::Conflict => PropagationProgress::Outdated,
            WriteError::Gone => PropagationProgress::Done,
            WriteError::Ambiguous(_) | WriteError::Refused(_) => {
                PropagationProgress::Failed(ProgressError::Write(error))
            }
        };
    }
    failed.map_or(PropagationProgress::Done, |error| PropagationProgress::Failed(ProgressError::Write(error)))
}

/// Leaves out copies of RoleBindings where it is not certain that the namespace has its quota. Its watch brings that.
async fn hold_back_rights(
    context: &TreeContext,
    observation: &Observation,
    plan: &mut PropagationPlan,
) -> Result<(), ReadError> {
    let Some(namespace) = observation.namespace.as_deref() else { return Ok(()) };
    if plan.steps.iter().any(creates_binding) && !observe::is_limited(context, namespace).await? {
        plan.steps.retain(|step| !creates_binding(step));
        plan.modes = None;
    }
    Ok(())
}

/// Whether all is well in a namespace whose Subnamespace is being written all the time, until it is ready: this is said after that.
fn is_early(creator: &SubnamespaceObject, state: &ConditionState) -> bool {
    state.status == "True" && creator.status.phase == Some(SubnamespacePhase::Pending)
}

async fn carry_out(
    context: &TreeContext,
    permit: &Permit,
    namespace: &str,
    step: &Step,
) -> Result<(), CreateError> {
    let (Step::Create(object)
    | Step::Update { source: object, .. }
    | Step::Delete(object)
    | Step::Release(object)) = step;
    match object.kind {
        CopiedKind::LimitRange => carry_out_for::<LimitRanges>(context, permit, namespace, step).await,
        CopiedKind::NetworkPolicy => carry_out_for::<NetworkPolicies>(context, permit, namespace, step).await,
        CopiedKind::RoleBinding => carry_out_for::<RoleBindings>(context, permit, namespace, step).await,
    }
}

async fn carry_out_for<K: Kind>(
    context: &TreeContext,
    permit: &Permit,
    namespace: &str,
    step: &Step,
) -> Result<(), CreateError> {
    let clients = &context.shared.clients;
    match step {
        Step::Create(source) => {
            let mut object = content(source)?;
            object["metadata"] = source.copy_metadata();
            object["apiVersion"] = json!(source.kind.api_version());
            object["kind"] = json!(source.kind.as_str());
            object["metadata"]["name"] = json!(source.name);
            write::create_in_namespace::<K>(clients, permit, namespace, &object).await.map(drop)
        }
        Step::Update { copy, source } => {
            let before = content(copy).unwrap_or_default();
            let mut fields = merge_patch(&before, &content(source)?);
            fields["metadata"] = source.copy_metadata();
            let target = (namespace, &*copy.name);
            write::merge::<K>(clients, permit, target, revision(copy), fields).await?;
            Ok(())
        }
        Step::Release(copy) => {
            let fields = json!({"metadata": {
                "labels": {LABEL_PROPAGATED_FROM: null}, "annotations": {ANNOTATION_PROPAGATED_UID: null}
            }});
            let target = (namespace, &*copy.name);
            write::merge::<K>(clients, permit, target, revision(copy), fields).await?;
            Ok(())
        }
        Step::Delete(copy) => {
            let target = (namespace, &*copy.name);
            write::delete_object::<K>(clients, permit, target, revision(copy))
                .await
                .map_err(CreateError::from)
        }
    }
}

fn revision(copy: &Propagated) -> Revision<'_> {
    Revision { uid: &copy.uid, resource_version: Some(&copy.resource_version) }
}

/// What a copy has of its source.
fn content(source: &Propagated) -> Result<Value, WriteError> {
    let content = source.content.as_deref().unwrap_or("{}");
    serde_json::from_str(content).map_err(|error| WriteError::refused(error.to_string()))
}

/// What has to be merged into the one for it to become the other: what only the one has is removed (RFC 7386).
fn merge_patch(before: &Value, after: &Value) -> Value {
    let (Value::Object(before), Value::Object(after)) = (before, after) else { return after.clone() };
    let gone = before.keys().filter(|key| !after.contains_key(*key));
    let mut patch: Map<String, Value> = gone.map(|key| (key.clone(), Value::Null)).collect();
    for (key, value) in after {
        let now = before.get(key).unwrap_or(&Value::Null);
        if now != value {
            patch.insert(key.clone(), merge_patch(now, value));
        }
    }
    Value::Object(patch)
}

/// What is to be deleted.
fn deletions(steps: &[Step]) -> Named {
    let mut named = Named::new();
    for step in steps {
        if let Step::Delete(copy) = step {
            named.entry(copy.kind).or_default().insert(copy.name.clone());
        }
    }
    named
}

fn creates_binding(step: &Step) -> bool {
    matches!(step, Step::Create(source) if source.kind == CopiedKind::RoleBinding)
}

/// What a step is about, and the role that it binds.
fn subject(step: &Step) -> (&Propagated, &str) {
    let (Step::Create(source) | Step::Update { source, .. } | Step::Delete(source) | Step::Release(source)) =
        step;
    (source, source.cluster_role.as_deref().unwrap_or_default())
}

/// Whether it is not the namespace that is gone.
async fn is_there(context: &TreeContext, namespace: &str) -> bool {
    let found = read::get::<Namespaces>(&context.shared.clients.reads, "", namespace).await;
    found.is_ok_and(|found| found.is_some_and(|namespace| !namespace.terminating))
}

fn no_role(step: &Step) -> MissingCopy {
    let (source, role) = subject(step);
    let message = format!(
        "RoleBinding {} of namespace {} is not copied: there is no ClusterRole {role}; create it, or delete the RoleBinding",
        source.name, source.namespace
    );
    MissingCopy { reason: Reason::CopyRefused, message }
}

/// What the API server has refused, and what to do about it.
fn refused(step: &Step, error: &str) -> MissingCopy {
    let (source, role) = subject(step);
    let what = match step {
        Step::Delete(copy) => format!("the copy {} {} is not deleted", copy.kind.as_str(), copy.name),
        Step::Release(copy) => format!("the copy {} {} is not released", copy.kind.as_str(), copy.name),
        Step::Create(_) | Step::Update { .. } => {
            let kind = source.kind.as_str();
            format!("{kind} {} of namespace {} is not copied", source.name, source.namespace)
        }
    };
    // The message of the API server has every rule of the role.
    let message = if error.contains("attempting to grant RBAC permissions not currently held") {
        format!(
            "{what}: Coppice may not bind ClusterRole {role}; a cluster administrator grants its account coppice-trees the verb bind on it, \
             or takes it from spec.propagate.roleBindings.clusterRoles of the NamespaceTree"
        )
    } else {
        format!("{what}: {error}")
    };
    MissingCopy { reason: Reason::CopyRefused, message }
}

#[cfg(test)]
#[path = "apply_tests.rs"]
mod tests;
