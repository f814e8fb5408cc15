//! `coppice transfer approve`: agrees to a transfer that somebody asked for.
#![allow(clippy::doc_markdown, reason = "comments on arguments are the help that people read in a terminal")]

use anyhow::{Result, anyhow, bail};
use clap::Args;
use coppice_api::QuotaTransferSpec;
use coppice_hierarchy::Resources;
use serde_json::json;

use super::print_rows;
use crate::args::{ArgumentError, ConnectionArgs, NamespaceOrManager, Target, WriteArgs};
use crate::connect::connect;
use crate::transfers::{QuotaTransfer, live, resource_name, settled, state};
use crate::write::{MAX_ATTEMPTS, dry_run_suffix, merge, overtaken, user_name};
use crate::{Exit, Io, with_progress};

/// Approve a transfer of quota that somebody asked for
///
/// Shows what it is about, and sets spec.approvedBy of the QuotaTransfer to your user name. You need the right to create
/// QuotaTransfers in the namespace that gives the quota and the one that gets it, or in the nearest one that both are below
/// of. An approval cannot be taken back; deleting the QuotaTransfer returns what has not arrived yet.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  kubectl get quotatransfers -A                                   shows which wait: PendingApproval
  coppice transfer approve shop-web/to-shop-api-20261201-180000 --dry-run   changes nothing
  coppice transfer approve shop-web/to-shop-api-20261201-180000

Exit codes: 0 approved, already approved, or needs no approval; 1 error, 2 usage.")]
pub(super) struct ApproveArgs {
    /// A QuotaTransfer, in the namespace that gives the quota
    #[arg(value_name = "NAMESPACE/NAME", value_parser = transfer)]
    target: Target,
    #[command(flatten)]
    write: WriteArgs,
}

fn transfer(text: &str) -> Result<Target, ArgumentError> {
    match NamespaceOrManager::parse(text) {
        Ok(NamespaceOrManager { namespace, name: Some(name) }) => Ok(Target { namespace, name }),
        _ => Err(ArgumentError::Transfer),
    }
}

pub(super) async fn run(args: &ApproveArgs, connection: &ConnectionArgs, io: &mut Io<'_>) -> Result<Exit> {
    let client = connect(connection, io).await?.client;
    let Target { namespace, name } = &args.target;
    let what = format!("QuotaTransfer {}", args.target);
    let api = live::transfers(&client, namespace);
    let (mut shown, resource) = (false, resource_name(name));
    for _ in 0..MAX_ATTEMPTS {
        let reading = Box::pin(live::existing(&client, namespace, name));
        let transfer = with_progress("reading the transfer", io, reading).await??;
        let spec = transfer.spec.as_ref().map_err(|error| anyhow!("{what}: {error}"))?;
        // Nothing of that changes while it is there.
        if !std::mem::replace(&mut shown, true) {
            show(&transfer, spec, io)?;
        }
        if let Some(settled) = settled(&transfer, spec) {
            writeln!(io.screen(), "{resource} {settled}")?;
            return Ok(Exit::Ok);
        }
        if transfer.status.ended_at.is_some() {
            bail!("{what} has ended ({}): create another one", state(&transfer.status));
        }
        if transfer.meta.deletion_timestamp.is_some() {
            bail!("{what} is being deleted: create another one");
        }
        let asking = Box::pin(user_name(&client, "spec.approvedBy"));
        let user = with_progress("asking who you are", io, asking).await??;
        let approved = json!({ "approvedBy": user });
        let changing = Box::pin(merge(&api, &what, &transfer.meta, &approved, args.write.dry_run));
        if with_progress("changing the transfer", io, changing).await?? {
            writeln!(io.screen(), "{resource} approved by {user}{}", dry_run_suffix(args.write.dry_run))?;
            return Ok(Exit::Ok);
        }
    }
    Err(overtaken(&what))
}

fn show(transfer: &QuotaTransfer, spec: &QuotaTransferSpec, io: &mut Io<'_>) -> Result<()> {
    let amount = Resources::of(&spec.amount);
    let amount =
        amount.map_or_else(|why| format!("cannot be understood: {why}"), |amount| amount.to_string());
    let rows = [
        ("  amount", amount),
        ("  from", transfer.namespace().to_owned()),
        ("  to", spec.to.clone()),
        ("  through", spec.through.clone()),
        ("  requester", spec.requester.clone()),
        ("  reason", spec.reason.clone()),
    ];
    writeln!(io.screen(), "QuotaTransfer {}/{}", transfer.namespace(), transfer.name())?;
    print_rows(&rows, io)
}
