//! Objects of our kinds in files, checked as the API server would: by the very schema that it has.

use std::sync::OnceLock;

use coppice_quantity::Duration;
use coppice_schema::{CauseType, Schema, ValidationError};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use serde_json::Value;

/// Something wrong in an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    /// Where: `spec.policies[0].when.ttl`; empty for the object as a whole.
    pub(crate) path: String,
    /// What, and what to write instead.
    pub(crate) message: String,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.path.is_empty() {
            return f.write_str(&self.message);
        }
        write!(f, "{}: {}", self.path, self.message)
    }
}

/// A kind of ours: its schema as the API server compiles it, and as it is written, for hints.
struct Known {
    kind: String,
    compiled: Schema,
    written: JSONSchemaProps,
}

/// Our kinds. Made once: it takes milliseconds, and there may be thousands of objects to check.
fn kinds() -> &'static [Known] {
    static KINDS: OnceLock<Vec<Known>> = OnceLock::new();
    let crds = || coppice_api::crds().into_iter().chain(coppice_clusters_api::crds());
    KINDS.get_or_init(|| crds().filter_map(known).collect())
}

fn known(crd: CustomResourceDefinition) -> Option<Known> {
    let written = crd.spec.versions.into_iter().next()?.schema?.open_api_v3_schema?;
    let compiled = Schema::compile(&serde_json::to_value(&written).ok()?).ok()?;
    Some(Known { kind: crd.spec.names.kind, compiled, written })
}

/// Everything that the API server would refuse in an object of one of our kinds.
pub(crate) fn check(object: &Value) -> Vec<Problem> {
    let kind = object["kind"].as_str().unwrap_or_default();
    let Some(known) = kinds().iter().find(|known| known.kind == kind) else {
        let message = format!("this version knows no kind {kind:?}");
        return vec![Problem { path: "kind".to_owned(), message }];
    };
    let mut found = Vec::new();
    check_metadata(&object["metadata"], &mut found);
    let mut rest = object.clone();
    // The operator alone writes it, and a dump may have one of another version.
    rest.as_object_mut().map(|fields| fields.remove("status"));
    for path in known.compiled.prune(&mut rest) {
        let parent = path.rsplit_once('.').map_or("", |(parent, _)| parent);
        let fields = schema_at(&known.written, parent).and_then(|schema| schema.properties.as_ref());
        let names: Vec<&str> = fields.into_iter().flatten().map(|(name, _)| name.as_str()).collect();
        found.push(Problem { path, message: format!("unknown field; known here: {}", names.join(", ")) });
    }
    known.compiled.default(&mut rest);
    durations(&known.written, &rest, "", &mut found);
    for cause in known.compiled.validate(&rest, None) {
        // What is wrong inside is reported already, and may be the cause.
        let inside = |problem: &Problem| problem.path.starts_with(&cause.field);
        if !cause.is_rules_not_checked() && !found.iter().any(inside) {
            let message = hint(known, &rest, &cause).unwrap_or_else(|| sentence(&cause));
            let path = if cause.field == "<nil>" { String::new() } else { cause.field };
            found.push(Problem { path, message });
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

/// A cause without what the place and the text in the file say already.
fn sentence(cause: &ValidationError) -> String {
    match cause.reason {
        CauseType::Required => "required".to_owned(),
        CauseType::Invalid | CauseType::TypeInvalid => {
            let detail = cause.detail.strip_prefix(&format!("{} in body ", cause.field));
            detail.unwrap_or(&cause.detail).to_owned()
        }
        _ => cause.message.clone(),
    }
}

/// What to write instead of a value of the wrong type.
fn hint(known: &Known, object: &Value, cause: &ValidationError) -> Option<String> {
    if cause.reason != CauseType::TypeInvalid {
        return None;
    }
    let value = segments(&cause.field).try_fold(object, |value, segment| match segment {
        Segment::Field(name) => value.get(name),
        Segment::Index(index) => value.get(index),
    })?;
    wrong_type(schema_at(&known.written, &cause.field)?, value, &cause.field)
}

enum Segment<'a> {
    Field(&'a str),
    Index(usize),
}

/// The parts of a path such as `spec.policies[0].when`. One with a dot in a key leads nowhere.
fn segments(path: &str) -> impl Iterator<Item = Segment<'_>> {
    path.split(['.', '[']).filter(|part| !part.is_empty()).map(|part| {
        let index = part.strip_suffix(']').and_then(|index| index.parse().ok());
        index.map_or(Segment::Field(part), Segment::Index)
    })
}

/// What the schema says about the value at a path.
fn schema_at<'a>(root: &'a JSONSchemaProps, path: &str) -> Option<&'a JSONSchemaProps> {
    segments(path).try_fold(root, |schema, segment| {
        match (segment, &schema.items, &schema.additional_properties) {
            (Segment::Index(_), Some(JSONSchemaPropsOrArray::Schema(item)), _) => Some(&**item),
            (Segment::Field(name), _, more) => {
                let property = schema.properties.as_ref().and_then(|properties| properties.get(name));
                property.or(match more {
                    Some(JSONSchemaPropsOrBool::Schema(schema)) => Some(&**schema),
                    _ => None,
                })
            }
            _ => None,
        }
    })
}

