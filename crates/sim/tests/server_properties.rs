//! What holds whatever is asked, in whatever order.
#![allow(clippy::unwrap_used, reason = "test code")]

use std::collections::BTreeMap;

use crate::server_support::{TestServer, widget_definition};
use coppice_sim::server::EventType;
use proptest::prelude::*;
use serde_json::{Value, json};

/// Where objects are made: a built-in kind and a custom one.
const COLLECTIONS: [&str; 2] = ["configmaps", "widgets"];

/// A request on one of a few objects.
#[derive(Clone, Debug)]
enum TestRequest {
    Create { collection: usize, name: u8, label: u8 },
    Patch { collection: usize, name: u8, label: u8 },
    Stale { collection: usize, name: u8 },
    Finalizer { collection: usize, name: u8, held: bool },
    Delete { collection: usize, name: u8 },
}

fn steps() -> impl Strategy<Value = Vec<TestRequest>> {
    let step = (0..2usize, 0..6u8, 0..3u8, any::<bool>(), 0..10u8).prop_map(
        |(collection, name, label, held, what)| match what {
            0..4 => TestRequest::Create { collection, name, label },
            4..6 => TestRequest::Patch { collection, name, label },
            6 => TestRequest::Stale { collection, name },
            7 => TestRequest::Finalizer { collection, name, held },
            _ => TestRequest::Delete { collection, name },
        },
    );
    prop::collection::vec(step, 1..60)
}

fn uri(collection: usize) -> String {
    match COLLECTIONS[collection] {
        "widgets" => "/apis/x.io/v1/namespaces/default/widgets".to_owned(),
        plural => format!("/api/v1/namespaces/default/{plural}"),
    }
}

