//! From the `openAPIV3Schema` of a CRD to a [`Node`].

use serde_json::{Map, Value, json};

use crate::cel::ValidationRule;
use crate::error::SchemaError;
use crate::format::Format;
use crate::node::{Entries, ListType, Node, Type, ValueChecks};
use crate::{check, pattern, prune};

type Result<T> = std::result::Result<T, SchemaError>;

/// What surrounds a level of the schema.
#[derive(Clone, Copy)]
struct SchemaContext {
    /// Whether an old value of this level can be found: not within lists that are not maps.
    correlatable: bool,
    root: bool,
}

/// Reads a whole schema.
pub(crate) fn root(schema: &Value) -> Result<Node> {
    let node = structural_level(schema, "openAPIV3Schema", SchemaContext { correlatable: true, root: true })?;
    if node.kind != Some(Type::Object) {
        return Err(SchemaError::invalid("openAPIV3Schema.type", "must be object"));
    }
    if node.entries.is_some() {
        return Err(SchemaError::invalid(
            "openAPIV3Schema.additionalProperties",
            "must not be used at the root",
        ));
    }
    Ok(node)
}

fn fields<'v>(schema: &'v Value, path: &str) -> Result<&'v Map<String, Value>> {
    schema.as_object().ok_or_else(|| SchemaError::invalid(path, "must be an object"))
}

/// A level that says what there is: with a type, defaults, and what is kept.
fn structural_level(schema: &Value, path: &str, around: SchemaContext) -> Result<Node> {
    let schema = fields(schema, path)?;
    let mut node = Node { root: around.root, ..Node::default() };
    for (keyword, value) in schema {
        let at = format!("{path}.{keyword}");
        match keyword.as_str() {
            "type" => node.kind = Some(type_of(value, &at)?),
            "nullable" => node.nullable = boolean(value, &at)?,
            "x-kubernetes-int-or-string" => node.int_or_string = boolean(value, &at)?,
            "x-kubernetes-preserve-unknown-fields" => node.preserve_unknown = boolean(value, &at)?,
            "x-kubernetes-embedded-resource" => node.embedded = boolean(value, &at)?,
            "default" => node.default = Some(value.clone()).filter(|v| !v.is_null()),
            "additionalProperties" => node.entries = Some(entries(value, &at, around)?),
            "properties" => {
                for (name, schema) in fields(value, &at)? {
                    let child = structural_level(
                        schema,
                        &format!("{at}[{name}]"),
                        SchemaContext { root: false, ..around },
                    )?;
                    node.properties.insert(name.clone(), child);
                }
            }
            // Read below, as they depend on others; of no consequence but for the merging of applied configurations; for
            // people.
            "items"
            | "x-kubernetes-list-type"
            | "x-kubernetes-list-map-keys"
            | "x-kubernetes-validations"
            | "x-kubernetes-map-type"
            | "title"
            | "description"
            | "example"
            | "externalDocs" => {}
            other => own_check(other, value, &at)?,
        }
    }
    list(schema, path, around, &mut node)?;
    well_formed(&node, path)?;
    let open = if node.int_or_string { Open::FirstAlternatives } else { Open::No };
    let mut checks = checks(schema, path, &node)?;
    nested(schema, path, &node, open, &mut checks)?;
    node.checks = checks;
    rules(schema, path, around, &mut node)?;
    node.has_rules = !node.rules.is_empty() || has(&node, |n| n.has_rules);
    node.has_lists = node.list != ListType::Atomic || has(&node, |n| n.has_lists);
    node.has_embedded = node.embedded || has(&node, |n| n.has_embedded);
    check_default(&mut node, path)?;
    Ok(node)
}

/// Whether something is so at a level directly below.
fn has(node: &Node, what: fn(&Node) -> bool) -> bool {
    let entries = match &node.entries {
        Some(Entries::Of(child)) => Some(child.as_ref()),
        _ => None,
    };
    node.properties.values().chain(entries).chain(node.items.as_deref()).any(what)
}

