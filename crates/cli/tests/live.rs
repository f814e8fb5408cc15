//! Commands against an API server that answers from a script: what they send, and what they make of the answers.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::support::NOW;
use crate::support::server::{against, list, status, status_of};
use serde_json::{Value, json};

const MANAGERS: &str = "GET /apis/coppice.dev/v1alpha1/namespaces/a/namespacemanagers";
const MANAGER: &str = "GET /apis/coppice.dev/v1alpha1/namespaces/a/namespacemanagers/m";
const PATCH: &str = "PATCH /apis/coppice.dev/v1alpha1/namespaces/a/namespacemanagers/m";
const CONFIG: &str = "GET /apis/coppice.dev/v1alpha1/coppiceconfigs/coppice";
const PATCH_CONFIG: &str = "PATCH /apis/coppice.dev/v1alpha1/coppiceconfigs/coppice";

fn manager(revision: &str, spec: &Value, status: &Value) -> Value {
    let mut all =
        json!({"policies": [{"name": "p", "when": {"ttl": {"after": "2h"}}, "then": {"delete": {}}}]});
    all.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    json!({
        "apiVersion": "coppice.dev/v1alpha1", "kind": "NamespaceManager",
        "metadata": {"name": "m", "namespace": "a", "uid": "u-1", "resourceVersion": revision, "generation": 1, "creationTimestamp": "2026-03-01T12:00:00Z"},
        "spec": all, "status": status
    })
}

fn namespace() -> Value {
    json!({"metadata": {"name": "a", "uid": "ns-1", "creationTimestamp": "2026-03-01T12:00:00Z"}})
}

fn plain(revision: &str) -> Value {
    manager(revision, &json!({}), &json!({}))
}

#[test]
fn a_write_has_the_revision_read_and_is_recomputed_after_a_conflict() {
    let script = vec![
        (MANAGER, 200, plain("1")),
        (MANAGER, 200, plain("2")),
        (PATCH, 409, status(409, "changed")),
        (PATCH, 200, plain("3")),
    ];
    let (ran, requests) = against("coppice hold a/m --for 2h --reason debugging", script);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    assert_eq!(ran.out, "namespacemanager.coppice.dev/m held until 2026-03-01T14:30:00Z (in 2h)\n");
    let (_, uri, body) = requests.last().unwrap();
    assert_eq!(
        *body,
        json!({
            "metadata": {"resourceVersion": "2", "uid": "u-1"},
            "spec": {"hold": {"until": "2026-03-01T14:30:00Z", "reason": "debugging"}}
        })
    );
    assert!(uri.contains("fieldManager=coppice-cli") && uri.contains("fieldValidation=Strict"), "{uri}");
    assert!(!uri.contains("dryRun"), "{uri}");
}

/// What `coppice doctor` says where these are the settings, and nothing else may be read.
fn doctor(config: Value) -> String {
    doctor_with(config, Vec::new())
}

