//! Bugs made on purpose ([`coppice_runtime::mutants`]): what they do instead. Never reached in a program.

use std::sync::Arc;

use coppice_api::manager::{Action, Intent};
use coppice_lifecycle::facts::NamespaceFacts;
use coppice_lifecycle::record::Outcome;
use coppice_runtime::kinds::Manager;
use coppice_runtime::leader::Permit;
use coppice_runtime::mutants::{Mutant, active};
use coppice_runtime::{delete, read};

use super::super::observe::{self, Observation};
use super::{Applied, Told, conclude, soon};
use crate::shared::{Key, Shared};

/// What is taken for a fresh look: the caches, or whatever bears the name now. None for those that look.
pub(super) async fn look(shared: &Shared, key: &Key, intent: &Intent) -> Option<Observation> {
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
pub(in super::super) async fn namespace(shared: &Shared, key: &Key) -> Option<Arc<NamespaceFacts>> {
    let namespace = read::get::<NamespaceFacts>(&shared.clients.reads, "", &key.namespace).await;
    namespace.ok().flatten().map(Arc::new)
}

/// First what came of it, then the deletion.
pub(super) async fn hasty(shared: &Shared, permit: &Permit, key: &Key, intent: Intent) -> (Applied, Told) {
    let confirmed = match super::delete::confirm(shared, key, &intent).await {
        Ok(Ok(confirmed)) => confirmed,
        Ok(Err(_)) => return (Applied::Look(soon(shared)), Told::default()),
        Err(error) => return (Applied::Failed(error), Told::default()),
    };
    let manager = Manager::clone(&confirmed.manager);
    let concluded = conclude(shared, permit, intent.clone(), Outcome::Deleted, manager).await;
    if let (Ok(booking), Some(namespace)) =
        (super::delete::book(shared, permit, &confirmed).await, &confirmed.namespace)
    {
        let law = &confirmed.law;
        drop(delete::namespace(&shared.clients, permit, &booking, law, &intent.uid, namespace).await);
    }
    concluded
}
