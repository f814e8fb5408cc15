use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use coppice_kinds::Managers;
use coppice_lifecycle::record::StepOutcome;
use coppice_runtime::clock::{Clock, SeededRng};
use coppice_runtime::decode;
use coppice_runtime::events::Events;
use coppice_runtime::kind::Kind;
use coppice_runtime::leader::Gate;
use coppice_runtime::metrics::Metrics;
use coppice_runtime::server_clock::ServerClock;
use http::Method;
use serde_json::{Value, json};

use super::*;
use crate::OperatorOptions;
use coppice_scripted::{Answer, scripted};

type Manager = <Managers as Kind>::Object;

/// What becomes of a write of the status.
#[derive(Clone, Copy, Debug)]
enum Put {
    /// It is stored.
    Taken,
    /// It is stored, and the answer says that it timed out.
    AnswerLost,
    /// Somebody else has written before.
    Conflict,
    /// Another replica has recorded what came of the intent before.
    RecordedByAnother,
    /// It is refused, for now.
    Overloaded,
    /// The object is gone.
    Gone,
}

/// A manager in whose status the intent to delete its namespace is.
fn manager() -> Value {
    json!({
        "apiVersion": "coppice.dev/v1alpha1", "kind": "NamespaceManager",
        "metadata": {
            "name": "m", "namespace": "a", "uid": "u", "resourceVersion": "7", "generation": 1,
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {"policies": [{"name": "end", "when": {"ttl": {"after": "1h"}}, "then": {"delete": {}}}]},
        "status": {"observedGeneration": 1, "intent": {
            "id": "fire-1", "policy": "end", "action": "delete", "uid": "n", "digest": "d", "reason": "TtlElapsed",
            "decidedAt": "2026-01-01T00:00:00Z", "evidence": {},
        }},
    })
}

/// The next revision of an object.
fn newer(object: &mut Value) {
    let revision: u64 = object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
    object["metadata"]["resourceVersion"] = (revision + 1).to_string().into();
}

/// An API server with the manager, whose writes end like this, and the operator.
struct Scene {
    shared: ControllerContext,
    stored: Arc<Mutex<Option<Value>>>,
}

impl Scene {
    fn new(puts: &[Put]) -> Self {
        let stored = Arc::new(Mutex::new(Some(manager())));
        let puts = Mutex::new(puts.iter().copied().collect::<VecDeque<_>>());
        let server = Arc::clone(&stored);
        let (clients, _) = scripted(move |method, _, body| {
            let mut stored = server.lock().unwrap();
            let Some(object) = stored.as_mut() else { return Answer::Refused(404) };
            if method != Method::PUT {
                return Answer::Object(200, object.clone());
            }
            let put = puts.lock().unwrap().pop_front().unwrap_or(Put::Taken);
            match put {
                Put::Taken | Put::AnswerLost => {
                    assert_eq!(
                        body["metadata"]["resourceVersion"], object["metadata"]["resourceVersion"],
                        "a write names the revision that it was decided on"
                    );
                    object["status"] = body["status"].clone();
                    newer(object);
                    match put {
                        Put::Taken => Answer::Object(200, object.clone()),
                        _ => Answer::Refused(504),
                    }
                }
                Put::Conflict => {
                    newer(object);
                    Answer::Refused(409)
                }
                Put::RecordedByAnother => {
                    object["status"] = json!({"observedGeneration": 1, "firings": 1});
                    newer(object);
                    Answer::Refused(409)
                }
                Put::Overloaded => Answer::Refused(429),
                Put::Gone => {
                    *stored = None;
                    Answer::Refused(404)
                }
            }
        });
        let clock = Clock::following_tokio("2026-01-01T01:00:00Z".parse().unwrap());
        let (server_clock, metrics) = (ServerClock::new(clock.clone()), Metrics::new("test"));
        let events = Events::new(&clients, clock, metrics.clone(), "test", SeededRng::new(1));
        let setup = OperatorOptions { own_namespace: "coppice-system".to_owned(), scale_kinds: Vec::new() };
        let gate = Gate::always(Duration::ZERO);
        let shared = ControllerContext::new(setup, clients, server_clock, gate, metrics, events);
        Self { shared, stored }
    }

    /// Records that the namespace was deleted. What is to be done then, and the reasons of what is reported.
    async fn record_deletion(&self) -> (Applied<Manager>, Vec<Reason>) {
        let permit = self.shared.gate.permit().unwrap();
        let with_next_plan = |_: &Manager, status| status;
        let writer = StatusWriter {
            shared: &self.shared,
            permit: &permit,
            store: &self.shared.managers,
            with_next_plan,
        };
        let object = decoded();
        let intent = object.status.steps.intent.clone().unwrap();
        let (applied, batch) =
            writer.record_outcome(intent, StepOutcome::Deleted, object, &BTreeSet::new()).await;
        (applied, batch.events.iter().map(|event| event.reason).collect())
    }

    /// Saves a plan that gives up the intent. What is to be done then, and the reasons of what is reported.
    async fn save_plan(&self) -> (Applied<Manager>, Vec<Reason>) {
        let permit = self.shared.gate.permit().unwrap();
        let with_next_plan = |_: &Manager, status| status;
        let writer = StatusWriter {
            shared: &self.shared,
            permit: &permit,
            store: &self.shared.managers,
            with_next_plan,
        };
        let object = decoded();
        let mut status = (*object.status).clone();
        status.steps.intent = None;
        let given_up =
            PlannedEvent { warning: false, reason: Reason::Abandoned, message: "given up".to_owned() };
        let batch = EventBatch { events: vec![given_up], intent: None };
        let (applied, batch) = writer.save_plan(&object, &status, batch).await;
        (applied, batch.events.iter().map(|event| event.reason).collect())
    }

    fn status(&self) -> Value {
        self.stored.lock().unwrap().as_ref().unwrap()["status"].clone()
    }
}

fn decoded() -> Manager {
    decode::item::<Managers>(&manager().to_string(), &()).unwrap().object.unwrap()
}

#[tokio::test(start_paused = true)]
async fn an_outcome_is_recorded_once_and_reported_once_whatever_becomes_of_its_writes() {
    for puts in [
        &[Put::Taken][..],
        &[Put::AnswerLost],
        &[Put::Conflict],
        &[Put::Overloaded],
        &[Put::Overloaded, Put::Conflict, Put::AnswerLost],
        &[Put::Conflict; 4],
    ] {
        let scene = Scene::new(puts);
        let (applied, reported) = scene.record_deletion().await;
        assert!(matches!(applied, Applied::Replan(_)), "{puts:?}");
        assert_eq!(reported, [Reason::NamespaceDeleted], "{puts:?}");
        let status = scene.status();
        assert_eq!(
            (&status["firings"], &status["lastFiring"]["id"]),
            (&json!(1), &json!("fire-1")),
            "{puts:?}"
        );
        assert!(status["intent"].is_null(), "{puts:?}: {status:#}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_another_replica_has_recorded_is_not_reported_again() {
    let scene = Scene::new(&[Put::RecordedByAnother]);
    let (applied, reported) = scene.record_deletion().await;
    assert!(matches!(applied, Applied::Replan(newer) if newer.status.steps.firings == 1));
    assert_eq!(reported, []);
}

#[tokio::test(start_paused = true)]
async fn an_outcome_is_reported_though_its_object_went_with_its_namespace() {
    for puts in [&[Put::Gone][..], &[Put::Conflict, Put::Gone]] {
        let (applied, reported) = Scene::new(puts).record_deletion().await;
        assert!(matches!(applied, Applied::CheckAt(None)), "{puts:?}");
        assert_eq!(reported, [Reason::NamespaceDeleted], "{puts:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_outcome_that_cannot_be_recorded_is_not_reported_and_tried_again() {
    for puts in [[Put::Overloaded; MAX_ATTEMPTS], [Put::Conflict; MAX_ATTEMPTS]] {
        let scene = Scene::new(&puts);
        let (applied, reported) = scene.record_deletion().await;
        assert!(matches!(applied, Applied::Failed(_)), "{puts:?}");
        assert_eq!(reported, [], "{puts:?}");
        assert_eq!(scene.status()["intent"]["id"], "fire-1", "the next reconcile finds it");
    }
}

#[tokio::test(start_paused = true)]
async fn a_plan_is_reported_only_if_it_was_written() {
    for (put, is_written) in [
        (Put::Taken, true),
        (Put::AnswerLost, true),
        (Put::Conflict, false),
        (Put::RecordedByAnother, false),
        (Put::Overloaded, false),
        (Put::Gone, false),
    ] {
        let (_, reported) = Scene::new(&[put]).save_plan().await;
        let expected: &[Reason] = if is_written { &[Reason::Abandoned] } else { &[] };
        assert_eq!(reported, expected, "{put:?}");
    }
}
