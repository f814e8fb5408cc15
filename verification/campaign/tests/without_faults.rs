//! Nothing goes wrong: every scenario ends as it should, whatever the seed, and the same seed gives the same trace.

use coppice_campaign::run::run;
use coppice_campaign::suite;

#[test]
fn every_scenario_ends_well_and_alike_whatever_the_seed() {
    for (suite, scenario) in suite::scenarios() {
        let first = run(&suite, &suite.without_faults(scenario.clone(), 0)).unwrap();
        assert_eq!(first.violations, [""; 0], "{}\n{}", scenario.name, first.trace.timeline(false));
        let unlike = first.unlike(&scenario.ends);
        assert_eq!(unlike, [""; 0], "{}\n{}", scenario.name, first.trace.timeline(false));
        assert!(!scenario.ends.is_empty(), "{} does not say how it ends", scenario.name);
        // What a scenario leaves open may differ.
        let open = scenario.ends.iter().any(|line| line.ends_with('*'));
        for seed in 1..4 {
            let other = run(&suite, &suite.without_faults(scenario.clone(), seed)).unwrap();
            assert_eq!(
                other.violations,
                [""; 0],
                "{} {seed}\n{}",
                scenario.name,
                other.trace.timeline(false)
            );
            let unlike = other.unlike(&scenario.ends);
            let differences = if open { unlike } else { first.end.differences(&other.end) };
            assert_eq!(differences, [""; 0], "{} {seed}\n{}", scenario.name, other.trace.timeline(false));
        }
    }
}

#[test]
fn every_scenario_that_seeds_do_not_choose_ends_well() {
    for (suite, scenario) in
        suite::ALL.iter().flat_map(|suite| (suite.apart)().into_iter().map(|one| (*suite, one)))
    {
        for seed in 0..2 {
            let ended = run(&suite, &suite.without_faults(scenario.clone(), seed)).unwrap();
            let timeline = || ended.trace.timeline(false);
            assert_eq!(ended.violations, [""; 0], "{} {seed}\n{}", scenario.name, timeline());
            assert_eq!(ended.unlike(&scenario.ends), [""; 0], "{} {seed}\n{}", scenario.name, timeline());
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    for (suite, scenario) in suite::scenarios() {
        let once = run(&suite, &suite.without_faults(scenario.clone(), 7)).unwrap();
        let twice = run(&suite, &suite.without_faults(scenario.clone(), 7)).unwrap();
        assert_eq!(once.trace.difference(&twice.trace), None, "{}", scenario.name);
    }
}
