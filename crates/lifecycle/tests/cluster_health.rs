//! What becomes of a namespace whose cluster manager looks at its health.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use coppice_api::condition::{self, READY};
use coppice_api::config::CoppiceConfigSpec;
use coppice_api::notify::{MessageAbout, MessageState};
use coppice_api::{ManagedNamespaceStatus, NamespacePhase, Reason};
use coppice_lifecycle::PlatformSettings;
use coppice_lifecycle::cluster::census::{Counted, census};
use coppice_lifecycle::cluster::{NamespaceStep, ValidClusterManager};
use coppice_lifecycle::record::{self, StepOutcome};

use crate::support::health::{Scene, at, spec};
use crate::support::web::web;

/// Delivers every message of the record; what they are about.
fn notified(scene: &mut Scene) -> Vec<MessageAbout> {
    for notice in &mut scene.status.notices {
        notice.state = MessageState::Delivered;
    }
    scene.status.notices.iter().map(|notice| notice.about).collect()
}

#[test]
fn what_fails_is_deleted_once_it_is_failed_and_its_notice_has_run() {
    let mut scene = Scene::new(&spec("{in: [Failed]}", "60s"));
    scene.pass(200);
    assert_eq!((scene.status.phase, scene.next()), (Some(NamespacePhase::Ok), "Watching"));
    scene.fails(true);
    assert_eq!(scene.status.phase, Some(NamespacePhase::Unstable));
    let line = &scene.status.failing[0];
    assert_eq!((&*line.kind, &*line.name, &*line.reason), ("Deployment", "web", "ProgressDeadlineExceeded"));
    assert_eq!(scene.pass(1000), [(300, NamespacePhase::Failing), (350, NamespacePhase::Failed)]);
    assert_eq!(scene.deleted, Some(410), "the notice was given when it was Failed, and not before");
    assert_eq!(scene.events, [Reason::DeletionAnnounced, Reason::PolicyFired]);
    let intent = scene.status.steps.intent.clone().unwrap();
    assert_eq!(intent.reason, "Unhealthy");
    assert_eq!(intent.evidence["phase"], "Failed");
    assert_eq!(intent.evidence["failing"], "Deployment web (ProgressDeadlineExceeded)");
    let past: Vec<_> = scene.status.past_phases.iter().map(|past| (past.phase, past.since)).collect();
    let expected = [
        (NamespacePhase::Failing, at(300)),
        (NamespacePhase::Unstable, at(200)),
        (NamespacePhase::Ok, at(0)),
    ];
    assert_eq!(past, expected);
}

#[test]
fn what_recovers_survives_and_its_notice_is_withdrawn_once_it_has_recovered() {
    let mut scene = Scene::new(&spec("{in: [Failed]}", "60s"));
    scene.fails(true).pass(160);
    assert_eq!((scene.status.phase, scene.next()), (Some(NamespacePhase::Failed), "NoticeRunning"));
    scene.fails(false);
    assert_eq!((scene.status.phase, scene.next()), (Some(NamespacePhase::Failed), "Recovering"));
    assert!(scene.status.steps.notice.is_some(), "it may fail again in a moment");
    assert_eq!(scene.pass(5000), [(180, NamespacePhase::Ok)]);
    assert_eq!((scene.status.steps.notice.clone(), scene.deleted), (None, None));
    assert_eq!(scene.events, [Reason::DeletionAnnounced, Reason::NoticeWithdrawn]);
    assert_eq!(scene.status.failing, []);
}

#[test]
fn nothing_is_deleted_while_nothing_fails_though_its_notice_has_run() {
    let mut scene = Scene::new(&spec("{in: [Failed]}", "60s"));
    scene.fails(true).pass(205);
    assert_eq!(scene.next(), "NoticeRunning");
    scene.fails(false).pass(220);
    assert_eq!((scene.deleted, scene.next()), (None, "Recovering"));
    scene.fails(true);
    assert_eq!(scene.deleted, Some(220), "it has not recovered, and its notice has run");
    // Decided, and before it is carried out nothing fails any more.
    scene.fails(false);
    let given_up = scene.events.contains(&Reason::Abandoned);
    assert!(given_up && scene.status.steps.intent.is_none(), "{:?}", scene.events);
}

