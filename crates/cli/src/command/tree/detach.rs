//! `coppice tree detach`: the namespaces of a tree stay, and the tree goes.
#![allow(clippy::doc_markdown, reason = "comments on arguments are the help that people read in a terminal")]

use anyhow::{Result, anyhow, bail};
use clap::Args;
use coppice_api::condition::{READY, find};
use kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, Preconditions};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;

use crate::args::{ConnectionArgs, WriteArgs};
use crate::connect::{code, connect, failed};
use crate::print::Table;
use crate::trees::{NamespaceTree, Node, live};
use crate::wait::{self, WaitArgs};
use crate::write::{FIELD_MANAGER, dry_run_suffix};
use crate::{Exit, Io, with_progress};

/// Take a tree apart: its namespaces stay, as namespaces of no tree
///
/// Deletes the NamespaceTree with spec.deletionPolicy: Detach. Coppice then takes each namespace out of the tree, from the bottom
/// up: nothing that runs there is touched, its ResourceQuota stays as it is, and so do the RoleBindings, LimitRanges and
/// NetworkPolicies that were copied into it; the Subnamespaces go. What the namespaces had together nothing limits any more.
/// It cannot be undone.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  coppice tree detach shop --dry-run     which namespaces stay, and with which quota
  coppice tree detach shop --wait

Exit codes: 0 begun, with --wait done; 1 error, 2 usage; 3 with --wait: it is not done in time.")]
pub(super) struct DetachArgs {
    /// A NamespaceTree
    #[arg(value_name = "TREE")]
    name: String,
    #[command(flatten)]
    wait: WaitArgs,
    #[command(flatten)]
    write: WriteArgs,
}

pub(super) async fn run(args: &DetachArgs, connection: &ConnectionArgs, io: &mut Io<'_>) -> Result<Exit> {
    let client = connect(connection, io).await?.client;
    let (name, dry_run) = (&args.name, args.write.dry_run);
    let reading = Box::pin(read(&client, name));
    let Some(tree) = with_progress("reading the tree", io, reading).await?? else {
        bail!("there is no NamespaceTree {name}: `kubectl get nstree` shows those that there are");
    };
    let going = tree.metadata.deletion_timestamp.is_some();
    if going && tree.data["spec"]["deletionPolicy"] == "Detach" {
        bail!("NamespaceTree {name} is being deleted already{}", why(tree)?);
    }
    let snapshot = with_progress("reading the tree", io, live(&client, Some(name))).await??;
    let mut table = Table::new(&["NAMESPACE", "KEEPS"]);
    for (_, node) in snapshot.nodes(Some(name)) {
        node.walk("", &mut |node, _| table.row(vec![node.namespace.clone().into(), keeps(node).into()]));
    }
    table.write(&mut io.screen(), true)?;
    let changing = async {
        let tree = allow(&client, &tree, dry_run).await?;
        if !dry_run && !going {
            delete(&client, &tree).await?;
        }
        anyhow::Ok(tree)
    };
    let tree = with_progress("changing the tree", io, Box::pin(changing)).await??;
    let shown = format!("namespacetree.coppice.dev/{name}");
    writeln!(io.screen(), "{shown} is being detached{}", dry_run_suffix(dry_run))?;
    let Some(most) = args.wait.most.filter(|_| !dry_run) else { return Ok(Exit::Ok) };
    io.print_note(&format!("{shown}: waiting until its namespaces are in no tree any more ..."))?;
    let left = wait::until_gone(most, async || {
        let found = read(&client, name).await?;
        Ok(found.filter(|found| found.uid() == tree.uid()))
    });
    let Some(left) = left.await? else {
        writeln!(io.screen(), "{shown} detached")?;
        return Ok(Exit::Ok);
    };
    let why = left.map(why).transpose()?.unwrap_or_default();
    let goes_on = format!("`coppice tree {name}` shows how it goes on");
    writeln!(io.screen(), "{shown} is still being detached after {most}{why}; {goes_on}")?;
    Ok(Exit::Attention)
}

/// What its own workloads may use.
fn keeps(node: &Node) -> String {
    let (Some(allotted), Some(given)) = (&node.allotted, &node.given) else { return "not known".to_owned() };
    allotted.minus(given).to_string()
}

fn trees(client: &Client) -> Api<DynamicObject> {
    Api::all_with(client.clone(), &ApiResource::erase::<coppice_api::NamespaceTree>(&()))
}

async fn read(client: &Client, name: &str) -> Result<Option<DynamicObject>> {
    let found = trees(client).get_opt(name).await;
    found.map_err(|error| failed(&format!("NamespaceTree {name} cannot be read"), &error))
}

/// Has the tree detached when it is deleted.
async fn allow(client: &Client, tree: &DynamicObject, dry_run: bool) -> Result<DynamicObject> {
    let params =
        PatchParams { dry_run, field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    let patch = Patch::Merge(json!({
        "metadata": {"uid": tree.metadata.uid, "resourceVersion": tree.metadata.resource_version},
        "spec": {"deletionPolicy": "Detach"}
    }));
    let name = tree.name_any();
    trees(client).patch(&name, &params, &patch).await.map_err(|error| match code(&error) {
        Some(409) => anyhow!("NamespaceTree {name} was changed meanwhile: try again"),
        _ => failed(&format!("NamespaceTree {name} cannot be changed"), &error),
    })
}

async fn delete(client: &Client, tree: &DynamicObject) -> Result<()> {
    let preconditions = Preconditions { uid: tree.uid(), resource_version: None };
    let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    let name = tree.name_any();
    let deleted = trees(client).delete(&name, &params).await.map(drop);
    deleted.map_err(|error| failed(&format!("NamespaceTree {name} cannot be deleted"), &error))
}

/// Why it is not gone yet, as its condition says.
fn why(tree: DynamicObject) -> Result<String> {
    let tree = NamespaceTree::from_json(serde_json::to_value(tree)?)?;
    let ready = find(&tree.status.conditions, READY);
    Ok(ready
        .filter(|ready| ready.status != "True")
        .map(|ready| format!(": {}", ready.message))
        .unwrap_or_default())
}
