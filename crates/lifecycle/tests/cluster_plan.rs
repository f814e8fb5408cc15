//! What becomes of a namespace under a cluster manager: a sentence for each behaviour.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use coppice_api::condition::{self, READY};
use coppice_api::{ManagedNamespaceStatus, NamespacePhase, Reason};
use coppice_lifecycle::cluster::{NamespaceStep, ValidClusterManager};
use coppice_lifecycle::facts::NamespaceFacts;
use coppice_lifecycle::record::{self, StepOutcome};
use jiff::Timestamp;

use crate::support::cluster::{Scene, at, enforcing, spec};

#[test]
fn a_namespace_that_is_governed_gets_a_record_first() {
    let mut scene = Scene::new(&enforcing());
    scene.record = None;
    assert_eq!(scene.plan(at(500)).step, NamespaceStep::Create, "long due: without a record nothing is done");
    scene.stale = Some((Reason::Stale, "behind".to_owned()));
    assert_eq!(scene.plan(at(500)).step, NamespaceStep::Nothing);
    scene.stale = None;
    scene.namespace.terminating = true;
    assert_eq!(scene.plan(at(500)).step, NamespaceStep::Nothing);
    scene.namespace.terminating = false;
    scene.namespace.name = "other".to_owned();
    assert_eq!(scene.plan(at(500)).step, NamespaceStep::Nothing, "no manager selects it");
}

#[test]
fn observing_shows_what_would_be_done_and_does_nothing() {
    for manager in [spec("", ""), spec("mode: Enforce,", "mode: Observe,"), spec("", "mode: Enforce,")] {
        let mut scene = Scene::new(&manager);
        let says = scene.says(1);
        assert!(says.starts_with("Observing: "), "{says}");
        assert!(
            says.ends_with("observes: the ttl ends at 2026-03-01T12:01:41Z; policy \"end\" would delete at 2026-03-01T12:01:41Z"),
            "{says}"
        );
        assert_eq!(scene.settled(1).next_check, Some(at(101)), "then it becomes stale");
        let status = scene.status();
        assert_eq!((status.phase, status.expires_at), (Some(NamespacePhase::Ok), Some(at(101))));
        let next = status.next.as_ref().unwrap();
        assert_eq!((next.action.as_deref(), next.due), (Some("delete"), Some(at(101))));
        assert_eq!(scene.reason(100_000), "Observing");
        let status = scene.status();
        assert_eq!((status.phase, status.phase_since), (Some(NamespacePhase::Stale), Some(at(101))));
        assert_eq!((status.steps.notice.as_ref(), status.steps.firings), (None, 0));
        assert_eq!(scene.events, [], "nothing is announced that does not happen");
    }
}

#[test]
fn what_enforces_deletes_when_the_ttl_is_over_and_not_before() {
    let mut scene = Scene::new(&enforcing());
    let says = scene.says(1);
    let expected =
        "TtlRunning: the ttl ends at 2026-03-01T12:01:41Z; policy \"end\" acts at 2026-03-01T12:01:41Z";
    assert_eq!(says, expected);
    assert_eq!(scene.status().next.as_ref().unwrap().due, Some(at(101)));
    assert_eq!(scene.reason(100), "TtlRunning");
    assert_eq!(scene.reason(101), "delete", "a second more than the ttl, since creation times are cut");
    let intent = scene.status().steps.intent.clone().unwrap();
    assert_eq!((&*intent.policy, &*intent.uid, &*intent.reason), ("end", "ns-1", "TtlElapsed"));
    assert_eq!(intent.digest, scene.managers[0].1.digest());
    assert_eq!(intent.evidence["due"], "2026-03-01T12:01:41Z");
    assert_eq!(scene.events, [Reason::PolicyFired]);
    let mut status = scene.status().clone();
    record::apply(&mut status.steps, &intent, &StepOutcome::Deleted, at(102));
    scene.record = Some(status);
    scene.namespace.terminating = true;
    assert_eq!(scene.reason(102), "NamespaceTerminating");
    let status = scene.status();
    assert_eq!((status.phase, status.steps.firings), (Some(NamespacePhase::Terminating), 1));
    assert_eq!(status.steps.last_firing.as_ref().unwrap().result, "NamespaceDeleted");
    // A cache that is behind shows the namespace as it was: what is done is not decided once more.
    scene.namespace.terminating = false;
    assert_eq!(scene.plan(at(103)).step, NamespaceStep::Nothing);
}

