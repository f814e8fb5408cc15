//! Call-outs that may refuse a write.

use std::fmt::Debug;

use serde_json::Value;

use super::kinds::Kind;

/// What is about to be done to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A new object.
    Create,
    /// A changed object.
    Update,
    /// An object is to be deleted.
    Delete,
}

/// One write that is about to happen, after defaults and before it is kept.
#[derive(Debug)]
pub struct Review<'a> {
    /// What is done.
    pub operation: Operation,
    /// By whom.
    pub user: &'a str,
    /// To what kind.
    pub kind: &'a Kind,
    /// The subresource; empty if there is none.
    pub subresource: &'a str,
    /// The namespace; empty for cluster-wide objects.
    pub namespace: &'a str,
    /// The name.
    pub name: &'a str,
    /// The object as it will be; none for a deletion.
    pub object: Option<&'a Value>,
    /// The object as it is; none for a creation.
    pub old: Option<&'a Value>,
    /// Whether nothing will be kept.
    pub dry_run: bool,
    /// The options of a deletion, such as `preconditions`; otherwise null.
    pub options: &'a Value,
}

/// Why a write is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdmissionDenied {
    /// The status code.
    pub code: u16,
    /// The reason of the `Status`, such as `Forbidden` or `Invalid`.
    pub reason: String,
    /// What follows `... is forbidden: `.
    pub message: String,
    /// The one cause in `details`, if there is one.
    pub cause: Option<String>,
}

impl AdmissionDenied {
    /// The refusal of a `ValidatingAdmissionPolicy` in its own words. `reason` is that of the validation: `Forbidden`,
    /// `Invalid` (the default of the API), `Unauthorized` or `RequestEntityTooLarge`.
    pub fn by_policy(policy: &str, binding: &str, reason: &str, message: &str) -> Self {
        let message = format!(
            "ValidatingAdmissionPolicy '{policy}' with binding '{binding}' denied request: {message}"
        );
        let code = match reason {
            "Forbidden" => 403,
            "Unauthorized" => 401,
            "RequestEntityTooLarge" => 413,
            _ => 422,
        };
        Self { code, reason: reason.to_owned(), cause: Some(message.clone()), message }
    }
}

/// Something that is asked before each write.
pub trait Admission: Debug + Send + Sync {
    /// Lets a write pass, or refuses it.
    fn review(&self, review: &Review<'_>) -> Result<(), AdmissionDenied>;
}
