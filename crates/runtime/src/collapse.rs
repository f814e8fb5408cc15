//! A list that lacks much of what was known, though nothing said that it was deleted.
//!
//! An API server that was restored from an empty backup, or a list that went wrong on the way, looks like a cluster in
//! which everything was deleted. An empty answer is no evidence: what is lost without an event is for people to look at.

use std::sync::Arc;
use std::time::Duration;

/// What was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Collapse {
    /// The resource that was listed, such as `pods`.
    pub resource: &'static str,
    /// How many objects were known before.
    pub before: usize,
    /// How many of them the list lacks.
    pub missing: usize,
    /// Whether they may have been deleted in a time in which no events were received.
    pub after_gap: bool,
}

/// Called with every collapse, before the cache shows the list.
pub type OnCollapse = Arc<dyn Fn(Collapse) + Send + Sync>;

/// How a complete list compares with the cache that it replaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ListComparison {
    /// How many objects the cache has.
    pub(crate) before: usize,
    /// How many of them the list lacks.
    pub(crate) missing: usize,
    /// How many objects the list has.
    pub(crate) listed: usize,
}

/// After longer than this without events, namespaces that live for hours may have gone as they should.
const MAX_COMPARED: Duration = Duration::from_mins(30);

impl ListComparison {
    /// Fewer than this many objects can be deleted between the end of a watch and the list after it.
    const MIN_MISSING: usize = 10;
    /// Of fewer than this many, all can be deleted while nobody sees it.
    const MIN_KNOWN: usize = 50;

    /// Whether this is a collapse. `gap` is for how long events were not followed until the list, if so: then more
    /// than half of the objects have to be missing. Of a bulk kind (pods come and go by the hour), and after half an hour, all
    /// of them have to be missing, and nothing new be there.
    pub(crate) fn is_collapse(self, gap: Option<Duration>, bulk: bool) -> bool {
        match gap {
            None => self.missing >= Self::MIN_MISSING && self.missing * 5 > self.before,
            Some(time) if bulk || time > MAX_COMPARED => self.before >= Self::MIN_KNOWN && self.listed == 0,
            Some(_) => self.before >= Self::MIN_KNOWN && self.missing * 2 > self.before,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_mins(1);

    fn lacks(before: usize, missing: usize) -> ListComparison {
        ListComparison { before, missing, listed: before - missing }
    }

    #[test]
    fn what_events_covered_may_lack_a_fifth_or_nine() {
        let is_collapse = |before, missing| {
            let comparison = lacks(before, missing);
            assert_eq!(comparison.is_collapse(None, true), comparison.is_collapse(None, false));
            comparison.is_collapse(None, false)
        };
        assert!(is_collapse(10, 10) && is_collapse(49, 10) && is_collapse(1000, 201));
        assert!(!is_collapse(9, 9) && !is_collapse(50, 10) && !is_collapse(1000, 200) && !is_collapse(0, 0));
    }

    #[test]
    fn what_nobody_saw_may_lack_half() {
        let is_collapse = |before, missing| lacks(before, missing).is_collapse(Some(MINUTE), false);
        assert!(is_collapse(50, 26) && is_collapse(1000, 501) && is_collapse(50, 50));
        assert!(!is_collapse(50, 25) && !is_collapse(49, 49) && !is_collapse(0, 0));
        let replaced = ListComparison { before: 60, missing: 60, listed: 60 };
        assert!(replaced.is_collapse(Some(MINUTE), false), "those under other names are not those");
    }

    #[test]
    fn of_a_bulk_kind_and_after_half_an_hour_only_an_empty_list_is_a_collapse() {
        for (time, bulk) in [(MINUTE, true), (31 * MINUTE, false)] {
            let is_collapse = |before, missing| lacks(before, missing).is_collapse(Some(time), bulk);
            assert!(is_collapse(50, 50) && !is_collapse(1000, 999) && !is_collapse(49, 49));
        }
        assert!(lacks(60, 31).is_collapse(Some(30 * MINUTE), false));
    }
}
