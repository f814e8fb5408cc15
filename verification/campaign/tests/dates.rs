//! The API server's clock goes wrong, or that of one of several servers, or a replica's own is set: nothing ends early.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::time::Duration;

use coppice_campaign::campaign::FailedRun;
use coppice_campaign::run::{RunPlan, run};
use coppice_campaign::suite::{self, Suite};
use coppice_sim::fault::DateFault;
use coppice_sim::scenario::Scenario;
use jiff::SignedDuration;

const HOUR: SignedDuration = SignedDuration::from_hours(1);
const FOR_EVER: u64 = 1_000_000;

fn dates(by: Option<SignedDuration>, from: u64, until: u64, every: u64) -> DateFault {
    DateFault { by, during: (Duration::from_secs(from), Duration::from_secs(until)), every }
}

/// At the beginning, when nothing else is known, is the worst of times.
fn wrong_dates() -> Vec<(&'static str, DateFault)> {
    vec![
        ("an hour ahead at first", dates(Some(HOUR), 0, 6, 1)),
        ("an hour behind at first", dates(Some(-HOUR), 0, 6, 1)),
        ("an hour ahead later", dates(Some(HOUR), 20, 50, 1)),
        ("an hour behind later", dates(Some(-HOUR), 20, 50, 1)),
        ("always an hour ahead", dates(Some(HOUR), 0, FOR_EVER, 1)),
        ("ahead in every second answer", dates(Some(HOUR), 0, FOR_EVER, 2)),
        ("behind in every second answer", dates(Some(-HOUR), 0, FOR_EVER, 2)),
        ("ahead in every third answer", dates(Some(HOUR), 0, FOR_EVER, 3)),
        ("missing", dates(None, 0, FOR_EVER, 1)),
        ("missing in every second answer", dates(None, 0, FOR_EVER, 2)),
    ]
}

/// Those that seeds choose from, and the one that is about times, with their suites.
fn scenarios() -> impl Iterator<Item = (Suite, Scenario)> {
    suite::scenarios().chain(suite::find(suite::ALL, "timed"))
}

/// What must not happen in any run, whatever the clocks: that things are late, records, too, and people wait in vain, does not
/// matter here.
fn nothing_ends_early(what: &str, suite: &Suite, plan: &RunPlan) {
    let outcome = run(suite, plan).unwrap();
    let mut wrong = outcome.violations.clone();
    wrong.retain(|sentence| {
        !["SCRIPT: ", "QUIET: ", "AGREES: ", "SETTLED: "].iter().any(|rule| sentence.starts_with(rule))
    });
    let failure = FailedRun::of(plan, wrong, &outcome);
    assert!(failure.wrong.is_empty(), "{what}\n{}", failure.report());
}

#[test]
fn dates_that_are_wrong_let_nothing_end_early() {
    for (what, dates) in wrong_dates() {
        for (suite, scenario) in scenarios() {
            let plan = RunPlan { dates: Some(dates), ..suite.without_faults(scenario, 0) };
            nothing_ends_early(what, &suite, &plan);
        }
    }
}

#[test]
fn a_clock_that_is_set_lets_nothing_end_early() {
    let after = Duration::from_secs;
    for jumps in [
        vec![(after(9), HOUR), (after(50), -HOUR)],
        vec![(after(9), -HOUR), (after(50), HOUR)],
        vec![(after(2), SignedDuration::from_secs(4)), (after(30), SignedDuration::from_secs(-4))],
    ] {
        for (suite, scenario) in scenarios() {
            let mut plan = suite.without_faults(scenario, 0);
            plan.replicas.iter_mut().for_each(|replica| replica.clock_jumps.clone_from(&jumps));
            nothing_ends_early(&format!("{jumps:?}"), &suite, &plan);
        }
    }
}