/// What is wrong with durations. Their type says what to write instead better than a rule can; they are the only fields that
/// let a number pass.
fn durations(schema: &JSONSchemaProps, value: &Value, path: &str, found: &mut Vec<Problem>) {
    if schema.x_kubernetes_int_or_string == Some(true) {
        if let Some(message) = duration(value) {
            found.push(Problem { path: path.to_owned(), message });
        }
        return;
    }
    match (value, &schema.items) {
        (Value::Object(fields), _) => {
            for (name, value) in fields {
                let Some(child) = schema.properties.as_ref().and_then(|properties| properties.get(name))
                else {
                    continue;
                };
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                durations(child, value, &path, found);
            }
        }
        (Value::Array(items), Some(JSONSchemaPropsOrArray::Schema(item))) => {
            for (index, value) in items.iter().enumerate() {
                durations(item, value, &format!("{path}[{index}]"), found);
            }
        }
        _ => {}
    }
}

fn check_metadata(metadata: &Value, found: &mut Vec<Problem>) {
    let mut print_note = |path: &str, message: String| found.push(Problem { path: path.to_owned(), message });
    let Some(fields) = metadata.as_object() else {
        return print_note("metadata", "required: write at least metadata.name".to_owned());
    };
    for key in fields.keys().filter(|key| !coppice_schema::METADATA.contains(&key.as_str())) {
        print_note(&format!("metadata.{key}"), "unknown field".to_owned());
    }
    match metadata["name"].as_str() {
        Some(name) if is_dns_subdomain(name) => {}
        Some(name) => print_note(
            "metadata.name",
            format!(
                "{name:?} is not a name: write lower-case letters, digits, '-' and '.', beginning and ending with a letter or digit"
            ),
        ),
        None => print_note("metadata.name", "required".to_owned()),
    }
    if let Some(namespace) = metadata["namespace"].as_str().filter(|n| !is_dns_label(n)) {
        let message = format!(
            "{namespace:?} is not a namespace's name: write lower-case letters, digits and '-', at most 63"
        );
        print_note("metadata.namespace", message);
    }
}

/// Whether it can be the name of a namespace.
pub(crate) fn is_dns_label(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    matches!(text.len(), 1..=63) && text.bytes().all(inner) && !text.starts_with('-') && !text.ends_with('-')
}

/// Whether it can be the name of most objects.
pub(crate) fn is_dns_subdomain(text: &str) -> bool {
    let part = |p: &str| {
        is_dns_label(p) || p.len() > 63 && is_dns_label(&p[..63]) && is_dns_label(&p[p.len() - 1..])
    };
    text.len() <= 253 && text.split('.').all(part)
}

fn duration(value: &Value) -> Option<String> {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => return Some("write a duration with a unit: 90s, 1h30m, 7d or 2w".to_owned()),
    };
    text.parse::<Duration>().err().map(|error| error.to_string())
}

