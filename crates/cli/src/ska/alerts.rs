//! Alerts that say nothing about the health there, as failures that say nothing about it here.

use serde_json::{Value, json};

use crate::import::Remarks;

/// Kinds that fail here and are not looked at there where alerts are off.
const NOT_LOOKED_AT: [&str; 4] = ["Pod", "Job", "DaemonSet", "PersistentVolumeClaim"];
/// There, a workload asks for as many pods as its status has: those that a quota refuses are missed by nobody.
const NOT_MISSED: Failure = (None, "PodsNotCreated");

/// What is not looked at without alerts.
pub(super) fn of_workloads() -> Vec<Value> {
    let kinds = NOT_LOOKED_AT.iter().map(|kind| json!({ "kind": kind }));
    kinds.chain([rule(&NOT_MISSED)]).collect()
}

/// What is ignored instead of these alerts. `path` is where they are.
pub(super) fn ignored(alerts: &[String], path: &str, remarks: &mut Remarks) -> Vec<Value> {
    let (mut rules, mut nothing, mut unknown) = (Vec::new(), Vec::new(), Vec::new());
    for alert in alerts {
        match counterpart(alert) {
            Some([]) => nothing.push(alert.as_str()),
            Some(failures) => {
                let of_alert: Vec<Value> = failures.iter().map(rule).collect();
                let written: Vec<String> = of_alert.iter().map(ToString::to_string).collect();
                remarks.note(format!(
                    "{path}: {alert} becomes health.ignore {}; there it counts all the same while its severity is critical",
                    written.join(" and ")
                ));
                rules.extend(of_alert.into_iter().filter(|rule| !rules.contains(rule)).collect::<Vec<_>>());
            }
            None => unknown.push(alert.as_str()),
        }
    }
    if !nothing.is_empty() {
        remarks.note(format!(
            "{path}: left out, because what they are about is no failure here: {}",
            nothing.join(", ")
        ));
    }
    if !unknown.is_empty() {
        remarks.differs(format!(
            "{path}: left out, because it is not known which failure they are about: {}; write health.ignore for what \
             should not count",
            unknown.join(", ")
        ));
    }
    rules
}

/// A failure: its kind, or any, and its reason.
type Failure = (Option<&'static str>, &'static str);

fn rule((kind, reason): &Failure) -> Value {
    match kind {
        Some(kind) => json!({ "kind": kind, "reason": reason }),
        None => json!({ "reason": reason }),
    }
}

/// The failures that a rule of the Kubernetes mixin is about; `None` for an alert that is none of its rules.
fn counterpart(alert: &str) -> Option<&'static [Failure]> {
    Some(match alert {
        "KubePodCrashLooping" => &[(None, "CrashLoopBackOff"), (None, "OOMKilled")],
        // It is about pods that are Pending or Failed, whatever keeps them there.
        "KubePodNotReady" => &[
            (None, "ImagePullBackOff"),
            (None, "CreateContainerError"),
            (None, "Unschedulable"),
            (None, "VolumePending"),
            (None, "PodFailed"),
            (None, "PodsNotReady"),
        ],
        "KubeContainerWaiting" => &[(None, "ImagePullBackOff"), (None, "CreateContainerError")],
        "KubeDeploymentReplicasMismatch" => {
            &[(Some("Deployment"), "PodsNotReady"), (Some("Deployment"), "PodsNotCreated")]
        }
        "KubeDeploymentRolloutStuck" => &[(Some("Deployment"), "ProgressDeadlineExceeded")],
        "KubeStatefulSetReplicasMismatch" => {
            &[(Some("StatefulSet"), "PodsNotReady"), (Some("StatefulSet"), "PodsNotCreated")]
        }
        "KubeDaemonSetRolloutStuck" => &[(Some("DaemonSet"), "PodsNotReady")],
        "KubeDaemonSetNotScheduled" => {
            &[(Some("DaemonSet"), "Unschedulable"), (Some("DaemonSet"), "PodsNotCreated")]
        }
        "KubeJobFailed" => &[(Some("Job"), "JobFailed")],
        "KubeQuotaExceeded" | "KubeQuotaFullyUsed" => &[(None, "PodsNotCreated")],
        "KubePersistentVolumeErrors" => &[(None, "VolumePending"), (None, "VolumeLost")],
        "CPUThrottlingHigh"
        | "KubeDaemonSetMisScheduled"
        | "KubeDeploymentGenerationMismatch"
        | "KubeHpaMaxedOut"
        | "KubeHpaReplicasMismatch"
        | "KubeJobCompletion"
        | "KubeJobNotCompleted"
        | "KubePersistentVolumeFillingUp"
        | "KubePersistentVolumeInodesFillingUp"
        | "KubeQuotaAlmostFull"
        | "KubeStatefulSetGenerationMismatch"
        | "KubeStatefulSetUpdateNotRolledOut" => &[],
        _ => return None,
    })
}
