//! `coppice explain`: what managers and cluster managers do to a namespace, why, and why not.

mod deleted;
mod governed;
mod governed_text;
mod text;
mod tree_quota;

use anyhow::{Result, bail};
use clap::Args;
use coppice_api::manager::{Firing, NextStep, Notice, Phase, Verdict};
use coppice_api::steps::Action;
use coppice_api::{Losses, Reason, ScaledWorkload};
use coppice_lifecycle::condition::evaluate;
use coppice_lifecycle::governor::{self, Share};
use coppice_lifecycle::{DigestComparison, ValidPolicy};
use jiff::Timestamp;
use kube::Client;
use serde::Serialize;

use super::plan::PlannedItem;
use crate::args::{ConnectionArgs, NamespaceOrManager, OutputArgs, OutputFormat, SourceArgs};
use crate::connect::connect;
use crate::facts::Manager;
use crate::lifecycle::{self, JudgedManagers, LifecycleSnapshot, ManagerFilter, ResolvedPlan, resolved_plan};
use crate::print;
use crate::write::resource_name;
use crate::{Exit, Io, live, losses, namespace_record, refused_pods, with_progress};
use governed::NamespaceExplanation;
use tree_quota::QuotaExplanation;

/// Explain what happens to a namespace, and why not
///
/// What cluster managers do to it: which of them governs it and why no other one, its phase, when it expires, and what
/// comes next; of workloads that lack pods also what the latest Event says. Of each NamespaceManager in it: every policy with
/// its verdict, what will happen next, what stands in the way, and what has happened. Of a namespace of a tree: what it may still use,
/// and which pods a quota refused lately. What is lost with it, if it is to be
/// deleted. Of a namespace that is gone: when and why Coppice deleted it, and the Events that are left.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  coppice explain team-a                         namespace team-a, and every manager in it
  coppice explain team-a/e2e --at +2h            one manager, as it would be in two hours
  coppice explain team-a -f dump.yaml            from files, without a cluster
  coppice explain old-team                       a namespace that is gone: when and why Coppice deleted it

Exit codes: 0 all is clear, 3 something is refused or unknown, 1 error, 2 usage.")]
pub(crate) struct ExplainArgs {
    /// A namespace, or one manager in it
    #[arg(value_name = "NAMESPACE[/NAME]", value_parser = NamespaceOrManager::parse)]
    target: NamespaceOrManager,
    #[command(flatten)]
    source: SourceArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// One manager, explained.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Explanation {
    #[serde(flatten)]
    item: PlannedItem,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace_created: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace_uid: Option<String>,
    policies: Vec<PolicyExplanation>,
    /// What keeps policies from firing although their condition may hold.
    stops: Vec<BlockingCondition>,
    /// What the limits of the cluster manager change about its policies, if anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    limits: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    extended_until: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    notice: Option<Notice>,
    firings: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_firing: Option<Firing>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    scaled_down: Vec<ScaledWorkload>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct PolicyExplanation {
    /// Its name, `when` and `then`.
    #[serde(flatten)]
    policy: ValidPolicy,
    result: Verdict,
    reason: String,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    due: Option<Timestamp>,
    /// Why it does not fire now; absent if it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    why_not: Option<String>,
}

#[derive(Debug, Serialize)]
struct BlockingCondition {
    reason: String,
    message: String,
}

#[derive(Serialize)]
struct Report<'a> {
    at: Timestamp,
    /// What cluster managers do; absent if there are none and no record, or if a manager was named.
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<&'a NamespaceExplanation>,
    items: &'a [Explanation],
    /// What a namespace of a tree may use; absent of others, of files, or if a manager was named.
    #[serde(skip_serializing_if = "Option::is_none")]
    quota: Option<&'a QuotaExplanation>,
    /// What is lost with the namespace; absent where nothing deletes it, or it is of files.
    #[serde(skip_serializing_if = "Option::is_none")]
    losses: Option<&'a Losses>,
}

