//! The conditions in status, and how one is set.
//!
//! Their meaning follows the [API conventions of Kubernetes]: `kubectl wait --for=condition=...` and tools that read
//! `Ready` as kstatus does can rely on type and status. Reasons are stable words of [`Reason`](crate::Reason); texts that
//! change with time are in messages.
//!
//! [API conventions of Kubernetes]: https://github.com/kubernetes/community/blob/master/contributors/devel/sig-architecture/api-conventions.md#typical-status-properties

use jiff::Timestamp;
/// What Kubernetes has for one condition.
pub use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// Whether spec is valid and permitted by the platform settings.
pub const ACCEPTED: &str = "Accepted";
/// Whether what a spec makes due needs no approval, or has it.
pub const APPROVED: &str = "Approved";
/// Whether the hourly budget is not less than what becomes due in an hour.
pub const BUDGET_SUFFICIENT: &str = "BudgetSufficient";
/// Whether it is known of every governed namespace what it was made for.
pub const IDENTITIES_KNOWN: &str = "IdentitiesKnown";
/// Whether `CoppiceConfig` has every channel that a cluster manager names.
pub const CHANNELS_KNOWN: &str = "ChannelsKnown";
/// Whether every governed namespace says who owns it.
pub const OWNERS_KNOWN: &str = "OwnersKnown";
/// Whether a policy has fired since the policies were changed or the manager was re-armed.
pub const FIRED: &str = "Fired";
/// Whether spec is in force and nothing that the object asks for is failing.
pub const READY: &str = "Ready";
/// Of a namespace in a tree that stays for now: that it will be deleted with one above it. There is none while that is not so.
pub const DELETION_PENDING: &str = "DeletionPending";
/// Of a namespace in a tree: whether it has what is copied from the namespaces above.
pub const PROPAGATED: &str = "Propagated";
/// Of a namespace in a tree: whether what is used in it is within its quota. There is none before it is not for the first time.
pub const WITHIN_QUOTA: &str = "WithinQuota";

/// Whether the annotation by which the creator of a namespace gives it a ttl is understood, if it has one.
pub const TTL_UNDERSTOOD: &str = "TtlUnderstood";
/// Of a record whose cluster manager compares namespaces: whether it is known what the namespace was made for.
pub const IDENTIFIED: &str = "Identified";
/// Whether what the users of a namespace ask for is within the limits of its cluster manager, if that has any.
pub const WITHIN_LIMITS: &str = "WithinLimits";

/// What a condition says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConditionState {
    /// `True`, `False` or `Unknown`.
    pub status: &'static str,
    /// An enumerated reason.
    pub reason: String,
    /// The same for people.
    pub message: String,
}

/// The condition of this type, if there is one.
pub fn find<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == type_)
}

/// Sets the condition of this type, keeping conditions in the order of their types. The transition time changes with the
/// status alone, not with the reason.
pub fn set(
    conditions: &mut Vec<Condition>,
    type_: &str,
    state: ConditionState,
    generation: i64,
    now: Timestamp,
) {
    let ConditionState { status, reason, message } = state;
    let since = find(conditions, type_).filter(|condition| condition.status == status).map_or_else(
        || Time(Timestamp::from_second(now.as_second()).unwrap_or(now)),
        |condition| condition.last_transition_time.clone(),
    );
    conditions.retain(|condition| condition.type_ != type_);
    let at = conditions.partition_point(|condition| condition.type_.as_str() < type_);
    conditions.insert(
        at,
        Condition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason,
            message,
            observed_generation: Some(generation),
            last_transition_time: since,
        },
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_transition_time_changes_with_the_status_alone() {
        let state = |status, reason: &str| ConditionState {
            status,
            reason: reason.to_owned(),
            message: format!("because of {reason}"),
        };
        let at = |second| Timestamp::from_second(second).unwrap();
        let mut conditions = Vec::new();
        set(&mut conditions, READY, state("False", "A"), 1, at(10));
        set(&mut conditions, ACCEPTED, state("True", "A"), 1, at(10));
        set(&mut conditions, READY, state("False", "B"), 2, at(20));
        let ready = find(&conditions, READY).unwrap();
        assert_eq!((ready.reason.as_str(), ready.observed_generation), ("B", Some(2)));
        assert_eq!(ready.last_transition_time.0, at(10));
        set(&mut conditions, READY, state("True", "C"), 2, at(30));
        assert_eq!(find(&conditions, READY).unwrap().last_transition_time.0, at(30));
        let types: Vec<_> = conditions.iter().map(|condition| condition.type_.as_str()).collect();
        assert_eq!(types, [ACCEPTED, READY]);
    }
}
