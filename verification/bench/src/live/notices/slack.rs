//! What answers as Slack does, with a limit of messages if one is wanted, and notes when each came.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderName, StatusCode};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::number_of;
use crate::live::now;

/// A message that was taken.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Message {
    /// When it came.
    pub(super) at: Timestamp,
    /// The numbers of the namespaces that it names, each once. Its text is not kept: it would be most of this program's memory.
    pub(super) about: Vec<usize>,
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
#[derive(Clone)]
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

    /// What was taken after so many messages.
    pub(super) fn since(&self, messages: usize) -> Vec<Message> {
        let state = self.shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.0.messages.get(messages..).unwrap_or_default().to_vec()
    }
}

type SlackResponse = (StatusCode, [(HeaderName, &'static str); 1], &'static str);

async fn post(State(shared): State<Arc<Shared>>, body: Bytes) -> SlackResponse {
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
    posted.messages.push(Message { at, about: about(&text) });
    (StatusCode::OK, retry_after("0"), r#"{"ok":true}"#)
}

/// A bucket that holds what comes in one second: until when it drains with this message in it, or nothing if it is full.
fn admit(limit: Duration, until: Option<Timestamp>, at: Timestamp) -> Option<Timestamp> {
    let limit = SignedDuration::try_from(limit).ok()?;
    let until = until.map_or(at, |until| until.max(at)) + limit;
    (until.duration_since(at) <= limit.max(SignedDuration::from_secs(1))).then_some(until)
}

/// The numbers of the namespaces that a text names. It may name each in several places.
fn about(text: &str) -> Vec<usize> {
    let part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let names = text.split(|c| !part(c)).filter(|word| word.contains("-preview-"));
    let mut about: Vec<usize> = names.filter_map(number_of).collect();
    about.sort_unstable();
    about.dedup();
    about
}

#[cfg(test)]
mod tests {
    use super::super::fleet::announced_name;
    use super::*;

    #[tokio::test]
    async fn what_exceeds_the_limit_is_refused_and_names_are_found() {
        let slack = Slack::start(Some(1.0)).await.unwrap();
        let send = async |text: &str| {
            post(State(Arc::clone(&slack.shared)), serde_json::json!({"text": text}).to_string().into())
                .await
                .0
        };
        let both = format!("*Namespace `{0}`*, {1}, {0}", announced_name(7), announced_name(3));
        assert_eq!(send(&both).await, StatusCode::OK);
        assert_eq!(send("another").await, StatusCode::TOO_MANY_REQUESTS);
        let posted = slack.posted();
        assert_eq!((posted.messages.len(), posted.refused), (1, 1));
        assert_eq!(posted.messages[0].about, [3, 7], "each once");
        assert_eq!((slack.since(0).len(), slack.since(1).len(), slack.since(2).len()), (1, 0, 0));
        assert!(about("team-000-preview-00001 is nobody's").is_empty());
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
