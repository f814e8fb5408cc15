//! Schema fragments of these kinds.

use coppice_api::schema;
use coppice_quantity::Duration;
use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

use crate::Issuer;
use crate::cluster_access::{
    LONGEST_TTL, MAX_CERTIFICATES, MAX_NAMESPACES, MAX_SUPERSEDED, Rule, SHORTEST_TTL,
};
use crate::cluster_provider::MAX_USED_BY;
use crate::largest_rights::MAX_RULES;
use crate::managed_cluster::{MAX_ZONES, ZoneAddresses};
use crate::superseded::{PendingRevocation, SupersededCertificate};

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

/// A rule with its message.
fn rule(rule: &str, message: &str) -> Value {
    json!({"rule": rule, "message": message})
}

/// What to write into a list that is empty: the API server says of a bound only that it is one.
fn not_empty(message: &str) -> Value {
    rule("size(self) > 0", message)
}

fn with_rule(mut schema: Schema, rule: Value) -> Schema {
    if let Some(rules) = schema.get_mut("x-kubernetes-validations").and_then(Value::as_array_mut) {
        rules.push(rule);
    }
    schema
}

/// The name of a Secret, role or ClusterRole.
pub(crate) fn object_name(_: &mut SchemaGenerator) -> Schema {
    name_in_parts("an object", 253)
}

/// The name of a `Cluster`, which is the value of a label.
pub(crate) fn cluster_name(_: &mut SchemaGenerator) -> Schema {
    name_in_parts("a Cluster", 63)
}

/// A name as most objects have it: parts with dots between them.
fn name_in_parts(of: &str, longest: u32) -> Schema {
    let message = format!(
        "write the name of {of}: lower-case letters, digits, '-' and '.', beginning and ending with a letter or digit, as each part between dots does"
    );
    text(
        longest,
        "self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",
        &message,
    )
}

/// The name of a Shoot of Gardener.
pub(crate) fn shoot_name(_: &mut SchemaGenerator) -> Schema {
    gardener_name(
        "write the name of a Shoot: lower-case letters, digits and '-', beginning and ending with a letter or digit",
    )
}

/// The name of a project of Gardener.
pub(crate) fn project_name(_: &mut SchemaGenerator) -> Schema {
    gardener_name(
        "write the name of a Project of Gardener, not that of its namespace: lower-case letters, digits and '-', beginning and ending with a \
         letter or digit",
    )
}

fn gardener_name(message: &str) -> Schema {
    json_schema!({
        "type": "string", "minLength": 1, "maxLength": 63,
        "x-kubernetes-validations": [{"rule": "self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')", "message": message}]
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
        "items": schema::namespace_name(generator),
        "x-kubernetes-validations": [not_empty("write at least one namespace of the target, in which the role is bound")]
    })
}

/// Namespaces here whose accesses a provider allows.
pub(crate) fn allowed_namespaces(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array", "minItems": 1, "maxItems": 64, "x-kubernetes-list-type": "set",
        "items": schema::namespace_name(generator),
        "x-kubernetes-validations": [not_empty("write at least one namespace, or leave namespaces out, and write namespaceSelector")]
    })
}

/// Namespaces here that may have clusters made.
pub(crate) fn maker_namespaces(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array", "maxItems": 64, "x-kubernetes-list-type": "set",
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
        },
        "x-kubernetes-validations": [not_empty("write at least one namespace of the target, or '*' for every namespace and the whole target")]
    })
}

/// Names of roles.
pub(crate) fn role_names(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array", "minItems": 1, "maxItems": 16, "x-kubernetes-list-type": "set",
        "items": role_name(generator),
        "x-kubernetes-validations": [not_empty("write at least one name of a role, such as view, or leave the list out: then none may be bound")]
    })
}

/// The words of a rule: API groups, resources, verbs, names.
fn words(longest: u32, pattern: &str, message: &str) -> Schema {
    json_schema!({
        "type": "array", "maxItems": 32, "x-kubernetes-list-type": "set",
        "items": {
            "type": "string", "maxLength": longest,
            "x-kubernetes-validations": [rule(&format!("self.matches('{pattern}')"), message)]
        }
    })
}

