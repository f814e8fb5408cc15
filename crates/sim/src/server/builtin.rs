//! What the API server does to objects of built-in kinds: defaults, fields that it keeps, and the rules that tests run
//! into. Not every field of every kind is checked.

use serde_json::{Map, Value, json};

use super::events;
use super::kinds::ServedKind;
use super::meta;
use super::quota::pods::quality;
use super::selector::label_selector_matches;
use super::status::StatusCause;
use super::validate;

/// The label that every namespace has.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// Group and plural; Events are the same in both groups.
fn which(kind: &ServedKind) -> (&str, &str) {
    match (kind.group.as_ref(), kind.plural.as_ref()) {
        ("events.k8s.io", "events") => ("", "events"),
        which => which,
    }
}

/// The fields that objects of a kind may have at the top, besides what all have.
pub(super) fn fields(kind: &ServedKind) -> &'static [&'static str] {
    match (kind.group.as_ref(), kind.plural.as_ref()) {
        ("", "configmaps") => &["data", "binaryData", "immutable"],
        ("", "secrets") => &["data", "stringData", "immutable", "type"],
        ("", "serviceaccounts") => &["secrets", "imagePullSecrets", "automountServiceAccountToken"],
        ("", "endpoints") => &["subsets"],
        ("", "podtemplates") => &["template"],
        ("" | "events.k8s.io", "events") => &[
            "action",
            "count",
            "deprecatedCount",
            "deprecatedFirstTimestamp",
            "deprecatedLastTimestamp",
            "deprecatedSource",
            "eventTime",
            "firstTimestamp",
            "involvedObject",
            "lastTimestamp",
            "message",
            "note",
            "reason",
            "regarding",
            "related",
            "reportingComponent",
            "reportingController",
            "reportingInstance",
            "series",
            "source",
            "type",
        ],
        ("apps", "controllerrevisions") => &["data", "revision"],
        (
            "admissionregistration.k8s.io",
            "mutatingwebhookconfigurations" | "validatingwebhookconfigurations",
        ) => &["webhooks"],
        ("rbac.authorization.k8s.io", "clusterroles" | "roles") => &["rules", "aggregationRule"],
        ("rbac.authorization.k8s.io", _) => &["roleRef", "subjects"],
        ("scheduling.k8s.io", _) => &["value", "globalDefault", "description", "preemptionPolicy"],
        ("storage.k8s.io", _) => &[
            "provisioner",
            "parameters",
            "reclaimPolicy",
            "mountOptions",
            "allowVolumeExpansion",
            "volumeBindingMode",
            "allowedTopologies",
        ],
        _ => &["spec", "status"],
    }
}

/// Sets a field that is absent.
fn or(map: &mut Map<String, Value>, field: &str, value: Value) {
    map.entry(field).or_insert(value);
}

/// Puts in what may be left out.
pub(super) fn default(kind: &ServedKind, object: &mut Value) {
    match which(kind) {
        ("", "namespaces") => {
            let name = meta::name(object).to_owned();
            if !name.is_empty() {
                let labels = meta::map(meta::of(object).entry("labels").or_insert(Value::Null));
                labels.insert(NAME_LABEL.to_owned(), name.into());
            }
        }
        ("", "pods") => {
            let spec = meta::field(object, "spec");
            pod_spec(spec);
            limits_are_requested(spec);
            or(spec, "enableServiceLinks", true.into());
            let conditions = object.pointer_mut("/status/conditions").and_then(Value::as_array_mut);
            for condition in conditions.into_iter().flatten() {
                or(meta::map(condition), "lastProbeTime", Value::Null);
                or(meta::map(condition), "lastTransitionTime", Value::Null);
            }
        }
        ("coordination.k8s.io", "leases") => {
            meta::field(object, "spec");
        }
        ("", "resourcequotas") => {
            meta::field(object, "spec");
            meta::field(object, "status");
        }
        ("", "configmaps") => drop_empty(object),
        ("", "secrets") => {
            secret(object);
            drop_empty(object);
        }
        ("", "services") => service(meta::field(object, "spec")),
        ("", "events") => event(object),
        ("apps", plural @ ("deployments" | "statefulsets" | "replicasets" | "daemonsets")) => {
            workload(plural, object);
        }
        ("batch", "jobs") => job_spec(meta::field(object, "spec")),
        ("batch", "cronjobs") => cron_job(meta::field(object, "spec")),
        ("admissionregistration.k8s.io", "validatingadmissionpolicies") => {
            or(meta::field(object, "spec"), "failurePolicy", "Fail".into());
        }
        _ => {}
    }
}

