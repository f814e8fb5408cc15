//! Deliveries beside the reconciles, with a deliverer that waits until it is released.
#![allow(clippy::unwrap_used, reason = "the helpers of a test fail it by a panic")]

/// With rules for what one recipient gets, and for channels that fail.
#[path = "outbox/ruled.rs"]
mod ruled;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use coppice_api::channel::SlackChannel;
use coppice_notify::channel::{ChannelError, Headline, SlackRequest};
use coppice_notify::outbox::{
    AttemptFailure, AttemptState, Deliver, DigestRule, GroupPauseRule, Outbox, OutboxLimits, OutboxRules,
    SubmitError, Submitted,
};
use coppice_notify::request::{DeliverError, DeliveryRequest};
use coppice_notify::webhook::{Delivered, NoConnection, SendError, WebhookRequest};
use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::Timestamp;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{oneshot, watch};

use crate::support::{now, request};

type DeliveryResult = Result<Delivered, DeliverError>;
const OK: Delivered = Delivered { status: 200, address: None };

/// Every delivery waits for its answer; a delivery to `/panic` panics.
struct Scripted {
    waiting: Mutex<HashMap<String, (Timestamp, oneshot::Sender<DeliveryResult>)>>,
    count: watch::Sender<usize>,
}

impl Scripted {
    fn new() -> Arc<Self> {
        Arc::new(Self { waiting: Mutex::default(), count: watch::Sender::new(0) })
    }

    /// Waits until exactly so many deliveries are under way.
    async fn under_way(&self, count: usize) {
        let mut watched = self.count.subscribe();
        let reached =
            tokio::time::timeout(Duration::from_secs(30), watched.wait_for(|now| *now == count)).await;
        assert!(reached.is_ok(), "{} deliveries are under way, not {count}", *self.count.borrow());
    }

    fn complete(&self, id: &str, complete: DeliveryResult) -> Timestamp {
        let (at, webhook_client) = self.waiting.lock().unwrap().remove(id).unwrap();
        self.count.send_modify(|count| *count -= 1);
        webhook_client.send(complete).unwrap();
        at
    }

    fn is_waiting(&self, id: &str) -> bool {
        self.waiting.lock().unwrap().contains_key(id)
    }
}

impl Deliver for Scripted {
    fn deliver(&self, request: DeliveryRequest) -> BoxFuture<'_, DeliveryResult> {
        let (id, at) = match request {
            DeliveryRequest::Webhook(request) => {
                assert!(request.destination.url().path() != "/panic", "a delivery that panics");
                (request.id, request.now)
            }
            DeliveryRequest::Slack(request) => (request.id, now()),
            DeliveryRequest::ChannelWebhook(_)
            | DeliveryRequest::Email(_)
            | DeliveryRequest::Invalid { .. } => {
                unreachable!("webhooks and messages in Slack are submitted")
            }
        };
        let (webhook_client, receiver) = oneshot::channel();
        self.waiting.lock().unwrap().insert(id, (at, webhook_client));
        self.count.send_modify(|count| *count += 1);
        async move { receiver.await.unwrap() }.boxed()
    }
}

struct TestOutbox {
    scripted: Arc<Scripted>,
    outbox: Outbox<String>,
    enqueued: UnboundedReceiver<String>,
}

fn bench(limits: OutboxLimits) -> TestOutbox {
    let scripted = Scripted::new();
    let (enqueue, enqueued): (UnboundedSender<String>, _) = unbounded_channel();
    let outbox = Outbox::new(scripted.clone(), limits, move |key| enqueue.send(key).unwrap());
    TestOutbox { scripted, outbox, enqueued }
}

impl TestOutbox {
    fn submit_of(&self, namespace: &str, id: &str, url: &str) -> Result<Submitted, SubmitError> {
        let request = WebhookRequest { id: id.to_owned(), ..request(url, &["*.svc"]) };
        self.outbox.submit(namespace, format!("key of {id}"), 0, request)
    }

    fn submit(&self, id: &str, url: &str) -> Result<Submitted, SubmitError> {
        self.submit_of("team", id, url)
    }

    fn accept(&self, id: &str, url: &str) {
        assert_eq!(self.submit(id, url), Ok(Submitted::Accepted), "{id}");
    }
}

