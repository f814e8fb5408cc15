//! Whose turn it is to change the quota of a namespace: two that change it at once would only conflict. A Subnamespace that has to wait for
//! that holds no worker meanwhile: with thousands in one namespace, those in all others would wait for them, too.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use coppice_runtime::queue::Queue;
use tokio::sync::{Mutex as Lock, OwnedMutexGuard};

use crate::context::InUse;
use crate::subnamespace::SubnamespaceKey;

/// The turn of one, until it is dropped.
pub(crate) type Turn = OwnedMutexGuard<()>;

/// Who changes the quota of which namespace, and who waits for that.
#[derive(Default)]
pub(crate) struct Turns {
    /// One lock for each namespace whose quota is being changed.
    locks: InUse<Box<str>, Lock<()>>,
    waiting: Mutex<Waiting>,
    /// Where those that wait are added when it is their turn.
    queue: OnceLock<Queue<SubnamespaceKey>>,
}

/// Ends, however it does, with the [next one](Turns::wake) being woken. It has to be there before the turn is, so that it ends after it.
pub(crate) struct WakesNext<'a> {
    turns: &'a Turns,
    namespace: &'a str,
}

impl Drop for WakesNext<'_> {
    fn drop(&mut self) {
        self.turns.wake(self.namespace);
    }
}

/// Where one is in the order: those of which a change has begun are before those of which none has; then counts who came first.
type Place = (bool, u64);

#[derive(Debug, Default)]
struct Waiting {
    /// Those that wait for each namespace, in their order.
    order: BTreeMap<Arc<str>, BTreeMap<Place, SubnamespaceKey>>,
    places: BTreeMap<SubnamespaceKey, Place>,
    /// How many have come.
    came: u64,
}

impl Turns {
    /// Adds those that wait to this queue when it is their turn.
    pub(crate) fn set_queue(&self, queue: &Queue<SubnamespaceKey>) {
        // Of one set of caches there is one controller.
        let _ = self.queue.set(queue.clone());
    }

    /// The queue of those that wait; none before somebody follows the watches.
    pub(crate) fn queue(&self) -> Option<&Queue<SubnamespaceKey>> {
        self.queue.get()
    }

    /// Wakes the next one of this namespace at its end: for a run that may have a turn there, or may not need it any more.
    pub(crate) fn wakes_next<'a>(&'a self, namespace: &'a str) -> WakesNext<'a> {
        WakesNext { turns: self, namespace }
    }

    /// Waits until nobody else changes the quota of this namespace. Whoever holds it does not wait for another, and
    /// [wakes the next one](Self::wakes_next).
    pub(crate) async fn turn(&self, namespace: &str) -> Turn {
        self.locks.of(namespace.into()).lock_owned().await
    }

    /// The turn of a Subnamespace, if it is nobody's. Otherwise it waits from now on, and is reconciled again when its turn comes.
    /// `number`: what [`leave`](Self::leave) has answered.
    pub(crate) fn take_or_wait(
        &self,
        key: &SubnamespaceKey,
        has_begun: bool,
        number: Option<u64>,
    ) -> Option<Turn> {
        if let Some(turn) = self.try_turn(&key.parent) {
            return Some(turn);
        }
        self.waiting().insert(key, has_begun, number);
        // Whoever had it may have ended before this one was known to wait.
        let turn = self.try_turn(&key.parent)?;
        self.leave(key);
        Some(turn)
    }

    /// It does not wait any more; its number in the order, if it did.
    pub(crate) fn leave(&self, key: &SubnamespaceKey) -> Option<u64> {
        self.waiting().remove(key)
    }

    /// Whether it waits for its turn, and if a change of it has begun, since then: a transfer may begin one while it waits behind others.
    pub(crate) fn is_waiting(&self, key: &SubnamespaceKey, has_begun: bool) -> bool {
        self.waiting().places.get(key).is_some_and(|(had_not_begun, _)| !(has_begun && *had_not_begun))
    }

    /// Has the first one that waits for a namespace reconciled again, if it is nobody's turn. Due whenever a turn has ended, and when one
    /// that waited does not need it any more.
    fn wake(&self, namespace: &str) {
        if self.first(namespace).is_none() || self.try_turn(namespace).is_none() {
            return;
        }
        // Once more: one that has come meanwhile may not have got the turn that was tried for a moment.
        if let Some((queue, first)) = self.queue.get().zip(self.first(namespace)) {
            queue.add(first);
        }
    }

