//! Workloads that can be scaled down: through the scale subresource, or (`CronJob`) by suspending.
//!
//! Scaling down takes a [`ReservedScaleDown`], waking takes none: it destroys nothing.

use coppice_api::names::FIELD_MANAGER;
use coppice_api::{Labels, Selector};
use coppice_lifecycle::settings::ScaleKind;
use coppice_quantity::count;
use http::Request;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::governor::{Reservation, ReservationError};
use coppice_mutants::Mutant;
use coppice_runtime::client::Clients;
use coppice_runtime::leader::Permit;
use coppice_runtime::read;
use coppice_runtime::write::WriteError;

/// The size of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkloadScale {
    /// This many replicas.
    Replicas(i32),
    /// A `CronJob` that is suspended, or not.
    Suspended(bool),
}

impl WorkloadScale {
    /// Whether nothing runs (or will be started) because of this size.
    pub const fn is_scaled_down(self) -> bool {
        matches!(self, Self::Replicas(0) | Self::Suspended(true))
    }

    /// The size of the same kind at which nothing runs.
    #[must_use]
    pub const fn scaled_down(self) -> Self {
        match self {
            Self::Replicas(_) => Self::Replicas(0),
            Self::Suspended(_) => Self::Suspended(true),
        }
    }

    /// The replicas, if that is how the workload is measured.
    pub const fn replicas(self) -> Option<i32> {
        match self {
            Self::Replicas(replicas) => Some(replicas),
            Self::Suspended(_) => None,
        }
    }
}

impl std::fmt::Display for WorkloadScale {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Replicas(replicas) => f.write_str(&count(*replicas, "replica")),
            Self::Suspended(true) => f.write_str("suspended"),
            Self::Suspended(false) => f.write_str("not suspended"),
        }
    }
}

/// A workload, in the revision in which its size was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// Its kind.
    pub kind: ScaleKind,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// The revision that its size was read from.
    pub resource_version: String,
    /// Its size.
    pub scale: WorkloadScale,
}

#[derive(Deserialize)]
struct ListWire {
    metadata: ListMetaWire,
    #[serde(default)]
    items: Vec<Wire>,
}

#[derive(Deserialize)]
struct ListMetaWire {
    r#continue: Option<String>,
}