/// An empty map of data is none.
fn drop_empty(object: &mut Value) {
    let empty = |value: &Value| value.as_object().is_some_and(Map::is_empty);
    meta::map(object)
        .retain(|field, value| !matches!(field.as_str(), "data" | "binaryData") || !empty(value));
}

fn secret(object: &mut Value) {
    let map = meta::map(object);
    or(map, "type", "Opaque".into());
    if let Some(Value::Object(plain)) = map.remove("stringData") {
        let data = meta::map(map.entry("data").or_insert(Value::Null));
        for (key, value) in plain {
            let text = value.as_str().unwrap_or_default();
            data.insert(key, base64::Engine::encode(&base64::engine::general_purpose::STANDARD, text).into());
        }
    }
}

fn service(spec: &mut Map<String, Value>) {
    or(spec, "type", "ClusterIP".into());
    or(spec, "sessionAffinity", "None".into());
    or(spec, "internalTrafficPolicy", "Cluster".into());
    for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
        let target = port["port"].clone();
        let port = meta::map(port);
        or(port, "protocol", "TCP".into());
        or(port, "targetPort", target);
    }
}

fn event(object: &mut Value) {
    let map = meta::map(object);
    or(map, "source", json!({}));
    // What Go leaves out when it is empty.
    let is_empty = |value: &Value| *value == json!("") || *value == json!(0);
    map.retain(|field, value| {
        !matches!(&**field, "action" | "reason" | "message" | "type" | "count") || !is_empty(value)
    });
    for part in ["involvedObject", "source", "related"] {
        if let Some(part) = map.get_mut(part).and_then(Value::as_object_mut) {
            part.retain(|_, value| !is_empty(value));
        }
    }
    if let Some(series) = map.get_mut("series").and_then(Value::as_object_mut) {
        series.retain(|field, value| field != "count" || !is_empty(value));
        or(series, "lastObservedTime", Value::Null);
    }
    for field in ["firstTimestamp", "lastTimestamp", "eventTime"] {
        or(map, field, Value::Null);
    }
    for field in ["reportingComponent", "reportingInstance"] {
        or(map, field, "".into());
    }
}

fn workload(plural: &str, object: &mut Value) {
    let spec = meta::field(object, "spec");
    template(spec);
    if plural != "daemonsets" {
        or(spec, "replicas", 1.into());
    }
    let rolling =
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}});
    match plural {
        "deployments" => {
            or(spec, "strategy", rolling);
            or(spec, "revisionHistoryLimit", 10.into());
            or(spec, "progressDeadlineSeconds", 600.into());
        }
        "statefulsets" => {
            or(spec, "serviceName", "".into());
            or(spec, "podManagementPolicy", "OrderedReady".into());
            or(spec, "updateStrategy", json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}));
            or(spec, "revisionHistoryLimit", 10.into());
            let keep = json!({"whenDeleted": "Retain", "whenScaled": "Retain"});
            or(spec, "persistentVolumeClaimRetentionPolicy", keep);
        }
        "daemonsets" => {
            let one = json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}});
            or(spec, "updateStrategy", one);
            or(spec, "revisionHistoryLimit", 10.into());
        }
        _ => {}
    }
}

