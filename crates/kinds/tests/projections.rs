//! What is kept of objects, whatever is in them.
#![allow(clippy::unwrap_used, reason = "test code")]

use coppice_api::Reason;
use coppice_kinds::{
    Configs, CopiedKind, DecidedIn, DeletedNamespaces, Jobs, LimitRanges, Manager, Managers, Namespaces,
    NetworkPolicies, Pods, RoleBindings, Subnamespaces, TreeQuotaWire, TreeQuotas,
};
use coppice_lifecycle::facts::{AnnotationKeys, AnnotationNotRead, JobState, PodPhase};
use coppice_runtime::decode::{Event, Item, MAX_KEPT_BYTES, ObjectRef, event, item, page};
use coppice_runtime::kind::Kind;
use jiff::Timestamp;
use serde_json::{Value, json};

fn read<K: Kind>(object: &Value) -> Item<K::Object> {
    item::<K>(&object.to_string(), &K::Context::default()).unwrap()
}

fn reason<T>(item: &Item<T>) -> Option<Reason> {
    item.object.as_ref().err().map(|unreadable| unreadable.reason)
}

/// A time that the API server accepts, and that is out of our range.
const LAST: &str = "9999-12-31T23:59:59Z";

fn labels(bytes: usize) -> Value {
    // Each has 12 bytes with its two ends.
    let pairs = (0..bytes / 12).map(|n| (format!("k{n:08}"), json!("v")));
    pairs.collect::<serde_json::Map<_, _>>().into()
}

/// Records of before there was a choice say no kind, and the API server adds the default.
#[test]
fn a_record_of_a_deletion_says_where_its_decision_stands() {
    for (kind, expected) in [
        (json!(null), DecidedIn::NamespaceManager("m")),
        (json!("NamespaceManager"), DecidedIn::NamespaceManager("m")),
        (json!("ClusterNamespaceManager"), DecidedIn::ManagedNamespace),
        (json!("NamespaceTree"), DecidedIn::Unknown),
    ] {
        let spec = json!({"namespace": "n", "uid": "u", "manager": "m", "managerKind": kind,
            "attemptedAt": "2026-01-01T00:00:00Z"});
        let record = read::<DeletedNamespaces>(&json!({"metadata": {"name": "fire-1"}, "spec": spec}));
        assert_eq!(record.object.unwrap().spec.unwrap().decided_in(), expected, "{kind}");
    }
}

