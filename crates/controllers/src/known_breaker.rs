//! The breaker as this replica knows it: before the ledger has it, and when the ledger has lost it.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use coppice_api::config::{Breaker, GovernorSpec, GovernorStatus};
use coppice_lifecycle::breaker;
use coppice_mutants::{Mutant, active};

/// A watch that was followed without a gap shows what was acknowledged within this time.
const SEEN_LATE: Duration = Duration::from_mins(2);

/// What a watch has detected stops steps at once, before anything is written. What was in the ledger is known until it is
/// acknowledged, so that nobody closes it by creating the settings again. Both are lost with the process.
#[derive(Default)]
pub struct KnownBreaker {
    known: Mutex<Known>,
    enqueue: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

#[derive(Default)]
struct Known {
    /// What the ledger has, or had when it was last seen.
    recorded: Option<Breaker>,
    /// What a watch of this replica detected, and the ledger does not have. It stands for every later collapse.
    detected: Option<Breaker>,
    /// The last collapse that a watch of this replica detected, and when, on the monotonic clock.
    last: Option<(Breaker, Duration)>,
}

/// When the settings were read, on the monotonic clock.
#[derive(Clone, Copy)]
pub(crate) struct SettingsSeen {
    /// The time.
    pub(crate) at: Duration,
    /// Since when their watch has been followed without a gap; none if it is not.
    pub(crate) followed_since: Option<Duration>,
}

impl KnownBreaker {
    /// Has this called whenever a breaker is detected, if it is the first that is given.
    pub(crate) fn on_collapse(&self, enqueue: impl Fn() + Send + Sync + 'static) {
        let _ = self.enqueue.set(Box::new(enqueue));
    }

    /// What is known, the recorded one first; either may be acknowledged.
    pub(crate) fn get(&self) -> Vec<Breaker> {
        let known = self.lock();
        [&known.recorded, &known.detected].into_iter().flatten().cloned().collect()
    }

    /// A watch of this replica has detected a collapse. Answers the breaker that stands for it.
    pub(crate) fn record_collapse(&self, new: Breaker, at: Duration) -> Breaker {
        if active(Mutant::BreakerDropped) {
            return new;
        }
        let mut known = self.lock();
        known.last = Some((new.clone(), at));
        let open = known.recorded.clone().unwrap_or_else(|| known.detected.get_or_insert(new).clone());
        drop(known);
        if let Some(enqueue) = self.enqueue.get() {
            enqueue();
        }
        open
    }

