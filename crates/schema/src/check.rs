//! Types and value validations, as the API server's `OpenAPI` validator makes them: the same checks in the same order,
//! with the same words.

use serde_json::{Map, Value};

use crate::cause::{CauseType, ValidationError};
use crate::correlate;
use crate::go;
use crate::node::{Entries, Node, Type};
use crate::number;
use crate::path::Path;

/// A cause, and the sentence by which the validator distinguishes causes.
pub(crate) struct ValidationFailure {
    pub(crate) sentence: String,
    pub(crate) cause: ValidationError,
}

impl ValidationFailure {
    /// About a value, if there is a place for it; the root has none.
    pub(crate) fn at(reason: CauseType, name: &str, bad: Option<&str>, sentence: String) -> Self {
        let field = if name.is_empty() {
            "<nil>".to_owned()
        } else {
            name.strip_prefix('.').unwrap_or(name).to_owned()
        };
        let cause = ValidationError::new(reason, field, bad, &sentence);
        Self { sentence, cause }
    }

    /// What the validator says without a place.
    pub(crate) fn unplaced(sentence: String) -> Self {
        Self::at(CauseType::Invalid, "", Some("\"\""), sentence)
    }

    /// A wrong type: what was wanted, and what came instead.
    fn wrong_type(name: &str, wanted: &str, got: &str) -> Self {
        let got = go::quote(got);
        let sentence = format!("{name} in body must be of type {wanted}: {got}");
        Self::at(CauseType::TypeInvalid, name, Some(&got), sentence)
    }

    /// One whose words in the cause are other than its sentence.
    fn worded(reason: CauseType, name: &str, bad: Option<&str>, detail: &str, sentence: String) -> Self {
        Self { sentence, ..Self::at(reason, name, bad, detail.to_owned()) }
    }
}

/// The result of the checks: failures, and how many checks were passed, by which the nearest of several alternatives is
/// found.
#[derive(Default)]
pub(crate) struct CheckResult {
    pub(crate) failures: Vec<ValidationFailure>,
    passed: usize,
}

impl CheckResult {
    pub(crate) fn fail(&mut self, failure: ValidationFailure) {
        if !self.failures.iter().any(|known| known.sentence == failure.sentence) {
            self.failures.push(failure);
        }
    }

    fn merge(&mut self, other: Self) {
        self.passed += other.passed;
        for failure in other.failures {
            self.fail(failure);
        }
    }
}

/// Checks a value, and what is below it. Where there is an old value and nothing has changed, failures are forgiven.
pub(crate) fn value(node: &Node, value: &Value, old: Option<&Value>, path: Path<'_>) -> CheckResult {
    let mut outcome = one(node, value, old, path);
    if !outcome.failures.is_empty() && old.is_some_and(|old| correlate::same(node, value, old)) {
        outcome.failures.clear();
    }
    outcome
}

fn one(node: &Node, value: &Value, old: Option<&Value>, path: Path<'_>) -> CheckResult {
    let mut outcome = CheckResult::default();
    if value.is_null() {
        null(node, path, &mut outcome);
        return outcome;
    }
    if node.kind.is_some() || node.int_or_string || node.checks.format.is_some() {
        match type_of(node, value, path) {
            Some(failure) => outcome.fail(failure),
            None => outcome.passed += 1,
        }
        outcome.passed += 1;
    }
    alternatives(node, value, path, &mut outcome);
    outcome.passed += 1;
    match value {
        Value::String(text) => string(node, text, path, &mut outcome),
        Value::Number(number) => {
            number::check(node, number, path, &mut outcome);
            outcome.passed += 2;
        }
        Value::Array(items) => {
            list(node, items, old, path, &mut outcome);
            outcome.passed += 2;
        }
        _ => {}
    }
    if !node.checks.allowed.is_empty() && !node.checks.allowed.iter().any(|a| is_same_scalar(value, a)) {
        outcome.fail(not_allowed(node, value, path));
    }
    outcome.passed += 1;
    if let Value::Object(fields) = value {
        object(node, fields, old, path, &mut outcome);
        outcome.passed += 1;
    }
    outcome.passed += 1;
    outcome
}

fn null(node: &Node, path: Path<'_>, outcome: &mut CheckResult) {
    if node.types().is_empty() || node.nullable {
        outcome.passed += 1;
    } else {
        outcome.fail(ValidationFailure::wrong_type(&path.dotted(), &names(node), "null"));
    }
    if !node.checks.allowed.is_empty() {
        outcome.fail(not_allowed(node, &Value::Null, path));
    }
}

fn names(node: &Node) -> String {
    node.types().iter().map(|t| t.as_str()).collect::<Vec<_>>().join(",")
}

/// The type of a value, and the format that goes with it, in the validator's words.
fn type_names(value: &Value) -> (&'static str, &'static str) {
    match value {
        Value::Null => ("null", ""),
        Value::Bool(_) => ("boolean", ""),
        Value::Number(n) if n.is_i64() => ("integer", "int64"),
        Value::Number(_) => ("number", "float64"),
        Value::String(_) => ("string", ""),
        Value::Array(_) => ("array", ""),
        Value::Object(_) => ("object", ""),
    }
}

