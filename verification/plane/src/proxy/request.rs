//! What a request is about, read from its line and body as the API server reads them.

use http::Method;
use serde::Deserialize;

use super::trace::TraceEntry;

/// Segments below a namespace's name that belong to the namespace itself and are no resource in it.
const OF_NAMESPACES: [&str; 2] = ["status", "finalize"];

/// Describes a request. `target` is its path and query, `body` all of its body.
pub(super) fn describe(method: &Method, target: &str, body: &[u8]) -> TraceEntry {
    let mut entry = TraceEntry { target: target.to_owned(), ..TraceEntry::default() };
    let path = target.split_once('?').map_or(target, |(path, _)| path);
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let parts = match parts.as_slice() {
        ["api", _, rest @ ..] if !rest.is_empty() => rest,
        ["apis", group, _, rest @ ..] if !rest.is_empty() => {
            (*group).clone_into(&mut entry.group);
            rest
        }
        _ => {
            entry.verb = method.as_str().to_ascii_lowercase();
            return entry;
        }
    };
    let parts = match parts {
        ["namespaces", namespace, rest @ ..] => {
            (*namespace).clone_into(&mut entry.namespace);
            let inside = rest.first().is_some_and(|first| !OF_NAMESPACES.contains(first));
            if inside { rest } else { parts }
        }
        _ => parts,
    };
    let part = |index: usize| parts.get(index).copied().unwrap_or_default().to_owned();
    (entry.resource, entry.name, entry.subresource) = (part(0), part(1), part(2));
    verb(method, &entry).clone_into(&mut entry.verb);
    if entry.name.is_empty() && matches!(entry.verb.as_str(), "list" | "watch") {
        entry.name = entry.query("fieldSelector").and_then(|text| selected(&text)).unwrap_or_default();
    }
    let known = Known::of(body);
    if entry.verb == "create" && entry.name.is_empty() {
        entry.name = known.name;
        if entry.resource == "namespaces" {
            entry.namespace.clone_from(&entry.name);
        }
    }
    (entry.uid, entry.resource_version) = (known.uid, known.resource_version);
    entry
}

fn verb(method: &Method, entry: &TraceEntry) -> &'static str {
    let watching = || entry.query("watch").is_some_and(|value| value != "false" && value != "0");
    match (method.as_str(), entry.name.is_empty()) {
        ("GET" | "HEAD", false) => "get",
        ("GET" | "HEAD", true) if watching() => "watch",
        ("GET" | "HEAD", true) => "list",
        ("POST", _) => "create",
        ("PUT", _) => "update",
        ("PATCH", _) => "patch",
        ("DELETE", false) => "delete",
        ("DELETE", true) => "deletecollection",
        _ => "",
    }
}

/// The one name that a field selector lets through.
fn selected(selector: &str) -> Option<String> {
    let terms = selector.split(',').filter_map(|term| term.strip_prefix("metadata.name="));
    terms.map(|name| name.trim_start_matches('=').to_owned()).next()
}

/// What a body tells about the object in it; empty where it tells nothing.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) name: String,
    pub(super) namespace: String,
    pub(super) uid: String,
    pub(super) resource_version: String,
}

impl Known {
    /// Of an object, a list, a `Status`, the options of a delete, or anything else.
    pub(super) fn of(body: &[u8]) -> Self {
        serde_json::from_slice::<Body>(body).map(Body::known).unwrap_or_default()
    }
}

/// The parts of a body that say which object it is about.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Body {
    metadata: Option<Metadata>,
    /// Of a `Status`.
    details: Option<Metadata>,
    /// Of the options of a delete.
    preconditions: Option<Metadata>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Metadata {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
}

impl Body {
    pub(super) fn known(self) -> Known {
        let sources = [self.metadata, self.details, self.preconditions];
        let first = |field: fn(&Metadata) -> &Option<String>| {
            sources.iter().flatten().find_map(|source| field(source).clone()).unwrap_or_default()
        };
        Known {
            name: first(|source| &source.name),
            namespace: first(|source| &source.namespace),
            uid: first(|source| &source.uid),
            resource_version: first(|source| &source.resource_version),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(method: &Method, target: &str, body: &str) -> [String; 6] {
        let it = describe(method, target, body.as_bytes());
        [it.verb, it.group, it.resource, it.namespace, it.name, it.subresource]
    }

    #[test]
    fn requests_are_read_as_the_api_server_reads_them() {
        let cases = [
            (Method::GET, "/api/v1/namespaces", "", ["list", "", "namespaces", "", "", ""]),
            (Method::GET, "/api/v1/namespaces/x", "", ["get", "", "namespaces", "x", "x", ""]),
            (
                Method::PUT,
                "/api/v1/namespaces/x/status",
                "",
                ["update", "", "namespaces", "x", "x", "status"],
            ),
            (Method::GET, "/api/v1/namespaces/x/pods", "", ["list", "", "pods", "x", "", ""]),
            (Method::GET, "/api/v1/pods?watch=1", "", ["watch", "", "pods", "", "", ""]),
            (Method::GET, "/api/v1/pods?watch=false", "", ["list", "", "pods", "", "", ""]),
            (Method::GET, "/apis/a.b/v1/things/y?watch=true", "", ["get", "a.b", "things", "", "y", ""]),
            (
                Method::PATCH,
                "/apis/a.b/v1/namespaces/x/things/y",
                "",
                ["patch", "a.b", "things", "x", "y", ""],
            ),
            (Method::DELETE, "/apis/a.b/v1/things", "", ["deletecollection", "a.b", "things", "", "", ""]),
            (Method::GET, "/apis/a.b/v1", "", ["get", "", "", "", "", ""]),
            (Method::GET, "/version", "", ["get", "", "", "", "", ""]),
            (
                Method::POST,
                "/api/v1/namespaces",
                r#"{"metadata":{"name":"n","creationTimestamp":null}}"#,
                ["create", "", "namespaces", "n", "n", ""],
            ),
            (
                Method::GET,
                "/api/v1/pods?fieldSelector=spec.nodeName%3Da%2Cmetadata.name%3Dp",
                "",
                ["list", "", "pods", "", "p", ""],
            ),
        ];
        for (method, target, body, expected) in cases {
            assert_eq!(words(&method, target, body), expected, "{target}");
        }
    }

    #[test]
    fn a_body_identifies_the_object_wherever_it_is_named() {
        let uid = |text: &str| Known::of(text.as_bytes()).uid;
        assert_eq!(uid(r#"{"metadata":{"uid":"a"}}"#), "a");
        assert_eq!(uid(r#"{"kind":"Status","metadata":{},"details":{"uid":"b"}}"#), "b");
        assert_eq!(uid(r#"{"preconditions":{"uid":"c","resourceVersion":"7"}}"#), "c");
        assert_eq!(Known::of(b"not found"), Known::default());
    }
}
