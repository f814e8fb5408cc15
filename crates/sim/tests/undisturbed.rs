//! Nothing goes wrong: every story ends as it should, whatever the seed, and the same seed gives the same trace.

use coppice_sim::run::{Plan, run};
use coppice_sim::scenario;

#[test]
fn every_story_ends_well_and_alike_whatever_the_seed() {
    for story in scenario::all() {
        let first = run(&Plan::undisturbed(story.clone(), 0)).unwrap();
        assert_eq!(first.violations, [""; 0], "{}\n{}", story.name, first.trace.timeline(false));
        assert_eq!(first.end.unlike(&story.ends), [""; 0], "{}\n{}", story.name, first.trace.timeline(false));
        assert!(!story.ends.is_empty(), "{} does not say how it ends", story.name);
        for seed in 1..4 {
            let other = run(&Plan::undisturbed(story.clone(), seed)).unwrap();
            assert_eq!(other.violations, [""; 0], "{} {seed}\n{}", story.name, other.trace.timeline(false));
            let differences = first.end.differences(&other.end);
            assert_eq!(differences, [""; 0], "{} {seed}\n{}", story.name, other.trace.timeline(false));
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    for story in scenario::all() {
        let once = run(&Plan::undisturbed(story.clone(), 7)).unwrap();
        let twice = run(&Plan::undisturbed(story.clone(), 7)).unwrap();
        assert_eq!(once.trace.difference(&twice.trace), None, "{}", story.name);
    }
}
