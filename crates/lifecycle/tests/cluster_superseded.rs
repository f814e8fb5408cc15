//! When a namespace takes the place of an older one: a sentence for each behaviour.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use coppice_api::condition::{self, IDENTIFIED};
use coppice_api::{NamespacePhase, Reason};
use coppice_lifecycle::cluster::{NamespaceStep, ValidClusterManager};
use coppice_lifecycle::record::StepOutcome;
use proptest::prelude::*;

use crate::support::fleet::{Environment, Fleet, MANAGER, at, web};

/// Pipeline 10, run 100 of the project `shop`, for the branch `main` at the commit `abc`.
fn environment(pipeline: u32) -> Environment {
    let (pipeline_id, run) = (pipeline.to_string(), (pipeline * 10).to_string());
    Environment::new(&[
        ("project", "shop"),
        ("environment", "review"),
        ("branch", "main"),
        ("pipeline", &pipeline_id),
        ("run", &run),
    ])
}

/// `ci-1` of pipeline 10, which is ready, and `ci-2` of pipeline 11, created 20 s later.
fn two(later: Environment) -> Fleet {
    let mut fleet = Fleet::new(MANAGER);
    fleet.add("ci-1", 0, environment(10).ready());
    fleet.settle(11);
    fleet.add("ci-2", 20, later);
    fleet.settle(20);
    fleet
}

#[test]
fn an_older_namespace_goes_when_its_successor_is_ready() {
    let mut fleet = two(environment(11));
    assert_eq!(fleet.phase("ci-1"), NamespacePhase::Ok, "its successor starts");
    fleet.settle(500);
    assert_eq!(fleet.phase("ci-1"), NamespacePhase::Ok, "and goes on to start");
    fleet.get("ci-2").ready = true;
    fleet.settle(510);
    assert_eq!(fleet.phase("ci-1"), NamespacePhase::Superseded);
    assert_eq!(fleet.phase("ci-2"), NamespacePhase::Ok);
    let by = fleet.status("ci-1").superseded_by.clone().unwrap();
    assert_eq!((&*by.namespace, &*by.uid, by.since), ("ci-2", "uid-ci-2", at(510)));
    assert_eq!(fleet.reason("ci-1"), "NoticeRunning");
    let notice = fleet.status("ci-1").steps.notice.clone().unwrap();
    assert_eq!((notice.not_before, notice.reason.as_deref()), (at(570), Some("Superseded")));
    fleet.settle(569);
    assert_eq!(fleet.deleted, [] as [&str; 0]);
    fleet.settle(570);
    assert_eq!(fleet.deleted, ["ci-1"]);
    let intent = fleet.status("ci-1").steps.intent.clone().unwrap();
    assert_eq!((&*intent.reason, &*intent.evidence["supersededBy"]), ("Superseded", "ci-2 (uid uid-ci-2)"));
    assert_eq!(intent.evidence["phase"], "Superseded");
}

#[test]
fn a_successor_that_dies_takes_its_verdict_back() {
    let ends: [fn(&mut Environment); 3] = [
        |successor| successor.fails = true,
        |successor| successor.terminating = true,
        |successor| successor.gone = true,
    ];
    for end in ends {
        let mut fleet = two(environment(11).ready());
        fleet.settle(30);
        assert_eq!(fleet.phase("ci-1"), NamespacePhase::Superseded);
        assert_eq!(fleet.reason("ci-1"), "NoticeRunning");
        end(fleet.get("ci-2"));
        fleet.settle(80);
        assert_eq!(fleet.phase("ci-1"), NamespacePhase::Ok);
        let status = fleet.status("ci-1");
        assert_eq!((status.superseded_by.as_ref(), status.steps.notice.as_ref()), (None, None));
        assert!(fleet.events.contains(&Reason::NoticeWithdrawn));
        fleet.settle(100_000);
        assert!(!fleet.deleted.contains(&"ci-1"));
    }
}

