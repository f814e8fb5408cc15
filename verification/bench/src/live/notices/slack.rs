//! What answers as Slack does, with a limit of messages if one is wanted, and notes when each came.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderName, StatusCode};
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;

use crate::live::now;

/// A message that was taken.
#[derive(Clone, Debug)]
pub(super) struct Message {
    /// When it came.
    pub(super) at: Timestamp,
    /// What it says.
    pub(super) text: String,
}

/// Everything that was posted.
#[derive(Clone, Debug, Default)]
pub(super) struct Posted {
    /// What was taken, in the order in which it came.
    pub(super) messages: Vec<Message>,
    /// How many were refused, since there had been too many.
    pub(super) refused: usize,
}

/// A running Slack on 127.0.0.1.
pub(super) struct Slack {
    /// Where its API is.
    pub(super) url: String,
    shared: Arc<Shared>,
}

struct Shared {
    /// One message may come in this time, on average; any number if there is none.
    limit: Option<Duration>,
    state: Mutex<(Posted, Option<Timestamp>)>,
}

/// What `chat.postMessage` is sent, as far as it counts here.
#[derive(Deserialize)]
struct Post {
    text: String,
}

impl Slack {
    /// Starts one that takes so many messages a second, with a burst of as many; any number if there is none.
    pub(super) async fn start(a_second: Option<f64>) -> anyhow::Result<Self> {
        let limit = a_second.map(|rate| Duration::try_from_secs_f64(1.0 / rate)).transpose()?;
        let shared = Arc::new(Shared { limit, state: Mutex::default() });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}/api", listener.local_addr()?);
        let router = Router::new().fallback(post).with_state(Arc::clone(&shared));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(Self { url, shared })
    }

    /// What was posted so far.
    pub(super) fn posted(&self) -> Posted {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner).0.clone()
    }
}

type Answer = (StatusCode, [(HeaderName, &'static str); 1], &'static str);

async fn post(State(shared): State<Arc<Shared>>, body: Bytes) -> Answer {
    let at = now();
    let retry_after = |seconds| [(HeaderName::from_static("retry-after"), seconds)];
    let Ok(Post { text }) = serde_json::from_slice(&body) else {
        return (StatusCode::OK, retry_after("0"), r#"{"ok":false,"error":"no_text"}"#);
    };
    let mut state = shared.state.lock().unwrap_or_else(PoisonError::into_inner);
    let (posted, full_until) = &mut *state;
    if let Some(limit) = shared.limit {
        let Some(until) = admit(limit, *full_until, at) else {
            posted.refused += 1;
            return (StatusCode::TOO_MANY_REQUESTS, retry_after("1"), "ratelimited");
        };
        *full_until = Some(until);
    }
    posted.messages.push(Message { at, text });
    (StatusCode::OK, retry_after("0"), r#"{"ok":true}"#)
}

/// A bucket that holds what comes in one second: until when it drains with this message in it, or nothing if it is full.
fn admit(limit: Duration, until: Option<Timestamp>, at: Timestamp) -> Option<Timestamp> {
    let limit = SignedDuration::try_from(limit).ok()?;
    let until = until.map_or(at, |until| until.max(at)) + limit;
    (until.duration_since(at) <= limit.max(SignedDuration::from_secs(1))).then_some(until)
}

/// The words of a text that can be names of namespaces.
pub(super) fn names(text: &str) -> impl Iterator<Item = &str> {
    let part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    text.split(move |c| !part(c)).filter(|word| word.contains("-preview-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_exceeds_the_limit_is_refused_and_names_are_found() {
        let slack = Slack::start(Some(1.0)).await.unwrap();
        let send = async |text: &str| {
            post(State(Arc::clone(&slack.shared)), serde_json::json!({"text": text}).to_string().into())
                .await
                .0
        };
        assert_eq!(send("*Namespace `team-001-preview-00001` will be deleted*").await, StatusCode::OK);
        assert_eq!(send("another").await, StatusCode::TOO_MANY_REQUESTS);
        let posted = slack.posted();
        assert_eq!((posted.messages.len(), posted.refused), (1, 1));
        let found: Vec<_> = names(&posted.messages[0].text).collect();
        assert_eq!(found, ["team-001-preview-00001"]);
    }

    #[test]
    fn a_bucket_holds_one_second_and_drains() {
        let (limit, at) = (Duration::from_millis(500), Timestamp::UNIX_EPOCH);
        let first = admit(limit, None, at);
        let second = admit(limit, first, at);
        assert!(second.is_some(), "two a second are a burst of two");
        assert_eq!(admit(limit, second, at), None);
        assert!(admit(limit, second, at + limit).is_some());
    }
}
