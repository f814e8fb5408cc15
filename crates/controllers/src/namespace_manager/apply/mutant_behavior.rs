//! Deliberate bugs ([`coppice_mutants`]): what they do instead. Never reached in a program.

use std::collections::BTreeSet;
use std::sync::Arc;

use coppice_actions::delete;
use coppice_api::manager::{Action, Intent};
use coppice_kinds::{Manager, Namespaces};
use coppice_lifecycle::facts::NamespaceFacts;
use coppice_lifecycle::record::StepOutcome;
use coppice_mutants::{Mutant, active};
use coppice_runtime::leader::Permit;
use coppice_runtime::read;

use super::super::observe::{self, Observation};
use super::result::Interruption;
use super::{Applied, EventBatch, in_one_second, record_outcome};
use crate::context::{ControllerContext, ManagerKey};

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
) -> (Applied, EventBatch) {
    let verified = match super::delete::reverify(shared, key, &intent).await {
        Ok(verified) => verified,
        Err(Interruption::Ended(_)) => {
            return (Applied::CheckAt(in_one_second(shared)), EventBatch::default());
        }
        Err(Interruption::Failed(error)) => return (Applied::Failed(error), EventBatch::default()),
    };
    let Ok(record) = super::delete::store_record(shared, permit, &verified, &intent).await else {
        return (Applied::CheckAt(in_one_second(shared)), EventBatch::default());
    };
    let manager = Manager::clone(&verified.manager);
    let recorded =
        record_outcome(shared, permit, intent.clone(), StepOutcome::Deleted, manager, &BTreeSet::new()).await;
    if let (Ok(reservation), Some(namespace)) =
        (super::delete::reserve(shared, permit, &verified).await, &verified.namespace)
    {
        let settings = &verified.settings;
        drop(delete::namespace(&shared.clients, permit, &reservation, settings, &record, namespace).await);
    }
    recorded
}
