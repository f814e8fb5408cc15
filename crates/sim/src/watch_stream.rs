//! A watch on its way to a replica: its events arrive one by one, some time later, and some of them never.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::pending;
use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{BoxStream, StreamExt as _, unfold};
use http_body::Frame;
use serde_json::json;
use tokio::time::Instant;
use tower::BoxError;

use crate::fault::Fault;
use crate::server::{EventType, Watch, WatchEvent};
use crate::trace::Actor;
use crate::transport::{Transport, broken};

/// How long a watch lasts if its client does not say.
const MAX_WATCH: Duration = Duration::from_mins(30);
/// The API server sends a bookmark this long before it ends a watch.
const LAST_BOOKMARK: Duration = Duration::from_secs(2);

/// One watch.
pub(crate) struct WatchStream {
    transport: Transport,
    watch: Watch,
    ends: Instant,
    bookmark: Option<Instant>,
    /// What has left the API server and is on its way.
    in_flight: VecDeque<(Instant, Bytes)>,
    /// Nothing arrives before what was sent earlier.
    last: Instant,
    over: bool,
    /// The connection is there, and nothing comes over it any more.
    silent: bool,
    /// How many compactions there had been when it was opened.
    compactions: u64,
}

/// What happens next on a watch.
enum StreamItem {
    Line(Bytes),
    End,
    Broken,
}

impl WatchStream {
    pub(crate) fn new(transport: Transport, watch: Watch) -> Self {
        let lasts = watch.timeout().unwrap_or(MAX_WATCH);
        let now = Instant::now();
        Self {
            ends: now + lasts,
            bookmark: watch.wants_bookmarks().then_some(now + lasts.saturating_sub(LAST_BOOKMARK)),
            in_flight: VecDeque::new(),
            last: now,
            over: false,
            silent: false,
            compactions: transport.simulation.with(|state| state.compactions),
            watch,
            transport,
        }
    }

    pub(crate) fn stream(self) -> BoxStream<'static, Result<Frame<Bytes>, BoxError>> {
        unfold(self, |mut this| async move {
            if this.over {
                return None;
            }
            match this.next().await {
                StreamItem::Line(line) => Some((Ok(Frame::data(line)), this)),
                StreamItem::End => None,
                StreamItem::Broken => {
                    this.over = true;
                    Some((Err(broken()), this))
                }
            }
        })
        .boxed()
    }

    async fn next(&mut self) -> StreamItem {
        loop {
            self.transport.wait_if_dead().await;
            let mut revised = pin!(self.transport.simulation.revised());
            revised.as_mut().enable();
            let cut = self.transport.simulation.cut_off(self.transport.replica);
            if !cut.is_zero() {
                tokio::time::sleep(cut).await;
                continue;
            }
            if !self.transport.simulation.away().is_zero() {
                return StreamItem::Broken;
            }
            if let Some(end) = self.send_events() {
                self.over = true;
                return end;
            }
            if self.silent {
                pending::<Infallible>().await;
            }
            if self.transport.simulation.with(|state| state.compactions) != self.compactions {
                self.over = true;
                self.trace("learns that its revision is gone");
                return StreamItem::Line(expired_event().into());
            }
            let now = Instant::now();
            if let Some((at, _)) = self.in_flight.front()
                && *at <= now
                && let Some((_, line)) = self.in_flight.pop_front()
            {
                return StreamItem::Line(line);
            }
            if self.in_flight.is_empty() && now >= self.ends {
                self.trace("ends");
                return StreamItem::End;
            }
            if self.bookmark.is_some_and(|at| now >= at) {
                self.bookmark = None;
                let bookmark = self.transport.simulation.with(|state| state.server.bookmark(&self.watch));
                self.push(bookmark.to_bytes().into(), self.transport.simulation.latency());
                continue;
            }
            let arrives = self.in_flight.front().map(|(at, _)| *at);
            let until = [arrives, self.bookmark, Some(self.ends).filter(|_| self.in_flight.is_empty())];
            let until = until.into_iter().flatten().min().unwrap_or(self.ends);
            tokio::select! {
                biased;
                () = revised => {}
                () = tokio::time::sleep_until(until) => {}
            }
        }
    }

    /// Takes from the API server what there is to send. Answers how the watch ends, if it does.
    fn send_events(&mut self) -> Option<StreamItem> {
        if Instant::now() >= self.ends {
            return None;
        }
        loop {
            let watch = &mut self.watch;
            let event = self.transport.simulation.with(|state| state.server.next(watch, u64::MAX))?;
            let line = Bytes::from(event.to_bytes());
            if event.event == EventType::Error {
                self.trace("learns that its revision is gone");
                return Some(StreamItem::Line(line));
            }
            let summary = summary(&event);
            let now = self.transport.simulation.elapsed();
            let fault = self.transport.simulation.with(|state| state.faults.of_event(now));
            if let Some(fault) = fault {
                self.fault(&format!("{fault:?}: {summary}"));
            }
            let mut by = self.transport.simulation.latency();
            match fault {
                Some(Fault::Dropped) => continue,
                Some(Fault::Delayed(long)) => by += long,
                Some(Fault::Ended) => return Some(StreamItem::End),
                Some(Fault::Broken) => return Some(StreamItem::Broken),
                Some(Fault::Expired) => return Some(StreamItem::Line(expired_event().into())),
                Some(Fault::AllExpired) => {
                    self.transport.simulation.compact_history();
                    return Some(StreamItem::Line(expired_event().into()));
                }
                Some(Fault::Silent) => {
                    self.silent = true;
                    return None;
                }
                _ => {}
            }
            self.push(line, by);
            self.trace(&summary);
        }
    }

    fn push(&mut self, line: Bytes, by: Duration) {
        self.last = self.last.max(Instant::now() + by);
        self.in_flight.push_back((self.last, line));
    }

    fn trace(&self, what: &str) {
        let who = Actor::Replica { replica: self.transport.replica, incarnation: self.transport.incarnation };
        self.transport.simulation.note(who, format!("  ↳ watch of {} {what}", self.watch.kind().plural));
    }

    fn fault(&self, what: &str) {
        self.transport.simulation.note(
            Actor::Faults,
            format!("watch of {} to replica {}: {what}", self.watch.kind().plural, self.transport.replica),
        );
    }
}

fn summary(event: &WatchEvent) -> String {
    let metadata = &event.object["metadata"];
    let text = |field: &str| metadata[field].as_str().unwrap_or_default();
    let (namespace, name) = (text("namespace"), text("name"));
    let slash = if namespace.is_empty() { "" } else { "/" };
    format!("{} {namespace}{slash}{name} at {}", event.event.as_str(), text("resourceVersion"))
}

/// The event that says that a revision is gone.
fn expired_event() -> String {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "too old resource version", "reason": "Expired", "code": 410,
    });
    format!("{}\n", json!({ "type": "ERROR", "object": status }))
}
