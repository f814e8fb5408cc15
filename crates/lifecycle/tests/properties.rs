//! What holds for every manager, whatever its spec, its past and the cluster.

use crate::support::{Scene, at};
use coppice_api::manager::{Action, Hold, Phase, Verdict};
use coppice_lifecycle::facts::{JobState, PodPhase};
use coppice_lifecycle::plan::{Delivery, Step};
use coppice_lifecycle::record::StepOutcome;
use jiff::SignedDuration;
use proptest::prelude::*;

const CONDITIONS: [&str; 6] = [
    "{ttl: {after: 40s}}",
    "{ttl: {after: 10m}}",
    "{ttl: {until: '2026-03-01T12:01:00Z'}}",
    "{podsSucceed: {initialDelay: 0s}}",
    "{podsSucceed: {initialDelay: 1m, settle: 30s, selector: {matchLabels: {component: main}}}}",
    "{podsSucceed: {initialDelay: 0s, minPods: 0}}",
];
const ACTIONS: [&str; 5] = [
    "{delete: {}}",
    "{delete: {notice: 2m}}",
    "{scaleDown: {}}",
    "{webhook: {url: 'http://r.team-a.svc/'}}",
    "{webhook: {url: 'http://elsewhere.example.org/'}}",
];

/// Something that happens in the cluster.
#[derive(Clone, Debug)]
enum HistoryEvent {
    Time(i64),
    Pod(u8, PodPhase),
    PodGone(u8),
    Job(JobState),
    Hold(i64),
    Suspend(bool),
    Extend(i64),
    Rearm,
    Protect(bool),
    Pause(bool),
    Unknown(bool),
    Skew(i64),
    Recreate,
    Terminate,
    Succeed,
    Fail,
}

fn history_event() -> impl Strategy<Value = HistoryEvent> {
    let phase = prop::sample::select(vec![
        PodPhase::Pending,
        PodPhase::Running,
        PodPhase::Succeeded,
        PodPhase::Failed,
        PodPhase::Unknown,
    ]);
    let job = prop::sample::select(vec![JobState::Unfinished, JobState::Complete, JobState::Failed]);
    prop_oneof![
        4 => (1i64..200).prop_map(HistoryEvent::Time),
        3 => (0u8..3, phase).prop_map(|(n, p)| HistoryEvent::Pod(n, p)),
        1 => (0u8..3).prop_map(HistoryEvent::PodGone),
        1 => job.prop_map(HistoryEvent::Job),
        1 => (0i64..900).prop_map(HistoryEvent::Hold),
        1 => any::<bool>().prop_map(HistoryEvent::Suspend),
        1 => (0i64..900).prop_map(HistoryEvent::Extend),
        1 => Just(HistoryEvent::Rearm),
        1 => any::<bool>().prop_map(HistoryEvent::Protect),
        1 => any::<bool>().prop_map(HistoryEvent::Pause),
        1 => any::<bool>().prop_map(HistoryEvent::Unknown),
        1 => (-9i64..9).prop_map(HistoryEvent::Skew),
        1 => Just(HistoryEvent::Recreate),
        1 => Just(HistoryEvent::Terminate),
        3 => Just(HistoryEvent::Succeed),
        1 => Just(HistoryEvent::Fail),
    ]
}

fn scene() -> impl Strategy<Value = Scene> {
    let policy = (prop::sample::select(&CONDITIONS[..]), prop::sample::select(&ACTIONS[..]));
    prop::collection::vec(policy, 1..4).prop_map(|policies| {
        let policies = policies.iter().enumerate();
        let policies: Vec<_> =
            policies.map(|(n, (when, then))| format!("{{name: p{n}, when: {when}, then: {then}}}")).collect();
        Scene::new(&format!("policies: [{}]", policies.join(", ")))
    })
}

