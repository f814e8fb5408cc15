//! The breaker as this replica knows it: before the ledger has it, and when the ledger has lost it.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use coppice_api::config::{Breaker, GovernorSpec, GovernorStatus};
use coppice_lifecycle::breaker;
use coppice_mutants::{Mutant, active};
use jiff::{SignedDuration, Timestamp};

/// An acknowledgment covers what collapsed while the breaker was open. What was noticed so shortly before this replica saw
/// the acknowledgment may have come after it.
const SEEN_LATE: SignedDuration = SignedDuration::from_mins(2);

/// What a watch has noticed stops steps at once, before anything is written. What was in the ledger is known until it is
/// acknowledged, so that nobody closes it by creating the settings again. Both are lost with the process.
#[derive(Default)]
pub struct KnownBreaker {
    known: Mutex<Known>,
    wake: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

#[derive(Default)]
struct Known {
    /// What the ledger has, or had when it was last seen.
    recorded: Option<Breaker>,
    /// What a watch of this replica noticed last.
    noticed: Option<Breaker>,
}

impl KnownBreaker {
    /// Has this called whenever a breaker is noticed, if it is the first that is given.
    pub(crate) fn wakes(&self, wake: impl Fn() + Send + Sync + 'static) {
        let _ = self.wake.set(Box::new(wake));
    }

    /// What is known, the recorded one first; either may be acknowledged.
    pub(crate) fn get(&self) -> Vec<Breaker> {
        let known = self.lock();
        [&known.recorded, &known.noticed].into_iter().flatten().cloned().collect()
    }

    /// A watch of this replica has noticed a collapse.
    pub(crate) fn notice(&self, new: Breaker) {
        self.lock().noticed = Some(new).filter(|_| !active(Mutant::BreakerForgotten));
        if let Some(wake) = self.wake.get() {
            wake();
        }
    }

    /// Takes notice of the ledger, and of what is acknowledged.
    pub(crate) fn observe(&self, settings: &GovernorSpec, ledger: &GovernorStatus, now: Timestamp) {
        let mut known = self.lock();
        if let Some(open) = breaker::open(settings, ledger) {
            known.recorded = Some(open.clone());
        } else if known.recorded.take_if(|breaker| breaker::is_acknowledged(settings, breaker)).is_some() {
            known.noticed.take_if(|noticed| now.duration_since(noticed.since) > SEEN_LATE);
        }
        let recorded = known.recorded.as_ref().map(|breaker| breaker.id.clone());
        known.noticed.take_if(|noticed| {
            breaker::is_acknowledged(settings, noticed) || recorded.as_ref() == Some(&noticed.id)
        });
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        // Every change is one assignment: a panic leaves valid data.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_790_000_000 + second).unwrap()
    }

    fn pods(second: i64) -> Breaker {
        breaker::opened("pods", 50, 50, at(second))
    }

    fn ledger(breaker: Option<Breaker>) -> GovernorStatus {
        GovernorStatus { breaker, ..GovernorStatus::default() }
    }

    fn acknowledging(breaker: &Breaker) -> GovernorSpec {
        GovernorSpec { acknowledge: Some(breaker.id.clone()), ..GovernorSpec::default() }
    }

    const NOTHING: fn() -> GovernorSpec = GovernorSpec::default;

    #[test]
    fn what_is_noticed_wakes_and_is_known_until_it_is_recorded_or_acknowledged() {
        let (known, woken) = (KnownBreaker::default(), Arc::new(AtomicUsize::new(0)));
        let count = Arc::clone(&woken);
        known.wakes(move || {
            count.fetch_add(1, Relaxed);
        });
        known.notice(pods(0));
        known.observe(&NOTHING(), &ledger(None), at(1000));
        assert_eq!((known.get(), woken.load(Relaxed)), (vec![pods(0)], 1));
        known.observe(&NOTHING(), &ledger(Some(pods(0))), at(1001));
        assert_eq!(known.get(), [pods(0)], "recorded, and not twice");
        known.observe(&acknowledging(&pods(0)), &ledger(Some(pods(0))), at(1002));
        assert_eq!(known.get(), []);

        known.notice(pods(2000));
        known.observe(&acknowledging(&pods(2000)), &ledger(None), at(2001));
        assert_eq!(known.get(), [], "though the ledger never had it");
    }

    #[test]
    fn what_the_ledger_had_is_known_until_it_is_acknowledged() {
        let known = KnownBreaker::default();
        known.observe(&NOTHING(), &ledger(Some(pods(0))), at(1));
        known.observe(&NOTHING(), &ledger(None), at(2));
        known.observe(&acknowledging(&pods(7)), &ledger(None), at(3));
        assert_eq!(known.get(), [pods(0)], "the settings were created again");
        known.observe(&acknowledging(&pods(0)), &ledger(None), at(4));
        assert_eq!(known.get(), []);
    }

    #[test]
    fn an_acknowledgment_covers_what_collapsed_before_it_and_nothing_after_it() {
        let known = KnownBreaker::default();
        let acknowledge = |noticed: i64, seen: i64| {
            known.observe(&NOTHING(), &ledger(Some(pods(0))), at(1));
            known.notice(pods(noticed));
            known.observe(&NOTHING(), &ledger(Some(pods(0))), at(noticed));
            known.observe(&acknowledging(&pods(0)), &ledger(Some(pods(0))), at(seen));
            known.get()
        };
        assert_eq!(acknowledge(5, 1000), []);
        assert_eq!(acknowledge(990, 1000), [pods(990)], "perhaps after it");
    }
}
