//! Deliberate bugs ([`coppice_mutants`]): what they do instead. Never reached in a program.

use std::collections::BTreeSet;
use std::sync::Arc;

use coppice_actions::decision::{self, Authorized, Stopped};
use coppice_actions::delete;
use coppice_api::manager::{Action, Intent};
use coppice_kinds::{Manager, Namespaces};
use coppice_lifecycle::facts::NamespaceFacts;
use coppice_lifecycle::record::StepOutcome;
use coppice_mutants::{Mutant, active};
use coppice_runtime::leader::Permit;
use coppice_runtime::read;

use super::super::observe::{self, Observation};
use super::delete::ManagerDecision;
use super::result::Interruption;
use super::writer;
use crate::context::{ControllerContext, ManagerKey};
use crate::status_writer::{Applied, EventBatch};

/// What replaces a fresh read: the caches, or whatever has the name now. None for bugs that do read.
pub(super) async fn reverify_with(
    shared: &ControllerContext,
    key: &ManagerKey,
    intent: &Intent,
) -> Option<Observation> {
    let by_caches =
        if intent.action == Action::Delete { Mutant::DeleteByCaches } else { Mutant::ScaleByCaches };
    if active(by_caches) || active(Mutant::ActBeforeSync) {
        return observe::cached(shared, key);
    }
    if !active(Mutant::KeyedByName) {
        return None;
    }
    let mut observation = observe::cached(shared, key)?;
    observation.namespace = namespace(shared, key).await;
    Some(observation)
}

/// The namespace of this name.
pub(in super::super) async fn namespace(
    shared: &ControllerContext,
    key: &ManagerKey,
) -> Option<Arc<NamespaceFacts>> {
    let namespace = read::get::<Namespaces>(&shared.clients.reads, "", &key.namespace).await;
    namespace.ok().flatten().map(Arc::new)
}

/// First the outcome, then the deletion.
pub(super) async fn record_before_delete(
    shared: &ControllerContext,
    permit: &Permit,
    key: &ManagerKey,
    intent: Intent,
) -> (Applied<Manager>, EventBatch) {
    let decision = ManagerDecision { shared, key, intent: &intent };
    let authorized = match decision::authorize(shared.step(permit), &decision).await {
        Ok(authorized) => authorized,
        Err(Stopped::Interrupted(Interruption::Failed(error))) => {
            return (Applied::Failed(error), EventBatch::default());
        }
        Err(_) => return (Applied::CheckAt(shared.in_one_second()), EventBatch::default()),
    };
    let Authorized { observation, record, reservation } = authorized;
    let manager = Manager::clone(&observation.manager);
    let outcome = StepOutcome::Deleted;
    let writer = writer(shared, permit);
    let recorded = writer.record_outcome(intent.clone(), outcome, manager, &BTreeSet::new()).await;
    if let Some(namespace) = &observation.namespace {
        let settings = &observation.settings;
        drop(delete::namespace(&shared.clients, permit, reservation, settings, &record, namespace).await);
    }
    recorded
}
