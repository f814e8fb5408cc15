//! What `plan` and `explain` say about namespaces under cluster managers, from files.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::support;

use crate::support::{governed, run};
use coppice_lifecycle::cluster::ValidClusterManager;
use coppice_sim::simulate::WATCHED_KINDS;
use serde_json::Value;

#[test]
fn plan_has_a_line_for_each_governed_namespace() {
    insta::assert_snapshot!("plan", run("coppice plan -f -", &governed()).all());
    insta::assert_snapshot!("plan_wide", run("coppice plan -n ci-1 -o wide -f -", &governed()).out);
    assert_eq!(
        run("coppice plan -n ci-1 -o name -f -", &governed()).out,
        "managednamespace.coppice.dev/coppice\n"
    );
}

#[test]
fn plan_in_json_says_whose_line_it_is() {
    let report: Value = serde_json::from_str(&run("coppice plan -o json -f -", &governed()).out).unwrap();
    let item = &report["items"][0];
    assert_eq!(item["managerKind"], "ClusterNamespaceManager");
    assert_eq!((&item["manager"], &item["phase"]), (&"ci".into(), &"Stale".into()));
    assert_eq!(
        (&item["due"], &item["expiresAt"]),
        (&"2026-03-01T12:45:00Z".into(), &"2026-03-01T12:15:00Z".into())
    );
}

#[test]
fn the_example_of_a_ci_system_is_good() {
    let ran = run("coppice plan -o json -f ../../examples/ci", "");
    assert_eq!(ran.code, 0, "{}", ran.err);
    let report: Value = serde_json::from_str(&ran.out).unwrap();
    let item = &report["items"][0];
    assert_eq!(
        (&item["namespace"], &item["manager"]),
        (&"ci-shop-1234-5678".into(), &"merge-requests".into())
    );
    assert_eq!(item["reason"], "Held");
}

#[test]
fn a_plan_later_deletes_now_what_its_notice_has_run_for() {
    let ran = run("coppice plan -n ci-1 --no-headers --at +15m -f -", &governed());
    assert!(ran.out.contains("delete   now"), "{}", ran.all());
    let ran = run("coppice plan -n ci-held --no-headers --at +15m -f -", &governed());
    assert!(ran.out.contains("held by bob until 2026-03-01T18:00:00Z (demo for the board)"), "{}", ran.all());
}

#[test]
fn explain_says_who_governs_a_namespace_and_what_comes_of_it() {
    insta::assert_snapshot!("explain_notice", run("coppice explain ci-1 -f -", &governed()).all());
    insta::assert_snapshot!("explain_held", run("coppice explain ci-held -f -", &governed()).all());
    insta::assert_snapshot!("explain_contest", run("coppice explain ci-2 -f -", &governed()).all());
    insta::assert_snapshot!("explain_yaml", run("coppice explain ci-1 -o yaml -f -", &governed()).out);
}

#[test]
fn explain_of_a_namespace_that_nobody_governs_says_which_part_of_each_selector_failed() {
    let ran = run("coppice explain shop -f -", &governed());
    insta::assert_snapshot!("explain_not_selected", ran.all());
    let ran = run("coppice explain ci-keep-me -f -", &governed());
    let why = "ci does not select it: \"ci-keep-*\" of spec.selector.exclude matches its name";
    assert!(ran.out.contains(why), "{}", ran.out);
}

/// A namespace with an annotation, and this cluster manager.
fn annotated(spec: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Namespace\nmetadata: {{name: ci-7, uid: u-7, creationTimestamp: '2026-03-01T12:00:00Z', \
         annotations: {{example.org/ttl: 1d, example.org/ci: 'yes'}}}}\n---\napiVersion: coppice.dev/v1alpha1\n\
         kind: ClusterNamespaceManager\nmetadata: {{name: ci, uid: c-1, generation: 1}}\nspec: {spec}\n"
    )
}

#[test]
fn explain_names_what_of_annotations_and_alternatives_failed() {
    for (selector, expected) in [
        (
            "{annotations: [{key: example.org/ci, value: 'no'}]}",
            "ci does not select it: spec.selector.annotations asks for example.org/ci: \"no\", and its annotation has \
             another value",
        ),
        (
            "{anyOf: [{names: [shop]}, {labels: {matchLabels: {a: b}}}]}",
            "ci does not select it: none of spec.selector.anyOf holds: none of anyOf[0].names matches its name; \
             anyOf[1].labels does not match its labels",
        ),
        ("{annotations: [{key: example.org/ci, value: 'yes'}]}", "ci governs it"),
    ] {
        let ran = run("coppice explain ci-7 -f -", &annotated(&format!("{{selector: {selector}}}")));
        assert!(ran.out.contains(expected), "{selector}: {}", ran.all());
    }
}

