//! Runs the real operator in simulated worlds in which things go wrong, and tells what it did that it must not.

use std::process::ExitCode;
use std::time::Instant;

use clap::{Parser, Subcommand};
use coppice_sim::campaign::Campaign;
use coppice_sim::fault::Planned;
use coppice_sim::run::Plan;
use coppice_sim::scenario::{self, Scenario};

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
    /// List the stories
    Stories,
    /// Every fault at every place of every story, one at a time
    Everywhere {
        /// Only this story
        #[arg(long)]
        story: Option<String>,
    },
    /// Every two faults at every two places of one story: of `small`, some 30,000 runs
    Pairs {
        /// The story
        #[arg(long, default_value = "small")]
        story: String,
        /// Only faults of writes
        #[arg(long)]
        writes: bool,
    },
    /// Faults by chance, one run for each seed
    Chance {
        /// The first seed
        #[arg(long, default_value_t = 0)]
        first: u64,
        /// How many seeds
        #[arg(long, default_value_t = 10_000)]
        seeds: u64,
    },
    /// One run, with its timeline
    Replay {
        /// The story
        story: String,
        /// The seed
        #[arg(long, default_value_t = 0)]
        seed: u64,
        /// What goes wrong, such as write:3=answer-lost,event:7=dropped
        #[arg(long, value_delimiter = ',')]
        faults: Vec<Planned>,
        /// Show the renewals of leases and the events of watches, too
        #[arg(long)]
        all: bool,
    },
    /// The run of one seed of `chance`, with its timeline
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
        Command::Stories => {
            for story in scenario::named() {
                print(&format!("{:<16} {}\n", story.name, story.about));
            }
            Ok(ExitCode::SUCCESS)
        }
        Command::Everywhere { story } => {
            let campaign = Campaign::prepare()?;
            let stories =
                scenario::all().into_iter().filter(|s| story.as_deref().is_none_or(|name| name == s.name));
            let plans: Vec<Plan> = stories.flat_map(|story| campaign.everywhere(&story)).collect();
            judge(&campaign, &plans, args.threads)
        }
        Command::Pairs { story, writes } => {
            let campaign = Campaign::prepare()?;
            judge(&campaign, &campaign.pairs(&story_named(&story)?, writes), args.threads)
        }
        Command::Chance { first, seeds } => {
            let campaign = Campaign::prepare()?;
            let plans: Vec<Plan> = (first..first.saturating_add(seeds)).map(Campaign::by_chance).collect();
            judge(&campaign, &plans, args.threads)
        }
        Command::Replay { story, seed, faults, all } => {
            one(&Plan { faults, ..Plan::undisturbed(story_named(&story)?, seed) }, all)
        }
        Command::Seed { seed, all } => one(&Campaign::by_chance(seed), all),
    }
}

fn story_named(name: &str) -> anyhow::Result<Scenario> {
    scenario::by_name(name)
        .ok_or_else(|| anyhow::anyhow!("there is no story {name:?}: `coppice-campaign stories` lists them"))
}

fn one(plan: &Plan, all: bool) -> anyhow::Result<ExitCode> {
    let (wrong, outcome) = Campaign::prepare()?.judge_twice(plan)?;
    print(&outcome.trace.timeline(all));
    print(&format!("\n{}: {}\n", plan.scenario.name, plan.scenario.about));
    for sentence in &wrong {
        print(&format!("  {sentence}\n"));
    }
    Ok(if wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn judge(campaign: &Campaign, plans: &[Plan], threads: usize) -> anyhow::Result<ExitCode> {
    let began = Instant::now();
    let failures = campaign.run_all(plans, threads, Campaign::judge, |n| {
        if (n + 1).is_multiple_of(1000) {
            print(&format!("{} of {} runs, {} s\n", n + 1, plans.len(), began.elapsed().as_secs()));
        }
    })?;
    for failure in failures.iter().take(3) {
        print(&failure.report());
    }
    let stories = |failure: &coppice_sim::campaign::Failure| {
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
        print(&format!("{}\n", stories(failure)));
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
