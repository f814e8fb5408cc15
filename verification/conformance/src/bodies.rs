//! Objects to ask with: right ones of every kind, and wrong ones.

use std::sync::LazyLock;

use coppice_runtime::clock::SeededRng;
use coppice_schema::mutate;
use serde_json::{Map, Value, json};

use super::generate::Choices;

/// A resource that sequences are about.
#[derive(Debug)]
pub(super) struct Resource {
    pub(super) kind: &'static str,
    pub(super) api_version: &'static str,
    pub(super) plural: &'static str,
    pub(super) namespaced: bool,
    pub(super) scale: bool,
    /// How often it is drawn, compared with others.
    pub(super) weight: usize,
}

const fn resource(
    api_version: &'static str,
    plural: &'static str,
    kind: &'static str,
    weight: usize,
) -> Resource {
    Resource { kind, api_version, plural, namespaced: true, scale: false, weight }
}

pub(super) const RESOURCES: &[Resource] = &[
    resource("v1", "configmaps", "ConfigMap", 10),
    resource("v1", "secrets", "Secret", 4),
    resource("v1", "events", "Event", 2),
    resource("events.k8s.io/v1", "events", "Event", 2),
    resource("coordination.k8s.io/v1", "leases", "Lease", 5),
    resource("v1", "pods", "Pod", 6),
    resource("v1", "resourcequotas", "ResourceQuota", 2),
    Resource { scale: true, ..resource("apps/v1", "deployments", "Deployment", 4) },
    resource("batch/v1", "jobs", "Job", 3),
    resource("coppice.dev/v1alpha1", "namespacemanagers", "NamespaceManager", 10),
    Resource { namespaced: false, ..resource("coppice.dev/v1alpha1", "coppiceconfigs", "CoppiceConfig", 0) },
];

impl Resource {
    /// The path of its collection.
    pub(super) fn path(&self) -> String {
        let root = if self.api_version.contains('/') { "apis" } else { "api" };
        let namespace = if self.namespaced { "/namespaces/${ns}" } else { "" };
        format!("/{root}/{}{namespace}/{}", self.api_version, self.plural)
    }

    pub(super) fn is_custom(&self) -> bool {
        self.api_version.starts_with("coppice.dev/")
    }

    /// Whether other controllers write to its objects.
    pub(super) fn is_controlled(&self) -> bool {
        matches!(self.kind, "Deployment" | "Job" | "ResourceQuota")
    }

    /// An object that the API server accepts.
    pub(super) fn object(&self, name: &str, choices: &mut Choices) -> Value {
        let mut object = json!({
            "apiVersion": self.api_version,
            "kind": self.kind,
            "metadata": {"name": name, "labels": {"of": "${ns}", "color": choices.of(&["red", "blue"])}},
        });
        if choices.one_in(4) {
            object["metadata"]["annotations"] = json!({"x.io/note": choices.of(&["a", "b"])});
        }
        for (field, value) in self.content(name, choices) {
            object[field] = value;
        }
        object
    }

    /// Everything but type and metadata.
    fn content(&self, name: &str, choices: &mut Choices) -> Map<String, Value> {
        let content = match self.kind {
            "ConfigMap" => json!({"data": {"a": choices.of(&["1", "2", "3"]), "b": "x"}}),
            "Secret" => match choices.below(3) {
                0 => json!({"stringData": {"token": choices.of(&["s3cret", "other"])}}),
                1 => json!({"data": {"token": choices.of(&["c2VjcmV0", "b3RoZXI="])}, "type": "x.io/token"}),
                _ => json!({"data": {"token": "c2VjcmV0"}}),
            },
            "Event" => event(self.api_version, choices),
            "Lease" => json!({"spec": {
                "holderIdentity": choices.of(&["a", "b"]), "leaseDurationSeconds": choices.below(20) + 1,
                "renewTime": "2001-02-03T04:05:06.789012Z", "leaseTransitions": choices.below(3),
            }}),
            "Pod" => json!({"spec": pod(choices)}),
            // What is counted does not occur: nobody has to wait for the quota controller to count it.
            "ResourceQuota" => {
                json!({"spec": {"hard": {"services": choices.of(&["5", "6"]), "persistentvolumeclaims": "3"}}})
            }
            "Deployment" => json!({"spec": {
                "replicas": 0,
                "selector": {"matchLabels": {"app": name}},
                "template": {"metadata": {"labels": {"app": name}}, "spec": pod(choices)},
            }}),
            "Job" => {
                let mut spec = pod(choices);
                spec["restartPolicy"] = json!("Never");
                json!({"spec": {"suspend": true, "backoffLimit": choices.below(3), "template": {"spec": spec}}})
            }
            "NamespaceManager" => json!({"spec": manager(choices)}),
            "CoppiceConfig" => json!({"spec": config(choices)}),
            _ => json!({}),
        };
        match content {
            Value::Object(map) => map,
            _ => Map::new(),
        }
    }

