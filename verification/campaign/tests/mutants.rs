//! The campaign finds bugs: an operator that has one, on purpose, does not get through it; and each is found by the rule that is about
//! it. With that rule switched off, what the bug does goes unnoticed, but for how the scenario ends and what people do in vain.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "shown on request")]

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use coppice_campaign::campaign::Campaign;
use coppice_campaign::oracle::Invariant;
use coppice_campaign::run::{RunPlan, run, run_without};
use coppice_campaign::scenario;
use coppice_mutants::Mutant;
use coppice_sim::ReplicaSettings;
use jiff::SignedDuration;

/// Most of a run's time goes to small allocations.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Each bug, the scenario that shows it, and the rule that has to find it.
const CASES: [(Mutant, &str, Invariant); 42] = [
    (Mutant::InitialDelayIgnored, "delay", Invariant::InitialDelay),
    (Mutant::SettleIgnored, "settling", Invariant::Settle),
    (Mutant::GapIgnored, "settling", Invariant::Settle),
    (Mutant::PodSelectorIgnored, "evidence", Invariant::Pods),
    (Mutant::MinPodsIgnored, "evidence", Invariant::Pods),
    (Mutant::JobsIgnored, "evidence", Invariant::Jobs),
    (Mutant::TerminatingPodsIgnored, "evidence", Invariant::Pods),
    (Mutant::FailedPodsIgnored, "evidence", Invariant::Pods),
    (Mutant::UnreadableIsEmpty, "list-fails", Invariant::Pods),
    (Mutant::ExtensionIgnored, "extended", Invariant::Ttl),
    (Mutant::HoldIgnored, "held", Invariant::Held),
    (Mutant::SuspendIgnored, "held", Invariant::Suspended),
    (Mutant::NoticeSkipped, "notice", Invariant::Notice),
    (Mutant::NoticeMovedEarlier, "notice-shortened", Invariant::NoticeDate),
    (Mutant::ProtectionIgnored, "ttl-fires", Invariant::Protected),
    (Mutant::DormancyIgnored, "rearm", Invariant::Once),
    (Mutant::RearmNeverExpires, "rearm", Invariant::Once),
    (Mutant::PauseIgnored, "paused", Invariant::Paused),
    (Mutant::PerMinuteIgnored, "budget", Invariant::PerMinute),
    (Mutant::PerHourIgnored, "hourly", Invariant::PerHour),
    (Mutant::ShareIgnored, "share", Invariant::Share),
    (Mutant::ReservationNotRecorded, "budget", Invariant::PerMinute),
    (Mutant::ClockSkewIgnored, "ttl-fires", Invariant::Clocks),
    (Mutant::NoPreconditions, "ttl-fires", Invariant::Preconditions),
    (Mutant::DeletionNotRecorded, "ttl-fires", Invariant::Recorded),
    (Mutant::RecordWithdrawnAtOnce, "ttl-fires", Invariant::Recorded),
    (Mutant::DeletedUnread, "ttl-fires", Invariant::Recorded),
    (Mutant::NoRevision, "ttl-fires", Invariant::Preconditions),
    (Mutant::NoScalePreconditions, "scaled-down", Invariant::Preconditions),
    (Mutant::WorkloadSelectorIgnored, "recreated-workload", Invariant::Selected),
    (Mutant::WrongReplicasRecorded, "scaled-down", Invariant::OriginalReplicas),
    (Mutant::WokenByName, "recreated-workload", Invariant::OriginalReplicas),
    (Mutant::DeleteByCaches, "list-fails", Invariant::Pods),
    (Mutant::ScaleByCaches, "list-fails", Invariant::Pods),
    (Mutant::ScaleDecidedOnce, "many-held", Invariant::Held),
    (Mutant::ScaleDecidedOnce, "many-paused", Invariant::Paused),
    (Mutant::LeaseIgnored, "ttl-fires", Invariant::Lease),
    (Mutant::KeyedByName, "ttl-fires", Invariant::Quiet),
    (Mutant::ActBeforeSync, "unreadable", Invariant::Pods),
    (Mutant::OutcomeBeforeEffect, "ttl-fires", Invariant::IntentFirst),
    (Mutant::StatusEveryLoop, "ttl-fires", Invariant::Quiet),
    (Mutant::Polling, "ttl-fires", Invariant::Quiet),
];

/// A scenario without faults, then with faults by chance.
fn plans(mutant: Mutant, scenario: &str) -> impl Iterator<Item = RunPlan> + use<> {
    let scenario = scenario::by_name(scenario).unwrap();
    let without_faults = RunPlan::without_faults(scenario.clone(), 0);
    let random = (0..2000).map(move |seed| Campaign::random_of(scenario.clone(), seed));
    [without_faults].into_iter().chain(random).map(move |mut plan| {
        plan.mutant = Some(mutant);
        if mutant == Mutant::ClockSkewIgnored {
            let clock_error = SignedDuration::from_mins(10);
            plan.replicas.fill(ReplicaSettings { clock_error, ..ReplicaSettings::default() });
        }
        plan
    })
}

/// What is wrong with a hunt; none if the bug is found as it should be.
fn check_mutant(mutant: Mutant, scenario: &str, rule: Invariant) -> Option<String> {
    let by = |sentence: &String| sentence.starts_with(&format!("{rule}: "));
    let mut others = Vec::new();
    for (n, plan) in plans(mutant, scenario).enumerate() {
        let found = run(&plan).unwrap().violations;
        if !found.iter().any(by) {
            others.extend(found);
            continue;
        }
        println!("{mutant:?}: found in run {} of {scenario}: {}", n + 1, found.join("; "));
        let mut without = run_without(&plan, Some(rule)).unwrap().violations;
        without.retain(|sentence| !sentence.starts_with("SCRIPT: "));
        let found_too = || format!("{mutant:?} is found without {rule}, too: {}", without.join("; "));
        return (!without.is_empty()).then(found_too);
    }
    others.dedup();
    others.truncate(5);
    Some(format!("{mutant:?} is not found by {rule} in {scenario}, but {others:?}"))
}

#[test]
fn every_mutant_is_found_by_its_rule_and_by_no_other() {
    let (next, wrong) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, Into::into) {
            scope.spawn(|| {
                while let Some((mutant, scenario, rule)) = CASES.get(next.fetch_add(1, Ordering::Relaxed)) {
                    wrong.lock().unwrap().extend(check_mutant(*mutant, scenario, *rule));
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
