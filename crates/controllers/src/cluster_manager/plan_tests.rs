use coppice_kinds::ClusterManagers;
use coppice_lifecycle::cluster::census::{Census, Counts};
use coppice_runtime::decode;
use serde_json::{Value, json};

use super::*;

fn manager(spec: &Value, status: &Value) -> Arc<ClusterManager> {
    let metadata = json!({"name": "ci", "uid": "u", "generation": 2, "resourceVersion": "1"});
    let object = json!({"metadata": metadata, "spec": spec, "status": status}).to_string();
    Arc::new(decode::item::<ClusterManagers>(&object, &()).unwrap().object.unwrap())
}

fn observation(manager: Arc<ClusterManager>, recorded: u32) -> Observation {
    let namespaces = NamespaceCounts { selected: 4, governed: 3, recorded, ..NamespaceCounts::default() };
    let counts = Counts { namespaces, ..Counts::default() };
    let managers = [("ci".to_owned(), counts)].into();
    let census = manager.spec.is_ok().then(|| Census { managers, ..Census::default() });
    Observation { managers: vec![manager], census, now: Timestamp::UNIX_EPOCH }
}

fn written(observation: &Observation) -> Option<(ClusterNamespaceManagerStatus, String)> {
    let write = plan(observation).writes.pop()?;
    let conditions = write.status.conditions.iter();
    let said = conditions.map(|c| format!("{} {} {}", c.type_, c.status, c.reason)).collect::<Vec<_>>();
    Some((*write.status, said.join(", ")))
}

#[test]
fn a_status_is_written_when_it_says_something_new() {
    let spec = json!({"selector": {"names": ["ci-*"]}});
    let (status, said) = written(&observation(manager(&spec, &json!({})), 2)).unwrap();
    assert_eq!(said, "Accepted True Accepted, Ready False RecordsPending");
    assert_eq!((status.namespaces.governed, status.observed_generation), (3, Some(2)));
    assert!(status.policy_digest.as_ref().unwrap().starts_with("c1:"));
    let again = manager(&spec, &serde_json::to_value(&status).unwrap());
    assert!(written(&observation(Arc::clone(&again), 2)).is_none(), "nothing is new");
    let (_, said) = written(&observation(again, 3)).unwrap();
    assert_eq!(said, "Accepted True Accepted, Ready True Reconciled");
}

#[test]
fn one_that_cannot_be_understood_says_so() {
    let broken = manager(&json!({"selector": {}}), &json!({}));
    let (status, said) = written(&observation(broken, 0)).unwrap();
    assert_eq!(said, "Accepted False InvalidSpec, Ready False InvalidSpec");
    let message = &status.conditions[0].message;
    assert!(message.contains("select by names or labels"), "{message}");
    let unreadable = manager(&json!({"selector": {"names": ["a"]}}), &json!({"namespaces": 3}));
    assert!(written(&observation(unreadable, 3)).is_none(), "the status of another version is left as it is");
}
