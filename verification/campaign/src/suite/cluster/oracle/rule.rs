//! The rules that are about cluster managers. Those with the names of rules about managers of namespaces say the same.

pub use super::super::super::lifecycle::rule::{HELD, SUSPENDED, TTL};
use crate::oracle::Rule;

/// Nothing is done by a cluster manager that observes, or by a policy that does.
pub const OBSERVES: Rule = Rule("OBSERVES");
/// For as long as `settle` says before a step, the same cluster manager with the same spec governed the namespace.
pub const GOVERNED: Rule = Rule("GOVERNED");
