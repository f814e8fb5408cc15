//! Nothing goes wrong: every scenario ends as it should, whatever the seed, and the same seed gives the same trace.

use std::collections::{BTreeMap, BTreeSet};

use coppice_api::{HealthState, NamespacePhase};
use coppice_campaign::run::run;
use coppice_campaign::suite;
use coppice_lifecycle::cluster::phase::{PHASES_BEFORE, PhaseBefore};
use coppice_lifecycle::health::{EDGES, Edge, EdgeCause};
use coppice_quantity::Duration;
use coppice_sim::run::RunRecord;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

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

/// What changed in the records of namespaces.
#[derive(Default)]
struct Changes {
    edges: Vec<Edge>,
    phases: BTreeSet<(NamespacePhase, NamespacePhase)>,
}

impl Changes {
    fn collect(&mut self, run: &RunRecord<'_>) {
        let mut settling: BTreeMap<&str, Duration> = BTreeMap::new();
        for change in run.changes {
            let Some(after) = change.after.as_deref() else { continue };
            match &*change.kind.plural {
                "clusternamespacemanagers" => {
                    let period = after["spec"]["health"]["settlingPeriod"].as_str().unwrap_or_default();
                    if let Ok(period) = period.parse::<Duration>() {
                        settling.insert(change.name(), period);
                    }
                }
                "managednamespaces" => {
                    let Some(before) = change.before.as_deref() else { continue };
                    let manager = after["status"]["manager"]["name"].as_str().unwrap_or_default();
                    let period = settling.get(manager).copied().unwrap_or_default();
                    self.edges.extend(edge(&before["status"]["health"], &after["status"]["health"], period));
                    self.phases.extend(phase(before).zip(phase(after)));
                }
                _ => {}
            }
        }
    }

    /// Whether a phase was entered, and left while the namespace was there.
    fn has_passed(&self, phase: NamespacePhase) -> bool {
        let other = |one: NamespacePhase| one != phase && one != NamespacePhase::Terminating;
        let entered = self.phases.iter().any(|(from, to)| other(*from) && *to == phase);
        entered && self.phases.iter().any(|(from, to)| *from == phase && other(*to))
    }

    /// Whether a phase was entered, and never left.
    fn has_stayed(&self, phase: NamespacePhase) -> bool {
        let entered = self.phases.iter().any(|(from, to)| *from != phase && *to == phase);
        entered && self.phases.iter().all(|(from, to)| *from != phase || *to == phase)
    }
}

fn phase(record: &Value) -> Option<NamespacePhase> {
    serde_json::from_value(record["status"]["phase"].clone()).ok()
}

/// The edge by which the health of a namespace came from one state to another. What is `Failing` before it has settled has spent its budget.
fn edge(before: &Value, after: &Value, settling: Duration) -> Option<Edge> {
    let state = |health: &Value| serde_json::from_value::<HealthState>(health["state"].clone()).ok();
    let (from, to) = (state(before)?, state(after)?);
    let since = |field: &str| after[field].as_str()?.parse::<Timestamp>().ok();
    let has_settled = || {
        let took = since("failingSince")?.duration_since(since("unstableSince")?);
        Some(took >= SignedDuration::from_secs(settling.as_secs_i64()))
    };
    let is = |edge: &Edge| match edge.cause {
        EdgeCause::Settled => has_settled() == Some(true),
        EdgeCause::FailureBudgetSpent => has_settled() == Some(false),
        _ => true,
    };
    EDGES.into_iter().filter(|edge| (edge.from, edge.to) == (from, to)).find(is)
}

#[test]
fn every_change_of_health_and_of_phase_is_in_some_scenario() {
    let (suite, mut changes) = (suite::cluster::SUITE, Changes::default());
    for scenario in suite.all_scenarios() {
        let plan = suite.without_faults(scenario, 0);
        coppice_sim::run::run(&plan, |record| changes.collect(record)).unwrap();
    }
    let missing: Vec<Edge> = EDGES.into_iter().filter(|edge| !changes.edges.contains(edge)).collect();
    assert!(missing.is_empty(), "{missing:#?}");
    for PhaseBefore { phase, ends, .. } in PHASES_BEFORE {
        let happens = if ends.is_some() { changes.has_passed(phase) } else { changes.has_stayed(phase) };
        assert!(happens, "{}: {:?}", phase.as_str(), changes.phases);
    }
}
