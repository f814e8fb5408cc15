use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use coppice_api::steps::Action;
use coppice_api::{CoppiceConfigSpec, Labels};
use coppice_runtime::clock::Clock;
use coppice_runtime::decode;
use coppice_runtime::leader::{Gate, gate};
use http::Method;
use serde_json::{Value, json};
use tokio::time::{Instant, advance};

use coppice_lifecycle::facts::Annotations;
use coppice_lifecycle::governor::Share;

use super::*;
use coppice_scripted::{Answer, scripted};

const NOW: &str = "2026-01-01T00:00:00Z";

/// The decision of some object: it stands for this many fresh reads.
struct Standing {
    reads: AtomicUsize,
    stands_for: usize,
    intent: Intent,
}

struct Facts(NamespaceFacts, PlatformSettings);

impl FreshFacts for Facts {
    fn namespace(&self) -> Option<&NamespaceFacts> {
        Some(&self.0)
    }

    fn settings(&self) -> &PlatformSettings {
        &self.1
    }

    fn age(&self) -> Duration {
        Duration::ZERO
    }
}

impl Decision for Standing {
    type Observation = Facts;
    type Interruption = &'static str;

    fn intent(&self) -> &Intent {
        &self.intent
    }

    async fn reverify(&self, _: Option<&Reservation>) -> Result<Facts, &'static str> {
        if self.reads.fetch_add(1, Ordering::Relaxed) >= self.stands_for {
            return Err("held");
        }
        Ok(Facts(
            namespace(),
            PlatformSettings::new(CoppiceConfigSpec::default(), "coppice-system", Vec::new()),
        ))
    }

    fn reverify_under(&self, facts: Facts, reservation: &Reservation) -> Result<Facts, &'static str> {
        let spec = reservation.settings.decoded().map_err(|_| "settings")?;
        if spec.protected.names.is_empty() { Ok(facts) } else { Err("protected") }
    }

    fn decided_by(&self, _: &Facts) -> DecidedBy {
        DecidedBy { kind: "NamespaceManager", name: "m".to_owned(), losses: None, notification: None }
    }
}

/// The intent of decisions of tests.
pub(crate) fn intent(action: Action) -> Intent {
    Intent {
        id: "fire-1".to_owned(),
        policy: "p".to_owned(),
        action,
        uid: namespace().uid,
        digest: "d".to_owned(),
        decided_at: NOW.parse().unwrap(),
        attempts: 0,
        next_attempt: None,
        last_error: None,
        reason: "TtlElapsed".to_owned(),
        evidence: BTreeMap::new(),
    }
}

/// The namespace that decisions of tests are about.
pub(crate) fn namespace() -> NamespaceFacts {
    NamespaceFacts {
        name: "a".to_owned(),
        uid: "u".to_owned(),
        resource_version: "7".to_owned(),
        created: NOW.parse().unwrap(),
        labels: Labels::default(),
        annotations: Annotations::default(),
        terminating: false,
    }
}

/// What a [`StepContext`] borrows.
pub(crate) struct Carrier {
    clients: Clients,
    permit: Permit,
    governor: Governor,
    configs: Store<Configs>,
    clock: ServerClock,
}

impl Carrier {
    /// With these clients, settings as an object, and a clock that agrees with the API server's.
    pub(crate) fn new(clients: Clients, settings: &Value) -> Self {
        let configs: Store<Configs> = Store::default();
        configs.upsert("", decode::item::<Configs>(&settings.to_string(), &()).unwrap().object.unwrap());
        let clock = Clock::following_tokio(NOW.parse().unwrap());
        let server_clock = ServerClock::new(clock.clone());
        server_clock.observe("Thu, 01 Jan 2026 00:00:00 GMT", clock.monotonic(), clock.monotonic());
        let permit = Gate::always(Duration::ZERO).permit().unwrap();
        Self { clients, permit, governor: Governor::default(), configs, clock: server_clock }
    }

    pub(crate) fn context(&self) -> StepContext<'_> {
        let Self { clients, permit, governor, configs, clock } = self;
        StepContext { clients, permit, governor, configs, share: Share::Managers(10), clock }
    }
}

pub(crate) fn settings(spec: &Value) -> Value {
    json!({"apiVersion": "coppice.dev/v1alpha1", "kind": "CoppiceConfig", "spec": spec,
           "metadata": {"name": "coppice", "uid": "s", "resourceVersion": "3", "generation": 1}})
}

/// Carries out a decision that stands for so many fresh reads, under settings with this spec, on an API server that takes
/// everything unless `otherwise` says something else about the n-th request of a method. What came of it, and the
/// requests in order.
async fn carry_out(
    stands_for: usize,
    spec: Value,
    otherwise: impl Fn(&Method, usize) -> Option<Answer> + Send + Sync + 'static,
) -> (Result<Deleted, String>, Vec<String>) {
    let permit = Gate::always(Duration::ZERO).permit().unwrap();
    carry_out_by(permit, stands_for, spec, otherwise).await
}

