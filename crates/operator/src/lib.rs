//! The operator as a library: one [`Replica`], to be run on a real cluster by the program of this crate, or in virtual time
//! by the simulator.

mod replica;

pub use replica::{DelivererFactory, Replica};
