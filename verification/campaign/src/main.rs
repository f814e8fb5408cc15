//! Runs the real programs in simulated clusters in which things go wrong, and reports what they did that they must not.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use clap::builder::PossibleValuesParser;
use clap::{Parser, Subcommand};
use coppice_campaign::campaign::Campaign;
use coppice_campaign::digest::Digest;
use coppice_campaign::run::{RunPlan, run};
use coppice_campaign::suite::{self, Suite};
use coppice_sim::fault::PlannedFault;
use coppice_sim::scenario::Scenario;
use jiff::SignedDuration;

/// Most of a run's time goes to small allocations.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const EXAMPLES: &str = "\
Examples:
  coppice-campaign scenarios                           # what there is to run
  coppice-campaign exhaustive --scenario ttl-fires     # every fault at every place of one scenario
  coppice-campaign random --suite lifecycle --seeds 10000
  coppice-campaign replay ttl-fires --faults write:3=killed-after,event:7=dropped

Exit codes: 0 every run was as it should be, 1 one was not, or an error, 2 usage.";

/// Run the real programs in simulated clusters in which things go wrong, and judge what they do
#[derive(Parser)]
#[command(name = "coppice-campaign", version, after_help = EXAMPLES)]
struct Args {
    #[command(subcommand)]
    command: Command,
    /// Only this suite [default: all]
    #[arg(long, global = true, value_name = "SUITE", value_parser = suite_names())]
    suite: Option<String>,
    /// How many runs at once
    #[arg(long, global = true, default_value_t = std::thread::available_parallelism().map_or(1, Into::into))]
    threads: usize,
}

#[derive(Subcommand)]
enum Command {
    /// List the suites and their scenarios
    Scenarios,
    /// Every fault at every place of every scenario, one at a time
    Exhaustive {
        /// Only this scenario
        #[arg(long)]
        scenario: Option<String>,
        /// Those that seeds do not choose. Where things go wrong, those of `cluster` need not end as they say
        #[arg(long, conflicts_with = "scenario")]
        apart: bool,
    },
    /// Every two faults at every two places of a short scenario: of `small`, some 30,000 runs
    Pairs {
        /// The scenario [default: the short one of each suite]
        #[arg(long)]
        scenario: Option<String>,
        /// Only faults of writes
        #[arg(long)]
        writes: bool,
    },
    /// Random faults, one run of each suite for each seed
    Random {
        /// The first seed
        #[arg(long, default_value_t = 0)]
        first: u64,
        /// How many seeds
        #[arg(long, default_value_t = 10_000)]
        seeds: u64,
        /// Each of the scenarios that seeds do not choose. Where things go wrong, those of `cluster` need not end as they say
        #[arg(long)]
        apart: bool,
    },
    /// Digests of the seeds that the tests of a suite always run
    Digests {
        /// How many seeds [default: as many as are recorded]
        #[arg(long)]
        seeds: Option<u64>,
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
        /// By how many milliseconds the clock of the first replica is ahead
        #[arg(long, value_name = "MS", default_value_t = 0, allow_hyphen_values = true)]
        clock_error: i64,
        /// Show the renewals of leases and the events of watches, too
        #[arg(long)]
        all: bool,
    },
    /// The run of one seed of `random`, with its timeline
    Seed {
        /// The seed
        seed: u64,
        /// In this scenario, not in the one that the seed chooses
        #[arg(long)]
        scenario: Option<String>,
        /// Show the renewals of leases and the events of watches, too
        #[arg(long)]
        all: bool,
    },
}

fn suite_names() -> PossibleValuesParser {
    PossibleValuesParser::new(suite::ALL.iter().map(|suite| suite.name))
}

fn main() -> ExitCode {
    run_command(Args::parse()).unwrap_or_else(|error| {
        // Nobody reads any more, such as after `head`: the rest is not run, and there is nobody to say it to.
        let unread = |error: &io::Error| error.kind() == io::ErrorKind::BrokenPipe;
        if !error.downcast_ref::<io::Error>().is_some_and(unread) {
            eprintln!("error: {error:#}");
        }
        ExitCode::FAILURE
    })
}