#[test]
fn a_successor_that_dies_after_the_decision_takes_it_back() {
    let mut fleet = two(environment(11).ready());
    fleet.settle(30);
    fleet.carries_out = false;
    fleet.settle(90);
    assert!(fleet.status("ci-1").steps.intent.is_some(), "decided, and not yet done");
    fleet.get("ci-2").terminating = true;
    fleet.carries_out = true;
    fleet.settle(91);
    assert_eq!((fleet.status("ci-1").steps.intent.as_ref(), fleet.deleted.len()), (None, 0));
}

#[test]
fn the_order_is_that_of_the_pipelines_and_not_of_creation() {
    // The job of an older pipeline is run again.
    let mut fleet = two(environment(9).ready());
    fleet.settle(30);
    assert_eq!(fleet.phase("ci-1"), NamespacePhase::Ok);
    assert_eq!(fleet.phase("ci-2"), NamespacePhase::Superseded, "whatever was created later");
    // Of one pipeline the later run counts, as a number and not as a text.
    for (run, first, second) in [
        ("99", NamespacePhase::Ok, NamespacePhase::Superseded),
        ("1000", NamespacePhase::Superseded, NamespacePhase::Ok),
    ] {
        let mut fleet = two(environment(10).with("run", run).ready());
        fleet.settle(30);
        assert_eq!((fleet.phase("ci-1"), fleet.phase("ci-2")), (first, second), "run {run}");
    }
}

#[test]
fn what_is_deployed_to_again_counts_by_its_new_numbers() {
    let mut fleet = two(environment(11).ready());
    fleet.settle(30);
    assert_eq!(fleet.phase("ci-1"), NamespacePhase::Superseded);
    // CI runs pipeline 12 in the older namespace, which keeps its creation.
    for (key, value) in [("pipeline", "12"), ("run", "120")] {
        fleet.get("ci-1").labels.insert(key.to_owned(), value.to_owned());
    }
    fleet.settle(60);
    assert_eq!(fleet.phase("ci-1"), NamespacePhase::Ok);
    assert_eq!(fleet.phase("ci-2"), NamespacePhase::Superseded);
    assert!(fleet.events.contains(&Reason::NoticeWithdrawn));
    fleet.settle(1000);
    assert_eq!(fleet.deleted, ["ci-2"]);
}

#[test]
fn namespaces_of_a_merge_request_and_of_its_branch_supersede_each_other_by_what_they_have_in_common() {
    let manager = MANAGER
        .replace("branch: branch,", "branch: branch, mergeRequest: mr,")
        .replace("by: [Branch, Commit]", "by: [MergeRequest, Branch]");
    let older = || environment(10).with("mr", "7").ready();
    for (later, phase) in [
        // A push to the branch, whose pipeline knows no merge request.
        (environment(11), NamespacePhase::Superseded),
        // The same merge request under a branch of another name.
        (environment(11).with("branch", "renamed").with("mr", "7"), NamespacePhase::Superseded),
        (environment(11).with("branch", "other").with("mr", "8"), NamespacePhase::Ok),
        (environment(11).with("branch", "").with("mr", "8"), NamespacePhase::Ok),
    ] {
        let mut fleet = Fleet::new(&manager);
        fleet.add("ci-1", 0, older());
        fleet.settle(11);
        fleet.add("ci-2", 20, later.clone().ready());
        fleet.settle(30);
        assert_eq!(fleet.phase("ci-1"), phase, "{:?}", later.labels);
    }
}