    /// Takes notice of the ledger, and of what is acknowledged: that covers what collapsed before it, and nothing after it.
    pub(crate) fn observe(&self, settings: &GovernorSpec, ledger: &GovernorStatus, seen: SettingsSeen) {
        let acknowledged = |breaker: &mut Breaker| breaker::is_acknowledged(settings, breaker);
        let mut known = self.lock();
        if let Some(open) = breaker::open(settings, ledger) {
            known.recorded = Some(open.clone());
        }
        let closed = [known.recorded.take_if(acknowledged), known.detected.take_if(acknowledged)];
        if closed.iter().any(Option::is_some) {
            known.detected = None;
            if let Some((mut last, at)) = known.last.take() {
                let followed = seen.followed_since.is_some_and(|since| since <= at);
                let before = followed && seen.at.saturating_sub(at) > SEEN_LATE;
                if !before && !acknowledged(&mut last) {
                    known.detected = Some(last.clone());
                    known.last = Some((last, at));
                }
            }
        }
        let recorded = known.recorded.as_ref().map(|breaker| breaker.id.clone());
        known.detected.take_if(|detected| recorded.as_ref() == Some(&detected.id));
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        // Nothing panics while it is held.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use jiff::Timestamp;

    use super::*;

    fn at(second: u64) -> Duration {
        Duration::from_secs(second)
    }

    fn opened(resource: &str, second: u64) -> Breaker {
        let now = Timestamp::from_second(1_790_000_000).unwrap() + at(second);
        breaker::opened(resource, 50, 50, false, now)
    }

    fn pods(second: u64) -> Breaker {
        opened("pods", second)
    }

    fn ledger(breaker: Option<Breaker>) -> GovernorStatus {
        GovernorStatus { breaker, ..GovernorStatus::default() }
    }

    fn acknowledging(breaker: &Breaker) -> GovernorSpec {
        GovernorSpec { acknowledge: Some(breaker.id.clone()), ..GovernorSpec::default() }
    }

    /// Seen at this second, of a watch that has been followed all the time.
    fn seen(second: u64) -> SettingsSeen {
        SettingsSeen { at: at(second), followed_since: Some(at(0)) }
    }

    const NOTHING: fn() -> GovernorSpec = GovernorSpec::default;

    #[test]
    fn what_is_noticed_enqueues_and_is_known_until_it_is_recorded_or_acknowledged() {
        let (known, calls) = (KnownBreaker::default(), Arc::new(AtomicUsize::new(0)));
        let count = Arc::clone(&calls);
        known.on_collapse(move || {
            count.fetch_add(1, Relaxed);
        });
        assert_eq!(known.record_collapse(pods(1), at(1)), pods(1));
        known.observe(&NOTHING(), &ledger(None), seen(1000));
        assert_eq!((known.get(), calls.load(Relaxed)), (vec![pods(1)], 1));
        known.observe(&NOTHING(), &ledger(Some(pods(1))), seen(1001));
        assert_eq!(known.get(), [pods(1)], "recorded, and not twice");
        known.observe(&acknowledging(&pods(1)), &ledger(Some(pods(1))), seen(1002));
        assert_eq!(known.get(), []);

        known.record_collapse(pods(2000), at(2000));
        known.observe(&acknowledging(&pods(2000)), &ledger(None), seen(2001));
        assert_eq!(known.get(), [], "though the ledger never had it");
    }

    #[test]
    fn the_first_stands_for_what_collapses_until_it_is_acknowledged() {
        let known = KnownBreaker::default();
        known.record_collapse(pods(1), at(1));
        assert_eq!(known.record_collapse(opened("jobs", 2), at(2)), pods(1));
        assert_eq!(known.get(), [pods(1)]);
        known.observe(&acknowledging(&pods(1)), &ledger(None), seen(1000));
        assert_eq!(known.get(), []);
    }

    #[test]
    fn what_the_ledger_had_is_known_until_it_is_acknowledged() {
        let known = KnownBreaker::default();
        known.observe(&NOTHING(), &ledger(Some(pods(0))), seen(1));
        known.observe(&NOTHING(), &ledger(None), seen(2));
        known.observe(&acknowledging(&pods(7)), &ledger(None), seen(3));
        assert_eq!(known.get(), [pods(0)], "the settings were created again");
        known.observe(&acknowledging(&pods(0)), &ledger(None), seen(4));
        assert_eq!(known.get(), []);
    }

    #[test]
    fn an_acknowledgment_covers_what_collapsed_before_it_and_nothing_after_it() {
        let acknowledge = |detected: u64, seen_at: SettingsSeen| {
            let known = KnownBreaker::default();
            known.observe(&NOTHING(), &ledger(Some(pods(0))), seen(1));
            assert_eq!(known.record_collapse(pods(detected), at(detected)), pods(0));
            known.observe(&NOTHING(), &ledger(Some(pods(0))), seen(detected));
            known.observe(&acknowledging(&pods(0)), &ledger(Some(pods(0))), seen_at);
            known.get()
        };
        assert_eq!(acknowledge(5, seen(1000)), []);
        assert_eq!(acknowledge(990, seen(1000)), [pods(990)], "perhaps after it");
        let late = SettingsSeen { at: at(1000), followed_since: Some(at(999)) };
        assert_eq!(acknowledge(5, late), [pods(5)], "it may have been acknowledged at any time");
        let silent = SettingsSeen { at: at(1000), followed_since: None };
        assert_eq!(acknowledge(5, silent), [pods(5)]);
    }
}
