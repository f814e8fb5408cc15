//! A Kubernetes API server in memory, in virtual time, and runs of the real operator on it, or of another [`Program`].
//!
//! [`server`] is the API server: a state machine without clock, network or randomness. A [run](run::run) puts replicas of
//! programs on it, such as the real operator, plays a [scenario], injects [faults](fault), and records what the API server
//! saw. A [target] is a second API server, for programs that work in other clusters. One seed decides every random choice; the same seed gives the same trace, byte by byte.

pub mod fault;
pub mod http;
mod operator;
pub mod receiver;
mod replica;
pub mod run;
pub mod scenario;
pub mod server;
pub mod simulate;
mod simulation;
pub mod target;
pub mod trace;
mod transport;
mod watch_stream;
mod webhook;

pub use operator::{Operator, intervals, lease_of};
pub use replica::{Program, ReplicaContext, ReplicaSettings, TargetPort};
pub use simulation::Done;
pub use webhook::{
    AskedWebhook, NoAnswer, Webhook, WebhookAnswer, WebhookConfiguration, WebhookPort, WebhookRule,
};