#[test]
fn explain_and_plan_know_the_limits_of_the_cluster_manager() {
    let limited = annotated(
        "{mode: Enforce, selector: {names: [ci-7]}, ttl: {after: 1h, fromAnnotation: example.org/ttl}, limits: {maxTTL: 2h, \
         maxHold: 1h, minNotice: 15m, tenantActions: [delete]}}",
    );
    let manager = |name: &str, then: &str| {
        format!(
            "---\napiVersion: coppice.dev/v1alpha1\nkind: NamespaceManager\nmetadata: {{name: {name}, namespace: ci-7, uid: \
             m-{name}, generation: 1}}\nspec: {{policies: [{{name: p, when: {{ttl: {{after: 3h}}}}, then: {then}}}]}}\n"
        )
    };
    let managers = [manager("end", "{delete: {}}"), manager("sleep", "{scaleDown: {}}")].concat();
    let record = "---\napiVersion: coppice.dev/v1alpha1\nkind: ManagedNamespace\nmetadata: {name: coppice, namespace: ci-7, \
                  uid: r-1, generation: 1}\nspec: {hold: {until: '2026-03-01T23:00:00Z', by: bob}}\n";
    let objects = format!("{limited}{managers}{record}");
    let ran = run("coppice explain ci-7 -f -", &objects);
    for expected in [
        "  Expires:    2026-03-01T14:00:01Z",
        "  Limits:     its annotation asks for a ttl of 1d, and at most 2h counts (maxTTL); spec.hold asks for 2026-03-01T23:00:00Z, and counts until ",
        "  Limits:     deletions are announced for 15m at least (spec.limits.minNotice of ClusterNamespaceManager ci)\n",
        "then delete the namespace after a notice of 15m",
        "the action scaleDown is not among tenantActions (spec.limits of ClusterNamespaceManager ci) [ActionNotAllowed]",
    ] {
        assert!(ran.out.contains(expected), "{expected}: {}", ran.all());
    }
    let one = run("coppice explain ci-7/end -f -", &objects);
    assert!(one.out.contains("after a notice of 15m"), "{}", one.all());
}

#[test]
fn explain_says_where_a_ttl_comes_from() {
    for (key, expected) in [
        ("example.org/ttl", "1d after its creation (by its annotation example.org/ttl)"),
        ("example.org/none", "2h after its creation (it has no annotation example.org/none)"),
        (
            "example.org/ci",
            "2h after its creation (its annotation example.org/ci is not understood: \"yes\" is not a duration: write numbers",
        ),
    ] {
        let spec = format!("{{selector: {{names: [ci-7]}}, ttl: {{after: 2h, fromAnnotation: {key}}}}}");
        let ran = run("coppice explain ci-7 -f -", &annotated(&spec));
        assert!(ran.out.contains(expected), "{key}: {}", ran.all());
    }
}

#[test]
fn explain_shows_both_sources_where_both_are() {
    let manager = "---\napiVersion: coppice.dev/v1alpha1\nkind: NamespaceManager\nmetadata: {name: own, namespace: ci-1}\nspec: {policies: [{name: p, when: {ttl: {after: 9h}}, then: {delete: {}}}]}\n";
    let both = format!("{}\n{manager}", governed());
    let ran = run("coppice explain ci-1 -f -", &both);
    assert!(
        ran.out.starts_with("Namespace ci-1\n") && ran.out.contains("\n\nNamespaceManager ci-1/own\n"),
        "{}",
        ran.out
    );
    let ran = run("coppice explain ci-1/own -f -", &both);
    assert!(
        ran.out.starts_with("NamespaceManager ci-1/own\n"),
        "a manager that was named is alone: {}",
        ran.out
    );
    assert_eq!(
        run("coppice explain ci-1 -o name -f -", &both).out,
        "managednamespace.coppice.dev/coppice\nnamespacemanager.coppice.dev/own\n"
    );
}

