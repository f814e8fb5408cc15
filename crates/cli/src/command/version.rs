//! `coppice version`: of the client, the operator and the API server.

use anyhow::Result;
use clap::Args;
use serde::Serialize;

use crate::args::{ConnectionArgs, OutputArgs, OutputFormat};
use crate::connect::{connect, failed};
use crate::{Exit, Io, live, print};

/// Print the versions of this client, the operator and the API server
#[derive(Debug, Args)]
#[command(after_help = "Exit codes: 0 printed, 1 the API server cannot be asked, 2 usage.")]
pub(crate) struct VersionArgs {
    /// Only this client's; asks no cluster
    #[arg(long)]
    client: bool,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Versions {
    client: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    operator: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<String>,
}

pub(crate) async fn run(args: &VersionArgs, connection: &ConnectionArgs, io: &mut Io<'_>) -> Result<Exit> {
    let mut versions =
        Versions { client: env!("CARGO_PKG_VERSION").to_owned(), operator: None, server: None };
    let mut result = Ok(Exit::Ok);
    if !args.client {
        match read_versions(connection, io).await {
            Ok((operator, server)) => (versions.operator, versions.server) = (operator, Some(server)),
            Err(error) => result = Err(error),
        }
    }
    match args.output.output {
        OutputFormat::Json => print::json(io.out, &versions)?,
        OutputFormat::Yaml => print::yaml(io.out, &versions)?,
        OutputFormat::Table | OutputFormat::Wide | OutputFormat::Name => {
            writeln!(io.screen(), "Client:     {}", versions.client)?;
            if let Some(server) = &versions.server {
                writeln!(io.screen(), "Operator:   {}", versions.operator.as_deref().unwrap_or("unknown"))?;
                writeln!(io.screen(), "Kubernetes: {server}")?;
            }
        }
    }
    result
}

async fn read_versions(connection: &ConnectionArgs, io: &mut Io<'_>) -> Result<(Option<String>, String)> {
    let client = connect(connection, io).await?.client;
    let server = client
        .apiserver_version()
        .await
        .map_err(|e| failed("the API server's version cannot be read", &e))?;
    let mut warnings = Vec::new();
    let operator = live::config(&client, &mut warnings).await.found().and_then(|c| c.status.version);
    if let (None, Some(warning)) = (&operator, warnings.first()) {
        io.print_note(&format!("warning: the operator's version is not known: {warning}"))?;
    }
    Ok((operator, server.git_version))
}