#[test]
fn what_was_read_and_fails_for_the_first_time_has_not_been_failing_for_long() {
    let mut scene = Scene::new(&spec("{in: [Failed]}", "0s"));
    scene.fails(true).pass(200);
    let deletes = |scene: &Scene| matches!(scene.plan().step, NamespaceStep::Delete(_));
    assert!(scene.deleted.is_some() && deletes(&scene), "decided, and about to be carried out");
    // Something else had failed, by what the watches have shown until now.
    scene.before = Some("api");
    assert!(!deletes(&scene), "{:?}", scene.plan());
    scene.before = Some("web");
    assert!(deletes(&scene), "they have shown it meanwhile");
}

#[test]
fn what_is_unknown_is_never_acted_upon_and_the_clocks_continue_after_it() {
    let mut scene = Scene::new(&spec("{in: [Failed]}", "0s"));
    scene.fails(true).pass(120);
    scene.known = false;
    assert_eq!(scene.pass(1000), []);
    assert_eq!((scene.status.phase, scene.next()), (Some(NamespacePhase::Unknown), "Stale"));
    let ready = condition::find(&scene.status.conditions, READY).unwrap();
    assert_eq!((&*ready.status, &*ready.reason), ("Unknown", "Stale"));
    scene.known = true;
    // What was over of the grace does not count.
    assert_eq!(scene.pass(2000), [(1050, NamespacePhase::Failed)]);
    assert_eq!(scene.deleted, Some(1050));
}

#[test]
fn owners_are_notified_once_of_each_phase_of_a_failure_whatever_was_not_seen_in_between() {
    use MessageAbout::{Failed, Failing, Recovered, Unstable};
    let notify = "notify: {channels: [hook], on: [Unstable, Failing, Failed, Recovered]}, policies:";
    let mut scene = Scene::new(&spec("{in: [Stale]}", "0s").replace("policies:", notify));
    scene.pass(20);
    scene.fails(true);
    assert_eq!(notified(&mut scene), [Unstable]);
    assert_eq!(scene.pass(150), [(120, NamespacePhase::Failing)]);
    assert_eq!(notified(&mut scene), [Unstable, Failing]);
    assert_eq!(scene.pass(200), [(170, NamespacePhase::Failed)]);
    assert_eq!(notified(&mut scene), [Unstable, Failing, Failed]);
    // A source of facts is silent; and then another replica leads, which has followed the workloads for a moment only.
    scene.known = false;
    scene.pass(300);
    assert_eq!(scene.status.phase, Some(NamespacePhase::Unknown));
    scene.known = true;
    scene.pass(600);
    scene.followed = at(600);
    scene.pass(1000);
    assert_eq!(notified(&mut scene), [Unstable, Failing, Failed], "nothing else has begun to fail");
    scene.fails(false).pass(1100);
    assert_eq!(notified(&mut scene), [Unstable, Failing, Failed, Recovered]);
    scene.fails(true);
    assert_eq!(
        notified(&mut scene),
        [Unstable, Failing, Failed, Recovered, Unstable],
        "that is another failure"
    );
}

#[test]
fn who_was_not_notified_of_a_failure_is_not_notified_that_it_is_over() {
    let notify = "notify: {channels: [hook], on: [Failing, Recovered]}, policies:";
    let mut scene = Scene::new(&spec("{in: [Stale]}", "0s").replace("policies:", notify));
    scene.pass(20);
    // It is written down, and not delivered before it is over.
    scene.fails(true).pass(150);
    assert_eq!(scene.status.notices.len(), 1);
    scene.fails(false).pass(200);
    assert_eq!((scene.status.phase, notified(&mut scene)), (Some(NamespacePhase::Ok), Vec::new()));
}

#[test]
fn what_was_decided_for_the_ttl_is_not_carried_out_for_the_health() {
    let mut scene = Scene::new(&spec("{in: [Stale, Failed]}", "0s"));
    scene.spec = serde_yaml::from_str("{hold: {until: '2026-03-01T13:23:21Z'}}").unwrap();
    scene.pass(4000);
    scene.fails(true).pass(5001);
    assert_eq!((scene.status.phase, scene.deleted), (Some(NamespacePhase::Stale), Some(5001)));
    assert_eq!(scene.status.steps.intent.as_ref().unwrap().reason, "TtlElapsed");
    // Before it is carried out its user extends it, and what fails in it was not read again for this decision.
    scene.spec = serde_yaml::from_str("{extendUntil: {at: '2026-03-02T00:00:00Z'}}").unwrap();
    scene.look();
    assert!(scene.events.contains(&Reason::Abandoned), "{:?}", scene.events);
    assert_eq!(scene.status.steps.intent.as_ref().unwrap().reason, "Unhealthy");
}

