//! Whether the namespaces that the program of trees deletes are its own.

use coppice_sim::run::RunRecord;
use serde_json::Value;

use super::super::ACCOUNT;
use super::rule::{ASKED_FOR, CHILDREN, CREATED_HERE};
use crate::oracle::{DestructiveAction, DestructiveStep, Findings, History};

pub(super) fn check(
    record: &RunRecord<'_>,
    history: &History,
    steps: &[DestructiveStep<'_>],
    found: &mut Findings,
) {
    for step in steps.iter().filter(|step| step.action == DestructiveAction::Delete) {
        found.judges(CHILDREN);
        let (namespace, revision) = (step.namespace, step.change.revision - 1);
        let uid = history.uid_of(namespace, revision);
        // By what the API server had when it deleted: a namespace is created only after its parent was marked, and the deletion names
        // the revision from before.
        let below = history.list("namespaces", "", revision).into_iter().find(|other| {
            let labels = &other["metadata"]["labels"];
            labels["coppice.dev/parent"] == namespace
                && other["metadata"]["deletionTimestamp"].is_null()
                && created_by(history, other, namespace, revision).is_some()
        });
        if let Some(below) = below {
            let below = below["metadata"]["name"].as_str().unwrap_or_default();
            found.add(CHILDREN, &format!("{} with {below} below it", step.what()));
        }
        if &*step.change.user != ACCOUNT {
            continue;
        }
        found.judges(ASKED_FOR);
        found.judges(CREATED_HERE);
        let namespace = history.at("namespaces", "", namespace, revision);
        let parent =
            namespace.and_then(|namespace| namespace["metadata"]["labels"]["coppice.dev/parent"].as_str());
        let creator = namespace
            .zip(parent)
            .and_then(|(namespace, parent)| created_by(history, namespace, parent, revision));
        let asked = creator.is_some_and(|creator| {
            creator["metadata"]["deletionTimestamp"].is_string()
                && Some(&creator["status"]["namespaceUid"]) == uid
        });
        if creator.is_some_and(|creator| went_with_its_namespace(record, creator)) {
            let what = format!("{}, since the namespace above was, and nobody asked for it", step.what());
            found.add(ASKED_FOR, &what);
        }
        let mut created = record.changes.iter().filter(|change| change.before.is_none());
        let ours = created.any(|change| {
            Some(change.uid.as_ref()) == uid.and_then(Value::as_str) && &*change.user == ACCOUNT
        });
        let ours = ours || creator.is_some_and(|creator| was_adopted(record, uid, creator));
        if !asked || !ours {
            found.add(
                CREATED_HERE,
                &format!("{}, and no Subnamespace is deleted that created it", step.what()),
            );
        }
    }
}

/// Whether somebody else has marked a namespace, by its uid, as that of this `Subnamespace`.
fn was_adopted(record: &RunRecord<'_>, uid: Option<&Value>, creator: &Value) -> bool {
    let marked = |namespace: Option<&Value>| {
        namespace.is_some_and(|namespace| {
            namespace["metadata"]["labels"]["coppice.dev/subnamespace"] == creator["metadata"]["uid"]
        })
    };
    record.changes.iter().any(|change| {
        Some(&*change.uid) == uid.and_then(Value::as_str)
            && &*change.user != ACCOUNT
            && marked(change.after.as_deref())
            && !marked(change.before.as_deref())
    })
}

/// Deletes what is in a namespace that is being deleted.
const NAMESPACE_CONTROLLER: &str = "system:serviceaccount:kube-system:namespace-controller";

/// Whether a `Subnamespace` was deleted since the namespace was that it is in.
fn went_with_its_namespace(record: &RunRecord<'_>, creator: &Value) -> bool {
    let going = |object: &Value| object["metadata"]["deletionTimestamp"].is_string();
    let begins = |change: &&coppice_sim::server::Change| {
        creator["metadata"]["uid"] == *change.uid
            && change.before.as_deref().is_some_and(|before| !going(before))
            && change.after.as_deref().is_none_or(going)
    };
    record.changes.iter().find(begins).is_some_and(|change| &*change.user == NAMESPACE_CONTROLLER)
}

/// The `Subnamespace` that created a namespace.
fn created_by<'a>(history: &'a History, namespace: &Value, parent: &str, revision: u64) -> Option<&'a Value> {
    let metadata = &namespace["metadata"];
    let creator = history.at("subnamespaces", parent, metadata["name"].as_str()?, revision)?;
    (creator["metadata"]["uid"] == metadata["labels"]["coppice.dev/subnamespace"]).then_some(creator)
}
