//! Why the next write of an object was not made.

use coppice_api::DecodeError;
use coppice_controllers::StepError;
use coppice_runtime::write::WriteError;

/// Why the next write of an object was not made, or is not known to be. It is tried again. `R`: why something could not be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProgressError<R> {
    /// What it rests on could not be read.
    #[error("{0}")]
    Read(R),
    /// What a deletion rests on could not be read once more.
    #[error("the facts could not be read again: {0}")]
    Facts(R),
    /// What a deletion rests on was read too long ago when it could be made (H3).
    #[error("the API server took too long to answer what the deletion rests on")]
    FactsTooOld,
    /// The status of the object, which says what has been done, cannot be understood.
    #[error("{0}")]
    Status(DecodeError),
    /// The API server refused it, or its answer was lost.
    #[error("{0}")]
    Write(WriteError),
    /// What came of a deletion could not be recorded.
    #[error("{0}")]
    Record(StepError),
}
