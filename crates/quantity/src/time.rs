//! The time that decisions are made by.

use coppice_mutants::{Mutant, active};
use jiff::{SignedDuration, Timestamp};

/// The API server's clock and this machine's agree while they differ by no more than this.
pub const MAX_CLOCK_SKEW: SignedDuration = SignedDuration::from_secs(5);

/// An instant as precise as dates in our own objects are.
pub fn in_milliseconds(at: Timestamp) -> Timestamp {
    Timestamp::from_millisecond(at.as_millisecond()).unwrap_or(at)
}

/// The API server's time, as far as it is known. Decisions use times that the API server wrote.
///
/// While the clocks agree it is one instant. While they do not, it lies between two: nothing ends before the earlier one,
/// and what may have ended by the later one is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerTime {
    earliest: Timestamp,
    latest: Timestamp,
    uncertainty: Option<ClockUncertainty>,
}

/// Why a time is not trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockUncertainty {
    /// No recent answer of the API server has carried its time.
    NoServerTime,
    /// The API server's answers and this machine's clock differ by more than [`MAX_CLOCK_SKEW`], or did a moment ago.
    Differs,
}

impl ServerTime {
    /// The clocks agree.
    pub const fn certain(now: Timestamp) -> Self {
        Self { earliest: now, latest: now, uncertainty: None }
    }

    /// They do not: the true time is one of these, or between two of them.
    pub fn uncertain(
        uncertainty: ClockUncertainty,
        any: Timestamp,
        others: impl IntoIterator<Item = Timestamp>,
    ) -> Self {
        let unknown = Self { earliest: any, latest: any, uncertainty: Some(uncertainty) };
        let between = others.into_iter().fold(unknown, |time, other| Self {
            earliest: time.earliest.min(other),
            latest: time.latest.max(other),
            ..time
        });
        if active(Mutant::ClockSkewIgnored) { Self::certain(between.earliest) } else { between }
    }

    /// The time before which it is certainly not: what is due by it is due.
    pub const fn now(&self) -> Timestamp {
        self.earliest
    }

    /// Whether an instant may have come, though it is not certain.
    pub fn may_have_passed(&self, at: Timestamp) -> bool {
        self.uncertainty.is_some() && at <= self.latest
    }

    /// What [`now`](Self::now) will be when an instant may have come for the first time.
    pub fn when_it_may_have_passed(&self, at: Timestamp) -> Timestamp {
        at.checked_sub(self.latest.duration_since(self.earliest)).unwrap_or(at)
    }

    /// Why the time is not trusted, if so. Then nothing destructive is done.
    pub const fn uncertainty(&self) -> Option<ClockUncertainty> {
        self.uncertainty
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_doubted_lies_between_the_earliest_and_the_latest() {
        let at = |seconds| Timestamp::from_second(seconds).unwrap();
        let time = ServerTime::uncertain(ClockUncertainty::Differs, at(20), [at(30), at(10)]);
        assert_eq!((time.now(), time.uncertainty()), (at(10), Some(ClockUncertainty::Differs)));
        assert_eq!([30, 31].map(|s| time.may_have_passed(at(s))), [true, false]);
        assert_eq!(time.when_it_may_have_passed(at(50)), at(30), "the later clock shows 50 then");
        assert!(!ServerTime::certain(at(30)).may_have_passed(at(20)), "that it has come is certain");
    }
}
