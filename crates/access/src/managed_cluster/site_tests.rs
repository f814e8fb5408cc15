use std::sync::{Arc, Mutex};

use coppice_clusters::Urgency;
use coppice_clusters::managed::ManagedStep;
use coppice_clusters_api::ManagedClusterStatus;
use coppice_clusters_api::names::ANNOTATION_AUTHENTICATION;
use coppice_runtime::leader::Gate;
use coppice_scripted::{Answer, Sent, scripted};
use http::Method;

use super::*;
use crate::kinds::{ManagedClusterObject, ManagedClusters};
use crate::managed_cluster::apply::apply;
use crate::managed_cluster::observe::{Memory, look};
use crate::managed_cluster::tests::controller;

/// A project of a garden, which answers like this to who looks at a Shoot, and has the `ConfigMap` of this label; without one none.
fn site(look: Answer, uid: &str) -> (Site, Arc<Mutex<Vec<Sent>>>) {
    let metadata =
        json!({"name": "c", "uid": "c", "resourceVersion": "3", "labels": {LABEL_MANAGED_CLUSTER: uid}});
    let is_without = uid.is_empty();
    let (clients, sent) = scripted(move |method, path, _| match *method {
        Method::GET if path.ends_with("/shoots/shop") => look.clone(),
        Method::GET if is_without => Answer::Refused(404),
        Method::GET => Answer::Object(200, json!({"metadata": metadata})),
        _ => Answer::Object(201, json!({"metadata": {"name": "shop", "uid": "s", "resourceVersion": "1"}})),
    });
    let (namespace, project) = ("garden-of-dev".to_owned(), Some("p".to_owned()));
    (Site { clients, namespace, project, shape: Shape::Shoot, place: None }, sent)
}

fn observed() -> Managed {
    let spec = json!({
        "provider": {"gardener": {
            "clusterProvider": "dev", "cloudProfile": "aws", "credentialsBinding": "b", "infrastructure": "aws"
        }},
        "version": "1.33.4", "oidc": {"issuerURL": "https://id.example.org", "clientID": "c"},
    });
    Managed {
        namespace: "team".to_owned(),
        name: "shop".to_owned(),
        uid: "u".to_owned(),
        generation: 1,
        deleting: false,
        has_finalizer: true,
        spec: serde_json::from_value(spec).unwrap(),
        status: ManagedClusterStatus::default(),
        object_namespace: "garden-of-dev".to_owned(),
        project: Some("p".to_owned()),
        live: LiveFact::Absent,
    }
}

fn requests(sent: &Mutex<Vec<Sent>>) -> Vec<(String, String)> {
    let sent = sent.lock().unwrap();
    let writes = sent.iter().filter(|sent| sent.method != Method::GET);
    writes.map(|sent| (sent.method.to_string(), sent.path.clone())).collect()
}

fn request(method: &str, path: &str) -> (String, String) {
    (method.to_owned(), path.to_owned())
}

const CONFIGURATION: &str = "/api/v1/namespaces/garden-of-dev/configmaps/structured-auth-config-shop";

#[tokio::test(start_paused = true)]
async fn the_configuration_of_a_shoot_is_there_before_it_and_gone_after_it() {
    let permit = Gate::always(Duration::ZERO).permit().unwrap();
    let shoots = "/apis/core.gardener.cloud/v1beta1/namespaces/garden-of-dev/shoots";
    let (without, sent) = site(Answer::Refused(404), "");
    without.create(&permit, &observed(), &json!({"metadata": {"name": "shop"}})).await.unwrap();
    let configurations = "/api/v1/namespaces/garden-of-dev/configmaps";
    assert_eq!(requests(&sent), [request("POST", configurations), request("POST", shoots)]);
    assert_eq!(sent.lock().unwrap()[1].body["metadata"]["labels"][LABEL_MANAGED_CLUSTER], "u");
    let (site, sent) = site(Answer::Refused(404), "u");
    site.create(&permit, &observed(), &json!({"metadata": {"name": "shop"}})).await.unwrap();
    assert_eq!(requests(&sent), [request("PATCH", CONFIGURATION), request("POST", shoots)]);
    assert_eq!(sent.lock().unwrap()[1].body["metadata"]["resourceVersion"], "3");
    sent.lock().unwrap().clear();
    let left = Managed { live: LiveFact::Foreign, ..observed() };
    site.remove_authentication(&permit, &left).await.unwrap();
    assert!(requests(&sent).is_empty(), "a Shoot that is left needs it");
    site.remove_authentication(&permit, &observed()).await.unwrap();
    assert_eq!(requests(&sent), [request("DELETE", CONFIGURATION)]);
}

