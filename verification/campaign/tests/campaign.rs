//! Things go wrong: one fault at every place of every scenario, and many by chance. The real programs do nothing that they must not,
//! and end where they would have ended.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::marker;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;

use coppice_campaign::campaign::{Campaign, FailedRun};
use coppice_campaign::digest::Digest;
use coppice_campaign::oracle::Rule;
use coppice_campaign::oracle::rule::{QUIET, SCRIPT};
use coppice_campaign::run::{RunPlan, run, run_without};
use coppice_campaign::suite::trees::rule::{
    AS_REQUESTED, ASKED_FOR, CHILDREN, CONSENT, CREATED_HERE, DENIED, LIMIT, MOVED_ONCE, NOTHING_LOST,
    REFUSED, RIGHTS, SETTLED, TREE_BUDGET, USED,
};
use coppice_campaign::suite::{self, Suite};
use coppice_runtime::clock::SeededRng;
use coppice_sim::fault::FaultTarget;
use coppice_sim::scenario::Scenario;
use coppice_sim::trace::Trace;

/// Every suite, and one that is for these tests alone.
fn suites() -> impl Iterator<Item = &'static Suite> {
    suite::ALL.iter().chain([&marker::SUITE])
}

fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, Into::into)
}

/// Runs plans of a suite; each of them is as it should be.
fn no_harm(campaign: &Campaign, plans: &[RunPlan]) {
    let failures = campaign.run_all(plans, threads(), Campaign::check, |_| {}).unwrap();
    assert!(failures.is_empty(), "{} of {} runs\n{}", failures.len(), plans.len(), show(&failures));
}

fn show(failures: &[FailedRun]) -> String {
    failures.iter().take(3).map(FailedRun::report).collect::<Vec<_>>().join("\n\n")
}

/// Of what can happen to writes, and to what admission webhooks are asked, one in so many is tried, each time others.
const ONE_WRITE_IN: usize = 32;
/// Of pairs of them in the small scenarios.
const ONE_PAIR_IN: usize = 16;

/// A part of many, each time another one; `make campaign` takes all of them.
fn some<T>(all: impl Iterator<Item = T>, one_in: impl Fn(&T) -> usize) -> Vec<T> {
    let turn = usize::try_from(SeededRng::entropy().next_u64() >> 32).unwrap();
    let chosen = all.enumerate().filter(|(n, one)| (n + turn).is_multiple_of(one_in(one)));
    chosen.map(|(_, one)| one).collect()
}

#[test]
fn one_fault_anywhere_does_no_harm() {
    for suite in suites() {
        let campaign = Campaign::prepare(suite).unwrap();
        let all = (suite.scenarios)().into_iter().flat_map(|scenario| campaign.every_fault(&scenario));
        let plans = some(all, |plan| match plan.faults[0].at {
            FaultTarget::Write(_) | FaultTarget::Review(_) => ONE_WRITE_IN,
            // There are many more places where an event can be lost.
            _ => suite.one_place_in,
        });
        no_harm(&campaign, &plans);
    }
}

#[test]
fn two_faults_at_any_two_writes_do_no_harm() {
    let mut tried = 0;
    for suite in suites() {
        let campaign = Campaign::prepare(suite).unwrap();
        let all = campaign.pairs(&(suite.small)(), true);
        let plans = some(all.into_iter(), |_| ONE_PAIR_IN);
        no_harm(&campaign, &plans);
        tried += plans.len();
    }
    assert!(tried > 100, "{tried} runs");
}

#[test]
fn random_faults_do_no_harm() {
    for suite in suites() {
        let campaign = Campaign::prepare(suite).unwrap();
        // Some that are always the same, and some that nobody has seen.
        let fresh = SeededRng::entropy().next_u64() >> 1;
        let seeds = (0..suite.fixed_seeds).chain(fresh..fresh + suite.fresh_seeds);
        let plans: Vec<RunPlan> = seeds.map(|seed| suite.random(seed)).collect();
        // The same seed is the same run, line by line: the recorded digests show it of the fixed ones, and of every tenth of the
        // others a second run.
        let digests = Mutex::new(BTreeMap::new());
        let check = |campaign: &Campaign, plan: &RunPlan| {
            let fixed = plan.seed < suite.fixed_seeds;
            let twice = !fixed && plan.seed.is_multiple_of(10);
            let (wrong, outcome) = if twice { campaign.check_twice(plan)? } else { campaign.check(plan)? };
            if fixed {
                digests.lock().unwrap().insert(plan.seed, (Digest::of(&outcome), outcome.trace.clone()));
            }
            Ok((wrong, outcome))
        };
        let failures = campaign.run_all(&plans, threads(), check, |_| {}).unwrap();
        assert!(failures.is_empty(), "{} of {} runs\n{}", failures.len(), plans.len(), show(&failures));
        let (digests, traces): (Vec<_>, Vec<_>) = digests.into_inner().unwrap().into_values().unzip();
        as_recorded(suite, &Digest::table(&digests), &traces);
    }
}