/// The same where more may be read.
fn doctor_with(config: Value, more: Vec<(&'static str, u16, Value)>) -> String {
    const CRD: &str = "GET /apis/apiextensions.k8s.io/v1/customresourcedefinitions/";
    let forbidden = || status(403, "not you");
    let crd = |name: &str| -> &'static str { format!("{CRD}{name}.coppice.dev").leak() };
    let mut script = vec![
        (
            "GET /version",
            200,
            json!({"major": "1", "minor": "36", "gitVersion": "v1.36.3", "gitCommit": "", "gitTreeState": "", "buildDate": "", "goVersion": "", "compiler": "", "platform": ""}),
        ),
        (crd("coppiceconfigs"), 403, forbidden()),
        (crd("namespacemanagers"), 403, forbidden()),
        (CONFIG, 200, config),
    ];
    script.extend(more);
    against("coppice doctor", script).0.out
}

#[test]
fn doctor_reports_hosts_that_an_earlier_version_stored_by_default() {
    let doctor = |hosts: Value| {
        doctor(json!({
            "apiVersion": "coppice.dev/v1alpha1", "kind": "CoppiceConfig", "metadata": {"name": "coppice"},
            "spec": {"tenants": {"webhookHosts": hosts}}
        }))
    };
    let earlier = doctor(json!(["*.svc", "*.svc.cluster.local"]));
    assert!(earlier.contains("webhooks of every tenant may go to Services of every namespace"), "{earlier}");
    assert!(
        earlier.contains(r#"{"webhookHosts":["*.{namespace}.svc","*.{namespace}.svc.cluster.local"]}"#),
        "{earlier}"
    );
    for meant in [json!(["*.{namespace}.svc", "*.{namespace}.svc.cluster.local"]), json!(["*.svc"])] {
        let out = doctor(meant);
        assert!(
            out.contains("CoppiceConfig coppice: operator version") && !out.contains("earlier version"),
            "{out}"
        );
    }
}

#[test]
fn a_write_that_is_overtaken_again_and_again_gives_up() {
    let script = vec![(MANAGER, 200, plain("1")), (PATCH, 409, status(409, "changed"))];
    let (ran, requests) = against("coppice hold a/m --for 2h", script);
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("changed by somebody else 5 times"), "{}", ran.err);
    assert_eq!(requests.iter().filter(|(method, ..)| method == "PATCH").count(), 5);
}

#[test]
fn a_dry_run_is_one_on_the_server() {
    let script = vec![(MANAGER, 200, plain("1")), (PATCH, 200, plain("2"))];
    let (ran, requests) = against("coppice hold a/m --for 2h --dry-run", script);
    assert!(ran.out.ends_with("(server dry run)\n"), "{}", ran.out);
    assert!(requests.last().unwrap().1.contains("dryRun=All"));
}

#[test]
fn a_refusal_of_the_server_is_printed_verbatim() {
    let script = vec![(MANAGER, 200, plain("1")), (PATCH, 422, status(422, "spec.hold: no"))];
    let (ran, _) = against("coppice hold a/m --for 2h", script);
    assert_eq!(
        (ran.code, ran.err.as_str()),
        (1, "error: NamespaceManager a/m cannot be changed: spec.hold: no\n")
    );
}

#[test]
fn no_line_of_an_error_comes_from_what_others_wrote() {
    let theirs = "denied\n  a/m: released\nerror: none";
    let script = vec![(MANAGER, 200, plain("1")), (PATCH, 403, status(403, theirs))];
    let (ran, _) = against("coppice hold a/m --for 2h", script);
    let shown =
        "error: NamespaceManager a/m cannot be changed: denied\\n  a/m: released\\nerror: none\n".to_owned();
    assert_eq!((ran.code, ran.err), (1, shown));
}

#[test]
fn rearm_of_a_namespace_is_about_its_only_manager() {
    let only = || (MANAGERS, 200, list(&[plain("1")]));
    let (ran, requests) = against("coppice rearm a", vec![only(), (MANAGER, 200, plain("1"))]);
    assert_eq!(
        (ran.out.as_str(), requests.len()),
        ("namespacemanager.coppice.dev/m has never fired: it is armed\n", 2)
    );
    let mut other = plain("1");
    other["metadata"]["name"] = json!("other");
    let (ran, requests) = against("coppice rearm a", vec![(MANAGERS, 200, list(&[plain("1"), other]))]);
    let which = "error: namespace a has 2 NamespaceManagers (m, other): say which, such as a/m\n";
    assert_eq!((ran.code, ran.err.as_str(), requests.len()), (1, which, 1));
    let (ran, _) = against("coppice rearm a", vec![(MANAGERS, 403, status(403, "not you"))]);
    assert_eq!(
        (ran.code, ran.err.as_str()),
        (
            1,
            "error: the NamespaceManagers of namespace a cannot be listed: not you; name the manager too, as a/NAME, and \
             nothing has to be listed\n"
        )
    );
    let (ran, _) = against("coppice rearm a", vec![(MANAGERS, 200, list(&[]))]);
    let none =
        "error: there is no NamespaceManager in namespace a; `coppice list -A` shows where there are some\n";
    assert_eq!((ran.code, ran.err.as_str()), (1, none));
}

#[test]
fn release_takes_the_hold_away_and_says_so_if_there_is_none() {
    let (ran, requests) = against("coppice release a/m", vec![(MANAGER, 200, plain("1"))]);
    assert_eq!((ran.out.as_str(), requests.len()), ("namespacemanager.coppice.dev/m had no hold\n", 1));
    let held = manager("1", &json!({"hold": {"until": "2026-03-01T18:00:00Z"}}), &json!({}));
    let (ran, requests) =
        against("coppice release a/m", vec![(MANAGER, 200, held), (PATCH, 200, plain("2"))]);
    assert!(ran.out.contains("released (was held until 2026-03-01T18:00:00Z (in 5h30m))"), "{}", ran.out);
    assert_eq!(requests.last().unwrap().2["spec"], json!({"hold": null}));
}

#[test]
fn extend_counts_from_the_end_of_the_ttl_or_from_now() {
    let extended = |spec: Value, line: &str| {
        let script = vec![
            (MANAGER, 200, manager("1", &spec, &json!({}))),
            ("GET /api/v1/namespaces/a", 200, namespace()),
            (PATCH, 200, plain("2")),
        ];
        let (ran, requests) = against(line, script);
        assert_eq!(ran.code, 0, "{ran:?}");
        requests.last().unwrap().2["spec"]["extendUntil"].as_str().unwrap().to_owned()
    };
    // The ttl ends at 14:00:01.
    assert_eq!(extended(json!({}), "coppice extend a/m --by 1h"), "2026-03-01T15:00:01Z");
    assert_eq!(
        extended(json!({"extendUntil": "2026-03-01T16:00:00Z"}), "coppice extend a/m --by 1h"),
        "2026-03-01T17:00:00Z"
    );
    let past = json!({"policies": [{"name": "p", "when": {"ttl": {"after": "1m"}}, "then": {"delete": {}}}]});
    assert_eq!(extended(past, "coppice extend a/m --by 1h"), "2026-03-01T13:30:00Z");
    assert_eq!(
        extended(json!({}), "coppice extend a/m --until 2026-03-02T00:00:00Z"),
        "2026-03-02T00:00:00Z"
    );
}

#[test]
fn extending_without_a_ttl_is_refused_with_advice() {
    let pods = json!({"policies": [{"name": "p", "when": {"podsSucceed": {}}, "then": {"delete": {}}}]});
    let (ran, requests) =
        against("coppice extend a/m --by 1h", vec![(MANAGER, 200, manager("1", &pods, &json!({})))]);
    assert!(
        ran.code == 1 && ran.err.contains("has no ttl") && ran.err.contains("coppice hold a/m"),
        "{ran:?}"
    );
    assert_eq!(requests.len(), 1);
}

#[test]
fn wake_requests_the_last_firing_and_waits_until_all_are_woken() {
    let scaled_down = json!({"firings": 3, "phase": "Fired", "scaledDown": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "d", "replicas": 5}]});
    let woken = json!({"firings": 3, "phase": "Fired"});
    let script = vec![
        (MANAGERS, 200, list(&[manager("1", &json!({}), &scaled_down)])),
        (MANAGER, 200, manager("1", &json!({}), &scaled_down)),
        (MANAGER, 200, manager("2", &json!({}), &scaled_down)),
        (MANAGER, 200, manager("3", &json!({}), &woken)),
        (PATCH, 200, plain("2")),
        ("GET /api/v1/namespaces/a/events", 403, status(403, "no")),
    ];
    let (ran, requests) = against("coppice wake a", script);
    assert_eq!(ran.out, "namespacemanager.coppice.dev/m awake\n  Deployment/web: 5 replicas again\n");
    assert_eq!(ran.code, 0);
    let patch = requests.iter().find(|(method, ..)| method == "PATCH").unwrap();
    assert_eq!(patch.2["spec"], json!({"wake": 3}));
}

