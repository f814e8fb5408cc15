//! What the annotations and labels of a namespace say, in its record.

use coppice_api::condition::{self, TTL_UNDERSTOOD};

use super::Builder;
use crate::cluster::selection::SelectingManager;
use crate::cluster::{EffectiveTtl, owner_of};
use crate::facts::NamespaceFacts;

impl Builder<'_> {
    /// Writes down whether the annotation is understood by which the namespace has a ttl, if the manager names one, and the ttl
    /// that counts.
    pub(super) fn say_ttl(&mut self, ttl: Option<&EffectiveTtl>, manager: &SelectingManager<'_>) {
        let settle = manager.spec.settle;
        self.status.ttl = ttl.and_then(|ttl| ttl.recorded(self.status.ttl.as_ref(), settle, self.now));
        let shorter = self.status.ttl.and_then(|ttl| ttl.shorter);
        self.check_no_later_than(shorter.map(|shorter| shorter.from));
        let written = manager.spec.ttl.as_ref();
        let recorded = self.status.ttl.as_ref();
        let state =
            ttl.zip(written).and_then(|(ttl, written)| ttl.condition(written, manager.name, recorded));
        let (generation, now) = (self.record.generation, self.now);
        match state {
            Some(state) => {
                condition::set(&mut self.status.conditions, TTL_UNDERSTOOD, state, generation, now);
            }
            None => self.status.conditions.retain(|known| known.type_ != TTL_UNDERSTOOD),
        }
    }

    /// Writes down who owns the namespace. What was not read yet changes nothing.
    pub(super) fn say_owner(&mut self, manager: &SelectingManager<'_>, namespace: &NamespaceFacts) {
        match manager.spec.owner.as_ref().map(|source| owner_of(source, namespace)) {
            None => self.status.owner = None,
            Some(Ok(owner)) => self.status.owner = owner,
            Some(Err(_not_read)) => {}
        }
    }
}
