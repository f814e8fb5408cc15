use super::*;

#[test]
fn a_refusal_names_a_time_only_until_it_is_tried_again() {
    // A change was begun and given up: too much was in use.
    let mut status = serde_json::to_value(&*ready().object.status).unwrap();
    let message = "pods: shop-web still uses 1";
    status["refused"] = json!({"hard": {"pods": "0"}, "message": message, "until": "2026-01-01T00:05:00Z"});
    let at = |time: &str, status: &Value| {
        let time = ServerTime::certain(time.parse().unwrap());
        Observation { object: object("0", &json!({}), status), time, ..ready() }
    };
    let given_up = plan(&at("2026-01-01T00:00:00Z", &status));
    let until = format!("{message}; tried again at 2026-01-01T00:05:00Z");
    assert_eq!(why(&given_up), (Reason::QuotaRefused, until));
    let status = serde_json::to_value(&given_up.status).unwrap();
    let same = at("2026-01-01T00:04:00Z", &status);
    assert!(plan(&same).is_steady(&same.object.status));
    // Then it is refused before anything is begun, as long as that is so.
    let refused = plan(&at("2026-01-01T00:06:00Z", &status));
    let said =
        "pods: shop-web uses 1 and gave 0 to its children: ask for at least 1, or remove some of it first";
    assert_eq!(why(&refused), (Reason::QuotaRefused, said.to_owned()));
    let status = serde_json::to_value(&refused.status).unwrap();
    let used =
        Observation { quota: Some(quota("shop-web", "4", "0", "2")), ..at("2026-01-01T00:07:00Z", &status) };
    assert!(plan(&used).is_steady(&used.object.status), "the numbers are those of when it was refused");
    // Another resource was the reason before.
    let mut status = status;
    let before = status["conditions"].as_array_mut().unwrap().iter_mut().find(|one| one["type"] == "Ready");
    before.unwrap()["message"] = json!("cpu: shop-web uses 1");
    assert_eq!(why(&plan(&at("2026-01-01T00:08:00Z", &status))).1, said);
}

#[test]
fn what_is_to_be_adopted_waits_for_the_quota_of_its_parent() {
    let marked = Some(Arc::new(namespace("shop-web", &[(LABEL_SUBNAMESPACE, "u-1")])));
    let waits = plan(&Observation { namespace: marked, parent_quota: None, ..observation() });
    let state = (waits.status.phase, why(&waits).0, waits.events.len());
    assert_eq!(state, (Some(SubnamespacePhase::Pending), Reason::QuotaChanging, 0));
}

/// The API server refused a write of what was asked for before: `Ready` is not what is said of this spec.
#[test]
fn what_failed_to_be_written_is_not_ready() {
    let mut status = serde_json::to_value(plan(&ready()).status).unwrap();
    assert_eq!((&status["phase"], &status["conditions"][0]["status"]), (&json!("Ready"), &json!("True")));
    status["conditions"][0]["status"] = json!("False");
    status["conditions"][0]["reason"] = json!("Retrying");
    let object = object("3", &json!({}), &status);
    assert_eq!(object.status.conditions[0].observed_generation, Some(object.generation));
    // Less is asked for, and the parent's quota says that this is being done.
    let observation = Observation { object, ..ready() };
    let less = plan(&observation);
    assert!(matches!(less.step, Step::ParentQuota(_)), "{:?}", less.step);
    assert_eq!((less.status.phase, why(&less).0), (Some(SubnamespacePhase::Pending), Reason::QuotaChanging));
    assert_eq!(less.status.conditions[0].status, "False");
}

/// Nothing is known for now: what was ready before spec changed says nothing of what it asks for since.
#[test]
fn what_was_ready_with_another_spec_is_not_ready_while_nothing_is_known() {
    let mut status = serde_json::to_value(plan(&ready()).status).unwrap();
    let same = Observation { object: object("4", &json!({}), &status), ..ready() };
    status["observedGeneration"] = json!(0);
    let stale = Some((Reason::Undecodable, "a status above is not understood".to_owned()));
    let observation = Observation { object: object("3", &json!({}), &status), stale, ..ready() };
    assert_eq!(plan(&observation).status.phase, Some(SubnamespacePhase::Pending));
    let same = Observation { stale: observation.stale, ..same };
    assert_eq!(plan(&same).status.phase, Some(SubnamespacePhase::Ready));
}

/// Of Kubernetes, of Coppice, or what the platform protects.
#[test]
fn a_namespace_with_a_name_that_is_protected_is_not_created() {
    let config: CoppiceConfigSpec =
        serde_json::from_value(json!({"protected": {"names": ["*-prod"]}})).unwrap();
    let settings = Arc::new(PlatformSettings::new(config, "coppice-system", Vec::new()));
    for (name, why) in [
        ("default", "it belongs to Kubernetes"),
        ("kube-web", "it belongs to Kubernetes"),
        ("coppice-system", "it is Coppice's own"),
        ("shop-prod", "CoppiceConfig/coppice protects the name \"*-prod\""),
    ] {
        let seen = Observation {
            object: object("4", &json!({"name": name}), &json!({})),
            parent_position: Ok(tree(&json!({"names": ["*"]}))),
            settings: Arc::clone(&settings),
            ..observation()
        };
        refused(&seen, Reason::NamespaceProtected, why);
        refused(&seen, Reason::NamespaceProtected, "create a Subnamespace with another name");
        assert_eq!(plan(&seen).status.phase, Some(SubnamespacePhase::Refused), "{name}");
    }
}

/// Whoever deletes one of them: something keeps the namespace, and what it has may still be in use.
#[test]
fn while_a_namespace_is_terminating_that_is_said_and_its_quota_does_not_return() {
    for seen in [deleted(), ready()] {
        let own = NamespaceFacts::clone(seen.namespace.as_deref().unwrap());
        let namespace = Some(Arc::new(NamespaceFacts { terminating: true, ..own }));
        let has = seen.object.status.allotment.clone();
        let going = plan(&Observation { namespace, ..seen });
        let said = (going.status.phase, why(&going).0);
        assert_eq!(said, (Some(SubnamespacePhase::Deleting), Reason::NamespaceTerminating));
        assert_eq!((going.step, going.status.allotment), (Step::Nothing, has));
    }
}