#[test]
fn wake_does_not_race_with_a_scale_down_under_way() {
    let intent = json!({"id": "f", "policy": "p", "action": "scaleDown", "uid": "ns-1", "digest": "d", "decidedAt": "2026-03-01T12:29:00Z", "reason": "TtlElapsed"});
    let busy = json!({"intent": intent, "scaledDown": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "d", "replicas": 5}]});
    let (ran, requests) = against("coppice wake a/m", vec![(MANAGER, 200, manager("1", &json!({}), &busy))]);
    assert!(ran.code == 1 && ran.err.contains("at this moment") && requests.len() == 1, "{ran:?}");
}

#[test]
fn wake_times_out_with_what_is_still_scaled_down() {
    let scaled_down = json!({"firings": 3, "next": {"reason": "InProgress", "message": "giving back"}, "scaledDown": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "d", "replicas": 5}]});
    let script = vec![(MANAGER, 200, manager("1", &json!({"wake": 3}), &scaled_down))];
    let (ran, _) = against("coppice wake a/m --timeout 1s", script);
    assert!(
        ran.code == 1
            && ran
                .err
                .contains("after 1s still scaled down in a/m: Deployment/web; its status says: giving back"),
        "{ran:?}"
    );
}

#[test]
fn pods_that_may_not_be_listed_are_unknown() {
    let pods = json!({"policies": [{"name": "p", "when": {"podsSucceed": {}}, "then": {"delete": {}}}]});
    let script = vec![
        (MANAGERS, 200, list(&[manager("1", &pods, &json!({}))])),
        (CONFIG, 403, status(403, "not you")),
        ("GET /api/v1/namespaces/a/pods", 403, status(403, "pods is forbidden")),
        ("GET /apis/batch/v1/namespaces/a/jobs", 200, list(&[])),
        ("GET /api/v1/namespaces/a", 200, namespace()),
    ];
    let (ran, _) = against("coppice plan -n a", script);
    assert_eq!(ran.code, 3);
    assert!(ran.out.contains("pods cannot be listed: pods is forbidden"), "{}", ran.out);
    assert!(
        ran.err.contains("CoppiceConfig/coppice: it cannot be read: not you; its defaults are assumed"),
        "{}",
        ran.err
    );
}

