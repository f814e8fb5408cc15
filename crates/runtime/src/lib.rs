//! The foundation of every controller.
//!
//! - Reading: [`client`] (two clients with deadlines), [`watch`] and [`store`] (caches), [`read`] (fresh reads), [`kind`] (what is
//!   kept of an object), [`object`] (our own kinds), [`collapse`] (lists that lack much of what was known).
//! - Deciding when: [`clock`], [`server_clock`], [`queue`].
//! - Running: [`controller`] (what a controller is, and the runner of all of them), [`watches`] (shared by them), [`replica`] (from start
//!   to shutdown).
//! - Writing: [`lease`] and [`leader`] (who may), [`write`](mod@write) (how), [`events`].
//! - Observability: [`metrics`], [`readiness`], [`logging`], [`error`], [`panic`](mod@panic).

pub mod client;
pub mod clock;
pub mod collapse;
pub mod controller;
pub mod decode;
pub mod error;
pub mod events;
pub mod intervals;
pub mod kind;
pub mod leader;
pub mod lease;
pub mod logging;
pub mod metrics;
pub mod object;
pub mod panic;
pub mod queue;
pub mod read;
pub mod readiness;
pub mod replica;
pub mod server_clock;
pub mod shared_read;
pub mod store;
pub mod watch;
pub mod watches;
pub mod write;
