//! What was seen of each of many when it was last asked about, to tell whether it is another now.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// By its key, what was seen of each.
#[derive(Debug)]
pub(crate) struct LastSeen<K, V>(Mutex<BTreeMap<K, V>>);

impl<K, V> Default for LastSeen<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Ord, V> LastSeen<K, V> {
    /// Keeps what is seen of one now, none if there is nothing or nobody asks any more; what was seen before.
    pub(crate) fn replace(&self, key: K, now: Option<V>) -> Option<V> {
        put(&mut self.seen(), key, now)
    }

    /// The same; whether it is another than before.
    pub(crate) fn changed(&self, key: K, now: Option<V>) -> bool
    where
        V: PartialEq,
    {
        let mut seen = self.seen();
        let changed = seen.get(&key) != now.as_ref();
        put(&mut seen, key, now);
        changed
    }

    fn seen(&self) -> MutexGuard<'_, BTreeMap<K, V>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn put<K: Ord, V>(seen: &mut BTreeMap<K, V>, key: K, now: Option<V>) -> Option<V> {
    match now {
        Some(now) => seen.insert(key, now),
        None => seen.remove(&key),
    }
}
