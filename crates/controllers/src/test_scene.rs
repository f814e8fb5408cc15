//! The operator's controllers on an API server of a few objects: for tests of what they write.

use std::sync::Arc;
use std::time::Duration;

use coppice_kinds::{Configs, Namespaces};
use coppice_runtime::clock::SeededRng;
use coppice_runtime::controller::Controller;
use coppice_runtime::events::Events;
use coppice_runtime::leader::Gate;
use coppice_runtime::metrics::Metrics;
use coppice_runtime::queue::ReconcileResult;
use coppice_scripted::{Followers, Sent, Server};
use serde_json::{Value, json};

use crate::{ControllerContext, OperatorOptions};

pub(crate) struct Scene {
    pub(crate) server: Server,
    pub(crate) shared: Arc<ControllerContext>,
    pub(crate) followers: Followers,
}

impl Scene {
    /// An operator that leads, on an API server that has nothing. It is 2026-01-01T00:00:00Z.
    pub(crate) fn new() -> Self {
        let server = Server::new();
        let (clients, server_clock) = server.clients();
        let (clock, metrics) = (server_clock.clock().clone(), Metrics::new("test"));
        let followers = Followers::new(&clients, &server_clock);
        let events = Events::new(&clients, clock, metrics.clone(), "test", SeededRng::new(1));
        let setup = OperatorOptions { own_namespace: "coppice-system".to_owned(), scale_kinds: Vec::new() };
        let gate = Gate::always(Duration::ZERO);
        let shared = ControllerContext::new(setup, clients, server_clock, gate, metrics, events);
        Self { server, shared: Arc::new(shared), followers }
    }

    /// Has settings of which every field has its default.
    pub(crate) fn with_settings(self) -> Self {
        self.server.put::<Configs>(json!({"metadata": {"name": "coppice"}, "spec": {}}));
        self
    }

    /// Has a namespace with this uid; one that is being deleted, if so.
    pub(crate) fn namespace(&self, name: &str, uid: &str, terminating: bool) {
        let at = if terminating { json!("2026-01-01T00:00:00Z") } else { Value::Null };
        let metadata = json!({"name": name, "uid": uid, "deletionTimestamp": at});
        self.server.put::<Namespaces>(json!({"metadata": metadata}));
    }
}

/// Reconciles once: `done`, `later`, or the category of what failed.
pub(crate) async fn reconcile<C: Controller>(controller: &Arc<C>, key: C::Key) -> &'static str {
    match Arc::clone(controller).reconcile(key).await {
        ReconcileResult::Done => "done",
        ReconcileResult::At(_) | ReconcileResult::Waits(_) => "later",
        ReconcileResult::Retry { category, .. } => category,
    }
}

/// Verb and path of each request, from the resource on.
pub(crate) fn lines(sent: &[Sent]) -> Vec<String> {
    let line = |one: &Sent| {
        let path = one.path.trim_start_matches("/apis/coppice.dev/v1alpha1/").trim_start_matches("/api/v1/");
        format!("{} {path}", one.method)
    };
    sent.iter().map(line).collect()
}

/// The revision that an object has, as writes of it name it.
pub(crate) fn revision(object: &Value) -> Value {
    json!({"uid": object["metadata"]["uid"], "resourceVersion": object["metadata"]["resourceVersion"]})
}

/// The revision that the write of an object requires.
pub(crate) fn required(sent: &Sent) -> Value {
    let from = if sent.method == http::Method::DELETE { "preconditions" } else { "metadata" };
    json!({"uid": sent.body[from]["uid"], "resourceVersion": sent.body[from]["resourceVersion"]})
}
