//! What is particular to Shoots: the calls of a provider, and operations of Gardener.

use super::*;
use crate::managed::not_understood;
use crate::managed::shoot;

/// One that waits for the calls of its provider since then, and asks again after a second.
fn waits(observed: &Managed, since: i64, now: i64) -> Managed {
    let (since, until) = (at_second(since), at_second(now + 1));
    let live = LiveFact::WaitsForTurn { since, until, is_throttled: false };
    Managed { live, ..observed.clone() }
}

#[test]
fn what_waits_for_the_calls_of_its_provider_says_so_and_is_not_written_again_and_again() {
    let new = managed(on_gardener());
    let mut observed = waits(&new, 0, 0);
    let steps = settle(&mut observed, at_second(0));
    let [ManagedStep::SaveStatus(said)] = &steps[..] else { panic!("{steps:#?}") };
    assert_eq!((said.state, said.asks_again), (Some(ClusterState::Planning), Some(at_second(1))));
    assert_eq!(ready_condition(&observed), ("False".to_owned(), "ProviderCallsSpent".to_owned()));
    let reconciling = condition::find(&observed.status.conditions, "Reconciling").unwrap();
    let says = "callsPerMinute of ClusterProvider g is used up: the garden is asked at 2026-01-01T00:00:01Z";
    assert!(reconciling.status == "True" && reconciling.message.contains(says), "{reconciling:?}");
    // It asks once a second for an hour.
    let mut writes = 0;
    for second in 1..3600 {
        observed = waits(&observed, 0, second);
        writes += settle(&mut observed, at_second(second)).len();
    }
    assert!((1..=12).contains(&writes), "{writes}");
    // It has its turn: the wait is over, and all is as without it.
    observed.live = LiveFact::Unread;
    settle(&mut observed, at_second(3600));
    assert_eq!((observed.status.state, observed.status.asks_again), (Some(ClusterState::Creating), None));
    assert_eq!(ready_condition(&observed).1, "ClusterCreating");
}

#[test]
fn a_change_that_waits_says_so_at_once_a_look_after_a_minute_and_one_at_what_is_done_never() {
    let ready = ready_cluster(on_gardener());
    for second in [120, 4000] {
        assert!(matches!(plan(&waits(&ready, 100, second), at_second(second)), ManagedStep::Wait(Some(_))));
    }
    let mut changed = waits(&Managed { generation: 2, ..ready.clone() }, 120, 120);
    settle(&mut changed, at_second(120));
    assert_eq!(ready_condition(&changed), ("False".to_owned(), "ProviderCallsSpent".to_owned()));
    assert_eq!(changed.status.state, Some(ClusterState::Updating), "it is not as its spec says");
    // It is as urgent as before, and nothing counts as written.
    assert_eq!(managed_urgency(&changed), Urgency::Forced);
    assert_eq!(
        (changed.status.hash, changed.status.created),
        (ready.status.hash.clone(), ready.status.created)
    );
    let mut deleted = waits(&Managed { generation: 2, deleting: true, ..ready }, 120, 120);
    assert_eq!(settle(&mut deleted, at_second(120)).len(), 1);
    let mut creating = managed(on_gardener());
    settle(&mut creating, at_second(0));
    assert!(settle(&mut waits(&creating, 15, 70), at_second(70)).is_empty());
    assert_eq!(settle(&mut waits(&creating, 15, 75), at_second(75)).len(), 1);
    // A failure that somebody has to do something about stays as it is.
    creating.live = LiveFact::Refused(Failure::waiting(Reason::NotAllowed, "ask the platform"));
    settle(&mut creating, at_second(80));
    assert!(settle(&mut waits(&creating, 80, 400), at_second(400)).is_empty());
}

