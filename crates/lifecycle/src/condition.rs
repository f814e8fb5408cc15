//! Whether a policy's condition holds, and why.

use std::collections::BTreeMap;
use std::fmt;

use coppice_api::Reason;
use coppice_api::manager::{PodsSucceed, PolicyStatus, Verdict};
use coppice_quantity::{Duration, count};
use jiff::{SignedDuration, Timestamp};

use crate::facts::{
    Fact, JobFacts, JobIndex, JobState, NamespaceFacts, NamespaceSnapshot, ObjectSlice, PodFacts, PodPhase,
};
use crate::valid_spec::{PolicyCondition, TtlEnd, ValidPolicy, ValidSpec};
use coppice_mutants::{Mutant, active};

/// The verdict on one policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evaluation {
    /// Whether the condition holds.
    pub verdict: Verdict,
    /// Why.
    pub reason: Reason,
    /// The message. Contains nothing that changes with time alone.
    pub message: String,
    /// When the condition becomes true, if that depends on time alone.
    pub due: Option<Timestamp>,
    /// When time alone can change the verdict.
    pub next_check: Option<Timestamp>,
    /// Since when the condition has held, if it matters how long.
    pub since: Option<Timestamp>,
    /// The facts behind a true verdict.
    pub evidence: BTreeMap<String, String>,
}

impl Evaluation {
    /// Not enough is known.
    pub const fn unknown(reason: Reason, message: String) -> Self {
        Self {
            verdict: Verdict::Unknown,
            reason,
            message,
            due: None,
            next_check: None,
            since: None,
            evidence: BTreeMap::new(),
        }
    }
}

/// Evaluates one policy. `previous` is the last recorded verdict on this very policy, for conditions that have to hold
/// for a time.
pub fn evaluate(
    policy: &ValidPolicy,
    spec: &ValidSpec,
    snapshot: &NamespaceSnapshot<'_>,
    previous: Option<&PolicyStatus>,
    now: Timestamp,
) -> Evaluation {
    let raw = evaluate_raw(policy, spec, snapshot, previous, now);
    let evidence = match (raw.verdict, &policy.condition) {
        (Verdict::True, PolicyCondition::PodsSucceed(pods)) => pods_evidence(pods, snapshot),
        (Verdict::True, PolicyCondition::Ttl(_)) => ttl_evidence(snapshot, raw.due),
        _ => BTreeMap::new(),
    };
    raw.with_evidence(evidence)
}

/// Evaluates whether the pods of a namespace have succeeded, as [`evaluate`] does for a policy.
pub(crate) fn evaluate_pods_succeed(
    pods: &PodsSucceed,
    snapshot: &NamespaceSnapshot<'_>,
    previous: Option<&PolicyStatus>,
    now: Timestamp,
) -> Evaluation {
    let raw = evaluate_pods(pods, snapshot, previous, now);
    let is_true = raw.verdict == Verdict::True;
    let evidence = if is_true { pods_evidence(pods, snapshot) } else { BTreeMap::new() };
    raw.with_evidence(evidence)
}

/// The verdict on one policy before its message is formatted: a steady manager needs no message.
pub(crate) struct RawEvaluation<'a> {
    pub(crate) verdict: Verdict,
    pub(crate) reason: Reason,
    pub(crate) text: VerdictMessage<'a>,
    pub(crate) due: Option<Timestamp>,
    pub(crate) next_check: Option<Timestamp>,
    pub(crate) since: Option<Timestamp>,
}

impl<'a> RawEvaluation<'a> {
    const fn new(verdict: Verdict, reason: Reason, text: VerdictMessage<'a>) -> Self {
        Self { verdict, reason, text, due: None, next_check: None, since: None }
    }

    fn with_evidence(self, evidence: BTreeMap<String, String>) -> Evaluation {
        let Self { verdict, reason, text, due, next_check, since } = self;
        Evaluation { verdict, reason, message: text.to_string(), due, next_check, since, evidence }
    }

    const fn false_until(reason: Reason, text: VerdictMessage<'a>, at: Timestamp) -> Self {
        Self { next_check: Some(at), ..Self::new(Verdict::False, reason, text) }
    }
}

