//! Who owns a namespace: where a cluster manager reads it from.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema;

/// The most characters of an owner that are kept.
pub const MAX_OWNER: u32 = 256;

/// Where the owner of a namespace is read from: the first that it has and that can be understood, annotations before labels.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.annotations) || has(self.labels)",
    "message": "write annotations or labels by which namespaces say who owns them, such as labels: [team]"
}]))]
pub struct OwnerSource {
    /// Annotations, in this order. Default: none, so that labels alone say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 8), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["key"]))]
    pub annotations: Option<Vec<OwnerAnnotation>>,
    /// Keys of labels, in this order. Default: none, so that annotations alone say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 8), inner(length(min = 1, max = 317)), extend("x-kubernetes-list-type" = "set"))]
    pub labels: Option<Vec<String>>,
    /// Who is notified of a namespace whose owner has no address for any of the channels. Default: nobody, so that messages go to
    /// owners alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fallback: Option<FallbackRecipient>,
}

/// Who is notified in place of an owner.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.slack) || has(self.email)",
    "message": "write slack or email in owner.fallback, such as slack: '#platform'"
}]))]
pub struct FallbackRecipient {
    /// A channel or member of Slack: `#platform`, or an id. Default: none, so that nobody is notified in Slack instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 2, max = 80), extend("x-kubernetes-validations" = [{
        "rule": "self.matches('^(#[^ \\t\\n]+|[A-Z0-9]+)$')",
        "message": "write a channel with its '#', such as '#platform', or the id of a channel or member, such as U024BE7LH"
    }]))]
    pub slack: Option<String>,
    /// A mail address. Default: none, so that nobody is notified by mail instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 3, max = 254), extend("x-kubernetes-validations" = [{
        "rule": "self.matches('^[^@ \\t\\n]+@[^@ \\t\\n]+$')",
        "message": "write one mail address, such as platform@example.org"
    }]))]
    pub email: Option<String>,
}

/// An annotation by which a namespace says who owns it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OwnerAnnotation {
    /// The annotation's key.
    #[schemars(schema_with = "schema::annotation_key")]
    pub key: String,
    /// How its value is written. Default: `Plain`, so that any value is an owner.
    #[serde(default)]
    pub format: OwnerFormat,
}

/// How the value of an annotation says who owns a namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OwnerFormat {
    /// The owner, as it is.
    #[default]
    Plain,
    /// As the SKA Namespace Manager reads it: base64 of `NAME::ADDRESS`. The name is the owner; records keep no address.
    #[serde(rename = "SKA")]
    Ska,
    /// A mail address, such as `jo@example.org`. Records keep it masked.
    Email,
    /// A member or channel of Slack: its id, or `#channel`. Records keep ids masked.
    Slack,
}
