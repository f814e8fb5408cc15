//! Quantities that users write: today durations with days and weeks; and the [`time`] by which decisions are made.
//!
//! Pure: no clock, no I/O.

mod duration;
pub mod time;

pub use duration::{
    Duration, DurationError, MAX_SECONDS as LONGEST_SECONDS, PATTERN as DURATION_PATTERN,
    UNITS as DURATION_UNITS,
};
