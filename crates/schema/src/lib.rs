//! What the API server does with an object by its CRD's schema: pruning, defaults, validation, CEL rules; and
//! [`mutate`], which makes wrong objects of right ones by the same schema.
//!
//! The words of a [`ValidationError`] are those of kube-apiserver 1.36, to the letter: the tests compare them with answers that
//! one has given. Where it looks at properties in no order, here they are in the order of their names.
//!
//! ```
//! use serde_json::json;
//!
//! let schema = coppice_schema::Schema::compile(&json!({
//!     "type": "object",
//!     "properties": {"spec": {
//!         "type": "object",
//!         "required": ["ttl"],
//!         "properties": {"ttl": {"type": "string"}, "replicas": {"type": "integer", "default": 1, "minimum": 1}},
//!     }},
//! }))?;
//! let mut object = json!({"kind": "T", "spec": {"replicas": 0, "tll": "5m"}});
//! assert_eq!(schema.prune(&mut object), ["spec.tll"]);
//! schema.default(&mut object);
//! let causes = schema.validate(&object, None);
//! assert_eq!(causes[1].to_string(), "spec.ttl: Required value");
//! # Ok::<(), coppice_schema::SchemaError>(())
//! ```
//!
//! What the API server does for every kind alike is not done here: names, labels and the rest of `metadata`, and the
//! limits on the costs of rules.

mod cause;
mod cel;
mod check;
mod compile;
mod correlate;
mod defaults;
mod embedded;
mod error;
mod format;
mod go;
mod list;
pub mod mutate;
mod node;
mod number;
mod path;
mod pattern;
mod prune;
mod text;
mod url;

pub use cause::{CauseType, ValidationError, format_cause_list, status_causes};
pub use error::SchemaError;

/// The fields that the API server knows in the `metadata` of every object.
pub const METADATA: [&str; 15] = [
    "annotations",
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "finalizers",
    "generateName",
    "generation",
    "labels",
    "managedFields",
    "name",
    "namespace",
    "ownerReferences",
    "resourceVersion",
    "selfLink",
    "uid",
];

use serde_json::Value;

use crate::node::Node;
use crate::path::Path;

/// A schema, ready for use: compile it once, use it for every object.
#[derive(Debug)]
pub struct Schema {
    pub(crate) root: Node,
}

impl Schema {
    /// Reads the `openAPIV3Schema` of a version of a CRD.
    ///
    /// What is not supported, or what the API server would not accept as a structural schema, is an error that names
    /// its place; so is a rule that does not compile.
    pub fn compile(open_api_v3_schema: &Value) -> Result<Self, SchemaError> {
        Ok(Self { root: compile::root(open_api_v3_schema)? })
    }

    /// Drops what the schema does not know, and answers where it was, sorted: `spec.policies[0].foo`. In strict mode
    /// the API server refuses an object for each of them: `strict decoding error: unknown field "spec.foo"`.
    ///
    /// Drops nulls as well where the schema neither admits null nor has a default; no path is answered for those. Nulls
    /// in lists stay and are refused by [`validate`](Self::validate).
    pub fn prune(&self, object: &mut Value) -> Vec<String> {
        let unknown = prune::unknown_fields(&self.root, object);
        prune::nulls(&self.root, object);
        unknown
    }

    /// Puts in defaults where a field is missing, or null without being nullable, at every level that is there.
    pub fn default(&self, object: &mut Value) {
        defaults::apply(&self.root, object);
    }

    /// Everything that is wrong with an object which has been pruned and has its defaults; with `old`, as an update of
    /// it: transition rules are checked, and what has not changed is forgiven.
    pub fn validate(&self, new: &Value, old: Option<&Value>) -> Vec<ValidationError> {
        self.validate_after(false, new, old)
    }

    /// As [`validate`](Self::validate). `blocked` is whether something is wrong outside of the schema (in the metadata)
    /// after which the API server does not evaluate rules: a missing name, for one.
    pub fn validate_after(&self, blocked: bool, new: &Value, old: Option<&Value>) -> Vec<ValidationError> {
        let checked = check::value(&self.root, new, old, Path::Root);
        let mut causes: Vec<ValidationError> = checked.failures.into_iter().map(|f| f.cause).collect();
        embedded::check(&self.root, new, Path::Root, &mut causes);
        self.lists_and_rules(blocked, new, old, &mut causes);
        causes
    }

