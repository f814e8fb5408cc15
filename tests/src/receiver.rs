//! A receiver of webhooks that remembers what it got and answers as it is told.

use std::collections::VecDeque;
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
struct Memory {
    received: Vec<Received>,
    answers: VecDeque<StatusCode>,
}

/// A running receiver on 127.0.0.1.
#[derive(Clone)]
pub struct Receiver {
    /// Where it listens.
    pub url: String,
    memory: Arc<Mutex<Memory>>,
}

impl Receiver {
    /// Starts one that answers with these codes in turn, and with 200 after that.
    pub async fn start(answers: &[u16]) -> anyhow::Result<Self> {
        let answers = answers.iter().map(|code| StatusCode::from_u16(*code)).collect::<Result<_, _>>()?;
        let memory = Arc::new(Mutex::new(Memory { received: Vec::new(), answers }));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}/hook", listener.local_addr()?);
        let router = Router::new().fallback(receive).with_state(Arc::clone(&memory));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(Self { url, memory })
    }

    /// What it has received so far.
    pub fn received(&self) -> Vec<Received> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner).received.clone()
    }
}

async fn receive(State(memory): State<Arc<Mutex<Memory>>>, headers: HeaderMap, body: Bytes) -> StatusCode {
    let mut memory = memory.lock().unwrap_or_else(PoisonError::into_inner);
    memory.received.push(Received { headers, body: body.to_vec() });
    memory.answers.pop_front().unwrap_or(StatusCode::OK)
}
