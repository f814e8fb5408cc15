//! Each rule finds the plan that breaks it. That no plan breaks one, every other test shows.

use coppice_api::lint::PlanViolation::{
    self, Forbidden, NothingNew, OfAnotherGeneration, ReadyTooEarly, ReasonOutOfPlace,
};

use super::super::lint::lint;
use super::*;

fn spec() -> Value {
    json!({"selector": {"names": ["ci-*"]}})
}

/// What is found after one thing about what was observed, or about the status that is written, is another.
fn found(change: impl FnOnce(&mut Observation, &mut ClusterNamespaceManagerStatus)) -> Vec<PlanViolation> {
    let mut seen = observation(manager(&spec(), &json!({})), 3);
    let mut planned = plan(&seen);
    change(&mut seen, &mut planned.writes[0].status);
    lint(&seen, &planned)
}

#[test]
fn a_status_is_about_the_spec_that_there_is_with_reasons_of_their_place() {
    assert_eq!(found(|_, _| {}), []);
    assert_eq!(found(|_, status| status.observed_generation = Some(3)), [OfAnotherGeneration]);
    assert_eq!(found(|_, status| "Dormant".clone_into(&mut status.conditions[0].reason)), [ReasonOutOfPlace]);
    assert_eq!(found(|_, status| status.conditions[0].message.clear()), [ReasonOutOfPlace]);
}

#[test]
fn that_all_is_well_is_said_where_it_is_known_of_every_namespace() {
    assert_eq!(found(|_, status| status.namespaces.recorded = 2), [ReadyTooEarly]);
    assert_eq!(found(|seen, _| seen.census = None), [ReadyTooEarly]);
    let broken = |seen: &mut Observation, _: &mut ClusterNamespaceManagerStatus| {
        seen.managers.push(manager(&json!({"selector": 1}), &json!({})));
    };
    assert_eq!(found(broken), [ReadyTooEarly]);
}

#[test]
fn nothing_is_written_that_is_not_new_or_to_one_that_ends() {
    let seen = observation(manager(&spec(), &json!({})), 3);
    let status = plan(&seen).writes.remove(0).status;
    let again = manager(&spec(), &serde_json::to_value(&status).unwrap());
    let writes = vec![StatusWrite { manager: again, status }];
    assert_eq!(lint(&seen, &StatusPlan { writes, next_check: None }), [NothingNew]);
    let metadata = json!({
        "name": "ci", "uid": "u", "generation": 2, "resourceVersion": "1", "deletionTimestamp": "2026-01-01T00:00:00Z"
    });
    let ends = json!({"metadata": metadata, "spec": spec()}).to_string();
    let ends = decode::item::<ClusterManagers>(&ends, &()).unwrap().object.unwrap();
    let mut planned = plan(&seen);
    planned.writes[0].manager = Arc::new(ends);
    assert_eq!(lint(&seen, &planned), [Forbidden]);
}
