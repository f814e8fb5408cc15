use std::sync::{Arc, OnceLock};
use std::time::Duration;

use coppice_kinds::{ClusterManagers, Namespaces};
use coppice_runtime::controller::Controller as _;
use coppice_runtime::queue::{Queue, QueueSettings};
use coppice_scripted::{Sent, WriteAnswer};
use serde_json::json;

use super::super::{NamespaceKey, NamespaceRecords};
use super::*;
use crate::cluster_manager::{AllManagers, ClusterNamespaceManagers};
use crate::test_scene::{Scene, lines, reconcile, required, revision};

const CREATE: &str = "POST namespaces/ci-1/managednamespaces";
const STATUS: &str = "PUT namespaces/ci-1/managednamespaces/coppice/status";
const STORE: &str = "POST deletednamespaces";
const RESERVE: &str = "PUT coppiceconfigs/coppice/status";
const DELETE: &str = "DELETE namespaces/ci-1";

struct Governed {
    scene: Scene,
    records: Arc<NamespaceRecords>,
    managers: Arc<ClusterNamespaceManagers>,
}

impl Governed {
    /// The namespace `ci-1`, which has no record yet, and whose cluster manager deletes what is an hour old.
    async fn new() -> Self {
        let mut scene = Scene::new().with_settings();
        scene.namespace("ci-1", "u", false);
        let policy = json!({"name": "end", "when": {"phase": {"in": ["Stale"]}}, "then": {"delete": {}}});
        let spec = json!({
            "mode": "Enforce", "selector": {"names": ["ci-*"]}, "settle": "1s", "ttl": {"after": "1h"}, "policies": [policy],
        });
        scene.server.put::<ClusterManagers>(json!({"metadata": {"name": "ci"}, "spec": spec}));
        let counts = Queue::new(QueueSettings::default());
        let records = Arc::new(NamespaceRecords::new(Arc::clone(&scene.shared), counts));
        scene.followers.add(&records).await;
        records.started();
        let managers =
            Arc::new(ClusterNamespaceManagers::new(Arc::clone(&scene.shared), Arc::new(OnceLock::new())));
        scene.followers.add(&managers).await;
        Self { scene, records, managers }
    }

    /// The same, with a record, once its cluster manager may act on it.
    async fn due() -> Self {
        let this = Self::new().await;
        this.reconciled(&[WriteAnswer::Lost]).await;
        // What the watch would say.
        let shared = &this.scene.shared;
        let record =
            read::get::<ManagedNamespaces>(&shared.clients.reads, "ci-1", MANAGED_NAMESPACE_NAME).await;
        shared.managed_namespaces.upsert("ci-1", record.unwrap().unwrap());
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(reconcile(&this.managers, AllManagers).await, "done");
        this.scene.server.writes();
        this
    }

    /// What comes of a reconcile where writes are answered so, and which were made.
    async fn reconciled(&self, answers: &[WriteAnswer]) -> (&'static str, Vec<Sent>) {
        self.scene.server.answer_writes(answers.iter().copied());
        let end = reconcile(&self.records, NamespaceKey::new("ci-1")).await;
        (end, self.scene.server.writes())
    }

    fn namespace(&self) -> serde_json::Value {
        self.scene.server.object::<Namespaces>("", "ci-1")
    }
}

#[tokio::test(start_paused = true)]
async fn a_record_is_created_once_and_nothing_else_is_done_before_it_is_known() {
    for (answer, expected) in [
        (WriteAnswer::Done, "done"),
        // The namespace is.
        (WriteAnswer::Gone, "done"),
        // There is one, or may be one, which is not found.
        (WriteAnswer::Conflict, "behind"),
        (WriteAnswer::Never, "behind"),
        (WriteAnswer::Refused(403), "api"),
    ] {
        let governed = Governed::new().await;
        let (end, sent) = governed.reconciled(&[answer]).await;
        assert_eq!((end, lines(&sent)), (expected, vec![CREATE.to_owned()]), "{answer:?}");
        assert_eq!(sent[0].body["metadata"], json!({"name": "coppice", "namespace": "ci-1"}));
    }
    let governed = Governed::new().await;
    let (end, sent) = governed.reconciled(&[WriteAnswer::Lost]).await;
    assert_eq!((end, lines(&sent)), ("later", vec![CREATE.to_owned(), STATUS.to_owned()]), "it is read");
    assert_eq!(sent[1].body["status"]["manager"]["name"], "ci");
}

