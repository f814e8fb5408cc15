//! The operator as a library: one [`Replica`], to be run on a real cluster by the program of this crate, or in virtual time
//! by the simulator; and the answers of the admission webhook of trees.

mod replica;
mod tree_reviewer;

pub use replica::{DelivererFactory, Replica};
pub use tree_reviewer::TreeReviewer;
