//! A manager and the namespace's record that would both delete it: one notice, one decision.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::support::{Scene, at};
use coppice_api::Reason;
use coppice_api::manager::{NamespaceManagerStatus, NextStep};
use coppice_api::steps::{Action, Intent, Notice};
use coppice_lifecycle::other_deletion::OtherDeletion;
use jiff::SignedDuration;

/// What another object says about the namespace of these scenes.
struct Other {
    scene: Scene,
    status: NamespaceManagerStatus,
}

impl Other {
    fn new() -> Self {
        Self {
            scene: Scene::policy("{ttl: {after: 100s}}", "{delete: {notice: 20s}}"),
            status: NamespaceManagerStatus::default(),
        }
    }

    /// Its next step, and what is due then.
    fn next(mut self, reason: Reason, due: i64) -> Self {
        let next = NextStep {
            action: Some(Action::Delete.to_string()),
            due: Some(at(due)),
            reason: reason.to_string(),
            ..NextStep::default()
        };
        self.status.next = Some(next);
        self
    }

    fn notice(mut self, uid: &str, not_before: i64) -> Self {
        let (policy, uid) = ("end".to_owned(), uid.to_owned());
        self.status.steps.notice = Some(Notice {
            policy,
            uid,
            given_at: at(0),
            not_before: at(not_before),
            reason: None,
            losses: None,
        });
        self
    }

    fn intent(mut self, action: Action) -> Self {
        let uid = self.scene.namespace.uid.clone();
        self.status.steps.intent = Some(Intent {
            id: "fire-1".to_owned(),
            policy: "end".to_owned(),
            action,
            uid,
            digest: "d".to_owned(),
            decided_at: at(0),
            attempts: 0,
            next_attempt: None,
            last_error: None,
            reason: "TtlElapsed".to_owned(),
            evidence: [].into(),
        });
        self
    }

    fn says(&self, precedes: bool, now: i64) -> Option<OtherDeletion> {
        let said = (&self.status.steps, self.status.next.as_ref());
        OtherDeletion::of(
            "ClusterNamespaceManager ci".to_owned(),
            precedes,
            said,
            &self.scene.namespace,
            at(now),
        )
    }

    /// What a manager with a ttl of 100 s and 20 s of notice does at an instant, beside this record or after it.
    fn beside(&self, precedes: bool, now: i64) -> String {
        let mut scene = Scene::policy("{ttl: {after: 100s}}", "{delete: {notice: 20s}}");
        scene.plan_at(at(0));
        scene.other = self.says(precedes, now);
        let plan = scene.plan_at(at(now));
        let announced = plan.status.steps.notice.is_some();
        format!("{}{}", plan.status.next.unwrap().reason, if announced { ", announced" } else { "" })
    }
}

#[test]
fn what_is_not_later_is_left_to_the_other() {
    let own = 101;
    for (due, precedes, expected) in [
        (own - 3, true, "DeletedByAnother"),
        (own - 3, false, "DeletedByAnother"),
        // Dates that differ by less than what it takes to announce them are one.
        (own - 2, true, "DeletedByAnother"),
        (own - 2, false, "NoticeRunning, announced"),
        (own, true, "DeletedByAnother"),
        (own, false, "NoticeRunning, announced"),
        (own + 2, true, "DeletedByAnother"),
        (own + 2, false, "NoticeRunning, announced"),
        (own + 3, true, "NoticeRunning, announced"),
    ] {
        let planned = Other::new().next(Reason::TtlRunning, due);
        assert_eq!(planned.beside(precedes, 81), expected, "planned for {due}, {precedes}");
        let uid = planned.scene.namespace.uid.clone();
        let announced = Other::new().next(Reason::NoticeRunning, due).notice(&uid, due);
        assert_eq!(announced.beside(precedes, 81), expected, "announced for {due}, {precedes}");
    }
    let decided = Other::new().next(Reason::InProgress, 500).intent(Action::Delete);
    assert_eq!(decided.beside(false, 81), "DeletedByAnother");
    assert_eq!(decided.beside(true, 200), "DeletedByAnother");
}