#[test]
fn clocks_stand_still_while_nothing_can_be_decided() {
    let mut scene = Scene::new(&spec("{in: [Failed]}", "0s"));
    scene.fails(true).pass(60);
    scene.stale =
        Some((Reason::Stale, "no update of namespaces has been received for 90 seconds".to_owned()));
    scene.look();
    scene.now = 500;
    scene.stale = None;
    assert_eq!(scene.pass(660), [(600, NamespacePhase::Failing), (650, NamespacePhase::Failed)]);
}

#[test]
fn a_policy_may_wait_for_several_phases_and_for_a_time_in_them() {
    let mut scene = Scene::new(&spec("{in: [Failing, Failed], for: 200s}", "30s"));
    scene.fails(true).pass(100);
    assert_eq!(scene.status.phase, Some(NamespacePhase::Failing));
    scene.pass(269);
    assert_eq!((scene.status.phase, scene.next()), (Some(NamespacePhase::Failed), "Watching"));
    scene.pass(299);
    assert_eq!((scene.deleted, scene.next()), (None, "NoticeRunning"), "announced ahead");
    scene.pass(400);
    assert_eq!(scene.deleted, Some(300), "Failing at 100, and 200 s in the two phases together");
    let mut scene = Scene::new(&spec("{in: [Unstable], for: 10s}", "0s"));
    scene.fails(true).pass(9);
    scene.fails(false).pass(15);
    assert_eq!(scene.deleted, None);
    scene.fails(true);
    assert_eq!(scene.deleted, Some(15));
}

#[test]
fn the_end_of_its_time_to_live_comes_before_its_health() {
    let mut scene = Scene::new(&spec("{in: [Stale]}", "0s"));
    scene.fails(true).pass(4000);
    assert_eq!((scene.status.phase, scene.deleted), (Some(NamespacePhase::Failed), None));
    assert_eq!(scene.pass(6000), [(5001, NamespacePhase::Stale)]);
    assert_eq!(scene.deleted, Some(5001));
    let mut scene = Scene::new(&spec("{in: [Failed], for: 10000s}", "0s"));
    scene.fails(true).pass(20_000);
    assert_eq!(
        (scene.status.phase, scene.deleted),
        (Some(NamespacePhase::Stale), None),
        "it is not Failed, but Stale"
    );
}

#[test]
fn another_spec_begins_again() {
    let mut scene = Scene::new(&spec("{in: [Failed]}", "0s"));
    scene.fails(true).pass(140);
    scene.manager = serde_yaml::from_str(&spec("{in: [Failed]}", "1s")).unwrap();
    scene.generation = 2;
    scene.look();
    assert_eq!(scene.status.phase, Some(NamespacePhase::Unstable));
    let spec = spec("{in: [Stale]}", "0s")
        .replace("health: {settlingPeriod: 100s, gracePeriod: 50s, recoveryPeriod: 20s}, ", "");
    scene.manager = serde_yaml::from_str(&spec).unwrap();
    scene.generation = 3;
    scene.look();
    let status = &scene.status;
    assert_eq!((status.phase, &status.health, status.failing.len()), (Some(NamespacePhase::Ok), &None, 0));
}

