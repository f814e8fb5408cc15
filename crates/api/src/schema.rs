//! Schema fragments that several kinds share.

mod quotas;

use schemars::{Schema, SchemaGenerator, json_schema};

pub(crate) use self::quotas::{
    partitions, quota_hard, refuse_scopes, required_resources, status_hard, tree_hard,
};
use crate::cluster_manager::MAX_ANNOTATION_VALUE;
use crate::names::{RESERVED_DOMAINS, reserved_keys};

/// The sentence for a bad instant.
const INVALID_INSTANT: &str =
    "write an instant with its zone, such as 2026-12-01T18:00:00Z or 2026-12-01T18:00:00+01:00";
/// The sentence for a bad duration.
const INVALID_DURATION: &str = "write a duration with a unit, largest unit first: 90s, 1h30m, 7d or 2w (a number without a unit is not accepted)";

/// A label's value.
const LABEL_VALUE: &str = "^([A-Za-z0-9]([-._A-Za-z0-9]*[A-Za-z0-9])?)?$";
/// The sentence for a bad one.
const INVALID_LABEL_VALUE: &str = "write a label's value: at most 63 letters, digits, '-', '_' and '.', beginning and ending with a letter or digit";
/// A label's key.
const LABEL_KEY: &str = "^([a-z0-9]([-.a-z0-9]*[a-z0-9])?/)?[A-Za-z0-9]([-._A-Za-z0-9]*[A-Za-z0-9])?$";
/// The sentence for a bad one.
const INVALID_LABEL_KEY: &str = "write a label's key, such as app or example.com/app: at most 317 letters, digits, '-', '_' and '.', beginning and ending with a letter or digit";
/// The sentence for a bad key of an annotation.
const INVALID_ANNOTATION_KEY: &str = "write an annotation's key, such as example.com/ttl: at most 317 letters, digits, '-', '_' and '.', beginning and ending with a letter or digit";
/// How a key looks whose parts the API server does not take, although all of it is no longer than a key may be.
const LONG_KEY: &str = "[^/]{64}$|^[^/]{254,}/";
/// The sentence for such a key.
const INVALID_KEY_PARTS: &str = "the name in a key has at most 63 characters, and the prefix in front of its '/' at most 253: write a shorter one";
/// The sentence for a duration that is too long.
const TOO_LONG: &str = "a duration is at most 36525d (a hundred years), in numbers of at most ten digits";

/// The sentence for a bad entry of `webhookHosts`.
const INVALID_HOST: &str = "write a host or address without a scheme or path: ci.example.org, ci.example.org:443, *.example.org, *.{namespace}.svc, 10.1.2.3:8080, [fd00::1]:8080 or 10.1.0.0/16";

/// An RFC 3339 instant with a zone. Not `format: date-time`: that lets a date without a zone pass.
pub(crate) fn instant(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "maxLength": 40,
        "x-kubernetes-validations": [{
            "rule": "self.matches('^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])[Tt]([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]([.][0-9]{1,9})?([Zz]|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$')",
            "message": INVALID_INSTANT
        }]
    })
}

/// An instant in status, where only the operator writes.
pub fn status_instant(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "format": "date-time", "maxLength": 40 })
}

/// An absolute URL.
pub(crate) fn http_url(_: &mut SchemaGenerator) -> Schema {
    http_url_such_as("https://ci.example.org/hook")
}

/// The URL of an HTTP proxy.
pub(crate) fn proxy_url(_: &mut SchemaGenerator) -> Schema {
    http_url_such_as("http://proxy.example.org:3128")
}

fn http_url_such_as(example: &str) -> Schema {
    json_schema!({
        "type": "string",
        "maxLength": 2048,
        "x-kubernetes-validations": [{
            "rule": "isURL(self) && url(self).getScheme() in ['http', 'https'] && url(self).getHostname() != ''",
            "message": format!("write an absolute http:// or https:// URL, such as {example}")
        }]
    })
}

/// The rule against a user or a password in a URL, and its sentence: anyone who reads the object would see them.
const NO_USER_INFO: &str = "!self.matches('^[^/]*//[^/?#]*@')";

/// A URL of a receiver whose webhooks are signed: nothing in it is a secret, and everything in it is sent.
pub(crate) fn receiver_url(generator: &mut SchemaGenerator) -> Schema {
    http_url_with(
        generator,
        &[
            (
                NO_USER_INFO,
                "write the URL without a user and a password, which everybody who reads this would see: the receiver checks the signature instead",
            ),
            ("!self.contains('#')", "write the URL without a fragment (#...), which is never sent"),
        ],
    )
}