#[test]
fn an_unknown_field_of_a_cluster_manager_is_a_mistake() {
    let odd = governed().replace("mode: Enforce, priority: -1,", "priority: -1, namess: [a],");
    let ran = run("coppice plan -f -", &odd);
    assert!(
        ran.code == 1 && ran.err.contains("ClusterNamespaceManager team): spec.namess: unknown field"),
        "{ran:?}"
    );
}

#[test]
fn mistakes_in_cluster_managers_and_records_are_reported() {
    let objects = "apiVersion: coppice.dev/v1alpha1\nkind: ClusterNamespaceManager\nmetadata: {name: ci}\nspec: \
                   {selector: {exclude: [a]}}\n---\napiVersion: coppice.dev/v1alpha1\nkind: ManagedNamespace\nmetadata: {name: \
                   coppice, namespace: shop}\nspec: {hold: {until: tomorrow}}\n";
    let bad = run("coppice plan -f -", objects).err;
    for expected in [
        "spec.selector: select by names, labels, annotations or anyOf",
        "spec.hold.until: write an instant with its zone",
    ] {
        assert!(bad.contains(expected), "{expected} is not in\n{bad}");
    }
    let twice = format!("{}\n---\n{}", governed(), governed());
    let err = run("coppice plan -f -", &twice).err;
    for expected in
        ["ClusterNamespaceManager ci is there twice", "the ManagedNamespace of ci-1 is there twice"]
    {
        assert!(err.contains(expected), "{expected} is not in\n{err}");
    }
    let alone = "apiVersion: coppice.dev/v1alpha1\nkind: ClusterNamespaceManager\nmetadata: {name: ci}\nspec: {selector: {names: [a]}}\n";
    let ran = run("coppice plan -f -", alone);
    assert!(ran.code == 0 && ran.err.contains("no Namespaces are in the files"), "{ran:?}");
}

/// A cluster manager on that cluster.
fn preview(line: &str, name: &str, spec: &str) -> support::Ran {
    preview_with("", line, name, spec)
}

/// The same with further objects.
fn preview_with(objects: &str, line: &str, name: &str, spec: &str) -> support::Ran {
    let folder = std::env::temp_dir().join(format!("coppice-preview-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let dump = folder.join("dump.yaml");
    std::fs::write(&dump, format!("{}\n---\n{objects}", governed())).unwrap();
    let manager = format!(
        "apiVersion: coppice.dev/v1alpha1\nkind: ClusterNamespaceManager\nmetadata: {{name: {name}}}\nspec: {spec}\n"
    );
    let ran = run(&format!("coppice preview {line}-f - --from {}", dump.display()), &manager);
    std::fs::remove_dir_all(&folder).unwrap();
    ran
}

const END: &str = "policies: [{name: end, when: {phase: {in: [Stale]}}, then: {delete: {notice: 15m}}}]";

#[test]
fn preview_says_what_a_new_manager_would_do_and_whom_it_displaces() {
    let all = format!(
        "{{mode: Enforce, priority: 1, selector: {{names: ['*'], exclude: [ci-2]}}, ttl: {{after: 7d}}, {END}}}"
    );
    let ran = preview("", "all", &all);
    insta::assert_snapshot!("preview_new", ran.all());
    assert_eq!(ran.code, 3, "ci-keep-me and shop become due");
    insta::assert_snapshot!("preview_yaml", preview("-o yaml ", "all", &all).out);
    assert_eq!(preview("-o name ", "all", &all).out, "namespace/ci-keep-me\nnamespace/shop\n");
}

#[test]
fn preview_judges_the_pods_of_each_namespace() {
    let spec = "{mode: Enforce, priority: 1, selector: {names: ['*']}, policies: [{name: end, when: {podsSucceed: {}}, then: \
                {delete: {}}}]}";
    let ran = preview("", "passed", spec);
    assert!(ran.code == 0 && ran.err.contains("a cluster manager waits for them: taken as none"), "{ran:?}");
    let pod = |namespace: &str, phase: &str| {
        format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: p, namespace: {namespace}}}, status: {{phase: {phase}}}}}"
        )
    };
    let pods =
        [pod("shop", "Succeeded"), pod("ci-2", "Running"), pod("ci-keep-me", "Failed")].join("\n---\n");
    let ran = preview_with(&pods, "-o name ", "passed", spec);
    assert_eq!((ran.code, &*ran.out), (3, "namespace/shop\n"), "{ran:?}");
}