pub(crate) async fn run(args: &ExplainArgs, connection: &ConnectionArgs, io: &mut Io<'_>) -> Result<Exit> {
    let namespace = args.target.namespace.as_str();
    let live = args.source.files.is_empty();
    let client = if live { Some(connect(connection, io).await?.client) } else { None };
    let whole = args.target.name.is_none();
    let mut quota = None;
    if let Some(client) = &client {
        // A user who may not read namespaces still gets what the managers report.
        match with_progress("reading the namespace", io, live::namespace(client, namespace)).await? {
            Ok(None) => return deleted::run(client, namespace, args.output.output, io).await,
            Ok(Some(now)) => {
                deleted::note_earlier(client, &now, io).await?;
                if whole {
                    quota = Box::pin(tree_quota::of_namespace(client, &now, io)).await?;
                }
            }
            Err(_) => {}
        }
    }
    let wanted = ManagerFilter {
        namespace: Some(namespace),
        name: args.target.name.as_deref(),
        judged: JudgedManagers::All,
    };
    let (cluster_snapshot, at) = lifecycle::read(&args.source, wanted, connection, io).await?;
    if let (true, Some(name)) = (cluster_snapshot.managers.is_empty(), &args.target.name) {
        bail!("there is no NamespaceManager {name} in namespace {namespace}");
    }
    let all: Vec<Explanation> =
        cluster_snapshot.managers.iter().map(|m| explain(&cluster_snapshot, m, at)).collect();
    let mut governed = whole.then(|| governed::explain(&cluster_snapshot, namespace, at)).flatten();
    if let Some(governed) = &mut governed {
        explain_refused_pods(governed, (namespace, client.as_ref()), &cluster_snapshot, io).await?;
    }
    let deletes = all.iter().any(Explanation::deletes)
        || governed.as_ref().and_then(|governed| governed.plan.as_ref()).is_some_and(PlannedItem::deletes);
    let lost = match client.filter(|_| deletes) {
        Some(client) => {
            let reading = Box::pin(losses::of_namespace(&client, namespace));
            Some(with_progress("reading what is lost with the namespace", io, reading).await?)
        }
        None => None,
    };
    let (quota, losses) = (quota.as_ref(), lost.as_ref());
    let report = Report { at, namespace: governed.as_ref(), items: &all, quota, losses };
    match args.output.output {
        OutputFormat::Json => print::json(io.out, &report)?,
        OutputFormat::Yaml => print::yaml(io.out, &report)?,
        OutputFormat::Name => {
            if governed.as_ref().is_some_and(|governed| governed.recorded) {
                writeln!(io.screen(), "{}", namespace_record::resource_name())?;
            }
            for one in &all {
                writeln!(io.screen(), "{}", resource_name(&one.item.manager))?;
            }
        }
        OutputFormat::Table | OutputFormat::Wide => write(&report, &cluster_snapshot, namespace, io)?,
    }
    let attention = all.iter().any(|e| e.item.unknown || e.item.phase == Some(Phase::Refused));
    let unknown = governed.and_then(|governed| governed.plan).is_some_and(|plan| plan.unknown);
    Ok(if attention || unknown { Exit::Attention } else { Exit::Ok })
}

/// The report for people.
fn write(
    report: &Report<'_>,
    cluster_snapshot: &LifecycleSnapshot,
    namespace: &str,
    io: &mut Io<'_>,
) -> Result<()> {
    let Report { at, namespace: governed, items, quota, losses } = *report;
    if let Some(governed) = governed {
        governed_text::write(governed, namespace, at, &mut io.screen())?;
    } else if items.is_empty() {
        nothing(cluster_snapshot, namespace, io)?;
    }
    text::write(items, governed.is_some(), at, io)?;
    if let Some(quota) = quota {
        tree_quota::write(quota, at, &mut io.screen())?;
    }
    text::losses(losses, &mut io.screen())
}

impl Explanation {
    fn deletes(&self) -> bool {
        self.item.deletes()
    }
}

/// Adds what Events say of pods that are refused, where workloads lack some. Nothing depends on it.
async fn explain_refused_pods(
    governed: &mut NamespaceExplanation,
    (namespace, client): (&str, Option<&Client>),
    cluster_snapshot: &LifecycleSnapshot,
    io: &mut Io<'_>,
) -> Result<()> {
    if !refused_pods::explain_any(&governed.failing) {
        return Ok(());
    }
    let events = match client {
        Some(client) => {
            let reading = refused_pods::of_namespace(client, namespace);
            with_progress("reading the Events of workloads", io, reading).await?
        }
        None => Ok(cluster_snapshot.refused_pods.get(namespace).cloned().unwrap_or_default()),
    };
    match events {
        Ok(events) => governed.refused_pods = refused_pods::latest(&events, &governed.failing),
        Err(why) => io.print_note(&format!("note: {why:#}; why pods are refused is not shown"))?,
    }
    Ok(())
}

