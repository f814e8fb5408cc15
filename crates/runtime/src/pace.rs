//! How often what may have been missed is looked for.

use std::time::Duration;

/// How long is waited before something is asked again although nothing seems to be missing. The program always keeps the default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// The API server ends each watch after this time, in whole seconds; then the next one starts from where it ended.
    pub watch: Duration,
    /// A watch that has shown neither event nor bookmark for this long is not believed any more.
    pub fresh: Duration,
    /// Everything is listed again this often.
    pub relist: Duration,
    /// Every manager is looked at this often.
    pub pass: Duration,
}

impl Default for Pace {
    /// Watches of 50 s (H6: at most 60 s) that are believed for 90 s (bookmarks come about once a minute); lists every 10
    /// minutes, and a look at everything each minute (H5).
    fn default() -> Self {
        Self {
            watch: Duration::from_secs(50),
            fresh: Duration::from_secs(90),
            relist: Duration::from_mins(10),
            pass: Duration::from_mins(1),
        }
    }
}

impl Pace {
    /// For simulating days of a world in which nothing is lost: there is nothing to make up for.
    pub const fn unhurried() -> Self {
        Self {
            watch: Duration::from_hours(6),
            fresh: Duration::from_hours(13),
            relist: Duration::from_hours(24 * 365),
            pass: Duration::from_hours(6),
        }
    }
}