#[test]
fn preview_of_what_changes_nothing_that_is_due_lets_a_pipeline_go_on() {
    let ci = |mode: &str, ttl: &str| {
        format!(
            "{{mode: {mode}, selector: {{names: ['ci-*'], exclude: ['ci-keep-*']}}, ttl: {{after: {ttl}}}, {END}}}"
        )
    };
    let ran = preview("", "ci", &ci("Enforce", "2h"));
    assert_eq!(ran.code, 0, "ci-1 is due as it is: {}", ran.all());
    insta::assert_snapshot!("preview_changed", ran.all());
    let ran = preview("", "ci", &ci("Enforce", "9m"));
    assert!(ran.code == 3 && ran.out.contains("Becomes due that is not due now: 1: ci-2"), "{}", ran.all());
    let ran = preview("", "everything", &ci("Observe", "9m"));
    assert!(
        ran.code == 0 && ran.out.contains("Selects:   3 namespaces, governs 0; governed by others: ci 3"),
        "{}",
        ran.all()
    );
}

#[test]
fn preview_tells_what_is_done_from_something_else_that_is_due_already() {
    const SLEEP: &str = "{name: sleep, when: {phase: {in: [Stale]}}, then: {scaleDown: {}}}";
    const END: &str = "{name: end, when: {phase: {in: [Stale]}}, then: {delete: {notice: 15m}}}";
    let spec = |policies: &str| {
        format!("{{mode: Enforce, selector: {{names: [shop]}}, ttl: {{after: 1h}}, policies: [{policies}]}}")
    };
    // As if it had been applied before.
    let ran = |before: &str, after: &str| {
        let applied = format!(
            "apiVersion: coppice.dev/v1alpha1\nkind: ClusterNamespaceManager\nmetadata: {{name: shops, uid: c-9, generation: 1}}\n\
             spec: {}\n",
            spec(before)
        );
        preview_with(&applied, "", "shops", &spec(after))
    };
    let renamed = ran(SLEEP, &SLEEP.replace("sleep", "rest"));
    assert!(renamed.code == 0, "it is scaled down as before: {}", renamed.all());
    let both = format!("{SLEEP}, {END}");
    let deletes = ran(SLEEP, &both);
    let expected = "Becomes due that is not due now: 1: shop";
    assert!(deletes.code == 3 && deletes.out.contains(expected), "{}", deletes.all());
    let observing = both.replace("name: end,", "name: end, mode: Observe,");
    let enforces = ran(&observing, &both);
    let expected = "Due now, and no longer only observed: 1: shop";
    assert!(enforces.code == 3 && enforces.out.contains(expected), "{}", enforces.all());
    let fewer = ran(&both, END);
    assert!(fewer.code == 0, "it is deleted as before: {}", fewer.all());
}

/// A namespace that was seen so last under this spec of the manager `health`.
fn looked_at(spec: &str, seen: &str) -> String {
    let known: ValidClusterManager = serde_yaml::from_str(spec).unwrap();
    format!(
        "apiVersion: v1\nkind: Namespace\nmetadata: {{name: web-1, uid: ns-web-1, creationTimestamp: '2026-03-01T10:00:00Z'}}\n---\n\
         apiVersion: coppice.dev/v1alpha1\nkind: ClusterNamespaceManager\nmetadata: {{name: health, uid: c-9, generation: 1}}\nspec: \
         {spec}\n---\n\
         apiVersion: coppice.dev/v1alpha1\nkind: ManagedNamespace\nmetadata: {{name: coppice, namespace: web-1, uid: r-9, generation: \
         1}}\nspec: {{}}\nstatus: {{observedGeneration: 1, namespaceUid: ns-web-1, phase: Failed, phaseSince: '2026-03-01T11:07:00Z', \
         manager: {{name: health, uid: c-9, digest: '{}', generation: 1, since: '2026-03-01T10:00:02Z'}}, health: {{state: Failed, \
         seen: {seen}, seenSince: '2026-03-01T11:00:00Z', notOkSince: '2026-03-01T11:00:00Z', unstableSince: '2026-03-01T11:00:00Z', \
         failingSince: '2026-03-01T11:05:00Z', failedSince: '2026-03-01T11:07:00Z'}}}}\n",
        known.digest()
    )
}