#[test]
fn what_waits_for_a_garden_with_too_many_requests_says_that_and_not_that_calls_are_used_up() {
    let (since, until) = (at_second(0), at_second(7));
    let live = LiveFact::WaitsForTurn { since, until, is_throttled: true };
    let mut observed = Managed { live, ..managed(on_gardener()) };
    settle(&mut observed, at_second(0));
    assert_eq!(ready_condition(&observed), ("False".to_owned(), "TargetThrottled".to_owned()));
    let reconciling = condition::find(&observed.status.conditions, "Reconciling").unwrap();
    let says = "the garden of ClusterProvider g has too many requests (429): the garden is asked at 2026-01-01T00:00:07Z";
    assert!(reconciling.message.contains(says), "{reconciling:?}");
    // A moment later it is for its calls: that is not written as often.
    assert!(settle(&mut waits(&observed, 0, 30), at_second(30)).is_empty());
}

#[test]
fn a_spec_that_was_corrected_is_not_called_invalid_while_it_waits_for_calls() {
    let refused = |observed: &Managed| {
        let of = (observed.generation, false);
        let status = not_understood(&observed.status, of, "no such field", at_second(100)).unwrap();
        assert_eq!(status.last_error.as_ref().unwrap().reason, "InvalidSpec");
        Managed { status, generation: observed.generation + 1, ..observed.clone() }
    };
    for (before, state) in [
        (managed(on_gardener()), ClusterState::Planning),
        (ready_cluster(on_gardener()), ClusterState::Updating),
    ] {
        let corrected = refused(&before);
        let mut observed = waits(&corrected, 110, 110);
        settle(&mut observed, at_second(110));
        assert_eq!((&observed.status.last_error, observed.status.state), (&None, Some(state)));
        assert_eq!(ready_condition(&observed), ("False".to_owned(), "ProviderCallsSpent".to_owned()));
        assert_eq!(managed_urgency(&observed), managed_urgency(&corrected));
        // It has its turn, and nothing was changed about what is made.
        observed.live = before.live;
        settle(&mut observed, at_second(200));
        let ends = if state == ClusterState::Updating { ClusterState::Ready } else { ClusterState::Creating };
        assert_eq!(observed.status.state, Some(ends));
    }
    // What is said of this spec stays.
    let mut same = waits(&Managed { generation: 1, ..refused(&managed(on_gardener())) }, 400, 500);
    settle(&mut same, at_second(500));
    assert!(same.status.last_error.is_some());
}