/// The same, of which there is at least one.
fn at_least_one(mut words: Schema, message: &str) -> Schema {
    words.insert("minItems".to_owned(), json!(1));
    words.insert("x-kubernetes-validations".to_owned(), json!([not_empty(message)]));
    words
}

/// API groups of a rule.
pub(crate) fn api_groups(_: &mut SchemaGenerator) -> Schema {
    let message = "write an API group, such as apps; \"\" for the core group, '*' for every group";
    let groups = words(253, "^([*]|[a-z0-9]([-.a-z0-9]*[a-z0-9])?)?$", message);
    at_least_one(
        groups,
        "write at least one API group, such as apps; \"\" for the core group, '*' for every group",
    )
}

/// Resources of a rule.
pub(crate) fn resources(_: &mut SchemaGenerator) -> Schema {
    let message = "write the plural name of a resource, such as pods or pods/log; '*' for every resource";
    let resources = words(253, "^([*]|[a-z0-9][-.a-z0-9]*)(/([*]|[-.a-z0-9]+))?$", message);
    at_least_one(resources, "write at least one resource, such as pods or pods/log; '*' for every resource")
}

/// Verbs of a rule.
pub(crate) fn verbs(_: &mut SchemaGenerator) -> Schema {
    let verbs =
        words(63, "^([*]|[a-z]+(-[a-z]+)*)$", "write a verb, such as get, list or watch; '*' for every verb");
    at_least_one(verbs, "write at least one verb, such as get, list or watch; '*' for every verb")
}

/// Names of the objects that a rule is about.
pub(crate) fn resource_names(_: &mut SchemaGenerator) -> Schema {
    words(253, "^[^/%]+$", "write the name of an object, such as coppice: without '/' and '%'")
}

/// Rules as those of a Role.
fn rules(generator: &mut SchemaGenerator, most: usize, message: &str) -> Schema {
    json_schema!({
        "type": "array", "minItems": 1, "maxItems": most,
        "items": generator.subschema_for::<Rule>(),
        "x-kubernetes-validations": [not_empty(message)]
    })
}

/// What a credential permits.
pub(crate) fn role_rules(generator: &mut SchemaGenerator) -> Schema {
    rules(
        generator,
        16,
        "write at least one rule, with its apiGroups, resources and verbs: a credential without any right is of no use",
    )
}

/// What rules of a `ClusterAccess` may permit at most.
pub(crate) fn largest_rules(generator: &mut SchemaGenerator) -> Schema {
    let message = "write at least one rule, with its apiGroups, resources and verbs, or leave rules out: then only roles may be bound";
    rules(generator, MAX_RULES, message)
}

/// Who may issue what a provider allows.
pub(crate) fn issuers(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array", "minItems": 1, "maxItems": 4, "x-kubernetes-list-type": "set",
        "items": generator.subschema_for::<Issuer>(),
        "x-kubernetes-validations": [not_empty("write at least one issuer, or leave issuers out, which allows TokenRequest alone")]
    })
}

/// An id of `spec.rotate`.
pub(crate) fn rotation_id(_: &mut SchemaGenerator) -> Schema {
    let message = "write an id that was not written before, such as a date, or leave rotate out: the credential is replaced by time alone then";
    text(63, "size(self) > 0", message)
}

/// A number with bounds. The API server says of a bound only that it is one.
fn number(least: u32, most: u32, message: &str) -> Schema {
    json_schema!({
        "type": "integer", "minimum": least, "maximum": most,
        "x-kubernetes-validations": [rule(&format!("self >= {least} && self <= {most}"), message)]
    })
}

/// `spec.rotateAt`.
pub(crate) fn rotate_at(_: &mut SchemaGenerator) -> Schema {
    number(
        10,
        90,
        "write 10 to 90, such as 60: after so many percent of the time that was granted the credential is replaced",
    )
}

