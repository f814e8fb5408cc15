//! Changes of a manager's spec, on behalf of the user who asks for them.
//!
//! Each change is computed from what was just read and carries its revision, so that nobody's change is overwritten
//! unseen; after a conflict it is computed again.

use anyhow::{Result, anyhow, bail};
use kube::Client;
use kube::api::{Patch, PatchParams, ValidationDirective};
use serde_json::{Value, json};

use crate::args::{NamespaceOrManager, Target};
use crate::connect::{code, failed};
use crate::facts::Manager;
use crate::live::{self, managers_api};

/// The field manager of everything that the command line writes.
const FIELD_MANAGER: &str = "coppice-cli";
/// How often a change is computed again.
const MAX_ATTEMPTS: usize = 5;

/// What a change does with a manager.
pub(crate) enum Change<T> {
    /// Merge this into spec, and give that back.
    Patch(Value, T),
    /// There is nothing to change.
    Nothing(T),
}

/// The manager that is meant: a namespace stands for the only manager in it.
pub(crate) async fn resolve(client: &Client, wanted: &NamespaceOrManager) -> Result<Target> {
    let namespace = wanted.namespace.clone();
    if let Some(name) = wanted.name.clone() {
        return Ok(Target { namespace, name });
    }
    let managers = live::managers(client, Some(&namespace), None).await.map_err(|error| {
        anyhow!("{error:#}; name the manager too, as {namespace}/NAME, and nothing has to be listed")
    })?;
    let names: Vec<&str> = managers.iter().map(Manager::name).collect();
    match names.as_slice() {
        [] => bail!(
            "there is no NamespaceManager in namespace {namespace}; `coppice list -A` shows where there are some"
        ),
        [name] => Ok(Target { namespace, name: (*name).to_owned() }),
        [first, ..] => bail!(
            "namespace {namespace} has {} NamespaceManagers ({}): say which, such as {namespace}/{first}",
            names.len(),
            names.join(", ")
        ),
    }
}

/// Reads a manager that must exist.
pub(crate) async fn existing(client: &Client, target: &Target) -> Result<Manager> {
    live::manager(client, &target.namespace, &target.name).await?.ok_or_else(|| {
        anyhow!(
            "there is no NamespaceManager {} in namespace {}; `coppice list -n {1}` shows those that are there",
            target.name,
            target.namespace
        )
    })
}

/// Computes a change and writes it, again if somebody else was faster. Gives back what was computed last, and whether
/// anything was written.
pub(crate) async fn change<T>(
    client: &Client,
    target: &Target,
    dry_run: bool,
    mut compute: impl AsyncFnMut(&Manager) -> Result<Change<T>>,
) -> Result<(T, bool)> {
    let api = managers_api(client, Some(&target.namespace));
    let params = PatchParams {
        dry_run,
        field_manager: Some(FIELD_MANAGER.to_owned()),
        field_validation: Some(ValidationDirective::Strict),
        ..PatchParams::default()
    };
    for _ in 0..MAX_ATTEMPTS {
        let manager = existing(client, target).await?;
        let (spec, result) = match compute(&manager).await? {
            Change::Patch(spec, result) => (spec, result),
            Change::Nothing(result) => return Ok((result, false)),
        };
        let metadata = json!({ "resourceVersion": manager.meta.resource_version, "uid": manager.meta.uid });
        let patch = json!({ "metadata": metadata, "spec": spec });
        match api.patch(&target.name, &params, &Patch::Merge(patch)).await {
            Ok(_) => return Ok((result, true)),
            Err(error) if code(&error) == Some(409) => {}
            Err(error) => {
                return Err(failed(&format!("NamespaceManager {target} cannot be changed"), &error));
            }
        }
    }
    bail!(
        "NamespaceManager {target} was changed by somebody else {MAX_ATTEMPTS} times while this was being written; try again"
    )
}

/// How kubectl names a manager.
pub(crate) fn resource_name(name: &str) -> String {
    format!("namespacemanager.{}/{name}", coppice_api::names::GROUP)
}

/// What is added to a line about something that was only checked.
pub(crate) fn dry_run_suffix(dry_run: bool) -> &'static str {
    if dry_run { " (server dry run)" } else { "" }
}
