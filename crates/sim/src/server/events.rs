//! How Events are validated: by the newer of their groups more than by the older. Both are stored as those of the
//! older.

use serde_json::{Value, json};

use super::kinds::ServedKind;
use super::names;
use super::status::StatusCause;
use super::validate;

/// Bytes that may be in who reports, what was done, and why.
const SHORT: usize = 128;
/// Bytes that may be in the message.
const LONG: usize = 1024;

/// Whether this is the kind of Events, in whichever group.
pub(super) fn is_event(kind: &ServedKind) -> bool {
    matches!((kind.group.as_ref(), kind.plural.as_ref()), ("" | "events.k8s.io", "events"))
}

/// What is wrong with a new Event, its metadata included (`ValidateEventCreate`).
pub(super) fn problems_of_new(kind: &ServedKind, object: &Value) -> Vec<StatusCause> {
    let mut causes = legacy(kind, object);
    if kind.group.is_empty() {
        // The older group checks metadata only where nothing else is wrong.
        return if causes.is_empty() { validate::metadata(kind, object) } else { causes };
    }
    causes.extend(validate::metadata(kind, object));
    series(object, &mut causes);
    if object["eventTime"].is_null() {
        causes.push(StatusCause::required("eventTime", ""));
    }
    let given = object["type"].as_str().unwrap_or_default();
    if !matches!(given, "Normal" | "Warning") {
        causes.push(StatusCause::invalid("type", &json!(""), &format!("has invalid value: {given}")));
    }
    let source = &object["source"];
    let is_set = |value: &Value| !matches!(value, Value::Null) && *value != json!("") && *value != json!(0);
    for (field, set) in [
        ("firstTimestamp", is_set(&object["firstTimestamp"])),
        ("lastTimestamp", is_set(&object["lastTimestamp"])),
        ("count", is_set(&object["count"])),
        ("source", is_set(&source["component"]) || is_set(&source["host"])),
    ] {
        if set {
            causes.push(StatusCause::invalid(field, &json!(""), "needs to be unset"));
        }
    }
    causes
}

/// What is wrong with a changed Event besides what is checked for all kinds (`ValidateEventUpdate`).
pub(super) fn problems_of_change(kind: &ServedKind, object: &Value, old: &Value) -> Vec<StatusCause> {
    let mut causes = legacy(kind, object);
    if !kind.group.is_empty() {
        causes.extend(validate::change(object, old));
        if object["series"] != old["series"] {
            series(object, &mut causes);
        }
        fixed(object, old, &mut causes);
    }
    causes
}

/// What has to be right in both groups.
fn legacy(kind: &ServedKind, object: &Value) -> Vec<StatusCause> {
    let text = |field: &str| object[field].as_str().unwrap_or_default();
    let mut causes = Vec::new();
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
    let about = object["involvedObject"]["namespace"].as_str().unwrap_or_default();
    let is_new = !object["eventTime"].is_null();
    let fits = match (is_new, about.is_empty()) {
        (true, true) => matches!(namespace, "default" | "kube-system"),
        (true, false) => true,
        (false, true) => matches!(namespace, "" | "default"),
        (false, false) => namespace == about,
    };
    if !fits {
        let why = "does not match event.namespace";
        causes.push(StatusCause::invalid("involvedObject.namespace", &json!(about), why));
    }
    if !is_new {
        return causes;
    }
    let reporter = if kind.group.is_empty() { "reportingComponent" } else { "reportingController" };
    let given = text("reportingComponent");
    if given.is_empty() {
        causes.push(StatusCause::required(reporter, ""));
    }
    causes.extend(
        names::label_key_problems(given).iter().map(|why| StatusCause::invalid(reporter, &json!(given), why)),
    );
    for field in ["reportingInstance", "action", "reason"] {
        if text(field).is_empty() {
            causes.push(StatusCause::required(field, ""));
        }
        if text(field).len() > SHORT {
            let why = format!("can have at most {SHORT} characters");
            causes.push(StatusCause::invalid(field, &json!(""), &why));
        }
    }
    if text("message").len() > LONG {
        causes.push(StatusCause::invalid(
            "message",
            &json!(""),
            &format!("can have at most {LONG} characters"),
        ));
    }
    causes
}

fn series(object: &Value, causes: &mut Vec<StatusCause>) {
    let series = &object["series"];
    if series.is_null() {
        return;
    }
    if series["count"].as_i64().unwrap_or(0) < 2 {
        causes.push(StatusCause::invalid("series.count", &json!(""), "should be at least 2"));
    }
    if series["lastObservedTime"].is_null() {
        causes.push(StatusCause::required("series.lastObservedTime", ""));
    }
}

/// A field, what it is called in messages, and how it is printed.
type Printed<'a> = (&'a str, &'a str, &'a dyn Fn(&Value) -> String);

/// Hardly anything of an Event can be changed by the newer group.
fn fixed(object: &Value, old: &Value, causes: &mut Vec<StatusCause>) {
    // As Go prints values of its own.
    let text = |value: &Value| json!(value.as_str().unwrap_or_default()).to_string();
    let plain = |value: &Value| value.to_string();
    let number = |value: &Value| value.as_i64().unwrap_or(0).to_string();
    let listed = |value: &Value, names: &[(&str, &str)]| {
        let fields: Vec<String> =
            names.iter().map(|(go, field)| format!("\"{go}\":{}", text(&value[*field]))).collect();
        format!("{{{}}}", fields.join(","))
    };
    let reference = |value: &Value| {
        let fields = ["kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath"];
        let names = ["Kind", "Namespace", "Name", "UID", "APIVersion", "ResourceVersion", "FieldPath"];
        listed(value, &names.into_iter().zip(fields).collect::<Vec<_>>())
    };
    let source = |value: &Value| listed(value, &[("Component", "component"), ("Host", "host")]);
    let related = |value: &Value| if value.is_null() { "null".to_owned() } else { reference(value) };
    let shown: [Printed<'_>; 14] = [
        ("involvedObject", "involvedObject", &reference),
        ("reason", "reason", &text),
        ("message", "message", &text),
        ("source", "source", &source),
        ("firstTimestamp", "firstTimestamp", &plain),
        ("lastTimestamp", "lastTimestamp", &plain),
        ("count", "count", &number),
        // The API server checks twice.
        ("reason", "reason", &text),
        ("type", "type", &text),
        ("eventTime", "eventTime", &plain),
        ("action", "action", &text),
        ("related", "related", &related),
        ("reportingComponent", "reportingController", &text),
        ("reportingInstance", "reportingInstance", &text),
    ];
    for (field, name, show) in shown {
        let (new, old) = (show(&object[field]), show(&old[field]));
        if new != old {
            causes.push(StatusCause::printed(name, &new, "field is immutable"));
        }
    }
}
