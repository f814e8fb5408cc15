//! The objects that are written, as the schemas of our kinds have them.

use std::collections::BTreeMap;

use coppice_quantity::Duration;
use serde_json::{Map, Value, json};

use super::Options;
use super::dump::NamespacedName;

const API_VERSION: &str = "coppice.dev/v1alpha1";
/// The key of the kubeconfig in Secrets of the form of Kyma, unless another one is written.
const CONFIG: &str = "config";

/// What a `ClusterAccess` says.
pub(super) struct NewAccess<'a> {
    pub(super) key: &'a NamespacedName,
    pub(super) labels: &'a BTreeMap<String, String>,
    pub(super) shoot: &'a str,
    pub(super) secret: &'a str,
    pub(super) data_key: &'a str,
}

/// A `ClusterAccess` that issues nothing yet.
pub(super) fn access(new: &NewAccess<'_>, options: &Options) -> Value {
    let mut output = json!({"secret": new.secret, "format": "Kyma"});
    if new.data_key != CONFIG {
        output["key"] = json!(new.data_key);
    }
    let mut spec = json!({
        "cluster": {"gardener": {"provider": options.provider, "shoot": new.shoot}},
        "issuer": "GardenerAdmin",
        "output": output,
        "suspend": true,
    });
    if let Some(ttl) = options.ttl {
        spec["ttl"] = json!(ttl);
    }
    if let Some(percent) = options.rotate_at {
        spec["rotateAt"] = json!(percent);
    }
    let (namespace, name) = new.key;
    object("ClusterAccess", &metadata(Some(namespace), name, new.labels), &spec)
}

/// A `ClusterProvider` that lets these namespaces have what the accesses ask for.
pub(super) fn provider(options: &Options, project: &str, namespaces: &[&str]) -> Value {
    let mut allowed = json!({"namespaces": namespaces, "issuers": ["GardenerAdmin"]});
    if let Some(ttl) = options.ttl.filter(|ttl| *ttl > Duration::from_secs(86_400)) {
        allowed["maxTtl"] = json!(ttl);
    }
    let spec =
        json!({"project": project, "credential": {"secret": "gardener-credentials"}, "allow": [allowed]});
    object("ClusterProvider", &metadata(None, &options.provider, &BTreeMap::new()), &spec)
}

pub(super) fn metadata(namespace: Option<&str>, name: &str, labels: &BTreeMap<String, String>) -> Value {
    let mut metadata = Map::new();
    metadata.insert("name".to_owned(), json!(name));
    metadata.extend(namespace.map(|namespace| ("namespace".to_owned(), json!(namespace))));
    if !labels.is_empty() {
        metadata.insert("labels".to_owned(), json!(labels));
    }
    Value::Object(metadata)
}

pub(super) fn object(kind: &str, metadata: &Value, spec: &Value) -> Value {
    json!({"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": spec})
}
