//! `import ska`: what it keeps from being deleted that stays there, and what it says of the rest.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::support;

use crate::support::ska::{documents, import, of, one, remarks, specs};
use crate::support::{fixture, run};
use serde_json::{Value, json};

/// The only remark that has this text.
fn remark<'a>(ran: &'a support::Ran, kind: &str, text: &str) -> &'a str {
    let found: Vec<&str> = remarks(ran, kind).into_iter().filter(|line| line.contains(text)).collect();
    let [one] = &*found else { panic!("{text}: {found:#?} of {}", ran.err) };
    one
}

/// Of each policy, its name and its own mode.
fn policies(spec: &Value) -> Vec<(&str, Option<&str>)> {
    let all = spec["policies"].as_array().into_iter().flatten();
    all.map(|policy| (policy["name"].as_str().unwrap(), policy["mode"].as_str())).collect()
}

#[test]
fn the_namespace_that_the_system_runs_in_is_never_selected() {
    let values = "collectController: {config: {prometheus: {enabled: false}, namespaces: [{names: ['.*'], ttl: 1h}]}}\n\
                  actionController: {config: {namespaces: [{names: ['.*']}]}}\n";
    for line in
        ["coppice import ska --namespace ops -", "coppice import ska -n ops -", "coppice -n ops import ska -"]
    {
        let ran = run(line, values);
        assert_eq!((ran.code, remarks(&ran, "warning: ")), (0, vec![]), "{line}");
        assert_eq!(specs(&ran)[0].1["selector"]["exclude"], json!(["ops"]), "{line}");
    }
    let unknown = run("coppice import ska -", values);
    assert_eq!(unknown.code, 3, "{unknown:?}");
    assert_eq!(specs(&unknown)[0].1["selector"]["exclude"], json!(["ska-ser-namespace-manager"]));
    remark(&unknown, "warning: ", "if it runs in another one, import again with --namespace");
    let config = "context: {namespace: ops-2}\nheartbeat: {}\nprometheus: {enabled: false}\nnamespaces: [{names: [a], ttl: 1h}]\n";
    let said = run("coppice import ska -n ops -", config);
    assert_eq!(specs(&said)[0].1["selector"]["exclude"], json!(["ops", "ops-2"]), "both, if they differ");
}

#[test]
fn what_is_not_deleted_there_for_a_status_is_not_deleted_for_it_here() {
    for (blocks, left, said) in [
        ("stale: {delete: false}", vec![("delete the failed", None)], "delete is false for stale"),
        ("failed: {delete: false}", vec![("delete the stale", None)], "delete is false for failed"),
        ("stale: {delete: false}, failed: {delete: false}", vec![], "delete is false for stale and failed"),
    ] {
        let (ran, spec) = one("ttl: 1h", blocks);
        assert_eq!(policies(&spec), left, "{blocks}");
        remark(&ran, "note: actionController.config.namespaces[0]: ", said);
        assert_eq!(ran.code, 0, "it is carried over: {ran:?}");
    }
    let (ran, _) = one("ttl: null", "stale: {delete: false}");
    assert!(!ran.err.contains("delete is false"), "nothing becomes stale: {ran:?}");
}

#[test]
fn what_is_superseded_and_stays_there_is_not_deleted_for_its_age_or_its_health_either() {
    let entry = "names: ['ci-.*']";
    let ran = of(
        &format!("[{{{entry}, ttl: 1h, checks: {{superseded: true}}}}]"),
        &format!("[{{{entry}, superseded: {{delete: false, notify_on_status: true}}}}]"),
    );
    assert_eq!(ran.code, 3, "{ran:?}");
    let written = specs(&ran);
    assert_eq!(written.len(), 2);
    for (name, spec) in written {
        let observed = vec![("delete the stale", Some("Observe")), ("delete the failed", Some("Observe"))];
        assert_eq!((policies(&spec), spec["supersede"].is_object()), (observed, true), "{name}");
    }
    let warning =
        remark(&ran, "warning: ", "superseded.delete: false keeps what is superseded indefinitely there");
    assert!(
        warning.contains("actionController.config.namespaces[0]") && warning.contains("mode: Observe"),
        "{warning}"
    );
    remark(
        &ran,
        "note: ",
        "delete is false for superseded: no policy is written that deletes a namespace for that",
    );
    // Without the check nothing is superseded there.
    let (ran, spec) = one("ttl: 1h", "superseded: {delete: false}");
    assert_eq!((ran.code, policies(&spec).len()), (0, 2), "{ran:?}");
    assert!(!ran.err.contains("superseded"), "nor is anything said about it: {}", ran.err);
}

