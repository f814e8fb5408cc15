//! A server and its controllers, with a clock that tests move.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "each test binary uses its part"
)]

use coppice_sim::server::models::Models;
use coppice_sim::server::{Request, Server, ServerReply, Watch, WatchEvent};
use http::Method;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

pub struct TestServer {
    pub server: Server,
    pub models: Models,
    pub now: Timestamp,
}

impl TestServer {
    pub fn new() -> Self {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let server = Server::new(now);
        Self { models: Models::new(&server), server, now }
    }

    /// Code and body. The method may name the type of a patch: `PATCH merge`. Null is no body.
    pub fn send(&mut self, method: &str, uri: &str, body: &Value) -> (u16, Value) {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.ask_raw(method, uri, body)
    }

    /// The same with a body that may be anything.
    pub fn ask_raw(&mut self, method: &str, uri: &str, body: impl Into<Vec<u8>>) -> (u16, Value) {
        let (method, patch) = method.split_once(' ').unwrap_or((method, ""));
        let mut request = Request::new(Method::from_bytes(method.as_bytes()).unwrap(), uri);
        request.body = body.into();
        request.content_type = match patch {
            "merge" => Some("application/merge-patch+json".to_owned()),
            "json" => Some("application/json-patch+json".to_owned()),
            "strategic" => Some("application/strategic-merge-patch+json".to_owned()),
            "apply" => Some("application/apply-patch+yaml".to_owned()),
            _ => None,
        };
        let response = self.server.handle(self.now, "alice", &request).done().expect("not a watch");
        assert_eq!(
            response.body.to_value(),
            reparse(&response.body.to_bytes()),
            "both forms of a body are the same"
        );
        (response.code, response.body.to_value())
    }

    /// The body of an answer that has to be a success.
    pub fn must(&mut self, method: &str, uri: &str, body: &Value) -> Value {
        let (code, answer) = self.send(method, uri, body);
        assert!(code < 300, "{method} {uri}: {code} {answer:#}");
        answer
    }

    pub fn watch(&mut self, uri: &str) -> Watch {
        match self.server.handle(self.now, "alice", &Request::get(uri)) {
            ServerReply::Watch(watch) => *watch,
            ServerReply::Done(response) => panic!("{uri}: {:#}", response.body.to_value()),
        }
    }

    /// All events that there are.
    pub fn events(&self, watch: &mut Watch) -> Vec<WatchEvent> {
        std::iter::from_fn(|| self.server.next(watch, self.server.revision())).collect()
    }

    /// Lets the controllers work for so many seconds.
    pub fn pass(&mut self, seconds: i64) {
        let end = self.now + SignedDuration::from_secs(seconds);
        loop {
            self.models.settle(&mut self.server, self.now);
            match self.models.pending(&self.server, self.now) {
                Some(at) if at <= end => self.now = at,
                _ => break,
            }
        }
        self.now = end;
    }
}

fn reparse(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes)
        .unwrap_or_else(|_| Value::String(String::from_utf8(bytes.to_vec()).unwrap()))
}

/// Events as `TYPE name`.
pub fn event_lines(events: &[WatchEvent]) -> Vec<String> {
    events
        .iter()
        .map(|e| format!("{} {}", e.event.as_str(), e.object["metadata"]["name"].as_str().unwrap_or("-")))
        .collect()
}

/// A definition with all that the server understands.
pub fn widget_definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.x.io"},
        "spec": {
            "group": "x.io",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "shortNames": ["wd"], "categories": ["all"]},
            "scope": "Namespaced",
            "versions": [{
                "name": "v1",
                "served": true,
                "storage": true,
                "subresources": {
                    "status": {},
                    "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas", "labelSelectorPath": ".status.sel"},
                },
                "selectableFields": [{"jsonPath": ".spec.color"}],
                "additionalPrinterColumns": [{"name": "Color", "type": "string", "jsonPath": ".spec.color"}],
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "required": ["size"], "properties": {
                        "size": {"type": "integer", "minimum": 1},
                        "color": {"type": "string", "default": "red", "enum": ["red", "blue"]},
                        "replicas": {"type": "integer"},
                    }},
                    "status": {"type": "object", "properties": {
                        "n": {"type": "integer"},
                        "replicas": {"type": "integer"},
                        "sel": {"type": "string"},
                    }},
                }}},
            }],
        },
    })
}

/// Method, with the type of a patch; URI; body; code; and what the answer says.
pub type Row = (&'static str, &'static str, Value, u16, Expected);

pub enum Expected {
    /// `message` of a `Status`.
    Says(&'static str),
    /// A part of the answer.
    Has(Value),
}
pub fn play(test_server: &mut TestServer, rows: Vec<Row>) {
    for (at, (method, uri, body, code, expected)) in rows.into_iter().enumerate() {
        let (given, answer) = test_server.send(method, uri, &body);
        let what = format!("row {at}: {method} {uri} {body}\n{answer:#}");
        assert_eq!(given, code, "{what}");
        match expected {
            Expected::Says(message) => assert_eq!(answer["message"], message, "{what}"),
            Expected::Has(part) => assert!(contains(&answer, &part), "{part} is not in {what}"),
        }
    }
}

/// Whether every field of `part` is in `whole`; null stands for an absent field.
fn contains(whole: &Value, part: &Value) -> bool {
    match part {
        Value::Object(part) => part.iter().all(|(key, value)| contains(&whole[key.as_str()], value)),
        part => whole == part,
    }
}
