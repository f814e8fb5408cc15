//! Label and field selectors: parsed and refused in the words of the API server.

use std::collections::BTreeSet;

use serde_json::Value;

use super::kinds::ServedKind;
use super::names;

/// Which objects a list or watch shows.
#[derive(Clone, Debug, Default)]
pub(super) struct Selector {
    labels: Vec<Requirement>,
    fields: Vec<FieldTerm>,
}

/// Why a selector is refused: the text is that of the `BadRequest`.
#[derive(Debug, thiserror::Error)]
pub(super) enum SelectorError {
    /// Something else than what may be there.
    #[error("found '{found}', expected: {expected}")]
    Unexpected { found: String, expected: &'static str },
    /// No set after `in` or `notin`.
    #[error("found '{found}' expected: '('")]
    NoSet { found: String },
    /// One of the terms of a label selector.
    #[error("unable to parse requirement: {0}")]
    Requirement(Box<Self>),
    /// No key of a label.
    #[error("<nil>: Invalid value: {key:?}: {}", problems.join("; "))]
    Key { key: String, problems: Vec<String> },
    /// No value of a label.
    #[error("values[{at}][{key}]: Invalid value: {value:?}: {}", problems.join("; "))]
    Value { at: usize, key: String, value: String, problems: Vec<String> },
    /// No number, where numbers are compared.
    #[error("values[0]: Invalid value: {value:?}: for 'Gt', 'Lt' operators, the value must be an integer")]
    Number { value: String },
    /// One of the terms of a field selector.
    #[error("invalid selector: '{selector}'; can't understand '{term}'")]
    Term { selector: String, term: String },
    /// A field of a kind of which only the names can be selected.
    #[error("{0:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")]
    NamesOnly(String),
    /// A field of a Job.
    #[error("field label {0:?} not supported for Job")]
    JobField(String),
    /// A field of another kind.
    #[error("field label not supported: {0}")]
    Field(String),
}

fn unexpected(found: impl Into<String>, expected: &'static str) -> SelectorError {
    SelectorError::Unexpected { found: found.into(), expected }
}

impl Selector {
    /// Both selectors of a query.
    pub(super) fn parse(
        kind: &ServedKind,
        labels: Option<&str>,
        fields: Option<&str>,
    ) -> Result<Self, SelectorError> {
        Ok(Self {
            labels: labels.map_or(Ok(Vec::new()), parse_labels)?,
            fields: fields.map_or(Ok(Vec::new()), |text| parse_fields(kind, text))?,
        })
    }