#[test]
fn a_namespace_counts_as_due_by_its_health_only_while_something_fails() {
    let due = |scene: &Scene| {
        let (namespace, settings) = (
            scene.namespace(),
            PlatformSettings::new(CoppiceConfigSpec::default(), "coppice-system", Vec::new()),
        );
        let counted = [Counted { namespace: &namespace, record: Some(scene.record()), managed: false }];
        let counts = census(counted, &[scene.manager()], &settings, 0, at(scene.now)).unwrap();
        (counts.managers["ci"].enforce.due, counts.managers["ci"].enforce.newly_due)
    };
    let mut scene = Scene::new(&spec("{in: [Failed]}", "600s"));
    scene.fails(true).pass(149);
    assert_eq!(due(&scene), (0, 0));
    scene.pass(151);
    assert_eq!(due(&scene), (1, 0), "a new namespace is due by itself");
    scene.fails(false);
    assert_eq!(due(&scene), (0, 0));
    // It failed when this spec began to govern it.
    let mut scene = Scene::new(&spec("{in: [Failed]}", "600s"));
    scene.now = 1000;
    scene.status = ManagedNamespaceStatus::default();
    scene.fails(true).pass(1001);
    assert_eq!(due(&scene), (0, 1), "before it is due");
    scene.pass(1200);
    assert_eq!(due(&scene), (1, 1));
    // Another operator begins to look, and what it sees fail fails since a moment ago.
    scene.followed = at(1210);
    scene.pass(1220);
    for failing in &mut scene.status.failing {
        failing.since = at(1215);
    }
    assert_eq!(due(&scene).1, 1, "it has not been Ok since this spec began to govern it");
    scene.fails(false).pass(1300);
    scene.fails(true).status.failing[0].since = at(1300);
    assert_eq!(
        (scene.status.phase, due(&scene).1),
        (Some(NamespacePhase::Unstable), 0),
        "it was Ok in between"
    );
}

#[test]
fn what_fails_again_before_it_has_recovered_is_seen_while_it_is_not_counted() {
    let mut scene = Scene::new(&spec("{in: [Failed]}", "600s"));
    scene.now = 1000;
    scene.status = ManagedNamespaceStatus::default();
    scene.fails(true).pass(1200);
    assert_eq!((scene.status.phase, scene.next()), (Some(NamespacePhase::Failed), "NoticeRunning"));
    scene.fails(false).pass(1205);
    assert_eq!(scene.next(), "Recovering");
    // What recovers is not counted as due, and what is not counted as due is not done.
    scene.fails(true).pass(1230);
    assert_eq!((scene.status.phase, scene.next()), (Some(NamespacePhase::Failed), "NoticeRunning"));
    scene.pass(2000);
    assert_eq!(scene.deleted, Some(1750));
}

#[test]
fn whoever_extends_as_the_notice_says_gets_a_notice_of_its_own_for_what_fails() {
    let both = "{name: both, when: {phase: {in: [Stale, Failed]}}, then: {delete: {notice: 90s}}}";
    let mut scene = with_own_ttl("500s", both);
    scene.pass(420);
    assert_eq!(scene.status.steps.notice.as_ref().unwrap().not_before, at(501));
    scene.fails(true).pass(580);
    assert_eq!(scene.deleted, Some(501), "it was announced");
    let mut scene = with_own_ttl("500s", both);
    scene.pass(320);
    scene.fails(true).pass(475);
    assert_eq!((scene.status.phase, scene.next()), (Some(NamespacePhase::Failed), "NoticeRunning"));
    scene.spec = serde_yaml::from_str("{extendUntil: {at: '2026-03-02T00:00:00Z'}}").unwrap();
    scene.look();
    assert_eq!(scene.events, [Reason::DeletionAnnounced, Reason::NoticeWithdrawn, Reason::DeletionAnnounced]);
    scene.pass(700);
    assert_eq!(scene.deleted, Some(565), "90 s after it was announced for what fails");
}

#[test]
fn what_was_announced_for_what_fails_stands_when_the_ttl_ends_and_it_still_fails() {
    let both = "{mode: Enforce, selector: {names: ['ci-*']}, settle: 10s, ttl: {after: 500s}, health: {settlingPeriod: 100s, \
                gracePeriod: 50s, recoveryPeriod: 20s}, policies: [{name: both, when: {phase: {in: [Stale, Failed]}}, then: \
                {delete: {notice: 90s}}}]}";
    let mut scene = Scene::new(both);
    scene.pass(230);
    scene.fails(true).pass(460);
    assert_eq!((scene.status.phase, scene.next()), (Some(NamespacePhase::Failed), "NoticeRunning"));
    assert!(scene.status.steps.notice.as_ref().unwrap().not_before < at(501));
    // Nobody looks for a while.
    scene.now = 520;
    scene.look();
    assert_eq!((scene.status.phase, scene.deleted), (Some(NamespacePhase::Stale), Some(520)));
    assert_eq!(scene.events, [Reason::DeletionAnnounced, Reason::PolicyFired]);
}

