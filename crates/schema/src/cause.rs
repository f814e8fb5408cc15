//! What is wrong with an object, in the API server's words.

use std::fmt;

use serde_json::{Value, json};

use crate::go;

/// The kind of a [`ValidationError`]: the API server's `CauseType`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CauseType {
    /// Something that must be there is not.
    Required,
    /// A value that must be unique is there twice.
    Duplicate,
    /// The value has the right type, and is not accepted.
    Invalid,
    /// Not one of the values of an enumeration.
    NotSupported,
    /// By a rule that says so.
    Forbidden,
    /// A string of too many characters.
    TooLong,
    /// A list or map of too many entries.
    TooMany,
    /// The value has the wrong type.
    TypeInvalid,
}

impl CauseType {
    /// As in `status.details.causes[].reason`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Required => "FieldValueRequired",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Invalid => "FieldValueInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::TypeInvalid => "FieldValueTypeInvalid",
        }
    }

    /// After any of these the API server does not evaluate rules.
    pub const BLOCK_RULES: [Self; 5] =
        [Self::NotSupported, Self::Required, Self::TooLong, Self::TooMany, Self::TypeInvalid];
}

impl fmt::Display for CauseType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One thing that is wrong with an object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ValidationError {
    /// Of which kind it is.
    pub reason: CauseType,
    /// Where: `spec.policies[0].when`; `<nil>` for the object as a whole.
    pub field: String,
    /// What, without the place: `Invalid value: 0: must be ...`.
    pub message: String,
    /// The end of the message: what is wrong with the value, if more is said than that it is.
    pub detail: String,
}

impl fmt::Display for ValidationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

const RULES_NOT_CHECKED: &str = "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation";

impl ValidationError {
    /// Words, a value if there is one to show, and what is wrong with it if more is to be said.
    pub(crate) fn new(reason: CauseType, field: String, bad: Option<&str>, detail: &str) -> Self {
        let mut message = match reason {
            CauseType::Required => "Required value",
            CauseType::Duplicate => "Duplicate value",
            CauseType::Invalid | CauseType::TypeInvalid => "Invalid value",
            CauseType::NotSupported => "Unsupported value",
            CauseType::Forbidden => "Forbidden",
            CauseType::TooLong => "Too long",
            CauseType::TooMany => "Too many",
        }
        .to_owned();
        for part in bad.into_iter().chain(Some(detail).filter(|d| !d.is_empty())) {
            message.push_str(": ");
            message.push_str(part);
        }
        Self { reason, field, message, detail: detail.to_owned() }
    }

    pub(crate) fn invalid(field: String, bad: &Value, detail: &str) -> Self {
        Self::new(CauseType::Invalid, field, Some(&go::value(bad)), detail)
    }

    pub(crate) fn required(field: String) -> Self {
        Self::new(CauseType::Required, field, None, "")
    }

    pub(crate) fn duplicate(field: String, bad: &Value) -> Self {
        Self::new(CauseType::Duplicate, field, Some(&go::value(bad)), "")
    }

    /// What the API server adds when it has not evaluated the rules.
    pub(crate) fn rules_not_checked() -> Self {
        Self::new(CauseType::Invalid, "<nil>".to_owned(), Some("null"), RULES_NOT_CHECKED)
    }

    /// Whether it says only that rules were not evaluated, because of the other causes.
    pub fn is_rules_not_checked(&self) -> bool {
        self.detail == RULES_NOT_CHECKED
    }
}

/// Causes as in the `message` of a Status after `... is invalid: `: each once; in brackets if there are
/// several.
pub fn format_cause_list(causes: &[ValidationError]) -> String {
    let mut said: Vec<String> = Vec::with_capacity(causes.len());
    for cause in causes {
        let text = cause.to_string();
        if !said.contains(&text) {
            said.push(text);
        }
    }
    match said.as_slice() {
        [one] => one.clone(),
        several => format!("[{}]", several.join(", ")),
    }
}

/// Causes as in the `details.causes` of a Status.
pub fn status_causes(causes: &[ValidationError]) -> Value {
    let one =
        |c: &ValidationError| json!({"reason": c.reason.as_str(), "message": c.message, "field": c.field});
    Value::Array(causes.iter().map(one).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_causes_stand_in_brackets_and_each_once() {
        let a = ValidationError::required("spec.a".to_owned());
        let b = ValidationError::invalid("spec.b".to_owned(), &json!("x"), "must be y");
        assert_eq!(format_cause_list(std::slice::from_ref(&a)), "spec.a: Required value");
        assert_eq!(
            format_cause_list(&[a.clone(), b.clone(), a.clone()]),
            r#"[spec.a: Required value, spec.b: Invalid value: "x": must be y]"#
        );
        assert_eq!(
            status_causes(&[b]),
            json!([{"reason": "FieldValueInvalid", "message": "Invalid value: \"x\": must be y", "field": "spec.b"}])
        );
    }
}
