//! Clocks that are ten minutes wrong: nothing destructive happens, it is said why, and all goes on when they are set right.

use std::time::Duration;

use coppice_campaign::campaign::Campaign;
use coppice_campaign::oracle::EndState;
use coppice_campaign::run::{RunPlan, run};
use coppice_campaign::suite;
use coppice_sim::fault::FaultRates;
use coppice_sim::scenario::Scenario;
use jiff::SignedDuration;

const WRONG: [SignedDuration; 2] = [SignedDuration::from_mins(10), SignedDuration::from_mins(-10)];

/// How often something was deleted or scaled. Webhooks destroy nothing, and are sent by the API server's time.
fn effects(end: &EndState) -> usize {
    end.effects.iter().filter(|(what, _)| !what.starts_with("webhooks")).map(|(_, times)| times).sum()
}

#[test]
fn with_wrong_clocks_nothing_destructive_is_done_and_the_reason_is_reported() {
    // Where somebody waits for what the operator does, nobody would ever go on.
    let waits = |scenario: &Scenario| scenario.script.iter().any(|act| act.once.is_some());
    let mut would_act = 0;
    for (suite, mut scenario) in suite::scenarios().filter(|(_, scenario)| !waits(scenario)) {
        // What a cluster manager counts changes once more when the namespaces are two minutes old, and a pass says so.
        scenario.lasts = scenario.lasts.max(Duration::from_mins(5));
        let right = run(&suite, &suite.without_faults(scenario.clone(), 0)).unwrap().end;
        would_act += usize::from(effects(&right) > 0);
        for clock_error in WRONG {
            let what = format!("{}, {clock_error:#}", scenario.name);
            let mut plan = suite.without_faults(scenario.clone(), 0);
            plan.replicas.iter_mut().for_each(|replica| replica.clock_error = clock_error);
            let wrong = run(&suite, &plan).unwrap();
            let timeline = wrong.trace.timeline(false);
            assert_eq!(wrong.violations, [""; 0], "{what}\n{timeline}");
            assert_eq!(effects(&wrong.end), 0, "{what}: {:?}\n{timeline}", wrong.end.effects);
            let said = wrong.end.objects.values().any(|object| object.to_string().contains("ClockSkew"));
            assert!(said || effects(&right) == 0, "{what}: {:#?}", wrong.end.objects);
        }
    }
    assert!(would_act >= 5, "only {would_act} scenarios show anything");
}

#[test]
fn one_replica_with_a_wrong_clock_does_no_harm() {
    for (suite, scenario) in suite::scenarios().filter(|(_, scenario)| scenario.replicas > 1) {
        for clock_error in WRONG {
            let mut plan = suite.without_faults(scenario.clone(), 0);
            plan.replicas[0].clock_error = clock_error;
            let outcome = run(&suite, &plan).unwrap();
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
    let set_right = Duration::from_secs(75);
    for (suite, scenario) in suite::scenarios() {
        let campaign = Campaign::of(&suite, [scenario.clone()]).unwrap();
        for clock_error in WRONG {
            // No faults but this one; a run that has a storm lasts until everything has settled after it.
            // Since when pods have held was noted by the clock that was wrong: it may take as much longer.
            let settles = scenario.name == "settling";
            let until = if settles { set_right + Duration::from_mins(10) } else { set_right };
            let calm = FaultRates { requests: 0, events: 0, kills: 0, until };
            let mut plan = RunPlan { fault_rates: Some(calm), ..suite.without_faults(scenario.clone(), 0) };
            for replica in &mut plan.replicas {
                replica.clock_error = clock_error;
                replica.clock_set_right = Some(set_right);
            }
            let (wrong, outcome) = campaign.check_twice(&plan).unwrap();
            let timeline = outcome.trace.timeline(false);
            assert_eq!(wrong, [""; 0], "{}, {clock_error:#}\n{timeline}", scenario.name);
        }
    }
}
