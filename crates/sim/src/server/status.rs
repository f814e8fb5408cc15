//! Refusals, worded as the API server words them.

use serde_json::{Map, Value, json};

use super::answer::{Body, Response};
use super::kinds::ServedKind;

/// Why a request is refused: a `Status`, or plain text where the API server answers with text.
#[derive(Clone, Debug)]
pub(super) struct StatusError {
    code: u16,
    body: Box<Value>,
}

/// One reason among several in an `Invalid` status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StatusCause {
    /// Such as `FieldValueInvalid`.
    pub(super) reason: String,
    /// The path of the field.
    pub(super) field: String,
    /// What is wrong, without the field.
    pub(super) message: String,
}

impl StatusCause {
    /// Whether rules of custom resources are not evaluated after it.
    pub(super) fn blocks_rules(&self) -> bool {
        coppice_schema::CauseType::BLOCK_RULES.iter().any(|reason| reason.as_str() == self.reason)
    }

    pub(super) fn invalid(field: impl Into<String>, value: &Value, why: &str) -> Self {
        Self::printed(field, &value.to_string(), why)
    }

    /// The same of a value that is printed already.
    pub(super) fn printed(field: impl Into<String>, value: &str, why: &str) -> Self {
        Self::new("FieldValueInvalid", field, format!("Invalid value: {value}: {why}"))
    }

    pub(super) fn required(field: impl Into<String>, why: &str) -> Self {
        let message =
            if why.is_empty() { "Required value".to_owned() } else { format!("Required value: {why}") };
        Self::new("FieldValueRequired", field, message)
    }

    pub(super) fn forbidden(field: impl Into<String>, why: &str) -> Self {
        Self::new("FieldValueForbidden", field, format!("Forbidden: {why}"))
    }

    /// `given` as the API server prints it: JSON.
    pub(super) fn unsupported(field: impl Into<String>, given: &Value, supported: &[&str]) -> Self {
        let supported: Vec<String> = supported.iter().map(|s| format!("{s:?}")).collect();
        let message = format!("Unsupported value: {given}: supported values: {}", supported.join(", "));
        Self::new("FieldValueNotSupported", field, message)
    }

    pub(super) fn too_long(field: impl Into<String>, bytes: usize) -> Self {
        Self::new("FieldValueTooLong", field, format!("Too long: may not be more than {bytes} bytes"))
    }

    fn new(reason: &str, field: impl Into<String>, message: String) -> Self {
        Self { reason: reason.to_owned(), field: field.into(), message }
    }

    fn text(&self) -> String {
        format!("{}: {}", self.field, self.message)
    }

    fn json(&self) -> Value {
        json!({"reason": self.reason, "message": self.message, "field": self.field})
    }
}

/// A group and a resource or kind, as messages print it.
pub(super) struct Qualified<'a> {
    group: &'a str,
    what: &'a str,
}

impl std::fmt::Display for Qualified<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.what)?;
        if self.group.is_empty() { Ok(()) } else { write!(f, ".{}", self.group) }
    }
}

fn resource(kind: &ServedKind) -> Qualified<'_> {
    Qualified { group: &kind.group, what: &kind.plural }
}

/// The group that the API server names beside a kind: Events are those of the core group, whichever group was asked for.
fn own_group(kind: &ServedKind) -> &str {
    if kind.plural == "events" && kind.custom.is_none() { "" } else { &kind.group }
}

fn details(of: &Qualified<'_>, name: &str) -> Map<String, Value> {
    let mut details = Map::new();
    for (key, value) in [("name", name), ("group", of.group), ("kind", of.what)] {
        if !value.is_empty() {
            details.insert(key.to_owned(), Value::String(value.to_owned()));
        }
    }
    details
}