/// Text and lists pass where a format of strings is asked for: the format is checked afterwards, on text alone.
fn type_of(node: &Node, value: &Value, path: Path<'_>) -> Option<ValidationFailure> {
    let types = node.types();
    let (name, own_format) = type_names(value);
    let format = node.checks.format.as_ref().map_or("", |f| f.name.as_str());
    let wants = |t: Type| types.contains(&t);
    let is_whole = wants(Type::Integer)
        && value.as_f64().is_some_and(|float| name == "number" && number::is_whole(float));
    let is_number = name == "integer" && wants(Type::Number);
    let fits = types.iter().any(|t| t.as_str() == name) || is_whole || is_number;
    let is_sequence = value.is_string() || value.is_array();
    if !format.is_empty() {
        if !is_sequence && !fits && own_format != format {
            return Some(ValidationFailure::wrong_type(&path.dotted(), format, own_format));
        }
        if is_sequence && !wants(Type::Number) && !wants(Type::Integer) {
            return None;
        }
    }
    (!fits).then(|| ValidationFailure::wrong_type(&path.dotted(), &names(node), name))
}

fn string(node: &Node, text: &str, path: Path<'_>, outcome: &mut CheckResult) {
    let checks = &node.checks;
    if checks.min_length.is_some() || checks.max_length.is_some() || checks.pattern.is_some() {
        let length = text.chars().count() as u64;
        let bad = |sentence: String| {
            ValidationFailure::at(CauseType::Invalid, &path.dotted(), Some(&go::quote(text)), sentence)
        };
        if let Some(most) = checks.max_length.filter(|most| length > *most) {
            let name = path.dotted();
            let detail = format!("may not be more than {most} byte{}", if most == 1 { "" } else { "s" });
            let sentence = format!("{name} in body should be at most {most} chars long");
            outcome.fail(ValidationFailure::worded(CauseType::TooLong, &name, None, &detail, sentence));
        } else if let Some(least) = checks.min_length.filter(|least| length < *least) {
            outcome.fail(bad(format!("{} in body should be at least {least} chars long", path.dotted())));
        } else if let Some((pattern, _)) = checks.pattern.as_ref().filter(|(_, re)| !re.is_match(text)) {
            outcome.fail(bad(format!("{} in body should match '{pattern}'", path.dotted())));
        }
    }
    outcome.passed += 1;
    if let Some((format, accepts)) = checks.format.as_ref().and_then(|f| Some((f, f.accepts?))) {
        if !accepts(text) {
            outcome.fail(ValidationFailure::wrong_type(&path.dotted(), &format.name, text));
        }
        outcome.passed += 1;
    }
}

fn count_failure(
    reason: CauseType,
    name: &str,
    size: usize,
    detail: &str,
    sentence: String,
) -> ValidationFailure {
    ValidationFailure::worded(reason, name, Some(&size.to_string()), detail, sentence)
}

fn too_many(path: Path<'_>, size: usize, most: u64, what: &str) -> ValidationFailure {
    let name = path.dotted();
    let detail = format!("must have at most {most} item{}", if most == 1 { "" } else { "s" });
    let sentence = format!("{name} in body should have at most {most} {what}");
    count_failure(CauseType::TooMany, &name, size, &detail, sentence)
}

fn too_few(path: Path<'_>, size: usize, least: u64, what: &str) -> ValidationFailure {
    let name = path.dotted();
    let sentence = format!("{name} in body should have at least {least} {what}");
    count_failure(CauseType::Invalid, &name, size, &sentence.clone(), sentence)
}

fn list(node: &Node, items: &[Value], old: Option<&Value>, path: Path<'_>, outcome: &mut CheckResult) {
    if let Some(child) = node.items.as_deref() {
        for (index, item) in items.iter().enumerate() {
            let old = correlate::old_item(node, item, old);
            outcome.merge(value(child, item, old, Path::Index(&path, index)));
        }
    }
    if let Some(least) = node.checks.min_items.filter(|least| (items.len() as u64) < *least) {
        outcome.fail(too_few(path, items.len(), least, "items"));
    }
    if let Some(most) = node.checks.max_items.filter(|most| items.len() as u64 > *most) {
        outcome.fail(too_many(path, items.len(), most, "items"));
    }
}

