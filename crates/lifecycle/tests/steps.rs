//! Steps of an object that is no manager of a namespace: announced, held back and decided by the same functions.

use std::collections::BTreeMap;

use crate::support::{Scene, at, yaml};
use coppice_api::config::{CoppiceConfigSpec, GovernorStatus};
use coppice_api::manager::{Hold, Verdict};
use coppice_api::steps::Action;
use coppice_api::{Reason, Steps};
use coppice_lifecycle::PlatformSettings;
use coppice_lifecycle::circumstances::{Circumstances, inhibition};
use coppice_lifecycle::condition::Evaluation;
use coppice_lifecycle::facts::NamespaceFacts;
use coppice_lifecycle::governor::{Denied, Share};
use coppice_lifecycle::plan::PlannedEvent;
use coppice_lifecycle::steps::{self, Decided, DuePolicy, NoticeDelivery, Resumed};
use coppice_quantity::Duration;
use coppice_quantity::time::ServerTime;

/// Some object, and what it does to a namespace.
struct Subject {
    steps: Steps,
    settings: PlatformSettings,
    budget: GovernorStatus,
    namespace: NamespaceFacts,
    events: Vec<PlannedEvent>,
}

impl Subject {
    fn new(config: CoppiceConfigSpec) -> Self {
        Self {
            steps: Steps::default(),
            settings: PlatformSettings::new(config, "coppice-system", Vec::new()),
            budget: GovernorStatus::default(),
            namespace: Scene::policy("{ttl: {after: 1h}}", "{delete: {}}").namespace,
            events: Vec::new(),
        }
    }

    fn fire(&mut self, action: Action, notice: Option<Duration>, seconds: i64) -> Result<(), Denied> {
        let Self { steps, settings, budget, namespace, events } = self;
        let decided = Decided {
            object_uid: "tree-1",
            action,
            policy: "end",
            digest: "v2:0",
            namespace,
            reason: Reason::TtlElapsed,
            evidence: &BTreeMap::new(),
        };
        let time = ServerTime::certain(at(seconds));
        let circumstances = Circumstances {
            settings,
            budget,
            share: Share::Managers(1),
            stale: None,
            other: None,
            webhook: None,
            unknown_limits: None,
            time,
        };
        let (due, prevent) = (at(seconds), steps::HOLD_TO_PREVENT);
        let due_policy = DuePolicy {
            decided,
            message: "the ttl ended",
            notice,
            due,
            prevent,
            delivery: &NoticeDelivery::NotNeeded,
        };
        steps::fire(steps, due_policy, circumstances, events)
    }

    fn resume(&self, verdict: Verdict, notice: Option<Duration>, seconds: i64) -> Option<Resumed> {
        let Self { steps, settings, budget, .. } = self;
        let evaluation =
            Evaluation { verdict, ..Evaluation::unknown(Reason::TtlRunning, "the ttl runs".to_owned()) };
        let time = ServerTime::certain(at(seconds));
        let circumstances = Circumstances {
            settings,
            budget,
            share: Share::Managers(1),
            stale: None,
            other: None,
            webhook: None,
            unknown_limits: None,
            time,
        };
        Some(steps::resume(
            steps,
            steps.intent.as_ref()?,
            &evaluation,
            (notice, &NoticeDelivery::NotNeeded),
            circumstances,
        ))
    }
}

fn waits(denied: Result<(), Denied>) -> Option<(Reason, Option<jiff::Timestamp>)> {
    denied.err().map(|denied| (denied.reason, denied.retry_at))
}

#[test]
fn a_deletion_is_announced_then_decided_then_decided_again_before_it_is_done() {
    let (mut subject, notice) = (Subject::new(CoppiceConfigSpec::default()), "15m".parse().ok());
    let running = Some((Reason::NoticeRunning, Some(at(900))));
    assert_eq!(waits(subject.fire(Action::Delete, notice, 0)), running);
    assert_eq!(waits(subject.fire(Action::Delete, notice, 899)), running, "the date stays");
    assert!(subject.steps.intent.is_none());
    assert_eq!(waits(subject.fire(Action::Delete, notice, 900)), None);
    let reasons: Vec<_> = subject.events.iter().map(|event| event.reason).collect();
    assert_eq!(reasons, [Reason::DeletionAnnounced, Reason::PolicyFired]);
    assert_eq!(subject.resume(Verdict::True, notice, 901), Some(Resumed::GoesOn));
    let given_up = Some(Resumed::GivenUp("the ttl runs".to_owned()));
    assert_eq!(subject.resume(Verdict::False, notice, 901), given_up);
    subject.steps.notice = None;
    let again = Some(Resumed::GivenUp("notice has to be given again".to_owned()));
    assert_eq!(subject.resume(Verdict::True, notice, 901), again);
    let message = subject
        .steps
        .intent
        .clone()
        .map(|intent| steps::abandon(&mut subject.steps, &intent, "it is held", &mut subject.events));
    assert!(message.is_some_and(|message| message.ends_with("is given up: it is held")));
    assert!(subject.steps.intent.is_none() && subject.steps.notice.is_none());
}

#[test]
fn budget_and_settings_hold_back_what_destroys_and_a_webhook_needs_no_budget() {
    let mut paused = Subject::new(yaml("{governor: {paused: true}}"));
    assert_eq!(waits(paused.fire(Action::ScaleDown, None, 0)), Some((Reason::Paused, None)));
    assert_eq!(waits(paused.fire(Action::Webhook, None, 0)), None);
    let mut subject = Subject::new(CoppiceConfigSpec::default());
    assert_eq!(waits(subject.fire(Action::ScaleDown, None, 0)), None);
    subject.settings.missing = true;
    let resumed = subject.resume(Verdict::True, None, 1);
    assert!(matches!(resumed, Some(Resumed::Waits(why)) if why.reason == Reason::SettingsMissing));
    assert_eq!(waits(subject.fire(Action::Webhook, None, 1)), Some((Reason::SettingsMissing, None)));
}

#[test]
fn a_hold_ends_and_a_suspension_does_not() {
    let hold = Hold { until: at(60), reason: Some("release".to_owned()) };
    let waits = inhibition(false, Some(&hold), at(0));
    assert_eq!(waits.map(|why| (why.reason, why.retry_at)), Some((Reason::Held, Some(at(60)))));
    assert_eq!(inhibition(false, Some(&hold), at(60)), None);
    let suspended = inhibition(true, Some(&hold), at(0));
    assert_eq!(suspended.map(|why| (why.reason, why.retry_at)), Some((Reason::Suspended, None)));
}
