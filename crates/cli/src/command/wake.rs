//! `coppice wake`: undoes a scale-down.

use std::time::Duration as Wait;

use anyhow::{Result, bail};
use clap::Args;
use coppice_api::Reason;
use coppice_api::ScaledWorkload;
use coppice_api::manager::Action;
use coppice_quantity::Duration;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use kube::api::ListParams;
use kube::{Api, Client};
use serde_json::json;

use crate::args::{ConnectionArgs, NamespaceOrManager, Target, WriteArgs, any_duration};
use crate::connect::connect;
use crate::facts::Manager;
use crate::print::count;
use crate::write::{Change, change, dry_run_suffix, existing, resource_name};
use crate::{Exit, Io, live};

/// Wake workloads that were scaled down
///
/// Sets spec.wake to the number of the last firing; the operator then gives every workload the replicas it had. What
/// was changed or replaced in between is left alone.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  coppice wake team-a                            whatever was scaled down in namespace team-a
  coppice wake team-a/e2e --no-wait

Exit codes: 0 awake, 3 some workloads were left alone, 1 error or timeout, 2 usage.")]
pub(crate) struct WakeArgs {
    /// A namespace, or one manager in it
    #[arg(value_name = "NAMESPACE[/NAME]", value_parser = NamespaceOrManager::parse)]
    target: NamespaceOrManager,
    /// How long to wait until the operator has done it
    #[arg(long, value_name = "DURATION", value_parser = any_duration, default_value = "60s")]
    timeout: Duration,
    /// Do not wait
    #[arg(long)]
    no_wait: bool,
    #[command(flatten)]
    write: WriteArgs,
}

pub(crate) async fn run(args: &WakeArgs, connection: &ConnectionArgs, io: &mut Io<'_>) -> Result<Exit> {
    let client = connect(connection, io).await?.client;
    let namespace = &args.target.namespace;
    let names = if let Some(name) = &args.target.name {
        vec![name.clone()]
    } else {
        let managers = live::managers(&client, Some(namespace), None).await?;
        managers
            .iter()
            .filter(|m| !m.status.steps.scaled_down.is_empty())
            .map(|m| m.name().to_owned())
            .collect()
    };
    if names.is_empty() {
        writeln!(io.screen(), "nothing is scaled down in namespace {namespace}")?;
    }
    let mut worst = Exit::Ok;
    for name in names {
        let target = Target { namespace: namespace.clone(), name };
        worst = worst.max(one(args, &client, &target, io).await?);
    }
    Ok(worst)
}

async fn one(args: &WakeArgs, client: &Client, target: &Target, io: &mut Io<'_>) -> Result<Exit> {
    let name = resource_name(&target.name);
    let (scaled_down, _) = change(client, target, args.write.dry_run, async |manager| {
        let scaled_down = manager.status.steps.scaled_down.listed().unwrap_or_default().to_vec();
        let firings = manager.status.steps.firings;
        if manager.status.steps.intent.as_ref().is_some_and(|i| i.action == Action::ScaleDown) {
            bail!(
                "NamespaceManager {target} is scaling workloads down at this moment, and a wake would be overtaken by it: \
                 try again when it has finished (`coppice explain {target}` tells)"
            );
        }
        let asked = manager.spec.as_ref().is_ok_and(|s| s.wake == Some(firings));
        Ok(if scaled_down.is_empty() || asked {
            Change::Nothing(scaled_down)
        } else {
            Change::Patch(json!({ "wake": firings }), scaled_down)
        })
    })
    .await?;
    if scaled_down.is_empty() {
        writeln!(io.screen(), "{name} has nothing scaled down")?;
        return Ok(Exit::Ok);
    }
    if args.no_wait || args.write.dry_run {
        writeln!(
            io.screen(),
            "{name} waking {}{}",
            count(scaled_down.len(), "workload"),
            dry_run_suffix(args.write.dry_run)
        )?;
        return Ok(Exit::Ok);
    }
    io.print_note(&format!(
        "{name}: waiting until {} have their replicas back ...",
        count(scaled_down.len(), "workload")
    ))?;
    let Ok(woken) = tokio::time::timeout(args.timeout.into(), wait_until_woken(client, target)).await else {
        let manager = existing(client, target).await?;
        bail!("{}", still_scaled_down(&manager, target, args.timeout));
    };
    let manager = woken?;
    let left = skipped_workloads(client, &manager, io.now).await;
    writeln!(io.screen(), "{name} awake")?;
    for workload in &scaled_down {
        writeln!(io.screen(), "  {}", describe(workload, left.as_deref()))?;
    }
    match left {
        None => Ok(Exit::Ok),
        Some(message) => {
            io.print_note(&format!("note: {message}"))?;
            Ok(Exit::Attention)
        }
    }
}

