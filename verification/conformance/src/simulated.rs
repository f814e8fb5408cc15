//! Plays sequences on the API server in memory, with its models as the other controllers.

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::step::{Call, Exchange, RequestSpec, SequenceStep, State, Transcript, events, waited};
use coppice_sim::server::models::Models;
use coppice_sim::server::{EventType, Request, Server, ServerReply};

/// How long it is waited for other controllers, in seconds of virtual time.
const WAIT_SECONDS: i64 = 600;

/// The API server in memory with the definitions of this project, ready to play.
#[derive(Clone, Debug)]
pub struct Simulated {
    server: Server,
    models: Models,
    now: Timestamp,
}

impl Simulated {
    /// A server on which nothing has happened but that the definitions were made.
    pub fn new(start: Timestamp) -> Self {
        let server = Server::new(start);
        let mut this = Self { models: Models::new(&server), server, now: start };
        for definition in coppice_api::crds() {
            let body = serde_json::to_value(definition).unwrap_or_default();
            let uri = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
            this.ask(&RequestSpec::new("POST", uri, body));
        }
        this.models.settle(&mut this.server, this.now);
        this
    }

    /// Plays steps from here on; this server stays as it is.
    pub fn play(&self, namespace: &str, steps: &[SequenceStep]) -> Transcript {
        let mut this = self.clone();
        let mut transcript = Transcript::new(namespace);
        for step in steps {
            let exchange = this.call(&transcript.fill(&step.call));
            transcript.exchanges.push((step.id, exchange));
        }
        transcript
    }

    fn call(&mut self, call: &Call) -> Exchange {
        match call {
            Call::RequestSpec(ask) | Call::Answered { ask, .. } => self.ask(ask),
            Call::Watch { uri, last } => self.watch(uri, last.as_ref()),
            Call::Until { uri, state } => self.until(uri, *state),
            Call::Clear { uri } => {
                self.ask(&RequestSpec::new("DELETE", uri, Value::Null));
                Exchange { code: 0, warnings: Vec::new(), body: Value::Null }
            }
        }
    }

    fn ask(&mut self, ask: &RequestSpec) -> Exchange {
        match self.server.handle(self.now, "admin", &ask.request()) {
            ServerReply::Done(response) => {
                Exchange { code: response.code, body: response.body.to_value(), warnings: response.warnings }
            }
            ServerReply::Watch(_) => events([]),
        }
    }

    fn watch(&mut self, uri: &str, last: Option<&RequestSpec>) -> Exchange {
        let made = last.map(|last| self.ask(last).body["metadata"]["name"].clone());
        let mut watch = match self.server.handle(self.now, "admin", &Request::get(uri)) {
            ServerReply::Watch(watch) => watch,
            ServerReply::Done(response) => {
                return Exchange {
                    code: response.code,
                    body: response.body.to_value(),
                    warnings: response.warnings,
                };
            }
        };
        let mut sent = Vec::new();
        while let Some(event) = self.server.next(&mut watch, u64::MAX) {
            let ends = match event.event {
                EventType::Bookmark | EventType::Error => true,
                _ => made.as_ref() == Some(&event.object["metadata"]["name"]),
            };
            sent.push(event.to_value());
            if ends {
                break;
            }
        }
        events(sent)
    }

    /// Lets time pass until an object is so. An object that never is, is answered as it is.
    fn until(&mut self, uri: &str, state: State) -> Exchange {
        let end = self.now + SignedDuration::from_secs(WAIT_SECONDS);
        loop {
            let read = self.ask(&RequestSpec::new("GET", uri, Value::Null));
            let object = if read.code == 404 { &Value::Null } else { &read.body };
            if state.holds(object) {
                return waited(state, read);
            }
            match self.models.pending(&self.server, self.now) {
                Some(at) if at <= end => self.now = at,
                _ => return Exchange { code: 0, ..read },
            }
            self.models.step(&mut self.server, self.now);
        }
    }
}
