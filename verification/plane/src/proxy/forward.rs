//! One request from its arrival to the end of its answer.

use std::sync::Arc;

use http::{
    HeaderMap, HeaderValue, Request, Response, StatusCode,
    header::{CONTENT_LENGTH, CONTENT_TYPE, DATE, RETRY_AFTER},
    request::Parts,
};
use http_body_util::BodyExt as _;
use hyper::body::{Bytes, Incoming};
use jiff::fmt::rfc2822::DateTimeParser;
use tokio::sync::oneshot;

use super::{
    answer::{Corruption, FakeResponse},
    body::{Cut, Outgoing, Pipe, Reader, half, pipe},
    request::{self, Known},
    rules::{Date, FaultPhase, HeldResult, ProxyFault},
    server::{Shared, strip},
    stale,
    trace::TraceEntry,
    watch_stream,
};
use crate::error::causes;

/// Answers a request. This ends when the client leaves, but the work behind it goes on: a request that was held reaches
/// the API server even if nobody waits for its answer any more.
pub(super) async fn exchange(
    shared: Arc<Shared>,
    request: Request<Incoming>,
) -> Result<Response<Outgoing>, Cut> {
    let (sender, answer) = oneshot::channel();
    let worker = Arc::clone(&shared);
    shared.spawn(async move {
        // If nobody wants the answer, it is dropped, and what writes its body notices.
        let _ = sender.send(take(worker, request).await);
    });
    answer.await.unwrap_or(Err(Cut))
}

async fn take(shared: Arc<Shared>, request: Request<Incoming>) -> Result<Response<Outgoing>, Cut> {
    let (head, body) = request.into_parts();
    // Who leaves before the request is complete has not made one.
    let body = body.collect().await.map_err(|_| Cut)?.to_bytes();
    let target = head.uri.path_and_query().map_or("/", |target| target.as_str());
    let mut entry = request::describe(&head.method, target, &body);
    entry.seq = shared.trace.add(entry.clone());
    let exchange = Exchange { shared, head, body, entry };
    exchange.shared.thawed().await;
    let answer = exchange.answer().await;
    if answer.is_err() {
        exchange.shared.trace.finish(exchange.entry.seq, false);
    }
    answer
}

/// What came from the API server, or stands for it.
pub(super) enum Reply {
    Stream(Response<Incoming>),
    Whole(Response<Bytes>),
}

impl From<FakeResponse> for Reply {
    fn from(answer: FakeResponse) -> Self {
        let mut response = Response::new(Bytes::from(answer.body));
        *response.status_mut() =
            StatusCode::from_u16(answer.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(seconds) = answer.retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        Self::Whole(response)
    }
}

/// A request and all that is needed to answer it.
pub(super) struct Exchange {
    pub(super) shared: Arc<Shared>,
    pub(super) head: Parts,
    pub(super) body: Bytes,
    pub(super) entry: TraceEntry,
}

impl Exchange {
    async fn answer(&self) -> Result<Response<Outgoing>, Cut> {
        let mut answer = self.undated_response().await?;
        let rule = self.shared.rules.apply(FaultPhase::Date, &self.entry);
        if let Some(ProxyFault::Date(date)) = rule.as_ref().map(|rule| rule.fault()) {
            self.note(&ProxyFault::Date(*date));
            set_date(answer.headers_mut(), *date);
        }
        Ok(answer)
    }

    async fn undated_response(&self) -> Result<Response<Outgoing>, Cut> {
        let rule = self.shared.rules.apply(FaultPhase::Request, &self.entry);
        let Some(rule) = rule else { return Ok(self.pass(self.request().await?)) };
        self.note(rule.fault());
        match rule.fault() {
            ProxyFault::FakeResponse(answer) => {
                let corruption = answer.corruption;
                let whole = self.whole(answer.clone().into()).await?;
                return Ok(self.pass_whole(whole, corruption));
            }
            ProxyFault::LoseRequest => return Err(Cut),
            ProxyFault::HoldRequest if rule.hold().await == HeldResult::Discard => return Err(Cut),
            ProxyFault::Delay(time) => tokio::time::sleep(*time).await,
            ProxyFault::Twice => {
                self.complete(self.request().await?).await?;
            }
            _ => {}
        }
        let reply = self.request().await?;
        match rule.fault() {
            ProxyFault::LoseResponse => self.complete(reply).await.and(Err(Cut)),
            ProxyFault::HoldResponse => {
                let reply = self.complete(reply).await?;
                match rule.hold().await {
                    HeldResult::Discard => Err(Cut),
                    HeldResult::Pass => Ok(self.pass(reply)),
                }
            }
            ProxyFault::Corruption(corruption) => {
                Ok(self.pass_whole(self.whole(reply).await?, Some(*corruption)))
            }
            _ => Ok(self.pass(reply)),
        }
    }

    fn is_watch(&self) -> bool {
        self.entry.verb == "watch"
    }

    fn note(&self, fault: &ProxyFault) {
        self.shared.trace.update(self.entry.seq, |entry| entry.faults.push(fault.name()));
    }

    /// Asks the API server: about the past, if a rule says so.
    async fn request(&self) -> Result<Reply, Cut> {
        let rule = self.shared.rules.apply(FaultPhase::View, &self.entry);
        if let Some((rule, ProxyFault::Stale(view))) = rule.as_ref().map(|rule| (rule, rule.fault())) {
            self.note(rule.fault());
            return stale::request(self, view.revision).await;
        }
        self.send(&self.head, &self.entry.target).await.map(Reply::Stream)
    }

