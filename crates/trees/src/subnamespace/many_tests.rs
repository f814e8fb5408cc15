use std::sync::Mutex;

use coppice_api::names::FINALIZER;
use coppice_kinds::{Configs, Namespaces, Subnamespaces};
use coppice_runtime::queue::QueueSettings;
use coppice_runtime::read;
use coppice_scripted::Server;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::apply_support;

#[tokio::test(start_paused = true)]
async fn all_of_many_that_wait_for_a_quota_are_looked_at_once_though_it_does_not_change_again() {
    let server = Server::new();
    server.put::<Configs>(json!({"metadata": {"name": "coppice"}, "spec": {}}));
    for number in 0..400 {
        let metadata = json!({"name": format!("shop-{number:03}"), "namespace": "shop"});
        server.put::<Subnamespaces>(json!({"metadata": metadata, "spec": {}}));
    }
    let (context, controller, _followers) = apply_support::filled(&server, SubnamespaceController::new).await;
    let queue = context.turns.queue().unwrap().clone();
    let looks: Arc<Mutex<Vec<String>>> = Arc::default();
    // Whoever is looked at cannot be served.
    let look = {
        let (looks, controller) = (Arc::clone(&looks), Arc::clone(&controller));
        move |key: SubnamespaceKey| {
            let (looks, controller) = (Arc::clone(&looks), Arc::clone(&controller));
            async move {
                let _looked_at = LookedAt { controller: &controller, key: &key };
                looks.lock().unwrap().push(key.name.to_string());
                ReconcileResult::Done
            }
        }
    };
    let running = queue.clone();
    tokio::spawn(async move { running.run(look, (), CancellationToken::new()).await });
    // What becomes due within this time is looked at; how many looks there were.
    let after = async |time: Duration| {
        tokio::time::advance(time).await;
        for _ in 0..10_000 {
            tokio::task::yield_now().await;
        }
        std::mem::take(&mut *looks.lock().unwrap()).len()
    };
    assert_eq!(after(Duration::ZERO).await, 400, "they are new");
    controller.enqueue_waiting("shop", &queue);
    // Of 64 changes none has begun.
    assert_eq!(after(Duration::ZERO).await, 16 + 2 * 64);
    assert_eq!(after(Duration::from_millis(200)).await, 0, "not all at once");
    assert_eq!(after(Duration::from_millis(100)).await, 16 + 2 * 64);
    assert_eq!(after(Duration::from_millis(300)).await, 400 - 2 * (16 + 2 * 64));
    assert_eq!(after(Duration::from_secs(10)).await, 0, "each once for a change");
}

/// One that is being deleted, with so many below it. `until`: consent to delete these, too.
fn with_below(until: Option<&str>, below: usize) -> Server {
    let server = Server::new();
    server.put::<Configs>(json!({"metadata": {"name": "coppice"}, "spec": {}}));
    server.put::<Subnamespaces>(top(until, "1"));
    server.put::<Namespaces>(json!({"metadata": {"name": "shop-web"}}));
    for number in 0..below {
        let metadata = json!({"name": format!("shop-web-{number:03}"), "namespace": "shop-web"});
        server.put::<Subnamespaces>(json!({"metadata": metadata, "spec": {}}));
    }
    server
}

/// The Subnamespace above those, at this revision.
fn top(until: Option<&str>, revision: &str) -> serde_json::Value {
    let metadata = json!({
        "name": "shop-web", "namespace": "shop", "uid": "s", "resourceVersion": revision, "finalizers": [FINALIZER],
        "creationTimestamp": "2025-12-31T00:00:00Z", "deletionTimestamp": "2026-01-01T00:00:00Z",
        "deletionGracePeriodSeconds": 0
    });
    let spec = json!({"quota": {"hard": {"pods": "4"}}, "cascadeUntil": until});
    json!({"metadata": metadata, "spec": spec, "status": {"namespaceUid": "uid-of-shop-web"}})
}

/// In an hour.
const SOON: &str = "2026-01-01T01:00:00Z";

#[tokio::test(start_paused = true)]
async fn the_many_below_one_that_goes_with_them_are_not_looked_through_with_each_event() {
    for (below, waits) in [(64, false), (65, true)] {
        let server = with_below(Some(SOON), below);
        let (_, controller, _followers) = apply_support::filled(&server, SubnamespaceController::new).await;
        let key = SubnamespaceKey::new("shop", "shop-web");
        // They were looked through just now.
        assert_eq!(controller.cascades.until(&key), None);
        let due = Instant::now() + Duration::from_millis(100);
        let end = Arc::clone(&controller).reconcile(key).await;
        assert_eq!(end == ReconcileResult::Waits(due), waits, "{below}: {end:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn of_many_below_one_that_is_deleted_all_hear_of_consent_and_nobody_of_the_others_that_go() {
    for (below, again) in [(64, 64), (65, 0)] {
        let server = with_below(None, below);
        let (context, controller, _followers) =
            apply_support::filled(&server, SubnamespaceController::new).await;
        let enqueued = |until: Option<&str>, revision: &str| {
            let object = read::decoded::<Subnamespaces>(top(until, revision).to_string().as_bytes(), &());
            context.subnamespaces.upsert("shop", object.unwrap());
            let queue = Queue::new(QueueSettings::default());
            controller.enqueue_announced("shop", "shop-web", &queue);
            queue.len()
        };
        assert_eq!(enqueued(None, "2"), 0, "nobody has consented");
        assert_eq!(enqueued(Some(SOON), "3"), below);
        assert_eq!(enqueued(Some(SOON), "4"), again, "{below}");
    }
}
