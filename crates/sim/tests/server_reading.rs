//! Lists, pages and watches.
#![allow(clippy::unwrap_used, reason = "test code")]

use crate::server_support::{TestServer, event_lines};
use coppice_sim::server::EventType;
use serde_json::{Value, json};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn maps(test_server: &mut TestServer, names: &[&str]) {
    for name in names {
        test_server.must(
            "POST",
            MAPS,
            &json!({"metadata": {"name": name, "labels": {"name": name, "all": "yes"}}}),
        );
    }
}

fn names(list: &Value) -> Vec<&str> {
    list["items"].as_array().unwrap().iter().map(|i| i["metadata"]["name"].as_str().unwrap()).collect()
}

#[test]
fn pages_show_the_revision_of_the_first() {
    let mut test_server = TestServer::new();
    maps(&mut test_server, &["a", "b", "c", "d"]);
    let first = test_server.must("GET", &format!("{MAPS}?limit=2"), &Value::Null);
    assert_eq!((names(&first), &first["metadata"]["remainingItemCount"]), (vec!["a", "b"], &json!(2)));
    test_server.must("DELETE", &format!("{MAPS}/d"), &Value::Null);
    maps(&mut test_server, &["bb"]);
    let token = first["metadata"]["continue"].as_str().unwrap().to_owned();
    let second = test_server.must("GET", &format!("{MAPS}?limit=2&continue={token}"), &Value::Null);
    assert_eq!(names(&second), ["c", "d"]);
    assert_eq!(second["metadata"], json!({"resourceVersion": first["metadata"]["resourceVersion"]}));
    test_server.server.compact(test_server.server.revision());
    let (code, gone) = test_server.send("GET", &format!("{MAPS}?limit=2&continue={token}"), &Value::Null);
    assert_eq!((code, &gone["reason"]), (410, &json!("Expired")));
    let token = gone["metadata"]["continue"].as_str().unwrap().to_owned();
    let rest = test_server.must("GET", &format!("{MAPS}?limit=9&continue={token}"), &Value::Null);
    assert_eq!(names(&rest), ["bb", "c"], "an inconsistent continuation shows the present");
}

#[test]
fn the_token_has_the_form_of_the_real_one() {
    let mut test_server = TestServer::new();
    maps(&mut test_server, &["a", "b"]);
    let list = test_server.must("GET", &format!("{MAPS}?limit=1"), &Value::Null);
    let token = list["metadata"]["continue"].as_str().unwrap();
    let decoded = base64::Engine::decode(&base64::engine::general_purpose::URL_SAFE_NO_PAD, token).unwrap();
    let revision = test_server.server.revision();
    let decoded: Value = serde_json::from_slice(&decoded).unwrap();
    assert_eq!(decoded, json!({"v": "meta.k8s.io/v1", "rv": revision, "start": "/a\u{0}"}));
}

