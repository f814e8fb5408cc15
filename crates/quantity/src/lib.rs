//! Quantities that users write: today durations with days and weeks.
//!
//! Pure: no clock, no I/O.

mod duration;

pub use duration::{Duration, DurationError, PATTERN as DURATION_PATTERN};
