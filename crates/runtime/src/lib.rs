//! What every controller stands on.
//!
//! - Reading: [`client`] (two clients with deadlines), [`watch`] and [`store`] (caches), [`read`] (fresh reads), [`kinds`].
//! - Deciding when: [`clock`], [`server_clock`], [`queue`].
//! - Writing: [`lease`] and [`leader`] (who may), [`governor`] (how much), [`write`](mod@write) and [`delete`] (how), [`events`].
//! - Being seen: [`metrics`], [`admin`], [`logging`], [`error`], [`panic`](mod@panic).

pub mod admin;
pub mod client;
pub mod clock;
pub mod decode;
pub mod delete;
pub mod error;
pub mod events;
pub mod governor;
pub mod kinds;
pub mod leader;
pub mod lease;
pub mod logging;
pub mod metrics;
pub use coppice_lifecycle::mutants;
pub mod pace;
pub mod panic;
pub mod queue;
pub mod read;
pub mod scale;
pub mod server_clock;
pub mod store;
pub mod watch;
pub mod write;