#[test]
fn what_waits_for_something_of_its_own_keeps_nobody_waiting() {
    let uid = Other::new().scene.namespace.uid;
    for other in [
        Other::new().next(Reason::Observing, 50),
        Other::new().next(Reason::Held, 50).notice(&uid, 50),
        Other::new().next(Reason::ApprovalNeeded, 50).intent(Action::Delete),
        Other::new().next(Reason::InProgress, 50).intent(Action::ScaleDown),
        Other::new().next(Reason::NoticeRunning, 50).notice("another namespace of this name", 50),
    ] {
        assert_eq!(other.says(true, 90), None, "{:?}", other.status);
        assert_eq!(other.beside(true, 90), "NoticeRunning, announced");
    }
    // A plan that came to nothing is waited for a minute.
    let planned = Other::new().next(Reason::TtlRunning, 50);
    assert!(planned.says(true, 110).is_some());
    assert_eq!(planned.says(true, 111), None);
}

#[test]
fn of_two_that_announced_the_same_date_the_record_goes_on_when_it_comes() {
    let uid = Other::new().scene.namespace.uid;
    let announced = Other::new().next(Reason::NoticeRunning, 101).notice(&uid, 101);
    for (precedes, decides) in [(true, false), (false, true)] {
        let mut scene = Scene::policy("{ttl: {after: 100s}}", "{delete: {notice: 20s}}");
        scene.status = scene.plan_at(at(81)).status;
        assert_eq!(scene.status.steps.notice.as_ref().unwrap().not_before, at(101));
        scene.other = announced.says(precedes, 102);
        assert_eq!(scene.plan_at(at(102)).status.steps.intent.is_some(), decides);
    }
    assert_eq!(announced.says(true, 162), None, "what came to nothing is waited for a minute");
}

#[test]
fn dates_are_compared_as_they_would_be_announced() {
    // Both are due at 101 and give 20 s of notice; the record has announced for 102, since it did so at 81.4 s.
    let mut scene = Scene::policy("{ttl: {after: 100s}}", "{delete: {notice: 20s}}");
    scene.plan_at(at(0));
    let uid = Other::new().scene.namespace.uid;
    scene.other = Other::new().next(Reason::NoticeRunning, 102).notice(&uid, 102).says(true, 81);
    let plan = scene.plan_at(at(81) + SignedDuration::from_millis(700));
    assert_eq!(
        (plan.status.next.unwrap().reason.as_str(), plan.status.steps.notice),
        ("DeletedByAnother", None)
    );
}

#[test]
fn of_two_that_plan_one_date_one_announces_whenever_they_look() {
    // Both are due at 101 and give 20 s of notice. Whoever looks a moment after 81 s would announce 102.
    for millis in [0, 1, 300, 999, 1000] {
        for (precedes, announces) in [(true, false), (false, true)] {
            let mut scene = Scene::policy("{ttl: {after: 100s}}", "{delete: {notice: 20s}}");
            scene.plan_at(at(0));
            scene.other = Other::new().next(Reason::TtlRunning, 101).says(precedes, 81);
            let plan = scene.plan_at(at(81) + SignedDuration::from_millis(millis));
            assert_eq!(plan.status.steps.notice.is_some(), announces, "{millis} ms, {precedes}");
        }
    }
}

#[test]
fn of_two_decisions_at_once_the_record_goes_on_and_the_manager_waits() {
    let decided = Other::new().next(Reason::InProgress, 500).intent(Action::Delete);
    assert!(
        decided.says(true, 900).is_some() && decided.says(true, 901).is_none(),
        "for a quarter of an hour"
    );
    for (precedes, waits) in [(true, true), (false, false)] {
        let mut scene = Scene::policy("{ttl: {after: 100s}}", "{delete: {}}");
        scene.status = scene.plan_at(at(101)).status;
        assert!(scene.status.steps.intent.is_some());
        scene.other = decided.says(precedes, 101);
        let plan = scene.plan_at(at(101));
        assert_eq!(plan.step.is_none(), waits);
        assert!(plan.status.steps.intent.is_some(), "it goes on if the other comes to nothing");
        scene.other = None;
        assert!(scene.plan_at(at(102)).step.is_some());
    }
}
