//! Clocks that are ten minutes wrong: nothing destructive happens, it is said why, and all goes on when they are set right.

use std::time::Duration;

use coppice_campaign::campaign::Campaign;
use coppice_campaign::oracle::EndState;
use coppice_campaign::run::{RunPlan, run};
use coppice_campaign::scenario::{self, Scenario};
use coppice_sim::ReplicaSettings;
use coppice_sim::fault::FaultRates;
use jiff::SignedDuration;

const WRONG: [SignedDuration; 2] = [SignedDuration::from_mins(10), SignedDuration::from_mins(-10)];

fn plan(scenario: Scenario, replicas: impl Fn(usize) -> ReplicaSettings) -> RunPlan {
    let replicas = (0..scenario.replicas).map(replicas).collect();
    RunPlan { replicas, ..RunPlan::without_faults(scenario, 0) }
}

/// How often the operator deleted or scaled. Webhooks destroy nothing, and are sent by the API server's time.
fn effects(end: &EndState) -> usize {
    end.effects.iter().filter(|(what, _)| !what.starts_with("webhooks")).map(|(_, times)| times).sum()
}

#[test]
fn with_wrong_clocks_nothing_destructive_is_done_and_the_reason_is_reported() {
    // Where somebody waits for what the operator does, nobody would ever go on.
    let waits = |scenario: &Scenario| scenario.script.iter().any(|act| act.once.is_some());
    let mut would_act = 0;
    for scenario in scenario::all().into_iter().filter(|scenario| !waits(scenario)) {
        let right = run(&RunPlan::without_faults(scenario.clone(), 0)).unwrap().end;
        would_act += usize::from(effects(&right) > 0);
        for clock_error in WRONG {
            let what = format!("{}, {clock_error:#}", scenario.name);
            let settings = ReplicaSettings { clock_error, ..ReplicaSettings::default() };
            let wrong = run(&plan(scenario.clone(), |_| settings.clone())).unwrap();
            let timeline = wrong.trace.timeline(false);
            assert_eq!(wrong.violations, [""; 0], "{what}\n{timeline}");
            assert_eq!(effects(&wrong.end), 0, "{what}: {:?}\n{timeline}", wrong.end.effects);
            let said = wrong.end.objects.values().any(|object| object.to_string().contains("ClockSkew"));
            assert!(said || effects(&right) == 0, "{what}: {:#?}", wrong.end.objects);
        }
    }
    assert!(would_act >= 5, "only {would_act} stories show anything");
}

#[test]
fn one_replica_with_a_wrong_clock_does_no_harm() {
    for scenario in scenario::all().into_iter().filter(|scenario| scenario.replicas > 1) {
        for clock_error in WRONG {
            let of = |n| if n == 0 { clock_error } else { SignedDuration::ZERO };
            let settings = |n| ReplicaSettings { clock_error: of(n), ..ReplicaSettings::default() };
            let outcome = run(&plan(scenario.clone(), settings)).unwrap();
            let timeline = outcome.trace.timeline(false);
            // Where it leads, people may wait in vain for what it does.
            let wrong: Vec<&String> =
                outcome.violations.iter().filter(|sentence| !sentence.starts_with("SCRIPT: ")).collect();
            assert_eq!(wrong, [""; 0], "{}, {clock_error:#}\n{timeline}", scenario.name);
        }
    }
}

#[test]
fn when_the_clocks_are_set_right_everything_ends_as_it_should() {
    let campaign = Campaign::prepare().unwrap();
    let until = Duration::from_secs(75);
    for scenario in scenario::all() {
        for clock_error in WRONG {
            let settings =
                ReplicaSettings { clock_error, clock_set_right: Some(until), ..ReplicaSettings::default() };
            // No faults but this one; a run that has a storm lasts until everything has settled after it.
            // Since when pods have held was noted by the clock that was wrong: it may take as much longer.
            let settles = scenario.name == "settling";
            let until = if settles { until + Duration::from_mins(10) } else { until };
            let calm = FaultRates { requests: 0, events: 0, kills: 0, until };
            let plan = RunPlan { fault_rates: Some(calm), ..plan(scenario.clone(), |_| settings.clone()) };
            let (wrong, outcome) = campaign.check_twice(&plan).unwrap();
            let timeline = outcome.trace.timeline(false);
            assert_eq!(wrong, [""; 0], "{}, {clock_error:#}\n{timeline}", scenario.name);
        }
    }
}
