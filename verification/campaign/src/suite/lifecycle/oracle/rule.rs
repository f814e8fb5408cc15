//! The rules that are about managers: what their policies ask for, and how they are carried out.

use crate::oracle::Rule;

/// The ttl, and `extendUntil`, are over.
pub const TTL: Rule = Rule("TTL");
/// Enough pods that count have succeeded, and none stands against it.
pub const PODS: Rule = Rule("PODS");
/// Every Job that counts is complete.
pub const JOBS: Rule = Rule("JOBS");
/// `initialDelay` is over.
pub const INITIAL_DELAY: Rule = Rule("INITIAL DELAY");
/// The pods have held for as long as `settle` says, without a break.
pub const SETTLE: Rule = Rule("SETTLE");
/// Nothing is done to what is held.
pub const HELD: Rule = Rule("HELD");
/// Nothing is done to what is suspended.
pub const SUSPENDED: Rule = Rule("SUSPENDED");
/// Managers work within the limits of the cluster manager that governs their namespace.
pub const LIMITS: Rule = Rule("LIMITS");
/// Only workloads that the policy selects are scaled down.
pub const SELECTED: Rule = Rule("SELECTED");
/// What something else scales up again is scaled down three times, and not a fourth time.
pub const REVERTED: Rule = Rule("REVERTED");
/// Sizes are remembered before they change, and given back exactly.
pub const ORIGINAL_REPLICAS: Rule = Rule("REMEMBERED");
