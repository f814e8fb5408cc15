use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use coppice_kinds::Managers;
use coppice_notify::key::{SigningKey, SystemRandom};
use coppice_notify::outbox::Deliver;
use coppice_notify::request::{DeliverError, DeliveryRequest};
use coppice_notify::seal::Seal;
use coppice_notify::webhook::{Delivered, SendError, WebhookRequest};
use coppice_runtime::object::OwnKind as _;
use coppice_scripted::WriteAnswer;
use futures::channel::mpsc::{UnboundedReceiver, unbounded};
use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _};
use serde_json::{Value, json};

use super::super::super::NamespaceManagers;
use super::super::tests::{after_an_hour, begins_with, ended, following};
use crate::context::WebhookSubject;
use crate::outboxes::Outboxes;
use crate::test_scene::{Scene, lines};

const STATUS: &str = "PUT namespaces/ci-1/namespacemanagers/end/status";

/// A receiver that fails so, one attempt after the other, and takes what comes after that.
#[derive(Default)]
struct Receiver {
    fails: Mutex<VecDeque<SendError>>,
    received: Mutex<Vec<WebhookRequest>>,
}

impl Deliver for Receiver {
    fn deliver(&self, request: DeliveryRequest) -> BoxFuture<'_, Result<Delivered, DeliverError>> {
        let DeliveryRequest::Webhook(request) = request else { panic!("webhooks alone are sent") };
        self.received.lock().unwrap().push(*request);
        let fails = self.fails.lock().unwrap().pop_front();
        let answer = fails.map_or(Ok(Delivered { status: 204, address: None }), |error| Err(error.into()));
        async move { answer }.boxed()
    }
}

/// A namespace whose manager is due to call a webhook, and the receiver of that.
struct Due {
    scene: Scene,
    controller: Arc<NamespaceManagers>,
    receiver: Arc<Receiver>,
    attempts: Option<UnboundedReceiver<WebhookSubject>>,
}

impl Due {
    /// There is no key yet to sign with.
    async fn without_key(fails: impl IntoIterator<Item = SendError>) -> Self {
        let spec = after_an_hour(&json!({"webhook": {"url": "http://hook.ci-1.svc/x"}}));
        let (scene, controller) = following(Scene::new().with_settings(), &spec, &Value::Null).await;
        let fails = Mutex::new(fails.into_iter().collect());
        let receiver = Arc::new(Receiver { fails, ..Receiver::default() });
        Self { scene, controller, receiver, attempts: None }
    }

    async fn new(fails: impl IntoIterator<Item = SendError>) -> Self {
        let mut this = Self::without_key(fails).await;
        this.open();
        this
    }

    fn open(&mut self) {
        let key = SigningKey::generate(&SystemRandom::new()).unwrap();
        let receiver: Arc<dyn Deliver> = Arc::clone(&self.receiver) as Arc<dyn Deliver>;
        let (attempted, attempts) = unbounded();
        let enqueue = move |subject| drop(attempted.unbounded_send(subject));
        let outboxes = Outboxes::new(&receiver, Seal::new(&key).unwrap(), enqueue);
        assert_eq!(self.scene.shared.set_outboxes("key", || Ok::<_, Infallible>(outboxes)), Ok(true));
        self.attempts = Some(attempts);
    }

    /// How a reconcile ends where writes are answered so, of which these come first, and the status after it.
    async fn reconciled(&self, answers: &[WriteAnswer], expected: &[&str]) -> (&'static str, Value) {
        let (end, sent) = ended(&self.scene, &self.controller, answers).await;
        begins_with(&sent, expected);
        assert!(lines(&sent).iter().all(|line| line == STATUS), "{:?}", lines(&sent));
        (end, self.manager()["status"].clone())
    }

    /// Waits for the end of an attempt; whose webhook it is.
    async fn attempted(&mut self) -> WebhookSubject {
        self.attempts.as_mut().unwrap().next().await.unwrap()
    }

    fn manager(&self) -> Value {
        self.scene.server.object::<Managers>("ci-1", "end")
    }

