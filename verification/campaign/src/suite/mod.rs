//! What a part of Coppice brings to the campaigns. Each suite is a folder here with `scenarios`, `oracle` and `digests.txt`, and a
//! line in [`ALL`]; everything outside of that folder works on suites and knows none. What the programs of several suites run on is in
//! `replica.rs`.

pub mod access;
pub mod cluster;
pub mod lifecycle;
mod replica;
pub mod sample;
pub mod trees;

use std::sync::Arc;
use std::time::Duration;

use coppice_sim::Program;
use coppice_sim::fault::{Fault, FaultRates, FaultTarget, PlannedFault, rng};
use coppice_sim::run::{RunPlan, RunRecord};
use coppice_sim::scenario::Scenario;
use jiff::SignedDuration;

use crate::oracle::{DestructiveStep, EndState, Findings, History};

/// Every suite.
pub const ALL: &[Suite] = &[lifecycle::SUITE, cluster::SUITE, sample::SUITE, trees::SUITE, access::SUITE];

/// Scenarios that are not written down: of each the seed of its run says what people do. How they end is not stated, and judged by
/// the rules alone.
#[derive(Clone, Copy)]
pub struct GeneratedScenarios {
    /// The name of all of them.
    pub name: &'static str,
    /// That of a seed.
    pub of_seed: fn(u64) -> Scenario,
    /// One in so many seeds chooses its own scenario. Without it they are run by their name alone.
    pub one_in: Option<u64>,
}

/// What people do, which programs run meanwhile, and how that is judged.
#[derive(Clone, Copy)]
pub struct Suite {
    /// Its name, as on the command line.
    pub name: &'static str,
    /// What it is about.
    pub about: &'static str,
    /// The programs that run, each under its account and with its Lease. A scenario says how many replicas of each.
    pub programs: fn() -> Vec<Arc<dyn Program>>,
    /// The scenarios that seeds choose from. No other suite has scenarios of the same names.
    pub scenarios: fn() -> Vec<Scenario>,
    /// One that is so short that every two faults at every two places can be tried.
    pub small: fn() -> Scenario,
    /// Those that are run by their name alone.
    pub apart: fn() -> Vec<Scenario>,
    /// Those that seeds make. No seed chooses from more than one of these.
    pub generated: &'static [GeneratedScenarios],
    /// Notes what broke the rules of this suite, in addition to those of [`oracle`](crate::oracle).
    pub rules: fn(&RunRecord<'_>, &History, &[DestructiveStep<'_>], &mut Findings),
    /// Which budget a step takes from instead of the one that all others have in common, by its name.
    pub own_budget: fn(&History, &DestructiveStep<'_>) -> Option<String>,
    /// How a run ended, and what there was for effects.
    pub end_state: fn(&RunRecord<'_>) -> EndState,
    /// The same in words, a line for each thing, as scenarios state it.
    pub end_lines: fn(&EndState) -> Vec<String>,
    /// What the programs did that cannot be repeated, in order and without random names: for digests.
    pub effects: fn(&RunRecord<'_>) -> Vec<String>,
    /// The tests try a fault at one in so many of the places that are no writes.
    pub one_place_in: usize,
    /// So many seeds, from 0 on, are run by the tests each time. Their digests are recorded.
    pub fixed_seeds: u64,
    /// So many seeds that nobody has seen are run by the tests besides.
    pub fresh_seeds: u64,
    /// The file of the recorded digests, in the folder of this crate.
    pub digests: &'static str,
}

impl Suite {
    /// Every scenario.
    pub fn all_scenarios(&self) -> Vec<Scenario> {
        (self.scenarios)().into_iter().chain([(self.small)()]).chain((self.apart)()).collect()
    }

    /// A run of a scenario in which nothing goes wrong.
    pub fn without_faults(&self, scenario: Scenario, seed: u64) -> RunPlan {
        RunPlan::without_faults(&(self.programs)(), scenario, seed)
    }

    /// A plan by chance: a scenario, fault rates, a replica that is cut off, and clocks that may be wrong.
    pub fn random(&self, seed: u64) -> RunPlan {
        let chosen = |one_in: u64| rng(seed, 3, 2).next_u64().is_multiple_of(one_in);
        let generated = self.generated.iter().find(|generated| generated.one_in.is_some_and(chosen));
        if let Some(generated) = generated {
            return self.random_of((generated.of_seed)(seed), seed);
        }
        let scenarios = (self.scenarios)();
        let one = usize::try_from(rng(seed, 3, 1).next_u64() % scenarios.len() as u64).unwrap_or(0);
        let scenario = scenarios.into_iter().nth(one).unwrap_or_else(self.small);
        self.random_of(scenario, seed)
    }

    /// The same for a scenario.
    pub fn random_of(&self, scenario: Scenario, seed: u64) -> RunPlan {
        let mut rng = rng(seed, 3, 0);
        let fault_rates = FaultRates {
            requests: [0, 20, 50, 150][usize::try_from(rng.next_u64() % 4).unwrap_or(0)],
            events: [0, 20, 100, 300][usize::try_from(rng.next_u64() % 4).unwrap_or(0)],
            kills: u32::try_from(rng.next_u64() % 4).unwrap_or(0),
            until: Duration::from_secs(60 + rng.next_u64() % 120),
        };
        let mut plan = self.without_faults(scenario, seed);
        plan.fault_rates = Some(fault_rates);
        if rng.next_u64().is_multiple_of(8) {
            // Up to two seconds: beyond five nothing destructive may happen, which is another scenario.
            let error = i64::try_from(rng.next_u64() % 4000).unwrap_or(0) - 2000;
            plan.replicas[0].clock_error = SignedDuration::from_millis(error);
        }
        match rng.next_u64() % 8 {
            // Cut off for seconds to minutes, at a write or a renewal of the lease.
            0 | 1 => {
                let by = rng.between(Duration::from_secs(2), Duration::from_mins(3));
                let at =
                    if rng.next_u64().is_multiple_of(2) { FaultTarget::Write } else { FaultTarget::Lease };
                let fault =
                    if rng.next_u64().is_multiple_of(3) { Fault::Away(by) } else { Fault::CutOff(by) };
                plan.faults.push(PlannedFault { at: at(rng.next_u64() % 12), fault });
            }
            // Killed between two reads.
            2 | 3 => plan
                .faults
                .push(PlannedFault { at: FaultTarget::Read(rng.next_u64() % 60), fault: Fault::KilledAfter }),
            _ => {}
        }
        plan
    }
}

/// The scenarios that seeds choose from, of every suite.
pub fn scenarios() -> impl Iterator<Item = (Suite, Scenario)> {
    ALL.iter().flat_map(|suite| (suite.scenarios)().into_iter().map(|scenario| (*suite, scenario)))
}

/// A scenario of one of these suites by its name, and the suite.
pub fn find(suites: &[Suite], scenario: &str) -> Option<(Suite, Scenario)> {
    find_of(suites, scenario, 0)
}

/// The same; one that is generated is that of this seed.
pub fn find_of(suites: &[Suite], scenario: &str, seed: u64) -> Option<(Suite, Scenario)> {
    suites.iter().find_map(|suite| {
        let generated = suite.generated.iter().find(|generated| generated.name == scenario);
        let generated = generated.map(|generated| (generated.of_seed)(seed));
        let all = || suite.all_scenarios().into_iter().find(|one| one.name == scenario);
        Some((*suite, generated.or_else(all)?))
    })
}
