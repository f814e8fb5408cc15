//! Resync intervals: how often to look for missed events.

use std::time::Duration;

/// How long to wait before data is read again although nothing seems to be missing. The program always keeps the
/// default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResyncIntervals {
    /// The API server ends each watch after this time, in whole seconds; then the next one starts from where it ended.
    pub watch: Duration,
    /// A watch that has shown no event, no bookmark and no end in order for this long is no longer trusted.
    pub fresh: Duration,
    /// Everything is listed again this often.
    pub relist: Duration,
    /// Every manager is reconciled this often.
    pub pass: Duration,
}

impl Default for ResyncIntervals {
    /// Watches of 50 s (H6: at most 60 s) that are trusted for 90 s (bookmarks come about once a minute); lists every
    /// 10 minutes, and a reconcile of every manager each minute (H5).
    fn default() -> Self {
        Self {
            watch: Duration::from_secs(50),
            fresh: Duration::from_secs(90),
            relist: Duration::from_mins(10),
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
            pass: Duration::from_hours(6),
        }
    }
}
