//! A list that lacks much of what was known, though nothing said that it was deleted.
//!
//! An API server that was restored from an empty backup, or a list that went wrong on the way, looks like a cluster in
//! which everything was deleted. An empty answer is no evidence: what is lost without an event is for people to look at.

use std::sync::Arc;

/// What was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Collapse {
    /// The resource that was listed, such as `pods`.
    pub resource: &'static str,
    /// How many objects were known before.
    pub before: usize,
    /// How many of them the list lacks.
    pub missing: usize,
}

/// Called with every collapse, before the cache shows the list.
pub type OnCollapse = Arc<dyn Fn(Collapse) + Send + Sync>;

/// How a complete list compares with the cache that it replaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Comparison {
    /// How many objects the cache has.
    pub(crate) before: usize,
    /// How many of them the list lacks.
    pub(crate) missing: usize,
    /// How many objects the list has.
    pub(crate) listed: usize,
}

impl Comparison {
    /// Fewer than this many objects can be deleted between the end of a watch and the list after it.
    const MIN_MISSING: usize = 10;
    /// After a gap, that so many are gone is no coincidence.
    const MIN_EMPTIED: usize = 50;

    /// Whether this is a collapse. After a gap, in which objects may have been deleted unseen, only an empty list is.
    pub(crate) fn is_collapse(self, gap: bool) -> bool {
        if gap {
            self.listed == 0 && self.before >= Self::MIN_EMPTIED
        } else {
            self.missing >= Self::MIN_MISSING && self.missing * 5 > self.before
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Comparison;

    #[test]
    fn without_a_gap_a_fifth_and_at_least_ten_may_be_missing() {
        let is_collapse =
            |before, missing| Comparison { before, missing, listed: before - missing }.is_collapse(false);
        assert!(is_collapse(10, 10) && is_collapse(49, 10) && is_collapse(1000, 201));
        assert!(!is_collapse(9, 9) && !is_collapse(50, 10) && !is_collapse(1000, 200) && !is_collapse(0, 0));
    }

    #[test]
    fn after_a_gap_only_an_empty_list_is_a_collapse() {
        let is_collapse = |before, listed| Comparison { before, missing: before, listed }.is_collapse(true);
        assert!(is_collapse(50, 0) && is_collapse(1000, 0));
        assert!(!is_collapse(49, 0) && !is_collapse(1000, 1) && !is_collapse(0, 0));
    }
}
