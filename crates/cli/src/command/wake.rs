//! `coppice wake`: undoes a scale-down.

use anyhow::{Result, bail};
use clap::Args;
use coppice_api::manager::{Action, NextStep};
use coppice_api::names::MANAGED_NAMESPACE_NAME;
use coppice_api::{Reason, ScaledWorkload, Steps};
use coppice_lifecycle::record::left_alone;
use coppice_quantity::Duration;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use kube::api::ListParams;
use kube::{Api, Client};
use serde_json::json;

use crate::args::{ConnectionArgs, NamespaceOrManager, Target, WriteArgs, any_duration};
use crate::connect::connect;
use crate::facts::{Manager, NamespaceRecord};
use crate::namespace_record::record_of;
use crate::print::count;
use crate::write::{Edit, change, dry_run_suffix, existing, resource_name};
use crate::{Exit, Io, live, namespace_record, wait, with_progress};

/// Wake workloads that were scaled down
///
/// Sets spec.wake to the number of the last firing; the operator then gives every workload the replicas it had. What
/// was changed or replaced in between is left alone. NAMESPACE alone is about whatever was scaled down in it, by the
/// policies of a cluster manager and by its NamespaceManagers.
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
    let reading = Box::pin(scaled_down(&client, &args.target));
    let ToWake { managers, by_cluster_manager, unknown } =
        with_progress("reading what is scaled down", io, reading).await??;
    if let Some(note) = unknown {
        io.print_note(&note)?;
    }
    let mut worst = Exit::Ok;
    if by_cluster_manager {
        worst = worst.max(of_record(args, &client, namespace, io).await?);
    } else if managers.is_empty() {
        writeln!(io.screen(), "nothing is scaled down in namespace {namespace}")?;
    }
    for name in managers {
        let target = Target { namespace: namespace.clone(), name };
        worst = worst.max(one(args, &client, &target, io).await?);
    }
    Ok(worst)
}

/// What there is to wake.
struct ToWake {
    /// The managers that have scaled something down, or the one that is meant.
    managers: Vec<String>,
    by_cluster_manager: bool,
    /// Why it is not known whether a cluster manager has.
    unknown: Option<String>,
}

async fn scaled_down(client: &Client, target: &NamespaceOrManager) -> Result<ToWake> {
    let NamespaceOrManager { namespace, name } = target;
    if let Some(name) = name {
        return Ok(ToWake { managers: vec![name.clone()], by_cluster_manager: false, unknown: None });
    }
    let managers = live::managers(client, Some(namespace), None).await?;
    let managers = managers.iter().filter(|m| !m.status.steps.scaled_down.is_empty());
    let managers = managers.map(|m| m.name().to_owned()).collect();
    let (record, unknown) = match live::record(client, namespace).await {
        Ok(record) => (record, None),
        // Not every tenant may read it, and what managers have scaled down can be woken all the same.
        Err(error) => {
            (None, Some(format!("note: what cluster managers have scaled down is not known: {error:#}")))
        }
    };
    let by_cluster_manager = record.is_some_and(|record| !record.status.steps.scaled_down.is_empty());
    Ok(ToWake { managers, by_cluster_manager, unknown })
}

/// What was scaled down by a cluster manager's policies.
async fn of_record(args: &WakeArgs, client: &Client, namespace: &str, io: &mut Io<'_>) -> Result<Exit> {
    let compute = |record: Option<&NamespaceRecord>| match record {
        None => Ok(Edit::Nothing(Vec::new())),
        Some(record) => {
            ask(&record.status.steps, record.spec.as_ref().ok().and_then(|s| s.wake), &record_of(namespace))
        }
    };
    let command = ("wake", args.write.dry_run);
    let (scaled_down, notes) = namespace_record::change(client, namespace, command, compute, io).await?;
    let about = Woken {
        name: format!("namespace/{namespace}"),
        target: namespace.to_owned(),
        kind: "ManagedNamespace",
        scaled_down,
    };
    namespace_record::print_notes(&notes, io)?;
    let steps = async || {
        let record = live::record(client, namespace).await?;
        Ok(record.map(|record| (record.status.steps, record.status.next)).unwrap_or_default())
    };
    let place = (namespace, MANAGED_NAMESPACE_NAME);
    about.wait(args, client, place, steps, io).await
}

async fn one(args: &WakeArgs, client: &Client, target: &Target, io: &mut Io<'_>) -> Result<Exit> {
    let compute = async |manager: &Manager| {
        let wake = manager.spec.as_ref().ok().and_then(|spec| spec.wake);
        ask(&manager.status.steps, wake, &format!("NamespaceManager {target}"))
    };
    let (scaled_down, _) = change(client, target, args.write.dry_run, compute, io).await?;
    let about = Woken {
        name: resource_name(&target.name),
        target: target.to_string(),
        kind: "NamespaceManager",
        scaled_down,
    };
    let steps = async || {
        let manager = existing(client, target).await?;
        Ok((manager.status.steps, manager.status.next))
    };
    about.wait(args, client, (&target.namespace, &target.name), steps, io).await
}

