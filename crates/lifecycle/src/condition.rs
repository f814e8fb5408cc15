//! Whether a policy's condition holds, and why.

use std::collections::BTreeMap;

use coppice_api::Reason;
use coppice_api::manager::{NamespaceManagerSpec, PodsSucceed, Policy, PolicyStatus, Ttl, Verdict};
use coppice_quantity::Duration;
use jiff::{SignedDuration, Timestamp};

use crate::facts::{Fact, JobFacts, JobState, PodFacts, PodPhase, World};

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
    fn new(verdict: Verdict, reason: Reason, message: String) -> Self {
        Self { verdict, reason, message, due: None, look_at: None, since: None, evidence: BTreeMap::new() }
    }

    /// Not enough is known.
    pub(crate) fn unknown(reason: Reason, message: String) -> Self {
        Self::new(Verdict::Unknown, reason, message)
    }

    fn not_before(reason: Reason, message: String, at: Timestamp) -> Self {
        Self { look_at: Some(at), ..Self::new(Verdict::False, reason, message) }
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
    match (&policy.when.ttl, &policy.when.pods_succeed) {
        (Some(ttl), None) => evaluate_ttl(ttl, spec, world, now),
        (None, Some(pods)) => evaluate_pods(pods, world, previous, now),
        _ => Evaluation::new(
            Verdict::Unknown,
            Reason::InvalidSpec,
            "the policy has not exactly one condition".to_owned(),
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

fn evaluate_ttl(ttl: &Ttl, spec: &NamespaceManagerSpec, world: &World<'_>, now: Timestamp) -> Evaluation {
    let ends = match (ttl.after, ttl.until) {
        (Some(after), None) => since_creation(world, after),
        (None, Some(until)) => until,
        _ => {
            let message = "ttl has not exactly one of after and until".to_owned();
            return Evaluation::new(Verdict::Unknown, Reason::InvalidSpec, message);
        }
    };
    let due = spec.extend_until.map_or(ends, |extended| ends.max(extended));
    let how = if due > ends { " (extendUntil)" } else { "" };
    if now < due {
        let evaluation =
            Evaluation::not_before(Reason::TtlRunning, format!("the ttl ends at {due:.0}{how}"), due);
        return Evaluation { due: Some(due), ..evaluation };
    }
    let mut evaluation =
        Evaluation::new(Verdict::True, Reason::TtlElapsed, format!("the ttl ended at {due:.0}{how}"));
    evaluation.due = Some(due);
    evaluation.evidence = BTreeMap::from([
        ("due".to_owned(), due.to_string()),
        ("namespaceCreated".to_owned(), world.namespace.created.to_string()),
    ]);
    evaluation
}

fn evaluate_pods(
    condition: &PodsSucceed,
    world: &World<'_>,
    previous: Option<&PolicyStatus>,
    now: Timestamp,
) -> Evaluation {
    let earliest = since_creation(world, condition.initial_delay);
    if now < earliest {
        let message = format!("pods are looked at from {earliest:.0} on (initialDelay)");
        return Evaluation::not_before(Reason::InitialDelay, message, earliest);
    }
    let (pods, jobs, gapless) = match (&world.pods, &world.jobs) {
        (Fact::Known { value: pods, since: a }, Fact::Known { value: jobs, since: b }) => {
            (pods, jobs, (*a).max(*b))
        }
        (Fact::Unknown { reason, message }, _) | (_, Fact::Unknown { reason, message }) => {
            return Evaluation::new(Verdict::Unknown, *reason, message.clone());
        }
    };
    let tally = Tally::count(condition, pods, jobs);
    if let Some(blocker) = tally.blocker {
        let verdict = if blocker.rank == UNKNOWN { Verdict::Unknown } else { Verdict::False };
        return Evaluation::new(verdict, blocker.reason, blocker.message);
    }
    if tally.succeeded < u64::from(condition.min_pods) {
        let message =
            format!("{} of at least {} pods have succeeded (minPods)", tally.succeeded, condition.min_pods);
        return Evaluation::new(Verdict::False, Reason::TooFewPods, message);
    }
    // How long it has held: as recorded, but not from before the facts were followed without a gap.
    let recorded = previous
        .filter(|p| [Reason::Settling.as_str(), Reason::PodsSucceeded.as_str()].contains(&p.reason.as_str()))
        .map_or_else(|| whole_second_after(now), |p| p.since);
    let since = if condition.settle.is_zero() { recorded } else { recorded.max(whole_second_after(gapless)) };
    let settled = later(since, condition.settle);
    if !condition.settle.is_zero() && now < settled {
        let message = format!("every pod has succeeded; must hold until {settled:.0} (settle)");
        let evaluation = Evaluation::not_before(Reason::Settling, message, settled);
        return Evaluation { since: Some(since), ..evaluation };
    }
    let mut evaluation = Evaluation::new(
        Verdict::True,
        Reason::PodsSucceeded,
        "every pod that counts has succeeded".to_owned(),
    );
    evaluation.since = Some(since);
    evaluation.evidence = tally.evidence();
    evaluation
}

/// Why pods are no success; the smallest rank is told.
struct Blocker {
    rank: u8,
    reason: Reason,
    message: String,
}

const FAILED: u8 = 0;
const UNFINISHED: u8 = 1;
const LEAVING: u8 = 2;
const UNKNOWN: u8 = 3;

#[derive(Default)]
struct Tally<'a> {
    succeeded: u64,
    pods: Vec<&'a str>,
    jobs: Vec<&'a str>,
    blocker: Option<Blocker>,
}

impl<'a> Tally<'a> {
    fn count(condition: &PodsSucceed, pods: &[&'a PodFacts], jobs: &[&'a JobFacts]) -> Self {
        let counts =
            |labels: &coppice_api::Labels| condition.selector.as_ref().is_none_or(|s| s.matches(labels));
        let mut tally = Self::default();
        for pod in pods.iter().filter(|pod| counts(&pod.labels)) {
            tally.add_pod(pod, jobs, condition.ignore_retried);
        }
        for job in jobs.iter().filter(|job| !job.terminating && counts(&job.pod_labels)) {
            tally.add_job(job, pods);
        }
        tally
    }

    fn add_pod(&mut self, pod: &'a PodFacts, jobs: &[&'a JobFacts], ignore_retried: bool) {
        let name = &pod.name;
        let over = matches!(pod.phase, PodPhase::Succeeded | PodPhase::Failed);
        if pod.terminating {
            // What is over and goes away says nothing any more; what was cut off may be replaced.
            if !over {
                self.block(LEAVING, Reason::PodTerminating, || {
                    format!("pod {name} is being deleted before it finished")
                });
            }
            return;
        }
        let job_complete = match &pod.job {
            None => false,
            Some(uid) => match jobs.iter().find(|job| job.uid == *uid) {
                None => {
                    return self.block(UNKNOWN, Reason::JobNotSeen, || {
                        format!("the Job that pod {name} belongs to has not been seen")
                    });
                }
                Some(job) if job.state == JobState::Complete => true,
                Some(job) => return self.block_on_job(job),
            },
        };
        match pod.phase {
            PodPhase::Succeeded => {
                self.succeeded += 1;
                self.pods.push(name);
            }
            PodPhase::Failed if job_complete && ignore_retried => {}
            PodPhase::Failed => self.block(FAILED, Reason::PodFailed, || format!("pod {name} has failed")),
            PodPhase::Pending | PodPhase::Running => {
                self.block(UNFINISHED, Reason::PodsNotFinished, || {
                    format!("pod {name} is {}", pod.phase.as_str())
                });
            }
            PodPhase::Unknown => self.block(UNKNOWN, Reason::PodStateUnknown, || {
                format!("the state of pod {name} is not known: its node does not answer")
            }),
        }
    }

    fn add_job(&mut self, job: &'a JobFacts, pods: &[&'a PodFacts]) {
        if job.state != JobState::Complete {
            return self.block_on_job(job);
        }
        // Pods that have been cleaned away are remembered by their Job.
        let here = pods.iter().filter(|pod| {
            pod.job.as_ref() == Some(&job.uid) && pod.phase == PodPhase::Succeeded && !pod.terminating
        });
        self.succeeded += u64::from(job.succeeded).saturating_sub(here.count() as u64);
        self.jobs.push(&job.name);
    }

    fn block_on_job(&mut self, job: &JobFacts) {
        let name = &job.name;
        if job.state == JobState::Failed {
            self.block(FAILED, Reason::JobFailed, || format!("Job {name} has failed"));
        } else {
            self.block(UNFINISHED, Reason::JobNotComplete, || format!("Job {name} is not complete"));
        }
    }

    /// Keeps the first blocker of the smallest rank: facts come in the order of their names, so that the message
    /// changes only when the world does.
    fn block(&mut self, rank: u8, reason: Reason, message: impl FnOnce() -> String) {
        if self.blocker.as_ref().is_none_or(|b| rank < b.rank) {
            self.blocker = Some(Blocker { rank, reason, message: message() });
        }
    }

    fn evidence(&self) -> BTreeMap<String, String> {
        let list = |names: &[&str]| {
            let more = names.len().saturating_sub(5);
            let shown = names.iter().take(5).copied().collect::<Vec<_>>().join(", ");
            if more == 0 { shown } else { format!("{shown} and {more} more") }
        };
        let mut evidence = BTreeMap::from([("succeeded".to_owned(), self.succeeded.to_string())]);
        for (key, names) in [("pods", &self.pods), ("jobs", &self.jobs)] {
            if !names.is_empty() {
                evidence.insert(key.to_owned(), list(names));
            }
        }
        evidence
    }
}