/// A URL to which a credential is sent: encrypted, or to this machine. By patterns: of the parts of a URL the API server does not know
/// how short they are, and such a rule is too expensive for it.
pub(crate) fn api_url(generator: &mut SchemaGenerator) -> Schema {
    http_url_with(
        generator,
        &[
            (
                NO_USER_INFO,
                "write the URL without a user and a password, which everybody who reads this would see: credentials belong in files",
            ),
            (
                "self.matches('^[Hh][Tt][Tt][Pp]([Ss]:|://(127([.][0-9]{1,3}){3}|[[]::1[]])(:[0-9]*)?([/?].*)?$)')",
                "write an https:// URL, such as https://slack.com/api: by http:// the token could be read on its way (http:// is only for a loopback address, such as http://127.0.0.1:8080)",
            ),
        ],
    )
}

fn http_url_with(generator: &mut SchemaGenerator, more: &[(&str, &str)]) -> Schema {
    let more = more.iter().map(|(rule, message)| serde_json::json!({"rule": rule, "message": message}));
    with_rules(http_url(generator), more)
}

/// A schema that has rules, with more of them.
fn with_rules(mut schema: Schema, more: impl IntoIterator<Item = serde_json::Value>) -> Schema {
    if let Some(rules) = schema.get_mut("x-kubernetes-validations").and_then(serde_json::Value::as_array_mut)
    {
        rules.extend(more);
    }
    schema
}

/// The name of a file in the operator's directory of credentials, as keys of Secrets are written. It leads to no other directory.
pub(crate) fn credential_file(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "minLength": 1,
        "maxLength": 253,
        "x-kubernetes-validations": [{
            "rule": "self.matches('^[-._a-zA-Z0-9]+$') && !self.startsWith('..') && self != '.'",
            "message": "write the name of a file in the operator's --credentials-dir, which is a key of the mounted Secret, such as slack-token"
        }]
    })
}

/// What was seen, by name, in status.
pub(crate) fn evidence(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "additionalProperties": { "type": "string", "maxLength": 8192 },
        "maxProperties": 32,
        "x-kubernetes-validations": [{
            "rule": "self.all(key, size(key) <= 63)",
            "message": "a name in evidence has at most 63 characters"
        }]
    })
}

/// Labels of a selector. A map's keys have no `maxLength`: a rule bounds them.
pub(crate) fn match_labels(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "additionalProperties": {
            "type": "string",
            "maxLength": 63,
            "x-kubernetes-validations": [{
                "rule": format!("self.matches('{LABEL_VALUE}')"),
                "message": INVALID_LABEL_VALUE
            }]
        },
        "maxProperties": 32,
        "x-kubernetes-validations": [{
            "rule": format!("self.all(key, size(key) <= 317 && key.matches('{LABEL_KEY}'))"),
            "message": INVALID_LABEL_KEY
        }]
    })
}

/// A rule against keys by which rights are given, with its sentence.
fn settable(rule: &str) -> serde_json::Value {
    serde_json::json!({
        "rule": rule,
        "message": format!(
            "labels and annotations of {} say who may do what in a namespace, and are never set through a tree: only an \
             administrator sets them, on the namespace itself",
            RESERVED_DOMAINS.join(", ")
        )
    })
}

/// The same of all keys of a map.
fn all_settable() -> serde_json::Value {
    settable(&format!("self.all(key, !key.matches('{}'))", reserved_keys()))
}

/// A rule against keys of which one part is too long for the API server, by a rule that holds for those that are not.
fn short_parts(rule: &str) -> serde_json::Value {
    serde_json::json!({ "rule": rule, "message": INVALID_KEY_PARTS })
}

/// The same of all keys of a map.
fn all_short_parts() -> serde_json::Value {
    short_parts(&format!("self.all(key, !key.matches('{LONG_KEY}'))"))
}

/// Labels that a namespace is to have.
pub(crate) fn set_labels(generator: &mut SchemaGenerator) -> Schema {
    with_rules(match_labels(generator), [all_short_parts(), all_settable()])
}

