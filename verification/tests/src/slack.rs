//! What answers as Slack does: `chat.postMessage` of its Web API, for one token, and one incoming webhook. It remembers what it got.

use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use serde_json::Value;

use crate::test_cluster::until;

/// One message that was accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Posted {
    /// The channel or member that it is for; empty by the incoming webhook, which has a channel of its own.
    pub to: String,
    /// What it says.
    pub text: String,
}

/// Where its incoming webhook is.
const WEBHOOK: &str = "/services/T00000000/B00000000/XXXXXXXX";

struct SlackState {
    token: String,
    /// How many more requests it has no time for.
    busy: u32,
    posted: Vec<Posted>,
}

/// A running Slack on 127.0.0.1.
#[derive(Clone)]
pub struct Slack {
    /// Where its API is: the `apiUrl` of a channel.
    pub api_url: String,
    /// The URL of its incoming webhook, which is a secret.
    pub webhook_url: String,
    state: Arc<Mutex<SlackState>>,
}

impl Slack {
    /// Starts one that accepts this token alone, after it has answered so many requests that it is busy.
    pub async fn start(token: &str, busy: u32) -> anyhow::Result<Self> {
        let state = SlackState { token: token.to_owned(), busy, posted: Vec::new() };
        let state = Arc::new(Mutex::new(state));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let (api_url, webhook_url) = (format!("http://{address}/api"), format!("http://{address}{WEBHOOK}"));
        let router = Router::new().fallback(answer).with_state(Arc::clone(&state));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(Self { api_url, webhook_url, state })
    }

    /// The messages that it has accepted so far.
    pub fn posted(&self) -> Vec<Posted> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).posted.clone()
    }

    /// Waits until something is there in all the messages that it has accepted.
    pub async fn until<T>(&self, what: &str, check: impl Fn(&[Posted]) -> Option<T>) -> anyhow::Result<T> {
        until(what, async || check(&self.posted())).await
    }
}

/// As <https://docs.slack.dev/reference/methods/chat.postMessage> has it, and
/// <https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks>, where a webhook that was removed is `no_service`.
async fn answer(
    State(state): State<Arc<Mutex<SlackState>>>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> (StatusCode, [(&'static str, &'static str); 1], &'static str) {
    let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
    if state.busy > 0 {
        state.busy -= 1;
        return (StatusCode::TOO_MANY_REQUESTS, [("retry-after", "1")], "ratelimited");
    }
    let said: Value = serde_json::from_slice(&body).unwrap_or_default();
    let text = |field: &str| said[field].as_str().unwrap_or_default().to_owned();
    let plain = [("content-type", "text/html")];
    if uri.path() == WEBHOOK {
        state.posted.push(Posted { to: text("channel"), text: text("text") });
        return (StatusCode::OK, plain, "ok");
    }
    if uri.path().starts_with("/services/") {
        return (StatusCode::NOT_FOUND, plain, "no_service");
    }
    let right =
        headers.get("authorization").is_some_and(|given| *given == *format!("Bearer {}", state.token));
    let answer = match (uri.path(), right) {
        ("/api/chat.postMessage", true) => {
            state.posted.push(Posted { to: text("channel"), text: text("text") });
            r#"{"ok":true,"ts":"1503435956.000247"}"#
        }
        ("/api/chat.postMessage", false) => r#"{"ok":false,"error":"invalid_auth"}"#,
        _ => r#"{"ok":false,"error":"unknown_method"}"#,
    };
    (StatusCode::OK, [("content-type", "application/json; charset=utf-8")], answer)
}
