//! Whether a policy's condition holds, and why.

use std::collections::BTreeMap;
use std::fmt;

use coppice_api::Reason;
use coppice_api::manager::{NamespaceManagerSpec, PodsSucceed, Policy, PolicyStatus, Ttl, Verdict};
use coppice_quantity::Duration;
use jiff::{SignedDuration, Timestamp};

use crate::facts::{Fact, JobFacts, JobState, Many, Owners, PodFacts, PodPhase, World};
use crate::mutants::{Mutant, active};

/// The verdict on one policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evaluation {
    /// Whether the condition holds.
    pub verdict: Verdict,
    /// Why.
    pub reason: Reason,
    /// The same for people. Says nothing that changes by itself from one moment to the next.
    pub message: String,
    /// When the condition becomes true, if that depends on time alone.
    pub due: Option<Timestamp>,
    /// When time alone can change the verdict.
    pub look_at: Option<Timestamp>,
    /// Since when the condition has held, if it matters how long.
    pub since: Option<Timestamp>,
    /// What a true verdict rests on.
    pub evidence: BTreeMap<String, String>,
}

impl Evaluation {
    /// Not enough is known.
    pub(crate) const fn unknown(reason: Reason, message: String) -> Self {
        Self {
            verdict: Verdict::Unknown,
            reason,
            message,
            due: None,
            look_at: None,
            since: None,
            evidence: BTreeMap::new(),
        }
    }
}

/// Evaluates one policy. `previous` is the last recorded verdict on this very policy, for conditions that have to hold
/// for a time.
pub fn evaluate(
    policy: &Policy,
    spec: &NamespaceManagerSpec,
    world: &World<'_>,
    previous: Option<&PolicyStatus>,
    now: Timestamp,
) -> Evaluation {
    let judged = judge(policy, spec, world, previous, now);
    let evidence = match (judged.verdict, &policy.when.pods_succeed) {
        (Verdict::True, Some(pods)) => pods_evidence(pods, world),
        (Verdict::True, None) => ttl_evidence(world, judged.due),
        _ => BTreeMap::new(),
    };
    Evaluation {
        verdict: judged.verdict,
        reason: judged.reason,
        message: judged.text.to_string(),
        due: judged.due,
        look_at: judged.look_at,
        since: judged.since,
        evidence,
    }
}

/// The verdict on one policy, not yet in words: to find out that nothing is new, nothing has to be written.
pub(crate) struct Judged<'a> {
    pub(crate) verdict: Verdict,
    pub(crate) reason: Reason,
    pub(crate) text: Text<'a>,
    pub(crate) due: Option<Timestamp>,
    pub(crate) look_at: Option<Timestamp>,
    pub(crate) since: Option<Timestamp>,
}

impl<'a> Judged<'a> {
    const fn new(verdict: Verdict, reason: Reason, text: Text<'a>) -> Self {
        Self { verdict, reason, text, due: None, look_at: None, since: None }
    }

    const fn not_before(reason: Reason, text: Text<'a>, at: Timestamp) -> Self {
        Self { look_at: Some(at), ..Self::new(Verdict::False, reason, text) }
    }
}

