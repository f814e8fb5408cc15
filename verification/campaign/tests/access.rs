//! The program of access is killed at every request, and loses the answer to every write: no credential is lost or left, and all goes on. So for
//! tokens and for certificates; and by chance for certificates, whose scenarios no seed chooses.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use coppice_campaign::campaign::{Campaign, FailedRun};
use coppice_campaign::run::{RunPlan, RunResult, run};
use coppice_campaign::suite::{self, access::SUITE};
use coppice_runtime::clock::SeededRng;
use coppice_sim::fault::{Fault, FaultTarget, PlannedFault};
use coppice_sim::scenario::Scenario;

/// So many reads are tried: more than a run has until all is done.
const READS: u64 = 120;
/// Tokens and certificates that are replaced after a minute.
const ROTATED: [&str; 2] = ["access-rotated", "access-certificate-rotated"];
/// So many seeds that are always the same, and so many that nobody has seen, for each scenario of certificates.
const FIXED_SEEDS: u64 = 40;
const FRESH_SEEDS: u64 = 10;

fn scenario(name: &str) -> Scenario {
    suite::find(&[SUITE], name).unwrap().1
}

/// How many of these faults have struck, one in each run of a scenario, and in how many runs `counts` is true. Each run is as it should be.
fn strike(scenario: &Scenario, faults: &[PlannedFault], counts: fn(&RunResult) -> bool) -> (usize, usize) {
    let plan =
        |fault: &PlannedFault| RunPlan { faults: vec![*fault], ..SUITE.without_faults(scenario.clone(), 0) };
    let plans: Vec<RunPlan> = faults.iter().map(plan).collect();
    let (struck, counted) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let check = |campaign: &Campaign, plan: &RunPlan| {
        let (wrong, outcome) = campaign.check(plan)?;
        struck.fetch_add(outcome.fired.len(), Ordering::Relaxed);
        counted.fetch_add(usize::from(counts(&outcome)), Ordering::Relaxed);
        Ok((wrong, outcome))
    };
    let threads = std::thread::available_parallelism().map_or(1, Into::into);
    let campaign = Campaign::of(&SUITE, [scenario.clone()]).unwrap();
    let failures = campaign.run_all(&plans, threads, check, |_| {}).unwrap();
    let reports: Vec<String> = failures.iter().take(3).map(FailedRun::report).collect();
    assert!(failures.is_empty(), "{} of {} runs\n{}", failures.len(), plans.len(), reports.join("\n\n"));
    (struck.into_inner(), counted.into_inner())
}

/// Whether an intent had more than one credential: the first one was lost on its way.
fn is_issued_again(outcome: &RunResult) -> bool {
    let intents: BTreeSet<&String> = outcome.effects.iter().collect();
    intents.len() < outcome.effects.len()
}

#[test]
fn credentials_are_replaced_by_the_time_that_was_granted() {
    for (name, intents) in [
        ("access-rotated", 2),
        ("access-capped", 2),
        ("access-target-away", 3),
        ("access-certificate-rotated", 2),
        ("access-certificate-capped", 2),
    ] {
        let outcome = run(&SUITE, &SUITE.without_faults(scenario(name), 0)).unwrap();
        let expected: Vec<String> = (1..=intents).map(|n| format!("issued for intent {n}")).collect();
        assert_eq!(outcome.effects, expected, "{name}\n{}", outcome.trace.timeline(false));
    }
}

#[test]
fn killed_at_any_request_of_a_rotation_no_credential_is_lost_or_left() {
    for scenario in ROTATED.map(scenario) {
        let writes = run(&SUITE, &SUITE.without_faults(scenario.clone(), 0)).unwrap().writes;
        let of_writes = (0..writes).flat_map(|n| {
            [Fault::KilledBefore, Fault::KilledAfter]
                .map(|fault| PlannedFault { at: FaultTarget::Write(n), fault })
        });
        let of_writes: Vec<PlannedFault> = of_writes.collect();
        let (struck, again) = strike(&scenario, &of_writes, is_issued_again);
        assert_eq!(struck, of_writes.len(), "{}", scenario.name);
        // Of the two credentials each was issued, or just about to be tried out or written, when its replica was killed.
        assert!(again >= 2, "{}: {again} runs", scenario.name);
        let of_reads =
            (0..READS).map(|n| PlannedFault { at: FaultTarget::Read(n), fault: Fault::KilledAfter });
        let (struck, _) = strike(&scenario, &of_reads.collect::<Vec<_>>(), is_issued_again);
        assert!(struck > 40, "{}: {struck} reads", scenario.name);
    }
}

#[test]
fn where_the_answer_to_a_write_is_lost_each_intent_still_has_one_credential() {
    for scenario in ROTATED.map(scenario) {
        let writes = run(&SUITE, &SUITE.without_faults(scenario.clone(), 0)).unwrap().writes;
        for fault in [Fault::AnswerLost, Fault::NoAnswer, Fault::RefusedAfter(504)] {
            let faults: Vec<PlannedFault> =
                (0..writes).map(|n| PlannedFault { at: FaultTarget::Write(n), fault }).collect();
            let (struck, again) = strike(&scenario, &faults, is_issued_again);
            assert_eq!(struck, faults.len(), "{}", scenario.name);
            assert!(again >= 2, "{}: {again} runs", scenario.name);
        }
    }
}

#[test]
fn certificates_are_signed_late_never_or_refused_and_none_is_lost_or_left() {
    let (scenarios, fresh) = ((SUITE.apart)(), SeededRng::entropy().next_u64() >> 1);
    let seeds = (0..FIXED_SEEDS).chain(fresh..fresh + FRESH_SEEDS);
    let plans: Vec<RunPlan> = seeds
        .flat_map(|seed| scenarios.iter().map(move |scenario| SUITE.random_of(scenario.clone(), seed)))
        .collect();
    // The same seed is the same run, though keys are made in it.
    let check = |campaign: &Campaign, plan: &RunPlan| {
        if plan.seed.is_multiple_of(10) { campaign.check_twice(plan) } else { campaign.check(plan) }
    };
    let threads = std::thread::available_parallelism().map_or(1, Into::into);
    let campaign = Campaign::of(&SUITE, scenarios.clone()).unwrap();
    let failures = campaign.run_all(&plans, threads, check, |_| {}).unwrap();
    let reports: Vec<String> = failures.iter().take(3).map(FailedRun::report).collect();
    assert!(failures.is_empty(), "{} of {} runs\n{}", failures.len(), plans.len(), reports.join("\n\n"));
}

/// What is in the way of a certificate keeps it from being signed as long as it is there.
#[test]
fn what_is_not_signed_is_asked_for_again() {
    for name in ["access-certificate-not-signed", "access-certificate-denied", "access-certificate-failed"] {
        let outcome = run(&SUITE, &SUITE.without_faults(scenario(name), 0)).unwrap();
        let target = |what: &str| {
            let lines = outcome.trace.lines().iter();
            lines.filter(|line| line.what.starts_with(&format!("target: {what}"))).count()
        };
        let asked = target("POST /apis/certificates.k8s.io/v1/certificatesigningrequests →");
        assert_eq!(asked, 3, "{name}\n{}", outcome.trace.timeline(false));
    }
}