#[derive(Deserialize)]
struct Wire {
    metadata: MetaWire,
    /// As it is written: where replicas are depends on the kind.
    #[serde(default)]
    spec: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct MetaWire {
    name: String,
    uid: String,
    resource_version: String,
    #[serde(default)]
    labels: Option<Labels>,
    #[serde(default)]
    deletion_timestamp: Option<IgnoredAny>,
    #[serde(default)]
    owner_references: Vec<OwnerWire>,
}

#[derive(Deserialize)]
struct OwnerWire {
    #[serde(default)]
    controller: bool,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct SpecWire {
    replicas: i32,
    suspend: bool,
}

#[derive(Deserialize)]
struct DefinitionWire {
    spec: DefinitionSpecWire,
}

#[derive(Deserialize)]
struct DefinitionSpecWire {
    versions: Vec<VersionWire>,
}

#[derive(Deserialize)]
struct VersionWire {
    name: String,
    #[serde(default)]
    subresources: SubresourcesWire,
}

#[derive(Default, Deserialize)]
struct SubresourcesWire {
    scale: Option<ScaleWire>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ScaleWire {
    spec_replicas_path: String,
}

pub(crate) const CRON_JOB: &str = "CronJob";

/// Where the size of a kind's objects is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Location {
    /// In `spec.replicas` or, of a `CronJob`, in `spec.suspend`.
    Builtin,
    /// In these fields, one in the other, of `spec`.
    Path(Vec<String>),
    /// Only its scale says.
    Scale,
}

/// Where the size of a kind's objects is. Kubernetes' own kinds are known; of others their definition says it.
pub(crate) async fn location(clients: &Clients, kind: &ScaleKind) -> Result<Location, kube::Error> {
    if matches!(kind.api_version.as_str(), "apps/v1" | "batch/v1") {
        return Ok(Location::Builtin);
    }
    let Some((group, version)) = kind.api_version.split_once('/') else { return Ok(Location::Scale) };
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let request = read::request(&format!("{definitions}/{}.{group}", kind.plural))?;
    match clients.reads.request::<DefinitionWire>(request).await {
        Ok(definition) => Ok(path_in(definition, version).map_or(Location::Scale, Location::Path)),
        // A kind of an aggregated API server has no definition; without the right to read it, it is as if there were none.
        Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404) => Ok(Location::Scale),
        Err(error) => Err(error),
    }
}

/// The fields that lead to the replicas in `spec`. The API server accepts a JSON path of field names under `.spec` alone.
fn path_in(definition: DefinitionWire, version: &str) -> Option<Vec<String>> {
    let served = definition.spec.versions.into_iter().find(|v| v.name == version)?;
    let path = served.subresources.scale?.spec_replicas_path;
    let fields = path.strip_prefix(".spec.")?.split('.').map(str::to_owned);
    let fields: Vec<_> = fields.collect();
    let plain = |field: &String| !field.is_empty() && !field.contains(['[', ']', '\'', '"', '\\', '@', '*']);
    fields.iter().all(plain).then_some(fields)
}

/// The size of an object as a list shows it; none if only its scale says.
fn size_in(
    kind: &ScaleKind,
    spec: Option<&RawValue>,
    location: &Location,
) -> Result<Option<WorkloadScale>, serde_json::Error> {
    let spec = spec.map_or("null", RawValue::get);
    match location {
        Location::Scale => Ok(None),
        Location::Builtin => {
            let spec: Option<SpecWire> = serde_json::from_str(spec)?;
            let spec = spec.unwrap_or_default();
            Ok(Some(if kind.kind == CRON_JOB {
                WorkloadScale::Suspended(spec.suspend)
            } else {
                WorkloadScale::Replicas(spec.replicas)
            }))
        }
        Location::Path(fields) => {
            let spec: Value = serde_json::from_str(spec)?;
            let found = fields.iter().try_fold(&spec, |value, field| value.get(field));
            // As the API server shows it in the scale: none is zero. What is no number has no scale: it is asked for, and
            // the API server says what is wrong.
            let replicas = match found {
                None | Some(Value::Null) => Some(0),
                Some(value) => value.as_i64().and_then(|n| i32::try_from(n).ok()),
            };
            Ok(replicas.map(WorkloadScale::Replicas))
        }
    }
}

pub(crate) fn path(namespace: &str, kind: &ScaleKind) -> String {
    let group = if kind.api_version.contains('/') { "apis" } else { "api" };
    format!("/{group}/{}/namespaces/{namespace}/{}", kind.api_version, kind.plural)
}

/// Every workload of a kind in a namespace that the selector selects, with its size. Those that are being deleted are
/// left out, and so are `ReplicaSets` of a Deployment or another controller, which would scale them up again at once.
///
/// Read in pages, without a request for each workload where its kind has a definition that may be read.
pub async fn list(
    clients: &Clients,
    namespace: &str,
    kind: &ScaleKind,
    selector: Option<&Selector>,
) -> Result<Vec<Workload>, kube::Error> {
    let none = Labels::default();
    let location = location(clients, kind).await?;
    let (path, mut cursor) = (path(namespace, kind), read::Cursor::default());
    let mut workloads = Vec::new();
    loop {
        let page = read::page_at(&clients.reads, &path, &mut cursor, |body| {
            let page: ListWire = serde_json::from_slice(body)?;
            Ok((page.items, page.metadata.r#continue))
        });
        for wire in page.await? {
            let labels = wire.metadata.labels.as_ref().unwrap_or(&none);
            let managed =
                kind.kind == "ReplicaSet" && wire.metadata.owner_references.iter().any(|o| o.controller);
            let selected = selector.is_none_or(|s| s.matches(labels))
                || coppice_mutants::active(Mutant::WorkloadSelectorIgnored);
            if wire.metadata.deletion_timestamp.is_some() || managed || !selected {
                continue;
            }
            let scale = size_in(kind, wire.spec.as_deref(), &location).map_err(kube::Error::SerdeError)?;
            if let Some(scale) = scale {
                workloads.push(to_workload(kind, wire.metadata, scale));
            } else if let Some(workload) = get(clients, namespace, kind, &wire.metadata.name).await? {
                workloads.push(workload);
            }
        }
        if cursor.is_done() {
            return Ok(workloads);
        }
    }
}

/// One workload with its size; none if it is gone.
pub async fn get(
    clients: &Clients,
    namespace: &str,
    kind: &ScaleKind,
    name: &str,
) -> Result<Option<Workload>, kube::Error> {
    let subresource = if kind.kind == CRON_JOB { "" } else { "/scale" };
    let uri = format!("{}/{name}{subresource}", path(namespace, kind));
    match clients.reads.request::<Wire>(read::request(&uri)?).await {
        Ok(wire) => {
            // A scale has the replicas where Kubernetes' own kinds have them.
            let scale =
                size_in(kind, wire.spec.as_deref(), &Location::Builtin).map_err(kube::Error::SerdeError)?;
            Ok(scale.map(|scale| to_workload(kind, wire.metadata, scale)))
        }
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(error),
    }
}

fn to_workload(kind: &ScaleKind, metadata: MetaWire, scale: WorkloadScale) -> Workload {
    Workload {
        kind: kind.clone(),
        name: metadata.name,
        uid: metadata.uid,
        resource_version: metadata.resource_version,
        scale,
    }
}

/// The step that scales down the workloads of one namespace. One reservation is for all of them, however many there are and
/// however long it takes: it is renewed while the step lasts.
#[derive(Debug)]
pub struct ReservedScaleDown {
    namespace: String,
    reservation: Reservation,
}

impl ReservedScaleDown {
    /// Spends a reservation on this namespace.
    pub fn new(reservation: Reservation, namespace: &str) -> Self {
        Self { namespace: namespace.to_owned(), reservation }
    }

    /// What was reserved, with the settings as they were read last.
    pub fn reservation(&self) -> &Reservation {
        &self.reservation
    }

    /// Reads the settings again, once the reservation is too old. What was reserved stays reserved; the next decision,
    /// under these settings, says whether the step may continue.
    pub async fn renew(&mut self, clients: &Clients, permit: &Permit) -> Result<(), ReservationError> {
        self.reservation.renew(clients, permit).await
    }

    /// Scales a workload of the namespace down, if nobody has changed it since it was read.
    pub async fn scale_down(
        &self,
        clients: &Clients,
        permit: &Permit,
        workload: &Workload,
    ) -> Result<(), WriteError> {
        set(clients, permit, &self.namespace, workload, workload.scale.scaled_down()).await
    }
}

/// Gives a workload that is scaled down the size back that it had before, if nobody has changed it since it was read.
pub async fn wake(
    clients: &Clients,
    permit: &Permit,
    namespace: &str,
    workload: &Workload,
    before: WorkloadScale,
) -> Result<(), WriteError> {
    set(clients, permit, namespace, workload, before).await
}

async fn set(
    clients: &Clients,
    permit: &Permit,
    namespace: &str,
    workload: &Workload,
    scale: WorkloadScale,
) -> Result<(), WriteError> {
    let (subresource, spec) = match scale {
        WorkloadScale::Replicas(replicas) => ("/scale", json!({ "replicas": replicas })),
        WorkloadScale::Suspended(suspend) => ("", json!({ "suspend": suspend })),
    };
    let uri = format!(
        "{}/{}{subresource}?fieldManager={FIELD_MANAGER}",
        path(namespace, &workload.kind),
        workload.name
    );
    let mut body = json!({
        "metadata": {"uid": workload.uid, "resourceVersion": workload.resource_version},
        "spec": spec,
    });
    if coppice_mutants::active(Mutant::NoScalePreconditions) {
        body["metadata"] = json!({});
    }
    let request = Request::patch(uri)
        .header(http::header::CONTENT_TYPE, "application/merge-patch+json")
        .body(body.to_string().into_bytes())
        .map_err(|e| WriteError::refused(e.to_string()))?;
    permit.client(clients).request::<serde_json::Value>(request).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use coppice_kinds::Configs;
    use coppice_runtime::decode;
    use coppice_runtime::leader::Gate;

    use super::*;
    use coppice_scripted::{Answer, scripted};

    fn rollout() -> ScaleKind {
        ScaleKind {
            api_version: "argoproj.io/v1alpha1".to_owned(),
            kind: "Rollout".to_owned(),
            plural: "rollouts".to_owned(),
        }
    }

    fn path(path: &str) -> Option<Vec<String>> {
        let scale = json!({"specReplicasPath": path, "statusReplicasPath": ".status.replicas"});
        let versions = json!([
            {"name": "v1alpha1", "subresources": {"status": {}, "scale": scale}},
            {"name": "v1", "subresources": {}}
        ]);
        let definition = json!({"spec": {"versions": versions}});
        assert_eq!(path_in(serde_json::from_value(definition.clone()).unwrap(), "v1"), None);
        path_in(serde_json::from_value(definition).unwrap(), "v1alpha1")
    }

    #[tokio::test(start_paused = true)]
    async fn a_reservation_is_spent_on_the_workloads_of_one_namespace() {
        let paths: Arc<Mutex<Vec<String>>> = Arc::default();
        let log = Arc::clone(&paths);
        let settings = json!({"metadata": {"name": "coppice", "uid": "s", "generation": 2}, "spec": {}});
        let now = settings.clone();
        let (clients, sent) = scripted(move |_, path, _| {
            log.lock().unwrap().push(path.to_owned());
            Answer::Object(200, now.clone())
        });
        let permit = Gate::always(Duration::ZERO).permit().unwrap();
        let mut before = settings;
        before["metadata"]["generation"] = json!(1);
        let before = decode::item::<Configs>(&before.to_string(), &()).unwrap().object.unwrap();
        let mut step = ReservedScaleDown::new(Reservation::for_tests(before), "a");
        for name in ["one", "two"] {
            let workload = Workload {
                kind: rollout(),
                name: name.to_owned(),
                uid: "u".to_owned(),
                resource_version: "7".to_owned(),
                scale: WorkloadScale::Replicas(3),
            };
            step.scale_down(&clients, &permit, &workload).await.unwrap();
        }
        tokio::time::advance(Duration::from_secs(9)).await;
        assert_eq!(step.reservation().age(), Duration::from_secs(9));
        step.renew(&clients, &permit).await.unwrap();
        assert_eq!(step.reservation().age(), Duration::ZERO);
        assert_eq!(step.reservation().settings.generation, 2, "as they are now");
        let rollouts = "/apis/argoproj.io/v1alpha1/namespaces/a/rollouts";
        let config = "/apis/coppice.dev/v1alpha1/coppiceconfigs/coppice".to_owned();
        let expected = [format!("{rollouts}/one/scale"), format!("{rollouts}/two/scale"), config];
        assert_eq!(*paths.lock().unwrap(), expected);
        let body = json!({"metadata": {"uid": "u", "resourceVersion": "7"}, "spec": {"replicas": 0}});
        assert!(sent.lock().unwrap()[..2].iter().all(|sent| sent.body == body));
    }

    #[test]
    fn a_definition_says_where_replicas_are() {
        assert_eq!(path(".spec.replicas"), Some(vec!["replicas".to_owned()]));
        assert_eq!(path(".spec.workers.count"), Some(vec!["workers".to_owned(), "count".to_owned()]));
        for other in [".status.replicas", ".spec", ".spec.", ".spec.a..b", ".spec['a']", ""] {
            assert_eq!(path(other), None, "{other}");
        }
    }

    #[test]
    fn a_scale_is_read_from_the_object_or_else_requested() {
        let location = Location::Path(vec!["workers".to_owned(), "count".to_owned()]);
        for (spec, scale) in [
            (r#"{"workers": {"count": 3}, "replicas": 9}"#, Some(WorkloadScale::Replicas(3))),
            (r#"{"workers": {}}"#, Some(WorkloadScale::Replicas(0))),
            (r#"{"workers": {"count": null}}"#, Some(WorkloadScale::Replicas(0))),
            (r#"{"workers": {"count": "3"}}"#, None),
            (r#"{"workers": {"count": 3000000000}}"#, None),
            ("null", Some(WorkloadScale::Replicas(0))),
        ] {
            let raw = RawValue::from_string(spec.to_owned()).unwrap();
            assert_eq!(size_in(&rollout(), Some(&raw), &location).unwrap(), scale, "{spec}");
        }
        assert_eq!(size_in(&rollout(), None, &Location::Scale).unwrap(), None);
    }
}