/// What a verdict says for people.
#[derive(Clone, Copy)]
pub(crate) enum Text<'a> {
    Said(&'a str),
    TtlRuns { due: Timestamp, extended: bool },
    TtlEnded { due: Timestamp, extended: bool },
    Delayed(Timestamp),
    Settling(Timestamp),
    TooFew { succeeded: u64, least: u32 },
    PodLeaves(&'a str),
    PodFailed(&'a str),
    PodUnfinished(&'a str, PodPhase),
    PodUnknown(&'a str),
    PodWithoutJob(&'a str),
    JobFailed(&'a str),
    JobIncomplete(&'a str),
}

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = |extended: bool| if extended { " (extendUntil)" } else { "" };
        match *self {
            Self::Said(text) => f.write_str(text),
            Self::TtlRuns { due, extended } => write!(f, "the ttl ends at {due:.0}{}", how(extended)),
            Self::TtlEnded { due, extended } => write!(f, "the ttl ended at {due:.0}{}", how(extended)),
            Self::Delayed(from) => write!(f, "pods are looked at from {from:.0} on (initialDelay)"),
            Self::Settling(until) => {
                write!(f, "every pod has succeeded; must hold until {until:.0} (settle)")
            }
            Self::TooFew { succeeded, least } => {
                write!(f, "{succeeded} of at least {least} pods have succeeded (minPods)")
            }
            Self::PodLeaves(name) => write!(f, "pod {name} is being deleted before it finished"),
            Self::PodFailed(name) => write!(f, "pod {name} has failed"),
            Self::PodUnfinished(name, phase) => write!(f, "pod {name} is {}", phase.as_str()),
            Self::PodUnknown(name) => {
                write!(f, "the state of pod {name} is not known: its node does not answer")
            }
            Self::PodWithoutJob(name) => write!(f, "the Job that pod {name} belongs to has not been seen"),
            Self::JobFailed(name) => write!(f, "Job {name} has failed"),
            Self::JobIncomplete(name) => write!(f, "Job {name} is not complete"),
        }
    }
}

pub(crate) fn judge<'a>(
    policy: &Policy,
    spec: &NamespaceManagerSpec,
    world: &'a World<'_>,
    previous: Option<&PolicyStatus>,
    now: Timestamp,
) -> Judged<'a> {
    match (&policy.when.ttl, &policy.when.pods_succeed) {
        (Some(ttl), None) => judge_ttl(ttl, spec, world, now),
        (None, Some(pods)) => judge_pods(pods, world, previous, now),
        _ => Judged::new(
            Verdict::Unknown,
            Reason::InvalidSpec,
            Text::Said("the policy has not exactly one condition"),
        ),
    }
}

/// `at + by`, at the end of time if that is out of range: never early.
pub(crate) fn later(at: Timestamp, by: Duration) -> Timestamp {
    at.checked_add(SignedDuration::from_secs(by.as_secs_i64())).unwrap_or(Timestamp::MAX)
}

/// The first whole second that is not before the instant.
pub(crate) fn whole_second_after(at: Timestamp) -> Timestamp {
    let up = at.as_second() + i64::from(at.subsec_nanosecond() > 0);
    Timestamp::from_second(up).unwrap_or(at)
}

/// Creation times are cut to whole seconds by the API server: a namespace may be almost a second younger than it looks.
fn since_creation(world: &World<'_>, by: Duration) -> Timestamp {
    later(later(world.namespace.created, by), Duration::from_secs(1))
}

fn judge_ttl<'a>(ttl: &Ttl, spec: &NamespaceManagerSpec, world: &World<'_>, now: Timestamp) -> Judged<'a> {
    let ends = match (ttl.after, ttl.until) {
        (Some(after), None) => since_creation(world, after),
        (None, Some(until)) => until,
        _ => {
            let text = Text::Said("ttl has not exactly one of after and until");
            return Judged::new(Verdict::Unknown, Reason::InvalidSpec, text);
        }
    };
    let extended = spec.extend_until.filter(|_| !active(Mutant::ExtensionIgnored));
    let due = extended.map_or(ends, |extended| ends.max(extended));
    let extended = due > ends;
    let judged = if now < due {
        Judged::not_before(Reason::TtlRunning, Text::TtlRuns { due, extended }, due)
    } else {
        Judged::new(Verdict::True, Reason::TtlElapsed, Text::TtlEnded { due, extended })
    };
    Judged { due: Some(due), ..judged }
}

fn ttl_evidence(world: &World<'_>, due: Option<Timestamp>) -> BTreeMap<String, String> {
    let due = due.map(|due| ("due".to_owned(), due.to_string()));
    let created = ("namespaceCreated".to_owned(), world.namespace.created.to_string());
    due.into_iter().chain([created]).collect()
}

fn judge_pods<'a>(
    condition: &PodsSucceed,
    world: &'a World<'_>,
    previous: Option<&PolicyStatus>,
    now: Timestamp,
) -> Judged<'a> {
    let earliest = since_creation(world, condition.initial_delay);
    if now < earliest && !active(Mutant::InitialDelayIgnored) {
        return Judged::not_before(Reason::InitialDelay, Text::Delayed(earliest), earliest);
    }
    let (pods, jobs, gapless) = match (&world.pods, &world.jobs) {
        (Fact::Known { value: pods, since: a }, Fact::Known { value: jobs, since: b }) => {
            (*pods, *jobs, (*a).max(*b))
        }
        (Fact::Unknown { reason, message }, _) | (_, Fact::Unknown { reason, message }) => {
            return Judged::new(Verdict::Unknown, *reason, Text::Said(message));
        }
    };
    let tally = Tally::count(condition, pods, jobs, world.owners(pods, jobs));
    if let Some(blocker) = tally.blocker {
        let verdict = if blocker.rank == UNKNOWN { Verdict::Unknown } else { Verdict::False };
        return Judged::new(verdict, blocker.reason, blocker.text);
    }
    if tally.succeeded < u64::from(condition.min_pods) && !active(Mutant::MinPodsIgnored) {
        let text = Text::TooFew { succeeded: tally.succeeded, least: condition.min_pods };
        return Judged::new(Verdict::False, Reason::TooFewPods, text);
    }
    // How long it has held: as recorded, but not from before the facts were followed without a gap.
    let recorded = previous
        .filter(|p| [Reason::Settling.as_str(), Reason::PodsSucceeded.as_str()].contains(&p.reason.as_str()))
        .map_or_else(|| whole_second_after(now), |p| p.since);
    let gapless = if active(Mutant::GapIgnored) { Timestamp::MIN } else { gapless };
    let since = if condition.settle.is_zero() { recorded } else { recorded.max(whole_second_after(gapless)) };
    let settled = later(since, condition.settle);
    let judged = if !condition.settle.is_zero() && now < settled && !active(Mutant::SettleIgnored) {
        Judged::not_before(Reason::Settling, Text::Settling(settled), settled)
    } else {
        let text = Text::Said("every pod that counts has succeeded");
        Judged::new(Verdict::True, Reason::PodsSucceeded, text)
    };
    Judged { since: Some(since), ..judged }
}

