//! Reading what another system was configured with, with the path of whatever is wrong.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::Remarks;

/// What is wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FieldError {
    pub(crate) path: String,
    pub(crate) message: String,
}

impl std::fmt::Display for FieldError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.path, self.message)
    }
}

/// The fields of an object; a null counts as absent.
pub(crate) struct Fields<'a> {
    fields: Option<&'a Map<String, Value>>,
    path: String,
}

impl<'a> Fields<'a> {
    /// An object that must be there.
    pub(crate) fn of(value: &'a Value, path: &str) -> Result<Self, FieldError> {
        match value {
            Value::Object(fields) => Ok(Self { fields: Some(fields), path: path.to_owned() }),
            Value::Null => Err(FieldError { path: path.to_owned(), message: "required".to_owned() }),
            _ => Err(FieldError { path: path.to_owned(), message: "must be an object".to_owned() }),
        }
    }

    /// The object of a field; one without fields if it is absent.
    pub(crate) fn below(&self, key: &str) -> Result<Fields<'a>, FieldError> {
        match self.get(key) {
            None => Ok(Fields { fields: None, path: self.path_of(key) }),
            Some(value) => Fields::of(value, &self.path_of(key)),
        }
    }

    /// The value of a field.
    pub(crate) fn get(&self, key: &str) -> Option<&'a Value> {
        self.fields.and_then(|fields| fields.get(key)).filter(|value| !value.is_null())
    }

    /// Whether a field is written, and null.
    pub(crate) fn is_null(&self, key: &str) -> bool {
        self.fields.and_then(|fields| fields.get(key)).is_some_and(Value::is_null)
    }

    /// Where a field is.
    pub(crate) fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// An error about a field.
    pub(crate) fn wrong(&self, key: &str, message: &str) -> FieldError {
        FieldError { path: self.path_of(key), message: message.to_owned() }
    }

    pub(crate) fn text(&self, key: &str) -> Result<Option<String>, FieldError> {
        self.read(key, "a string", |v| v.as_str().map(str::to_owned))
    }

    pub(crate) fn integer(&self, key: &str) -> Result<Option<i64>, FieldError> {
        self.read(key, "a whole number", Value::as_i64)
    }

    pub(crate) fn boolean(&self, key: &str) -> Result<Option<bool>, FieldError> {
        self.read(key, "true or false", Value::as_bool)
    }

    pub(crate) fn list(&self, key: &str) -> Result<Option<&'a [Value]>, FieldError> {
        self.read(key, "a list", |v| v.as_array().map(Vec::as_slice))
    }

    /// Labels whose values are of any plain type, as text. None if there are none.
    pub(crate) fn labels(&self, key: &str) -> Result<Option<BTreeMap<String, String>>, FieldError> {
        let Some(fields) = self.read(key, "an object", |v| v.as_object())? else { return Ok(None) };
        let mut labels = BTreeMap::new();
        for (name, value) in fields {
            let text = match value {
                Value::String(text) => text.clone(),
                Value::Bool(_) | Value::Number(_) => value.to_string(),
                _ => {
                    let path = format!("{}.{name}", self.path_of(key));
                    return Err(FieldError { path, message: "a label's value must be a string".to_owned() });
                }
            };
            labels.insert(name.clone(), text);
        }
        Ok(Some(labels).filter(|l| !l.is_empty()))
    }

    /// Texts by name, such as annotations: nothing else than strings.
    pub(crate) fn texts(&self, key: &str) -> Result<BTreeMap<String, String>, FieldError> {
        let Some(fields) = self.read(key, "an object", |v| v.as_object())? else {
            return Ok(BTreeMap::new());
        };
        let text = |(name, value): (&String, &Value)| match value {
            Value::String(text) => Ok((name.clone(), text.clone())),
            other => {
                let path = format!("{}.{name}", self.path_of(key));
                Err(FieldError { path, message: format!("must be a string: write \"{other}\" in quotes") })
            }
        };
        fields.iter().map(text).collect()
    }

    fn read<T>(
        &self,
        key: &str,
        what: &str,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, FieldError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        read(value).map(Some).ok_or_else(|| self.wrong(key, &format!("must be {what}")))
    }

    /// Says which fields mean nothing there either.
    pub(crate) fn unknown(&self, known: &[&str], remarks: &mut Remarks) {
        for key in self.fields.into_iter().flat_map(Map::keys).filter(|key| !known.contains(&key.as_str())) {
            remarks.note(format!("{} is left out: nothing read it there either", self.path_of(key)));
        }
    }
}
