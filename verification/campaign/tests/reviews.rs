//! What the admission webhook of trees is asked, and what becomes of it where the webhook answers, and where it does not. Every run ends as
//! its scenario states.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::time::Duration;

use coppice_campaign::run::{RunPlan, RunResult, run};
use coppice_campaign::suite::{self, trees};
use coppice_sim::WebhookAnswer;
use coppice_sim::fault::{Fault, FaultTarget, PlannedFault};
use coppice_sim::run::RunRecord;
use coppice_sim::trace::Actor;
use serde_json::Value;

/// The API server waits no longer.
const TIMEOUT: Duration = Duration::from_secs(2);

/// A scenario of trees with these faults. Nothing breaks a rule, and it ends as it states.
fn ended(scenario: &str, faults: &str) -> (RunPlan, RunResult) {
    let (_, scenario) = suite::find(&[trees::SUITE], scenario).unwrap();
    let faults = faults.split(',').filter(|fault| !fault.is_empty()).map(|fault| fault.parse().unwrap());
    let plan = RunPlan { faults: faults.collect(), ..trees::SUITE.without_faults(scenario, 0) };
    let outcome = run(&trees::SUITE, &plan).unwrap();
    as_stated(&plan, &outcome);
    (plan, outcome)
}

fn as_stated(plan: &RunPlan, outcome: &RunResult) {
    let timeline = || outcome.trace.timeline(false);
    assert_eq!(outcome.violations, [""; 0], "{:?}\n{}", plan.faults, timeline());
    assert_eq!(outcome.unlike(&plan.scenario.ends), [""; 0], "{:?}\n{}", plan.faults, timeline());
}

/// The status codes that alice got, in order.
fn codes(outcome: &RunResult) -> Vec<&str> {
    let hers = outcome.trace.lines().iter().filter(|line| line.who == Actor::User("alice"));
    hers.filter_map(|line| line.what.rsplit_once("→ ")).map(|(_, code)| code).collect()
}

/// The phases that a `Subnamespace` has had.
fn phases(plan: &RunPlan, name: &str) -> Vec<String> {
    let phases = |record: &RunRecord<'_>| {
        let of = record.changes.iter();
        let of = of.filter(|change| &*change.kind.plural == "subnamespaces" && change.name() == name);
        let phase = |after: &Value| after["status"]["phase"].as_str().map(str::to_owned);
        of.filter_map(|change| change.after.as_deref().and_then(phase)).collect()
    };
    coppice_sim::run::run(plan, phases).unwrap()
}

#[test]
fn what_is_too_much_is_denied_in_a_sentence_and_not_stored() {
    let (plan, outcome) = ended("tree-denied", "");
    assert_eq!(codes(&outcome), ["403", "200", "201"], "{}", outcome.trace.timeline(false));
    let WebhookAnswer::Denied(_, message) = &outcome.asked[0].answer else { panic!("{:?}", outcome.asked) };
    let sentence =
        "QuotaRefused: pods: needs 4 more, and team can give 2: 0 of its own 2 are used; ask for at most 2";
    assert!(message.starts_with(sentence), "{message}");
    let phases = phases(&plan, "team-b");
    assert!(!phases.is_empty() && !phases.contains(&"Refused".to_owned()), "{phases:?}");
}

#[test]
fn where_the_webhook_does_not_answer_the_program_refuses_the_same() {
    for fault in ["off:10000ms", "lost", "refused:500", "late:2500ms"] {
        let (plan, outcome) = ended("tree-denied", &format!("review:0={fault}"));
        // The second creation is of what is there, or denied since nothing is left besides.
        assert_eq!(codes(&outcome)[..2], ["201", "200"], "{fault}\n{}", outcome.trace.timeline(false));
        assert_ne!(codes(&outcome)[2], "201", "{fault}");
        assert!(matches!(outcome.asked[0].answer, WebhookAnswer::None(_)), "{fault}: {:?}", outcome.asked[0]);
        let (from, until) = outcome.asked[0].during;
        let waits = fault == "lost" || fault.starts_with("late");
        assert_eq!(until.saturating_sub(from) == TIMEOUT, waits, "{fault}");
        let phases = phases(&plan, "team-b");
        assert!(phases.contains(&"Refused".to_owned()), "{fault}: {phases:?}");
    }
}

#[test]
fn an_answer_that_comes_late_and_in_time_counts() {
    let (_, outcome) = ended("tree-denied", "review:0=late:1500ms");
    assert_eq!(codes(&outcome), ["403", "200", "201"], "{}", outcome.trace.timeline(false));
    let (from, until) = outcome.asked[0].during;
    let took = until.saturating_sub(from);
    assert!(took > Duration::from_millis(1500) && took < TIMEOUT, "{took:?}");
}

#[test]
fn a_question_that_arrives_twice_is_answered_as_if_it_came_once() {
    for scenario in ["tree-denied", "tree-admitted-together", "tree-tried"] {
        let answers = |outcome: &RunResult| -> Vec<bool> {
            outcome.asked.iter().map(|asked| matches!(asked.answer, WebhookAnswer::Allowed(_))).collect()
        };
        let (_, once) = ended(scenario, "");
        let all: Vec<String> = (0..once.asked.len()).map(|n| format!("review:{n}=twice")).collect();
        let (_, twice) = ended(scenario, &all.join(","));
        assert_eq!((answers(&twice), codes(&twice)), (answers(&once), codes(&once)), "{scenario}");
    }
}

#[test]
fn what_is_admitted_together_is_given_to_one_alone() {
    let (plan, outcome) = ended("tree-admitted-together", "");
    let admitted = |n: usize| matches!(outcome.asked[n].answer, WebhookAnswer::Allowed(_));
    assert!(admitted(0) && admitted(1), "{:?}", outcome.asked);
    let refused = ["team-a", "team-b"].map(|name| phases(&plan, name).contains(&"Refused".to_owned()));
    assert_eq!(refused.iter().filter(|refused| **refused).count(), 1, "{}", outcome.trace.timeline(false));
}

#[test]
fn what_is_only_tried_is_reviewed_and_leaves_nothing() {
    let (plan, outcome) = ended("tree-tried", "");
    assert_eq!(
        codes(&outcome),
        ["201", "403", "200", "200", "200", "201"],
        "{}",
        outcome.trace.timeline(false)
    );
    // Nobody asks about deletions.
    let dry: Vec<bool> = outcome.asked.iter().map(|asked| asked.write.dry_run).collect();
    assert_eq!(dry, [true, true, true, true, false]);
    let by_alice = |record: &RunRecord<'_>| -> Vec<String> {
        let hers = record.changes.iter().filter(|change| &*change.user == "alice");
        hers.map(|change| format!("{} {}", change.kind.plural, change.name())).collect()
    };
    assert_eq!(coppice_sim::run::run(&plan, by_alice).unwrap(), ["subnamespaces team-d"]);
}

/// Of two replicas one has seen less than the other, wherever it is that its events come late.
#[test]
fn a_replica_that_is_behind_changes_no_end() {
    let (plan, outcome) = ended("tree-denied", "");
    let late = Fault::Delayed(Duration::from_secs(40));
    for n in (0..outcome.events).step_by(5) {
        let faults = vec![PlannedFault { at: FaultTarget::Event(n), fault: late }];
        let plan = RunPlan { faults, ..plan.clone() };
        as_stated(&plan, &run(&trees::SUITE, &plan).unwrap());
    }
}
