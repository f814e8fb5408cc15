//! `coppice acknowledge`: closes a breaker that somebody has looked at.

use anyhow::{Result, bail};
use clap::Args;
use coppice_lifecycle::breaker;
use serde_json::json;

use crate::args::{ConnectionArgs, WriteArgs};
use crate::connect::connect;
use crate::facts::Config;
use crate::write::{Edit, change_settings, dry_run_suffix};
use crate::{Exit, Io, with_progress};

/// Close the breaker that a collapsed list has opened
///
/// While it is open, nothing is deleted or scaled down. Find out first why the list collapsed: from then on Coppice relies
/// on what the API server lists. Sets spec.governor.acknowledge of CoppiceConfig; a breaker of another id stays open.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  coppice doctor                                            says which breaker is open
  coppice acknowledge pods-2026-12-01T18:00:00Z --dry-run   checks it, and changes nothing
  coppice acknowledge pods-2026-12-01T18:00:00Z

Exit codes: 0 acknowledged, or already acknowledged; 1 error, 2 usage.")]
pub(crate) struct AcknowledgeArgs {
    /// The id of the breaker, as status, Events and `coppice doctor` show it
    #[arg(value_name = "ID")]
    id: String,
    #[command(flatten)]
    write: WriteArgs,
}

/// What was found.
struct Acknowledgment {
    found: Found,
    /// Whether `paused` stops every step too.
    paused: bool,
}

enum Found {
    /// The breaker is open, and says this.
    Open(String),
    /// The status shows no breaker: a replica may know one that it cannot write.
    NotShown,
    /// It was acknowledged before.
    Before,
}

pub(crate) async fn run(
    args: &AcknowledgeArgs,
    connection: &ConnectionArgs,
    io: &mut Io<'_>,
) -> Result<Exit> {
    let client = connect(connection, io).await?.client;
    let changing = change_settings(&client, args.write.dry_run, |config| acknowledge(&args.id, config));
    let done = with_progress("changing the settings", io, Box::pin(changing)).await??;
    let (id, suffix) = (&args.id, dry_run_suffix(args.write.dry_run));
    match done.found {
        Found::Before => writeln!(io.screen(), "breaker {id} was acknowledged before")?,
        Found::Open(message) => writeln!(
            io.screen(),
            "breaker {id} acknowledged{suffix}: {message}; what is due is done now, within the budget"
        )?,
        Found::NotShown => {
            writeln!(io.screen(), "spec.governor.acknowledge is {id} now{suffix}")?;
            io.print_note(
                "warning: status.governor.breaker of CoppiceConfig coppice shows no breaker: it may not be written yet, or \
                 the id is wrong; if managers still show BreakerOpen, acknowledge the id that they name",
            )?;
        }
    }
    if done.paused {
        io.print_note(
            "note: spec.governor.paused is true: nothing is deleted or scaled down until it is false",
        )?;
    }
    Ok(Exit::Ok)
}

fn acknowledge(id: &str, config: &Config) -> Result<Edit<Acknowledgment>> {
    if let Some(error) = &config.status_error {
        bail!("which breaker is open is not known: {error}");
    }
    let governor = match &config.spec {
        Ok(spec) => &spec.governor,
        Err(error) => bail!("CoppiceConfig coppice: {error}; correct it first"),
    };
    let paused = governor.paused;
    let found = match breaker::open(governor, &config.status.governor) {
        _ if governor.acknowledge.as_deref() == Some(id) => {
            return Ok(Edit::Nothing(Acknowledgment { found: Found::Before, paused }));
        }
        None => match &config.status.governor.breaker {
            None => Found::NotShown,
            // Another id in the place of its own would open it again.
            Some(closing) => bail!(
                "breaker {} was acknowledged, and the leader has not removed it yet: try again in a few seconds",
                closing.id
            ),
        },
        Some(open) if open.id != id => {
            bail!("no breaker {id:?} is open; the one that is: {} ({})", open.id, open.message)
        }
        Some(open) => Found::Open(open.message.clone()),
    };
    Ok(Edit::Patch(json!({ "governor": { "acknowledge": id } }), Acknowledgment { found, paused }))
}
