//! Labels and annotations of namespaces of a tree that are not about the tree: which ones, and with which values.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema;

/// Which labels and annotations namespaces below the root may have of others than administrators.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TreeMetadata {
    /// Those that a Subnamespace may set on its namespace (`spec.metadata`). What selects namespaces by them, such as a
    /// NetworkPolicy, or reads an owner from them, then trusts anyone who may create Subnamespaces. Default: none, so that
    /// nobody is trusted by what anyone may set.
    #[serde(default)]
    pub allowed: MetadataKeys,
    /// Those that every namespace has as the namespace above it has them: of the root, anyone who may write that namespace sets them.
    /// Where a Subnamespace is allowed to set the same key, and does, its value counts, also below. Default: none, so that each
    /// key is a decision of its own.
    #[serde(default)]
    pub inherited: MetadataKeys,
}

/// Keys of labels and annotations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MetadataKeys {
    /// Keys of labels. Default: none, so that each key is a decision of its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::settable_labels")]
    pub labels: Vec<String>,
    /// Keys of annotations. Default: none, so that each key is a decision of its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::settable_annotations")]
    pub annotations: Vec<String>,
}

/// Labels and annotations that a namespace is to have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NamespaceMetadata {
    /// Labels. Default: none, so that the namespace has those that it inherits alone.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::set_labels")]
    pub labels: BTreeMap<String, String>,
    /// Annotations, each of at most 256 characters. Default: none, so that the namespace has those that it inherits alone.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::set_annotations")]
    pub annotations: BTreeMap<String, String>,
}

/// The keys of the labels and annotations that Coppice has set on a namespace besides those about the tree: these it removes when
/// they are wanted no more, and no others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MetadataSet {
    /// Keys of labels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::status_keys")]
    pub labels: Vec<String>,
    /// Keys of annotations.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::status_keys")]
    pub annotations: Vec<String>,
}

impl NamespaceMetadata {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.annotations.is_empty()
    }
}

impl MetadataKeys {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.annotations.is_empty()
    }
}

impl TreeMetadata {
    /// Whether namespaces have none of others than administrators.
    pub fn is_empty(&self) -> bool {
        self.allowed.is_empty() && self.inherited.is_empty()
    }
}

impl MetadataSet {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.annotations.is_empty()
    }
}
