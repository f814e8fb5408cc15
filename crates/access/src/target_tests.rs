use std::sync::{Arc, Mutex};
use std::time::Duration;

use coppice_clusters::kubeconfig::{Cluster, User};
use coppice_clusters_api::{Issuer, RoleRights};
use coppice_runtime::leader::Gate;
use coppice_scripted::{Answer, scripted};

use super::list::MAX_OBJECTS;
use super::*;

const OWNER: Owner<'_> =
    Owner { namespace: "team", name: "ci", uid: "1-2", issuer: Issuer::TokenRequest, installation: "i" };
/// What no status may show.
const SECRET: &str = "eyJhbGciOiJSUzI1NiJ9";

/// What was written: verb, path, and body.
type Written = Arc<Mutex<Vec<(Method, String, Value)>>>;

/// A target that answers like this, and what is written to it.
fn target(answer: impl Fn(&Method, &str) -> Answer + Send + Sync + 'static) -> (Target, Written) {
    let written = Written::default();
    let log = Arc::clone(&written);
    let (clients, _) = scripted(move |method, path, body| {
        if method != Method::GET {
            log.lock().unwrap().push((method.clone(), path.to_owned(), body.clone()));
        }
        answer(method, path)
    });
    let cluster = Cluster { server: "https://target".to_owned(), authorities: None, server_name: None };
    (Target { kubeconfig: Kubeconfig { cluster, user: User::Token("t".to_owned()) }, clients }, written)
}

/// In one namespace.
fn rights() -> Rights {
    let role = RoleRights { namespace: "shop".to_owned(), rules: Vec::new() };
    Rights { role: Some(role), ..Rights::default() }
}

fn permit() -> Permit {
    Gate::always(Duration::ZERO).permit().unwrap()
}

fn object(name: &str, access: &str) -> Value {
    json!({"metadata": {
        "name": name, "namespace": "coppice-access", "uid": format!("uid of {name}"), "labels": {"coppice.dev/access": access}
    }})
}

fn deleted(written: &Written) -> Vec<(String, Value)> {
    let written = written.lock().unwrap();
    assert!(written.iter().all(|(method, ..)| *method == Method::DELETE), "{written:?}");
    let name = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
    written.iter().map(|(_, path, body)| (name(path), body["preconditions"]["uid"].clone())).collect()
}

/// Also where the target shows more than what was asked for, and where others have put our label on theirs.
fn with_others(path: &str) -> Answer {
    let items = if path.ends_with("/secrets") {
        json!([
            object("coppice-1-2-1", "1-2"),
            object("coppice-1-2-2", "1-2"),
            object("coppice-7-1", "7"),
            object("database", "1-2"),
            object("coppice-1-2-3", "7"),
        ])
    } else {
        json!([object("coppice-1-2", "1-2"), object("cluster-admin", "1-2"), object("coppice-7", "7")])
    };
    Answer::Object(200, json!({"items": items}))
}

#[tokio::test(start_paused = true)]
async fn what_is_of_another_access_or_labeled_by_others_is_never_removed() {
    let (target, written) = target(|method, path| match *method {
        Method::GET => with_others(path),
        _ => Answer::Object(200, json!({})),
    });
    let permit = permit();
    target.revoke_all(&permit, OWNER, &[]).await.unwrap();
    let uid = |name: &str| (name.to_owned(), json!(format!("uid of {name}")));
    assert_eq!(deleted(&written), [uid("coppice-1-2-1"), uid("coppice-1-2-2")]);
    written.lock().unwrap().clear();
    target.revoke(&permit, "1-2-1").await.unwrap();
    assert_eq!(deleted(&written), [("coppice-1-2-1".to_owned(), Value::Null)]);
    written.lock().unwrap().clear();
    target.remove_rights(&permit, OWNER, &rights(), None).await.unwrap();
    let by_name = ("coppice-1-2".to_owned(), Value::Null);
    let mut removed = vec![uid("coppice-1-2"); TargetKind::OF_RIGHTS.len()];
    removed.push(by_name);
    assert_eq!(deleted(&written), removed);
}