fn job_spec(spec: &mut Map<String, Value>) {
    if !spec.contains_key("completions") && !spec.contains_key("parallelism") {
        or(spec, "completions", 1.into());
    }
    or(spec, "parallelism", 1.into());
    or(spec, "backoffLimit", 6.into());
    or(spec, "completionMode", "NonIndexed".into());
    or(spec, "suspend", false.into());
    or(spec, "manualSelector", false.into());
    or(spec, "podReplacementPolicy", "TerminatingOrFailed".into());
    template(spec);
}

fn cron_job(spec: &mut Map<String, Value>) {
    or(spec, "concurrencyPolicy", "Allow".into());
    or(spec, "suspend", false.into());
    or(spec, "successfulJobsHistoryLimit", 3.into());
    or(spec, "failedJobsHistoryLimit", 1.into());
    let job = meta::map(spec.entry("jobTemplate").or_insert(Value::Null));
    or(job, "metadata", json!({}));
    template(meta::map(job.entry("spec").or_insert(Value::Null)));
}

/// The template of pods in the spec of a workload.
fn template(spec: &mut Map<String, Value>) {
    let template = meta::map(spec.entry("template").or_insert(Value::Null));
    or(template, "metadata", json!({}));
    pod_spec(meta::map(template.entry("spec").or_insert(Value::Null)));
}

fn pod_spec(spec: &mut Map<String, Value>) {
    or(spec, "restartPolicy", "Always".into());
    or(spec, "terminationGracePeriodSeconds", 30.into());
    or(spec, "dnsPolicy", "ClusterFirst".into());
    or(spec, "securityContext", json!({}));
    or(spec, "schedulerName", "default-scheduler".into());
    for list in ["initContainers", "containers"] {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            let image = container["image"].as_str().unwrap_or_default();
            let name = image.rsplit('/').next().unwrap_or_default();
            let pull =
                if name.contains(':') && !name.ends_with(":latest") { "IfNotPresent" } else { "Always" };
            let container = meta::map(container);
            or(container, "resources", json!({}));
            or(container, "terminationMessagePath", "/dev/termination-log".into());
            or(container, "terminationMessagePolicy", "File".into());
            or(container, "imagePullPolicy", pull.into());
        }
    }
}

/// A container of a pod requests what it is limited to, unless it says what it requests.
fn limits_are_requested(spec: &mut Map<String, Value>) {
    for list in ["initContainers", "containers"] {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            let limits = container["resources"]["limits"].clone();
            for (name, limit) in limits.as_object().into_iter().flatten() {
                let requests = &mut container["resources"]["requests"];
                meta::map(requests).entry(name).or_insert_with(|| limit.clone());
            }
        }
    }
}

/// What a new object gets besides defaults.
pub(super) fn prepare_create(kind: &ServedKind, object: &mut Value) {
    match which(kind) {
        ("", "namespaces") => {
            let finalizers = meta::map(object).entry("spec").or_insert(json!({}));
            let finalizers = meta::map(finalizers).entry("finalizers").or_insert(json!([]));
            if let Value::Array(list) = finalizers
                && !list.iter().any(|f| f == "kubernetes")
            {
                list.push("kubernetes".into());
            }
            object["status"] = json!({"phase": "Active"});
        }
        ("", "pods") => {
            admit_pod(object);
            object["status"] = json!({"phase": "Pending", "qosClass": quality(object)});
        }
        ("", "services") => object["status"] = json!({"loadBalancer": {}}),
        ("apps", "statefulsets") => object["status"] = json!({"replicas": 0, "availableReplicas": 0}),
        ("apps", "replicasets") => object["status"] = json!({"replicas": 0}),
        ("apps", "daemonsets") => {
            let none =
                ["currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady"];
            object["status"] = none.into_iter().map(|field| (field.to_owned(), json!(0))).collect();
        }
        ("policy", "poddisruptionbudgets") => {
            let none = ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"];
            object["status"] = none.into_iter().map(|field| (field.to_owned(), json!(0))).collect();
        }
        ("batch", "jobs") => {
            job_selector(object);
            object["status"] = json!({});
        }
        (
            ""
            | "apps"
            | "batch"
            | "autoscaling"
            | "networking.k8s.io"
            | "admissionregistration.k8s.io"
            | "certificates.k8s.io",
            _,
        ) if kind.has("status") => {
            object["status"] = json!({});
        }
        _ => {}
    }
}

