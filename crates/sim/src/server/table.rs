//! Objects as rows of a table, as `kubectl get` asks for them.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::kinds::ServedKind;
use super::meta;

/// What a row carries of its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Include {
    /// Nothing.
    None,
    /// The metadata.
    Metadata,
    /// All of it.
    Object,
}

impl Include {
    pub(super) fn parse(text: Option<&str>) -> Self {
        match text {
            Some("None") => Self::None,
            Some("Object") => Self::Object,
            _ => Self::Metadata,
        }
    }

    fn of(self, object: &Value) -> Value {
        match self {
            Self::None => Value::Null,
            Self::Object => object.clone(),
            Self::Metadata => json!({
                "kind": "PartialObjectMetadata",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": object["metadata"],
            }),
        }
    }
}

/// A table of objects; `metadata` is that of a list.
pub(super) fn of_objects(
    now: Timestamp,
    kind: &ServedKind,
    objects: &[Arc<Value>],
    include: Include,
    metadata: Option<Value>,
) -> Value {
    let columns = columns(kind);
    let rows: Vec<Value> = objects
        .iter()
        .map(|object| {
            let cells: Vec<Value> = columns.iter().map(|column| column.cell(object, now)).collect();
            json!({"cells": cells, "object": include.of(object)})
        })
        .collect();
    let metadata = metadata.unwrap_or_else(|| match objects {
        [one] => json!({"resourceVersion": meta::text(one, "resourceVersion")}),
        _ => json!({}),
    });
    json!({
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": columns.iter().map(Column::definition).collect::<Vec<_>>(),
        "rows": rows,
    })
}

/// A bookmark in a watch of tables.
pub(super) fn of_bookmark(object: &Value) -> Value {
    json!({
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {"resourceVersion": object["metadata"]["resourceVersion"]},
        "columnDefinitions": [],
        "rows": [{"cells": [], "object": object}],
    })
}

/// Makes a cell of an object and the instant.
type Cell = fn(&Value, Timestamp) -> Value;

/// Name, type and cell of a column.
type Built = (&'static str, &'static str, Cell);

/// One column.
struct Column {
    name: String,
    type_name: String,
    priority: i64,
    source: Source,
}

/// Where a cell comes from.
enum Source {
    Name,
    Age,
    /// A simple JSON path of a custom resource.
    Path(String),
    Built(Cell),
}

impl Column {
    fn definition(&self) -> Value {
        let format = if matches!(self.source, Source::Name) { "name" } else { "" };
        let description = match &self.source {
            Source::Path(path) => format!("Custom resource definition column (in JSONPath format): {path}"),
            _ => String::new(),
        };
        json!({
            "name": self.name,
            "type": self.type_name,
            "format": format,
            "description": description,
            "priority": self.priority,
        })
    }

    fn cell(&self, object: &Value, now: Timestamp) -> Value {
        match &self.source {
            Source::Name => meta::name(object).into(),
            Source::Age => age(&object["metadata"]["creationTimestamp"], now),
            Source::Path(path) => {
                let found = at(object, path);
                match (self.type_name.as_str(), found) {
                    ("date", Some(value)) => age(value, now),
                    (_, Some(value)) => value.clone(),
                    (_, None) => Value::Null,
                }
            }
            Source::Built(cell) => cell(object, now),
        }
    }
}

fn column(name: &str, type_name: &str, source: Source) -> Column {
    Column { name: name.to_owned(), type_name: type_name.to_owned(), priority: 0, source }
}

fn columns(kind: &ServedKind) -> Vec<Column> {
    let mut columns = vec![column("Name", "string", Source::Name)];
    if let Some(custom) = &kind.custom {
        for given in custom.columns.iter() {
            let text = |field: &str| given[field].as_str().unwrap_or_default();
            let mut column = column(text("name"), text("type"), Source::Path(text("jsonPath").to_owned()));
            column.priority = given["priority"].as_i64().unwrap_or(0);
            columns.push(column);
        }
        if custom.columns.is_empty() {
            columns.push(column("Age", "date", Source::Age));
        }
        return columns;
    }
    match (kind.group.as_ref(), kind.plural.as_ref()) {
        ("" | "events.k8s.io", "events") => return events(),
        ("apiextensions.k8s.io", _) => {
            columns.push(column(
                "Created At",
                "date",
                Source::Built(|o, _| o["metadata"]["creationTimestamp"].clone()),
            ));
            return columns;
        }
        _ => {}
    }
    let built = built_in(kind);
    columns.extend(built.iter().map(|(name, type_name, cell)| column(name, type_name, Source::Built(*cell))));
    columns.push(column("Age", "string", Source::Age));
    columns
}

