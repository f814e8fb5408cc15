//! Why what a cache knows cannot be trusted, in the words of status.

use coppice_api::Reason;
use coppice_runtime::store::{Freshness, WatchProblem};

/// The first of these caches, each with the plural of its kind, that is behind; none if all of them can be trusted.
pub fn first_stale(caches: &[(Freshness, &str)]) -> Option<(Reason, String)> {
    let behind = caches.iter().find(|(freshness, _)| !matches!(freshness, Freshness::Fresh(_)))?;
    Some(staleness(&behind.0, behind.1))
}

/// Why a cache of a kind cannot be trusted.
pub(crate) fn staleness(freshness: &Freshness, what: &str) -> (Reason, String) {
    let detail = |problem: &Option<WatchProblem>| {
        problem.as_ref().map(|p| format!(": {}", p.message)).unwrap_or_default()
    };
    match freshness {
        Freshness::NotSynced(Some(p)) | Freshness::Stale(Some(p)) if p.forbidden => {
            (Reason::Forbidden, format!("{what} may not be watched: {}", p.message))
        }
        Freshness::NotSynced(p) => {
            (Reason::NotSynced, format!("{what} have not been listed yet{}", detail(p)))
        }
        Freshness::Stale(p) => {
            (Reason::Stale, format!("no update of {what} has been received for 90 seconds{}", detail(p)))
        }
        // Never called for a fresh cache.
        Freshness::Fresh(_) => (Reason::Watching, String::new()),
    }
}