#[test]
fn what_differs_in_project_environment_or_branch_is_left_alone() {
    for (key, value) in [("project", "blog"), ("environment", "staging"), ("branch", "other")] {
        let mut fleet = two(environment(11).with(key, value).ready());
        fleet.settle(100_000);
        assert_eq!(fleet.phase("ci-1"), NamespacePhase::Ok, "{key}");
    }
    // What several have in common is enough.
    let mut fleet = two(environment(11).with("branch", "other").with("commit", "abc").ready());
    fleet.settle(30);
    assert_eq!(fleet.phase("ci-1"), NamespacePhase::Ok, "the older one has no commit");
    fleet.get("ci-1").labels.insert("commit".to_owned(), "abc".to_owned());
    fleet.settle(31);
    assert_eq!(fleet.phase("ci-1"), NamespacePhase::Superseded);
}

#[test]
fn without_an_identity_there_is_no_verdict_and_the_record_says_why() {
    for (key, value, message) in [
        ("project", "", "it has no label and no annotation project"),
        ("environment", "", "it has no label and no annotation environment"),
        ("pipeline", "", "it has no label and no annotation pipeline"),
        ("pipeline", "v11", "its pipeline is no number"),
        ("run", "-1", "its run is no number"),
        ("branch", "", "it has none of what spec.supersede.by compares"),
    ] {
        let mut fleet = two(environment(11).with(key, value).ready());
        fleet.settle(100_000);
        assert_eq!(fleet.phase("ci-1"), NamespacePhase::Ok, "{key}: {value:?}");
        let said = condition::find(&fleet.status("ci-2").conditions, IDENTIFIED).unwrap();
        assert_eq!((&*said.status, &*said.reason), ("False", "NoIdentity"));
        assert_eq!(fleet.counts().namespaces.without_identity, Some(1));
        let expected = format!("{message}: the namespace supersedes no other, and none supersedes it");
        assert_eq!(said.message, expected);
        let said = condition::find(&fleet.status("ci-1").conditions, IDENTIFIED).unwrap();
        assert_eq!((&*said.status, &*said.reason), ("True", "Identified"));
    }
}

#[test]
fn where_runs_have_no_numbers_creation_decides_and_a_tie_decides_nothing() {
    let by_creation = MANAGER.replace("pipeline: pipeline, run: run, ", "");
    for (created, phase) in [(0, NamespacePhase::Ok), (1, NamespacePhase::Superseded)] {
        let mut fleet = Fleet::new(&by_creation);
        fleet.add("ci-1", 0, environment(11).ready());
        fleet.add("ci-2", created, environment(10).ready());
        fleet.settle(30);
        assert_eq!((fleet.phase("ci-1"), fleet.phase("ci-2")), (phase, NamespacePhase::Ok));
    }
}

#[test]
fn the_namespaces_of_one_run_stand_or_fall_together() {
    let mut fleet = Fleet::new(MANAGER);
    for name in ["ci-1", "ci-2"] {
        fleet.add(name, 0, environment(10).ready());
    }
    fleet.settle(11);
    fleet.add("ci-3", 20, environment(11).ready());
    fleet.add("ci-4", 21, environment(11));
    fleet.settle(30);
    for name in ["ci-1", "ci-2", "ci-3", "ci-4"] {
        assert_eq!(fleet.phase(name), NamespacePhase::Ok, "{name}: one of the later run is not ready");
    }
    fleet.get("ci-4").ready = true;
    fleet.settle(40);
    let phases = ["ci-1", "ci-2", "ci-3", "ci-4"].map(|name| fleet.phase(name));
    let (superseded, ok) = (NamespacePhase::Superseded, NamespacePhase::Ok);
    assert_eq!(phases, [superseded, superseded, ok, ok]);
}

#[test]
fn what_is_superseded_supersedes_nothing() {
    // The first and the second have the commit in common, the second and the third the branch.
    let mut fleet = Fleet::new(MANAGER);
    fleet.add("ci-1", 0, environment(10).with("branch", "old").with("commit", "abc").ready());
    fleet.settle(11);
    fleet.add("ci-2", 20, environment(11).with("commit", "abc").ready());
    fleet.settle(30);
    assert_eq!(fleet.phase("ci-1"), NamespacePhase::Superseded);
    fleet.add("ci-3", 31, environment(12).ready());
    fleet.settle(40);
    assert_eq!(fleet.phase("ci-2"), NamespacePhase::Superseded);
    assert_eq!(fleet.phase("ci-1"), NamespacePhase::Ok, "its successor goes, and no other has what it has");
}

