//! `plan` and `explain` from files, without a cluster.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::support::{NOW, cluster, fixture, run, run_at};

#[test]
fn plan_shows_what_will_happen_when_and_why() {
    insta::assert_snapshot!(run("coppice plan -f -", &cluster()).all());
}

#[test]
fn plan_wide_adds_policy_reason_and_the_next_check() {
    insta::assert_snapshot!(run("coppice plan -o wide -f -", &cluster()).out);
}

#[test]
fn plan_in_json_is_for_programs() {
    insta::assert_snapshot!(run("coppice plan -n shop -o json -f -", &cluster()).out);
}

#[test]
fn plan_by_name() {
    assert_eq!(
        run("coppice plan -n tests -o name -f -", &cluster()).out,
        "namespacemanager.coppice.dev/e2e\nnamespacemanager.coppice.dev/fired\n"
    );
}

#[test]
fn plan_at_another_instant_moves_only_the_clock() {
    let ran = run("coppice plan -n shop --at +80m -f -", &cluster());
    insta::assert_snapshot!(ran.all());
    let same = run("coppice plan -n shop --at 2026-03-01T13:50:00Z -f -", &cluster());
    assert_eq!(ran.out, same.out);
    let past = run("coppice plan -n shop --at -30m -f -", &cluster());
    assert!(past.err.contains("as of 2026-03-01T12:00:00Z (30m ago)"), "{}", past.err);
}

#[test]
fn a_plan_is_unfolded_until_it_acts() {
    let manager = "apiVersion: coppice.dev/v1alpha1\nkind: NamespaceManager\nmetadata: {name: m, namespace: a}\nspec: {policies: [{name: p, when: {ttl: {after: 5s}}, then: {delete: {}}}]}\n";
    let ran = run("coppice plan -f - --at +1h --no-headers", manager);
    assert!(ran.out.contains("Pending   delete   now"), "{}", ran.out);
    assert!(
        ran.err.contains("namespace a is not in the files: assumed to be created at 2026-03-01T12:30:00Z"),
        "{}",
        ran.err
    );
    assert_eq!(ran.code, 0);
}

#[test]
fn explain_reads_well() {
    insta::assert_snapshot!("explain_shop", run("coppice explain shop -f -", &cluster()).all());
    insta::assert_snapshot!("explain_tests", run("coppice explain tests -f -", &cluster()).all());
    insta::assert_snapshot!(
        "explain_refused",
        run("coppice explain kube-extra/refused -f -", &cluster()).all()
    );
    insta::assert_snapshot!("explain_yaml", run("coppice explain tests/fired -o yaml -f -", &cluster()).out);
}

#[test]
fn explain_of_what_is_not_there_says_so() {
    let ran = run("coppice explain shop/nobody -f -", &cluster());
    assert_eq!(
        (ran.code, ran.err.as_str()),
        (1, "error: there is no NamespaceManager nobody in namespace shop\n")
    );
    let ran = run("coppice explain empty -f -", &cluster());
    assert_eq!(
        ran.out,
        "Namespace empty has no NamespaceManager, and there is no ClusterNamespaceManager: nothing is done to it.\n"
    );
}

#[test]
fn the_breaker_stops_destructive_steps() {
    let paused =
        cluster().replace("tenants: {webhookHosts", "governor: {paused: true}\n    tenants: {webhookHosts");
    let ran = run("coppice explain tests/e2e -f -", &paused);
    assert!(ran.out.contains("its condition holds, but Coppice is paused"), "{}", ran.out);
    assert!(
        ran.out.contains("[Paused]") && ran.out.contains("as soon as nothing stands in the way"),
        "{}",
        ran.out
    );
    let breaker =
        coppice_lifecycle::breaker::opened("pods", 60, 60, false, "2026-03-01T12:00:00Z".parse().unwrap());
    let status = serde_json::json!({ "governor": { "breaker": breaker } });
    let settings = "tenants: {webhookHosts";
    let open = cluster().replace(
        "  spec:\n    tenants: {webhookHosts",
        &format!("  status: {status}\n  spec:\n    {settings}"),
    );
    let ran = run("coppice explain tests/e2e -f -", &open);
    assert!(ran.out.contains("`coppice acknowledge pods-2026-03-01T12:00:00Z` [BreakerOpen]"), "{}", ran.out);
}

