//! Plays sequences on a real control plane.

use std::time::Duration;

use anyhow::Context as _;
use coppice_conformance::{Call, Exchange, RequestSpec, SequenceStep, State, Transcript, waited};
use coppice_plane::{ADMIN, Plane};
use serde_json::{Value, json};

/// How long anything is waited for. Generous: the machine may be busy, nothing depends on it, and the garbage collector looks
/// for new kinds only every 30 seconds.
const TIMEOUT: Duration = Duration::from_mins(2);
/// How often a request is repeated at most: its answer is as it is then.
const REPEATED: usize = 1000;

/// A client of the plane, as its administrator.
#[derive(Clone)]
pub(crate) struct Real {
    client: reqwest::Client,
    url: String,
    token: String,
}

impl Real {
    pub(crate) fn new(plane: &Plane) -> anyhow::Result<Self> {
        let authority = reqwest::Certificate::from_pem(plane.ca_pem().as_bytes())?;
        let client = reqwest::Client::builder().no_proxy().tls_certs_only([authority]).build()?;
        Ok(Self { client, url: plane.url().to_owned(), token: plane.token(ADMIN)?.to_owned() })
    }

    /// Whether there is something to read.
    pub(crate) async fn reads(&self, uri: &str) -> bool {
        self.ask(&RequestSpec::new("GET", uri, Value::Null)).await.is_ok_and(|answer| answer.code == 200)
    }

    pub(crate) async fn play(&self, namespace: &str, steps: &[SequenceStep]) -> anyhow::Result<Transcript> {
        let mut transcript = Transcript::new(namespace);
        for step in steps {
            let call = transcript.fill(&step.call);
            let exchange = tokio::time::timeout(TIMEOUT, self.call(&call)).await;
            let exchange = exchange.with_context(|| format!("no end of {call}"))?;
            let exchange = exchange.with_context(|| call.to_string())?;
            transcript.exchanges.push((step.id, exchange));
        }
        Ok(transcript)
    }

    async fn call(&self, call: &Call) -> anyhow::Result<Exchange> {
        match call {
            Call::RequestSpec(ask) => self.ask(ask).await,
            Call::Watch { uri, last } => {
                if uri.contains("resourceVersion=0") {
                    // The cache of a kind may lag behind while nothing happens to it. A list brings it up to date.
                    let path = uri.split('?').next().unwrap_or_default();
                    self.ask(&RequestSpec::new("GET", format!("{path}?limit=1"), Value::Null)).await?;
                }
                self.watch(uri, last.as_ref()).await
            }
            Call::Answered { ask, code } => self.answered(ask, *code).await,
            Call::Until { uri, state } => self.until(uri, *state).await,
            Call::Clear { uri } => {
                let patch = json!({"metadata": {"finalizers": null}});
                self.ask(&RequestSpec::new("PATCH merge", uri, patch)).await?;
                self.ask(&RequestSpec::new("DELETE", uri, Value::Null)).await?;
                Ok(Exchange { code: 0, warnings: Vec::new(), body: Value::Null })
            }
        }
    }

    async fn send(&self, ask: &RequestSpec) -> anyhow::Result<reqwest::Response> {
        let asked = ask.request();
        let uri = format!("{}{}", self.url, ask.uri);
        let mut request = self.client.request(asked.method, uri).bearer_auth(&self.token).body(asked.body);
        if let Some(media) = asked.content_type {
            request = request.header("content-type", media);
        }
        Ok(request.send().await?)
    }

    async fn ask(&self, ask: &RequestSpec) -> anyhow::Result<Exchange> {
        answer(self.send(ask).await?).await
    }

    async fn answered(&self, ask: &RequestSpec, code: u16) -> anyhow::Result<Exchange> {
        let mut answer = self.ask(ask).await?;
        for _ in 1..REPEATED {
            if answer.code == code {
                break;
            }
            answer = self.ask(ask).await?;
        }
        Ok(answer)
    }

    async fn watch(&self, uri: &str, last: Option<&RequestSpec>) -> anyhow::Result<Exchange> {
        let made = match last {
            Some(last) => Some(self.ask(last).await?.body["metadata"]["name"].clone()),
            None => None,
        };
        let response = self.send(&RequestSpec::new("GET", uri, Value::Null)).await?;
        if response.status() != 200 {
            return answer(response).await;
        }
        let mut lines = Lines { response, rest: Vec::new() };
        let mut events = Vec::new();
        while let Some(event) = lines.next().await? {
            let ends = match event["type"].as_str() {
                Some("BOOKMARK" | "ERROR") => true,
                _ => made.as_ref() == Some(&event["object"]["metadata"]["name"]),
            };
            events.push(event);
            if ends {
                break;
            }
        }
        Ok(Exchange { code: 200, warnings: Vec::new(), body: json!(events) })
    }

    /// Reads an object, and if need be watches it, until it is so.
    async fn until(&self, uri: &str, state: State) -> anyhow::Result<Exchange> {
        let (collection, name) = uri.rsplit_once('/').context("no name")?;
        loop {
            let read = self.ask(&RequestSpec::new("GET", uri, Value::Null)).await?;
            let object = if read.code == 404 { &Value::Null } else { &read.body };
            if state.holds(object) {
                return Ok(waited(state, read));
            }
            let revision = read.body["metadata"]["resourceVersion"].as_str().unwrap_or_default();
            let watch = format!(
                "{collection}?watch=true&fieldSelector=metadata.name%3D{name}&resourceVersion={revision}"
            );
            let response = self.send(&RequestSpec::new("GET", watch, Value::Null)).await?;
            let mut lines = Lines { response, rest: Vec::new() };
            while let Some(event) = lines.next().await? {
                let object = if event["type"] == "DELETED" { &Value::Null } else { &event["object"] };
                if state.holds(object) {
                    break;
                }
            }
        }
    }
}

async fn answer(response: reqwest::Response) -> anyhow::Result<Exchange> {
    let code = response.status().as_u16();
    let warnings = response.headers().get_all("warning").iter();
    let warnings = warnings.filter_map(|value| value.to_str().ok()).map(warning).collect();
    let text = response.text().await?;
    let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
    Ok(Exchange { code, warnings, body })
}

/// The text of a header such as `299 - "unknown field \"x\""`.
fn warning(header: &str) -> String {
    let text = header.split_once('"').map_or("", |(_, text)| text);
    text.strip_suffix('"').unwrap_or(text).replace("\\\"", "\"").replace("\\\\", "\\")
}

/// The events of a watch.
struct Lines {
    response: reqwest::Response,
    rest: Vec<u8>,
}

impl Lines {
    async fn next(&mut self) -> anyhow::Result<Option<Value>> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                return Ok(Some(serde_json::from_slice(&line)?));
            }
            match self.response.chunk().await? {
                Some(chunk) => self.rest.extend_from_slice(&chunk),
                None => return Ok(None),
            }
        }
    }
}
