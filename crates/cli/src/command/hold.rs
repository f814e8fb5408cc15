//! `coppice hold`: nothing fires until the hold ends.

use anyhow::{Result, bail};
use clap::Args;
use coppice_api::manager::Phase;
use coppice_quantity::Duration;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use crate::args::{ConnectionArgs, NamespaceOrManager, WriteArgs, instant, positive_duration};
use crate::connect::connect;
use crate::write::{Change, change, dry_run_suffix, resolve, resource_name};
use crate::{Exit, Io, print};

/// Hold a manager: nothing fires until the hold ends
///
/// A hold that is there is replaced. `coppice release` ends it early; a notice that was given is withdrawn.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  coppice hold team-a --for 2h                    the only manager of namespace team-a
  coppice hold team-a/e2e --for 2h --reason 'debugging the login test'
  coppice hold team-a/e2e --until 2026-12-01T18:00:00Z

Exit codes: 0 held, 1 error, 2 usage.")]
pub(crate) struct HoldArgs {
    /// The manager, or its namespace if there is no other in it
    #[arg(value_name = "NAMESPACE[/NAME]", value_parser = NamespaceOrManager::parse)]
    target: NamespaceOrManager,
    /// How long, from now
    #[arg(long = "for", value_name = "DURATION", value_parser = positive_duration, required_unless_present = "until")]
    span: Option<Duration>,
    /// Until when
    #[arg(long, value_name = "TIME", value_parser = instant, conflicts_with = "span")]
    until: Option<Timestamp>,
    /// Why, for people
    #[arg(long, value_name = "TEXT", value_parser = reason)]
    reason: Option<String>,
    #[command(flatten)]
    write: WriteArgs,
}

fn reason(text: &str) -> Result<String, String> {
    match text.chars().count() {
        ..=200 => Ok(text.to_owned()),
        length => Err(format!("it has {length} characters; at most 200 are accepted")),
    }
}

/// That long from an instant, at a whole second that is not earlier.
pub(super) fn ahead(from: Timestamp, by: Duration) -> Timestamp {
    let exact = from.checked_add(SignedDuration::from_secs(by.as_secs_i64())).unwrap_or(Timestamp::MAX);
    let up = exact.as_second() + i64::from(exact.subsec_nanosecond() > 0);
    Timestamp::from_second(up).unwrap_or(exact)
}

pub(crate) async fn run(args: &HoldArgs, connection: &ConnectionArgs, io: &mut Io<'_>) -> Result<Exit> {
    let until = match (args.span, args.until) {
        (Some(span), _) => ahead(io.now, span),
        (None, Some(until)) if until <= io.now => {
            bail!("--until {} is past: a hold would end before it begins", print::instant_from(until, io.now))
        }
        (None, until) => until.unwrap_or(io.now),
    };
    let client = connect(connection, io).await?.client;
    let target = resolve(&client, &args.target).await?;
    let (fired, _) = change(&client, &target, args.write.dry_run, async |manager| {
        let hold = json!({ "until": until.to_string(), "reason": args.reason });
        Ok(Change::Patch(json!({ "hold": hold }), manager.status.phase == Some(Phase::Fired)))
    })
    .await?;
    let name = resource_name(&target.name);
    let until = print::instant_from(until, io.now);
    writeln!(io.screen(), "{name} held until {until}{}", dry_run_suffix(args.write.dry_run))?;
    if fired {
        io.print_note("note: it has fired and is dormant; the hold matters once it is armed again")?;
    }
    Ok(Exit::Ok)
}
