//! A Kubernetes API server in memory, in virtual time, and the campaigns that run the real controllers on it.
//!
//! [`server`] is the API server: a state machine without clock, network or chance. A [run](run::run) puts the real operator on it, some
//! replicas of it, plays a [story](scenario), lets things [go wrong](fault), and has what happened [judged](oracle) by what the API
//! server saw. One seed decides everything that is left to chance; the same seed gives the same trace, byte by byte.

pub mod campaign;
pub mod conformance;
pub mod fault;
pub mod http;
pub mod oracle;
pub mod receiver;
mod replica;
pub mod run;
pub mod scenario;
pub mod server;
pub mod simulate;
pub mod trace;
mod transport;
mod watching;
mod world;

pub use replica::ReplicaSettings;
