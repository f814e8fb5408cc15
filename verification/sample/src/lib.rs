//! The sample of `docs/adding-a-controller.md`: a kind, its five files and a program, to be copied for a new controller.
//!
//! A [`NamespaceExpiry`] has the namespace of its name deleted some time after its creation, with notice. Tests install it;
//! nothing that users run depends on it.

mod kind;
pub mod namespace_expiry;
mod object;
pub mod replica;

pub use kind::{NamespaceExpiry, NamespaceExpirySpec, NamespaceExpiryStatus, crd};
pub use object::{Expiries, Expiry};
