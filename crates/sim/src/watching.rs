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
use crate::trace::Who;
use crate::transport::{Transport, broken};

/// How long a watch lasts if its client does not say.
const LONGEST: Duration = Duration::from_mins(30);
/// The API server sends a bookmark so long before it ends a watch.
const LAST_BOOKMARK: Duration = Duration::from_secs(2);

/// One watch.
pub(crate) struct Watching {
    way: Transport,
    watch: Watch,
    ends: Instant,
    bookmark: Option<Instant>,
    /// What has left the API server and is on its way.
    under_way: VecDeque<(Instant, Bytes)>,
    /// Nothing arrives before what was sent earlier.
    last: Instant,
    over: bool,
    /// The connection is there, and nothing comes over it any more.
    silent: bool,
    /// How often everything had been forgotten when it was opened.
    forgotten: u64,
}

/// What happens next on a watch.
enum Next {
    Line(Bytes),
    End,
    Broken,
}

impl Watching {
    pub(crate) fn new(way: Transport, watch: Watch) -> Self {
        let lasts = watch.timeout().unwrap_or(LONGEST);
        let now = Instant::now();
        Self {
            ends: now + lasts,
            bookmark: watch.wants_bookmarks().then_some(now + lasts.saturating_sub(LAST_BOOKMARK)),
            under_way: VecDeque::new(),
            last: now,
            over: false,
            silent: false,
            forgotten: way.world.with(|state| state.forgotten),
            watch,
            way,
        }
    }

    pub(crate) fn stream(self) -> BoxStream<'static, Result<Frame<Bytes>, BoxError>> {
        unfold(self, |mut this| async move {
            if this.over {
                return None;
            }
            match this.next().await {
                Next::Line(line) => Some((Ok(Frame::data(line)), this)),
                Next::End => None,
                Next::Broken => {
                    this.over = true;
                    Some((Err(broken()), this))
                }
            }
        })
        .boxed()
    }

    async fn next(&mut self) -> Next {
        loop {
            self.way.still_there().await;
            let mut revised = pin!(self.way.world.revised());
            revised.as_mut().enable();
            let cut = self.way.world.cut_off(self.way.replica);
            if !cut.is_zero() {
                tokio::time::sleep(cut).await;
                continue;
            }
            if !self.way.world.away().is_zero() {
                return Next::Broken;
            }
            if let Some(end) = self.take_off() {
                self.over = true;
                return end;
            }
            if self.silent {
                pending::<Infallible>().await;
            }
            if self.way.world.with(|state| state.forgotten) != self.forgotten {
                self.over = true;
                self.trace("is told that its revision is gone");
                return Next::Line(gone().into());
            }
            let now = Instant::now();
            if let Some((at, _)) = self.under_way.front()
                && *at <= now
                && let Some((_, line)) = self.under_way.pop_front()
            {
                return Next::Line(line);
            }
            if self.under_way.is_empty() && now >= self.ends {
                self.trace("ends");
                return Next::End;
            }
            if self.bookmark.is_some_and(|at| now >= at) {
                self.bookmark = None;
                let bookmark = self.way.world.with(|state| state.server.bookmark(&self.watch));
                self.push(bookmark.to_bytes().into(), self.way.world.latency());
                continue;
            }
            let arrives = self.under_way.front().map(|(at, _)| *at);
            let until = [arrives, self.bookmark, Some(self.ends).filter(|_| self.under_way.is_empty())];
            let until = until.into_iter().flatten().min().unwrap_or(self.ends);
            tokio::select! {
                biased;
                () = revised => {}
                () = tokio::time::sleep_until(until) => {}
            }
        }
    }

    /// Takes from the API server what there is to send. Answers how the watch ends, if it does.
    fn take_off(&mut self) -> Option<Next> {
        if Instant::now() >= self.ends {
            return None;
        }
        loop {
            let watch = &mut self.watch;
            let event = self.way.world.with(|state| state.server.next(watch, u64::MAX))?;
            let line = Bytes::from(event.to_bytes());
            if event.event == EventType::Error {
                self.trace("is told that its revision is gone");
                return Some(Next::Line(line));
            }
            let summary = summary(&event);
            let now = self.way.world.elapsed();
            let fault = self.way.world.with(|state| state.faults.of_event(now));
            if let Some(fault) = fault {
                self.fault(&format!("{fault:?}: {summary}"));
            }
            let mut by = self.way.world.latency();
            match fault {
                Some(Fault::Dropped) => continue,
                Some(Fault::Delayed(long)) => by += long,
                Some(Fault::Ended) => return Some(Next::End),
                Some(Fault::Broken) => return Some(Next::Broken),
                Some(Fault::Expired) => return Some(Next::Line(gone().into())),
                Some(Fault::AllExpired) => {
                    self.way.world.forget_past();
                    return Some(Next::Line(gone().into()));
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
        self.under_way.push_back((self.last, line));
    }

    fn trace(&self, what: &str) {
        let who = Who::Replica { replica: self.way.replica, life: self.way.life };
        self.way.world.note(who, format!("  ↳ watch of {} {what}", self.watch.kind().plural));
    }

    fn fault(&self, what: &str) {
        self.way.world.note(
            Who::Faults,
            format!("watch of {} to replica {}: {what}", self.watch.kind().plural, self.way.replica),
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
fn gone() -> String {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "too old resource version", "reason": "Expired", "code": 410,
    });
    format!("{}\n", json!({ "type": "ERROR", "object": status }))
}
