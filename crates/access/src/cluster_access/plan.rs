//! Decides: what `coppice-clusters` says, which every rule and its test is in.

use coppice_clusters::{Observed, Step};
use jiff::Timestamp;

/// The one next step.
pub(super) fn plan(observed: &Observed, now: Timestamp) -> Step {
    coppice_clusters::plan(observed, now)
}
