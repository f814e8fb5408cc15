//! What generated requests have found: each row is a request that the server in memory once answered otherwise than the
//! real one, with the real one's answer.
#![allow(clippy::unwrap_used, clippy::too_many_lines, reason = "tables of a test")]

use crate::server_support::Expected::{Has, Says};
use crate::server_support::{Row, TestServer, event_lines, play};
use serde_json::{Value, json};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const MAP: &str = "/api/v1/namespaces/default/configmaps/a";
const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const PODS: &str = "/api/v1/namespaces/default/pods";
const POD: &str = "/api/v1/namespaces/default/pods/a";
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases/a";
const EVENTS: &str = "/apis/events.k8s.io/v1/namespaces/default/events";
const EVENT: &str = "/apis/events.k8s.io/v1/namespaces/default/events/a";
const MANAGERS: &str = "/apis/coppice.dev/v1alpha1/namespaces/default/namespacemanagers";
const MANAGER: &str = "/apis/coppice.dev/v1alpha1/namespaces/default/namespacemanagers/a";
const CONFIG_KEY: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";

fn map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "1"}})
}

fn secret(data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}, "data": data})
}

fn pod() -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"},
        "spec": {"schedulerName": "nobody", "containers": [{"name": "main", "image": "busybox:1"}]}})
}

fn event(kind: &str) -> Value {
    json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "a"}, "reason": "Noted", "type": kind,
        "regarding": {"kind": "ConfigMap", "name": "a", "namespace": "default"}, "action": "Note", "note": "it is noted",
        "eventTime": "2001-02-03T04:05:06.789012Z", "reportingController": "x.io/y", "reportingInstance": "one",
    })
}

fn manager() -> Value {
    let policy = json!({"name": "p", "when": {"ttl": {"after": "1h"}}, "then": {"delete": {}}});
    json!({"apiVersion": "coppice.dev/v1alpha1", "kind": "NamespaceManager", "metadata": {"name": "a"},
        "spec": {"policies": [policy]}})
}

/// A server with our definitions.
fn test_server() -> TestServer {
    let mut test_server = TestServer::new();
    for definition in coppice_api::crds() {
        let uri = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        test_server.must("POST", uri, &serde_json::to_value(definition).unwrap());
    }
    test_server
}

fn check(rows: Vec<Row>) {
    play(&mut test_server(), rows);
}

/// The fields of all causes of a refusal, in order.
fn fields(refused: &Value) -> Vec<&str> {
    let causes = refused["details"]["causes"].as_array().unwrap();
    causes.iter().map(|cause| cause["field"].as_str().unwrap()).collect()
}

fn with(mut object: Value, pointer: &str, value: Value) -> Value {
    let (parent, field) = pointer.rsplit_once('/').unwrap();
    object.pointer_mut(parent).unwrap()[field] = value;
    object
}

#[test]
fn creating() {
    let labelled = with(manager(), "/metadata/labels", json!({"a": 1}));
    let named = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a.b"}});
    check(vec![
        (
            "POST",
            MAPS,
            with(map("a"), "/data", json!({"": "x"})),
            422,
            Has(json!({"details": {"causes": [
            {"field": "data[]", "message": format!("Invalid value: \"\": {CONFIG_KEY}"), "reason": "FieldValueInvalid"}
        ], "kind": "ConfigMap", "name": "a"}})),
        ),
        (
            "POST",
            SECRETS,
            secret(&json!({"a": "no base64!"})),
            400,
            Says(
                "Secret in version \"v1\" cannot be handled as a Secret: illegal base64 data at input byte 2",
            ),
        ),
        ("POST", MAPS, with(map("a"), "/metadata/finalizers", json!(["x.io/held"])), 201, Has(json!({}))),
        ("DELETE", MAP, Value::Null, 200, Has(json!({}))),
        ("POST", MAPS, map("a"), 409, Says("object is being deleted: configmaps \"a\" already exists")),
        (
            "POST",
            "/api/v1/namespaces",
            named,
            422,
            Says(
                "Namespace \"a.b\" is invalid: metadata.name: Invalid value: \"a.b\": must not contain dots",
            ),
        ),
        (
            "POST",
            MANAGERS,
            labelled,
            400,
            Says(
                "NamespaceManager in version \"v1alpha1\" cannot be handled as a NamespaceManager: json: cannot unmarshal number into Go struct field ObjectMeta.labels of type string",
            ),
        ),
        ("POST", MANAGERS, with(manager(), "/metadata/resourceVersion", json!("soon")), 201, Has(json!({}))),
        (
            "POST",
            EVENTS,
            with(event("Normal"), "/metadata/name", json!("A")),
            422,
            Has(json!({
            "details": {"kind": "Event", "name": "A", "group": null}})),
        ),
    ]);
}

#[test]
fn a_name_is_made_only_where_the_object_may_be() {
    let mut test_server = test_server();
    test_server.must("POST", "/api/v1/namespaces", &json!({"metadata": {"name": "n"}}));
    test_server.must("DELETE", "/api/v1/namespaces/n", &Value::Null);
    let unnamed = json!({"metadata": {"generateName": "gen-"}});
    let (code, refused) = test_server.send("POST", "/api/v1/namespaces/n/configmaps", &unnamed);
    assert_eq!((code, &refused["details"]["name"]), (403, &json!("gen-")));
}