fn apply_event(scene: &mut Scene, history_event: &HistoryEvent, now: &mut i64) {
    match history_event {
        HistoryEvent::Time(seconds) => *now += seconds,
        HistoryEvent::Pod(n, phase) => {
            let name = format!("pod-{n}");
            scene.pods.retain(|p| *p.name != *name);
            scene.pod(&name, *phase);
        }
        HistoryEvent::PodGone(n) => scene.pods.retain(|p| *p.name != *format!("pod-{n}")),
        HistoryEvent::Job(state) => {
            scene.jobs.clear();
            scene.job("job", *state, 1);
        }
        HistoryEvent::Hold(until) => {
            scene.edit(|s| s.hold = Some(Hold { until: at(*until), reason: None }));
        }
        HistoryEvent::Suspend(on) => {
            scene.edit(|s| s.suspend = *on);
        }
        HistoryEvent::Extend(until) => {
            scene.edit(|s| s.extend_until = Some(at(*until)));
        }
        HistoryEvent::Rearm => {
            let firings = scene.status.steps.firings;
            scene.edit(|s| s.rearm = Some(firings));
        }
        HistoryEvent::Protect(on) => {
            scene.config.protected.names = if *on { vec!["team-*".to_owned()] } else { vec![] };
        }
        HistoryEvent::Pause(on) => scene.config.governor.paused = *on,
        HistoryEvent::Unknown(on) => scene.unknown = on.then_some(coppice_api::Reason::Stale),
        HistoryEvent::Skew(seconds) => scene.skew = Some(SignedDuration::from_secs(*seconds)),
        HistoryEvent::Recreate => {
            scene.namespace.uid = format!("ns-{now}");
            scene.namespace.created = at(*now);
            scene.namespace.terminating = false;
        }
        HistoryEvent::Terminate => scene.namespace.terminating = true,
        HistoryEvent::Succeed | HistoryEvent::Fail => {}
    }
}