#[test]
fn a_chain_ends_with_the_latest_and_keeps_its_dates() {
    let mut fleet = two(environment(11).ready());
    fleet.settle(30);
    let notice = fleet.status("ci-1").steps.notice.clone();
    fleet.add("ci-3", 31, environment(12).ready());
    fleet.settle(40);
    let by = |fleet: &Fleet, name: &str| {
        fleet.status(name).superseded_by.clone().map(|by| (by.namespace, by.since))
    };
    assert_eq!(by(&fleet, "ci-2"), Some(("ci-3".to_owned(), at(40))));
    assert_eq!(by(&fleet, "ci-1"), Some(("ci-3".to_owned(), at(20))), "it has had a successor all the time");
    assert_eq!(fleet.status("ci-1").steps.notice, notice, "nor does its notice begin again");
    assert_eq!(by(&fleet, "ci-3"), None);
}

#[test]
fn it_is_never_superseded_by_what_fails_or_has_expired() {
    let mut fleet = two(environment(11).ready());
    fleet.get("ci-2").fails = true;
    fleet.settle(25);
    assert_eq!((fleet.phase("ci-1"), fleet.phase("ci-2")), (NamespacePhase::Ok, NamespacePhase::Unstable));
    fleet.settle(125);
    fleet.settle(175);
    assert_eq!((fleet.phase("ci-1"), fleet.phase("ci-2")), (NamespacePhase::Ok, NamespacePhase::Failed));
    let mut fleet = Fleet::new(&MANAGER.replace("settle: 10s,", "settle: 10s, ttl: {after: 100s},"));
    fleet.add("ci-2", 0, environment(11).ready());
    fleet.settle(90);
    fleet.add("ci-1", 91, environment(10).ready());
    fleet.settle(95);
    assert_eq!(fleet.phase("ci-1"), NamespacePhase::Superseded);
    fleet.settle(101);
    assert_eq!((fleet.phase("ci-1"), fleet.phase("ci-2")), (NamespacePhase::Ok, NamespacePhase::Stale));
}

#[test]
fn its_end_comes_before_its_successor_and_that_before_what_fails() {
    let ttl = MANAGER.replace("settle: 10s,", "settle: 10s, ttl: {after: 300s},");
    let mut fleet = Fleet::new(&ttl.replace("notice: 60s", "notice: 1000s"));
    fleet.add("ci-1", 0, Environment { fails: true, ..environment(10) });
    for second in [11, 120, 180] {
        fleet.settle(second);
    }
    assert_eq!(fleet.phase("ci-1"), NamespacePhase::Failed);
    fleet.add("ci-2", 181, environment(11).ready());
    fleet.settle(181);
    assert_eq!(fleet.phase("ci-1"), NamespacePhase::Superseded, "and it still fails");
    fleet.settle(300);
    assert_eq!(fleet.phase("ci-1"), NamespacePhase::Superseded);
    fleet.settle(301);
    assert_eq!(fleet.phase("ci-1"), NamespacePhase::Stale);
    assert!(fleet.status("ci-1").superseded_by.is_some(), "it has a successor all the time");
    assert!(!fleet.status("ci-1").failing.is_empty(), "{:#?}", fleet.status("ci-1"));
}