    /// A custom resource that is wrong by its schema, or nearly so.
    pub(super) fn mutant(&self, name: &str, choices: &mut Choices) -> Value {
        let object = self.object(name, choices);
        let schema = schema(self.plural);
        let mut of_object = SeededRng::new(choices.next_u64());
        let mutated = mutate::pick(&schema, &object, || of_object.next_u64(), 1).pop();
        mutated.map_or(object, |mutation| mutation.value)
    }

    /// What a status may be set to.
    pub(super) fn status(&self, choices: &mut Choices) -> Value {
        match self.kind {
            "Pod" => json!({
                "phase": choices.of(&["Pending", "Running", "Failed"]), "message": "as given",
                "conditions": [{"type": "x.io/Given", "status": choices.of(&["True", "False"])}],
            }),
            "ResourceQuota" => json!({"hard": {"pods": "7"}}),
            "NamespaceManager" => json!({"observedGeneration": choices.below(3), "conditions": [{
                "type": "Ready", "status": choices.of(&["True", "False", "Perhaps"]), "reason": "Noted",
                "message": "", "lastTransitionTime": "2001-02-03T04:05:06Z",
            }]}),
            "CoppiceConfig" => json!({"observedGeneration": choices.below(3), "version": "1"}),
            _ => json!({"observedGeneration": 0}),
        }
    }
}

fn event(api_version: &str, choices: &mut Choices) -> Value {
    let about = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": choices.of(&["a", "b"]), "namespace": "${ns}"});
    if api_version == "v1" {
        let time = "2001-02-03T04:05:06Z";
        return json!({
            "involvedObject": about, "reason": "Noted", "message": "it is noted", "type": "Normal",
            "count": choices.below(5) + 1, "firstTimestamp": time, "lastTimestamp": time,
            "source": {"component": "conformance"},
        });
    }
    json!({
        "regarding": about, "reason": "Noted", "note": "it is noted", "type": choices.of(&["Normal", "Warning"]),
        "action": "Note", "eventTime": "2001-02-03T04:05:06.789012Z",
        "reportingController": "coppice.dev/conformance", "reportingInstance": "one",
    })
}

/// A pod that no scheduler cares for: nothing happens to it but what is asked for.
fn pod(choices: &mut Choices) -> Value {
    json!({
        "schedulerName": "nobody",
        "automountServiceAccountToken": false,
        "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "main", "image": choices.of(&["busybox", "busybox:1", "x.io/a/b:latest"])}],
    })
}

fn manager(choices: &mut Choices) -> Value {
    let when = match choices.below(3) {
        0 => json!({"ttl": {"after": choices.of(&["1h", "2d", "90m"])}}),
        1 => json!({"podsSucceed": {}}),
        _ => json!({"podsSucceed": {"selector": {"matchLabels": {"app": "a"}}}}),
    };
    let then = match choices.below(3) {
        0 => json!({"delete": {}}),
        1 => json!({"delete": {"notice": "5m"}}),
        _ => json!({"scaleDown": {}}),
    };
    let mut spec = json!({"policies": [{"name": "one", "when": when, "then": then}]});
    if choices.one_in(3) {
        spec["suspend"] = json!(true);
    }
    spec
}

fn config(choices: &mut Choices) -> Value {
    let mut spec = json!({"governor": {"perHour": choices.below(90) + 10}});
    if choices.one_in(2) {
        spec["protected"] = json!({"names": ["guarded-*"]});
    }
    spec
}

/// The schema of one of our kinds.
fn schema(plural: &str) -> Value {
    static SCHEMAS: LazyLock<Vec<Value>> = LazyLock::new(|| {
        coppice_api::crds().into_iter().map(|crd| serde_json::to_value(crd).unwrap_or_default()).collect()
    });
    let found = SCHEMAS.iter().find(|crd| crd["spec"]["names"]["plural"] == plural);
    found.map(|crd| crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone()).unwrap_or_default()
}

