//! Durations as that system writes them: `5m`, `1h30m`, `1.5h`, in any case, with spaces and in any order.

use coppice_quantity::{DURATION_UNITS, Duration, LONGEST_SECONDS};
use thiserror::Error;

/// What is wrong, what that system made of it, and what to write.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(super) enum SkaDurationError {
    #[error("{0:?} has no unit, and that system takes it for zero: write 5m for minutes or 300s for seconds")]
    NoUnit(String),
    #[error(
        "{0:?} is no duration: that system reads what it can of it (1y is zero, 500ms are 500 minutes); write numbers with the units w, d, \
         h, m and s, such as 90s, 1h30m or 7d"
    )]
    Malformed(String),
    #[error("{text:?} has the unit {unit} twice, and that system reads only the last: write it once")]
    UnitTwice { text: String, unit: char },
    #[error("{0:?} is too long: at most 36525d")]
    TooLong(String),
}

/// A duration, and whether it had a fraction of a second, which is rounded up.
pub(super) fn parse(text: &str) -> Result<(Duration, bool), SkaDurationError> {
    let compact: String =
        text.chars().filter(|c| !c.is_whitespace()).collect::<String>().to_ascii_lowercase();
    if compact.is_empty() || compact.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
        return Err(SkaDurationError::NoUnit(text.to_owned()));
    }
    let (mut nanoseconds, mut seen) = (0_u128, Vec::new());
    let mut rest = compact.as_str();
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, tail) = rest.split_at(digits);
        let unit = tail.chars().next().unwrap_or_default();
        let (Some((_, size)), Some(value)) =
            (DURATION_UNITS.iter().find(|(name, _)| *name == unit), billionths(number))
        else {
            return Err(SkaDurationError::Malformed(text.to_owned()));
        };
        if seen.contains(&unit) {
            return Err(SkaDurationError::UnitTwice { text: text.to_owned(), unit });
        }
        seen.push(unit);
        nanoseconds = nanoseconds.saturating_add(value.saturating_mul(u128::from(*size)));
        rest = tail.get(1..).unwrap_or_default();
    }
    let seconds = nanoseconds.div_ceil(BILLION);
    match u64::try_from(seconds) {
        Ok(seconds) if seconds <= LONGEST_SECONDS => {
            Ok((Duration::from_secs(seconds), !nanoseconds.is_multiple_of(BILLION)))
        }
        _ => Err(SkaDurationError::TooLong(text.to_owned())),
    }
}

const BILLION: u128 = 1_000_000_000;

/// A decimal number in billionths; none if it is none, or has more than nine places.
fn billionths(number: &str) -> Option<u128> {
    let (whole, fraction) =
        number.split_once('.').map_or((number, None), |(whole, rest)| (whole, Some(rest)));
    let places = fraction.unwrap_or("0");
    let good = |digits: &str| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    if !good(whole) || !good(places) || places.len() > 9 || whole.len() > 15 {
        return None;
    }
    format!("{whole}{places:0<9}").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_that_system_reads_is_read_with_the_same_units() {
        for (text, seconds) in [
            ("5m", 300),
            ("1h30m", 5400),
            ("30m1h", 5400),
            ("1h 30m", 5400),
            ("1.5h", 5400),
            ("2D", 172_800),
            ("1w", 604_800),
            ("0s", 0),
        ] {
            assert_eq!(parse(text), Ok((Duration::from_secs(seconds), false)), "{text}");
        }
        assert_eq!(parse("1.5s"), Ok((Duration::from_secs(2), true)));
    }

    #[test]
    fn what_that_system_misreads_is_an_error_that_says_so() {
        for (text, expected) in [
            ("", "has no unit"),
            ("300", "takes it for zero"),
            ("1.5", "has no unit"),
            ("1y", "is no duration"),
            ("500ms", "is no duration"),
            ("5min", "is no duration"),
            ("-5m", "is no duration"),
            ("1m1m", "has the unit m twice"),
            ("1..5h", "is no duration"),
            (".h", "is no duration"),
            ("99999999999999w", "too long"),
        ] {
            let found = parse(text).unwrap_err().to_string();
            assert!(found.contains(expected), "{text}: {found}");
        }
    }
}
