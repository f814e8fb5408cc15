//! A probe of access to a cluster: what is asked for, what counts as done, and what is reported. Pure: the requests are in
//! `command/probe`.

use std::collections::BTreeMap;

use coppice_api::condition::{READY, find};
use coppice_clusters_api::cluster_access::SHORTEST_TTL;
use coppice_clusters_api::managed_cluster::STALLED;
use coppice_clusters_api::{
    AccessPhase, ClusterAccessSpec, ClusterAccessStatus, ClusterSource, ClusterState, Issuer,
    ManagedClusterSpec, ManagedClusterStatus, Output, OutputFormat, Rights, RoleRights, Rule,
};
use coppice_quantity::Duration;
use jiff::Timestamp;
use serde::Serialize;

use crate::facts::Object;

/// On what probes create: which program has.
pub(crate) const LABEL: &str = "coppice.dev/probe";
/// The value of [`LABEL`].
pub(crate) const LABEL_VALUE: &str = "true";
/// Beside it: until when the probe runs. What is there later was left behind.
pub(crate) const ANNOTATION_UNTIL: &str = "coppice.dev/probe-until";
/// What a probe asks for in the target: the name of a `ConfigMap`, which need not exist, and of a Secret that it may not read.
pub(crate) const ASKED_FOR: &str = "coppice-probe";

/// A `ClusterAccess`.
pub(crate) type Access = Object<ClusterAccessSpec, ClusterAccessStatus>;
/// A `ManagedCluster`.
pub(crate) type Cluster = Object<ManagedClusterSpec, ManagedClusterStatus>;

/// The least that can be used: one `ConfigMap` in one namespace, for the shortest time.
pub(crate) fn spec(
    cluster: ClusterSource,
    issuer: Issuer,
    namespace: &str,
    secret: &str,
) -> ClusterAccessSpec {
    let rule = Rule {
        api_groups: vec![String::new()],
        resources: vec!["configmaps".to_owned()],
        verbs: vec!["get".to_owned()],
        resource_names: vec![ASKED_FOR.to_owned()],
    };
    ClusterAccessSpec {
        cluster,
        issuer,
        rights: Rights {
            role: Some(RoleRights { namespace: namespace.to_owned(), rules: vec![rule] }),
            ..Rights::default()
        },
        ttl: SHORTEST_TTL,
        // The probe asks for the rotation itself.
        rotate_at: 90,
        output: Output { secret: secret.to_owned(), key: None, format: OutputFormat::default() },
        rotate: None,
        suspend: false,
        forget_after: Duration::from_secs(3600),
    }
}

/// What is to be done about what has [`LABEL`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Leftover {
    /// Its probe has ended, or was killed.
    Delete,
    /// Its probe runs until then.
    Running(Timestamp),
    /// No probe has created it: it does not say until when one runs.
    OfOthers,
}

/// What becomes of an object with [`LABEL`], by its annotations.
pub(crate) fn leftover(annotations: Option<&BTreeMap<String, String>>, now: Timestamp) -> Leftover {
    let until = annotations.and_then(|all| all.get(ANNOTATION_UNTIL)?.parse::<Timestamp>().ok());
    match until {
        Some(until) if now < until => Leftover::Running(until),
        Some(_) => Leftover::Delete,
        None => Leftover::OfOthers,
    }
}

/// How far a `ClusterAccess` or a `ManagedCluster` is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// The Secret holds the credential of this id, and nothing is left to do; of a cluster: what was made is as the spec says.
    Done(String),
    /// It waits, or is tried again: why, as far as it says.
    Waits(String),
    /// It will not be done.
    Refused(String),
}

