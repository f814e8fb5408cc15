//! Decides: what `coppice-clusters` says, which every rule and its test is in.

use coppice_clusters::{AccessObservation, AccessStep};
use jiff::Timestamp;

/// The one next step.
pub(super) fn plan(observed: &AccessObservation, now: Timestamp) -> AccessStep {
    coppice_clusters::plan(observed, now)
}