    /// As [`validate`](Self::validate), for an update of `status` alone: the values of other fields have been checked
    /// when they were written.
    pub fn validate_status(&self, new: &Value, old: &Value) -> Vec<ValidationError> {
        let mut causes = Vec::new();
        if let Some((node, status)) = self.root.properties.get("status").zip(new.get("status")) {
            let checked = check::value(node, status, old.get("status"), Path::Field(&Path::Root, "status"));
            causes.extend(checked.failures.into_iter().map(|f| f.cause));
        }
        self.lists_and_rules(false, new, Some(old), &mut causes);
        causes
    }

    /// Lists that are sets or maps, and rules.
    fn lists_and_rules(
        &self,
        blocked: bool,
        new: &Value,
        old: Option<&Value>,
        causes: &mut Vec<ValidationError>,
    ) {
        if old.is_none_or(|old| list::check(&self.root, old, Path::Root).is_empty()) {
            causes.extend(list::check(&self.root, new, Path::Root));
        }
        if !self.root.has_rules {
            return;
        }
        if blocked || causes.iter().any(|cause| CauseType::BLOCK_RULES.contains(&cause.reason)) {
            causes.push(ValidationError::rules_not_checked());
        } else {
            causes.extend(cel::check(&self.root, new, old));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn schema() -> Schema {
        Schema::compile(&json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "a": {"type": "string"},
            "d": {"type": "object", "default": {}, "properties": {"n": {"type": "integer", "default": 1}}},
            "nullable": {"type": "string", "nullable": true, "default": "x"},
            "list": {"type": "array", "items": {"type": "object", "properties": {"n": {"type": "integer", "default": 2}}}},
            "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {"n": {"type": "integer"}}}},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true,
                "properties": {"known": {"type": "object", "properties": {"a": {"type": "string"}}}}},
            "res": {"type": "object", "x-kubernetes-embedded-resource": true, "properties": {"spec": {"type": "object"}}},
            "either": {"x-kubernetes-int-or-string": true},
        }}}}))
        .unwrap()
    }

    #[test]
    fn unknown_fields_are_dropped_and_named_and_preserved_fields_stay() {
        let mut object = json!({
            "apiVersion": "v1", "kind": "K", "metadata": {"any": 1}, "other": 1,
            "spec": {
                "a": "x", "b": {"c": 1}, "either": {"x": 1},
                "list": [{"n": 1, "m": 2}, {}],
                "map": {"any": {"n": 1, "m": 2}},
                "free": {"x": {"y": 1}, "known": {"a": "1", "b": 2}},
                "res": {"apiVersion": "v1", "kind": "Pod", "metadata": {"x": 1}, "data": 1, "spec": {"x": 1}},
            },
        });
        let unknown = schema().prune(&mut object);
        assert_eq!(
            unknown,
            [
                "other",
                "spec.b",
                "spec.either.x",
                "spec.free.known.b",
                "spec.list[0].m",
                "spec.map.any.m",
                "spec.res.data",
                "spec.res.spec.x"
            ]
        );
        assert_eq!(
            object,
            json!({
                "apiVersion": "v1", "kind": "K", "metadata": {"any": 1},
                "spec": {
                    "a": "x", "either": {}, "list": [{"n": 1}, {}], "map": {"any": {"n": 1}},
                    "free": {"x": {"y": 1}, "known": {"a": "1"}},
                    "res": {"apiVersion": "v1", "kind": "Pod", "metadata": {"x": 1}, "spec": {}},
                },
            })
        );
    }

    #[test]
    fn nulls_count_as_left_out_unless_they_are_admitted() {
        let mut object = json!({"spec": {"a": null, "d": null, "nullable": null, "list": [null, {"n": null}], "unknown": null}});
        assert_eq!(schema().prune(&mut object), ["spec.unknown"]);
        assert_eq!(object, json!({"spec": {"d": null, "nullable": null, "list": [null, {"n": null}]}}));
        schema().default(&mut object);
        assert_eq!(object, json!({"spec": {"d": {"n": 1}, "nullable": null, "list": [null, {"n": 2}]}}));
    }

    #[test]
    fn defaults_are_put_in_where_their_parent_is() {
        let mut object = json!({"spec": {"list": [{}, {"n": 5}]}});
        schema().default(&mut object);
        assert_eq!(object, json!({"spec": {"d": {"n": 1}, "nullable": "x", "list": [{"n": 2}, {"n": 5}]}}));
        let mut empty = json!({});
        schema().default(&mut empty);
        assert_eq!(empty, json!({}));
    }
}