fn nothing(cluster_snapshot: &LifecycleSnapshot, namespace: &str, io: &mut Io<'_>) -> Result<()> {
    writeln!(
        io.screen(),
        "Namespace {namespace} has no NamespaceManager, and there is no ClusterNamespaceManager: nothing is done to it."
    )?;
    if let Some(protection) = cluster_snapshot
        .namespaces
        .get(namespace)
        .and_then(|n| cluster_snapshot.settings.forbids(Action::Delete, n))
    {
        writeln!(io.screen(), "And it could not: {}.", protection.message)?;
    }
    Ok(())
}

fn explain(cluster_snapshot: &LifecycleSnapshot, manager: &Manager, at: Timestamp) -> Explanation {
    let resolved_plan = resolved_plan(cluster_snapshot, manager, at);
    let stops = stops(cluster_snapshot, manager, &resolved_plan, at);
    let item = PlannedItem::new(manager, &resolved_plan, at);
    let facts = cluster_snapshot.namespaces.get(manager.namespace());
    let limits = cluster_snapshot.limits(manager.namespace());
    let spec = manager.spec.as_ref().ok();
    let limited = spec.map(|spec| limits.apply(spec));
    let mut policies = Vec::new();
    for policy in limited.iter().flat_map(|spec| spec.policies()) {
        policies.push(explain_policy(cluster_snapshot, manager, policy, at));
    }
    why_not(&mut policies, &stops, &item);
    let status = &resolved_plan.plan.status;
    Explanation {
        namespace_created: facts.map(|f| f.created),
        namespace_uid: facts.map(|f| f.uid.clone()),
        policies,
        stops,
        limits: spec.and_then(|spec| limits.said(spec)),
        extended_until: spec.and_then(|s| s.extend_until).filter(|until| *until > at),
        last_error: status.steps.intent.as_ref().and_then(|i| i.last_error.clone()),
        notice: status.steps.notice.clone(),
        firings: status.steps.firings,
        last_firing: status.steps.last_firing.clone(),
        scaled_down: status.steps.scaled_down.listed().unwrap_or_default().to_vec(),
        item,
    }
}

/// The verdict on a policy by itself, also where the manager is dormant or refused and evaluates none.
fn explain_policy(
    cluster_snapshot: &LifecycleSnapshot,
    manager: &Manager,
    policy: &ValidPolicy,
    at: Timestamp,
) -> PolicyExplanation {
    let mut explanation = PolicyExplanation {
        policy: policy.clone(),
        result: Verdict::Unknown,
        reason: Reason::NotSynced.to_string(),
        message: "the namespace could not be read".to_owned(),
        since: None,
        due: None,
        why_not: None,
    };
    let (Some(snapshot), Ok(spec)) = (cluster_snapshot.of_namespace(manager.namespace()), &manager.spec)
    else {
        return explanation;
    };
    let stored = manager.status.policies_digest.as_deref();
    let same = stored.is_some_and(|stored| spec.compare(stored) == DigestComparison::Same);
    let previous = manager.status.policies.iter().find(|p| same && p.name == policy.name);
    let evaluation = evaluate(policy, spec, &snapshot, previous, at);
    explanation.since =
        evaluation.since.or(previous.filter(|p| p.result == evaluation.verdict).map(|p| p.since));
    explanation.result = evaluation.verdict;
    explanation.reason = evaluation.reason.to_string();
    explanation.message = evaluation.message;
    explanation.due = evaluation.due;
    explanation
}

fn why_not(policies: &mut [PolicyExplanation], stops: &[BlockingCondition], item: &PlannedItem) {
    let mut earlier: Option<String> = None;
    for policy in policies {
        let is_next = item.policy.as_deref() == Some(&policy.policy.name);
        let stop = match (policy.result, &earlier, stops.first()) {
            (Verdict::False | Verdict::Unknown, ..) => Some(match what_is_needed(&policy.reason) {
                Some(needed) => format!("{}; {needed}", policy.message),
                None => policy.message.clone(),
            }),
            (Verdict::True, _, Some(stop)) => Some(format!("its condition holds, but {}", stop.message)),
            (Verdict::True, Some(name), None) => {
                Some(format!("its condition holds, but policy {name:?} comes first, and only one fires"))
            }
            (Verdict::True, None, None) if is_next && !item.now => {
                Some(format!("its condition holds, but {}", item.message))
            }
            (Verdict::True, None, None) => None,
        };
        if policy.result == Verdict::True && earlier.is_none() {
            earlier = Some(policy.policy.name.clone());
        }
        policy.why_not = stop;
    }
}