/// The columns of a built-in kind between name and age.
fn built_in(kind: &ServedKind) -> &'static [Built] {
    match (kind.group.as_ref(), kind.plural.as_ref()) {
        ("", "namespaces") => &[("Status", "string", |o, _| o["status"]["phase"].clone())],
        ("", "pods") => &[
            ("Ready", "string", |o, _| {
                let all = list(&o["status"]["containerStatuses"]);
                let ready = all.iter().filter(|c| c["ready"] == true).count();
                format!("{ready}/{}", list(&o["spec"]["containers"]).len()).into()
            }),
            ("Status", "string", |o, _| pod_status(o)),
            ("Restarts", "string", |o, _| {
                let restarts =
                    list(&o["status"]["containerStatuses"]).iter().filter_map(|c| c["restartCount"].as_i64());
                restarts.sum::<i64>().to_string().into()
            }),
        ],
        ("apps", "deployments") => &[
            ("Ready", "string", |o, _| {
                format!("{}/{}", number(&o["status"]["readyReplicas"]), number(&o["spec"]["replicas"])).into()
            }),
            ("Up-to-date", "integer", |o, _| number(&o["status"]["updatedReplicas"]).into()),
            ("Available", "integer", |o, _| number(&o["status"]["availableReplicas"]).into()),
        ],
        ("apps", "statefulsets") => &[("Ready", "string", |o, _| {
            format!("{}/{}", number(&o["status"]["readyReplicas"]), number(&o["spec"]["replicas"])).into()
        })],
        ("apps", "replicasets") => &[
            ("Desired", "integer", |o, _| number(&o["spec"]["replicas"]).into()),
            ("Current", "integer", |o, _| number(&o["status"]["replicas"]).into()),
            ("Ready", "integer", |o, _| number(&o["status"]["readyReplicas"]).into()),
        ],
        ("batch", "jobs") => &[
            ("Status", "string", |o, _| job_status(o)),
            ("Completions", "string", |o, _| {
                format!(
                    "{}/{}",
                    number(&o["status"]["succeeded"]),
                    o["spec"]["completions"].as_i64().unwrap_or(1)
                )
                .into()
            }),
        ],
        ("", "configmaps") => &[("Data", "string", |o, _| {
            let count = |field: &str| o[field].as_object().map_or(0, serde_json::Map::len);
            (count("data") + count("binaryData")).into()
        })],
        ("", "secrets") => &[
            ("Type", "string", |o, _| o["type"].clone()),
            ("Data", "string", |o, _| o["data"].as_object().map_or(0, serde_json::Map::len).into()),
        ],
        ("coordination.k8s.io", "leases") => {
            &[("Holder", "string", |o, _| o["spec"]["holderIdentity"].clone())]
        }
        _ => &[],
    }
}