/// Why pods are no success; the smallest rank is told.
struct Blocker<'a> {
    rank: u8,
    reason: Reason,
    text: Text<'a>,
}

const FAILED: u8 = 0;
const UNFINISHED: u8 = 1;
const LEAVING: u8 = 2;
const UNKNOWN: u8 = 3;

fn counts(condition: &PodsSucceed, labels: &coppice_api::Labels) -> bool {
    let selects = |selector: &coppice_api::Selector| selector.matches(labels);
    condition.selector.as_ref().is_none_or(selects) || active(Mutant::PodSelectorIgnored)
}

#[derive(Default)]
struct Tally<'a> {
    succeeded: u64,
    blocker: Option<Blocker<'a>>,
}

impl<'a> Tally<'a> {
    fn count(
        condition: &PodsSucceed,
        pods: Many<'a, PodFacts>,
        jobs: Many<'a, JobFacts>,
        owners: &Owners,
    ) -> Self {
        let mut tally = Self::default();
        for (n, pod) in pods.iter().enumerate() {
            if tally.is_open_to(pod) && counts(condition, &pod.labels) {
                let job = owners.job_of(n).and_then(|at| jobs.get(at));
                tally.add_pod(pod, job, condition.ignore_retried);
            }
        }
        for (n, job) in jobs.iter().enumerate() {
            if !job.terminating && counts(condition, &job.pod_labels) {
                tally.add_job(job, owners.succeeded(n));
            }
        }
        tally
    }

    /// Whether a pod could change what is told. Once something blocks, how many have succeeded does not matter, and most pods
    /// are no worse: their labels need not be read.
    fn is_open_to(&self, pod: &PodFacts) -> bool {
        let Some(blocker) = &self.blocker else { return true };
        let worst = match pod.phase {
            _ if pod.terminating => LEAVING,
            // Its Job may have failed.
            _ if pod.job.is_some() => FAILED,
            PodPhase::Failed => FAILED,
            PodPhase::Pending | PodPhase::Running => UNFINISHED,
            PodPhase::Succeeded | PodPhase::Unknown => UNKNOWN,
        };
        worst < blocker.rank
    }

    fn add_pod(&mut self, pod: &'a PodFacts, job: Option<&'a JobFacts>, ignore_retried: bool) {
        let name = &*pod.name;
        let over = matches!(pod.phase, PodPhase::Succeeded | PodPhase::Failed);
        if pod.terminating {
            // What is over and goes away says nothing any more; what was cut off may be replaced.
            if !over && !active(Mutant::TerminatingPodsIgnored) {
                self.block(LEAVING, Reason::PodTerminating, Text::PodLeaves(name));
            }
            return;
        }
        let job_complete = match (&pod.job, job) {
            (None, _) => false,
            (Some(_), None) => return self.block(UNKNOWN, Reason::JobNotSeen, Text::PodWithoutJob(name)),
            (Some(_), Some(job)) if job.state == JobState::Complete => true,
            (Some(_), Some(job)) => return self.block_on_job(job),
        };
        match pod.phase {
            PodPhase::Succeeded => self.succeeded += 1,
            PodPhase::Failed if job_complete && ignore_retried || active(Mutant::FailedPodsIgnored) => {}
            PodPhase::Failed => self.block(FAILED, Reason::PodFailed, Text::PodFailed(name)),
            PodPhase::Pending | PodPhase::Running => {
                self.block(UNFINISHED, Reason::PodsNotFinished, Text::PodUnfinished(name, pod.phase));
            }
            PodPhase::Unknown => self.block(UNKNOWN, Reason::PodStateUnknown, Text::PodUnknown(name)),
        }
    }