#[test]
fn nothing_is_done_before_this_very_spec_has_governed_for_settle() {
    let mut scene = Scene::new(&enforcing());
    // The manager is seen for the first time, and the namespace is long stale.
    let says = scene.says(1000);
    let expected = "Settling: this spec of ClusterNamespaceManager ci governs the namespace since 2026-03-01T12:16:40Z; \
                    nothing is done before 2026-03-01T12:16:50Z (settle)";
    assert_eq!(says, expected);
    assert_eq!(scene.settled(1005).next_check, Some(at(1010)));
    assert_eq!(scene.reason(1009), "Settling");
    // Any other spec begins again, a restart does not: what counts is in the record.
    scene.manager(&spec("mode: Enforce, priority: 1,", ""));
    assert_eq!(scene.reason(1009), "Settling");
    assert_eq!(scene.status().manager.as_ref().unwrap().since, at(1009));
    assert_eq!(scene.reason(1018), "Settling");
    scene.managers[0].1.suspend = true;
    assert_eq!(scene.reason(1018), "Suspended");
    scene.managers[0].1.suspend = false;
    assert_eq!(scene.status().manager.as_ref().unwrap().since, at(1009), "suspend decides nothing");
    assert_eq!(scene.reason(1019), "delete");
    // A manager of the same name and spec, made again, is another one.
    scene.managers[0].0 = "ci2".to_owned();
    assert_eq!(scene.reason(1020), "Settling");
    assert_eq!((scene.status().steps.intent.as_ref(), scene.events.last()), (None, Some(&Reason::Abandoned)));
}

#[test]
fn a_change_and_its_reversal_that_nobody_saw_begin_again() {
    let mut scene = Scene::new(&enforcing());
    assert_eq!(scene.reason(1000), "Settling");
    scene.generation += 1;
    assert_eq!(scene.reason(1005), "Settling");
    assert_eq!(
        scene.status().manager.as_ref().unwrap().since,
        at(1000),
        "one change was to suspend, or its end"
    );
    scene.generation += 2;
    assert_eq!(scene.reason(1011), "Settling");
    assert_eq!(
        scene.status().manager.as_ref().unwrap().since,
        at(1011),
        "two may have been another spec and this one"
    );
    assert_eq!(scene.reason(1021), "delete");
}

#[test]
fn a_record_of_an_earlier_namespace_begins_again() {
    let mut scene = Scene::new(&enforcing());
    assert_eq!(scene.reason(1000), "Settling");
    assert_eq!(scene.reason(1010), "delete");
    // The record was made with the next namespace of this name, and the cache still had the one that goes.
    scene.namespace.terminating = true;
    assert_eq!(scene.reason(1020), "NamespaceTerminating");
    scene.namespace =
        NamespaceFacts { uid: "ns-2".to_owned(), terminating: false, ..scene.namespace.clone() };
    assert_eq!(scene.reason(1030), "Settling");
    let status = scene.status();
    assert_eq!((status.namespace_uid.as_deref(), status.phase), (Some("ns-2"), Some(NamespacePhase::Stale)));
    assert_eq!(status.manager.as_ref().unwrap().since, at(1030));
}

#[test]
fn a_wrong_clock_is_not_written_into_what_is_only_observed() {
    let mut scene = Scene::new(&spec("", ""));
    assert_eq!(scene.reason(1000), "Observing");
    scene.certain = false;
    assert_eq!(scene.plan(at(1001)).step, NamespaceStep::Nothing);
    scene.record = Some(ManagedNamespaceStatus::default());
    assert_eq!(scene.reason(1002), "ClockSkew", "a record that says nothing yet says why");
}

