use super::*;
use coppice_api::config::TreeBudget;

/// The Events in the namespace itself.
fn inside(plan: &SubnamespacePlan) -> Vec<(bool, Reason, &str)> {
    plan.own_events.iter().map(|event| (event.warning, event.reason, &*event.message)).collect()
}

/// One that has its namespace and now asks for so many pods, with this status.
fn asks(pods: &str, status: &Value) -> Observation {
    asks_by(2, pods, status)
}

/// The same by a spec of this generation.
fn asks_by(generation: i64, pods: &str, status: &Value) -> Observation {
    let siblings = vec![("shop-db".to_owned(), Resources::parse([("pods", "3".parse().unwrap())]).unwrap())];
    Observation { object: object(pods, &json!({"generation": generation}), status), siblings, ..ready() }
}

#[test]
fn users_of_a_namespace_learn_once_why_it_does_not_get_what_is_asked_for_it() {
    let first = plan(&asks("12", &serde_json::to_value(&*ready().object.status).unwrap()));
    let numbers =
        "pods: needs 8 more, and shop can give 6: 0 of its own 6 are used; ask for at most 10".to_owned();
    assert!(
        first.events[0].message.starts_with(&format!("{numbers}, or have shop-db")),
        "{:?}",
        first.events
    );
    assert_eq!(inside(&first), [(true, Reason::QuotaRefused, &*numbers)], "nothing of what is beside it");
    let again = plan(&asks("12", &serde_json::to_value(&first.status).unwrap()));
    assert!(inside(&again).is_empty(), "once: {:?}", again.own_events);
    assert_eq!(again.status.phase, Some(SubnamespacePhase::Refused));
}

#[test]
fn what_another_spec_asks_for_and_is_refused_is_said_once_as_well() {
    let first = plan(&asks("12", &serde_json::to_value(&*ready().object.status).unwrap()));
    let second = plan(&asks_by(3, "13", &serde_json::to_value(&first.status).unwrap()));
    let numbers = "pods: needs 9 more, and shop can give 6: 0 of its own 6 are used; ask for at most 10";
    assert_eq!(inside(&second), [(true, Reason::QuotaRefused, numbers)]);
    let [event] = &second.events[..] else { panic!("{:?}", second.events) };
    assert!(event.warning && event.message.starts_with(numbers), "{event:?}");
    // Not with each pass, whatever is used meanwhile.
    let status = serde_json::to_value(&second.status).unwrap();
    let again = asks_by(3, "13", &status);
    assert!(plan(&again).events.is_empty() && plan(&again).is_steady(&again.object.status));
    let parent_quota = Some(quota("shop", "10", "4", "2"));
    let used = Observation { parent_quota, ..asks_by(3, "13", &status) };
    assert!(plan(&used).events.is_empty(), "{:?}", plan(&used).events);
    // The spec changed, and what is refused did not: it is said that it still is.
    let third = plan(&asks_by(4, "13", &status));
    assert_eq!(third.events.iter().map(|event| event.reason).collect::<Vec<_>>(), [Reason::QuotaRefused]);
}

#[test]
fn while_nothing_is_known_no_refusal_is_said() {
    let refused = plan(&asks("12", &serde_json::to_value(&*ready().object.status).unwrap()));
    let status = serde_json::to_value(&refused.status).unwrap();
    let stale = Some((Reason::Stale, "no update of resourcequotas for 90 s".to_owned()));
    let unknown = plan(&Observation { stale, ..asks("12", &status) });
    assert_eq!((unknown.status.phase, why(&unknown).0), (Some(SubnamespacePhase::Refused), Reason::Stale));
    assert!(unknown.events.is_empty() && unknown.own_events.is_empty(), "{:?}", unknown.events);
}