/// The message of a verdict.
#[derive(Clone, Copy)]
pub(crate) enum VerdictMessage<'a> {
    Literal(&'a str),
    TtlRunning { due: Timestamp, extended: bool },
    TtlElapsed { due: Timestamp, extended: bool },
    InitialDelay(Timestamp),
    Settling(Timestamp),
    TooFewPods { succeeded: u64, least: u32 },
    PodTerminating(&'a str),
    PodFailed(&'a str),
    PodNotFinished(&'a str, PodPhase),
    PodStateUnknown(&'a str),
    JobNotSeen(&'a str),
    JobFailed(&'a str),
    JobNotComplete(&'a str),
}

impl fmt::Display for VerdictMessage<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = |extended: bool| if extended { " (extendUntil)" } else { "" };
        match *self {
            Self::Literal(text) => f.write_str(text),
            Self::TtlRunning { due, extended } => write!(f, "the ttl ends at {due:.0}{}", how(extended)),
            Self::TtlElapsed { due, extended } => write!(f, "the ttl ended at {due:.0}{}", how(extended)),
            Self::InitialDelay(from) => write!(f, "pods are looked at from {from:.0} on (initialDelay)"),
            Self::Settling(until) => {
                write!(f, "every pod has succeeded; must hold until {until:.0} (settle)")
            }
            Self::TooFewPods { succeeded, least } => {
                let have = if least == 1 { "has" } else { "have" };
                write!(f, "{succeeded} of at least {} {have} succeeded (minPods)", count(least, "pod"))
            }
            Self::PodTerminating(name) => write!(f, "pod {name} is being deleted before it finished"),
            Self::PodFailed(name) => write!(f, "pod {name} has failed"),
            Self::PodNotFinished(name, phase) => write!(f, "pod {name} is {}", phase.as_str()),
            Self::PodStateUnknown(name) => {
                write!(f, "the state of pod {name} is not known: its node does not answer")
            }
            Self::JobNotSeen(name) => write!(f, "the Job that pod {name} belongs to has not been seen"),
            Self::JobFailed(name) => write!(f, "Job {name} has failed"),
            Self::JobNotComplete(name) => write!(f, "Job {name} is not complete"),
        }
    }
}

pub(crate) fn evaluate_raw<'a>(
    policy: &ValidPolicy,
    spec: &ValidSpec,
    snapshot: &'a NamespaceSnapshot<'_>,
    previous: Option<&PolicyStatus>,
    now: Timestamp,
) -> RawEvaluation<'a> {
    match &policy.condition {
        PolicyCondition::Ttl(end) => evaluate_ttl(*end, spec, snapshot, now),
        PolicyCondition::PodsSucceed(pods) => evaluate_pods(pods, snapshot, previous, now),
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

/// When a namespace is certainly this old. Creation times are cut to whole seconds by the API server: a namespace may be almost
/// a second younger than it looks.
pub fn since_creation(namespace: &NamespaceFacts, by: Duration) -> Timestamp {
    later(later(namespace.created, by), Duration::from_secs(1))
}

fn evaluate_ttl<'a>(
    end: TtlEnd,
    spec: &ValidSpec,
    snapshot: &NamespaceSnapshot<'_>,
    now: Timestamp,
) -> RawEvaluation<'a> {
    let ends = match end {
        TtlEnd::After(after) => since_creation(snapshot.namespace, after),
        TtlEnd::Until(until) => until,
    };
    let extended = spec.extend_until.filter(|_| !active(Mutant::ExtensionIgnored));
    let due = extended.map_or(ends, |extended| ends.max(extended));
    let extended = due > ends;
    let raw = if now < due {
        RawEvaluation::false_until(Reason::TtlRunning, VerdictMessage::TtlRunning { due, extended }, due)
    } else {
        RawEvaluation::new(Verdict::True, Reason::TtlElapsed, VerdictMessage::TtlElapsed { due, extended })
    };
    RawEvaluation { due: Some(due), ..raw }
}

fn ttl_evidence(snapshot: &NamespaceSnapshot<'_>, due: Option<Timestamp>) -> BTreeMap<String, String> {
    let due = due.map(|due| ("due".to_owned(), due.to_string()));
    let created = ("namespaceCreated".to_owned(), snapshot.namespace.created.to_string());
    due.into_iter().chain([created]).collect()
}

fn evaluate_pods<'a>(
    condition: &PodsSucceed,
    snapshot: &'a NamespaceSnapshot<'_>,
    previous: Option<&PolicyStatus>,
    now: Timestamp,
) -> RawEvaluation<'a> {
    let earliest = since_creation(snapshot.namespace, condition.initial_delay);
    if now < earliest && !active(Mutant::InitialDelayIgnored) {
        return RawEvaluation::false_until(
            Reason::InitialDelay,
            VerdictMessage::InitialDelay(earliest),
            earliest,
        );
    }
    let (pods, jobs, observed_since) = match (&snapshot.pods, &snapshot.jobs) {
        (Fact::Known { value: pods, since: a }, Fact::Known { value: jobs, since: b }) => {
            (*pods, *jobs, (*a).max(*b))
        }
        (Fact::Unknown { reason, message }, _) | (_, Fact::Unknown { reason, message }) => {
            return RawEvaluation::new(Verdict::Unknown, *reason, VerdictMessage::Literal(message));
        }
    };
    let tally = Tally::count(condition, pods, jobs, snapshot.job_index(pods, jobs));
    if let Some(blocker) = tally.blocker {
        let verdict = if blocker.rank == UNKNOWN { Verdict::Unknown } else { Verdict::False };
        return RawEvaluation::new(verdict, blocker.reason, blocker.text);
    }
    if tally.succeeded < u64::from(condition.min_pods) && !active(Mutant::MinPodsIgnored) {
        let text = VerdictMessage::TooFewPods { succeeded: tally.succeeded, least: condition.min_pods };
        return RawEvaluation::new(Verdict::False, Reason::TooFewPods, text);
    }
    // Since when it has held: as recorded, but not from before the facts were followed without a gap.
    let recorded = previous
        .filter(|p| [Reason::Settling.as_str(), Reason::PodsSucceeded.as_str()].contains(&p.reason.as_str()))
        .map_or_else(|| whole_second_after(now), |p| p.since);
    let observed_since = if active(Mutant::GapIgnored) { Timestamp::MIN } else { observed_since };
    let since =
        if condition.settle.is_zero() { recorded } else { recorded.max(whole_second_after(observed_since)) };
    let settled = later(since, condition.settle);
    let raw = if !condition.settle.is_zero() && now < settled && !active(Mutant::SettleIgnored) {
        RawEvaluation::false_until(Reason::Settling, VerdictMessage::Settling(settled), settled)
    } else {
        let text = VerdictMessage::Literal("every pod that counts has succeeded");
        RawEvaluation::new(Verdict::True, Reason::PodsSucceeded, text)
    };
    RawEvaluation { since: Some(since), ..raw }
}

/// Why pods do not count as a success; the smallest rank is reported.
struct Blocker<'a> {
    rank: u8,
    reason: Reason,
    text: VerdictMessage<'a>,
}