#[test]
fn what_gardener_has_given_up_is_said_and_then_begun_again() {
    let mut observed = ready_cluster(on_gardener());
    let gives_up = |observed: &mut Managed| {
        let given_up = at_second(100).to_string();
        live(observed)["status"]["lastOperation"] = json!({"type": "Reconcile", "state": "Failed", "description": "no quota", "lastUpdateTime": given_up});
    };
    gives_up(&mut observed);
    settle(&mut observed, at_second(100));
    assert_eq!(observed.status.last_error.as_ref().unwrap().reason, "ClusterFailed");
    let retry =
        ManagedStep::Patch(json!({"metadata": {"annotations": {"gardener.cloud/operation": "retry"}}}));
    assert!(!settle(&mut observed, at_second(699)).contains(&retry), "Gardener has given up a moment ago");
    let now = at_second(3000);
    let steps = settle(&mut observed, now);
    assert_eq!(steps.iter().filter(|step| **step == retry).count(), 1, "{steps:#?}");
    // Gardener has taken it up: that is another generation, which it has not observed.
    live(&mut observed)["metadata"]["annotations"]
        .as_object_mut()
        .unwrap()
        .remove("gardener.cloud/operation");
    settle(&mut observed, at_second(3100));
    succeed(&mut observed);
    settle(&mut observed, at_second(10_000));
    assert_eq!(observed.status.state, Some(ClusterState::Ready));
    // The same of a deletion.
    (observed.deleting, observed.generation) = (true, 2);
    live(&mut observed)["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    gives_up(&mut observed);
    assert!(settle(&mut observed, at_second(10_001)).contains(&retry));
}

#[test]
fn gardener_is_asked_to_read_another_configuration_of_users_at_once() {
    let mut observed = ready_cluster(on_gardener());
    for (generation, client, state, operation) in
        [(2, "a", "Succeeded", "reconcile"), (3, "b", "Failed", "retry")]
    {
        observed.generation = generation;
        let oidc = json!({"issuerURL": "https://id.example.com", "clientID": client});
        observed.spec.oidc = Some(serde_json::from_value(oidc).unwrap());
        live(&mut observed)["status"]["lastOperation"]["state"] = json!(state);
        let steps = settle(&mut observed, at_second(generation * 100));
        let patches: Vec<&Value> = steps
            .iter()
            .filter_map(|step| if let ManagedStep::Patch(fields) = step { Some(fields) } else { None })
            .collect();
        assert_eq!(patches.len(), 1, "{steps:#?}");
        assert_eq!(patches[0]["metadata"]["annotations"]["gardener.cloud/operation"], operation);
        live(&mut observed)["metadata"]["annotations"]
            .as_object_mut()
            .unwrap()
            .remove("gardener.cloud/operation");
        succeed(&mut observed);
    }
}

#[test]
fn a_shoot_that_is_reconciled_again_stays_ready() {
    let mut observed = ready_cluster(on_gardener());
    let before = observed.status.clone();
    let says = |observed: &mut Managed, type_: &str, state: &str| {
        live(observed)["status"]["lastOperation"] = json!({"type": type_, "state": state});
        settle(observed, at_second(120))
    };
    for state in ["Pending", "Processing"] {
        assert!(says(&mut observed, "Reconcile", state).is_empty(), "{state}");
        assert_eq!(observed.status, before);
    }
    // What is being made of another spec is not.
    let mut changed = observed.clone();
    (changed.generation, changed.spec.workers[0].max) = (2, 3);
    settle(&mut changed, at_second(120));
    live(&mut changed)["status"]["observedGeneration"] = json!(2);
    assert!(says(&mut changed, "Reconcile", "Processing").len() <= 1);
    assert_eq!(changed.status.state, Some(ClusterState::Updating));
    // Nor what somebody else has changed, or what fails.
    let mut edited = observed.clone();
    live(&mut edited)["metadata"]["generation"] = json!(2);
    says(&mut edited, "Reconcile", "Processing");
    assert_eq!(edited.status.state, Some(ClusterState::Updating));
    says(&mut observed, "Reconcile", "Error");
    assert_eq!(observed.status.state, Some(ClusterState::Updating));
}

#[test]
fn a_configuration_of_users_that_others_have_changed_is_said_and_written_with_the_next_change() {
    let mut spec = on_gardener();
    let oidc = json!({"issuerURL": "https://id.example.com", "clientID": "shop"});
    spec.oidc = Some(serde_json::from_value(oidc).unwrap());
    let mut observed = ready_cluster(spec);
    let spec = observed.spec.clone();
    let written = json!({"data": {"config.yaml": shoot::authentication(&spec).unwrap().to_string()}});
    shoot::compare_authentication(live(&mut observed), &spec, Some(&written));
    assert!(settle(&mut observed, at_second(120)).is_empty());
    shoot::compare_authentication(live(&mut observed), &spec, None);
    settle(&mut observed, at_second(180));
    let ready = condition::find(&observed.status.conditions, condition::READY).unwrap();
    assert!(ready.message.contains("others have changed 1 of its fields"), "{}", ready.message);
    (observed.generation, observed.spec.workers[0].max) = (2, 3);
    let steps = settle(&mut observed, at_second(240));
    let is_asked = |step: &ManagedStep| matches!(step, ManagedStep::Patch(fields) if fields["metadata"]["annotations"][OPERATION] == "reconcile");
    assert!(steps.iter().any(is_asked), "{steps:#?}");
}