/// How far it is with this `spec.rotate`.
pub(crate) fn progress(access: &Access, rotate: Option<&str>) -> Progress {
    let status = &access.status;
    if let Some(error) = &access.status_error {
        return Progress::Refused(format!("{error}; use the command line of the same version"));
    }
    let is_settled = status.phase == Some(AccessPhase::Ready)
        && status.observed_generation == access.meta.generation
        && status.rotated.as_deref() == rotate
        && status.superseded.is_empty()
        && status.intent.is_none();
    match &status.credential {
        Some(credential) if is_settled => Progress::Done(credential.clone()),
        _ if status.phase == Some(AccessPhase::Refused) => Progress::Refused(why(status)),
        _ => Progress::Waits(why(status)),
    }
}

/// Why it is not ready, as it says.
pub(crate) fn why(status: &ClusterAccessStatus) -> String {
    if let Some(error) = &status.last_error {
        return format!("{}: {}", error.reason, error.message);
    }
    let Some(phase) = status.phase else {
        return "coppice-access has not looked at it: does it run, and lead?".to_owned();
    };
    let ready = find(&status.conditions, READY).filter(|ready| ready.status != "True");
    ready.map_or_else(|| phase.as_str().to_owned(), |ready| format!("{}: {}", ready.reason, ready.message))
}

/// How far a new cluster is. One that somebody has to do something about is none that a probe waits for.
pub(crate) fn cluster_progress(cluster: &Cluster) -> Progress {
    let status = &cluster.status;
    if let Some(error) = &cluster.status_error {
        return Progress::Refused(format!("{error}; use the command line of the same version"));
    }
    let is_ready =
        status.state == Some(ClusterState::Ready) && status.observed_generation == cluster.meta.generation;
    match &status.cluster {
        Some(made) if is_ready => Progress::Done(format!("{} {}/{}", made.kind, made.namespace, made.name)),
        _ if find(&status.conditions, STALLED).is_some_and(|stalled| stalled.status == "True") => {
            Progress::Refused(cluster_why(status))
        }
        _ => Progress::Waits(cluster_why(status)),
    }
}

/// Why a cluster is not ready or not gone, as it says.
pub(crate) fn cluster_why(status: &ManagedClusterStatus) -> String {
    if let Some(error) = &status.last_error {
        return format!("{}: {}", error.reason, error.message);
    }
    let Some(state) = status.state else {
        return "coppice-access has not looked at it: does it run with --managed-clusters enabled, and lead?"
            .to_owned();
    };
    let ready = find(&status.conditions, READY).filter(|ready| ready.status != "True");
    ready.map_or_else(|| state.as_str().to_owned(), |ready| format!("{}: {}", ready.reason, ready.message))
}

/// What a probe does, in this order; what is about a new cluster only where one is made for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Step {
    /// What earlier probes left is deleted.
    Sweep,
    /// The `ManagedCluster` is created.
    Make,
    /// Its cluster is as its spec says.
    Ready,
    /// The `ClusterAccess` is created.
    Create,
    /// The credential is issued and written.
    Issue,
    /// It is used.
    Use,
    /// It is replaced.
    Rotate,
    /// The one before is not valid any more.
    Replaced,
    /// `ClusterAccess` and Secret are deleted.
    Delete,
    /// The last credential is not valid any more.
    Revoked,
    /// `ManagedCluster` and cluster are deleted.
    Remove,
}

