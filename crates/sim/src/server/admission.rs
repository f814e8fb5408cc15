//! Call-outs that may refuse a write.

use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use serde_json::{Value, json};

use super::Server;
use super::kinds::ServedKind;
use super::request::Request;

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

impl Operation {
    /// As an `AdmissionReview` names it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
        }
    }
}

/// One write that is about to happen, after defaults and before it is kept.
#[derive(Debug)]
pub struct Review<'a> {
    /// What is done.
    pub operation: Operation,
    /// By whom.
    pub user: &'a str,
    /// To what kind.
    pub kind: &'a ServedKind,
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

/// A write that is about to happen, for a call-out that takes time: the server goes on meanwhile.
#[derive(Clone, Debug)]
pub struct PendingWrite {
    /// What is done.
    pub operation: Operation,
    /// By whom.
    pub user: String,
    /// The API group.
    pub group: String,
    /// The plural of the kind.
    pub resource: String,
    /// The subresource; empty if there is none.
    pub subresource: String,
    /// The namespace; empty for cluster-wide objects.
    pub namespace: String,
    /// The name.
    pub name: String,
    /// The object as it would be; null for a deletion.
    pub object: Value,
    /// The object as it is; null for a creation.
    pub old: Value,
    /// Whether nothing would be kept.
    pub dry_run: bool,
    version: String,
    kind: String,
}

impl PendingWrite {
    fn of(review: &Review<'_>) -> Self {
        let kept = |object: Option<&Value>| object.cloned().unwrap_or_default();
        Self {
            operation: review.operation,
            user: review.user.to_owned(),
            group: review.kind.group.to_string(),
            resource: review.kind.plural.to_string(),
            subresource: review.subresource.to_owned(),
            namespace: review.namespace.to_owned(),
            name: review.name.to_owned(),
            object: kept(review.object),
            old: kept(review.old),
            dry_run: review.dry_run,
            version: review.kind.version.to_string(),
            kind: review.kind.kind.to_string(),
        }
    }

    /// The `AdmissionReview` of `admission.k8s.io/v1` that a webhook is sent.
    pub fn to_admission_review(&self, uid: &str) -> Value {
        let kind = json!({ "group": self.group, "version": self.version, "kind": self.kind });
        let resource = json!({ "group": self.group, "version": self.version, "resource": self.resource });
        json!({
            "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
            "request": {
                "uid": uid, "kind": kind, "resource": resource, "requestKind": kind, "requestResource": resource,
                "name": self.name, "namespace": self.namespace, "operation": self.operation.as_str(),
                "userInfo": { "username": self.user, "groups": ["system:authenticated"] },
                "object": self.object, "oldObject": self.old, "dryRun": self.dry_run,
            },
        })
    }
}

/// Notes the first write that it is asked about, and lets nothing pass.
#[derive(Debug, Default)]
struct Recorder(Mutex<Option<PendingWrite>>);

impl Admission for Recorder {
    fn review(&self, review: &Review<'_>) -> Result<(), AdmissionDenied> {
        let mut noted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        noted.get_or_insert_with(|| PendingWrite::of(review));
        Err(AdmissionDenied {
            code: 403,
            reason: "Forbidden".to_owned(),
            message: "it is only reviewed".to_owned(),
            cause: None,
        })
    }
}

impl Server {
    /// The write that a request would make, as call-outs would see it; none if it does not get that far. Nothing is done.
    pub fn pending_write(&self, now: Timestamp, user: &str, request: &Request) -> Option<PendingWrite> {
        let recorder = Arc::new(Recorder::default());
        let mut copy = self.clone();
        copy.admission = vec![Arc::clone(&recorder) as Arc<dyn Admission>];
        copy.handle(now, user, request);
        recorder.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
