//! One file for each subcommand.

pub(crate) mod acknowledge;
pub(crate) mod audit;
pub(crate) mod cluster;
pub(crate) mod completion;
pub(crate) mod crds;
pub(crate) mod create;
pub(crate) mod doctor;
pub(crate) mod explain;
pub(crate) mod extend;
pub(crate) mod give_back;
pub(crate) mod hold;
pub(crate) mod import;
pub(crate) mod list;
pub(crate) mod message;
pub(crate) mod plan;
pub(crate) mod preview;
pub(crate) mod probe;
pub(crate) mod quota;
pub(crate) mod rearm;
pub(crate) mod release;
pub(crate) mod simulate;
pub(crate) mod transfer;
pub(crate) mod tree;
pub(crate) mod version;
pub(crate) mod wake;

use anyhow::Result;

use crate::args::{Cli, Command};
use crate::{Exit, Io};

/// Runs the command that was asked for.
pub(crate) async fn dispatch(cli: Cli, io: &mut Io<'_>) -> Result<Exit> {
    let connection = &cli.connection;
    match cli.command {
        Command::Plan(args) => plan::run(&args, connection, io).await,
        Command::Preview(args) => preview::run(&args, connection, io).await,
        Command::Simulate(args) => simulate::run(&args, connection, io).await,
        Command::Explain(args) => Box::pin(explain::run(&args, connection, io)).await,
        Command::Message(args) => message::run(&args, connection, io).await,
        Command::List(args) => list::run(&args, connection, io).await,
        Command::Tree(args) => tree::run(&args, connection, io).await,
        Command::Quota(args) => quota::run(&args, connection, io).await,
        Command::Create(args) => create::run(&args, connection, io).await,
        Command::Transfer(args) => transfer::run(&args, connection, io).await,
        Command::GiveBack(args) => give_back::run(&args, connection, io).await,
        Command::Cluster(args) => cluster::run(&args, connection, io).await,
        Command::Hold(args) => hold::run(&args, connection, io).await,
        Command::Release(args) => release::run(&args, connection, io).await,
        Command::Extend(args) => extend::run(&args, connection, io).await,
        Command::Wake(args) => wake::run(&args, connection, io).await,
        Command::Rearm(args) => rearm::run(&args, connection, io).await,
        Command::Acknowledge(args) => acknowledge::run(&args, connection, io).await,
        Command::Import(args) => import::run(&args, io),
        Command::Audit(args) => audit::run(&args, connection, io).await,
        Command::Probe(args) => probe::run(&args, connection, io).await,
        Command::Crds(args) => crds::run(&args, io),
        Command::Doctor(args) => doctor::run(&args, connection, io).await,
        Command::Version(args) => version::run(&args, connection, io).await,
        Command::Completion(args) => completion::run(&args, io),
    }
}