/// The same with a permit.
async fn carry_out_by(
    permit: Permit,
    stands_for: usize,
    spec: Value,
    otherwise: impl Fn(&Method, usize) -> Option<Answer> + Send + Sync + 'static,
) -> (Result<Deleted, String>, Vec<String>) {
    let (came, stored) = (Mutex::new(Vec::new()), settings(&spec));
    let known = stored.clone();
    let (clients, requests) = scripted(move |method, _, body| {
        let mut came = came.lock().unwrap();
        came.push(method.clone());
        let answer = otherwise(method, came.iter().filter(|m| *m == method).count());
        answer.unwrap_or_else(|| match *method {
            Method::POST => Answer::Object(201, json!({})),
            Method::PUT => {
                let mut written = stored.clone();
                written["status"] = body["status"].clone();
                written["metadata"]["resourceVersion"] = json!("4");
                Answer::Object(200, written)
            }
            Method::DELETE => {
                Answer::Object(200, json!({"apiVersion": "v1", "kind": "Status", "status": "Success"}))
            }
            // The namespace, after a DELETE that met an edit; or the settings.
            _ => Answer::Object(200, namespace_or_settings(&stored)),
        })
    });
    let carrier = Carrier { permit, ..Carrier::new(clients, &known) };
    let decision = Standing { reads: AtomicUsize::new(0), stands_for, intent: intent(Action::Delete) };
    let result = delete_namespace(carrier.context(), &decision).await.map(|(deleted, _)| deleted);
    let result = result.map_err(|stopped| match stopped {
        Stopped::Interrupted(why) => why.to_owned(),
        Stopped::NoNamespace => "no namespace".to_owned(),
        Stopped::NotLeading => "not leading".to_owned(),
        Stopped::NotReserved(_, error) => error.to_string(),
        Stopped::Failed(_, error) => error.to_string(),
    });
    let requests = requests.lock().unwrap().iter().map(|sent| sent.method.to_string()).collect();
    (result, requests)
}

/// Both kinds are read by a GET: what is not asked for is ignored.
fn namespace_or_settings(settings: &Value) -> Value {
    let mut object = settings.clone();
    object["metadata"]["uid"] = json!("u");
    object
}

const ALWAYS: usize = usize::MAX;

#[tokio::test(start_paused = true)]
async fn what_remains_is_stored_first_then_the_step_reserved_and_then_taken() {
    let (result, requests) = carry_out(ALWAYS, json!({}), |_, _| None).await;
    assert!(matches!(result, Ok(Deleted::Accepted(_))), "{result:?}");
    assert_eq!(requests, ["POST", "PUT", "DELETE"]);
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_has_lost_its_lease_deletes_nothing_and_has_no_failure_to_record() {
    let (gate_handle, gate) = gate(Duration::from_secs(10));
    gate_handle.renewed(Instant::now(), Duration::ZERO, 0);
    let permit = gate.permit().unwrap();
    advance(Duration::from_secs(10)).await;
    let (result, requests) = carry_out_by(permit, ALWAYS, json!({}), |_, _| None).await;
    assert_eq!(result.unwrap_err(), "not leading");
    assert_eq!(requests, ["POST", "PUT"]);
}

#[tokio::test(start_paused = true)]
async fn a_decision_that_does_not_stand_costs_nothing() {
    let (result, requests) = carry_out(0, json!({}), |_, _| None).await;
    assert_eq!((result.unwrap_err().as_str(), requests.len()), ("held", 0));
}

#[tokio::test(start_paused = true)]
async fn without_its_record_nothing_is_reserved_and_without_budget_nothing_is_deleted() {
    let refused = |method: &Method, _| (*method == Method::POST).then_some(Answer::Refused(403));
    let (result, requests) = carry_out(ALWAYS, json!({}), refused).await;
    assert!(result.unwrap_err().contains("its record, DeletedNamespace/fire-1, is not stored"));
    assert_eq!(requests, ["POST"]);
    let paused = json!({"governor": {"paused": true}});
    let (result, requests) = carry_out(ALWAYS, paused, |_, _| None).await;
    assert!(result.unwrap_err().contains("paused"), "the governor denies it");
    assert!(!requests.contains(&"DELETE".to_owned()), "{requests:?}");
}

#[tokio::test(start_paused = true)]
async fn the_settings_of_the_reservation_have_the_last_word() {
    let (result, requests) = carry_out(ALWAYS, json!({"protected": {"names": ["a"]}}), |_, _| None).await;
    assert_eq!(result.unwrap_err(), "protected");
    assert_eq!(requests, ["POST", "PUT"]);
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_changes_is_decided_again_within_one_reservation() {
    let edited = |method: &Method, n| (*method == Method::DELETE && n < 3).then_some(Answer::Refused(409));
    let (result, requests) = carry_out(ALWAYS, json!({}), edited).await;
    assert!(matches!(result, Ok(Deleted::Accepted(_))), "{result:?}");
    assert_eq!(requests, ["POST", "PUT", "DELETE", "GET", "DELETE", "GET", "DELETE"]);
    // The edit was a hold.
    let (result, requests) = carry_out(1, json!({}), edited).await;
    assert_eq!(result.unwrap_err(), "held");
    assert_eq!(requests, ["POST", "PUT", "DELETE", "GET"]);
    let for_ever = |method: &Method, _| (*method == Method::DELETE).then_some(Answer::Refused(409));
    let (result, requests) = carry_out(ALWAYS, json!({}), for_ever).await;
    assert!(result.unwrap_err().contains("the namespace changed between reading and deleting it"));
    assert_eq!(requests.iter().filter(|method| *method == "DELETE").count(), MAX_ATTEMPTS);
}
