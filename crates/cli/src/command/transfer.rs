//! `coppice transfer`: quota moves to another namespace of the tree.
#![allow(clippy::doc_markdown, reason = "comments on arguments are the help that people read in a terminal")]

mod approve;

use anyhow::{Result, anyhow, bail};
use clap::{Args, Subcommand};
use coppice_hierarchy::Resources;
use kube::Client;

use crate::args::{ArgumentError, ConnectionArgs, WriteArgs, namespace_name};
use crate::connect::connect;
use crate::print::Table;
use crate::transfers::live;
use crate::transfers::{
    Amount, Route, TransferApproval, free, refusals, resource_name, resources_of, spec, transferable,
};
use crate::wait::WaitArgs;
use crate::write::dry_run_suffix;
use crate::{Exit, Io, with_progress};

/// Transfer quota that a namespace does not use to another namespace of its tree
///
/// Creates a QuotaTransfer in NAMESPACE, in your name. Giving to a namespace below, or back to one above, needs no approval;
/// anything else needs that of somebody who may create QuotaTransfers in both namespaces, or in the nearest one that both are
/// below of: if you may, it is approved at once, and otherwise it waits for `coppice transfer approve`. With --dry-run it
/// shows what would change, and warns if the namespace uses what it is to give.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(after_help = "Examples:
  coppice transfer shop-web --to shop-api --amount pods=5 --reason 'load test' --dry-run
  coppice transfer shop-web --to shop-api --amount pods=5,memory=2Gi --reason 'load test' --wait
  coppice transfer approve shop-web/to-shop-api-20261201-180000
  kubectl get quotatransfers -n shop-web -o wide   how far each has come, and why one waits

Exit codes: 0 created, with --wait completed; 1 error, 2 usage; 3 with --wait: it waits for
approval, was refused, or has not ended in time; with --dry-run: it would be refused.")]
pub(crate) struct TransferArgs {
    #[command(subcommand)]
    command: Option<TransferCommand>,
    #[command(flatten)]
    new: Option<NewArgs>,
    #[command(flatten)]
    request: RequestArgs,
}

#[derive(Debug, Subcommand)]
enum TransferCommand {
    Approve(approve::ApproveArgs),
}

#[derive(Debug, Args)]
struct NewArgs {
    /// The namespace that gives the quota
    #[arg(value_name = "NAMESPACE", value_parser = namespace_name)]
    source: String,
    /// The namespace that gets it
    #[arg(long, value_name = "NAMESPACE", value_parser = namespace_name)]
    to: String,
    /// What for
    #[arg(long, value_name = "TEXT", value_parser = reason)]
    reason: String,
    /// The nearest namespace that both are or are below of: needed only if you may not read the one that gets the quota
    #[arg(long, value_name = "NAMESPACE", value_parser = namespace_name)]
    through: Option<String>,
}

/// What every transfer is asked for with.
#[derive(Debug, Args)]
pub(super) struct RequestArgs {
    /// How much, such as pods=5 or memory=2Gi; may be repeated, or separated by commas
    #[arg(long = "amount", value_name = "RESOURCE=AMOUNT", required = true, value_delimiter = ',', value_parser = transferable)]
    amounts: Vec<Amount>,
    /// The name of the QuotaTransfer [default: to-, the namespace that gets the quota, and the time]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    wait: WaitArgs,
    #[command(flatten)]
    write: WriteArgs,
}

/// The longest reason that the API accepts.
const MAX_REASON: usize = 1024;

/// Reads what a transfer is for.
pub(super) fn reason(text: &str) -> Result<String, ArgumentError> {
    match text.chars().count() {
        _ if text.trim().is_empty() => Err(ArgumentError::NoReason),
        ..=MAX_REASON => Ok(text.to_owned()),
        length => Err(ArgumentError::TooLong { length, most: MAX_REASON }),
    }
}