#[test]
fn a_cache_that_is_behind_begins_nothing_again() {
    let mut scene = Scene::new(&spec("{in: [Failed]}", "0s"));
    let since = scene.status.manager.as_ref().unwrap().since;
    for (seconds, generation) in [(1, 2), (2, 1), (3, 3)] {
        (scene.now, scene.generation) = (seconds, generation);
        scene.look();
    }
    let manager = scene.status.manager.as_ref().unwrap();
    assert_eq!((manager.since, manager.generation), (since, 3));
}

#[test]
fn what_is_being_deleted_is_not_looked_at_any_more() {
    let mut scene = Scene::new(&spec("{in: [Failed]}", "1h"));
    scene.fails = true;
    scene.pass(500);
    assert_eq!(scene.status.phase, Some(NamespacePhase::Failed));
    let (health, failing) = (scene.status.health.clone(), scene.status.failing.clone());
    // Its pods go one after the other, and nothing fails for long.
    (scene.terminating, scene.fails) = (true, false);
    scene.pass(1_000);
    let status = &scene.status;
    assert_eq!(status.phase, Some(NamespacePhase::Terminating));
    assert_eq!(status.past_phases[0].phase, NamespacePhase::Failed);
    assert_eq!((&status.health, &status.failing), (&health, &failing), "it never was well");
}

#[test]
fn what_makes_no_sense_is_refused_with_a_sentence() {
    let refused = |text: &str| serde_yaml::from_str::<ValidClusterManager>(text).unwrap_err().to_string();
    let with = |health: &str| format!("{{selector: {{names: ['ci-*']}}, health: {health}}}");
    for (health, expected) in [
        ("{sources: []}", "health.sources is empty: leave it out, or write Workloads"),
        ("{settlingPeriod: 0s}", "health.settlingPeriod must be at least 1s"),
        ("{recoveryPeriod: 0s}", "health.recoveryPeriod must be at least 1s"),
        ("{failureBudget: {window: 30s, max: 10s}}", "health.failureBudget.window must be between 1m and 7d"),
        ("{failureBudget: {window: 10m}}", "health.failureBudget.max must be at least 1s and at most window"),
        ("{ignore: [{}]}", "health.ignore: write kind, name or reason in each rule"),
        ("{grace: 1s}", "health: unknown field `grace`"),
        (
            "{settlingPeriod: null}",
            "health.settlingPeriod: invalid type: unit value, expected a duration with a unit",
        ),
    ] {
        let said = refused(&with(health));
        assert!(said.contains(expected), "{health}: {said}");
    }
    let said = refused(
        "{selector: {names: ['*']}, policies: [{name: p, when: {phase: {in: [Failed]}}, then: {delete: {}}}]}",
    );
    assert!(said.contains("write spec.health, such as {}"), "{said}");
    assert!(serde_yaml::from_str::<ValidClusterManager>(&with("{}")).unwrap().health.is_some());
}

/// Scales down what is failing.
fn sleeping() -> String {
    spec("{in: [Failing]}", "0s").replace("{delete: {notice: 0s}}", "{scaleDown: {}}")
}

impl Scene {
    /// Lets what fails be scaled down.
    fn scale_down(&mut self) {
        self.fails(true);
        self.pass(self.now + 101);
        assert!(self.scales && self.status.steps.intent.is_some(), "{:?}", self.status.next);
    }

    fn ends(&mut self, outcome: &StepOutcome) {
        let intent = self.status.steps.intent.clone().unwrap();
        record::apply_to_record(&mut self.status, &intent, outcome, at(self.now));
        self.scales = false;
    }
}

#[test]
fn a_scale_down_that_has_begun_goes_on_though_nothing_fails_any_more() {
    let mut scene = Scene::new(&sleeping());
    scene.scale_down();
    // The first of its workloads is at zero, so that nothing fails.
    scene.status.steps.scaled_down = vec![web()].into();
    scene.fails = false;
    let plan = scene.plan();
    assert!(plan.goes_on, "the rest is scaled down, too: {plan:?}");
    scene.now += 60;
    scene.scales = false;
    scene.look();
    assert!(scene.scales, "also when it has recovered: {:?}", scene.status.next);
    // What stops everything stops it.
    scene.spec = serde_yaml::from_str("{hold: {until: '2026-03-02T00:00:00Z'}}").unwrap();
    scene.look();
    assert_eq!((scene.next(), scene.status.steps.firings), ("Held", 1), "what was done has a number");
    assert!(scene.events.contains(&Reason::Abandoned) && !scene.status.steps.scaled_down.is_empty());
}

