//! The configuration of kube-state-metrics: every path is one of the CRD's schema, and which series come of it.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::{Series, texts};

/// What kube-state-metrics adds to every series of an object.
const OF_OBJECTS: [&str; 3] = ["customresource_group", "customresource_kind", "customresource_version"];
/// What is in the metadata of every object, and what of it a number can be made of.
const METADATA: [&str; 4] = ["name", "namespace", "uid", "generation"];
const METADATA_TIMES: [&str; 2] = ["creationTimestamp", "deletionTimestamp"];

/// The series of a configuration, and what is wrong with it.
pub(super) fn read(config: &Value, crds: &[Value]) -> (Series, Vec<String>) {
    let (mut series, mut findings) = (Series::new(), Vec::new());
    for resource in texts(&config["spec"], "resources") {
        let wanted = &resource["groupVersionKind"];
        let Some(schema) = schema(wanted, crds) else {
            findings.push(format!("there is no kind {wanted}"));
            continue;
        };
        let prefix = resource["metricNamePrefix"].as_str().unwrap_or("kube_customresource");
        let common = labels(resource, schema, &mut findings);
        for metric in texts(resource, "metrics") {
            let name = format!("{prefix}_{}", metric["name"].as_str().unwrap_or_default());
            let mut wrong = Vec::new();
            let mut all: BTreeSet<String> = OF_OBJECTS.map(str::to_owned).into();
            all.extend(common.iter().cloned());
            all.extend(labels(metric, schema, &mut wrong));
            all.extend(each(&metric["each"], schema, &mut wrong));
            findings.extend(wrong.into_iter().map(|wrong| format!("{name}: {wrong}")));
            series.entry(name).or_default().extend(all);
        }
    }
    (series, findings)
}

fn schema<'a>(wanted: &Value, crds: &'a [Value]) -> Option<&'a Value> {
    let is_it = |crd: &&Value| {
        crd["spec"]["group"] == wanted["group"] && crd["spec"]["names"]["kind"] == wanted["kind"]
    };
    let crd = crds.iter().find(is_it)?;
    let version = texts(&crd["spec"], "versions").find(|version| version["name"] == wanted["version"])?;
    Some(&version["schema"]["openAPIV3Schema"])
}

/// The labels that come from paths below a schema, and those that are written out.
fn labels(of: &Value, schema: &Value, findings: &mut Vec<String>) -> BTreeSet<String> {
    let empty = Map::new();
    let paths = of["labelsFromPath"].as_object().unwrap_or(&empty);
    for (label, path) in paths {
        if find(schema, path).is_none() {
            findings.push(format!("the label {label}: there is no field {path}"));
        }
    }
    let written = of["commonLabels"].as_object().unwrap_or(&empty);
    paths.keys().chain(written.keys()).cloned().collect()
}

/// The labels that a metric adds by itself.
fn each(each: &Value, schema: &Value, findings: &mut Vec<String>) -> BTreeSet<String> {
    let (key, details) = match each["type"].as_str() {
        Some("Gauge") => ("Gauge", &each["gauge"]),
        Some("Info") => ("Info", &each["info"]),
        Some("StateSet") => ("StateSet", &each["stateSet"]),
        _ => {
            findings.push("each.type is Gauge, Info or StateSet".to_owned());
            return BTreeSet::new();
        }
    };
    let Some(target) = find(schema, &details["path"]) else {
        findings.push(format!("there is no field {}", details["path"]));
        return BTreeSet::new();
    };
    let is_object = target["type"] == "object";
    // What is said of a list is said of each of its items.
    let target = target.get("items").unwrap_or(target);
    let mut all = labels(details, target, findings);
    match key {
        "Gauge" => match find(target, &details["valueFrom"]) {
            None => findings.push(format!("there is no field {}", details["valueFrom"])),
            // kube-state-metrics looks at each field of an object as if it were an item of a list.
            Some(_) if is_object && !details["valueFrom"].is_null() => {
                findings
                    .push(format!("write the path of the value itself: {} is an object", details["path"]));
            }
            Some(value) if !is_number(value) => {
                findings
                    .push(format!("{} {} is no number or instant", details["path"], details["valueFrom"]));
            }
            Some(_) => {}
        },
        "StateSet" => {
            all.extend(details["labelName"].as_str().map(str::to_owned));
            let set = |list: &Value| -> BTreeSet<String> {
                list.as_array().into_iter().flatten().map(Value::to_string).collect()
            };
            if set(&target["enum"]) != set(&details["list"]) {
                findings.push(format!("the values of {} are {}", details["path"], target["enum"]));
            }
        }
        _ => {}
    }
    all
}

/// What a path leads to; nothing is the schema itself.
fn find<'a>(schema: &'a Value, path: &Value) -> Option<&'a Value> {
    let Some(path) = path.as_array() else { return path.is_null().then_some(schema) };
    let path: Option<Vec<&str>> = path.iter().map(Value::as_str).collect();
    if let ["metadata", name] = path.as_deref()? {
        let known = METADATA.contains(name) || METADATA_TIMES.contains(name);
        return known.then(|| if METADATA.contains(name) { &Value::Null } else { &Value::Bool(true) });
    }
    let mut at = schema;
    for name in path? {
        at = at["properties"].get(name)?;
    }
    Some(at)
}

/// What kube-state-metrics can make a number of: numbers, instants, and the status of a condition.
fn is_number(schema: &Value) -> bool {
    let kind = schema["type"].as_str().unwrap_or_default();
    ["integer", "number", "boolean"].contains(&kind)
        || schema["format"] == "date-time"
        || schema["enum"] == serde_json::json!(["True", "False", "Unknown"])
        || *schema == Value::Bool(true)
}