#[test]
fn a_switch_to_enforce_gives_the_full_time_to_settle_and_then_the_full_notice() {
    let with_notice = |mode: &str| spec(mode, "").replace("delete: {}", "delete: {notice: 30s}");
    let mut scene = Scene::new(&with_notice(""));
    assert_eq!(scene.reason(1000), "Observing");
    assert_eq!(scene.status().next.as_ref().unwrap().due, Some(at(1040)), "after settle and notice");
    scene.manager(&with_notice("mode: Enforce,"));
    assert_eq!(scene.reason(2000), "Settling");
    assert_eq!(scene.status().next.as_ref().unwrap().due, Some(at(2040)));
    assert_eq!(scene.status().steps.notice, None, "to announce is to act");
    let says = scene.says(2010);
    assert_eq!(
        says,
        "NoticeRunning: the ttl ended at 2026-03-01T12:01:41Z; notice runs until 2026-03-01T12:34:00Z"
    );
    assert_eq!(scene.events, [Reason::DeletionAnnounced]);
    assert_eq!(scene.reason(2039), "NoticeRunning");
    assert_eq!(scene.reason(2040), "delete");
}

#[test]
fn a_ttl_is_announced_ahead_of_its_end() {
    let mut scene = Scene::new(&enforcing().replace("delete: {}", "delete: {notice: 30s}"));
    assert_eq!(scene.settled(1).next_check, Some(at(71)));
    assert_eq!(scene.reason(71), "NoticeRunning");
    scene.spec = serde_yaml::from_str("{extendUntil: {at: '2026-03-01T13:00:00Z'}}").unwrap();
    assert_eq!(scene.reason(80), "TtlRunning");
    assert_eq!(scene.events, [Reason::DeletionAnnounced, Reason::NoticeWithdrawn]);
    assert_eq!(scene.status().expires_at, Some(at(3600)));
    scene.spec.extend_until = None;
    assert_eq!(scene.reason(90), "NoticeRunning");
    assert_eq!(scene.reason(119), "NoticeRunning", "a notice runs in full");
    assert_eq!(scene.reason(120), "delete");
}

/// Ends every namespace at 12:05, announced a minute before.
const UNTIL: &str = "{mode: Enforce, selector: {names: ['ci-*']}, settle: 10s, policies: [{name: end, when: {ttl: {until: \
                     '2026-03-01T12:05:00Z'}}, then: {delete: {notice: 60s}}}]}";

#[test]
fn an_instant_ends_namespaces_and_an_extension_delays_it() {
    let mut scene = Scene::new(UNTIL);
    let says = scene.says(1);
    let expected =
        "TtlRunning: the ttl ends at 2026-03-01T12:05:00Z; policy \"end\" acts at 2026-03-01T12:05:00Z";
    assert_eq!(says, expected);
    assert_eq!(scene.settled(1).next_check, Some(at(240)));
    assert_eq!(scene.reason(240), "NoticeRunning");
    scene.spec = serde_yaml::from_str("{extendUntil: {at: '2026-03-01T13:00:00Z'}}").unwrap();
    assert_eq!(scene.reason(250), "TtlRunning");
    assert_eq!(scene.events, [Reason::DeletionAnnounced, Reason::NoticeWithdrawn]);
    scene.spec.extend_until = None;
    assert_eq!(scene.reason(260), "NoticeRunning");
    assert_eq!(scene.reason(319), "NoticeRunning", "a notice runs in full");
    assert_eq!(scene.reason(320), "delete");
}

#[test]
fn after_the_instant_a_later_namespace_settles_and_is_announced_first() {
    let mut scene = Scene::new(UNTIL);
    scene.namespace.created = at(1000);
    assert_eq!(scene.reason(1000), "Settling");
    assert_eq!(scene.reason(1010), "NoticeRunning");
    assert_eq!(scene.reason(1069), "NoticeRunning");
    assert_eq!(scene.reason(1070), "delete");
}

