//! The ReplicaSet controller.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::{ObjectKey, Server, meta};
use super::Requeue;
use super::support::{ControllerUser, alive, count, find, is, kind, managed, pod_of};

const USER: &str = "system:serviceaccount:kube-system:replicaset-controller";

/// Brings the number of pods to the number that is wanted, and says in the status how many there are.
pub(super) fn sync(server: &mut Server, now: Timestamp, key: &ObjectKey) -> Requeue {
    let who = ControllerUser::new(USER, now);
    let Some((sets, set)) = find(server, "apps", "replicasets", key) else { return Requeue::No };
    let Some(pods) = kind(server, "", "pods") else { return Requeue::No };
    let mut live: Vec<_> = managed(server, &pods, &set).into_iter().filter(|p| alive(p)).collect();
    let wanted = usize::try_from(set["spec"]["replicas"].as_i64().unwrap_or(1)).unwrap_or(0);
    if !meta::deleting(&set) {
        for _ in live.len()..wanted {
            let mut pod = pod_of(&set, "apps/v1", "ReplicaSet");
            meta::set(&mut pod, "generateName", format!("{}-", meta::name(&set)));
            if who.create(server, &pods, key.namespace(), pod).is_err() {
                return Requeue::AfterFailure;
            }
        }
        // Pods that are not ready go first, and of those that are the youngest.
        live.sort_by_key(|pod| {
            (is(pod, "Ready"), std::cmp::Reverse(meta::created(pod)), meta::revision(pod))
        });
        for pod in live.iter().take(live.len().saturating_sub(wanted)) {
            if who.delete(server, &pods, pod).is_err() {
                return Requeue::AfterFailure;
            }
        }
    }
    let live: Vec<_> = managed(server, &pods, &set).into_iter().filter(|p| alive(p)).collect();
    let ready = live.iter().filter(|p| is(p, "Ready")).count();
    let ending = managed(server, &pods, &set).iter().filter(|p| meta::deleting(p)).count();
    let done = who.status(server, &sets, &set, |status| {
        status.insert("replicas".to_owned(), json!(live.len()));
        status.insert("observedGeneration".to_owned(), set["metadata"]["generation"].clone());
        count(status, "fullyLabeledReplicas", live.len());
        status.insert("terminatingReplicas".to_owned(), json!(ending));
        count(status, "readyReplicas", ready);
        count(status, "availableReplicas", ready);
    });
    if done.is_ok() { Requeue::No } else { Requeue::AfterFailure }
}

/// How many pods of a set there are, are ready, and are wanted.
pub(super) fn counts(set: &Value) -> (i64, i64, i64) {
    let number = |value: &Value| value.as_i64().unwrap_or(0);
    (
        number(&set["status"]["replicas"]),
        number(&set["status"]["readyReplicas"]),
        number(&set["spec"]["replicas"]),
    )
}