fn run_command(args: Args) -> anyhow::Result<ExitCode> {
    let Args { command, suite, threads } = args;
    let mut suites = suite::ALL.to_vec();
    suites.retain(|one| suite.as_deref().is_none_or(|name| name == one.name));
    match command {
        Command::Scenarios => {
            suites.iter().try_for_each(list)?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Exhaustive { scenario: Some(name), .. } => {
            let (suite, scenario) = scenario_named(&suites, &name, 0)?;
            let campaign = Campaign::of(&suite, [scenario.clone()])?;
            check(&campaign, &campaign.every_fault(&scenario), threads)
        }
        Command::Exhaustive { scenario: None, apart } => each(&suites, |suite| {
            let campaign = prepare(suite, apart)?;
            let scenarios = if apart { (suite.apart)() } else { (suite.scenarios)() };
            let plans: Vec<RunPlan> =
                scenarios.iter().flat_map(|scenario| campaign.every_fault(scenario)).collect();
            check(&campaign, &plans, threads)
        }),
        Command::Pairs { scenario: Some(name), writes } => {
            let (suite, scenario) = scenario_named(&suites, &name, 0)?;
            pairs(&suite, &scenario, writes, threads)
        }
        Command::Pairs { scenario: None, writes } => {
            each(&suites, |suite| pairs(suite, &(suite.small)(), writes, threads))
        }
        Command::Random { first, seeds, apart } => each(&suites, |suite| {
            let of_seed = |seed: u64| {
                if apart {
                    let scenarios = (suite.apart)().into_iter();
                    scenarios.map(|scenario| suite.random_of(scenario, seed)).collect()
                } else {
                    vec![suite.random(seed)]
                }
            };
            let plans: Vec<RunPlan> = (first..first.saturating_add(seeds)).flat_map(of_seed).collect();
            check(&prepare(suite, apart)?, &plans, threads)
        }),
        Command::Digests { seeds } => digests(only(&suites)?, seeds, threads),
        Command::Replay { scenario, seed, faults, clock_error, all } => {
            let (suite, scenario) = scenario_named(&suites, &scenario, seed)?;
            let mut plan = RunPlan { faults, ..suite.without_faults(scenario, seed) };
            plan.replicas[0].clock_error = SignedDuration::from_millis(clock_error);
            run_one(&suite, &plan, all)
        }
        Command::Seed { seed, scenario: Some(name), all } => {
            let (suite, scenario) = scenario_named(&suites, &name, seed)?;
            run_one(&suite, &suite.random_of(scenario, seed), all)
        }
        Command::Seed { seed, scenario: None, all } => {
            let suite = only(&suites)?;
            run_one(suite, &suite.random(seed), all)
        }
    }
}

/// The campaign of the scenarios that seeds choose, or of those that they do not.
fn prepare(suite: &Suite, apart: bool) -> anyhow::Result<Campaign> {
    if apart { Campaign::of(suite, (suite.apart)()) } else { Campaign::prepare(suite) }
}

/// Does something with every suite, also after one has failed.
fn each(suites: &[Suite], work: impl Fn(&Suite) -> anyhow::Result<ExitCode>) -> anyhow::Result<ExitCode> {
    let mut code = ExitCode::SUCCESS;
    for suite in suites {
        print(&format!("{}: {}\n", suite.name, suite.about))?;
        if work(suite)? != ExitCode::SUCCESS {
            code = ExitCode::FAILURE;
        }
    }
    Ok(code)
}

/// The suite, where only one can be meant.
fn only(suites: &[Suite]) -> anyhow::Result<&Suite> {
    match suites {
        [suite] => Ok(suite),
        _ => {
            anyhow::bail!("each suite has its own seeds: choose one, such as --suite {}", suite::ALL[0].name)
        }
    }
}

fn scenario_named(suites: &[Suite], name: &str, seed: u64) -> anyhow::Result<(Suite, Scenario)> {
    suite::find_of(suites, name, seed).ok_or_else(|| {
        anyhow::anyhow!("there is no scenario {name:?}: `coppice-campaign scenarios` lists them")
    })
}

fn list(suite: &Suite) -> io::Result<()> {
    print(&format!("{}: {}\n", suite.name, suite.about))?;
    let generated = suite.generated.iter().map(|generated| (generated.of_seed)(0));
    for scenario in suite.all_scenarios().into_iter().chain(generated) {
        print(&format!("  {:<18} {}\n", scenario.name, scenario.about))?;
    }
    Ok(())
}

fn pairs(suite: &Suite, scenario: &Scenario, writes: bool, threads: usize) -> anyhow::Result<ExitCode> {
    let campaign = Campaign::of(suite, [scenario.clone()])?;
    check(&campaign, &campaign.pairs(scenario, writes), threads)
}

fn digests(suite: &Suite, seeds: Option<u64>, threads: usize) -> anyhow::Result<ExitCode> {
    let plans: Vec<RunPlan> =
        (0..seeds.unwrap_or(suite.fixed_seeds)).map(|seed| suite.random(seed)).collect();
    let digests = Mutex::new(BTreeMap::new());
    let check = |_: &Campaign, plan: &RunPlan| {
        let outcome = run(suite, plan)?;
        digests.lock().unwrap_or_else(PoisonError::into_inner).insert(plan.seed, Digest::of(&outcome));
        Ok((Vec::new(), outcome))
    };
    Campaign::of(suite, [])?.run_all(&plans, threads, check, |_| {})?;
    let digests: Vec<_> =
        digests.into_inner().unwrap_or_else(PoisonError::into_inner).into_values().collect();
    print(&Digest::table(&digests))?;
    Ok(ExitCode::SUCCESS)
}

fn run_one(suite: &Suite, plan: &RunPlan, all: bool) -> anyhow::Result<ExitCode> {
    let (wrong, outcome) = Campaign::prepare(suite)?.check_twice(plan)?;
    print(&outcome.trace.timeline(all))?;
    print(&format!("\n{}: {}\n", plan.scenario.name, plan.scenario.about))?;
    for sentence in &wrong {
        print(&format!("  {sentence}\n"))?;
    }
    Ok(if wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn check(campaign: &Campaign, plans: &[RunPlan], threads: usize) -> anyhow::Result<ExitCode> {
    let began = Instant::now();
    let failures = campaign.run_all(plans, threads, Campaign::check, |n| {
        if (n + 1).is_multiple_of(1000) {
            // That nobody reads it is known at the end.
            let _ = print(&format!("{} of {} runs, {} s\n", n + 1, plans.len(), began.elapsed().as_secs()));
        }
    })?;
    for failure in failures.iter().take(3) {
        print(&failure.report())?;
    }
    let line = |failure: &coppice_campaign::campaign::FailedRun| {
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
        print(&format!("{}\n", line(failure)))?;
    }
    print(&format!(
        "{} runs in {:.1} s, {} not as they should be\n",
        plans.len(),
        began.elapsed().as_secs_f32(),
        failures.len()
    ))?;
    Ok(if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn print(text: &str) -> io::Result<()> {
    io::stdout().write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use coppice_campaign::campaign::FailedRun;

    use super::*;

    #[test]
    fn the_command_of_a_failure_plays_its_run_again() {
        let suite = suite::ALL[0];
        for (faults, error) in [
            ("", 0),
            ("write:3=answer-lost,event:7=dropped", -1234),
            ("review:0=lost,review:2=off:30000ms", 0),
            ("", 1500),
        ] {
            let faults: Vec<PlannedFault> =
                faults.split(',').filter(|f| !f.is_empty()).map(|fault| fault.parse().unwrap()).collect();
            let failure = FailedRun {
                scenario: (suite.small)().name,
                seed: 7,
                faults: faults.clone(),
                clock_error: SignedDuration::from_millis(error),
                wrong: Vec::new(),
                timeline: String::new(),
            };
            let report = failure.report();
            let command = report.lines().last().unwrap().trim();
            let prefix = "cargo run --profile sim -p coppice-campaign -- ";
            let words = command.strip_prefix(prefix).unwrap().split(' ').map(|word| word.replace('"', ""));
            let args =
                Args::try_parse_from(["coppice-campaign".to_owned()].into_iter().chain(words)).unwrap();
            let Command::Replay { scenario, seed, faults: again, clock_error, .. } = args.command else {
                panic!("{command}")
            };
            assert_eq!((scenario.as_str(), seed, clock_error), (failure.scenario, 7, error), "{command}");
            assert_eq!(again, faults, "{command}");
        }
    }
}
