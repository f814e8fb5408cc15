//! What the real server's types print although it is not set: seen in bookmarks, whose objects are otherwise empty.

use serde_json::{Value, json};

use super::kinds::ServedKind;

/// The fields of an empty object of a kind, besides its type and metadata.
pub(super) fn fields(kind: &ServedKind) -> Value {
    if kind.custom.is_some() {
        return json!({});
    }
    let template = || json!({"metadata": {}, "spec": {"containers": null}});
    match (kind.group.as_ref(), kind.plural.as_ref()) {
        ("", "events") => json!({
            "eventTime": null, "firstTimestamp": null, "involvedObject": {}, "lastTimestamp": null,
            "reportingComponent": "", "reportingInstance": "", "source": {},
        }),
        ("events.k8s.io", "events") => json!({
            "deprecatedFirstTimestamp": null, "deprecatedLastTimestamp": null, "deprecatedSource": {},
            "eventTime": null, "regarding": {},
        }),
        ("", "pods") => json!({"spec": {"containers": null}, "status": {}}),
        ("", "namespaces" | "nodes" | "resourcequotas") => json!({"spec": {}, "status": {}}),
        ("coordination.k8s.io", "leases") => json!({"spec": {}}),
        ("apps", "deployments") => {
            json!({"spec": {"selector": null, "template": template(), "strategy": {}}, "status": {}})
        }
        ("batch", "jobs") => json!({"spec": {"template": template()}, "status": {}}),
        _ => json!({}),
    }
}