/// Annotations that a namespace is to have.
pub(crate) fn set_annotations(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "additionalProperties": { "type": "string", "maxLength": MAX_ANNOTATION_VALUE },
        "maxProperties": 32,
        "x-kubernetes-validations": [{
            "rule": format!("self.all(key, size(key) <= 317 && key.matches('{LABEL_KEY}'))"),
            "message": INVALID_ANNOTATION_KEY
        }, all_short_parts(), all_settable()]
    })
}

/// So many keys of labels, and of annotations, a tree allows, and so many are inherited.
const MAX_SETTABLE_KEYS: usize = 32;

/// Keys of labels that a namespace may be given.
pub(crate) fn settable_labels(generator: &mut SchemaGenerator) -> Schema {
    settable_keys(label_key(generator))
}

/// Keys of annotations that a namespace may be given.
pub(crate) fn settable_annotations(generator: &mut SchemaGenerator) -> Schema {
    settable_keys(annotation_key(generator))
}

/// Keys that look like this, and give no rights.
fn settable_keys(key: Schema) -> Schema {
    let short = short_parts(&format!("!self.matches('{LONG_KEY}')"));
    let not_reserved = settable(&format!("!self.matches('{}')", reserved_keys()));
    let key = with_rules(key, [short, not_reserved]);
    json_schema!({
        "type": "array", "maxItems": MAX_SETTABLE_KEYS, "x-kubernetes-list-type": "set", "items": key
    })
}

/// Keys of labels or annotations in status: as many as can be asked for and inherited, and, while all of these are exchanged for
/// others, as many again.
pub(crate) fn status_keys(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 4 * MAX_SETTABLE_KEYS,
        "x-kubernetes-list-type": "set",
        "items": { "type": "string", "maxLength": 317 }
    })
}

/// Globs over whole names of namespaces.
pub(crate) fn name_globs(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "minItems": 1,
        "maxItems": 256,
        "x-kubernetes-list-type": "set",
        "items": {
            "type": "string",
            "minLength": 1,
            "maxLength": 63,
            "x-kubernetes-validations": [{
                "rule": "self.matches('^[a-z0-9*-]+$')",
                "message": "a namespace's name has lower-case letters, digits and '-'; '*' stands for any of them: anything else would select nothing"
            }]
        }
    })
}

/// What to write where nothing is written: the API server says of a bound only that it is one.
fn not_empty(message: &str) -> serde_json::Value {
    serde_json::json!({ "rule": "size(self) > 0", "message": message })
}

/// The name of a namespace.
pub fn namespace_name(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "minLength": 1,
        "maxLength": 63,
        "x-kubernetes-validations": [{
            "rule": "self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",
            "message": "write the name of a namespace: lower-case letters, digits and '-', beginning and ending with a letter or digit"
        }]
    })
}

/// Patterns for the names of subnamespaces.
pub(crate) fn name_patterns(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "minItems": 1,
        "maxItems": 32,
        "x-kubernetes-list-type": "set",
        "items": {
            "type": "string",
            "minLength": 1,
            "maxLength": 128,
            "x-kubernetes-validations": [{
                "rule": "self.matches('^([a-z0-9*-]|[{](parent|root)[}])+$')",
                "message": "a namespace's name has lower-case letters, digits and '-'; '*' stands for any of them, {parent} and {root} for the names of these namespaces: write a pattern such as {parent}-*"
            }]
        },
        "x-kubernetes-validations": [not_empty("write at least one pattern, or leave names out, which permits {parent}-*")]
    })
}

/// Names of ClusterRoles.
pub(crate) fn cluster_roles(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "minItems": 1,
        "maxItems": 32,
        "x-kubernetes-list-type": "set",
        "items": {
            "type": "string",
            "minLength": 1,
            "maxLength": 253,
            "x-kubernetes-validations": [{
                "rule": "self.matches('^[^/%* ]+$') && self != '.' && self != '..'",
                "message": "write the name of a ClusterRole, such as admin or edit; to copy no RoleBindings, write mode: Remove or mode: Ignore"
            }]
        },
        "x-kubernetes-validations": [
            not_empty("write at least one ClusterRole; to copy no RoleBindings, write mode: Remove or mode: Ignore")
        ]
    })
}

/// The key of a label.
pub(crate) fn label_key(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "minLength": 1,
        "maxLength": 317,
        "x-kubernetes-validations": [{
            "rule": format!("self.matches('{LABEL_KEY}')"),
            "message": INVALID_LABEL_KEY
        }]
    })
}

