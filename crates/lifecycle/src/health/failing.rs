//! What of the workloads of a namespace is failing.

use std::collections::BTreeMap;

use coppice_api::HealthReason;
use coppice_api::health::{FailingObject, HealthSource, IgnoreRule, MAX_FAILING, MAX_SHORT, ShortWorkload};
use coppice_quantity::Duration;
use jiff::Timestamp;

use super::facts::{ControllerRef, FailureReport, Rollout, WorkloadFacts, Workloads};
use super::found_failures::{FoundFailure, FoundFailures};
use super::pods;
use crate::condition::{later, whole_second_after};
use crate::facts::JobState;
use crate::record::truncate_text;

/// How long pods may be missing, or not be ready, where Kubernetes has no deadline of its own for that.
pub const POD_LIMIT: Duration = Duration::from_secs(600);
/// A workload younger than this is not looked at for missing pods: its controller is about to create them.
const YOUNG: Duration = Duration::from_secs(60);
/// Characters of a message that are kept.
const MAX_MESSAGE: usize = 300;

/// What was recorded of a namespace before.
#[derive(Clone, Copy, Debug, Default)]
pub struct KnownFailures<'a> {
    /// What was failing.
    pub failing: &'a [FailingObject],
    /// What had fewer pods than it asks for.
    pub short: &'a [ShortWorkload],
}

/// What is failing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Failures {
    /// The first of them by kind, name and reason; at most [`MAX_FAILING`].
    pub failing: Vec<FailingObject>,
    /// How many more there are.
    pub more: u32,
    /// What has fewer pods than it asks for, and does not fail for it yet or does: the first of them.
    pub short: Vec<ShortWorkload>,
    /// When time alone changes that.
    pub next_check: Option<Timestamp>,
}

/// Instants at which something has to be looked at again.
pub(super) struct CheckTimes {
    pub(super) now: Timestamp,
    next: Option<Timestamp>,
}

impl CheckTimes {
    pub(super) fn no_later_than(&mut self, at: Option<Timestamp>) {
        self.next = self.next.into_iter().chain(at).min();
    }
}

/// Says what is failing. The order of objects does not matter. What was recorded before says since when.
pub fn failing(
    workloads: &Workloads<'_>,
    ignore: &[IgnoreRule],
    known: KnownFailures<'_>,
    now: Timestamp,
) -> Failures {
    let (mut found, mut checks) = (FoundFailures::default(), CheckTimes { now, next: None });
    let mut short = Vec::new();
    let mut of_kind = |kind: &'static str, workload: &WorkloadFacts, found: &mut FoundFailures| {
        report_workload(kind, workload, found);
        // The Deployment of a ReplicaSet is short of the same pods.
        let own = !workload.owner.as_ref().is_some_and(is_deployment);
        // A roll-out has a deadline of its own.
        let goes_on = workload.rollout == Rollout::UnderWay;
        if workload.short && own && !goes_on && workload.refused.is_none() {
            short.push((kind, workload.name.clone(), workload.created_at));
        }
    };
    workloads.deployments.iter().for_each(|one| of_kind("Deployment", one, &mut found));
    workloads.replica_sets.iter().for_each(|one| of_kind("ReplicaSet", one, &mut found));
    workloads.stateful_sets.iter().for_each(|one| of_kind("StatefulSet", one, &mut found));
    workloads.daemon_sets.iter().for_each(|one| of_kind("DaemonSet", one, &mut found));
    let latest = latest_finished(workloads);
    for job in workloads.jobs.iter().filter(|job| !job.terminating) {
        let Some(health) = job.health.as_deref() else { continue };
        let latest = health.owner.as_ref().and_then(|owner| latest.get(owner));
        let followed = latest.is_some_and(|latest| *latest > health.created_at);
        if let Some(report) = health.failed.as_ref().filter(|_| !followed) {
            found.add(("Job", &job.name), HealthReason::JobFailed, evidence(report));
        }
        if health.short && job.state == JobState::Unfinished {
            short.push(("Job", job.name.clone(), health.created_at));
        }
    }
    pods::find(workloads, &mut found, &mut checks);
    pods::find_lost_claims(workloads, &mut found, now);
    let short = shortages(short, known.short, &mut found, &mut checks);
    let lines = found.reported(ignore);
    let more = u32::try_from(lines.len().saturating_sub(MAX_FAILING)).unwrap_or(u32::MAX);
    let failing = lines.into_iter().take(MAX_FAILING).map(|line| shown(line, known.failing, now)).collect();
    Failures { failing, more, short, next_check: checks.next }
}