const FAILED: u8 = 0;
const UNFINISHED: u8 = 1;
const TERMINATING: u8 = 2;
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
        pods: ObjectSlice<'a, PodFacts>,
        jobs: ObjectSlice<'a, JobFacts>,
        job_index: &JobIndex,
    ) -> Self {
        let mut tally = Self::default();
        for (n, pod) in pods.iter().enumerate() {
            if tally.can_be_changed_by(pod) && counts(condition, &pod.labels) {
                let job = job_index.job_of(n).and_then(|at| jobs.get(at));
                tally.add_pod(pod, job, condition.ignore_retried);
            }
        }
        for (n, job) in jobs.iter().enumerate() {
            if !job.terminating && counts(condition, &job.pod_labels) {
                tally.add_job(job, job_index.succeeded(n));
            }
        }
        tally
    }

    /// Whether a pod could change the message. Once something blocks, how many have succeeded does not matter, and most pods
    /// are no worse: their labels need not be read.
    fn can_be_changed_by(&self, pod: &PodFacts) -> bool {
        let Some(blocker) = &self.blocker else { return true };
        let worst = match pod.phase {
            _ if pod.terminating => TERMINATING,
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
            // A finished pod that is being deleted proves nothing; an unfinished one may be replaced.
            if !over && !active(Mutant::TerminatingPodsIgnored) {
                self.block(TERMINATING, Reason::PodTerminating, VerdictMessage::PodTerminating(name));
            }
            return;
        }
        let job_complete = match (&pod.job, job) {
            (None, _) => false,
            (Some(_), None) => {
                return self.block(UNKNOWN, Reason::JobNotSeen, VerdictMessage::JobNotSeen(name));
            }
            (Some(_), Some(job)) if job.state == JobState::Complete => true,
            (Some(_), Some(job)) => return self.block_on_job(job),
        };
        match pod.phase {
            PodPhase::Succeeded => self.succeeded += 1,
            PodPhase::Failed if job_complete && ignore_retried || active(Mutant::FailedPodsIgnored) => {}
            PodPhase::Failed => self.block(FAILED, Reason::PodFailed, VerdictMessage::PodFailed(name)),
            PodPhase::Pending | PodPhase::Running => {
                self.block(
                    UNFINISHED,
                    Reason::PodsNotFinished,
                    VerdictMessage::PodNotFinished(name, pod.phase),
                );
            }
            PodPhase::Unknown => {
                self.block(UNKNOWN, Reason::PodStateUnknown, VerdictMessage::PodStateUnknown(name));
            }
        }
    }

    fn add_job(&mut self, job: &'a JobFacts, here: u64) {
        if job.state != JobState::Complete {
            return self.block_on_job(job);
        }
        // The Job still counts pods that have been removed.
        self.succeeded += u64::from(job.succeeded).saturating_sub(here);
    }

    fn block_on_job(&mut self, job: &'a JobFacts) {
        let name = &*job.name;
        if active(Mutant::JobsIgnored) {
            return;
        }
        if job.state == JobState::Failed {
            self.block(FAILED, Reason::JobFailed, VerdictMessage::JobFailed(name));
        } else {
            self.block(UNFINISHED, Reason::JobNotComplete, VerdictMessage::JobNotComplete(name));
        }
    }

    /// Keeps the first blocker of the smallest rank: facts are sorted by name, so that the message changes only when
    /// the facts do.
    fn block(&mut self, rank: u8, reason: Reason, text: VerdictMessage<'a>) {
        if self.blocker.as_ref().is_none_or(|b| rank < b.rank) {
            self.blocker = Some(Blocker { rank, reason, text });
        }
    }
}