#[test]
fn all_mistakes_are_reported_with_file_document_and_path() {
    insta::assert_snapshot!(run("coppice plan -f -", &fixture("bad.yaml")).all());
    for (text, expected) in [
        ("kind: X", "document 1: apiVersion or kind is missing"),
        ("a: [", "document 1 cannot be read"),
        ("[]", "expected an object"),
        (
            "{apiVersion: coppice.dev/v1alpha1, kind: NamespaceGarden, metadata: {name: x}}",
            "knows no kind NamespaceGarden",
        ),
        ("{apiVersion: v1, kind: Pod, metadata: []}", "document 1: not a Pod"),
        (
            "{apiVersion: coppice.dev/v1alpha1, kind: CoppiceConfig, metadata: {name: other}, spec: {}}",
            "edit that one",
        ),
    ] {
        let ran = run("coppice plan -f -", text);
        assert!(ran.code == 1 && ran.err.contains(expected), "{text}: {ran:?}");
    }
    let missing = run("coppice plan -f /nonexistent.yaml", "");
    assert!(missing.err.starts_with("error: /nonexistent.yaml cannot be read: "), "{}", missing.err);
}

/// The CRD's rules accept it, so that it may be in a cluster: only the plan says that nothing can be sent there.
#[test]
fn a_url_that_no_webhook_can_be_sent_to_is_refused_before_anything_is_applied() {
    let manager = "apiVersion: coppice.dev/v1alpha1\nkind: NamespaceManager\nmetadata: {name: m, namespace: a}\nspec: {policies: [{name: p, when: {ttl: {after: 5s}}, then: {webhook: {url: 'http://hook.a.svc/#top'}}}]}\n";
    let said = "policy \"p\": the webhook URL has a fragment (#...), which is never sent; leave it out";
    for command in ["plan", "explain a"] {
        let ran = run(&format!("coppice {command} -f -"), manager);
        assert!(ran.code == 3 && ran.out.contains("Refused") && ran.out.contains(said), "{ran:?}");
    }
    let ran = run("coppice simulate -f -", manager);
    assert!(ran.code == 3 && ran.err.contains("left as Refused (InvalidSpec)"), "{ran:?}");
}

#[test]
fn the_same_manager_twice_is_a_mistake() {
    let text = cluster() + "---\n" + &cluster();
    assert!(run("coppice plan -f -", &text).err.contains("NamespaceManager shop/ttl is there twice"));
}

