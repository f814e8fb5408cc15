//! Runs the real operator in simulated worlds in which things go wrong, and tells what it did that it must not.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use clap::{Parser, Subcommand};
use coppice_campaign::campaign::Campaign;
use coppice_campaign::digest::Digest;
use coppice_campaign::run::{RunPlan, run};
use coppice_campaign::scenario::{self, Scenario};
use coppice_sim::fault::PlannedFault;

/// Most of a run's time goes to small allocations.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Run the real operator in simulated worlds in which things go wrong
#[derive(Parser)]
#[command(name = "coppice-campaign", version)]
struct Args {
    #[command(subcommand)]
    command: Command,
    /// How many runs at once
    #[arg(long, global = true, default_value_t = std::thread::available_parallelism().map_or(1, Into::into))]
    threads: usize,
}

#[derive(Subcommand)]
enum Command {
    /// List the scenarios
    Scenarios,
    /// Every fault at every place of every scenario, one at a time
    Exhaustive {
        /// Only this scenario
        #[arg(long)]
        scenario: Option<String>,
    },
    /// Every two faults at every two places of one scenario: of `small`, some 30,000 runs
    Pairs {
        /// The scenario
        #[arg(long, default_value = "small")]
        scenario: String,
        /// Only faults of writes
        #[arg(long)]
        writes: bool,
    },
    /// Random faults, one run for each seed
    Random {
        /// The first seed
        #[arg(long, default_value_t = 0)]
        first: u64,
        /// How many seeds
        #[arg(long, default_value_t = 10_000)]
        seeds: u64,
    },
    /// Digests of the seeds that the tests always run
    Digests {
        /// How many seeds
        #[arg(long, default_value_t = 5000)]
        seeds: u64,
    },
    /// One run, with its timeline
    Replay {
        /// The scenario
        scenario: String,
        /// The seed
        #[arg(long, default_value_t = 0)]
        seed: u64,
        /// What goes wrong, such as write:3=answer-lost,event:7=dropped
        #[arg(long, value_delimiter = ',')]
        faults: Vec<PlannedFault>,
        /// Show the renewals of leases and the events of watches, too
        #[arg(long)]
        all: bool,
    },
    /// The run of one seed of `random`, with its timeline
    Seed {
        /// The seed
        seed: u64,
        /// Show the renewals of leases and the events of watches, too
        #[arg(long)]
        all: bool,
    },
}

fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    match args.command {
        Command::Scenarios => {
            for scenario in scenario::named() {
                print(&format!("{:<16} {}\n", scenario.name, scenario.about));
            }
            Ok(ExitCode::SUCCESS)
        }
        Command::Exhaustive { scenario } => {
            let campaign = Campaign::prepare()?;
            let scenarios =
                scenario::all().into_iter().filter(|s| scenario.as_deref().is_none_or(|name| name == s.name));
            let plans: Vec<RunPlan> =
                scenarios.flat_map(|scenario| campaign.every_fault(&scenario)).collect();
            check(&campaign, &plans, args.threads)
        }
        Command::Pairs { scenario, writes } => {
            let campaign = Campaign::prepare()?;
            check(&campaign, &campaign.pairs(&scenario_named(&scenario)?, writes), args.threads)
        }
        Command::Random { first, seeds } => {
            let campaign = Campaign::prepare()?;
            let plans: Vec<RunPlan> = (first..first.saturating_add(seeds)).map(Campaign::random).collect();
            check(&campaign, &plans, args.threads)
        }
        Command::Digests { seeds } => digests(seeds, args.threads),
        Command::Replay { scenario, seed, faults, all } => {
            run_one(&RunPlan { faults, ..RunPlan::without_faults(scenario_named(&scenario)?, seed) }, all)
        }
        Command::Seed { seed, all } => run_one(&Campaign::random(seed), all),
    }
}

fn digests(seeds: u64, threads: usize) -> anyhow::Result<ExitCode> {
    let plans: Vec<RunPlan> = (0..seeds).map(Campaign::random).collect();
    let digests = Mutex::new(BTreeMap::new());
    let check = |_: &Campaign, plan: &RunPlan| {
        let outcome = run(plan)?;
        digests.lock().unwrap_or_else(PoisonError::into_inner).insert(plan.seed, Digest::of(&outcome));
        Ok((Vec::new(), outcome))
    };
    Campaign::of([])?.run_all(&plans, threads, check, |_| {})?;
    let digests: Vec<_> =
        digests.into_inner().unwrap_or_else(PoisonError::into_inner).into_values().collect();
    print(&Digest::table(&digests));
    Ok(ExitCode::SUCCESS)
}

fn scenario_named(name: &str) -> anyhow::Result<Scenario> {
    scenario::by_name(name).ok_or_else(|| {
        anyhow::anyhow!("there is no scenario {name:?}: `coppice-campaign scenarios` lists them")
    })
}

fn run_one(plan: &RunPlan, all: bool) -> anyhow::Result<ExitCode> {
    let (wrong, outcome) = Campaign::prepare()?.check_twice(plan)?;
    print(&outcome.trace.timeline(all));
    print(&format!("\n{}: {}\n", plan.scenario.name, plan.scenario.about));
    for sentence in &wrong {
        print(&format!("  {sentence}\n"));
    }
    Ok(if wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn check(campaign: &Campaign, plans: &[RunPlan], threads: usize) -> anyhow::Result<ExitCode> {
    let began = Instant::now();
    let failures = campaign.run_all(plans, threads, Campaign::check, |n| {
        if (n + 1).is_multiple_of(1000) {
            print(&format!("{} of {} runs, {} s\n", n + 1, plans.len(), began.elapsed().as_secs()));
        }
    })?;
    for failure in failures.iter().take(3) {
        print(&failure.report());
    }
    let line = |failure: &coppice_campaign::campaign::Failure| {
        let faults: Vec<String> = failure.faults.iter().map(ToString::to_string).collect();
        format!(
            "{} seed {}: {} [{}]",
            failure.scenario,
            failure.seed,
            failure.wrong.join("; "),
            faults.join(",")
        )
    };
    for failure in failures.iter().skip(3).take(30) {
        print(&format!("{}\n", line(failure)));
    }
    print(&format!(
        "{} runs in {:.1} s, {} not as they should be\n",
        plans.len(),
        began.elapsed().as_secs_f32(),
        failures.len()
    ));
    Ok(if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

#[expect(clippy::print_stdout, reason = "this is a program for a terminal")]
fn print(text: &str) {
    print!("{text}");
}