#[test]
fn what_a_namespace_has_later_is_said_and_not_what_it_is_created_with() {
    let granted = |request: Value| {
        let status = json!({
            "namespaceUid": "uid-of-shop-web", "request": request, "allotment": {"hard": {"pods": "4"}, "decided": 0},
            "phase": "Refused"
        });
        plan(&Observation { object: object("4", &json!({}), &status), ..ready() })
    };
    let later = granted(json!({"hard": {"pods": "9"}}));
    assert_eq!(inside(&later), [(false, Reason::QuotaGranted, "namespace shop-web has 4 pods")]);
    let first = granted(Value::Null);
    assert_eq!(first.events.iter().map(|event| event.reason).collect::<Vec<_>>(), [Reason::QuotaGranted]);
    assert!(inside(&first).is_empty(), "{:?}", first.own_events);
}

#[test]
fn where_there_is_no_namespace_or_it_goes_nothing_is_said_in_it() {
    let mut seen = observation();
    seen.parent_quota = Some(quota("shop", "10", "3", "5"));
    let refused = plan(&seen);
    assert_eq!((refused.events[0].reason, inside(&refused)), (Reason::QuotaRefused, Vec::new()));
    assert!(inside(&plan(&deleted())).is_empty());
}

#[test]
fn that_a_deletion_waits_for_somebody_is_said_once_in_the_namespace_as_well() {
    let waits = |status: &Value| {
        let metadata = json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0});
        let (object, children) = (object("4", &metadata, status), vec![ready().object].into());
        plan(&Observation { object, children, ..ready() })
    };
    let begun = waits(&serde_json::to_value(&*ready().object.status).unwrap());
    let (reason, message) = why(&begun);
    assert_eq!(inside(&begun), [(true, Reason::HasChildren, &*message)]);
    assert_eq!((reason, begun.events.len()), (Reason::HasChildren, 1));
    assert!(waits(&serde_json::to_value(&begun.status).unwrap()).events.is_empty());
}

#[test]
fn that_a_deletion_waits_for_a_budget_is_said_once_in_the_namespace_as_well() {
    let spent = |at: &str| {
        let reservations = vec![ReservationEntry { at: at.parse().unwrap(), steps: 10 }];
        let tree_budgets = vec![TreeBudget { tree: "shop".to_owned(), reservations }];
        GovernorStatus { tree_budgets, ..GovernorStatus::default() }
    };
    let begun = plan(&Observation { budget: spent("2025-12-31T23:30:20Z"), ..deleted() });
    let (reason, message) = why(&begun);
    assert_eq!(reason, Reason::TreeBudgetSpent);
    assert!(message.ends_with("is spent; tried again at 2026-01-01T00:31:00Z"), "{message}");
    assert_eq!(inside(&begun), [(true, Reason::TreeBudgetSpent, &*message)]);
    assert_eq!(begun.events.len(), 1);
    // Also where another minute is said, since others have deleted meanwhile.
    let metadata = json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0});
    let object = object("4", &metadata, &serde_json::to_value(&begun.status).unwrap());
    let again = plan(&Observation { object, budget: spent("2025-12-31T23:40:20Z"), ..deleted() });
    assert!(why(&again).1.ends_with("tried again at 2026-01-01T00:41:00Z"), "{:?}", why(&again));
    assert!(again.events.is_empty(), "{:?}", again.events);
}

#[test]
fn that_nothing_is_deleted_at_present_is_said_once_as_well() {
    let spec = serde_json::from_value(json!({"governor": {"paused": true}})).unwrap();
    let settings = Arc::new(PlatformSettings::new(spec, "coppice-system", Vec::new()));
    let begun = plan(&Observation { settings: Arc::clone(&settings), ..deleted() });
    assert_eq!(begun.events.iter().map(|event| event.reason).collect::<Vec<_>>(), [Reason::Paused]);
    let metadata = json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0});
    let object = object("4", &metadata, &serde_json::to_value(&begun.status).unwrap());
    assert!(plan(&Observation { object, settings, ..deleted() }).events.is_empty());
}