/// What would have to happen for a condition to become true.
fn what_is_needed(reason: &str) -> Option<&'static str> {
    let known = [
        (Reason::TtlRunning, "`coppice extend` moves it later, `coppice hold` stops it for a time"),
        (Reason::InitialDelay, "until then pods have time to appear"),
        (Reason::TooFewPods, "more have to succeed; 0 would accept none at all"),
        (Reason::PodsNotFinished, "it waits until every pod that counts has succeeded"),
        (Reason::JobNotComplete, "it waits until the Job is complete"),
        (
            Reason::PodFailed,
            "a failed pod counts until it is removed, or its Job completes and ignoreRetried is true",
        ),
        (Reason::JobFailed, "it counts until it is removed, or runs again and completes"),
        (Reason::PodTerminating, "what follows the pod is waited for"),
        (Reason::Settling, "one pod that does not succeed starts the time again"),
        (Reason::PodStateUnknown, "nothing is done on what is not known"),
        (Reason::JobNotSeen, "nothing is done on what is not known"),
        (Reason::NotSynced, "nothing is done on what is not known"),
        (Reason::Stale, "nothing is done on what is not known"),
        (
            Reason::Undecodable,
            "nothing is done on what is not known; the operator reads less of each object and may well understand it",
        ),
        (Reason::TooLarge, "nothing is done on what is not known"),
        (Reason::Forbidden, "nothing is done on what is not known; the operator may well see it"),
    ];
    known.iter().find(|(r, _)| r.as_str() == reason).map(|(_, needed)| *needed)
}

/// Everything that keeps policies from firing although their condition may hold, all of it at once.
fn stops(
    cluster_snapshot: &LifecycleSnapshot,
    manager: &Manager,
    resolved_plan: &ResolvedPlan,
    at: Timestamp,
) -> Vec<BlockingCondition> {
    let mut stops: Vec<BlockingCondition> = Vec::new();
    let mut add = |reason: Reason, message: String| {
        stops.push(BlockingCondition { reason: reason.to_string(), message });
    };
    let spec = match &manager.spec {
        Ok(spec) => spec,
        Err(error) => {
            add(Reason::InvalidSpec, error.to_string());
            return stops;
        }
    };
    if let Some(error) = &manager.status_error {
        add(Reason::InvalidSpec, error.to_string());
    }
    let facts = cluster_snapshot.namespaces.get(manager.namespace());
    if facts.is_some_and(|f| f.terminating) {
        add(Reason::NamespaceTerminating, "the namespace is being deleted already".to_owned());
    }
    let limits = cluster_snapshot.limits(manager.namespace());
    let refused = facts.map(|f| [cluster_snapshot.settings.refusal(f, spec), limits.refusal(f, spec)]);
    for refusal in refused.into_iter().flatten().flatten() {
        add(refusal.reason, refusal.message);
    }
    if let Some((reason, message)) = limits.why_unknown() {
        add(*reason, message.clone());
    }
    if spec.suspend {
        add(Reason::Suspended, "spec.suspend is true; nothing is done until it is false".to_owned());
    }
    if let Some(hold) = spec.hold.as_ref().filter(|h| at < h.until) {
        let why = hold.reason.as_ref().map_or_else(String::new, |r| format!(" ({r})"));
        add(Reason::Held, format!("a hold lasts until {}{why}", print::instant_from(hold.until, at)));
    }
    let status = &resolved_plan.plan.status;
    let not_understood = |next: &&NextStep| next.reason == Reason::UnsupportedDigest.as_str();
    if let Some(next) = status.next.as_ref().filter(not_understood) {
        add(Reason::UnsupportedDigest, next.message.clone());
    } else if status.phase == Some(Phase::Fired)
        && let Some(firing) = &status.steps.last_firing
    {
        add(
            Reason::Dormant,
            format!(
                "the manager is dormant since policy {:?} fired at {}; it wakes when its policies change, or by `coppice rearm {}/{}`",
                firing.policy,
                print::instant(firing.at),
                manager.namespace(),
                manager.name()
            ),
        );
    }
    let destructive = spec.policies().iter().any(|policy| policy.action.kind().is_destructive());
    let settings = &cluster_snapshot.settings.config.governor;
    if destructive
        && let Err(denied) =
            governor::allow(settings, &cluster_snapshot.budget, Share::Managers(cluster_snapshot.managed), at)
    {
        let until = denied
            .retry_at
            .map_or_else(String::new, |t| format!("; again at {}", print::instant_from(t, at)));
        add(denied.reason, format!("{}{until}", denied.message));
    }
    stops
}