pub(crate) async fn run(args: &TransferArgs, connection: &ConnectionArgs, io: &mut Io<'_>) -> Result<Exit> {
    let new = match (&args.command, &args.new) {
        (Some(TransferCommand::Approve(args)), _) => return approve::run(args, connection, io).await,
        (None, Some(new)) => new,
        (None, None) => {
            bail!("name the namespace that gives the quota: `coppice transfer --help` has examples")
        }
    };
    let amount = args.request.amount()?;
    let client = connect(connection, io).await?.client;
    let reading = Box::pin(live::route(&client, &new.source, &new.to, new.through.as_deref()));
    let route = with_progress("reading the namespaces", io, reading).await??;
    ask(&client, &route, (&amount, &new.reason), &args.request, io).await
}

impl RequestArgs {
    /// How much.
    pub(super) fn amount(&self) -> Result<Resources> {
        resources_of(&self.amounts).map_err(|why| anyhow!("--amount: {why}"))
    }
}

/// Creates a transfer on this route, and says what becomes of it.
pub(super) async fn ask(
    client: &Client,
    route: &Route,
    (amount, reason): (&Resources, &str),
    args: &RequestArgs,
    io: &mut Io<'_>,
) -> Result<Exit> {
    let dry_run = args.write.dry_run;
    let asking = Box::pin(live::approval(client, route));
    let (requester, approval) = with_progress("asking who you are", io, asking).await??;
    let spec = spec(route, amount, reason, (&requester, &approval));
    let (source, to) = (route.source(), route.to());
    // The same request sent again makes no second transfer.
    let name = args.name.clone().unwrap_or_else(|| format!("to-{to}-{}", io.now.strftime("%Y%m%d-%H%M%S")));
    let creating = Box::pin(live::create(client, route, &name, &spec, dry_run));
    with_progress("creating the transfer", io, creating).await??;
    let shown = resource_name(&name);
    let created = format!("{shown} created{}: {amount} from {source} to {to}", dry_run_suffix(dry_run));
    if dry_run {
        writeln!(io.screen(), "{created}")?;
        return forecast(client, route, amount, &approval, io).await;
    }
    writeln!(io.screen(), "{created}; {}", approval.state(route, &name))?;
    let Some(most) = args.wait.most else { return Ok(Exit::Ok) };
    io.print_note(&format!("{shown}: waiting until it has ended ..."))?;
    let (exit, ended) = live::wait(client, source, &name, most).await?;
    writeln!(io.screen(), "{ended}")?;
    Ok(exit)
}

/// Says what the transfer would change, and what stands against it at present.
async fn forecast(
    client: &Client,
    route: &Route,
    amount: &Resources,
    approval: &TransferApproval,
    io: &mut Io<'_>,
) -> Result<Exit> {
    let reading = Box::pin(live::quota(client, route.source()));
    let quota = with_progress("reading the quota", io, reading).await?;
    let free = match &quota {
        Ok(quota) => free(amount, quota).to_string(),
        Err(_) => "not known".to_owned(),
    };
    let rows = [
        ("  gives", amount.to_string()),
        ("  free", free),
        ("  path", route.names()),
        ("  approval", approval.forecast(route)),
    ];
    print_rows(&rows, io)?;
    let quota = match quota {
        Ok(quota) => quota,
        Err(error) => {
            io.print_note(&format!("warning: {error:#}"))?;
            return Ok(Exit::Ok);
        }
    };
    let refusals = refusals(route.source(), amount, &quota);
    for refusal in &refusals {
        io.print_note(&format!("warning: it would be refused: {refusal}"))?;
    }
    Ok(if refusals.is_empty() { Exit::Ok } else { Exit::Attention })
}

/// Prints what a transfer is, one field a line.
fn print_rows(rows: &[(&str, String)], io: &mut Io<'_>) -> Result<()> {
    let mut table = Table::new(&["", ""]);
    for (field, text) in rows {
        table.row(vec![(*field).into(), text.as_str().into()]);
    }
    table.write(&mut io.screen(), false)
}
