//! What clients need besides objects: discovery, reviews, call-outs.
#![allow(clippy::unwrap_used, reason = "test code")]

use std::sync::Arc;

use crate::server_support::{TestServer, widget_definition};
use coppice_sim::server::{Admission, AdmissionDenied, Operation, Request, Review};
use serde_json::{Value, json};

#[test]
fn groups_and_resources_are_listed_in_both_forms() {
    let mut test_server = TestServer::new();
    test_server.must("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &widget_definition());
    let groups = test_server.must("GET", "/apis", &Value::Null);
    let widgets = groups["groups"].as_array().unwrap().iter().find(|g| g["name"] == "x.io").unwrap();
    assert_eq!(widgets["preferredVersion"], json!({"groupVersion": "x.io/v1", "version": "v1"}));
    let resources = test_server.must("GET", "/apis/x.io/v1", &Value::Null);
    let names: Vec<&str> =
        resources["resources"].as_array().unwrap().iter().map(|r| r["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["widgets", "widgets/status", "widgets/scale"]);
    let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
    let answer = test_server
        .server
        .handle(test_server.now, "alice", &Request::get("/apis").accept(accept))
        .done()
        .unwrap();
    assert_eq!(
        answer.body.content_type(),
        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    );
    let list = answer.body.to_value();
    let group = list["items"].as_array().unwrap().iter().find(|g| g["metadata"]["name"] == "x.io").unwrap();
    let resource = &group["versions"][0]["resources"][0];
    assert_eq!(
        (&resource["resource"], &resource["shortNames"], &resource["scope"]),
        (&json!("widgets"), &json!(["wd"]), &json!("Namespaced"))
    );
    assert_eq!(test_server.send("GET", "/apis/nope/v1", &Value::Null), (404, json!("404 page not found\n")));
    assert_eq!(test_server.must("GET", "/version", &Value::Null)["gitVersion"], "v1.36.3");
}

#[test]
fn everybody_may_do_everything() {
    let mut test_server = TestServer::new();
    let review = json!({"spec": {"resourceAttributes": {"verb": "delete", "resource": "namespaces"}}});
    let uri = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    assert_eq!(test_server.must("POST", uri, &review)["status"], json!({"allowed": true}));
    let who = test_server.must("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", &json!({}));
    assert_eq!(who["status"]["userInfo"]["username"], "alice");
}

/// Refuses to delete what has the label `keep`.
#[derive(Debug)]
struct DenyDelete;

impl Admission for DenyDelete {
    fn review(&self, review: &Review<'_>) -> Result<(), AdmissionDenied> {
        let kept = review.old.is_some_and(|old| old["metadata"]["labels"]["keep"] == "yes");
        if review.operation == Operation::Delete && kept {
            return Err(AdmissionDenied::by_policy("keeper", "all", "Forbidden", "it is kept"));
        }
        if review.operation == Operation::Create && review.name == "bad" {
            return Err(AdmissionDenied::by_policy("keeper", "all", "Invalid", "no bad ones"));
        }
        Ok(())
    }
}

#[test]
fn call_outs_refuse_writes_in_the_words_of_a_policy() {
    let mut test_server = TestServer::new();
    test_server.server.admit(Arc::new(DenyDelete));
    let namespaces = "/api/v1/namespaces";
    test_server.must("POST", namespaces, &json!({"metadata": {"name": "n", "labels": {"keep": "yes"}}}));
    let (code, refused) = test_server.send("DELETE", "/api/v1/namespaces/n", &Value::Null);
    let message = "ValidatingAdmissionPolicy 'keeper' with binding 'all' denied request: it is kept";
    assert_eq!((code, &refused["reason"]), (403, &json!("Forbidden")));
    assert_eq!(refused["message"], format!("namespaces \"n\" is forbidden: {message}"));
    let (code, refused) = test_server.send(
        "POST",
        "/api/v1/namespaces/default/configmaps",
        &json!({"metadata": {"name": "bad"}}),
    );
    let message = "ValidatingAdmissionPolicy 'keeper' with binding 'all' denied request: no bad ones";
    assert_eq!((code, &refused["reason"], &refused["code"]), (422, &json!("Invalid"), &json!(422)));
    assert_eq!(refused["message"], format!("configmaps \"bad\" is forbidden: {message}"));
    assert_eq!(
        refused["details"],
        json!({"name": "bad", "kind": "configmaps", "causes": [{"message": message}]})
    );
    let (code, _) = test_server.send("GET", "/api/v1/namespaces/default/configmaps/bad", &Value::Null);
    assert_eq!(code, 404);
}

#[test]
fn what_a_webhook_is_asked_is_the_write_as_it_would_be_and_changes_nothing() {
    let mut test_server = TestServer::new();
    let configmaps = "/api/v1/namespaces/default/configmaps";
    let map = |data: Value| json!({"metadata": {"name": "one"}, "data": data});
    let asked = |server: &TestServer, request: &Request| {
        let write = server.server.pending_write(server.now, "alice", request)?;
        Some(write.to_admission_review("u")["request"].clone())
    };
    let create = Request::post(configmaps, &map(json!({"a": "b"})));
    let before = test_server.server.revision();
    let review = asked(&test_server, &create).unwrap();
    assert_eq!(test_server.server.revision(), before);
    assert_eq!(review["operation"], "CREATE");
    assert_eq!((&review["namespace"], &review["name"]), (&json!("default"), &json!("one")));
    assert_eq!(review["resource"], json!({"group": "", "version": "v1", "resource": "configmaps"}));
    assert_eq!((&review["oldObject"], &review["dryRun"]), (&Value::Null, &json!(false)));
    assert_eq!(
        (&review["object"]["kind"], &review["object"]["data"]),
        (&json!("ConfigMap"), &json!({"a": "b"}))
    );
    assert_eq!(review["userInfo"]["username"], "alice");
    test_server.must("POST", configmaps, &map(json!({"a": "b"})));
    let path = format!("{configmaps}/one?dryRun=All");
    let change = Request::patch(&path, "application/merge-patch+json", &json!({"data": {"a": "c"}}));
    let review = asked(&test_server, &change).unwrap();
    assert_eq!((&review["operation"], &review["dryRun"]), (&json!("UPDATE"), &json!(true)));
    assert_eq!([&review["oldObject"]["data"]["a"], &review["object"]["data"]["a"]], ["b", "c"]);
    // Nobody asks about what fails anyway.
    let gone = Request::patch(&format!("{configmaps}/two"), "application/merge-patch+json", &json!({}));
    assert_eq!(asked(&test_server, &gone), None);
}

#[test]
fn a_pod_is_evicted_unless_a_budget_forbids_it() {
    let mut test_server = TestServer::new();
    let pods = "/api/v1/namespaces/default/pods";
    let pod = json!({"metadata": {"name": "p", "labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "x"}]}});
    test_server.must("POST", pods, &pod);
    let budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    let budget = json!({"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"a": "b"}}}});
    test_server.must("POST", budgets, &budget);
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}});
    let (code, refused) = test_server.send("POST", &format!("{pods}/p/eviction"), &eviction);
    assert_eq!(
        (code, &refused["message"]),
        (429, &json!("Cannot evict pod as it would violate the pod's disruption budget."))
    );
    test_server.must("DELETE", &format!("{budgets}/b"), &Value::Null);
    assert_eq!(test_server.send("POST", &format!("{pods}/p/eviction"), &eviction).0, 201);
    assert_eq!(test_server.send("GET", &format!("{pods}/p"), &Value::Null).0, 404);
}
