use std::sync::Mutex;

use coppice_kinds::{Configs, Subnamespaces};
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
