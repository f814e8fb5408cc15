//! How many requests a caller may make.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::time::Instant;

/// So many callers are remembered. Those that may make as many as ever are removed first.
const MAX_PEERS: usize = 1024;

/// So many requests a second from each address, and as many at once. Clones share what was counted.
#[derive(Debug, Clone)]
pub(crate) struct RateLimit {
    per_second: f64,
    left: Arc<Mutex<HashMap<IpAddr, Left>>>,
}

#[derive(Debug, Clone, Copy)]
struct Left {
    requests: f64,
    at: Instant,
}

impl RateLimit {
    pub(crate) fn new(per_second: u32) -> Self {
        Self { per_second: f64::from(per_second), left: Arc::default() }
    }

    pub(crate) fn per_second(&self) -> f64 {
        self.per_second
    }

    /// Whether this caller may make another request now; if so, it is counted.
    pub(crate) fn allows(&self, peer: IpAddr, now: Instant) -> bool {
        let mut all = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let most = self.per_second;
        let now_left = |left: &Left| {
            (left.requests + now.saturating_duration_since(left.at).as_secs_f64() * most).min(most)
        };
        if all.len() >= MAX_PEERS && !all.contains_key(&peer) {
            all.retain(|_, left| now_left(left) < most);
            if all.len() >= MAX_PEERS {
                return false;
            }
        }
        let left = all.entry(peer).or_insert(Left { requests: most, at: now });
        *left = Left { requests: now_left(left), at: now };
        let allowed = left.requests >= 1.0;
        if allowed {
            left.requests -= 1.0;
        }
        allowed
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_PEERS, RateLimit};
    use std::net::{IpAddr, Ipv4Addr};
    use std::time::Duration;
    use tokio::time::Instant;

    #[test]
    fn each_caller_has_as_many_a_second_as_every_other() {
        let (limit, start) = (RateLimit::new(10), Instant::now());
        let [a, b] = [1, 2].map(|last| IpAddr::from(Ipv4Addr::new(10, 0, 0, last)));
        let allowed = |peer, at| (0..100).filter(|_| limit.allows(peer, at)).count();
        assert_eq!((allowed(a, start), allowed(a, start), allowed(b, start)), (10, 0, 10));
        assert_eq!(allowed(a, start + Duration::from_millis(550)), 5);
        assert_eq!(allowed(a, start + Duration::from_secs(100)), 10);
    }

    #[test]
    fn many_callers_take_a_bounded_place_and_the_idle_are_removed() {
        let (limit, start) = (RateLimit::new(10), Instant::now());
        let peer = |n: usize| IpAddr::from(u32::try_from(n).unwrap().to_be_bytes());
        for n in 0..MAX_PEERS {
            assert!(limit.allows(peer(n), start));
        }
        assert!(!limit.allows(peer(MAX_PEERS), start), "more are remembered than there is place for");
        assert!(limit.allows(peer(MAX_PEERS), start + Duration::from_secs(1)));
    }
}
