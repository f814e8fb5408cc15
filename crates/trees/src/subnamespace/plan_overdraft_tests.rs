use super::*;
use coppice_api::condition::WITHIN_QUOTA;

/// Whether it is within its quota: status, reason and message of the condition.
fn within(plan: &SubnamespacePlan) -> Option<(String, String, String)> {
    let condition = condition::find(&plan.status.conditions, WITHIN_QUOTA)?;
    Some((condition.status.clone(), condition.reason.clone(), condition.message.clone()))
}

/// The same once this status is stored, with so many pods running.
fn stored(plan: &SubnamespacePlan, used: &str) -> Observation {
    let status = serde_json::to_value(&plan.status).unwrap();
    let quota = Some(quota("shop-web", "4", "0", used));
    Observation { object: object("4", &json!({}), &status), quota, ..ready() }
}

fn reasons(plan: &SubnamespacePlan) -> Vec<(bool, Reason)> {
    plan.events.iter().map(|event| (event.warning, event.reason)).collect()
}

#[test]
fn what_is_used_beyond_the_quota_is_said_once_and_until_it_is_worked_off() {
    let quiet = plan(&ready());
    assert_eq!((within(&quiet), reasons(&quiet)), (None, Vec::new()));
    let begun = plan(&stored(&quiet, "6"));
    let (status, reason, message) = within(&begun).unwrap();
    assert_eq!((&*status, &*reason), ("False", "Overdraft"));
    assert!(
        message.starts_with("namespace shop-web uses more than its quota of pods: 6 of 4 pods"),
        "{message}"
    );
    assert_eq!((begun.step == Step::Nothing, reasons(&begun)), (true, vec![(true, Reason::Overdraft)]));
    assert_eq!(begun.status.phase, Some(SubnamespacePhase::Ready));
    // Another number is no other state: nothing is written for it.
    let seen = stored(&begun, "5");
    assert!(plan(&seen).is_steady(&seen.object.status), "{:?}", within(&plan(&seen)));
    // For a minute it stands, whatever is used.
    let mut seen = stored(&begun, "4");
    let ends = "2026-01-01T00:01:00Z".parse().unwrap();
    assert!(plan(&seen).is_steady(&seen.object.status), "{:?}", within(&plan(&seen)));
    assert_eq!(plan(&seen).next_check, Some(ends));
    seen.time = ServerTime::certain(ends);
    let ended = plan(&seen);
    assert_eq!(
        within(&ended).map(|(status, reason, _)| (status, reason)),
        Some(("True".into(), "OverdraftEnded".into()))
    );
    assert_eq!(reasons(&ended), [(false, Reason::OverdraftEnded)]);
    let seen = stored(&ended, "1");
    assert!(plan(&seen).is_steady(&seen.object.status));
}

#[test]
fn of_a_namespace_that_goes_or_is_not_known_nothing_is_said() {
    let over = || Some(quota("shop-web", "4", "0", "6"));
    let stale = Some((Reason::NotSynced, "the watch of namespaces has not synced".to_owned()));
    for seen in [Observation { quota: over(), ..deleted() }, Observation { quota: over(), stale, ..ready() }]
    {
        let plan = plan(&seen);
        assert_eq!(within(&plan), None);
        assert!(plan.events.iter().all(|event| event.reason != Reason::Overdraft), "{:?}", plan.events);
    }
}

#[test]
fn while_a_change_is_carried_out_it_stays_as_it_was() {
    let mut seen = stored(&plan(&stored(&plan(&ready()), "6")), "6");
    let status = serde_json::to_value(&*seen.object.status).unwrap();
    // More is asked for, and there is room for it.
    seen.object = object("9", &json!({"generation": 2}), &status);
    let growing = plan(&seen);
    assert!(matches!(growing.step, Step::ParentQuota(_)), "{:?}", growing.step);
    assert_eq!(within(&growing).map(|(status, ..)| status).as_deref(), Some("False"));
    assert!(growing.events.is_empty(), "{:?}", growing.events);
}
