//! Wrong objects from right ones, by the schema: what people mistype, leave out, mix up, and what lies at the edges.
//!
//! [`mutations`] lists every change of one place, in an order that depends on its arguments alone. [`pick`] draws from
//! them by random numbers, several at once if asked.

use std::fmt;

use serde_json::{Map, Value, json};

/// What kind of change it is. Whether the result is accepted is for the schema to say: even what is meant to be valid
/// may break a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MutationKind {
    /// Meant to be right: the object itself, another value of an enumeration, an optional field with a plain value.
    Valid,
    /// At a limit, or one beyond it: lengths, sizes, minima and maxima.
    Boundary,
    /// A field or item is left out.
    Removed,
    /// A value of another type, or null.
    WrongType,
    /// The right type, and a value that the type admits and hardly anyone means.
    Admitted,
    /// A field that the schema does not know, or an item twice.
    Extra,
}

impl fmt::Display for MutationKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Valid => "valid",
            Self::Boundary => "boundary",
            Self::Removed => "removed",
            Self::WrongType => "wrong type",
            Self::Admitted => "wrong but admitted",
            Self::Extra => "extra",
        })
    }
}

/// A changed object.
#[derive(Clone, Debug, PartialEq)]
pub struct Mutation {
    /// What was changed: `spec.policies[0].name`; empty for nothing.
    pub path: String,
    /// The kind of change.
    pub what: MutationKind,
    /// The whole object as it is then.
    pub value: Value,
}

/// Every change of one place of an object that the schema (an `openAPIV3Schema`) describes, first the object itself.
/// `apiVersion`, `kind` and `metadata` are left alone.
pub fn mutations(schema: &Value, valid: &Value) -> Vec<Mutation> {
    let mut mutator = Mutator { root: valid, pointer: Vec::new(), found: Vec::new() };
    let unchanged = Mutation { path: String::new(), what: MutationKind::Valid, value: valid.clone() };
    mutator.found.push(unchanged);
    mutator.object(schema, valid);
    mutator.found
}

/// `count` changed objects, drawn from [`mutations`] by random numbers: each with one change, or with a second or third one
/// made on top. The same numbers give the same objects.
pub fn pick(schema: &Value, valid: &Value, random: impl FnMut() -> u64, count: usize) -> Vec<Mutation> {
    let mut random = Choices(random);
    let first = mutations(schema, valid);
    let mut picked = Vec::with_capacity(count);
    for _ in 0..count {
        let Some(mut mutation) = random.choose(&first).cloned() else { break };
        // One in four has a second change, one in sixteen a third.
        while random.below(4) == 0 {
            let more = mutations(schema, &mutation.value);
            let Some(second) = random.choose(&more) else { break };
            mutation = Mutation { path: format!("{}, {}", mutation.path, second.path), ..second.clone() };
        }
        picked.push(mutation);
    }
    picked
}

/// Choices by random numbers.
struct Choices<R>(R);

impl<R: FnMut() -> u64> Choices<R> {
    fn below(&mut self, bound: u64) -> u64 {
        (self.0)() % bound
    }

    fn choose<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        let count = u64::try_from(from.len()).ok().filter(|count| *count > 0)?;
        from.get(usize::try_from(self.below(count)).ok()?)
    }
}

/// A step from a value to one within it.
#[derive(Clone)]
enum PathSegment {
    Key(String),
    Index(usize),
}

struct Mutator<'v> {
    root: &'v Value,
    pointer: Vec<PathSegment>,
    found: Vec<Mutation>,
}

