//! The rules of access. They are about what the two API servers had at each instant: a `ClusterAccess` and its Secret in one, accounts,
//! roles and tokens in the other.

use crate::oracle::Rule;

/// At every instant the Secret holds a credential that the target takes, from when it was first written until its `ClusterAccess` is being
/// deleted.
pub const VALID: Rule = Rule("VALID");
/// Once a `ClusterAccess` is gone, no credential of it is valid, and nothing is left that was made for it, but for what was on its way then.
pub const OUTLIVES: Rule = Rule("OUTLIVES");
/// At every instant a credential permits no more than a spec that has not been replaced by what status says is applied, and in the end no
/// more than the last one. What arrives when nobody waits for it any more is not judged.
pub const CREDENTIAL_RIGHTS: Rule = Rule("CREDENTIAL RIGHTS");
/// At every instant no more than one credential of an intent is valid, and in the end none but the one in the Secret.
pub const ONE_CREDENTIAL: Rule = Rule("ONE CREDENTIAL");