#[tokio::test(start_paused = true)]
async fn what_lost_its_label_is_revoked_by_its_name() {
    let (target, written) = target(|method, _| match *method {
        Method::GET => Answer::Object(200, json!({"items": []})),
        _ => Answer::Object(200, json!({})),
    });
    target.revoke(&permit(), "1-2-1").await.unwrap();
    target.remove_rights(&permit(), OWNER, &rights(), None).await.unwrap();
    let by_name = |name: &str| (name.to_owned(), Value::Null);
    assert_eq!(deleted(&written), [by_name("coppice-1-2-1"), by_name("coppice-1-2")]);
}

#[tokio::test(start_paused = true)]
async fn everything_is_revoked_also_what_lost_its_label() {
    let mut unlabeled = object("coppice-1-2-1", "1-2");
    unlabeled["metadata"]["labels"] = json!({});
    let (target, written) = target(move |method, _| match *method {
        Method::GET => Answer::Object(200, json!({"items": [unlabeled, object("coppice-1-2-2", "1-2")]})),
        _ => Answer::Object(200, json!({})),
    });
    // One that nothing was made for yet has no Secret.
    target.revoke_all(&permit(), OWNER, &["1-2-2", "1-2-1", "1-2-3"]).await.unwrap();
    let uid = |name: &str| (name.to_owned(), json!(format!("uid of {name}")));
    assert_eq!(deleted(&written), [uid("coppice-1-2-2"), uid("coppice-1-2-1")]);
}

#[tokio::test(start_paused = true)]
async fn what_is_not_revoked_keeps_nothing_else_from_that_and_what_may_be_valid_goes_first() {
    let (refusing, written) = target(|method, path| match *method {
        Method::GET => {
            let all = ["coppice-1-2-1", "coppice-1-2-2", "coppice-1-2-3"].map(|name| object(name, "1-2"));
            Answer::Object(200, json!({"items": all}))
        }
        _ if path.ends_with("/coppice-1-2-1") => Answer::Refused(403),
        _ => Answer::Object(200, json!({})),
    });
    let failure = refusing.revoke_all(&permit(), OWNER, &["1-2-3"]).await.unwrap_err();
    assert!(failure.message.contains("coppice-1-2-1"), "{failure:?}");
    let names: Vec<String> = deleted(&written).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["coppice-1-2-3", "coppice-1-2-1", "coppice-1-2-2"]);
    // Such as those that had expired and could not be deleted: they are deleted some at a time.
    let many: Vec<Value> =
        (1..=MAX_OBJECTS + 1).map(|number| object(&format!("coppice-1-2-{number}"), "1-2")).collect();
    let (full, written) = target(move |method, _| match *method {
        Method::GET => Answer::Object(200, json!({"items": many.clone()})),
        _ => Answer::Object(200, json!({})),
    });
    let failure = full.revoke_all(&permit(), OWNER, &["1-2-7"]).await.unwrap_err();
    assert_eq!(failure.reason, Reason::TargetRefused);
    assert_eq!(
        (deleted(&written)[0].0.as_str(), deleted(&written).len()),
        ("coppice-1-2-7", MAX_OBJECTS + 1)
    );
    // Nor do they keep another one from being issued.
    full.bind(&permit(), OWNER, "1-2-3000").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn of_certificates_the_bindings_go_by_their_names_and_accounts_are_not_asked_about() {
    let (target, written) = target(|method, path| {
        assert!(!path.contains("serviceaccounts") && !path.contains("secrets"), "{path}");
        match *method {
            Method::GET => Answer::Object(200, json!({"items": []})),
            _ => Answer::Object(200, json!({})),
        }
    });
    let owner = Owner { issuer: Issuer::ClientCertificate, ..OWNER };
    target.revoke_all(&permit(), owner, &["1-2-1"]).await.unwrap();
    target.remove_rights(&permit(), owner, &rights(), None).await.unwrap();
    let by_name = ("coppice-1-2".to_owned(), Value::Null);
    assert_eq!(deleted(&written), std::slice::from_ref(&by_name));
    // Also where rights were before, if others took the label off that binding.
    written.lock().unwrap().clear();
    let before = ["before".to_owned()];
    target.remove_rights(&permit(), owner, &rights(), Some(&before[..])).await.unwrap();
    assert_eq!(deleted(&written), [by_name.clone(), by_name]);
}