#[test]
fn preview_takes_what_fails_to_fail_on_though_another_spec_begins_its_periods_again() {
    let spec = |mode: &str| {
        format!(
            "{{mode: {mode}, selector: {{names: ['web-*']}}, settle: 10m, health: {{}}, policies: [{{name: end, when: {{phase: {{in: \
             [Failed]}}}}, then: {{delete: {{notice: 15m}}}}}}]}}"
        )
    };
    let fails = looked_at(&spec("Observe"), "Failing");
    let ran = preview_with(&fails, "-o json ", "health", &spec("Enforce"));
    assert!(ran.code == 3 && ran.err.contains("preview takes it to fail on"), "{}", ran.all());
    let report: Value = serde_json::from_str(&ran.out).unwrap();
    let web = serde_json::json!([{"namespace": "web-1", "manager": "health"}]);
    assert_eq!((&report["becomesEnforced"], &report["becomesDue"]), (&web, &Value::Array(Vec::new())));
    let manager = &report["managers"][0];
    assert_eq!(manager["newlyDue"], 1, "{manager:#}");
    assert_eq!(manager["earliest"], "2026-03-01T12:55:00Z", "settle, and then the notice: {manager:#}");
    let same = preview_with(&fails, "", "health", &spec("Observe"));
    assert_eq!(same.code, 0, "it observes as before: {}", same.all());
    let recovers = looked_at(&spec("Observe"), "Passing");
    let ran = preview_with(&recovers, "", "health", &spec("Enforce"));
    assert_eq!(ran.code, 0, "nothing fails: {}", ran.all());
}

#[test]
fn preview_counts_what_is_only_observed_today_when_it_will_be_done() {
    let spec = |mode: &str| {
        format!("{{mode: {mode}, selector: {{names: ['ci-keep-*']}}, ttl: {{after: 1h}}, {END}}}")
    };
    let observing = preview("", "old", &spec("Observe"));
    assert!(observing.code == 0, "everything comes first by its name: {}", observing.all());
    // As if it had been applied: it observes, and is due.
    let dump = format!(
        "{}\n---\napiVersion: coppice.dev/v1alpha1\nkind: ClusterNamespaceManager\nmetadata: {{name: a-old, uid: c-9, generation: 1}}\nspec: {}\n",
        governed(),
        spec("Observe")
    );
    let file = std::env::temp_dir().join(format!("coppice-enforce-{}.yaml", std::process::id()));
    std::fs::write(&file, dump).unwrap();
    let manager = format!(
        "apiVersion: coppice.dev/v1alpha1\nkind: ClusterNamespaceManager\nmetadata: {{name: a-old}}\nspec: {}\n",
        spec("Enforce")
    );
    let ran = run(&format!("coppice preview -f - --from {}", file.display()), &manager);
    std::fs::remove_file(&file).unwrap();
    assert!(
        ran.code == 3 && ran.out.contains("Due now, and no longer only observed: 1: ci-keep-me"),
        "{}",
        ran.all()
    );
    // settle, and then the notice.
    assert!(ran.out.contains("Acts:      not before 2026-03-01T12:50:00Z (in 20m)"), "{}", ran.out);
}

#[test]
fn preview_shows_what_could_be_superseded_and_when() {
    let made = |pipeline: u32| {
        format!(
            "apiVersion: v1\nkind: Namespace\nmetadata: {{name: shop-{pipeline}, uid: shop-{pipeline}, creationTimestamp: \
             \"2026-02-01T10:00:00Z\", labels: {{project: shop, branch: main, pipeline: '{pipeline}'}}}}\n---\n"
        )
    };
    let objects: String = (8..11).map(made).collect();
    let spec = "{mode: Enforce, selector: {names: ['shop-*']}, settle: 10m, health: {}, identity: {project: project, branch: branch, \
                pipeline: pipeline}, supersede: {by: [Branch]}, policies: [{name: end, when: {phase: {in: [Superseded]}}, then: \
                {delete: {notice: 15m}}}]}";
    let ran = preview_with(&objects, "-o json ", "shop", spec);
    assert!(ran.code == 3 && ran.err.contains("takes all that do not fail for ready"), "{}", ran.all());
    let report: Value = serde_json::from_str(&ran.out).unwrap();
    let due: Vec<_> = report["becomesDue"].as_array().unwrap().iter().map(|due| &due["namespace"]).collect();
    assert_eq!(due, ["shop-8", "shop-9"], "{report:#}");
    let manager = &report["managers"][0];
    assert_eq!((&manager["newlyDue"], &manager["hourlyBudgetNeeded"]), (&2.into(), &2.into()), "{manager:#}");
    assert!(manager["earliest"].is_string(), "{manager:#}");
}

