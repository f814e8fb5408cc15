//! Requests and the answers that a real API server gives to them.
#![allow(clippy::too_many_lines, reason = "tables")]

use crate::server_support::Expected::{Has, Says};
use crate::server_support::{TestServer, play};
use serde_json::{Value, json};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
}

#[test]
fn creating_answers_as_the_real_server() {
    let mut test_server = TestServer::new();
    play(
        &mut test_server,
        vec![
            (
                "POST",
                "/api/v1/namespaces/nope/configmaps",
                map("a"),
                404,
                Says("namespaces \"nope\" not found"),
            ),
            (
                "POST",
                MAPS,
                json!({"apiVersion": "v1", "kind": "ConfigMap"}),
                422,
                Says(
                    "ConfigMap \"\" is invalid: metadata.name: Required value: name or generateName is required",
                ),
            ),
            (
                "POST",
                MAPS,
                json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}}),
                400,
                Says(
                    "Secret in version \"v1\" cannot be handled as a ConfigMap: converting (v1.Secret) to (core.ConfigMap): unknown conversion",
                ),
            ),
            (
                "POST",
                MAPS,
                json!({"apiVersion": "v2", "kind": "ConfigMap", "metadata": {"name": "a"}}),
                400,
                Says(
                    "ConfigMap in version \"v2\" cannot be handled as a ConfigMap: no kind \"ConfigMap\" is registered for version \"v2\" in scheme \"pkg/runtime/scheme.go:111\"",
                ),
            ),
            (
                "POST",
                MAPS,
                json!({"metadata": {"name": "a"}}),
                201,
                Has(json!({"kind": "ConfigMap", "apiVersion": "v1"})),
            ),
            ("POST", MAPS, map("a"), 409, Says("configmaps \"a\" already exists")),
            (
                "POST",
                MAPS,
                json!({"metadata": {"name": "b", "namespace": "other"}}),
                400,
                Says("the namespace of the provided object does not match the namespace sent on the request"),
            ),
            (
                "POST",
                MAPS,
                json!({"metadata": {"name": "b", "resourceVersion": "5"}}),
                500,
                Says("resourceVersion should not be set on objects to be created"),
            ),
            (
                "POST",
                "/api/v1/namespaces/default/configmaps?fieldValidation=Strict",
                json!({"metadata": {"name": "b", "x": 1}}),
                400,
                Says(
                    "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: unknown field \"metadata.x\"",
                ),
            ),
            (
                "POST",
                "/api/v1/namespaces/default/configmaps?fieldValidation=Foo",
                map("b"),
                422,
                Says(
                    "CreateOptions.meta.k8s.io \"\" is invalid: fieldValidation: Unsupported value: \"Foo\": supported values: \"\", \"Ignore\", \"Strict\", \"Warn\"",
                ),
            ),
            (
                "POST",
                "/api/v1/namespaces/default/configmaps?dryRun=foo",
                map("b"),
                422,
                Says(
                    "CreateOptions.meta.k8s.io \"\" is invalid: dryRun: Unsupported value: [\"foo\"]: supported values: \"All\"",
                ),
            ),
            (
                "POST",
                "/api/v1/namespaces/default/configmaps?dryRun=All",
                map("dry"),
                201,
                Has(json!({"metadata": {"name": "dry", "resourceVersion": null}})),
            ),
            (
                "GET",
                "/api/v1/namespaces/default/configmaps/dry",
                Value::Null,
                404,
                Says("configmaps \"dry\" not found"),
            ),
            (
                "POST",
                "/api/v1/namespaces/default/configmaps/foo",
                map("foo"),
                405,
                Says("the server does not allow this method on the requested resource"),
            ),
            (
                "DELETE",
                "/api/v1/namespaces",
                Value::Null,
                405,
                Says("the server does not allow this method on the requested resource"),
            ),
            (
                "GET",
                "/api/v1/foos",
                Value::Null,
                404,
                Says("the server could not find the requested resource"),
            ),
        ],
    );
}

