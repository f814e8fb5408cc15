//! `coppice release`: ends a hold.

use anyhow::Result;
use clap::Args;
use jiff::Timestamp;
use serde_json::json;

use crate::args::{ConnectionArgs, NamespaceOrManager, Target, WriteArgs};
use crate::connect::connect;
use crate::facts::{Manager, NamespaceRecord};
use crate::write::{Edit, change, dry_run_suffix, resource_name};
use crate::{Exit, Io, namespace_record, print};

/// End the hold of a namespace or a manager
///
/// NAMESPACE alone is about the hold in its record, NAMESPACE/NAME about that of one NamespaceManager in it. What is due
/// happens then: `coppice plan -n NAMESPACE` shows it.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes: 0 released, or there was no hold; 1 error, 2 usage.")]
pub(crate) struct ReleaseArgs {
    /// A namespace, or one NamespaceManager in it
    #[arg(value_name = "NAMESPACE[/NAME]", value_parser = NamespaceOrManager::parse)]
    target: NamespaceOrManager,
    #[command(flatten)]
    write: WriteArgs,
}

pub(crate) async fn run(args: &ReleaseArgs, connection: &ConnectionArgs, io: &mut Io<'_>) -> Result<Exit> {
    let client = connect(connection, io).await?.client;
    let NamespaceOrManager { namespace, name } = &args.target;
    let dry_run = args.write.dry_run;
    let (shown, until) = if let Some(name) = name {
        let target = Target { namespace: namespace.clone(), name: name.clone() };
        let compute = async |manager: &Manager| {
            Ok(released(manager.spec.as_ref().map(|spec| spec.hold.as_ref().map(|hold| hold.until))))
        };
        (resource_name(name), change(&client, &target, dry_run, compute, io).await?.0)
    } else {
        let compute = |record: Option<&NamespaceRecord>| {
            let Some(record) = record else { return Ok(Edit::Nothing(None)) };
            Ok(released(record.spec.as_ref().map(|spec| spec.hold.as_ref().map(|hold| hold.until))))
        };
        let changed = namespace_record::change(&client, namespace, ("release", dry_run), compute, io).await?;
        (format!("namespace/{namespace}"), changed.0)
    };
    match until {
        None => writeln!(io.screen(), "{shown} had no hold")?,
        Some(until) => {
            let was = print::instant_from(until, io.now);
            writeln!(io.screen(), "{shown} released (was held until {was}){}", dry_run_suffix(dry_run))?;
        }
    }
    Ok(Exit::Ok)
}

/// The hold goes. `until`: of the hold, if there is one; a spec that cannot be understood may have one.
fn released<E>(until: Result<Option<Timestamp>, E>) -> Edit<Option<Timestamp>> {
    match until {
        Ok(None) => Edit::Nothing(None),
        known => Edit::Patch(json!({ "hold": null }), known.unwrap_or_default()),
    }
}
