//! Schema fragments about quotas of trees.

use schemars::{Schema, SchemaGenerator, json_schema};

use super::{namespace_name, not_empty, with_rules};

/// An amount that is not negative, in one of the forms that Kubernetes reads.
const AMOUNT: &str = "^[+]?([0-9]+[.]?[0-9]*|[.][0-9]+)([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]+)?$";
/// What the name of a resource looks like.
const RESOURCE_NAME: &str = "^([a-z0-9]([-.a-z0-9]*[a-z0-9])?/)?[A-Za-z0-9]([-._A-Za-z0-9]*[A-Za-z0-9])?$";

/// Amounts of resources, as `spec.hard` of a ResourceQuota has them. What a quota counts is decided by the program, which has the
/// list; that they are amounts at all is decided here.
pub(crate) fn quota_hard(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "minProperties": 1,
        "maxProperties": 64,
        "additionalProperties": {
            "x-kubernetes-int-or-string": true,
            "maxLength": 32,
            "x-kubernetes-validations": [{
                "rule": format!("type(self) == int ? self >= 0 : self.matches('{AMOUNT}')"),
                "message": "write an amount that is not negative, such as 2, 500m, 1.5 or 4Gi"
            }]
        },
        "x-kubernetes-validations": [{
            "rule": format!("self.all(key, size(key) <= 317 && key.matches('{RESOURCE_NAME}'))"),
            "message": "write the name of a resource that quotas count, such as cpu, limits.memory, pods, count/deployments.apps or requests.example.com/gpu"
        }, not_empty("write at least one resource with its amount, such as pods: 10")]
    })
}

/// The amounts of a tree, of which none may be taken away: without a limit there would be any amount of it.
pub(crate) fn tree_hard(generator: &mut SchemaGenerator) -> Schema {
    let stays = serde_json::json!({
        "rule": "oldSelf.all(key, key in self)",
        "message": "a resource that the tree limits stays limited, or every namespace of it could use any amount: write 0 to give none of it"
    });
    with_rules(quota_hard(generator), [stays])
}

/// Names of resources that subnamespaces have to name.
pub(crate) fn required_resources(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 64,
        "x-kubernetes-list-type": "set",
        "items": { "type": "string", "minLength": 1, "maxLength": 317 }
    })
}

/// Names of namespaces that are partitions of a tree.
pub(crate) fn partitions(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 64,
        "x-kubernetes-list-type": "set",
        "items": namespace_name(generator)
    })
}

/// Amounts in status.
pub(crate) fn status_hard(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 64,
        "additionalProperties": { "type": "string", "maxLength": 64 },
        "x-kubernetes-validations": [{
            "rule": "self.all(key, size(key) <= 317)",
            "message": "the name of a resource has at most 317 characters"
        }]
    })
}
