//! `coppice extend`: no ttl ends before a later instant.
#![allow(clippy::doc_markdown, reason = "comments on arguments are the help that people read in a terminal")]

use anyhow::{Result, bail};
use clap::Args;
use coppice_lifecycle::cluster::extension_end;
use coppice_lifecycle::condition::evaluate;
use coppice_lifecycle::facts::{Fact, NamespaceSnapshot, ObjectSlice};
use coppice_lifecycle::{PolicyCondition, ValidPolicy};
use coppice_quantity::Duration;
use jiff::Timestamp;
use kube::Client;
use serde_json::json;

use super::hold::ahead;
use crate::args::{ConnectionArgs, NamespaceOrManager, Target, WriteArgs, instant, positive_duration};
use crate::connect::{connect, failed};
use crate::facts::{self, Manager, NamespaceRecord};
use crate::write::{Edit, change, dry_run_suffix, resource_name};
use crate::{Exit, Io, live, namespace_record, print};

/// Extend the life of a namespace
///
/// Sets spec.extendUntil: no ttl ends before. NAMESPACE alone is about the ttl of the cluster manager that governs it: the
/// extension is written into its record (ManagedNamespace coppice, which is created if it does not exist yet), with your
/// user name. NAMESPACE/NAME is about one NamespaceManager in it. With --by it is counted from when the ttl would end as
/// things are, or from now if that has passed or is not known yet.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  coppice extend ci-42 --by 2h                   whatever cluster manager governs it
  coppice extend team-a/e2e --by 2h
  coppice extend team-a/e2e --until 2026-12-01T18:00:00Z

Exit codes: 0 extended, 1 error, 2 usage.")]
pub(crate) struct ExtendArgs {
    /// A namespace, or one NamespaceManager in it
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
    let NamespaceOrManager { namespace, name } = &args.target;
    let (now, dry_run) = (io.now, args.write.dry_run);
    let (shown, before, until) = if let Some(name) = name {
        let target = Target { namespace: namespace.clone(), name: name.clone() };
        let (before, until) = extend_manager(args, &client, &target, io).await?;
        (resource_name(name), before, until)
    } else {
        let ((before, until), notes) = extend_namespace(args, &client, namespace, io).await?;
        namespace_record::print_notes(&notes, io)?;
        (format!("namespace/{namespace}"), before, until)
    };
    let was = before.map_or_else(String::new, |b| format!("; before: {}", print::instant_from(b, now)));
    writeln!(
        io.screen(),
        "{shown} extended: no ttl ends before {}{was}{}",
        print::instant_from(until, now),
        dry_run_suffix(dry_run)
    )?;
    if before.is_some_and(|before| until < before) {
        io.print_note("note: that is earlier than before; a ttl that ends later by itself is not shortened")?;
    }
    if until <= now {
        io.print_note("note: that is past, so it extends nothing")?;
    }
    Ok(Exit::Ok)
}

/// The end before, as far as it matters, and the end now.
async fn extend_manager(
    args: &ExtendArgs,
    client: &Client,
    target: &Target,
    io: &mut Io<'_>,
) -> Result<(Option<Timestamp>, Timestamp)> {
    let now = io.now;
    let extending = async |manager: &Manager| -> Result<Edit<(Option<Timestamp>, Timestamp)>> {
        let extended = manager.spec.as_ref().ok().and_then(|s| s.extend_until);
        let (before, until) = match (args.by, args.until) {
            (None, until) => (extended, until.unwrap_or(now)),
            (Some(by), _) => {
                let due = due(client, manager, now).await?;
                (Some(due), ahead(due.max(now).max(extended.unwrap_or(now)), by))
            }
        };
        Ok(Edit::Patch(json!({ "extendUntil": until.to_string() }), (before, until)))
    };
    let (ends, _) = change(client, target, args.write.dry_run, extending, io).await?;
    Ok(ends)
}

/// The same for the record of a namespace, with remarks.
async fn extend_namespace(
    args: &ExtendArgs,
    client: &Client,
    namespace: &str,
    io: &mut Io<'_>,
) -> Result<((Option<Timestamp>, Timestamp), Vec<String>)> {
    let now = io.now;
    let requester = namespace_record::requester(client, io).await?;
    let compute = |record: Option<&NamespaceRecord>| {
        let before = expiry(namespace, record)?;
        let until = match (args.by, args.until) {
            (None, until) => until.unwrap_or(now),
            (Some(by), _) => ahead(before.unwrap_or(now).max(now), by),
        };
        let extension = json!({ "at": until.to_string(), "by": requester });
        let limit = namespace_record::extension_limit(record, until, now);
        Ok(Edit::Patch(json!({ "extendUntil": extension }), ((before, until), limit)))
    };
    let command = ("extend", args.write.dry_run);
    let ((ends, limit), mut notes) =
        namespace_record::change(client, namespace, command, compute, io).await?;
    notes.extend(limit);
    if ends.0.is_none() && args.by.is_some() {
        notes.push(NOT_KNOWN.to_owned());
    }
    Ok((ends, notes))
}

const NOT_KNOWN: &str =
    "when the ttl ends is not known yet: it is counted from now, and a ttl that ends later is not shortened";

/// When the ttl of a namespace ends as things are; none if that is not known yet.
fn expiry(namespace: &str, record: Option<&NamespaceRecord>) -> Result<Option<Timestamp>> {
    let Some(record) = record else { return Ok(None) };
    let status = &record.status;
    if let (Some(manager), None) = (&status.manager, status.expires_at) {
        bail!(
            "ClusterNamespaceManager {} has no ttl, so there is nothing to extend; `coppice hold {namespace}` stops its \
             policies for a time",
            manager.name
        );
    }
    let extended = record.spec.as_ref().ok().and_then(|spec| spec.extend_until.as_ref());
    // The record may not have been read yet since the last extension.
    let extended = extended.map(|extension| extension_end(status.limits.as_ref(), extension));
    Ok(status.expires_at.max(extended))
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
