//! What an object says about what became of it.

use coppice_api::Reason;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::{Failure, Shape, at};

/// What became of the state that was written last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReconciliationState {
    /// It is still being brought about: how far it is.
    InProgress(String),
    /// It is so.
    Succeeded,
    /// It is not, and why.
    Failed(Failure),
}

/// Errors of Gardener that somebody has to do something about.
const FOR_USERS: [&str; 6] = [
    "ERR_CONFIGURATION_PROBLEM",
    "ERR_INFRA_DEPENDENCIES",
    "ERR_INFRA_QUOTA_EXCEEDED",
    "ERR_INFRA_UNAUTHENTICATED",
    "ERR_INFRA_UNAUTHORIZED",
    "ERR_PROBLEMATIC_WEBHOOK",
];
/// Those with which Gardener lets a deletion be forced.
const FORCIBLE: [&str; 5] = [
    "ERR_CLEANUP_CLUSTER_RESOURCES",
    "ERR_CONFIGURATION_PROBLEM",
    "ERR_INFRA_DEPENDENCIES",
    "ERR_INFRA_UNAUTHENTICATED",
    "ERR_INFRA_UNAUTHORIZED",
];

/// What Gardener is asked to do with a Shoot. It takes the annotation off.
pub(super) const OPERATION: &str = "gardener.cloud/operation";
/// That it begins again with what it has given up.
pub(super) const RETRY: &str = "retry";
/// That it looks at the Shoot and what is beside it.
const RECONCILE: &str = "reconcile";
/// What Gardener has given up is begun again after so long.
const RETRY_AFTER: SignedDuration = SignedDuration::from_mins(10);
/// The same of what somebody has to do something about.
const RETRY_FOR_USERS_AFTER: SignedDuration = SignedDuration::from_hours(1);

/// What became of an object, of the generation that it has: what its status says of an earlier one is not about what was written last.
pub fn reconciliation_state(shape: Shape, live: &Value) -> ReconciliationState {
    let generation = at(live, "/metadata/generation").as_i64();
    let observed = at(live, "/status/observedGeneration").as_i64();
    if generation.is_none() || observed < generation {
        let kind = shape.kind();
        return ReconciliationState::InProgress(format!(
            "the controller of the {kind} has not observed the last change"
        ));
    }
    match shape {
        Shape::Topology => of_topology(live, generation),
        Shape::Shoot => of_shoot(live),
    }
}

fn of_topology(live: &Value, generation: Option<i64>) -> ReconciliationState {
    for type_ in ["TopologyReconciled", "Available"] {
        let conditions = at(live, "/status/conditions").as_array();
        let found = conditions.and_then(|all| all.iter().find(|condition| condition["type"] == type_));
        let Some(found) = found.filter(|found| found["observedGeneration"].as_i64() >= generation) else {
            return ReconciliationState::InProgress(format!(
                "the condition {type_} is not about the last change"
            ));
        };
        if found["status"] == "True" {
            continue;
        }
        let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
        let message = format!("{type_} is {}: {} {}", text("status"), text("reason"), text("message"));
        if found["reason"] == "ReconcileFailed" {
            return ReconciliationState::Failed(Failure::transient(Reason::ClusterFailed, message));
        }
        return ReconciliationState::InProgress(message);
    }
    ReconciliationState::Succeeded
}

fn of_shoot(live: &Value) -> ReconciliationState {
    let operation = at(live, "/status/lastOperation");
    let text = |field: &str| operation[field].as_str().unwrap_or_default();
    let message = format!("{} is {}: {}", text("type"), text("state"), text("description"));
    let for_users = FOR_USERS.iter().any(|code| has_code(live, code));
    match text("state") {
        "Succeeded" if text("type") != "Delete" => ReconciliationState::Succeeded,
        "Failed" | "Error" if for_users => {
            ReconciliationState::Failed(Failure::waiting(Reason::ClusterFailed, message))
        }
        // Gardener goes on by itself after an error, and not after a failure.
        "Failed" => ReconciliationState::Failed(Failure::transient(Reason::ClusterFailed, message)),
        "" => ReconciliationState::InProgress("Gardener has not begun".to_owned()),
        _ => ReconciliationState::InProgress(message),
    }
}

