//! The steps of a `ManagedCluster`, each from an observation.

use coppice_api::condition;
use coppice_clusters_api::FailureClass;

use super::*;

fn at_second(second: i64) -> Timestamp {
    Timestamp::from_second(1_767_225_600 + second).unwrap()
}

fn spec(text: &str) -> ManagedClusterSpec {
    serde_yaml::from_str(text).unwrap()
}

fn small() -> ManagedClusterSpec {
    spec("{provider: {clusterAPI: {class: small}}, version: 1.33.4, workers: [{name: a, min: 1, max: 1}]}")
}

fn on_gardener() -> ManagedClusterSpec {
    spec(
        "{provider: {gardener: {clusterProvider: g, cloudProfile: aws, credentialsBinding: b, infrastructure: aws}}, version: 1.33.4, \
         region: r, networks: {nodes: 10.250.0.0/16}, workers: [{name: a, machine: m, min: 1, max: 1, zones: [x]}], \
         deletion: {forceAfter: 2h}}",
    )
}

fn managed(spec: ManagedClusterSpec) -> Managed {
    Managed {
        namespace: "team".to_owned(),
        name: "shop".to_owned(),
        uid: "u".to_owned(),
        generation: 1,
        deleting: false,
        has_finalizer: true,
        spec,
        status: ManagedClusterStatus::default(),
        object_namespace: "team".to_owned(),
        project: None,
        live: LiveFact::Unread,
    }
}

/// What the API server does with a step.
fn carry_out(observed: &mut Managed, step: &ManagedStep) {
    match step {
        ManagedStep::SaveStatus(status) => observed.status = (**status).clone(),
        ManagedStep::Look => observed.live = LiveFact::Absent,
        ManagedStep::Create(object) => {
            let mut created = object.clone();
            created["metadata"]["uid"] = json!("made");
            created["metadata"]["generation"] = json!(1);
            observed.live = LiveFact::Made(created);
        }
        ManagedStep::Patch(change) => {
            let LiveFact::Made(live) = &mut observed.live else { panic!("nothing is there") };
            apply(live, change);
            live["metadata"]["generation"] = json!(live["metadata"]["generation"].as_i64().unwrap() + 1);
        }
        step => panic!("{step:?}"),
    }
}

/// A JSON merge patch.
fn apply(live: &mut Value, change: &Value) {
    let Value::Object(fields) = change else {
        *live = change.clone();
        return;
    };
    for (field, value) in fields {
        if value.is_null() {
            live.as_object_mut().unwrap().remove(field);
        } else {
            apply(&mut live[field], value);
        }
    }
}

/// Carries out steps until there is nothing to do.
fn settle(observed: &mut Managed, now: Timestamp) -> Vec<ManagedStep> {
    let mut steps = Vec::new();
    loop {
        let step = plan(observed, now);
        if matches!(step, ManagedStep::Wait(_)) {
            return steps;
        }
        assert!(steps.len() < 10, "{steps:#?}");
        carry_out(observed, &step);
        steps.push(step);
    }
}

fn live(observed: &mut Managed) -> &mut Value {
    let LiveFact::Made(live) = &mut observed.live else { panic!("nothing is there") };
    live
}

/// Its controller has done everything, of the generation that it has.
fn succeed(observed: &mut Managed) {
    let live = live(observed);
    let generation = live["metadata"]["generation"].clone();
    let condition = |type_: &str| json!({"type": type_, "status": "True", "observedGeneration": generation});
    live["status"] = json!({
        "observedGeneration": generation,
        "conditions": [condition("TopologyReconciled"), condition("Available")],
        "lastOperation": {"type": "Reconcile", "state": "Succeeded"},
    });
}

fn ready_cluster(spec: ManagedClusterSpec) -> Managed {
    let mut observed = managed(spec);
    settle(&mut observed, at_second(0));
    succeed(&mut observed);
    settle(&mut observed, at_second(60));
    assert_eq!(observed.status.state, Some(ClusterState::Ready));
    observed
}

fn ready_condition(observed: &Managed) -> (String, String) {
    let found = condition::find(&observed.status.conditions, condition::READY).unwrap();
    (found.status.clone(), found.reason.clone())
}

