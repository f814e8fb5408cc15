//! Clocks that are ten minutes wrong: nothing destructive happens, it is said why, and all goes on when they are set right.

use std::time::Duration;

use coppice_sim::ReplicaSettings;
use coppice_sim::campaign::Campaign;
use coppice_sim::fault::Weather;
use coppice_sim::oracle::EndState;
use coppice_sim::run::{Plan, run};
use coppice_sim::scenario::{self, Scenario};
use jiff::SignedDuration;

const WRONG: [SignedDuration; 2] = [SignedDuration::from_mins(10), SignedDuration::from_mins(-10)];

fn plan(story: Scenario, replicas: impl Fn(usize) -> ReplicaSettings) -> Plan {
    let replicas = (0..story.replicas).map(replicas).collect();
    Plan { replicas, ..Plan::undisturbed(story, 0) }
}

/// How often the operator deleted or scaled. Webhooks destroy nothing, and are sent by the API server's time.
fn effects(end: &EndState) -> usize {
    end.effects.iter().filter(|(what, _)| !what.starts_with("webhooks")).map(|(_, times)| times).sum()
}

#[test]
fn with_wrong_clocks_nothing_destructive_is_done_and_it_is_said_why() {
    // Where somebody waits for what the operator does, nobody would ever go on.
    let waits = |story: &Scenario| story.script.iter().any(|act| act.once.is_some());
    let mut would_act = 0;
    for story in scenario::all().into_iter().filter(|story| !waits(story)) {
        let right = run(&Plan::undisturbed(story.clone(), 0)).unwrap().end;
        would_act += usize::from(effects(&right) > 0);
        for clock_error in WRONG {
            let what = format!("{}, {clock_error:#}", story.name);
            let settings = ReplicaSettings { clock_error, ..ReplicaSettings::default() };
            let wrong = run(&plan(story.clone(), |_| settings.clone())).unwrap();
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
    for story in scenario::all().into_iter().filter(|story| story.replicas > 1) {
        for clock_error in WRONG {
            let of = |n| if n == 0 { clock_error } else { SignedDuration::ZERO };
            let settings = |n| ReplicaSettings { clock_error: of(n), ..ReplicaSettings::default() };
            let outcome = run(&plan(story.clone(), settings)).unwrap();
            let timeline = outcome.trace.timeline(false);
            // Where it leads, people may wait in vain for what it does.
            let wrong: Vec<&String> =
                outcome.violations.iter().filter(|sentence| !sentence.starts_with("SCRIPT: ")).collect();
            assert_eq!(wrong, [""; 0], "{}, {clock_error:#}\n{timeline}", story.name);
        }
    }
}

#[test]
fn when_the_clocks_are_set_right_everything_ends_as_it_should() {
    let campaign = Campaign::prepare().unwrap();
    let until = Duration::from_secs(75);
    for story in scenario::all() {
        for clock_error in WRONG {
            let settings =
                ReplicaSettings { clock_error, clock_set_right: Some(until), ..ReplicaSettings::default() };
            // No faults but this one; a run that has a storm lasts until everything has settled after it.
            // Since when pods have held was noted by the clock that was wrong: it may take as much longer.
            let settles = story.name == "settling";
            let until = if settles { until + Duration::from_mins(10) } else { until };
            let calm = Weather { requests: 0, events: 0, kills: 0, until };
            let plan = Plan { weather: Some(calm), ..plan(story.clone(), |_| settings.clone()) };
            let (wrong, outcome) = campaign.judge_twice(&plan).unwrap();
            let timeline = outcome.trace.timeline(false);
            assert_eq!(wrong, [""; 0], "{}, {clock_error:#}\n{timeline}", story.name);
        }
    }
}
