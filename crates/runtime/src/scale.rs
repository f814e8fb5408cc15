//! Workloads that can be put to sleep: through the scale subresource, or (`CronJob`) by suspending.

use coppice_api::names::FIELD_MANAGER;
use coppice_api::{Labels, Selector};
use coppice_lifecycle::law::ScaleKind;
use http::Request;
use serde::Deserialize;
use serde_json::json;

use crate::client::Clients;
use crate::leader::Permit;
use crate::mutants::{self, Mutant};
use crate::read;
use crate::write::WriteError;

/// How big a workload is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// So many replicas.
    Replicas(i32),
    /// A `CronJob` that is suspended, or not.
    Suspended(bool),
}

impl Size {
    /// Whether nothing runs (or will be started) because of this size.
    pub const fn is_asleep(self) -> bool {
        matches!(self, Self::Replicas(0) | Self::Suspended(true))
    }

    /// The size of the same kind at which nothing runs.
    #[must_use]
    pub const fn asleep(self) -> Self {
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

impl std::fmt::Display for Size {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Replicas(replicas) => write!(f, "{replicas} replicas"),
            Self::Suspended(true) => f.write_str("suspended"),
            Self::Suspended(false) => f.write_str("not suspended"),
        }
    }
}

/// A workload, in the revision in which its size was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scalable {
    /// Its kind.
    pub kind: ScaleKind,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// The revision that its size was read from.
    pub resource_version: String,
    /// Its size.
    pub size: Size,
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
    #[serde(default)]
    spec: SpecWire,
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
    deletion_timestamp: Option<String>,
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

const CRON_JOB: &str = "CronJob";

fn path(namespace: &str, kind: &ScaleKind) -> String {
    let group = if kind.api_version.contains('/') { "apis" } else { "api" };
    format!("/{group}/{}/namespaces/{namespace}/{}", kind.api_version, kind.plural)
}

/// Every workload of a kind in a namespace that the selector selects, with its size. Those that are being deleted are
/// left out, and so are `ReplicaSets` of a Deployment or another controller, which would scale them up again at once.
///
/// Read in pages. Kubernetes' own kinds have their replicas in `spec.replicas`; where another kind has them is known by
/// its scale alone, which is a request for each workload.
pub async fn list(
    clients: &Clients,
    namespace: &str,
    kind: &ScaleKind,
    selector: Option<&Selector>,
) -> Result<Vec<Scalable>, kube::Error> {
    let none = Labels::default();
    let known = matches!(kind.api_version.as_str(), "apps/v1" | "batch/v1");
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
                || mutants::active(Mutant::WorkloadSelectorIgnored);
            if wire.metadata.deletion_timestamp.is_some() || managed || !selected {
                continue;
            }
            if known {
                workloads.push(scalable(kind, wire));
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
) -> Result<Option<Scalable>, kube::Error> {
    let subresource = if kind.kind == CRON_JOB { "" } else { "/scale" };
    let uri = format!("{}/{name}{subresource}", path(namespace, kind));
    match clients.reads.request::<Wire>(read::request(&uri)?).await {
        Ok(wire) => Ok(Some(scalable(kind, wire))),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(error),
    }
}

fn scalable(kind: &ScaleKind, wire: Wire) -> Scalable {
    let size = if kind.kind == CRON_JOB {
        Size::Suspended(wire.spec.suspend)
    } else {
        Size::Replicas(wire.spec.replicas)
    };
    Scalable {
        kind: kind.clone(),
        name: wire.metadata.name,
        uid: wire.metadata.uid,
        resource_version: wire.metadata.resource_version,
        size,
    }
}

/// Gives a workload a size, if nobody has changed it since it was read.
pub async fn set(
    clients: &Clients,
    _permit: &Permit,
    namespace: &str,
    workload: &Scalable,
    size: Size,
) -> Result<(), WriteError> {
    let (subresource, spec) = match size {
        Size::Replicas(replicas) => ("/scale", json!({ "replicas": replicas })),
        Size::Suspended(suspend) => ("", json!({ "suspend": suspend })),
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
    if mutants::active(Mutant::NoScalePreconditions) {
        body["metadata"] = json!({});
    }
    let request = Request::patch(uri)
        .header(http::header::CONTENT_TYPE, "application/merge-patch+json")
        .body(body.to_string().into_bytes())
        .map_err(|e| WriteError::Refused(e.to_string()))?;
    clients.writes.request::<serde_json::Value>(request).await?;
    Ok(())
}
