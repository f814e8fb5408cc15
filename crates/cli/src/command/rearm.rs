//! `coppice rearm`: a manager that has fired may fire again.

use anyhow::Result;
use clap::Args;
use kube::Client;
use serde_json::json;

use crate::args::{ConnectionArgs, NamespaceOrManager, Target, WriteArgs};
use crate::connect::connect;
use crate::facts::{Manager, NamespaceRecord};
use crate::write::{Edit, change, dry_run_suffix, managers_in, only, resource_name};
use crate::{Exit, Io, live, namespace_record, with_progress};

/// Arm a manager that has fired: it may fire once more
///
/// Sets spec.rearm to the number of the last firing. If a policy's condition still holds, it fires at once. Where a namespace has
/// no NamespaceManager, it is about the policies of its cluster manager.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes: 0 armed, or it was already; 1 error, 2 usage.")]
pub(crate) struct RearmArgs {
    /// The manager, or its namespace if there is no other in it
    #[arg(value_name = "NAMESPACE[/NAME]", value_parser = NamespaceOrManager::parse)]
    target: NamespaceOrManager,
    #[command(flatten)]
    write: WriteArgs,
}

pub(crate) async fn run(args: &RearmArgs, connection: &ConnectionArgs, io: &mut Io<'_>) -> Result<Exit> {
    let client = connect(connection, io).await?.client;
    let NamespaceOrManager { namespace, name } = &args.target;
    let target = if let Some(name) = name.clone() {
        Target { namespace: namespace.clone(), name }
    } else {
        let reading = async {
            let managers = managers_in(&client, namespace).await?;
            // Who may not read records is asked for a manager.
            let recorded = managers.is_empty()
                && live::record(&client, namespace).await.is_ok_and(|found| found.is_some());
            anyhow::Ok((managers, recorded))
        };
        let (managers, recorded) = with_progress("reading the managers", io, Box::pin(reading)).await??;
        if recorded {
            return of_record(args, &client, namespace, io).await;
        }
        only(namespace.clone(), &managers)?
    };
    let compute = async |manager: &Manager| {
        let firings = manager.status.steps.firings;
        let armed = manager.spec.as_ref().is_ok_and(|s| s.rearm == Some(firings));
        Ok(if firings == 0 || armed {
            Edit::Nothing(firings)
        } else {
            Edit::Patch(json!({ "rearm": firings }), firings)
        })
    };
    let (firings, written) = change(&client, &target, args.write.dry_run, compute, io).await?;
    says(&resource_name(&target.name), firings, written, args.write.dry_run, io)
}

/// The policies of the cluster manager that governs a namespace.
async fn of_record(args: &RearmArgs, client: &Client, namespace: &str, io: &mut Io<'_>) -> Result<Exit> {
    let compute = |record: Option<&NamespaceRecord>| {
        let Some(record) = record else { return Ok(Edit::Nothing((0, false))) };
        let firings = record.status.steps.firings;
        let armed = record.spec.as_ref().is_ok_and(|s| s.rearm == Some(firings));
        Ok(if firings == 0 || armed {
            Edit::Nothing((firings, false))
        } else {
            Edit::Patch(json!({ "rearm": firings }), (firings, true))
        })
    };
    let command = ("rearm", args.write.dry_run);
    let ((firings, written), notes) =
        namespace_record::change(client, namespace, command, compute, io).await?;
    namespace_record::print_notes(&notes, io)?;
    says(&format!("namespace/{namespace}"), firings, written, args.write.dry_run, io)
}

fn says(name: &str, firings: i64, written: bool, dry_run: bool, io: &mut Io<'_>) -> Result<Exit> {
    match (firings, written) {
        (0, _) => writeln!(io.screen(), "{name} has never fired: it is armed")?,
        (n, false) => writeln!(io.screen(), "{name} is armed already after firing {n}")?,
        (n, true) => writeln!(io.screen(), "{name} armed again after firing {n}{}", dry_run_suffix(dry_run))?,
    }
    Ok(Exit::Ok)
}
