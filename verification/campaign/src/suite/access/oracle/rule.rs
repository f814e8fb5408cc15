//! The rules of access. They are about what the two API servers had at each instant: a `ClusterAccess` and its Secret in one, accounts,
//! roles and tokens in the other.

use crate::oracle::Rule;

/// At every instant the Secret holds a credential that the target takes, from when it was first written until its `ClusterAccess` is being
/// deleted.
pub const VALID: Rule = Rule("VALID");
/// Once a `ClusterAccess` is gone, no token of it is valid, and nothing is left that was made for it, but for what was on its way then: of a
/// certificate, which nobody can revoke, no right. At every instant a certificate expires when the Secret with it says.
pub const OUTLIVES: Rule = Rule("OUTLIVES");
/// At every instant a credential permits no more than a spec that has not been replaced by what status says is applied, and in the end no
/// more than the last one. What arrives when nobody waits for it any more is not judged.
pub const CREDENTIAL_RIGHTS: Rule = Rule("CREDENTIAL RIGHTS");
/// At every instant no more than one credential of an intent is valid, and in the end none but the one in the Secret; of certificates, which
/// nobody can revoke, those that were in a Secret, and in the end none that is valid for longer than status says of it.
pub const ONE_CREDENTIAL: Rule = Rule("ONE CREDENTIAL");
/// In the end the target has no request for a certificate but of an intent that status has. What arrives when nobody waits for it any more is
/// not judged.
pub const SIGNING_REQUESTS: Rule = Rule("SIGNING REQUESTS");
