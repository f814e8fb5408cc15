//! `coppice audit`: what the API server has to log, and what its log says.

mod check;
mod policy;

use anyhow::Result;
use clap::{Args, Subcommand};

use crate::args::{ConnectionArgs, namespace_name};
use crate::audit::Installation;
use crate::{Exit, Io};

/// Find out by the API server's audit log who edits Coppice's objects, and who reads credentials
#[derive(Debug, Args)]
pub(crate) struct AuditArgs {
    #[command(subcommand)]
    command: AuditCommand,
}

#[derive(Debug, Subcommand)]
enum AuditCommand {
    Policy(policy::PolicyArgs),
    Check(check::CheckArgs),
}

/// Where Coppice is installed.
#[derive(Debug, Args)]
struct InstallationArgs {
    /// The namespace that Coppice is installed in
    #[arg(long, value_name = "NAME", value_parser = namespace_name, default_value = coppice_api::names::SYSTEM_NAMESPACE)]
    system_namespace: String,
    /// The namespace that coppice-access is installed in
    #[arg(long, value_name = "NAME", value_parser = namespace_name, default_value = coppice_clusters_api::names::SYSTEM_NAMESPACE)]
    access_namespace: String,
}

impl InstallationArgs {
    fn installation(&self) -> Installation {
        Installation::new(&self.system_namespace, &self.access_namespace)
    }
}

pub(crate) async fn run(args: &AuditArgs, connection: &ConnectionArgs, io: &mut Io<'_>) -> Result<Exit> {
    match &args.command {
        AuditCommand::Policy(args) => policy::run(args, io),
        AuditCommand::Check(args) => check::run(args, connection, io).await,
    }
}
