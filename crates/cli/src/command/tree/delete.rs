//! `coppice tree delete`: a namespace of a tree goes, with all below it if that is asked for.
#![allow(clippy::doc_markdown, reason = "comments on arguments are the help that people read in a terminal")]

use anyhow::{Result, anyhow, bail};
use clap::Args;
use coppice_api::condition::{READY, find};
use coppice_quantity::Duration;
use jiff::Timestamp;
use kube::Client;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use serde_json::json;

use super::super::hold::ahead;
use crate::args::{ArgumentError, ConnectionArgs, Target, WriteArgs, positive_duration};
use crate::connect::{code, connect, failed};
use crate::print::{Table, count};
use crate::trees::{Node, Subnamespace, live, subnamespace, subnamespaces};
use crate::wait::{self, WaitArgs};
use crate::write::{FIELD_MANAGER, dry_run_suffix};
use crate::{Exit, Io, with_progress};

/// Consent counts in the last hours before it ends: see `spec.cascadeUntil`.
const MOST: Duration = Duration::from_secs(24 * 60 * 60);

/// Delete a namespace of a tree, and return its quota
///
/// Deletes the Subnamespace; Coppice then deletes its namespace with everything that is in it, and returns the quota to the namespace above.
/// While other namespaces are below it, it stays, unless --cascade says that these go, too: from the bottom up, one after another, each as
/// the governor allows. What is not deleted when the time of --cascade is over stays. There is no undo.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  coppice tree delete shop/shop-web --cascade --dry-run   which namespaces go, in which order, and what runs there
  coppice tree delete shop/shop-web --cascade --wait=10m
  coppice tree delete shop/shop-web --cascade=4h          also for one that is being deleted and waits for those below it

Exit codes: 0 begun, with --wait done; 1 error, 2 usage; 3 others are below it and --cascade is not given, or with --wait: it is not done
in time.")]
pub(super) struct DeleteArgs {
    /// A Subnamespace
    #[arg(value_name = "PARENT/NAME", value_parser = Target::subnamespace)]
    target: Target,
    /// Delete all namespaces below it, too, as far as that is done within this time, at most 24h; 1h if no time is given
    #[arg(
        long,
        value_name = "DURATION",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "1h",
        value_parser = consent_for
    )]
    cascade: Option<Duration>,
    #[command(flatten)]
    wait: WaitArgs,
    #[command(flatten)]
    write: WriteArgs,
}

pub(super) async fn run(args: &DeleteArgs, connection: &ConnectionArgs, io: &mut Io<'_>) -> Result<Exit> {
    let until = args.cascade.map(|time| ahead(io.now, time));
    let client = connect(connection, io).await?.client;
    let (target, dry_run) = (&args.target, args.write.dry_run);
    let reading = Box::pin(subnamespace(&client, target));
    let Some(object) = with_progress("reading the Subnamespace", io, reading).await?? else {
        bail!(
            "there is no Subnamespace {target}: `coppice tree {}` shows those that there are",
            target.namespace
        );
    };
    let going = object.meta.deletion_timestamp.is_some();
    if going && until.is_none() {
        bail!("Subnamespace {target} is being deleted already{}", why(&object));
    }
    let below = show(&client, &object, io).await?;
    if below > 0 && until.is_none() {
        let all = if below == 1 { "it goes" } else { "they go" };
        io.print_note(&format!(
            "{} below namespace {}, which is not deleted: delete from the bottom up, or with --cascade {all}, too",
            if below == 1 { "one namespace is".to_owned() } else { format!("{} are", count(below, "namespace")) },
            target.name
        ))?;
        return Ok(Exit::Attention);
    }
    let until = until.filter(|_| below > 0);
    let deleting = async {
        if let Some(until) = until {
            consent(&client, &object, until, dry_run).await?;
        }
        if !dry_run && !going {
            delete(&client, &object).await?;
        }
        anyhow::Ok(())
    };
    with_progress("deleting the Subnamespace", io, Box::pin(deleting)).await??;
    let shown = format!("subnamespace.coppice.dev/{}", target.name);
    let with = until.map_or_else(String::new, |until| format!(", with all below it until {until}"));
    writeln!(io.screen(), "{shown} is being deleted{with}{}", dry_run_suffix(dry_run))?;
    let Some(most) = args.wait.most.filter(|_| !dry_run) else { return Ok(Exit::Ok) };
    io.print_note(&format!("{shown}: waiting until it is gone ..."))?;
    let left = wait::until_gone(most, async || {
        let found = subnamespace(&client, target).await?;
        Ok(found.filter(|found| found.meta.uid == object.meta.uid))
    });
    let Some(left) = left.await? else {
        writeln!(io.screen(), "{shown} deleted")?;
        return Ok(Exit::Ok);
    };
    let why = left.as_ref().map(why).unwrap_or_default();
    writeln!(io.screen(), "{shown} is still being deleted after {most}{why}")?;
    Ok(Exit::Attention)
}

