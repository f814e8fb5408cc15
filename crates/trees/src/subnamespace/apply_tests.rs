use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use coppice_api::SubnamespaceStatus;
use coppice_api::names::{LABEL_PROTECTED, LABEL_SUBNAMESPACE};
use coppice_controllers::{ControllerContext, OperatorOptions};
use coppice_kinds::{Configs, NamespaceTrees};
use coppice_runtime::clock::{Clock, SeededRng};
use coppice_runtime::controller::Controller as _;
use coppice_runtime::events::Events;
use coppice_runtime::leader::Gate;
use coppice_runtime::metrics::Metrics;
use coppice_runtime::queue::{Queue, QueueSettings, ReconcileResult};
use coppice_runtime::server_clock::ServerClock;
use coppice_scripted::{Answer, Sent, Server, scripted};
use http::Method;

use super::super::SubnamespaceController;
use super::super::plan::tests::cascade::{living, soon};
use super::super::plan::tests::{deleted, now, object, observation, quota, ready};
use super::*;
use crate::apply_support;
use crate::namespace_tree::NamespaceTreeController;

/// What comes of the next write for what was observed where it is answered so; and which writes were made.
async fn next_write(seen: Observation, answer: Answer) -> (&'static str, Vec<Sent>) {
    // Where something has to be read again, there is nothing.
    next_of(seen, Answer::Refused(404), answer).await
}

/// The same where reads are answered so.
async fn next_of(seen: Observation, read: Answer, answer: Answer) -> (&'static str, Vec<Sent>) {
    let answered = next_by(seen, move |method, _| match *method {
        Method::GET => read.clone(),
        _ => answer.clone(),
    });
    Box::pin(answered).await
}

/// The same where each request is answered by its method and path.
async fn next_by(
    seen: Observation,
    answer: impl Fn(&Method, &str) -> Answer + Send + Sync + 'static,
) -> (&'static str, Vec<Sent>) {
    let (clients, sent) = scripted(move |method, path, _| answer(method, path));
    let clock = Clock::following_tokio(now());
    let (server_clock, metrics) = (ServerClock::new(clock.clone()), Metrics::new("test"));
    let events = Events::new(&clients, clock, metrics.clone(), "test", SeededRng::new(1));
    let setup = OperatorOptions { own_namespace: "coppice-system".to_owned(), scale_kinds: Vec::new() };
    let gate = Gate::always(Duration::ZERO);
    let shared = ControllerContext::new(setup, clients, server_clock, gate, metrics, events);
    let context = TreeContext::new(shared);
    let permit = context.shared.gate.permit().unwrap();
    let key = SubnamespaceKey::new("shop", "shop-web");
    let progress = match next(&context, &permit, &key, Some(Box::new(seen))).await {
        SubnamespaceProgress::Again => "again",
        SubnamespaceProgress::Written(_) => "written",
        SubnamespaceProgress::CheckAt(_) => "done",
        SubnamespaceProgress::Failed(_) => "failed",
    };
    let writes = sent.lock().unwrap().iter().filter(|sent| sent.method != Method::GET).cloned().collect();
    (progress, writes)
}

