//! Why an object of our kinds cannot be understood.

use std::fmt;

/// Why an object, or a part of it, cannot be understood: it was written past the API server's checks, or for another version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// Not even its metadata can be.
    Object {
        /// In the words of the decoder.
        why: String,
    },
    /// Its spec.
    Spec {
        /// In the words of the decoder.
        why: String,
    },
    /// Its status, which says what has been done.
    Status {
        /// In the words of the decoder.
        why: String,
    },
    /// Its spec is longer than what is read.
    SpecTooLarge {
        /// So many bytes it has.
        bytes: usize,
        /// So many are read.
        max: usize,
    },
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Object { why } => write!(f, "the object cannot be understood: {why}"),
            Self::Spec { why } => write!(f, "spec cannot be understood: {why}"),
            Self::Status { why } => write!(f, "status cannot be understood: {why}"),
            Self::SpecTooLarge { bytes, max } => {
                write!(f, "spec has {bytes} bytes, more than the {max} that are read: shorten it")
            }
        }
    }
}

impl std::error::Error for DecodeError {}