#[test]
fn preview_takes_cluster_managers_alone_and_checks_them() {
    let ran = preview("", "bad", "{selector: {exclude: [a]}, ttl: {after: 0s}}");
    assert!(
        ran.code == 1 && ran.err.contains("spec.selector: select by names, labels, annotations or anyOf"),
        "{ran:?}"
    );
    assert!(ran.err.contains("spec.ttl.after: "), "{ran:?}");
    let ran = run("coppice preview -f -", "apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n");
    assert!(ran.code == 1 && ran.err.contains("give what describes the cluster with --from"), "{ran:?}");
    let ran = run("coppice preview -f -", "# nothing\n");
    assert_eq!((ran.code, ran.err.as_str()), (1, "error: the files hold no ClusterNamespaceManager\n"));
    assert_eq!(run("coppice preview", "").code, 2);
}

#[test]
fn preview_says_that_more_than_the_hourly_budget_needs_approval_and_how_to_approve_it() {
    let old = |n: u32| {
        format!(
            "\n---\napiVersion: v1\nkind: Namespace\nmetadata: {{name: old-{n}, uid: old-{n}, creationTimestamp: \"2026-02-01T10:00:00Z\"}}"
        )
    };
    let dump = format!("{}{}", governed(), (0..12).map(old).collect::<String>());
    let file = std::env::temp_dir().join(format!("coppice-approval-{}.yaml", std::process::id()));
    std::fs::write(&file, dump).unwrap();
    let spec = |approval: &str| {
        format!(
            "apiVersion: coppice.dev/v1alpha1\nkind: ClusterNamespaceManager\nmetadata: {{name: old}}\nspec: {{mode: Enforce, \
             {approval} selector: {{names: ['old-*']}}, ttl: {{after: 1h}}, {END}}}\n"
        )
    };
    let line = format!("coppice preview -o json -f - --from {}", file.display());
    let json = |approval: &str| -> Value { serde_json::from_str(&run(&line, &spec(approval)).out).unwrap() };
    let manager = &json("")["managers"][0];
    assert_eq!((&manager["newlyDue"], &manager["approvalNeeded"]), (&12.into(), &true.into()));
    let digest = manager["policyDigest"].as_str().unwrap();
    let shown = run(&line.replace("-o json ", ""), &spec(""));
    let needed = format!(
        "12 due at once by this spec need spec.approval (digest: {digest}, namespaces: 12, validUntil)"
    );
    assert!(shown.code == 3 && shown.out.contains(&needed), "{}", shown.all());
    assert!(
        shown
            .out
            .contains("old-0, old-1, old-10, old-11, old-2, old-3, old-4, old-5, old-6, old-7 and 2 more"),
        "{}",
        shown.out
    );
    assert!(
        shown.out.contains("12 deletions in the first hour, of 10 an hour that are allowed: 2 wait"),
        "{}",
        shown.out
    );
    let approved = &json(&format!(
        "approval: {{digest: '{digest}', namespaces: 12, validUntil: '2099-01-01T00:00:00Z'}},"
    ))["managers"][0];
    assert_eq!(approved["approvalNeeded"], false);
    // The plan of each says so when its notice has run.
    let applied = format!("{}\n---\n{}", std::fs::read_to_string(&file).unwrap(), spec(""));
    std::fs::remove_file(&file).unwrap();
    let plan = run("coppice plan -o json -f -", &applied).out;
    assert!(plan.contains("Settling"), "{plan}");
}

