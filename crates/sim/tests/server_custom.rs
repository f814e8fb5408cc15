//! Custom resources: what a real API server answers about them.
#![allow(clippy::unwrap_used, clippy::too_many_lines, reason = "tables of a test")]

use crate::server_support::Expected::{Has, Says};
use crate::server_support::{TestServer, play, widget_definition};
use serde_json::{Value, json};

#[test]
fn custom_resources_answer_as_the_real_server() {
    let mut test_server = TestServer::new();
    test_server.must("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &widget_definition());
    let all = "/apis/x.io/v1/namespaces/default/widgets";
    let one = "/apis/x.io/v1/namespaces/default/widgets/a";
    let widget = |spec: Value| json!({"apiVersion": "x.io/v1", "kind": "Widget", "metadata": {"name": "a"}, "spec": spec});
    play(
        &mut test_server,
        vec![
            (
                "POST",
                all,
                json!({"apiVersion": "x.io/v1", "kind": "Foo", "metadata": {"name": "a"}}),
                422,
                Says("Foo.x.io \"a\" is invalid: kind: Invalid value: \"Foo\": must be Widget"),
            ),
            (
                "POST",
                all,
                json!({"apiVersion": "x.io/v2", "kind": "Widget", "metadata": {"name": "a"}}),
                400,
                Says(
                    "the API version in the data (x.io/v2) does not match the expected API version (x.io/v1)",
                ),
            ),
            (
                "POST",
                all,
                widget(json!({"size": 0})),
                422,
                Says(
                    "Widget.x.io \"a\" is invalid: spec.size: Invalid value: 0: spec.size in body should be greater than or equal to 1",
                ),
            ),
            (
                "POST",
                all,
                widget(json!({"size": 2, "bar": 1})),
                201,
                Has(json!({"spec": {"size": 2, "color": "red", "bar": null}, "metadata": {"generation": 1}})),
            ),
            (
                "POST",
                "/apis/x.io/v1/namespaces/default/widgets?fieldValidation=Strict",
                json!({"apiVersion": "x.io/v1", "kind": "Widget", "metadata": {"name": "b", "foo": 1}, "spec": {"size": 2, "bar": 1}, "zap": 2}),
                400,
                Says(
                    "Widget in version \"v1\" cannot be handled as a Widget: strict decoding error: unknown field \"metadata.foo\", unknown field \"spec.bar\", unknown field \"zap\"",
                ),
            ),
            (
                "PUT",
                one,
                widget(json!({"size": 3})),
                422,
                Says(
                    "widgets.x.io \"a\" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update",
                ),
            ),
            (
                "PATCH merge",
                one,
                json!({"spec": {"size": 4}, "status": {"n": 5}}),
                200,
                Has(json!({"spec": {"size": 4}, "status": null, "metadata": {"generation": 2}})),
            ),
            (
                "PATCH merge",
                "/apis/x.io/v1/namespaces/default/widgets/a/status",
                json!({"spec": {"size": 5}, "status": {"n": 5}, "metadata": {"labels": {"a": "b"}}}),
                200,
                Has(
                    json!({"spec": {"size": 4}, "status": {"n": 5}, "metadata": {"generation": 2, "labels": null}}),
                ),
            ),
            (
                "PATCH merge",
                one,
                json!({"spec": {"size": "x"}}),
                422,
                Says(
                    "Widget.x.io \"a\" is invalid: spec.size: Invalid value: \"string\": spec.size in body must be of type integer: \"string\"",
                ),
            ),
            (
                "PATCH strategic",
                one,
                json!({"spec": {"size": 4}}),
                415,
                Says(
                    "the body of the request was in an unknown format - accepted media types include: application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
                ),
            ),
            (
                "GET",
                "/apis/x.io/v1/namespaces/default/widgets/a/scale",
                Value::Null,
                500,
                Says("Internal error occurred: the spec replicas field \".spec.replicas\" does not exist"),
            ),
            (
                "PATCH merge",
                "/apis/x.io/v1/namespaces/default/widgets/a/scale",
                json!({"spec": {"replicas": 3}}),
                200,
                Has(json!({"kind": "Scale", "spec": {"replicas": 3}, "status": {"replicas": 0}})),
            ),
            (
                "GET",
                "/apis/x.io/v1/namespaces/default/widgets/a/foo",
                Value::Null,
                404,
                Says("widgets.x.io \"a\" not found"),
            ),
            (
                "GET",
                "/apis/x.io/v1/namespaces/default/widgets?fieldSelector=spec.foo=red",
                Value::Null,
                400,
                Says("field label not supported: spec.foo"),
            ),
        ],
    );
    let listed = test_server.must(
        "GET",
        "/apis/x.io/v1/namespaces/default/widgets?fieldSelector=spec.color=red",
        &Value::Null,
    );
    assert_eq!(listed["items"].as_array().unwrap().len(), 1);
    assert_eq!(listed["kind"], "WidgetList");
}

#[test]
fn applying_owns_fields() {
    let mut test_server = TestServer::new();
    test_server.must("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &widget_definition());
    let one = "/apis/x.io/v1/namespaces/default/widgets/a";
    let by = |manager: &str| format!("{one}?fieldManager={manager}");
    let widget = |spec: Value| json!({"apiVersion": "x.io/v1", "kind": "Widget", "metadata": {"name": "a"}, "spec": spec});
    let (code, _) = test_server.send("PATCH apply", &by("m1"), &widget(json!({"size": 1, "replicas": 2})));
    assert_eq!(code, 201);
    let (code, refused) =
        test_server.send("PATCH apply", &by("m2"), &widget(json!({"size": 2, "color": "blue"})));
    assert_eq!(
        (code, &refused["message"]),
        (409, &json!("Apply failed with 1 conflict: conflict with \"m1\": .spec.size"))
    );
    assert_eq!(
        refused["details"]["causes"],
        json!([{"reason": "FieldManagerConflict", "message": "conflict with \"m1\"", "field": ".spec.size"}])
    );
    let forced = test_server.must(
        "PATCH apply",
        &(by("m2") + "&force=true"),
        &widget(json!({"size": 2, "color": "blue"})),
    );
    assert_eq!(forced["spec"], json!({"size": 2, "color": "blue", "replicas": 2}));
    let dropped = test_server.must("PATCH apply", &by("m1"), &widget(json!({})));
    assert_eq!(dropped["spec"], json!({"size": 2, "color": "blue"}), "what m1 no longer names is gone");
    test_server.must("PATCH merge", &by("hand"), &json!({"spec": {"size": 7}}));
    let (code, refused) =
        test_server.send("PATCH apply", &by("m2"), &widget(json!({"size": 2, "color": "blue"})));
    assert_eq!(
        (code, &refused["message"]),
        (409, &json!("Apply failed with 1 conflict: conflict with \"hand\" using x.io/v1: .spec.size"))
    );
    play(
        &mut test_server,
        vec![
            (
                "PATCH apply",
                one,
                widget(json!({})),
                422,
                Says(
                    "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch",
                ),
            ),
            (
                "PATCH merge",
                "/apis/x.io/v1/namespaces/default/widgets/a?force=true",
                json!({}),
                422,
                Says(
                    "PatchOptions.meta.k8s.io \"\" is invalid: force: Forbidden: may not be specified for non-apply patch",
                ),
            ),
            (
                "PATCH apply",
                "/apis/x.io/v1/namespaces/default/widgets/a?fieldManager=m",
                widget(json!({"fooo": 1})),
                500,
                Says(
                    "failed to create typed patch object (/a; x.io/v1, Kind=Widget): .spec.fooo: field not declared in schema",
                ),
            ),
        ],
    );
}
