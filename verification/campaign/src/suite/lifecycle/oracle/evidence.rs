//! Whether pods had succeeded, by what there was at a revision.

use serde_json::Value;

use super::rule::{JOBS, PODS};
use crate::oracle::{Broken, Findings, History};

/// Where to look.
#[derive(Clone, Copy)]
pub(in crate::suite) struct EvidenceScope<'a> {
    pub(in crate::suite) history: &'a History,
    pub(in crate::suite) namespace: &'a str,
}

/// Whether pods and Jobs were as `podsSucceed` wants them.
pub(in crate::suite) fn holds(
    place: EvidenceScope<'_>,
    wanted: &Value,
    revision: u64,
    found: &Findings,
) -> Result<(), Broken> {
    let list = |kind| place.history.list(kind, place.namespace, revision);
    let counts = |labels: &Value| matches(&wanted["selector"], labels);
    let all = list("jobs");
    let jobs = || {
        all.iter()
            .filter(|job| !is_terminating(job) && counts(&job["spec"]["template"]["metadata"]["labels"]))
    };
    let pods = list("pods");
    let pods: Vec<&Value> =
        pods.iter().map(|p| &***p).filter(|pod| counts(&pod["metadata"]["labels"])).collect();
    let open = jobs().find(|job| !complete(job));
    found.require(JOBS, open.is_none(), || {
        format!("Job {} is not complete", name(open.map_or(&Value::Null, |j| j)))
    })?;
    let mut succeeded = 0;
    for pod in &pods {
        let phase = pod["status"]["phase"].as_str().unwrap_or_default();
        let owner = owner(pod);
        if is_terminating(pod) {
            let over = ["Succeeded", "Failed"].contains(&phase);
            found.require(PODS, over, || format!("pod {} was cut off", name(pod)))?;
            continue;
        }
        let job = owner.and_then(|uid| all.iter().find(|job| job["metadata"]["uid"] == uid));
        let done = job.is_some_and(|job| complete(job));
        found.require(JOBS, owner.is_none() || done, || {
            format!("the Job of pod {} is not complete", name(pod))
        })?;
        let retried = phase == "Failed" && done && wanted["ignoreRetried"] != false;
        found.require(PODS, phase == "Succeeded" || retried, || format!("pod {} is {phase}", name(pod)))?;
        succeeded += u64::from(phase == "Succeeded");
    }
    // Pods that are gone are remembered by their Job.
    for job in jobs() {
        let own = |pod: &&&Value| {
            owner(pod) == job["metadata"]["uid"].as_str() && pod["status"]["phase"] == "Succeeded"
        };
        let here = pods.iter().filter(own).filter(|pod| !is_terminating(pod)).count() as u64;
        succeeded += job["status"]["succeeded"].as_u64().unwrap_or(0).saturating_sub(here);
    }
    let least = wanted["minPods"].as_u64().unwrap_or(1);
    found.require(PODS, succeeded >= least, || format!("{succeeded} of at least {least} pods had succeeded"))
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

fn is_terminating(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

fn complete(job: &Value) -> bool {
    let mut conditions = job["status"]["conditions"].as_array().into_iter().flatten();
    conditions.any(|c| c["type"] == "Complete" && c["status"] == "True")
}

/// The uid of the Job that a pod belongs to.
fn owner(pod: &Value) -> Option<&str> {
    let mut owners = pod["metadata"]["ownerReferences"].as_array()?.iter();
    owners.find(|o| o["kind"] == "Job" && o["controller"] == true)?["uid"].as_str()
}

/// Whether a selector, null for none, selects what has these labels.
pub(in crate::suite) fn matches(selector: &Value, labels: &Value) -> bool {
    let wanted = selector["matchLabels"].as_object().into_iter().flatten();
    let required = selector["matchExpressions"].as_array().into_iter().flatten();
    wanted.into_iter().all(|(key, value)| labels[key] == *value)
        && required.into_iter().all(|requirement| {
            let value = &labels[requirement["key"].as_str().unwrap_or_default()];
            let among = requirement["values"].as_array().is_some_and(|values| values.contains(value));
            match requirement["operator"].as_str() {
                Some("In") => among,
                Some("NotIn") => !among,
                Some("Exists") => value.is_string(),
                _ => value.is_null(),
            }
        })
}