    /// The ids of what was received.
    fn received(&self) -> Vec<String> {
        self.receiver.received.lock().unwrap().iter().map(|request| request.id.clone()).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn a_webhook_is_sent_once_its_intent_is_written_down_and_its_end_is_written_down_after_it() {
    let mut due = Due::new([]).await;
    let (end, decided) = due.reconciled(&[], &[STATUS]).await;
    let intent = &decided["intent"];
    assert_eq!(
        (end, &intent["action"], &intent["uid"]),
        ("done", &json!("webhook"), &json!("u")),
        "the end of the attempt enqueues it"
    );
    let subject = due.attempted().await;
    assert_eq!((subject.kind, &*subject.namespace, &*subject.name), (Managers::KIND, "ci-1", "end"));
    let request = due.receiver.received.lock().unwrap()[0].clone();
    assert_eq!((request.destination.url().as_str(), &*request.namespace), ("http://hook.ci-1.svc/x", "ci-1"));
    let body: Value = serde_json::from_slice(&request.body).unwrap();
    assert_eq!((&body["type"], &body["firing"]), (&json!("policy.fired"), &intent["id"]));
    assert_eq!(body["namespace"], json!({"name": "ci-1", "uid": "u"}));
    assert_eq!(body["manager"], json!({"namespace": "ci-1", "name": "end"}));
    let (_, outcome) = due.reconciled(&[], &[STATUS]).await;
    assert_eq!((&outcome["firings"], &outcome["lastFiring"]["id"]), (&json!(1), &intent["id"]));
    assert_eq!(
        (&outcome["lastFiring"]["result"], &outcome["intent"]),
        (&json!("WebhookDelivered"), &Value::Null)
    );
    let outbox = due.scene.shared.outboxes().unwrap().webhooks;
    assert_eq!(outbox.state(&request.id), None, "what is written down is not kept");
    due.reconciled(&[], &[]).await;
    assert_eq!(due.received(), [request.id]);
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_fails_or_is_not_answered_is_made_again_under_the_same_id() {
    let unavailable = SendError::Status { code: 503, excerpt: String::new(), retry_after: None };
    for (error, says) in [
        (unavailable, "the webhook receiver answered 503"),
        (SendError::Timeout { after: Duration::from_secs(10) }, "did not answer within 10 s"),
    ] {
        let mut due = Due::new([error]).await;
        due.reconciled(&[], &[STATUS]).await;
        due.attempted().await;
        let (end, failed) = due.reconciled(&[], &[STATUS]).await;
        let intent = &failed["intent"];
        assert_eq!((end, &failed["firings"], &intent["attempts"]), ("later", &json!(0), &json!(1)), "{says}");
        let last = intent["lastError"].as_str().unwrap();
        assert!(last.contains(says), "{last}");
        assert_eq!(due.received().len(), 1, "its time has not come");
        tokio::time::advance(Duration::from_secs(10)).await;
        due.reconciled(&[], &[]).await;
        due.attempted().await;
        let (_, outcome) = due.reconciled(&[], &[STATUS]).await;
        assert_eq!((&outcome["firings"], &outcome["lastFiring"]["id"]), (&json!(1), &intent["id"]), "{says}");
        let id = intent["id"].as_str().unwrap();
        assert_eq!(due.received(), [id, id], "{says}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_receiver_refuses_for_good_is_given_up() {
    let gone = SendError::Status { code: 410, excerpt: String::new(), retry_after: None };
    let mut due = Due::new([gone]).await;
    due.reconciled(&[], &[STATUS]).await;
    due.attempted().await;
    let (_, outcome) = due.reconciled(&[], &[STATUS]).await;
    assert_eq!((&outcome["firings"], &outcome["intent"]), (&json!(1), &Value::Null));
    assert_eq!(outcome["lastFiring"]["result"], "WebhookGivenUp");
    assert_eq!(due.received().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_end_that_could_not_be_written_down_is_written_again_and_nothing_is_sent_again() {
    for (answer, writes) in [(WriteAnswer::Conflict, 2), (WriteAnswer::Lost, 1)] {
        let mut due = Due::new([]).await;
        due.reconciled(&[], &[STATUS]).await;
        due.attempted().await;
        let (_, outcome) = due.reconciled(&[answer], &vec![STATUS; writes]).await;
        assert_eq!((&outcome["firings"], &outcome["intent"]), (&json!(1), &Value::Null), "{answer:?}");
        due.reconciled(&[], &[]).await;
        assert_eq!(due.received().len(), 1, "{answer:?}");
    }
    // One that is refused is written when it is looked at again.
    let mut due = Due::new([]).await;
    due.reconciled(&[], &[STATUS]).await;
    due.attempted().await;
    let (end, status) = due.reconciled(&[WriteAnswer::Refused(403)], &[STATUS]).await;
    assert_eq!((end, &status["firings"]), ("api", &json!(0)));
    let (_, outcome) = due.reconciled(&[], &[STATUS]).await;
    assert_eq!((&outcome["firings"], due.received().len()), (&json!(1), 1));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_sent_without_a_key_or_where_the_manager_says_otherwise_by_now() {
    // Its intent cannot be written down.
    for (answer, expected) in [(WriteAnswer::Refused(403), "api"), (WriteAnswer::Gone, "done")] {
        let due = Due::new([]).await;
        let (end, _) = due.reconciled(&[answer], &[STATUS]).await;
        assert_eq!((end, due.received().len()), (expected, 0), "{answer:?}");
    }
    let mut due = Due::without_key([]).await;
    let (end, decided) = due.reconciled(&[], &[STATUS]).await;
    assert_eq!((end, &decided["intent"]["action"]), ("later", &json!("webhook")), "it waits for the key");
    due.open();
    // Another replica has called it, which no watch has said.
    let (mut manager, intent) = (due.manager(), &decided["intent"]);
    let mut firing = json!({"action": "webhook", "result": "WebhookDelivered", "at": intent["decidedAt"]});
    for field in ["id", "policy", "reason", "digest"] {
        firing[field] = intent[field].clone();
    }
    (manager["status"]["firings"], manager["status"]["lastFiring"]) = (json!(1), firing);
    manager["status"].as_object_mut().unwrap().remove("intent");
    manager["metadata"]["resourceVersion"] = Value::Null;
    due.scene.server.put::<Managers>(manager);
    let (_, status) = due.reconciled(&[], &[]).await;
    assert_eq!((&status["firings"], due.received().len()), (&json!(1), 0));

    let mut due = Due::without_key([]).await;
    due.reconciled(&[], &[STATUS]).await;
    due.open();
    due.scene.server.remove::<Managers>("ci-1", "end");
    let (end, sent) = ended(&due.scene, &due.controller, &[]).await;
    assert_eq!((end, lines(&sent), due.received().len()), ("done", Vec::new(), 0));
}
