//! What clients ask to find out what there is: versions, groups, resources.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::Method;
use serde_json::{Value, json};

use super::Server;
use super::answer::{Body, Response};
use super::kinds::ServedKind;
use super::request::Request;
use super::status::StatusError;

/// The version of Kubernetes whose answers these are.
const VERSION: (&str, &str, &str) = ("1", "36", "v1.36.3");

/// The answer, if the path is one of discovery.
pub(super) fn answer(
    server: &Server,
    segments: &[&str],
    request: &Request,
) -> Result<Option<Response>, StatusError> {
    let aggregated = request
        .accept
        .as_deref()
        .is_some_and(|a| a.contains("as=APIGroupDiscoveryList") && a.contains("v=v2"));
    if let ([root @ ("api" | "apis")], true, &Method::GET) = (segments, aggregated, &request.method) {
        let body = Body::Discovery(aggregate(server, *root == "api"));
        return Ok(Some(Response::new(200, body)));
    }
    let value = match segments {
        ["version"] => version(),
        ["healthz" | "readyz" | "livez", ..] => {
            return Ok(Some(Response::new(200, Body::Text("ok".to_owned()))));
        }
        ["api"] => json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}),
        ["apis"] => json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups(server)}),
        ["api", "v1"] => resources(server, "", "v1").ok_or_else(StatusError::no_page)?,
        ["apis", group] => groups(server)
            .into_iter()
            .find(|g| g["name"] == *group)
            .map(|mut g| {
                g["kind"] = "APIGroup".into();
                g["apiVersion"] = "v1".into();
                g
            })
            .ok_or_else(StatusError::no_page)?,
        ["apis", group, version] => resources(server, group, version).ok_or_else(StatusError::no_page)?,
        ["openapi", "v3"] => openapi_index(server),
        ["openapi", "v3", "api", "v1"] => openapi(server, "", "v1").ok_or_else(StatusError::no_page)?,
        ["openapi", "v3", "apis", group, version] => {
            openapi(server, group, version).ok_or_else(StatusError::no_page)?
        }
        _ => return Ok(None),
    };
    if request.method != Method::GET {
        return Err(StatusError::method_not_allowed());
    }
    Ok(Some(Response::new(200, Body::Value(value))))
}

fn version() -> Value {
    let (major, minor, git) = VERSION;
    json!({
        "major": major,
        "minor": minor,
        "gitVersion": git,
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "",
        "platform": "",
    })
}

/// Group, its versions in order of preference, and the kinds of each.
type Groups = BTreeMap<String, BTreeMap<String, Vec<Arc<ServedKind>>>>;

fn by_group(server: &Server) -> Groups {
    let mut groups = Groups::new();
    for kind in server.kinds.served() {
        let versions = groups.entry(kind.group.to_string()).or_default();
        versions.entry(kind.version.to_string()).or_default().push(kind.clone());
    }
    groups
}

/// The version that clients should use: stable ones first, then the higher number.
fn preferred(versions: &BTreeMap<String, Vec<Arc<ServedKind>>>) -> Vec<&String> {
    let rank = |version: &str| {
        let number = |text: &str| text.parse::<u32>().unwrap_or(0);
        let text = version.trim_start_matches('v');
        for (stage, word) in [(1, "beta"), (0, "alpha")] {
            if let Some((major, minor)) = text.split_once(word) {
                return (stage, number(major), number(minor));
            }
        }
        (2, number(text), 0)
    };
    let mut names: Vec<&String> = versions.keys().collect();
    names.sort_by_key(|version| std::cmp::Reverse(rank(version)));
    names
}

fn groups(server: &Server) -> Vec<Value> {
    let mut list = Vec::new();
    for (group, versions) in by_group(server).iter().filter(|(group, _)| !group.is_empty()) {
        let versions: Vec<Value> = preferred(versions)
            .into_iter()
            .map(|version| json!({"groupVersion": format!("{group}/{version}"), "version": version}))
            .collect();
        list.push(json!({"name": group, "versions": versions, "preferredVersion": versions.first()}));
    }
    list
}

/// The kind of a subresource, where it is not that of its parent.
fn subresource_kind(kind: &ServedKind, subresource: &str) -> (String, String, String) {
    let of = |group: &str, version: &str, kind: &str| (group.to_owned(), version.to_owned(), kind.to_owned());
    match subresource {
        "scale" => of("autoscaling", "v1", "Scale"),
        "eviction" => of("policy", "v1", "Eviction"),
        "binding" => of("", "v1", "Binding"),
        _ => of(&kind.group, &kind.version, &kind.kind),
    }
}

fn subresource_verbs(subresource: &str) -> &'static [&'static str] {
    match subresource {
        "binding" | "eviction" => &["create"],
        "finalize" => &["update"],
        _ => &["get", "patch", "update"],
    }
}

