//! `coppice cluster`: what of a cluster a ManagedCluster would change, and what others have changed of it.
#![allow(clippy::doc_markdown, reason = "comments on arguments are the help that people read in a terminal")]

use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, bail};
use clap::{Args, Subcommand};
use coppice_api::condition;
use coppice_clusters::managed::patch::{FieldChange, changes, drift};
use coppice_clusters::managed::plan::{desired_of, last_applied, merged};
use coppice_clusters::managed::{LiveFact, Managed, Shape, shoot};
use coppice_clusters_api::managed_cluster::RECONCILING;
use coppice_clusters_api::names::LABEL_MANAGED_CLUSTER;
use coppice_clusters_api::{ManagedCluster, ManagedClusterSpec, ManagedClusterStatus};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::args::{ArgumentError, ConnectionArgs, OutputArgs, OutputFormat};
use crate::connect::{Connection, code, connect, connect_by, failed};
use crate::files::{self, Document};
use crate::print::{self, Cell, Table};
use crate::{Exit, Io, validate, with_progress};

/// Show what a ManagedCluster would change of its cluster, and what others have changed of it
#[derive(Debug, Args)]
pub(crate) struct ClusterArgs {
    #[command(subcommand)]
    question: Question,
}

#[derive(Debug, Subcommand)]
enum Question {
    Plan(ClusterPlanArgs),
    Drift(ClusterDriftArgs),
}

/// Show what would be changed of a cluster for it to be as its ManagedCluster says
///
/// Compares the fields that its spec decides with those that its Cluster of Cluster API or Shoot of Gardener has, and changes nothing. Fields
/// that only others write are not shown. It is what coppice-access writes when it writes next, which is when the spec changes: what others have
/// changed is shown here, too, and is not changed back before that. Of a Cluster or Shoot that others have made it shows what a hand-over would
/// change. Where a Shoot is not made yet, its project is the namespace of the garden's context.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  coppice cluster plan shop -n team
  coppice cluster plan shop -n team -f shop.yaml     before it is applied
  coppice cluster plan shop -n team -o json
  coppice cluster plan shop -n team --garden-kubeconfig garden.yaml     of a Shoot

Columns: FIELD, LIVE, what it is, DESIRED, what it is to be; - where there is nothing.

