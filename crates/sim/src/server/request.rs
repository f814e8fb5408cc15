//! What is asked: a request, and its query.

use http::Method;
use serde_json::Value;

/// One request, as it arrives over HTTP, without the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The method.
    pub method: Method,
    /// The path, still percent-encoded, such as `/api/v1/namespaces/default/pods`.
    pub path: String,
    /// What follows the `?`, still encoded; empty if there is none.
    pub query: String,
    /// `Content-Type`; JSON if absent.
    pub content_type: Option<String>,
    /// `Accept`; JSON if absent.
    pub accept: Option<String>,
    /// The body, JSON.
    pub body: Vec<u8>,
}

impl Request {
    /// A request without a body. `uri` is a path, with a query if it has a `?`.
    pub fn new(method: Method, uri: &str) -> Self {
        let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
        Self {
            method,
            path: path.to_owned(),
            query: query.to_owned(),
            content_type: None,
            accept: None,
            body: Vec::new(),
        }
    }

    /// A GET.
    pub fn get(uri: &str) -> Self {
        Self::new(Method::GET, uri)
    }

    /// A POST of an object.
    pub fn post(uri: &str, body: &Value) -> Self {
        Self::new(Method::POST, uri).body(body)
    }

    /// A PUT of an object.
    pub fn put(uri: &str, body: &Value) -> Self {
        Self::new(Method::PUT, uri).body(body)
    }

    /// A PATCH of the given media type, such as `application/merge-patch+json`.
    pub fn patch(uri: &str, content_type: &str, body: &Value) -> Self {
        let mut request = Self::new(Method::PATCH, uri).body(body);
        request.content_type = Some(content_type.to_owned());
        request
    }

    /// A DELETE.
    pub fn delete(uri: &str) -> Self {
        Self::new(Method::DELETE, uri)
    }

    /// The same with this body.
    #[must_use]
    pub fn body(mut self, body: &Value) -> Self {
        self.body = body.to_string().into_bytes();
        self
    }

    /// The same with this `Accept`.
    #[must_use]
    pub fn accept(mut self, accept: &str) -> Self {
        self.accept = Some(accept.to_owned());
        self
    }
}

/// The query of a request, decoded. Of a parameter given twice, the first counts, as in Go.
#[derive(Debug, Default)]
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    pub(super) fn parse(query: &str) -> Self {
        if query.is_empty() {
            return Self::default();
        }
        Self(form_urlencoded::parse(query.as_bytes()).into_owned().collect())
    }

    /// The value of a parameter that is there and not empty.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str()).filter(|v| !v.is_empty())
    }

    /// Every value of a parameter.
    pub(super) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    /// A truth value as the API server reads it: there, and neither `false` nor `0`.
    pub(super) fn flag(&self, name: &str) -> bool {
        self.0.iter().find(|(n, _)| n == name).is_some_and(|(_, v)| !matches!(v.as_str(), "false" | "0"))
    }
}

/// Decodes the percent-encoding of one segment of a path.
pub(super) fn decode(segment: &str) -> String {
    if !segment.contains('%') {
        return segment.to_owned();
    }
    let bytes = segment.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let escaped = (bytes[at] == b'%')
            .then(|| segment.get(at + 1..at + 3).and_then(|hex| u8::from_str_radix(hex, 16).ok()))
            .flatten();
        if let Some(byte) = escaped {
            out.push(byte);
            at += 3;
        } else {
            out.push(bytes[at]);
            at += 1;
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}