/// `spec.callsPerMinute`.
pub(crate) fn calls_per_minute(_: &mut SchemaGenerator) -> Schema {
    number(
        1,
        6000,
        "write 1 to 6000, such as 60: so many credentials and changes may be asked for in any minute",
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

/// Credentials that are to be revoked, with their dates: as many as [`MAX_SUPERSEDED`].
pub(crate) fn pending_revocations(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array", "maxItems": MAX_SUPERSEDED,
        "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["credential"],
        "items": generator.subschema_for::<PendingRevocation>()
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

/// A text with one rule.
fn text(longest: u32, rule: &str, message: &str) -> Schema {
    json_schema!({
        "type": "string", "minLength": 1, "maxLength": longest,
        "x-kubernetes-validations": [{"rule": rule, "message": message}]
    })
}

/// A version of Kubernetes.
pub(crate) fn kubernetes_version(_: &mut SchemaGenerator) -> Schema {
    let message = "write a version of Kubernetes with its three numbers and without a v, such as 1.33.4";
    text(20, "self.matches('^[0-9]+[.][0-9]+[.][0-9]+$')", message)
}

/// A word of a provider: a region, a machine type, an image.
pub(crate) fn provider_word(_: &mut SchemaGenerator) -> Schema {
    let message = "write the name that the provider has for it: letters, digits, '-', '_', '.' and '/'";
    text(128, "self.matches('^[A-Za-z0-9][-._/A-Za-z0-9]*$')", message)
}

/// The name of a variable of a ClusterClass.
pub(crate) fn variable(_: &mut SchemaGenerator) -> Schema {
    let message = "write a name: letters, digits, '-', '_' and '.', beginning with a letter or digit";
    text(128, "self.matches('^[A-Za-z0-9][-._A-Za-z0-9]*$')", message)
}

/// An IPv4 prefix.
pub(crate) fn cidr(_: &mut SchemaGenerator) -> Schema {
    let message = "write an IPv4 prefix, four numbers up to 255 and a length up to 32, that begins at its first address, such as 10.250.0.0/16";
    // isCIDR takes both families: with four numbers it is IPv4.
    let rule = "self.matches('^[0-9]{1,3}([.][0-9]{1,3}){3}/[0-9]{1,2}$') && isCIDR(self) && cidr(self).masked() == cidr(self)";
    text(18, rule, message)
}

/// The name of a pool of workers.
pub(crate) fn pool_name(_: &mut SchemaGenerator) -> Schema {
    let message = "write a name of at most 15 lower-case letters, digits and '-', beginning with a letter and ending with a letter or digit";
    text(15, "self.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')", message)
}

/// The size of a volume.
pub(crate) fn volume_size(_: &mut SchemaGenerator) -> Schema {
    text(10, "self.matches('^[1-9][0-9]*(Gi|Ti)$')", "write a size in Gi or Ti, such as 50Gi")
}

/// The URL of an issuer.
pub(crate) fn issuer_url(_: &mut SchemaGenerator) -> Schema {
    let rule = "self.matches('^[!-~]+$') && self.matches('^https://[^/?#@]+(/[^?#]*)?$') && isURL(self)";
    text(
        512,
        rule,
        "write a URL that begins with https://, without a user, a query and a fragment, such as https://id.example.com",
    )
}

/// The audience of tokens.
pub(crate) fn client_id(_: &mut SchemaGenerator) -> Schema {
    let message = "write the client id that the issuer has for the cluster: ASCII characters, without a space at its beginning or end";
    text(256, "self.matches('^[!-~]([ -~]*[!-~])?$')", message)
}

/// The name of a claim.
pub(crate) fn claim(_: &mut SchemaGenerator) -> Schema {
    let message = "write the name of a claim, such as sub, email or https://example.com/groups: ASCII characters without spaces";
    text(256, "self.matches('^[!-~]+$')", message)
}

/// What is put before the names of users or groups.
pub(crate) fn claim_prefix(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string", "maxLength": 256,
        "x-kubernetes-validations": [{
            "rule": "self.matches('^[!-~]*$')",
            "message": "write a prefix of ASCII characters without spaces, such as oidc:"
        }, {
            "rule": "!self.startsWith('system:')",
            "message": "write a prefix that does not begin with system:, as names of Kubernetes itself do, such as oidc:"
        }]
    })
}

/// Zones of a pool of workers.
pub(crate) fn zones(generator: &mut SchemaGenerator) -> Schema {
    let mut zone = provider_word(generator);
    zone.insert("maxLength".to_owned(), json!(63));
    json_schema!({
        "type": "array", "maxItems": MAX_ZONES, "x-kubernetes-list-type": "set", "items": zone
    })
}

/// Users that administer a cluster.
pub(crate) fn administrators(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array", "maxItems": 64, "x-kubernetes-list-type": "set",
        "items": {
            "type": "string", "minLength": 1, "maxLength": 128,
            "x-kubernetes-validations": [{
                "rule": "self.matches('^[^[:cntrl:][:space:]]([^[:cntrl:]]*[^[:cntrl:][:space:]])?$')",
                "message": "write the name of a user as the API server of the cluster has it, such as oidc:ann@example.com: without control characters, and without a space \
                            at its beginning or end"
            }]
        }
    })
}