#[test]
fn bodies_are_shown_by_their_beginning() {
    check(vec![
        ("POST", MANAGERS, with(manager(), "/kind", json!("")), 400, Has(json!({}))),
        (
            "POST",
            MANAGERS,
            with(manager(), "/apiVersion", json!("")),
            400,
            Says(
                "the API version in the data () does not match the expected API version (coppice.dev/v1alpha1)",
            ),
        ),
    ]);
    let mut test_server = test_server();
    let (_, answer) = test_server.send("POST", MANAGERS, &with(manager(), "/kind", json!("")));
    let message = answer["message"].as_str().unwrap();
    assert!(message.ends_with("({\"apiVersion\":\"coppice.dev/v1a ...)"), "{message}");
}

#[test]
fn updating() {
    let changed = with(map("a"), "/metadata/resourceVersion", json!("0"));
    let uid = json!("00000000-0000-4000-8000-00000000abcd");
    let lease = json!({"metadata": {"name": "a", "resourceVersion": "12"}, "spec": {"holderIdentity": "x"}});
    check(vec![
        ("POST", MAPS, map("a"), 201, Has(json!({}))),
        // As if there were none.
        ("PUT", MAP, changed, 200, Has(json!({}))),
        (
            "PUT",
            LEASE,
            with(lease.clone(), "/metadata/uid", uid),
            409,
            Says(
                "Operation cannot be fulfilled on leases.coordination.k8s.io \"a\": StorageError: invalid object, Code: 4, Key: /registry/leases/default/a, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: 00000000-0000-4000-8000-00000000abcd, UID in object meta: ",
            ),
        ),
        ("PUT", LEASE, lease, 201, Has(json!({"spec": {"holderIdentity": "x"}}))),
        ("POST", SECRETS, secret(&json!({})), 201, Has(json!({"type": "Opaque"}))),
        (
            "PUT",
            "/api/v1/namespaces/default/secrets/a",
            with(secret(&json!({})), "/type", json!("x.io/y")),
            422,
            Says("Secret \"a\" is invalid: type: Invalid value: \"x.io/y\": field is immutable"),
        ),
        ("POST", MANAGERS, manager(), 201, Has(json!({}))),
        (
            "PUT",
            "/apis/coppice.dev/v1alpha1/namespaces/default/namespacemanagers/b",
            with(with(manager(), "/metadata/name", json!("b")), "/kind", json!("Secret")),
            404,
            Says("namespacemanagers.coppice.dev \"b\" not found"),
        ),
        // Defaults are put into a status too.
        (
            "PATCH merge",
            "/apis/coppice.dev/v1alpha1/namespaces/default/namespacemanagers/a/status",
            json!({"status": {"observedGeneration": 1}}),
            200,
            Has(json!({"status": {"firings": 0}})),
        ),
        (
            "PUT",
            "/apis/apps/v1/namespaces/default/deployments/a/scale",
            json!({"metadata": {"name": "a"}, "spec": {"replicas": "many"}}),
            400,
            Says(
                "Scale in version \"v1\" cannot be handled as a Scale: json: cannot unmarshal string into Go struct field ScaleSpec.spec.replicas of type int32",
            ),
        ),
    ]);
}

#[test]
fn what_of_pods_jobs_and_events_may_be_changed() {
    let mut test_server = test_server();
    test_server.must("POST", PODS, &pod());
    let (code, refused) = test_server.send("PUT", POD, &pod());
    assert_eq!(
        (code, &refused["details"]["causes"][0]["field"]),
        (422, &json!("spec")),
        "it says nothing of its account"
    );
    play(
        &mut test_server,
        vec![
            (
                "PATCH strategic",
                POD,
                json!({"spec": {"containers": [{"name": "main", "image": "x"}]}}),
                200,
                Has(json!({})),
            ),
            (
                "PATCH merge",
                POD,
                json!({"spec": {"containers": []}}),
                422,
                Says(
                    "Pod \"a\" is invalid: [spec.containers: Required value, spec.containers: Forbidden: pod updates may not add or remove containers]",
                ),
            ),
            (
                "PATCH merge",
                "/api/v1/namespaces/default/pods/a/status",
                json!({"status": {"conditions": [{"type": "x.io/y", "status": "True"}]}}),
                200,
                Has(json!({"status": {
            "conditions": [{"type": "x.io/y", "status": "True", "lastProbeTime": null, "lastTransitionTime": null}]}})),
            ),
            (
                "PUT",
                "/api/v1/namespaces/default/pods/a/status",
                with(pod(), "/status", json!({"phase": "Failed"})),
                200,
                Has(json!({"status": {"phase": "Failed", "qosClass": "BestEffort"}})),
            ),
            ("POST", EVENTS, event("Normal"), 201, Has(json!({}))),
            (
                "PUT",
                EVENT,
                event("Warning"),
                422,
                Says("Event \"a\" is invalid: type: Invalid value: \"Warning\": field is immutable"),
            ),
            (
                "PUT",
                EVENT,
                with(event("Normal"), "/regarding/name", json!("b")),
                422,
                Says(
                    "Event \"a\" is invalid: involvedObject: Invalid value: {\"Kind\":\"ConfigMap\",\"Namespace\":\"default\",\"Name\":\"b\",\"UID\":\"\",\"APIVersion\":\"\",\"ResourceVersion\":\"\",\"FieldPath\":\"\"}: field is immutable",
                ),
            ),
        ],
    );
    let jobs = "/apis/batch/v1/namespaces/default/jobs";
    let template =
        json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "x"}]}});
    let job = json!({"metadata": {"name": "a"}, "spec": {"suspend": true, "template": template}});
    test_server.must("POST", jobs, &job);
    let (code, refused) = test_server.send("PUT", &format!("{jobs}/a"), &job);
    assert_eq!((code, &refused["details"]["causes"][0]["field"]), (422, &json!("spec.selector")));
    let always = json!({"spec": {"template": {"spec": {"restartPolicy": "Always"}}}});
    let (_, refused) = test_server.send("PATCH strategic", &format!("{jobs}/a"), &always);
    let fields: Vec<&Value> =
        refused["details"]["causes"].as_array().unwrap().iter().map(|cause| &cause["field"]).collect();
    let restart = "spec.template.spec.restartPolicy";
    assert_eq!(fields, [restart, restart, "spec.template.spec"], "it looks twice");
}

