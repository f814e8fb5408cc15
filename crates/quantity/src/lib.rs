//! Quantities that users write: today durations with days and weeks.
//!
//! Pure: no clock, no I/O.

mod duration;

pub use duration::{
    Duration, DurationError, MAX_SECONDS as LONGEST_SECONDS, PATTERN as DURATION_PATTERN,
    UNITS as DURATION_UNITS,
};