#[test]
fn what_is_not_known_of_a_successor_neither_gives_nor_takes_a_verdict() {
    // It was well, and is not known any more: what was announced stands, and nothing is done.
    let mut fleet = two(environment(11).ready());
    fleet.settle(30);
    let notice = fleet.status("ci-1").steps.notice.clone();
    fleet.get("ci-2").unknown = true;
    fleet.settle(500);
    assert_eq!(
        (fleet.phase("ci-1"), fleet.phase("ci-2")),
        (NamespacePhase::Superseded, NamespacePhase::Unknown)
    );
    assert_eq!((&fleet.status("ci-1").steps.notice, fleet.deleted.len()), (&notice, 0));
    fleet.get("ci-2").unknown = false;
    fleet.settle(501);
    assert_eq!(fleet.deleted, ["ci-1"]);
    // It had failed before it was not known any more: that is no reason to begin.
    let mut fleet = Fleet::new(&MANAGER.replace("by: [", "waitUntilReady: false, by: ["));
    fleet.add("ci-2", 0, Environment { fails: true, ..environment(11) });
    for second in [11, 120, 180] {
        fleet.settle(second);
    }
    fleet.add("ci-1", 181, environment(10).ready());
    fleet.settle(200);
    assert_eq!((fleet.phase("ci-1"), fleet.phase("ci-2")), (NamespacePhase::Ok, NamespacePhase::Failed));
    fleet.get("ci-2").unknown = true;
    fleet.settle(210);
    assert_eq!((fleet.phase("ci-1"), fleet.phase("ci-2")), (NamespacePhase::Ok, NamespacePhase::Unknown));
}

#[test]
fn a_successor_that_was_unknown_has_to_be_ready_again() {
    let mut fleet = two(environment(11).ready());
    fleet.settle(30);
    fleet.get("ci-2").unknown = true;
    fleet.settle(40);
    assert_eq!((fleet.phase("ci-1"), fleet.status("ci-2").ready_at), (NamespacePhase::Superseded, None));
    // Its pod was replaced meanwhile.
    (fleet.get("ci-2").unknown, fleet.get("ci-2").starts_since) = (false, Some(35));
    fleet.settle(500);
    assert_eq!((fleet.phase("ci-1"), fleet.phase("ci-2")), (NamespacePhase::Ok, NamespacePhase::Ok));
    assert_eq!(fleet.deleted, [] as [&str; 0]);
}

#[test]
fn an_empty_successor_is_ready_no_more() {
    let ends: [fn(&mut Environment); 2] =
        [|successor| successor.empty = true, |successor| successor.record_terminating = true];
    for end in ends {
        let mut fleet = two(environment(11).ready());
        fleet.settle(30);
        end(fleet.get("ci-2"));
        fleet.settle(100_000);
        assert_eq!((fleet.phase("ci-1"), fleet.deleted.len()), (NamespacePhase::Ok, 0));
    }
    // What has succeeded serves nobody.
    let mut fleet = two(Environment { succeeded: true, ..environment(11) });
    fleet.settle(100_000);
    assert_eq!(fleet.phase("ci-1"), NamespacePhase::Ok);
}

#[test]
fn a_successor_that_goes_itself_supersedes_nothing() {
    let by_age = "policies: [{name: old, when: {ttl: {after: 200s}}, then: {delete: {notice: 100s}}}, ";
    let mut fleet = Fleet::new(&MANAGER.replace("policies: [", by_age));
    fleet.add("ci-2", 0, environment(11).ready());
    fleet.settle(11);
    fleet.settle(150);
    assert!(fleet.status("ci-2").steps.notice.is_some(), "it is announced, and Ok");
    fleet.add("ci-1", 150, environment(10).ready());
    fleet.settle(165);
    assert_eq!((fleet.phase("ci-1"), fleet.phase("ci-2")), (NamespacePhase::Ok, NamespacePhase::Ok));
}

#[test]
fn the_workloads_of_the_successor_are_read_again_before_the_deletion() {
    let mut fleet = two(environment(11).ready());
    fleet.settle(30);
    // Its record does not say yet that it is not ready any more.
    fleet.carries_out = false;
    fleet.settle(90);
    assert!(fleet.status("ci-1").steps.intent.is_some(), "decided by what its record says");
    fleet.read_again = Some(true);
    assert!(matches!(fleet.step("ci-1"), NamespaceStep::Delete(_)));
    fleet.read_again = Some(false);
    let NamespaceStep::WriteStatus(status) = fleet.step("ci-1") else { panic!("it is given up") };
    assert_eq!((status.steps.intent, status.superseded_by), (None, None));
}