#[test]
fn nothing_is_made_without_a_finalizer_or_before_status_says_so() {
    let mut observed = managed(small());
    observed.has_finalizer = false;
    assert_eq!(plan(&observed, at_second(0)), ManagedStep::AddFinalizer);
    observed.has_finalizer = true;
    let steps = settle(&mut observed, at_second(0));
    let [
        ManagedStep::Look,
        ManagedStep::SaveStatus(intent),
        ManagedStep::Create(object),
        ManagedStep::SaveStatus(made),
        ..,
    ] = &steps[..]
    else {
        panic!("{steps:#?}");
    };
    assert_eq!(intent.state, Some(ClusterState::Creating));
    assert_eq!(object["metadata"]["annotations"][ANNOTATION_HASH], json!(intent.hash));
    assert_eq!(object["metadata"]["labels"]["coppice.dev/managed-cluster"], "u");
    assert_eq!(object["spec"]["topology"]["classRef"]["name"], "small");
    assert_eq!(made.cluster.as_ref().unwrap().uid, "made");
    assert_eq!(ready_condition(&observed), ("False".to_owned(), "ClusterCreating".to_owned()));
}

/// What is durable: the `ManagedCluster`, and the object at the API server. What a replica knows of that is lost after so many steps.
fn crashed_after(steps: usize) -> (Managed, usize) {
    let (mut observed, mut there, mut creations) = (managed(small()), None, 0);
    for step in 0.. {
        match plan(&observed, at_second(0)) {
            ManagedStep::Wait(_) => return (observed, creations),
            ManagedStep::Look => observed.live = there.clone().map_or(LiveFact::Absent, LiveFact::Made),
            created @ ManagedStep::Create(_) => {
                creations += 1;
                assert!(there.is_none(), "after {steps} steps");
                carry_out(&mut observed, &created);
                there = Some(live(&mut observed).clone());
            }
            next => carry_out(&mut observed, &next),
        }
        assert!(step < 20, "after {steps} steps: {observed:#?}");
        if step == steps {
            observed.live = LiveFact::Unread;
        }
    }
    unreachable!("it ends or fails before");
}

#[test]
fn after_a_crash_at_any_step_there_is_one_cluster_and_its_uid_is_known() {
    for steps in 0..8 {
        let (observed, creations) = crashed_after(steps);
        assert_eq!(creations, 1, "after {steps} steps");
        assert_eq!(observed.status.state, Some(ClusterState::Creating), "after {steps} steps");
        assert_eq!(observed.status.cluster.unwrap().uid, "made", "after {steps} steps");
    }
}

#[test]
fn it_is_ready_when_what_was_written_last_is_observed() {
    let mut observed = ready_cluster(small());
    assert_eq!(ready_condition(&observed), ("True".to_owned(), "ClusterReady".to_owned()));
    // Another spec: the success of the one before does not count.
    observed.generation = 2;
    observed.spec.workers[0].max = 3;
    let steps = settle(&mut observed, at_second(120));
    assert!(steps.iter().any(|step| matches!(step, ManagedStep::Patch(_))), "{steps:#?}");
    assert_eq!(observed.status.state, Some(ClusterState::Updating));
    assert_eq!(ready_condition(&observed).0, "False");
    succeed(&mut observed);
    settle(&mut observed, at_second(180));
    assert_eq!(observed.status.state, Some(ClusterState::Ready));
    assert_eq!(observed.status.observed_generation, Some(2));
}

#[test]
fn another_generation_alone_writes_nothing_and_fields_of_others_survive() {
    let mut observed = ready_cluster(small());
    live(&mut observed)["spec"]["paused"] = json!(true);
    observed.generation = 7;
    let steps = settle(&mut observed, at_second(120));
    assert!(steps.iter().all(|step| matches!(step, ManagedStep::SaveStatus(_))), "{steps:#?}");
    observed.generation = 8;
    observed.spec.workers.clear();
    settle(&mut observed, at_second(180));
    let live = live(&mut observed);
    assert_eq!(live["spec"]["paused"], true);
    assert!(
        live["spec"]["topology"]["workers"].is_null(),
        "what is not asked for any more is gone: {live:#}"
    );
}

