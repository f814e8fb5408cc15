//! How far this machine's wall clock is from the API server's.
//!
//! Ages are computed from the server's timestamps and this machine's `now`; when the two clocks differ, things would happen early or
//! late. Every answer of the API server carries its time in the `Date` header, so the difference is known without asking.
//!
//! What is kept of an answer is where the *server's* time was on our *monotonic* clock. So when our wall clock is set, or the machine
//! comes back from a suspend, the skew is seen at once and not only after the next answers.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::fmt::rfc2822::DateTimeParser;
use jiff::{SignedDuration, Timestamp};

use crate::clock::Clock;

/// Beyond this much skew nothing destructive may be done.
pub const LIMIT: SignedDuration = coppice_lifecycle::plan::MAX_CLOCK_SKEW;

/// So many answers are remembered; an odd one among them is outvoted.
const REMEMBERED: usize = 5;

/// The estimate, fed with every answer of the API server. Clones share it.
#[derive(Debug, Clone)]
pub struct Skew {
    clock: Clock,
    answers: Arc<Mutex<VecDeque<Answer>>>,
}

impl Skew {
    /// Knows nothing yet. `clock` is the one whose skew is estimated.
    pub fn new(clock: Clock) -> Self {
        Self { clock, answers: Arc::default() }
    }

    /// The clock whose skew this is.
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
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        if answers.len() == REMEMBERED {
            answers.pop_front();
        }
        answers.push_back(Answer { date, sent, received });
    }

    /// By how much the server's clock is ahead of ours (negative: behind), zero if all agrees to the header's resolution of a second;
    /// `None` while no answer was seen.
    pub fn current(&self) -> Option<SignedDuration> {
        let (wall, monotonic) = (self.clock.now(), self.clock.monotonic());
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        // Asked at every look at every manager: nothing is allocated.
        let mut skews = [SignedDuration::ZERO; REMEMBERED];
        for (skew, answer) in skews.iter_mut().zip(answers.iter()) {
            *skew = answer.skew(wall, monotonic);
        }
        median(&mut skews[..answers.len()])
    }

    /// The skew, if its size is more than `limit` ([`LIMIT`]). Not knowing it yet is not a skew: a caller that needs to know makes a
    /// request first, as everything destructive does.
    pub fn exceeds(&self, limit: SignedDuration) -> Option<SignedDuration> {
        self.current().filter(|skew| skew.abs() > limit)
    }
}

/// The server's time was in `[date, date + 1 s)` at some moment between `sent` and `received` of our monotonic clock.
#[derive(Debug, Clone, Copy)]
struct Answer {
    date: Timestamp,
    sent: Duration,
    received: Duration,
}

impl Answer {
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

/// The middle one; of two in the middle the larger, because doing nothing is safe.
fn median(skews: &mut [SignedDuration]) -> Option<SignedDuration> {
    skews.sort_unstable();
    let upper = *skews.get(skews.len() / 2)?;
    let lower = *skews.get((skews.len() - 1) / 2)?;
    Some(if lower.abs() > upper.abs() { lower } else { upper })
}

#[cfg(test)]
mod tests {
    use super::{LIMIT, Skew};
    use crate::clock::{Clock, ClockHandle};
    use jiff::{SignedDuration, Timestamp};
    use proptest::prelude::*;
    use std::time::Duration;

    fn skew() -> (Skew, ClockHandle) {
        let (clock, handle) = Clock::manual("2026-01-01T00:00:00.4Z".parse().unwrap());
        (Skew::new(clock), handle)
    }

    /// An answer that took `took`, from a server whose clock is `ahead` of ours.
    fn answer(skew: &Skew, handle: &ClockHandle, ahead: SignedDuration, took: Duration) {
        let sent = skew.clock().monotonic();
        let date = header(skew.clock().now() + ahead);
        handle.advance(took);
        skew.observe(&date, sent, skew.clock().monotonic());
    }

    fn header(at: Timestamp) -> String {
        at.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string()
    }

    const QUICK: Duration = Duration::from_millis(20);

    #[test]
    fn nothing_is_known_before_the_first_answer() {
        assert_eq!(skew().0.current(), None);
        assert_eq!(skew().0.exceeds(LIMIT), None);
    }

    #[test]
    fn what_is_not_a_date_is_ignored() {
        let (skew, _) = skew();
        for odd in ["", "now", "2026-01-01T00:00:00Z", "Thu, 99 Jan 2026 00:00:00 GMT"] {
            skew.observe(odd, Duration::ZERO, Duration::ZERO);
        }
        assert_eq!(skew.current(), None);
    }

    #[test]
    fn ten_minutes_are_noticed_in_both_directions() {
        for minutes in [10, -10] {
            let (skew, handle) = skew();
            answer(&skew, &handle, SignedDuration::from_mins(minutes), QUICK);
            let seen = skew.exceeds(LIMIT).unwrap();
            assert!(
                (seen - SignedDuration::from_mins(minutes)).abs() <= SignedDuration::from_secs(1),
                "{seen:?}"
            );
        }
    }

    #[test]
    fn one_odd_answer_is_outvoted() {
        let (skew, handle) = skew();
        for _ in 0..2 {
            answer(&skew, &handle, SignedDuration::ZERO, QUICK);
        }
        answer(&skew, &handle, SignedDuration::from_hours(3), QUICK);
        assert_eq!(skew.current(), Some(SignedDuration::ZERO));
    }

    #[test]
    fn of_two_answers_that_disagree_the_worse_counts() {
        let (skew, handle) = skew();
        answer(&skew, &handle, SignedDuration::ZERO, QUICK);
        answer(&skew, &handle, SignedDuration::from_mins(-10), QUICK);
        assert!(skew.exceeds(LIMIT).is_some());
    }

    #[test]
    fn a_wall_clock_that_is_set_is_noticed_without_another_answer() {
        let (skew, handle) = skew();
        for _ in 0..5 {
            answer(&skew, &handle, SignedDuration::ZERO, QUICK);
            handle.advance(Duration::from_hours(1));
        }
        assert_eq!(skew.current(), Some(SignedDuration::ZERO));
        handle.jump(SignedDuration::from_mins(10));
        assert!(skew.exceeds(LIMIT).unwrap() < SignedDuration::from_mins(-9), "the server is behind us now");
        handle.jump(SignedDuration::from_mins(-10));
        assert_eq!(skew.current(), Some(SignedDuration::ZERO));
    }

    #[test]
    fn a_corrected_clock_is_believed_after_three_answers() {
        let (skew, handle) = skew();
        for _ in 0..5 {
            answer(&skew, &handle, SignedDuration::from_mins(1), QUICK);
        }
        for left in [true, true, false] {
            answer(&skew, &handle, SignedDuration::ZERO, QUICK);
            assert_eq!(skew.exceeds(LIMIT).is_some(), left);
        }
    }

    proptest! {
        /// The estimate never invents skew, and misses at most the header's second and the time that the request took.
        #[test]
        fn the_estimate_is_the_smallest_that_explains_the_answer(ahead in -1_000_000i64..1_000_000, took in 0u64..20_000) {
            let (skew, handle) = skew();
            let (ahead, took) = (SignedDuration::from_millis(ahead), Duration::from_millis(took));
            answer(&skew, &handle, ahead, took);
            let seen = skew.current().unwrap();
            prop_assert!(seen.abs() <= ahead.abs());
            prop_assert!(seen.is_zero() || seen.signum() == ahead.signum());
            prop_assert!((ahead - seen).abs() <= SignedDuration::from_secs(1) + SignedDuration::try_from(took).unwrap());
        }
    }
}
