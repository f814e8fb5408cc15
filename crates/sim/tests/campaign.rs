//! Things go wrong: one fault at every place of every story, and many by chance. The real operator does nothing that it must not, and
//! ends where it would have ended.

use coppice_runtime::clock::Dice;
use coppice_sim::campaign::{Campaign, Failure};
use coppice_sim::fault::At;
use coppice_sim::run::Plan;
use coppice_sim::scenario;

/// Most of a run's time goes to small allocations.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

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
    let all = scenario::all().into_iter().flat_map(|story| campaign.everywhere(&story));
    let writes = |plan: &Plan| matches!(plan.faults[0].at, At::Write(_));
    let plans: Vec<Plan> =
        all.enumerate().filter(|(n, plan)| writes(plan) || n % 7 == 0).map(|(_, p)| p).collect();
    let failures = campaign.run_all(&plans, threads(), Campaign::judge, |_| {}).unwrap();
    assert!(failures.is_empty(), "{} of {} runs\n{}", failures.len(), plans.len(), show(&failures));
}

#[test]
fn two_faults_at_any_two_writes_do_no_harm() {
    let campaign = Campaign::prepare().unwrap();
    let plans = campaign.pairs(&scenario::small(), true);
    assert!(plans.len() > 100, "{} runs", plans.len());
    let failures = campaign.run_all(&plans, threads(), Campaign::judge, |_| {}).unwrap();
    assert!(failures.is_empty(), "{} of {} runs\n{}", failures.len(), plans.len(), show(&failures));
}

#[test]
fn faults_by_chance_do_no_harm() {
    let campaign = Campaign::prepare().unwrap();
    // Some that are always the same, and some that nobody has seen.
    let fresh = Dice::entropy().roll() >> 1;
    let seeds = (0..5000).chain(fresh..fresh + 1000);
    let plans: Vec<Plan> = seeds.map(Campaign::by_chance).collect();
    // Every fresh one and every fifth of the others twice: the same seed is the same run, line by line.
    let judge = |campaign: &Campaign, plan: &Plan| {
        let twice = plan.seed >= 5000 || plan.seed.is_multiple_of(5);
        if twice { campaign.judge_twice(plan) } else { campaign.judge(plan) }
    };
    let failures = campaign.run_all(&plans, threads(), judge, |_| {}).unwrap();
    assert!(failures.is_empty(), "{} of {} runs\n{}", failures.len(), plans.len(), show(&failures));
}