#[tokio::test]
async fn a_result_enqueues_its_object_and_stays_until_it_is_acknowledged() {
    let mut bench = bench(OutboxLimits::default());
    assert_eq!(bench.outbox.state("a"), None);
    bench.accept("a", "http://a.svc/");
    assert_eq!(bench.outbox.state("a"), Some(AttemptState::InFlight));
    bench.scripted.under_way(1).await;
    assert_eq!(bench.submit("a", "http://a.svc/"), Ok(Submitted::AlreadyInFlight));
    bench.scripted.complete("a", Ok(OK));
    assert_eq!(bench.enqueued.recv().await.unwrap(), "key of a");
    assert_eq!(bench.outbox.state("a"), Some(AttemptState::Done(Ok(OK))));
    assert_eq!(bench.submit("a", "http://a.svc/"), Ok(Submitted::AlreadyDone));
    assert_eq!(bench.outbox.in_flight(), 0);
    bench.outbox.acknowledge("a");
    assert_eq!(bench.outbox.state("a"), None);
    bench.accept("a", "http://a.svc/");
    bench.scripted.under_way(1).await;
}

#[tokio::test]
async fn a_failure_says_whether_to_try_again_and_when() {
    let mut bench = bench(OutboxLimits::default());
    bench.accept("a", "http://a.svc/");
    bench.scripted.under_way(1).await;
    let retry_after = Some(Duration::from_secs(9));
    bench
        .scripted
        .complete("a", Err(SendError::Status { code: 503, excerpt: "secret".into(), retry_after }.into()));
    bench.enqueued.recv().await.unwrap();
    let failure = AttemptFailure {
        message: "the webhook receiver answered 503".into(),
        permanent: false,
        retry_after,
        by_channel: true,
    };
    assert_eq!(bench.outbox.state("a"), Some(AttemptState::Done(Err(failure))));
}

#[tokio::test]
async fn a_panic_is_a_failure_of_that_delivery_only() {
    let mut bench = bench(OutboxLimits { concurrency: 1, ..OutboxLimits::default() });
    bench.accept("a", "http://a.svc/panic");
    assert_eq!(bench.enqueued.recv().await.unwrap(), "key of a");
    let Some(AttemptState::Done(Err(failure))) = bench.outbox.state("a") else { panic!("no failure") };
    assert!(!failure.permanent);
    bench.accept("b", "http://a.svc/");
    bench.scripted.under_way(1).await;
}

#[tokio::test]
async fn a_slow_host_leaves_slots_for_the_others() {
    let mut bench = bench(OutboxLimits { concurrency: 3, per_host: 2, ..OutboxLimits::default() });
    for id in ["slow-1", "slow-2", "slow-3", "slow-4"] {
        bench.accept(id, "http://slow.svc/");
    }
    bench.scripted.under_way(2).await;
    bench.accept("quick", "http://quick.svc/");
    bench.scripted.under_way(3).await;
    assert!(bench.scripted.is_waiting("quick") && !bench.scripted.is_waiting("slow-3"));
    // All slots are taken; the next one gets the first that is free.
    bench.accept("other", "http://other.svc/");
    bench.scripted.complete("quick", Ok(OK));
    bench.enqueued.recv().await.unwrap();
    bench.scripted.under_way(3).await;
    assert!(bench.scripted.is_waiting("other"));
    bench.scripted.complete("slow-1", Ok(OK));
    bench.enqueued.recv().await.unwrap();
    bench.scripted.under_way(3).await;
    assert!(bench.scripted.is_waiting("slow-3"));
}

#[tokio::test(start_paused = true)]
async fn the_signed_time_counts_the_wait() {
    let mut bench = bench(OutboxLimits { concurrency: 1, ..OutboxLimits::default() });
    bench.accept("a", "http://a.svc/");
    bench.scripted.under_way(1).await;
    bench.accept("b", "http://b.svc/");
    tokio::time::advance(Duration::from_mins(1)).await;
    assert_eq!(bench.scripted.complete("a", Ok(OK)), now());
    bench.enqueued.recv().await.unwrap();
    bench.scripted.under_way(1).await;
    assert_eq!(bench.scripted.complete("b", Ok(OK)), now() + Duration::from_mins(1));
}

