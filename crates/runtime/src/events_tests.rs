use http::{Method, Request, Response};
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::{Value, json};
use tower::BoxError;

use super::*;
use crate::client::Deadlines;
use crate::server_clock::ServerClock;

/// What was sent.
type Sent = Arc<Mutex<Vec<(Method, Value)>>>;

/// Events on an API server that takes all of them, and what was sent to it.
fn events() -> (Events, Sent) {
    let sent = Sent::default();
    let log = Arc::clone(&sent);
    let service = tower::service_fn(move |request: Request<Body>| {
        let log = Arc::clone(&log);
        async move {
            let (parts, body) = request.into_parts();
            let body = serde_json::from_slice(&body.collect().await?.to_bytes()).unwrap_or(Value::Null);
            log.lock().unwrap().push((parts.method, body));
            Ok::<_, BoxError>(Response::new(axum::body::Body::from(json!({}).to_string())))
        }
    });
    let (clock, metrics) =
        (Clock::following_tokio("2026-01-01T00:00:00Z".parse().unwrap()), Metrics::new("test"));
    let server_clock = ServerClock::new(clock.clone());
    let clients = Clients::over(&service, Deadlines::default(), &server_clock, &metrics);
    (Events::new(&clients, clock, metrics, "test", SeededRng::new(1)), sent)
}

fn about() -> ObjectReference {
    let text = |text: &str| Some(text.to_owned());
    ObjectReference {
        kind: text("Gadget"),
        namespace: text("n"),
        name: text("g"),
        uid: text("u"),
        ..ObjectReference::default()
    }
}

/// The verbs, and the notes of those that were written as Events of their own.
fn written(sent: &Sent) -> Vec<(Method, Value)> {
    let sent = sent.lock().unwrap();
    sent.iter().map(|(method, body)| (method.clone(), body["note"].clone())).collect()
}

#[tokio::test(start_paused = true)]
async fn the_same_again_is_one_more_of_a_series_for_a_while() {
    let (events, sent) = events();
    for (note, later) in [("1 of 2", 0), ("2 of 2", 60), ("1 of 3", 360)] {
        tokio::time::advance(Duration::from_secs(later)).await;
        events.publish(about(), true, "ActionFailed", "Delete", note);
        events.flush().await;
    }
    let expected =
        [(Method::POST, json!("1 of 2")), (Method::PATCH, Value::Null), (Method::POST, json!("1 of 3"))];
    assert_eq!(written(&sent), expected);
}

#[tokio::test(start_paused = true)]
async fn what_is_said_of_another_spec_is_an_event_of_its_own() {
    let (events, sent) = events();
    for (generation, note) in [(1, "ask for 10"), (1, "ask for 9"), (2, "ask for 8"), (2, "ask for 7")] {
        events.publish_of_spec((about(), generation), true, "QuotaRefused", "GrowTree", note);
        events.flush().await;
    }
    let expected = [
        (Method::POST, json!("ask for 10")),
        (Method::PATCH, Value::Null),
        (Method::POST, json!("ask for 8")),
        (Method::PATCH, Value::Null),
    ];
    assert_eq!(written(&sent), expected);
}

fn key(name: &str, warning: bool) -> EventKey {
    EventKey {
        uid: format!("uid-{name}"),
        generation: None,
        kind: "Subnamespace".to_owned(),
        namespace: Some("shop".to_owned()),
        name: name.to_owned(),
        warning,
        reason: "QuotaGranted".to_owned(),
        action: "GrowTree".to_owned(),
    }
}

fn correlator() -> Correlator {
    Correlator { rng: SeededRng::new(1), series: BTreeMap::new() }
}

#[tokio::test(start_paused = true)]
async fn an_event_that_is_seen_again_within_minutes_is_one_more_of_its_series() {
    let mut correlator = correlator();
    assert_eq!(correlator.count_up(&key("a", false)), None);
    correlator.begin(&key("a", false), 0xab);
    for count in 2..5 {
        tokio::time::advance(SERIES_WINDOW / 2).await;
        let event = "a.00000000000000ab".to_owned();
        assert_eq!(correlator.count_up(&key("a", false)), Some((event, count)));
    }
    assert_eq!(correlator.count_up(&key("a", true)), None, "a warning is another one");
    assert_eq!(correlator.count_up(&key("b", false)), None);
    tokio::time::advance(SERIES_WINDOW).await;
    assert_eq!(correlator.count_up(&key("a", false)), None);
    assert!(correlator.series.is_empty());
}

#[tokio::test(start_paused = true)]
async fn of_too_many_series_the_oldest_are_forgotten() {
    let mut correlator = correlator();
    let name = |number: usize| format!("n-{number:05}");
    for of in 0..MAX_SERIES {
        correlator.begin(&key(&name(of), false), 1);
        tokio::time::advance(Duration::from_millis(1)).await;
    }
    // The first is seen again, so that the second is the oldest.
    assert_eq!(correlator.count_up(&key(&name(0), false)).map(|(_, count)| count), Some(2));
    tokio::time::advance(Duration::from_millis(1)).await;
    correlator.begin(&key("one-more", false), 7);
    assert_eq!(correlator.series.len(), MAX_SERIES);
    let known = [0, 1, 2].map(|of| correlator.series.contains_key(&key(&name(of), false).identity()));
    assert_eq!(known, [true, false, true]);
    // What was removed on the API server begins again, and takes no other's place.
    correlator.begin(&key("one-more", false), 8);
    assert_eq!(correlator.series.len(), MAX_SERIES);
    assert_eq!(correlator.count_up(&key("one-more", false)).unwrap().0, "one-more.0000000000000008");
    assert!(correlator.series.contains_key(&key(&name(2), false).identity()));
}

#[cfg(debug_assertions)]
#[tokio::test]
#[should_panic(expected = "Reconciled is the reason of an Event")]
async fn a_reason_that_is_not_said_to_be_in_events_is_found_by_every_test_that_publishes_it() {
    let (events, _) = events();
    events.publish(about(), false, "Reconciled", "Manage", "all is well");
}
