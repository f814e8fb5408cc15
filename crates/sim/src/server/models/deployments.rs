//! The Deployment controller. A new template replaces the old pods at once instead of a few at a time.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::super::kinds::ServedKind;
use super::super::{ObjectKey, Server, meta};
use super::Requeue;
use super::replicas::counts;
use super::support::{ControllerUser, find, hash, kind, managed, own};

const USER: &str = "system:serviceaccount:kube-system:deployment-controller";
const REVISION: &str = "deployment.kubernetes.io/revision";
const HASH: &str = "pod-template-hash";

/// Brings its replica sets to what the Deployment says, and sums them up in its status.
pub(super) fn sync(server: &mut Server, now: Timestamp, key: &ObjectKey) -> Requeue {
    let who = ControllerUser::new(USER, now);
    let Some((deployments, deployment)) = find(server, "apps", "deployments", key) else {
        return Requeue::No;
    };
    let Some(sets) = kind(server, "apps", "replicasets") else { return Requeue::No };
    let paused = deployment["spec"]["paused"] == true;
    if !meta::deleting(&deployment) && scale(server, who, &sets, &deployment, paused).is_none() {
        return Requeue::AfterFailure;
    }
    let Some((_, deployment)) = find(server, "apps", "deployments", key) else { return Requeue::No };
    let mut numbers = Numbers::default();
    let own = hash(&deployment["spec"]["template"]);
    for set in managed(server, &sets, &deployment) {
        let (replicas, ready, _) = counts(&set);
        numbers.replicas += replicas;
        numbers.ready += ready;
        numbers.terminating += set["status"]["terminatingReplicas"].as_i64().unwrap_or(0);
        if meta::label(&set, HASH) == Some(own.as_str()) {
            numbers.updated += replicas;
            meta::name(&set).clone_into(&mut numbers.set);
        }
    }
    let done =
        who.status(server, &deployments, &deployment, |status| report(status, &deployment, &numbers, now));
    if done.is_ok() { Requeue::No } else { Requeue::AfterFailure }
}

#[derive(Default)]
struct Numbers {
    replicas: i64,
    ready: i64,
    updated: i64,
    terminating: i64,
    set: String,
}