/// Whether it is one of the keywords that `checks` and `nested` read.
fn own_check(keyword: &str, value: &Value, at: &str) -> Result<()> {
    match keyword {
        "format" | "enum" | "pattern" | "minLength" | "maxLength" | "minItems" | "maxItems"
        | "minProperties" | "maxProperties" | "minimum" | "exclusiveMinimum" | "maximum"
        | "exclusiveMaximum" | "multipleOf" | "required" | "anyOf" | "oneOf" | "allOf" | "not" => Ok(()),
        "uniqueItems" if *value == Value::Bool(false) => Ok(()),
        _ => Err(SchemaError::Unsupported { path: at.to_owned() }),
    }
}

fn entries(value: &Value, at: &str, around: SchemaContext) -> Result<Entries> {
    match value {
        Value::Bool(true) => Ok(Entries::Any),
        Value::Bool(false) => Err(SchemaError::invalid(at, "must not be false")),
        schema => {
            Ok(Entries::Of(Box::new(structural_level(schema, at, SchemaContext { root: false, ..around })?)))
        }
    }
}

/// Items, and how they are distinguished.
fn list(schema: &Map<String, Value>, path: &str, around: SchemaContext, node: &mut Node) -> Result<()> {
    let at = format!("{path}.x-kubernetes-list-type");
    let keys = match schema.get("x-kubernetes-list-map-keys") {
        Some(keys) => strings(keys, &format!("{path}.x-kubernetes-list-map-keys"))?,
        None => Vec::new(),
    };
    node.list = match schema.get("x-kubernetes-list-type").map(|t| text(t, &at)).transpose()? {
        None | Some("atomic") => ListType::Atomic,
        Some("set") => ListType::Set,
        Some("map") if keys.is_empty() => {
            return Err(SchemaError::invalid(&at, "needs x-kubernetes-list-map-keys"));
        }
        Some("map") => ListType::Map(keys.clone()),
        Some(_) => return Err(SchemaError::invalid(&at, "must be atomic, set or map")),
    };
    if !keys.is_empty() && !matches!(node.list, ListType::Map(_)) {
        return Err(SchemaError::invalid(&at, "must be map for x-kubernetes-list-map-keys"));
    }
    if let Some(items) = schema.get("items") {
        let is_map = matches!(node.list, ListType::Map(_));
        let around = SchemaContext { correlatable: around.correlatable && is_map, root: false };
        node.items = Some(Box::new(structural_level(items, &format!("{path}.items"), around)?));
    }
    if node.list != ListType::Atomic && node.kind != Some(Type::Array) {
        return Err(SchemaError::invalid(&at, "needs the type array"));
    }
    let known = |key: &String| node.items.as_ref().is_some_and(|items| items.properties.contains_key(key));
    if let Some(unknown) = keys.iter().find(|key| !known(key)) {
        return Err(SchemaError::invalid(&at, &format!("the items have no property {unknown}")));
    }
    Ok(())
}

/// What makes a schema structural, as far as it is about one level.
fn well_formed(node: &Node, path: &str) -> Result<()> {
    let refuse =
        |keyword: &str, problem: &str| Err(SchemaError::invalid(&format!("{path}.{keyword}"), problem));
    if node.embedded && node.kind != Some(Type::Object) {
        return refuse("type", "must be object if x-kubernetes-embedded-resource is true");
    }
    if node.kind.is_none() && !node.int_or_string && !node.preserve_unknown {
        return refuse("type", "must not be empty");
    }
    if node.int_or_string && node.kind.is_some() {
        return refuse("type", "must be empty if x-kubernetes-int-or-string is true");
    }
    if node.int_or_string && (node.preserve_unknown || node.embedded) {
        return refuse("x-kubernetes-int-or-string", "must be alone");
    }
    if node.entries.is_some() && !node.properties.is_empty() {
        return refuse("additionalProperties", "must not be used beside properties");
    }
    if node.entries.is_some() && node.embedded {
        return refuse("additionalProperties", "must not be used if x-kubernetes-embedded-resource is true");
    }
    if node.kind == Some(Type::Array) && node.items.is_none() {
        return refuse("items", "must be specified");
    }
    Ok(())
}

