//! The admission webhook of the program of trees: the one that it serves on a cluster, without the connection.

use std::time::Duration;

use coppice_api::names::GROUP;
use coppice_operator::TreeReviewer;
use coppice_serve::admission::Admission;
use coppice_serve::port::Page;
use coppice_sim::server::Operation::{Create, Update};
use coppice_sim::{Webhook, WebhookConfiguration, WebhookRule};
use futures::FutureExt as _;
use futures::future::BoxFuture;

/// As it is installed: `deploy/trees.yaml`.
pub(super) const CONFIGURATION: WebhookConfiguration = WebhookConfiguration {
    name: "trees.coppice.dev",
    rules: &[
        WebhookRule { group: GROUP, resource: "subnamespaces", operations: &[Create, Update] },
        WebhookRule { group: GROUP, resource: "quotatransfers", operations: &[Create] },
    ],
    timeout: Duration::from_secs(2),
};

/// That of a replica.
pub(super) struct Served(pub(super) Admission<TreeReviewer>);

impl Webhook for Served {
    fn answer<'a>(&'a self, review: &'a [u8]) -> BoxFuture<'a, Page> {
        self.0.answer_to(review).boxed()
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize as _;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn it_is_asked_what_the_installed_one_is_asked() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/trees.yaml");
        let manifests = std::fs::read_to_string(path).unwrap();
        let objects = serde_yaml::Deserializer::from_str(&manifests);
        let mut objects = objects.map(|object| Value::deserialize(object).unwrap());
        let installed = objects.find(|object| object["kind"] == "ValidatingWebhookConfiguration").unwrap();
        let webhook = &installed["webhooks"][0];
        let rules: Vec<Value> = CONFIGURATION
            .rules
            .iter()
            .map(|rule| {
                let operations: Vec<&str> = rule.operations.iter().map(|one| one.as_str()).collect();
                json!({
                    "apiGroups": [rule.group], "apiVersions": ["v1alpha1"], "operations": operations,
                    "resources": [rule.resource], "scope": "Namespaced"
                })
            })
            .collect();
        assert_eq!(webhook["rules"], json!(rules));
        assert_eq!(webhook["name"], CONFIGURATION.name);
        assert_eq!(webhook["timeoutSeconds"], CONFIGURATION.timeout.as_secs());
        assert_eq!(webhook["failurePolicy"], "Ignore");
    }
}