#[test]
fn a_mistake_in_a_label_can_be_put_right_for_as_long_as_a_spec_settles() {
    let mut fleet = Fleet::new(&MANAGER.replace("notice: 60s", "notice: 0s"));
    fleet.add("ci-1", 0, environment(10).ready());
    fleet.add("ci-2", 0, environment(11).with("branch", "feature").ready());
    fleet.settle(1000);
    fleet.get("ci-2").labels.insert("branch".to_owned(), "main".to_owned());
    fleet.settle(1001);
    assert_eq!((fleet.phase("ci-1"), fleet.deleted.len()), (NamespacePhase::Superseded, 0));
    fleet.get("ci-2").labels.insert("branch".to_owned(), "feature".to_owned());
    fleet.settle(1010);
    assert_eq!(fleet.phase("ci-1"), NamespacePhase::Ok);
    fleet.get("ci-2").labels.insert("branch".to_owned(), "main".to_owned());
    fleet.settle(1011);
    fleet.settle(1020);
    assert_eq!(fleet.deleted, [] as [&str; 0]);
    fleet.settle(1021);
    assert_eq!(fleet.deleted, ["ci-1"]);
}

#[test]
fn another_successor_after_the_decision_is_decided_again() {
    let mut fleet = two(environment(11).ready());
    fleet.settle(30);
    fleet.carries_out = false;
    fleet.settle(90);
    fleet.get("ci-2").gone = true;
    fleet.add("ci-3", 91, environment(12).ready());
    fleet.settle(95);
    let status = fleet.status("ci-1");
    assert_eq!(status.superseded_by.as_ref().map(|by| &*by.namespace), Some("ci-3"));
    assert!(status.steps.intent.is_none(), "{status:#?}");
    fleet.carries_out = true;
    fleet.settle(200);
    assert_eq!(fleet.deleted, ["ci-1"]);
    let intent = fleet.status("ci-1").steps.intent.clone().unwrap();
    assert_eq!(intent.evidence["supersededBy"], "ci-3 (uid uid-ci-3)");
}

#[test]
fn runs_of_different_pipelines_may_have_the_same_number() {
    let mut fleet = Fleet::new(MANAGER);
    fleet.add("ci-1", 0, environment(10).with("run", "1").ready());
    fleet.add("ci-2", 0, environment(11).with("run", "1").ready());
    fleet.settle(11);
    assert_eq!((fleet.phase("ci-1"), fleet.phase("ci-2")), (NamespacePhase::Superseded, NamespacePhase::Ok));
}

#[test]
fn a_scale_down_ends_when_the_verdict_is_taken_back_and_another_spec_scales_nothing_down_again() {
    let sleep = MANAGER.replace("delete: {notice: 60s}", "scaleDown: {}");
    let mut fleet = Fleet::new(&sleep);
    fleet.add("ci-1", 0, environment(10).ready());
    fleet.settle(11);
    fleet.add("ci-2", 20, environment(11).ready());
    fleet.settle(20);
    fleet.settle(30);
    assert!(matches!(fleet.step("ci-1"), NamespaceStep::ScaleDown(..)), "{:#?}", fleet.status("ci-1"));
    fleet.record_mut("ci-1").steps.scaled_down = vec![web()].into();
    fleet.get("ci-2").terminating = true;
    fleet.settle(31);
    assert_eq!(fleet.status("ci-1").steps.intent, None, "it is given up half way");
    // Carried out to its end, and then the spec changes: nobody is scaled down once more for the same successor.
    let mut fleet = Fleet::new(&sleep);
    fleet.add("ci-1", 0, environment(10).ready());
    fleet.settle(11);
    fleet.add("ci-2", 20, environment(11).ready());
    fleet.settle(20);
    fleet.settle(30);
    fleet.ends("ci-1", &StepOutcome::ScaledDown { workloads: 1 });
    fleet.settle(31);
    assert_eq!((fleet.status("ci-1").fired.len(), &*fleet.reason("ci-1")), (1, "Dormant"));
    fleet.manager(&sleep.replace("recoveryPeriod: 20s", "recoveryPeriod: 30s"));
    fleet.settle(40);
    fleet.settle(60);
    assert_eq!((fleet.status("ci-1").fired.len(), &*fleet.reason("ci-1")), (1, "Dormant"));
}

