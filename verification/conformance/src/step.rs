//! What is done, with placeholders, and what came of it.

use std::fmt;

use serde_json::{Value, json};

use coppice_sim::server::Request;

/// One thing that is done, the same on both sides. Texts in it may have placeholders: `${ns}` is the namespace of the
/// sequence, and `${7/metadata/uid}` what the answer of step 7 has there (`0` if it has nothing).
#[derive(Clone, Debug, PartialEq)]
pub struct SequenceStep {
    /// By which placeholders name it. It stays when other steps are left out.
    pub id: usize,
    /// What is done.
    pub call: Call,
}

/// What comes of a wait: of an object that only has to be there nothing is kept, since others make it when they like.
pub fn waited(state: State, read: Exchange) -> Exchange {
    if state == State::There { Exchange { body: Value::Null, ..read } } else { read }
}

/// What a step does.
#[derive(Clone, Debug, PartialEq)]
pub enum Call {
    /// A request that is answered at once.
    RequestSpec(RequestSpec),
    /// Makes an object, and then watches until it has its event (or of the end of the initial events, or of an error).
    Watch {
        /// What is watched.
        uri: String,
        /// Makes the object by which the watch is known to have sent everything before; none if the watch ends of
        /// itself.
        last: Option<RequestSpec>,
    },
    /// Repeats a request that changes nothing until it has this code: what the real server admits by, it reads from a cache.
    Answered {
        /// The request.
        ask: RequestSpec,
        /// The status code.
        code: u16,
    },
    /// Waits until an object, which other controllers change, is so.
    Until {
        /// The object.
        uri: String,
        /// How it is to be.
        state: State,
    },
    /// Removes an object that earlier sequences may have left behind. The answer does not matter.
    Clear {
        /// The object.
        uri: String,
    },
}

/// A request.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestSpec {
    /// The method; `PATCH` with the type of the patch, such as `PATCH merge`.
    pub method: String,
    /// Path and query.
    pub uri: String,
    /// The body: none if it is null, itself if it is a text, and JSON otherwise.
    pub body: Value,
}