#[test]
fn a_job_that_cannot_be_decoded_is_unknown_in_its_namespace_alone() {
    let pods = json!({"policies": [{"name": "p", "when": {"podsSucceed": {}}, "then": {"delete": {}}}]});
    let of = |kind: Value, namespace: &str| {
        let mut object = kind;
        object["metadata"]["namespace"] = namespace.into();
        object
    };
    let named = |name: &str| {
        let mut namespace = namespace();
        namespace["metadata"]["name"] = name.into();
        namespace
    };
    let odd = json!({"metadata": {"name": "odd"}, "spec": {"template": {"metadata": {"creationTimestamp": "9999-12-31T23:59:59Z"}}}});
    let succeeded = json!({"metadata": {"name": "t"}, "status": {"phase": "Succeeded"}});
    let job = json!({"metadata": {"name": "j"}, "status": {"succeeded": 1}});
    let script = vec![
        (
            "GET /apis/coppice.dev/v1alpha1/namespacemanagers",
            200,
            list(&["a", "b"].map(|namespace| of(manager("1", &pods, &json!({})), namespace))),
        ),
        (CONFIG, 403, status(403, "not you")),
        ("GET /api/v1/pods", 200, list(&["a", "b"].map(|namespace| of(succeeded.clone(), namespace)))),
        ("GET /apis/batch/v1/jobs", 200, list(&[of(job, "a"), of(odd, "b")])),
        ("GET /api/v1/namespaces", 200, list(&["a", "b"].map(named))),
    ];
    let (ran, _) = against("coppice plan -A --no-headers", script);
    let lines: Vec<&str> = ran.out.lines().collect();
    assert_eq!((ran.code, lines.len()), (3, 2), "{}", ran.all());
    assert!(lines[0].starts_with("a ") && !lines[0].contains("jobs are not known"), "{}", ran.out);
    assert!(
        lines[1].starts_with("b ") && lines[1].contains("jobs are not known: odd cannot be decoded ("),
        "{}",
        ran.out
    );
}