#[test]
fn a_deletion_that_has_been_decided_does_not_wait_until_what_fails_stays_the_same() {
    let mut scene = Scene::new(&spec("{in: [Failing]}", "0s"));
    scene.fails(true);
    scene.pass(scene.now + 101);
    assert!(scene.deleted.is_some(), "{:?}", scene.status.next);
    // Since it was written, one more began to fail.
    scene.status.failing.clear();
    let plan = scene.plan();
    assert!(matches!(plan.step, NamespaceStep::WriteStatus(_)) && plan.goes_on, "{plan:?}");
}

#[test]
fn a_scale_down_that_has_not_begun_is_given_up_when_nothing_fails() {
    let mut scene = Scene::new(&sleeping());
    scene.scale_down();
    scene.fails(false);
    assert!(scene.events.contains(&Reason::Abandoned) && scene.status.steps.intent.is_none());
    assert_eq!(scene.status.steps.firings, 0);
}

#[test]
fn what_was_woken_and_fails_on_is_not_scaled_down_again_without_having_recovered() {
    type Change = fn(&mut Scene);
    let changes: [(&str, Change); 4] = [
        ("time passes", |_| {}),
        ("another spec", |scene| {
            scene.manager = serde_yaml::from_str(&sleeping().replace("settle: 10s", "settle: 11s")).unwrap();
            scene.generation += 1;
        }),
        ("a gap", |scene| scene.followed = at(scene.now)),
        ("nothing is known for a time", |scene| {
            scene.known = false;
            scene.pass(scene.now + 500);
            (scene.known, scene.followed) = (true, at(scene.now));
        }),
    ];
    for (what, change) in changes {
        let mut scene = Scene::new(&sleeping());
        scene.scale_down();
        scene.status.steps.scaled_down = vec![web()].into();
        scene.ends(&StepOutcome::ScaledDown { workloads: 1 });
        // Woken at once, and failing as before.
        scene.status.steps.scaled_down = Vec::new().into();
        scene.look();
        assert_eq!(scene.next(), "Dormant", "{what}");
        change(&mut scene);
        scene.pass(scene.now + 3000);
        assert!(!scene.scales && scene.status.steps.firings == 1, "{what}: {:?}", scene.status.next);
        // It recovers, and fails again.
        scene.fails(false);
        scene.pass(scene.now + 30);
        assert!(scene.status.fired.is_empty(), "{what}: {:?}", scene.status.health);
        scene.fails(true);
        scene.pass(scene.now + 101);
        assert!(scene.scales, "{what}: {:?}", scene.status.next);
    }
}

#[test]
fn what_is_not_known_for_long_keeps_no_other_policy_waiting() {
    let by_age = "{name: old, when: {ttl: {after: 1000s}}, then: {delete: {}}}";
    let both = spec("{in: [Failed]}", "0s").replace("policies: [", &format!("policies: [{by_age}, "));
    let mut scene = Scene::new(&both);
    scene.fails(true).pass(149);
    scene.known = false;
    scene.pass(1000);
    assert_eq!(scene.deleted, None);
    scene.pass(1001);
    assert_eq!(scene.deleted, Some(1001), "{:?}", scene.status.next);
    assert_eq!(scene.status.steps.intent.as_ref().unwrap().policy, "old");
}

/// Under these policies, with a ttl of this long unless the namespace has one of its own.
fn with_own_ttl(after: &str, policies: &str) -> Scene {
    Scene::new(&format!(
        "{{mode: Enforce, selector: {{names: ['ci-*']}}, settle: 10s, ttl: {{after: {after}, fromAnnotation: ttl}}, \
         health: {{settlingPeriod: 100s, gracePeriod: 50s, recoveryPeriod: 20s}}, policies: [{policies}]}}"
    ))
}

const STALE: &str = "{name: stale, when: {phase: {in: [Stale]}}, then: {delete: {notice: 20s}}}";
const FAILED: &str = "{name: failed, when: {phase: {in: [Failed]}}, then: {delete: {notice: 30s}}}";