/// Settings with GitLab, of one entry.
fn with_gitlab(collect: &str, action: &str, enabled: bool) -> support::Ran {
    import(&format!(
        "collectController: {{config: {{prometheus: {{enabled: false}}, gitlab: {{enabled: {enabled}, private_token: glpat-secret}},\n\
         \x20 namespaces: [{{names: ['ci-.*'], checks: {{cancelled: true}}, {collect}}}]}}}}\n\
         actionController: {{config: {{namespaces: [{{names: ['ci-.*'], {action}}}], notifier: {{token: xoxb-secret}}}}}}\n"
    ))
}

#[test]
fn what_becomes_of_namespaces_of_cancelled_pipelines_is_said_as_it_is() {
    let delete = "cancelled: {delete: true, notify_on_status: true}";
    for (collect, action, expected) in [
        (
            "ttl: 1h",
            delete,
            "is cancelled goes on, and its owner is not notified of that, and is deleted when its ttl is over and not at once",
        ),
        ("ttl: 1h", "cancelled: {delete: true}", "is cancelled goes on, and is deleted when its ttl is over"),
        ("ttl: null", delete, "and stays, because nothing else deletes it for its age"),
        (
            "ttl: 1h",
            "stale: {delete: false}, cancelled: {delete: true}",
            "is cancelled goes on, and stays, because",
        ),
        (
            "ttl: 1h",
            "cancelled: {delete: false, notify_on_status: true}",
            "goes on, and its owner is not notified of that",
        ),
    ] {
        let ran = with_gitlab(collect, action, true);
        assert_eq!(ran.code, 3, "{ran:?}");
        let warning = remark(
            &ran,
            "warning: collectController.config.namespaces[0].checks.cancelled: ",
            "pipelines are not looked up here",
        );
        assert!(warning.contains(expected), "{collect} {action}: {warning}");
        assert!(
            !ran.err.contains("carried over; write all three"),
            "nothing of cancelled is carried over: {}",
            ran.err
        );
        assert!(!ran.all().contains("glpat-secret"));
    }
    let nothing_looked_up = with_gitlab("ttl: 1h", delete, false);
    assert_eq!(
        (nothing_looked_up.code, nothing_looked_up.err.contains("cancelled")),
        (0, false),
        "{nothing_looked_up:?}"
    );
}

#[test]
fn what_is_cancelled_and_stays_there_is_deleted_by_nothing() {
    let ran = with_gitlab(
        "ttl: 1h, checks: {cancelled: true, superseded: true}",
        "cancelled: {delete: false}",
        true,
    );
    assert_eq!(ran.code, 1, "a field twice is a mistake: {ran:?}");
    let text = "collectController: {config: {prometheus: {enabled: false}, gitlab: {enabled: true},
  namespaces: [{names: ['ci-.*'], checks: {cancelled: true, superseded: true}, ttl: 1h}]}}
actionController: {config: {namespaces: [{names: ['ci-.*'], cancelled: {delete: false}}]}}
";
    let ran = import(text);
    assert_eq!(ran.code, 3, "{ran:?}");
    for (_, spec) in specs(&ran) {
        let observed: Vec<_> = policies(&spec).into_iter().map(|(_, mode)| mode).collect();
        assert_eq!(observed, [Some("Observe"); 3]);
    }
    remark(&ran, "warning: ", "cancelled.delete: false keeps what is cancelled indefinitely there");
    assert!(!ran.err.contains("is deleted when its ttl is over"), "{}", ran.err);
    let kept = import(
        &text.replace("cancelled: {delete: false}", "cancelled: {delete: true}, superseded: {delete: false}"),
    );
    remark(
        &kept,
        "warning: ",
        "a namespace whose pipeline is cancelled goes on, and stays for as long as its policies observe",
    );
    assert!(ran.out.contains(
        "# Its policies observe, so that what stays there stays here: see the warning about it.\n"
    ));
}