    /// Whether it lets everything through.
    pub(super) fn is_everything(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    pub(super) fn matches(&self, object: &Value) -> bool {
        if !self.labels.is_empty() {
            let labels = &object["metadata"]["labels"];
            if !self
                .labels
                .iter()
                .all(|requirement| requirement.matches(labels[requirement.key.as_str()].as_str()))
            {
                return false;
            }
        }
        self.fields.iter().all(|term| term.matches(object))
    }
}

/// A `LabelSelector` object, as workloads have it; an absent one selects nothing here.
pub(super) fn label_selector_matches(selector: &Value, labels: &Value) -> bool {
    let equal = selector["matchLabels"]
        .as_object()
        .into_iter()
        .flatten()
        .all(|(key, value)| labels[key.as_str()] == *value);
    let expressions = selector["matchExpressions"].as_array().into_iter().flatten().all(|expression| {
        let value = labels[expression["key"].as_str().unwrap_or_default()].as_str();
        let among = || {
            let values = expression["values"].as_array().into_iter().flatten();
            values.filter_map(Value::as_str).any(|v| Some(v) == value)
        };
        match expression["operator"].as_str() {
            Some("In") => value.is_some() && among(),
            Some("NotIn") => value.is_none() || !among(),
            Some("Exists") => value.is_some(),
            Some("DoesNotExist") => value.is_none(),
            _ => false,
        }
    });
    selector.is_object() && equal && expressions
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Operator {
    Exists,
    Absent,
    In(BTreeSet<String>),
    NotIn(BTreeSet<String>),
    Greater(i64),
    Less(i64),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    operator: Operator,
}

impl Requirement {
    fn matches(&self, value: Option<&str>) -> bool {
        let number = |value: Option<&str>| value.and_then(|v| v.parse::<i64>().ok());
        match &self.operator {
            Operator::Exists => value.is_some(),
            Operator::Absent => value.is_none(),
            Operator::In(values) => value.is_some_and(|v| values.contains(v)),
            Operator::NotIn(values) => value.is_none_or(|v| !values.contains(v)),
            Operator::Greater(than) => number(value).is_some_and(|v| v > *than),
            Operator::Less(than) => number(value).is_some_and(|v| v < *than),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
    End,
    Error,
    Identifier,
    Not,
    Equals,
    NotEquals,
    Greater,
    Less,
    Comma,
    Open,
    Close,
    In,
    NotIn,
}

/// Cuts a selector into tokens.
struct Tokens {
    tokens: Vec<(Token, String)>,
    at: usize,
}

impl Tokens {
    fn new(text: &str) -> Self {
        let mut tokens = Vec::new();
        let mut rest = text.trim_start_matches([' ', '\t', '\r', '\n']);
        while let Some(first) = rest.chars().next() {
            let special = |c: char| matches!(c, '=' | '!' | '(' | ')' | ',' | '>' | '<');
            let (token, length) = if special(first) {
                symbol(rest)
            } else {
                let end =
                    rest.find(|c| special(c) || matches!(c, ' ' | '\t' | '\r' | '\n')).unwrap_or(rest.len());
                let token = match &rest[..end] {
                    "in" => Token::In,
                    "notin" => Token::NotIn,
                    _ => Token::Identifier,
                };
                (token, end)
            };
            tokens.push((token, rest[..length].to_owned()));
            rest = rest[length..].trim_start_matches([' ', '\t', '\r', '\n']);
        }
        Self { tokens, at: 0 }
    }

    /// The next token. `in` and `notin` are words like others where a key or value is expected.
    fn look(&self, values: bool) -> (Token, &str) {
        match self.tokens.get(self.at) {
            None => (Token::End, ""),
            Some((Token::In | Token::NotIn, text)) if values => (Token::Identifier, text),
            Some((token, text)) => (*token, text),
        }
    }

    fn take(&mut self, values: bool) -> (Token, String) {
        let (token, text) = self.look(values);
        let found = (token, text.to_owned());
        self.at += 1;
        found
    }
}

fn symbol(text: &str) -> (Token, usize) {
    let two = text.get(..2);
    match (two, text.chars().next()) {
        (Some("=="), _) => (Token::Equals, 2),
        (Some("!="), _) => (Token::NotEquals, 2),
        (_, Some('=')) => (Token::Equals, 1),
        (_, Some('!')) => (Token::Not, 1),
        (_, Some('(')) => (Token::Open, 1),
        (_, Some(')')) => (Token::Close, 1),
        (_, Some(',')) => (Token::Comma, 1),
        (_, Some('>')) => (Token::Greater, 1),
        (_, Some('<')) => (Token::Less, 1),
        _ => (Token::Error, 1),
    }
}

fn parse_labels(text: &str) -> Result<Vec<Requirement>, SelectorError> {
    let mut tokens = Tokens::new(text);
    let mut requirements = Vec::new();
    loop {
        match tokens.look(true) {
            (Token::Identifier | Token::Not, _) => {
                let requirement =
                    requirement(&mut tokens).map_err(|error| SelectorError::Requirement(Box::new(error)))?;
                requirements.push(requirement);
                match tokens.take(true) {
                    (Token::End, _) => return Ok(requirements),
                    (Token::Comma, _) => match tokens.look(true) {
                        (Token::Identifier | Token::Not, _) => {}
                        (_, found) => return Err(unexpected(found, "identifier after ','")),
                    },
                    (_, found) => return Err(unexpected(found, "',' or 'end of string'")),
                }
            }
            (Token::End, _) => return Ok(requirements),
            (_, found) => {
                return Err(unexpected(found, "!, identifier, or 'end of string'"));
            }
        }
    }
}

fn requirement(tokens: &mut Tokens) -> Result<Requirement, SelectorError> {
    let (mut token, mut key) = tokens.take(true);
    let absent = token == Token::Not;
    if absent {
        (token, key) = tokens.take(true);
    }
    if token != Token::Identifier {
        return Err(unexpected(key, "identifier"));
    }
    let problems = names::label_key_problems(&key);
    if !problems.is_empty() {
        return Err(SelectorError::Key { key, problems });
    }
    if absent {
        return Ok(Requirement { key, operator: Operator::Absent });
    }
    if matches!(tokens.look(true).0, Token::End | Token::Comma) {
        return Ok(Requirement { key, operator: Operator::Exists });
    }
    let (token, text) = tokens.take(false);
    let values = match token {
        Token::In | Token::NotIn => set(tokens)?,
        Token::Equals | Token::NotEquals | Token::Greater | Token::Less => exact(tokens)?,
        _ => return Err(unexpected(text, "in, notin, =, ==, !=, gt, lt")),
    };
    let operator = match token {
        Token::In | Token::Equals => Operator::In(checked(&key, values)?),
        Token::NotIn | Token::NotEquals => Operator::NotIn(checked(&key, values)?),
        _ => {
            let value = values.into_iter().next().unwrap_or_default();
            let number = value.parse().map_err(|_| SelectorError::Number { value })?;
            if token == Token::Greater { Operator::Greater(number) } else { Operator::Less(number) }
        }
    };
    Ok(Requirement { key, operator })
}

fn checked(key: &str, values: BTreeSet<String>) -> Result<BTreeSet<String>, SelectorError> {
    for (at, value) in values.iter().enumerate() {
        let problems = names::label_value_problems(value);
        if !problems.is_empty() {
            let (key, value) = (key.to_owned(), value.clone());
            return Err(SelectorError::Value { at, key, value, problems });
        }
    }
    Ok(values)
}

/// One value, which may be empty.
fn exact(tokens: &mut Tokens) -> Result<BTreeSet<String>, SelectorError> {
    if matches!(tokens.look(true).0, Token::End | Token::Comma) {
        return Ok(BTreeSet::from([String::new()]));
    }
    match tokens.take(true) {
        (Token::Identifier, value) => Ok(BTreeSet::from([value])),
        (_, found) => Err(unexpected(found, "identifier")),
    }
}

/// Values in parentheses.
fn set(tokens: &mut Tokens) -> Result<BTreeSet<String>, SelectorError> {
    let (token, found) = tokens.take(true);
    if token != Token::Open {
        return Err(SelectorError::NoSet { found });
    }
    match tokens.look(true) {
        (Token::Identifier | Token::Comma, _) => {
            let values = list(tokens)?;
            match tokens.take(true) {
                (Token::Close, _) => Ok(values),
                (_, found) => Err(unexpected(found, "')'")),
            }
        }
        (Token::Close, _) => {
            tokens.take(true);
            Ok(BTreeSet::new())
        }
        (_, found) => Err(unexpected(found, "',', ')' or identifier")),
    }
}

fn list(tokens: &mut Tokens) -> Result<BTreeSet<String>, SelectorError> {
    let mut values = BTreeSet::new();
    loop {
        match tokens.take(true) {
            (Token::Identifier, value) => {
                values.insert(value);
                match tokens.look(true) {
                    (Token::Comma, _) => {}
                    (Token::Close, _) => return Ok(values),
                    (_, found) => return Err(unexpected(found, "',' or ')'")),
                }
            }
            (Token::Comma, _) => {
                if values.is_empty() {
                    values.insert(String::new());
                }
                match tokens.look(true).0 {
                    Token::Close => {
                        values.insert(String::new());
                        return Ok(values);
                    }
                    Token::Comma => {
                        tokens.take(true);
                        values.insert(String::new());
                    }
                    _ => {}
                }
            }
            (_, found) => return Err(unexpected(found, "',', or identifier")),
        }
    }
}

/// One term of a field selector.
#[derive(Clone, Debug)]
struct FieldTerm {
    path: Vec<String>,
    equal: bool,
    value: String,
}

impl FieldTerm {
    fn matches(&self, object: &Value) -> bool {
        let found = self.path.iter().fold(object, |value, name| &value[name.as_str()]);
        let is = match found {
            Value::String(text) => *text == self.value,
            Value::Null => self.value.is_empty() || default_of(&self.path) == Some(self.value.as_str()),
            Value::Bool(flag) => self.value == if *flag { "true" } else { "false" },
            Value::Number(number) => self.value == number.to_string(),
            _ => false,
        };
        is == self.equal
    }
}

/// What an absent field counts as, where that is not the empty text.
fn default_of(path: &[String]) -> Option<&'static str> {
    match path.last().map(String::as_str) {
        Some("unschedulable" | "hostNetwork") => Some("false"),
        Some("successful" | "succeeded" | "replicas") => Some("0"),
        _ => None,
    }
}

fn parse_fields(kind: &ServedKind, text: &str) -> Result<Vec<FieldTerm>, SelectorError> {
    let mut terms = Vec::new();
    for term in split(text).into_iter().filter(|t| !t.is_empty()) {
        let not_understood = || SelectorError::Term { selector: text.to_owned(), term: term.clone() };
        let (field, equal, value) = operator(&term).ok_or_else(not_understood)?;
        let value = unescape(value).map_err(|()| not_understood())?;
        let path = field_path(kind, field)?;
        terms.push(FieldTerm { path, equal, value });
    }
    Ok(terms)
}

/// At commas that are not escaped.
fn split(text: &str) -> Vec<String> {
    let mut terms = vec![String::new()];
    let mut escaped = false;
    for c in text.chars() {
        match (c, escaped) {
            (',', false) => terms.push(String::new()),
            _ => {
                if let Some(term) = terms.last_mut() {
                    term.push(c);
                }
            }
        }
        escaped = c == '\\' && !escaped;
    }
    terms
}

fn operator(term: &str) -> Option<(&str, bool, &str)> {
    let at = term.char_indices().find(|(at, c)| *c == '=' || term[*at..].starts_with("!="))?.0;
    let (field, rest) = term.split_at(at);
    if let Some(value) = rest.strip_prefix("!=") {
        return Some((field, false, value));
    }
    let value = rest.strip_prefix("==").or_else(|| rest.strip_prefix('='))?;
    Some((field, true, value))
}

fn unescape(value: &str) -> Result<String, ()> {
    let mut out = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(c @ ('\\' | ',' | '=')) => out.push(c),
                _ => return Err(()),
            },
            ',' | '=' => return Err(()),
            c => out.push(c),
        }
    }
    Ok(out)
}

/// Fields that can be selected by besides name and namespace.
fn selectable(kind: &ServedKind) -> &'static [&'static str] {
    match (kind.group.as_ref(), kind.plural.as_ref()) {
        ("", "pods") => &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        ],
        ("", "events") => &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
        ("events.k8s.io", _) => {
            &["regarding.kind", "regarding.namespace", "regarding.name", "regarding.uid", "reason", "type"]
        }
        ("", "namespaces") => &["status.phase"],
        ("", "nodes") => &["spec.unschedulable"],
        ("", "secrets") => &["type"],
        ("", "services") => &["spec.clusterIP", "spec.type"],
        ("", "replicationcontrollers") => &["status.replicas"],
        ("batch", "jobs") => &["status.successful"],
        _ => &[],
    }
}

