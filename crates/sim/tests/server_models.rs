//! What the controllers of Kubernetes do, as far as it can be seen.
#![allow(clippy::unwrap_used, reason = "test code")]

use crate::server_support;

use crate::server_support::TestServer;
use serde_json::{Value, json};

fn namespace(test_server: &mut TestServer, name: &str) {
    test_server.must("POST", "/api/v1/namespaces", &json!({"metadata": {"name": name}}));
    test_server.pass(1);
}

fn pod_template(outcome: &str, labels: &Value) -> Value {
    let mut labels = labels.clone();
    labels["plane.coppice.dev/outcome"] = outcome.into();
    json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "x"}]}})
}

fn items(test_server: &mut TestServer, uri: &str) -> Vec<Value> {
    test_server.must("GET", uri, &Value::Null)["items"].as_array().unwrap().clone()
}

fn condition<'a>(object: &'a Value, name: &str) -> &'a Value {
    object["status"]["conditions"]
        .as_array()
        .unwrap()
        .iter()
        .find(|c| c["type"] == name)
        .unwrap_or(&Value::Null)
}

#[test]
fn a_new_namespace_gets_its_account_and_certificates() {
    let mut test_server = TestServer::new();
    namespace(&mut test_server, "n");
    test_server.must("GET", "/api/v1/namespaces/n/serviceaccounts/default", &Value::Null);
    test_server.must("DELETE", "/api/v1/namespaces/n/configmaps/kube-root-ca.crt", &Value::Null);
    test_server.pass(1);
    test_server.must("GET", "/api/v1/namespaces/n/configmaps/kube-root-ca.crt", &Value::Null);
}

#[test]
fn a_deleted_namespace_is_emptied_and_then_gone() {
    let mut test_server = TestServer::new();
    namespace(&mut test_server, "n");
    test_server.must("POST", "/api/v1/namespaces/n/configmaps", &json!({"metadata": {"name": "c"}}));
    let deleted = test_server.must("DELETE", "/api/v1/namespaces/n", &Value::Null);
    assert_eq!(
        (&deleted["status"]["phase"], &deleted["spec"]["finalizers"]),
        (&json!("Terminating"), &json!(["kubernetes"]))
    );
    let (code, refused) =
        test_server.send("POST", "/api/v1/namespaces/n/configmaps", &json!({"metadata": {"name": "z"}}));
    assert_eq!(
        (code, &refused["message"]),
        (
            403,
            &json!(
                "configmaps \"z\" is forbidden: unable to create new content in namespace n because it is being terminated"
            )
        )
    );
    assert_eq!(
        refused["details"]["causes"],
        json!([{"reason": "NamespaceTerminating", "message": "namespace n is being terminated", "field": "metadata.namespace"}])
    );
    test_server.pass(4);
    test_server.must("GET", "/api/v1/namespaces/n/configmaps/c", &Value::Null);
    test_server.pass(2);
    let (code, _) = test_server.send("GET", "/api/v1/namespaces/n", &Value::Null);
    assert_eq!(code, 404);
    assert!(items(&mut test_server, "/api/v1/configmaps?fieldSelector=metadata.namespace=n").is_empty());
    let last = test_server.server.changes_since(0).last().unwrap();
    assert_eq!(
        (&*last.user, last.subresource, last.name()),
        ("system:serviceaccount:kube-system:namespace-controller", "finalize", "n")
    );
}

#[test]
fn contents_with_finalizers_hold_their_namespace() {
    let mut test_server = TestServer::new();
    namespace(&mut test_server, "n");
    test_server.must(
        "POST",
        "/api/v1/namespaces/n/configmaps",
        &json!({"metadata": {"name": "c", "finalizers": ["x.io/y"]}}),
    );
    test_server.must("DELETE", "/api/v1/namespaces/n", &Value::Null);
    test_server.pass(30);
    let stuck = test_server.must("GET", "/api/v1/namespaces/n", &Value::Null);
    assert_eq!(
        condition(&stuck, "NamespaceContentRemaining")["message"],
        "Some resources are remaining: configmaps. has 1 resource instances"
    );
    assert_eq!(
        condition(&stuck, "NamespaceFinalizersRemaining")["message"],
        "Some content in the namespace has finalizers remaining: x.io/y in 1 resource instances"
    );
    assert_eq!(condition(&stuck, "NamespaceDeletionContentFailure")["status"], "False");
    test_server.must(
        "PATCH merge",
        "/api/v1/namespaces/n/configmaps/c",
        &json!({"metadata": {"finalizers": null}}),
    );
    test_server.pass(9);
    assert_eq!(test_server.send("GET", "/api/v1/namespaces/n", &Value::Null).0, 404);
}