#[test]
fn without_waiting_it_is_enough_that_the_successor_exists() {
    let manager = MANAGER.replace("by: [", "waitUntilReady: false, by: [");
    let mut fleet = Fleet::new(&manager);
    fleet.add("ci-1", 0, environment(10).ready());
    fleet.settle(11);
    fleet.add("ci-2", 20, environment(11));
    fleet.settle(20);
    assert_eq!(fleet.phase("ci-1"), NamespacePhase::Superseded);
    fleet.get("ci-2").fails = true;
    fleet.settle(30);
    assert_eq!(fleet.phase("ci-1"), NamespacePhase::Superseded, "it is Unstable");
    fleet.carries_out = false;
    fleet.settle(131);
    fleet.settle(181);
    assert_eq!((fleet.phase("ci-1"), fleet.phase("ci-2")), (NamespacePhase::Ok, NamespacePhase::Failed));
}

#[test]
fn while_namespaces_are_not_compared_what_was_announced_stands_and_nothing_is_done() {
    let mut fleet = two(environment(11).ready());
    fleet.settle(30);
    fleet.compared = false;
    fleet.settle(500);
    assert_eq!(fleet.phase("ci-1"), NamespacePhase::Superseded);
    assert!(fleet.status("ci-1").steps.notice.is_some());
    assert_eq!(
        (&*fleet.reason("ci-1"), fleet.deleted.len()),
        ("NoticeRunning", 0),
        "nothing is written about that"
    );
    fleet.compared = true;
    fleet.settle(501);
    assert_eq!(fleet.deleted, ["ci-1"]);
}

#[test]
fn a_hold_keeps_what_is_superseded_and_an_extension_does_not() {
    let mut fleet = two(environment(11).ready());
    fleet.settle(30);
    fleet.get("ci-1").spec = serde_yaml::from_str("{extendUntil: {at: '2026-03-01T13:00:00Z'}}").unwrap();
    fleet.settle(40);
    assert_eq!(fleet.reason("ci-1"), "NoticeRunning");
    fleet.get("ci-1").spec = serde_yaml::from_str("{hold: {until: '2026-03-01T13:00:00Z'}}").unwrap();
    fleet.settle(1000);
    assert_eq!((fleet.reason("ci-1"), fleet.deleted.len()), ("Held".to_owned(), 0));
    assert_eq!(fleet.phase("ci-1"), NamespacePhase::Superseded);
}

#[test]
fn another_spec_of_the_manager_compares_again_and_gives_the_full_notice() {
    let mut fleet = two(environment(11).ready());
    fleet.settle(30);
    fleet.manager(&MANAGER.replace("notice: 60s", "notice: 50s"));
    fleet.settle(70);
    assert_eq!(fleet.reason("ci-1"), "Settling");
    fleet.settle(80);
    assert_eq!(fleet.reason("ci-1"), "NoticeRunning");
    assert_eq!(fleet.status("ci-1").steps.notice.as_ref().unwrap().not_before, at(130));
    // Nobody supersedes any more.
    fleet.manager(&MANAGER.replace("[Superseded]", "[Failed]").replace("supersede: ", "suspend: false} #"));
    fleet.settle(90);
    let status = fleet.status("ci-1");
    assert_eq!(
        (status.superseded_by.as_ref(), status.ready_at, status.steps.notice.as_ref()),
        (None, None, None)
    );
    assert_eq!(condition::find(&status.conditions, IDENTIFIED), None);
}

