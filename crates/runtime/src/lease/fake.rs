//! An API server in memory that knows one Lease, on tokio's clock, with faults.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use axum::body::Body as ResponseBody;
use futures::StreamExt as _;
use futures::channel::mpsc::{UnboundedSender, unbounded};
use http::{Method, Request, Response, StatusCode};
use kube::client::Body;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use tower::BoxError;

use super::{Election, LeaseSettings, LeaseView};
use crate::client::{Clients, Deadlines};
use crate::clock::Clock;
use crate::leader::Gate;
use crate::metrics::Metrics;
use crate::server_clock::ServerClock;

/// What happens to a request on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    None,
    /// The connection is refused.
    Refused,
    /// It arrives this much later, also if nobody waits for the answer any more.
    Late(Duration),
    /// It arrives, and the answer gets lost.
    Unanswered,
    /// It does not arrive, and there is no answer.
    Swallowed,
    /// The server answers this, and does nothing.
    Answer(u16),
}

type Faults = Arc<dyn Fn(&Method, bool) -> Fault + Send + Sync>;

#[derive(Default)]
struct FakeState {
    lease: Option<Value>,
    revision: u64,
    watchers: Vec<UnboundedSender<Result<String, BoxError>>>,
    requests: Vec<(Instant, String, Method, bool)>,
}

/// The server. Clones are the same one.
#[derive(Clone, Default)]
pub(super) struct Fake(Arc<Mutex<FakeState>>);

impl Fake {
    /// An election over this server. `faults` is asked about every request: its method, and whether it is a watch.
    pub(super) fn candidate(
        &self,
        who: &str,
        seed: u64,
        faults: impl Fn(&Method, bool) -> Fault + Send + Sync + 'static,
    ) -> (Election, Gate) {
        let (clients, settings, clock) = self.parts(who, seed, faults);
        Election::new(clients, settings, clock, Metrics::new("test")).unwrap()
    }

    /// What an election over this server is made of.
    pub(super) fn parts(
        &self,
        who: &str,
        seed: u64,
        faults: impl Fn(&Method, bool) -> Fault + Send + Sync + 'static,
    ) -> (Clients, LeaseSettings, Clock) {
        // Wall clocks that are wrong by a lot, in different directions: they must not matter.
        let wrong = jiff::SignedDuration::from_secs(i64::try_from(seed % 2000).unwrap() - 1000);
        let clock = Clock::following_tokio("2026-01-01T00:00:00Z".parse().unwrap()).shifted(wrong);
        let (faults, fake, name): (Faults, Self, String) = (Arc::new(faults), self.clone(), who.to_owned());
        let service = tower::service_fn(move |request| {
            let (faults, fake, name) = (Arc::clone(&faults), fake.clone(), name.clone());
            fake.arrive(request, name, faults)
        });
        let metrics = Metrics::new("test");
        let clients =
            Clients::over(&service, Deadlines::default(), &ServerClock::new(clock.clone()), &metrics);
        let settings = LeaseSettings { seed, ..LeaseSettings::new("system", "coppice", who) };
        (clients, settings, clock)
    }

    /// What the lease says.
    pub(super) fn view(&self) -> Option<LeaseView> {
        let lease = self.state().lease.clone()?;
        Some(LeaseView::of(&serde_json::from_value(lease).unwrap(), Duration::ZERO))
    }

    /// The lease, as it is stored.
    pub(super) fn stored(&self) -> Value {
        self.state().lease.clone().unwrap()
    }

    pub(super) fn delete(&self) {
        let mut state = self.state();
        state.revision += 1;
        let lease = state.lease.take().unwrap();
        state.send_event("DELETED", &lease);
    }

    /// How many requests `who` has made since `since`.
    pub(super) fn requests(&self, who: &str, since: Instant) -> usize {
        self.state().requests.iter().filter(|(at, by, ..)| by == who && *at >= since).count()
    }

    async fn arrive(
        self,
        request: Request<Body>,
        by: String,
        faults: Faults,
    ) -> Result<Response<ResponseBody>, BoxError> {
        let watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
        let method = request.method().clone();
        self.state().requests.push((Instant::now(), by, method.clone(), watch));
        let body = request.into_body().collect_bytes().await?;
        let body: Option<Value> = serde_json::from_slice(&body).ok();
        let fault = faults(&method, watch);
        match fault {
            Fault::Refused => return Err(std::io::Error::from(std::io::ErrorKind::ConnectionRefused).into()),
            Fault::Swallowed => return std::future::pending().await,
            Fault::Answer(code) => return Ok(refuse(code)),
            Fault::None | Fault::Late(_) | Fault::Unanswered => {}
        }
        // On its own task: the server goes on although the client has given up.
        let latency = if let Fault::Late(late) = fault { late } else { Duration::from_millis(5) };
        let served = tokio::spawn(async move {
            sleep(latency).await;
            self.serve(&method, watch, body)
        });
        let answer = served.await?;
        if fault == Fault::Unanswered {
            return std::future::pending().await;
        }
        sleep(Duration::from_millis(5)).await;
        Ok(answer)
    }

    fn serve(&self, method: &Method, watch: bool, body: Option<Value>) -> Response<ResponseBody> {
        let mut state = self.state();
        if watch {
            let (sender, events) = unbounded();
            state.watchers.push(sender);
            let minute = Box::pin(sleep(Duration::from_mins(1)));
            return Response::new(ResponseBody::from_stream(events.take_until(minute)));
        }
        let stored = state.lease.clone();
        match (method, stored, body) {
            (&Method::GET, Some(lease), _) => Response::new(ResponseBody::from(lease.to_string())),
            (&Method::GET | &Method::PUT, None, _) => refuse(404),
            (&Method::POST, Some(_), _) => refuse(409),
            (&Method::POST, None, Some(lease)) => state.store(lease, "ADDED"),
            (&Method::PUT, Some(before), Some(lease)) => {
                if lease["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"] {
                    state.store(lease, "MODIFIED")
                } else {
                    refuse(409)
                }
            }
            _ => refuse(405),
        }
    }

    fn state(&self) -> MutexGuard<'_, FakeState> {
        self.0.lock().unwrap()
    }
}

impl FakeState {
    fn store(&mut self, mut lease: Value, event: &str) -> Response<ResponseBody> {
        self.revision += 1;
        lease["metadata"]["resourceVersion"] = json!(self.revision.to_string());
        self.lease = Some(lease.clone());
        self.send_event(event, &lease);
        Response::new(ResponseBody::from(lease.to_string()))
    }

    fn send_event(&mut self, event: &str, lease: &Value) {
        let line = json!({ "type": event, "object": lease }).to_string() + "\n";
        self.watchers.retain(|watcher| watcher.unbounded_send(Ok(line.clone())).is_ok());
    }
}

fn refuse(code: u16) -> Response<ResponseBody> {
    let reason = match code {
        403 => "Forbidden",
        404 => "NotFound",
        409 => "Conflict",
        _ => "InternalError",
    };
    let status =
        json!({ "kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": "no" });
    let mut answer = Response::new(ResponseBody::from(status.to_string()));
    *answer.status_mut() = StatusCode::from_u16(code).unwrap();
    answer
}
