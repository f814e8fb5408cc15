//! The StatefulSet controller: pods with numbers, one after the other.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::kinds::ServedKind;
use super::super::{ObjectKey, Server, meta};
use super::Requeue;
use super::support::{ControllerUser, count, find, hash, is, kind, managed, pod_of};

const USER: &str = "system:serviceaccount:kube-system:statefulset-controller";

/// Makes or deletes the pod whose turn it is, and says in the status how many there are.
pub(super) fn sync(server: &mut Server, now: Timestamp, key: &ObjectKey) -> Requeue {
    let who = ControllerUser::new(USER, now);
    let Some((sets, set)) = find(server, "apps", "statefulsets", key) else { return Requeue::No };
    let Some(pods) = kind(server, "", "pods") else { return Requeue::No };
    if !meta::deleting(&set) && scale(server, who, &pods, &set).is_none() {
        return Requeue::AfterFailure;
    }
    let all = managed(server, &pods, &set);
    let ready = all.iter().filter(|p| is(p, "Ready") && !meta::deleting(p)).count();
    let revision = revision(&set);
    let done = who.status(server, &sets, &set, |status| {
        status.insert("observedGeneration".to_owned(), set["metadata"]["generation"].clone());
        status.insert("replicas".to_owned(), json!(all.len()));
        status.insert("availableReplicas".to_owned(), json!(ready));
        count(status, "readyReplicas", ready);
        count(status, "currentReplicas", all.len());
        count(status, "updatedReplicas", all.len());
        for field in ["currentRevision", "updateRevision"] {
            status.insert(field.to_owned(), revision.as_str().into());
        }
        status.insert("collisionCount".to_owned(), json!(0));
    });
    if done.is_ok() { Requeue::No } else { Requeue::AfterFailure }
}

fn revision(set: &Value) -> String {
    format!("{}-{}", meta::name(set), hash(&set["spec"]["template"]))
}

/// None if a write failed.
fn scale(server: &mut Server, who: ControllerUser, pods: &Arc<ServedKind>, set: &Value) -> Option<()> {
    let wanted = usize::try_from(set["spec"]["replicas"].as_i64().unwrap_or(1)).unwrap_or(0);
    let ordered = set["spec"]["podManagementPolicy"] != "Parallel";
    let existing = managed(server, pods, set);
    let number = |pod: &Value| -> Option<usize> { meta::name(pod).rsplit('-').next()?.parse().ok() };
    for ordinal in 0..wanted {
        let found = existing.iter().find(|p| number(p) == Some(ordinal));
        let fine = match found {
            // One that has ended is made again.
            Some(pod) if matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed")) => {
                if !meta::deleting(pod) {
                    who.delete(server, pods, pod).ok()?;
                }
                false
            }
            Some(pod) => is(pod, "Ready") && !meta::deleting(pod),
            None => {
                let pod = numbered(set, ordinal);
                who.create(server, pods, meta::namespace(set), pod).ok()?;
                false
            }
        };
        if ordered && !fine {
            return Some(());
        }
    }
    let mut surplus: Vec<_> = existing.iter().filter(|p| number(p).is_some_and(|n| n >= wanted)).collect();
    surplus.sort_by_key(|pod| std::cmp::Reverse(number(pod)));
    for pod in surplus {
        if !meta::deleting(pod) {
            who.delete(server, pods, pod).ok()?;
        }
        if ordered {
            break;
        }
    }
    Some(())
}

fn numbered(set: &Value, ordinal: usize) -> Value {
    let mut pod = pod_of(set, "apps/v1", "StatefulSet");
    let name = format!("{}-{ordinal}", meta::name(set));
    let labels = meta::map(meta::of(&mut pod).entry("labels").or_insert(Value::Null));
    for (label, value) in [
        ("apps.kubernetes.io/pod-index", ordinal.to_string()),
        ("controller-revision-hash", revision(set)),
        ("statefulset.kubernetes.io/pod-name", name.clone()),
    ] {
        labels.insert(label.to_owned(), value.into());
    }
    let spec = meta::field(&mut pod, "spec");
    spec.insert("hostname".to_owned(), name.as_str().into());
    meta::set(&mut pod, "name", name);
    pod
}