impl Mutator<'_> {
    fn path(&self) -> String {
        let mut path = String::new();
        for step in &self.pointer {
            match step {
                PathSegment::Key(key) if path.is_empty() => path.push_str(key),
                PathSegment::Key(key) => path.extend([".", key]),
                PathSegment::Index(index) => path.extend(["[", &index.to_string(), "]"]),
            }
        }
        path
    }

    /// The object with another value at the place, or none.
    fn put(&mut self, what: MutationKind, value: Option<Value>) {
        let mut changed = self.root.clone();
        if set_at(&mut changed, &self.pointer, value).is_some() && changed != *self.root {
            self.found.push(Mutation { path: self.path(), what, value: changed });
        }
    }

    fn within(&mut self, step: PathSegment, visit: impl FnOnce(&mut Self)) {
        self.pointer.push(step);
        visit(self);
        self.pointer.pop();
    }

    fn value(&mut self, schema: &Value, value: &Value) {
        self.put(MutationKind::Removed, None);
        self.wrong_types(schema);
        for allowed in list(schema, "enum") {
            self.put(MutationKind::Valid, Some(allowed.clone()));
        }
        match value {
            Value::Object(_) => self.object(schema, value),
            Value::Array(items) => self.list(schema, items),
            Value::String(text) => self.text(schema, text),
            Value::Number(_) => self.number(schema),
            Value::Bool(b) => self.put(MutationKind::Valid, Some(json!(!b))),
            Value::Null => {}
        }
    }

    fn wrong_types(&mut self, schema: &Value) {
        let kind = schema["type"].as_str().unwrap_or_default();
        let is_either = schema["x-kubernetes-int-or-string"] == true;
        for (other, value) in [
            ("null", Value::Null),
            ("boolean", json!(true)),
            ("integer", json!(7)),
            ("number", json!(1.5)),
            ("string", json!("7")),
            ("array", json!([])),
            ("array", json!([{"a": 1}])),
            ("object", json!({})),
            ("object", json!({"a": [1]})),
        ] {
            let fits = other == kind
                || other == "integer" && kind == "number"
                || is_either && matches!(other, "integer" | "string");
            self.put(if fits { MutationKind::Admitted } else { MutationKind::WrongType }, Some(value));
        }
    }

    fn object(&mut self, schema: &Value, value: &Value) {
        let Some(fields) = value.as_object() else { return };
        let is_root = self.pointer.is_empty();
        let belongs_to_all = |key: &str| is_root && matches!(key, "apiVersion" | "kind" | "metadata");
        self.within(PathSegment::Key("unknownField".to_owned()), |m| {
            m.put(MutationKind::Extra, Some(json!("x")));
        });
        if !is_root {
            self.put(MutationKind::Boundary, Some(json!({})));
        }
        let empty = Map::new();
        let properties = schema["properties"].as_object().unwrap_or(&empty);
        for (name, schema) in properties.iter().filter(|(name, _)| !fields.contains_key(*name)) {
            self.within(PathSegment::Key(name.clone()), |m| m.put(MutationKind::Valid, Some(sample(schema))));
        }
        if let (Some(most), Some(entry)) =
            (schema["maxProperties"].as_u64(), schema.get("additionalProperties").filter(|e| e.is_object()))
        {
            for count in [most, most + 1] {
                let entries = (0..count).map(|n| (format!("k{n}"), sample(entry)));
                self.put(MutationKind::Boundary, Some(Value::Object(entries.collect())));
            }
        }
        for (key, value) in fields.iter().filter(|(key, _)| !belongs_to_all(key)) {
            let child = properties.get(key).unwrap_or(&schema["additionalProperties"]);
            self.within(PathSegment::Key(key.clone()), |m| m.value(child, value));
            // As it is written after a slip of the finger.
            self.within(PathSegment::Key(format!("{key}s")), |m| {
                m.put(MutationKind::Extra, Some(value.clone()));
            });
        }
    }

    fn list(&mut self, schema: &Value, items: &[Value]) {
        let first = items.first().cloned().unwrap_or_else(|| sample(&schema["items"]));
        let repeated =
            |count: u64| Some(Value::Array((0..count.min(1000)).map(|_| first.clone()).collect::<Vec<_>>()));
        for limit in [schema["minItems"].as_u64(), schema["maxItems"].as_u64()].into_iter().flatten() {
            for count in [limit.saturating_sub(1), limit, limit + 1] {
                self.put(MutationKind::Boundary, repeated(count));
            }
        }
        self.put(MutationKind::Boundary, Some(json!([])));
        self.put(MutationKind::Extra, Some(Value::Array(items.iter().chain([&first]).cloned().collect())));
        for (index, item) in items.iter().enumerate() {
            self.within(PathSegment::Index(index), |m| m.value(&schema["items"], item));
        }
    }

    fn text(&mut self, schema: &Value, text: &str) {
        for limit in [schema["minLength"].as_u64(), schema["maxLength"].as_u64()].into_iter().flatten() {
            let limit = usize::try_from(limit).unwrap_or_default();
            for length in [limit.saturating_sub(1), limit, limit + 1] {
                self.put(MutationKind::Boundary, Some(json!("x".repeat(length))));
                // Characters are counted, not bytes.
                self.put(MutationKind::Boundary, Some(json!("ß".repeat(length))));
            }
        }
        let upper = text.to_uppercase();
        for odd in [
            "",
            " ",
            "x",
            "-1",
            "0",
            "0s",
            "1e3",
            "true",
            "null",
            "~",
            "a b",
            "*",
            "../x",
            "ä\u{301}",
            "\u{202e}x",
            "line\nline",
            "\u{0}",
            "{{x}}",
            "2026-02-30T00:00:00Z",
            "http://",
            &upper,
            &format!(" {text}"),
            &format!("{text}\n"),
        ] {
            self.put(MutationKind::Admitted, Some(json!(odd)));
        }
    }

    fn number(&mut self, schema: &Value) {
        for limit in [&schema["minimum"], &schema["maximum"]] {
            let Some(limit) = limit.as_f64() else { continue };
            for value in [limit - 1.0, limit, limit + 1.0] {
                self.put(MutationKind::Boundary, Some(whole(value)));
            }
        }
        for odd in [
            json!(0),
            json!(-1),
            json!(i64::from(i32::MAX)),
            json!(i64::from(i32::MAX) + 1),
            json!(i64::MAX),
            json!(i64::MIN),
            json!(u64::MAX),
            json!(0.5),
            json!(1.0),
            json!(-0.0),
            json!(1e300),
        ] {
            let what = if odd.is_f64() && schema["type"] == "integer" {
                MutationKind::WrongType
            } else {
                MutationKind::Admitted
            };
            self.put(what, Some(odd));
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "bounds of whole numbers are written as floats")]
fn whole(value: f64) -> Value {
    if value.fract() == 0.0 && value.abs() < 9e15 { json!(value as i64) } else { json!(value) }
}

