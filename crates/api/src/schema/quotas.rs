//! Schema fragments about quotas of trees.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

use super::{namespace_name, not_empty, with_rules};

/// An amount that is not negative, in one of the forms that Kubernetes reads.
const AMOUNT: &str = "^[+]?([0-9]+[.]?[0-9]*|[.][0-9]+)([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]+)?$";
/// What the name of a resource looks like.
const RESOURCE_NAME: &str = "^([a-z0-9]([-.a-z0-9]*[a-z0-9])?/)?[A-Za-z0-9]([-._A-Za-z0-9]*[A-Za-z0-9])?$";
/// What in its name shows that no quota counts a resource: the rest the program says. A tree that names such a one could not be put
/// right, since no resource is ever taken from its quota.
const COUNTABLE: &str = "^(requests[.])?(cpu|memory|ephemeral-storage|hugepages-.+)$|^limits[.](cpu|memory|ephemeral-storage)$|^(pods|requests[.]storage|services[.](loadbalancers|nodeports))$|^(configmaps|persistentvolumeclaims|replicationcontrollers|resourcequotas|secrets|services)$|^(count|requests[.].+)/|[.](storageclass[.]storage|deviceclass[.]resource)[.]k8s[.]io/";
/// What quotas also count by a name with the prefix `requests.`, which is the same amount.
const COMPUTE: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];
/// Numbers of objects that quotas also count by a name with the prefix `count/`, which is the same amount.
const COUNTED: [&str; 6] = [
    "configmaps",
    "persistentvolumeclaims",
    "replicationcontrollers",
    "resourcequotas",
    "secrets",
    "services",
];
/// Other numbers of objects that have no prefix.
const OBJECTS: [&str; 3] = ["pods", "services.loadbalancers", "services.nodeports"];
/// How an amount ends that is certainly no whole number. What else is none, the program says.
const FRACTION: &str = "[.][0-9]*[1-9][0-9]*$|([1-9]|[1-9]0|[1-9]00)m$";
/// The sentence for a quota with a scope: it counts some pods only.
const SCOPED: &str =
    "a scope leaves pods unlimited: leave it out, and add a further ResourceQuota in the namespace";

/// Amounts of resources, as `spec.hard` of a ResourceQuota has them. What a quota counts is decided by the program, which has the
/// list; that they are amounts at all, and what is plainly no name of such a resource, is decided here.
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
            "rule": format!("self.all(key, size(key) <= 317 && key.matches('{RESOURCE_NAME}') && key.matches('{COUNTABLE}'))"),
            "message": "write the name of a resource that quotas count, such as cpu, limits.memory, pods, count/deployments.apps or requests.example.com/gpu"
        }, {
            "rule": one_name(),
            "message": "cpu and requests.cpu are one amount, and so are services and count/services: write one of the two"
        }, {
            "rule": whole_objects(),
            "message": "objects are counted, and there is no part of one: write a whole number, such as pods: 10"
        }, not_empty("write at least one resource with its amount, such as pods: 10")]
    })
}

/// That no resource is there by both of its names. Each pair is written out: how long what is put together may be the API server does not
/// know, and such a rule is too expensive for it.
fn one_name() -> String {
    let pair = |prefix: &str, name: &str| format!("!('{name}' in self && '{prefix}{name}' in self)");
    let compute = COMPUTE.iter().map(|name| pair("requests.", name));
    let pairs: Vec<String> = compute.chain(COUNTED.iter().map(|name| pair("count/", name))).collect();
    pairs.join(" && ")
}

/// That there is no part of an object.
fn whole_objects() -> String {
    let names: Vec<String> = OBJECTS.iter().chain(&COUNTED).map(|name| format!("'{name}'")).collect();
    format!(
        "[{}].all(key, !(key in self) || type(self[key]) == int || !self[key].matches('{FRACTION}'))",
        names.join(", ")
    )
}

/// The amounts of a tree, of which none may be taken away: without a limit there would be any amount of it.
pub(crate) fn tree_hard(generator: &mut SchemaGenerator) -> Schema {
    let stays = json!({
        "rule": "oldSelf.all(key, key in self)",
        "message": "a resource that the tree limits stays limited, or every namespace of it could use any amount: write 0 to give none of it"
    });
    with_rules(quota_hard(generator), [stays])
}

/// Names the fields of a native quota that limit some pods only, and refuses them: what the schema does not name, the API server drops
/// unless a request asks it not to.
pub(crate) fn refuse_scopes(schema: &mut Schema) {
    let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) else { return };
    let never = json!([{ "rule": "false", "message": SCOPED }]);
    let scopes = json!({
        "description": "Refused, unlike in a ResourceQuota: it would leave pods unlimited. Default: none, since nothing else is accepted.",
        "type": "array",
        "items": { "type": "string" },
        "x-kubernetes-validations": never
    });
    let selector = json!({
        "description": "Refused, as `scopes` is. Default: none, since nothing else is accepted.",
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": true,
        "x-kubernetes-validations": never
    });
    properties.insert("scopes".to_owned(), scopes);
    properties.insert("scopeSelector".to_owned(), selector);
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