#[test]
fn of_a_subnamespace_no_room_is_kept_for_conditions_that_it_does_not_have() {
    let ready = json!({"type": "Ready", "status": "True", "reason": "Reconciled", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let written =
        json!({"metadata": {"name": "a", "namespace": "n"}, "spec": {}, "status": {"conditions": [ready]}});
    let mut object = read::<Subnamespaces>(&written).object.unwrap();
    Subnamespaces::compact(&mut object);
    assert_eq!(object.status_error, None);
    assert_eq!((object.status.conditions.len(), object.status.conditions.capacity()), (1, 1));
}

#[test]
fn unused_fields_of_an_object_are_not_decoded() {
    let odd = json!({"name": "j", "namespace": "n", "uid": "u", "creationTimestamp": LAST, "labels": {"a": "b"},
        "annotations": {"a": 7}, "managedFields": 1, "deletionTimestamp": LAST});
    let template = json!({"metadata": {"creationTimestamp": LAST, "name": "x", "labels": {"c": "d"}}});
    let status = json!({"succeeded": 3, "startTime": LAST, "conditions": [{"type": "Complete", "status": "True",
        "lastProbeTime": LAST}]});
    let job = read::<Jobs>(&json!({"metadata": odd, "spec": {"template": template}, "status": status}));
    let job = job.object.unwrap();
    assert_eq!((job.state, job.succeeded, job.terminating), (JobState::Complete, 3, true));
    assert_eq!(job.pod_labels.iter().collect::<Vec<_>>(), [("c", "d")]);
    let status = json!({"phase": "Succeeded", "startTime": LAST, "podIPs": 5});
    let spec = json!({"containers": "odd", "volumes": [{"name": 7, "emptyDir": "odd"}]});
    let pod = json!({"metadata": {"name": "p", "creationTimestamp": LAST}, "spec": spec, "status": status});
    assert_eq!(read::<Pods>(&pod).object.unwrap().phase, PodPhase::Succeeded);
    let spec = json!({"policies": [{"name": "p", "when": {"ttl": {"after": "1h"}}, "then": {"delete": {}}}]});
    let manager = read::<Managers>(&json!({"metadata": odd, "spec": spec})).object.unwrap();
    assert!(manager.decoded().is_ok() && manager.terminating);
    let config = read::<Configs>(&json!({"metadata": odd, "spec": {}})).object.unwrap();
    assert!(config.decoded().is_ok());
}

#[test]
fn a_namespace_whose_creation_cannot_be_read_was_created_at_the_end_of_time() {
    for created in [json!(LAST), json!(null), json!("yesterday")] {
        let metadata = json!({"name": "a", "creationTimestamp": created, "labels": null});
        let facts = read::<Namespaces>(&json!({"metadata": metadata})).object.unwrap();
        assert_eq!(facts.created, Timestamp::MAX, "{created}");
    }
}

#[test]
fn of_the_annotations_of_a_namespace_those_are_kept_that_are_asked_for() {
    let long = "x".repeat(1 << 20);
    let annotations = json!({"example.org/ttl": "2h", "kubectl.kubernetes.io/last-applied-configuration": long,
        "odd": "a\u{0}example.org/ci\u{0}b", "long": long});
    let object = json!({"metadata": {"name": "a", "annotations": annotations}});
    let read = |keys: &[&str], object: &Value| {
        item::<Namespaces>(&object.to_string(), &AnnotationKeys::named(keys.iter().copied())).unwrap().object
    };
    let none = read(&[], &object).unwrap().annotations;
    assert_eq!(
        (none.bytes(), none.get("example.org/ttl")),
        (0, Err(AnnotationNotRead { key: "example.org/ttl" }))
    );
    let some = read(&["example.org/ttl", "example.org/ci", "odd"], &object).unwrap().annotations;
    assert_eq!(some.get("example.org/ttl"), Ok(Some("2h")));
    assert_eq!(some.get("example.org/ci"), Ok(None), "it was looked for");
    assert_eq!(some.get("long"), Err(AnnotationNotRead { key: "long" }));
    let cut = read(&["long"], &object).unwrap().annotations;
    assert_eq!(cut.bytes(), "long".len() + 257, "one character more than can be asked for");
    for annotations in [json!(null), json!({})] {
        let empty = read(&["odd"], &json!({"metadata": {"name": "a", "annotations": annotations}})).unwrap();
        assert_eq!(empty.annotations.get("odd"), Ok(None), "{annotations}");
    }
    let tracked = json!({"metadata": {"name": "a", "annotations": {"argocd.argoproj.io/tracking-id": long}}});
    let tracked = read(&[], &tracked).unwrap().annotations;
    assert_eq!(
        (tracked.tracked_by_argo_cd(), tracked.bytes()),
        (true, 0),
        "of one it is kept whether it is there"
    );
    // Whoever may annotate a namespace makes it unreadable for nobody, however many are asked for.
    let keys: Vec<_> = (0..40).map(|n| format!("key-{n:02}")).collect();
    let all: serde_json::Map<_, _> = keys.iter().map(|key| (key.clone(), json!(long))).collect();
    let large = json!({"metadata": {"name": "a", "annotations": all}});
    let keys: Vec<_> = keys.iter().map(String::as_str).collect();
    assert_eq!(read(&keys, &large).unwrap().annotations.bytes(), 40 * 263);
}

#[test]
fn what_cannot_be_decoded_says_where_it_is_and_stops_no_other() {
    let good = json!({"metadata": {"name": "good", "namespace": "n"}});
    let odd = json!({"metadata": {"name": "odd", "namespace": "n", "resourceVersion": "7"}, "status": {"succeeded": -1}});
    let nameless = json!({"metadata": {"namespace": 5}});
    let list =
        json!({"metadata": {"resourceVersion": "9", "continue": ""}, "items": [good, odd, nameless, good]});
    let page = page::<Jobs>(list.to_string().as_bytes(), &()).unwrap();
    assert_eq!((&*page.revision, &page.token), ("9", &None));
    let reasons: Vec<_> = page.items.iter().map(reason).collect();
    assert_eq!(reasons, [None, Some(Reason::Undecodable), Some(Reason::Undecodable), None]);
    let object_ref = ObjectRef { namespace: "n".into(), name: "odd".into(), revision: "7".into() };
    assert_eq!(page.items[1].object_ref, object_ref);
    assert_eq!(page.items[2].object_ref, ObjectRef::default());
    let said = page.items[1].object.as_ref().unwrap_err().to_string();
    let expected = "odd cannot be decoded (invalid value: integer `-1`, expected u32); change or delete it";
    assert_eq!(said, expected);
}

#[test]
fn labels_are_kept_up_to_a_size() {
    let pod = |bytes| read::<Pods>(&json!({"metadata": {"name": "x", "labels": labels(bytes)}}));
    let whole = MAX_KEPT_BYTES / 12 * 12;
    assert_eq!(pod(whole).object.unwrap().labels.iter().count(), MAX_KEPT_BYTES / 12);
    assert_eq!(reason(&pod(whole + 12)), Some(Reason::TooLarge));
    let metadata = json!({"name": "x", "labels": labels(1_200_000)});
    assert_eq!(reason(&read::<Namespaces>(&json!({"metadata": metadata}))), Some(Reason::TooLarge));
    // Those of a Job matter as far as its pods get them.
    let job = read::<Jobs>(&json!({"metadata": metadata}));
    assert_eq!(reason(&job), None);
    let job = read::<Jobs>(&json!({"metadata": {"name": "x"}, "spec": {"template": {"metadata": metadata}}}));
    assert_eq!(reason(&job), Some(Reason::TooLarge));
    let said = job.object.unwrap_err().to_string();
    assert!(
        said.contains("x has more than 8192 bytes of labels in its pod template") && said.len() < 200,
        "{said}"
    );
}

#[test]
fn a_pod_belongs_to_a_job_of_the_group_batch_that_controls_it() {
    let job = |version: &str, controller: Value, uid: &str| {
        let owner = json!({"apiVersion": version, "kind": "Job", "uid": uid, "controller": controller});
        read::<Pods>(&json!({"metadata": {"name": "p", "ownerReferences": [owner]}})).object.unwrap().job
    };
    assert_eq!(job("batch/v1", json!(true), "u").as_deref(), Some("u"));
    assert_eq!(job("batch.example.org/v1", json!(true), "u"), None);
    assert_eq!(job("v1", json!(true), "u"), None);
    assert_eq!(job("batch/v1", json!(null), "u"), None);
    assert_eq!(job("batch/v1", json!(true), &"u".repeat(1_000_000)).as_deref(), Some(""), "of no Job");
}

#[test]
fn an_undecodable_manager_exists_and_has_no_policies() {
    let metadata = json!({"name": "coppice", "uid": "u", "generation": "odd"});
    let config = read::<Configs>(&json!({"metadata": metadata, "spec": {}})).object.unwrap();
    assert!(config.decoded().is_err() && config.status_error.is_some());
    let long = "x".repeat(200_000);
    let spec =
        json!({"policies": [{"name": long, "when": {"ttl": {"after": "1h"}}, "then": {"delete": {}}}]});
    let manager = read::<Managers>(&json!({"metadata": {"name": "m"}, "spec": spec})).object.unwrap();
    let why = manager.decoded().unwrap_err().to_string();
    assert!(
        why.starts_with("spec has 200")
            && why.ends_with("bytes, more than the 131072 that are read: shorten it"),
        "{why}"
    );
    // What a tenant wrote is not quoted at any length.
    let manager =
        read::<Managers>(&json!({"metadata": {"name": "m"}, "spec": "y".repeat(100_000)})).object.unwrap();
    assert!(manager.decoded().unwrap_err().to_string().len() < 300);
}

#[test]
fn events_are_decoded_in_whatever_order_their_fields_are() {
    let object =
        r#"{"metadata":{"name":"x","namespace":"n","resourceVersion":"5"},"status":{"succeeded":"odd"}}"#;
    let of = |kind: &str| event::<Jobs>(format!(r#"{{"object":{object},"type":"{kind}"}}"#).as_bytes(), &());
    let object_ref = ObjectRef { namespace: "n".into(), name: "x".into(), revision: "5".into() };
    assert!(
        matches!(of("MODIFIED"), Ok(Event::Changed(item)) if item.object_ref == object_ref && item.object.is_err())
    );
    assert!(matches!(of("DELETED"), Ok(Event::Deleted(gone)) if gone == object_ref));
    assert!(matches!(of("BOOKMARK"), Ok(Event::Bookmark(revision)) if &*revision == "5"));
    assert!(of("OTHER").is_err());
    let error = br#"{"type":"ERROR","object":{"kind":"Status","code":410}}"#;
    assert!(matches!(event::<Jobs>(error, &()), Ok(Event::Error(status)) if status.code == 410));
}

#[test]
fn a_cache_keeps_how_many_workloads_are_scaled_down_and_not_which() {
    let workload =
        |n: u32| json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": format!("d{n}"), "uid": "u"});
    let status = json!({"scaledDown": (0..3).map(workload).collect::<Vec<_>>()});
    let metadata = json!({"name": "m", "namespace": "n", "uid": "u", "resourceVersion": "1"});
    let manager =
        read::<Managers>(&json!({"metadata": metadata, "spec": {"policies": []}, "status": status}));
    let mut manager = manager.object.unwrap();
    let listed = |manager: &Manager| manager.status.steps.scaled_down.listed().map(<[_]>::len);
    assert_eq!((manager.status.steps.scaled_down.len(), listed(&manager)), (3, Some(3)));
    Managers::compact(&mut manager);
    assert_eq!((manager.status.steps.scaled_down.len(), listed(&manager)), (3, None));
}

#[test]
fn the_quota_of_a_tree_is_read_with_its_ledger_or_says_why_not() {
    let quota = |labels: Value, ledger: &str| {
        let metadata = json!({"name": "coppice", "namespace": "n", "uid": "u", "resourceVersion": "1", "labels": labels,
            "annotations": {"coppice.dev/ledger": ledger}});
        let limits = json!({"hard": {"pods": "3"}, "used": {"pods": "1"}});
        read::<TreeQuotas>(&json!({"metadata": metadata, "spec": {"hard": {"pods": "4"}}, "status": limits}))
    };
    let tree = json!({"coppice.dev/tree": "shop"});
    let whole =
        quota(tree.clone(), r#"{"allotment": {"pods": "6"}, "given": {"pods": "2"}}"#).object.unwrap();
    assert_eq!(whole.tree.as_deref(), Some("shop"));
    let read = whole.quota.unwrap();
    assert!(read.is_as_recorded());
    assert_eq!((read.own().to_string(), read.unused().to_string()), ("4 pods".into(), "3 pods".into()));
    // It is there, and nothing is decided about it.
    for (ledger, said) in
        [("", "coppice.dev/ledger"), ("{}", "missing field"), (r#"{"allotment": 1}"#, "invalid")]
    {
        let why = quota(tree.clone(), ledger).object.unwrap().quota.unwrap_err().to_string();
        assert!(why.contains(said), "{why}");
    }
    assert_eq!(quota(json!({}), "{}").object.unwrap().tree, None);
    let other: TreeQuotaWire = serde_json::from_value(json!({"metadata": {"name": "theirs"}})).unwrap();
    assert!(!TreeQuotas::keep(&other, &()));
}

#[test]
fn an_amount_of_a_quota_that_is_there_under_two_names_is_not_as_it_is_recorded() {
    let quota = |spec: Value, status: Value| {
        let ledger = json!({"allotment": {"cpu": "4", "pods": "3"}, "given": {}}).to_string();
        let metadata = json!({"name": "coppice", "namespace": "n", "uid": "u", "resourceVersion": "1",
            "labels": {"coppice.dev/tree": "shop"}, "annotations": {"coppice.dev/ledger": ledger}});
        let status = json!({"hard": status, "used": {"cpu": "1", "requests.cpu": "2"}});
        let quota = json!({"metadata": metadata, "spec": {"hard": spec}, "status": status});
        read::<TreeQuotas>(&quota).object.unwrap()
    };
    for cpu in ["4", "3", "5"] {
        let hard = json!({"cpu": "4", "requests.cpu": cpu, "pods": "3"});
        let read = quota(hard, json!({"cpu": "9", "requests.cpu": "8"}));
        assert_eq!(read.aliases[..], [Box::<str>::from("requests.cpu")], "{cpu}");
        let read = read.quota.unwrap();
        assert!(!read.is_as_recorded(), "{cpu}");
        let counted = (read.hard.to_string(), read.enforced.to_string(), read.used.to_string());
        assert_eq!(counted, ("3 pods".into(), "8 cpu".into(), "2 cpu".into()), "both limits hold");
    }
    let read = quota(json!({"requests.cpu": "4", "pods": "3"}), json!({}));
    assert!(read.quota.unwrap().is_as_recorded(), "under another name it is the same quota");
    assert_eq!(quota(json!({"cpu": "4", "pods": "3"}), json!({})).aliases.len(), 0);
}

#[test]
fn of_a_role_binding_what_a_copy_has_of_it_is_kept() {
    let binding = |metadata: &Value, kind: &str, subjects: Value| {
        let mut all = json!({"name": "b", "namespace": "n", "uid": "u", "resourceVersion": "3"});
        for (key, value) in metadata.as_object().into_iter().flatten() {
            all[key] = value.clone();
        }
        let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": "admin"});
        read::<RoleBindings>(&json!({"metadata": all, "roleRef": role, "subjects": subjects})).object.unwrap()
    };
    let user = |name: &str| json!([{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}]);
    let source =
        binding(&json!({"labels": {"team": "a"}, "annotations": {"a": "b"}}), "ClusterRole", user("alice"));
    assert_eq!((source.cluster_role.as_deref(), source.origin.as_ref()), (Some("admin"), None));
    let content: Value = serde_json::from_str(source.content.as_deref().unwrap()).unwrap();
    assert_eq!((&content["roleRef"]["name"], &content["subjects"]), (&json!("admin"), &user("alice")));
    // A copy has the same, and says of what.
    let metadata = source.copy_metadata();
    let copy = binding(&metadata, "ClusterRole", user("alice"));
    assert_eq!(copy.content, source.content);
    let origin = copy.origin.unwrap();
    assert_eq!((&*origin.namespace, &*origin.uid), ("n", "u"));
    assert!(!metadata.to_string().contains("team"), "{metadata}");
    // Somebody has taken the annotation away: it is still ours.
    let bare = binding(&json!({"labels": metadata["labels"]}), "ClusterRole", user("alice"));
    assert_eq!(&*bare.origin.unwrap().uid, "");
    // Nothing is copied of these.
    let of_role = binding(&json!({}), "Role", user("alice"));
    assert_eq!((of_role.cluster_role, of_role.content), (None, None));
    let large = binding(&json!({}), "ClusterRole", user(&"a".repeat(MAX_KEPT_BYTES)));
    assert_eq!((large.cluster_role.as_deref(), large.content), (Some("admin"), None));
}

#[test]
fn of_a_limit_range_and_a_network_policy_the_spec_is_kept() {
    let spec = json!({"podSelector": {"matchLabels": {"a": "b"}}, "policyTypes": ["Ingress"]});
    let metadata = json!({"name": "deny", "namespace": "n", "uid": "u", "resourceVersion": "3", "labels": {"team": "a"}});
    let of = |spec: &Value| json!({"metadata": metadata, "spec": spec});
    let network = read::<NetworkPolicies>(&of(&spec)).object.unwrap();
    let limits = read::<LimitRanges>(&of(&spec)).object.unwrap();
    assert_eq!((network.kind, limits.kind), (CopiedKind::NetworkPolicy, CopiedKind::LimitRange));
    for source in [&network, &limits] {
        let content: Value = serde_json::from_str(source.content.as_deref().unwrap()).unwrap();
        assert_eq!((content, source.origin.as_ref()), (json!({"spec": spec}), None));
    }
    let mut copy = of(&spec);
    copy["metadata"] = network.copy_metadata();
    for (key, value) in [("name", "deny"), ("namespace", "below"), ("uid", "v"), ("resourceVersion", "4")] {
        copy["metadata"][key] = json!(value);
    }
    let copy = read::<NetworkPolicies>(&copy).object.unwrap();
    assert_eq!((copy.content, &*copy.origin.unwrap().uid), (network.content, "u"));
    let large = read::<LimitRanges>(&of(&json!({"limits": "a".repeat(MAX_KEPT_BYTES)}))).object.unwrap();
    assert_eq!(large.content, None);
}