fn list<'v>(schema: &'v Value, key: &str) -> &'v [Value] {
    schema[key].as_array().map_or(&[], Vec::as_slice)
}

/// A plain value of a schema: its default, the first that an enumeration names, or the least that there can be.
fn sample(schema: &Value) -> Value {
    if let Some(value) = schema.get("default").or_else(|| list(schema, "enum").first()) {
        return value.clone();
    }
    match schema["type"].as_str() {
        Some("object") => {
            let required = |(name, schema): (&String, &Value), needed: &[Value]| {
                needed.iter().any(|n| n == name).then(|| (name.clone(), sample(schema)))
            };
            let properties = schema["properties"].as_object();
            let needed = list(schema, "required");
            Value::Object(
                properties.into_iter().flatten().filter_map(|entry| required(entry, needed)).collect(),
            )
        }
        Some("array") => {
            let count = schema["minItems"].as_u64().unwrap_or_default().max(1);
            Value::Array((0..count.min(1000)).map(|_| sample(&schema["items"])).collect())
        }
        Some("integer") => whole(schema["minimum"].as_f64().unwrap_or(1.0)),
        Some("number") => json!(schema["minimum"].as_f64().unwrap_or(1.5)),
        Some("boolean") => json!(false),
        _ if schema["format"] == "date-time" => json!("2026-12-01T18:00:00Z"),
        _ => {
            json!("x".repeat(usize::try_from(schema["minLength"].as_u64().unwrap_or(1)).unwrap_or(1).max(1)))
        }
    }
}

