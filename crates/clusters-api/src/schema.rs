//! Schema fragments of these kinds.

use coppice_api::schema;
use coppice_quantity::Duration;
use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

use crate::cluster_access::{
    LONGEST_TTL, MAX_CERTIFICATES, MAX_NAMESPACES, MAX_SUPERSEDED, SHORTEST_TTL, SupersededCertificate,
};
use crate::cluster_provider::MAX_USED_BY;

/// How long credentials are asked for.
pub(crate) fn ttl(generator: &mut SchemaGenerator) -> Schema {
    let rule = schema::between("self", SHORTEST_TTL.as_secs(), LONGEST_TTL.as_secs());
    with_rule(
        schema::duration(generator),
        json!({"rule": rule, "message": format!(
            "write {SHORTEST_TTL} to {LONGEST_TTL}: API servers issue nothing for less, and what is valid for longer is a key that nobody rotates"
        )}),
    )
}

/// How long the revocation of a deleted access is tried.
pub(crate) fn forget_after(generator: &mut SchemaGenerator) -> Schema {
    let (shortest, longest) = (Duration::from_secs(60), Duration::from_secs(90 * 86_400));
    let rule = schema::between("self", shortest.as_secs(), longest.as_secs());
    with_rule(
        schema::duration(generator),
        json!({"rule": rule, "message": format!("write {shortest} to {longest}: so long it is tried to revoke the credential of a deleted ClusterAccess")}),
    )
}

fn with_rule(mut schema: Schema, rule: Value) -> Schema {
    if let Some(rules) = schema.get_mut("x-kubernetes-validations").and_then(Value::as_array_mut) {
        rules.push(rule);
    }
    schema
}

/// The name of a Secret, role or ClusterRole.
pub(crate) fn object_name(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string", "minLength": 1, "maxLength": 253,
        "x-kubernetes-validations": [{
            "rule": "self.matches('^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$')",
            "message": "write the name of an object: lower-case letters, digits, '-' and '.', beginning and ending with a letter or digit"
        }]
    })
}

/// The name of a `Cluster`, which is the value of a label.
pub(crate) fn cluster_name(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string", "minLength": 1, "maxLength": 63,
        "x-kubernetes-validations": [{
            "rule": "self.matches('^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$')",
            "message": "write the name of a Cluster: lower-case letters, digits, '-' and '.', beginning and ending with a letter or digit"
        }]
    })
}

/// The name of a role, which may have any characters that are no part of a path.
pub(crate) fn role_name(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string", "minLength": 1, "maxLength": 253,
        "x-kubernetes-validations": [{
            "rule": "self.matches('^[-.:_A-Za-z0-9]+$') && self != '.' && self != '..'",
            "message": "write the name of a role: letters, digits, '-', '_', '.' and ':'"
        }]
    })
}

/// A key in the data of a Secret.
pub(crate) fn data_key(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string", "minLength": 1, "maxLength": 253,
        "x-kubernetes-validations": [{
            "rule": "self.matches('^[-._a-zA-Z0-9]+$') && !self.startsWith('..') && self != '.'",
            "message": "write a key in the data of a Secret, such as kubeconfig: letters, digits, '-', '_' and '.'"
        }]
    })
}

/// Namespaces in the target in which a role is bound.
pub(crate) fn namespaces(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array", "minItems": 1, "maxItems": 32, "x-kubernetes-list-type": "set",
        "items": schema::namespace_name(generator)
    })
}

/// Namespaces here whose accesses a provider allows.
pub(crate) fn allowed_namespaces(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array", "minItems": 1, "maxItems": 64, "x-kubernetes-list-type": "set",
        "items": schema::namespace_name(generator)
    })
}

/// Namespaces of the target, or `*`.
pub(crate) fn namespaces_or_all(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array", "minItems": 1, "maxItems": 32, "x-kubernetes-list-type": "set",
        "items": {
            "type": "string", "minLength": 1, "maxLength": 63,
            "x-kubernetes-validations": [{
                "rule": "self.matches('^([*]|[a-z0-9]([-a-z0-9]*[a-z0-9])?)$')",
                "message": "write the name of a namespace of the target, or '*' for every namespace and the whole target"
            }]
        }
    })
}

/// Names of roles.
pub(crate) fn role_names(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array", "minItems": 1, "maxItems": 16, "x-kubernetes-list-type": "set",
        "items": role_name(generator)
    })
}

/// The words of a rule: API groups, resources, verbs, names. `least`: how many there are at least.
fn words(least: u32, longest: u32, rule: &str, message: &str) -> Schema {
    json_schema!({
        "type": "array", "minItems": least, "maxItems": 32, "x-kubernetes-list-type": "set",
        "items": {
            "type": "string", "maxLength": longest,
            "x-kubernetes-validations": [{"rule": rule, "message": message}]
        }
    })
}

/// API groups of a rule.
pub(crate) fn api_groups(_: &mut SchemaGenerator) -> Schema {
    let message = "write an API group, such as apps; \"\" for the core group, '*' for every group";
    words(1, 253, "self.matches('^([*]|[a-z0-9]([-.a-z0-9]*[a-z0-9])?)?$')", message)
}

/// Resources of a rule.
pub(crate) fn resources(_: &mut SchemaGenerator) -> Schema {
    let message = "write the plural name of a resource, such as pods or pods/log; '*' for every resource";
    words(1, 253, "self.matches('^([*]|[a-z0-9][-.a-z0-9]*)(/([*]|[-.a-z0-9]+))?$')", message)
}

/// Verbs of a rule.
pub(crate) fn verbs(_: &mut SchemaGenerator) -> Schema {
    let message = "write a verb, such as get, list or watch; '*' for every verb";
    words(1, 63, "self.matches('^([*]|[a-z]+(-[a-z]+)*)$')", message)
}

/// Names of the objects that a rule is about.
pub(crate) fn resource_names(_: &mut SchemaGenerator) -> Schema {
    words(
        0,
        253,
        "self.matches('^[^/%]+$')",
        "write the name of an object, such as coppice: without '/' and '%'",
    )
}

/// Credentials in status: as many as [`MAX_SUPERSEDED`].
pub(crate) fn credentials(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array", "maxItems": MAX_SUPERSEDED, "x-kubernetes-list-type": "set",
        "items": {"type": "string", "maxLength": 128}
    })
}

/// Namespaces of a target in status: as many as [`MAX_NAMESPACES`].
pub(crate) fn status_namespaces(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array", "maxItems": MAX_NAMESPACES, "x-kubernetes-list-type": "set",
        "items": {"type": "string", "maxLength": 63}
    })
}

/// Who uses a `ClusterProvider`: as many as [`MAX_USED_BY`], a namespace and a name each.
pub(crate) fn used_by(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array", "maxItems": MAX_USED_BY, "x-kubernetes-list-type": "set",
        "items": {"type": "string", "maxLength": 317}
    })
}

/// Certificates in status: as many as [`MAX_CERTIFICATES`].
pub(crate) fn certificates(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array", "maxItems": MAX_CERTIFICATES,
        "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["credential"],
        "items": generator.subschema_for::<SupersededCertificate>()
    })
}