    fn try_turn(&self, namespace: &str) -> Option<Turn> {
        self.locks.of(namespace.into()).try_lock_owned().ok()
    }

    fn first(&self, namespace: &str) -> Option<SubnamespaceKey> {
        let waiting = self.waiting();
        let (_, key) = waiting.order.get(namespace)?.first_key_value()?;
        Some(key.clone())
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        // A place that a panic has left without its order is looked at by the next resync.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    fn insert(&mut self, key: &SubnamespaceKey, has_begun: bool, number: Option<u64>) {
        self.remove(key);
        let number = number.unwrap_or_else(|| {
            self.came += 1;
            self.came
        });
        let place = (!has_begun, number);
        self.places.insert(key.clone(), place);
        self.order.entry(Arc::clone(&key.parent)).or_default().insert(place, key.clone());
    }

    fn remove(&mut self, key: &SubnamespaceKey) -> Option<u64> {
        let place = self.places.remove(key)?;
        if let Some(order) = self.order.get_mut(&key.parent) {
            order.remove(&place);
            if order.is_empty() {
                self.order.remove(&key.parent);
            }
        }
        Some(place.1)
    }
}

#[cfg(test)]
mod tests {
    use coppice_runtime::queue::QueueSettings;

    use super::*;

    fn key(name: &str) -> SubnamespaceKey {
        SubnamespaceKey { parent: "shop".into(), name: name.into() }
    }

    #[tokio::test]
    async fn those_that_wait_are_reconciled_again_one_by_one_and_what_has_begun_first() {
        let (turns, queue) = (Turns::default(), Queue::new(QueueSettings::default()));
        turns.set_queue(&queue);
        let turn = turns.turn("shop").await;
        for (name, has_begun) in [("c", false), ("a", false), ("d", true), ("b", true)] {
            assert!(turns.take_or_wait(&key(name), has_begun, None).is_none());
            assert!(turns.is_waiting(&key(name), false));
            assert_eq!(turns.is_waiting(&key(name), true), has_begun, "otherwise it would be before others");
        }
        turns.wake("shop");
        assert!(queue.is_empty(), "it is still somebody's turn");
        // Another namespace has another one.
        assert!(turns.try_turn("web").is_some());
        drop(turn);
        turns.wake("web");
        assert!(queue.is_empty(), "nobody waits for that");
        turns.wake("shop");
        turns.wake("shop");
        assert_eq!(queue.len(), 1, "the first one alone");
        let mut order = Vec::new();
        while let Some(first) = turns.first("shop") {
            turns.leave(&first);
            order.push(first.name.to_string());
        }
        assert_eq!(order, ["d", "b", "c", "a"]);
    }

    #[tokio::test]
    async fn the_next_one_is_woken_once_the_turn_of_a_run_has_ended() {
        let (turns, queue) = (Turns::default(), Queue::new(QueueSettings::default()));
        turns.set_queue(&queue);
        {
            let _wakes = turns.wakes_next("shop");
            let _turn = turns.turn("shop").await;
            assert!(turns.take_or_wait(&key("a"), false, None).is_none());
            assert!(queue.is_empty());
        }
        assert_eq!(queue.len(), 1);
    }

    #[test]
    fn who_has_to_wait_again_keeps_its_place() {
        let turns = Turns::default();
        let turn = turns.try_turn("shop").unwrap();
        for name in ["b", "a"] {
            assert!(turns.take_or_wait(&key(name), false, None).is_none());
        }
        let number = turns.leave(&key("b"));
        assert_eq!(turns.first("shop"), Some(key("a")));
        assert!(turns.take_or_wait(&key("b"), false, number).is_none());
        assert_eq!(turns.first("shop"), Some(key("b")));
        drop(turn);
        assert!(turns.take_or_wait(&key("b"), false, turns.leave(&key("b"))).is_some());
        assert!(!turns.is_waiting(&key("b"), false));
        assert_eq!(turns.first("shop"), Some(key("a")));
    }
}