/// Asks for what is scaled down, unless somebody has done so.
fn ask(steps: &Steps, wake: Option<i64>, who: &str) -> Result<Edit<Vec<ScaledWorkload>>> {
    let scaled_down = steps.scaled_down.listed().unwrap_or_default().to_vec();
    if steps.intent.as_ref().is_some_and(|i| i.action == Action::ScaleDown && i.next_attempt.is_none()) {
        bail!(
            "{who} is scaling workloads down at this moment, and a wake would be overtaken by it: try again when it has \
             finished (`coppice explain` tells)"
        );
    }
    Ok(if scaled_down.is_empty() || wake == Some(steps.firings) {
        Edit::Nothing(scaled_down)
    } else {
        Edit::Patch(json!({ "wake": steps.firings }), scaled_down)
    })
}

/// What an object was asked to wake.
struct Woken {
    /// As kubectl names it.
    name: String,
    /// As commands take it.
    target: String,
    kind: &'static str,
    scaled_down: Vec<ScaledWorkload>,
}

impl Woken {
    /// Waits until it is done, if that is wanted, and says what came of it.
    async fn wait(
        &self,
        args: &WakeArgs,
        client: &Client,
        (namespace, object): (&str, &str),
        steps: impl AsyncFn() -> Result<(Steps, Option<NextStep>)>,
        io: &mut Io<'_>,
    ) -> Result<Exit> {
        let Self { name, target, kind, scaled_down } = self;
        let workloads = count(scaled_down.len(), "workload");
        if scaled_down.is_empty() {
            writeln!(io.screen(), "{name} has nothing scaled down")?;
            return Ok(Exit::Ok);
        }
        if args.no_wait || args.write.dry_run {
            writeln!(io.screen(), "{name} waking {workloads}{}", dry_run_suffix(args.write.dry_run))?;
            return Ok(Exit::Ok);
        }
        io.print_note(&format!("{name}: waiting until {workloads} have their replicas back ..."))?;
        let woken = wait::until(args.timeout, async || {
            let (steps, _) = steps().await?;
            let waking = steps.intent.as_ref().is_some_and(|intent| intent.action == Action::Wake);
            Ok((steps.scaled_down.is_empty() && !waking).then_some(()))
        });
        if woken.await?.is_none() {
            let (steps, next) = steps().await?;
            bail!("{}", still_scaled_down(&steps, next.as_ref(), target, args.timeout));
        }
        let reading = Box::pin(skipped_workloads(client, kind, (namespace, object), io.now));
        let left = with_progress("reading the Events", io, reading).await?;
        writeln!(io.screen(), "{name} awake")?;
        for workload in scaled_down {
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
}

fn still_scaled_down(steps: &Steps, next: Option<&NextStep>, target: &str, timeout: Duration) -> String {
    let scaled_down = steps.scaled_down.listed().unwrap_or_default();
    let what: Vec<String> = scaled_down.iter().map(|w| format!("{}/{}", w.kind, w.name)).collect();
    let error = steps.intent.as_ref().and_then(|i| i.last_error.as_deref());
    let why = error.or(next.map(|n| n.message.as_str())).unwrap_or("the operator has not looked at it");
    format!(
        "after {timeout} still scaled down in {target}: {}; its status says: {why}. The operator goes on with it; \
         `coppice explain {target}` tells how far it is, `coppice doctor` whether it runs",
        what.join(", ")
    )
}

/// The Event that says what was left alone, if something was. Events are for people: without the right to read them
/// the rest of the answer is still true.
async fn skipped_workloads(
    client: &Client,
    kind: &str,
    (namespace, object): (&str, &str),
    since: Timestamp,
) -> Option<String> {
    let events: Api<Event> = Api::namespaced(client.clone(), namespace);
    let about = ListParams::default()
        .fields(&format!("involvedObject.kind={kind},involvedObject.name={object},reason={}", Reason::Woken));
    let found = events.list(&about).await.ok()?;
    let when = |event: &Event| {
        let series = event.series.as_ref().and_then(|s| s.last_observed_time.as_ref()).map(|t| t.0);
        series.or(event.event_time.as_ref().map(|t| t.0)).or(event.last_timestamp.as_ref().map(|t| t.0))
    };
    // Ours is the newest; one from before this command started is about an earlier wake. Clocks may differ a little.
    let begun = since.checked_sub(jiff::SignedDuration::from_secs(5)).unwrap_or(since);
    let newest =
        found.items.into_iter().filter(|e| when(e).is_some_and(|at| at >= begun)).max_by_key(when)?;
    newest.message.filter(|message| left_alone(message).is_some())
}

fn describe(workload: &ScaledWorkload, left: Option<&str>) -> String {
    let name = format!("{} {}", workload.kind, workload.name);
    if left.and_then(left_alone).is_some_and(|workloads| workloads.contains(&format!("{name} ("))) {
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
