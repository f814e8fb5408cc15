//! The campaign finds bugs: an operator that has one, on purpose, does not get through it; and each is found by the rule that is about
//! it. With that rule switched off, what the bug does goes unnoticed, but for how the story ends and what people do in vain.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "shown on request")]

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use coppice_runtime::mutants::Mutant;
use coppice_sim::ReplicaSettings;
use coppice_sim::campaign::Campaign;
use coppice_sim::oracle::Rule;
use coppice_sim::run::{Plan, run};
use coppice_sim::scenario;
use jiff::SignedDuration;

/// Most of a run's time goes to small allocations.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Each bug, the story that shows it, and the rule that has to find it.
const HUNTS: [(Mutant, &str, Rule); 37] = [
    (Mutant::InitialDelayIgnored, "delay", Rule::InitialDelay),
    (Mutant::SettleIgnored, "settling", Rule::Settle),
    (Mutant::GapIgnored, "settling", Rule::Settle),
    (Mutant::PodSelectorIgnored, "evidence", Rule::Pods),
    (Mutant::MinPodsIgnored, "evidence", Rule::Pods),
    (Mutant::JobsIgnored, "evidence", Rule::Jobs),
    (Mutant::TerminatingPodsIgnored, "evidence", Rule::Pods),
    (Mutant::FailedPodsIgnored, "evidence", Rule::Pods),
    (Mutant::UnreadableIsEmpty, "list-fails", Rule::Pods),
    (Mutant::ExtensionIgnored, "extended", Rule::Ttl),
    (Mutant::HoldIgnored, "held", Rule::Held),
    (Mutant::SuspendIgnored, "held", Rule::Suspended),
    (Mutant::NoticeSkipped, "notice", Rule::Notice),
    (Mutant::NoticeMovedEarlier, "notice-shortened", Rule::NoticeDate),
    (Mutant::ProtectionIgnored, "ttl-fires", Rule::Protected),
    (Mutant::DormancyIgnored, "rearm", Rule::Once),
    (Mutant::RearmedForEver, "rearm", Rule::Once),
    (Mutant::PauseIgnored, "kill-switch", Rule::Paused),
    (Mutant::PerMinuteIgnored, "budget", Rule::PerMinute),
    (Mutant::PerHourIgnored, "hourly", Rule::PerHour),
    (Mutant::ShareIgnored, "share", Rule::Share),
    (Mutant::BookingForgotten, "budget", Rule::PerMinute),
    (Mutant::ClockSkewIgnored, "ttl-fires", Rule::Clocks),
    (Mutant::NoPreconditions, "ttl-fires", Rule::Preconditions),
    (Mutant::NoRevision, "ttl-fires", Rule::Preconditions),
    (Mutant::NoScalePreconditions, "scaled-down", Rule::Preconditions),
    (Mutant::WorkloadSelectorIgnored, "recreated-workload", Rule::Selected),
    (Mutant::WrongSizeRemembered, "scaled-down", Rule::Remembered),
    (Mutant::WokenByName, "recreated-workload", Rule::Remembered),
    (Mutant::DeleteByCaches, "list-fails", Rule::Pods),
    (Mutant::ScaleByCaches, "list-fails", Rule::Pods),
    (Mutant::LeaseIgnored, "ttl-fires", Rule::Lease),
    (Mutant::KeyedByName, "ttl-fires", Rule::Quiet),
    (Mutant::ActBeforeSync, "unreadable", Rule::Pods),
    (Mutant::OutcomeBeforeEffect, "ttl-fires", Rule::Intended),
    (Mutant::StatusEveryLoop, "ttl-fires", Rule::Quiet),
    (Mutant::Polling, "ttl-fires", Rule::Quiet),
];

/// A story without faults, then with faults by chance.
fn plans(mutant: Mutant, story: &str) -> impl Iterator<Item = Plan> + use<> {
    let story = scenario::by_name(story).unwrap();
    let undisturbed = Plan::undisturbed(story.clone(), 0);
    let by_chance = (0..2000).map(move |seed| Campaign::by_chance_of(story.clone(), seed));
    [undisturbed].into_iter().chain(by_chance).map(move |mut plan| {
        plan.mutant = Some(mutant);
        if mutant == Mutant::ClockSkewIgnored {
            let clock_error = SignedDuration::from_mins(10);
            plan.replicas.fill(ReplicaSettings { clock_error, ..ReplicaSettings::default() });
        }
        plan
    })
}

/// What is wrong with a hunt; none if the bug is found as it should be.
fn hunt(mutant: Mutant, story: &str, rule: Rule) -> Option<String> {
    let by = |sentence: &String| sentence.starts_with(&format!("{rule}: "));
    let mut others = Vec::new();
    for (n, plan) in plans(mutant, story).enumerate() {
        let found = run(&plan).unwrap().violations;
        if !found.iter().any(by) {
            others.extend(found);
            continue;
        }
        println!("{mutant:?}: found in run {} of {story}: {}", n + 1, found.join("; "));
        let mut without = run(&Plan { without: Some(rule), ..plan }).unwrap().violations;
        without.retain(|sentence| !sentence.starts_with("SCRIPT: "));
        let found_too = || format!("{mutant:?} is found without {rule}, too: {}", without.join("; "));
        return (!without.is_empty()).then(found_too);
    }
    others.dedup();
    others.truncate(5);
    Some(format!("{mutant:?} is not found by {rule} in {story}, but {others:?}"))
}

#[test]
fn every_mutant_is_found_by_its_rule_and_by_no_other() {
    let (next, wrong) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, Into::into) {
            scope.spawn(|| {
                while let Some((mutant, story, rule)) = HUNTS.get(next.fetch_add(1, Ordering::Relaxed)) {
                    wrong.lock().unwrap().extend(hunt(*mutant, story, *rule));
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
