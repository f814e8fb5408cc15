use coppice_api::config::GovernorStatus;
use coppice_api::{CoppiceConfigSpec, Labels};
use coppice_lifecycle::PlatformSettings;
use coppice_quantity::time::{ClockUncertainty, ServerTime};
use coppice_runtime::decode;
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::time::Instant;

use coppice_lifecycle::facts::Annotations;
use coppice_lifecycle::lint::PlanViolation;

use super::*;
use crate::object::Expiries;

/// The namespace is created at second 0, expires at 101 (creation times are cut to seconds), and is announced 30 s ahead.
const SPEC: &str = r#"{"after": "100s", "notice": "30s"}"#;

/// What happens meanwhile.
type Change<T> = fn(&mut T);

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_790_000_000 + second).unwrap()
}

fn expiry(generation: i64) -> Expiry {
    let metadata =
        json!({"name": "preview", "uid": "e", "generation": generation, "creationTimestamp": at(0)});
    let spec: Value = serde_json::from_str(SPEC).unwrap();
    let object = json!({"metadata": metadata, "spec": spec}).to_string();
    decode::item::<Expiries>(&object, &()).unwrap().object.unwrap()
}

/// What there is, as time passes and statuses are written.
struct Scene {
    observation: Observation,
}

impl Scene {
    fn new() -> Self {
        let namespace = NamespaceFacts {
            name: "preview".to_owned(),
            uid: "n".to_owned(),
            resource_version: "1".to_owned(),
            created: at(0),
            labels: Labels::default(),
            annotations: Annotations::default(),
            terminating: false,
        };
        let settings = PlatformSettings::new(CoppiceConfigSpec::default(), "coppice-system", Vec::new());
        let observation = Observation {
            expiry: Arc::new(expiry(1)),
            namespace: Some(Arc::new(namespace)),
            stale: None,
            settings: Arc::new(settings),
            budget: GovernorStatus::default(),
            managed: 1,
            time: ServerTime::certain(at(0)),
            started: Instant::now(),
        };
        Self { observation }
    }

    fn namespace(&mut self) -> &mut NamespaceFacts {
        Arc::make_mut(self.observation.namespace.as_mut().unwrap())
    }

    fn protect(&mut self) {
        self.namespace().labels = [("coppice.dev/protected", "")].into_iter().collect();
    }

    fn plan_at(&mut self, second: i64) -> ExpiryPlan {
        self.observation.time = ServerTime::certain(at(second));
        plan(&self.observation)
    }

    /// Plans and writes statuses until there is nothing more to write; the last plan, and what was published.
    fn settle(&mut self, second: i64) -> (ExpiryPlan, Vec<Reason>) {
        let mut published = Vec::new();
        for _ in 0..5 {
            let plan = self.plan_at(second);
            if plan.status == *self.observation.expiry.status {
                assert!(plan.events.is_empty(), "{plan:?}");
                return (plan, published);
            }
            let stored = &self.observation.expiry.status.steps.intent;
            assert!(plan.step.is_none() || plan.step == *stored, "a step rests on what is stored");
            published.extend(plan.events.iter().map(|event| event.reason));
            *Arc::make_mut(&mut self.observation.expiry).status = plan.status;
        }
        panic!("it does not settle");
    }

    fn reason(&self) -> &str {
        &self.observation.expiry.status.reason
    }

    /// One that has decided at second 101 to delete.
    fn decided() -> Self {
        let mut scene = Self::new();
        scene.settle(71);
        scene.settle(101);
        assert!(scene.observation.expiry.status.steps.intent.is_some());
        scene
    }
}

#[test]
fn it_is_announced_ahead_of_its_end_and_deleted_then() {
    let mut scene = Scene::new();
    let (plan, published) = scene.settle(70);
    assert_eq!((scene.reason(), plan.next_check, published), ("TtlRunning", Some(at(71)), vec![]));
    let (plan, published) = scene.settle(71);
    assert_eq!((scene.reason(), plan.next_check), ("NoticeRunning", Some(at(101))));
    assert_eq!(published, [Reason::DeletionAnnounced]);
    assert_eq!(scene.settle(100).0.step, None);
    let (plan, published) = scene.settle(101);
    assert_eq!((scene.reason(), published), ("InProgress", vec![Reason::PolicyFired]));
    assert_eq!(plan.step, scene.observation.expiry.status.steps.intent);
}

#[test]
fn notice_runs_in_full_where_it_begins_late() {
    let mut scene = Scene::new();
    let (plan, _) = scene.settle(200);
    assert_eq!((scene.reason(), plan.next_check), ("NoticeRunning", Some(at(230))));
    assert_eq!(scene.settle(229).0.step, None);
    assert!(scene.settle(230).0.step.is_some());
}

#[test]
fn what_changes_before_the_deletion_gives_it_up() {
    let changes: [(Change<Scene>, &str); 4] = [
        (|scene| Arc::make_mut(&mut scene.observation.expiry).generation = 2, "PoliciesChanged"),
        (|scene| scene.protect(), "NamespaceProtected"),
        (|scene| Arc::make_mut(&mut scene.observation.expiry).status.steps.notice = None, "NoLongerTrue"),
        (|scene| scene.namespace().created = at(50), "NoLongerTrue"),
    ];
    for (change, reason) in changes {
        let mut scene = Scene::decided();
        change(&mut scene);
        let plan = scene.plan_at(102);
        assert_eq!((plan.step, plan.status.reason.as_str()), (None, reason));
        assert_eq!((plan.status.steps.intent, plan.status.steps.notice), (None, None));
        assert_eq!(plan.events.iter().map(|event| event.reason).collect::<Vec<_>>(), [Reason::Abandoned]);
    }
}

