//! `coppice release`: ends a hold.

use anyhow::Result;
use clap::Args;
use serde_json::json;

use crate::args::{ConnectionArgs, NamespaceOrManager, WriteArgs};
use crate::connect::connect;
use crate::write::{Change, change, dry_run_suffix, resolve, resource_name};
use crate::{Exit, Io, print};

/// End the hold of a manager
///
/// What is due happens then: `coppice plan -n NAMESPACE` shows it.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes: 0 released, or there was no hold; 1 error, 2 usage.")]
pub(crate) struct ReleaseArgs {
    /// The manager, or its namespace if there is no other in it
    #[arg(value_name = "NAMESPACE[/NAME]", value_parser = NamespaceOrManager::parse)]
    target: NamespaceOrManager,
    #[command(flatten)]
    write: WriteArgs,
}

pub(crate) async fn run(args: &ReleaseArgs, connection: &ConnectionArgs, io: &mut Io<'_>) -> Result<Exit> {
    let client = connect(connection, io).await?.client;
    let target = resolve(&client, &args.target).await?;
    let (hold, _) = change(&client, &target, args.write.dry_run, async |manager| {
        let hold = manager.spec.as_ref().ok().and_then(|s| s.hold.clone());
        let there = manager.spec.is_err() || hold.is_some();
        Ok(if there { Change::Patch(json!({ "hold": null }), hold) } else { Change::Nothing(None) })
    })
    .await?;
    let name = resource_name(&target.name);
    match hold {
        None => writeln!(io.screen(), "{name} had no hold")?,
        Some(hold) => {
            let was = print::instant_from(hold.until, io.now);
            writeln!(
                io.screen(),
                "{name} released (was held until {was}){}",
                dry_run_suffix(args.write.dry_run)
            )?;
        }
    }
    Ok(Exit::Ok)
}