#[tokio::test(start_paused = true)]
async fn a_configuration_of_somebody_else_stays() {
    let permit = Gate::always(Duration::ZERO).permit().unwrap();
    let (site, sent) = site(Answer::Refused(404), "theirs");
    let refused = site.create(&permit, &observed(), &json!({"metadata": {"name": "shop"}})).await;
    assert!(
        matches!(refused, Err(WriteError::Refused(ref why)) if why.message.contains("structured-auth-config-shop"))
    );
    let live = json!({"metadata": {"uid": "s", "resourceVersion": "1"}});
    let revision = revision_of(&live).unwrap();
    site.change(&permit, &observed(), revision, json!({})).await.unwrap_err();
    site.remove_authentication(&permit, &observed()).await.unwrap();
    assert!(requests(&sent).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_configuration_that_others_have_changed_counts_as_changed_while_its_shoot_is_ready() {
    let ready = serde_json::from_value(json!({"state": "Ready", "observedGeneration": 1})).unwrap();
    let ready = Managed { status: ready, ..observed() };
    let written = shoot::authentication(&ready.spec).unwrap().to_string();
    for (beside, state, is_so) in [
        (Some(written.as_str()), &ready, true),
        (Some("jwt: []"), &ready, false),
        (None, &ready, false),
        (Some("jwt: []"), &observed(), true),
    ] {
        let data = beside.map(|text| json!({"metadata": {"name": "c"}, "data": {"config.yaml": text}}));
        let shoot = json!({"metadata": {
            "name": "shop", "uid": "s", "labels": {LABEL_MANAGED_CLUSTER: "u"}, "annotations": {ANNOTATION_AUTHENTICATION: "x"}
        }});
        let (clients, _) = scripted(move |_, path, _| match &data {
            _ if path.ends_with("/shoots/shop") => Answer::Object(200, shoot.clone()),
            Some(data) => Answer::Object(200, data.clone()),
            None => Answer::Refused(404),
        });
        let (namespace, project) = ("garden-of-dev".to_owned(), Some("p".to_owned()));
        let site = Site { clients, namespace, project, shape: Shape::Shoot, place: None };
        let LiveFact::Made(live) = site.look(state).await.unwrap() else { panic!("it is there") };
        assert_eq!(live["metadata"]["annotations"][ANNOTATION_AUTHENTICATION] == "x", is_so, "{beside:?}");
    }
}

/// A controller on an API server that has it, it, and what that server is asked.
fn stored(
    observed: &Managed,
) -> (Arc<ManagedClusterController>, ManagedClusterObject, Arc<Mutex<Vec<Sent>>>) {
    let deleted_at = observed.deleting.then_some("2026-01-01T00:00:00Z");
    let managed = json!({
        "metadata": {
            "name": "shop", "namespace": "team", "uid": "u", "resourceVersion": "7", "generation": observed.generation,
            "deletionTimestamp": deleted_at, "finalizers": ["coppice.dev/cleanup"]
        },
        "spec": observed.spec
    });
    let answered = managed.clone();
    let (here, sent) = scripted(move |method, _, body| match *method {
        Method::PUT => {
            let mut saved = answered.clone();
            saved["status"] = body["status"].clone();
            Answer::Object(200, saved)
        }
        _ => Answer::Object(201, json!({})),
    });
    let managed = read::decoded::<ManagedClusters>(managed.to_string().as_bytes(), &()).unwrap();
    (controller(here), managed, sent)
}

#[tokio::test(start_paused = true)]
async fn a_write_that_a_garden_refuses_for_too_many_requests_is_tried_again_and_keeps_others_waiting() {
    let permit = Gate::always(Duration::ZERO).permit().unwrap();
    // It does not say for how long to wait.
    for (code, reason, is_throttled) in [(429, "TargetThrottled", true), (403, "ClusterRefused", false)] {
        let (controller, managed, sent) = stored(&observed());
        let clients = scripted(move |_, _, _| Answer::Refused(code)).0;
        let (namespace, project) = ("garden-of-dev".to_owned(), Some("p".to_owned()));
        let site = Site { clients, namespace, project, shape: Shape::Shoot, place: None };
        let live = LiveFact::Made(json!({"metadata": {"uid": "s", "resourceVersion": "1"}}));
        let mut memory = Memory { live, site: Some(site) };
        let _ = apply(&controller, &permit, &managed, &observed(), &mut memory, ManagedStep::Delete).await;
        let saved = sent.lock().unwrap().iter().find(|sent| sent.method == Method::PUT).cloned().unwrap();
        assert_eq!(saved.body["status"]["lastError"]["reason"], reason);
        let (other, now) = (ClusterKey::new("team", "other"), controller.now());
        // The budget is that of the provider, which others use.
        let turn = controller.providers.budgets.take("dev", &other, Urgency::Expiring, 60, now);
        assert_eq!(matches!(turn, Turn::Throttled { .. }), is_throttled, "{turn:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_configuration_that_may_not_be_deleted_keeps_its_managed_cluster_and_is_said() {
    let permit = Gate::always(Duration::ZERO).permit().unwrap();
    let (garden, _) = scripted(|method, _, _| match *method {
        Method::GET => Answer::Object(
            200,
            json!({"metadata": {"name": "c", "uid": "c", "resourceVersion": "3", "labels": {LABEL_MANAGED_CLUSTER: "u"}}}),
        ),
        _ => Answer::Refused(403),
    });
    let observed = Managed { deleting: true, generation: 2, ..observed() };
    let (controller, managed, sent) = stored(&observed);
    let (namespace, project) = ("garden-of-dev".to_owned(), Some("p".to_owned()));
    let site = Site { clients: garden, namespace, project, shape: Shape::Shoot, place: None };
    let mut memory = Memory { live: LiveFact::Absent, site: Some(site) };
    let step = ManagedStep::RemoveFinalizer;
    let _ = apply(&controller, &permit, &managed, &observed, &mut memory, step).await;
    let sent = sent.lock().unwrap().clone();
    let written: Vec<&Sent> = sent.iter().filter(|sent| !sent.path.contains("/events")).collect();
    assert_eq!(written.len(), 1, "{sent:#?}");
    let saved = written[0];
    let error = &saved.body["status"]["lastError"];
    assert_eq!((&saved.method, &error["reason"]), (&Method::PUT, &json!("ClusterRefused")));
    assert!(error["message"].as_str().unwrap().contains("beside the Shoot shop was not deleted"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_shoot_is_gone_where_its_kind_is_served_and_it_is_not_there() {
    let missing = |name: &str| {
        Answer::Object(
            404,
            json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 404, "message": "not found",
                "reason": "NotFound", "details": {"name": name, "group": "core.gardener.cloud", "kind": "shoots"}
            }),
        )
    };
    let (gone, _) = site(missing("shop"), "u");
    assert_eq!(gone.look(&observed()).await.unwrap(), LiveFact::Absent);
    let (unserved, _) = site(missing(""), "u");
    let found = unserved.look(&observed()).await.unwrap();
    assert!(
        matches!(found, LiveFact::Refused(ref failure) if failure.class == FailureClass::Transient),
        "{found:?}"
    );
    let theirs = json!({"metadata": {"name": "shop", "uid": "s"}});
    let (foreign, _) = site(Answer::Object(200, theirs), "u");
    assert_eq!(foreign.look(&observed()).await.unwrap(), LiveFact::Foreign);
}

#[tokio::test(start_paused = true)]
async fn a_shoot_is_not_gone_because_its_provider_has_another_project_or_garden() {
    for (namespace, project, is_elsewhere) in [
        ("garden-of-dev", Some("p"), false),
        ("garden-of-dev", None, false),
        ("garden-of-prod", Some("p"), true),
        ("garden-of-dev", Some("of-another-garden"), true),
    ] {
        let (site, sent) = site(Answer::Refused(404), "u");
        let made =
            json!({"kind": "Shoot", "namespace": namespace, "name": "shop", "uid": "s", "project": project});
        let status = serde_json::from_value(json!({"cluster": made})).unwrap();
        let found = site.look(&Managed { status, ..observed() }).await.unwrap();
        let says = format!("was made in the namespace {namespace}");
        let is_said = matches!(found, LiveFact::Refused(ref failure) if failure.message.contains(&says));
        assert_eq!(is_said, is_elsewhere, "{found:?}");
        let asked = !sent.lock().unwrap().is_empty();
        assert_ne!(asked, is_elsewhere, "nobody is asked about another one of its name");
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_garden_does_not_show_is_said() {
    for (code, class, says) in [
        (403, FailureClass::WaitingForInput, "the garden refuses to show the Shoot shop"),
        (503, FailureClass::Transient, "the garden did not show the Shoot shop"),
    ] {
        let (site, _) = site(Answer::Refused(code), "u");
        let found = site.look(&observed()).await.unwrap();
        assert!(
            matches!(found, LiveFact::Refused(ref failure) if failure.class == class && failure.message.contains(says)),
            "{found:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn the_budget_of_a_provider_waits_while_its_garden_has_too_many_requests_for_one_shoot() {
    for (code, is_throttled) in [(429, true), (503, false)] {
        let controller = controller(scripted(|_, _, _| Answer::Refused(404)).0);
        let (site, _) = site(Answer::Refused(code), "u");
        let mut memory = Memory { live: LiveFact::Unread, site: Some(site) };
        look(&controller, &observed(), &mut memory).await.unwrap();
        let LiveFact::Refused(failure) = &memory.live else { panic!("{:?}", memory.live) };
        assert_eq!(failure.class, FailureClass::Transient);
        let (other, now) = (ClusterKey::new("team", "other"), controller.now());
        let turn = controller.providers.budgets.take("dev", &other, Urgency::Expiring, 60, now);
        assert_eq!(matches!(turn, Turn::Throttled { .. }), is_throttled, "{turn:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_cluster_is_gone_with_its_kind_and_not_with_one_version_of_it() {
    for (group, is_gone) in [
        (Answer::Refused(404), true),
        (Answer::Object(200, json!({"versions": [{"version": "v1beta1"}]})), false),
        (Answer::Refused(503), false),
    ] {
        let (clients, _) =
            scripted(move |_, path, _| if path == CAPI_GROUP { group.clone() } else { Answer::Refused(404) });
        let namespace = "team".to_owned();
        let site = Site { clients, namespace, project: None, shape: Shape::Topology, place: None };
        let found = site.look(&observed()).await.unwrap();
        assert_eq!(matches!(found, LiveFact::Unserved(_)), is_gone, "{found:?}");
        assert!(is_gone || matches!(found, LiveFact::Refused(_)), "{found:?}");
    }
}
