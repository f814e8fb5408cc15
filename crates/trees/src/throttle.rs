//! How often something is done for one of many, whatever else happens: thousands of namespaces may come or go at once.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// When it was last done for each.
#[derive(Debug)]
pub(crate) struct Throttle<K> {
    /// So often at most.
    every: Duration,
    done: Mutex<BTreeMap<K, Instant>>,
}

impl<K: Ord + Clone> Throttle<K> {
    /// Once within this time.
    pub(crate) fn every(every: Duration) -> Self {
        Self { every, done: Mutex::default() }
    }

    /// When it may be done again for this one; none if now, and it is noted that it is.
    pub(crate) fn until(&self, key: &K) -> Option<Instant> {
        let (mut done, now) = (self.done.lock().unwrap_or_else(PoisonError::into_inner), Instant::now());
        done.retain(|_, at| now < *at + self.every);
        if let Some(at) = done.get(key) {
            return Some(*at + self.every);
        }
        done.insert(key.clone(), now);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERY: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn for_each_it_is_done_once_a_second() {
        let (throttle, begun) = (Throttle::every(EVERY), Instant::now());
        assert_eq!([throttle.until(&"a"), throttle.until(&"b")], [None, None]);
        tokio::time::advance(Duration::from_millis(400)).await;
        assert_eq!(throttle.until(&"a"), Some(begun + EVERY));
        tokio::time::advance(Duration::from_millis(600)).await;
        assert_eq!([throttle.until(&"a"), throttle.until(&"a")], [None, Some(begun + 2 * EVERY)]);
    }
}