/// So many seeds that are always the same for each scenario with cluster managers that seeds do not choose.
const FIXED_APART: u64 = 20;
/// So many that nobody has seen besides.
const FRESH_APART: u64 = 5;

/// What counts the past counts what caches have shown: where events of deletions are lost, how often a name was deleted is too low until
/// everything is listed again; where one is late, what ended counts for too long. No event goes wrong here.
const COUNTED_BY_CACHES: [&str; 2] = ["cluster-recreated-often", "cluster-budget-spent"];

/// Where nobody answers, attempts go on, further and further apart.
const NEVER_QUIET: &str = "cluster-unnotified";

/// By chance, in the scenarios with cluster managers that seeds do not choose. How they end is another matter. That it gets quiet, and that
/// people do not wait in vain, is asked of the seeds that are always the same.
#[test]
fn random_faults_break_no_rule_in_scenarios_that_seeds_do_not_choose() {
    let (suite, fresh) = (suite::cluster::SUITE, SeededRng::entropy().next_u64() >> 1);
    let seeds: Vec<u64> = (0..FIXED_APART).chain(fresh..fresh + FRESH_APART).collect();
    let with_seeds =
        |scenario: Scenario| seeds.iter().map(move |seed| suite.random_of(scenario.clone(), *seed));
    let mut plans: Vec<RunPlan> = (suite.apart)().into_iter().flat_map(with_seeds).collect();
    for plan in plans.iter_mut().filter(|plan| COUNTED_BY_CACHES.contains(&plan.scenario.name)) {
        plan.fault_rates.iter_mut().for_each(|rates| rates.events = 0);
    }
    let check = |_: &Campaign, plan: &RunPlan| {
        let outcome = run(&suite, plan)?;
        let fixed = plan.seed < FIXED_APART;
        let quiet = fixed && plan.scenario.name != NEVER_QUIET;
        let mut wrong = outcome.violations.clone();
        for (rule, judged) in [(SCRIPT, fixed), (QUIET, quiet)] {
            wrong.retain(|violation| judged || !violation.starts_with(&format!("{rule}: ")));
        }
        Ok((wrong, outcome))
    };
    let campaign = Campaign::of(&suite, []).unwrap();
    let failures = campaign.run_all(&plans, threads(), check, |_| {}).unwrap();
    assert!(failures.is_empty(), "{} of {} runs\n{}", failures.len(), plans.len(), show(&failures));
}

/// So many seeds that are always the same, and so many that nobody has seen, for each scenario of trees that seeds do not choose.
const FIXED_APART_OF_TREES: u64 = 4;
const FRESH_APART_OF_TREES: u64 = 4;
/// In these namespaces come into a tree, change their place or leave, with all that they have: one fault is tried at places of each.
const MEMBERSHIP: [&str; 6] = [
    "tree-parent-goes-away",
    "tree-transfer-to-ending",
    "tree-detached",
    "tree-detached-without-root",
    "tree-adopted",
    "tree-limits-copied",
];
/// At one in so many of the places at which a fault is tried in scenarios that seeds choose.
const ONE_PLACE_APART_IN: usize = 4;

/// By chance, and one at a place: what is asked of the scenarios of trees that seeds choose is asked of those that they do not.
#[test]
fn faults_do_no_harm_in_scenarios_of_trees_that_seeds_do_not_choose() {
    let (suite, fresh) = (suite::trees::SUITE, SeededRng::entropy().next_u64() >> 1);
    let scenarios = (suite.apart)();
    let campaign = Campaign::of(&suite, scenarios.clone()).unwrap();
    let moving: Vec<&Scenario> = scenarios.iter().filter(|one| MEMBERSHIP.contains(&one.name)).collect();
    assert_eq!(moving.len(), MEMBERSHIP.len());
    let places = moving.into_iter().flat_map(|scenario| campaign.every_fault(scenario));
    let mut plans = some(places, |plan| match plan.faults[0].at {
        FaultTarget::Write(_) | FaultTarget::Review(_) => ONE_PLACE_APART_IN * ONE_WRITE_IN,
        _ => ONE_PLACE_APART_IN * suite.one_place_in,
    });
    let seeds = (0..FIXED_APART_OF_TREES).chain(fresh..fresh + FRESH_APART_OF_TREES);
    for seed in seeds {
        plans.extend(scenarios.iter().map(|scenario| suite.random_of(scenario.clone(), seed)));
    }
    no_harm(&campaign, &plans);
}