/// Carries an effect out as the operator would.
fn apply_step(scene: &mut Scene, step: &Step, fails: bool, now: i64) {
    if let Step::Webhook(..) = step {
        scene.delivery = if fails {
            Delivery::Failed {
                error: "503".to_owned(),
                permanent: false,
                retry_after: None,
                by_channel: false,
            }
        } else {
            Delivery::Delivered("200".to_owned())
        };
        let plan = scene.plan(now);
        scene.status = plan.status;
        scene.delivery = Delivery::None;
        return;
    }
    let outcome = match step {
        _ if fails => StepOutcome::failed("no".to_owned()),
        Step::Delete(_) => StepOutcome::Deleted,
        Step::ScaleDown(..) => StepOutcome::ScaledDown { workloads: 1 },
        _ => StepOutcome::Woken { workloads: 1, skipped: vec![] },
    };
    scene.namespace.terminating |= matches!(outcome, StepOutcome::Deleted);
    scene.outcome(&outcome, now);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// The safety invariants, over any history: nothing destructive while protected, held, suspended, paused, refused, with
    /// a clock that is off, on facts that are unknown, without an intent that was durable before, on another namespace.
    #[test]
    fn nothing_is_ever_destroyed_against_the_rules(mut scene in scene(), history in prop::collection::vec(history_event(), 1..40)) {
        let mut now = 0;
        let mut fired = std::collections::BTreeSet::new();
        for history_event in &history {
            apply_event(&mut scene, history_event, &mut now);
            // Stands still after a few steps: a plan on its own result is empty.
            let plan = scene.settle(now);
            prop_assert_eq!(&plan.status, &scene.status);
            prop_assert!(plan.next_check.is_none_or(|look| look > at(now)), "looking again at {:?} would spin", plan.next_check);
            // A deletion that was attempted, and whose namespace then terminates, is recorded as done without another step.
            fired.extend(scene.status.steps.last_firing.as_ref().map(|firing| firing.id.clone()));
            let Some(step) = &plan.step else { continue };
            let intent = step.intent().clone();
            prop_assert_eq!(Some(&intent), scene.status.steps.intent.as_ref(), "an effect without a durable intent");
            prop_assert_eq!(&intent.uid, &scene.namespace.uid);
            if intent.action.is_destructive() {
                let policy = scene.spec.policies.iter().position(|p| p.name == intent.policy).unwrap();
                prop_assert_eq!(scene.status.policies[policy].result, Verdict::True);
                prop_assert!(scene.config.protected.names.is_empty());
                prop_assert!(!scene.config.governor.paused && !scene.spec.suspend && !scene.namespace.terminating);
                prop_assert!(scene.spec.hold.as_ref().is_none_or(|h| h.until <= at(now)));
                prop_assert!(scene.skew.is_none_or(|s| s.as_secs().abs() <= 5));
                let ttl = scene.spec.policies[policy].when.ttl.is_some();
                prop_assert!(ttl || scene.unknown.is_none());
                prop_assert!(!ttl || scene.spec.extend_until.is_none_or(|e| e <= at(now)));
                if let Some(delete) = scene.spec.policies[policy].then.delete.as_ref().filter(|d| !d.notice.is_zero()) {
                    let Some(notice) = &scene.status.steps.notice else { panic!("deleted without notice") };
                    prop_assert!(at(now).duration_since(notice.given_at).as_secs() >= delete.notice.as_secs_i64());
                    prop_assert!(notice.not_before <= at(now));
                }
            }
            // Otherwise the operator was killed, or slow: the intent outlives the next happenings.
            if !matches!(history_event, HistoryEvent::Time(_) | HistoryEvent::Succeed | HistoryEvent::Fail) {
                continue;
            }
            let fails = matches!(history_event, HistoryEvent::Fail);
            apply_step(&mut scene, step, fails, now);
            if !fails && intent.action != Action::Wake {
                prop_assert!(fired.insert(intent.id.clone()), "{} fired twice", intent.id);
                prop_assert_eq!(usize::try_from(scene.status.steps.firings).ok(), Some(fired.len()));
            }
        }
    }

    /// Time alone never takes a firing back: what is due stays due.
    #[test]
    fn time_never_unexpires(scene in scene(), now in 0i64..2000, more in 0i64..2000) {
        let verdicts = |seconds| -> Vec<_> { scene.plan(seconds).status.policies.iter().map(|p| p.result).collect() };
        for (before, after) in verdicts(now).iter().zip(verdicts(now + more)) {
            prop_assert!(*before != Verdict::True || after == Verdict::True);
        }
    }

    /// The order in which facts arrive does not matter.
    #[test]
    fn the_order_of_facts_does_not_matter(mut scene in scene(), phases in prop::collection::vec(0usize..5, 0..6)) {
        const PHASES: [PodPhase; 5] =
            [PodPhase::Pending, PodPhase::Running, PodPhase::Succeeded, PodPhase::Failed, PodPhase::Unknown];
        for (n, phase) in phases.iter().enumerate() {
            scene.pod(&format!("pod-{n}"), PHASES[*phase]);
        }
        let sorted = scene.plan(1000);
        scene.pods.reverse();
        let reversed = scene.plan(1000);
        prop_assert_eq!(
            sorted.status.policies.iter().map(|p| (p.result, p.reason.clone())).collect::<Vec<_>>(),
            reversed.status.policies.iter().map(|p| (p.result, p.reason.clone())).collect::<Vec<_>>()
        );
    }

    /// Every plan says where the manager stands and why, in words.
    #[test]
    fn every_plan_has_a_reason(mut scene in scene(), history in prop::collection::vec(history_event(), 1..20)) {
        let mut now = 0;
        for history_event in &history {
            apply_event(&mut scene, history_event, &mut now);
            scene.settle(now);
            let next = scene.status.next.as_ref().unwrap();
            prop_assert!(!next.reason.is_empty() && !next.message.is_empty(), "{next:?}");
            prop_assert!(Phase::ALL.contains(&scene.phase()));
            prop_assert_eq!(scene.status.observed_generation, Some(scene.generation));
            prop_assert!(!scene.ready().1.is_empty());
        }
    }
}
