//! The breaker that this replica has noticed: in memory, until the ledger has it.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use coppice_api::config::{Breaker, GovernorSpec, GovernorStatus};
use coppice_lifecycle::breaker;

/// What a watch has noticed stops steps at once, before anything is written. A restart loses it only if no replica has
/// written it by then.
#[derive(Default)]
pub struct NoticedBreaker {
    breaker: Mutex<Option<Breaker>>,
    wake: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl NoticedBreaker {
    /// Has this called whenever a breaker is noticed, if it is the first that is given.
    pub(crate) fn wakes(&self, wake: impl Fn() + Send + Sync + 'static) {
        let _ = self.wake.set(Box::new(wake));
    }

    /// What was noticed and is not in the ledger, as far as this replica knows.
    pub(crate) fn get(&self) -> Option<Breaker> {
        self.lock().clone()
    }

    /// Notices a breaker, unless one is open, which stands for this one too; returns whether it was noticed. The settings
    /// and the ledger are those of the cache.
    pub(crate) fn notice(&self, settings: &GovernorSpec, ledger: &GovernorStatus, new: Breaker) -> bool {
        let mut noticed = self.lock();
        let known = noticed.as_ref().is_some_and(|breaker| !breaker::is_acknowledged(settings, breaker));
        if known || breaker::open(settings, ledger).is_some() {
            return false;
        }
        *noticed = Some(new);
        drop(noticed);
        if let Some(wake) = self.wake.get() {
            wake();
        }
        true
    }

    /// Forgets what was noticed, once the ledger of the cache has an open breaker or an administrator has acknowledged what
    /// was noticed.
    pub(crate) fn forget_recorded(&self, settings: &GovernorSpec, ledger: &GovernorStatus) {
        let recorded = breaker::open(settings, ledger).is_some();
        self.lock().take_if(|breaker| recorded || breaker::is_acknowledged(settings, breaker));
    }

    fn lock(&self) -> MutexGuard<'_, Option<Breaker>> {
        // Every change is one assignment: a panic leaves valid data.
        self.breaker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use jiff::Timestamp;

    use super::*;

    fn pods(second: i64) -> Breaker {
        breaker::opened("pods", 50, 50, Timestamp::from_second(1_790_000_000 + second).unwrap())
    }

    fn ledger(breaker: Option<Breaker>) -> GovernorStatus {
        GovernorStatus { breaker, ..GovernorStatus::default() }
    }

    fn acknowledging(breaker: &Breaker) -> GovernorSpec {
        GovernorSpec { acknowledge: Some(breaker.id.clone()), ..GovernorSpec::default() }
    }

    #[test]
    fn the_first_stands_for_all_until_it_is_acknowledged() {
        let (noticed, woken) = (NoticedBreaker::default(), Arc::new(AtomicUsize::new(0)));
        let count = Arc::clone(&woken);
        noticed.wakes(move || {
            count.fetch_add(1, Relaxed);
        });
        let spec = GovernorSpec::default();
        assert!(noticed.notice(&spec, &ledger(None), pods(0)));
        assert!(!noticed.notice(&spec, &ledger(None), pods(1)));
        assert_eq!((noticed.get(), woken.load(Relaxed)), (Some(pods(0)), 1));
        assert!(noticed.notice(&acknowledging(&pods(0)), &ledger(None), pods(2)));
        let noticed = NoticedBreaker::default();
        assert!(!noticed.notice(&spec, &ledger(Some(pods(0))), pods(1)), "another replica has written one");
        assert!(noticed.notice(&acknowledging(&pods(0)), &ledger(Some(pods(0))), pods(1)), "it is closed");
    }

    #[test]
    fn what_was_noticed_is_kept_until_the_ledger_has_one_or_it_is_acknowledged() {
        let after = |settings: &GovernorSpec, ledger: &GovernorStatus| {
            let noticed = NoticedBreaker::default();
            noticed.notice(&GovernorSpec::default(), &GovernorStatus::default(), pods(1));
            noticed.forget_recorded(settings, ledger);
            noticed.get()
        };
        let spec = GovernorSpec::default();
        assert_eq!(after(&spec, &ledger(None)), Some(pods(1)));
        assert_eq!(
            after(&acknowledging(&pods(0)), &ledger(Some(pods(0)))),
            Some(pods(1)),
            "that one is closed"
        );
        assert_eq!(after(&spec, &ledger(Some(pods(1)))), None);
        assert_eq!(after(&spec, &ledger(Some(pods(3)))), None, "the leader has noticed it later");
        assert_eq!(after(&acknowledging(&pods(1)), &ledger(None)), None);
    }
}