/// Puts a value at a place, or takes away what is there. None if there is no such place.
fn set_at(root: &mut Value, pointer: &[PathSegment], value: Option<Value>) -> Option<()> {
    let Some((last, parents)) = pointer.split_last() else {
        *root = value?;
        return Some(());
    };
    let mut parent = root;
    for step in parents {
        parent = match step {
            PathSegment::Key(key) => parent.get_mut(key.as_str())?,
            PathSegment::Index(index) => parent.get_mut(*index)?,
        };
    }
    match (parent, last, value) {
        (Value::Object(fields), PathSegment::Key(key), Some(value)) => {
            drop(fields.insert(key.clone(), value));
        }
        (Value::Object(fields), PathSegment::Key(key), None) => drop(fields.remove(key)?),
        (Value::Array(items), PathSegment::Index(index), Some(value)) => *items.get_mut(*index)? = value,
        (Value::Array(items), PathSegment::Index(index), None) if *index < items.len() => {
            drop(items.remove(*index));
        }
        _ => return None,
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn schema() -> Value {
        json!({"type": "object", "properties": {"spec": {"type": "object", "required": ["name"], "properties": {
            "name": {"type": "string", "maxLength": 3},
            "size": {"type": "integer", "minimum": 1.0, "maximum": 5.0},
            "kind": {"type": "string", "enum": ["a", "b"]},
            "list": {"type": "array", "maxItems": 2, "items": {"type": "integer"}},
        }}}})
    }

    fn valid() -> Value {
        json!({"apiVersion": "g/v1", "kind": "K", "metadata": {"name": "n"}, "spec": {"name": "abc", "size": 2, "list": [1]}})
    }

    #[test]
    fn every_kind_of_change_is_made_and_metadata_is_unchanged() {
        let found = mutations(&schema(), &valid());
        let kinds: BTreeSet<_> = found.iter().map(|m| m.what).collect();
        assert_eq!(kinds.len(), 6, "{kinds:?}");
        assert!(found.iter().all(|m| m.value["metadata"] == valid()["metadata"]));
        let has = |path: &str, what: MutationKind, spec: &Value| {
            found.iter().any(|m| m.path == path && m.what == what && m.value["spec"] == *spec)
        };
        assert!(has("", MutationKind::Valid, &valid()["spec"]));
        assert!(has("spec.name", MutationKind::Removed, &json!({"size": 2, "list": [1]})));
        assert!(has("spec.name", MutationKind::Boundary, &json!({"name": "xxxx", "size": 2, "list": [1]})));
        assert!(has("spec.size", MutationKind::Boundary, &json!({"name": "abc", "size": 6, "list": [1]})));
        assert!(has(
            "spec.kind",
            MutationKind::Valid,
            &json!({"name": "abc", "size": 2, "list": [1], "kind": "a"})
        ));
        assert!(has(
            "spec.list",
            MutationKind::Boundary,
            &json!({"name": "abc", "size": 2, "list": [1, 1, 1]})
        ));
        assert!(has(
            "spec.list[0]",
            MutationKind::WrongType,
            &json!({"name": "abc", "size": 2, "list": ["7"]})
        ));
        assert!(has(
            "spec.unknownField",
            MutationKind::Extra,
            &json!({"name": "abc", "size": 2, "list": [1], "unknownField": "x"})
        ));
    }

    #[test]
    fn the_same_numbers_give_the_same_objects() {
        use std::hash::{DefaultHasher, Hash as _, Hasher as _};
        let numbers = |seed: u64| {
            (0_u64..).map(move |count| {
                let mut hasher = DefaultHasher::new();
                (seed, count).hash(&mut hasher);
                hasher.finish()
            })
        };
        let draw = |seed| {
            let mut numbers = numbers(seed);
            pick(&schema(), &valid(), || numbers.next().unwrap(), 50)
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
        assert_eq!(draw(3).len(), 50);
        assert!(draw(3).iter().any(|m| m.path.contains(", ")), "none with two changes");
    }
}