/// Puts something wrong into the part of an object that all kinds share.
pub(super) fn corrupt(object: &mut Value, choices: &mut Choices) {
    let (field, value) = match choices.below(17) {
        0 => ("name", json!("Not_A_Name")),
        1 => ("name", json!("")),
        2 => ("name", json!(7)),
        3 => ("labels", json!({"a b": "c"})),
        4 => ("labels", json!({"a": "b c"})),
        5 => ("labels", json!({"a": 1})),
        6 => ("labels", json!("text")),
        7 => ("annotations", choices.of(&[json!({"x/y/z": "c"}), json!({"-": "d"})])),
        8 => ("finalizers", json!(["plain"])),
        9 => ("finalizers", json!(["a b/c", "x.io/y"])),
        10 => ("namespace", json!("elsewhere")),
        11 => ("resourceVersion", json!("1")),
        12 => ("resourceVersion", json!("soon")),
        13 => ("unknown", json!({"a": 1})),
        14 => ("ownerReferences", json!([{"apiVersion": "v1", "kind": "", "name": "x", "uid": ""}])),
        15 => ("uid", json!("00000000-0000-4000-8000-00000000abcd")),
        _ => ("generation", json!("many")),
    };
    match choices.below(8) {
        0 => object["kind"] = json!(choices.of(&["Lease", "Nothing", ""])),
        1 => object["apiVersion"] = json!(choices.of(&["v1", "v2", "x.io/v1", ""])),
        2 => object["unknown"] = json!({"a": [1]}),
        _ => object["metadata"][field] = value,
    }
}

/// Puts something wrong into a built-in object that only its kind has. Not every field of every kind is checked in
/// memory: these are the ones that are.
pub(super) fn corrupt_content(object: &mut Value, choices: &mut Choices) {
    match object["kind"].as_str() {
        Some("ConfigMap") => {
            let wrong = [json!({"a b": "x"}), json!({"a": 1}), json!("text"), json!([]), json!({"": "x"})];
            object["data"] = wrong[choices.below(wrong.len())].clone();
        }
        Some("Secret") => {
            object["data"] = choices.of(&[json!({"a b": "eA=="}), json!({"a": "no base64!"})]);
        }
        Some("Lease") => {
            let (field, value) = choices.of(&[
                ("leaseDurationSeconds", json!(0)),
                ("leaseDurationSeconds", json!(-4)),
                ("leaseTransitions", json!(-1)),
            ]);
            object["spec"][field] = value;
        }
        Some("Pod") => object["spec"]["containers"] = containers(choices),
        Some("Deployment") => match choices.below(4) {
            0 => object["spec"]["replicas"] = json!(-1),
            1 => object["spec"]["selector"] = json!({"matchLabels": {"app": "other"}}),
            2 => object["spec"]["template"]["spec"]["containers"] = containers(choices),
            _ => object["spec"]["selector"] = Value::Null,
        },
        Some("Job") => match choices.below(3) {
            0 => object["spec"]["backoffLimit"] = json!(-1),
            1 => object["spec"]["template"]["spec"]["restartPolicy"] = json!("Always"),
            _ => object["spec"]["template"]["spec"]["containers"] = containers(choices),
        },
        Some("Event") => {
            let is_old = object["apiVersion"] == "v1";
            let (about, reporter) = if is_old {
                ("involvedObject", "reportingComponent")
            } else {
                ("regarding", "reportingController")
            };
            let (field, value) = choices.of(&[
                ("type", json!("Loud")),
                ("eventTime", Value::Null),
                ("eventTime", json!("2001-02-03T04:05:06.789012Z")),
                ("action", json!("")),
                ("reportingInstance", json!("i".repeat(129))),
                (reporter, json!("a b")),
                (reporter, json!("")),
                (about, json!({"kind": "ConfigMap", "name": "a", "namespace": "elsewhere"})),
                (about, json!({"kind": "Namespace", "name": "${ns}"})),
                ("series", json!({"count": 1})),
            ]);
            object[field] = value;
        }
        _ => object["spec"] = choices.of(&[json!(1), Value::Null, json!({})]),
    }
}

fn containers(choices: &mut Choices) -> Value {
    choices.of(&[json!([]), json!([{"name": "a"}]), json!([{"image": "x"}]), Value::Null])
}
