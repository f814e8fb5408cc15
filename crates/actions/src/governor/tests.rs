use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Body as ResponseBody;
use futures::future::join_all;
use http::{Method, Request, Response};
use http_body_util::BodyExt as _;
use kube::client::Body;
use kube::core::Status;
use serde_json::{Value, json};
use tokio::time::Instant;
use tower::BoxError;

use coppice_api::Reason;
use coppice_api::names::CONFIG_NAME;
use coppice_kinds::Configs;
use coppice_lifecycle::governor::{Denied, Share};
use coppice_quantity::time::ServerTime;
use jiff::Timestamp;

use super::{Governor, Reservation, ReservationError, SPACING};
use coppice_runtime::client::{Clients, Deadlines};
use coppice_runtime::clock::Clock;
use coppice_runtime::kind::Kind as _;
use coppice_runtime::leader::Gate;
use coppice_runtime::metrics::Metrics;
use coppice_runtime::object::ObjectWire;
use coppice_runtime::server_clock::ServerClock;
use coppice_runtime::store::Store;

/// An API server that has the settings and nothing else, and the operator's cache of them.
#[derive(Clone)]
struct Plane {
    settings: Arc<Mutex<Value>>,
    /// For each write that came: how many steps are in the ledger then, and whether it was taken.
    writes: Arc<Mutex<Vec<(u64, bool)>>>,
    /// The write with this number is not taken and not answered.
    lost: Option<usize>,
    came: Arc<AtomicUsize>,
    known: Store<Configs>,
}

impl Plane {
    /// With this budget a minute, known to the cache.
    fn new(per_minute: u32) -> Self {
        let settings = json!({
            "metadata": { "name": CONFIG_NAME, "uid": "u", "resourceVersion": "1", "generation": 1 },
            "spec": { "governor": { "perMinute": per_minute, "perHour": 1000, "atLeast": 1000 } },
        });
        let plane = Self {
            settings: Arc::new(Mutex::new(settings)),
            writes: Arc::default(),
            lost: None,
            came: Arc::default(),
            known: Store::default(),
        };
        plane.catch_up();
        plane
    }

    /// The watch updates the cache; returns whether that changed it.
    fn catch_up(&self) -> bool {
        let wire: ObjectWire = serde_json::from_value(self.settings.lock().unwrap().clone()).unwrap();
        self.known.upsert("", Configs::project(wire, &()).unwrap())
    }

    /// An edit by somebody else that the cache does not have yet.
    fn edit(&self, governor: Value) {
        let mut settings = self.settings.lock().unwrap();
        settings["spec"]["governor"] = governor;
        settings["metadata"]["generation"] = json!(2);
        grow(&mut settings);
    }

    async fn answer(self, request: Request<Body>) -> Result<Response<ResponseBody>, BoxError> {
        let put = *request.method() == Method::PUT;
        let body = request.into_body().collect().await?.to_bytes();
        if !put {
            return ok(&self.settings.lock().unwrap());
        }
        let body: Value = serde_json::from_slice(&body)?;
        if self.lost == Some(self.came.fetch_add(1, Ordering::Relaxed)) {
            return std::future::pending().await;
        }
        let mut settings = self.settings.lock().unwrap();
        let current = body["metadata"]["resourceVersion"] == settings["metadata"]["resourceVersion"];
        let steps = body["status"]["governor"]["reservations"]
            .as_array()
            .map_or(0, |entries| entries.iter().filter_map(|entry| entry["steps"].as_u64()).sum());
        self.writes.lock().unwrap().push((steps, current));
        if !current {
            let status = Status::failure("changed", "Conflict").with_code(409);
            return Ok(Response::builder()
                .status(409)
                .body(ResponseBody::from(serde_json::to_vec(&status)?))?);
        }
        settings["status"] = body["status"].clone();
        grow(&mut settings);
        ok(&settings)
    }

    async fn reserve(&self, governor: &Governor) -> Result<Reservation, ReservationError> {
        self.reserve_of(governor, Share::Managers(1)).await
    }

    async fn reserve_of(
        &self,
        governor: &Governor,
        share: Share<'_>,
    ) -> Result<Reservation, ReservationError> {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let server_clock = ServerClock::new(Clock::following_tokio(now));
        let plane = self.clone();
        let service = tower::service_fn(move |request| plane.clone().answer(request));
        let clients = Clients::over(&service, Deadlines::default(), &server_clock, &Metrics::new("test"));
        let permit = Gate::always(Duration::ZERO).permit().unwrap();
        governor.reserve(&clients, &permit, &self.known, share, || ServerTime::certain(now)).await
    }

    async fn reserve_many(
        &self,
        governor: &Governor,
        many: usize,
    ) -> Vec<Result<Reservation, ReservationError>> {
        join_all((0..many).map(|_| self.reserve(governor))).await
    }
}

