//! `coppice doctor`: what is wrong with the installation, and what keeps namespaces from being deleted.

mod cluster_managers;
mod install;
mod remaining;
mod stuck;
mod trees;

use anyhow::Result;
use clap::Args;
use coppice_quantity::Duration;
use jiff::Timestamp;
use kube::Client;
use serde::Serialize;

use crate::args::{ConnectionArgs, OutputArgs, OutputFormat, any_duration};
use crate::connect::{code, connect, failed};
use crate::print::{self, ERROR, HEADING, OK, WARNING};
use crate::terminal::PLAIN;
use crate::{Exit, Io, with_progress};

/// Find out what is wrong: the installation, stalled trees, and deletions that are stuck
///
/// Says which finalizer, resource or API service blocks the deletion of a namespace, and what to do. Repairs nothing.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 all is well, 3 something is wrong or could not be looked at, 1 error, 2 usage."
)]
pub(crate) struct DoctorArgs {
    /// What takes longer than this is stuck: a deletion, a Subnamespace, a QuotaTransfer
    #[arg(long, value_name = "DURATION", value_parser = any_duration, default_value = "5m")]
    older_than: Duration,
    /// The namespace that Coppice is installed in
    #[arg(long, value_name = "NAME", default_value = coppice_api::names::SYSTEM_NAMESPACE)]
    system_namespace: String,
    #[command(flatten)]
    output: OutputArgs,
}

/// At most this many objects are named.
const MAX_NAMED: usize = 10;

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
enum State {
    Ok,
    Problem,
    /// It could not be checked.
    Unknown,
}

/// Something that was checked.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Finding {
    state: State,
    about: String,
    message: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    details: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    advice: Vec<String>,
}

impl Finding {
    fn new(state: State, about: impl Into<String>, message: impl Into<String>) -> Self {
        Self { state, about: about.into(), message: message.into(), details: Vec::new(), advice: Vec::new() }
    }

    fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice.push(advice.into());
        self
    }

    /// Something that could not be read.
    fn unreadable(about: &str, error: &kube::Error) -> Self {
        let finding = Self::new(State::Unknown, about, format!("{:#}", failed("cannot be read", error)));
        if code(error) == Some(403) {
            finding.advise("ask with more rights: an administrator can look at this")
        } else {
            finding
        }
    }
}

#[derive(Serialize)]
struct Section {
    title: &'static str,
    findings: Vec<Finding>,
}

pub(crate) async fn run(args: &DoctorArgs, connection: &ConnectionArgs, io: &mut Io<'_>) -> Result<Exit> {
    let client = connect(connection, io).await?.client;
    let looking = look(&client, args, io.now);
    let sections = with_progress("looking at the cluster", io, looking).await??;
    match args.output.output {
        OutputFormat::Json => print::json(io.out, &sections)?,
        OutputFormat::Yaml => print::yaml(io.out, &sections)?,
        OutputFormat::Name => {
            for finding in sections.iter().flat_map(|s| &s.findings).filter(|f| f.state != State::Ok) {
                writeln!(io.screen(), "{}", finding.about)?;
            }
        }
        OutputFormat::Table | OutputFormat::Wide => write(&sections, io)?,
    }
    let well = sections.iter().flat_map(|s| &s.findings).all(|f| f.state == State::Ok);
    Ok(if well { Exit::Ok } else { Exit::Attention })
}

/// All checks.
async fn look(client: &Client, args: &DoctorArgs, now: Timestamp) -> Result<Vec<Section>> {
    // No other check makes sense without an answer of the server: reported once, not for every check.
    client.apiserver_version().await.map_err(|e| failed("the API server does not answer", &e))?;
    let services = stuck::api_services(client).await;
    let mut sections = vec![
        Section {
            title: "Installation",
            findings: install::check(client, &args.system_namespace, now).await,
        },
        Section { title: "Deletions", findings: stuck::check(client, args.older_than, &services, now).await },
        Section { title: "API services", findings: services },
    ];
    let trees = trees::check(client, &args.system_namespace, args.older_than, now).await;
    if !trees.is_empty() {
        sections.insert(1, Section { title: "Trees", findings: trees });
    }
    Ok(sections)
}

fn write(sections: &[Section], io: &mut Io<'_>) -> Result<()> {
    let mut to = io.screen();
    for (index, section) in sections.iter().enumerate() {
        if index > 0 {
            writeln!(to)?;
        }
        to.put(section.title, HEADING)?;
        writeln!(to)?;
        for finding in &section.findings {
            let (mark, style) = match finding.state {
                State::Ok => ("ok     ", OK),
                State::Problem => ("PROBLEM", ERROR),
                State::Unknown => ("unknown", WARNING),
            };
            to.put("  ", PLAIN)?;
            to.put(mark, style)?;
            writeln!(to, "  {}: {}", finding.about, finding.message)?;
            for detail in &finding.details {
                writeln!(to, "             {detail}")?;
            }
            for advice in &finding.advice {
                to.put("             ", PLAIN)?;
                to.put("->", HEADING)?;
                writeln!(to, " {advice}")?;
            }
        }
    }
    Ok(())
}