#[test]
fn patching() {
    let annotations = json!([{"op": "add", "path": "/metadata/annotations", "value": {"a b": "z"}}]);
    let mut test_server = test_server();
    play(
        &mut test_server,
        vec![
            ("PATCH merge", MAP, json!([]), 404, Says("configmaps \"a\" not found")),
            ("POST", MAPS, map("a"), 201, Has(json!({}))),
            (
                "PATCH strategic",
                MAP,
                json!([{}]),
                400,
                Says("json: cannot unmarshal array into Go value of type map[string]interface {}"),
            ),
            ("PATCH merge", MAP, json!({"data": {"a": 1}}), 422, Has(json!({"reason": "Invalid"}))),
            (
                "PATCH other",
                MANAGER,
                json!({}),
                415,
                Says(
                    "the body of the request was in an unknown format - accepted media types include: application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
                ),
            ),
            (
                "PATCH json",
                MAP,
                json!([
                    {"op": "add", "path": "/metadata/labels", "value": {"a": "b"}},
                    {"op": "replace", "path": "/metadata/labels/c", "value": "d"},
                ]),
                200,
                Has(json!({"metadata": {"labels": {"a": "b", "c": "d"}}})),
            ),
            ("POST", MANAGERS, manager(), 201, Has(json!({}))),
            (
                "PATCH merge",
                "/apis/coppice.dev/v1alpha1/namespaces/default/namespacemanagers/a?fieldValidation=Strict",
                json!({"spec": {"unknown": 1}}),
                422,
                Has(json!({"reason": "Invalid"})),
            ),
        ],
    );
    let (code, refused) = test_server.send("PATCH json", MANAGER, &annotations);
    assert_eq!(
        (code, refused["details"]["causes"].as_array().unwrap().len()),
        (422, 3),
        "it looks three times"
    );
}

#[test]
fn applying() {
    let by = "/api/v1/namespaces/default/configmaps/a?fieldManager=one";
    let managers = "/apis/coppice.dev/v1alpha1/namespaces/default/namespacemanagers/a?fieldManager=one";
    let uid = "00000000-0000-4000-8000-00000000abcd";
    check(vec![
        (
            "PATCH apply",
            by,
            with(map("a"), "/data", json!("text")),
            500,
            Says(
                "failed to create typed patch object (/a; /v1, Kind=ConfigMap): .data: expected map, got &{text}",
            ),
        ),
        (
            "PATCH apply",
            by,
            with(map("a"), "/spec", json!({})),
            500,
            Says(
                "failed to create typed patch object (/a; /v1, Kind=ConfigMap): .spec: field not declared in schema",
            ),
        ),
        (
            "PATCH apply",
            by,
            with(map("a"), "/metadata/uid", json!(uid)),
            409,
            Says(
                "Operation cannot be fulfilled on configmaps \"a\": uid mismatch: the provided object specified uid 00000000-0000-4000-8000-00000000abcd, and no existing object was found",
            ),
        ),
        (
            "PATCH apply",
            by,
            with(map("a"), "/metadata/resourceVersion", json!("soon")),
            500,
            Says("strconv.ParseUint: parsing \"soon\": invalid syntax"),
        ),
        (
            "PATCH apply",
            managers,
            with(manager(), "/metadata/generation", json!("many")),
            500,
            Says(
                "failed to create typed patch object (/a; coppice.dev/v1alpha1, Kind=NamespaceManager): .metadata.generation: expected numeric (int or float), got string",
            ),
        ),
        (
            "PATCH apply",
            managers,
            with(manager(), "/unknownField", json!("x")),
            500,
            Says(
                "failed to create typed patch object (/a; coppice.dev/v1alpha1, Kind=NamespaceManager): .unknownField: field not declared in schema",
            ),
        ),
        (
            "PATCH apply",
            managers,
            with(manager(), "/spec/policies/0/then", json!([{"a": 1}])),
            500,
            Says(
                "failed to create typed patch object (/a; coppice.dev/v1alpha1, Kind=NamespaceManager): .spec.policies[0].then: expected map, got &{[map[a:1]]}",
            ),
        ),
        (
            "PATCH apply",
            managers,
            with(
                manager(),
                "/spec/policies/0/when",
                json!({"podsSucceed": {"selector": {"matchLabels": {"app": 1.5}}}}),
            ),
            500,
            Says(
                "failed to create typed patch object (/a; coppice.dev/v1alpha1, Kind=NamespaceManager): .spec.policies[0].when.podsSucceed.selector.matchLabels.app: expected string, got &value.valueUnstructured{Value:1.5}",
            ),
        ),
        (
            "PATCH apply",
            managers,
            with(manager(), "/spec", Value::Null),
            422,
            Has(json!({"details": {"causes": [
                {"field": "spec", "message": "Invalid value: \"null\": spec in body must be of type object: \"null\"", "reason": "FieldValueTypeInvalid"},
                {"field": "<nil>", "message": "Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation", "reason": "FieldValueInvalid"},
            ]}})),
        ),
        (
            "PATCH apply",
            "/apis/coordination.k8s.io/v1/namespaces/default/leases/a?fieldManager=one",
            json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "a"}}),
            201,
            Has(json!({"spec": {}})),
        ),
    ]);
    let mut test_server = test_server();
    let first = test_server.must("PATCH apply", by, &map("a"));
    let two = "/api/v1/namespaces/default/configmaps/a?fieldManager=two";
    let second = test_server.must("PATCH apply", two, &map("a"));
    assert_ne!(
        first["metadata"]["resourceVersion"], second["metadata"]["resourceVersion"],
        "it has an owner more"
    );
    assert_eq!(test_server.must("PATCH apply", two, &map("a")), second, "and now nothing has changed");
    let other = with(with(map("a"), "/metadata/name", json!("b")), "/data/a", json!("2"));
    assert_eq!(
        test_server.send("PATCH apply", two, &other).0,
        409,
        "who owns fields is looked at before the name"
    );
}

