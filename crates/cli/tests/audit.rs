//! `coppice audit`: the policy, and what a log says.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::support::run;
use crate::support::server::{against, list, status};
use serde_json::{Value, json};

/// A line of a log: user, verb, group and resource, namespace and name, code.
fn line(
    user: &str,
    verb: &str,
    (group, resource): (&str, &str),
    (namespace, name): (&str, &str),
    code: u16,
) -> String {
    let object = json!({"apiGroup": group, "resource": resource, "namespace": namespace, "name": name});
    let event = json!({"kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "Metadata", "auditID": format!("{user}-{verb}-{name}"),
        "stage": "ResponseComplete", "requestURI": "/", "verb": verb, "user": {"username": user}, "sourceIPs": ["10.0.0.9"],
        "userAgent": "kubectl/v1.34", "objectRef": object, "responseStatus": {"metadata": {}, "code": code},
        "requestReceivedTimestamp": "2026-03-01T12:00:00.123456Z", "stageTimestamp": "2026-03-01T12:00:00.2Z"});
    format!("{event}\n")
}

const SECRETS: (&str, &str) = ("", "secrets");
const ACCESSES: (&str, &str) = ("coppice.dev", "clusteraccesses");
const ISSUER: &str = "system:serviceaccount:coppice-access-system:coppice-access";

fn log() -> String {
    [
        line(ISSUER, "update", SECRETS, ("team", "ci-kubeconfig"), 200),
        line("alice", "get", SECRETS, ("team", "ci-kubeconfig"), 200),
        line("system:node:one", "get", SECRETS, ("team", "ci-kubeconfig"), 200),
        line("bob", "patch", ACCESSES, ("team", "ci"), 403),
        line("bob", "get", ("", "pods"), ("team", "web"), 200),
    ]
    .concat()
}

#[test]
fn a_log_says_who_read_a_credential_and_who_was_refused() {
    let ran = run("coppice audit check --offline -", &log());
    let table = "\
WHEN                   WHO     WHAT          OBJECT                                TYPE
2026-03-01T12:00:00Z   alice   get           secrets team/ci-kubeconfig            CredentialRead
2026-03-01T12:00:00Z   bob     patch (403)   clusteraccesses.coppice.dev team/ci   Refused
";
    assert_eq!((ran.code, ran.out.as_str()), (3, table), "{}", ran.err);
    let counted = "5 events: 2 found; 1 by Coppice itself, 1 by Kubernetes, 0 allowed; 1 Secret with credentials known outside of \
                   Coppice's namespaces\n";
    assert_eq!(ran.err, counted);
    let wide = run("coppice audit check --offline -o wide --no-headers --only refused -", &log());
    assert!(wide.out.contains("Refused   10.0.0.9   kubectl/v1.34   bob-patch-ci\n"), "{}", wide.out);
    assert_eq!(wide.out.lines().count(), 1, "{}", wide.out);
}

#[test]
fn in_json_findings_come_with_what_was_counted() {
    let ran = run("coppice audit check --offline --allow bob -o json -", &log());
    let found: Value = serde_json::from_str(&ran.out).unwrap();
    // Whom it allows is still reported where the API server refused it.
    let types: Vec<&Value> = found["findings"].as_array().unwrap().iter().map(|one| &one["type"]).collect();
    assert_eq!(types, ["CredentialRead", "Refused"]);
    assert_eq!(found["findings"][0]["sourceIPs"], json!(["10.0.0.9"]));
    assert_eq!((&found["counts"]["events"], &found["counts"]["byCoppice"]), (&json!(5), &json!(1)));
    let nothing = run("coppice audit check --offline -o json -", "");
    assert_eq!(serde_json::from_str::<Value>(&nothing.out).unwrap()["findings"], json!([]));
    assert_eq!(nothing.code, 0);
    assert!(nothing.err.contains("there is no event"), "{}", nothing.err);
}

