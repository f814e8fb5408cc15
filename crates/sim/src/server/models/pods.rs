//! The scheduler, and a kubelet whose pods follow a script: the same that the real test plane plays with KWOK.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

use super::super::delete::DeleteOptions;
use super::super::kinds::ServedKind;
use super::super::{ObjectKey, Server, meta};
use super::Requeue;
use super::support::{ControllerUser, find};

/// Chooses what becomes of a pod.
const OUTCOME: &str = "plane.coppice.dev/outcome";
/// How long the pod takes until then.
const DELAY: &str = "plane.coppice.dev/delay";
/// How long the pod stays Terminating.
const DELETE_DELAY: &str = "plane.coppice.dev/delete-delay";
/// The one node.
const NODE: &str = "fake";

/// Puts a pod on the node.
pub(super) fn bind(server: &mut Server, now: Timestamp, key: &ObjectKey) -> Requeue {
    let who = ControllerUser::new("system:kube-scheduler", now);
    let Some((kind, pod)) = find(server, "", "pods", key) else { return Requeue::No };
    let bound = pod["spec"]["nodeName"].as_str().is_some_and(|node| !node.is_empty());
    let gated = pod["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty());
    let own = pod["spec"]["schedulerName"] == "default-scheduler";
    if bound || gated || !own || meta::deleting(&pod) {
        return Requeue::No;
    }
    let done = who.write(server, &kind, &pod, "binding", |pod| {
        meta::field(pod, "spec").insert("nodeName".to_owned(), NODE.into());
        let scheduled = json!({
            "type": "PodScheduled",
            "status": "True",
            "lastProbeTime": null,
            "lastTransitionTime": meta::seconds(now),
        });
        pod["status"]["conditions"] = json!([scheduled]);
    });
    if done.is_ok() { Requeue::No } else { Requeue::AfterFailure }
}

/// One entry of the script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PodAction {
    Run,
    Succeed,
    Fail,
    CrashLoop,
    /// The same with a container that is killed for its memory.
    OomKill,
    ImagePull,
    ConfigError,
    CreateError,
    Pending,
    /// The kubelet confirms that the pod is gone.
    Delete,
    /// The pod ends, but finalizers hold it.
    Kill,
}

/// Since when each pod is at its stage.
#[derive(Clone, Debug, Default)]
pub(super) struct Stages(BTreeMap<ObjectKey, (PodAction, Timestamp)>);

impl Stages {
    /// Plays the next stage of a pod when it is due.
    pub(super) fn play(&mut self, server: &mut Server, now: Timestamp, key: &ObjectKey) -> Requeue {
        let Some((kind, pod)) = find(server, "", "pods", key) else {
            self.0.remove(key);
            return Requeue::No;
        };
        let Some((stage, delay)) = next(&pod) else {
            self.0.remove(key);
            return Requeue::No;
        };
        let since = match self.0.get(key) {
            Some((known, since)) if *known == stage => *since,
            _ => {
                self.0.insert(key.clone(), (stage, now));
                now
            }
        };
        let due = since.saturating_add(delay).unwrap_or(Timestamp::MAX);
        if due > now {
            return Requeue::At(due);
        }
        self.0.remove(key);
        if apply(server, now, &kind, &pod, stage) { Requeue::No } else { Requeue::AfterFailure }
    }
}

/// The stage that a pod is about to enter, and after which delay.
fn next(pod: &Value) -> Option<(PodAction, SignedDuration)> {
    if pod["spec"]["nodeName"].as_str().unwrap_or_default().is_empty() {
        return None;
    }
    let delay =
        |annotation| meta::annotation(pod, annotation).and_then(duration).unwrap_or(SignedDuration::ZERO);
    let phase = pod["status"]["phase"].as_str().unwrap_or_default();
    let live = matches!(phase, "Pending" | "Running");
    if meta::deleting(pod) {
        let confirmed = pod["metadata"]["deletionGracePeriodSeconds"] == 0;
        return match (meta::has_finalizers(pod), live, confirmed) {
            (false, _, false) => Some((PodAction::Delete, delay(DELETE_DELAY))),
            (true, true, _) => Some((PodAction::Kill, delay(DELETE_DELAY))),
            (true, false, false) => Some((PodAction::Delete, SignedDuration::ZERO)),
            _ => None,
        };
    }
    let outcome = meta::label(pod, OUTCOME).unwrap_or("run");
    let state = &pod["status"]["containerStatuses"][0]["state"];
    let waits = state["waiting"]["reason"].as_str().unwrap_or_default();
    let running = state["running"].is_object();
    let stuck =
        |stage, from: &str, reason: &str| (phase == from && waits != reason).then(|| (stage, delay(DELAY)));
    match outcome {
        "succeed" if phase == "Running" && running => Some((PodAction::Succeed, delay(DELAY))),
        "fail" if phase == "Running" && running => Some((PodAction::Fail, delay(DELAY))),
        "crashloop" | "oomkilled" if phase == "Pending" => Some((PodAction::Run, SignedDuration::ZERO)),
        "crashloop" => stuck(PodAction::CrashLoop, "Running", "CrashLoopBackOff"),
        "oomkilled" => stuck(PodAction::OomKill, "Running", "CrashLoopBackOff"),
        "imagepull" => stuck(PodAction::ImagePull, "Pending", "ImagePullBackOff"),
        "configerror" => stuck(PodAction::ConfigError, "Pending", "CreateContainerConfigError"),
        "createerror" => stuck(PodAction::CreateError, "Pending", "CreateContainerError"),
        "pending" => {
            stuck(PodAction::Pending, "Pending", "ContainerCreating").map(|(s, _)| (s, SignedDuration::ZERO))
        }
        _ if live && !running => {
            let delay = if outcome == "run" { delay(DELAY) } else { SignedDuration::ZERO };
            Some((PodAction::Run, delay))
        }
        _ => None,
    }
}