#[tokio::test(start_paused = true)]
async fn a_list_is_read_page_by_page() {
    let pages = Mutex::new(vec![("coppice-1-2-1", "a/b="), ("coppice-1-2-2", "")]);
    let (clients, sent) = scripted(move |method, _, _| match *method {
        Method::GET => {
            let (name, more) = pages.lock().unwrap().remove(0);
            Answer::Object(200, json!({"metadata": {"continue": more}, "items": [object(name, "1-2")]}))
        }
        _ => Answer::Object(200, json!({})),
    });
    let (target, _) = target(|_, _| Answer::Refused(500));
    Target { clients, ..target }.revoke_all(&permit(), OWNER, &[]).await.unwrap();
    let sent = sent.lock().unwrap();
    let asked: Vec<(&Method, &str)> = sent.iter().map(|sent| (&sent.method, sent.query.as_str())).collect();
    let first = "labelSelector=coppice.dev%2Faccess%3D1-2&limit=100";
    let second = format!("{first}&continue=a%2Fb%3D");
    assert_eq!(asked[..2], [(&Method::GET, first), (&Method::GET, second.as_str())]);
    let deleted: Vec<&str> = sent[2..].iter().map(|sent| sent.path.as_str()).collect();
    let within = "/api/v1/namespaces/coppice-access/secrets";
    assert_eq!(deleted, [format!("{within}/coppice-1-2-1"), format!("{within}/coppice-1-2-2")]);
}

#[tokio::test(start_paused = true)]
async fn a_page_that_is_too_long_is_asked_for_again_with_fewer_objects() {
    let pages = Mutex::new(vec![
        json!({"items": ["x".repeat(16 << 20)]}),
        json!({"metadata": {"continue": "more"}, "items": [object("coppice-1-2-1", "1-2")]}),
        json!({"items": [object("coppice-1-2-2", "1-2")]}),
    ]);
    let (clients, sent) = scripted(move |_, _, _| Answer::Object(200, pages.lock().unwrap().remove(0)));
    let (target, _) = target(|_, _| Answer::Refused(500));
    let target = Target { clients, ..target };
    assert_eq!(target.list_ours(TargetKind::Secret, OWNER, None).await.unwrap().len(), 2);
    let sent = sent.lock().unwrap();
    let asked: Vec<&str> =
        sent.iter().map(|sent| sent.query.split_once("&limit=").map_or("", |(_, rest)| rest)).collect();
    assert_eq!(asked, ["100", "12", "24&continue=more"]);
}