#[test]
fn applying_what_others_own() {
    let by = "/api/v1/namespaces/default/configmaps/a?fieldManager=one";
    let config = "/apis/coppice.dev/v1alpha1/coppiceconfigs/coppice?fieldManager=one";
    let whole = json!({"apiVersion": "coppice.dev/v1alpha1", "kind": "CoppiceConfig", "metadata": {"name": "coppice"},
        "spec": {"governor": {"perHour": 66}}});
    let bare = json!({"apiVersion": "coppice.dev/v1alpha1", "kind": "CoppiceConfig", "metadata": {"name": "coppice"}});
    let other = with(map("a"), "/data/a", json!("2"));
    check(vec![
        ("POST", MAPS, with(map("a"), "/metadata/finalizers", json!(["x.io/held"])), 201, Has(json!({}))),
        // A conflict is the answer before the revision is looked at.
        (
            "PATCH apply",
            by,
            with(other, "/metadata/resourceVersion", json!("soon")),
            409,
            Says("Apply failed with 1 conflict: conflict with \"unknown\" using v1: .data.a"),
        ),
        ("POST", SECRETS, secret(&json!({"a": "eA=="})), 201, Has(json!({}))),
        // So is it before what is no base64.
        (
            "PATCH apply",
            "/api/v1/namespaces/default/secrets/a?fieldManager=one",
            secret(&json!({"a": "no base64!"})),
            409,
            Says("Apply failed with 1 conflict: conflict with \"unknown\" using v1: .data.a"),
        ),
        (
            "PATCH apply",
            "/apis/coppice.dev/v1alpha1/namespaces/default/namespacemanagers/a?fieldManager=one",
            with(manager(), "/spec/policies/0/when", json!({"ttl": {"after": [1]}})),
            422,
            Has(json!({"reason": "Invalid"})),
        ),
        (
            "PATCH apply",
            by,
            with(map("a"), "/metadata/namespace", json!("elsewhere")),
            400,
            Says("the namespace of the provided object does not match the namespace sent on the request"),
        ),
        (
            "PATCH apply",
            "/apis/coordination.k8s.io/v1/namespaces/default/leases/a?fieldManager=one",
            json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                "metadata": {"name": "a", "finalizers": ["plain"]}}),
            201,
            Has(json!({"metadata": {"finalizers": ["plain"]}})),
        ),
        // Each finalizer has owners of its own.
        (
            "PATCH apply",
            by,
            with(map("a"), "/metadata/finalizers", json!(["x.io/more"])),
            200,
            Has(json!({"metadata": {"finalizers": ["x.io/held", "x.io/more"]}})),
        ),
        ("PATCH apply", by, map("a"), 200, Has(json!({"metadata": {"finalizers": ["x.io/held"]}}))),
        ("PATCH apply", config, whole, 201, Has(json!({"spec": {"governor": {"perMinute": 30}}}))),
        // With what was applied goes what it was in, defaults and all.
        ("PATCH apply", config, bare, 422, Has(json!({"reason": "Invalid"}))),
    ]);
}