/// What the admission plugins of the real server do to every pod, without the mounted token.
fn admit_pod(object: &mut Value) {
    let spec = meta::field(object, "spec");
    or(spec, "serviceAccountName", "default".into());
    let account = spec["serviceAccountName"].clone();
    or(spec, "serviceAccount", account);
    or(spec, "priority", 0.into());
    or(spec, "preemptionPolicy", "PreemptLowerPriority".into());
    let toleration = |key: &str| json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300});
    or(
        spec,
        "tolerations",
        json!([toleration("node.kubernetes.io/not-ready"), toleration("node.kubernetes.io/unreachable")]),
    );
}

/// A Job finds its pods by its uid, unless its maker chose otherwise.
fn job_selector(object: &mut Value) {
    if object["spec"]["manualSelector"] == true {
        return job_labels(object);
    }
    let (uid, name) = (meta::uid(object).to_owned(), meta::name(object).to_owned());
    let template = &mut object["spec"]["template"];
    let labels = meta::map(meta::of(template).entry("labels").or_insert(Value::Null));
    for (label, value) in [
        ("batch.kubernetes.io/controller-uid", &uid),
        ("batch.kubernetes.io/job-name", &name),
        ("controller-uid", &uid),
        ("job-name", &name),
    ] {
        labels.insert(label.to_owned(), value.as_str().into());
    }
    object["spec"]["selector"] = json!({"matchLabels": {"batch.kubernetes.io/controller-uid": uid}});
    job_labels(object);
}

/// A Job without labels has those of its pods: in the real server both are one map, so that it gets those that are added to it.
fn job_labels(object: &mut Value) {
    let labels = object["spec"]["template"]["metadata"]["labels"].clone();
    if labels.is_object() && object["metadata"]["labels"].as_object().is_none_or(Map::is_empty) {
        meta::set(object, "labels", labels);
    }
}

/// Keeps what an update may not change.
pub(super) fn prepare_update(kind: &ServedKind, object: &mut Value, old: &Value, subresource: &str) {
    match (which(kind), subresource) {
        (("", "namespaces"), "finalize") => object["status"] = old["status"].clone(),
        (("", "namespaces"), _) => {
            let kept = old["spec"]["finalizers"].clone();
            let spec = meta::field(object, "spec");
            if kept.is_null() {
                spec.remove("finalizers");
            } else {
                spec.insert("finalizers".to_owned(), kept);
            }
        }
        (("", "pods"), "status") => {
            keep_metadata(object, old, "ownerReferences");
            or(meta::field(object, "status"), "qosClass", old["status"]["qosClass"].clone());
        }
        (("apps", "deployments"), "status") => keep_metadata(object, old, "labels"),
        (("batch", "jobs"), _) => job_labels(object),
        _ => {}
    }
}

fn keep_metadata(object: &mut Value, old: &Value, field: &str) {
    match old["metadata"].get(field) {
        Some(value) => meta::set(object, field, value.clone()),
        None => meta::unset(object, field),
    }
}

/// Whether the dependents of such an object live on by default.
pub(super) fn orphans_by_default(kind: &ServedKind) -> bool {
    which(kind) == ("batch", "jobs") || which(kind) == ("", "replicationcontrollers")
}

