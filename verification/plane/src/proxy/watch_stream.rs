//! Watches: one event is one line.

use http_body_util::BodyExt as _;
use hyper::body::{Bytes, Incoming};
use serde::Deserialize;
use tokio::sync::oneshot;

use super::{
    answer::expired_event,
    body::{ClientGone, Pipe},
    request::Body,
    rules::{Break, FaultPhase, HeldResult, ProxyFault},
    server::Shared,
    trace::{TraceEntry, WatchEvent},
};
use crate::error::causes;

/// How the events ended, other than by a client that left.
enum End {
    Broken(Break),
    /// The connection to the API server was lost.
    Lost(String),
}

/// Passes the events of a watch on, each as soon as it is complete, and records them. `orders` break it at once.
pub(super) async fn pass(
    shared: &Shared,
    watch: &TraceEntry,
    body: Incoming,
    pipe: &Pipe,
    orders: oneshot::Receiver<Break>,
) {
    let end = tokio::select! {
        biased;
        () = pipe.client_gone() => Err(ClientGone),
        Ok(how) = orders => {
            shared.trace.update(watch.seq, |entry| entry.faults.push(how.name()));
            Ok(End::Broken(how))
        }
        end = events(shared, watch, body, pipe) => end,
    };
    shared.watch_ended(watch.seq);
    match end {
        Err(ClientGone) | Ok(End::Broken(Break::End)) => {}
        Ok(End::Broken(Break::Silence)) => pipe.client_gone().await,
        Ok(End::Broken(Break::Cut)) => pipe.cut().await,
        Ok(End::Broken(Break::Expire)) => {
            let _ = pipe.send(shared, expired_event().into()).await;
        }
        Ok(End::Lost(error)) => {
            shared.trace.update(watch.seq, |entry| entry.error = Some(error));
            pipe.cut().await;
        }
    }
    shared.trace.finish(watch.seq, true);
}

async fn events(
    shared: &Shared,
    watch: &TraceEntry,
    mut body: Incoming,
    pipe: &Pipe,
) -> Result<End, ClientGone> {
    let mut lines = Lines::default();
    while let Some(frame) = body.frame().await {
        match frame {
            Ok(frame) => lines.push(&frame.into_data().unwrap_or_default()),
            Err(error) => return Ok(End::Lost(causes(&error))),
        }
        while let Some(line) = lines.next() {
            if let Some(how) = event(shared, watch, line, pipe).await? {
                return Ok(End::Broken(how));
            }
        }
    }
    Ok(End::Broken(Break::End))
}

/// Passes one event on, as the rules say.
async fn event(
    shared: &Shared,
    watch: &TraceEntry,
    line: Bytes,
    pipe: &Pipe,
) -> Result<Option<Break>, ClientGone> {
    let mut entry = describe(watch, &line);
    entry.seq = shared.trace.add(entry.clone());
    let seq = entry.seq;
    let note = |name| shared.trace.update(seq, |entry| entry.faults.push(name));

    let revision = entry.resource_version.parse().unwrap_or(0);
    while let Some(rule) = shared.rules.stops(watch, revision) {
        note(rule.fault().name());
        rule.over().await;
    }
    if let Some(rule) = shared.rules.apply(FaultPhase::Event, &entry) {
        note(rule.fault().name());
        let dropped = match rule.fault() {
            ProxyFault::DropEvent => true,
            ProxyFault::HoldEvent => rule.hold().await == HeldResult::Discard,
            ProxyFault::DelayEvent(time) => {
                tokio::time::sleep(*time).await;
                false
            }
            ProxyFault::Break(how) => {
                shared.trace.finish(seq, false);
                return Ok(Some(*how));
            }
            _ => false,
        };
        if dropped {
            shared.trace.finish(seq, false);
            return Ok(None);
        }
    }
    let sent = pipe.send(shared, line).await;
    shared.trace.finish(seq, sent.is_ok());
    sent.map(|()| None)
}

fn describe(watch: &TraceEntry, line: &[u8]) -> TraceEntry {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Event {
        r#type: String,
        object: Body,
    }
    let event: Event = serde_json::from_slice(line).unwrap_or_default();
    let known = event.object.known();
    let itself = watch.resource == "namespaces" && watch.group.is_empty();
    TraceEntry {
        event: Some(WatchEvent { watch: watch.seq, kind: event.r#type }),
        verb: watch.verb.clone(),
        group: watch.group.clone(),
        resource: watch.resource.clone(),
        namespace: if itself { known.name.clone() } else { known.namespace },
        name: known.name,
        target: watch.target.clone(),
        uid: known.uid,
        resource_version: known.resource_version,
        ..TraceEntry::default()
    }
}

/// Puts lines together from pieces.
#[derive(Default)]
struct Lines {
    buffer: Vec<u8>,
    /// No line ends before this.
    searched: usize,
}

impl Lines {
    fn push(&mut self, piece: &[u8]) {
        self.buffer.extend_from_slice(piece);
    }

    /// The next complete line, with its end.
    fn next(&mut self) -> Option<Bytes> {
        let end = self.buffer[self.searched..].iter().position(|byte| *byte == b'\n');
        let Some(end) = end.map(|end| self.searched + end + 1) else {
            self.searched = self.buffer.len();
            return None;
        };
        self.searched = 0;
        let rest = self.buffer.split_off(end);
        Some(std::mem::replace(&mut self.buffer, rest).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_put_together_and_taken_apart() {
        let mut lines = Lines::default();
        let mut found = Vec::new();
        for piece in ["{1", "23", "}\n{4}\n{", "5}", "\n"] {
            lines.push(piece.as_bytes());
            while let Some(line) = lines.next() {
                found.push(String::from_utf8(line.to_vec()).unwrap());
            }
        }
        assert_eq!(found, ["{123}\n", "{4}\n", "{5}\n"]);
    }

    #[test]
    fn an_event_is_described_by_its_object() {
        let watch = TraceEntry {
            seq: 3,
            verb: "watch".to_owned(),
            resource: "namespaces".to_owned(),
            ..TraceEntry::default()
        };
        let line = br#"{"type":"ADDED","object":{"metadata":{"name":"x","uid":"u","resourceVersion":"9"}}}"#;
        let entry = describe(&watch, line);
        assert_eq!(entry.event, Some(WatchEvent { watch: 3, kind: "ADDED".to_owned() }));
        assert_eq!((entry.namespace.as_str(), entry.name.as_str()), ("x", "x"));
        assert_eq!((entry.uid.as_str(), entry.resource_version.as_str()), ("u", "9"));
    }
}