impl StatusError {
    /// A status; `details` is left out if it is null.
    fn new(code: u16, reason: &str, message: impl Into<String>, details: Value) -> Self {
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message.into(),
            "code": code,
        });
        if !reason.is_empty() {
            status["reason"] = Value::String(reason.to_owned());
        }
        if !details.is_null() {
            status["details"] = details;
        }
        Self { code, body: Box::new(status) }
    }

    /// The `Status`.
    pub(super) fn status(&self) -> &Value {
        &self.body
    }

    pub(super) fn code(&self) -> u16 {
        self.code
    }

    pub(super) fn into_response(self) -> Response {
        let body = match *self.body {
            Value::String(text) => Body::Text(text),
            status => Body::Value(status),
        };
        Response::new(self.code, body)
    }

    /// No such path.
    pub(super) fn no_page() -> Self {
        Self { code: 404, body: Box::new(Value::String("404 page not found\n".to_owned())) }
    }

    /// No such resource in a group that exists.
    pub(super) fn no_resource() -> Self {
        Self::new(404, "NotFound", "the server could not find the requested resource", json!({}))
    }

    pub(super) fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::new(405, "MethodNotAllowed", message, json!({}))
    }

    pub(super) fn not_found(kind: &ServedKind, name: &str) -> Self {
        let of = resource(kind);
        let message = format!("{of} {name:?} not found");
        Self::new(404, "NotFound", message, Value::Object(details(&of, name)))
    }

    pub(super) fn already_exists(kind: &ServedKind, name: &str, deleting: bool) -> Self {
        let of = resource(kind);
        let going = if deleting { "object is being deleted: " } else { "" };
        let message = format!("{going}{of} {name:?} already exists");
        Self::new(409, "AlreadyExists", message, Value::Object(details(&of, name)))
    }

    /// The revision that the caller names is not the current one.
    pub(super) fn modified(kind: &ServedKind, name: &str) -> Self {
        Self::conflict(
            &resource(kind),
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    /// A precondition of an update does not hold: the API server lets its storage speak.
    pub(super) fn storage_conflict(
        kind: &ServedKind,
        namespace: &str,
        name: &str,
        precondition: &str,
    ) -> Self {
        let key = storage_key(kind, namespace, name);
        let why = format!(
            "StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: {precondition}"
        );
        Self::conflict(&resource(kind), name, &why)
    }

    /// A precondition of a deletion does not hold: here the API server names the kind, not the resource.
    pub(super) fn precondition(kind: &ServedKind, name: &str, why: &str) -> Self {
        Self::conflict(&Qualified { group: own_group(kind), what: &kind.kind }, name, why)
    }

    /// A conflict on a resource, for a reason of its own.
    pub(super) fn conflict_on(kind: &ServedKind, name: &str, why: &str) -> Self {
        Self::conflict(&resource(kind), name, why)
    }

    fn conflict(of: &Qualified<'_>, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {of} {name:?}: {why}");
        Self::new(409, "Conflict", message, Value::Object(details(of, name)))
    }

    pub(super) fn forbidden(kind: &ServedKind, name: &str, why: &str) -> Self {
        let of = resource(kind);
        let message = if name.is_empty() {
            format!("{of} is forbidden: {why}")
        } else {
            format!("{of} {name:?} is forbidden: {why}")
        };
        Self::new(403, "Forbidden", message, Value::Object(details(&of, name)))
    }

    /// Nothing can be made in a namespace that is being deleted.
    pub(super) fn terminating(kind: &ServedKind, name: &str, namespace: &str) -> Self {
        let why =
            format!("unable to create new content in namespace {namespace} because it is being terminated");
        let name = if name.is_empty() { "Unknown" } else { name };
        let mut failure = Self::forbidden(kind, name, &why);
        failure.body["details"]["causes"] = json!([{
            "reason": "NamespaceTerminating",
            "message": format!("namespace {namespace} is being terminated"),
            "field": "metadata.namespace",
        }]);
        failure
    }

    /// The object breaks rules.
    pub(super) fn invalid(kind: &ServedKind, object: &Value, name: &str, causes: &[StatusCause]) -> Self {
        // A custom resource that calls itself something else is called so here too.
        let what = object["kind"].as_str().filter(|_| kind.custom.is_some()).unwrap_or(&kind.kind);
        Self::invalid_of(&Qualified { group: own_group(kind), what }, name, causes)
    }

    /// The same where the API server names the resource instead of the kind.
    pub(super) fn invalid_resource(kind: &ServedKind, name: &str, causes: &[StatusCause]) -> Self {
        Self::invalid_of(&resource(kind), name, causes)
    }

    /// Options break rules; `what` is such as `DeleteOptions`.
    pub(super) fn invalid_options(what: &str, causes: &[StatusCause]) -> Self {
        Self::invalid_of(&Qualified { group: "meta.k8s.io", what }, "", causes)
    }

    /// A `Scale` breaks rules.
    pub(super) fn invalid_scale(name: &str, causes: &[StatusCause]) -> Self {
        Self::invalid_of(&Qualified { group: "autoscaling", what: "Scale" }, name, causes)
    }

    /// A patch gives something that is not an object of the kind.
    pub(super) fn invalid_patch(causes: &[StatusCause]) -> Self {
        Self::invalid_of(&Qualified { group: "", what: "" }, "", causes)
    }

    fn invalid_of(of: &Qualified<'_>, name: &str, causes: &[StatusCause]) -> Self {
        // The message says what is said twice once; the causes do not.
        let mut texts: Vec<String> = Vec::with_capacity(causes.len());
        for cause in causes {
            let text = cause.text();
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
        let list = if texts.len() == 1 { texts.swap_remove(0) } else { format!("[{}]", texts.join(", ")) };
        let mut details = details(of, name);
        details.insert("causes".to_owned(), causes.iter().map(StatusCause::json).collect());
        let message = format!("{of} {name:?} is invalid: {list}");
        Self::new(422, "Invalid", message, Value::Object(details))
    }

    pub(super) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message, Value::Null)
    }

    /// A patch that cannot be carried out on this object: the API server does not say why.
    pub(super) fn unprocessable() -> Self {
        Self::new(422, "Invalid", "the server rejected our request due to an error in our request", json!({}))
    }

    /// Something that the API server calls its own fault, and explains.
    pub(super) fn internal_error(why: &str) -> Self {
        let details = json!({"causes": [{"message": why}]});
        Self::new(500, "InternalError", format!("Internal error occurred: {why}"), details)
    }

    /// The same without an explanation.
    pub(super) fn internal(message: impl Into<String>) -> Self {
        Self::new(500, "", message, Value::Null)
    }

    pub(super) fn unsupported_media_type() -> Self {
        Self::unknown_format("application/json, application/yaml, application/vnd.kubernetes.protobuf")
    }

    /// A body whose media type is none of these.
    pub(super) fn unknown_format(accepted: &str) -> Self {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {accepted}"
        );
        Self::new(415, "UnsupportedMediaType", message, Value::Null)
    }

    pub(super) fn unsupported_patch() -> Self {
        Self::new(415, "UnsupportedMediaType", "415: Unsupported Media Type", json!({}))
    }

    pub(super) fn not_acceptable() -> Self {
        let message = "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, \
                       application/vnd.kubernetes.protobuf";
        Self::new(406, "NotAcceptable", message, json!({}))
    }

    /// A watch from, or a list at, a revision that is no longer kept.
    pub(super) fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message, Value::Null)
    }

    /// A continue token whose revision is no longer kept; `token` continues at the current revision.
    pub(super) fn expired_continue(token: &str) -> Self {
        let message = "The provided continue parameter is too old to display a consistent list result. You can start a \
                       new list without the continue parameter, or use the continue token in this response to retrieve \
                       the remainder of the results. Continuing with the provided token results in an inconsistent \
                       list - objects that were created, modified, or deleted between the time the first chunk was \
                       returned and now may show up in the list.";
        let mut failure = Self::expired(message);
        failure.body["metadata"] = json!({"continue": token});
        failure
    }

    /// A revision that does not exist yet.
    pub(super) fn too_large(context: u64, current: u64) -> Self {
        let details = json!({
            "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
            "retryAfterSeconds": 1,
        });
        let message = format!("Timeout: Too large resource version: {context}, current: {current}");
        Self::new(504, "Timeout", message, details)
    }

    /// Field managers disagree: one cause for each field that somebody else owns.
    pub(super) fn apply_conflict(message: &str, causes: &Value) -> Self {
        Self::new(409, "Conflict", message, json!({"causes": causes}))
    }

    /// A pod cannot be evicted, and the like: to be asked again later.
    pub(super) fn too_many_requests(message: &str) -> Self {
        Self::new(429, "TooManyRequests", message, json!({}))
    }

    /// What an admission policy says when it refuses.
    pub(super) fn denied(kind: &ServedKind, name: &str, refusal: &super::admission::AdmissionDenied) -> Self {
        let of = resource(kind);
        let mut failure = Self::forbidden(kind, name, &refusal.message);
        if refusal.code != 403 {
            failure.code = refusal.code;
            failure.body["code"] = refusal.code.into();
            failure.body["reason"] = refusal.reason.clone().into();
        }
        let mut details = details(&of, name);
        if let Some(cause) = &refusal.cause {
            details.insert("causes".to_owned(), json!([{"message": cause}]));
        }
        failure.body["details"] = Value::Object(details);
        failure
    }
}

/// The key of an object in the real server's storage, which shows up in some messages.
fn storage_key(kind: &ServedKind, namespace: &str, name: &str) -> String {
    let resource = match (kind.custom.is_some(), kind.group.as_ref()) {
        (true, group) => format!("{group}/{}", kind.plural),
        _ => kind.plural.to_string(),
    };
    if namespace.is_empty() {
        format!("/registry/{resource}/{name}")
    } else {
        format!("/registry/{resource}/{namespace}/{name}")
    }
}