fn test_server() -> TestServer {
    let mut test_server = TestServer::new();
    test_server.must("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &widget_definition());
    test_server
}

fn object(collection: usize, name: u8, label: u8) -> Value {
    let metadata = json!({"name": format!("o{name}"), "labels": {"l": label.to_string()}});
    match COLLECTIONS[collection] {
        "widgets" => {
            json!({"apiVersion": "x.io/v1", "kind": "Widget", "metadata": metadata, "spec": {"size": 1}})
        }
        _ => json!({"metadata": metadata}),
    }
}

fn play(test_server: &mut TestServer, step: &TestRequest) -> (u16, Value) {
    match step {
        TestRequest::Create { collection, name, label } => {
            test_server.send("POST", &uri(*collection), &object(*collection, *name, *label))
        }
        TestRequest::Patch { collection, name, label } => {
            let patch = json!({"metadata": {"labels": {"l": label.to_string()}}});
            test_server.send("PATCH merge", &format!("{}/o{name}", uri(*collection)), &patch)
        }
        TestRequest::Stale { collection, name } => {
            let patch = json!({"metadata": {"resourceVersion": "1", "labels": {"l": "stale"}}});
            test_server.send("PATCH merge", &format!("{}/o{name}", uri(*collection)), &patch)
        }
        TestRequest::Finalizer { collection, name, held } => {
            let finalizers = if *held { json!(["x.io/y"]) } else { Value::Null };
            let patch = json!({"metadata": {"finalizers": finalizers}});
            test_server.send("PATCH merge", &format!("{}/o{name}", uri(*collection)), &patch)
        }
        TestRequest::Delete { collection, name } => {
            test_server.send("DELETE", &format!("{}/o{name}", uri(*collection)), &Value::Null)
        }
    }
}

/// Objects by name; items of built-in kinds get back what lists leave out.
fn by_name(list: &Value) -> BTreeMap<String, Value> {
    let kind = list["kind"].as_str().unwrap().trim_end_matches("List");
    let items = list["items"].as_array().unwrap().iter().cloned().map(|mut item| {
        item["apiVersion"] = list["apiVersion"].clone();
        item["kind"] = kind.into();
        (item["metadata"]["name"].as_str().unwrap().to_owned(), item)
    });
    items.collect()
}

fn exact(test_server: &mut TestServer, collection: usize, revision: u64, query: &str) -> Value {
    let uri = format!("{}?resourceVersion={revision}&resourceVersionMatch=Exact{query}", uri(collection));
    test_server.must("GET", &uri, &Value::Null)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn revisions_grow_by_one_with_each_write_and_by_none_without(steps in steps()) {
        let mut test_server = test_server();
        for step in &steps {
            let before = test_server.server.revision();
            let (code, _) = play(&mut test_server, step);
            let after = test_server.server.revision();
            prop_assert!(after == before || (after == before + 1 && code < 300), "{step:?}: {code}, {before} to {after}");
        }
        for (at, change) in test_server.server.changes_since(0).iter().enumerate() {
            prop_assert_eq!(change.revision, at as u64 + 1);
            prop_assert_ne!(&change.before, &change.after);
        }
    }

    #[test]
    fn a_watch_from_any_revision_is_the_difference_of_two_lists(steps in steps(), from in 0.0..1.0f64, selected in any::<bool>()) {
        let mut test_server = test_server();
        let start = test_server.server.revision();
        for step in &steps {
            play(&mut test_server, step);
        }
        let end = test_server.server.revision();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "small")]
        let from = start + (from * (end - start) as f64) as u64;
        let query = if selected { "&labelSelector=l%20in%20(0,1)" } else { "" };
        for collection in 0..COLLECTIONS.len() {
            let mut state = by_name(&exact(&mut test_server, collection, from, query));
            let mut watch = test_server.watch(&format!("{}?watch=1&resourceVersion={from}{query}", uri(collection)));
            let mut last = from;
            for event in test_server.events(&mut watch) {
                prop_assert!(event.revision > last);
                last = event.revision;
                prop_assert_eq!(&event.object["metadata"]["resourceVersion"], &json!(last.to_string()));
                let name = event.object["metadata"]["name"].as_str().unwrap().to_owned();
                match event.event {
                    EventType::Added => prop_assert!(state.insert(name, event.object.as_ref().clone()).is_none()),
                    EventType::Modified => prop_assert!(state.insert(name, event.object.as_ref().clone()).is_some()),
                    EventType::Deleted => prop_assert!(state.remove(&name).is_some()),
                    other => prop_assert!(false, "{other:?}"),
                }
            }
            prop_assert_eq!(state, by_name(&exact(&mut test_server, collection, end, query)));
        }
    }

    #[test]
    fn pages_add_up_to_the_list_of_their_revision(before in steps(), between in steps(), limit in 1..4usize) {
        let mut test_server = test_server();
        for step in &before {
            play(&mut test_server, step);
        }
        let whole = exact_now(&mut test_server);
        let mut between = between.iter();
        let (mut items, mut token) = (Vec::new(), String::new());
        loop {
            let uri = format!("{}?limit={limit}&continue={token}", uri(0));
            let page = test_server.must("GET", &uri, &Value::Null);
            prop_assert_eq!(&page["metadata"]["resourceVersion"], &whole["metadata"]["resourceVersion"]);
            items.extend(page["items"].as_array().unwrap().iter().cloned());
            for step in between.by_ref().take(5) {
                play(&mut test_server, step);
            }
            match page["metadata"]["continue"].as_str() {
                Some(next) => token = next.to_owned(),
                None => break,
            }
        }
        prop_assert_eq!(&json!(items), &whole["items"]);
    }

    #[test]
    fn the_same_requests_give_the_same_bytes(steps in steps()) {
        let run = || {
            let mut test_server = test_server();
            let answers: Vec<(u16, Value)> = steps.iter().map(|step| play(&mut test_server, step)).collect();
            test_server.pass(60);
            (format!("{answers:?}"), format!("{:?}", test_server.server.changes_since(0)))
        };
        prop_assert_eq!(run(), run());
    }
}

fn exact_now(test_server: &mut TestServer) -> Value {
    test_server.must("GET", &uri(0), &Value::Null)
}