#[tokio::test]
async fn a_full_outbox_says_so() {
    let bench = bench(OutboxLimits { capacity: 3, capacity_per_group: 2, ..OutboxLimits::default() });
    bench.accept("a1", "http://a.svc/");
    bench.accept("a2", "http://b.svc/");
    let full = bench.submit("a3", "http://c.svc/").unwrap_err();
    assert_eq!(full, SubmitError::GroupFull { group: "team".into(), capacity: 2 });
    assert_eq!(bench.submit_of("other", "b", "http://a.svc/"), Ok(Submitted::Accepted));
    let full = bench.submit_of("third", "c", "http://a.svc/").unwrap_err();
    assert_eq!(
        full.to_string(),
        "3 webhooks and messages are waiting already; this one is tried again later"
    );
    assert_eq!(bench.outbox.in_flight(), 3);
}

#[tokio::test]
async fn namespaces_take_turns_however_many_hosts_one_of_them_calls() {
    let mut bench = bench(OutboxLimits { concurrency: 4, per_group: 4, ..OutboxLimits::default() });
    for n in 0..40 {
        let url = format!("http://host-{n}.svc/");
        assert_eq!(bench.submit_of("greedy", &format!("greedy-{n}"), &url), Ok(Submitted::Accepted));
    }
    bench.scripted.under_way(4).await;
    for (namespace, id) in [("quiet", "quiet-0"), ("quiet", "quiet-1"), ("calm", "calm-0")] {
        assert_eq!(bench.submit_of(namespace, id, "http://hook.svc/"), Ok(Submitted::Accepted));
    }
    // What is under way ends; who waits follows by turns.
    for (ended, next) in [
        ("greedy-0", "greedy-4"),
        ("greedy-1", "quiet-0"),
        ("greedy-2", "calm-0"),
        ("greedy-3", "greedy-5"),
        ("greedy-4", "quiet-1"),
    ] {
        bench.scripted.complete(ended, Ok(OK));
        bench.enqueued.recv().await.unwrap();
        bench.scripted.under_way(4).await;
        assert!(bench.scripted.is_waiting(next), "{next} does not follow {ended}");
    }
}

#[tokio::test]
async fn a_namespace_takes_a_part_of_the_slots_only() {
    let bench = bench(OutboxLimits { concurrency: 4, per_group: 3, ..OutboxLimits::default() });
    for n in 0..10 {
        let url = format!("http://host-{n}.svc/");
        assert_eq!(bench.submit_of("greedy", &format!("greedy-{n}"), &url), Ok(Submitted::Accepted));
    }
    bench.scripted.under_way(3).await;
    assert_eq!(bench.submit_of("quiet", "quiet", "http://host-0.svc/"), Ok(Submitted::Accepted));
    bench.scripted.under_way(4).await;
    assert!(bench.scripted.is_waiting("quiet"));
}

#[tokio::test]
async fn who_crowds_a_full_outbox_makes_room_for_others() {
    let mut bench = bench(OutboxLimits { concurrency: 1, capacity: 3, ..OutboxLimits::default() });
    for id in ["greedy-0", "greedy-1", "greedy-2"] {
        assert_eq!(bench.submit_of("greedy", id, "http://a.svc/"), Ok(Submitted::Accepted));
    }
    let full = SubmitError::Full { capacity: 3 };
    assert_eq!(bench.submit_of("greedy", "greedy-3", "http://a.svc/"), Err(full.clone()));
    assert_eq!(bench.submit_of("quiet", "quiet-0", "http://b.svc/"), Ok(Submitted::Accepted));
    // The newest is dropped; its object is enqueued to submit it again, and finds no room.
    assert_eq!(bench.enqueued.recv().await.unwrap(), "key of greedy-2");
    assert_eq!(bench.outbox.state("greedy-2"), None);
    assert_eq!(bench.submit_of("greedy", "greedy-2", "http://a.svc/"), Err(full.clone()));
    assert_eq!(bench.submit_of("quiet", "quiet-1", "http://b.svc/"), Err(full));
    assert_eq!(bench.outbox.in_flight(), 3);
}

#[tokio::test]
async fn the_oldest_result_makes_room() {
    let mut bench = bench(OutboxLimits { capacity: 2, ..OutboxLimits::default() });
    for id in ["a", "b"] {
        bench.accept(id, "http://a.svc/");
        bench.scripted.under_way(1).await;
        bench.scripted.complete(id, Ok(OK));
        bench.enqueued.recv().await.unwrap();
    }
    bench.accept("c", "http://a.svc/");
    assert_eq!(bench.outbox.state("a"), None);
    assert_eq!(bench.outbox.state("b"), Some(AttemptState::Done(Ok(OK))));
}

