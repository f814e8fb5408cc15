//! `coppice give-back`: quota returns to the namespace above.
#![allow(clippy::doc_markdown, reason = "comments on arguments are the help that people read in a terminal")]

use anyhow::Result;
use clap::Args;

use super::transfer::{RequestArgs, ask, reason};
use crate::args::{ConnectionArgs, namespace_name};
use crate::connect::connect;
use crate::transfers::{Route, live};
use crate::{Exit, Io, with_progress};

/// Give quota that a namespace does not use back to the namespace above it
///
/// Creates a QuotaTransfer in NAMESPACE, in your name, to the namespace right above it in its tree. It needs no approval.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  coppice give-back shop-web --amount pods=5 --dry-run          shows what would change
  coppice give-back shop-web --amount pods=5 --amount cpu=2 --wait

Exit codes: 0 created, with --wait completed; 1 error, 2 usage; 3 with --wait: it was refused,
or has not ended in time; with --dry-run: it would be refused.")]
pub(crate) struct GiveBackArgs {
    /// The namespace that gives the quota back
    #[arg(value_name = "NAMESPACE", value_parser = namespace_name)]
    source: String,
    /// What for
    #[arg(long, value_name = "TEXT", value_parser = reason, default_value = "given back")]
    reason: String,
    #[command(flatten)]
    request: RequestArgs,
}

pub(crate) async fn run(args: &GiveBackArgs, connection: &ConnectionArgs, io: &mut Io<'_>) -> Result<Exit> {
    let amount = args.request.amount()?;
    let client = connect(connection, io).await?.client;
    let reading = Box::pin(live::source(&client, &args.source));
    let route = Route::to_parent(&with_progress("reading the namespace", io, reading).await??)?;
    ask(&client, &route, (&amount, &args.reason), &args.request, io).await
}
