//! What time it is at the API server.
//!
//! Ages are computed from the API server's timestamps, so decisions are made by its clock. Every answer carries its time in the `Date`
//! header. Our *monotonic* clock, which nobody can set, carries that time forward. It is trusted only while it agrees
//! with our wall clock: two clocks that are wrong by the same hour are rare, one that is wrong is not.
//!
//! [`ServerClock::now`] is the one place where the time of a decision comes from.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use coppice_quantity::time::{ClockUncertainty, MAX_CLOCK_SKEW, ServerTime};
use jiff::fmt::rfc2822::DateTimeParser;
use jiff::{SignedDuration, Timestamp};

use crate::clock::Clock;
use crate::intervals::ResyncIntervals;

/// This many answers are remembered: all of them have to agree with our wall clock.
const MAX_SAMPLES: usize = 5;
/// How long an answer that disagrees counts, however many agree after it: one bad API server of several may answer
/// rarely.
const OUTLIER_PERIOD: Duration = Duration::from_mins(1);
/// The API server's clock, estimated from every answer. Clones share it.
#[derive(Debug, Clone)]
pub struct ServerClock {
    clock: Clock,
    /// The clocks have been compared lately if the last answer is no older than this.
    compared: Duration,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    samples: VecDeque<Sample>,
    /// The last answer that disagreed with our wall clock.
    outlier: Option<Sample>,
    /// The API server's time at an instant of our monotonic clock, by the answers that agree with our wall clock.
    reference: Option<Reference>,
}

impl ServerClock {
    /// Knows nothing yet. `clock` is the one that the API server's has to agree with.
    pub fn new(clock: Clock) -> Self {
        Self { clock, compared: ResyncIntervals::default().fresh, state: Arc::default() }
    }

    /// The same with other resync intervals than the program's: for simulations, which ask the API server less often.
    #[must_use]
    pub fn with_intervals(self, intervals: ResyncIntervals) -> Self {
        Self { compared: intervals.fresh, ..self }
    }

    /// This machine's clock.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Notes the `Date` header of an answer, with the [monotonic](Clock::monotonic) times at which the request was sent and the answer
    /// was there. A header that is not a date is ignored.
    pub fn observe(&self, date: &str, sent: Duration, received: Duration) {
        let Ok(date) = DateTimeParser::new().parse_timestamp(date) else {
            tracing::debug!(date, "the Date header of an answer is not a date");
            return;
        };
        let sample = Sample { date, sent, received };
        let (wall, monotonic) = (self.clock.now(), self.clock.monotonic());
        let mut state = self.state();
        if sample.agrees(wall, monotonic) {
            // Answers may arrive in another order than they were sent: an older one says less, and nothing wrong.
            let reference = state.reference.filter(|reference| reference.is_consistent_with(sample));
            state.reference = Some(reference.unwrap_or(sample.reference()));
        } else {
            state.outlier = Some(sample);
        }
        if state.samples.len() == MAX_SAMPLES {
            state.samples.pop_front();
        }
        state.samples.push_back(sample);
    }

    /// The API server's time, to decide by.
    ///
    /// Never later than it is by the answers that are trusted, and at most a second (and the time of an answer)
    /// earlier.
    pub fn now(&self) -> ServerTime {
        let (wall, monotonic) = (self.clock.now(), self.clock.monotonic());
        let state = self.state();
        let advanced = state.reference.map(|reference| reference.advanced_to(monotonic));
        let compared = state.samples.back().is_some_and(|last| last.age(monotonic) < self.compared);
        let outlier = state.outlier.filter(|outlier| outlier.age(monotonic) < OUTLIER_PERIOD);
        let agree = state.samples.iter().chain(&outlier).all(|sample| sample.agrees(wall, monotonic));
        let uncertainty = match advanced {
            Some(now) if compared && agree => return ServerTime::certain(now),
            _ if compared => ClockUncertainty::Differs,
            _ => ClockUncertainty::NoServerTime,
        };
        let answered =
            state.samples.iter().chain(&outlier).map(|sample| sample.reference().advanced_to(monotonic));
        ServerTime::uncertain(uncertainty, wall, advanced.into_iter().chain(answered))
    }

    /// The API server's time at an instant of our [monotonic](Clock::monotonic) clock, as far as it is known now.
    pub fn at(&self, monotonic: Duration) -> Timestamp {
        let reference = self.state().reference;
        reference.map_or_else(
            || after(self.clock.now(), signed(monotonic) - signed(self.clock.monotonic())),
            |reference| reference.advanced_to(monotonic),
        )
    }

