//! What Coppice does to namespaces and workloads.
//!
//! - [`governor`]: how much, by a budget that all replicas share.
//! - [`deletion_record`]: stores what is to be deleted, and why.
//! - [`delete`]: deletes a namespace.
//! - [`decision`]: the order in which a decision to do so is carried out, for whatever kind of object it was made.
//! - [`scale_down`]: the same for workloads, a batch at a time.
//! - [`wake`]: gives workloads their replicas back.
//! - [`scale`]: lists workloads, and changes the size of one.
//! - [`webhook`]: hands a webhook to an outbox.
//!
//! Every write takes a [`Permit`](coppice_runtime::leader::Permit) of the lease. Deleting and scaling down also take a
//! [`Reservation`](governor::Reservation), by value: one is for one step. Deleting takes a
//! [`StoredRecord`](deletion_record::StoredRecord) and fresh facts besides.

pub mod decision;
pub mod delete;
pub mod deletion_record;
pub mod governor;
mod reverted;
pub mod scale;
pub mod scale_down;
pub mod wake;
pub mod webhook;
