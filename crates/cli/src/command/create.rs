//! `coppice create`: a namespace below another one.
#![allow(clippy::doc_markdown, reason = "comments on arguments are the help that people read in a terminal")]

use std::collections::BTreeMap;

use anyhow::{Result, anyhow, bail};
use clap::Args;
use coppice_api::metadata::NamespaceMetadata;
use coppice_api::names::GROUP;
use kube::Client;

use crate::args::{ConnectionArgs, Target, WriteArgs};
use crate::connect::connect;
use crate::print::Table;
use crate::transfers::{self, Amount, resources_of};
use crate::trees::creation::{self, Asked, Parent};
use crate::trees::{NamespaceQuota, pod_defaults};
use crate::wait::WaitArgs;
use crate::write::dry_run_suffix;
use crate::{Exit, Io, with_progress};

/// Create a namespace below one that you administer, with a part of its quota
///
/// Creates the Subnamespace NAME in namespace PARENT. Coppice creates the namespace of that name, if PARENT has the quota that is
/// asked for and does not use it; anyone who administers PARENT administers it, too. Deleting the Subnamespace deletes the
/// namespace and returns its quota. It warns if pods that do not state what they request are refused in the new namespace. With
/// --dry-run it shows what would change, and warns if it would be refused.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  coppice create shop/shop-web --quota pods=10,memory=8Gi --dry-run
  coppice create shop/shop-web --quota pods=10 --quota memory=8Gi --wait
  coppice create shop/shop-web --quota pods=10 --label team=web
  coppice tree shop                      what each namespace has; coppice quota shop-web: and who could give it more
  kubectl delete sns shop-web -n shop    deletes the namespace; its quota returns to shop

Exit codes: 0 created, with --wait ready; 1 error, 2 usage; 3 with --wait: it was refused, or is not
ready in time; with --dry-run: it would be refused.")]
pub(crate) struct CreateArgs {
    /// The namespace above, which is in a tree, and the name of the new one
    #[arg(value_name = "PARENT/NAME", value_parser = Target::subnamespace)]
    target: Target,
    /// How much of a resource the namespace is to have, such as pods=10 or memory=8Gi; may be repeated, or separated by
    /// commas. Resources that the tree limits and you do not name default to 0
    #[arg(long = "quota", value_name = "RESOURCE=AMOUNT", value_delimiter = ',')]
    quota: Vec<Amount>,
    /// A label of the namespace, which the tree has to allow (spec.metadata.allowed.labels); may be repeated, or separated by
    /// commas
    #[arg(long = "label", value_name = "KEY=VALUE", value_delimiter = ',', value_parser = pair)]
    labels: Vec<(String, String)>,
    /// An annotation of the namespace, which the tree has to allow (spec.metadata.allowed.annotations); may be repeated
    #[arg(long = "annotation", value_name = "KEY=VALUE", value_parser = pair)]
    annotations: Vec<(String, String)>,
    #[command(flatten)]
    wait: WaitArgs,
    #[command(flatten)]
    write: WriteArgs,
}

pub(crate) async fn run(args: &CreateArgs, connection: &ConnectionArgs, io: &mut Io<'_>) -> Result<Exit> {
    let quota = resources_of(&args.quota).map_err(|why| anyhow!("--quota: {why}"))?;
    let metadata = NamespaceMetadata {
        labels: once("--label", &args.labels)?,
        annotations: once("--annotation", &args.annotations)?,
    };
    let asked = Asked { quota, metadata };
    let client = connect(connection, io).await?.client;
    let (target, dry_run) = (&args.target, args.write.dry_run);
    let creating = Box::pin(creation::create(&client, target, &asked, dry_run));
    with_progress("creating the Subnamespace", io, creating).await??;
    let shown = format!("subnamespace.{GROUP}/{}", target.name);
    let has = if asked.quota.is_empty() {
        "nothing of what the tree limits".to_owned()
    } else {
        asked.quota.to_string()
    };
    let below = &target.namespace;
    writeln!(io.screen(), "{shown} created{}: below {below}, with {has}", dry_run_suffix(dry_run))?;
    if dry_run {
        return forecast(&client, target, &asked, io).await;
    }
    let reading = Box::pin(transfers::live::quota(&client, below));
    if let Ok(quota) = with_progress("reading the quota", io, reading).await? {
        warn_of_pods(&client, target, &quota, io).await?;
    }
    let Some(most) = args.wait.most else { return Ok(Exit::Ok) };
    io.print_note(&format!("{shown}: waiting until it is ready ..."))?;
    let (exit, state) = creation::wait(&client, target, most).await?;
    writeln!(io.screen(), "{shown} is {state}")?;
    Ok(exit)
}

/// Says what it would change, and what stands against it at present.
async fn forecast(client: &Client, target: &Target, asked: &Asked, io: &mut Io<'_>) -> Result<Exit> {
    let reading = Box::pin(Parent::read(client, &target.namespace));
    let parent = with_progress("reading the namespace above", io, reading).await?;
    let mut table = Table::new(&["", ""]);
    if let Some(path) = &parent.path {
        table.row(vec!["  path".into(), format!("{}/{}", path.join("/"), target.name).into()]);
    }
    if let Some(quota) = &parent.quota {
        let unused = quota.own.minus(&quota.used);
        table.row(vec![format!("  {} has free", target.namespace).into(), unused.to_string().into()]);
        let left = unused.minus(&asked.quota).to_string();
        table.row(vec![format!("  {} would keep", target.namespace).into(), left.into()]);
    }
    table.write(&mut io.screen(), false)?;
    for unknown in &parent.unknown {
        io.print_note(&format!("warning: {unknown}"))?;
    }
    if let Some(quota) = &parent.quota {
        warn_of_pods(client, target, quota, io).await?;
    }
    let refusals = parent.refusals(target, asked);
    for refusal in &refusals {
        io.print_note(&format!("warning: it would be refused: {refusal}"))?;
    }
    Ok(if refusals.is_empty() { Exit::Ok } else { Exit::Attention })
}

/// Says which pods the quota of the new namespace keeps out.
async fn warn_of_pods(
    client: &Client,
    target: &Target,
    quota: &NamespaceQuota,
    io: &mut Io<'_>,
) -> Result<()> {
    let reading = Box::pin(pod_defaults::warning(client, target, quota));
    if let Some(warning) = with_progress("reading the LimitRanges", io, reading).await? {
        io.print_note(&format!("warning: {warning}"))?;
    }
    Ok(())
}

/// A text that is no key with a value.
#[derive(Debug, thiserror::Error)]
#[error("write KEY=VALUE, such as team=web; {0:?} has no '='")]
struct NoPair(String);

/// A key and a value.
fn pair(text: &str) -> Result<(String, String), NoPair> {
    let (key, value) = text.split_once('=').ok_or_else(|| NoPair(text.to_owned()))?;
    Ok((key.to_owned(), value.to_owned()))
}

/// Each key once: of two values it is not known which one is meant.
fn once(option: &str, pairs: &[(String, String)]) -> Result<BTreeMap<String, String>> {
    let mut map = BTreeMap::new();
    for (key, value) in pairs {
        if let Some(other) = map.insert(key.clone(), value.clone()) {
            bail!("{option}: {key} is given twice, as {other} and as {value}");
        }
    }
    Ok(map)
}