    /// By how much the API server's clock is ahead of ours (negative: behind), the middle one of the last answers; zero if all agrees
    /// to the header's resolution of a second; none while there was no answer. For people.
    pub fn skew(&self) -> Option<SignedDuration> {
        let (wall, monotonic) = (self.clock.now(), self.clock.monotonic());
        let state = self.state();
        let mut skews: Vec<_> = state.samples.iter().map(|sample| sample.skew(wall, monotonic)).collect();
        skews.sort_unstable();
        skews.get(skews.len() / 2).copied()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The API server's time was not before `time` when our monotonic clock showed `at`.
#[derive(Debug, Clone, Copy)]
struct Reference {
    at: Duration,
    time: Timestamp,
}

impl Reference {
    fn advanced_to(self, monotonic: Duration) -> Timestamp {
        after(self.time, signed(monotonic) - signed(self.at))
    }

    /// Whether the answer neither shows that it is later there nor that it is not so late yet.
    fn is_consistent_with(self, sample: Sample) -> bool {
        let least = self.advanced_to(sample.received) >= sample.date;
        let most = self.advanced_to(sample.sent) < after(sample.date, SignedDuration::from_secs(1));
        least && most
    }
}

/// The server's time was in `[date, date + 1 s)` at some moment between `sent` and `received` of our monotonic clock.
#[derive(Debug, Clone, Copy)]
struct Sample {
    date: Timestamp,
    sent: Duration,
    received: Duration,
}

impl Sample {
    fn agrees(self, wall: Timestamp, monotonic: Duration) -> bool {
        self.skew(wall, monotonic).abs() <= MAX_CLOCK_SKEW
    }

    /// What it says for sure.
    const fn reference(self) -> Reference {
        Reference { at: self.received, time: self.date }
    }

    fn age(self, monotonic: Duration) -> Duration {
        monotonic.saturating_sub(self.received)
    }

    /// The smallest change of our clock, which now shows `wall` at `monotonic`, that makes it agree with this answer.
    fn skew(self, wall: Timestamp, monotonic: Duration) -> SignedDuration {
        // What our wall clock, as it is set now, showed when the request was sent and when the answer was there.
        let ahead = |at: Duration| self.date.duration_since(wall) + signed(monotonic) - signed(at);
        let least = ahead(self.received);
        let most = ahead(self.sent) + SignedDuration::from_secs(1);
        if least > SignedDuration::ZERO {
            least
        } else if most < SignedDuration::ZERO {
            most
        } else {
            SignedDuration::ZERO
        }
    }
}

fn signed(duration: Duration) -> SignedDuration {
    SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX)
}

fn after(at: Timestamp, by: SignedDuration) -> Timestamp {
    // Fails for calendar units only, of which there are none in a signed duration.
    at.saturating_add(by).unwrap_or(at)
}

#[cfg(test)]
mod tests {
    use super::{MAX_CLOCK_SKEW, ServerClock};
    use crate::clock::{Clock, ClockHandle};
    use coppice_quantity::time::ClockUncertainty;
    use jiff::{SignedDuration, Timestamp};
    use proptest::prelude::*;
    use std::time::Duration;

    fn clock() -> (ServerClock, ClockHandle) {
        let (clock, handle) = Clock::manual("2026-01-01T00:00:00.4Z".parse().unwrap());
        (ServerClock::new(clock), handle)
    }

    /// An answer that took `took`, from a server whose clock is `ahead` of ours.
    fn sample(server: &ServerClock, handle: &ClockHandle, ahead: SignedDuration, took: Duration) {
        let sent = server.clock().monotonic();
        let date = header(server.clock().now() + ahead);
        handle.advance(took);
        server.observe(&date, sent, server.clock().monotonic());
    }

    fn header(at: Timestamp) -> String {
        at.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string()
    }

    const QUICK: Duration = Duration::from_millis(20);
    const HOUR: SignedDuration = SignedDuration::from_hours(1);

    fn uncertainty(server: &ServerClock) -> Option<ClockUncertainty> {
        server.now().uncertainty()
    }

    #[test]
    fn nothing_is_known_before_the_first_answer() {
        let (server, _) = clock();
        assert_eq!((server.skew(), uncertainty(&server)), (None, Some(ClockUncertainty::NoServerTime)));
    }

    #[test]
    fn what_is_not_a_date_is_ignored() {
        let (server, _) = clock();
        for outlier in ["", "now", "2026-01-01T00:00:00Z", "Thu, 99 Jan 2026 00:00:00 GMT"] {
            server.observe(outlier, Duration::ZERO, Duration::ZERO);
        }
        assert_eq!(uncertainty(&server), Some(ClockUncertainty::NoServerTime));
    }

    #[test]
    fn a_date_that_is_missing_for_long_is_a_doubt() {
        let (server, handle) = clock();
        sample(&server, &handle, SignedDuration::ZERO, QUICK);
        assert_eq!(uncertainty(&server), None);
        handle.advance(Duration::from_secs(90));
        assert_eq!(uncertainty(&server), Some(ClockUncertainty::NoServerTime));
    }

    #[test]
    fn ten_minutes_are_noticed_in_both_directions() {
        for minutes in [10, -10] {
            let (server, handle) = clock();
            let ahead = SignedDuration::from_mins(minutes);
            sample(&server, &handle, ahead, QUICK);
            assert_eq!(uncertainty(&server), Some(ClockUncertainty::Differs));
            assert!((server.skew().unwrap() - ahead).abs() <= SignedDuration::from_secs(1));
            let (ours, time) = (server.clock().now(), server.now());
            assert!(time.now() <= ours && time.now() <= ours + ahead, "the slower of both clocks");
            let faster = ours.max(ours + ahead - SignedDuration::from_secs(1) - QUICK);
            assert!(time.may_have_passed(faster), "{time:?}");
        }
    }