/// Its object may have to wait for its turn behind thousands of others.
#[tokio::test]
async fn what_is_new_displaces_no_result_that_nobody_has_recorded() {
    let mut bench = bench(OutboxLimits { capacity: 2, ..OutboxLimits::default() });
    bench.accept("a", "http://a.svc/");
    bench.scripted.under_way(1).await;
    bench.scripted.complete("a", Ok(OK));
    bench.enqueued.recv().await.unwrap();
    bench.accept("b", "http://b.svc/");
    bench.accept("c", "http://c.svc/");
    assert_eq!(bench.outbox.state("a"), Some(AttemptState::Done(Ok(OK))));
    assert_eq!(bench.submit("d", "http://d.svc/"), Err(SubmitError::Full { capacity: 2 }));
    assert_eq!((bench.outbox.in_flight(), bench.outbox.capacity()), (2, 2));
}

#[tokio::test]
async fn what_is_acknowledged_in_flight_enqueues_nothing_unless_requested_again() {
    let mut bench = bench(OutboxLimits::default());
    bench.accept("a", "http://a.svc/");
    bench.accept("b", "http://a.svc/");
    bench.scripted.under_way(2).await;
    bench.outbox.acknowledge("a");
    bench.outbox.acknowledge("b");
    assert_eq!(bench.submit("b", "http://a.svc/"), Ok(Submitted::AlreadyInFlight));
    bench.scripted.complete("a", Ok(OK));
    bench.scripted.complete("b", Ok(OK));
    assert_eq!(bench.enqueued.recv().await.unwrap(), "key of b");
    assert_eq!(bench.outbox.shutdown(Duration::from_mins(1)).await, 0);
    assert_eq!(bench.outbox.state("a"), None);
    assert!(bench.enqueued.is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_is_withdrawn_before_its_turn_is_never_sent() {
    let mut bench = TestOutbox::with_rules();
    bench.message("m0", "U0");
    bench.scripted.under_way(1).await;
    let why = NoConnection::Refused;
    let refused = SendError::Connect { why, cause: String::new() };
    bench.deliver("m0", Err(DeliverError::Webhook(refused))).await;
    // The channel waits, and with it what comes next.
    for id in ["stale", "other"] {
        bench.message(id, "U1");
    }
    bench.outbox.withdraw("stale");
    assert_eq!(bench.outbox.state("stale"), None);
    tokio::time::advance(Duration::from_secs(1)).await;
    bench.scripted.under_way(1).await;
    assert!(bench.scripted.is_waiting("other"));
    // What is being attempted is not cut off.
    bench.outbox.withdraw("other");
    bench.scripted.complete("other", Ok(OK));
    bench.message("last", "U2");
    bench.scripted.under_way(1).await;
    assert!(bench.scripted.is_waiting("last"), "the group goes on");
    bench.deliver("last", Ok(OK)).await;
    assert_eq!((bench.outbox.state("other"), bench.outbox.in_flight()), (None, 0));
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_finishes_what_it_can_and_aborts_the_others() {
    let mut bench = bench(OutboxLimits { concurrency: 2, per_host: 1, ..OutboxLimits::default() });
    bench.accept("quick", "http://a.svc/");
    bench.accept("slow", "http://b.svc/");
    bench.scripted.under_way(2).await;
    bench.accept("waiting", "http://c.svc/");
    bench.accept("behind", "http://b.svc/");
    let outbox = bench.outbox.clone();
    let shutdown = tokio::spawn(async move { outbox.shutdown(Duration::from_secs(10)).await });
    tokio::task::yield_now().await;
    assert_eq!(bench.submit("late", "http://d.svc/"), Err(SubmitError::Closed));
    bench.scripted.complete("quick", Ok(OK));
    assert_eq!(bench.enqueued.recv().await.unwrap(), "key of quick");
    assert_eq!(shutdown.await.unwrap(), 1);
    assert_eq!(bench.outbox.state("quick"), Some(AttemptState::Done(Ok(OK))));
    for dropped in ["slow", "waiting", "behind"] {
        assert_eq!(bench.outbox.state(dropped), None);
    }
    assert_eq!(bench.outbox.in_flight(), 0);
}
