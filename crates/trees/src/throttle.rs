//! How often it is said of something that it is larger, and nothing else: thousands of namespaces may come at once.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// So often at most.
const EVERY: Duration = Duration::from_secs(1);

/// When it was last said of each.
#[derive(Debug)]
pub(crate) struct Throttle<K>(Mutex<BTreeMap<K, Instant>>);

impl<K> Default for Throttle<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Ord + Clone> Throttle<K> {
    /// When it may be said again of this one; none if now, and it is noted that it is.
    pub(crate) fn until(&self, key: &K) -> Option<Instant> {
        let (mut said, now) = (self.0.lock().unwrap_or_else(PoisonError::into_inner), Instant::now());
        said.retain(|_, at| now < *at + EVERY);
        if let Some(at) = said.get(key) {
            return Some(*at + EVERY);
        }
        said.insert(key.clone(), now);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn of_each_it_is_said_once_a_second() {
        let (throttle, begun) = (Throttle::default(), Instant::now());
        assert_eq!([throttle.until(&"a"), throttle.until(&"b")], [None, None]);
        tokio::time::advance(Duration::from_millis(400)).await;
        assert_eq!(throttle.until(&"a"), Some(begun + EVERY));
        tokio::time::advance(Duration::from_millis(600)).await;
        assert_eq!([throttle.until(&"a"), throttle.until(&"a")], [None, Some(begun + 2 * EVERY)]);
    }
}
