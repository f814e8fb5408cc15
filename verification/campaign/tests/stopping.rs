//! A scale-down of 400 workloads is stopped in the middle: a hold, `suspend` and `paused` are honoured within five seconds.

use std::collections::BTreeSet;

use coppice_campaign::run::{RunPlan, run};
use coppice_campaign::suite;
use coppice_sim::fault::{Fault, FaultTarget, PlannedFault};

#[test]
fn a_scale_down_that_is_stopped_stops() {
    for name in ["many-held", "many-suspended", "many-paused"] {
        let (suite, scenario) = suite::find(suite::ALL, name).unwrap();
        let outcome = run(&suite, &suite.without_faults(scenario.clone(), 0)).unwrap();
        let (first, unlike) = (outcome.violations.first(), outcome.unlike(&scenario.ends));
        assert_eq!(first, None, "{name}: {} workloads too many", outcome.violations.len());
        assert_eq!(unlike, [""; 0], "{name}");
    }
}

#[test]
fn unchanged_workloads_are_not_recorded_after_an_attempt_that_failed() {
    let (suite, scenario) = suite::find(suite::ALL, "many-held").unwrap();
    for write in 6..18 {
        let faults = vec![PlannedFault { at: FaultTarget::Write(write), fault: Fault::Refused(403) }];
        let outcome = run(&suite, &RunPlan { faults, ..suite.without_faults(scenario.clone(), 0) }).unwrap();
        assert_eq!(outcome.violations.first(), None, "write {write}");
        let objects = &outcome.end.objects;
        let scaled = objects
            .iter()
            .filter(|(place, object)| place.starts_with("deployments ") && object["replicas"] == 0);
        let scaled: BTreeSet<&str> = scaled.filter_map(|(place, _)| place.rsplit('/').next()).collect();
        let remembered = objects["namespacemanagers many/m"]["scaledDown"].as_array().unwrap();
        let remembered: BTreeSet<&str> =
            remembered.iter().filter_map(|workload| workload[1].as_str()).collect();
        assert_eq!(remembered, scaled, "write {write}");
    }
}