/// Waits until nothing is recorded as scaled down. Polls: only the state counts.
async fn wait_until_woken(client: &Client, target: &Target) -> Result<Manager> {
    loop {
        let manager = existing(client, target).await?;
        let status = &manager.status;
        let waking = status.steps.intent.as_ref().is_some_and(|i| i.action == Action::Wake);
        if status.steps.scaled_down.is_empty() && !waking {
            return Ok(manager);
        }
        tokio::time::sleep(Wait::from_millis(300)).await;
    }
}

fn still_scaled_down(manager: &Manager, target: &Target, timeout: Duration) -> String {
    let status = &manager.status;
    let what: Vec<String> = status
        .steps
        .scaled_down
        .listed()
        .unwrap_or_default()
        .iter()
        .map(|w| format!("{}/{}", w.kind, w.name))
        .collect();
    let next = status.next.as_ref();
    let error = status.steps.intent.as_ref().and_then(|i| i.last_error.as_deref());
    let why = error.or(next.map(|n| n.message.as_str())).unwrap_or("the operator has not looked at it");
    format!(
        "after {timeout} still scaled down in {target}: {}; the manager says: {why}. The operator goes on with it; \
         `coppice explain {target}` tells how far it is, `coppice doctor` whether it runs",
        what.join(", ")
    )
}

/// The Event that says what was left alone, if something was. Events are for people: without the right to read them
/// the rest of the answer is still true.
async fn skipped_workloads(client: &Client, manager: &Manager, since: Timestamp) -> Option<String> {
    let events: Api<Event> = Api::namespaced(client.clone(), manager.namespace());
    let about = ListParams::default().fields(&format!(
        "involvedObject.kind=NamespaceManager,involvedObject.name={},reason={}",
        manager.name(),
        Reason::Woken
    ));
    let found = events.list(&about).await.ok()?;
    let when = |event: &Event| {
        let series = event.series.as_ref().and_then(|s| s.last_observed_time.as_ref()).map(|t| t.0);
        series.or(event.event_time.as_ref().map(|t| t.0)).or(event.last_timestamp.as_ref().map(|t| t.0))
    };
    // Ours is the newest; one from before this command started is about an earlier wake. Clocks may differ a little.
    let begun = since.checked_sub(jiff::SignedDuration::from_secs(5)).unwrap_or(since);
    let newest =
        found.items.into_iter().filter(|e| when(e).is_some_and(|at| at >= begun)).max_by_key(when)?;
    newest.message.filter(|message| message.contains("left alone"))
}

fn describe(workload: &ScaledWorkload, left: Option<&str>) -> String {
    let name = format!("{} {}", workload.kind, workload.name);
    if left.is_some_and(|message| message.contains(&format!("{name} ("))) {
        return format!("{}/{}: left alone", workload.kind, workload.name);
    }
    match workload.replicas {
        Some(replicas) => format!(
            "{}/{}: {} again",
            workload.kind,
            workload.name,
            count(usize::try_from(replicas).unwrap_or(0), "replica")
        ),
        None => format!("{}/{}: runs again", workload.kind, workload.name),
    }
}