/// The key of a label, annotation or taint: a name, after a domain and '/' or without.
const KEY: &str = "^([a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?$";
/// The value of a label or taint.
const VALUE: &str = "^([A-Za-z0-9]([-_.A-Za-z0-9]*[A-Za-z0-9])?)?$";

/// What no domain of a key has: two dots, or a dot beside a '-'.
const NO_DOMAIN: &str = "^[^/]*([.][-.]|-[.])[^/]*/";

/// What a key consists of.
fn key_of(example: &str) -> String {
    format!(
        "write {example}: at most 63 letters, digits, '-', '_' and '.', beginning and ending with a letter or digit, after a domain and '/' or without"
    )
}

/// A map of nodes. A map's keys have no rules of their own.
fn pool_map(values: &Value, key: &str) -> Schema {
    json_schema!({
        "type": "object", "maxProperties": 32,
        "additionalProperties": values,
        "x-kubernetes-validations": [{
            "rule": format!("self.all(key, size(key) <= 317 && key.matches('{KEY}') && !key.matches('{NO_DOMAIN}'))"),
            "message": key_of(key)
        }]
    })
}

/// Labels of nodes.
pub(crate) fn pool_labels(_: &mut SchemaGenerator) -> Schema {
    let message = "write the value of a label, such as front: at most 63 letters, digits, '-', '_' and '.', beginning and ending with a letter or digit";
    let values = json!({
        "type": "string", "maxLength": 63,
        "x-kubernetes-validations": [{"rule": format!("self.matches('{VALUE}')"), "message": message}]
    });
    pool_map(&values, "the key of a label, such as tier or example.com/tier")
}

/// Annotations of nodes.
pub(crate) fn pool_annotations(_: &mut SchemaGenerator) -> Schema {
    let values = json!({"type": "string", "maxLength": 256});
    pool_map(&values, "the key of an annotation, such as example.com/owner")
}

/// The key of a taint, as that of a label.
pub(crate) fn taint_key(_: &mut SchemaGenerator) -> Schema {
    let message = key_of("the key of a taint, such as dedicated or example.com/dedicated");
    text(317, &format!("self.matches('{KEY}') && !self.matches('{NO_DOMAIN}')"), &message)
}

/// The value of a taint, as that of a label.
pub(crate) fn taint_value(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string", "maxLength": 63,
        "x-kubernetes-validations": [{
            "rule": format!("self.matches('{VALUE}')"),
            "message": "write the value of a taint, such as builds: letters, digits, '-', '_' and '.', beginning and ending with a letter or digit"
        }]
    })
}

/// How long a deletion may fail until it is forced.
pub(crate) fn force_after(generator: &mut SchemaGenerator) -> Schema {
    let (shortest, longest) = (Duration::from_secs(3600), Duration::from_secs(30 * 86_400));
    let rule = schema::between("self", shortest.as_secs(), longest.as_secs());
    with_rule(
        schema::duration(generator),
        json!({"rule": rule, "message": format!("write {shortest} to {longest}: so long a deletion has to have lasted before it is forced")}),
    )
}

/// Addresses in status: of as many zones as [`MAX_ZONES`].
pub(crate) fn zone_addresses(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array", "maxItems": MAX_ZONES,
        "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["zone"],
        "items": generator.subschema_for::<ZoneAddresses>()
    })
}