#[test]
fn what_a_spec_makes_superseded_at_once_needs_approval() {
    let observing = MANAGER.replace("mode: Enforce", "mode: Observe");
    let mut fleet = Fleet::new(&observing);
    for n in 0..400 {
        fleet.add(format!("ci-{n}").leak(), 0, environment(10 + n).ready());
    }
    fleet.settle(300);
    assert_eq!(fleet.phase("ci-0"), NamespacePhase::Superseded, "it is seen while observing");
    assert_eq!(fleet.reason("ci-0"), "Observing");
    fleet.manager(MANAGER);
    fleet.settle(310);
    fleet.settle(320);
    assert_eq!(fleet.reason("ci-0"), "ApprovalNeeded");
    assert_eq!(fleet.counts().enforce.newly_due, 399);
    assert_eq!(fleet.deleted, [] as [&str; 0]);
}

#[test]
fn what_cannot_be_meant_says_what_to_write() {
    let refused = |spec: &str| {
        let text = format!("{{selector: {{names: [a]}}, {spec}}}");
        serde_yaml::from_str::<ValidClusterManager>(&text).unwrap_err().to_string()
    };
    let keys = "identity: {project: p, branch: b}";
    for (spec, why) in [
        ("supersede: {by: [Branch]}, health: {}", "supersede.by names what spec.identity does not read"),
        (
            &*format!("{keys}, health: {{}}, supersede: {{by: [Commit]}}"),
            "supersede.by names what spec.identity",
        ),
        (&*format!("{keys}, health: {{}}, supersede: {{by: []}}"), "supersede.by is empty"),
        (&*format!("{keys}, supersede: {{by: [Branch]}}"), "supersede.waitUntilReady needs to know"),
        ("identity: {project: 'a b'}", "identity has the key \"a b\""),
        (
            "policies: [{name: a, when: {phase: {in: [Superseded]}}, then: {delete: {}}}]",
            "it waits for Superseded",
        ),
    ] {
        let message = refused(spec);
        assert!(message.contains(why), "{spec}: {message}");
    }
    assert!(refused("identity: {}").contains("project"));
    assert!(refused(&format!("{keys}, health: {{}}, supersede: {{by: [Author]}}")).contains("Author"));
}

proptest! {
    #[test]
    fn of_those_that_follow_each_other_one_always_stays(
        all in proptest::collection::vec((0u32..4, 0u32..3, 0u8..3, 0u8..3, any::<bool>(), 0i64..4), 1..8),
    ) {
        let mut fleet = Fleet::new(&MANAGER.replace("60s", "1000s"));
        for (n, (pipeline, run, branch, commit, ready, created)) in all.iter().enumerate() {
            let of = environment(1).with("pipeline", &pipeline.to_string()).with("run", &run.to_string());
            let of = of.with("branch", ["", "a", "b"][usize::from(*branch)]);
            let of = of.with("commit", ["", "a", "b"][usize::from(*commit)]);
            fleet.add(format!("ci-{n}").leak(), *created, if *ready { of.ready() } else { of });
        }
        for second in [30, 31, 32, 33, 34, 35, 36, 37, 38] {
            fleet.settle(second);
        }
        let names: Vec<_> = (0..all.len()).map(|n| format!("ci-{n}")).collect();
        for name in &names {
            let Some(by) = fleet.status(name).superseded_by.clone() else { continue };
            prop_assert_eq!(fleet.status(&by.namespace).superseded_by.as_ref(), None, "{} by {}", name, by.namespace);
            prop_assert!(fleet.get(&by.namespace).ready);
        }
        prop_assert!(names.iter().any(|name| fleet.status(name).superseded_by.is_none()));
    }
}
