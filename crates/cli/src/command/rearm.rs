//! `coppice rearm`: a manager that has fired may fire again.

use anyhow::Result;
use clap::Args;
use serde_json::json;

use crate::args::{ConnectionArgs, NamespaceOrManager, WriteArgs};
use crate::connect::connect;
use crate::write::{Change, change, dry_run_suffix, resolve, resource_name};
use crate::{Exit, Io};

/// Arm a manager that has fired: it may fire once more
///
/// Sets spec.rearm to the number of the last firing. If a policy's condition still holds, it fires at once.
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
    let target = resolve(&client, &args.target).await?;
    let (firings, written) = change(&client, &target, args.write.dry_run, async |manager| {
        let firings = manager.status.steps.firings;
        let armed = manager.spec.as_ref().is_ok_and(|s| s.rearm == Some(firings));
        Ok(if firings == 0 || armed {
            Change::Nothing(firings)
        } else {
            Change::Patch(json!({ "rearm": firings }), firings)
        })
    })
    .await?;
    let name = resource_name(&target.name);
    match (firings, written) {
        (0, _) => writeln!(io.screen(), "{name} has never fired: it is armed")?,
        (n, false) => writeln!(io.screen(), "{name} is armed already after firing {n}")?,
        (n, true) => writeln!(
            io.screen(),
            "{name} armed again after firing {n}{}",
            dry_run_suffix(args.write.dry_run)
        )?,
    }
    Ok(Exit::Ok)
}