fn by_both() -> Scene {
    with_own_ttl("5000s", &format!("{STALE}, {FAILED}"))
}

#[test]
fn a_ttl_of_its_own_keeps_nothing_from_being_done_for_the_health() {
    let mut scene = with_own_ttl("5000s", FAILED);
    scene.own_ttl = Some("1s");
    scene.fails = true;
    scene.pass(100);
    assert_eq!(scene.status.phase, Some(NamespacePhase::Stale));
    scene.pass(160);
    let next = scene.status.next.as_ref().unwrap();
    let said = "the phase is Failed: Deployment web (ProgressDeadlineExceeded); notice runs until";
    assert!(next.reason == "NoticeRunning" && next.message.starts_with(said), "{next:?}");
    assert_eq!(scene.status.phase, Some(NamespacePhase::Stale), "its ttl is over all the same");
    scene.pass(1000);
    assert!(scene.deleted.is_some_and(|deleted| deleted <= 190), "{:?}", scene.deleted);
}

#[test]
fn a_ttl_that_goes_back_and_forth_begins_no_notice_again() {
    let mut scene = by_both();
    scene.fails = true;
    scene.pass(145);
    scene.own_ttl = Some("1s");
    scene.pass(156);
    let notice = scene.status.steps.notice.clone().unwrap();
    assert_eq!((&*notice.policy, scene.status.phase), ("failed", Some(NamespacePhase::Stale)));
    // Its own ttl is over, and would delete it earlier.
    for (now, ttl) in [(157, "1d"), (158, "2s"), (170, "2s"), (175, "2d")] {
        scene.own_ttl = Some(ttl);
        scene.pass(now);
        assert_eq!(scene.status.steps.notice.as_ref(), Some(&notice), "{ttl} at {now}");
    }
    scene.pass(300);
    assert_eq!(scene.deleted, Some(notice.not_before.duration_since(at(0)).as_secs()));
    let announced = scene.events.iter().filter(|reason| **reason == Reason::DeletionAnnounced).count();
    assert_eq!(announced, 1);
}

#[test]
fn an_end_of_its_ttl_that_moves_keeps_nothing_from_being_done_for_the_health() {
    let mut scene = with_own_ttl("5000s", &format!("{}, {FAILED}", STALE.replace("20s", "900s")));
    scene.own_ttl = Some("800s");
    scene.pass(20);
    assert_eq!(scene.status.steps.notice.as_ref().unwrap().policy, "stale");
    scene.fails = true;
    for (now, ttl) in [(60, "850s"), (100, "900s"), (180, "950s"), (190, "1000s")] {
        scene.own_ttl = Some(ttl);
        scene.pass(now);
    }
    assert_eq!(scene.status.steps.notice.as_ref().unwrap().policy, "failed");
    scene.pass(400);
    assert!(scene.deleted.is_some_and(|deleted| deleted <= 212), "{:?}", scene.deleted);
}

#[test]
fn what_fails_and_recovers_by_turns_keeps_no_ttl_from_ending() {
    // By two policies, and by one for both.
    let both = "{name: both, when: {phase: {in: [Stale, Failed]}}, then: {delete: {notice: 90s}}}".to_owned();
    for policies in [format!("{}, {FAILED}", STALE.replace("20s", "90s")), both] {
        let mut scene = with_own_ttl("500s", &policies);
        for now in (300..1000).step_by(7) {
            scene.fails = !scene.fails;
            scene.pass(now);
        }
        assert!(scene.deleted.is_some_and(|deleted| deleted <= 612), "{policies}: {:?}", scene.deleted);
    }
}

#[test]
fn what_is_announced_for_the_health_and_stands_still_gives_way_after_its_date() {
    let mut scene = by_both();
    scene.fails = true;
    scene.pass(160);
    assert_eq!(scene.status.steps.notice.as_ref().unwrap().policy, "failed");
    scene.known = false;
    scene.own_ttl = Some("1s");
    scene.pass(179);
    assert_eq!(scene.status.steps.notice.as_ref().unwrap().policy, "failed", "its date has not passed");
    scene.pass(400);
    assert_eq!(scene.deleted, Some(200), "by the ttl, after its own notice of 20 s");
    assert_eq!(scene.status.steps.intent.as_ref().unwrap().reason, "TtlElapsed");
}