#[test]
fn remarks_on_blocks_are_about_statuses_that_there_are() {
    let partial = "superseded: {notify_on_delete: false}";
    let (ran, _) = one("ttl: 1h", partial);
    assert!(!ran.err.contains("superseded"), "{}", ran.err);
    let entry = "names: ['ci-.*']";
    let ran = of(
        &format!("[{{{entry}, ttl: 1h, checks: {{superseded: true}}}}]"),
        &format!("[{{{entry}, {partial}}}]"),
    );
    remark(
        &ran,
        "note: ",
        "namespaces[0].superseded: what it leaves out is not the default of superseded there, but notify_on_status: false",
    );
    let note = remark(
        &ran,
        "note: checks.superseded: ",
        "what is later is decided by the numbers of pipeline and job",
    );
    assert!(
        note.contains("a namespace without these labels supersedes nothing and is not superseded"),
        "{note}"
    );
    assert!(!ran.err.contains("namespaces of different entries"), "{}", ran.err);
    let two =
        "[{names: ['ci-.*'], checks: {superseded: true}}, {names: ['dev-.*'], checks: {superseded: true}}]";
    remark(
        &of(two, "[{names: ['.*']}]"),
        "note: ",
        "namespaces of different entries are compared there, and not here",
    );
}

#[test]
fn secrets_that_are_laid_over_the_settings_are_read_or_missed() {
    let values = fixture("ska/values.yaml").replace("{token: xoxb-secret}", "{token: null}");
    let list =
        "[{name: a-vault, items: [{key: x.yml, path: 99-x.yml}]}, {name: '{{ template \"name\" . }}-vault'}]";
    let values =
        values.replace("actionController:\n", &format!("actionController:\n  extraConfigSecrets: {list}\n"));
    let values = values
        .replace("collectController:\n", &format!("collectController:\n  extraConfigSecrets: {list}\n"));
    let ran = import(&values);
    assert_eq!(ran.code, 3, "{ran:?}");
    for component in ["collectController", "actionController"] {
        let warning = remark(&ran, "warning: ", &format!("{component}.extraConfigSecrets: "));
        assert!(
            warning.contains("a-vault, {{ template \"name\" . }}-vault; what they set is not carried over"),
            "{warning}"
        );
    }
    assert!(ran.out.contains("channels:"), "the token may be there: {}", ran.out);

    let secret = |name: &str, files: &Value| {
        json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name, "namespace": "ci-manager" }, "stringData": files })
            .to_string()
    };
    let vault = json!({
        "action-controller.yml": "notifier: {token: xoxb-secret}",
        "collect-controller.yml": "gitlab: {private_token: glpat-secret}",
        "more.yml": "metrics: {enabled: false}",
    });
    let given = [
        secret("a-vault", &vault),
        secret("tls", &json!({ "tls.crt": "x" })),
        secret("else", &json!({ "a.yml": "b: [" })),
    ];
    let ran = run("coppice import ska -", &format!("{values}\n---\n{}", given.join("\n---\n")));
    assert_eq!((ran.code, remarks(&ran, "warning: ")), (0, vec![]), "{ran:?}");
    assert_eq!(
        documents(&ran.out),
        documents(&fixture("ska/expected.yaml")),
        "the namespace is that of the Secret"
    );
    remark(&ran, "note: ", "Secret else: left out, because a.yml cannot be read as YAML (line 2)");
    remark(&ran, "note: ", "left out, because they have no settings: Secret tls, Secret else");
    assert!(!ran.all().contains("-secret"), "no credential is shown: {}", ran.all());
}

