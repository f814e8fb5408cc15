//! One rule, and all rules over an object.

use serde_json::{Map, Value};

use super::eval::evaluate;
use super::names;
use super::program::{Program, compile};
use super::value::{Error, Val};
use crate::cause::{CauseType, ValidationError};
use crate::correlate;
use crate::error::SchemaError;
use crate::go;
use crate::node::{Entries, Node, Type};
use crate::path::Path;

/// One of `x-kubernetes-validations`.
#[derive(Debug)]
pub(crate) struct ValidationRule {
    source: String,
    program: Program,
    message: Option<String>,
    message_expression: Option<Program>,
    reason: CauseType,
    /// Below the level that the rule is at.
    field_path: Option<String>,
    optional_old: bool,
}

impl ValidationRule {
    pub(crate) fn compile(
        raw: &Value,
        node: &Node,
        at: &str,
        correlatable: bool,
    ) -> Result<Self, SchemaError> {
        let fields = raw.as_object().ok_or_else(|| SchemaError::invalid(at, "must be an object"))?;
        for key in fields.keys() {
            let known = ["rule", "message", "messageExpression", "reason", "fieldPath", "optionalOldSelf"];
            if !known.contains(&key.as_str()) {
                return Err(SchemaError::Unsupported { path: format!("{at}.{key}") });
            }
        }
        let source = text(fields, "rule", at)?.unwrap_or_default();
        if source.trim().is_empty() {
            return Err(SchemaError::invalid(&format!("{at}.rule"), "is not specified"));
        }
        let optional_old = fields.get("optionalOldSelf").and_then(Value::as_bool).unwrap_or_default();
        let program = |keyword: &str, source: &str| {
            compile(source, node, optional_old).map_err(|problem| SchemaError::Rule {
                path: format!("{at}.{keyword}"),
                rule: source.to_owned(),
                problem: problem.to_string(),
            })
        };
        let compiled = program("rule", source)?;
        if compiled.uses_old && !correlatable {
            let problem = "oldSelf cannot be used within a list that is not a map";
            return Err(SchemaError::invalid(&format!("{at}.rule"), problem));
        }
        if optional_old && !compiled.uses_old {
            let problem = "may not be set if oldSelf is not used in rule";
            return Err(SchemaError::invalid(&format!("{at}.optionalOldSelf"), problem));
        }
        let message_expression = text(fields, "messageExpression", at)?;
        Ok(Self {
            source: source.trim().to_owned(),
            program: compiled,
            message: text(fields, "message", at)?.map(|message| message.trim().to_owned()),
            message_expression: message_expression.map(|e| program("messageExpression", e)).transpose()?,
            reason: reason(text(fields, "reason", at)?, at)?,
            field_path: match text(fields, "fieldPath", at)? {
                Some(path) => Some(names::normalize(path, node).ok_or_else(|| {
                    SchemaError::invalid(&format!("{at}.fieldPath"), "must be a path that the schema has")
                })?),
                None => None,
            },
            optional_old,
        })
    }

    /// What the rule is called in an error.
    fn title(&self) -> &str {
        self.message.as_deref().unwrap_or(&self.source)
    }

    /// The words of a failure.
    fn detail<'a>(&'a self, this: &Val<'a>, old: &Val<'a>) -> String {
        const MAX_MESSAGE_BYTES: usize = 5 * 1024;
        let computed =
            self.message_expression.as_ref().and_then(|program| match evaluate(program, this, old) {
                Ok(Val::Str(text)) => Some(text.trim().to_owned()),
                _ => None,
            });
        let usable =
            |text: &String| !text.is_empty() && text.len() <= MAX_MESSAGE_BYTES && !text.contains('\n');
        computed.filter(usable).unwrap_or_else(|| match &self.message {
            Some(message) => message.clone(),
            None => format!("failed rule: {}", self.source),
        })
    }
}

fn text<'v>(fields: &'v Map<String, Value>, key: &str, at: &str) -> Result<Option<&'v str>, SchemaError> {
    let wrong = || SchemaError::invalid(&format!("{at}.{key}"), "must be a string");
    fields.get(key).map(|value| value.as_str().ok_or_else(wrong)).transpose()
}

fn reason(name: Option<&str>, at: &str) -> Result<CauseType, SchemaError> {
    Ok(match name {
        None | Some("FieldValueInvalid") => CauseType::Invalid,
        Some("FieldValueForbidden") => CauseType::Forbidden,
        Some("FieldValueRequired") => CauseType::Required,
        Some("FieldValueDuplicate") => CauseType::Duplicate,
        Some(_) => return Err(SchemaError::Unsupported { path: format!("{at}.reason") }),
    })
}

/// Everything that rules say about an object.
pub(crate) fn check(root: &Node, new: &Value, old: Option<&Value>) -> Vec<ValidationError> {
    let mut causes = Vec::new();
    let now = old.map(|old| Pair { node: root, new, old });
    walk(root, new, old, Ratcheting { now, parent: None }, Path::Root, &mut causes);
    causes
}

/// A value and the one that it continues.
#[derive(Clone, Copy)]
struct Pair<'a> {
    node: &'a Node,
    new: &'a Value,
    old: &'a Value,
}