#[test]
fn pods_follow_their_labels() {
    let mut test_server = TestServer::new();
    namespace(&mut test_server, "n");
    let outcomes = [
        "run",
        "succeed",
        "fail",
        "crashloop",
        "oomkilled",
        "imagepull",
        "configerror",
        "createerror",
        "pending",
    ];
    for outcome in outcomes {
        let mut pod = pod_template(outcome, &json!({}));
        pod["metadata"]["name"] = outcome.into();
        pod["metadata"]["annotations"] = json!({"plane.coppice.dev/delay": "10s"});
        test_server.must("POST", "/api/v1/namespaces/n/pods", &pod);
    }
    let phases = |test_server: &mut TestServer| -> Vec<String> {
        let shown = |p: &Value| {
            let waits =
                p["status"]["containerStatuses"][0]["state"]["waiting"]["reason"].as_str().unwrap_or("");
            let last = &p["status"]["containerStatuses"][0]["lastState"]["terminated"]["reason"];
            format!(
                "{} {} {waits}{}",
                p["metadata"]["name"].as_str().unwrap(),
                p["status"]["phase"].as_str().unwrap(),
                last.as_str().map_or_else(String::new, |last| format!(" after {last}"))
            )
        };
        items(test_server, "/api/v1/namespaces/n/pods").iter().map(shown).collect()
    };
    test_server.pass(9);
    assert_eq!(
        phases(&mut test_server),
        [
            "configerror Pending ",
            "crashloop Running ",
            "createerror Pending ",
            "fail Running ",
            "imagepull Pending ",
            "oomkilled Running ",
            "pending Pending ContainerCreating",
            "run Pending ",
            "succeed Running "
        ]
    );
    test_server.pass(2);
    assert_eq!(
        phases(&mut test_server),
        [
            "configerror Pending CreateContainerConfigError",
            "crashloop Running CrashLoopBackOff after Error",
            "createerror Pending CreateContainerError",
            "fail Failed ",
            "imagepull Pending ImagePullBackOff",
            "oomkilled Running CrashLoopBackOff after OOMKilled",
            "pending Pending ContainerCreating",
            "run Running ",
            "succeed Succeeded "
        ]
    );
    test_server.must("DELETE", "/api/v1/namespaces/n/pods/run", &Value::Null);
    test_server.pass(1);
    assert_eq!(test_server.send("GET", "/api/v1/namespaces/n/pods/run", &Value::Null).0, 404);
}

#[test]
fn a_deployment_has_its_pods_and_takes_them_along() {
    let mut test_server = TestServer::new();
    namespace(&mut test_server, "n");
    let deployments = "/apis/apps/v1/namespaces/n/deployments";
    let template = pod_template("run", &json!({"a": "b"}));
    let spec = json!({"replicas": 3, "selector": {"matchLabels": {"a": "b"}}, "template": template});
    test_server.must("POST", deployments, &json!({"metadata": {"name": "d"}, "spec": spec}));
    test_server.pass(2);
    let up = test_server.must("GET", &format!("{deployments}/d"), &Value::Null);
    assert_eq!(
        (&up["status"]["readyReplicas"], &condition(&up, "Available")["status"]),
        (&json!(3), &json!("True"))
    );
    test_server.must("PATCH merge", &format!("{deployments}/d/scale"), &json!({"spec": {"replicas": 0}}));
    test_server.pass(2);
    assert!(items(&mut test_server, "/api/v1/namespaces/n/pods").is_empty());
    let down = test_server.must("GET", &format!("{deployments}/d"), &Value::Null);
    assert_eq!(
        (&down["metadata"]["generation"], &down["status"]["observedGeneration"], &down["status"]["replicas"]),
        (&json!(2), &json!(2), &Value::Null)
    );
    test_server.must("PATCH merge", &format!("{deployments}/d/scale"), &json!({"spec": {"replicas": 2}}));
    test_server.pass(2);
    assert_eq!(items(&mut test_server, "/api/v1/namespaces/n/pods").len(), 2);
    test_server.must("DELETE", &format!("{deployments}/d?propagationPolicy=Foreground"), &Value::Null);
    test_server.pass(2);
    assert!(items(&mut test_server, "/api/v1/namespaces/n/pods").is_empty());
    assert_eq!(test_server.send("GET", &format!("{deployments}/d"), &Value::Null).0, 404);
}