/// The key of an annotation: as that of a label.
pub(crate) fn annotation_key(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "minLength": 1,
        "maxLength": 317,
        "x-kubernetes-validations": [{
            "rule": format!("self.matches('{LABEL_KEY}')"),
            "message": INVALID_ANNOTATION_KEY
        }]
    })
}

/// Values of a label. There may be so many that the API server admits no more than this of a rule.
pub(crate) fn label_values(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "items": {
            "type": "string",
            "maxLength": 63,
            "x-kubernetes-validations": [{ "rule": r"!self.matches('[^-.\\w]')", "message": INVALID_LABEL_VALUE }]
        },
        "maxItems": 64
    })
}

/// A duration; zero is allowed.
pub fn duration(_: &mut SchemaGenerator) -> Schema {
    duration_with(&[])
}

/// A duration for which zero would be dangerous.
pub fn positive_duration(_: &mut SchemaGenerator) -> Schema {
    positive("it would expire every namespace at once")
}

/// How long before an end to remind of it.
pub(crate) fn reminders(_: &mut SchemaGenerator) -> Schema {
    let item = duration_with(&[(
        "type(self) != string || self == '' || self.matches('[1-9]')",
        "zero is not accepted here: nobody could act upon it any more; write at least 1s",
    )]);
    json_schema!({ "type": "array", "minItems": 1, "maxItems": 4, "items": item })
}

/// How long a spec has to govern a namespace before anything is done to it: not zero.
pub fn positive_settle(_: &mut SchemaGenerator) -> Schema {
    positive("what a mistake selects would be acted upon at once")
}

/// How long it is tried to deliver an announcement: not zero.
pub(crate) fn positive_delivery_time(_: &mut SchemaGenerator) -> Schema {
    positive("no announcement could be delivered before")
}

fn positive(danger: &str) -> Schema {
    duration_with(&[(
        "type(self) != string || self == '' || self.matches('[1-9]')",
        &format!("zero is not accepted here: {danger}; write at least 1s"),
    )])
}

/// A period of which zero would make every moment count.
pub fn positive_period(_: &mut SchemaGenerator) -> Schema {
    duration_with(&[(
        "type(self) != string || self == '' || self.matches('[1-9]')",
        "zero is not accepted here: every moment would count; write at least 1s",
    )])
}

/// `x-kubernetes-int-or-string` lets a bare number pass the type check, so that the rule can answer it with a
/// sentence.
fn duration_with(more: &[(&str, &str)]) -> Schema {
    let mut rules = vec![
        serde_json::json!({
            "rule": format!("type(self) == string && self != '' && self.matches('{}')", coppice_quantity::DURATION_PATTERN),
            "message": INVALID_DURATION
        }),
        serde_json::json!({ "rule": max_duration_rule(), "message": TOO_LONG }),
    ];
    rules.extend(more.iter().map(|(rule, message)| serde_json::json!({"rule": rule, "message": message})));
    json_schema!({
        "x-kubernetes-int-or-string": true,
        "maxLength": 32,
        "x-kubernetes-validations": rules
    })
}

/// The most keys and values of labels that all selectors of a manager have together: an operator keeps every manager in
/// memory, and the bounds of each list alone would allow more than a million.
const MAX_SELECTOR_TERMS: u32 = 512;
/// The sentence for more.
pub(crate) const TOO_MANY_SELECTOR_TERMS: &str = "the selectors of all policies together have more than 512 keys and values of labels: select by fewer, or give what is meant a label of its own";

/// The bound on all selectors of a list of policies.
pub(crate) fn limit_selector_terms() -> String {
    format!(
        "self.map(p, (has(p.when.podsSucceed) && has(p.when.podsSucceed.selector) ? {} : 0) + {}).sum() <= \
         {MAX_SELECTOR_TERMS}",
        words_of("p.when.podsSucceed.selector"),
        words_of_workloads()
    )
}

/// How many words a selector has.
fn words_of(selector: &str) -> String {
    format!(
        "(has({selector}.matchLabels) ? 2 * size({selector}.matchLabels) : 0) + (has({selector}.matchExpressions) ? \
         {selector}.matchExpressions.map(e, 1 + (has(e.values) ? size(e.values) : 0)).sum() : 0)"
    )
}

