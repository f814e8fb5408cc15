//! When a credential is replaced, and when what failed is tried again.

use coppice_clusters_api::{ClusterAccessSpec, LastError};
use jiff::{SignedDuration, Timestamp};

use crate::observed::Validity;

/// The first pause after a failure.
const FIRST_PAUSE: SignedDuration = SignedDuration::from_mins(1);
/// The longest.
const LONGEST_PAUSE: SignedDuration = SignedDuration::from_mins(30);
/// By how many thousandths of its time a credential is replaced earlier at most, so that many are not replaced at once.
const MAX_JITTER: i64 = 100;

/// When a credential is replaced: after so many percent of the time that was granted, or of `spec.ttl` if that is shorter by now, less
/// a jitter from the uid.
pub fn next_rotation(spec: &ClusterAccessSpec, uid: &str, validity: Validity) -> Timestamp {
    let granted = validity.not_after.duration_since(validity.not_before).as_secs().max(0);
    let time = granted.min(spec.ttl.as_secs_i64()) * i64::from(spec.rotate_at) / 100;
    let early = time * (i64::from(hash(uid)) % (MAX_JITTER + 1)) / 1000;
    later(validity.not_before, SignedDuration::from_secs(time - early))
}

/// When what failed is tried again: 1, 2, 4, 8, 16, then 30 minutes later.
pub fn next_attempt(error: &LastError) -> Timestamp {
    let doublings = error.attempts.saturating_sub(1).min(5);
    later(error.at, (FIRST_PAUSE * (1 << doublings)).min(LONGEST_PAUSE))
}

/// That much later, or never.
pub(crate) fn later(at: Timestamp, by: SignedDuration) -> Timestamp {
    at.saturating_add(by).unwrap_or(Timestamp::MAX)
}

/// FNV-1a: the same in every replica and version.
fn hash(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests::spec;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn what_was_granted_counts_and_a_jitter_makes_it_earlier_only() {
        let granted = Validity { not_before: at(0), not_after: at(3600) };
        let all: Vec<i64> =
            (0..200).map(|n| next_rotation(&spec(), &format!("uid-{n}"), granted).as_second()).collect();
        assert!(all.iter().all(|second| (1944..=2160).contains(second)), "{all:?}");
        assert!(all.iter().min() < Some(&1980) && all.iter().max() > Some(&2130), "they are spread: {all:?}");
        assert_eq!(next_rotation(&spec(), "uid-1", granted), next_rotation(&spec(), "uid-1", granted));
    }

    #[test]
    fn a_ttl_that_is_shorter_by_now_counts() {
        let mut spec = spec();
        let granted = Validity { not_before: at(0), not_after: at(86_400) };
        assert!(next_rotation(&spec, "u", granted) > at(40_000));
        spec.ttl = coppice_quantity::Duration::from_secs(600);
        assert!(next_rotation(&spec, "u", granted) <= at(360));
    }

    #[test]
    fn attempts_are_1_to_30_minutes_apart() {
        let minutes: Vec<i64> = (0..9)
            .map(|attempts| {
                let error = LastError {
                    reason: String::new(),
                    message: String::new(),
                    generation: 1,
                    attempts,
                    at: at(0),
                };
                next_attempt(&error).as_second() / 60
            })
            .collect();
        assert_eq!(minutes, [1, 1, 2, 4, 8, 16, 30, 30, 30]);
    }
}