#[test]
fn lines_that_are_no_events_are_named_and_counted_and_nothing_else_is_lost() {
    let text = format!("I0301 starting\n{}\n\n{{\"kind\":\"Event\"", log().trim_end());
    let ran = run("coppice audit check --offline --only edited -", &text);
    assert_eq!((ran.code, ran.out.as_str()), (3, ""), "{}", ran.err);
    for says in [
        "standard input, line 1: it is no audit event",
        "line 8: ",
        "5 events: 0 found",
        "2 lines could not be understood",
    ] {
        assert!(ran.err.contains(says), "{says}: {}", ran.err);
    }
    let many = run("coppice audit check --offline -", &"x\n".repeat(1000));
    assert!(many.err.contains("1000 lines could not be understood"), "{}", many.err);
    assert_eq!(many.err.matches("it is no audit event").count(), 10);
}

#[test]
fn more_rows_than_a_table_has_are_printed_under_one_line_of_names() {
    let read = line("alice", "get", SECRETS, ("coppice-system", "a"), 200);
    let ran = run("coppice audit check --offline -", &read.repeat(2500));
    assert_eq!((ran.out.lines().count(), ran.out.matches("WHEN").count()), (2501, 1));
}

#[test]
fn the_cluster_says_which_secrets_have_credentials_or_files_do() {
    let access = json!({"apiVersion": "coppice.dev/v1alpha1", "kind": "ClusterAccess", "metadata": {"name": "ci", "namespace": "team"},
        "spec": {"cluster": {"kubeconfigSecret": {"name": "target"}}, "output": {"secret": "out"}}});
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let reads = ["out", "target", "other"].map(|name| line("alice", "get", SECRETS, ("team", name), 200));
    std::fs::write(path("audit.log"), reads.concat()).unwrap();
    std::fs::write(path("objects.json"), access.to_string()).unwrap();
    let command = format!("coppice audit check {}", path("audit.log"));
    let script = vec![
        ("GET /apis/coppice.dev/v1alpha1/clusteraccesses", 200, list(&[access])),
        ("GET /apis/coppice.dev/v1alpha1/clusterproviders", 404, status(404, "404 page not found")),
    ];
    let (live, _) = against(&command, script);
    let offline = run(&format!("{command} --objects {}", path("objects.json")), "");
    for ran in [live, offline] {
        assert!(ran.err.starts_with("3 events: 2 found"), "{}", ran.err);
    }
    let (refused, _) = against(
        &command,
        vec![(
            "GET /apis/coppice.dev/v1alpha1/clusteraccesses",
            403,
            status(403, "clusteraccesses.coppice.dev is forbidden"),
        )],
    );
    assert_eq!(refused.code, 1);
    assert!(refused.err.contains("is forbidden; with --objects FILE or --offline"), "{}", refused.err);
}

#[test]
fn what_cannot_be_read_is_said_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.log.gz").display().to_string();
    std::fs::write(&path, [0x1f, 0x8b, 8, 0]).unwrap();
    let ran = run(&format!("coppice audit check --offline {path}"), "");
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains(&format!("`zcat {path} | coppice audit check -` reads it")), "{}", ran.err);
    assert_eq!(run("coppice audit check --offline - -", "").code, 1);
    assert_eq!(run("coppice audit check --offline /nonexistent", "").code, 1);
    assert_eq!(run("coppice audit check", "").code, 2);
    assert_eq!(run("coppice audit check --offline --only nothing -", "").code, 2);
}

#[test]
fn the_policy_is_printed_with_what_it_cannot_do() {
    let ran = run("coppice audit policy --system-namespace elsewhere", "");
    let policy: Value = serde_yaml::from_str(&ran.out).unwrap();
    assert_eq!((ran.code, &policy["kind"]), (0, &json!("Policy")));
    assert!(
        ran.out.contains("What no audit policy can do")
            && ran.out.contains("[coppice-access, coppice-access-system, elsewhere]")
    );
    let rules: Value = serde_yaml::from_str(&run("coppice audit policy --rules-only", "").out).unwrap();
    assert!(rules.is_array(), "{rules:#}");
}