#[test]
fn the_examples_are_good() {
    let examples = "../../examples";
    let ran = run(&format!("coppice plan --no-headers -f {examples} --at +50s"), "");
    assert_eq!(ran.code, 0, "{}", ran.err);
    let column = |n: usize| {
        ran.out.lines().map(|l| l.split_whitespace().nth(n).unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(column(0), (1..=6).map(|n| format!("example-0{n}")).collect::<Vec<_>>());
    assert_eq!(column(2), ["Pending", "Active", "Active", "Active", "Held", "Active"]);
    assert_eq!(column(3), ["delete", "delete", "scaleDown", "webhook", "-", "delete"]);
}

#[test]
fn colours_are_asked_for_and_only_then() {
    let run = |color: bool| {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let text = cluster();
        let mut io = coppice_cli::Io {
            stdin: &mut text.as_bytes(),
            out: &mut out,
            err: &mut err,
            now: NOW.parse().unwrap(),
            color,
            width: None,
            progress: false,
            client: None,
        };
        coppice_cli::run(["coppice", "plan", "-f", "-"].map(Into::into), &mut io);
        String::from_utf8(out).unwrap()
    };
    assert!(run(true).contains("\u{1b}[") && !run(false).contains('\u{1b}'));
}

#[test]
fn a_plan_made_later_is_the_same_for_what_does_not_depend_on_time() {
    let now = run_at("coppice plan -n kube-extra -f -", &cluster(), NOW, None);
    let later = run_at("coppice plan -n kube-extra -f -", &cluster(), "2027-03-01T12:30:00Z", None);
    assert_eq!(now.out, later.out);
}

#[test]
fn simulate_shows_what_would_be_done_when_and_why() {
    insta::assert_snapshot!("simulate", run("coppice simulate --for 3d -f -", &cluster()).all());
}

#[test]
fn simulate_in_json_and_as_a_picture() {
    let ran = run("coppice simulate --for 3d -o json -f -", &cluster());
    let report: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(report["from"], NOW);
    let rows = run("coppice simulate --for 3d --no-headers -f -", &cluster()).out.lines().count();
    assert_eq!(report["timeline"].as_array().unwrap().len(), rows);
    assert!(rows > 0 && !report["managers"].as_array().unwrap().is_empty());
    assert!(run("coppice simulate --for 3d -o svg -f -", &cluster()).out.starts_with("<svg "));
}

#[test]
fn simulate_refuses_what_makes_no_sense() {
    for (line, why) in [
        ("coppice simulate --for 0s -f -", "zero changes nothing"),
        ("coppice simulate --for 400d -f -", "at most 366d"),
        ("coppice simulate --for soon -f -", "--for"),
    ] {
        let ran = run(line, &cluster());
        assert!(ran.code == 2 && ran.err.contains(why), "{line}: {}", ran.err);
    }
    let none = run("coppice simulate -f -", "apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n");
    assert!(
        none.code == 0 && none.err.contains("No NamespaceManagers or governed namespaces found"),
        "{}",
        none.err
    );
}

/// What a tenant may write who wants more than to be read: clears the screen, colours, other lines, 8-bit controls, turned text.
const HOSTILE: &str = r"\e[2J\e[31mgone\r\nshop   ok\a\x9b1m\u202Efed";

/// Characters that act on a terminal. The line breaks between lines are ours.
fn acting(text: &str) -> String {
    let turns = |c| matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    text.chars().filter(|c| *c != '\n' && (c.is_control() || turns(*c))).collect()
}

#[test]
fn nothing_that_tenants_write_acts_on_the_terminal() {
    let hostile = cluster()
        .replace("demo for the board", &format!("\"{HOSTILE}\""))
        .replace("end of life", &format!("\"{HOSTILE}\""));
    for line in [
        "plan",
        "plan -o wide",
        "plan -o json",
        "plan -o yaml",
        "plan -o name",
        "explain shop",
        "explain shop -o json",
        "explain shop -o yaml",
        "simulate --for 1d",
        "simulate --for 1d -o json",
        "simulate --for 1d -o svg",
    ] {
        let (ran, plain) = (
            run(&format!("coppice {line} -f -"), &hostile),
            run(&format!("coppice {line} -f -"), &cluster()),
        );
        assert_eq!(ran.code, plain.code, "{line}: {}", ran.err);
        for (text, same) in [(&ran.out, &plain.out), (&ran.err, &plain.err)] {
            assert_eq!(acting(text), "", "{line}: {text:?}");
            assert_eq!(text.lines().count(), same.lines().count(), "{line}: {text}");
        }
    }
    let shown = run("coppice explain shop -f -", &hostile).out;
    assert!(shown.contains(r"(^[[2J^[[31mgone\r\nshop   ok\u{7}\u{9b}1m\u{202e}fed)"), "{shown}");
    // What is wrong is said about hostile text, too.
    let wrong =
        cluster().replace("name: ttl, namespace: shop", &format!("name: \"{HOSTILE}\", namespace: shop"));
    let ran = run("coppice plan -f -", &wrong);
    assert_eq!((ran.code, acting(&ran.err).as_str(), ran.err.lines().count()), (1, "", 2), "{}", ran.err);
}

#[test]
fn files_without_settings_use_the_defaults_and_a_note_says_so() {
    let note = "note: no CoppiceConfig/coppice in the files: the defaults are assumed\n";
    let hosts = "  spec:\n    tenants: {webhookHosts: [\"*.svc\"]}\n";
    let with = cluster().replace(hosts, "  spec: {}\n");
    assert_ne!(with, cluster());
    let settings = "- apiVersion: coppice.dev/v1alpha1\n  kind: CoppiceConfig\n  metadata: {name: coppice}\n  spec: {}\n";
    let without = with.replace(settings, "");
    assert_ne!(with, without);
    for line in ["plan -n shop", "explain shop", "simulate -n shop --for 3d"] {
        let line = format!("coppice {line} -f -");
        let (known, assumed) = (run(&line, &with), run(&line, &without));
        assert!(assumed.err.contains(note) && !known.err.contains(note), "{line}: {}", assumed.err);
        assert_eq!((known.out, known.code), (assumed.out, assumed.code), "{line}");
    }
}

#[test]
fn records_of_deleted_namespaces_in_a_dump_change_nothing() {
    let record = "---\napiVersion: coppice.dev/v1alpha1\nkind: DeletedNamespace\nmetadata: {name: fire-1, creationTimestamp: 2026-03-01T12:00:00Z}\nspec: {namespace: shop}\n";
    let with = format!("{}\n{record}", cluster());
    for line in ["coppice plan -f -", "coppice simulate --for 1d -f -"] {
        assert_eq!(run(line, &with).all(), run(line, &cluster()).all(), "{line}");
    }
}
