//! One file for each subcommand.

pub(crate) mod acknowledge;
pub(crate) mod completion;
pub(crate) mod crds;
pub(crate) mod doctor;
pub(crate) mod explain;
pub(crate) mod extend;
pub(crate) mod hold;
pub(crate) mod import;
pub(crate) mod list;
pub(crate) mod plan;
pub(crate) mod rearm;
pub(crate) mod release;
pub(crate) mod simulate;
pub(crate) mod version;
pub(crate) mod wake;

use anyhow::Result;
use jiff::Timestamp;

use crate::args::{Cli, Command, ConnectionArgs, SourceArgs};
use crate::cluster_snapshot::ClusterSnapshot;
use crate::connect::connect;
use crate::live::Scope;
use crate::{Exit, Io, files, live, local, print};

/// Runs the command that was asked for.
pub(crate) async fn dispatch(cli: Cli, io: &mut Io<'_>) -> Result<Exit> {
    let connection = &cli.connection;
    match cli.command {
        Command::Plan(args) => plan::run(&args, connection, io).await,
        Command::Simulate(args) => simulate::run(&args, connection, io).await,
        Command::Explain(args) => explain::run(&args, connection, io).await,
        Command::List(args) => list::run(&args, connection, io).await,
        Command::Hold(args) => hold::run(&args, connection, io).await,
        Command::Release(args) => release::run(&args, connection, io).await,
        Command::Extend(args) => extend::run(&args, connection, io).await,
        Command::Wake(args) => wake::run(&args, connection, io).await,
        Command::Rearm(args) => rearm::run(&args, connection, io).await,
        Command::Acknowledge(args) => acknowledge::run(&args, connection, io).await,
        Command::Import(args) => import::run(&args, io),
        Command::Crds(args) => crds::run(&args, io),
        Command::Doctor(args) => doctor::run(&args, connection, io).await,
        Command::Version(args) => version::run(&args, connection, io).await,
        Command::Completion(args) => completion::run(&args, io),
    }
}

/// Which managers to show.
struct ManagerFilter<'a> {
    /// None for all namespaces; for files also if nothing was said.
    namespace: Option<&'a str>,
    /// One manager of the namespace.
    name: Option<&'a str>,
}

/// How files are read.
fn reading<'a>(source: &'a SourceArgs, namespace: Option<&'a str>, assumed: Timestamp) -> local::Reading<'a> {
    local::Reading {
        namespace,
        system_namespace: &source.system_namespace,
        scale_kinds: source.scale_kinds.clone(),
        assumed,
    }
}

/// Makes a snapshot of files, or of the cluster, and reports on standard error what was assumed. Also returns the
/// instant to plan for.
async fn read_snapshot(
    source: &SourceArgs,
    wanted: ManagerFilter<'_>,
    connection: &ConnectionArgs,
    io: &mut Io<'_>,
) -> Result<(ClusterSnapshot, Timestamp)> {
    let at = source.at.map_or(io.now, |at| at.from(io.now));
    let cluster_snapshot = if source.files.is_empty() {
        let api = connect(connection, io).await?;
        let scope = Scope {
            namespace: wanted.namespace,
            name: wanted.name,
            system_namespace: &source.system_namespace,
            scale_kinds: source.scale_kinds.clone(),
        };
        live::cluster_snapshot(&api.client, scope).await?
    } else {
        let documents = files::read(&source.files, source.recursive, io.stdin)?;
        let reading = reading(source, wanted.namespace, io.now.min(at));
        let mut cluster_snapshot = local::cluster_snapshot(&documents, reading)?;
        cluster_snapshot.managers.retain(|m| wanted.name.is_none_or(|n| n == m.name()));
        if let Some(note) = local::defaults_assumed(&documents) {
            io.print_note(note)?;
        }
        cluster_snapshot
    };
    for warning in &cluster_snapshot.warnings {
        io.print_note(&format!("warning: {warning}"))?;
    }
    if source.at.is_some() {
        let when = print::instant_from(at, io.now);
        io.print_note(&format!(
            "as of {when}: only the clock moves; objects, pods and the budget are as they are now"
        ))?;
    }
    Ok((cluster_snapshot, at))
}
