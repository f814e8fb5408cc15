//! The Job controller: pods until enough have succeeded or too many have failed.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::super::kinds::ServedKind;
use super::super::{ObjectKey, Server, meta};
use super::Requeue;
use super::support::{ControllerUser, alive, count, find, is, kind, managed, pod_of};

const USER: &str = "system:serviceaccount:kube-system:job-controller";
/// The finalizer that keeps a pod until it is counted.
const TRACKING: &str = "batch.kubernetes.io/job-tracking";
/// Seconds before a failed pod is replaced; doubled each time.
const BACKOFF: i64 = 10;

/// Counts pods that have ended, makes and deletes pods, and writes the status.
pub(super) fn sync(server: &mut Server, now: Timestamp, key: &ObjectKey) -> Requeue {
    let who = ControllerUser::new(USER, now);
    let Some(pods) = kind(server, "", "pods") else { return Requeue::No };
    let Some((jobs, job)) = find(server, "batch", "jobs", key) else {
        return if let_orphans_go(server, who, &pods, key).is_some() {
            Requeue::No
        } else {
            Requeue::AfterFailure
        };
    };
    if meta::deleting(&job) || is(&job, "Complete") || is(&job, "Failed") {
        return if let_go(server, who, &pods, &job).is_some() { Requeue::No } else { Requeue::AfterFailure };
    }
    let mut state = State::of(server, &pods, &job);
    let verdict = state.verdict(&job, now);
    let again = match &verdict {
        JobDecision::Continue => state.make_or_delete(server, who, &pods, &job),
        JobDecision::Suspended | JobDecision::Ended { .. } => state.delete_all(server, who, &pods),
    };
    let Some(again) = again else { return Requeue::AfterFailure };
    let written = who.status(server, &jobs, &job, |status| state.report(status, &job, &verdict, now));
    if written.is_err() || let_go(server, who, &pods, &job).is_none() {
        return Requeue::AfterFailure;
    }
    let deadline = state.deadline(&job).filter(|_| verdict == JobDecision::Continue);
    match (again, deadline) {
        (Requeue::At(a), Some(b)) => Requeue::At(a.min(b)),
        (Requeue::No, Some(b)) => Requeue::At(b),
        (again, _) => again,
    }
}

/// Takes the finalizer from pods that have ended and are counted, or need no counting; none if a write failed.
fn let_go(server: &mut Server, who: ControllerUser, pods: &Arc<ServedKind>, job: &Value) -> Option<()> {
    for pod in managed(server, pods, job) {
        let held = meta::finalizers(&pod).any(|f| f == TRACKING);
        if held && (ended(&pod) || meta::deleting(job)) {
            untrack(server, who, pods, &pod)?;
        }
    }
    Some(())
}

/// Takes the finalizer from pods whose Job is gone; none if a write failed.
fn let_orphans_go(
    server: &mut Server,
    who: ControllerUser,
    pods: &Arc<ServedKind>,
    job: &ObjectKey,
) -> Option<()> {
    let held: Vec<Arc<Value>> = server
        .store
        .range(pods.store, job.namespace(), None)
        .filter(|(_, pod)| meta::finalizers(pod).any(|f| f == TRACKING))
        .filter(|(_, pod)| meta::controller(pod).is_none_or(|uid| server.store.by_uid(uid).is_none()))
        .map(|(_, pod)| pod.clone())
        .collect();
    for pod in held {
        untrack(server, who, pods, &pod)?;
    }
    Some(())
}

fn untrack(server: &mut Server, who: ControllerUser, pods: &Arc<ServedKind>, pod: &Value) -> Option<()> {
    who.update(server, pods, pod, |pod| {
        let rest = meta::finalizers(pod).filter(|f| *f != TRACKING).map(Value::from).collect();
        meta::set_finalizers(pod, rest);
    })
    .ok()
    .map(|_| ())
}

fn ended(pod: &Value) -> bool {
    matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
}

/// What is to become of a Job.
#[derive(Clone, Debug, PartialEq, Eq)]
enum JobDecision {
    Continue,
    Suspended,
    Ended { condition: &'static str, before: &'static str, reason: &'static str, message: &'static str },
}

/// What is known of a Job's pods.
struct State {
    active: Vec<Arc<Value>>,
    ready: usize,
    terminating: usize,
    succeeded: usize,
    failed: usize,
    last_failure: Option<Timestamp>,
    started: Option<Timestamp>,
}

impl State {
    fn of(server: &Server, pods: &ServedKind, job: &Value) -> Self {
        let number = |field: &str| usize::try_from(job["status"][field].as_i64().unwrap_or(0)).unwrap_or(0);
        let mut state = Self {
            active: Vec::new(),
            ready: 0,
            terminating: 0,
            succeeded: number("succeeded"),
            failed: number("failed"),
            last_failure: None,
            started: job["status"]["startTime"].as_str().and_then(|t| t.parse().ok()),
        };
        for pod in managed(server, pods, job) {
            let counted = !meta::finalizers(&pod).any(|f| f == TRACKING);
            if ended(&pod) {
                let failed = pod["status"]["phase"] == "Failed";
                if failed {
                    let at = &pod["status"]["containerStatuses"][0]["state"]["terminated"]["finishedAt"];
                    let at = at.as_str().and_then(|t| t.parse().ok());
                    state.last_failure = state.last_failure.max(at);
                }
                if !counted {
                    *(if failed { &mut state.failed } else { &mut state.succeeded }) += 1;
                }
            } else if meta::deleting(&pod) {
                state.terminating += 1;
            } else {
                state.ready += usize::from(is(&pod, "Ready"));
                state.active.push(pod);
            }
        }
        state
    }