#[test]
fn files_beside_values_are_laid_over_them() {
    let ran = import(&format!("{}\n---\nprometheus: {{enabled: true}}\n", fixture("ska/values.yaml")));
    remark(&ran, "warning: ", "prometheus: the health is judged by the workloads");
    assert_eq!(specs(&ran).len(), 3, "{ran:?}");
    let base = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "z-collect-ctl-config" },
        "stringData": { "00-base.yml": "namespaces: [{names: ['old-.*']}]\nprometheus: {enabled: false}" } });
    let over = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "a-collect-controller-vault" },
        "stringData": { "10-x.yml": "namespaces: [{names: ['new-.*']}]" } });
    let ran = import(&format!("{over}\n{base}"));
    assert_eq!(
        specs(&ran)[0].0,
        "new",
        "the file of the chart is the first, whatever its Secret is called: {ran:?}"
    );
}

#[test]
fn periods_are_those_that_looks_at_an_interval_make_of_them() {
    let schedule = |time: &str| format!("actions: {{check-namespace: {{schedule: '{time}'}}}}");
    for (entry, settling, grace, warns) in [
        ("settling_period: 0s, grace_period: 0s".to_owned(), "1m", "1m", false),
        (format!("settling_period: 0s, grace_period: 0s, {}", schedule("0.5s")), "1s", "1s", false),
        (format!("settling_period: 90s, grace_period: 2m, {}", schedule("30s")), "1m30s", "2m", false),
        (format!("settling_period: 10m, grace_period: 2m, {}", schedule("7m")), "14m", "7m", true),
        (format!("settling_period: 10m, grace_period: 2m, {}", schedule("*/1 * * * *")), "10m", "2m", false),
        (format!("settling_period: 10m, grace_period: 2m, {}", schedule("0s")), "10m", "2m", false),
    ] {
        let (ran, spec) = one(&entry, "");
        let health = &spec["health"];
        assert_eq!(
            (&health["settlingPeriod"], &health["gracePeriod"]),
            (&json!(settling), &json!(grace)),
            "{entry}"
        );
        assert_eq!(
            (ran.code == 3, ran.err.contains("what fails between two looks")),
            (warns, warns),
            "{entry}: {ran:?}"
        );
    }
    let (ran, _) = one(&format!("settling_period: 10m, grace_period: 2m, {}", schedule("7m")), "");
    remark(
        &ran,
        "note: ",
        "namespaces[0]: settling_period 10m becomes 14m and grace_period 2m becomes 7m, since that system looks every 7m",
    );
    let (ran, _) = one(&schedule("soon"), "");
    remark(&ran, "note: ", "schedule: \"soon\" is no interval: 1m is taken, as there");
}

#[test]
fn pods_that_are_not_created_are_missed_by_nobody_where_workloads_say_what_fails() {
    let (ran, spec) = one("ttl: 1h", "");
    let ignored = spec["health"]["ignore"].as_array().unwrap();
    assert!(ignored.contains(&json!({ "reason": "PodsNotCreated" })), "{spec}");
    remark(
        &ran,
        "note: prometheus.enabled: false: ",
        "pods that are not created, as when a quota refuses them, are ignored",
    );
}