/// The evidence for the success of pods. Called only if nothing blocks: then every Job that counts is complete.
fn pods_evidence(condition: &PodsSucceed, snapshot: &NamespaceSnapshot<'_>) -> BTreeMap<String, String> {
    let (Fact::Known { value: pods, .. }, Fact::Known { value: jobs, .. }) = (&snapshot.pods, &snapshot.jobs)
    else {
        return BTreeMap::new();
    };
    let succeeded = Tally::count(condition, *pods, *jobs, snapshot.job_index(*pods, *jobs)).succeeded;
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
    use crate::facts::{Annotations, NamespaceFacts, work};

    /// Five thousand pods, each of another of five thousand Jobs or of one that does not exist, and 200 policies.
    #[test]
    fn an_evaluation_costs_the_sum_of_pods_and_jobs_and_not_their_product() {
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
                annotations: Annotations::default(),
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
                health: None,
            };
            let pod = |n| PodFacts {
                name: format!("{n:05}").into(),
                labels: coppice_api::Labels::default(),
                phase: PodPhase::Succeeded,
                terminating: false,
                job: Some(if seen { format!("{n:05}") } else { format!("bogus-{n}") }.into()),
                health: None,
            };
            let (pods, jobs): (Vec<_>, Vec<_>) = ((0..MANY).map(pod).collect(), (0..MANY).map(job).collect());
            let pods = Fact::Known { value: ObjectSlice::Slice(&pods), since: created };
            let jobs = Fact::Known { value: ObjectSlice::Slice(&jobs), since: created };
            let snapshot = NamespaceSnapshot::new(&namespace, pods, jobs);
            work::take();
            let condition = PodsSucceed { min_pods: 10_000, ..PodsSucceed::default() };
            for _ in 0..POLICIES {
                let raw = evaluate_pods(&condition, &snapshot, None, Timestamp::MAX);
                let expected = if seen { Reason::PodsSucceeded } else { Reason::JobNotSeen };
                assert_eq!(raw.reason, expected);
            }
            let (each, index) = (2 * MANY, 40 * MANY);
            let done = work::take();
            assert!(done <= POLICIES * each + index, "{done}");
        }
    }
}
