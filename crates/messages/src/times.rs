//! Instants for people.

use jiff::Timestamp;

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// An instant in UTC to the minute, with its zone: `2026-01-02 15:04 UTC`.
pub(crate) fn absolute(at: Timestamp) -> String {
    at.strftime("%Y-%m-%d %H:%M UTC").to_string()
}

/// How far away an instant is: `in 23 hours`, `5 minutes ago`.
pub(crate) fn relative(at: Timestamp, now: Timestamp) -> String {
    let away = at.duration_since(now);
    let length = length(away.unsigned_abs().as_secs());
    if away.is_negative() { format!("{length} ago") } else { format!("in {length}") }
}

/// Both: `2026-01-02 15:04 UTC, in 23 hours`.
pub(crate) fn both(at: Timestamp, now: Timestamp) -> String {
    format!("{}, {}", absolute(at), relative(at, now))
}

/// How long something has lasted; none if it begins later than now by this clock.
pub(crate) fn lasted(since: Timestamp, now: Timestamp) -> Option<String> {
    let lasted = now.duration_since(since);
    (!lasted.is_negative()).then(|| length(lasted.unsigned_abs().as_secs()))
}

/// A length of time in one unit, to the nearest: the absolute time stands beside it.
fn length(seconds: u64) -> String {
    let rounded = |unit: u64| (seconds + unit / 2) / unit;
    let (number, unit) = match seconds {
        ..MINUTE => return "less than a minute".to_owned(),
        ..7200 if rounded(MINUTE) != 60 && rounded(MINUTE) < 120 => (rounded(MINUTE), "minute"),
        ..172_800 if rounded(HOUR) < 48 => (rounded(HOUR), "hour"),
        _ => (rounded(DAY), "day"),
    };
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {unit}{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn lengths_have_one_unit() {
        for (seconds, text) in [
            (0, "less than a minute"),
            (59, "less than a minute"),
            (60, "1 minute"),
            (150, "3 minutes"),
            (3_540, "59 minutes"),
            (3_598, "1 hour"),
            (3_600, "1 hour"),
            (5_700, "95 minutes"),
            (7_199, "2 hours"),
            (82_800, "23 hours"),
            (86_399, "24 hours"),
            (172_799, "2 days"),
            (864_000, "10 days"),
        ] {
            assert_eq!(length(seconds), text, "{seconds}");
        }
    }

    #[test]
    fn instants_are_absolute_and_relative() {
        let now = at("2026-01-01T16:04:00Z");
        assert_eq!(both(at("2026-01-02T15:04:30Z"), now), "2026-01-02 15:04 UTC, in 23 hours");
        assert_eq!(relative(at("2026-01-01T15:59:00Z"), now), "5 minutes ago");
        assert_eq!(lasted(at("2026-01-01T14:04:00Z"), now).as_deref(), Some("2 hours"));
        assert_eq!(lasted(at("2026-01-01T17:00:00Z"), now), None);
    }
}