fn checks(schema: &Map<String, Value>, path: &str, node: &Node) -> Result<ValueChecks> {
    let at = |keyword: &str| format!("{path}.{keyword}");
    let count = |keyword: &str| -> Result<Option<u64>> {
        let number = |value: &Value| {
            value.as_u64().ok_or_else(|| SchemaError::invalid(&at(keyword), "must be a number of things"))
        };
        schema.get(keyword).map(number).transpose()
    };
    let number = |keyword: &str| -> Result<Option<f64>> {
        let number = |value: &Value| {
            value.as_f64().ok_or_else(|| SchemaError::invalid(&at(keyword), "must be a number"))
        };
        schema.get(keyword).map(number).transpose()
    };
    let flag = |keyword: &str| schema.get(keyword).map_or(Ok(false), |value| boolean(value, &at(keyword)));
    let multiple_of = number("multipleOf")?;
    if multiple_of.is_some_and(|factor| factor <= 0.0) {
        return Err(SchemaError::invalid(&at("multipleOf"), "must be positive"));
    }
    let pattern = match schema.get("pattern") {
        Some(pattern) => {
            let pattern = text(pattern, &at("pattern"))?;
            let compiled = pattern::compile(pattern)
                .map_err(|problem| SchemaError::invalid(&at("pattern"), &problem.to_string()))?;
            Some((pattern.to_owned(), compiled)).filter(|(pattern, _)| !pattern.is_empty())
        }
        None => None,
    };
    let format = match schema.get("format") {
        Some(name) if !node.int_or_string => Format::find(text(name, &at("format"))?, node.kind)
            .map_err(|()| SchemaError::Unsupported { path: at("format") })?,
        _ => None,
    };
    Ok(ValueChecks {
        format,
        allowed: match schema.get("enum") {
            Some(Value::Array(values)) => values.clone(),
            Some(_) => return Err(SchemaError::invalid(&at("enum"), "must be a list")),
            None => Vec::new(),
        },
        pattern,
        min_length: count("minLength")?,
        max_length: count("maxLength")?,
        min_items: count("minItems")?,
        max_items: count("maxItems")?,
        min_properties: count("minProperties")?,
        max_properties: count("maxProperties")?,
        minimum: number("minimum")?,
        exclusive_minimum: flag("exclusiveMinimum")?,
        maximum: number("maximum")?,
        exclusive_maximum: flag("exclusiveMaximum")?,
        multiple_of,
        required: schema.get("required").map_or(Ok(Vec::new()), |r| strings(r, &at("required")))?,
        ..ValueChecks::default()
    })
}

/// Where within anyOf and the like a type may stand: only where it says what an integer or string can be.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Open {
    No,
    /// In the alternatives of anyOf.
    Alternatives,
    /// As `Alternatives`, or in those of the first of allOf.
    FirstAlternatives,
    /// Here, and nothing else.
    Here,
}

/// anyOf, oneOf, allOf and not.
fn nested(
    schema: &Map<String, Value>,
    path: &str,
    structural_level: &Node,
    open: Open,
    checks: &mut ValueChecks,
) -> Result<()> {
    let several = |keyword: &str, of_first: Open, of_others: Open| -> Result<Vec<Node>> {
        let at = format!("{path}.{keyword}");
        let parts = match schema.get(keyword) {
            Some(Value::Array(parts)) => parts.as_slice(),
            Some(_) => return Err(SchemaError::invalid(&at, "must be a list")),
            None => &[],
        };
        let part = |(index, part): (usize, &Value)| {
            let open = if index == 0 { of_first } else { of_others };
            value_validation(part, &format!("{at}[{index}]"), structural_level, open)
        };
        parts.iter().enumerate().map(part).collect()
    };
    let opens = matches!(open, Open::Alternatives | Open::FirstAlternatives)
        && schema.get("anyOf") == Some(&json!([{"type": "integer"}, {"type": "string"}]));
    let alternatives = if opens { Open::Here } else { Open::No };
    let first = if open == Open::FirstAlternatives { Open::Alternatives } else { Open::No };
    checks.any_of = several("anyOf", alternatives, alternatives)?;
    checks.one_of = several("oneOf", Open::No, Open::No)?;
    checks.all_of = several("allOf", first, Open::No)?;
    if let Some(part) = schema.get("not") {
        checks.not =
            Some(Box::new(value_validation(part, &format!("{path}.not"), structural_level, Open::No)?));
    }
    Ok(())
}

