//! What Coppice does to namespaces and workloads.
//!
//! - [`governor`]: how much, by a budget that all replicas share.
//! - [`delete`]: deletes a namespace.
//! - [`scale`]: lists workloads, scales them down and wakes them.
//!
//! Every write takes a [`Permit`](coppice_runtime::leader::Permit) of the lease; deleting also takes a
//! [`Reservation`](governor::Reservation) and fresh facts.

pub mod delete;
pub mod governor;
pub mod scale;