Exit codes: 0 shown, 1 error, 2 usage.")]
pub(crate) struct ClusterPlanArgs {
    /// The ManagedCluster
    #[arg(value_name = "NAME", value_parser = cluster_name)]
    name: String,
    /// Take its spec from this file (- for standard input) instead of the one that is applied
    #[arg(short = 'f', long = "filename", value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    garden: GardenArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Show what others have changed of a cluster
///
/// Compares the fields that were last written for a ManagedCluster with those that its Cluster of Cluster API or Shoot of Gardener has now.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  coppice cluster drift shop -n team
  coppice cluster drift shop -n team -o name     the fields alone
  coppice cluster drift shop -n team --garden-kubeconfig garden.yaml     of a Shoot

Columns: FIELD, WRITTEN, what was written last, LIVE, what it is; - where there is nothing.

Exit codes: 0 nothing was changed, 3 something was, 1 error, 2 usage.")]
pub(crate) struct ClusterDriftArgs {
    /// The ManagedCluster
    #[arg(value_name = "NAME", value_parser = cluster_name)]
    name: String,
    #[command(flatten)]
    garden: GardenArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Where Shoots are.
#[derive(Debug, Args)]
struct GardenArgs {
    /// The kubeconfig of the garden, where the cluster is a Shoot: its user has to be permitted to get it
    #[arg(long = "garden-kubeconfig", value_name = "FILE")]
    garden: Option<PathBuf>,
}

/// Reads the name of a ManagedCluster.
fn cluster_name(text: &str) -> Result<String, ArgumentError> {
    if validate::is_dns_label(text) { Ok(text.to_owned()) } else { Err(ArgumentError::ManagedCluster) }
}

pub(crate) async fn run(args: &ClusterArgs, connection: &ConnectionArgs, io: &mut Io<'_>) -> Result<Exit> {
    let garden = match &args.question {
        Question::Plan(ClusterPlanArgs { garden, .. }) | Question::Drift(ClusterDriftArgs { garden, .. }) => {
            garden.garden.as_ref()
        }
    };
    let servers = Servers {
        here: connect(connection, io).await?,
        garden: match garden {
            Some(file) => Some(connect_by(file, connection, io).await?),
            None => None,
        },
    };
    match &args.question {
        Question::Plan(args) => plan(args, &servers, io).await,
        Question::Drift(args) => drifted(args, &servers, io).await,
    }
}

/// What takes long.
const READING: &str = "reading the ManagedCluster";

/// The API server with the ManagedCluster, and that with its Shoot.
struct Servers {
    here: Connection,
    garden: Option<Connection>,
}

async fn plan(args: &ClusterPlanArgs, servers: &Servers, io: &mut Io<'_>) -> Result<Exit> {
    let place = (&*servers.here.namespace, &*args.name);
    let given = args.file.as_ref().map(|file| spec_of(file, place, io)).transpose()?;
    let reading = Box::pin(read(servers, &args.name, given));
    let Observed { managed, live, is_ours } = with_progress(READING, io, reading).await??;
    note_wait(&managed.status, io)?;
    if !live.is_null() && !is_ours {
        let kind = Shape::of(&managed.spec).kind();
        io.print_note(&format!(
            "note: there is a {kind} {} that was not made for this ManagedCluster, and is left as it is until it is handed over by the label \
             {LABEL_MANAGED_CLUSTER} with the uid of the ManagedCluster; this is what would be changed then",
            args.name
        ))?;
    }
    if let Some(made) = managed.status.cluster.as_ref().filter(|made| live["metadata"]["uid"] != *made.uid) {
        io.print_note(&format!(
            "note: the {} {} that was made is gone, or is that of another garden: it is not made again, and nothing of this is written",
            made.kind, made.name
        ))?;
    }
    let desired = desired_of(&managed, &live).map_err(|failure| anyhow!(failure.message))?;
    let found = changes(&live, &merged(&live, &desired));
    let nothing = "nothing would be changed: the cluster is as its spec says";
    show(&found, ["FIELD", "LIVE", "DESIRED"], nothing, args.output, io)?;
    Ok(Exit::Ok)
}

async fn drifted(args: &ClusterDriftArgs, servers: &Servers, io: &mut Io<'_>) -> Result<Exit> {
    let reading = Box::pin(read(servers, &args.name, None));
    let Observed { managed, live, is_ours } = with_progress(READING, io, reading).await??;
    note_wait(&managed.status, io)?;
    if !is_ours {
        bail!(
            "nothing was made for ManagedCluster {}/{} yet, or it is gone",
            managed.namespace,
            managed.name
        );
    }
    let found = drift(&live, &last_applied(&live));
    let nothing = "nothing was changed by others of what was written";
    show(&found, ["FIELD", "WRITTEN", "LIVE"], nothing, args.output, io)?;
    Ok(if found.is_empty() { Exit::Ok } else { Exit::Attention })
}

/// Says that it waits for the calls of its provider, if it does.
fn note_wait(status: &ManagedClusterStatus, io: &mut Io<'_>) -> std::io::Result<()> {
    let waits = status.asks_again.and_then(|_| condition::find(&status.conditions, RECONCILING));
    waits.map_or(Ok(()), |waits| io.print_note(&format!("note: {}", waits.message)))
}

/// The spec that a file has for the ManagedCluster of this namespace and name. One that names no namespace is for that of the request.
fn spec_of(file: &Path, (namespace, name): (&str, &str), io: &mut Io<'_>) -> Result<ManagedClusterSpec> {
    let documents = files::read(&[file.to_owned()], false, io.stdin)?;
    let is_it = |object: &Value| {
        let metadata = &object["metadata"];
        let is_here = metadata["namespace"].is_null() || metadata["namespace"] == *namespace;
        object["kind"] == "ManagedCluster" && metadata["name"] == *name && is_here
    };
    let found = documents.iter().flat_map(Document::objects).find(|(_, object)| is_it(object));
    let Some((place, object)) = found else {
        bail!("{} has no ManagedCluster {namespace}/{name}", file.display())
    };
    if let Some(problem) = validate::check(&object).first() {
        bail!("{place}: {problem}");
    }
    Ok(serde_json::from_value(object["spec"].clone())?)
}

/// A ManagedCluster, and the Cluster or Shoot of its name.
struct Observed {
    managed: Managed,
    /// Null if there is none.
    live: Value,
    /// Whether it was made for the ManagedCluster, or handed over to it.
    is_ours: bool,
}

/// The ManagedCluster, with this spec if one is given, and the Cluster or Shoot of its name.
async fn read(servers: &Servers, name: &str, given: Option<ManagedClusterSpec>) -> Result<Observed> {
    let Servers { here: Connection { client, namespace }, garden } = servers;
    let what = format!("ManagedCluster {namespace}/{name} cannot be read");
    let api = Api::<ManagedCluster>::namespaced(client.clone(), namespace);
    let found = api.get_opt(name).await.map_err(|error| failed(&what, &error))?;
    let is_as_applied = given.is_none();
    let (metadata, spec, status) = match (found, given) {
        (Some(found), given) => {
            (found.metadata, given.unwrap_or(found.spec), found.status.unwrap_or_default())
        }
        (None, Some(given)) => (ObjectMeta::default(), given, ManagedClusterStatus::default()),
        (None, None) => bail!("there is no ManagedCluster {name} in namespace {namespace}"),
    };
    let uid = metadata.uid.unwrap_or_default();
    let shape = Shape::of(&spec);
    let (server, object_namespace) = match (shape, garden) {
        (Shape::Topology, _) => (client, namespace),
        // Where it was made, or else where it would be.
        (Shape::Shoot, Some(garden)) => {
            let made = status.cluster.as_ref().map(|made| &made.namespace);
            (&garden.client, made.unwrap_or(&garden.namespace))
        }
        (Shape::Shoot, None) => bail!(
            "ManagedCluster {namespace}/{name} is made as a Shoot of Gardener: name a kubeconfig of its garden with --garden-kubeconfig"
        ),
    };
    let object_namespace = object_namespace.clone();
    let mut live = live(server, shape, &object_namespace, name).await?;
    if shape == Shape::Shoot && is_as_applied && shoot::authentication(&spec).is_some() {
        // Who may read the Shoot may not read that in any case.
        let api = Api::<ConfigMap>::namespaced(server.clone(), &object_namespace);
        if let Ok(found) = api.get_opt(&shoot::authentication_name(name)).await {
            let found = found.map(serde_json::to_value).transpose()?;
            shoot::compare_authentication(&mut live, &spec, found.as_ref());
        }
    }
    let is_ours = !uid.is_empty() && live["metadata"]["labels"][LABEL_MANAGED_CLUSTER] == *uid;
    let managed = Managed {
        namespace: namespace.clone(),
        name: name.to_owned(),
        uid,
        generation: metadata.generation.unwrap_or_default(),
        deleting: metadata.deletion_timestamp.is_some(),
        has_finalizer: true,
        object_namespace,
        project: None,
        spec,
        status,
        // It decides what is done next, which is not asked here.
        live: LiveFact::Unread,
    };
    Ok(Observed { managed, live, is_ours })
}

async fn live(client: &Client, shape: Shape, namespace: &str, name: &str) -> Result<Value> {
    let (group, version) = shape.api_version().split_once('/').unwrap_or_default();
    let (plural, remedy) = match shape {
        Shape::Topology => ("clusters", "install Cluster API 1.11 or later"),
        Shape::Shoot => ("shoots", "name a kubeconfig of the garden, which serves it"),
    };
    let kind = GroupVersionKind::gvk(group, version, shape.kind());
    let resource = ApiResource::from_gvk_with_plural(&kind, plural);
    let api = Api::<DynamicObject>::namespaced_with(client.clone(), namespace, &resource);
    let what = format!("{} {namespace}/{name} cannot be read", shape.kind());
    let found = api.get_opt(name).await.map_err(|error| match code(&error) {
        Some(404) => anyhow!("{what}: the API server does not serve {}: {remedy}", shape.api_version()),
        _ => failed(&what, &error),
    })?;
    Ok(found.map(serde_json::to_value).transpose()?.unwrap_or_default())
}

fn show(
    found: &[FieldChange],
    headers: [&'static str; 3],
    nothing: &str,
    output: OutputArgs,
    io: &mut Io<'_>,
) -> Result<()> {
    let report = || {
        let change =
            |change: &FieldChange| json!({"field": change.path, "from": change.from, "to": change.to});
        found.iter().map(change).collect::<Vec<Value>>()
    };
    match output.output {
        OutputFormat::Json => print::json(io.out, &report())?,
        OutputFormat::Yaml => print::yaml(io.out, &report())?,
        OutputFormat::Name => {
            for change in found {
                writeln!(io.screen(), "{}", change.path)?;
            }
        }
        OutputFormat::Table | OutputFormat::Wide if found.is_empty() => io.print_note(nothing)?,
        OutputFormat::Table | OutputFormat::Wide => {
            let mut table = Table::new(&headers);
            for FieldChange { path, from, to } in found {
                table.row(vec![Cell::from(path.as_str()), cell(from), cell(to)]);
            }
            table.write(&mut io.screen(), !output.no_headers)?;
        }
    }
    Ok(())
}

fn cell(value: &Value) -> Cell {
    match value {
        Value::Null => Cell::from("-"),
        Value::String(text) => Cell::from(text.as_str()),
        value => Cell::from(value.to_string()),
    }
}