#[test]
fn what_is_left_alone_there_stays_so_when_every_manager_that_deletes_enforces() {
    let collect = "[{names: ['ci-keep-.*']}, {names: ['ci-.*'], ttl: 1h}, {names: ['other-.*']}]";
    let ran = of(
        collect,
        "[{names: ['ci-keep-.*'], stale: {delete: false}, failed: {delete: false}}, {names: ['ci-.*']}]",
    );
    assert_eq!(ran.code, 0, "{ran:?}");
    let modes: Vec<_> = specs(&ran).into_iter().map(|(name, spec)| (name, spec["mode"].clone())).collect();
    let expected = [("ci-keep", "Enforce"), ("ci", "Observe"), ("other", "Observe")];
    assert_eq!(
        modes,
        expected.map(|(name, mode)| (name.to_owned(), json!(mode))),
        "what stands in nobody's way observes"
    );
    assert!(ran.out.contains("# It deletes nothing, as there, and enforces just that.\n# mode: Enforce keeps its namespaces from what "));
    assert!(ran.out.contains("# It deletes nothing, as there.\n"), "{}", ran.out);
    let note = remark(
        &ran,
        "note: ",
        "namespaces[0]: what it becomes deletes nothing, and has mode: Enforce from the beginning",
    );
    assert!(
        note.contains("what collectController.config.namespaces[1] becomes would govern its namespaces"),
        "{note}"
    );

    // Also where what would take them only observes yet: its policies are to be changed by hand.
    let collect = "[{names: ['ci-keep-.*']}, {names: ['ci-.*'], ttl: 1h, checks: {superseded: true}}]";
    let observing = of(collect, "[{names: ['ci-.*'], superseded: {delete: false}}]");
    assert_eq!(specs(&observing)[0].1["mode"], "Observe", "this one deletes: {observing:?}");
    let observing = of(
        collect,
        "[{names: ['ci-keep-.*'], stale: {delete: false}, failed: {delete: false}}, {names: ['ci-.*'], superseded: {delete: false}}]",
    );
    assert_eq!(specs(&observing)[0].1["mode"], "Enforce", "{observing:?}");

    let namespace = |name: &str| {
        format!(
            "---\napiVersion: v1\nkind: Namespace\nmetadata: {{name: {name}, uid: u, creationTimestamp: '2026-03-01T10:00:00Z'}}\n"
        )
    };
    let enforced = ran.out.replace("mode: Observe", "mode: Enforce");
    for (name, manager) in [("ci-keep-1", "ci-keep"), ("ci-1", "ci")] {
        let explained =
            run(&format!("coppice explain {name} -f -"), &format!("{enforced}{}", namespace(name)));
        assert!(explained.out.contains(&format!("\n  {manager} governs it")), "{}", explained.all());
    }
}

#[test]
fn while_both_systems_run_owners_are_notified_by_one_of_them() {
    let with = import(&fixture("ska/values.yaml"));
    remark(
        &with,
        "note: ",
        "import with --without-notify until you stop it, and again without that afterwards",
    );
    let without = run("coppice import ska -n ci-manager --without-notify -", &fixture("ska/values.yaml"));
    assert_eq!(
        (without.code, without.out.contains("notify:"), without.out.starts_with("---")),
        (0, false, true),
        "{}",
        without.out
    );
    remark(&without, "note: ", "notify is left out, as --without-notify asks for");
    let mut later = documents(&with.out);
    for manager in &mut later {
        manager["spec"].as_object_mut().unwrap().remove("notify");
    }
    assert_eq!(documents(&without.out), later, "nothing else differs, so that nothing begins again");
}

#[test]
fn who_finds_the_addresses_of_owners_is_said() {
    let values = fixture("ska/values.yaml");
    let ran = import(&values);
    let note = remark(&ran, "note: owner: ", "cicd.skao.int/notificationAddress");
    for part in ["/api/people", "owner.annotations", "owner.fallback", "format: Email"] {
        assert!(note.contains(part), "{part}: {note}");
    }
    for (block, kind, code) in [
        ("{spreadsheet_id: s}", "warning: owner: ", 3),
        ("{enabled: true, spreadsheet_id: s}", "warning: owner: ", 3),
        ("{}", "note: owner: ", 0),
    ] {
        let ran = import(
            &values.replace("people_database: {enabled: false}", &format!("people_database: {block}")),
        );
        remark(&ran, kind, "cicd.skao.int/notificationAddress");
        assert_eq!(ran.code, code, "{block}: {ran:?}");
    }
}

