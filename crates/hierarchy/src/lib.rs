//! Quotas in trees of namespaces: what each namespace has, what it gives, and the steps of every change.
//!
//! Each namespace of a tree has a native quota, of which `spec.hard` is its own quota: its allotment without what its children
//! have. The API server enforces that with or without Coppice. [`decide`] says which one write comes next for a child to have
//! another allotment, [`decide_root`] the same for a root, [`Transfer::decide`] for an amount to move to another namespace, and
//! [`Departure::decide`] for a namespace to come to be below another, with all that it has.
//!
//! At every revision, for every namespace and resource: its own quota (the larger of `spec.hard` and `status.hard`), the
//! allotments of its children, and what is on its way between them are together at most its own allotment.
//!
//! What a tree permits besides: [`Rules`]. In which order namespaces go that are deleted with one above them: [`next_below`].
//!
//! Pure: no clock, no I/O.

mod cascade;
mod decide;
mod ledger;
mod moves;
mod refusal;
mod resource_name;
mod resources;
mod rules;
mod transfer;
mod valid_spec;

pub use cascade::{
    CascadeStep, Descendant, NoConsent, bottom_up, consent, describe, next_below, order, share,
};
pub use decide::{
    Child, MAX_CHANGES, Parent, QuotaDecision, QuotaStep, Write, decide, decide_root, refused_to_new,
};
pub use ledger::{AllotmentChange, AppliedTransfer, HeldAmount, Ledger, Lowering, Quota, Record};
pub use moves::{Departure, DepartureDecision};
pub use refusal::QuotaRefusal;
pub use resource_name::{ResourceName, ResourceNameError};
pub use resources::{Resources, ResourcesError, TwoNames};
pub use rules::{NewNamespace, Rules, partition_between};
pub use transfer::{Stop, Transfer, TransferDecision, TransferStep, applied_before, release};
pub use valid_spec::{InvalidAmount, ValidSubnamespace, ValidTransfer, ValidTree};