    /// As it was seen on a real API server: answers an hour ahead for six seconds, and right ones from then on.
    #[test]
    fn an_hour_that_was_wrong_is_taken_back() {
        let (server, handle) = clock();
        for second in 0..90 {
            let ahead = if second < 6 { HOUR } else { SignedDuration::ZERO };
            sample(&server, &handle, ahead, QUICK);
            assert!(server.now().now() <= server.clock().now(), "after {second} s");
            assert_eq!(uncertainty(&server).is_some(), second < 65, "after {second} s");
            handle.advance(Duration::from_millis(980));
        }
    }

    #[test]
    fn one_bad_api_server_of_several_is_not_outvoted() {
        for bad in [HOUR, -HOUR] {
            let (server, handle) = clock();
            for n in 0..60 {
                sample(&server, &handle, if n % 8 == 7 { bad } else { SignedDuration::ZERO }, QUICK);
                assert!(server.now().now() <= server.clock().now());
                assert_eq!(uncertainty(&server).is_some(), n >= 7, "answer {n}");
            }
        }
    }

    #[test]
    fn a_wall_clock_that_is_set_is_noticed_without_another_answer() {
        for jump in [HOUR, -HOUR] {
            let (server, handle) = clock();
            for _ in 0..5 {
                sample(&server, &handle, SignedDuration::ZERO, QUICK);
                handle.advance(Duration::from_secs(10));
            }
            let right = server.now();
            assert_eq!(right.uncertainty(), None);
            handle.jump(jump);
            assert_eq!(uncertainty(&server), Some(ClockUncertainty::Differs));
            assert!(server.now().now() <= right.now());
            handle.jump(-jump);
            assert_eq!(server.now(), right);
        }
    }

    #[test]
    fn a_small_difference_is_followed_not_doubted() {
        for ahead in [-4, 4] {
            let (server, handle) = clock();
            let ahead = SignedDuration::from_secs(ahead);
            for _ in 0..40 {
                sample(&server, &handle, ahead, QUICK);
                handle.advance(Duration::from_millis(70));
            }
            let behind = (server.clock().now() + ahead).duration_since(server.now().now());
            assert!(!behind.is_negative() && behind <= SignedDuration::from_millis(100), "{behind:?}");
        }
    }

    proptest! {
        /// Whatever single answers say, however long they take, and however often our wall clock is set: what is
        /// trusted is never later than it is, and no more than a second and the slowest answer earlier.
        #[test]
        fn the_certain_time_is_never_early(
            steps in prop::collection::vec((0u64..3_000, 0u64..2_000, 0u8..12, -4_000i64..4_000), 1..120),
            ahead in -4_000i64..4_000,
        ) {
            let (server, handle) = clock();
            let ahead = SignedDuration::from_millis(ahead);
            let started = server.clock().now();
            let mut slowest = 0;
            for (took, pause, kind, jump) in steps {
                // The API server's clock is right; ours may be set.
                let truth = |s: &ServerClock| {
                    started + ahead + SignedDuration::try_from(s.clock().monotonic()).unwrap()
                };
                let outlier = match kind { 0 => HOUR, 1 => -HOUR, _ => SignedDuration::ZERO };
                if kind == 2 {
                    handle.jump(SignedDuration::from_millis(jump * 1_000));
                }
                let sent = server.clock().monotonic();
                let date = header(truth(&server) + outlier);
                handle.advance(Duration::from_millis(took));
                server.observe(&date, sent, server.clock().monotonic());
                slowest = slowest.max(took);
                handle.advance(Duration::from_millis(pause));
                let (now, truth) = (server.now(), truth(&server));
                if now.uncertainty().is_none() {
                    prop_assert!(now.now() <= truth, "{} is later than {truth}", now.now());
                    let late = truth.duration_since(now.now());
                    prop_assert!(late <= SignedDuration::from_millis(1_000 + i64::try_from(slowest).unwrap()));
                }
            }
        }

        /// The skew that people see never invents anything, and misses at most the header's second and the time that the request took.
        #[test]
        fn the_skew_is_the_smallest_that_explains_the_answer(ahead in -1_000_000i64..1_000_000, took in 0u64..20_000) {
            let (server, handle) = clock();
            let (ahead, took) = (SignedDuration::from_millis(ahead), Duration::from_millis(took));
            sample(&server, &handle, ahead, took);
            let seen = server.skew().unwrap();
            prop_assert!(seen.abs() <= ahead.abs());
            prop_assert!(seen.is_zero() || seen.signum() == ahead.signum());
            let limit = SignedDuration::from_secs(1) + SignedDuration::try_from(took).unwrap();
            prop_assert!((ahead - seen).abs() <= limit);
            prop_assert!(ahead.abs() < MAX_CLOCK_SKEW || ahead.abs() <= limit + MAX_CLOCK_SKEW || uncertainty(&server).is_some());
        }
    }
}