#[test]
fn deleting() {
    let one = "/apis/batch/v1/namespaces/default/jobs/a";
    let dry = "/api/v1/namespaces/default/configmaps/a?dryRun=All";
    check(vec![
        ("POST", MAPS, map("a"), 201, Has(json!({}))),
        // Beside a body the query counts for nothing.
        ("DELETE", dry, json!({"propagationPolicy": "Background"}), 200, Has(json!({"status": "Success"}))),
        ("GET", MAP, Value::Null, 404, Says("configmaps \"a\" not found")),
        ("POST", EVENTS, event("Normal"), 201, Has(json!({}))),
        ("DELETE", EVENT, json!({"propagationPolicy": "Foreground"}), 200, Has(json!({"status": "Success"}))),
    ]);
    let mut test_server = test_server();
    test_server.must("POST", EVENTS, &event("Normal"));
    let gone = test_server.must("DELETE", EVENTS, &Value::Null);
    assert_eq!(gone["items"][0]["regarding"]["name"], "a", "in the form that was asked for");
    let request = coppice_sim::server::Request::delete(one);
    let refused = test_server.server.handle(test_server.now, "alice", &request).done().unwrap();
    assert_eq!((refused.code, refused.warnings.len()), (404, 1), "it warns also of what is not there");
}

#[test]
fn events_of_the_old_group_are_hardly_validated() {
    let old = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "Not_A_Name", "finalizers": ["plain"]},
        "involvedObject": {"kind": "ConfigMap", "name": "a", "namespace": "default"}, "reason": "Noted", "type": "Normal"});
    check(vec![
        ("POST", "/api/v1/namespaces/default/events", old.clone(), 201, Has(json!({}))),
        (
            "POST",
            EVENTS,
            old,
            400,
            Says(
                "the API version in the data (v1) does not match the expected API version (events.k8s.io/v1)",
            ),
        ),
    ]);
    let mut test_server = test_server();
    for name in ["a", "b"] {
        test_server.must("POST", EVENTS, &with(event("Normal"), "/metadata/name", json!(name)));
    }
    let page = test_server.must("GET", &format!("{EVENTS}?limit=1"), &Value::Null);
    let token = page["metadata"]["continue"].as_str().unwrap();
    let token = base64::Engine::decode(&base64::engine::general_purpose::URL_SAFE_NO_PAD, token).unwrap();
    let token: Value = serde_json::from_slice(&token).unwrap();
    assert_eq!(token["start"], "a\0", "they are not read from a cache");
}

#[test]
fn a_dry_run_shows_the_revision_that_it_was_given() {
    let mut test_server = test_server();
    let given = with(secret(&json!({})), "/metadata/resourceVersion", json!("soon"));
    let shown = test_server.must("POST", &format!("{SECRETS}?dryRun=All"), &given);
    assert_eq!(shown["metadata"]["resourceVersion"], "soon");
}

#[test]
fn pages_end_where_the_namespace_ends() {
    let mut test_server = test_server();
    let labelled = |name: &str| with(map(name), "/metadata/labels", json!({"x": "y"}));
    test_server.must("POST", MAPS, &labelled("a"));
    test_server.must("POST", MAPS, &map("b"));
    let page = test_server.must("GET", &format!("{MAPS}?labelSelector=x&limit=1"), &Value::Null);
    let token = page["metadata"]["continue"].as_str().expect("nobody has looked whether more is selected");
    let rest =
        test_server.must("GET", &format!("{MAPS}?labelSelector=x&limit=1&continue={token}"), &Value::Null);
    assert_eq!((&rest["items"], &rest["metadata"]["continue"]), (&json!([]), &Value::Null));
    let (_, answer) = test_server.send("GET", &format!("{MAPS}?continue=nonsense"), &Value::Null);
    assert_eq!(
        answer["message"],
        "invalid continue token: continue key is not valid: invalid character '\\u009e' looking for beginning of value"
    );
}

#[test]
fn bookmarks_have_what_their_types_print() {
    let mut test_server = test_server();
    let query =
        "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut watch = test_server.watch(&format!("{EVENTS}?{query}"));
    let bookmark = test_server.events(&mut watch).pop().unwrap();
    assert_eq!(
        (&bookmark.object["regarding"], &bookmark.object["deprecatedSource"]),
        (&json!({}), &json!({}))
    );
    let mut watch = test_server.watch(&format!("{PODS}?{query}"));
    let bookmark = test_server.events(&mut watch).pop().unwrap();
    assert_eq!(bookmark.object["spec"], json!({"containers": null}));
}