#[test]
fn a_deleted_namespace_is_explained_by_its_events() {
    let gone = || ("GET /api/v1/namespaces/a", 404, status_of("NotFound"));
    let event = json!({
        "metadata": {"name": "e", "namespace": "default"}, "involvedObject": {"kind": "Namespace", "name": "a", "uid": "ns-1"},
        "type": "Normal", "reason": "NamespaceDeleted", "message": "accepted", "eventTime": "2026-03-01T12:20:00.000000Z"
    });
    let (ran, requests) = against(
        "coppice explain a",
        vec![gone(), ("GET /api/v1/namespaces/default/events", 200, list(&[event]))],
    );
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(
        ran.out.contains("2026-03-01T12:20:00Z (10m ago)   Normal   NamespaceDeleted   accepted"),
        "{}",
        ran.out
    );
    assert!(requests.last().unwrap().1.contains("involvedObject.name%3Da"), "{requests:?}");
    let (ran, _) =
        against("coppice explain a", vec![gone(), ("GET /api/v1/namespaces/default/events", 200, list(&[]))]);
    assert!(ran.code == 1 && ran.err.contains("no Event about it is left"), "{ran:?}");
}

#[test]
fn list_shows_what_the_operator_reported() {
    let status = json!({"observedGeneration": 1, "phase": "Active", "next": {"action": "delete", "due": "2026-03-01T14:00:01Z", "reason": "TtlRunning", "message": "the ttl ends"}});
    let mut new = manager("2", &json!({"hold": {"until": "2026-03-01T18:00:00Z"}}), &json!({}));
    new["metadata"]["name"] = "new".into();
    let mut odd = manager("3", &json!({"policies": 7}), &json!({}));
    odd["metadata"]["name"] = "odd".into();
    let script =
        || vec![(MANAGERS, 200, list(&[manager("1", &json!({}), &status), new.clone(), odd.clone()]))];
    insta::assert_snapshot!("list", against("coppice list -n a", script()).0.all());
    insta::assert_snapshot!("list_wide", against("coppice ls -n a -o wide", script()).0.out);
    let (ran, _) = against("coppice list -n a", vec![(MANAGERS, 200, list(&[]))]);
    assert_eq!((ran.code, ran.err.as_str()), (0, "No resources found in a namespace.\n"));
    let (_, requests) = against("coppice list -n a -l x=y", vec![(MANAGERS, 200, list(&[]))]);
    assert!(requests[0].1.contains("labelSelector=x%3Dy"), "{requests:?}");
}