/// The answers to a write that was not taken, or of which nobody knows, and what comes of it.
fn not_taken() -> [(Answer, &'static str); 4] {
    [
        (Answer::Refused(409), "again"),
        (Answer::Refused(404), "again"),
        (Answer::Refused(504), "failed"),
        (Answer::Never, "failed"),
    ]
}

/// One whose namespace somebody else has deleted, and whose quota is back.
fn gone() -> Observation {
    let status = json!({"namespaceUid": "uid-of-shop-web", "allotment": {"hard": {}, "decided": 1}});
    Observation {
        object: object("4", &json!({}), &status),
        namespace: None,
        quota: None,
        parent_quota: Some(quota("shop", "10", "0", "0")),
        ..ready()
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_is_deleted_by_one_request_that_names_what_was_read() {
    for (answer, expected) in not_taken().into_iter().chain([(Answer::Object(200, json!({})), "again")]) {
        let (progress, writes) = next_write(gone(), answer.clone()).await;
        let [delete] = &writes[..] else { panic!("{answer:?}: {writes:?}") };
        assert_eq!((progress, &delete.method), (expected, &Method::DELETE), "{answer:?}");
        assert_eq!(delete.body["preconditions"], json!({"uid": "u-1", "resourceVersion": "5"}));
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_api_server_refuses_is_said_in_status_and_not_sent_again() {
    let (progress, writes) = next_write(gone(), Answer::Refused(403)).await;
    let sent: Vec<_> = writes.iter().map(|sent| sent.method.clone()).collect();
    assert_eq!((progress, &sent[..]), ("failed", &[Method::DELETE, Method::PUT][..]));
    let conditions = writes[1].body["status"]["conditions"].to_string();
    assert!(conditions.contains("the API server refused"), "{conditions}");
}

#[tokio::test(start_paused = true)]
async fn no_namespace_is_deleted_before_the_intent_is_known_to_be_stored() {
    for (answer, expected) in not_taken().into_iter().chain([(Answer::Refused(403), "failed")]) {
        let (progress, writes) = next_write(deleted(), answer.clone()).await;
        let [put] = &writes[..] else { panic!("{answer:?}: {writes:?}") };
        assert_eq!((progress, &put.method), (expected, &Method::PUT), "{answer:?}");
        assert_eq!(put.body["metadata"]["resourceVersion"], "5");
        assert_eq!(put.body["status"]["intent"]["action"], "delete", "{:#}", put.body);
    }
}

#[tokio::test(start_paused = true)]
async fn quota_is_given_and_returned_by_one_write_at_the_revision_that_was_read() {
    let returns = || Observation { namespace: None, quota: None, ..deleted() };
    for (answer, expected) in not_taken() {
        let (progress, writes) = next_write(returns(), answer.clone()).await;
        let [patch] = &writes[..] else { panic!("{answer:?}: {writes:?}") };
        assert_eq!((progress, &patch.method), (expected, &Method::PATCH), "{answer:?}");
        assert_eq!(patch.body["metadata"]["resourceVersion"], "3");
        let ledger = patch.body["metadata"]["annotations"]["coppice.dev/ledger"].as_str().unwrap();
        let ledger: serde_json::Value = serde_json::from_str(ledger).unwrap();
        assert_eq!(ledger["given"], json!({"pods": "4"}), "the entry says what returns: {ledger}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_namespace_is_created_only_after_the_one_above_says_so() {
    for (answer, expected) in not_taken() {
        let (progress, writes) = next_write(observation(), answer.clone()).await;
        let [mark] = &writes[..] else { panic!("{answer:?}: {writes:?}") };
        assert_eq!((progress, &mark.method), (expected, &Method::PATCH), "{answer:?}");
        let metadata = &mark.body["metadata"];
        assert_eq!(
            (&metadata["uid"], &metadata["labels"]["coppice.dev/has-children"]),
            (&json!("uid-of-shop"), &json!("u-1"))
        );
    }
}

#[tokio::test(start_paused = true)]
async fn what_follows_the_creation_of_a_namespace_is_decided_on_what_was_answered() {
    let created = json!({"metadata": {"name": "shop-web", "uid": "uid-of-shop-web", "resourceVersion": "9"}});
    let (progress, writes) = next_write(observation(), Answer::Object(201, created)).await;
    let sent: Vec<Method> = writes.iter().map(|sent| sent.method.clone()).collect();
    assert_eq!((progress, &sent[..]), ("written", &[Method::PATCH, Method::POST][..]));
}

#[tokio::test(start_paused = true)]
async fn that_a_quota_is_not_in_force_is_said_only_if_it_still_is_not() {
    let known = ready();
    let mut own = TreeQuota::clone(known.quota.as_deref().unwrap());
    own.quota.as_mut().unwrap().enforced = coppice_hierarchy::Resources::default();
    let waiting = || Observation { quota: Some(Arc::new(own.clone())), ..ready() };
    let of = |revision: &str| {
        let ledger = json!({"allotment": {"pods": "4"}, "given": {"pods": "0"}}).to_string();
        let metadata = json!({
            "name": "coppice", "namespace": "shop-web", "uid": "q", "resourceVersion": revision,
            "labels": {"coppice.dev/tree": "shop"}, "annotations": {"coppice.dev/ledger": ledger}
        });
        let amounts = json!({"hard": {"pods": "4"}, "used": {"pods": "1"}});
        Answer::Object(200, json!({"metadata": metadata, "spec": {"hard": {"pods": "4"}}, "status": amounts}))
    };
    for (read, writes) in [(of("4"), 0), (of("3"), 1), (Answer::Refused(404), 1)] {
        let (_, sent) = next_of(waiting(), read.clone(), Answer::Refused(409)).await;
        assert_eq!(sent.len(), writes, "{read:?}: {sent:#?}");
    }
}

/// What comes of the deletion of one below, which is in a cache as nobody protects it, where the API server has these and the consent was read
/// so long ago; and the preconditions of what was deleted.
async fn deletes_below(
    subnamespace: Answer,
    namespace: Answer,
    children: Vec<serde_json::Value>,
    age: Duration,
) -> (&'static str, Vec<serde_json::Value>) {
    let seen = soon(vec![living("shop-web", "shop-web-a")]);
    tokio::time::advance(age).await;
    let (progress, writes) = next_by(seen, move |method, path| match path {
        _ if *method != Method::GET => Answer::Object(200, json!({})),
        "/apis/coppice.dev/v1alpha1/namespaces/shop-web/subnamespaces/shop-web-a" => subnamespace.clone(),
        "/apis/coppice.dev/v1alpha1/namespaces/shop-web-a/subnamespaces" => {
            Answer::Object(200, json!({"metadata": {"resourceVersion": "9"}, "items": children}))
        }
        _ => namespace.clone(),
    })
    .await;
    let deletes = writes.into_iter().filter(|sent| sent.method == Method::DELETE);
    (progress, deletes.map(|sent| sent.body["preconditions"].clone()).collect())
}

#[tokio::test(start_paused = true)]
async fn one_below_is_deleted_as_it_is_read_and_not_by_what_caches_say() {
    let own = json!({"namespaceUid": "uid-of-shop-web-a"});
    let subnamespace = |(field, value): (&str, &str), status: &serde_json::Value| {
        let mut metadata = json!({
            "name": "shop-web-a", "namespace": "shop-web", "uid": "u-of-shop-web-a", "resourceVersion": "8",
            "creationTimestamp": "2026-01-01T00:00:00Z"
        });
        metadata[field] = json!(value);
        let spec = json!({"quota": {"hard": {"pods": "1"}}});
        Answer::Object(200, json!({"metadata": metadata, "spec": spec, "status": status}))
    };
    let namespace = |labels: &[(&str, &str)]| {
        let labels: BTreeMap<&str, &str> = labels.iter().copied().collect();
        let metadata = json!({
            "name": "shop-web-a", "uid": "uid-of-shop-web-a", "resourceVersion": "9", "labels": labels,
            "creationTimestamp": "2026-01-01T00:00:00Z"
        });
        Answer::Object(200, json!({"metadata": metadata}))
    };
    let unchanged = || subnamespace(("uid", "u-of-shop-web-a"), &own);
    let marked = || namespace(&[(LABEL_CHILDREN, "u")]);
    let child =
        json!({"metadata": {"name": "shop-web-a-b", "namespace": "shop-web-a", "uid": "u"}, "spec": {}});
    let (protection, long) = ((LABEL_PROTECTED, "true"), "x".repeat(9 << 10));
    let creator = (LABEL_SUBNAMESPACE, "u-of-shop-web-a");
    for (what, subnamespace, namespace, children, expected) in [
        ("protected", unchanged(), namespace(&[protection]), vec![], ("done", 0)),
        (
            "protected before its status says that it is there",
            subnamespace(("uid", "u-of-shop-web-a"), &json!({})),
            namespace(&[protection, creator]),
            vec![],
            ("done", 0),
        ),
        ("another", subnamespace(("uid", "u-2"), &own), namespace(&[]), vec![], ("done", 0)),
        (
            "being deleted",
            subnamespace(("deletionTimestamp", "2026-01-01T00:00:00Z"), &own),
            namespace(&[]),
            vec![],
            ("done", 0),
        ),
        (
            "of an unknown status",
            subnamespace(("uid", "u-of-shop-web-a"), &json!({"namespaceUid": 1})),
            namespace(&[]),
            vec![],
            ("done", 0),
        ),
        ("one is below it", unchanged(), marked(), vec![child], ("done", 0)),
        ("gone", Answer::Refused(404), namespace(&[]), vec![], ("done", 0)),
        ("not to be read", Answer::Refused(403), namespace(&[]), vec![], ("failed", 0)),
        ("with labels nobody reads", unchanged(), namespace(&[("l", &*long)]), vec![], ("failed", 0)),
        ("not to be read itself", unchanged(), Answer::Refused(403), vec![], ("failed", 0)),
        ("as it was", unchanged(), namespace(&[]), vec![], ("done", 1)),
        ("with nothing below it any more", unchanged(), marked(), vec![], ("done", 1)),
        ("without its namespace", unchanged(), Answer::Refused(404), vec![], ("done", 1)),
    ] {
        let (progress, deletes) = deletes_below(subnamespace, namespace, children, Duration::ZERO).await;
        assert_eq!((progress, deletes.len()), expected, "{what}");
        for preconditions in deletes {
            assert_eq!(preconditions, json!({"uid": "u-of-shop-web-a", "resourceVersion": "8"}), "{what}");
        }
    }
    // What allows it is read again, later, where that took long.
    for (seconds, expected) in [(1, ("done", 1)), (3, ("failed", 0))] {
        let age = Duration::from_secs(seconds);
        let (progress, deletes) = deletes_below(unchanged(), namespace(&[]), vec![], age).await;
        assert_eq!((progress, deletes.len()), expected, "after {seconds} s");
    }
}

#[tokio::test(start_paused = true)]
async fn what_keeps_one_below_from_being_deleted_is_said_in_status() {
    for (seconds, delete, said) in [
        (0, Answer::Refused(403), "the API server refused"),
        (3, Answer::Object(200, json!({})), "took too long to answer"),
    ] {
        let seen = soon(vec![living("shop-web", "shop-web-a")]);
        tokio::time::advance(Duration::from_secs(seconds)).await;
        let (progress, writes) = next_by(seen, move |method, path| match *method {
            Method::GET if path.ends_with("/subnamespaces/shop-web-a") => {
                let metadata = json!({
                    "name": "shop-web-a", "namespace": "shop-web", "uid": "u-of-shop-web-a", "resourceVersion": "8",
                    "creationTimestamp": "2026-01-01T00:00:00Z"
                });
                let spec = json!({"quota": {"hard": {"pods": "1"}}});
                Answer::Object(200, json!({"metadata": metadata, "spec": spec}))
            }
            Method::GET => Answer::Refused(404),
            Method::DELETE => delete.clone(),
            _ => Answer::Object(200, json!({})),
        })
        .await;
        let status = writes.iter().find(|sent| sent.path.ends_with("/subnamespaces/shop-web/status"));
        let conditions = status.map(|sent| sent.body["status"]["conditions"].to_string());
        assert_eq!(progress, "failed", "{writes:#?}");
        assert!(conditions.is_some_and(|conditions| conditions.contains(said)), "{said}: {writes:#?}");
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_below_goes_while_a_namespace_there_is_not_known() {
    // With too many labels it is not known whether they protect it, and without status not which one it is.
    let status = json!({"namespaceUid": "uid-of-shop-web-a"});
    for (labels, status, unknown) in [
        (1, status.clone(), None),
        (200, status, Some("shop-web-a has more than")),
        (1, json!({"namespaceUid": 1}), Some("Subnamespace shop-web/shop-web-a: ")),
    ] {
        let server = Server::new();
        server.put::<Configs>(json!({"metadata": {"name": "coppice"}, "spec": {}}));
        let deleted = json!({
            "name": "shop-web", "namespace": "shop", "uid": "s", "finalizers": [FINALIZER],
            "deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0
        });
        let spec = json!({"quota": {"hard": {"pods": "4"}}, "cascadeUntil": "2026-01-01T01:00:00Z"});
        let own = json!({"namespaceUid": "uid-of-shop-web"});
        server.put::<Subnamespaces>(json!({"metadata": deleted, "spec": spec, "status": own}));
        server.put::<Namespaces>(json!({"metadata": {"name": "shop-web"}}));
        let below = json!({"name": "shop-web-a", "namespace": "shop-web"});
        let spec = json!({"quota": {"hard": {"pods": "1"}}});
        server.put::<Subnamespaces>(json!({"metadata": below, "spec": spec, "status": status}));
        let labels: BTreeMap<String, String> =
            (0..labels).map(|n| (format!("l{n}"), "x".repeat(60))).collect();
        server.put::<Namespaces>(json!({"metadata": {"name": "shop-web-a", "labels": labels}}));
        let (context, _controller, _followers) =
            apply_support::filled(&server, NamespaceTreeController::new).await;
        let seen = observe::cached(&context, &SubnamespaceKey::new("shop", "shop-web")).unwrap();
        assert_eq!(seen.below.len(), 1);
        let stale = seen.stale.map(|(_, why)| why);
        assert_eq!(stale.is_none(), unknown.is_none(), "{stale:?}");
        assert!(stale.as_deref().unwrap_or_default().contains(unknown.unwrap_or_default()), "{stale:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_marked_for_one_below_protects_it_and_nothing_below_that_goes() {
    for (creator, is_known) in [("uid-of-shop-web-a", true), ("uid-of-another", false)] {
        let server = Server::new();
        server.put::<Configs>(json!({"metadata": {"name": "coppice"}, "spec": {}}));
        let deleted = json!({
            "name": "shop-web", "namespace": "shop", "uid": "s", "finalizers": [FINALIZER],
            "deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0
        });
        let quota = json!({"hard": {"pods": "1"}});
        let spec = json!({"quota": quota, "cascadeUntil": "2026-01-01T01:00:00Z"});
        let own = json!({"namespaceUid": "uid-of-shop-web"});
        server.put::<Subnamespaces>(json!({"metadata": deleted, "spec": spec, "status": own}));
        server.put::<Namespaces>(json!({"metadata": {"name": "shop-web"}}));
        // An administrator has marked the namespace to be adopted, which is refused since it is protected.
        for (parent, name) in [("shop-web", "shop-web-a"), ("shop-web-a", "shop-web-a-b")] {
            let metadata = json!({"name": name, "namespace": parent});
            server.put::<Subnamespaces>(json!({"metadata": metadata, "spec": {"quota": quota}}));
        }
        let labels = json!({LABEL_SUBNAMESPACE: creator, LABEL_PROTECTED: "true"});
        server.put::<Namespaces>(json!({"metadata": {"name": "shop-web-a", "labels": labels}}));
        let (context, _controller, _followers) =
            apply_support::filled(&server, NamespaceTreeController::new).await;
        let seen = observe::cached(&context, &SubnamespaceKey::new("shop", "shop-web")).unwrap();
        let [(one, own)] = &seen.below[..] else { panic!("{} are below", seen.below.len()) };
        let is_protected = own.as_deref().is_some_and(|own| seen.settings.protection(own).is_some());
        assert_eq!((&*one.name, is_protected), ("shop-web-a", is_known), "{creator}");
    }
}

#[test]
fn that_more_are_right_below_is_said_later_and_everything_else_at_once() {
    let own = ready().namespace.unwrap();
    let labels = own.labels.iter().chain([(LABEL_CHILDREN, "u-2")]).collect();
    let namespace = Some(Arc::new(NamespaceFacts { labels, ..(*own).clone() }));
    let children = vec![ready().object].into();
    let planned = plan::plan(&Observation { namespace, children, ..ready() });
    assert_eq!((&planned.step, planned.status.children, planned.status.depth), (&Step::Nothing, 1, 1));
    for (children, depth, expected) in [(0, 1, true), (1, 1, false), (2, 1, false), (0, 2, false)] {
        let stored = SubnamespaceStatus { children, depth, ..planned.status.clone() };
        assert_eq!(super::super::says_only_size(&planned, &stored), expected, "{children}, {depth}");
    }
}

#[test]
fn what_siblings_have_is_asked_where_too_little_is_left_above() {
    let has = json!({"namespaceUid": "u", "allotment": {"hard": {"pods": "1"}, "decided": 0}});
    for (pods, status, used, expected) in [
        ("4", &json!({}), "6", false),
        ("4", &json!({}), "7", true),
        ("4", &has, "7", false),
        ("5", &has, "7", true),
    ] {
        let (object, above) = (object(pods, &json!({}), status), quota("shop", "10", "0", used));
        let too_much = observe::asks_for_too_much(&object, Some(&above));
        assert_eq!(too_much, expected, "{pods} of 10, of which {used} are used; {status}");
        assert!(!observe::asks_for_too_much(&object, None), "nothing is known of what is above");
    }
}

/// A tree of at most two namespaces, with two Subnamespaces right below its root.
fn two_siblings() -> Server {
    let server = Server::new();
    server.put::<Configs>(json!({"metadata": {"name": "coppice"}, "spec": {}}));
    let spec = json!({"root": "shop", "quota": {"hard": {"pods": "20"}}, "maxNamespaces": 2});
    let status = json!({"rootUid": "u-shop"});
    server.put::<NamespaceTrees>(json!({"metadata": {"name": "shop"}, "spec": spec, "status": status}));
    server.put::<Namespaces>(json!({"metadata": {"name": "shop", "uid": "u-shop"}}));
    for name in ["shop-a", "shop-b"] {
        server.put::<Subnamespaces>(
            json!({"metadata": {"name": name, "namespace": "shop", "uid": name}, "spec": {}}),
        );
    }
    server
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_the_turn_of_a_sibling_holds_no_worker() {
    let server = two_siblings();
    let (context, controller, _followers) = apply_support::filled(&server, SubnamespaceController::new).await;
    let key = SubnamespaceKey::new("shop", "shop-a");
    let turn = context.turns.turn("shop").await;
    let run = tokio::time::timeout(Duration::from_secs(1), Arc::clone(&controller).reconcile(key.clone()));
    let end = run.await.unwrap();
    assert!(matches!(end, ReconcileResult::Waits(_)), "{end:?}");
    assert!(context.turns.is_waiting(&key, false));
    let status = |sent: &Sent| sent.path.ends_with("/shop-a/status");
    assert!(!server.writes().iter().any(status), "it is not its turn");
    drop(turn);
    controller.reconcile(key.clone()).await;
    assert!(!context.turns.is_waiting(&key, false));
    assert!(server.writes().iter().any(status), "it is its turn");
}

#[tokio::test(start_paused = true)]
async fn a_size_that_has_waited_for_its_turn_is_said_when_that_comes() {
    let server = Server::new();
    server.put::<Configs>(json!({"metadata": {"name": "coppice"}, "spec": {}}));
    for name in ["shop", "shop-a"] {
        server.put::<Namespaces>(json!({"metadata": {"name": name, "uid": name}}));
    }
    // In no tree it is refused: whatever is said of one that is not ready, it takes a turn.
    let metadata = json!({"name": "shop-a", "namespace": "shop", "finalizers": ["coppice.dev/cleanup"]});
    let status = json!({"namespaceUid": "shop-a"});
    server.put::<Subnamespaces>(json!({"metadata": metadata, "spec": {}, "status": status}));
    let key = SubnamespaceKey::new("shop", "shop-a");
    let (_, first, _followers) = apply_support::filled(&server, SubnamespaceController::new).await;
    first.reconcile(key.clone()).await;
    let status = || server.object::<Subnamespaces>("shop", "shop-a")["status"].clone();
    assert_eq!((&status()["phase"], &status()["children"]), (&json!("Refused"), &json!(0)));
    server.put::<Subnamespaces>(json!({"metadata": {"name": "shop-a-b", "namespace": "shop-a"}, "spec": {}}));
    let (context, controller, _followers) = apply_support::filled(&server, SubnamespaceController::new).await;
    let run = || Arc::clone(&controller).reconcile(key.clone());
    let turn = context.turns.turn("shop").await;
    assert!(matches!(run().await, ReconcileResult::Waits(_)));
    context.turns.leave(&key);
    assert!(matches!(run().await, ReconcileResult::At(_)), "once a second");
    assert!(context.turns.take_or_wait(&key, false, None).is_none());
    drop(turn);
    run().await;
    assert_eq!(status()["children"], 1);
}

#[tokio::test(start_paused = true)]
async fn of_many_that_wait_for_a_quota_those_are_looked_at_whose_change_has_begun_and_some_others() {
    let server = Server::new();
    server.put::<Configs>(json!({"metadata": {"name": "coppice"}, "spec": {}}));
    let mut changes = serde_json::Map::new();
    for number in 0..200 {
        let name = format!("shop-{number:03}");
        let metadata = json!({"name": name, "namespace": "shop", "uid": name});
        server.put::<Subnamespaces>(json!({"metadata": metadata, "spec": {}}));
        if number < 64 {
            let (to, since) = (json!({"pods": "1"}), "2026-01-01T00:00:00Z");
            changes.insert(name, json!({"number": 1, "from": {}, "to": to, "since": since}));
        }
    }
    let ledger = json!({"allotment": {"pods": "300"}, "given": {"pods": "64"}, "changes": changes});
    let (labels, annotations) =
        (json!({"coppice.dev/tree": "shop"}), json!({"coppice.dev/ledger": ledger.to_string()}));
    let metadata =
        json!({"name": "coppice", "namespace": "shop", "labels": labels, "annotations": annotations});
    server.put::<TreeQuotas>(json!({"metadata": metadata, "spec": {"hard": {"pods": "236"}}}));
    let (context, controller, _followers) = apply_support::filled(&server, SubnamespaceController::new).await;
    let looked_at = || {
        let queue = Queue::new(QueueSettings::default());
        controller.enqueue_waiting("shop", &queue);
        queue.len()
    };
    assert_eq!(looked_at(), 64 + 16);
    let turn = context.turns.turn("shop").await;
    let waits = context.turns.take_or_wait(&SubnamespaceKey::new("shop", "shop-000"), true, None);
    assert!(waits.is_none());
    assert_eq!(looked_at(), 63 + 16, "it is looked at when its turn comes");
    drop(turn);
}

#[tokio::test(start_paused = true)]
async fn what_those_below_have_is_added_up_where_the_quota_was_lost() {
    for (is_there, expected) in [(true, "nothing"), (false, "3 pods")] {
        let server = two_siblings();
        for (name, pods) in [("shop-a-b", "1"), ("shop-a-c", "2")] {
            let metadata = json!({"name": name, "namespace": "shop-a"});
            let status = json!({"allotment": {"hard": {"pods": pods}, "decided": 0}});
            server.put::<Subnamespaces>(json!({"metadata": metadata, "spec": {}, "status": status}));
        }
        if is_there {
            let labels = json!({"coppice.dev/tree": "shop"});
            let metadata = json!({"name": "coppice", "namespace": "shop-a", "labels": labels});
            server.put::<TreeQuotas>(json!({"metadata": metadata, "spec": {"hard": {"pods": "3"}}}));
        }
        let (context, _controller, _followers) =
            apply_support::filled(&server, SubnamespaceController::new).await;
        let seen = observe::cached(&context, &SubnamespaceKey::new("shop", "shop-a")).unwrap();
        assert_eq!(seen.quota.is_some(), is_there);
        let have = crate::allotment::below(&seen.children).to_string();
        assert_eq!((seen.children.len(), &*have), (2, expected));
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_being_created_counts_for_the_size_of_its_tree() {
    let server = two_siblings();
    let (context, controller, _followers) = apply_support::filled(&server, SubnamespaceController::new).await;
    let position = context.position("shop").unwrap();
    let [a, b] = ["shop-a", "shop-b"].map(|name| context.subnamespaces.get("shop", name).unwrap());
    let sizes = || [&a, &b].map(|object| context.size_beside("shop", object));
    assert_eq!(sizes(), [1, 1]);
    assert!(context.begin_creation(&position.below("shop-a"), &a));
    assert!(!context.begin_creation(&position.below("shop-b"), &b), "there is room for one");
    // It may be tried again.
    assert!(context.begin_creation(&position.below("shop-a"), &a));
    assert_eq!(sizes(), [1, 2]);
    context.end_creation(&a);
    assert!(context.begin_creation(&position.below("shop-b"), &b));
    // Its namespace is not there, and is not created now: nothing can be given to it.
    assert_eq!(sizes(), [2, 1]);
    controller.reconcile(SubnamespaceKey::new("shop", "shop-b")).await;
    assert_eq!(sizes(), [1, 1]);
}

#[tokio::test(start_paused = true)]
async fn that_a_subnamespace_is_refused_is_counted_once() {
    let server = Server::new();
    server.put::<Configs>(json!({"metadata": {"name": "coppice"}, "spec": {}}));
    server.put::<Namespaces>(json!({"metadata": {"name": "shop", "uid": "shop"}}));
    let metadata = json!({"name": "shop-a", "namespace": "shop", "finalizers": ["coppice.dev/cleanup"]});
    server.put::<Subnamespaces>(json!({"metadata": metadata, "spec": {}}));
    let (context, controller, _followers) = apply_support::filled(&server, SubnamespaceController::new).await;
    let counted = "coppice_blocked_total{reason=\"NotInTree\"} 1";
    for _ in 0..2 {
        Arc::clone(&controller).reconcile(SubnamespaceKey::new("shop", "shop-a")).await;
        let text = context.shared.metrics.encode();
        assert!(text.lines().any(|line| line == counted), "{text}");
    }
}

/// A phase that this version does not know, whoever has written it.
#[tokio::test(start_paused = true)]
async fn a_status_with_an_unknown_phase_is_left_as_it_is_and_nothing_is_done() {
    let server = two_siblings();
    let metadata = json!({"name": "shop-a", "namespace": "shop", "finalizers": ["coppice.dev/cleanup"]});
    let status = json!({"phase": "Migrated", "namespaceUid": "u-shop-a"});
    server.put::<Subnamespaces>(json!({"metadata": metadata, "spec": {}, "status": status}));
    let (context, controller, _followers) = apply_support::filled(&server, SubnamespaceController::new).await;
    let look_at = |name: &str| Arc::clone(&controller).reconcile(SubnamespaceKey::new("shop", name));
    assert_eq!(look_at("shop-a").await, ReconcileResult::Done);
    assert!(server.writes().is_empty());
    assert_eq!(server.object::<Subnamespaces>("shop", "shop-a")["status"], status);
    let counted = "coppice_blocked_total{reason=\"UnsupportedStatus\"} 1";
    let text = context.shared.metrics.encode();
    assert!(text.lines().any(|line| line == counted), "{text}");
    // Its siblings are looked at as before.
    look_at("shop-b").await;
    assert!(!server.writes().is_empty());
}
