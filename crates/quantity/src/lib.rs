//! What users write with units: [`Duration`]s with days and weeks, and the resource [`Quantity`] of Kubernetes; numbers of things
//! in messages ([`count`](count())); and the [`time`] by which decisions are made.
//!
//! Pure: no clock, no I/O.

mod count;
mod duration;
mod quantity;
pub mod time;

pub use count::count;
pub use duration::{
    Duration, DurationError, MAX_SECONDS as LONGEST_SECONDS, PATTERN as DURATION_PATTERN,
    UNITS as DURATION_UNITS,
};
pub use quantity::{Quantity, QuantityError};