#[test]
fn the_record_of_what_was_written_is_restored_and_what_is_not_desired_any_more_goes() {
    for lost in [Value::Null, json!("{"), json!("{\"spec\":{}}")] {
        let mut observed = ready_cluster(small());
        live(&mut observed)["metadata"]["annotations"][ANNOTATION_APPLIED] = lost;
        let steps = settle(&mut observed, at_second(120));
        assert!(steps.iter().any(|step| matches!(step, ManagedStep::Patch(_))), "{steps:#?}");
        succeed(&mut observed);
        settle(&mut observed, at_second(180));
        assert_eq!(observed.status.state, Some(ClusterState::Ready));
        observed.generation = 2;
        observed.spec.workers.clear();
        settle(&mut observed, at_second(240));
        assert!(live(&mut observed)["spec"]["topology"]["workers"].is_null());
    }
}

#[test]
fn what_others_changed_is_said_and_not_fought_over() {
    let mut observed = ready_cluster(small());
    live(&mut observed)["spec"]["topology"]["version"] = json!("v1.30.0");
    let steps = settle(&mut observed, at_second(120));
    assert!(steps.iter().all(|step| matches!(step, ManagedStep::SaveStatus(_))), "{steps:#?}");
    let ready = condition::find(&observed.status.conditions, condition::READY).unwrap();
    assert!(ready.message.contains("others have changed 1 of its fields"), "{}", ready.message);
}

#[test]
fn what_is_not_ours_or_is_gone_waits_for_somebody() {
    let mut observed = managed(small());
    observed.live = LiveFact::Foreign;
    let ManagedStep::SaveStatus(status) = plan(&observed, at_second(0)) else { panic!() };
    let error = status.last_error.as_ref().unwrap();
    assert_eq!((error.reason.as_str(), error.class), ("ClusterNotOurs", FailureClass::WaitingForInput));
    observed.status = *status;
    assert_eq!(plan(&observed, at_second(299)), ManagedStep::Wait(Some(at_second(300))));
    let mut observed = ready_cluster(small());
    observed.live = LiveFact::Absent;
    let ManagedStep::SaveStatus(status) = plan(&observed, at_second(120)) else { panic!() };
    assert_eq!(status.last_error.unwrap().reason, "ClusterGone");
    // It has lost its label: nobody is asked to delete it.
    observed.live = LiveFact::Foreign;
    let ManagedStep::SaveStatus(status) = plan(&observed, at_second(120)) else { panic!() };
    let error = status.last_error.unwrap();
    assert!(error.reason == "ClusterNotOurs" && error.message.contains("put it on again"), "{error:?}");
}

#[test]
fn each_wait_has_a_deadline_and_attempts_grow_apart() {
    let mut observed = managed(small());
    settle(&mut observed, at_second(0));
    assert!(matches!(plan(&observed, at_second(3599)), ManagedStep::Wait(_)));
    let mut now = 3600;
    let mut waits = Vec::new();
    for _ in 0..8 {
        settle(&mut observed, at_second(now));
        assert_eq!(observed.status.state, Some(ClusterState::Failed));
        assert_eq!(observed.status.last_error.as_ref().unwrap().reason, "ClusterOverdue");
        let ManagedStep::Wait(Some(at)) = plan(&observed, at_second(now)) else { panic!() };
        let next = at.as_second() - at_second(0).as_second();
        waits.push(next - now);
        now = next;
    }
    assert_eq!(waits, [15, 30, 60, 120, 240, 480, 600, 600]);
    // It is still looked at, and recovers.
    succeed(&mut observed);
    settle(&mut observed, at_second(now));
    assert_eq!(observed.status.state, Some(ClusterState::Ready));
}

#[test]
fn a_spec_that_cannot_be_made_waits_for_another_one() {
    let mut observed = managed(small());
    observed.spec.region = Some("r".to_owned());
    settle(&mut observed, at_second(0));
    let error = observed.status.last_error.as_ref().unwrap();
    assert_eq!((error.reason.as_str(), error.class), ("InvalidSpec", FailureClass::Permanent));
    assert_eq!(plan(&observed, at_second(1_000_000)), ManagedStep::Wait(None));
    let stalled = condition::find(&observed.status.conditions, "Stalled").unwrap();
    assert_eq!(stalled.status, "True");
    (observed.generation, observed.spec.region) = (2, None);
    settle(&mut observed, at_second(60));
    assert_eq!(observed.status.state, Some(ClusterState::Creating));
}