#[tokio::test(start_paused = true)]
async fn what_is_longer_than_any_name_is_not_kept_of_what_is_left() {
    let long = "0".repeat(300);
    let made = |name: &str, namespace: &str, uid: &str| {
        let mut made = object(name, "1-2");
        made["metadata"]["labels"]["coppice.dev/installation"] = json!("i");
        (made["metadata"]["namespace"], made["metadata"]["uid"]) = (json!(namespace), json!(uid));
        made
    };
    let bindings = json!([
        made("coppice-1-2", &long, "u"),
        made("coppice-1-2", "shop", &long),
        made("coppice-1-2", "shop", "u"),
    ]);
    let secrets = json!([made(&format!("coppice-1-2-{long}"), "coppice-access", "u")]);
    let (target, _) = target(move |_, path| match path.rsplit('/').next() {
        Some("rolebindings") => Answer::Object(200, json!({"items": bindings})),
        Some("secrets") => Answer::Object(200, json!({"items": secrets})),
        _ => Answer::Object(200, json!({"items": []})),
    });
    assert_eq!(target.left_by("i", |_| true).await.unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn of_what_a_target_lists_no_more_is_kept_than_is_used_nor_more_objects_than_an_access_has() {
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"});
    let mut padded = object("coppice-1-2", "1-2");
    padded["metadata"]["annotations"] = json!({"padding": "x".repeat(10_000)});
    padded["roleRef"] = role.clone();
    padded["roleRef"]["padding"] = json!("x".repeat(10_000));
    let (alone, _) = target(move |_, _| Answer::Object(200, json!({"items": [padded.clone()]})));
    let found = alone.list_ours(TargetKind::RoleBinding, OWNER, None).await.unwrap();
    let metadata = json!({"namespace": "coppice-access", "name": "coppice-1-2", "uid": "uid of coppice-1-2"});
    assert_eq!(json!(found), json!([{"metadata": metadata, "roleRef": role}]));
    let many = vec![object("coppice-1-2", "1-2"); MAX_OBJECTS + 1];
    let (in_one_page, _) = target(move |_, _| Answer::Object(200, json!({"items": many.clone()})));
    let failure = in_one_page.list_ours(TargetKind::RoleBinding, OWNER, None).await.unwrap_err();
    assert_eq!(failure.reason, Reason::TargetRefused);
}

#[tokio::test(start_paused = true)]
async fn what_others_have_edited_of_our_objects_is_applied_again() {
    let (clients, sent) = scripted(|_, _, _| Answer::Object(200, json!({"items": []})));
    let (target, _) = target(|_, _| Answer::Refused(500));
    Target { clients, ..target }.apply_rights(&permit(), OWNER, &rights(), None).await.unwrap();
    let sent = sent.lock().unwrap();
    let applied: Vec<&str> =
        sent.iter().filter(|sent| sent.method == Method::PATCH).map(|sent| sent.query.as_str()).collect();
    assert_eq!(applied, ["fieldManager=coppice&force=true"; 3]);
}

#[tokio::test(start_paused = true)]
async fn rights_are_looked_for_where_status_says_that_they_may_be() {
    let (clients, sent) = scripted(|_, _, _| Answer::Object(200, json!({"items": []})));
    let (target, _) = target(|_, _| Answer::Refused(500));
    let target = Target { clients, ..target };
    let roles = |within: Within<'_>| {
        let rbac = "/apis/rbac.authorization.k8s.io/v1";
        let within = within.map_or_else(
            || vec![String::new()],
            |within| within.iter().map(|namespace| format!("/namespaces/{namespace}")).collect(),
        );
        let of = |resource: &str| -> Vec<String> {
            within.iter().map(|within| format!("{rbac}{within}/{resource}")).collect()
        };
        let accounts = vec!["/api/v1/namespaces/coppice-access/serviceaccounts".to_owned()];
        let of_cluster = |resource: &str| vec![format!("{rbac}/{resource}")];
        [
            of("rolebindings"),
            of_cluster("clusterrolebindings"),
            of("roles"),
            of_cluster("clusterroles"),
            accounts,
        ]
        .concat()
    };
    let named = ["shop".to_owned(), "stage".to_owned()];
    for within in [None, Some(&named[..])] {
        sent.lock().unwrap().clear();
        target.remove_rights(&permit(), OWNER, &rights(), within).await.unwrap();
        let sent = sent.lock().unwrap();
        let listed = sent.iter().filter(|sent| sent.method == Method::GET);
        assert_eq!(listed.map(|sent| sent.path.clone()).collect::<Vec<_>>(), roles(within));
    }
}

#[tokio::test(start_paused = true)]
async fn whether_a_cluster_has_the_account_is_known_by_name_and_label() {
    for (account, expected) in
        [(object("coppice-1-2", "1-2"), true), (object("coppice-1-2", "7"), false), (json!({}), false)]
    {
        let (target, _) = target(move |_, path| {
            assert_eq!(path, "/api/v1/namespaces/coppice-access/serviceaccounts");
            Answer::Object(200, json!({"items": [account.clone()]}))
        });
        assert_eq!(target.has_account(OWNER).await.unwrap(), expected);
    }
    let (target, _) = target(|_, _| Answer::Refused(503));
    assert!(target.has_account(OWNER).await.is_err(), "it is not known");
}

#[tokio::test(start_paused = true)]
async fn of_a_list_that_is_not_whole_nothing_is_said_to_be_removed() {
    let (target, written) = target(|method, _| match *method {
        Method::GET => Answer::Object(
            200,
            json!({"metadata": {"continue": "more"}, "items": [object("coppice-7-1", "1-2")]}),
        ),
        _ => Answer::Object(200, json!({})),
    });
    for failure in [
        target.revoke_all(&permit(), OWNER, &[]).await.unwrap_err(),
        target.remove_rights(&permit(), OWNER, &rights(), None).await.unwrap_err(),
    ] {
        assert_eq!(failure.reason, Reason::TargetRefused);
        assert!(failure.message.contains("coppice.dev/access=1-2: take it off"), "{failure}");
    }
    assert_eq!(deleted(&written), []);
}

#[tokio::test(start_paused = true)]
async fn nothing_of_what_a_target_answers_is_repeated() {
    for code in [400, 401, 403, 404, 409, 422, 429, 500, 503] {
        let body =
            json!({"kind": "Status", "status": "Failure", "code": code, "reason": SECRET, "message": SECRET});
        let (target, _) = target(move |_, _| Answer::Object(code, body.clone()));
        let failure = target.identity().await.unwrap_err();
        assert!(!failure.message.contains(SECRET), "{failure}");
        assert!(failure.message.contains(&code.to_string()), "{failure}");
        let expected = match code {
            429 => Reason::TargetThrottled,
            code if code < 500 => Reason::TargetRefused,
            _ => Reason::TargetUnreachable,
        };
        assert_eq!(failure.reason, expected);
    }
    // Nor what is no Status, and what cannot be understood.
    for body in [json!(SECRET), json!({"metadata": SECRET}), json!({"metadata": {"uid": SECRET}})] {
        for code in [200, 502] {
            let body = body.clone();
            let (target, _) = target(move |_, _| Answer::Object(code, body.clone()));
            let failure = target.identity().await.unwrap_err();
            assert!(!failure.message.contains(SECRET), "{failure}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_cluster_is_known_by_the_uid_of_its_oldest_namespace() {
    let uid = "1d9a5c2e-0000-4000-8000-1234567890ab";
    let (target, _) = target(move |_, path| {
        assert_eq!(path, "/api/v1/namespaces/kube-system");
        Answer::Object(200, json!({"metadata": {"uid": uid}}))
    });
    let found = target.identity().await.unwrap();
    assert_eq!((found.uid.as_str(), found.endpoint), (uid, target.kubeconfig.cluster.endpoint()));
}

#[tokio::test(start_paused = true)]
async fn which_rights_an_access_has_the_target_says_by_its_bindings() {
    let binding = |namespace: &str, kind: &str, role: &str| {
        let mut binding = object("coppice-1-2", "1-2");
        binding["metadata"]["namespace"] = json!(namespace);
        binding["roleRef"] = json!({"kind": kind, "name": role});
        binding
    };
    let bindings = json!([
        binding("shop", "Role", "coppice-1-2"),
        binding("gone", "Role", "coppice-1-2"),
        binding("a", "ClusterRole", "view"),
        binding("b", "ClusterRole", "view"),
    ]);
    let everywhere = json!([binding("", "ClusterRole", "coppice-1-2")]);
    let rules = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]);
    let with_rules = rules.clone();
    let (target, _) = target(move |_, path| match path.rsplit('/').next() {
        Some("rolebindings") => Answer::Object(200, json!({"items": bindings})),
        Some("clusterrolebindings") => Answer::Object(200, json!({"items": everywhere})),
        _ if path.contains("/namespaces/gone/") => Answer::Refused(404),
        _ => Answer::Object(200, json!({"rules": with_rules})),
    });
    let found = target.rights_of(OWNER, None).await.unwrap();
    let expected = json!([
        {"role": {"namespace": "shop", "rules": rules}},
        {"role": {"namespace": "gone", "rules": []}},
        {"clusterRole": {"rules": rules}},
        {"bind": {"clusterRole": "view", "namespaces": ["a", "b"]}},
    ]);
    assert_eq!(serde_json::to_value(found).unwrap(), expected);
}

#[tokio::test(start_paused = true)]
async fn what_is_not_looked_at_of_a_role_may_permit_anything() {
    let one = json!({"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]});
    let any = json!({"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]});
    for (number, last) in [(MAX_RULES, &one), (MAX_RULES + 1, &any)] {
        let role = json!({"rules": vec![one.clone(); number]});
        let (target, _) = target(move |_, _| Answer::Object(200, role.clone()));
        let found = target.rules_of(TargetKind::ClusterRole, "", "coppice-1-2").await.unwrap();
        assert_eq!(json!(found.last()), *last, "{number}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_role_that_aggregates_none_has_no_rules() {
    for role in [json!({"rules": null}), json!({"rules": []}), json!({})] {
        let (target, _) = target(move |_, _| Answer::Object(200, role.clone()));
        let found = target.rules_of(TargetKind::ClusterRole, "", "all-views").await.unwrap();
        assert!(found.is_empty(), "{found:?}");
    }
}

/// What was written, with the uid that a deletion is about.
fn requests(written: &Written) -> Vec<(Method, String, Value)> {
    let written = written.lock().unwrap();
    let of_each = |(method, path, body): &(Method, String, Value)| {
        (method.clone(), path.clone(), body["preconditions"]["uid"].clone())
    };
    written.iter().map(of_each).collect()
}

const SECRETS: &str = "/api/v1/namespaces/coppice-access/secrets";

#[tokio::test(start_paused = true)]
async fn the_secret_of_an_attempt_before_is_deleted_as_it_was_found() {
    let (target, written) = target(|method, _| match *method {
        Method::GET => Answer::Object(
            200,
            json!({"items": [object("coppice-1-2-1", "1-2"), object("coppice-1-2-2", "1-2")]}),
        ),
        _ => Answer::Object(200, json!({"metadata": {"uid": "new"}})),
    });
    assert_eq!(target.bind(&permit(), OWNER, "1-2-2").await.unwrap(), "new");
    let deleted = (Method::DELETE, format!("{SECRETS}/coppice-1-2-2"), json!("uid of coppice-1-2-2"));
    assert_eq!(requests(&written), [deleted, (Method::POST, SECRETS.to_owned(), Value::Null)]);
}

#[tokio::test(start_paused = true)]
async fn the_secret_of_an_attempt_before_that_arrives_late_is_deleted_by_its_name() {
    let is_there = Mutex::new(true);
    let (target, written) = target(move |method, _| match *method {
        Method::GET => Answer::Object(200, json!({"items": []})),
        Method::POST if *is_there.lock().unwrap() => Answer::Refused(409),
        _ => {
            *is_there.lock().unwrap() = false;
            Answer::Object(200, json!({"metadata": {"uid": "new"}}))
        }
    });
    assert_eq!(target.bind(&permit(), OWNER, "1-2-2").await.unwrap(), "new");
    let posted = || (Method::POST, SECRETS.to_owned(), Value::Null);
    let deleted = (Method::DELETE, format!("{SECRETS}/coppice-1-2-2"), Value::Null);
    assert_eq!(requests(&written), [posted(), deleted, posted()]);
}

#[tokio::test(start_paused = true)]
async fn the_secret_of_an_attempt_before_is_found_by_its_name_and_not_among_those_of_all_others() {
    let mut unlabeled = object("coppice-1-2-2", "1-2");
    unlabeled["metadata"]["labels"] = json!({});
    let (clients, sent) = scripted(move |method, _, _| match *method {
        Method::GET => Answer::Object(200, json!({"items": [unlabeled]})),
        _ => Answer::Object(200, json!({"metadata": {"uid": "new"}})),
    });
    let (target, _) = target(|_, _| Answer::Refused(500));
    let target = Target { clients, ..target };
    assert_eq!(target.bind(&permit(), OWNER, "1-2-2").await.unwrap(), "new");
    let sent = sent.lock().unwrap();
    let asked: Vec<(&Method, &str)> = sent.iter().map(|sent| (&sent.method, sent.query.as_str())).collect();
    let by_name = "fieldSelector=metadata.name%3Dcoppice-1-2-2&limit=100";
    assert_eq!(asked, [(&Method::GET, by_name), (&Method::DELETE, ""), (&Method::POST, "")]);
    assert_eq!(sent[1].body["preconditions"]["uid"], "uid of coppice-1-2-2");
}
