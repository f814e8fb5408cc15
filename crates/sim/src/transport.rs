//! The way from a replica to the API server, or to the second one: takes time, and goes wrong where the plan says so.

use std::convert::Infallible;
use std::future::pending;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use http::{Method, Response, header};
use http_body::Frame;
use http_body_util::{BodyExt as _, Either, Full, StreamBody};
use jiff::SignedDuration;
use kube::client::Body;
use serde_json::json;
use tower::{BoxError, Service};

use crate::fault::{Fault, RequestKind};
use crate::scenario::{ReadAnswer, ReadFault};
use crate::server::{Body as Answered, List, Request, Response as Reply, ServerReply};
use crate::simulation::{Done, Simulation, code_of, describe};
use crate::target::{Arrival, Credential, TargetServer};
use crate::trace::Actor;
use crate::watch_stream::WatchStream;

/// What kube's client sends requests to.
#[derive(Clone)]
pub(crate) struct Transport {
    pub(crate) simulation: Simulation,
    pub(crate) replica: usize,
    pub(crate) incarnation: u32,
    /// The user that the API server knows the replica as.
    pub(crate) account: &'static str,
    /// By what it is known to the second API server, if that is where it leads to.
    pub(crate) credential: Option<Credential>,
}

/// Frames of a watch as they come.
type Stream = StreamBody<BoxStream<'static, Result<Frame<Bytes>, BoxError>>>;
/// Complete, or as it comes.
pub(crate) type ResponseBody = Either<Full<Bytes>, Stream>;

impl Service<http::Request<Body>> for Transport {
    type Response = Response<ResponseBody>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let this = self.clone();
        Box::pin(async move {
            let (head, body) = request.into_parts();
            let text = |name| head.headers.get(name).and_then(|v| v.to_str().ok()).map(str::to_owned);
            let request = Request {
                method: head.method,
                path: head.uri.path().to_owned(),
                query: head.uri.query().unwrap_or_default().to_owned(),
                content_type: text(header::CONTENT_TYPE),
                accept: text(header::ACCEPT),
                body: body.collect().await?.to_bytes().to_vec(),
            };
            this.send(request).await
        })
    }
}

impl Transport {
    fn who(&self) -> Actor {
        Actor::Replica { replica: self.replica, incarnation: self.incarnation }
    }

    async fn send(self, request: Request) -> Result<Response<ResponseBody>, BoxError> {
        let sent = self.simulation.elapsed();
        let sort = request_kind(&request);
        tokio::time::sleep(self.simulation.latency() + self.target_latency()).await;
        self.wait_if_dead().await;
        let now = self.simulation.elapsed();
        let fault = self.simulation.with(|state| state.faults.of_request(sort, now));
        if let Some(fault) = fault {
            self.simulation.note(Actor::Faults, format!("{fault:?}: {}", describe(&request, 0)));
        }
        match fault {
            Some(Fault::CutOff(by)) => self.simulation.cut(Some(self.replica), by),
            Some(Fault::Away(by)) if self.credential.is_some() => self.simulation.take_target_away(by),
            Some(Fault::Away(by)) => self.simulation.cut(None, by),
            _ => {}
        }
        self.connected().await?;
        let now = self.simulation.elapsed();
        let wrongly = self.wrong_answer(&request, now);
        if wrongly == Some(ReadAnswer::Unavailable) {
            return self.reply(&refusal(503));
        }
        match fault {
            Some(Fault::KilledBefore) => {
                self.simulation.kill(self.replica);
                self.wait_if_dead().await;
            }
            Some(Fault::Refused(code)) => {
                tokio::time::sleep(self.simulation.latency()).await;
                self.wait_if_dead().await;
                return self.reply(&refusal(code));
            }
            Some(Fault::Late(by)) => tokio::time::sleep(by).await,
            Some(Fault::Twice) => drop(self.execute(&request, sent)),
            _ => {}
        }
        // A request in flight arrives, also when its sender has died meanwhile.
        let answer = self.execute(&request, sent);
        if fault == Some(Fault::KilledAfter) {
            self.simulation.kill(self.replica);
        }
        self.wait_if_dead().await;
        tokio::time::sleep(self.simulation.latency()).await;
        self.wait_if_dead().await;
        self.connected().await?;
        match (fault, answer) {
            (Some(Fault::AnswerLost), _) => Err(broken()),
            (Some(Fault::NoAnswer), _) => pending().await,
            (Some(Fault::RefusedAfter(code)), _) => self.reply(&refusal(code)),
            (_, ServerReply::Done(Reply { body: Answered::List(list), .. })) if wrongly.is_some() => {
                let at = self.simulation.elapsed();
                self.simulation.with(|state| state.emptied.push((self.replica, at)));
                let body = Answered::List(List { items: Vec::new(), ..list });
                self.reply(&Reply { code: 200, body, warnings: Vec::new() })
            }
            (_, ServerReply::Done(reply)) => self.reply(&reply),
            (_, ServerReply::Watch(watch)) => {
                let stream = WatchStream::new(self.clone(), *watch).stream();
                let body = Either::Right(StreamBody::new(stream));
                Ok(self.head(200).body(body)?)
            }
        }
    }