impl Step {
    /// As it is printed.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Sweep => "sweep",
            Self::Make => "make",
            Self::Ready => "ready",
            Self::Create => "create",
            Self::Issue => "issue",
            Self::Use => "use",
            Self::Rotate => "rotate",
            Self::Replaced => "replaced",
            Self::Delete => "delete",
            Self::Revoked => "revoked",
            Self::Remove => "remove",
        }
    }

    /// What goes on while it takes long.
    pub(crate) const fn doing(self) -> &'static str {
        match self {
            Self::Sweep => "deleting what earlier probes left",
            Self::Make => "creating the ManagedCluster",
            Self::Ready => "waiting for the cluster",
            Self::Create => "creating the ClusterAccess",
            Self::Issue => "waiting for the credential",
            Self::Use => "using the credential",
            Self::Rotate => "waiting for another credential",
            Self::Replaced => "waiting until the credential before is not valid",
            Self::Delete => "waiting until ClusterAccess and Secret are gone",
            Self::Revoked => "waiting until the credential is not valid",
            Self::Remove => "waiting until ManagedCluster and cluster are gone",
        }
    }

    /// Where to look when it fails.
    pub(crate) const fn advice(self) -> &'static str {
        match self {
            Self::Sweep => {
                "look at the connection and the rights of the account that probes; what an earlier probe left stays while its target does not \
                 answer, until spec.forgetAfter is over: look at its status and its Events"
            }
            Self::Make => {
                "look at the rights of the account that probes: to create ManagedClusters, and what its author has to be permitted besides, as \
                 docs/kinds/managedcluster.md says; of a Shoot at managedClusters of its ClusterProvider"
            }
            Self::Ready => {
                "look at the Cluster or Shoot of that name, at the log of coppice-access, and at the runbook of CoppiceManagedClustersFailed"
            }
            Self::Remove => {
                "what is left of a cluster is paid for: look at the status of the ManagedCluster, and in the account of the cloud"
            }
            Self::Delete => {
                "while its target does not answer a ClusterAccess stays until spec.forgetAfter is over: look at its status and its Events"
            }
            Self::Create => {
                "look at the rights of the account that probes, which has to be permitted to get the kubeconfig's Secret, and at \
                 examples/access/probe.yaml"
            }
            Self::Issue | Self::Rotate => {
                "look at the ClusterAccesses of the same cluster, at the log of coppice-access, and at the runbook of its alerts"
            }
            Self::Use => {
                "look whether the target is reachable from here, and at its roles and bindings with the label coppice.dev/access"
            }
            Self::Replaced | Self::Revoked => {
                "somebody who has the credential can still use it: look in the target, in its namespace coppice-access, and revoke it by hand"
            }
        }
    }
}

/// How a step ended.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StepResult {
    pub(crate) step: Step,
    pub(crate) ok: bool,
    /// How long it took.
    pub(crate) seconds: f64,
    /// What was seen.
    pub(crate) message: String,
    /// What to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) advice: Option<&'static str>,
}

/// How a probe ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ProbeReport {
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// Whether all steps were done, each as it has to be.
    pub(crate) ok: bool,
    pub(crate) steps: Vec<StepResult>,
    /// What became of what was created after a step had failed, or the probe was stopped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cleanup: Option<String>,
    /// The step after which all is done.
    #[serde(skip)]
    pub(crate) last: Option<Step>,
}

