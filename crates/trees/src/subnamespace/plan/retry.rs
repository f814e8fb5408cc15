//! When a change of a quota that was begun and given up is tried again.

use coppice_api::Amounts;
use coppice_api::subnamespace::RefusedChange;
use jiff::{SignedDuration, Timestamp, Unit};

/// How long it is not tried again after the first time, unless something else is asked for; after each further time twice as long,
const FIRST: SignedDuration = SignedDuration::from_mins(1);
/// and at most so long.
const LONGEST: SignedDuration = SignedDuration::from_mins(5);

/// What is recorded of a change to these amounts that is given up now, after what was given up `before`.
pub(super) fn refused(
    before: Option<&RefusedChange>,
    hard: Amounts,
    message: String,
    now: Timestamp,
) -> RefusedChange {
    let again = before.filter(|before| before.hard == hard);
    let attempts = again.map_or(0, |before| before.attempts).saturating_add(1);
    let doubled = 1_i32.checked_shl(attempts - 1).and_then(|times| FIRST.checked_mul(times));
    let wait = doubled.filter(SignedDuration::is_positive).unwrap_or(LONGEST).min(LONGEST);
    let until = now.saturating_add(wait).unwrap_or(Timestamp::MAX);
    let until = until.round(Unit::Second).unwrap_or(until);
    RefusedChange { hard, message, attempts, until }
}

#[cfg(test)]
mod tests {
    use coppice_quantity::Quantity;

    use super::*;

    #[test]
    fn what_is_given_up_again_and_again_is_tried_more_and_more_rarely() {
        let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let of = |pods: u32| -> Amounts { [("pods", Quantity::from(pods))].into_iter().collect() };
        let mut last = refused(None, of(2), String::new(), start);
        let mut minutes = vec![(last.attempts, last.until.duration_since(start).as_mins())];
        for _ in 0..40 {
            last = refused(Some(&last), of(2), String::new(), start);
            minutes.push((last.attempts, last.until.duration_since(start).as_mins()));
        }
        assert_eq!(minutes[..5], [(1, 1), (2, 2), (3, 4), (4, 5), (5, 5)]);
        assert_eq!(minutes[40], (41, 5));
        let other = refused(Some(&last), of(3), String::new(), start);
        assert_eq!((other.attempts, other.until.duration_since(start).as_mins()), (1, 1));
    }
}