#[test]
fn addresses_are_in_status_before_they_are_used() {
    let mut observed = managed(on_gardener());
    let steps = settle(&mut observed, at_second(0));
    let [
        ManagedStep::Look,
        ManagedStep::SaveStatus(planned),
        ManagedStep::SaveStatus(_),
        ManagedStep::Create(shoot),
        ..,
    ] = &steps[..]
    else {
        panic!("{steps:#?}");
    };
    assert_eq!(planned.state, Some(ClusterState::Planning));
    assert_eq!(planned.addresses[0].workers, "10.250.0.0/19");
    let zones = &shoot["spec"]["provider"]["infrastructureConfig"]["networks"]["zones"];
    assert_eq!(zones[0]["workers"], "10.250.0.0/19");
}

#[test]
fn a_shoot_that_is_handed_over_keeps_the_addresses_of_its_zones_and_what_others_wrote() {
    let mut observed = managed(on_gardener());
    let zones = json!([{"name": "x", "workers": "10.250.128.0/19", "public": "10.250.160.0/20", "internal": "10.250.176.0/20"}]);
    observed.live = LiveFact::Made(json!({
        "metadata": {"uid": "theirs", "generation": 4, "labels": {"coppice.dev/managed-cluster": "u"}},
        "spec": {"seedName": "s", "provider": {"infrastructureConfig": {"networks": {"zones": zones}}}},
    }));
    let steps = settle(&mut observed, at_second(0));
    assert!(steps.iter().all(|step| !matches!(step, ManagedStep::Create(_))), "{steps:#?}");
    assert_eq!(observed.status.addresses[0].workers, "10.250.128.0/19");
    let live = live(&mut observed);
    assert_eq!(live["spec"]["provider"]["infrastructureConfig"]["networks"]["zones"], zones);
    assert_eq!((&live["spec"]["seedName"], &live["spec"]["region"]), (&json!("s"), &json!("r")));
}

#[test]
fn what_somebody_asked_for_is_more_urgent_than_a_look() {
    assert_eq!(managed_urgency(&managed(on_gardener())), Urgency::New);
    let mut observed = ready_cluster(on_gardener());
    assert_eq!(managed_urgency(&observed), Urgency::Routine);
    observed.generation = 2;
    assert_eq!(managed_urgency(&observed), Urgency::Forced);
    observed.deleting = true;
    assert_eq!(managed_urgency(&observed), Urgency::Forced);
    observed.status.state = Some(ClusterState::Deleting);
    assert_eq!(managed_urgency(&observed), Urgency::Routine);
}