#[test]
fn what_the_cluster_says_does_not_act_on_the_terminal() {
    let hostile = "\u{1b}]0;title\u{7}x\r\nother   line\u{9b}1m";
    let status = json!({"observedGeneration": 1, "phase": "Active", "next": {"action": "delete", "reason": "TtlRunning", "message": hostile}});
    let managers = list(&[manager("1", &json!({}), &status)]);
    let event = json!({
        "metadata": {"name": "e", "namespace": "default"}, "involvedObject": {"kind": "Namespace", "name": "a", "uid": "ns-1"},
        "type": hostile, "reason": hostile, "message": hostile, "eventTime": "2026-03-01T12:20:00.000000Z"
    });
    let gone = ("GET /api/v1/namespaces/a", 404, status_of("NotFound"));
    let service = json!({
        "metadata": {"name": "v1.x"}, "status": {"conditions": [{"type": "Available", "status": "False", "message": hostile}]}
    });
    let stuck = json!({"metadata": {
        "name": "a", "uid": "u", "deletionTimestamp": "2026-03-01T12:00:00Z", "finalizers": [hostile]
    }});
    let version = json!({"major": "1", "minor": "36", "gitVersion": "v1.36.0", "gitCommit": "", "gitTreeState": "", "buildDate": "", "goVersion": "", "compiler": "", "platform": ""});
    for (line, script) in [
        ("coppice list -n a", vec![(MANAGERS, 200, managers.clone())]),
        ("coppice list -n a -o json", vec![(MANAGERS, 200, managers)]),
        ("coppice explain a", vec![gone, ("GET /api/v1/namespaces/default/events", 200, list(&[event]))]),
        ("coppice list -n a", vec![(MANAGERS, 500, self::status(500, hostile))]),
        (
            "coppice doctor",
            vec![
                ("GET /version", 200, version),
                ("GET /apis/apiregistration.k8s.io/v1/apiservices", 200, list(&[service])),
                ("GET /api/v1/namespaces", 200, list(&[stuck])),
            ],
        ),
    ] {
        let (ran, _) = against(line, script);
        let all = ran.all();
        assert!(all.contains("other   line"), "{line}: {all}");
        assert!(!all.contains(|c: char| c.is_control() && c != '\n'), "{line}: {all:?}");
        assert!(!all.lines().any(|shown| shown.starts_with("other")), "{line}: {all}");
    }
}

#[test]
fn without_the_crds_the_message_says_how_to_install_them() {
    let (ran, _) = against("coppice list -n a", Vec::new());
    assert!(ran.code == 1 && ran.err.contains("coppice crds | kubectl apply --server-side -f -"), "{ran:?}");
}

#[test]
fn simulate_reads_the_cluster_and_writes_nothing() {
    let list = |items: Value| json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": items});
    let managers = list(json!([{
        "metadata": {"name": "m", "namespace": "a"},
        "spec": {"policies": [{"name": "end", "when": {"ttl": {"after": "2h"}}, "then": {"delete": {}}}]},
    }]));
    let namespaces = list(json!([{"metadata": {"name": "a", "uid": "u", "creationTimestamp": NOW}}]));
    let settings = list(json!([{"metadata": {"name": "coppice"}, "spec": {}}]));
    let script = vec![
        ("GET /apis/coppice.dev/v1alpha1/namespacemanagers", 200, managers),
        ("GET /api/v1/namespaces", 200, namespaces),
        ("GET /apis/coppice.dev/v1alpha1/coppiceconfigs", 200, settings),
        ("GET /api/v1/pods", 403, status(403, "pods is forbidden")),
    ];
    let (ran, requests) = against("coppice simulate --for 1d", script);
    assert_eq!(ran.code, 0, "{}", ran.all());
    assert!(ran.out.contains("a           m         NamespaceDeleted"), "{}", ran.out);
    assert!(ran.err.contains("warning: pods cannot be listed"), "{}", ran.err);
    assert!(ran.err.contains("of 1 managed namespace, 1 would be deleted"), "{}", ran.err);
    assert!(requests.iter().all(|(method, ..)| method == "GET"), "{requests:?}");
}

const BREAKER: &str = "pods-2026-03-01T12:00:00Z";

