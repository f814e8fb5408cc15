//! Carries out a plan. What it deletes was decided on fresh reads.

use std::sync::Arc;

use coppice_api::Reason;
use coppice_kinds::{Namespaces, Propagated, RoleBindings};
use coppice_runtime::leader::Permit;
use coppice_runtime::read;
use coppice_runtime::write::{self, Revision, WriteError};
use serde_json::{Value, json};

use super::observe;
use super::plan::{self, Problem, Step};
use super::report;
use crate::context::TreeContext;

/// What the API server says of a namespace that is being deleted.
const TERMINATING: &str = "because it is being terminated";

/// How carrying out a plan went.
pub(super) enum Progress {
    /// There is nothing more to do until something changes.
    Done,
    /// Something was not as it was observed.
    Outdated,
    /// It is tried again with backoff.
    Failed(String),
}

/// Brings about what a namespace is to have of those above it.
pub(super) async fn apply(context: &TreeContext, permit: &Permit, namespace: &str) -> Progress {
    let mut observation = observe::cached(context, namespace);
    let mut plan = plan::plan(&observation);
    if plan.steps.iter().any(|step| matches!(step, Step::Delete(_))) {
        observation = match observe::fresh(context, namespace).await {
            Ok(observation) => observation,
            Err(error) => return Progress::Failed(error.to_string()),
        };
        plan = plan::plan(&observation);
    }
    let (mut outdated, mut failed) = (false, None);
    for step in std::mem::take(&mut plan.steps) {
        match carry_out(context, permit, namespace, &step).await {
            Ok(()) => {}
            Err(WriteError::Gone)
                if matches!(step, Step::Create(_)) && is_there(context, namespace).await =>
            {
                plan.problems.push(no_role(&step));
            }
            Err(WriteError::Conflict | WriteError::Gone) => outdated = true,
            Err(WriteError::Refused(error)) if error.contains(TERMINATING) => outdated = true,
            Err(WriteError::Refused(error)) => {
                plan.problems.push(refused(&step, &error));
                failed.get_or_insert(error);
            }
            Err(error @ WriteError::Ambiguous(_)) => {
                failed.get_or_insert(error.to_string());
                plan.mode = None;
            }
        }
    }
    if outdated {
        return Progress::Outdated;
    }
    if let (Some(creator), Some(state)) = (&observation.creator, plan.state())
        && let Err(error) = report::condition(context, permit, creator, state).await
    {
        return match error {
            WriteError::Conflict => Progress::Outdated,
            WriteError::Gone => Progress::Done,
            WriteError::Ambiguous(_) | WriteError::Refused(_) => Progress::Failed(error.to_string()),
        };
    }
    failed.map_or(Progress::Done, Progress::Failed)
}

async fn carry_out(
    context: &TreeContext,
    permit: &Permit,
    namespace: &str,
    step: &Step,
) -> Result<(), WriteError> {
    let clients = &context.shared.clients;
    match step {
        Step::Create(source) => {
            let mut object = copied(source)?;
            object["apiVersion"] = json!("rbac.authorization.k8s.io/v1");
            object["kind"] = json!("RoleBinding");
            object["metadata"]["name"] = json!(source.name);
            write::create_object::<RoleBindings>(clients, permit, namespace, &object).await.map(drop)
        }
        Step::Update { copy, source } => {
            let fields = copied(source)?;
            let target = (namespace, &*copy.name);
            write::merge::<RoleBindings>(clients, permit, target, revision(copy), fields).await.map(drop)
        }
        Step::Delete(copy) => {
            let target = (namespace, &*copy.name);
            write::delete_object::<RoleBindings>(clients, permit, target, revision(copy)).await
        }
    }
}

fn revision(copy: &Propagated) -> Revision<'_> {
    Revision { uid: &copy.uid, resource_version: Some(&copy.resource_version) }
}

/// What a copy has of its source, and what it says of it.
fn copied(source: &Arc<Propagated>) -> Result<Value, WriteError> {
    let content = source.content.as_deref().unwrap_or("null");
    let mut object: Value =
        serde_json::from_str(content).map_err(|error| WriteError::Refused(error.to_string()))?;
    object["metadata"] = source.copy_metadata();
    Ok(object)
}

/// What a step is about, and the role that it binds.
fn subject(step: &Step) -> (&Propagated, &str) {
    let (Step::Create(source) | Step::Update { source, .. } | Step::Delete(source)) = step;
    (source, source.cluster_role.as_deref().unwrap_or_default())
}

/// Whether it is not the namespace that is gone.
async fn is_there(context: &TreeContext, namespace: &str) -> bool {
    let found = read::get::<Namespaces>(&context.shared.clients.reads, "", namespace).await;
    found.is_ok_and(|found| found.is_some_and(|namespace| !namespace.terminating))
}

fn no_role(step: &Step) -> Problem {
    let (source, role) = subject(step);
    let message = format!(
        "RoleBinding {} of namespace {} is not copied: there is no ClusterRole {role}; create it, or delete the RoleBinding",
        source.name, source.namespace
    );
    Problem { reason: Reason::CopyRefused, message }
}

/// What the API server has refused, and what to do about it.
fn refused(step: &Step, error: &str) -> Problem {
    let (source, role) = subject(step);
    let what = match step {
        Step::Delete(copy) => format!("the copy {} is not deleted", copy.name),
        Step::Create(_) | Step::Update { .. } => {
            format!("RoleBinding {} of namespace {} is not copied", source.name, source.namespace)
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
    Problem { reason: Reason::CopyRefused, message }
}
