//! A length of time as users write it: `90s`, `1h30m`, `7d`, `2w`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// What the API server checks a duration against, beside that it is not empty.
pub const PATTERN: &str = "^([0-9]+w)?([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?$";

/// No duration is longer than this (about a century): sums with timestamps stay in range everywhere.
pub const MAX_SECONDS: u64 = 36_525 * 86_400;

/// The units, largest first, in seconds.
pub const UNITS: [(char, u64); 5] = [('w', 604_800), ('d', 86_400), ('h', 3_600), ('m', 60), ('s', 1)];

/// A non-negative number of whole seconds, written with units: weeks `w`, days `d`, hours `h`, minutes `m`,
/// seconds `s`, largest unit first, each at most once (`2w`, `1d12h`, `1h30m`, `90s`).
///
/// A number without a unit is refused: nobody can tell `300` minutes from `300` seconds. A day is 24 hours.
/// Printing is canonical: equal durations print alike, and what is printed parses to the same duration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Duration {
    seconds: u64,
}

/// Why a text is not a duration. The message says what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// Nothing was written.
    #[error("a duration is missing: write a number with a unit, such as 90s, 1h30m, 7d or 2w")]
    Empty,
    /// A bare number.
    #[error("{0:?} has no unit: write {0}s for seconds, {0}m for minutes, {0}h for hours or {0}d for days")]
    NoUnit(String),
    /// Something else than digits and the units w, d, h, m, s.
    #[error(
        "{0:?} is not a duration: write numbers with the units w, d, h, m, s, such as 90s, 1h30m, 7d or 2w"
    )]
    Syntax(String),
    /// Units repeated or not from large to small.
    #[error(
        "{0:?} repeats a unit or has them out of order: write the largest first, each once, such as 1d12h30m"
    )]
    Order(String),
    /// More than a century.
    #[error("{0:?} is too long: at most 36525d")]
    TooLong(String),
}

impl Duration {
    /// No time at all.
    pub const ZERO: Self = Self { seconds: 0 };

    /// A duration of that many seconds, cut at 36525 days.
    pub const fn from_secs(seconds: u64) -> Self {
        Self { seconds: if seconds > MAX_SECONDS { MAX_SECONDS } else { seconds } }
    }

    /// The whole of it in seconds.
    pub const fn as_secs(self) -> u64 {
        self.seconds
    }

    /// The whole of it in seconds, signed, for arithmetic with instants. Exact: no duration exceeds a century.
    pub const fn as_secs_i64(self) -> i64 {
        self.seconds.cast_signed()
    }

    /// True for `0s`.
    pub const fn is_zero(self) -> bool {
        self.seconds == 0
    }
}

impl From<Duration> for std::time::Duration {
    fn from(value: Duration) -> Self {
        Self::from_secs(value.seconds)
    }
}

impl FromStr for Duration {
    type Err = DurationError;

    fn from_str(text: &str) -> Result<Self, DurationError> {
        if text.is_empty() {
            return Err(DurationError::Empty);
        }
        if text.bytes().all(|b| b.is_ascii_digit()) {
            return Err(DurationError::NoUnit(text.to_owned()));
        }
        let mut units = UNITS.iter();
        let mut total: u64 = 0;
        let mut rest = text;
        while !rest.is_empty() {
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            let (number, tail) = rest.split_at(digits);
            let unit = tail.chars().next().filter(|_| digits > 0);
            let Some(unit) = unit.filter(|u| UNITS.iter().any(|(name, _)| name == u)) else {
                return Err(DurationError::Syntax(text.to_owned()));
            };
            let Some((_, seconds)) = units.by_ref().find(|(name, _)| *name == unit) else {
                return Err(DurationError::Order(text.to_owned()));
            };
            total = number
                .parse::<u64>()
                .ok()
                .and_then(|n| n.checked_mul(*seconds))
                .and_then(|n| n.checked_add(total))
                .filter(|n| *n <= MAX_SECONDS)
                .ok_or_else(|| DurationError::TooLong(text.to_owned()))?;
            rest = &tail[unit.len_utf8()..];
        }
        Ok(Self { seconds: total })
    }
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.seconds == 0 {
            return f.write_str("0s");
        }
        // Weeks only when nothing else is left over: `2w` is clear, `1w3d` is better read as `10d`.
        if self.seconds.is_multiple_of(604_800) {
            return write!(f, "{}w", self.seconds / 604_800);
        }
        let mut rest = self.seconds;
        for (name, size) in &UNITS[1..] {
            if rest >= *size {
                write!(f, "{}{name}", rest / size)?;
                rest %= size;
            }
        }
        Ok(())
    }
}

impl Serialize for Duration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Duration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = Duration;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a duration with a unit, such as 90s, 1h30m, 7d or 2w")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Duration, E> {
                text.parse().map_err(E::custom)
            }

            fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<Duration, E> {
                Err(E::custom(DurationError::NoUnit(number.to_string())))
            }

            fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<Duration, E> {
                Err(E::custom(DurationError::Syntax(number.to_string())))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(text: &str) -> Result<u64, DurationError> {
        text.parse::<Duration>().map(Duration::as_secs)
    }

    #[test]
    fn accepts_what_people_write() {
        for (text, seconds) in [
            ("90s", 90),
            ("1h30m", 5400),
            ("7d", 604_800),
            ("2w", 1_209_600),
            ("1w1d1h1m1s", 694_861),
            ("0s", 0),
        ] {
            assert_eq!(parse(text), Ok(seconds), "{text}");
        }
    }

    #[test]
    fn refuses_with_advice() {
        assert_eq!(parse(""), Err(DurationError::Empty));
        assert!(matches!(parse("300"), Err(DurationError::NoUnit(_))));
        for text in ["-5m", "5 m", "5min", "1.5h", "m", "5m ", "1ms", "5µ", "h5"] {
            assert!(matches!(parse(text), Err(DurationError::Syntax(_))), "{text}");
        }
        for text in ["1s1m", "1m1m"] {
            assert!(matches!(parse(text), Err(DurationError::Order(_))), "{text}");
        }
        assert!(matches!(parse("99999999999999999999s"), Err(DurationError::TooLong(_))));
        assert!(matches!(parse("36526d"), Err(DurationError::TooLong(_))));
    }

    #[test]
    fn a_bare_number_in_json_is_refused_with_advice() {
        let error = serde_json::from_str::<Duration>("300").unwrap_err().to_string();
        assert!(error.contains("write 300s for seconds"), "{error}");
    }

    proptest! {
        #[test]
        fn what_is_printed_parses_to_the_same(seconds in 0..=MAX_SECONDS) {
            let duration = Duration::from_secs(seconds);
            prop_assert_eq!(duration.to_string().parse::<Duration>(), Ok(duration));
        }

        #[test]
        fn parsing_never_panics(text in ".{0,40}") {
            let _ = text.parse::<Duration>();
        }
    }
}
