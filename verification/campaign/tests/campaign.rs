//! Things go wrong: one fault at every place of every scenario, and many by chance. The real operator does nothing that it must not, and
//! ends where it would have ended.

use std::collections::BTreeMap;
use std::sync::Mutex;

use coppice_campaign::campaign::{Campaign, Failure};
use coppice_campaign::digest::Digest;
use coppice_campaign::run::RunPlan;
use coppice_campaign::scenario;
use coppice_runtime::clock::SeededRng;
use coppice_sim::fault::FaultTarget;

/// Most of a run's time goes to small allocations.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Seeds that are always run.
const FIXED: u64 = 5000;

fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, Into::into)
}

fn show(failures: &[Failure]) -> String {
    failures.iter().take(3).map(Failure::report).collect::<Vec<_>>().join("\n\n")
}

#[test]
fn one_fault_anywhere_does_no_harm() {
    let campaign = Campaign::prepare().unwrap();
    // Every write with every fault; of the many places where an event can be lost, one in seven (`make campaign` takes them all).
    let all = scenario::all().into_iter().flat_map(|scenario| campaign.every_fault(&scenario));
    let writes = |plan: &RunPlan| matches!(plan.faults[0].at, FaultTarget::Write(_));
    let plans: Vec<RunPlan> =
        all.enumerate().filter(|(n, plan)| writes(plan) || n % 7 == 0).map(|(_, p)| p).collect();
    let failures = campaign.run_all(&plans, threads(), Campaign::check, |_| {}).unwrap();
    assert!(failures.is_empty(), "{} of {} runs\n{}", failures.len(), plans.len(), show(&failures));
}

#[test]
fn two_faults_at_any_two_writes_do_no_harm() {
    let campaign = Campaign::prepare().unwrap();
    let plans = campaign.pairs(&scenario::small(), true);
    assert!(plans.len() > 100, "{} runs", plans.len());
    let failures = campaign.run_all(&plans, threads(), Campaign::check, |_| {}).unwrap();
    assert!(failures.is_empty(), "{} of {} runs\n{}", failures.len(), plans.len(), show(&failures));
}

#[test]
fn random_faults_do_no_harm() {
    let campaign = Campaign::prepare().unwrap();
    // Some that are always the same, and some that nobody has seen.
    let fresh = SeededRng::entropy().next_u64() >> 1;
    let seeds = (0..FIXED).chain(fresh..fresh + 1000);
    let plans: Vec<RunPlan> = seeds.map(Campaign::random).collect();
    // Every fresh one and every fifth of the others twice: the same seed is the same run, line by line.
    let digests = Mutex::new(BTreeMap::new());
    let check = |campaign: &Campaign, plan: &RunPlan| {
        let twice = plan.seed >= FIXED || plan.seed.is_multiple_of(5);
        let (wrong, outcome) = if twice { campaign.check_twice(plan)? } else { campaign.check(plan)? };
        if plan.seed < FIXED {
            digests.lock().unwrap().insert(plan.seed, Digest::of(&outcome));
        }
        Ok((wrong, outcome))
    };
    let failures = campaign.run_all(&plans, threads(), check, |_| {}).unwrap();
    assert!(failures.is_empty(), "{} of {} runs\n{}", failures.len(), plans.len(), show(&failures));
    let digests: Vec<_> = digests.into_inner().unwrap().into_values().collect();
    let before = std::fs::read_to_string("tests/digests.txt").unwrap();
    let differences = Digest::differences(&before, &Digest::table(&digests));
    assert!(
        differences.is_empty(),
        "the operator behaves in another way than before:\n{}\nIf that is meant, say so in the commit, and write the digests:\n  \
         cargo run --profile sim -p coppice-campaign -- digests > verification/campaign/tests/digests.txt",
        differences.join("\n")
    );
}
