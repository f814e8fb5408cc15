//! One reconcile of a controller against an API server in memory, for the tests of what controllers write.

use std::sync::Arc;
use std::time::Duration;

use coppice_controllers::{ControllerContext, OperatorOptions};
use coppice_runtime::clock::SeededRng;
use coppice_runtime::controller::Controller;
use coppice_runtime::events::Events;
use coppice_runtime::leader::Gate;
use coppice_runtime::metrics::Metrics;
use coppice_runtime::queue::ReconcileResult;
use coppice_scripted::{Followers, Sent, Server, WriteAnswer};

use crate::context::TreeContext;

/// The caches, filled from this server, and a controller on them; what follows it is to be kept.
pub(crate) async fn filled<C: Controller>(
    server: &Server,
    controller: impl FnOnce(Arc<TreeContext>) -> C,
) -> (Arc<TreeContext>, Arc<C>, Followers) {
    let (clients, server_clock) = server.clients();
    let (clock, metrics) = (server_clock.clock().clone(), Metrics::new("test"));
    let mut followers = Followers::new(&clients, &server_clock);
    let events = Events::new(&clients, clock, metrics.clone(), "test", SeededRng::new(1));
    let setup = OperatorOptions { own_namespace: "coppice-system".to_owned(), scale_kinds: Vec::new() };
    let gate = Gate::always(Duration::ZERO);
    let shared = ControllerContext::new(setup, clients, server_clock, gate, metrics, events);
    let context = Arc::new(TreeContext::new(shared));
    let controller = Arc::new(controller(Arc::clone(&context)));
    followers.fill(&context.shared.configs).await;
    followers.add(&controller).await;
    (context, controller, followers)
}

/// What comes of a reconcile where writes are answered so, and which were made.
pub(crate) async fn reconciled<C: Controller>(
    server: &Server,
    answers: &[WriteAnswer],
    controller: impl FnOnce(Arc<TreeContext>) -> C,
    key: C::Key,
) -> (&'static str, Vec<Sent>) {
    let (_, controller, _followers) = filled(server, controller).await;
    server.answer_writes(answers.iter().copied());
    let end = match controller.reconcile(key).await {
        ReconcileResult::Done => "done",
        ReconcileResult::At(_) | ReconcileResult::Waits(_) => "later",
        ReconcileResult::Retry { category, .. } => category,
    };
    (end, server.writes())
}