    fn deadline(&self, job: &Value) -> Option<Timestamp> {
        Some(meta::later(self.started?, job["spec"]["activeDeadlineSeconds"].as_i64()?))
    }

    fn verdict(&self, job: &Value, now: Timestamp) -> JobDecision {
        let failed = |reason, message| JobDecision::Ended {
            condition: "Failed",
            before: "FailureTarget",
            reason,
            message,
        };
        let limit = job["spec"]["backoffLimit"].as_u64().and_then(|l| usize::try_from(l).ok()).unwrap_or(6);
        if self.failed > limit {
            return failed("BackoffLimitExceeded", "Job has reached the specified backoff limit");
        }
        if self.deadline(job).is_some_and(|at| now >= at) {
            return failed("DeadlineExceeded", "Job was active longer than specified deadline");
        }
        let enough = match job["spec"]["completions"].as_u64() {
            Some(completions) => self.succeeded as u64 >= completions,
            None => self.succeeded > 0 && self.active.is_empty(),
        };
        if enough {
            return JobDecision::Ended {
                condition: "Complete",
                before: "SuccessCriteriaMet",
                reason: "CompletionsReached",
                message: "Reached expected number of succeeded pods",
            };
        }
        if job["spec"]["suspend"] == true { JobDecision::Suspended } else { JobDecision::Continue }
    }

    /// None if a write failed.
    fn make_or_delete(
        &mut self,
        server: &mut Server,
        who: ControllerUser,
        pods: &Arc<ServedKind>,
        job: &Value,
    ) -> Option<Requeue> {
        let number = |field: &str| job["spec"][field].as_u64().and_then(|n| usize::try_from(n).ok());
        let mut wanted = number("parallelism").unwrap_or(1);
        match number("completions") {
            Some(completions) => wanted = wanted.min(completions.saturating_sub(self.succeeded)),
            // Without a number, the first success ends the making of pods.
            None if self.succeeded > 0 => wanted = wanted.min(self.active.len()),
            None => {}
        }
        while self.active.len() > wanted {
            let pod = self.active.pop()?;
            who.delete(server, pods, &pod).ok()?;
            self.terminating += 1;
        }
        if self.active.len() + self.terminating >= wanted {
            return Some(Requeue::No);
        }
        if let Some(at) = self.last_failure {
            let shift = u32::try_from(self.failed.saturating_sub(1)).unwrap_or(u32::MAX).min(6);
            let due = meta::later(at, (BACKOFF << shift).min(600));
            if due > who.now {
                return Some(Requeue::At(due));
            }
        }
        for _ in self.active.len() + self.terminating..wanted {
            let mut pod = pod_of(job, "batch/v1", "Job");
            meta::set(&mut pod, "generateName", format!("{}-", meta::name(job)));
            let mut finalizers: Vec<Value> = meta::finalizers(&pod).map(Value::from).collect();
            finalizers.push(TRACKING.into());
            meta::set_finalizers(&mut pod, finalizers);
            self.active.push(who.create(server, pods, meta::namespace(job), pod).ok()?);
        }
        Some(Requeue::No)
    }

    /// None if a write failed.
    fn delete_all(
        &mut self,
        server: &mut Server,
        who: ControllerUser,
        pods: &Arc<ServedKind>,
    ) -> Option<Requeue> {
        for pod in std::mem::take(&mut self.active) {
            who.delete(server, pods, &pod).ok()?;
            self.terminating += usize::from(alive(&pod));
        }
        self.ready = 0;
        Some(Requeue::No)
    }

    fn report(&self, status: &mut Map<String, Value>, job: &Value, verdict: &JobDecision, now: Timestamp) {
        let at = meta::seconds(now);
        if *verdict == JobDecision::Suspended {
            status.remove("startTime");
        } else {
            status.entry("startTime").or_insert_with(|| at.as_str().into());
        }
        count(status, "active", self.active.len());
        count(status, "succeeded", self.succeeded);
        count(status, "failed", self.failed);
        status.insert("terminating".to_owned(), self.terminating.into());
        status.insert("ready".to_owned(), self.ready.into());
        status.insert("uncountedTerminatedPods".to_owned(), json!({}));
        let suspended = is(job, "Suspended");
        match verdict {
            JobDecision::Suspended if !suspended => {
                set(status, "Suspended", "True", "JobSuspended", "Job suspended", &at);
            }
            JobDecision::Continue if suspended => {
                set(status, "Suspended", "False", "JobResumed", "Job resumed", &at);
            }
            JobDecision::Ended { condition, before, reason, message } => {
                if !is(job, before) {
                    set(status, before, "True", reason, message, &at);
                }
                // The end is said when the last pod is gone.
                if self.terminating == 0 {
                    set(status, condition, "True", reason, message, &at);
                    if *condition == "Complete" {
                        status.insert("completionTime".to_owned(), at.into());
                    }
                }
            }
            _ => {}
        }
    }
}

fn set(status: &mut Map<String, Value>, name: &str, state: &str, reason: &str, message: &str, at: &str) {
    let conditions = status.entry("conditions").or_insert_with(|| json!([]));
    let condition = json!({
        "type": name,
        "status": state,
        "lastProbeTime": at,
        "lastTransitionTime": at,
        "reason": reason,
        "message": message,
    });
    if let Value::Array(list) = conditions {
        match list.iter_mut().find(|c| c["type"] == name) {
            Some(known) => *known = condition,
            None => list.push(condition),
        }
    }
}