    /// How much longer it takes to get where it leads to than to the first API server.
    fn target_latency(&self) -> Duration {
        let of_target = || self.simulation.with(|state| state.target.as_ref().map(TargetServer::latency));
        self.credential.as_ref().and_then(|_| of_target()).unwrap_or_default()
    }

    /// What is answered to this request instead, if reads go wrong now.
    fn wrong_answer(&self, request: &Request, now: Duration) -> Option<ReadAnswer> {
        let ReadFault { path, during: (from, until), answer } =
            self.simulation.with(|state| state.read_fault)?;
        let applies = self.credential.is_none()
            && request.method == Method::GET
            && from <= now
            && now < until
            && request.path.ends_with(path);
        applies.then_some(answer)
    }

    /// Waits while this replica is cut off. Where the API server is away, the connection breaks.
    async fn connected(&self) -> Result<(), BoxError> {
        while !self.simulation.cut_off(self.replica).is_zero() {
            tokio::time::sleep(self.simulation.cut_off(self.replica)).await;
            self.wait_if_dead().await;
        }
        let is_away = match self.credential {
            Some(_) => self.simulation.is_target_away(),
            None => !self.simulation.away().is_zero(),
        };
        if is_away { Err(broken()) } else { Ok(()) }
    }

    /// A killed replica does not continue.
    pub(crate) async fn wait_if_dead(&self) {
        if !self.simulation.incarnations(self.replica, self.incarnation) {
            pending::<Infallible>().await;
        }
    }

    /// Carries a request out in the second API server.
    fn execute_in_target(&self, credential: &Credential, request: &Request, sent: Duration) -> ServerReply {
        let (clock, who) = (self.simulation.clock(), self.who());
        let arrival = Arrival { credential, request, who, sent };
        let answer = self.simulation.with(|state| {
            let target = state.target.as_mut();
            target.map_or_else(|| ServerReply::Done(refusal(503)), |target| target.handle(clock, &arrival))
        });
        self.simulation.note(who, format!("target: {}", describe(request, code_of(&answer))));
        answer
    }

    fn execute(&self, request: &Request, sent: Duration) -> ServerReply {
        if let Some(credential) = &self.credential {
            return self.execute_in_target(credential, request, sent);
        }
        let (now, at, who) = (self.simulation.clock().now(), self.simulation.elapsed(), self.who());
        let answer = self.simulation.with(|state| {
            let before = state.server.revision();
            let answer = state.server.handle(now, self.account, request);
            if request.method == Method::GET {
                let routine = request.query.contains("watch=true") || request.path.contains("/leases");
                state.reads.extend((!routine).then_some(at));
            } else {
                let revisions = (before, state.server.revision());
                let code = code_of(&answer);
                state.done.push(Done { sent, at, who, request: request.clone(), code, revisions });
            }
            answer
        });
        self.simulation.note(who, describe(request, code_of(&answer)));
        answer
    }

    fn reply(&self, reply: &Reply) -> Result<Response<ResponseBody>, BoxError> {
        let head = self.head(reply.code).header(header::CONTENT_TYPE, reply.body.content_type());
        Ok(head.body(Either::Left(Full::new(reply.body.to_bytes().into())))?)
    }

    /// The API server's clock is the true one, unless its dates are what goes wrong.
    fn head(&self, code: u16) -> http::response::Builder {
        let (now, elapsed) = (self.simulation.clock().now(), self.simulation.elapsed());
        let wrong = self.simulation.with(|state| {
            state.responses += 1;
            state.dates.filter(|dates| dates.applies(state.responses, elapsed))
        });
        let by = wrong.map_or(Some(SignedDuration::ZERO), |dates| dates.by);
        let answer = Response::builder().status(code);
        match by.and_then(|by| now.checked_add(by).ok()) {
            Some(date) => answer.header(header::DATE, date.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string()),
            None => answer,
        }
    }
}

fn request_kind(request: &Request) -> RequestKind {
    match request.method {
        Method::GET => RequestKind::Read,
        _ if request.path.contains("/leases") => RequestKind::Lease,
        _ => RequestKind::Write,
    }
}

/// What an overloaded or broken API server answers, or a proxy before it.
fn refusal(code: u16) -> Reply {
    let (reason, message) = match code {
        429 => (
            "TooManyRequests",
            "the server has received too many requests and has asked us to try again later",
        ),
        503 => ("ServiceUnavailable", "the server is currently unable to handle the request"),
        504 => (
            "Timeout",
            "Timeout: request did not complete within requested timeout - context deadline exceeded",
        ),
        _ => ("InternalError", "Internal error occurred: etcdserver: request timed out"),
    };
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code,
    });
    Reply { code, body: Answered::Value(status), warnings: Vec::new() }
}

pub(crate) fn broken() -> BoxError {
    std::io::Error::new(std::io::ErrorKind::ConnectionReset, "connection reset by peer").into()
}
