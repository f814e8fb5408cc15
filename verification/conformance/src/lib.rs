//! Is the API server in memory like the real one? The same requests to both, and every answer compared.
//!
//! [`sequence`] makes requests from a seed. They are written with placeholders for what only an answer can tell, such as
//! a revision, so that each side is asked about its own objects. [`Simulated`] plays them on the server in memory and
//! its models; what plays them on a real control plane is with the tests. [`compare`] finds the first answer that
//! differs once both are [masked](mask), except for what is [known] to differ, and [`smaller`] leaves out steps that
//! the disagreement does not need.

mod bodies;
mod compare;
mod generate;
pub mod known;
pub mod mask;
mod shrink;
mod simulated;
mod step;

pub use compare::{Mismatch, compare};
pub use generate::{Sequence, sequence};
pub use shrink::smaller;
pub use simulated::Simulated;
pub use step::{Call, Exchange, RequestSpec, SequenceStep, State, Transcript, waited};