#[test]
fn simulate_says_who_goes_when_by_cluster_managers() {
    // No golden file: seconds change with what the operator does meanwhile.
    let ran = run("coppice simulate --no-headers -f -", &governed());
    let rows: Vec<String> = ran
        .out
        .lines()
        .map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            [words[1], words[2], words[3], words[4]].join(" ")
        })
        .collect();
    let expected = [
        "15m ci-1 cnsman/ci NamespaceDeleted",
        "1h5m ci-2 cnsman/ci DeletionAnnounced",
        "1h50m ci-2 cnsman/ci NamespaceDeleted",
        "5h30m ci-held cnsman/ci DeletionAnnounced",
        "6h15m ci-held cnsman/ci NamespaceDeleted",
    ];
    assert_eq!(rows, expected, "{}", ran.all());
    assert!(ran.err.contains("In 1w, of 4 managed namespaces, 3 would be deleted.\n"), "{}", ran.err);
    assert!(ran.err.contains("  left as Stale (Observing): 1 governed namespace\n"), "{}", ran.err);
    let report: Value = serde_json::from_str(&run("coppice simulate -o json -f -", &governed()).out).unwrap();
    let gone = |name: &str| {
        let all = report["managers"].as_array().unwrap();
        all.iter().find(|one| one["namespace"] == name).unwrap()["deleted"].clone()
    };
    let as_planned = gone("ci-1").as_str().is_some_and(|at| at.starts_with("2026-03-01T12:45:00"));
    assert!(as_planned, "{}", gone("ci-1"));
    assert_eq!(gone("ci-keep-me"), Value::Null, "its manager observes");
    let picture = run("coppice simulate -o svg -f -", &governed()).out;
    assert!(picture.starts_with("<svg ") && picture.contains(">ci-held</text>"), "{picture}");
    let one = run("coppice simulate -n ci-1 --no-headers -f -", &governed());
    assert!(!one.out.is_empty() && one.out.lines().all(|line| line.contains(" ci-1 ")), "{}", one.all());
}

#[test]
fn the_dump_that_simulate_asks_for_has_all_that_it_copies() {
    let help = run("coppice simulate --help", "").out;
    // Where lines break depends on the terminal.
    let words: Vec<&str> = help.split_whitespace().collect();
    let dump = words.windows(3).find(|words| words[..2] == ["kubectl", "get"]).unwrap()[2];
    let dumped: Vec<&str> = dump.split(',').collect();
    let names = [
        ("Pod", "pods"),
        ("PersistentVolumeClaim", "pvc"),
        ("Job", "jobs"),
        ("CronJob", "cronjobs"),
        ("Deployment", "deploy"),
        ("StatefulSet", "sts"),
        ("DaemonSet", "ds"),
        ("ReplicaSet", "rs"),
    ];
    for (_, kind) in WATCHED_KINDS {
        assert!(names.iter().any(|(of, name)| *of == kind && dumped.contains(name)), "{kind}: {dump}");
    }
    // Without these it would delete what the operator leaves alone.
    assert!(dumped.contains(&"delns"), "{dump}");
}

#[test]
fn simulate_leaves_alone_what_was_deleted_three_times_within_a_day() {
    let deleted = |hour: u32| {
        format!(
            "---\napiVersion: coppice.dev/v1alpha1\nkind: DeletedNamespace\nmetadata: {{name: fire-{hour}}}\nspec: {{namespace: ci-1, uid: \
             earlier-{hour}, namespaceCreated: '2026-03-01T06:00:00Z', managerKind: ClusterNamespaceManager, manager: ci, policy: end, \
             decidedAt: '2026-03-01T0{hour}:00:00Z', attemptedAt: '2026-03-01T0{hour}:00:00Z', reason: TtlElapsed}}\nstatus: {{phase: \
             Deleted, deletedAt: '2026-03-01T0{hour}:00:05Z'}}\n"
        )
    };
    let dump = format!("{}\n{}", governed(), (7..10).map(deleted).collect::<String>());
    let ran = run("coppice simulate -o json -f -", &dump);
    let report: Value = serde_json::from_str(&ran.out).unwrap();
    let all = report["managers"].as_array().unwrap();
    let fate = all.iter().find(|one| one["namespace"] == "ci-1").unwrap();
    assert!(fate["deleted"].as_str().is_some_and(|at| at.starts_with("2026-03-02T07:")), "{fate:#}");
}

/// What somebody may write who wants more than to be read: clears the screen, colours, another line.
const HOSTILE: &str = r"\e[2J\e[31mgone\r\nok";

#[test]
fn nothing_that_users_write_into_a_record_acts_on_the_terminal() {
    let hostile = governed()
        .replace("by: bob", &format!("by: \"{HOSTILE}\""))
        .replace("reason: demo for the board", &format!("reason: \"{HOSTILE}\""));
    for line in
        ["plan", "plan -o wide", "plan -o json", "explain ci-held", "explain ci-held -o yaml", "simulate"]
    {
        let ran = run(&format!("coppice {line} -f -"), &hostile);
        let plain = run(&format!("coppice {line} -f -"), &governed());
        assert_eq!(ran.out.lines().count(), plain.out.lines().count(), "{line}: {}", ran.out);
        assert!(!ran.out.contains(['\u{1b}', '\r']), "{line}: {}", ran.out);
    }
}