impl ProbeReport {
    /// Adds a step that was done, or why it was not.
    pub(crate) fn add(&mut self, step: Step, seconds: f64, done: &anyhow::Result<String>) {
        let (ok, message) = match done {
            Ok(message) => (true, message.clone()),
            Err(error) => (false, format!("{error:#}")),
        };
        let advice = (!ok).then(|| step.advice());
        self.steps.push(StepResult { step, ok, seconds, message, advice });
        self.ok = self.steps.iter().all(|step| step.ok) && self.last == Some(step);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn access(status: &Value) -> Access {
        let cluster = ClusterSource::default();
        let spec = spec(cluster, Issuer::TokenRequest, "default", "probe");
        let object = json!({"metadata": {"name": "probe", "generation": 2}, "spec": spec, "status": status});
        Access::from_json(object).unwrap()
    }

    #[test]
    fn a_credential_counts_when_nothing_is_left_to_do_for_its_spec() {
        let done = json!({"phase": "Ready", "observedGeneration": 2, "rotated": "a", "credential": "uid-1"});
        let with = |field: &str, value: Value| {
            let mut status = done.clone();
            status[field] = value;
            progress(&access(&status), Some("a"))
        };
        assert_eq!(with("phase", json!("Ready")), Progress::Done("uid-1".to_owned()));
        for (field, value) in [
            ("observedGeneration", json!(1)),
            ("rotated", json!("b")),
            // The one before is still to be revoked.
            ("superseded", json!(["uid-0"])),
            ("phase", json!("Rotating")),
        ] {
            let found = with(field, value);
            assert!(matches!(found, Progress::Waits(_)), "{field}: {found:?}");
        }
        let error = json!({"reason": "NotAllowed", "message": "ask for less", "generation": 2, "attempts": 1,
            "at": "2026-03-01T12:00:00Z"});
        let refused = progress(&access(&json!({"phase": "Refused", "lastError": error})), None);
        assert_eq!(refused, Progress::Refused("NotAllowed: ask for less".to_owned()));
        let untouched = progress(&access(&json!({})), None);
        assert!(matches!(&untouched, Progress::Waits(why) if why.contains("does it run")), "{untouched:?}");
    }

    #[test]
    fn a_cluster_is_ready_for_its_generation_and_is_not_waited_for_where_somebody_has_to_do_something() {
        let cluster = |status: &Value| {
            let spec = json!({"provider": {"clusterAPI": {"class": "small"}}, "version": "1.33.4"});
            let object =
                json!({"metadata": {"name": "probe", "generation": 2}, "spec": spec, "status": status});
            cluster_progress(&Cluster::from_json(object).unwrap())
        };
        let made = json!({"kind": "Cluster", "namespace": "team", "name": "probe", "uid": "c"});
        let ready =
            |generation: i64| json!({"state": "Ready", "observedGeneration": generation, "cluster": made});
        assert_eq!(cluster(&ready(2)), Progress::Done("Cluster team/probe".to_owned()));
        assert_eq!(cluster(&ready(1)), Progress::Waits("Ready".to_owned()));
        let failed = |stalled: &str| {
            json!({
                "state": "Failed",
                "lastError": {"reason": "ClusterRefused", "class": "Transient", "message": "no quota", "generation": 2,
                    "attempts": 1, "at": "2026-03-01T12:00:00Z"},
                "conditions": [{"type": "Stalled", "status": stalled, "reason": "ClusterRefused", "message": "no quota",
                    "lastTransitionTime": "2026-03-01T12:00:00Z"}]
            })
        };
        let why = || "ClusterRefused: no quota".to_owned();
        assert_eq!(cluster(&failed("False")), Progress::Waits(why()));
        assert_eq!(cluster(&failed("True")), Progress::Refused(why()));
        let untouched = cluster(&json!({}));
        assert!(
            matches!(&untouched, Progress::Waits(why) if why.contains("--managed-clusters")),
            "{untouched:?}"
        );
    }

    #[test]
    fn what_a_probe_that_still_runs_has_and_what_others_have_is_left_alone() {
        let now: Timestamp = "2026-03-01T12:00:00Z".parse().unwrap();
        let of = |until: &str| {
            leftover(Some(&BTreeMap::from([(ANNOTATION_UNTIL.to_owned(), until.to_owned())])), now)
        };
        assert_eq!(of("2026-03-01T12:00:01Z"), Leftover::Running(now + jiff::SignedDuration::from_secs(1)));
        assert_eq!(of("2026-03-01T12:00:00Z"), Leftover::Delete);
        assert_eq!(of("soon"), Leftover::OfOthers);
        assert_eq!(leftover(None, now), Leftover::OfOthers);
    }

    #[test]
    fn a_probe_has_succeeded_when_its_last_step_has() {
        let mut report = ProbeReport { last: Some(Step::Revoked), ..ProbeReport::default() };
        report.add(Step::Create, 0.1, &Ok("created".to_owned()));
        assert!(!report.ok);
        report.add(Step::Revoked, 0.1, &Ok("not valid".to_owned()));
        assert!(report.ok);
        report.add(Step::Revoked, 0.1, &Err(anyhow::anyhow!("valid")));
        let last = report.steps.last().unwrap();
        assert!(!report.ok && last.advice.is_some_and(|advice| advice.contains("by hand")), "{last:?}");
    }
}