#[test]
fn a_new_template_replaces_the_pods() {
    let mut test_server = TestServer::new();
    namespace(&mut test_server, "n");
    let deployments = "/apis/apps/v1/namespaces/n/deployments";
    let spec =
        json!({"selector": {"matchLabels": {"a": "b"}}, "template": pod_template("run", &json!({"a": "b"}))});
    test_server.must("POST", deployments, &json!({"metadata": {"name": "d"}, "spec": spec}));
    test_server.pass(2);
    let patch = json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "y"}]}}}});
    test_server.must("PATCH strategic", &format!("{deployments}/d"), &patch);
    test_server.pass(2);
    let pods = items(&mut test_server, "/api/v1/namespaces/n/pods");
    assert_eq!(pods.len(), 1);
    assert_eq!(
        (&pods[0]["spec"]["containers"][0]["image"], &pods[0]["spec"]["containers"][0]["name"]),
        (&json!("y"), &json!("c"))
    );
}

#[test]
fn a_stateful_set_makes_its_pods_in_order() {
    let mut test_server = TestServer::new();
    namespace(&mut test_server, "n");
    let sets = "/apis/apps/v1/namespaces/n/statefulsets";
    let spec = json!({"replicas": 2, "selector": {"matchLabels": {"a": "s"}}, "template": pod_template("run", &json!({"a": "s"}))});
    test_server.must("POST", sets, &json!({"metadata": {"name": "s"}, "spec": spec}));
    test_server.pass(2);
    let set = test_server.must("GET", &format!("{sets}/s"), &Value::Null);
    assert_eq!(set["status"]["readyReplicas"], 2);
    let created: Vec<String> = test_server
        .server
        .changes_since(0)
        .iter()
        .filter(|c| c.kind.plural == "pods" && (c.before.is_none() || c.subresource == "status"))
        .map(|c| format!("{} {}", c.verb.as_str(), c.name()))
        .collect();
    assert_eq!(created, ["create s-0", "update s-0", "create s-1", "update s-1"]);
    test_server.must("PATCH merge", &format!("{sets}/s/scale"), &json!({"spec": {"replicas": 0}}));
    test_server.pass(2);
    assert!(items(&mut test_server, "/api/v1/namespaces/n/pods").is_empty());
}

fn job(outcome: &str, spec: &Value) -> Value {
    let mut template = pod_template(outcome, &json!({}));
    template["spec"]["restartPolicy"] = "Never".into();
    let mut job = json!({"metadata": {"name": "j"}, "spec": spec});
    job["spec"]["template"] = template;
    job
}

#[test]
fn a_job_completes_when_enough_pods_have_succeeded() {
    let mut test_server = TestServer::new();
    namespace(&mut test_server, "n");
    let jobs = "/apis/batch/v1/namespaces/n/jobs";
    test_server.must("POST", jobs, &job("succeed", &json!({"completions": 3, "parallelism": 2})));
    test_server.pass(5);
    let done = test_server.must("GET", &format!("{jobs}/j"), &Value::Null);
    assert_eq!((&done["status"]["succeeded"], &done["status"]["active"]), (&json!(3), &Value::Null));
    for name in ["SuccessCriteriaMet", "Complete"] {
        assert_eq!(condition(&done, name)["reason"], "CompletionsReached");
        assert_eq!(condition(&done, name)["message"], "Reached expected number of succeeded pods");
    }
    assert!(
        items(&mut test_server, "/api/v1/namespaces/n/pods")
            .iter()
            .all(|p| p["metadata"]["finalizers"].is_null())
    );
    let deleted = test_server.must("DELETE", &format!("{jobs}/j"), &Value::Null);
    assert_eq!(deleted["metadata"]["finalizers"], json!(["orphan"]), "by default the pods of a Job stay");
    test_server.pass(1);
    assert_eq!(test_server.send("GET", &format!("{jobs}/j"), &Value::Null).0, 404);
    let pods = items(&mut test_server, "/api/v1/namespaces/n/pods");
    assert_eq!(pods.len(), 3);
    assert!(pods.iter().all(|p| p["metadata"]["ownerReferences"].is_null()));
}