/// What is wrong with an object besides its metadata.
pub(super) fn problems(
    kind: &ServedKind,
    object: &Value,
    old: Option<&Value>,
    subresource: &str,
) -> Vec<StatusCause> {
    if !subresource.is_empty() {
        return Vec::new();
    }
    let mut causes = Vec::new();
    match which(kind) {
        ("", "events") => {
            if let Some(old) = old {
                causes = events::problems_of_change(kind, object, old);
            }
        }
        ("", "configmaps" | "secrets") => keys(object, old, &mut causes),
        ("", "pods") => pod(object, old, &mut causes),
        ("coordination.k8s.io", "leases") => lease(&object["spec"], &mut causes),
        ("apps", "deployments" | "statefulsets" | "replicasets" | "daemonsets") => {
            selecting(object, old, &mut causes);
        }
        ("batch", "jobs") => job(object, old, &mut causes),
        _ => {}
    }
    causes
}

/// The keys of what config maps and secrets hold are names of files.
fn keys(object: &Value, old: Option<&Value>, causes: &mut Vec<StatusCause>) {
    const WHY: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";
    if let Some(old) = old {
        if object["type"] != old["type"] {
            causes.push(StatusCause::invalid("type", &object["type"], "field is immutable"));
        }
        let why = "field is immutable when `immutable` is set";
        let fixed = if old["immutable"] == true { &["immutable", "data", "binaryData"][..] } else { &[] };
        for field in fixed.iter().filter(|field| object[**field] != old[**field]) {
            causes.push(StatusCause::forbidden(*field, why));
        }
    }
    for field in ["data", "binaryData"] {
        for key in object[field].as_object().into_iter().flatten().map(|(key, _)| key) {
            let fits = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.');
            if key.is_empty() || !key.bytes().all(fits) {
                causes.push(StatusCause::invalid(format!("{field}[{key}]"), &json!(key), WHY));
            }
        }
    }
}

/// Little of a pod can be changed.
fn pod(object: &Value, old: Option<&Value>, causes: &mut Vec<StatusCause>) {
    const WHY: &str = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";
    containers(&object["spec"], "spec", causes);
    let Some(old) = old else { return };
    let count = |pod: &Value| pod["spec"]["containers"].as_array().map_or(0, Vec::len);
    if count(object) != count(old) {
        let why = "pod updates may not add or remove containers";
        causes.push(StatusCause::forbidden("spec.containers", why));
        return;
    }
    // The API server checks images once more.
    let images = object["spec"]["containers"].as_array().into_iter().flatten().enumerate();
    for (at, _) in images.filter(|(_, c)| c["image"].as_str().unwrap_or_default().is_empty()) {
        causes.push(StatusCause::required(format!("spec.containers[{at}].image"), ""));
    }
    let fixed = |pod: &Value| {
        let mut spec = pod["spec"].clone();
        for list in ["initContainers", "containers"] {
            for container in spec[list].as_array_mut().into_iter().flatten().map(meta::map) {
                container.remove("image");
            }
        }
        for field in ["activeDeadlineSeconds", "tolerations"] {
            meta::map(&mut spec).remove(field);
        }
        spec
    };
    if fixed(object) != fixed(old) {
        causes.push(StatusCause::forbidden("spec", WHY));
    }
}

fn containers(spec: &Value, field: &str, causes: &mut Vec<StatusCause>) {
    let containers = spec["containers"].as_array().map(Vec::as_slice).unwrap_or_default();
    if containers.is_empty() {
        causes.push(StatusCause::required(format!("{field}.containers"), ""));
    }
    for (at, container) in containers.iter().enumerate() {
        for part in ["name", "image"] {
            if container[part].as_str().unwrap_or_default().is_empty() {
                causes.push(StatusCause::required(format!("{field}.containers[{at}].{part}"), ""));
            }
        }
    }
}