#[test]
fn a_name_that_is_none_is_explained() {
    let mut test_server = TestServer::new();
    let (code, answer) = test_server.send(
        "POST",
        MAPS,
        &json!({"metadata": {"name": "A_b", "labels": {"a b": "c", "ok": "-x"}}}),
    );
    assert_eq!(code, 422);
    let causes: Vec<&str> = answer["details"]["causes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| c["field"].as_str().unwrap())
        .collect();
    assert_eq!(causes, ["metadata.name", "metadata.labels", "metadata.labels"]);
    assert_eq!(
        answer["message"],
        "ConfigMap \"A_b\" is invalid: [metadata.name: Invalid value: \"A_b\": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*'), metadata.labels: Invalid value: \"a b\": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]'), metadata.labels: Invalid value: \"-x\": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')]"
    );
}

#[test]
fn updating_answers_as_the_real_server() {
    let mut test_server = TestServer::new();
    test_server.must("POST", MAPS, &map("a"));
    let uid =
        test_server.must("GET", "/api/v1/namespaces/default/configmaps/a", &Value::Null)["metadata"]["uid"]
            .clone();
    let one = "/api/v1/namespaces/default/configmaps/a";
    play(
        &mut test_server,
        vec![
            (
                "PUT",
                one,
                map("b"),
                400,
                Says("the name of the object (b) does not match the name on the URL (a)"),
            ),
            (
                "PUT",
                one,
                json!({"metadata": {}}),
                400,
                Says("the name of the object (a based on URL) was undeterminable: name must be provided"),
            ),
            (
                "PUT",
                "/api/v1/namespaces/default/configmaps/b",
                map("b"),
                404,
                Says("configmaps \"b\" not found"),
            ),
            (
                "PUT",
                one,
                json!({"metadata": {"name": "a", "resourceVersion": "1"}}),
                409,
                Says(
                    "Operation cannot be fulfilled on configmaps \"a\": the object has been modified; please apply your changes to the latest version and try again",
                ),
            ),
            (
                "PUT",
                one,
                json!({"metadata": {"name": "a", "resourceVersion": "abc"}}),
                500,
                Says("strconv.ParseUint: parsing \"abc\": invalid syntax"),
            ),
            (
                "PUT",
                one,
                json!({"metadata": {"name": "a"}, "data": {"x": "y"}}),
                200,
                Has(json!({"data": {"x": "y"}})),
            ),
            (
                "PATCH merge",
                one,
                json!({"data": {"q": "w"}}),
                200,
                Has(json!({"data": {"x": "y", "q": "w"}})),
            ),
            (
                "PATCH merge",
                one,
                json!({"data": {"q": null}}),
                200,
                Has(json!({"data": {"x": "y", "q": null}})),
            ),
            (
                "PATCH merge",
                one,
                json!({"metadata": {"resourceVersion": "1"}}),
                409,
                Says(
                    "Operation cannot be fulfilled on configmaps \"a\": the object has been modified; please apply your changes to the latest version and try again",
                ),
            ),
            (
                "PATCH merge",
                one,
                json!({"metadata": {"name": "o"}}),
                400,
                Says("the name of the object (o) does not match the name on the URL (a)"),
            ),
            (
                "PATCH merge",
                one,
                json!({"metadata": {"uid": "o"}}),
                422,
                Says("ConfigMap \"a\" is invalid: metadata.uid: Invalid value: \"o\": field is immutable"),
            ),
            (
                "PATCH json",
                one,
                json!([{"op": "test", "path": "/data/x", "value": "n"}]),
                422,
                Says("the server rejected our request due to an error in our request"),
            ),
            (
                "PATCH json",
                one,
                json!({"a": 1}),
                400,
                Says(
                    "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp",
                ),
            ),
            (
                "PATCH json",
                one,
                json!([{"op": "add", "path": "/data/z", "value": "1"}]),
                200,
                Has(json!({"data": {"x": "y", "z": "1"}})),
            ),
            ("PATCH none", one, json!({}), 415, Says("415: Unsupported Media Type")),
            (
                "PATCH merge",
                "/api/v1/namespaces/default/configmaps/b",
                json!({}),
                404,
                Says("configmaps \"b\" not found"),
            ),
        ],
    );
    let (code, answer) = test_server.send("PUT", one, &json!({"metadata": {"name": "a", "uid": "abc"}}));
    assert_eq!(code, 409);
    let message = format!(
        "Operation cannot be fulfilled on configmaps \"a\": StorageError: invalid object, Code: 4, Key: /registry/configmaps/default/a, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: abc, UID in object meta: {}",
        uid.as_str().unwrap()
    );
    assert_eq!(answer["message"], message);
}

#[test]
fn an_update_that_changes_nothing_makes_no_revision() {
    let mut test_server = TestServer::new();
    let made = test_server.must("POST", MAPS, &json!({"metadata": {"name": "a"}, "data": {"x": "y"}}));
    let before = test_server.server.revision();
    let again = test_server.must(
        "PATCH merge",
        "/api/v1/namespaces/default/configmaps/a",
        &json!({"data": {"x": "y"}}),
    );
    assert_eq!(again, made);
    assert_eq!(test_server.server.revision(), before);
}

#[test]
fn leases_are_made_by_put_and_updated_only_at_their_revision() {
    let mut test_server = TestServer::new();
    let one = "/apis/coordination.k8s.io/v1/namespaces/default/leases/l";
    let lease = |revision: Value, holder: &str| json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l", "resourceVersion": revision}, "spec": {"holderIdentity": holder}});
    let (code, made) = test_server.send("PUT", one, &lease(Value::Null, "a"));
    assert_eq!((code, &made["spec"]["holderIdentity"]), (201, &json!("a")));
    play(
        &mut test_server,
        vec![
            (
                "PUT",
                one,
                lease(Value::Null, "b"),
                422,
                Says(
                    "leases.coordination.k8s.io \"l\" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update",
                ),
            ),
            (
                "PUT",
                one,
                lease(json!("1"), "b"),
                409,
                Says(
                    "Operation cannot be fulfilled on leases.coordination.k8s.io \"l\": the object has been modified; please apply your changes to the latest version and try again",
                ),
            ),
            (
                "PUT",
                one,
                json!({"metadata": {"name": "l", "resourceVersion": made["metadata"]["resourceVersion"]}, "spec": {"leaseDurationSeconds": 0, "leaseTransitions": -1}}),
                422,
                Says(
                    "Lease.coordination.k8s.io \"l\" is invalid: [spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0, spec.leaseTransitions: Invalid value: -1: must be greater than or equal to 0]",
                ),
            ),
            (
                "PUT",
                one,
                lease(made["metadata"]["resourceVersion"].clone(), "b"),
                200,
                Has(json!({"spec": {"holderIdentity": "b"}})),
            ),
        ],
    );
}

#[test]
fn deleting_answers_as_the_real_server() {
    let mut test_server = TestServer::new();
    let made = test_server.must("POST", MAPS, &map("a"));
    let (uid, revision) =
        (made["metadata"]["uid"].as_str().unwrap(), made["metadata"]["resourceVersion"].as_str().unwrap());
    let one = "/api/v1/namespaces/default/configmaps/a";
    for (preconditions, message) in [
        (
            json!({"uid": "abc"}),
            format!(
                "Operation cannot be fulfilled on ConfigMap \"a\": the UID in the precondition (abc) does not match the UID in record ({uid}). The object might have been deleted and then recreated"
            ),
        ),
        (
            json!({"resourceVersion": "1"}),
            format!(
                "Operation cannot be fulfilled on ConfigMap \"a\": the ResourceVersion in the precondition (1) does not match the ResourceVersion in record ({revision}). The object might have been modified"
            ),
        ),
    ] {
        let (code, answer) = test_server.send("DELETE", one, &json!({"preconditions": preconditions}));
        assert_eq!((code, &answer["message"], &answer["reason"]), (409, &json!(message), &json!("Conflict")));
        assert_eq!(answer["details"], json!({"name": "a", "kind": "ConfigMap"}));
    }
    play(
        &mut test_server,
        vec![
            (
                "DELETE",
                "/api/v1/namespaces/default/configmaps/a?propagationPolicy=Foo",
                Value::Null,
                422,
                Says(
                    "DeleteOptions.meta.k8s.io \"\" is invalid: propagationPolicy: Unsupported value: \"Foo\": supported values: \"Foreground\", \"Background\", \"Orphan\", \"nil\"",
                ),
            ),
            (
                "DELETE",
                "/api/v1/namespaces/default/configmaps/a?dryRun=All",
                Value::Null,
                200,
                Has(json!({"status": "Success"})),
            ),
            (
                "DELETE",
                one,
                Value::Null,
                200,
                Has(json!({"status": "Success", "details": {"name": "a", "kind": "configmaps", "uid": uid}})),
            ),
            ("DELETE", one, Value::Null, 404, Says("configmaps \"a\" not found")),
            (
                "DELETE",
                "/api/v1/namespaces/default",
                Value::Null,
                403,
                Says("namespaces \"default\" is forbidden: this namespace may not be deleted"),
            ),
        ],
    );
}

#[test]
fn finalizers_hold_an_object_until_they_are_gone() {
    let mut test_server = TestServer::new();
    test_server.must("POST", MAPS, &json!({"metadata": {"name": "f", "finalizers": ["x.io/y"]}}));
    let one = "/api/v1/namespaces/default/configmaps/f";
    let deleted = test_server.must("DELETE", one, &Value::Null);
    assert_eq!(deleted["metadata"]["deletionGracePeriodSeconds"], 0);
    assert!(deleted["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(test_server.must("DELETE", one, &Value::Null), deleted, "a second deletion changes nothing");
    play(
        &mut test_server,
        vec![
            (
                "PATCH merge",
                one,
                json!({"metadata": {"finalizers": ["x.io/y", "a.b/c"]}}),
                422,
                Says(
                    "ConfigMap \"f\" is invalid: metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{\"a.b/c\"}",
                ),
            ),
            (
                "PATCH merge",
                one,
                json!({"metadata": {"finalizers": null}}),
                200,
                Has(json!({"metadata": {"finalizers": null}})),
            ),
            ("GET", one, Value::Null, 404, Says("configmaps \"f\" not found")),
        ],
    );
}