#[test]
fn no_error_shows_what_may_be_a_credential() {
    let action = |notifier: &str| {
        format!(
            "collectController: {{config: {{namespaces: []}}}}\nactionController: {{config: {{namespaces: [], {notifier}}}}}\n"
        )
    };
    let secret = |text: &str| {
        let data = json!({ "b.yml": text });
        json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "a-action-ctl-config" }, "stringData": data }).to_string()
    };
    for (text, path) in [
        (
            action("notifier: {xoxb-123-abc: null}"),
            "actionController.config.notifier: unknown field, not shown",
        ),
        (action("notifier: {s3cret: x}"), "actionController.config.notifier: unknown field, not shown"),
        (action("notifier: {tokn: s3cret}"), "actionController.config.notifier: unknown field, not shown"),
        (action("notifier: [s3cret]"), "actionController.config.notifier: must be an object"),
        (action("notifier: {token: [s3cret]}"), "actionController.config.notifier.token: must be a string"),
        (action("xoxb-123-abc: null"), "actionController.config: unknown field, not shown"),
        (
            "collectController: {config: {gitlab: {glpat-abc: x}}}".to_owned(),
            "collectController.config.gitlab: unknown field, not shown",
        ),
        (
            "gitlab: {private_token: s3cret}\nglpat-abc: s3cret\n".to_owned(),
            "at the top: unknown field, not shown",
        ),
        (secret("notifier: {s3cret: 1, s3cret: 2}"), "b.yml cannot be read as YAML"),
        (secret("notifier: {token: 's3cret}"), "b.yml cannot be read as YAML"),
        (secret("- s3cret"), "b.yml cannot be read as YAML"),
    ] {
        let ran = import(&text);
        assert!(ran.code == 1 && ran.err.contains(path), "{path}: {}", ran.all());
        for credential in ["s3cret", "xoxb-123", "glpat-abc"] {
            assert!(!ran.all().contains(credential), "{text}: {}", ran.all());
        }
    }
}

#[test]
fn all_mistakes_are_shown_at_once() {
    let text = "\
collectController:
  replica: 1
  config:
    prometheus: {enabled: perhaps, whitelisted_alerts: 5}
    gitlab: []
    namespaces:
    - {names: [1, 'ci-.*'], ttl: 300, settling_period: null, grace_period: 1y, checks: {cancelled: 1, superseded: 2}}
    - {name: a, any: [{labels: {a: 1}}, 5], all: 7, ttl: 0s, actions: {check-namespace: {schedule: 60}}}
    - 5
actionController:
  config:
    notifier: {token: [x]}
    namespaces:
    - {names: ['ci-.*'], stale: {delete: 1, notify_on_delete: 2}, failed: 5}
---
metrics: 5
";
    let ran = import(text);
    assert_eq!((ran.code, &*ran.out), (1, ""), "{ran:?}");
    for expected in [
        "collectController.replica: unknown field",
        "collectController.config.namespaces[1].name: unknown field",
        "document 2: nothing here says whether these are settings of",
        "prometheus.enabled: must be true or false",
        "prometheus.whitelisted_alerts: must be a list",
        "gitlab: must be an object",
        "namespaces[0].names[0]: must be a string",
        "namespaces[0].ttl: \"300\" has no unit",
        "namespaces[0].settling_period: null makes every check of that system fail",
        "namespaces[0].grace_period: \"1y\" is no duration",
        "namespaces[0].checks.cancelled: must be true or false",
        "namespaces[0].checks.superseded: must be true or false",
        "namespaces[1].any[0].labels.a: must be a string",
        "namespaces[1].any[1]: must be an object",
        "namespaces[1].all: must be a list",
        "namespaces[1].ttl: zero makes every namespace stale at once",
        "namespaces[1].actions.check-namespace.schedule: must be a string",
        "namespaces[2]: must be an object",
        "notifier.token: must be a string",
        "actionController.config.namespaces[0].stale.delete: must be true or false",
        "actionController.config.namespaces[0].stale.notify_on_delete: must be true or false",
        "actionController.config.namespaces[0].failed: must be an object",
    ] {
        assert!(ran.err.contains(expected), "{expected}: {}", ran.err);
    }
    assert!(ran.err.starts_with("error: 22 problems, and nothing is written:\n"), "{}", ran.err);
}