/// So many of each of the scenarios of trees that seeds make: of any, and of cascades.
const COUNTED: [u64; 2] = [100, 40];
/// What each rule of trees has to judge in them at least, all together: about half of what it judged in the first when this was written.
/// CONSENT has something to judge in the others.
const FLOORS: [(Rule, u64); 14] = [
    (AS_REQUESTED, 60),
    (ASKED_FOR, 3),
    (CHILDREN, 3),
    (CONSENT, 1),
    (CREATED_HERE, 3),
    (DENIED, 15),
    (LIMIT, 3000),
    (MOVED_ONCE, 45),
    (NOTHING_LOST, 50),
    (REFUSED, 60),
    (RIGHTS, 120),
    (SETTLED, 240),
    (TREE_BUDGET, 2),
    (USED, 1200),
];

/// A rule that judges nothing is never broken.
#[test]
fn every_rule_of_trees_has_something_to_judge_in_what_seeds_make() {
    let suite = suite::trees::SUITE;
    let each = suite.generated.iter().zip(COUNTED);
    let plans: Vec<RunPlan> = each
        .flat_map(|(generated, seeds)| (0..seeds).map(move |seed| ((generated.of_seed)(seed), seed)))
        .map(|(scenario, seed)| suite.random_of(scenario, seed))
        .collect();
    assert_eq!(plans.len() as u64, COUNTED.iter().sum::<u64>());
    let judged = Mutex::new(BTreeMap::new());
    let check = |campaign: &Campaign, plan: &RunPlan| {
        let (wrong, outcome) = campaign.check(plan)?;
        for (rule, count) in &outcome.judged {
            *judged.lock().unwrap().entry(*rule).or_default() += count;
        }
        Ok((wrong, outcome))
    };
    let failures = Campaign::of(&suite, []).unwrap().run_all(&plans, threads(), check, |_| {}).unwrap();
    assert!(failures.is_empty(), "{} of {} runs\n{}", failures.len(), plans.len(), show(&failures));
    let judged: BTreeMap<&str, u64> = judged.into_inner().unwrap();
    let rules = BTreeMap::from(FLOORS.map(|(rule, floor)| (rule.0, floor)));
    assert!(rules.keys().eq(judged.keys()), "{rules:?}, but {judged:?}");
    assert!(rules.iter().all(|(rule, floor)| judged[rule] >= *floor), "{rules:?}, but {judged:?}");
}

/// Whether digests are those that are recorded. If not, a second run of each seed shows whether a seed decides everything.
fn as_recorded(suite: &Suite, digests: &str, traces: &[Trace]) {
    let recorded = std::fs::read_to_string(suite.digests).unwrap();
    let mut differences = Digest::differences(&recorded, digests);
    if !differences.is_empty() {
        for (seed, first) in (0..).zip(traces) {
            let again = run(suite, &suite.random(seed)).unwrap().trace;
            if let Some((one, two)) = first.difference(&again) {
                differences.push(format!("seed {seed} is not the same run twice:\n    {one}\n    {two}"));
            }
        }
    }
    let written = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-digests.txt", suite.name));
    std::fs::write(&written, digests).unwrap();
    assert!(
        differences.is_empty(),
        "{} behaves in another way than before:\n{}\nIf that is meant, say so in the commit, and record the digests:\n  \
         cp {} verification/campaign/{}",
        suite.name,
        differences.join("\n"),
        written.display(),
        suite.digests
    );
}

#[test]
fn the_rule_of_a_suite_finds_a_bug_of_its_program_and_no_other_rule_does() {
    let killed = suite::find(&[marker::BROKEN], "marker-killed").map(|(_, scenario)| scenario).unwrap();
    let plan = marker::BROKEN.without_faults(killed.clone(), 0);
    let found = run(&marker::BROKEN, &plan).unwrap().violations;
    assert_eq!(found, [format!("{}: there are 2", marker::ONE_MARKER)]);
    let without = run_without(&marker::BROKEN, &plan, Some(marker::ONE_MARKER)).unwrap();
    assert_eq!(without.violations, [""; 0]);
    let right = run(&marker::SUITE, &marker::SUITE.without_faults(killed, 0)).unwrap();
    assert_eq!(right.violations, [""; 0]);
}

/// As after `| head`.
#[test]
fn output_that_nobody_reads_ends_the_program_quietly() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut program = std::process::Command::new(env!("CARGO_BIN_EXE_coppice-campaign"));
    let ended =
        program.arg("scenarios").stdout(writer).stderr(std::process::Stdio::piped()).output().unwrap();
    assert_eq!((ended.status.code(), String::from_utf8_lossy(&ended.stderr).as_ref()), (Some(1), ""));
}
