//! The decision engine by itself: time, allocations and instructions of `coppice_lifecycle::plan`, without any plane.

mod callgrind;
mod fleet;
mod governed;
mod measure;

pub use callgrind::instructions;
pub use fleet::{Fleet, Found, Shape};
pub use governed::GovernedFleet;
pub use measure::{Allocations, Instruments, Work, drive, run};