fn field_path(kind: &ServedKind, field: &str) -> Result<Vec<String>, SelectorError> {
    let path = |text: &str| text.split('.').map(str::to_owned).collect::<Vec<_>>();
    if field == "metadata.name"
        || (field == "metadata.namespace" && (kind.namespaced || kind.custom.is_none()))
    {
        return Ok(path(field));
    }
    if let Some(custom) = &kind.custom {
        return match custom.selectable_fields.iter().find(|f| f.trim_start_matches('.') == field) {
            Some(known) => Ok(path(known.trim_start_matches('.'))),
            None => Err(SelectorError::Field(field.to_owned())),
        };
    }
    let known = selectable(kind);
    if known.contains(&field) {
        // The internal name of a field is sometimes another one.
        return Ok(match (kind.group.as_ref(), field) {
            ("", "source") => path("source.component"),
            ("batch", "status.successful") => path("status.succeeded"),
            ("events.k8s.io", field) => path(&field.replace("regarding.", "involvedObject.")),
            _ => path(field),
        });
    }
    if known.is_empty() {
        return Err(SelectorError::NamesOnly(field.to_owned()));
    }
    Err(match kind.plural.as_ref() {
        "jobs" => SelectorError::JobField(field.to_owned()),
        _ => SelectorError::Field(field.to_owned()),
    })
}

/// Whether a custom resource and its name are all that a selector can pick out: then a list is one lookup.
pub(super) fn exact_name(selector: &Selector) -> Option<&str> {
    let named =
        |term: &&FieldTerm| term.equal && term.path.iter().map(String::as_str).eq(["metadata", "name"]);
    selector.fields.iter().find(named).map(|term| term.value.as_str())
}
