//! How long to wait before the next attempt of a step that failed.

use std::time::Duration;

/// The longest wait between two attempts.
pub const MAX_BACKOFF: Duration = Duration::from_mins(5);

/// The wait after `attempts` attempts that failed: 1 s, 2 s, 4 s, ... and at most [`MAX_BACKOFF`].
///
/// No attempt yet means no wait. The wait is deterministic, so that the instant of the next attempt can be computed
/// from an object's status; the limits of the outbox keep attempts of many objects apart.
pub fn backoff(attempts: u32) -> Duration {
    let Some(doublings) = attempts.checked_sub(1) else {
        return Duration::ZERO;
    };
    1_u64.checked_shl(doublings).map_or(MAX_BACKOFF, Duration::from_secs).min(MAX_BACKOFF)
}

#[cfg(test)]
mod tests {
    use super::{MAX_BACKOFF, backoff};
    use std::time::Duration;

    #[test]
    fn doubles_up_to_five_minutes() {
        let seconds: Vec<u64> = (0..12).map(|attempts| backoff(attempts).as_secs()).collect();
        assert_eq!(seconds, [0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
    }

    #[test]
    fn never_overflows_and_never_gets_shorter() {
        let mut before = Duration::ZERO;
        for attempts in (0..200).chain([u32::MAX - 1, u32::MAX]) {
            let wait = backoff(attempts);
            assert!(before <= wait && wait <= MAX_BACKOFF, "{attempts}: {wait:?}");
            before = wait;
        }
    }
}