#[test]
fn a_ttl_of_a_policy_is_one_of_two() {
    for (ttl, why) in [
        ("{}", "write exactly one of after and until in when.ttl"),
        ("{after: 1h, until: '2026-03-01T12:05:00Z'}", "write exactly one of after and until in when.ttl"),
        ("{after: 0s}", "when.ttl.after must be at least 1s"),
    ] {
        let text = format!(
            "{{selector: {{names: ['ci-*']}}, policies: [{{name: a, when: {{ttl: {ttl}}}, then: {{delete: {{}}}}}}]}}"
        );
        let refused = serde_yaml::from_str::<ValidClusterManager>(&text).unwrap_err().to_string();
        assert_eq!(refused, format!("policy \"a\": {why}"));
    }
}

#[test]
fn what_is_protected_held_or_suspended_stays_and_says_why() {
    let mut scene = Scene::new(&enforcing());
    scene.settled(1);
    scene.config.protected.names.push("ci-1".to_owned());
    let says = scene.says(500);
    let expected = "NamespaceProtected: namespace ci-1 is protected: CoppiceConfig/coppice protects the name \"ci-1\"; it is \
                    never deleted or scaled down";
    assert_eq!(says, expected);
    scene.config.protected.names.clear();
    let labels = std::mem::replace(
        &mut scene.namespace.labels,
        [("coppice.dev/has-children", "")].into_iter().collect(),
    );
    let expected = "HasChildren: namespace ci-1 has subnamespaces: it is not deleted before they are (kubectl get subnamespaces \
                    -n ci-1)";
    assert_eq!(scene.says(500), expected);
    scene.namespace.labels = labels;
    scene.spec = serde_yaml::from_str("{hold: {until: '2026-03-01T13:00:00Z', reason: debugging}}").unwrap();
    assert_eq!(scene.says(500), "Held: held until 2026-03-01T13:00:00Z (debugging)");
    assert_eq!(scene.settled(500).next_check, Some(at(3600)));
    scene.managers[0].1.suspend = true;
    assert_eq!(scene.reason(3600), "Suspended");
    scene.managers[0].1.suspend = false;
    assert_eq!(scene.reason(3600), "delete");
    // It is decided, and not yet done.
    scene.spec = serde_yaml::from_str("{hold: {until: '2026-03-01T14:00:00Z'}}").unwrap();
    assert_eq!(scene.reason(3601), "Held");
    assert_eq!(scene.status().steps.intent, None);
}

#[test]
fn what_is_not_known_is_no_reason_to_act() {
    let mut scene = Scene::new(&enforcing());
    scene.settled(1);
    scene.certain = false;
    assert_eq!(
        scene.plan(at(50)).step,
        NamespaceStep::Nothing,
        "nothing would have been done: nothing to say"
    );
    assert_eq!(scene.reason(500), "ClockSkew");
    let ready = condition::find(&scene.status().conditions, READY).unwrap();
    assert_eq!((&*ready.status, &*ready.reason), ("Unknown", "ClockSkew"));
    scene.certain = true;
    scene.stale = Some((Reason::Stale, "no update of namespaces has been received".to_owned()));
    assert_eq!(scene.reason(500), "Stale");
    scene.stale = None;
    scene.undecodable = true;
    assert_eq!(scene.reason(500), "Undecodable");
    assert_eq!(scene.status().phase, Some(NamespacePhase::Unknown));
    scene.undecodable = false;
    scene.settings_missing = true;
    assert_eq!(scene.reason(500), "SettingsMissing");
    scene.settings_missing = false;
    scene.config.governor.paused = true;
    assert_eq!(scene.reason(500), "Paused");
    scene.config.governor.paused = false;
    scene.namespace.created = Timestamp::MAX;
    assert_eq!(scene.reason(500), "TtlRunning", "without a creation time it is never due");
    scene.namespace.created = at(0);
    assert_eq!(scene.reason(500), "delete");
    for (change, reason) in [
        (Box::new(|scene: &mut Scene| scene.certain = false) as Box<dyn Fn(&mut Scene)>, "ClockSkew"),
        (Box::new(|scene| scene.stale = Some((Reason::NotSynced, "not yet".to_owned()))), "NotSynced"),
        (Box::new(|scene| scene.undecodable = true), "Undecodable"),
        (Box::new(|scene| scene.settings_missing = true), "SettingsMissing"),
    ] {
        let mut other = Scene::new(&enforcing());
        (other.record, other.managers) = (scene.record.clone(), scene.managers.clone());
        change(&mut other);
        assert_eq!(other.reason(501), reason);
        assert!(other.status().steps.intent.is_some(), "{reason}: what was decided waits");
    }
}