fn has_code(live: &Value, code: &str) -> bool {
    let errors = at(live, "/status/lastErrors").as_array().into_iter().flatten();
    errors.filter_map(|error| error["codes"].as_array()).flatten().any(|found| found == code)
}

/// Whether Gardener reconciles a Shoot again of which it has observed everything, as it does from time to time. The same looks so while it makes
/// what was written last: only what was ready before is as it was.
pub(super) fn is_repeated(live: &Value) -> bool {
    let operation = at(live, "/status/lastOperation");
    operation["type"] == "Reconcile"
        && (operation["state"] == "Processing" || operation["state"] == "Pending")
        && is_observed(live)
}

/// Whether what its status says is about what it is now.
fn is_observed(live: &Value) -> bool {
    let (generation, observed) = (at(live, "/metadata/generation"), at(live, "/status/observedGeneration"));
    generation.as_i64().is_some_and(|generation| observed.as_i64() >= Some(generation))
}

/// Whether Gardener is asked to begin again with what it has given up, which it does not by itself. Only a Shoot has such an operation. It takes the
/// annotation off at once and makes another generation of it, and has not given that up.
pub fn is_to_be_retried(live: &Value, now: Timestamp) -> bool {
    let is_asked = match &at(live, "/metadata/annotations")[OPERATION] {
        Value::Null => false,
        // It takes that up only while it has not given up.
        operation => operation != RECONCILE,
    };
    let for_users = FOR_USERS.iter().any(|code| has_code(live, code));
    let after = if for_users { RETRY_FOR_USERS_AFTER } else { RETRY_AFTER };
    let given_up = at(live, "/status/lastOperation/lastUpdateTime").as_str();
    let given_up = given_up.and_then(|text| text.parse::<Timestamp>().ok());
    !is_asked
        && is_observed(live)
        && has_given_up(live)
        && given_up.is_some_and(|at| now.duration_since(at) >= after)
}

/// What Gardener is asked to do with a Shoot of which nothing but what is beside it was changed.
pub(super) fn look_again(live: &Value) -> &'static str {
    if has_given_up(live) { RETRY } else { RECONCILE }
}

fn has_given_up(live: &Value) -> bool {
    at(live, "/status/lastOperation")["state"] == "Failed"
}

/// Whether an object is being deleted.
pub fn is_deleting(live: &Value) -> bool {
    !at(live, "/metadata/deletionTimestamp").is_null()
}

/// Whether Gardener lets its deletion be forced: it is being deleted, and that has failed in one of five ways. An error of the operation before
/// says nothing about its deletion.
pub fn may_be_forced(live: &Value) -> bool {
    let is_of_deletion = at(live, "/status/lastOperation")["type"] == "Delete";
    is_deleting(live) && is_of_deletion && FORCIBLE.iter().any(|code| has_code(live, code))
}

#[cfg(test)]
mod tests {
    use coppice_clusters_api::FailureClass;
    use serde_json::json;

    use super::*;

    fn cluster(observed: i64, topology: (&str, i64), available: &str) -> Value {
        let condition = |type_: &str, status: &str, generation: i64, reason: &str| json!({"type": type_, "status": status, "observedGeneration": generation, "reason": reason, "message": "m"});
        let status = if topology.0 == "True" { "True" } else { "False" };
        json!({"metadata": {"generation": 3}, "status": {"observedGeneration": observed, "conditions": [
            condition("TopologyReconciled", status, topology.1, topology.0),
            condition("Available", available, 3, "R"),
        ]}})
    }

    fn is_in_progress(state: &ReconciliationState) -> bool {
        matches!(state, ReconciliationState::InProgress(_))
    }

    #[test]
    fn an_earlier_success_of_a_topology_does_not_count() {
        let of = |live: &Value| reconciliation_state(Shape::Topology, live);
        assert_eq!(of(&cluster(3, ("True", 3), "True")), ReconciliationState::Succeeded);
        for live in [
            cluster(2, ("True", 3), "True"),
            cluster(3, ("True", 2), "True"),
            cluster(3, ("True", 3), "False"),
            cluster(3, ("MachineDeploymentsUpgrading", 3), "True"),
            json!({"metadata": {"generation": 1}}),
            json!({}),
        ] {
            assert!(is_in_progress(&of(&live)), "{live}");
        }
        let failed = of(&cluster(3, ("ReconcileFailed", 3), "True"));
        assert!(
            matches!(failed, ReconciliationState::Failed(ref f) if f.class == FailureClass::Transient),
            "{failed:?}"
        );
    }