/// How many words the selectors of the workloads that policy `p` scales down have.
fn words_of_workloads() -> String {
    format!(
        "(has(p.then.scaleDown) && has(p.then.scaleDown.selectors) ? \
         p.then.scaleDown.selectors.map(s, has(s.selector) ? {} : 0).sum() : 0)",
        words_of("s.selector")
    )
}

/// One entry of `webhookHosts`: an address or prefix without bits behind its length, `[v6]:port`, or a name. What ends
/// like an IPv4 address has to be one.
pub(crate) fn webhook_hosts(_: &mut SchemaGenerator) -> Schema {
    const PORT: &str =
        "(:([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]))?";
    const LABEL: &str = "([-_A-Za-z0-9]{1,63}|[{]namespace[}])";
    let rule = format!(
        "self.contains('/') ? isCIDR(self) && cidr(self).masked() == cidr(self) : isIP(self) \
         || self.matches('^[[][0-9A-Fa-f:.]+[]]{PORT}$') && isIP(self.substring(1, self.indexOf(']'))) \
         || self.matches('^([*][.])?{LABEL}([.]{LABEL})*[.]?{PORT}$') && size(self.split(':')[0]) <= 255 && \
         (!self.matches('(^|[.])([0-9]+|0[Xx][0-9A-Fa-f]*)[.]?(:[0-9]+)?$') || isIP(self.split(':')[0]))"
    );
    json_schema!({
        "type": "array",
        "maxItems": 64,
        "items": {
            "type": "string",
            "minLength": 1,
            "maxLength": 300,
            "x-kubernetes-validations": [{ "rule": rule, "message": INVALID_HOST }]
        }
    })
}

/// The longest duration. At most ten digits, so that nothing overflows.
fn max_duration_rule() -> String {
    format!(
        "type(self) != string || !self.matches('[0-9]{{11}}') && {} <= {}",
        seconds_of("self"),
        coppice_quantity::LONGEST_SECONDS
    )
}

/// The seconds of a text that is a duration, as a sum over its units.
fn seconds_of(text: &str) -> String {
    let part = |(unit, seconds): &(char, u64)| {
        format!("int('0' + {text}.find('[0-9]+{unit}').replace('{unit}', '')) * {seconds}")
    };
    let sum: Vec<String> = coppice_quantity::DURATION_UNITS.iter().map(part).collect();
    sum.join(" + ")
}

/// Whether a part of an object is no duration, which a rule of its own says, or one that is too long to be added up.
fn no_duration(part: &str) -> String {
    format!("type({part}) != string || {part}.matches('[0-9]{{11}}')")
}

/// That a part of an object, if it is a duration, is no shorter and no longer than so many seconds.
pub fn between(part: &str, shortest: u64, longest: u64) -> String {
    let seconds = seconds_of(part);
    format!("{} || {seconds} >= {shortest} && {seconds} <= {longest}", no_duration(part))
}

/// That the window of a failure budget is no shorter and no longer than this.
pub(crate) fn limit_window(shortest: u64, longest: u64) -> String {
    between("self.window", shortest, longest)
}

/// That no more of a failure budget's window may be spent than there is.
pub(crate) fn limit_by_window() -> String {
    format!(
        "{} || {} || {} <= {}",
        no_duration("self.window"),
        no_duration("self.max"),
        seconds_of("self.max"),
        seconds_of("self.window")
    )
}

/// Conditions as the API conventions want them: a map by type, so that several writers can own one each. The bounds are
/// those of Kubernetes' own conditions.
pub fn conditions(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 16,
        "items": {
            "type": "object",
            "required": ["lastTransitionTime", "message", "reason", "status", "type"],
            "properties": {
                "lastTransitionTime": {
                    "description": "Since when the status is what it is.",
                    "type": "string", "format": "date-time", "maxLength": 40
                },
                "message": { "description": "The reason for people.", "type": "string", "maxLength": 32768 },
                "observedGeneration": {
                    "description": "The generation of the spec that the condition is about.",
                    "type": "integer", "format": "int64"
                },
                "reason": { "description": "Why: an enumerated reason.", "type": "string", "maxLength": 1024 },
                "status": {
                    "description": "Whether it holds: True, False or Unknown.",
                    "type": "string", "enum": ["True", "False", "Unknown"]
                },
                "type": { "description": "What the condition says.", "type": "string", "maxLength": 316 }
            }
        },
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"]
    })
}
