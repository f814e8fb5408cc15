//! Reads that see the past: the API server itself tells what was.

use http::{
    HeaderValue, StatusCode,
    header::{ACCEPT, AUTHORIZATION, IF_NONE_MATCH},
};
use hyper::body::Bytes;
use serde_json::Value;

use super::{
    answer::{self, FakeResponse},
    body::Cut,
    forward::{Exchange, Reply},
    trace::TraceEntry,
};

/// Answers a `get`, `list` or `watch` with what was at the revision.
pub(super) async fn request(exchange: &Exchange, revision: u64) -> Result<Reply, Cut> {
    let entry = &exchange.entry;
    let target = match entry.verb.as_str() {
        "get" => return object(exchange, revision).await,
        "list" => list(entry, revision),
        _ if entry.query("sendInitialEvents").is_some() => {
            let message = "injected: a watch of the past cannot begin with initial events";
            return Ok(FakeResponse::status(400, "BadRequest", message).into());
        }
        _ => watch(entry, revision),
    };
    exchange.send(&exchange.head, &target).await.map(Reply::Stream)
}

/// A list of that revision, or a later page of the list that it is: a continue token has its revision in itself, and the
/// API server refuses another beside it.
fn list(entry: &TraceEntry, revision: u64) -> String {
    if entry.query("continue").is_some_and(|token| !token.is_empty()) {
        return entry.target.clone();
    }
    let revision = revision.to_string();
    with(&entry.target, &[("resourceVersion", &revision), ("resourceVersionMatch", "Exact")])
}

/// A watch from that revision on, or from an older one.
fn watch(entry: &TraceEntry, revision: u64) -> String {
    let asked = entry.query("resourceVersion").and_then(|text| text.parse().ok());
    match asked {
        Some(asked) if (1..=revision).contains(&asked) => entry.target.clone(),
        _ => with(&entry.target, &[("resourceVersion", &revision.to_string())]),
    }
}

/// There is no `get` of a revision, but a list with one object. Who may get an object may not always list it, so the live
/// object says whether the client may, and the list is made in another name.
async fn object(exchange: &Exchange, revision: u64) -> Result<Reply, Cut> {
    let entry = &exchange.entry;
    let live = exchange.send(&exchange.head, &entry.target).await?;
    if matches!(live.status(), StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
        return Ok(Reply::Stream(live));
    }
    drop(live);

    let mut head = exchange.head.clone();
    head.headers.insert(AUTHORIZATION, exchange.shared.reader.clone());
    head.headers.remove(IF_NONE_MATCH);
    let partial = head
        .headers
        .get(ACCEPT)
        .and_then(|accept| accept.to_str().ok())
        .filter(|accept| accept.contains("as=PartialObjectMetadata;"));
    let accept =
        partial.map(|accept| accept.replace("as=PartialObjectMetadata;", "as=PartialObjectMetadataList;"));
    let accept = accept.and_then(|accept| HeaderValue::try_from(accept).ok());
    head.headers.insert(ACCEPT, accept.unwrap_or(HeaderValue::from_static("application/json")));

    let list = exchange.send(&head, &list_of_one(entry, revision)).await?;
    let list = exchange.whole(Reply::Stream(list)).await?;
    if list.status() != StatusCode::OK {
        return Ok(Reply::Whole(list));
    }
    let object = serde_json::from_slice(list.body()).ok().and_then(only_item);
    let Some(object) = object else { return Ok(absent(entry).into()) };
    Ok(Reply::Whole(list.map(|_| Bytes::from(object.to_string()))))
}

fn list_of_one(entry: &TraceEntry, revision: u64) -> String {
    let path = entry.target.split_once('?').map_or(entry.target.as_str(), |(path, _)| path);
    let path = path.strip_suffix("/status").filter(|_| !entry.subresource.is_empty()).unwrap_or(path);
    let path = path.rsplit_once('/').map_or(path, |(path, _)| path);
    let (name, revision) = (format!("metadata.name={}", entry.name), revision.to_string());
    with(path, &[("fieldSelector", &name), ("resourceVersion", &revision), ("resourceVersionMatch", "Exact")])
}