#[test]
fn a_job_fails_when_too_many_pods_have_failed() {
    let mut test_server = TestServer::new();
    namespace(&mut test_server, "n");
    let jobs = "/apis/batch/v1/namespaces/n/jobs";
    test_server.must("POST", jobs, &job("fail", &json!({"backoffLimit": 1})));
    test_server.pass(5);
    let going = test_server.must("GET", &format!("{jobs}/j"), &Value::Null);
    assert_eq!((&going["status"]["failed"], &going["status"]["conditions"]), (&json!(1), &Value::Null));
    test_server.pass(10);
    let failed = test_server.must("GET", &format!("{jobs}/j"), &Value::Null);
    assert_eq!(failed["status"]["failed"], 2);
    assert_eq!(
        (&condition(&failed, "Failed")["reason"], &condition(&failed, "Failed")["message"]),
        (&json!("BackoffLimitExceeded"), &json!("Job has reached the specified backoff limit"))
    );
}

#[test]
fn a_suspended_job_has_no_pods() {
    let mut test_server = TestServer::new();
    namespace(&mut test_server, "n");
    let jobs = "/apis/batch/v1/namespaces/n/jobs";
    test_server.must("POST", jobs, &job("run", &json!({})));
    test_server.pass(2);
    test_server.must("PATCH merge", &format!("{jobs}/j"), &json!({"spec": {"suspend": true}}));
    test_server.pass(2);
    assert!(items(&mut test_server, "/api/v1/namespaces/n/pods").is_empty());
    let suspended = test_server.must("GET", &format!("{jobs}/j"), &Value::Null);
    assert_eq!(condition(&suspended, "Suspended")["status"], "True");
    test_server.must("PATCH merge", &format!("{jobs}/j"), &json!({"spec": {"suspend": false}}));
    test_server.pass(2);
    assert_eq!(items(&mut test_server, "/api/v1/namespaces/n/pods").len(), 1);
}

