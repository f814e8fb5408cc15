use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use coppice_destination::Destination;
use coppice_notify::outbox::{Deliver, OutboxLimits};
use coppice_notify::request::{DeliverError, DeliveryRequest};
use coppice_notify::webhook::Delivered;
use futures::channel::mpsc::{UnboundedReceiver, unbounded};
use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _};

use super::*;

/// Takes everything.
#[derive(Default)]
struct Receiver(Mutex<Vec<WebhookRequest>>);

impl Deliver for Receiver {
    fn deliver(&self, request: DeliveryRequest) -> BoxFuture<'_, Result<Delivered, DeliverError>> {
        let DeliveryRequest::Webhook(request) = request else { panic!("webhooks alone are sent") };
        self.0.lock().unwrap().push(*request);
        async { Ok(Delivered { status: 204, address: None }) }.boxed()
    }
}

/// An outbox for objects of a kind that Coppice does not know, and whose attempts have ended.
fn outbox(limits: OutboxLimits) -> (Arc<Receiver>, Outbox<String>, UnboundedReceiver<String>) {
    let receiver = Arc::new(Receiver::default());
    let deliver: Arc<dyn Deliver> = Arc::clone(&receiver) as Arc<dyn Deliver>;
    let (attempted, attempts) = unbounded();
    let enqueue = move |subject: String| drop(attempted.unbounded_send(subject));
    (receiver, Outbox::new(deliver, limits, enqueue), attempts)
}

fn now() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

fn intent(id: &str, action: Action) -> Intent {
    Intent {
        id: id.to_owned(),
        policy: "old".to_owned(),
        action,
        uid: "u".to_owned(),
        digest: String::new(),
        decided_at: now(),
        attempts: 0,
        next_attempt: None,
        last_error: None,
        reason: String::new(),
        evidence: BTreeMap::new(),
    }
}

fn hosts(host: &str) -> AllowList {
    AllowList::parse(&[host.to_owned()]).0
}

fn attempt(intent: &Intent) -> WebhookAttempt<'_> {
    let message = WebhookMessage {
        destination: Destination::parse("https://hook.example.org/x").unwrap(),
        limits: Some(hosts("hook.example.org")),
        body: b"{}".to_vec(),
    };
    WebhookAttempt { intent, namespace: "ci-1", message, hosts: hosts("*.example.org"), now: now() }
}

#[tokio::test]
async fn a_webhook_is_sent_for_an_object_of_any_kind_and_its_outcome_is_known_until_it_is_recorded() {
    let (receiver, outbox, mut attempts) = outbox(OutboxLimits::default());
    let decided = intent("id-1", Action::Webhook);
    assert_eq!(delivery(&outbox, Some(&decided)), Delivery::None);
    assert_eq!(submit(&outbox, "Expiry ci-1".to_owned(), attempt(&decided)), None);
    assert_eq!(delivery(&outbox, Some(&decided)), Delivery::InFlight);
    assert_eq!(attempts.next().await.as_deref(), Some("Expiry ci-1"));
    let delivered = Delivery::Delivered("204".to_owned());
    assert_eq!(delivery(&outbox, Some(&decided)), delivered);
    // What was written says nothing of the outcome.
    acknowledge(&outbox, Some(&decided), Some(&decided));
    assert_eq!(delivery(&outbox, Some(&decided)), delivered);
    acknowledge(&outbox, Some(&decided), None);
    assert_eq!(delivery(&outbox, Some(&decided)), Delivery::None);
    let requests = receiver.0.lock().unwrap();
    let [request] = &requests[..] else { panic!("{requests:?}") };
    assert_eq!((&*request.id, &*request.namespace, &*request.body), ("id-1", "ci-1", &b"{}"[..]));
    assert_eq!(request.allow, [hosts("*.example.org"), hosts("hook.example.org")]);
}

#[tokio::test]
async fn an_intent_of_another_action_has_no_webhook() {
    let (_receiver, outbox, mut attempts) = outbox(OutboxLimits::default());
    let webhook = intent("id-1", Action::Webhook);
    assert_eq!(submit(&outbox, "Expiry ci-1".to_owned(), attempt(&webhook)), None);
    assert!(attempts.next().await.is_some());
    let other = intent("id-1", Action::Delete);
    assert_eq!(delivery(&outbox, Some(&other)), Delivery::None);
    acknowledge(&outbox, Some(&other), None);
    assert_eq!(delivery(&outbox, Some(&webhook)), Delivery::Delivered("204".to_owned()));
}

#[tokio::test]
async fn what_an_outbox_has_no_room_for_is_tried_again_in_a_few_seconds() {
    let (_receiver, outbox, _attempts) =
        outbox(OutboxLimits { capacity_per_group: 1, ..OutboxLimits::default() });
    let (first, second) = (intent("id-1", Action::Webhook), intent("id-2", Action::Webhook));
    assert_eq!(submit(&outbox, "Expiry ci-1".to_owned(), attempt(&first)), None);
    let at = submit(&outbox, "Expiry ci-1".to_owned(), attempt(&second)).unwrap();
    assert!((2..12).contains(&at.duration_since(now()).as_secs()), "{at}");
    assert_eq!(delivery(&outbox, Some(&second)), Delivery::None);
}