/// The settings with an open breaker, and this governor.
fn with_breaker(governor: &Value) -> Value {
    let breaker = json!({
        "id": BREAKER, "source": "pods", "since": "2026-03-01T12:00:00Z",
        "message": "a list of pods lacked 60 of the 60 that were known",
    });
    json!({
        "apiVersion": "coppice.dev/v1alpha1", "kind": "CoppiceConfig",
        "metadata": {"name": "coppice", "uid": "u-1", "resourceVersion": "1", "generation": 1},
        "spec": {"governor": governor},
        "status": {"governor": {"breaker": breaker}}
    })
}

#[test]
fn acknowledge_names_the_breaker_that_is_open_and_says_what_it_was() {
    let script = |governor: &Value| {
        let settings = with_breaker(governor);
        vec![
            (CONFIG, 200, settings.clone()),
            (PATCH_CONFIG, 409, status(409, "changed")),
            (PATCH_CONFIG, 200, settings),
        ]
    };
    let (ran, requests) = against(&format!("coppice acknowledge {BREAKER}"), script(&json!({})));
    let line = format!(
        "breaker {BREAKER} acknowledged: a list of pods lacked 60 of the 60 that were known; what is due is done now, within \
         the budget\n"
    );
    assert_eq!((ran.code, ran.out, ran.err.as_str()), (0, line, ""));
    let patch = json!({
        "metadata": {"resourceVersion": "1", "uid": "u-1"}, "spec": {"governor": {"acknowledge": BREAKER}}
    });
    assert_eq!(requests.last().unwrap().2, patch);
    assert_eq!(requests.iter().filter(|(method, ..)| method == "PATCH").count(), 2, "again after a conflict");
    let dry = format!("coppice acknowledge {BREAKER} --dry-run");
    let (ran, requests) = against(&dry, script(&json!({"paused": true})));
    assert!(ran.out.contains("acknowledged (server dry run): "), "{}", ran.out);
    assert!(ran.err.contains("spec.governor.paused is true"), "{}", ran.err);
    assert!(requests.last().unwrap().1.contains("dryRun=All"));
}

#[test]
fn acknowledge_writes_nothing_about_a_breaker_that_is_not_open() {
    let acknowledge = |id: &str, settings: Value| {
        let (ran, requests) = against(&format!("coppice acknowledge {id}"), vec![(CONFIG, 200, settings)]);
        assert!(requests.iter().all(|(method, ..)| method == "GET"), "{requests:?}");
        ran
    };
    let ran = acknowledge("jobs-2026-03-01T12:00:00Z", with_breaker(&json!({})));
    let error = format!(
        "error: no breaker \"jobs-2026-03-01T12:00:00Z\" is open; the one that is: {BREAKER} (a list of pods lacked 60 of the \
         60 that were known)\n"
    );
    assert_eq!((ran.code, ran.err), (1, error));
    let ran = acknowledge(BREAKER, with_breaker(&json!({"acknowledge": BREAKER})));
    assert_eq!((ran.code, ran.out), (0, format!("breaker {BREAKER} was acknowledged before\n")));
    let ran = acknowledge("jobs-2026-03-01T12:00:00Z", with_breaker(&json!({"acknowledge": BREAKER})));
    let error = format!(
        "error: breaker {BREAKER} was acknowledged, and the leader has not removed it yet: try again in a few seconds\n"
    );
    assert_eq!((ran.code, ran.err), (1, error), "it would be open again");
}

#[test]
fn acknowledge_takes_an_id_that_no_status_shows_yet_and_warns() {
    let mut unwritten = with_breaker(&json!({}));
    unwritten["status"] = json!({});
    let script = vec![(CONFIG, 200, unwritten.clone()), (PATCH_CONFIG, 200, unwritten)];
    let (ran, requests) = against(&format!("coppice acknowledge {BREAKER}"), script);
    assert_eq!((ran.code, ran.out), (0, format!("spec.governor.acknowledge is {BREAKER} now\n")));
    assert!(ran.err.contains("warning: status.governor.breaker of CoppiceConfig coppice shows no breaker"));
    assert_eq!(requests.last().unwrap().2["spec"]["governor"]["acknowledge"], BREAKER);
}

