//! Clients of an API server that answers as a test says. For the tests of other crates; no program has it.
//!
//! [`scripted`] answers each request by a function. A [`Server`] has a few objects, which can be read and watched, and a test says how
//! writes end.

mod follow;
mod server;

use std::sync::{Arc, Mutex, PoisonError};

use axum::body::Bytes;

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

pub use follow::Followers;
pub use server::{Server, WriteAnswer};

/// When the clock of the clients starts, which follows tokio's.
pub const NOW: Timestamp = Timestamp::constant(1_767_225_600, 0); // 2026-01-01T00:00:00Z

/// An answer.
#[derive(Clone, Debug)]
pub enum Answer {
    /// This object, with this code.
    Object(u16, Value),
    /// This code.
    Refused(u16),
    /// Too many requests (429), and to come back after so many seconds (`Retry-After`).
    TooManyRequests(u32),
    /// None at all.
    Never,
}

/// A request that was made.
#[derive(Clone, Debug)]
pub struct Sent {
    /// Its verb.
    pub method: Method,
    /// Its path, without the query.
    pub path: String,
    /// Its query.
    pub query: String,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body; null if it has none.
    pub body: Value,
}

/// Clients whose requests are answered by method, path and body, and what they have sent. A watch stays open and says nothing.
pub fn scripted(
    answer: impl Fn(&Method, &str, &Value) -> Answer + Send + Sync + 'static,
) -> (Clients, Arc<Mutex<Vec<Sent>>>) {
    let (clients, _, requests) = connected(answer);
    (clients, requests)
}

/// The same, with the clock of that API server as its answers show it.
fn connected(
    answer: impl Fn(&Method, &str, &Value) -> Answer + Send + Sync + 'static,
) -> (Clients, ServerClock, Arc<Mutex<Vec<Sent>>>) {
    let requests: Arc<Mutex<Vec<Sent>>> = Arc::default();
    let clock = Clock::following_tokio(NOW);
    let (log, answer, wall) = (Arc::clone(&requests), Arc::new(answer), clock.clone());
    let service = tower::service_fn(move |request: Request<Body>| {
        let (log, answer, wall) = (Arc::clone(&log), Arc::clone(&answer), wall.clone());
        async move {
            let (parts, body) = request.into_parts();
            let query = parts.uri.query().unwrap_or_default();
            if query.contains("watch=true") {
                let silence = futures::stream::pending::<Result<Bytes, BoxError>>();
                return Ok::<_, BoxError>(Response::new(axum::body::Body::from_stream(silence)));
            }
            let body = serde_json::from_slice(&body.collect().await?.to_bytes()).unwrap_or(Value::Null);
            let answer = answer(&parts.method, parts.uri.path(), &body);
            log.lock().unwrap_or_else(PoisonError::into_inner).push(Sent {
                path: parts.uri.path().to_owned(),
                query: query.to_owned(),
                method: parts.method,
                headers: parts.headers,
                body,
            });
            let mut retry_after = None;
            let (code, body) = match answer {
                Answer::Object(code, object) => (code, object),
                Answer::TooManyRequests(seconds) => {
                    retry_after = Some(seconds.to_string());
                    (429, serde_json::to_value(Status::failure("no", "TooManyRequests").with_code(429))?)
                }
                Answer::Refused(code) => {
                    let reason = if code == 404 { "NotFound" } else { "Odd" };
                    (code, serde_json::to_value(Status::failure("no", reason).with_code(code))?)
                }
                Answer::Never => std::future::pending().await,
            };
            let date = wall.now().strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
            let body = axum::body::Body::from(serde_json::to_vec(&body)?);
            let mut response = Response::builder().status(code).header(http::header::DATE, date);
            if let Some(seconds) = retry_after {
                response = response.header(http::header::RETRY_AFTER, seconds);
            }
            Ok(response.body(body)?)
        }
    });
    let server_clock = ServerClock::new(clock);
    let clients = Clients::over(&service, Deadlines::default(), &server_clock, &Metrics::new("test"));
    (clients, server_clock, requests)
}
