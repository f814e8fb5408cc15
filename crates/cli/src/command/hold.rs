//! `coppice hold`: nothing is done until the hold ends.
#![allow(clippy::doc_markdown, reason = "comments on arguments are the help that people read in a terminal")]

use anyhow::{Result, bail};
use clap::Args;
use coppice_api::manager::Phase;
use coppice_quantity::Duration;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use crate::args::{
    ArgumentError, ConnectionArgs, NamespaceOrManager, Target, WriteArgs, instant, positive_duration,
};
use crate::connect::connect;
use crate::facts::{Manager, NamespaceRecord};
use crate::write::{Edit, change, dry_run_suffix, resource_name};
use crate::{Exit, Io, namespace_record, print};

/// Hold a namespace or a manager: nothing is done until the hold ends
///
/// NAMESPACE alone is about what cluster managers do to it: the hold is written into its record (ManagedNamespace coppice,
/// which is created if it does not exist yet), with your user name. NAMESPACE/NAME is about one NamespaceManager in it.
/// Each decides for itself. A hold that is there is replaced. `coppice release` ends it early; a notice that was given is
/// withdrawn.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  coppice hold ci-42 --for 2h                    against every cluster manager
  coppice hold team-a/e2e --for 2h --reason 'debugging the login test'
  coppice hold team-a/e2e --until 2026-12-01T18:00:00Z

Exit codes: 0 held, 1 error, 2 usage.")]
pub(crate) struct HoldArgs {
    /// A namespace, or one NamespaceManager in it
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

/// The longest reason that the API accepts.
const MAX_REASON: usize = 200;

fn reason(text: &str) -> Result<String, ArgumentError> {
    match text.chars().count() {
        ..=MAX_REASON => Ok(text.to_owned()),
        length => Err(ArgumentError::TooLong { length, most: MAX_REASON }),
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
    let NamespaceOrManager { namespace, name } = &args.target;
    let shown =
        format!("held until {}{}", print::instant_from(until, io.now), dry_run_suffix(args.write.dry_run));
    let hold = json!({ "until": until.to_string(), "reason": args.reason });
    let Some(name) = name else {
        let requester = namespace_record::requester(&client, io).await?;
        let (command, now) = (("hold", args.write.dry_run), io.now);
        let compute = |record: Option<&NamespaceRecord>| {
            let mut hold = hold.clone();
            hold["by"] = requester.as_str().into();
            // Only of what is there a null takes something away.
            if let Some(hold) = hold.as_object_mut().filter(|_| record.is_none()) {
                hold.retain(|_, value| !value.is_null());
            }
            let limit = namespace_record::hold_limit(record, until, now);
            Ok(Edit::Patch(json!({ "hold": hold }), limit))
        };
        let (limit, mut notes) = namespace_record::change(&client, namespace, command, compute, io).await?;
        notes.extend(limit);
        namespace_record::print_notes(&notes, io)?;
        writeln!(io.screen(), "namespace/{namespace} {shown}")?;
        return Ok(Exit::Ok);
    };
    let target = Target { namespace: namespace.clone(), name: name.clone() };
    let compute = async |manager: &Manager| {
        Ok(Edit::Patch(json!({ "hold": hold }), manager.status.phase == Some(Phase::Fired)))
    };
    let (fired, _) = change(&client, &target, args.write.dry_run, compute, io).await?;
    writeln!(io.screen(), "{} {shown}", resource_name(name))?;
    if fired {
        io.print_note("note: it has fired and is dormant; the hold matters once it is armed again")?;
    }
    Ok(Exit::Ok)
}