#[test]
fn controllers() {
    let mut test_server = test_server();
    test_server.must("POST", PODS, &pod());
    let quota = json!({"metadata": {"name": "q"}});
    test_server.must("POST", "/api/v1/namespaces/default/resourcequotas", &quota);
    let template =
        json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "x"}]}});
    let spec = json!({"replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": template});
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    test_server.must("POST", deployments, &json!({"metadata": {"name": "d"}, "spec": spec}));
    test_server.pass(5);
    let pod = test_server.must("GET", POD, &Value::Null);
    assert_eq!(pod["spec"]["nodeName"], Value::Null, "another scheduler's pods are left alone");
    let quota = test_server.must("GET", "/api/v1/namespaces/default/resourcequotas/q", &Value::Null);
    assert_eq!((&quota["spec"], &quota["status"]), (&json!({}), &json!({})));
    let deployment = test_server.must("GET", &format!("{deployments}/d"), &Value::Null);
    assert_eq!(deployment["status"]["terminatingReplicas"], 0);
    let without = json!({"metadata": {"annotations": null}});
    test_server.must("PATCH merge", &format!("{deployments}/d"), &without);
    test_server.pass(5);
    let deployment = test_server.must("GET", &format!("{deployments}/d"), &Value::Null);
    let annotations = json!({"deployment.kubernetes.io/revision": "1"});
    assert_eq!(deployment["metadata"]["annotations"], annotations, "its controller notes the revision again");
    for image in ["y", "x"] {
        let containers = json!([{"name": "c", "image": image}]);
        let patch = json!({"spec": {"template": {"spec": {"containers": containers}}}});
        test_server.must("PATCH strategic", &format!("{deployments}/d"), &patch);
        test_server.pass(5);
    }
    let deployment = test_server.must("GET", &format!("{deployments}/d"), &Value::Null);
    let many = json!({"spec": {"replicas": "many"}});
    assert_eq!(test_server.send("PATCH merge", &format!("{deployments}/d/scale"), &many).0, 422);
    let annotations = json!({"deployment.kubernetes.io/revision": "3"});
    assert_eq!(deployment["metadata"]["annotations"], annotations, "going back is a revision, too");
}

#[test]
fn what_has_no_name_is_called_unknown_where_nothing_can_be_made() {
    let mut test_server = test_server();
    test_server.must("POST", "/api/v1/namespaces", &json!({"metadata": {"name": "n"}}));
    test_server.must("DELETE", "/api/v1/namespaces/n", &Value::Null);
    let (code, refused) =
        test_server.send("POST", "/api/v1/namespaces/n/configmaps", &json!({"metadata": {}}));
    assert_eq!((code, &refused["details"]["name"]), (403, &json!("Unknown")));
}

#[test]
fn rules_are_not_evaluated_for_what_has_no_name() {
    let twice = json!([manager()["spec"]["policies"][0], manager()["spec"]["policies"][0]]);
    let unnamed = with(with(manager(), "/metadata", json!({})), "/spec/policies", twice);
    let (code, refused) = test_server().send("POST", MANAGERS, &unnamed);
    let causes: Vec<_> =
        refused["details"]["causes"].as_array().unwrap().iter().map(|c| &c["field"]).collect();
    assert_eq!(
        (code, causes.as_slice()),
        (422, [&json!("metadata.name"), &json!("<nil>")].as_slice()),
        "{refused:#}"
    );
}

#[test]
fn a_patch_that_is_none_is_refused_in_other_words_where_unknown_fields_do_not_matter() {
    let mut test_server = test_server();
    test_server.must("POST", MAPS, &map("a"));
    for (method, body, why, ignoring) in [
        (
            "PATCH json",
            json!({}),
            "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp",
            "json: cannot unmarshal object into Go value of type jsonpatch.Patch",
        ),
        (
            "PATCH merge",
            json!("text"),
            "error decoding patch: json: cannot unmarshal string into Go value of type map[string]interface {}",
            "Invalid JSON Patch",
        ),
    ] {
        for (query, why) in [("", why), ("?fieldValidation=Ignore", ignoring)] {
            let (code, refused) = test_server.send(method, &format!("{MAP}{query}"), &body);
            assert_eq!((code, refused["message"].as_str()), (400, Some(why)), "{method} {query}");
        }
    }
}

#[test]
fn whole_numbers_are_shown_as_such() {
    let text = with(manager(), "/spec/rearm", json!(7.0));
    assert_eq!(text["spec"]["rearm"].to_string(), "7.0");
    let made = test_server().must("POST", MANAGERS, &text);
    assert_eq!(made["spec"]["rearm"].to_string(), "7");
}

#[test]
fn the_labels_of_a_changed_job_are_validated_before_and_between_its_spec() {
    let mut test_server = test_server();
    let pods =
        json!({"spec": {"containers": [{"name": "main", "image": "busybox:1"}], "restartPolicy": "Never"}});
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a"},
        "spec": {"template": pods, "parallelism": 1}});
    test_server.must("POST", "/apis/batch/v1/namespaces/default/jobs", &job);
    let wrong = json!({"metadata": {"labels": {"a": "no label!"}}, "spec": {"parallelism": -1}});
    let (code, refused) = test_server.send("PATCH merge", "/apis/batch/v1/namespaces/default/jobs/a", &wrong);
    let (labels, spec) = ("metadata.labels", "spec.parallelism");
    assert_eq!((code, fields(&refused)), (422, vec![labels, labels, labels, spec, labels, spec]));
}

#[test]
fn a_list_of_events_at_any_revision_has_pages_and_others_have_none() {
    let mut test_server = test_server();
    for name in ["a", "b"] {
        test_server.must("POST", MAPS, &map(name));
        test_server.must("POST", EVENTS, &with(event("Normal"), "/metadata/name", json!(name)));
    }
    for (uri, expected) in [(EVENTS, 1), (MAPS, 2)] {
        let list = test_server.must("GET", &format!("{uri}?limit=1&resourceVersion=0"), &Value::Null);
        assert_eq!(list["items"].as_array().unwrap().len(), expected, "{list:#}");
        assert_eq!(list["metadata"]["continue"].is_string(), expected == 1, "{list:#}");
    }
}