fn is_deployment(owner: &ControllerRef) -> bool {
    owner.is("apps", "Deployment")
}

fn report_workload(kind: &str, workload: &WorkloadFacts, found: &mut FoundFailures) {
    let deployment = workload.owner.as_ref().filter(|owner| is_deployment(owner));
    let about = deployment.map_or((kind, &*workload.name), |owner| (&*owner.kind, &*owner.name));
    if let Some(report) = &workload.refused {
        found.add(about, HealthReason::PodsNotCreated, evidence(report));
    }
    if let Rollout::Stopped(report) = &workload.rollout {
        // It cannot begin; otherwise its time is over.
        let refused = report.reason.contains("CreateError");
        let reason =
            if refused { HealthReason::PodsNotCreated } else { HealthReason::ProgressDeadlineExceeded };
        found.add(about, reason, evidence(report));
    }
}

fn evidence(report: &FailureReport) -> (Timestamp, String) {
    let FailureReport { since, reason, message } = report;
    (*since, if message.is_empty() { reason.to_string() } else { message.to_string() })
}

/// When the latest Job of each CronJob that has finished was created: it says how the CronJob is, whatever became of those
/// before it.
fn latest_finished<'a>(workloads: &Workloads<'a>) -> BTreeMap<&'a ControllerRef, Timestamp> {
    let mut latest = BTreeMap::new();
    for job in workloads.jobs.iter().filter(|job| job.state != JobState::Unfinished) {
        let Some(health) = job.health.as_deref() else { continue };
        let Some(owner) = &health.owner else { continue };
        let newest = latest.entry(owner).or_insert(health.created_at);
        *newest = health.created_at.max(*newest);
    }
    latest
}

/// Workloads without all of their pods: since when, and whether for too long.
fn shortages(
    mut all: Vec<(&'static str, Box<str>, Timestamp)>,
    known: &[ShortWorkload],
    found: &mut FoundFailures,
    checks: &mut CheckTimes,
) -> Vec<ShortWorkload> {
    all.sort_unstable();
    let mut short = Vec::new();
    for (kind, name, created_at) in all {
        let before = known.iter().find(|one| one.kind == kind && *one.name == *name);
        let looked_at = later(created_at, YOUNG);
        if before.is_none() && checks.now < looked_at {
            checks.no_later_than(Some(looked_at));
            continue;
        }
        let since = before.map_or_else(|| whole_second_after(checks.now), |before| before.since);
        let limit = later(since, POD_LIMIT);
        if limit <= checks.now {
            let text = "it has fewer pods than its spec asks for, and nothing says why".to_owned();
            found.add((kind, &name), HealthReason::PodsNotCreated, (since, text));
        } else {
            checks.no_later_than(Some(limit));
        }
        if short.len() < MAX_SHORT {
            short.push(ShortWorkload { kind: kind.to_owned(), name: name.into(), since });
        }
    }
    short
}

/// A line as it is recorded. One that was there keeps its instant and its message: both change with every restart of a
/// container.
fn shown(line: FoundFailure, known: &[FailingObject], now: Timestamp) -> FailingObject {
    let FoundFailure { kind, name, reason, since, mut message } = line;
    let is_known =
        |one: &&FailingObject| one.reason == reason.as_str() && one.kind == kind && one.name == name;
    if let Some(known) = known.iter().find(is_known) {
        return known.clone();
    }
    truncate_text(&mut message, MAX_MESSAGE);
    FailingObject {
        kind,
        name,
        reason: reason.as_str().to_owned(),
        message,
        source: HealthSource::Workloads,
        since: whole_second_after(since.min(now)),
    }
}
