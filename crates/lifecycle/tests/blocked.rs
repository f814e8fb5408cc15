//! What stops a manager whatever its policies say: settings that are missing, and too many managers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use crate::support;

use crate::support::Scene;
use coppice_api::manager::Phase;
use coppice_lifecycle::plan::{MAX_MANAGERS, Step};
use coppice_lifecycle::record::StepOutcome;

const TTL: &str = "{ttl: {after: 40s}}";
const ACTIONS: [&str; 3] = ["{delete: {}}", "{scaleDown: {}}", "{webhook: {url: 'http://r.team-a.svc/'}}"];

#[test]
fn without_settings_nothing_is_decided_and_nothing_that_was_decided_is_done() {
    for action in ACTIONS {
        let mut scene = Scene::policy(TTL, action);
        scene.settings_missing = true;
        assert_eq!((scene.settle(41).step, scene.next_reason()), (None, "SettingsMissing"), "{action}");
        assert_eq!((scene.status.steps.intent.clone(), scene.phase()), (None, Phase::Pending));
        scene.settings_missing = false;
        assert!(scene.settle(42).step.is_some(), "{action}");
        scene.settings_missing = true;
        assert_eq!((scene.settle(43).step, scene.next_reason()), (None, "SettingsMissing"), "{action}");
        assert!(scene.status.steps.intent.is_some(), "it waits and is not given up");
        scene.settings_missing = false;
        assert!(scene.settle(44).step.is_some(), "{action}");
    }
}

#[test]
fn without_settings_what_was_scaled_down_can_be_woken() {
    let mut scene = Scene::policy(TTL, "{scaleDown: {}}");
    scene.settle(41);
    scene.status.steps.scaled_down =
        support::yaml("[{apiVersion: apps/v1, kind: Deployment, name: d, uid: u, replicas: 2}]");
    scene.outcome(&StepOutcome::ScaledDown { workloads: 1 }, 42);
    scene.settings_missing = true;
    scene.edit(|spec| spec.wake = Some(1));
    assert!(matches!(scene.settle(60).step, Some(Step::Wake(_))));
}

#[test]
fn only_the_oldest_managers_of_a_namespace_are_followed() {
    for action in ACTIONS {
        let mut scene = Scene::policy(TTL, action);
        scene.before = MAX_MANAGERS - 1;
        assert!(scene.settle(41).step.is_some(), "{action}: it is the twentieth");
        let mut scene = Scene::policy(TTL, action);
        scene.before = MAX_MANAGERS;
        for seconds in [20, 41] {
            assert_eq!((scene.settle(seconds).step, scene.phase()), (None, Phase::Refused), "{action}");
            assert_eq!(
                (scene.next_reason(), scene.ready()),
                ("TooManyManagers", ("False", "TooManyManagers"))
            );
        }
        scene.before = 3;
        assert!(scene.settle(42).step.is_some(), "{action}: older ones are gone");
    }
}