#[test]
fn a_removal_event_has_the_object_stored_before_it() {
    let mut test_server = test_server();
    let held = with(map("a"), "/metadata/finalizers", json!(["x.io/held"]));
    let made = test_server.must("POST", MAPS, &held);
    test_server.must("DELETE", MAP, &Value::Null);
    let shown =
        test_server.must("PATCH merge", MAP, &json!({"metadata": {"finalizers": null}, "data": {"a": "2"}}));
    assert_eq!((&shown["metadata"]["finalizers"], &shown["data"]["a"]), (&Value::Null, &json!("2")));
    let from = made["metadata"]["resourceVersion"].as_str().unwrap();
    let mut watch = test_server.watch(&format!("{MAPS}?watch=true&resourceVersion={from}"));
    let events = test_server.events(&mut watch);
    assert_eq!(event_lines(&events), ["MODIFIED a", "DELETED a"]);
    let last = &events[1].object;
    assert_eq!((&last["metadata"]["finalizers"], &last["data"]["a"]), (&json!(["x.io/held"]), &json!("1")));
}

#[test]
fn an_event_has_the_namespace_of_what_it_is_about() {
    let older = "/api/v1/namespaces/other/events";
    let mut test_server = test_server();
    test_server.must("POST", "/api/v1/namespaces", &json!({"metadata": {"name": "other"}}));
    // The older group looks at nothing else while this is wrong, not even at the name.
    let (code, refused) = test_server.send("POST", older, &json!({}));
    let cause = json!([{"field": "involvedObject.namespace", "reason": "FieldValueInvalid",
        "message": "Invalid value: \"\": does not match event.namespace"}]);
    assert_eq!((code, &refused["details"]["causes"]), (422, &cause));
    let (code, refused) = test_server.send("POST", older, &json!({"involvedObject": {"namespace": "other"}}));
    assert_eq!((code, &refused["details"]["causes"][0]["field"]), (422, &json!("metadata.name")));
    let new = "/apis/events.k8s.io/v1/namespaces/other/events";
    let of_cluster = with(event("Normal"), "/regarding", json!({"kind": "Namespace", "name": "other"}));
    assert_eq!(test_server.send("POST", new, &of_cluster).0, 422);
    test_server.must("POST", EVENTS, &of_cluster);
}

#[test]
fn what_the_newer_group_wants_of_an_event() {
    const TOO_LONG: &str = "Invalid value: \"\": can have at most 128 characters";
    const NO_NAME: &str = "Invalid value: \"\": name part must be non-empty";
    let long = json!("x".repeat(129));
    for (field, value, event_lines) in [
        ("reportingInstance", json!(""), vec![("reportingInstance", "Required value")]),
        ("reportingInstance", long.clone(), vec![("reportingInstance", TOO_LONG)]),
        ("action", Value::Null, vec![("action", "Required value")]),
        ("action", long.clone(), vec![("action", TOO_LONG)]),
        ("reason", json!(""), vec![("reason", "Required value")]),
        ("reason", long, vec![("reason", TOO_LONG)]),
        (
            "note",
            json!("x".repeat(1025)),
            vec![("message", "Invalid value: \"\": can have at most 1024 characters")],
        ),
        ("type", json!("Loud"), vec![("type", "Invalid value: \"\": has invalid value: Loud")]),
        ("deprecatedCount", json!(3), vec![("count", "Invalid value: \"\": needs to be unset")]),
        (
            "series",
            json!({"count": 1}),
            vec![
                ("series.count", "Invalid value: \"\": should be at least 2"),
                ("series.lastObservedTime", "Required value"),
            ],
        ),
        (
            "reportingController",
            Value::Null,
            vec![("reportingController", "Required value"), ("reportingController", NO_NAME)],
        ),
        ("eventTime", Value::Null, vec![("eventTime", "Required value")]),
    ] {
        let (code, refused) =
            test_server().send("POST", EVENTS, &with(event("Normal"), &format!("/{field}"), value));
        let causes = refused["details"]["causes"].as_array().unwrap();
        let text = |cause: &Value, field: &str| cause[field].as_str().unwrap().to_owned();
        let found: Vec<_> = causes.iter().map(|c| (text(c, "field"), text(c, "message"))).collect();
        let found: Vec<_> = found.iter().map(|(field, why)| (field.as_str(), why.as_str())).collect();
        assert_eq!(
            (code, &found[..event_lines.len()]),
            (422, event_lines.as_slice()),
            "{field}: {refused:#}"
        );
    }
}

#[test]
fn what_the_newer_group_lets_nobody_change_of_an_event() {
    let mut test_server = test_server();
    let made = test_server.must("POST", EVENTS, &event("Normal"));
    let mut changed = made.clone();
    changed["reason"] = json!("Changed");
    changed["related"] = json!({"kind": "Pod", "name": "x"});
    let (code, refused) = test_server.send("PUT", EVENT, &changed);
    assert_eq!((code, fields(&refused)), (422, vec!["reason", "reason", "related"]), "{refused:#}");
}