    fn add_job(&mut self, job: &'a JobFacts, here: u64) {
        if job.state != JobState::Complete {
            return self.block_on_job(job);
        }
        // Pods that have been cleaned away are remembered by their Job.
        self.succeeded += u64::from(job.succeeded).saturating_sub(here);
    }

    fn block_on_job(&mut self, job: &'a JobFacts) {
        let name = &*job.name;
        if active(Mutant::JobsIgnored) {
            return;
        }
        if job.state == JobState::Failed {
            self.block(FAILED, Reason::JobFailed, Text::JobFailed(name));
        } else {
            self.block(UNFINISHED, Reason::JobNotComplete, Text::JobIncomplete(name));
        }
    }

    /// Keeps the first blocker of the smallest rank: facts come in the order of their names, so that the message
    /// changes only when the world does.
    fn block(&mut self, rank: u8, reason: Reason, text: Text<'a>) {
        if self.blocker.as_ref().is_none_or(|b| rank < b.rank) {
            self.blocker = Some(Blocker { rank, reason, text });
        }
    }
}

/// What the success of pods rests on. Asked only where nothing blocks it: then every Job that counts is complete.
fn pods_evidence(condition: &PodsSucceed, world: &World<'_>) -> BTreeMap<String, String> {
    let (Fact::Known { value: pods, .. }, Fact::Known { value: jobs, .. }) = (&world.pods, &world.jobs)
    else {
        return BTreeMap::new();
    };
    let succeeded = Tally::count(condition, *pods, *jobs, world.owners(*pods, *jobs)).succeeded;
    let pods = pods
        .iter()
        .filter(|pod| pod.phase == PodPhase::Succeeded && !pod.terminating && counts(condition, &pod.labels));
    let jobs = jobs.iter().filter(|job| !job.terminating && counts(condition, &job.pod_labels));
    let list = |names: &[&str]| {
        let more = names.len().saturating_sub(5);
        let shown = names.iter().take(5).copied().collect::<Vec<_>>().join(", ");
        if more == 0 { shown } else { format!("{shown} and {more} more") }
    };
    let mut evidence = BTreeMap::from([("succeeded".to_owned(), succeeded.to_string())]);
    let names: [(&str, Vec<&str>); 2] =
        [("pods", pods.map(|pod| &*pod.name).collect()), ("jobs", jobs.map(|job| &*job.name).collect())];
    for (key, names) in names.iter().filter(|(_, names)| !names.is_empty()) {
        evidence.insert((*key).to_owned(), list(names));
    }
    evidence
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::{NamespaceFacts, work};

    /// Five thousand pods, each of another of five thousand Jobs or of one that does not exist, and 200 policies.
    #[test]
    fn what_a_look_costs_grows_with_the_sum_of_pods_and_jobs_and_not_with_their_product() {
        const MANY: u64 = 5_000;
        const POLICIES: u64 = 200;
        for seen in [true, false] {
            let created = Timestamp::UNIX_EPOCH;
            let namespace = NamespaceFacts {
                name: "n".to_owned(),
                uid: "u".to_owned(),
                resource_version: "1".to_owned(),
                created,
                labels: coppice_api::Labels::default(),
                terminating: false,
            };
            let job = |n| JobFacts {
                name: format!("{n:05}").into(),
                // Not in the order of their names.
                uid: format!("{:05}", n * 7 % MANY).into(),
                pod_labels: coppice_api::Labels::default(),
                state: JobState::Complete,
                succeeded: 2,
                terminating: false,
            };
            let pod = |n| PodFacts {
                name: format!("{n:05}").into(),
                labels: coppice_api::Labels::default(),
                phase: PodPhase::Succeeded,
                terminating: false,
                job: Some(if seen { format!("{n:05}") } else { format!("bogus-{n}") }.into()),
            };
            let (pods, jobs): (Vec<_>, Vec<_>) = ((0..MANY).map(pod).collect(), (0..MANY).map(job).collect());
            let pods = Fact::Known { value: Many::Plain(&pods), since: created };
            let jobs = Fact::Known { value: Many::Plain(&jobs), since: created };
            let world = World::new(&namespace, pods, jobs);
            work::take();
            let condition = PodsSucceed { min_pods: 10_000, ..PodsSucceed::default() };
            for _ in 0..POLICIES {
                let judged = judge_pods(&condition, &world, None, Timestamp::MAX);
                let expected = if seen { Reason::PodsSucceeded } else { Reason::JobNotSeen };
                assert_eq!(judged.reason, expected);
            }
            let (each, index) = (2 * MANY, 40 * MANY);
            let done = work::take();
            assert!(done <= POLICIES * each + index, "{done}");
        }
    }
}