#[test]
fn what_cannot_be_listed_is_explained_as_by_the_real_server() {
    let mut test_server = TestServer::new();
    let gone_by = |query: &str| format!("{MAPS}?{query}");
    let forbidden = "ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: ";
    let cases: &[(&str, u16, String)] = &[
        ("continue=foo&resourceVersion=5", 400, "invalid continue token: continue key is not valid: invalid character '~' looking for beginning of value".to_owned()),
        ("resourceVersion=abc", 400, "invalid resource version: resourceVersion: Invalid value: \"abc\": strconv.ParseUint: parsing \"abc\": invalid syntax".to_owned()),
        ("resourceVersionMatch=Exact", 422, format!("{forbidden}resourceVersionMatch is forbidden unless resourceVersion is provided")),
        ("resourceVersionMatch=Exact&resourceVersion=0", 422, format!("{forbidden}resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"")),
        ("resourceVersion=0&resourceVersionMatch=Foo", 422, "ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Unsupported value: \"Foo\": supported values: \"Exact\", \"NotOlderThan\", \"\"".to_owned()),
        ("limit=foo", 400, "strconv.ParseInt: parsing \"foo\": invalid syntax".to_owned()),
        ("labelSelector=i%20inn%20(1,2)", 400, "unable to parse requirement: found 'inn', expected: in, notin, =, ==, !=, gt, lt".to_owned()),
        ("labelSelector=,", 400, "found ',', expected: !, identifier, or 'end of string'".to_owned()),
        ("labelSelector=a%20in%20(x", 400, "unable to parse requirement: found '', expected: ',' or ')'".to_owned()),
        ("labelSelector=a%3Efoo", 400, "unable to parse requirement: values[0]: Invalid value: \"foo\": for 'Gt', 'Lt' operators, the value must be an integer".to_owned()),
        ("labelSelector=a=b=c", 400, "found '=', expected: ',' or 'end of string'".to_owned()),
        ("fieldSelector=foo=bar", 400, "\"foo\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"".to_owned()),
        ("fieldSelector=foo", 400, "invalid selector: 'foo'; can't understand 'foo'".to_owned()),
        ("sendInitialEvents=true&resourceVersionMatch=NotOlderThan", 422, "ListOptions.meta.k8s.io \"\" is invalid: [resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided, sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list]".to_owned()),
        ("watch=1&sendInitialEvents=true", 422, format!("{forbidden}sendInitialEvents requires setting resourceVersionMatch to NotOlderThan")),
        ("watch=1&resourceVersion=abc", 500, "resourceVersion: Invalid value: \"abc\": strconv.ParseUint: parsing \"abc\": invalid syntax".to_owned()),
    ];
    for (query, code, message) in cases {
        let (given, answer) = test_server.send("GET", &gone_by(query), &Value::Null);
        assert_eq!((given, &answer["message"]), (*code, &json!(message)), "{query}");
    }
    let current = test_server.server.revision();
    for uri in [gone_by("resourceVersion=999999"), format!("{MAPS}/x?resourceVersion=999999")] {
        let (code, answer) = test_server.send("GET", &uri, &Value::Null);
        assert_eq!(
            (code, &answer["message"]),
            (504, &json!(format!("Timeout: Too large resource version: 999999, current: {current}")))
        );
    }
}

#[test]
fn selectors_pick_out_what_they_say() {
    let mut test_server = TestServer::new();
    maps(&mut test_server, &["a", "b", "c"]);
    for (query, expected) in [
        ("labelSelector=name%20in%20(a,c)", vec!["a", "c"]),
        ("labelSelector=name%20notin%20(a,c)", vec!["b"]),
        ("labelSelector=name!=a,all", vec!["b", "c"]),
        ("labelSelector=!all", vec![]),
        ("labelSelector=name==a", vec!["a"]),
        ("fieldSelector=metadata.name!=a,metadata.namespace==default", vec!["b", "c"]),
        ("fieldSelector=metadata.name=b", vec!["b"]),
    ] {
        let list = test_server.must("GET", &format!("{MAPS}?{query}"), &Value::Null);
        assert_eq!(names(&list), expected, "{query}");
    }
}

#[test]
fn a_list_can_be_of_the_past() {
    let mut test_server = TestServer::new();
    maps(&mut test_server, &["a", "b"]);
    let then = test_server.server.revision();
    test_server.must("DELETE", &format!("{MAPS}/a"), &Value::Null);
    test_server.must("PATCH merge", &format!("{MAPS}/b"), &json!({"data": {"x": "y"}}));
    maps(&mut test_server, &["c"]);
    let past = test_server.must(
        "GET",
        &format!("{MAPS}?resourceVersion={then}&resourceVersionMatch=Exact"),
        &Value::Null,
    );
    assert_eq!((names(&past), &past["items"][1]["data"]), (vec!["a", "b"], &Value::Null));
    let present = test_server.must("GET", &format!("{MAPS}?resourceVersion={then}"), &Value::Null);
    assert_eq!(names(&present), ["b", "c"], "not older than");
    test_server.server.compact(then + 1);
    let (code, gone) = test_server.send(
        "GET",
        &format!("{MAPS}?resourceVersion={then}&resourceVersionMatch=Exact"),
        &Value::Null,
    );
    assert_eq!(
        (code, &gone["message"]),
        (410, &json!("The resourceVersion for the provided list is too old."))
    );
}

#[test]
fn a_watch_sends_every_change_from_its_revision_on() {
    let mut test_server = TestServer::new();
    maps(&mut test_server, &["a"]);
    let from = test_server.server.revision();
    let mut watch = test_server.watch(&format!("{MAPS}?watch=1&resourceVersion={from}"));
    assert_eq!(event_lines(&test_server.events(&mut watch)), Vec::<String>::new());
    maps(&mut test_server, &["b"]);
    test_server.must("PATCH merge", &format!("{MAPS}/a"), &json!({"data": {"x": "y"}}));
    test_server.must("DELETE", &format!("{MAPS}/b"), &Value::Null);
    test_server.must(
        "POST",
        "/api/v1/namespaces/kube-system/configmaps",
        &json!({"metadata": {"name": "elsewhere"}}),
    );
    let mut held = watch.clone();
    assert!(test_server.server.next(&mut held, from).is_none(), "a watch can be held at a revision");
    assert_eq!(event_lines(&[test_server.server.next(&mut held, from + 1).unwrap()]), ["ADDED b"]);
    let events = test_server.events(&mut watch);
    assert_eq!(event_lines(&events), ["ADDED b", "MODIFIED a", "DELETED b"]);
    assert_eq!(events[2].object["metadata"]["resourceVersion"], json!((from + 3).to_string()));
    assert_eq!(watch.position(), test_server.server.revision());
}

#[test]
fn a_watch_without_a_revision_begins_with_what_is_there() {
    let mut test_server = TestServer::new();
    maps(&mut test_server, &["a", "b"]);
    let mut watch = test_server.watch(&format!("{MAPS}?watch=1&labelSelector=name=a"));
    assert_eq!(event_lines(&test_server.events(&mut watch)), ["ADDED a"]);
    let uri = format!(
        "{MAPS}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    );
    let mut watch = test_server.watch(&uri);
    let events = test_server.events(&mut watch);
    assert_eq!(event_lines(&events), ["ADDED a", "ADDED b", "BOOKMARK -"]);
    let revision = test_server.server.revision().to_string();
    assert_eq!(
        events[2].object["metadata"],
        json!({"resourceVersion": revision, "annotations": {"k8s.io/initial-events-end": "true"}})
    );
    let bookmark = test_server.server.bookmark(&watch);
    assert_eq!(
        (bookmark.event, &bookmark.object["metadata"]),
        (EventType::Bookmark, &json!({"resourceVersion": revision}))
    );
}

#[test]
fn what_enters_or_leaves_a_selector_is_added_or_deleted() {
    let mut test_server = TestServer::new();
    maps(&mut test_server, &["a"]);
    let from = test_server.server.revision();
    let mut watch = test_server.watch(&format!("{MAPS}?watch=1&resourceVersion={from}&labelSelector=name=x"));
    for label in ["x", "x2", "x"] {
        test_server.must(
            "PATCH merge",
            &format!("{MAPS}/a"),
            &json!({"metadata": {"labels": {"name": label}}}),
        );
    }
    test_server.must("PATCH merge", &format!("{MAPS}/a"), &json!({"data": {"x": "y"}}));
    let events = test_server.events(&mut watch);
    assert_eq!(event_lines(&events), ["ADDED a", "DELETED a", "ADDED a", "MODIFIED a"]);
    assert_eq!(events[1].object["metadata"]["labels"]["name"], "x", "the last state that was selected");
    assert_eq!(events[1].object["metadata"]["resourceVersion"], json!((from + 2).to_string()));
}

#[test]
fn a_watch_from_before_the_compaction_ends_with_an_error() {
    let mut test_server = TestServer::new();
    maps(&mut test_server, &["a", "b", "c"]);
    let from = test_server.server.revision() - 3;
    let mut lagging = test_server.watch(&format!("{MAPS}?watch=1&resourceVersion={from}"));
    test_server.server.compact(from + 2);
    let mut late = test_server.watch(&format!("{MAPS}?watch=1&resourceVersion={from}"));
    for watch in [&mut lagging, &mut late] {
        let events = test_server.events(watch);
        let status = &events[0].object;
        assert_eq!(
            (event_lines(&events), &status["code"], &status["reason"]),
            (vec!["ERROR -".to_owned()], &json!(410), &json!("Expired"))
        );
        assert_eq!(status["message"], format!("too old resource version: {from} ({})", from + 2));
        assert!(watch.ended());
    }
    let mut fine = test_server.watch(&format!("{MAPS}?watch=1&resourceVersion={}", from + 2));
    assert_eq!(event_lines(&test_server.events(&mut fine)), ["ADDED c"]);
}

#[test]
fn events_are_the_same_objects_in_both_groups() {
    let mut test_server = TestServer::new();
    test_server.must(
        "POST",
        "/apis/events.k8s.io/v1/namespaces/default/events",
        &json!({"metadata": {"name": "e"}, "regarding": {"kind": "Pod", "name": "x"}, "note": "m", "type": "Normal",
            "reason": "Noted", "action": "Note", "eventTime": "2001-02-03T04:05:06.789012Z", "reportingController": "c",
            "reportingInstance": "i"}),
    );
    let core = test_server.must(
        "GET",
        "/api/v1/namespaces/default/events?fieldSelector=involvedObject.name=x",
        &Value::Null,
    );
    assert_eq!(
        (&core["items"][0]["message"], &core["items"][0]["reportingComponent"]),
        (&json!("m"), &json!("c"))
    );
    let new = test_server.must("GET", "/apis/events.k8s.io/v1/namespaces/default/events/e", &Value::Null);
    assert_eq!(
        (&new["apiVersion"], &new["note"], &new["message"]),
        (&json!("events.k8s.io/v1"), &json!("m"), &Value::Null)
    );
}

#[test]
fn other_forms_of_objects_are_given_on_request() {
    let mut test_server = TestServer::new();
    maps(&mut test_server, &["a"]);
    let get = |test_server: &mut TestServer, accept: &str| {
        let request = coppice_sim::server::Request::get(&format!("{MAPS}/a")).accept(accept);
        let response = test_server.server.handle(test_server.now, "alice", &request).done().unwrap();
        (response.code, response.body.to_value())
    };
    let (_, metadata) = get(&mut test_server, "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1");
    assert_eq!(
        (&metadata["kind"], &metadata["metadata"]["name"]),
        (&json!("PartialObjectMetadata"), &json!("a"))
    );
    let (_, table) = get(&mut test_server, "application/json;as=Table;v=v1;g=meta.k8s.io,application/json");
    assert_eq!(table["rows"][0]["cells"], json!(["a", 0, "0s"]));
    let (code, refused) = get(&mut test_server, "text/foo");
    assert_eq!((code, &refused["reason"]), (406, &json!("NotAcceptable")));
}