#[test]
fn applying_what_is_not_there_and_applying_nothing() {
    let mut test_server = test_server();
    let config = "/apis/coppice.dev/v1alpha1/coppiceconfigs/coppice?fieldManager=one";
    let given = json!({"apiVersion": "coppice.dev/v1alpha1", "kind": "CoppiceConfig",
        "metadata": {"name": "coppice", "resourceVersion": "1"}, "spec": {"governor": {"perHour": 7.0}}});
    let made = test_server.must("PATCH apply", config, &given);
    assert_eq!(made["spec"]["governor"]["perHour"].to_string(), "7", "whole numbers are shown as such");
    assert_ne!(made["metadata"]["resourceVersion"], "1", "the revision of what is not there does not matter");
    let nothing = json!({"apiVersion": "coppice.dev/v1alpha1", "kind": "CoppiceConfig", "metadata": {"name": "coppice"},
        "spec": {"governor": null}});
    let made = test_server.must("PATCH apply", &config.replace("one", "two"), &nothing);
    assert_eq!(made["spec"]["governor"]["perHour"], 7, "null is merged into what another one has applied");
}

#[test]
fn a_job_that_loses_its_labels_has_those_of_its_pods() {
    let mut test_server = test_server();
    let pods =
        json!({"spec": {"containers": [{"name": "main", "image": "busybox:1"}], "restartPolicy": "Never"}});
    let job = json!({"metadata": {"name": "a", "labels": {"a": "b"}}, "spec": {"template": pods}});
    test_server.must("POST", "/apis/batch/v1/namespaces/default/jobs", &job);
    let uri = "/apis/batch/v1/namespaces/default/jobs/a";
    let changed = test_server.must("PATCH merge", uri, &json!({"metadata": {"labels": null}}));
    assert_eq!(changed["metadata"]["labels"], changed["spec"]["template"]["metadata"]["labels"]);
    assert_eq!(changed["metadata"]["labels"]["job-name"], "a");
}

#[test]
fn the_last_time_of_a_series_is_always_shown() {
    let core = "/api/v1/namespaces/default/events";
    let made = test_server().must("POST", core, &json!({"metadata": {"name": "e"}, "series": {"count": 1}}));
    assert_eq!(made["series"], json!({"count": 1, "lastObservedTime": null}));
}

#[test]
fn an_applied_container_without_a_name_is_another_one() {
    let mut test_server = test_server();
    test_server.must("POST", PODS, &pod());
    let unnamed = with(pod(), "/spec/containers", json!([{"image": "x"}]));
    let (code, refused) =
        test_server.send("PATCH apply", &format!("{POD}?fieldManager=one&force=true"), &unnamed);
    assert_eq!(
        (code, fields(&refused)),
        (422, vec!["spec.containers[1].name", "spec.containers"]),
        "{refused:#}"
    );
}

#[test]
fn empty_texts_of_an_event_are_left_out() {
    let core = "/api/v1/namespaces/default/events";
    let made =
        test_server().must("POST", core, &json!({"metadata": {"name": "e"}, "action": "", "reason": ""}));
    assert_eq!((&made["action"], &made["reason"]), (&Value::Null, &Value::Null));
}

#[test]
fn a_new_job_without_labels_has_those_of_its_pods_with_what_is_added_to_them() {
    let pods = json!({"metadata": {"labels": {"app": "x"}},
        "spec": {"containers": [{"name": "main", "image": "busybox:1"}], "restartPolicy": "Never"}});
    let job = json!({"metadata": {"name": "a"}, "spec": {"template": pods}});
    let made = test_server().must("POST", "/apis/batch/v1/namespaces/default/jobs", &job);
    let labels = made["metadata"]["labels"].as_object().unwrap();
    assert_eq!((labels.len(), &labels["app"], &labels["job-name"]), (5, &json!("x"), &json!("a")));
}

#[test]
fn patches_that_are_null_or_a_list() {
    let mut test_server = test_server();
    test_server.must("POST", MAPS, &map("a"));
    for (method, query, body, code) in [
        ("PATCH merge", "", "null", 400),
        ("PATCH merge", "", "{\"a\"", 400),
        ("PATCH merge", "?fieldValidation=Ignore", "[]", 422),
        ("PATCH json", "", "null", 200),
        ("PATCH strategic", "", "null", 200),
    ] {
        let (given, answer) = test_server.ask_raw(method, &format!("{MAP}{query}"), body);
        assert_eq!(given, code, "{method} {body}: {answer:#}");
    }
}

#[test]
fn an_element_that_is_applied_again_without_its_defaults_is_the_same() {
    let mut test_server = test_server();
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"},
        "spec": {"selector": {"a": "b"}, "ports": [{"port": 80}]}});
    for _ in 0..2 {
        let uri = "/api/v1/namespaces/default/services/s?fieldManager=one";
        let applied = test_server.must("PATCH apply", uri, &service);
        assert_eq!(applied["spec"]["ports"].as_array().unwrap().len(), 1, "{applied:#}");
    }
}

#[test]
fn the_status_of_a_pod_is_not_validated_as_a_new_pod() {
    let mut test_server = test_server();
    test_server.must("POST", PODS, &pod());
    let wrong = json!({"metadata": {"labels": {"a b": "c"}}});
    let causes = |test_server: &mut TestServer, uri: &str| {
        let (code, refused) = test_server.send("PATCH merge", uri, &wrong);
        (code, refused["details"]["causes"].as_array().map_or(0, Vec::len))
    };
    assert_eq!(causes(&mut test_server, POD), (422, 4));
    assert_eq!(causes(&mut test_server, &format!("{POD}/status")), (422, 3));
}
