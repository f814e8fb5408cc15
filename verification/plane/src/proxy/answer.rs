//! Answers that the proxy makes up, and ways to spoil an answer.

use std::time::Duration;

use serde_json::{Value, json};

/// An answer that the API server did not give.
#[derive(Clone, Debug)]
pub struct FakeResponse {
    pub(super) code: u16,
    /// In seconds.
    pub(super) retry_after: Option<u32>,
    pub(super) body: String,
    pub(super) corruption: Option<Corruption>,
}

/// A way to spoil the body of an answer. The status stays, so that the answer looks good at first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Corruption {
    /// It arrives in due form, but is the first half only, which is no JSON.
    Malformed,
    /// The connection is cut after the first half.
    Truncated,
    /// It takes this long to arrive, in small pieces.
    Slow(Duration),
}

impl FakeResponse {
    /// An answer of any status with any JSON.
    pub fn json(code: u16, body: &Value) -> Self {
        Self { code, retry_after: None, body: body.to_string(), corruption: None }
    }

    /// A failure as the API server describes it.
    pub fn status(code: u16, reason: &str, message: &str) -> Self {
        Self::json(code, &status(code, reason, message))
    }

    /// 403.
    pub fn forbidden() -> Self {
        Self::status(403, "Forbidden", "injected: forbidden")
    }

    /// 409, as for a write of an object that was changed meanwhile.
    pub fn conflict() -> Self {
        Self::status(409, "Conflict", "injected: the object has been modified")
    }

    /// 410, as for a continue token or a revision that is no longer stored.
    pub fn expired() -> Self {
        Self::status(410, "Expired", EXPIRED)
    }

    /// 429, which asks to come back after this many seconds.
    pub fn too_many_requests(retry_after: u32) -> Self {
        let mut body = status(429, "TooManyRequests", "injected: too many requests");
        body["details"] = json!({"retryAfterSeconds": retry_after});
        Self { retry_after: Some(retry_after), ..Self::json(429, &body) }
    }

    /// 500.
    pub fn internal_error() -> Self {
        Self::status(500, "InternalError", "injected: internal error")
    }

    /// 503.
    pub fn unavailable() -> Self {
        Self::status(
            503,
            "ServiceUnavailable",
            "injected: the server is currently unable to handle the request",
        )
    }

    /// 504.
    pub fn timeout() -> Self {
        Self::status(504, "Timeout", "injected: request did not complete within the requested timeout")
    }

    /// The same, spoilt.
    #[must_use]
    pub fn corrupted(self, corruption: Corruption) -> Self {
        Self { corruption: Some(corruption), ..self }
    }
}

const EXPIRED: &str = "injected: too old resource version";

pub(super) fn status(code: u16, reason: &str, message: &str) -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "code": code, "reason": reason, "message": message,
    })
}

/// The line with which an API server ends a watch that it cannot go on with.
pub(super) fn expired_event() -> String {
    format!("{}\n", json!({"type": "ERROR", "object": status(410, "Expired", EXPIRED)}))
}