impl Pair<'_> {
    fn is_same(self) -> bool {
        correlate::same(self.node, self.new, self.old)
    }
}

/// By what a failure is forgiven: that its value has not changed or, if the old value is not known, that nothing
/// around it has.
#[derive(Clone, Copy, Default)]
struct Ratcheting<'a> {
    now: Option<Pair<'a>>,
    parent: Option<Pair<'a>>,
}

impl<'a> Ratcheting<'a> {
    fn ratchets(self) -> bool {
        self.now.or(self.parent).is_some_and(Pair::is_same)
    }

    fn key(self, key: &str) -> Self {
        let Some(now) = self.now else { return self };
        if self.parent.is_none() && matches!(key, "apiVersion" | "kind") {
            return Self::default();
        }
        let child =
            || Some(Pair { node: now.node.child(key)?, new: now.new.get(key)?, old: now.old.get(key)? });
        Self { now: child(), parent: Some(now) }
    }

    fn index(self, item: &'a Value) -> Self {
        let Some(now) = self.now else { return self };
        let child = || {
            let old = correlate::old_item(now.node, item, Some(now.old))?;
            Some(Pair { node: now.node.items.as_deref()?, new: item, old })
        };
        Self { now: child(), parent: Some(now) }
    }
}

fn walk<'a>(
    node: &'a Node,
    value: &'a Value,
    old: Option<&'a Value>,
    forgiving: Ratcheting<'a>,
    path: Path<'_>,
    causes: &mut Vec<ValidationError>,
) {
    if !node.has_rules || value.is_null() {
        return;
    }
    rules(node, value, old.filter(|old| !old.is_null()), forgiving, path, causes);
    match value {
        Value::Array(items) => {
            let Some(child) = node.items.as_deref() else { return };
            for (index, item) in items.iter().enumerate() {
                let old = correlate::old_item(node, item, old);
                walk(child, item, old, forgiving.index(item), Path::Index(&path, index), causes);
            }
        }
        Value::Object(fields) => {
            for (key, value) in fields {
                let (child, at) = match (node.properties.get(key), &node.entries) {
                    (Some(child), _) => (child, Path::Field(&path, key)),
                    (None, Some(Entries::Of(child))) => (child.as_ref(), Path::Entry(&path, key)),
                    _ => continue,
                };
                let old = old.and_then(|old| old.get(key));
                walk(child, value, old, forgiving.key(key), at, causes);
            }
        }
        _ => {}
    }
}

fn rules<'a>(
    node: &'a Node,
    value: &'a Value,
    old: Option<&'a Value>,
    forgiving: Ratcheting<'a>,
    path: Path<'_>,
    causes: &mut Vec<ValidationError>,
) {
    if node.rules.is_empty() {
        return;
    }
    let kind = go::quote(node.kind.map_or("", Type::as_str));
    let failed =
        |detail: String| ValidationError::new(CauseType::Invalid, path.bracketed(), Some(&kind), &detail);
    let values =
        Val::of(value, node).and_then(|this| Ok((this, old.map(|old| Val::of(old, node)).transpose()?)));
    for rule in &node.rules {
        if rule.program.uses_old && old.is_none() && !rule.optional_old {
            continue;
        }
        let outcome = values.clone().and_then(|(this, old)| {
            let old = match old {
                old if rule.optional_old => Val::Optional(old.map(Box::new)),
                old => old.unwrap_or(Val::Null),
            };
            Ok((evaluate(&rule.program, &this, &old)?, this, old))
        });
        match outcome {
            Ok((Val::Bool(true), ..)) => {}
            Ok((_, this, old)) => {
                if rule.program.uses_old || !forgiving.ratchets() {
                    causes.push(refused(rule, node, value, path, &rule.detail(&this, &old)));
                }
            }
            Err(error) => causes.push(failed(words(&error, rule))),
        }
    }
}

fn words(error: &Error, rule: &ValidationRule) -> String {
    let (words, title) = (error.words(), rule.title());
    if error.is_no_such_overload() {
        format!(
            "'{words}': call arguments did not match a supported operator, function or macro signature for rule: {title}"
        )
    } else {
        format!("{words} evaluating rule: {title}")
    }
}

/// Objects and lists are not shown.
fn refused(
    rule: &ValidationRule,
    node: &Node,
    value: &Value,
    path: Path<'_>,
    detail: &str,
) -> ValidationError {
    let at = match (&rule.field_path, path) {
        (Some(below), Path::Root) => below.clone(),
        (Some(below), path) => format!("{}.{below}", path.bracketed()),
        (None, path) => path.bracketed(),
    };
    let bad = (!matches!(node.kind, Some(Type::Object | Type::Array))).then(|| go::value(value));
    match rule.reason {
        reason @ (CauseType::Required | CauseType::Forbidden) => {
            ValidationError::new(reason, at, None, detail)
        }
        CauseType::Duplicate => ValidationError::new(CauseType::Duplicate, at, bad.as_deref(), ""),
        reason => ValidationError::new(reason, at, bad.as_deref(), detail),
    }
}
