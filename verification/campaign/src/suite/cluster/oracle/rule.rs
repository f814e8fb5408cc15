//! The rules that are about cluster managers. Those with the names of rules about managers of namespaces say the same.

pub use super::super::super::lifecycle::rule::{HELD, SUSPENDED, TTL};
use crate::oracle::Rule;

/// Nothing is done by a cluster manager that observes, or by a policy that does.
pub const OBSERVES: Rule = Rule("OBSERVES");
/// For as long as `settle` says before a step, the same cluster manager with the same spec governed the namespace, and
/// where its own ttl is over that was no longer.
pub const GOVERNED: Rule = Rule("GOVERNED");
/// A name that was deleted three times within a day is left alone.
pub const RECREATED: Rule = Rule("RECREATED");
/// Where a spec makes more namespaces due at once than the hourly budget, nothing is done to them without approval.
pub const APPROVED: Rule = Rule("APPROVED");
/// A namespace is deleted after the webhooks that were due before, or ten minutes after they were decided; and after those that managers
/// in it have under way, or ten minutes after its own date.
pub const WEBHOOKS_FIRST: Rule = Rule("WEBHOOKS FIRST");
/// A namespace is deleted because a later one has taken its place only while that stands: it is ready, neither being deleted nor
/// superseded itself.
pub const SUPERSEDED: Rule = Rule("SUPERSEDED");
/// Nothing is done for the health of a namespace before something has been failing in it for its periods, and while nothing
/// fails.
pub const HEALTH: Rule = Rule("HEALTH");
/// A namespace is deleted once, whoever asks for it: by one request, of which one record tells; and where nothing goes wrong, one object
/// announces it, and each step takes one unit of the budget.
pub const ONE_DELETION: Rule = Rule("ONE DELETION");
/// When all is quiet, the record of each namespace says who governs it, how it is and when it expires, as it follows from what there is.
pub const AGREES: Rule = Rule("AGREES");
/// Where the owner is notified, a namespace is deleted only when notice has run since its announcement was received.
pub const NOTIFIED: Rule = Rule("NOTIFIED");
/// Owners are notified of one thing under one key, and of what was joined under one id.
pub const ONE_KEY: Rule = Rule("ONE KEY");
/// Every message to owners is delivered, which a receiver has taken, a dead letter, no longer true, superseded, or waits for its next attempt.
pub const DELIVERED: Rule = Rule("DELIVERED");
/// A message goes to an address that the namespace named when it was sent or shortly before, or to the fallback if there was none or
/// each of the owner's own was refused.
pub const RECIPIENT: Rule = Rule("RECIPIENT");
/// Nobody gets more than 20 messages within five minutes, but for one that joins others.
pub const JOINED: Rule = Rule("JOINED");
/// Owners are notified within working hours.
pub const HOURS: Rule = Rule("HOURS");
