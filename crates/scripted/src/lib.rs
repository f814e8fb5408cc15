//! Clients of an API server that answers as a test says. For the tests of other crates; no program has it.

use std::sync::{Arc, Mutex, PoisonError};

use coppice_runtime::client::{Clients, Deadlines};
use coppice_runtime::clock::Clock;
use coppice_runtime::metrics::Metrics;
use coppice_runtime::server_clock::ServerClock;
use http::{HeaderMap, Method, Request, Response};
use http_body_util::BodyExt as _;
use jiff::Timestamp;
use kube::client::Body;
use kube::core::Status;
use serde_json::Value;
use tower::BoxError;

/// When the clock of the clients starts, which follows tokio's.
pub const NOW: Timestamp = Timestamp::constant(1_767_225_600, 0); // 2026-01-01T00:00:00Z

/// An answer.
#[derive(Clone, Debug)]
pub enum Answer {
    /// This object, with this code.
    Object(u16, Value),
    /// This code.
    Refused(u16),
    /// None at all.
    Never,
}

/// A request that was made.
#[derive(Clone, Debug)]
pub struct Sent {
    /// Its verb.
    pub method: Method,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body; null if it has none.
    pub body: Value,
}

/// Clients whose requests are answered by method, path and body, and what they have sent.
pub fn scripted(
    answer: impl Fn(&Method, &str, &Value) -> Answer + Send + Sync + 'static,
) -> (Clients, Arc<Mutex<Vec<Sent>>>) {
    let requests: Arc<Mutex<Vec<Sent>>> = Arc::default();
    let (log, answer) = (Arc::clone(&requests), Arc::new(answer));
    let service = tower::service_fn(move |request: Request<Body>| {
        let (log, answer) = (Arc::clone(&log), Arc::clone(&answer));
        async move {
            let (parts, body) = request.into_parts();
            let body = serde_json::from_slice(&body.collect().await?.to_bytes()).unwrap_or(Value::Null);
            let answer = answer(&parts.method, parts.uri.path(), &body);
            log.lock().unwrap_or_else(PoisonError::into_inner).push(Sent {
                method: parts.method,
                headers: parts.headers,
                body,
            });
            let (code, body) = match answer {
                Answer::Object(code, object) => (code, object),
                Answer::Refused(code) => {
                    (code, serde_json::to_value(Status::failure("no", "Odd").with_code(code))?)
                }
                Answer::Never => std::future::pending().await,
            };
            let body = axum::body::Body::from(serde_json::to_vec(&body)?);
            Ok::<_, BoxError>(Response::builder().status(code).body(body)?)
        }
    });
    let server_clock = ServerClock::new(Clock::following_tokio(NOW));
    let clients = Clients::over(&service, Deadlines::default(), &server_clock, &Metrics::new("test"));
    (clients, requests)
}