fn revision_of(set: &Value) -> usize {
    set["metadata"]["annotations"][REVISION].as_str().and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Makes the ReplicaSet of the template if it is not there, and gives it all replicas; none if a write failed.
fn scale(
    server: &mut Server,
    who: ControllerUser,
    sets: &Arc<ServedKind>,
    deployment: &Value,
    paused: bool,
) -> Option<()> {
    let wanted = deployment["spec"]["replicas"].clone();
    let digest = hash(&deployment["spec"]["template"]);
    let current = managed(server, sets, deployment);
    let newest = current.iter().any(|set| meta::label(set, HASH) == Some(digest.as_str()));
    let others = current.iter().filter(|set| meta::label(set, HASH) != Some(digest.as_str()));
    let older = others.map(|set| revision_of(set)).max().unwrap_or(0);
    if !newest && !paused {
        let revision = older + 1;
        let mut template = deployment["spec"]["template"].clone();
        label(&mut template, &digest);
        let mut selector = deployment["spec"]["selector"].clone();
        meta::field(&mut selector, "matchLabels").insert(HASH.to_owned(), digest.as_str().into());
        let mut set = json!({
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {
                "name": format!("{}-{digest}", meta::name(deployment)),
                "labels": template["metadata"]["labels"],
                "annotations": {
                    "deployment.kubernetes.io/desired-replicas": wanted.to_string(),
                    "deployment.kubernetes.io/max-replicas": (wanted.as_i64().unwrap_or(1) + 1).to_string(),
                    REVISION: revision.to_string(),
                },
            },
            "spec": {"replicas": wanted, "selector": selector, "template": template},
        });
        own(&mut set, deployment, "apps/v1", "Deployment");
        who.create(server, sets, meta::namespace(deployment), set).ok()?;
        let deployments = kind(server, "apps", "deployments")?;
        note_revision(server, who, &deployments, deployment, &revision.to_string())?;
    }
    let newest = current.iter().find(|set| meta::label(set, HASH) == Some(digest.as_str()));
    if let Some(set) = newest.filter(|set| revision_of(set) <= older) {
        // It was rolled back to: that is a new revision.
        let revision = (older + 1).to_string();
        who.update(server, sets, set, |set| {
            set["metadata"]["annotations"][REVISION] = revision.as_str().into();
        })
        .ok()?;
        let deployments = kind(server, "apps", "deployments")?;
        note_revision(server, who, &deployments, deployment, &revision)?;
    } else if let Some(revision) = newest.and_then(|set| set["metadata"]["annotations"][REVISION].as_str())
        && deployment["metadata"]["annotations"][REVISION] != revision
    {
        let deployments = kind(server, "apps", "deployments")?;
        note_revision(server, who, &deployments, deployment, revision)?;
    }
    for set in current {
        let is_newest = meta::label(&set, HASH) == Some(digest.as_str());
        let replicas = if is_newest { wanted.clone() } else { json!(0) };
        let keeps = paused && !is_newest;
        if !keeps && set["spec"]["replicas"] != replicas {
            who.update(server, sets, &set, |set| set["spec"]["replicas"] = replicas).ok()?;
        }
    }
    Some(())
}

/// Together with the status: that does not count as a new generation.
fn note_revision(
    server: &mut Server,
    who: ControllerUser,
    kind: &Arc<ServedKind>,
    deployment: &Value,
    revision: &str,
) -> Option<()> {
    let noted = who.write(server, kind, deployment, "status", |deployment| {
        let annotations = meta::map(meta::of(deployment).entry("annotations").or_insert(Value::Null));
        annotations.insert(REVISION.to_owned(), revision.into());
    });
    noted.ok().map(drop)
}

fn label(template: &mut Value, digest: &str) {
    let labels = meta::map(meta::of(template).entry("labels").or_insert(Value::Null));
    labels.insert(HASH.to_owned(), digest.into());
}

fn report(status: &mut Map<String, Value>, deployment: &Value, numbers: &Numbers, now: Timestamp) {
    let wanted = deployment["spec"]["replicas"].as_i64().unwrap_or(1);
    let paused = deployment["spec"]["paused"] == true;
    // What has no replica set yet has nobody who wants pods.
    let context = if paused && numbers.set.is_empty() { 0 } else { wanted };
    status.insert("observedGeneration".to_owned(), deployment["metadata"]["generation"].clone());
    for (field, number) in [
        ("replicas", numbers.replicas),
        ("updatedReplicas", numbers.updated),
        ("readyReplicas", numbers.ready),
        ("availableReplicas", numbers.ready),
        ("unavailableReplicas", (context.max(numbers.replicas) - numbers.ready).max(0)),
    ] {
        if number == 0 {
            status.remove(field);
        } else {
            status.insert(field.to_owned(), number.into());
        }
    }
    status.insert("terminatingReplicas".to_owned(), numbers.terminating.into());
    // A quarter, rounded down, may be missing.
    let available = numbers.ready >= wanted - wanted / 4;
    let complete =
        numbers.updated >= wanted && numbers.ready >= wanted && numbers.replicas == numbers.updated;
    let set = &numbers.set;
    let first = if available {
        ("True", "MinimumReplicasAvailable", "Deployment has minimum availability.".to_owned())
    } else {
        ("False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability.".to_owned())
    };
    let second = if paused {
        ("Unknown", "DeploymentPaused", "Deployment is paused".to_owned())
    } else if complete {
        ("True", "NewReplicaSetAvailable", format!("ReplicaSet \"{set}\" has successfully progressed."))
    } else {
        ("True", "ReplicaSetUpdated", format!("ReplicaSet \"{set}\" is progressing."))
    };
    let old = status.get("conditions").cloned().unwrap_or_default();
    let mut both = [("Available", first), ("Progressing", second)];
    if paused && old[0]["type"] != "Available" {
        // It was paused when it was created: that is the first thing to be said of it.
        both.reverse();
    }
    let conditions = both.map(|(name, (state, reason, message))| {
        let known = old.as_array().into_iter().flatten().find(|c| c["type"] == name);
        let at = meta::seconds(now);
        let same = known.filter(|c| c["status"] == state && c["reason"] == reason);
        let transition =
            known.filter(|c| c["status"] == state).map_or(json!(at), |c| c["lastTransitionTime"].clone());
        json!({
            "type": name,
            "status": state,
            "lastUpdateTime": same.map_or(json!(at), |c| c["lastUpdateTime"].clone()),
            "lastTransitionTime": transition,
            "reason": reason,
            "message": message,
        })
    });
    status.insert("conditions".to_owned(), json!(conditions));
}