/// For how long there is consent.
fn consent_for(text: &str) -> Result<Duration, ArgumentError> {
    let time = positive_duration(text)?;
    if time > MOST { Err(ArgumentError::TooFarAhead(MOST)) } else { Ok(time) }
}

/// Shows what goes, in the order in which it does; how many are below the namespace.
async fn show(client: &Client, object: &Subnamespace, io: &mut Io<'_>) -> Result<usize> {
    let name = object.name();
    if object.status.namespace_uid.is_none() {
        io.print_note(&format!("Subnamespace {name} has no namespace"))?;
        return Ok(0);
    }
    let snapshot = with_progress("reading the tree", io, live(client, Some(name))).await??;
    if let Some(unread) = snapshot.warnings.first() {
        bail!("what is below namespace {name} is not known: {unread}");
    }
    let nodes = snapshot.nodes(Some(name));
    let node = nodes.iter().find_map(|(_, node)| (node.namespace == name).then_some(node));
    let node = node.ok_or_else(|| anyhow!("namespace {name} is in no tree that can be read"))?;
    let mut table = Table::new(&["NAMESPACE", "USES", "RETURNS"]);
    let below = rows(node, &mut table);
    table.write(&mut io.screen(), true)?;
    Ok(below - 1)
}

/// A row for each namespace, those below it first; how many.
fn rows(node: &Node, table: &mut Table) -> usize {
    let below: usize = node.children.iter().map(|child| rows(child, table)).sum();
    let amounts = |amounts: &Option<coppice_hierarchy::Resources>| {
        amounts.as_ref().map_or_else(|| "not known".to_owned(), ToString::to_string)
    };
    table.row(vec![
        node.namespace.clone().into(),
        amounts(&node.used).into(),
        amounts(&node.allotted).into(),
    ]);
    below + 1
}

async fn consent(client: &Client, object: &Subnamespace, until: Timestamp, dry_run: bool) -> Result<()> {
    let params =
        PatchParams { dry_run, field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    let patch = Patch::Merge(json!({
        "metadata": {"uid": object.meta.uid, "resourceVersion": object.meta.resource_version},
        "spec": {"cascadeUntil": until}
    }));
    let (namespace, name) = (object.namespace(), object.name());
    let patched = subnamespaces(client, Some(namespace)).patch(name, &params, &patch).await;
    patched.map(drop).map_err(|error| match code(&error) {
        Some(409) => anyhow!("Subnamespace {namespace}/{name} was changed meanwhile: try again"),
        _ => failed(&format!("Subnamespace {namespace}/{name} cannot be changed"), &error),
    })
}

async fn delete(client: &Client, object: &Subnamespace) -> Result<()> {
    let preconditions = Preconditions { uid: object.meta.uid.clone(), resource_version: None };
    let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    let (namespace, name) = (object.namespace(), object.name());
    let deleted = subnamespaces(client, Some(namespace)).delete(name, &params).await;
    deleted.map(drop).map_err(|error| match code(&error) {
        Some(404) => anyhow!("Subnamespace {namespace}/{name} is gone already"),
        _ => failed(&format!("Subnamespace {namespace}/{name} cannot be deleted"), &error),
    })
}

/// Why it is not gone yet, as its condition says.
fn why(object: &Subnamespace) -> String {
    let ready = find(&object.status.conditions, READY).filter(|ready| ready.status != "True");
    ready.map(|ready| format!(": {}", ready.message)).unwrap_or_default()
}