/// The object in a list of one. The items of a list need not say what they are, as the list does.
fn only_item(mut list: Value) -> Option<Value> {
    let mut item = list.get_mut("items")?.get_mut(0)?.take();
    let kind = list["kind"].as_str()?;
    let fields = [("apiVersion", list["apiVersion"].clone()), ("kind", kind.trim_end_matches("List").into())];
    let object = item.as_object_mut()?;
    for (name, value) in fields {
        object.entry(name).or_insert(value);
    }
    Some(item)
}

fn absent(entry: &TraceEntry) -> FakeResponse {
    let TraceEntry { group, resource, name, .. } = entry;
    let full = if group.is_empty() { resource.clone() } else { format!("{resource}.{group}") };
    let mut status = answer::status(404, "NotFound", &format!("{full} \"{name}\" not found"));
    status["details"] = serde_json::json!({"name": name, "group": group, "kind": resource});
    FakeResponse::json(404, &status)
}

/// The target with these parameters, in place of others of the same names.
fn with(target: &str, parameters: &[(&str, &str)]) -> String {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let old = form_urlencoded::parse(query.as_bytes());
    let kept = old.filter(|(name, _)| parameters.iter().all(|(new, _)| new != name));
    let query =
        form_urlencoded::Serializer::new(String::new()).extend_pairs(kept).extend_pairs(parameters).finish();
    format!("{path}?{query}")
}

#[cfg(test)]
mod tests {
    use http::Method;
    use serde_json::json;

    use super::{super::request::describe, *};

    fn entry(target: &str) -> TraceEntry {
        describe(&Method::GET, target, b"")
    }

    #[test]
    fn a_list_is_of_the_revision_and_a_later_page_stays_as_it_is() {
        assert_eq!(
            list(&entry("/api/v1/pods?limit=5&resourceVersion=9&resourceVersionMatch=NotOlderThan"), 7),
            "/api/v1/pods?limit=5&resourceVersion=7&resourceVersionMatch=Exact"
        );
        assert_eq!(list(&entry("/api/v1/pods?continue=x"), 7), "/api/v1/pods?continue=x");
        assert_eq!(
            list(&entry("/api/v1/pods?continue="), 7),
            "/api/v1/pods?continue=&resourceVersion=7&resourceVersionMatch=Exact"
        );
    }

    #[test]
    fn a_watch_never_begins_after_the_revision() {
        let begins = |target: &str| entry(&watch(&entry(target), 7)).query("resourceVersion").unwrap();
        assert_eq!(begins("/api/v1/pods?watch=true"), "7");
        for (asked, expected) in [("0", "7"), ("6", "6"), ("7", "7"), ("9", "7")] {
            assert_eq!(begins(&format!("/api/v1/pods?watch=true&resourceVersion={asked}")), expected);
        }
    }

    #[test]
    fn a_get_is_a_list_of_one() {
        let rest = "?fieldSelector=metadata.name%3Dp&resourceVersion=7&resourceVersionMatch=Exact";
        for target in ["/api/v1/namespaces/n/pods/p", "/api/v1/namespaces/n/pods/p/status?pretty=1"] {
            assert_eq!(list_of_one(&entry(target), 7), format!("/api/v1/namespaces/n/pods{rest}"));
        }
        assert_eq!(
            list_of_one(&entry("/api/v1/namespaces/p/status"), 7),
            format!("/api/v1/namespaces{rest}")
        );
        assert_eq!(list_of_one(&entry("/api/v1/namespaces/p"), 7), format!("/api/v1/namespaces{rest}"));
    }

    #[test]
    fn an_item_becomes_an_object_of_its_own() {
        let list = json!({"kind": "PodList", "apiVersion": "v1", "items": [{"metadata": {"name": "p"}}]});
        let expected = json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "p"}});
        assert_eq!(only_item(list), Some(expected));
        assert_eq!(only_item(json!({"kind": "PodList", "apiVersion": "v1", "items": []})), None);
        assert_eq!(only_item(json!({"kind": "PodList", "apiVersion": "v1", "items": null})), None);
    }
}