/// A level within anyOf and the like. It checks values and says nothing else: neither types, except the two of integers
/// or strings, nor what there is.
fn value_validation(schema: &Value, path: &str, structural_level: &Node, open: Open) -> Result<Node> {
    let schema = fields(schema, path)?;
    let mut node = Node::default();
    for (keyword, value) in schema {
        let at = format!("{path}.{keyword}");
        match keyword.as_str() {
            "type" if open == Open::Here && schema.len() == 1 => {
                node.kind = Some(type_of(value, &at)?);
            }
            "items" => {
                let Some(structural_level) = structural_level.items.as_deref() else {
                    return Err(not_structural(&at));
                };
                node.items = Some(Box::new(value_validation(value, &at, structural_level, Open::No)?));
            }
            "properties" => {
                for (name, schema) in fields(value, &at)? {
                    let at = format!("{at}[{name}]");
                    if name == "metadata" {
                        return Err(SchemaError::Unsupported { path: at });
                    }
                    let Some(structural_level) = structural_level.child(name) else {
                        return Err(not_structural(&at));
                    };
                    node.properties
                        .insert(name.clone(), value_validation(schema, &at, structural_level, Open::No)?);
                }
            }
            other => own_check(other, value, &at)?,
        }
    }
    node.checks = checks(schema, path, &node)?;
    nested(schema, path, structural_level, open, &mut node.checks)?;
    Ok(node)
}

fn not_structural(at: &str) -> SchemaError {
    SchemaError::invalid(at, "must also be specified outside of anyOf, oneOf, allOf and not")
}

fn rules(schema: &Map<String, Value>, path: &str, around: SchemaContext, node: &mut Node) -> Result<()> {
    let at = format!("{path}.x-kubernetes-validations");
    let raw = match schema.get("x-kubernetes-validations") {
        Some(Value::Array(rules)) => rules.as_slice(),
        Some(_) => return Err(SchemaError::invalid(&at, "must be a list")),
        None => return Ok(()),
    };
    let compile = |(index, rule): (usize, &Value)| {
        ValidationRule::compile(rule, node, &format!("{at}[{index}]"), around.correlatable)
    };
    node.rules = raw.iter().enumerate().map(compile).collect::<Result<_>>()?;
    Ok(())
}

/// A default must be what a user could have written.
fn check_default(node: &mut Node, path: &str) -> Result<()> {
    let Some(mut default) = node.default.take() else { return Ok(()) };
    let at = format!("{path}.default");
    if let Some(unknown) = prune::unknown_fields(node, &mut default).first() {
        return Err(SchemaError::invalid(&at, &format!("has the unknown field {unknown}")));
    }
    let outcome = check::value(node, &default, None, crate::path::Path::Root);
    if let Some(failure) = outcome.failures.first() {
        return Err(SchemaError::invalid(&at, &failure.cause.to_string()));
    }
    node.default = Some(default);
    Ok(())
}

fn type_of(value: &Value, at: &str) -> Result<Type> {
    Ok(match text(value, at)? {
        "object" => Type::Object,
        "array" => Type::Array,
        "string" => Type::String,
        "integer" => Type::Integer,
        "number" => Type::Number,
        "boolean" => Type::Boolean,
        _ => return Err(SchemaError::invalid(at, "must be a type of JSON other than null")),
    })
}

fn boolean(value: &Value, at: &str) -> Result<bool> {
    value.as_bool().ok_or_else(|| SchemaError::invalid(at, "must be true or false"))
}