    fn shoot(observed: i64, state: &str, codes: &[&str]) -> Value {
        json!({"metadata": {"generation": 2}, "status": {
            "observedGeneration": observed,
            "lastOperation": {"type": "Reconcile", "state": state, "description": "d"},
            "lastErrors": [{"description": "e", "codes": codes}],
        }})
    }

    #[test]
    fn errors_of_gardener_have_their_class_and_an_earlier_success_does_not_count() {
        let of = |live: &Value| reconciliation_state(Shape::Shoot, live);
        assert_eq!(of(&shoot(2, "Succeeded", &[])), ReconciliationState::Succeeded);
        for live in [
            shoot(1, "Succeeded", &[]),
            shoot(2, "Processing", &[]),
            shoot(2, "Error", &["ERR_INFRA_RATE_LIMITS_EXCEEDED"]),
            json!({"metadata": {"generation": 1}, "status": {"observedGeneration": 1}}),
        ] {
            assert!(is_in_progress(&of(&live)), "{live}");
        }
        for (codes, class) in [
            (&["ERR_INFRA_QUOTA_EXCEEDED"], FailureClass::WaitingForInput),
            (&["ERR_RETRYABLE_INFRA_DEPENDENCIES"], FailureClass::Transient),
        ] {
            let failed = of(&shoot(2, "Failed", codes));
            assert!(matches!(failed, ReconciliationState::Failed(ref f) if f.class == class), "{failed:?}");
        }
    }

    #[test]
    fn what_gardener_has_given_up_is_begun_again_after_a_while() {
        let given_up = "2026-01-01T00:00:00Z".parse::<Timestamp>().unwrap();
        let after = |minutes: i64| given_up + SignedDuration::from_mins(minutes);
        for (state, codes, minutes, is) in [
            ("Failed", vec![], 9, false),
            ("Failed", vec![], 10, true),
            ("Failed", vec!["ERR_INFRA_QUOTA_EXCEEDED"], 59, false),
            ("Failed", vec!["ERR_INFRA_QUOTA_EXCEEDED"], 60, true),
            ("Error", vec![], 600, false),
            ("Succeeded", vec![], 600, false),
        ] {
            let mut live = shoot(2, state, &codes);
            assert!(!is_to_be_retried(&live, after(minutes)), "it is not known since when");
            live["status"]["lastOperation"]["lastUpdateTime"] = json!(given_up.to_string());
            assert_eq!(is_to_be_retried(&live, after(minutes)), is, "{state} {codes:?} {minutes}");
            live["metadata"]["generation"] = json!(3);
            assert!(!is_to_be_retried(&live, after(minutes)), "it is asked already, and has not begun");
            live["metadata"]["generation"] = json!(2);
            for (asked, stays) in [("reconcile", is), ("retry", false), ("rotate-credentials-start", false)] {
                live["metadata"]["annotations"] = json!({OPERATION: asked});
                assert_eq!(is_to_be_retried(&live, after(minutes)), stays, "{asked}");
            }
        }
        assert!(!is_to_be_retried(&cluster(3, ("ReconcileFailed", 3), "True"), after(600)));
    }

    #[test]
    fn a_deletion_is_forced_where_gardener_permits_it_alone() {
        let mut live = shoot(2, "Failed", &["ERR_CLEANUP_CLUSTER_RESOURCES"]);
        assert!(!may_be_forced(&live), "it is not being deleted");
        live["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        assert!(!may_be_forced(&live), "its reconciliation has failed before, and not its deletion");
        live["status"]["lastOperation"]["type"] = json!("Delete");
        assert!(may_be_forced(&live));
        live["status"]["lastErrors"] = json!([{"codes": ["ERR_INFRA_QUOTA_EXCEEDED"]}]);
        assert!(!may_be_forced(&live));
    }
}