/// How an object is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It is there.
    There,
    /// It is not there.
    Gone,
    /// The Deployment controller has nothing left to do for it, and the garbage collector neither; or it is gone.
    Settled,
    /// The Job controller has suspended it; or it is going or gone.
    Suspended,
    /// It has a condition of this type with the status `True`.
    Condition(&'static str),
    /// The quota controller has seen it; or it is going or gone.
    Counted,
    /// Its pod is in this phase.
    Phase(&'static str),
}

impl State {
    /// Whether an object is so; null stands for one that is not there.
    pub fn holds(self, object: &Value) -> bool {
        let condition = |name: &str| {
            let conditions = object["status"]["conditions"].as_array();
            conditions.and_then(|list| list.iter().find(|c| c["type"] == name)).unwrap_or(&Value::Null)
        };
        let deleting = object["metadata"]["deletionTimestamp"].is_string();
        // The garbage collector takes its finalizers away when it likes.
        let finalizers = object["metadata"]["finalizers"].as_array();
        let collected = finalizers.into_iter().flatten().any(|f| f == "orphan" || f == "foregroundDeletion");
        let seen = object["status"]["observedGeneration"] == object["metadata"]["generation"];
        match self {
            Self::Settled | Self::Suspended | Self::Counted if deleting && collected => false,
            Self::Settled if deleting => seen,
            Self::Settled | Self::Suspended | Self::Counted if deleting || object.is_null() => true,
            Self::There => !object.is_null(),
            Self::Gone => object.is_null(),
            Self::Settled => {
                let progressing = condition("Progressing");
                seen && matches!(
                    progressing["reason"].as_str(),
                    Some("NewReplicaSetAvailable" | "DeploymentPaused")
                ) && !condition("Available").is_null()
            }
            Self::Suspended => condition("Suspended")["status"] == "True",
            Self::Condition(name) => condition(name)["status"] == "True",
            Self::Counted => object["status"]["hard"] == object["spec"]["hard"],
            Self::Phase(phase) => object["status"]["phase"] == phase,
        }
    }
}

/// What was answered.
#[derive(Clone, Debug, PartialEq)]
pub struct Exchange {
    /// The status code.
    pub code: u16,
    /// Texts of `Warning` headers.
    pub warnings: Vec<String>,
    /// The body: an object, a text, or the events of a watch.
    pub body: Value,
}

/// What was answered so far on one side.
#[derive(Clone, Debug)]
pub struct Transcript {
    /// What `${ns}` stands for.
    pub namespace: String,
    /// By the number of the step.
    pub exchanges: Vec<(usize, Exchange)>,
}

impl RequestSpec {
    /// A request without a body if `body` is null.
    pub fn new(method: &str, uri: impl Into<String>, body: Value) -> Self {
        Self { method: method.to_owned(), uri: uri.into(), body }
    }

    /// The request that is sent.
    pub fn request(&self) -> Request {
        let (method, patch) = self.method.split_once(' ').unwrap_or((&self.method, ""));
        // A method of letters alone is always one.
        let mut request = Request::new(method.parse().unwrap_or_default(), &self.uri);
        request.content_type = match patch {
            "merge" => Some("application/merge-patch+json"),
            "json" => Some("application/json-patch+json"),
            "strategic" => Some("application/strategic-merge-patch+json"),
            "apply" => Some("application/apply-patch+yaml"),
            _ if self.body.is_null() => None,
            _ => Some("application/json"),
        }
        .map(str::to_owned);
        request.body = match &self.body {
            Value::Null => Vec::new(),
            Value::String(text) => text.clone().into_bytes(),
            body => body.to_string().into_bytes(),
        };
        request
    }
}

impl Transcript {
    /// Nothing yet.
    pub fn new(namespace: &str) -> Self {
        Self { namespace: namespace.to_owned(), exchanges: Vec::new() }
    }

    /// A call with what its placeholders stand for on this side.
    pub fn fill(&self, call: &Call) -> Call {
        match call {
            Call::RequestSpec(ask) => Call::RequestSpec(self.ask(ask)),
            Call::Watch { uri, last } => {
                Call::Watch { uri: self.text(uri), last: last.as_ref().map(|ask| self.ask(ask)) }
            }
            Call::Answered { ask, code } => Call::Answered { ask: self.ask(ask), code: *code },
            Call::Until { uri, state } => Call::Until { uri: self.text(uri), state: *state },
            Call::Clear { uri } => Call::Clear { uri: self.text(uri) },
        }
    }

    fn ask(&self, ask: &RequestSpec) -> RequestSpec {
        RequestSpec { method: ask.method.clone(), uri: self.text(&ask.uri), body: self.value(&ask.body) }
    }

    fn value(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => self.text(text).into(),
            Value::Array(list) => list.iter().map(|v| self.value(v)).collect(),
            Value::Object(map) => {
                Value::Object(map.iter().map(|(k, v)| (self.text(k), self.value(v))).collect())
            }
            other => other.clone(),
        }
    }

    fn text(&self, text: &str) -> String {
        let mut parts = text.split("${");
        let mut filled = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let (placeholder, rest) = part.split_once('}').unwrap_or((part, ""));
            filled.push_str(&self.resolve_placeholder(placeholder));
            filled.push_str(rest);
        }
        filled
    }

    fn resolve_placeholder(&self, placeholder: &str) -> String {
        let Some((id, pointer)) = placeholder.split_once('/') else { return self.namespace.clone() };
        let answer = self.exchanges.iter().find(|(step, _)| step.to_string() == id);
        let found = answer.and_then(|(_, exchange)| exchange.body.pointer(&format!("/{pointer}")));
        found.and_then(Value::as_str).filter(|text| !text.is_empty()).unwrap_or("0").to_owned()
    }
}

impl fmt::Display for SequenceStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>3}  {}", self.id, self.call)
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RequestSpec(ask) => ask.fmt(f),
            Self::Watch { uri, last: Some(last) } => write!(f, "WATCH {uri} up to {last}"),
            Self::Watch { uri, last: None } => write!(f, "WATCH {uri}"),
            Self::Answered { ask, code } => write!(f, "UNTIL {code} of {ask}"),
            Self::Until { uri, state } => write!(f, "UNTIL {uri} is {state:?}"),
            Self::Clear { uri } => write!(f, "CLEAR {uri}"),
        }
    }
}

impl fmt::Display for RequestSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method, self.uri)?;
        if self.body.is_null() { Ok(()) } else { write!(f, " {}", self.body) }
    }
}

/// The events of a watch as the body of an exchange.
pub(super) fn events(events: impl IntoIterator<Item = Value>) -> Exchange {
    Exchange { code: 200, warnings: Vec::new(), body: json!(events.into_iter().collect::<Vec<_>>()) }
}