fn text<'v>(value: &'v Value, at: &str) -> Result<&'v str> {
    value.as_str().ok_or_else(|| SchemaError::invalid(at, "must be a string"))
}

fn strings(value: &Value, at: &str) -> Result<Vec<String>> {
    let wrong = || SchemaError::invalid(at, "must be a list of strings");
    let items = value.as_array().ok_or_else(wrong)?;
    items.iter().map(|item| item.as_str().map(str::to_owned).ok_or_else(wrong)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::Schema;

    fn problem(spec: &Value) -> String {
        let schema = json!({"type": "object", "properties": {"spec": spec}});
        Schema::compile(&schema).unwrap_err().to_string().replace("openAPIV3Schema.properties[spec]", "spec")
    }

    #[test]
    fn what_is_not_supported_is_named_with_its_place() {
        let object = |more: Value| {
            let mut schema = json!({"type": "object", "properties": {"a": {"type": "string"}}});
            schema.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            schema
        };
        for (schema, said) in [
            (json!({"type": "string", "patternProperties": {}}), "spec.patternProperties: not supported"),
            (json!({"type": "string", "format": "isbn"}), "spec.format: not supported"),
            (
                json!({"type": "array", "items": {"type": "string"}, "uniqueItems": true}),
                "spec.uniqueItems: not supported",
            ),
            (json!({"$ref": "#/x"}), "spec.$ref: not supported"),
            (json!({}), "spec.type: must not be empty"),
            (json!({"type": "null"}), "spec.type: must be a type of JSON other than null"),
            (json!({"type": "array"}), "spec.items: must be specified"),
            (json!({"type": "array", "items": [{}]}), "spec.items: must be an object"),
            (json!({"type": "string", "pattern": "a("}), "spec.pattern: unclosed group"),
            (
                object(json!({"additionalProperties": true})),
                "spec.additionalProperties: must not be used beside properties",
            ),
            (
                json!({"type": "object", "additionalProperties": false}),
                "spec.additionalProperties: must not be false",
            ),
            (
                object(json!({"anyOf": [{"properties": {"b": {}}}]})),
                "spec.anyOf[0].properties[b]: must also be specified outside of anyOf, oneOf, allOf and not",
            ),
            (
                object(json!({"allOf": [{"properties": {"a": {"type": "string"}}}]})),
                "spec.allOf[0].properties[a].type: not supported",
            ),
            (object(json!({"not": {"default": {}}})), "spec.not.default: not supported"),
            (
                json!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer", "minimum": 1}, {"type": "string"}]}),
                "spec.anyOf[0].type: not supported",
            ),
            (
                json!({"type": "integer", "default": "one"}),
                "spec.default: <nil>: Invalid value: \"string\":  in body must be of type integer: \"string\"",
            ),
            (object(json!({"default": {"b": 1}})), "spec.default: has the unknown field b"),
            (
                json!({"type": "array", "x-kubernetes-list-type": "map", "items": {"type": "object"}}),
                "spec.x-kubernetes-list-type: needs x-kubernetes-list-map-keys",
            ),
            (
                json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": {"type": "object"}}),
                "spec.x-kubernetes-list-type: the items have no property k",
            ),
            (
                json!({"type": "array", "items": {"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf"}]}}),
                "spec.items.x-kubernetes-validations[0].rule: oldSelf cannot be used within a list that is not a map",
            ),
            (
                json!({"type": "string", "x-kubernetes-validations": [{"rule": "true", "optionalOldSelf": true}]}),
                "spec.x-kubernetes-validations[0].optionalOldSelf: may not be set if oldSelf is not used in rule",
            ),
            (
                object(json!({"x-kubernetes-validations": [{"rule": "true", "fieldPath": ".b"}]})),
                "spec.x-kubernetes-validations[0].fieldPath: must be a path that the schema has",
            ),
        ] {
            assert_eq!(problem(&schema), said);
        }
        assert!(Schema::compile(&json!({"type": "string"})).is_err());
        assert!(Schema::compile(&json!([])).is_err());
    }
}