/// A Go duration such as `1m30s` or `250ms`.
fn duration(text: &str) -> Option<SignedDuration> {
    let mut total = SignedDuration::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).filter(|at| *at > 0)?;
        let (number, after) = rest.split_at(digits);
        let unit = after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len());
        let number: i64 = number.parse().ok()?;
        let part = match &after[..unit] {
            "ms" => SignedDuration::from_millis(number),
            "s" => SignedDuration::from_secs(number),
            "m" => SignedDuration::from_secs(number.checked_mul(60)?),
            "h" => SignedDuration::from_secs(number.checked_mul(3600)?),
            _ => return None,
        };
        total = total.checked_add(part)?;
        rest = &after[unit..];
    }
    Some(total)
}

fn apply(server: &mut Server, now: Timestamp, kind: &Arc<ServedKind>, pod: &Value, stage: PodAction) -> bool {
    let who = ControllerUser::new("system:kwok", now);
    if stage == PodAction::Delete {
        let options = DeleteOptions { grace_seconds: Some(0), ..DeleteOptions::default() };
        return match who.delete_with(server, kind, pod, &options) {
            Ok(()) => true,
            Err(failure) => failure.code() == 404,
        };
    }
    let done = who.status(server, kind, pod, |status| write(status, pod, stage, &meta::seconds(now)));
    done.is_ok()
}

/// The status of a pod at a stage.
fn write(status: &mut Map<String, Value>, pod: &Value, stage: PodAction, now: &str) {
    let start = status.get("startTime").cloned().unwrap_or_else(|| now.into());
    let ended = |code: i64, reason: &str| json!({"terminated": {"exitCode": code, "reason": reason, "startedAt": start, "finishedAt": now}});
    let waiting = |reason: &str| json!({"waiting": {"reason": reason}});
    let refused = |reason: &str, message: &str| json!({"waiting": {"reason": reason, "message": message}});
    let (phase, ready, reason, now_is) = match stage {
        PodAction::Succeed => ("Succeeded", false, "PodCompleted", ended(0, "Completed")),
        PodAction::Fail => ("Failed", false, "PodFailed", ended(1, "Error")),
        PodAction::Kill => ("Failed", false, "PodFailed", ended(137, "Error")),
        PodAction::CrashLoop | PodAction::OomKill => {
            ("Running", false, "ContainersNotReady", waiting("CrashLoopBackOff"))
        }
        PodAction::ConfigError => {
            let cannot_begin = refused("CreateContainerConfigError", "secret \"db\" not found");
            ("Pending", false, "ContainersNotReady", cannot_begin)
        }
        PodAction::CreateError => {
            let cannot_begin = refused("CreateContainerError", "no command specified");
            ("Pending", false, "ContainersNotReady", cannot_begin)
        }
        PodAction::ImagePull => ("Pending", false, "ContainersNotReady", waiting("ImagePullBackOff")),
        PodAction::Pending => ("Pending", false, "ContainersNotReady", waiting("ContainerCreating")),
        PodAction::Run | PodAction::Delete => ("Running", true, "", json!({"running": {"startedAt": now}})),
    };
    let yes = if ready { "True" } else { "False" };
    let mut conditions = vec![
        condition("Initialized", if phase == "Pending" { "False" } else { "True" }, "", now),
        condition("Ready", yes, reason, now),
        condition("ContainersReady", yes, reason, now),
    ];
    for gate in pod["spec"]["readinessGates"].as_array().into_iter().flatten() {
        conditions.push(condition(gate["conditionType"].as_str().unwrap_or_default(), yes, "", now));
    }
    let scheduled =
        pod["status"]["conditions"].as_array().into_iter().flatten().find(|c| c["type"] == "PodScheduled");
    conditions.extend(scheduled.cloned());
    let started = now_is["running"].is_object();
    let last = match stage {
        PodAction::CrashLoop => Some(ended(1, "Error")),
        PodAction::OomKill => Some(ended(137, "OOMKilled")),
        _ => None,
    };
    let containers = pod["spec"]["containers"].as_array().into_iter().flatten().map(|container| {
        json!({
            "name": container["name"],
            "image": container["image"],
            "imageID": "",
            "ready": ready,
            "restartCount": if last.is_some() { 5 } else { 0 },
            "started": started,
            "state": now_is,
            "lastState": last.clone().unwrap_or_else(|| json!({})),
        })
    });
    let containers: Value = containers.collect();
    for (field, value) in [
        ("phase", json!(phase)),
        ("startTime", start.clone()),
        ("hostIP", json!("10.0.0.1")),
        ("conditions", json!(conditions)),
        ("containerStatuses", containers),
    ] {
        status.insert(field.to_owned(), value);
    }
}

fn condition(name: &str, status: &str, reason: &str, now: &str) -> Value {
    let mut condition =
        json!({"type": name, "status": status, "lastProbeTime": null, "lastTransitionTime": now});
    if !reason.is_empty() {
        condition["reason"] = reason.into();
    }
    condition
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_those_of_go() {
        assert_eq!(duration("1m30s"), Some(SignedDuration::from_secs(90)));
        assert_eq!(duration("250ms"), Some(SignedDuration::from_millis(250)));
        assert_eq!(duration("2h"), Some(SignedDuration::from_secs(7200)));
        assert_eq!(duration("soon"), None);
        assert_eq!(duration("5"), None);
    }
}