    /// Sends the request with another head or target. An API server that does not answer is one that cuts.
    pub(super) async fn send(&self, head: &Parts, target: &str) -> Result<Response<Incoming>, Cut> {
        self.shared
            .forward(head, target, self.body.clone())
            .await
            .map_err(|error| self.fail(error.to_string()))
    }

    fn fail(&self, error: String) -> Cut {
        self.shared.trace.update(self.entry.seq, |entry| entry.error = Some(error));
        Cut
    }

    /// Waits for all of an answer, and records it.
    pub(super) async fn whole(&self, reply: Reply) -> Result<Response<Bytes>, Cut> {
        let whole = match reply {
            Reply::Whole(whole) => whole,
            Reply::Stream(response) => {
                let (head, body) = response.into_parts();
                let body = body.collect().await.map_err(|error| self.fail(causes(&error)))?;
                Response::from_parts(head, body.to_bytes())
            }
        };
        self.record(whole.status(), Some(Known::of(whole.body())));
        Ok(whole)
    }

    /// The same, but of a watch only the beginning is waited for.
    async fn complete(&self, reply: Reply) -> Result<Reply, Cut> {
        if self.is_watch() { Ok(reply) } else { self.whole(reply).await.map(Reply::Whole) }
    }

    fn record(&self, status: StatusCode, known: Option<Known>) {
        record(&self.shared, self.entry.seq, Some(status), known);
    }

    /// Passes an answer on as it comes.
    fn pass(&self, reply: Reply) -> Response<Outgoing> {
        let response = match reply {
            Reply::Stream(response) => response,
            Reply::Whole(whole) => {
                self.record(whole.status(), Some(Known::of(whole.body())));
                return self.pass_whole(whole, None);
            }
        };
        let (mut head, body) = response.into_parts();
        strip(&mut head.headers);
        let (pipe, outgoing) = pipe();
        let (shared, seq) = (Arc::clone(&self.shared), self.entry.seq);
        if self.is_watch() && head.status == StatusCode::OK {
            let watch = self.entry.clone();
            // Who sees the watch open, in the trace or as its client, can break it.
            let orders = self.shared.watch_begins(&watch);
            self.record(head.status, None);
            self.shared.spawn(async move { watch_stream::pass(&shared, &watch, body, &pipe, orders).await });
        } else {
            self.record(head.status, None);
            self.shared.spawn(async move { pass_on(&shared, seq, body, &pipe).await });
        }
        Response::from_parts(head, outgoing)
    }

    fn pass_whole(&self, whole: Response<Bytes>, corruption: Option<Corruption>) -> Response<Outgoing> {
        let (mut head, body) = whole.into_parts();
        strip(&mut head.headers);
        let length = if corruption == Some(Corruption::Malformed) { half(&body).len() } else { body.len() };
        set_length(&mut head.headers, length);
        let (pipe, outgoing) = pipe();
        let (shared, seq) = (Arc::clone(&self.shared), self.entry.seq);
        self.shared.spawn(async move {
            let written = pipe.write(&shared, body, corruption).await;
            shared.trace.finish(seq, written.is_ok() && corruption != Some(Corruption::Truncated));
        });
        Response::from_parts(head, outgoing)
    }
}

/// Changes the time that an answer tells. What the proxy made up itself tells none.
fn set_date(headers: &mut HeaderMap, date: Date) {
    let Date::Shifted(by) = date else {
        headers.remove(DATE);
        return;
    };
    let right = headers.get(DATE).and_then(|value| value.to_str().ok());
    let right = right.and_then(|text| DateTimeParser::new().parse_timestamp(text).ok());
    let shifted = right.and_then(|right| right.checked_add(by).ok());
    let text = shifted.map(|at| at.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string());
    if let Some(value) = text.and_then(|text| HeaderValue::try_from(text).ok()) {
        headers.insert(DATE, value);
    }
}

fn set_length(headers: &mut HeaderMap, length: usize) {
    headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
}

/// Notes what became known of an answer; what the request says about its object stays where the answer says nothing.
fn record(shared: &Shared, seq: u64, status: Option<StatusCode>, known: Option<Known>) {
    shared.trace.update(seq, |entry| {
        entry.status = status.map(|status| status.as_u16()).or(entry.status);
        let Some(known) = known else { return };
        let fields = [(&mut entry.uid, known.uid), (&mut entry.resource_version, known.resource_version)];
        for (field, value) in fields {
            if !value.is_empty() {
                *field = value;
            }
        }
    });
}

/// Passes a body on piece by piece.
async fn pass_on(shared: &Shared, seq: u64, mut body: Incoming, pipe: &Pipe) {
    let mut reader = Reader::default();
    let mut error = None;
    loop {
        let frame = tokio::select! {
            biased;
            () = pipe.client_gone() => break,
            frame = body.frame() => frame,
        };
        let Some(frame) = frame else { break };
        let piece = match frame {
            Ok(frame) => frame.into_data().unwrap_or_default(),
            Err(failure) => {
                error = Some(causes(&failure));
                break;
            }
        };
        reader.see(&piece);
        if pipe.send(shared, piece).await.is_err() {
            break;
        }
    }
    record(shared, seq, None, Some(reader.known()));
    let complete = error.is_none();
    if !complete {
        shared.trace.update(seq, |entry| entry.error = error);
        pipe.cut().await;
    }
    shared.trace.finish(seq, complete);
}