fn events() -> Vec<Column> {
    let columns: [(&str, Cell); 5] = [
        ("Last Seen", |o, now| {
            let last = [
                &o["series"]["lastObservedTime"],
                &o["lastTimestamp"],
                &o["deprecatedLastTimestamp"],
                &o["eventTime"],
            ];
            let last =
                last.into_iter().find(|t| t.is_string()).unwrap_or(&o["metadata"]["creationTimestamp"]);
            age(last, now)
        }),
        ("Type", |o, _| o["type"].clone()),
        ("Reason", |o, _| o["reason"].clone()),
        ("Object", |o, _| {
            let about = if o["involvedObject"].is_object() { &o["involvedObject"] } else { &o["regarding"] };
            let text = |field: &str| about[field].as_str().unwrap_or_default();
            format!("{}/{}", text("kind").to_lowercase(), text("name")).into()
        }),
        ("Message", |o, _| {
            let message = if o["message"].is_string() { &o["message"] } else { &o["note"] };
            message.as_str().unwrap_or_default().trim().into()
        }),
    ];
    columns.into_iter().map(|(name, cell)| column(name, "string", Source::Built(cell))).collect()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn number(value: &Value) -> i64 {
    value.as_i64().unwrap_or(0)
}

/// The phase, or why a container waits or ended.
fn pod_status(pod: &Value) -> Value {
    if meta::deleting(pod) {
        return "Terminating".into();
    }
    let state = list(&pod["status"]["containerStatuses"]).first().map_or(&Value::Null, |c| &c["state"]);
    for kind in ["waiting", "terminated"] {
        if let Some(reason) = state[kind]["reason"].as_str().filter(|r| !r.is_empty()) {
            return reason.into();
        }
    }
    pod["status"]["phase"].clone()
}

fn job_status(job: &Value) -> Value {
    let conditions = list(&job["status"]["conditions"]);
    let is = |name: &str| conditions.iter().any(|c| c["type"] == name && c["status"] == "True");
    let word = ["Complete", "Failed"].into_iter().find(|name| is(name));
    let word = word.unwrap_or(match () {
        () if meta::deleting(job) => "Terminating",
        () if is("Suspended") => "Suspended",
        () if is("FailureTarget") => "FailureTarget",
        () if is("SuccessCriteriaMet") => "SuccessCriteriaMet",
        () => "Running",
    });
    word.into()
}

/// The value at a simple path such as `.spec.rules[0].name` or `.status.conditions[?(@.type=="Ready")].status`.
fn at<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    let mut value = object;
    let mut rest = path.trim_start_matches('$');
    while !rest.is_empty() {
        if let Some(inner) = rest.strip_prefix("[?(@.") {
            let (condition, after) = inner.split_once(")]")?;
            let (field, wanted) = condition.split_once("==")?;
            let wanted = wanted.trim().trim_matches(['"', '\'']);
            value = value.as_array()?.iter().find(|e| e[field.trim()] == wanted)?;
            rest = after;
        } else if let Some(inner) = rest.strip_prefix('[') {
            let (index, after) = inner.split_once(']')?;
            value = match index.parse::<usize>() {
                Ok(index) => value.get(index)?,
                Err(_) => value.get(index.trim_matches(['"', '\'']))?,
            };
            rest = after;
        } else {
            let inner = rest.trim_start_matches('.');
            let end = field_end(inner);
            value = value.get(inner[..end].replace("\\.", "."))?;
            rest = &inner[end..];
        }
    }
    Some(value)
}

/// Where a field's name ends: at a dot that is not escaped, or at a bracket.
fn field_end(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        if !escaped && matches!(c, '.' | '[') {
            return at;
        }
        escaped = c == '\\';
    }
    text.len()
}

/// The time since an instant, as kubectl prints it.
fn age(since: &Value, now: Timestamp) -> Value {
    let Some(since) = since.as_str().and_then(|t| t.parse::<Timestamp>().ok()) else {
        return "<unknown>".into();
    };
    let seconds = now.as_second() - since.as_second();
    if seconds < -1 {
        return "<invalid>".into();
    }
    let seconds = seconds.max(0);
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    let two = |big: i64, unit: &str, small: i64, small_unit: &str| {
        if small == 0 { format!("{big}{unit}") } else { format!("{big}{unit}{small}{small_unit}") }
    };
    let text = match seconds {
        0..120 => format!("{seconds}s"),
        120..600 => two(minutes, "m", seconds % 60, "s"),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => two(hours, "h", minutes % 60, "m"),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => two(days, "d", hours % 24, "h"),
        691_200..63_072_000 => format!("{days}d"),
        63_072_000..252_288_000 => two(days / 365, "y", days % 365, "d"),
        _ => format!("{}y", days / 365),
    };
    text.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_printed_as_kubectl_prints_them() {
        let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        for (seconds, expected) in [
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (130, "2m10s"),
            (700, "11m"),
            (10_900, "3h1m"),
            (30_000, "8h"),
            (200_000, "2d7h"),
            (8_640_000, "100d"),
        ] {
            assert_eq!(age(&json!("2026-01-01T00:00:00Z"), meta::later(start, seconds)), expected);
        }
    }

    #[test]
    fn paths_lead_through_fields_elements_and_conditions() {
        let object = json!({"a": {"b.c": [{"type": "Ready", "status": "True"}]}});
        assert_eq!(at(&object, r".a.b\.c[0].type"), Some(&json!("Ready")));
        assert_eq!(at(&object, r#".a.b\.c[?(@.type=="Ready")].status"#), Some(&json!("True")));
        assert_eq!(at(&object, ".a.x"), None);
    }
}