#[test]
fn a_namespace_that_no_manager_selects_any_more_is_left_alone() {
    let mut scene = Scene::new(&enforcing().replace("delete: {}", "delete: {notice: 1h}"));
    scene.settled(1);
    assert_eq!(scene.reason(500), "NoticeRunning");
    scene.managers.clear();
    assert_eq!(scene.says(501), "NotGoverned: no cluster manager selects the namespace");
    let status = scene.status();
    assert_eq!((status.manager.as_ref(), status.phase, status.expires_at), (None, None, None));
    assert_eq!(scene.events.last(), Some(&Reason::NoticeWithdrawn));
}

#[test]
fn a_decision_about_another_namespace_of_the_name_is_given_up() {
    let mut scene = Scene::new(&enforcing());
    scene.settled(1);
    assert_eq!(scene.reason(500), "delete");
    scene.namespace.uid = "ns-2".to_owned();
    scene.namespace.created = at(490);
    assert_eq!(scene.reason(501), "TtlRunning");
    assert_eq!(scene.status().steps.intent, None);
}

#[test]
fn a_policy_may_wait_for_longer_and_the_first_that_acts_is_shown() {
    let manager = "{mode: Enforce, selector: {names: ['*']}, settle: 10s, ttl: {after: 100s}, policies: [\
                   {name: late, when: {phase: {in: [Stale], for: 60s}}, then: {delete: {}}}, \
                   {name: later, when: {phase: {in: [Stale], for: 90s}}, then: {delete: {}}}, \
                   {name: would, mode: Observe, when: {phase: {in: [Stale]}}, then: {delete: {}}}]}";
    let mut scene = Scene::new(manager);
    scene.settled(1);
    assert_eq!(scene.reason(110), "TtlRunning");
    assert_eq!(scene.status().phase, Some(NamespacePhase::Stale));
    let next = scene.status().next.as_ref().unwrap();
    assert_eq!((next.policy.as_deref(), next.due), (Some("late"), Some(at(161))));
    assert_eq!(scene.reason(160), "TtlRunning");
    assert_eq!(scene.reason(161), "delete");
}

#[test]
fn a_notice_ahead_of_the_end_of_a_ttl_says_that_it_can_be_extended() {
    let mut scene = Scene::new(&enforcing().replace("{delete: {}}", "{delete: {notice: 60s}}"));
    assert_eq!(scene.reason(1), "TtlRunning");
    let plan = scene.plan(at(41));
    let announced = plan.events.iter().find(|event| event.reason == Reason::DeletionAnnounced).unwrap();
    let expected = "set spec.hold or spec.extendUntil of ManagedNamespace coppice in it to prevent it";
    assert!(announced.message.ends_with(expected), "{}", announced.message);
}

#[test]
fn a_record_that_a_finalizer_keeps_says_why_nothing_is_done() {
    let mut scene = Scene::new(
        "{mode: Enforce, selector: {names: ['ci-*']}, settle: 10s, ttl: {after: 100s}, policies: [\
                                {name: end, when: {phase: {in: [Stale]}}, then: {delete: {}}}]}",
    );
    assert_eq!(scene.reason(11), "TtlRunning");
    scene.record_terminating = true;
    assert_eq!(scene.reason(200), "RecordTerminating");
    let ready = scene.status().conditions.iter().find(|condition| condition.type_ == "Ready").unwrap();
    assert_eq!((&*ready.status, &*ready.reason), ("False", "RecordTerminating"));
    assert_eq!(scene.reason(1_000_000), "RecordTerminating");
    // The namespace goes, and the record with it.
    scene.namespace.terminating = true;
    assert_eq!(scene.plan(at(1_000_001)).step, NamespaceStep::Nothing);
}