fn resources(server: &Server, group: &str, version: &str) -> Option<Value> {
    let kinds = by_group(server).remove(group)?.remove(version)?;
    let mut list = Vec::new();
    for kind in &kinds {
        let mut resource = json!({
            "name": kind.plural,
            "singularName": kind.singular,
            "namespaced": kind.namespaced,
            "kind": kind.kind,
            "verbs": kind.verb_names(),
        });
        if !kind.short_names.is_empty() {
            resource["shortNames"] = json!(kind.short_names);
        }
        if !kind.categories.is_empty() {
            resource["categories"] = json!(kind.categories);
        }
        list.push(resource);
        for subresource in &kind.subresources {
            let (sub_group, sub_version, sub_kind) = subresource_kind(kind, subresource);
            let mut resource = json!({
                "name": format!("{}/{subresource}", kind.plural),
                "singularName": "",
                "namespaced": kind.namespaced,
                "kind": sub_kind,
                "verbs": subresource_verbs(subresource),
            });
            if (sub_group.as_str(), sub_version.as_str()) != (group, version) {
                resource["group"] = sub_group.into();
                resource["version"] = sub_version.into();
            }
            list.push(resource);
        }
    }
    let group_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    Some(
        json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": list}),
    )
}

/// `APIGroupDiscoveryList`: everything in one answer.
fn aggregate(server: &Server, core: bool) -> Value {
    let mut items = Vec::new();
    for (group, versions) in by_group(server).iter().filter(|(group, _)| group.is_empty() == core) {
        let versions: Vec<Value> = preferred(versions)
            .into_iter()
            .map(|version| {
                let resources: Vec<Value> = versions[version].iter().map(|kind| aggregated(kind)).collect();
                json!({"version": version, "resources": resources, "freshness": "Current"})
            })
            .collect();
        let metadata = if core { json!({}) } else { json!({"name": group}) };
        items.push(json!({"metadata": metadata, "versions": versions}));
    }
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items})
}

fn aggregated(kind: &ServedKind) -> Value {
    let of = |(group, version, kind): (String, String, String)| json!({"group": group, "version": version, "kind": kind});
    let subresources: Vec<Value> = kind
        .subresources
        .iter()
        .map(|subresource| {
            json!({
                "subresource": subresource,
                "responseKind": of(subresource_kind(kind, subresource)),
                "verbs": subresource_verbs(subresource),
            })
        })
        .collect();
    json!({
        "resource": kind.plural,
        "responseKind": {"group": kind.group, "version": kind.version, "kind": kind.kind},
        "scope": if kind.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": kind.singular,
        "verbs": kind.verb_names(),
        "shortNames": kind.short_names,
        "categories": kind.categories,
        "subresources": subresources,
    })
}

fn openapi_index(server: &Server) -> Value {
    let mut paths = serde_json::Map::new();
    for (group, versions) in by_group(server) {
        for version in versions.keys() {
            let path =
                if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") };
            let url = format!("/openapi/v3/{path}?hash={}", server.revision());
            paths.insert(path, json!({"serverRelativeURL": url}));
        }
    }
    json!({"paths": paths})
}

/// The schemas of custom resources, and for the others that they are objects: enough for `kubectl explain` of the former
/// and for `kubectl apply` of both.
fn openapi(server: &Server, group: &str, version: &str) -> Option<Value> {
    let kinds = by_group(server).remove(group)?.remove(version)?;
    let mut schemas = serde_json::Map::new();
    let mut paths = serde_json::Map::new();
    for kind in &kinds {
        let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let mut schema = kind.custom.as_ref().map_or(open, |custom| custom.open_api.as_ref().clone());
        let gvk = json!([{"group": group, "version": version, "kind": kind.kind}]);
        schema["x-kubernetes-group-version-kind"] = gvk.clone();
        let reversed: Vec<&str> = group.split('.').rev().filter(|part| !part.is_empty()).collect();
        let name = format!(
            "{}.{version}.{}",
            if group.is_empty() { "core".to_owned() } else { reversed.join(".") },
            kind.kind
        );
        let parameters = ["fieldValidation", "dryRun", "fieldManager"];
        let parameters: Vec<Value> = parameters
            .iter()
            .map(|p| json!({"name": p, "in": "query", "schema": {"type": "string"}}))
            .collect();
        let base =
            if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
        let scope = if kind.namespaced { "/namespaces/{namespace}" } else { "" };
        let gvk = &gvk[0];
        let operation = |action: &str| json!({"x-kubernetes-action": action, "x-kubernetes-group-version-kind": gvk, "parameters": parameters});
        paths.insert(
            format!("{base}{scope}/{}/{{name}}", kind.plural),
            json!({"get": operation("get"), "patch": operation("patch"), "put": operation("put")}),
        );
        schemas.insert(name, schema);
    }
    Some(json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": VERSION.2},
        "paths": paths,
        "components": {"schemas": schemas},
    }))
}