#[tokio::test(start_paused = true)]
async fn a_namespace_is_deleted_after_its_intent_its_record_and_its_budget_and_as_it_was_read() {
    let governed = Governed::due().await;
    let read = revision(&governed.namespace());
    let (_, sent) = governed.reconciled(&[]).await;
    assert_eq!(lines(&sent), [STATUS, STORE, RESERVE, DELETE, STATUS]);
    let intent = &sent[0].body["status"]["intent"];
    assert_eq!((&intent["action"], &intent["uid"]), (&json!("delete"), &json!("u")));
    assert_eq!(
        (&sent[1].body["metadata"]["name"], &sent[1].body["spec"]["uid"]),
        (&intent["id"], &json!("u"))
    );
    assert_eq!(required(&sent[3]), read);
    let outcome = &sent[4].body["status"];
    assert_eq!((&outcome["firings"], &outcome["lastFiring"]["id"]), (&json!(1), &intent["id"]));
    assert!(outcome["intent"].is_null(), "{outcome:#}");
}

#[tokio::test(start_paused = true)]
async fn a_namespace_is_not_deleted_where_one_of_these_writes_is_not_made() {
    let refused = [WriteAnswer::Refused(403), WriteAnswer::Refused(429)];
    for (done, answers, expected) in [
        // Its intent.
        (0, &refused[..], &[STATUS][..]),
        (0, &[WriteAnswer::Gone], &[STATUS]),
        // Its record: why it failed is written.
        (1, &refused, &[STATUS, STORE, STATUS]),
        (1, &[WriteAnswer::Gone], &[STATUS, STORE, STATUS]),
        (1, &[WriteAnswer::Never], &[STATUS, STORE, STATUS]),
        // Its part of the budget.
        (2, &refused, &[STATUS, STORE, RESERVE, STATUS]),
    ] {
        for answer in answers {
            let governed = Governed::due().await;
            let answers: Vec<_> = [WriteAnswer::Done; 2].into_iter().take(done).chain([*answer]).collect();
            let (_, sent) = governed.reconciled(&answers).await;
            assert_eq!(lines(&sent), expected, "{answer:?} after {done}");
            assert!(governed.namespace()["metadata"]["deletionTimestamp"].is_null());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_or_a_conflict_is_read_and_decided_again_before_the_next_write() {
    for (answers, expected) in [
        // Whether the intent is stored.
        (&[WriteAnswer::Lost][..], &[STATUS, STORE, RESERVE, DELETE, STATUS][..]),
        (&[WriteAnswer::Conflict], &[STATUS, STATUS, STORE, RESERVE, DELETE, STATUS]),
        (&[WriteAnswer::Never], &[STATUS, STATUS, STORE, RESERVE, DELETE, STATUS]),
        // The record.
        (&[WriteAnswer::Done, WriteAnswer::Lost], &[STATUS, STORE, RESERVE, DELETE, STATUS]),
        // The budget: if in doubt, too much of it is spent.
        (
            &[WriteAnswer::Done, WriteAnswer::Done, WriteAnswer::Conflict],
            &[STATUS, STORE, RESERVE, RESERVE, DELETE, STATUS],
        ),
        (
            &[WriteAnswer::Done, WriteAnswer::Done, WriteAnswer::Lost],
            &[STATUS, STORE, RESERVE, RESERVE, DELETE, STATUS],
        ),
    ] {
        let governed = Governed::due().await;
        let (_, sent) = governed.reconciled(answers).await;
        assert_eq!(lines(&sent), expected, "{answers:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_deletion_is_sent_again_only_after_a_conflict_and_then_as_the_namespace_is_by_now() {
    let done = [WriteAnswer::Done; 3];
    for (answer, deletions, firings) in [
        (WriteAnswer::Conflict, 2, 1),
        (WriteAnswer::Lost, 1, 1),
        (WriteAnswer::Gone, 1, 1),
        (WriteAnswer::Refused(403), 1, 0),
        (WriteAnswer::Never, 1, 0),
    ] {
        let governed = Governed::due().await;
        let read = revision(&governed.namespace());
        let (_, sent) = governed.reconciled(&[&done[..], &[answer]].concat()).await;
        let expected = [&[STATUS, STORE, RESERVE][..], &vec![DELETE; deletions], &[STATUS]].concat();
        assert_eq!(lines(&sent), expected, "{answer:?}");
        assert_eq!(required(&sent[3]), read, "{answer:?}");
        if deletions > 1 {
            assert_ne!(required(&sent[4])["resourceVersion"], read["resourceVersion"]);
        }
        let status = &sent[sent.len() - 1].body["status"];
        assert_eq!(status["firings"], firings, "{answer:?}");
        assert_eq!(status["intent"]["lastError"].is_string(), firings == 0, "{answer:?}: {status:#}");
    }
}