fn object(
    node: &Node,
    fields: &Map<String, Value>,
    old: Option<&Value>,
    path: Path<'_>,
    outcome: &mut CheckResult,
) {
    if let Some(least) = node.checks.min_properties.filter(|least| (fields.len() as u64) < *least) {
        outcome.fail(too_few(path, fields.len(), least, "properties"));
    }
    if let Some(most) = node.checks.max_properties.filter(|most| fields.len() as u64 > *most) {
        outcome.fail(too_many(path, fields.len(), most, "properties"));
    }
    // What the API server itself cannot see having changed is not forgiven.
    let old_field =
        |key: &str| old.filter(|_| !(node.root && matches!(key, "apiVersion" | "kind")))?.get(key);
    if let Some(Entries::Of(child)) = &node.entries {
        for (key, entry) in fields.iter().filter(|(key, _)| !node.properties.contains_key(*key)) {
            outcome.merge(value(child, entry, old_field(key), Path::Entry(&path, key)));
        }
    }
    for (name, child) in &node.properties {
        if let Some(field) = fields.get(name) {
            outcome.merge(value(child, field, old_field(name), Path::Field(&path, name)));
        }
    }
    for name in node.checks.required.iter().filter(|name| !fields.contains_key(*name)) {
        let place = Path::Field(&path, name).dotted();
        let sentence = format!("{place} in body is required");
        outcome.fail(ValidationFailure::worded(CauseType::Required, &place, None, "", sentence));
    }
}

/// Numbers are converted to the type of what they are compared with, which cuts fractions off.
fn is_same_scalar(value: &Value, allowed: &Value) -> bool {
    match (value, allowed) {
        (Value::Number(value), Value::Number(allowed)) => match (value.as_i64(), allowed.as_i64()) {
            (Some(value), Some(allowed)) => value == allowed,
            (None, Some(allowed)) => value.as_f64().is_some_and(|v| number::truncated(v) == allowed),
            _ => value.as_f64() == allowed.as_f64(),
        },
        (Value::Null, _) => false,
        (value, allowed) => value == allowed,
    }
}

fn not_allowed(node: &Node, value: &Value, path: Path<'_>) -> ValidationFailure {
    let list = node.checks.allowed.iter().map(|allowed| match allowed {
        Value::String(text) => go::quote(text),
        other => go::quote(&go::json(other)),
    });
    let name = path.dotted();
    let detail = format!("supported values: {}", list.collect::<Vec<_>>().join(", "));
    let sentence = format!("{name} in body should be one of: {detail}");
    ValidationFailure::worded(CauseType::NotSupported, &name, Some(&go::value(value)), &detail, sentence)
}

/// anyOf, oneOf, allOf and not. Of alternatives that all fail, the one that went furthest is reported.
fn alternatives(node: &Node, value: &Value, path: Path<'_>, outcome: &mut CheckResult) {
    let checks = &node.checks;
    // Kept apart: what fails here counts as one check that was passed.
    let mut main = CheckResult::default();
    let of = |node: &Node| one(node, value, None, path);
    let place = || go::quote(&path.dotted());
    if !checks.any_of.is_empty() {
        let (valid, chosen) = first_or_nearest(&checks.any_of, of, 1);
        if valid == 0 {
            main.fail(ValidationFailure::unplaced(format!(
                "{} must validate at least one schema (anyOf)",
                place()
            )));
        }
        main.merge(chosen);
    }
    if !checks.one_of.is_empty() {
        let (valid, chosen) = first_or_nearest(&checks.one_of, of, usize::MAX);
        if valid != 1 {
            let found = if valid == 0 {
                "Found none valid".to_owned()
            } else {
                format!("Found {valid} valid alternatives")
            };
            let sentence = format!("{} must validate one and only one schema (oneOf). {found}", place());
            main.fail(ValidationFailure::unplaced(sentence));
        }
        if valid <= 1 {
            main.merge(chosen);
        }
    }
    let mut valid = 0;
    for part in &checks.all_of {
        let part = of(part);
        valid += usize::from(part.failures.is_empty());
        main.merge(part);
    }
    if valid != checks.all_of.len() {
        let addition = if valid == 0 { ". None validated" } else { "" };
        main.fail(ValidationFailure::unplaced(format!(
            "{} must validate all the schemas (allOf){addition}",
            place()
        )));
    }
    if checks.not.as_deref().is_some_and(|not| of(not).failures.is_empty()) {
        main.fail(ValidationFailure::unplaced(format!("{} must not validate the schema (not)", place())));
    }
    main.passed += 1;
    outcome.merge(main);
}

/// How many alternatives fit, counting up to `enough`, and the outcome of the first that does, or else of the
/// one that passed most checks.
fn first_or_nearest(
    nodes: &[Node],
    of: impl Fn(&Node) -> CheckResult,
    enough: usize,
) -> (usize, CheckResult) {
    let mut valid = 0;
    let mut chosen: Option<CheckResult> = None;
    for node in nodes {
        let outcome = of(node);
        if outcome.failures.is_empty() {
            valid += 1;
            if valid == 1 {
                chosen = Some(outcome);
            }
            if valid == enough {
                break;
            }
        } else if valid == 0 && chosen.as_ref().is_none_or(|best| outcome.passed > best.passed) {
            chosen = Some(outcome);
        }
    }
    (valid, chosen.unwrap_or_default())
}