#[test]
fn doctor_reports_a_breaker_until_it_is_acknowledged() {
    let open = doctor(with_breaker(&json!({})));
    assert!(
        open.contains("the breaker is open since 2026-03-01T12:00:00Z (30m ago): a list of pods"),
        "{open}"
    );
    assert!(open.contains(&format!("`coppice acknowledge {BREAKER}`")), "{open}");
    let closed = doctor(with_breaker(&json!({"acknowledge": BREAKER})));
    assert!(!closed.contains("breaker"), "{closed}");
}

#[test]
fn doctor_says_what_is_wrong_with_cluster_managers_and_records() {
    const MANAGERS: &str = "GET /apis/coppice.dev/v1alpha1/clusternamespacemanagers";
    const RECORDS: &str = "GET /apis/coppice.dev/v1alpha1/managednamespaces";
    let condition = |type_: &str, status: &str, reason: &str, message: &str| {
        json!({"type": type_, "status": status, "reason": reason, "message": message, "observedGeneration": 1,
               "lastTransitionTime": "2026-03-01T12:00:00Z"})
    };
    let manager = |name: &str, spec: Value, seen: i64, conditions: Value| {
        json!({"apiVersion": "coppice.dev/v1alpha1", "kind": "ClusterNamespaceManager",
               "metadata": {"name": name, "uid": name, "generation": 1}, "spec": spec, "status": {"observedGeneration": seen,
               "namespaces": {"governed": 3}, "enforce": {"due": 2}, "conditions": conditions}})
    };
    let spec = |mode: &str| json!({"mode": mode, "selector": {"names": ["ci-*"]}});
    let needed = json!([condition("Approved", "False", "ApprovalNeeded", "2 wait for spec.approval")]);
    let managers = json!({"apiVersion": "coppice.dev/v1alpha1", "kind": "ClusterNamespaceManagerList", "metadata": {}, "items": [
        manager("broken", json!({"selector": {"names": ["ci-*"]}, "settle": "soon"}), 1, json!([])),
        manager("enforces", spec("Enforce"), 1, needed.clone()),
        manager("observes", spec("Observe"), 1, needed),
        manager("unread", spec("Enforce"), 0, json!([])),
    ]});
    let record = |namespace: &str, status: &str, reason: &str| {
        json!({"apiVersion": "coppice.dev/v1alpha1", "kind": "ManagedNamespace", "spec": {},
               "metadata": {"name": "coppice", "namespace": namespace, "uid": namespace, "generation": 1},
               "status": {"conditions": [condition("Ready", status, reason, "why")]}})
    };
    let records = json!({"apiVersion": "coppice.dev/v1alpha1", "kind": "ManagedNamespaceList", "metadata": {}, "items": [
        record("ci-a", "True", "Reconciled"), record("ci-b", "False", "RecordTerminating"),
    ]});
    let said =
        doctor_with(with_breaker(&json!({})), vec![(MANAGERS, 200, managers), (RECORDS, 200, records)]);
    for line in [
        "PROBLEM  ClusterNamespaceManager broken: its spec cannot be understood, so that no cluster manager does anything",
        "PROBLEM  ClusterNamespaceManager enforces: enforces, governs 3 namespaces, 2 due",
        "Approved is False: 2 wait for spec.approval [ApprovalNeeded]",
        "ok       ClusterNamespaceManager observes: observes, governs 3 namespaces, 2 due",
        "PROBLEM  ClusterNamespaceManager unread: the operator has not read the last change of spec",
        "PROBLEM  ManagedNamespaces: 1 of 2 records are not Ready",
        "namespace ci-b: why [RecordTerminating]",
        "`kubectl get mns -A -o yaml` shows the finalizers",
    ] {
        assert!(said.contains(line), "{line} is missing in\n{said}");
    }
}