fn lease(spec: &Value, causes: &mut Vec<StatusCause>) {
    let duration = &spec["leaseDurationSeconds"];
    if duration.as_i64().is_some_and(|d| d <= 0) {
        causes.push(StatusCause::invalid("spec.leaseDurationSeconds", duration, "must be greater than 0"));
    }
    let transitions = &spec["leaseTransitions"];
    if transitions.as_i64().is_some_and(|t| t < 0) {
        causes.push(StatusCause::invalid(
            "spec.leaseTransitions",
            transitions,
            "must be greater than or equal to 0",
        ));
    }
}

fn selecting(object: &Value, old: Option<&Value>, causes: &mut Vec<StatusCause>) {
    let spec = &object["spec"];
    if spec["selector"].is_null() {
        causes.push(StatusCause::required("spec.selector", ""));
    }
    let labels = &spec["template"]["metadata"]["labels"];
    if !label_selector_matches(&spec["selector"], labels) {
        let why = "`selector` does not match template `labels`";
        causes.push(StatusCause::invalid("spec.template.metadata.labels", labels, why));
    }
    containers(&spec["template"]["spec"], "spec.template.spec", causes);
    if spec["replicas"].as_i64().is_some_and(|r| r < 0) {
        causes.push(StatusCause::invalid(
            "spec.replicas",
            &spec["replicas"],
            "must be greater than or equal to 0",
        ));
    }
    if old.is_some_and(|old| old["spec"]["selector"] != spec["selector"]) {
        causes.push(StatusCause::invalid("spec.selector", &spec["selector"], "field is immutable"));
    }
}

fn job(object: &Value, old: Option<&Value>, causes: &mut Vec<StatusCause>) {
    let spec = &object["spec"];
    job_spec_problems(spec, old.is_some(), causes);
    let Some(old) = old else { return };
    // The API server checks twice.
    causes.extend(validate::change(object, old));
    job_spec_problems(spec, true, causes);
    for field in ["completions", "selector", "completionMode", "podFailurePolicy", "successPolicy"] {
        if spec[field] != old["spec"][field] {
            causes.push(StatusCause::invalid(format!("spec.{field}"), &spec[field], "field is immutable"));
        }
    }
    let (template, before) = (&spec["template"], &old["spec"]["template"]);
    if old["spec"]["suspend"] != true {
        if template != before {
            causes.push(StatusCause::invalid("spec.template", template, "field is immutable"));
        }
    } else if unscheduled(&template["spec"]) != unscheduled(&before["spec"]) {
        causes.push(StatusCause::invalid("spec.template.spec", &template["spec"], "field is immutable"));
    }
}

fn job_spec_problems(spec: &Value, has_selector: bool, causes: &mut Vec<StatusCause>) {
    for field in
        ["parallelism", "completions", "backoffLimit", "activeDeadlineSeconds", "ttlSecondsAfterFinished"]
    {
        if spec[field].as_i64().is_some_and(|n| n < 0) {
            let why = "must be greater than or equal to 0";
            causes.push(StatusCause::invalid(format!("spec.{field}"), &spec[field], why));
        }
    }
    containers(&spec["template"]["spec"], "spec.template.spec", causes);
    if spec["template"]["spec"]["restartPolicy"] == "Always" {
        let why = "valid values: \"OnFailure\", \"Never\"";
        causes.push(StatusCause::required("spec.template.spec.restartPolicy", why));
    }
    if has_selector && spec["selector"].is_null() {
        causes.push(StatusCause::required("spec.selector", ""));
    }
    let labels = &spec["template"]["metadata"]["labels"];
    if has_selector && !label_selector_matches(&spec["selector"], labels) {
        let why = "`selector` does not match template `labels`";
        causes.push(StatusCause::invalid("spec.template.metadata.labels", labels, why));
    }
}

/// A pod's spec without what may be changed in a suspended Job: where its pods may run.
fn unscheduled(spec: &Value) -> Value {
    let mut spec = spec.clone();
    for field in ["nodeSelector", "affinity", "tolerations", "schedulingGates"] {
        meta::map(&mut spec).remove(field);
    }
    spec
}
