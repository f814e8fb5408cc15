//! Wrong input, in chains: nothing that must not happen does, and the end does not depend on the way.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use coppice_campaign::run::{RunResult, run};
use coppice_campaign::suite::lifecycle::{SUITE, wrong_input};
use serde_json::Value;

const MANAGER: &str = "namespacemanagers mine/m";

fn chain(seed: Option<u64>) -> RunResult {
    run(&SUITE, &SUITE.without_faults(wrong_input(seed), seed.unwrap_or_default())).unwrap()
}

/// How a chain ended otherwise than it should; none if its namespace was rightly deleted on the way.
fn wrong(seed: u64, right: &RunResult) -> Vec<String> {
    let outcome = chain(Some(seed));
    let mut wrong = outcome.violations.clone();
    if outcome.end.effects.contains_key("delete mine") {
        return wrong;
    }
    let (is, should) = (&outcome.end.objects[MANAGER], &right.end.objects[MANAGER]);
    // What fired on the way, because it was asked for, stays on record.
    let fired = is["firings"].as_i64() > Some(0);
    let forgotten: &[&str] = if fired { &["firings", "last", "scaledDown"] } else { &[] };
    let masked = |object: &Value| {
        let mut object = object.clone();
        object.as_object_mut().unwrap().retain(|field, _| !forgotten.contains(&field.as_str()));
        object
    };
    if masked(is) != masked(should) {
        wrong.push(format!("END: the manager should be {should} and is {is}"));
    }
    wrong
}

#[test]
fn a_chain_holds_what_is_taken_and_what_is_refused() {
    let count = |code: &str| {
        let lines = (0..20).flat_map(|seed| chain(Some(seed)).trace.lines().to_vec());
        lines.filter(|line| line.who.to_string() == "alice" && line.what.ends_with(code)).count()
    };
    let (taken, refused) = (count("→ 200"), count("→ 422"));
    assert!(taken > 60 && refused > 20, "{taken} taken, {refused} refused");
}

#[test]
fn whatever_was_written_on_the_way_the_end_is_that_of_the_right_input() {
    let right = chain(None);
    assert_eq!(right.violations, [] as [String; 0]);
    let seeds = 0..120u64;
    let halves = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..2)
            .map(|half| {
                let (right, seeds) = (&right, seeds.clone());
                scope.spawn(move || {
                    let mine = seeds.filter(|seed| seed % 2 == half);
                    mine.map(|seed| (seed, wrong(seed, right)))
                        .filter(|(_, w)| !w.is_empty())
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    let shown = halves.iter().take(3).map(|(seed, wrong)| {
        format!("seed {seed}:\n  {}\n{}", wrong.join("\n  "), chain(Some(*seed)).trace.timeline(false))
    });
    let shown = shown.collect::<Vec<_>>().join("\n\n");
    assert!(halves.is_empty(), "{} chains\n{shown}", halves.len());
}