fn grow(settings: &mut Value) {
    let revision: u64 = settings["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
    settings["metadata"]["resourceVersion"] = json!((revision + 1).to_string());
}

fn ok(value: &Value) -> Result<Response<ResponseBody>, BoxError> {
    Ok(Response::new(ResponseBody::from(serde_json::to_vec(value)?)))
}

fn denied_by(answer: &Result<Reservation, ReservationError>) -> Option<Reason> {
    match answer {
        Err(ReservationError::Denied(Denied { reason, .. })) => Some(*reason),
        _ => None,
    }
}

#[tokio::test(start_paused = true)]
async fn waiting_steps_share_the_next_reservation() {
    let (plane, governor) = (Plane::new(100), Governor::default());
    let start = Instant::now();
    let answers = plane.reserve_many(&governor, 10).await;
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    assert_eq!(*plane.writes.lock().unwrap(), [(1, true), (10, true)]);
    assert_eq!(start.elapsed(), SPACING, "the first did not wait, the others for the next reservation");
    assert!(plane.reserve(&governor).await.is_ok());
    assert_eq!(plane.writes.lock().unwrap().last(), Some(&(11, true)), "what was written was learnt");
}

#[tokio::test(start_paused = true)]
async fn who_came_first_has_what_the_budget_still_has() {
    let (plane, governor) = (Plane::new(4), Governor::default());
    let answers = plane.reserve_many(&governor, 6).await;
    assert!(answers[..4].iter().all(Result::is_ok), "{answers:?}");
    assert_eq!(answers[4..].iter().filter_map(denied_by).collect::<Vec<_>>(), [Reason::BudgetSpent; 2]);
    let settings = plane.settings.lock().unwrap();
    assert_eq!(settings["status"]["governor"]["blocked"]["reason"], "BudgetSpent", "{settings:#}");
}

#[tokio::test(start_paused = true)]
async fn steps_of_several_trees_share_a_write_and_each_has_its_own_budget() {
    let (plane, governor) = (Plane::new(2), Governor::default());
    let tree = |name| Share::Tree { name, namespaces: 5, all_trees: 5 };
    let shares = [tree("a"), tree("a"), tree("b"), tree("a"), Share::Trees(5), tree("b")];
    let answers = join_all(shares.map(|share| plane.reserve_of(&governor, share))).await;
    let denied: Vec<_> = answers.iter().map(denied_by).collect();
    assert_eq!(denied, [None, None, None, Some(Reason::TreeBudgetSpent), None, None]);
    assert_eq!(plane.writes.lock().unwrap().len(), 2, "the first, and the others together");
    let settings = plane.settings.lock().unwrap().clone();
    let ledger = &settings["status"]["governor"];
    let steps = |entries: &Value| entries[0]["steps"].clone();
    assert_eq!(ledger["treeBudgets"][0]["tree"], "a");
    assert_eq!(steps(&ledger["treeBudgets"][0]["reservations"]), 2, "{ledger:#}");
    assert_eq!(steps(&ledger["treeBudgets"][1]["reservations"]), 2, "{ledger:#}");
    assert_eq!(steps(&ledger["treeReservations"]), 1, "{ledger:#}");
    assert!(ledger["reservations"].is_null(), "managers have spent nothing: {ledger:#}");
    // Another process, which knows nothing but the ledger.
    let answer = plane.reserve_of(&Governor::default(), tree("a")).await;
    assert_eq!(denied_by(&answer), Some(Reason::TreeBudgetSpent));
}

#[tokio::test(start_paused = true)]
async fn a_pause_that_the_cache_has_not_seen_stops_all() {
    let (plane, governor) = (Plane::new(100), Governor::default());
    plane.edit(json!({ "paused": true }));
    let answers = plane.reserve_many(&governor, 3).await;
    assert_eq!(answers.iter().filter_map(denied_by).collect::<Vec<_>>(), [Reason::Paused; 3]);
    let taken: Vec<_> = plane.writes.lock().unwrap().iter().filter(|(_, taken)| *taken).copied().collect();
    assert!(taken.iter().all(|(steps, _)| *steps == 0), "{taken:?}");
}

#[tokio::test(start_paused = true)]
async fn a_cache_that_is_behind_denies_nobody() {
    let (plane, governor) = (Plane::new(0), Governor::default());
    plane.edit(json!({ "perMinute": 5, "perHour": 5, "atLeast": 5 }));
    assert!(plane.reserve(&governor).await.is_ok());
    assert!(plane.catch_up(), "the edit reaches whoever waits for it");
}

#[tokio::test(start_paused = true)]
async fn a_stopped_batch_is_reserved_by_the_next() {
    let plane = Plane { lost: Some(1), ..Plane::new(100) };
    let governor = Governor::default();
    // All wait for the first; the second then writes for all others, and is stopped in the middle of it.
    let second = tokio::time::timeout(Duration::from_secs(1), plane.reserve(&governor));
    let (first, second, others) =
        futures::join!(plane.reserve(&governor), second, plane.reserve_many(&governor, 3));
    assert!(second.is_err(), "it was to be stopped: {second:?}");
    assert!(first.is_ok() && others.iter().all(Result::is_ok), "{first:?} {others:?}");
    assert_eq!(*plane.writes.lock().unwrap(), [(1, true), (4, true)]);
    assert!(governor.waiting.lock().unwrap().is_empty());
}