fn owned(owner: &Value, kind: &str, name: &str) -> Value {
    let reference = json!([{"apiVersion": "v1", "kind": kind, "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]}]);
    json!({"metadata": {"name": name, "ownerReferences": reference}})
}

#[test]
fn dependents_go_with_the_last_of_their_owners() {
    let mut test_server = TestServer::new();
    let maps = "/api/v1/namespaces/default/configmaps";
    let first = test_server.must("POST", maps, &json!({"metadata": {"name": "first"}}));
    let second = test_server.must("POST", maps, &json!({"metadata": {"name": "second"}}));
    let mut both = owned(&first, "ConfigMap", "both");
    let other = owned(&second, "ConfigMap", "both")["metadata"]["ownerReferences"][0].clone();
    both["metadata"]["ownerReferences"].as_array_mut().unwrap().push(other);
    test_server.must("POST", maps, &both);
    test_server.must("DELETE", &format!("{maps}/first"), &Value::Null);
    test_server.pass(1);
    let left = test_server.must("GET", &format!("{maps}/both"), &Value::Null);
    assert_eq!(left["metadata"]["ownerReferences"].as_array().unwrap().len(), 1);
    test_server.must("DELETE", &format!("{maps}/second"), &Value::Null);
    test_server.pass(1);
    assert_eq!(test_server.send("GET", &format!("{maps}/both"), &Value::Null).0, 404);
}

#[test]
fn an_owner_in_another_namespace_counts_as_absent() {
    let mut test_server = TestServer::new();
    let owner = test_server.must(
        "POST",
        "/api/v1/namespaces/default/configmaps",
        &json!({"metadata": {"name": "o"}}),
    );
    test_server.must("POST", "/api/v1/namespaces/kube-system/configmaps", &owned(&owner, "ConfigMap", "d"));
    test_server.pass(1);
    assert_eq!(test_server.send("GET", "/api/v1/namespaces/kube-system/configmaps/d", &Value::Null).0, 404);
}

#[test]
fn a_definition_takes_its_objects_along() {
    let mut test_server = TestServer::new();
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    test_server.must("POST", definitions, &server_support::widget_definition());
    let one =
        json!({"apiVersion": "x.io/v1", "kind": "Widget", "metadata": {"name": "a"}, "spec": {"size": 1}});
    test_server.must("POST", "/apis/x.io/v1/namespaces/default/widgets", &one);
    let made = test_server.must("GET", &format!("{definitions}/widgets.x.io"), &Value::Null);
    assert_eq!(condition(&made, "Established")["status"], "True");
    test_server.must("DELETE", &format!("{definitions}/widgets.x.io"), &Value::Null);
    test_server.pass(1);
    assert_eq!(test_server.send("GET", &format!("{definitions}/widgets.x.io"), &Value::Null).0, 404);
    assert_eq!(test_server.send("GET", "/apis/x.io/v1/namespaces/default/widgets", &Value::Null).0, 404);
    test_server.must("POST", definitions, &server_support::widget_definition());
    assert!(items(&mut test_server, "/apis/x.io/v1/namespaces/default/widgets").is_empty());
}

#[test]
fn nothing_is_due_in_a_cluster_that_has_settled() {
    let mut test_server = TestServer::new();
    namespace(&mut test_server, "n");
    let template = pod_template("run", &json!({"a": "b"}));
    let spec = json!({"replicas": 2, "selector": {"matchLabels": {"a": "b"}}, "template": template});
    test_server.must(
        "POST",
        "/apis/apps/v1/namespaces/n/deployments",
        &json!({"metadata": {"name": "d"}, "spec": spec}),
    );
    test_server.pass(5);
    let revision = test_server.server.revision();
    test_server.pass(3600);
    assert_eq!(
        (test_server.models.pending(&test_server.server, test_server.now), test_server.server.revision()),
        (None, revision)
    );
}

/// A pod of one container.
fn pod_with(name: &str, resources: &Value) -> Value {
    let container = json!({"name": "c", "image": "x", "resources": resources});
    json!({"metadata": {"name": name}, "spec": {"containers": [container]}})
}

#[test]
fn a_quota_counts_what_is_used_in_its_namespace() {
    const PODS: &str = "/api/v1/namespaces/n/pods";
    const QUOTA: &str = "/api/v1/namespaces/n/resourcequotas/q";
    let mut test_server = TestServer::new();
    namespace(&mut test_server, "n");
    let quotas = "/api/v1/namespaces/n/resourcequotas";
    let hard = json!({"pods": "5", "count/configmaps": "9", "requests.cpu": "1"});
    test_server.must("POST", quotas, &json!({"metadata": {"name": "q"}, "spec": {"hard": hard}}));
    let used =
        |test_server: &mut TestServer| test_server.must("GET", QUOTA, &Value::Null)["status"]["used"].clone();
    let half = json!({"requests": {"cpu": "500m"}});
    // Nothing is in force before the controller has counted.
    test_server.must("POST", PODS, &pod_with("early", &json!({})));
    test_server.must("DELETE", &format!("{PODS}/early"), &Value::Null);
    test_server.pass(1);
    assert_eq!(used(&mut test_server), json!({"pods": "0", "count/configmaps": "1", "requests.cpu": "0"}));
    test_server.must("POST", PODS, &pod_with("one", &half));
    let admitted = json!({"pods": "1", "count/configmaps": "1", "requests.cpu": "500m"});
    assert_eq!(used(&mut test_server), admitted, "before the controller counts again");
    for (resources, refusal) in [
        (json!({}), "failed quota: q: must specify requests.cpu for: c"),
        (
            json!({"limits": {"cpu": "600m"}}),
            "exceeded quota: q, requested: requests.cpu=600m, used: requests.cpu=500m, limited: requests.cpu=1",
        ),
    ] {
        let (code, answer) = test_server.send("POST", PODS, &pod_with("two", &resources));
        let message = format!("pods \"two\" is forbidden: {refusal}");
        assert_eq!((code, answer["message"].as_str()), (403, Some(message.as_str())));
    }
    test_server.must("POST", &format!("{PODS}?dryRun=All"), &pod_with("two", &half));
    assert_eq!(used(&mut test_server), admitted, "a dry run reserves nothing");
    // What is used already stays, also under a lower limit.
    test_server.must("PATCH merge", QUOTA, &json!({"spec": {"hard": {"requests.cpu": "250m"}}}));
    test_server.must("POST", PODS, &pod_with("two", &half));
    test_server.pass(1);
    assert_eq!(used(&mut test_server), json!({"pods": "2", "count/configmaps": "1", "requests.cpu": "1"}));
    test_server.must("DELETE", &format!("{PODS}/one"), &Value::Null);
    test_server.pass(1);
    assert_eq!(used(&mut test_server), admitted);
}
