//! Resync intervals: how often to look for missed events.

use std::time::Duration;

use crate::clock::SeededRng;

/// Lists are spread over this fraction of the time between them.
const SPREAD: u32 = 5;

/// How long to wait before data is read again although nothing seems to be missing. The program always keeps the
/// default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResyncIntervals {
    /// The API server ends each watch after this time, in whole seconds; then the next one starts from where it ended.
    pub watch: Duration,
    /// A watch that has shown no event, no bookmark and no end in order for this long is no longer trusted.
    pub fresh: Duration,
    /// A kind is listed again after this time, or up to a fifth later, to recover lost events (H5).
    pub relist: Duration,
    /// The same for [bulk kinds](crate::kind::Kind::BULK), whose lists are too large for that: 100,000 pods are 400 MB for each replica.
    ///
    /// Such a list only recovers an event that was lost though the watch went on: after an error, an expired revision (410)
    /// or [`fresh`](Self::fresh) without a sign of life, the kind is listed at once. While such an event is missing, a condition can become true this much later, or seem true: then a webhook may be sent. Nothing is destroyed:
    /// that is decided again on fresh reads, which list the pods and Jobs of the namespace.
    pub relist_bulk: Duration,
    /// Every manager is reconciled this often.
    pub pass: Duration,
}

impl Default for ResyncIntervals {
    /// Watches of 50 s (H6: at most 60 s) that are trusted for 90 s (bookmarks come about once a minute); lists every
    /// 10 minutes, of bulk kinds every hour, and a reconcile of every manager each minute (H5).
    fn default() -> Self {
        Self {
            watch: Duration::from_secs(50),
            fresh: Duration::from_secs(90),
            relist: Duration::from_mins(10),
            relist_bulk: Duration::from_hours(1),
            pass: Duration::from_mins(1),
        }
    }
}

impl ResyncIntervals {
    /// For simulating days in which no event is lost: there is nothing to recover.
    pub const fn for_simulation() -> Self {
        Self {
            watch: Duration::from_hours(6),
            fresh: Duration::from_hours(13),
            relist: Duration::from_hours(24 * 365),
            relist_bulk: Duration::from_hours(24 * 365),
            pass: Duration::from_hours(6),
        }
    }

    /// How long after a list of what is at this path the next one is due. Kinds, and replicas with other seeds, list at
    /// other times.
    pub(crate) fn until_relist(&self, path: &str, bulk: bool, seed: u64) -> Duration {
        let least = if bulk { self.relist_bulk } else { self.relist };
        // FNV-1a: the same in every build, on every machine.
        let hash = path.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        SeededRng::new(seed ^ hash).between(least, least + least / SPREAD)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn lists_are_spread_over_kinds_and_replicas_and_those_of_bulk_kinds_are_rare() {
        let intervals = ResyncIntervals::default();
        let of =
            |path: &str, seed| [false, true].map(|bulk| intervals.until_relist(path, bulk, seed).as_secs());
        for [ordinary, bulk] in (0..100).map(|seed| of("/api/v1/pods", seed)) {
            assert!((600..=720).contains(&ordinary), "{ordinary}");
            assert!((3600..=4320).contains(&bulk), "{bulk}");
        }
        assert_eq!(of("/api/v1/pods", 7), of("/api/v1/pods", 7));
        let replicas: BTreeSet<_> = (0..100).map(|seed| of("/api/v1/pods", seed)[0]).collect();
        let kinds: BTreeSet<_> =
            (0..100).map(|n| of(&format!("/apis/example.com/v1/kind{n}"), 7)[0]).collect();
        assert!(replicas.len() > 50 && kinds.len() > 50, "{replicas:?} {kinds:?}");
    }
}
