use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Body as Answer;
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
use coppice_lifecycle::governor::Denied;
use coppice_lifecycle::time::ServerTime;
use jiff::Timestamp;

use super::{Booking, BookingError, Counter, SPACING};
use crate::client::{Clients, Deadlines};
use crate::clock::Clock;
use crate::kinds::{Config, ObjectWire, Watched as _};
use crate::leader::Gate;
use crate::metrics::Metrics;
use crate::server_clock::ServerClock;
use crate::store::Store;

/// An API server that has the settings and nothing else, and the operator's cache of them.
#[derive(Clone)]
struct Plane {
    settings: Arc<Mutex<Value>>,
    /// For each write that came: how many steps are in the ledger then, and whether it was taken.
    writes: Arc<Mutex<Vec<(u64, bool)>>>,
    /// The write with this number is not taken and not answered.
    lost: Option<usize>,
    came: Arc<AtomicUsize>,
    known: Store<Config>,
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

    /// The watch tells the cache; whether that was news.
    fn catch_up(&self) -> bool {
        let wire: ObjectWire = serde_json::from_value(self.settings.lock().unwrap().clone()).unwrap();
        self.known.upsert("", Config::project(wire).unwrap())
    }

    /// An edit by somebody else, that the cache has not heard of.
    fn edit(&self, governor: Value) {
        let mut settings = self.settings.lock().unwrap();
        settings["spec"]["governor"] = governor;
        settings["metadata"]["generation"] = json!(2);
        grow(&mut settings);
    }

    async fn answer(self, request: Request<Body>) -> Result<Response<Answer>, BoxError> {
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
        let steps = body["status"]["governor"]["booked"]
            .as_array()
            .map_or(0, |booked| booked.iter().filter_map(|entry| entry["steps"].as_u64()).sum());
        self.writes.lock().unwrap().push((steps, current));
        if !current {
            let status = Status::failure("changed", "Conflict").with_code(409);
            return Ok(Response::builder().status(409).body(Answer::from(serde_json::to_vec(&status)?))?);
        }
        settings["status"] = body["status"].clone();
        grow(&mut settings);
        ok(&settings)
    }

    async fn book(&self, counter: &Counter) -> Result<Booking, BookingError> {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let server_clock = ServerClock::new(Clock::following_tokio(now));
        let plane = self.clone();
        let service = tower::service_fn(move |request| plane.clone().answer(request));
        let clients = Clients::over(&service, Deadlines::default(), &server_clock, &Metrics::new("test"));
        let permit = Gate::always(Duration::ZERO).permit().unwrap();
        counter.book(&clients, &permit, &self.known, 1, || ServerTime::agreed(now)).await
    }

    async fn book_many(&self, counter: &Counter, many: usize) -> Vec<Result<Booking, BookingError>> {
        join_all((0..many).map(|_| self.book(counter))).await
    }
}

fn grow(settings: &mut Value) {
    let revision: u64 = settings["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
    settings["metadata"]["resourceVersion"] = json!((revision + 1).to_string());
}

fn ok(value: &Value) -> Result<Response<Answer>, BoxError> {
    Ok(Response::new(Answer::from(serde_json::to_vec(value)?)))
}

fn denied_by(answer: &Result<Booking, BookingError>) -> Option<Reason> {
    match answer {
        Err(BookingError::Denied(Denied { reason, .. })) => Some(*reason),
        _ => None,
    }
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_a_booking_is_in_the_next_one_with_all_others() {
    let (plane, counter) = (Plane::new(100), Counter::default());
    let start = Instant::now();
    let answers = plane.book_many(&counter, 10).await;
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    assert_eq!(*plane.writes.lock().unwrap(), [(1, true), (10, true)]);
    assert_eq!(start.elapsed(), SPACING, "the first did not wait, the others for the next booking");
    assert!(plane.book(&counter).await.is_ok());
    assert_eq!(plane.writes.lock().unwrap().last(), Some(&(11, true)), "what was written was learnt");
}

#[tokio::test(start_paused = true)]
async fn who_came_first_has_what_the_budget_still_has() {
    let (plane, counter) = (Plane::new(4), Counter::default());
    let answers = plane.book_many(&counter, 6).await;
    assert!(answers[..4].iter().all(Result::is_ok), "{answers:?}");
    assert_eq!(answers[4..].iter().filter_map(denied_by).collect::<Vec<_>>(), [Reason::BudgetSpent; 2]);
    let settings = plane.settings.lock().unwrap();
    assert_eq!(settings["status"]["governor"]["tripped"]["reason"], "BudgetSpent", "{settings:#}");
}

#[tokio::test(start_paused = true)]
async fn a_kill_switch_that_the_cache_has_not_heard_of_stops_all() {
    let (plane, counter) = (Plane::new(100), Counter::default());
    plane.edit(json!({ "paused": true }));
    let answers = plane.book_many(&counter, 3).await;
    assert_eq!(answers.iter().filter_map(denied_by).collect::<Vec<_>>(), [Reason::Paused; 3]);
    let taken: Vec<_> = plane.writes.lock().unwrap().iter().filter(|(_, taken)| *taken).copied().collect();
    assert!(taken.iter().all(|(steps, _)| *steps == 0), "{taken:?}");
}

#[tokio::test(start_paused = true)]
async fn a_cache_that_is_behind_denies_nobody() {
    let (plane, counter) = (Plane::new(0), Counter::default());
    plane.edit(json!({ "perMinute": 5, "perHour": 5, "atLeast": 5 }));
    assert!(plane.book(&counter).await.is_ok());
    assert!(plane.catch_up(), "who is to be woken by the edit is told of it");
}

#[tokio::test(start_paused = true)]
async fn who_is_booked_for_by_one_that_is_stopped_is_booked_for_by_the_next() {
    let plane = Plane { lost: Some(1), ..Plane::new(100) };
    let counter = Counter::default();
    // All wait for the first; the second then writes for all others, and is stopped in the middle of it.
    let second = tokio::time::timeout(Duration::from_secs(1), plane.book(&counter));
    let (first, second, others) = futures::join!(plane.book(&counter), second, plane.book_many(&counter, 3));
    assert!(second.is_err(), "it was to be stopped: {second:?}");
    assert!(first.is_ok() && others.iter().all(Result::is_ok), "{first:?} {others:?}");
    assert_eq!(*plane.writes.lock().unwrap(), [(1, true), (4, true)]);
    assert!(counter.waiting.lock().unwrap().is_empty());
}