fn wrong_type(schema: &JSONSchemaProps, value: &Value, path: &str) -> Option<String> {
    let wanted = schema.type_.as_deref()?;
    let field = path.rsplit('.').next().unwrap_or(path);
    let is_ttl = schema.properties.as_ref().is_some_and(|p| p.contains_key("after"));
    Some(match (wanted, value) {
        // The mistake that everyone makes once.
        ("object", Value::Number(number)) if is_ttl => {
            format!("{number} is not a ttl: write {field}: {{after: {number}s}}")
        }
        ("object", Value::String(text)) if is_ttl && text.parse::<Duration>().is_ok() => {
            format!("{text} is not a ttl: write {field}: {{after: {text}}}")
        }
        // A field of a structural schema is a text or an object, never either.
        ("object", Value::String(text)) if text == "Graceful" => {
            format!("must be an object: leave {field} out, or write {field}: {{}}, and it is graceful")
        }
        ("object", Value::Bool(_)) => format!("must be an object: write {field}: {{}} for its defaults"),
        ("string", Value::Number(n)) => format!("must be a string: write \"{n}\" in quotes"),
        ("string", Value::Bool(b)) => format!("must be a string: write \"{b}\" in quotes"),
        ("boolean", _) => "must be true or false".to_owned(),
        (wanted, value) => format!("must be {}, not {}", article(wanted), article(type_of(value))),
    })
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn article(kind: &str) -> String {
    match kind {
        "null" => "null".to_owned(),
        "array" => "a list".to_owned(),
        "integer" => "a whole number".to_owned(),
        "object" => "an object".to_owned(),
        other => format!("a {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(spec: &str) -> Vec<String> {
        let spec: Value = serde_yaml::from_str(spec).unwrap();
        let object = serde_json::json!({
            "apiVersion": "coppice.dev/v1alpha1", "kind": "NamespaceManager", "metadata": {"name": "m", "namespace": "a"}, "spec": spec
        });
        check(&object).iter().map(ToString::to_string).collect()
    }

    fn policy(when: &str, then: &str) -> Vec<String> {
        problems(&format!("policies: [{{name: p, when: {when}, then: {then}}}]"))
    }

    #[test]
    fn good_managers_have_no_problems() {
        for (when, then) in [
            ("{ttl: {after: 40s}}", "{delete: {}}"),
            ("{ttl: {until: 2026-12-01T00:00:00Z}}", "{delete: {notice: 1h}}"),
            (
                "{podsSucceed: {selector: {matchLabels: {a: b}}, minPods: 0}}",
                "{scaleDown: {selectors: [{kind: Deployment}]}}",
            ),
            ("{podsSucceed: {}}", "{webhook: {url: 'http://a.b.svc/x', format: consol}}"),
        ] {
            assert_eq!(policy(when, then), Vec::<String>::new(), "{when} {then}");
        }
    }

    #[test]
    fn mistakes_are_named_with_place_and_remedy() {
        let cases = [
            (
                "{ttl: 300}",
                "{delete: {}}",
                "spec.policies[0].when.ttl: 300 is not a ttl: write ttl: {after: 300s}",
            ),
            (
                "{ttl: 5m}",
                "{delete: {}}",
                "spec.policies[0].when.ttl: 5m is not a ttl: write ttl: {after: 5m}",
            ),
            (
                "{ttl: {after: 300}}",
                "{delete: {}}",
                "when.ttl.after: \"300\" has no unit: write 300s for seconds",
            ),
            ("{ttl: {after: 0s}}", "{delete: {}}", "when.ttl.after: zero is not accepted here"),
            (
                "{ttl: {after: 5m, until: 2026-12-01T00:00:00Z}}",
                "{delete: {}}",
                "when.ttl: write exactly one of after",
            ),
            ("{ttl: {until: 2026-12-01}}", "{delete: {}}", "when.ttl.until: write an instant with its zone"),
            ("{tll: {after: 5m}}", "{delete: {}}", "when.tll: unknown field; known here: podsSucceed, ttl"),
            ("{ttl: {after: 5m}, podsSucceed: {}}", "{delete: {}}", "when: write exactly one condition"),
            (
                "{podsSucceed: {selector: {}}}",
                "{delete: {}}",
                "when.podsSucceed.selector: an empty selector is not accepted",
            ),
            ("{podsSucceed: {minPods: -1}}", "{delete: {}}", "minPods: should be greater than or equal to 0"),
            (
                "{podsSucceed: true}",
                "{delete: {}}",
                "must be an object: write podsSucceed: {} for its defaults",
            ),
            (
                "{podsSucceed: {selector: {matchLabels: {a: true}}}}",
                "{delete: {}}",
                "matchLabels.a: must be a string: write \"true\" in quotes",
            ),
            ("{podsSucceed: {}}", "{}", "then: write exactly one action"),
            (
                "{podsSucceed: {}}",
                "{scaleDown: {selectors: []}}",
                "selectors: selectors is empty and would select nothing",
            ),
            (
                "{podsSucceed: {}}",
                "{scaleDown: {selectors: [{kind: DaemonSet}]}}",
                "selectors[0]: kind must be Deployment",
            ),
            (
                "{podsSucceed: {}}",
                "{webhook: {url: ftp://a/b}}",
                "webhook.url: write an absolute http:// or https:// URL",
            ),
            ("{podsSucceed: {}}", "{webhook: {}}", "then.webhook.url: required"),
            (
                "{podsSucceed: {}}",
                "{webhook: {url: 'http://a/b', format: xml}}",
                "format: Unsupported value: \"xml\": supported values: \"coppice\", \"consol\"",
            ),
        ];
        for (when, then, expected) in cases {
            let found = policy(when, then);
            assert!(found.len() == 1 && found[0].contains(expected), "{when} {then}: {found:#?}");
        }
    }

    #[test]
    fn bounds_and_labels_are_checked() {
        for (when, then, expected) in [
            (
                "{podsSucceed: {selector: {matchLabels: {a: b-}}}}",
                "{delete: {}}",
                "selector.matchLabels[a]: write a label's value",
            ),
            (
                "{podsSucceed: {selector: {matchLabels: {a/b/c: d}}}}",
                "{delete: {}}",
                "selector.matchLabels: write a label's key",
            ),
            (
                "{podsSucceed: {selector: {matchExpressions: [{key: A.b/c, operator: In, values: [d]}]}}}",
                "{delete: {}}",
                "matchExpressions[0].key: write a label's key",
            ),
            (
                "{podsSucceed: {selector: {matchExpressions: [{key: a.b/C_d, operator: In, values: [e, 'f g']}]}}}",
                "{delete: {}}",
                "values[1]: write a label's value",
            ),
            (
                "{ttl: {after: 36526d}}",
                "{delete: {}}",
                "when.ttl.after: \"36526d\" is too long: at most 36525d",
            ),
        ] {
            let found = policy(when, then);
            assert!(found.len() == 1 && found[0].contains(expected), "{when} {then}: {found:#?}");
        }
    }

    #[test]
    fn accesses_to_other_clusters_are_checked() {
        let problems = |spec: &str| -> Vec<String> {
            let spec: Value = serde_yaml::from_str(spec).unwrap();
            let object = serde_json::json!({
                "apiVersion": "coppice.dev/v1alpha1", "kind": "ClusterAccess", "metadata": {"name": "ci", "namespace": "team"}, "spec": spec
            });
            check(&object).iter().map(ToString::to_string).collect()
        };
        let spec = |ttl: &str, secret: &str, rights: &str| {
            format!(
                "{{cluster: {{kubeconfigSecret: {{name: target}}}}, output: {{secret: {secret}}}, ttl: {ttl}, rights: {rights}}}"
            )
        };
        let view = "{bind: {clusterRole: view, namespaces: [shop]}}";
        assert_eq!(problems(&spec("1h", "out", view)), Vec::<String>::new());
        let of_shoot = |shoot: &str, issuer: &str, rights: &str| {
            format!("{{cluster: {{gardener: {shoot}}}, issuer: {issuer}, {rights}output: {{secret: out}}}}")
        };
        let (shoot, rights) = ("{provider: dev, shoot: shop}", format!("rights: {view}, "));
        assert_eq!(problems(&of_shoot(shoot, "GardenerAdmin", "")), Vec::<String>::new());
        assert_eq!(problems(&of_shoot(shoot, "TokenRequest", &rights)), Vec::<String>::new());
        let of_managed = |issuer: &str, rights: &str, secret: &str| {
            format!(
                "{{cluster: {{managedCluster: {{name: shop}}}}, issuer: {issuer}, {rights}output: {{secret: {secret}}}}}"
            )
        };
        for (issuer, rights) in [("TokenRequest", rights.as_str()), ("GardenerAdmin", "")] {
            assert_eq!(problems(&of_managed(issuer, rights, "out")), Vec::<String>::new());
        }
        for (spec, says) in [
            (spec("5m", "out", view), "spec.ttl: write 10m to 30d"),
            (spec("1h", "target", view), "output.secret: write the name of another Secret"),
            (spec("1h", "out", "{}"), "spec.rights: write exactly one of: role"),
            (
                spec("1h", "out", "{bind: {namespaces: [shop]}}"),
                "spec.rights.bind: write exactly one of: role",
            ),
            (
                of_shoot("{provider: dev, shoot: Shop}", "GardenerAdmin", ""),
                "shoot: write the name of a Shoot",
            ),
            (of_shoot("{provider: dev}", "GardenerAdmin", ""), "spec.cluster.gardener.shoot: required"),
            (
                of_shoot(shoot, "GardenerViewer", &rights),
                "leave it out, since their rights cannot be narrowed",
            ),
            (of_shoot(shoot, "TokenRequest", ""), "rights: write what the credential permits"),
            (of_managed("TokenRequest", &rights, "shop-kubeconfig"), "NAME-kubeconfig of the ManagedCluster"),
            (
                of_managed("GardenerAdmin", "", "out")
                    .replace("cluster: {", "cluster: {clusterAPI: {name: shop}, "),
                "spec.cluster: write exactly one of: kubeconfigSecret",
            ),
            (
                of_shoot(shoot, "GardenerAdmin", "").replace("gardener: ", "provider: {name: p}, gardener: "),
                "spec.cluster: write exactly one of: kubeconfigSecret",
            ),
            (
                "{cluster: {provider: {name: p}}, issuer: GardenerAdmin, output: {secret: out}}".to_owned(),
                "issuer: write TokenRequest or ClientCertificate, since GardenerAdmin",
            ),
        ] {
            let found = problems(&spec);
            assert!(found.len() == 1 && found[0].contains(says), "{spec}: {found:#?}");
        }
    }

    #[test]
    fn providers_of_clusters_are_checked() {
        let of = |project: &str, allow: &str| -> Vec<String> {
            let spec = format!("{{credential: {{secret: shop}}, {project}allow: [{allow}]}}");
            let spec: Value = serde_yaml::from_str(&spec).unwrap();
            let object = serde_json::json!({
                "apiVersion": "coppice.dev/v1alpha1", "kind": "ClusterProvider", "metadata": {"name": "shop"}, "spec": spec
            });
            check(&object).iter().map(ToString::to_string).collect()
        };
        let problems = |allow: &str| of("", allow);
        let admin = "{namespaces: [team], issuers: [GardenerAdmin]}";
        assert_eq!(of("project: dev, ", admin), Vec::<String>::new());
        let bad = of("project: Dev, ", admin);
        assert!(bad.len() == 1 && bad[0].contains("write the name of a Project of Gardener"), "{bad:#?}");
        let rights = "rights: {namespaces: ['*'], clusterRoles: [view]}";
        assert_eq!(problems(&format!("{{namespaces: [team], {rights}}}")), Vec::<String>::new());
        for (allow, says) in [
            (format!("{{{rights}}}"), "write exactly one of: namespaces"),
            (format!("{{namespaceSelector: {{}}, {rights}}}"), "an empty selector is not accepted"),
            (format!("{{namespaces: [team], maxTtl: 1m, {rights}}}"), "write 10m to 30d"),
            ("{namespaces: [team], rights: {namespaces: ['*']}}".to_owned(), "write at least one of: rules"),
            ("{namespaces: [team]}".to_owned(), "rights: write what may be asked for at most"),
            (admin.to_owned(), "project: write the project of Gardener"),
            (
                format!("{{namespaces: [team], issuers: [TokenRequest, GardenerViewer], {rights}}}"),
                "project: write the project of Gardener",
            ),
            (
                "{namespaces: [team], rights: {namespaces: ['Shop'], roles: [a]}}".to_owned(),
                "write the name of a namespace of the target, or '*'",
            ),
        ] {
            let found = problems(&allow);
            assert!(found.len() == 1 && found[0].contains(says), "{allow}: {found:#?}");
        }
    }

    #[test]
    fn rules_on_the_whole_spec_hold_too() {
        let twice = "policies: [{name: p, when: {podsSucceed: {}}, then: {delete: {}}}, {name: p, when: {podsSucceed: {}}, then: {delete: {}}}]";
        assert!(problems(twice)[0].contains("spec.policies: two policies have the same name"));
        let values = vec!["v"; 64].join(", ");
        let expressions = vec![format!("{{key: k, operator: In, values: [{values}]}}"); 8].join(", ");
        let wide = format!(
            "policies: [{{name: p, when: {{podsSucceed: {{selector: {{matchExpressions: [{expressions}]}}}}}}, then: {{delete: {{}}}}}}]"
        );
        assert!(
            problems(&wide)[0]
                .contains("spec.policies: the selectors of all policies together have more than 512")
        );
        assert!(problems("policies: []")[0].contains("at least 1"));
        assert_eq!(problems("{}"), ["spec.policies: required"]);
        let hold = "{policies: [{name: p, when: {podsSucceed: {}}, then: {delete: {}}}], hold: {until: '2026-12-01T00:00:00'}}";
        assert!(problems(hold)[0].starts_with("spec.hold.until: write an instant with its zone"));
    }

    #[test]
    fn names_are_checked() {
        for (name, good) in
            [("a", true), ("a.b-c", true), ("A", false), ("-a", false), ("a..b", false), ("", false)]
        {
            assert_eq!(is_dns_subdomain(name), good, "{name}");
        }
    }
}

#[cfg(test)]
#[path = "validate_managed_tests.rs"]
mod managed_tests;
