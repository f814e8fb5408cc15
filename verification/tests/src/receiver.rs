//! A receiver of webhooks that remembers what it got and answers with the given codes.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};

/// One request that was received.
#[derive(Clone, Debug)]
pub struct Received {
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Vec<u8>,
}

impl Received {
    /// A header's value; empty if it is not there.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or_default()
    }
}

#[derive(Default)]
struct ReceiverState {
    received: Vec<Received>,
    responses: VecDeque<StatusCode>,
    /// What contains this text is answered with 503, however often it comes.
    unavailable_for: Option<String>,
}

/// A running receiver on 127.0.0.1.
#[derive(Clone)]
pub struct Receiver {
    /// Where it listens.
    pub url: String,
    state: Arc<Mutex<ReceiverState>>,
}

impl Receiver {
    /// Starts one that answers with these codes in turn, and with 200 after that.
    pub async fn start(responses: &[u16]) -> anyhow::Result<Self> {
        let responses = responses.iter().map(|code| StatusCode::from_u16(*code)).collect::<Result<_, _>>()?;
        Self::listen(ReceiverState { responses, ..ReceiverState::default() }).await
    }

    /// Starts one that answers with 503 whatever contains `text`, and with 200 everything else.
    pub async fn start_unavailable_for(text: &str) -> anyhow::Result<Self> {
        Self::listen(ReceiverState { unavailable_for: Some(text.to_owned()), ..ReceiverState::default() })
            .await
    }

    async fn listen(state: ReceiverState) -> anyhow::Result<Self> {
        let state = Arc::new(Mutex::new(state));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}/hook", listener.local_addr()?);
        let router = Router::new().fallback(receive).with_state(Arc::clone(&state));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(Self { url, state })
    }

    /// What it has received so far.
    pub fn received(&self) -> Vec<Received> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).received.clone()
    }

    /// The ids under which that came: one webhook can come several times, as an answer can be lost.
    pub fn ids(&self) -> BTreeSet<String> {
        self.received().iter().map(|request| request.header("webhook-id").to_owned()).collect()
    }
}

async fn receive(
    State(state): State<Arc<Mutex<ReceiverState>>>,
    headers: HeaderMap,
    body: Bytes,
) -> StatusCode {
    let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
    let text = String::from_utf8_lossy(&body);
    let unavailable = state.unavailable_for.as_ref().is_some_and(|part| text.contains(part));
    state.received.push(Received { headers, body: body.to_vec() });
    if unavailable {
        return StatusCode::SERVICE_UNAVAILABLE;
    }
    state.responses.pop_front().unwrap_or(StatusCode::OK)
}