#[test]
fn what_cannot_be_known_or_is_not_allowed_now_makes_it_wait() {
    let stops: [(Change<Observation>, &str); 4] = [
        (|seen| seen.stale = Some((Reason::Stale, "stale".to_owned())), "Stale"),
        (|seen| Arc::make_mut(&mut seen.settings).missing = true, "SettingsMissing"),
        (|seen| Arc::make_mut(&mut seen.settings).config.governor.paused = true, "Paused"),
        (
            |seen| {
                seen.stale = Some((Reason::Undecodable, "odd".to_owned()));
                seen.namespace = None;
            },
            "Undecodable",
        ),
    ];
    for (stop, reason) in stops {
        let mut scene = Scene::decided();
        stop(&mut scene.observation);
        let (plan, published) = scene.settle(102);
        assert_eq!((plan.step, scene.reason(), published), (None, reason, vec![]));
        assert!(plan.status.steps.intent.is_some(), "it waits");
        let mut scene = Scene::new();
        scene.settle(71);
        stop(&mut scene.observation);
        assert_eq!(scene.settle(102).0.status.steps.intent, None, "{reason}");
    }
}

#[test]
fn while_the_time_is_uncertain_nothing_is_announced_or_decided() {
    let differ =
        |second: i64| ServerTime::uncertain(ClockUncertainty::Differs, at(second), [at(second + 600)]);
    for second in [0, 71, 101] {
        let mut scene = Scene::new();
        scene.observation.time = differ(second);
        let plan = plan(&scene.observation);
        assert_eq!((plan.status.reason.as_str(), plan.status.steps.notice), ("ClockSkew", None), "{second}");
    }
    let mut scene = Scene::decided();
    scene.observation.time = differ(50);
    let plan = plan(&scene.observation);
    assert_eq!((plan.step, plan.status.reason.as_str()), (None, "ClockSkew"));
    assert!(plan.status.steps.intent.is_some(), "the slower clock gives nothing up");
}

#[test]
fn what_has_fired_does_not_fire_again() {
    let ends: [Change<Scene>; 3] = [
        |scene| scene.observation.namespace = None,
        |scene| scene.namespace().terminating = true,
        |scene| scene.namespace().uid = "another".to_owned(),
    ];
    for end in ends {
        let mut scene = Scene::decided();
        end(&mut scene);
        let (plan, published) = scene.settle(102);
        assert_eq!((plan.step, scene.reason(), published), (None, "Dormant", vec![Reason::NamespaceDeleted]));
        assert_eq!(plan.status.steps.firings, 1);
        scene.observation.namespace = Scene::new().observation.namespace;
        assert_eq!(scene.settle(10_000).0.step, None);
    }
}

#[test]
fn a_protected_namespace_is_refused_and_said_once() {
    let mut scene = Scene::new();
    scene.settle(71);
    scene.protect();
    let (plan, published) = scene.settle(101);
    assert_eq!((plan.step, scene.reason()), (None, "NamespaceProtected"));
    assert_eq!(published, [Reason::NamespaceProtected, Reason::NoticeWithdrawn]);
    assert_eq!(plan.status.steps.notice, None);
}

#[test]
fn without_a_namespace_or_once_it_is_being_deleted_nothing_is_done() {
    for (second, notice) in [(0, false), (71, true)] {
        let mut scene = Scene::new();
        scene.settle(second);
        scene.observation.namespace = None;
        let (plan, published) = scene.settle(101);
        assert_eq!((plan.step, scene.reason(), !published.is_empty()), (None, "Watching", notice));
        let mut scene = Scene::new();
        scene.settle(second);
        scene.namespace().terminating = true;
        let (plan, published) = scene.settle(101);
        assert_eq!((plan.step, scene.reason(), published), (None, "NamespaceTerminating", vec![]));
    }
}

#[test]
fn an_attempt_that_failed_is_made_again_later() {
    let mut scene = Scene::decided();
    let intent = scene.observation.expiry.status.steps.intent.clone().unwrap();
    let steps = &mut Arc::make_mut(&mut scene.observation.expiry).status.steps;
    record::apply(steps, &intent, &StepOutcome::failed("refused".to_owned()), at(102));
    let (plan, _) = scene.settle(102);
    let next = plan.next_check.unwrap();
    assert_eq!((plan.step, scene.reason()), (None, "Retrying"));
    assert!(scene.settle(next.as_second() - at(0).as_second()).0.step.is_some());
}

#[test]
fn a_plan_that_breaks_a_rule_is_found() {
    let changes: [(Change<Scene>, PlanViolation); 4] = [
        (|scene| scene.protect(), PlanViolation::Protected),
        (|scene| scene.namespace().uid = "another".to_owned(), PlanViolation::NoPrecondition),
        (
            |scene| Arc::make_mut(&mut scene.observation.settings).config.governor.paused = true,
            PlanViolation::Forbidden,
        ),
        (|scene| scene.observation.time = ServerTime::certain(at(100)), PlanViolation::BeforeNotice),
    ];
    for (change, rule) in changes {
        let mut scene = Scene::decided();
        let plan = scene.plan_at(102);
        assert_eq!(lint::lint(&scene.observation, &plan), []);
        change(&mut scene);
        assert_eq!(lint::lint(&scene.observation, &plan), [rule]);
    }
}