#[test]
fn a_deletion_ends_when_the_object_is_gone() {
    let mut observed = ready_cluster(small());
    (observed.deleting, observed.generation) = (true, 2);
    let ManagedStep::SaveStatus(status) = plan(&observed, at_second(120)) else { panic!() };
    assert_eq!(status.state, Some(ClusterState::Deleting));
    observed.status = *status;
    let confirmed = json!({"metadata": {"annotations": {ANNOTATION_CONFIRM_DELETION: "u"}}});
    assert_eq!(plan(&observed, at_second(120)), ManagedStep::Patch(confirmed));
    // One that was made for another ManagedCluster, and handed over since, is not confirmed.
    let before = json!({"metadata": {"annotations": {ANNOTATION_CONFIRM_DELETION: "another"}}});
    carry_out(&mut observed, &ManagedStep::Patch(before));
    let ManagedStep::Patch(confirmed) = plan(&observed, at_second(120)) else { panic!() };
    carry_out(&mut observed, &ManagedStep::Patch(confirmed));
    assert_eq!(plan(&observed, at_second(120)), ManagedStep::Delete);
    live(&mut observed)["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    settle(&mut observed, at_second(120));
    assert!(matches!(plan(&observed, at_second(120)), ManagedStep::Wait(Some(_))));
    observed.live = LiveFact::Absent;
    assert_eq!(plan(&observed, at_second(200)), ManagedStep::RemoveFinalizer);
}

#[test]
fn a_confirmation_that_somebody_takes_off_again_and_again_is_said_and_tried_on() {
    for (spec, annotation) in [(small(), ANNOTATION_CONFIRM_DELETION), (on_gardener(), CONFIRM)] {
        let mut observed = ready_cluster(spec);
        (observed.deleting, observed.generation) = (true, 2);
        let ManagedStep::SaveStatus(status) = plan(&observed, at_second(100)) else { panic!() };
        observed.status = *status;
        // Each time it is gone when it is looked at again.
        for second in (100..400).step_by(60) {
            assert!(matches!(plan(&observed, at_second(second)), ManagedStep::Patch(_)), "{second}");
        }
        let ManagedStep::SaveStatus(status) = plan(&observed, at_second(400)) else { panic!() };
        let error = status.last_error.as_ref().unwrap();
        assert!(error.reason == "ClusterRefused" && error.message.contains(annotation), "{error:?}");
        observed.status = *status;
        assert_eq!(plan(&observed, at_second(414)), ManagedStep::Wait(Some(at_second(415))));
        let steps: Vec<ManagedStep> = (0..2)
            .map(|_| {
                let step = plan(&observed, at_second(415));
                if let ManagedStep::SaveStatus(status) = &step {
                    observed.status = (**status).clone();
                }
                step
            })
            .collect();
        assert!(matches!(steps[..], [ManagedStep::SaveStatus(_), ManagedStep::Patch(_)]), "{steps:#?}");
        assert!(observed.status.last_error.is_some(), "it is said until the deletion has begun");
        assert_eq!(observed.status.waiting_since, Some(at_second(415)));
        live(&mut observed)["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        settle(&mut observed, at_second(415));
        assert_eq!((observed.status.last_error, observed.status.state), (None, Some(ClusterState::Deleting)));
    }
}

#[test]
fn while_its_garden_is_away_nothing_that_was_made_is_forgotten() {
    let failure = Failure::transient(Reason::TargetUnreachable, "the garden is away");
    let mut observed = ready_cluster(on_gardener());
    observed.live = LiveFact::Refused(failure.clone());
    let ManagedStep::SaveStatus(status) = plan(&observed, at_second(100)) else { panic!() };
    assert_eq!((status.state, status.created), (Some(ClusterState::Failed), Some(at_second(60))));
    (observed.deleting, observed.generation) = (true, 2);
    let ManagedStep::SaveStatus(status) = plan(&observed, at_second(100)) else { panic!() };
    assert_eq!(status.state, Some(ClusterState::Deleting));
    assert_eq!(status.last_error.unwrap().reason, "TargetUnreachable");
    let mut nothing = managed(on_gardener());
    (nothing.deleting, nothing.live) = (true, LiveFact::Refused(failure));
    assert_eq!(plan(&nothing, at_second(100)), ManagedStep::RemoveFinalizer);
    nothing.live = LiveFact::Unread;
    assert_eq!(plan(&nothing, at_second(100)), ManagedStep::RemoveFinalizer, "nobody is asked about it");
    // It was handed over, and nothing was written into it yet.
    nothing.live = observed.live.clone();
    nothing.status.cluster = observed.status.cluster;
    assert!(matches!(plan(&nothing, at_second(100)), ManagedStep::SaveStatus(_)));
}

#[test]
fn what_was_waited_for_before_a_deletion_forces_nothing() {
    let mut observed = ready_cluster(on_gardener());
    // A change has failed for longer than forceAfter, and the garden does not answer when the deletion begins.
    observed.status.state = Some(ClusterState::Failed);
    observed.status.waiting_since = Some(at_second(100));
    (observed.deleting, observed.generation) = (true, 2);
    let live_before = observed.live.clone();
    observed.live = LiveFact::Refused(Failure::transient(Reason::TargetUnreachable, "the garden is away"));
    let ManagedStep::SaveStatus(status) = plan(&observed, at_second(100_000)) else { panic!() };
    (observed.status, observed.live) = (*status, live_before);
    let shoot = live(&mut observed);
    shoot["metadata"]["deletionTimestamp"] = json!("2026-01-02T00:00:00Z");
    shoot["status"]["lastOperation"] = json!({"type": "Delete", "state": "Error"});
    shoot["status"]["lastErrors"] = json!([{"codes": ["ERR_INFRA_DEPENDENCIES"]}]);
    settle(&mut observed, at_second(100_100));
    assert_eq!(observed.status.forced, None);
    assert_eq!(observed.status.waiting_since, Some(at_second(100_100)));
}

#[test]
fn how_long_a_deletion_lasts_counts_from_its_request() {
    let mut observed = ready_cluster(on_gardener());
    (observed.deleting, observed.generation) = (true, 2);
    let ManagedStep::SaveStatus(status) = plan(&observed, at_second(100)) else { panic!() };
    observed.status = *status;
    // The garden has refused its deletion for three hours, and takes it now.
    let refused = Failure::waiting(Reason::ClusterRefused, "it may not be deleted");
    observed.status = failed(&observed, &refused, at_second(100));
    let later = at_second(100 + 3 * 3600);
    let ManagedStep::SaveStatus(status) = plan(&observed, later) else { panic!() };
    assert_eq!((status.waiting_since, status.state), (Some(later), Some(ClusterState::Deleting)));
    observed.status = *status;
    let confirmed = plan(&observed, later);
    carry_out(&mut observed, &confirmed);
    assert_eq!(plan(&observed, later), ManagedStep::Delete);
    let shoot = live(&mut observed);
    shoot["metadata"]["deletionTimestamp"] = json!(later.to_string());
    shoot["status"]["lastOperation"] = json!({"type": "Delete", "state": "Error"});
    shoot["status"]["lastErrors"] = json!([{"codes": ["ERR_CLEANUP_CLUSTER_RESOURCES"]}]);
    settle(&mut observed, later);
    assert_eq!(observed.status.forced, None, "it has not lasted for two hours");
}

#[test]
fn what_a_request_may_still_make_is_waited_for_before_its_managed_cluster_goes() {
    // Its intent is saved, and the answer to its creation is lost.
    let mut observed = managed(small());
    observed.live = LiveFact::Absent;
    let ManagedStep::SaveStatus(status) = plan(&observed, at_second(0)) else { panic!() };
    observed.status = *status;
    assert!(matches!(plan(&observed, at_second(0)), ManagedStep::Create(_)));
    (observed.deleting, observed.generation) = (true, 2);
    let steps = settle(&mut observed, at_second(10));
    assert!(matches!(&steps[..], [ManagedStep::SaveStatus(_)]), "{steps:#?}");
    assert_eq!(plan(&observed, at_second(129)), ManagedStep::Wait(Some(at_second(130))));
    assert_eq!(plan(&observed, at_second(130)), ManagedStep::RemoveFinalizer);
    // It was made in between, and is deleted.
    observed.live =
        LiveFact::Made(json!({"metadata": {"uid": "made", "labels": {LABEL_MANAGED_CLUSTER: "u"}}}));
    assert!(matches!(plan(&observed, at_second(130)), ManagedStep::Patch(_)));
}

#[test]
fn a_deletion_by_gardener_is_confirmed_and_forced_only_where_it_has_failed_for_long() {
    let mut observed = ready_cluster(on_gardener());
    (observed.deleting, observed.generation) = (true, 2);
    let ManagedStep::SaveStatus(status) = plan(&observed, at_second(100)) else { panic!() };
    observed.status = *status;
    let confirmed = json!({"metadata": {"annotations": {CONFIRM: "true"}}});
    assert_eq!(plan(&observed, at_second(100)), ManagedStep::Patch(confirmed.clone()));
    carry_out(&mut observed, &ManagedStep::Patch(confirmed));
    assert_eq!(plan(&observed, at_second(100)), ManagedStep::Delete);
    live(&mut observed)["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    live(&mut observed)["status"]["lastOperation"] = json!({"type": "Delete", "state": "Error"});
    live(&mut observed)["status"]["lastErrors"] = json!([{"codes": ["ERR_INFRA_QUOTA_EXCEEDED"]}]);
    let is_forced = |observed: &mut Managed, second: i64| {
        let steps = settle(observed, at_second(second));
        observed.status.forced.is_some() && steps.iter().any(|step| matches!(step, ManagedStep::Patch(_)))
    };
    assert!(!is_forced(&mut observed, 100 + 7300), "Gardener does not permit it for this error");
    live(&mut observed)["status"]["lastErrors"] = json!([{"codes": ["ERR_INFRA_DEPENDENCIES"]}]);
    observed.status.last_error = None;
    observed.status.waiting_since = Some(at_second(7300));
    assert!(!is_forced(&mut observed, 7300 + 1800), "it has not lasted for two hours");
    observed.status.waiting_since = Some(at_second(100));
    assert!(is_forced(&mut observed, 100 + 7200 + 1000));
    let LiveFact::Made(live) = &observed.live else { panic!() };
    assert_eq!(live["metadata"]["annotations"][FORCE], "true");
}

#[path = "plan_gardener_tests.rs"]
mod gardener;
#[path = "plan_lint_tests.rs"]
mod lint;
