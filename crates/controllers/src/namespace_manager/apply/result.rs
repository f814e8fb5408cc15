//! How carrying out a step ends.

use std::collections::BTreeSet;

use coppice_kinds::Manager;
use coppice_lifecycle::Plan;
use coppice_lifecycle::record::StepOutcome;
use jiff::Timestamp;

use crate::status_writer::StepError;

/// How carrying out an effect went.
pub(in super::super) enum StepResult {
    /// It came to an end, on this revision of the manager.
    Completed(StepOutcome, Manager),
    /// The same, of a scale-down; it recorded the workloads with these uids and did not scale them down.
    ScaleDownEnded(StepOutcome, Manager, BTreeSet<String>),
    /// The manager has changed: decide again, on this one.
    Changed(Manager),
    /// A fresh read gives another plan, for this manager.
    Replanned(Manager, Box<Plan>),
    /// Nothing can be done before then, or before something changes.
    Wait(Option<Timestamp>),
    /// The manager is gone, and its policies with it.
    Gone,
}

/// Why a step does not go on: `?` hands it on to where it is recorded.
pub(in super::super) enum Interruption {
    /// It has ended, in this way.
    Ended(StepResult),
    /// It failed, and what became of it cannot be recorded.
    Failed(StepError),
}

impl From<StepResult> for Interruption {
    fn from(result: StepResult) -> Self {
        Self::Ended(result)
    }
}

impl<E: Into<StepError>> From<E> for Interruption {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}
