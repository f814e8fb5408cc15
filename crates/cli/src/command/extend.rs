//! `coppice extend`: no ttl ends before a later instant.

use anyhow::{Result, bail};
use clap::Args;
use coppice_lifecycle::condition::evaluate;
use coppice_lifecycle::facts::{Fact, NamespaceSnapshot, ObjectSlice};
use coppice_lifecycle::{PolicyCondition, ValidPolicy};
use coppice_quantity::Duration;
use jiff::Timestamp;
use kube::Client;
use serde_json::json;

use super::hold::ahead;
use crate::args::{ConnectionArgs, NamespaceOrManager, WriteArgs, instant, positive_duration};
use crate::connect::{connect, failed};
use crate::facts::{self, Manager};
use crate::write::{Change, change, dry_run_suffix, resolve, resource_name};
use crate::{Exit, Io, live, print};

/// Extend the life of a namespace
///
/// Sets spec.extendUntil: no ttl of the manager ends before. With --by it is counted from when the next ttl would end,
/// or from now if that has passed.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  coppice extend team-a/e2e --by 2h
  coppice extend team-a/e2e --until 2026-12-01T18:00:00Z

Exit codes: 0 extended, 1 error, 2 usage.")]
pub(crate) struct ExtendArgs {
    /// The manager, or its namespace if there is no other in it
    #[arg(value_name = "NAMESPACE[/NAME]", value_parser = NamespaceOrManager::parse)]
    target: NamespaceOrManager,
    /// By how much
    #[arg(long, value_name = "DURATION", value_parser = positive_duration, required_unless_present = "until")]
    by: Option<Duration>,
    /// Until when
    #[arg(long, value_name = "TIME", value_parser = instant, conflicts_with = "by")]
    until: Option<Timestamp>,
    #[command(flatten)]
    write: WriteArgs,
}

pub(crate) async fn run(args: &ExtendArgs, connection: &ConnectionArgs, io: &mut Io<'_>) -> Result<Exit> {
    let client = connect(connection, io).await?.client;
    let target = resolve(&client, &args.target).await?;
    let now = io.now;
    let ((before, until), _) = change(&client, &target, args.write.dry_run, async |manager| {
        let extended = manager.spec.as_ref().ok().and_then(|s| s.extend_until);
        let (before, until) = match (args.by, args.until) {
            (None, until) => (extended, until.unwrap_or(now)),
            (Some(by), _) => {
                let due = due(&client, manager, now).await?;
                (Some(due), ahead(due.max(now).max(extended.unwrap_or(now)), by))
            }
        };
        Ok(Change::Patch(json!({ "extendUntil": until.to_string() }), (before, until)))
    })
    .await?;
    let name = resource_name(&target.name);
    let was = before.map_or_else(String::new, |b| format!("; before: {}", print::instant_from(b, now)));
    writeln!(
        io.screen(),
        "{name} extended: no ttl ends before {}{was}{}",
        print::instant_from(until, now),
        dry_run_suffix(args.write.dry_run)
    )?;
    if before.is_some_and(|before| until < before) {
        io.print_note("note: that is earlier than before; a ttl that ends later by itself is not shortened")?;
    }
    if until <= now {
        io.print_note("note: that is past, so it extends nothing")?;
    }
    Ok(Exit::Ok)
}

/// When the next ttl of a manager ends.
async fn due(client: &Client, manager: &Manager, now: Timestamp) -> Result<Timestamp> {
    let name = format!("{}/{}", manager.namespace(), manager.name());
    let spec = match &manager.spec {
        Ok(spec) => spec,
        Err(error) => bail!("NamespaceManager {name}: {error}"),
    };
    let is_ttl = |policy: &&ValidPolicy| matches!(policy.condition, PolicyCondition::Ttl(_));
    if !spec.policies().iter().any(|policy| is_ttl(&policy)) {
        bail!(
            "NamespaceManager {name} has no ttl, so there is nothing to extend; `coppice hold {name}` stops its policies for a time"
        );
    }
    let namespace = match live::namespace(client, manager.namespace()).await {
        Ok(Some(namespace)) => facts::namespace(namespace, now),
        Ok(None) => bail!("namespace {} does not exist any more", manager.namespace()),
        Err(error) => {
            // The operator has recorded the same in status.
            let recorded = manager.status.policies.iter().filter_map(|p| p.due).min();
            let ahead = format!(
                "namespace {} cannot be read, so it is not known when the ttl ends (write --until instead)",
                manager.namespace()
            );
            return recorded.ok_or_else(|| failed(&ahead, &error));
        }
    };
    // A ttl depends on neither.
    let (pods, jobs) = (
        Fact::Known { value: ObjectSlice::EMPTY, since: now },
        Fact::Known { value: ObjectSlice::EMPTY, since: now },
    );
    let snapshot = NamespaceSnapshot::new(&namespace, pods, jobs);
    let ttls = spec.policies().iter().filter(is_ttl);
    let ends = ttls.filter_map(|policy| evaluate(policy, spec, &snapshot, None, now).due).min();
    Ok(ends.unwrap_or(now))
}
