//! What is left in a namespace, as its conditions say it, and the objects themselves.

use http::Request;
use kube::Client;
use serde_json::Value;

use crate::connect::failed;

/// At most this many objects of a resource are named.
const MAX_NAMED: u32 = 10;
/// Only names, finalizers and times are asked for.
const METADATA_ONLY: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

/// Resource and group of everything that a condition's message counts: `pods. has 2 resource instances`.
pub(super) fn parse(message: &str) -> Vec<(String, String)> {
    let Some((_, list)) = message.split_once("resources are remaining: ") else { return Vec::new() };
    let names = list.split(", ").filter_map(|part| part.split_once(" has ")).map(|(name, _)| name);
    names.filter_map(|name| name.split_once('.')).map(|(r, g)| (r.to_owned(), g.to_owned())).collect()
}

/// The finalizers that a condition's message counts: `example.com/x in 2 resource instances`.
pub(super) fn finalizers(message: &str) -> Vec<String> {
    let Some((_, list)) = message.split_once("finalizers remaining: ") else { return Vec::new() };
    list.split(", ").filter_map(|part| part.split_once(" in ")).map(|(name, _)| name.to_owned()).collect()
}

/// The objects of a resource, a line each.
pub(super) async fn objects(client: &Client, namespace: &str, resource: &str, group: &str) -> Vec<String> {
    match list(client, namespace, resource, group).await {
        Ok(lines) => lines,
        Err(error) => vec![format!("{:#}", failed(&format!("{resource} cannot be listed"), &error))],
    }
}

async fn list(
    client: &Client,
    namespace: &str,
    resource: &str,
    group: &str,
) -> Result<Vec<String>, kube::Error> {
    let root = if group.is_empty() {
        "/api/v1".to_owned()
    } else {
        let groups = client.list_api_groups().await?.groups;
        let found = groups.into_iter().find(|g| g.name == group);
        let version = found.and_then(|g| g.preferred_version.or(g.versions.into_iter().next()));
        let Some(version) = version else {
            return Ok(vec![format!(
                "{resource}.{group}: its API is not served, so its objects cannot be listed"
            )]);
        };
        format!("/apis/{}", version.group_version)
    };
    let request = Request::get(format!("{root}/namespaces/{namespace}/{resource}?limit={MAX_NAMED}"))
        .header(http::header::ACCEPT, METADATA_ONLY)
        .body(Vec::new())
        .map_err(kube::Error::HttpError)?;
    let answer: Value = client.request(request).await?;
    let items = answer["items"].as_array().cloned().unwrap_or_default();
    Ok(items.iter().map(|item| describe(resource, &item["metadata"])).collect())
}

fn describe(resource: &str, metadata: &Value) -> String {
    let name = metadata["name"].as_str().unwrap_or_default();
    let finalizers: Vec<&str> =
        metadata["finalizers"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let asked = if metadata["deletionTimestamp"].is_string() { "being deleted" } else { "not being deleted" };
    if finalizers.is_empty() {
        format!("{resource}/{name}: {asked}, no finalizers")
    } else {
        format!("{resource}/{name}: {asked}, finalizers {}", finalizers.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_name_what_is_left() {
        let message = "Some resources are remaining: configmaps. has 2 resource instances, widgets.example.com has 1 resource instances";
        let expected =
            [("configmaps", ""), ("widgets", "example.com")].map(|(r, g)| (r.to_owned(), g.to_owned()));
        assert_eq!(parse(message), expected);
        assert!(parse("All content successfully removed").is_empty());
        let message = "Some content in the namespace has finalizers remaining: example.com/x in 2 resource instances, b in 1 resource instances";
        assert_eq!(finalizers(message), ["example.com/x", "b"]);
    }
}
