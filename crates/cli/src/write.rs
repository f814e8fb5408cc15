//! Changes of the spec of a manager, of a record or of the settings, on behalf of the user who asks for them.
//!
//! Each change is computed from what was just read and carries its revision, so that nobody's change is overwritten
//! unseen; after a conflict it is computed again.

use anyhow::{Context as _, Result, anyhow, bail};
use coppice_api::names;
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams, ValidationDirective};
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::args::Target;
use crate::connect::{code, failed};
use crate::facts::{Config, Manager};
use crate::live::{self, managers_api};
use crate::namespace_record::record_of;
use crate::{Io, with_progress};

/// The field manager of everything that the command line writes.
pub(crate) const FIELD_MANAGER: &str = "coppice-cli";
/// How often a change is computed again.
pub(crate) const MAX_ATTEMPTS: usize = 5;

/// What a change does with an object.
pub(crate) enum Edit<T> {
    /// Merge this into spec, and give that back.
    Patch(Value, T),
    /// There is nothing to change.
    Nothing(T),
}

/// The managers of a namespace, where none was named.
pub(crate) async fn managers_in(client: &Client, namespace: &str) -> Result<Vec<Manager>> {
    live::managers(client, Some(namespace), None).await.map_err(|error| {
        anyhow!("{error:#}; name the manager too, as {namespace}/NAME, and nothing has to be listed")
    })
}

/// The only one of the managers of a namespace.
pub(crate) fn only(namespace: String, managers: &[Manager]) -> Result<Target> {
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

/// The name by which the API server knows this user, for a field that has to be it.
pub(crate) async fn user_name(client: &Client, field: &str) -> Result<String> {
    let review = Api::<SelfSubjectReview>::all(client.clone());
    let reviewed = review
        .create(&PostParams::default(), &SelfSubjectReview::default())
        .await
        .map_err(|e| failed(&format!("who you are ({field}) cannot be read"), &e))?;
    let user = reviewed.status.and_then(|status| status.user_info).and_then(|user| user.username);
    user.with_context(|| format!("the API server does not say who you are, and {field} has to name you"))
}

/// Computes a change and writes it, again if somebody else was faster. Gives back what was computed last, and whether
/// anything was written.
pub(crate) async fn change<T>(
    client: &Client,
    target: &Target,
    dry_run: bool,
    compute: impl AsyncFnMut(&Manager) -> Result<Edit<T>>,
    io: &mut Io<'_>,
) -> Result<(T, bool)> {
    let changing = Box::pin(change_manager(client, target, dry_run, compute));
    with_progress("changing the manager", io, changing).await?
}

async fn change_manager<T>(
    client: &Client,
    target: &Target,
    dry_run: bool,
    mut compute: impl AsyncFnMut(&Manager) -> Result<Edit<T>>,
) -> Result<(T, bool)> {
    let api = managers_api(client, Some(&target.namespace));
    for _ in 0..MAX_ATTEMPTS {
        let manager = existing(client, target).await?;
        let (spec, result) = match compute(&manager).await? {
            Edit::Patch(spec, result) => (spec, result),
            Edit::Nothing(result) => return Ok((result, false)),
        };
        if merge(&api, &format!("NamespaceManager {target}"), &manager.meta, &spec, dry_run).await? {
            return Ok((result, true));
        }
    }
    Err(overtaken(&format!("NamespaceManager {target}")))
}

/// The same for the settings, which must exist.
pub(crate) async fn change_settings<T>(
    client: &Client,
    dry_run: bool,
    compute: impl Fn(&Config) -> Result<Edit<T>>,
) -> Result<T> {
    const WHAT: &str = "CoppiceConfig coppice";
    let api = live::configs_api(client);
    for _ in 0..MAX_ATTEMPTS {
        let mut warnings = Vec::new();
        let Some(config) = live::config(client, &mut warnings).await.found() else {
            bail!("{}", warnings.join("; "));
        };
        let (spec, result) = match compute(&config)? {
            Edit::Patch(spec, result) => (spec, result),
            Edit::Nothing(result) => return Ok(result),
        };
        if merge(&api, WHAT, &config.meta, &spec, dry_run).await? {
            return Ok(result);
        }
    }
    Err(overtaken(WHAT))
}

/// Creates the record of a namespace with this spec; false if there is one by now.
pub(crate) async fn create_record(
    client: &Client,
    namespace: &str,
    spec: &Value,
    dry_run: bool,
) -> Result<bool> {
    let params = PostParams { dry_run, field_manager: Some(FIELD_MANAGER.to_owned()) };
    let resource = ApiResource::erase::<coppice_api::ManagedNamespace>(&());
    let record = DynamicObject::new(names::MANAGED_NAMESPACE_NAME, &resource)
        .within(namespace)
        .data(json!({ "spec": spec }));
    match live::records_api(client, Some(namespace)).create(&params, &record).await {
        Ok(_) => Ok(true),
        Err(error) if code(&error) == Some(409) => Ok(false),
        Err(error) => Err(failed(&format!("{} cannot be created", record_of(namespace)), &error)),
    }
}

/// Merges a change into the spec of an object if it is as it was read; false if somebody else was faster.
pub(crate) async fn merge(
    api: &Api<DynamicObject>,
    what: &str,
    read: &ObjectMeta,
    spec: &Value,
    dry_run: bool,
) -> Result<bool> {
    let params = PatchParams {
        dry_run,
        field_manager: Some(FIELD_MANAGER.to_owned()),
        field_validation: Some(ValidationDirective::Strict),
        ..PatchParams::default()
    };
    let metadata = json!({ "resourceVersion": read.resource_version, "uid": read.uid });
    let patch = Patch::Merge(json!({ "metadata": metadata, "spec": spec }));
    match api.patch(read.name.as_deref().unwrap_or_default(), &params, &patch).await {
        Ok(_) => Ok(true),
        Err(error) if code(&error) == Some(409) => Ok(false),
        Err(error) => Err(failed(&format!("{what} cannot be changed"), &error)),
    }
}

/// Somebody else was faster each time.
pub(crate) fn overtaken(what: &str) -> anyhow::Error {
    anyhow!(
        "{what} was changed by somebody else {MAX_ATTEMPTS} times while this was being written; try again"
    )
}

/// How kubectl names a manager.
pub(crate) fn resource_name(name: &str) -> String {
    format!("namespacemanager.{}/{name}", names::GROUP)
}

/// What is added to a line about something that was only checked.
pub(crate) fn dry_run_suffix(dry_run: bool) -> &'static str {
    if dry_run { " (server dry run)" } else { "" }
}
