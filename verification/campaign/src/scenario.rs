//! The scenarios of the campaigns.

mod chain;
mod library;

pub use coppice_sim::scenario::*;

pub use self::chain::wrong_input;
pub use self::library::{all, by_name, named, small};
