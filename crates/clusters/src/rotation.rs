//! When a credential is replaced, and when what failed is tried again.

use coppice_clusters_api::{ClusterAccessSpec, LastError, Restored};
use jiff::{SignedDuration, Timestamp};

use crate::observed::{AccessObservation, Validity};
use crate::status::validity;

/// The first pause after a failure.
const FIRST_PAUSE: SignedDuration = SignedDuration::from_mins(1);
/// The longest.
const LONGEST_PAUSE: SignedDuration = SignedDuration::from_mins(30);
/// So often in a row a Secret that somebody deleted or edited is written again at once.
const RESTORED_AT_ONCE: u32 = 3;
/// After so long without that the count begins again: longer than the longest pause.
const RESTORED_IN_A_ROW: SignedDuration = SignedDuration::from_hours(1);
/// By how many thousandths of its time a credential is replaced earlier at most, so that many are not replaced at once.
const MAX_JITTER: i64 = 100;

/// When a credential is replaced: after so many percent of the time that was granted, or of `spec.ttl` if that is shorter by now, less
/// a jitter from the uid.
pub fn next_rotation(spec: &ClusterAccessSpec, uid: &str, validity: Validity) -> Timestamp {
    let granted = validity.not_after.duration_since(validity.not_before).as_secs().max(0);
    let time = granted.min(spec.ttl.as_secs_i64()) * i64::from(spec.rotate_at) / 100;
    later(validity.not_before, SignedDuration::from_secs(earlier_by_uid(time, uid)))
}

/// So many seconds, less a jitter from the uid: a tenth of them at most.
pub(crate) fn earlier_by_uid(seconds: i64, uid: &str) -> i64 {
    seconds - seconds * (i64::from(hash(uid)) % (MAX_JITTER + 1)) / 1000
}

/// Whether a rotation has become due since something failed: that goes first, since a credential that is valid for minutes would expire
/// while a revocation that keeps failing waits for its next attempts.
pub(crate) fn is_newly_due(observed: &AccessObservation, now: Timestamp) -> bool {
    let due =
        validity(&observed.status).map(|validity| next_rotation(&observed.spec, &observed.uid, validity));
    due.is_some_and(|due| {
        due <= now && observed.status.last_error.as_ref().is_some_and(|error| error.at < due)
    })
}

/// When what failed is tried again: 1, 2, 4, 8, 16, then 30 minutes later.
pub fn next_attempt(error: &LastError) -> Timestamp {
    later(error.at, pause(error.attempts.max(1)))
}

/// The pause after so many times.
fn pause(times: u32) -> SignedDuration {
    let doublings = times.saturating_sub(1).min(5);
    (FIRST_PAUSE * (1 << doublings)).min(LONGEST_PAUSE)
}

/// From when on a Secret that somebody deletes or edits once more is written again.
pub(crate) fn next_restoration(restored: &Restored) -> Timestamp {
    match restored.times.checked_sub(RESTORED_AT_ONCE) {
        None => restored.at,
        Some(more) => later(restored.at, pause(more.saturating_add(1))),
    }
}

/// One restoration more.
pub(crate) fn restored_again(before: Option<&Restored>, now: Timestamp) -> Restored {
    let in_a_row = before.filter(|before| now < later(before.at, RESTORED_IN_A_ROW));
    let times = in_a_row.map_or(0, |before| before.times).saturating_add(1);
    Restored { times, at: now }
}

/// When it is given up to revoke what was issued for a `ClusterAccess` that is being deleted since then.
pub fn revocation_deadline(since: Timestamp, forget_after: SignedDuration) -> Timestamp {
    later(since, forget_after)
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
                    other: None,
                };
                next_attempt(&error).as_second() / 60
            })
            .collect();
        assert_eq!(minutes, [1, 1, 2, 4, 8, 16, 30, 30, 30]);
    }

    #[test]
    fn three_restorations_are_at_once_then_the_pause_grows_until_there_was_none_for_an_hour() {
        let mut restored = None;
        let mut waited = Vec::new();
        let mut now = at(0);
        for _ in 0..9 {
            let again = restored_again(restored.as_ref(), now);
            let next = next_restoration(&again);
            waited.push(next.duration_since(now).as_mins());
            (restored, now) = (Some(again), next);
        }
        assert_eq!(waited, [0, 0, 1, 2, 4, 8, 16, 30, 30]);
        let restored = restored_again(restored.as_ref(), later(now, SignedDuration::from_hours(1)));
        assert_eq!(restored.times, 1);
    }
}
