//! `import ska`: that system's settings as cluster managers.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::support::ska::{documents, import, of, one, specs};
use crate::support::{fixture, run};
use serde_json::{Value, json};

#[test]
fn the_values_of_the_chart_become_the_managers_that_they_mean() {
    let ran = import(&fixture("ska/values.yaml"));
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert_eq!(documents(&ran.out), documents(&fixture("ska/expected.yaml")), "{}", ran.out);
    assert!(ran.out.starts_with("# These managers notify owners by the channel slack."), "{}", ran.out);
    assert!(
        ran.out.contains("# collectController.config.namespaces[1], actionController.config.namespaces[1]\n")
    );
    assert!(!ran.all().contains("xoxb-secret"), "no credential is shown: {}", ran.all());
    assert!(ran.err.lines().all(|line| line.starts_with("note: ")), "{}", ran.err);
    let quiet = run("coppice import ska -q -n ci-manager -", &fixture("ska/values.yaml"));
    assert_eq!((quiet.code, &*quiet.err, quiet.out), (0, "", ran.out));
}

#[test]
fn what_is_written_is_accepted_by_the_other_commands() {
    let managers = import(&fixture("ska/values.yaml")).out;
    let preview = run("coppice preview -o json -f - --from tests/fixtures/governed.yaml", &managers);
    assert!(preview.out.contains("\"ci-branches\""), "{preview:?}");
    let namespace = "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: ci-1, uid: u-1, creationTimestamp: '2026-03-01T10:00:00Z'}\n";
    let plan = run("coppice plan -A --no-headers -f -", &format!("{managers}{namespace}"));
    assert!(plan.code != 1 && plan.out.contains("ci-1"), "{plan:?}");
}

#[test]
fn files_secrets_and_config_maps_mean_the_same_as_values() {
    let values: Value = serde_yaml::from_str(&fixture("ska/values.yaml")).unwrap();
    let text = |component: &str| {
        let mut config = values[component]["config"].clone();
        config["context"] = json!({ "namespace": "ci-manager" });
        serde_json::to_string(&config).unwrap()
    };
    let (collect, action) = (text("collectController"), text("actionController"));
    let base64 =
        |text: &str| serde_json::to_value(k8s_openapi::ByteString(text.as_bytes().to_vec())).unwrap();
    let object = |kind: &str, name: &str, key: &str, data: Value| {
        json!({ "apiVersion": "v1", "kind": kind, "metadata": { "name": name, "namespace": "ci-manager" }, key: { "00-base.yml": data } })
            .to_string()
    };
    let forms = [
        ("files", format!("{collect}\n---\n{action}")),
        (
            "Secrets",
            format!(
                "{}\n{}\n{}",
                object("Secret", "ns-collect-ctl-config", "data", base64(&collect)),
                object("Secret", "ns-action-ctl-config", "stringData", json!(action)),
                object("Secret", "else", "data", base64("a: 1")),
            ),
        ),
        (
            "ConfigMaps",
            format!(
                "{}\n{}",
                object("ConfigMap", "b", "data", json!(action)),
                object("ConfigMap", "a", "data", json!(collect)),
            ),
        ),
    ];
    let expected = documents(&fixture("ska/expected.yaml"));
    for (form, text) in forms {
        // They say where it runs.
        let ran = run("coppice import ska -", &text);
        assert_eq!((ran.code, documents(&ran.out)), (0, expected.clone()), "{form}: {}", ran.err);
    }
}

#[test]
fn an_expression_that_no_glob_expresses_is_reported_and_takes_nothing_else_along() {
    let action = "[{names: ['keep-[0-9]+']}, {names: ['ci-.*']}, {names: ['dev-.*']}]";
    let collect =
        "[{names: ['ci-keep-[0-9]+'], ttl: 7d}, {names: ['ci-.*'], ttl: 1h}, {names: ['dev-.*'], ttl: 2h}]";
    let ran = of(collect, action);
    assert_eq!(ran.code, 3, "{ran:?}");
    let warnings: Vec<&str> = ran.err.lines().filter(|line| line.starts_with("warning: ")).collect();
    let [names, below, theirs] = &*warnings else { panic!("{warnings:#?}") };
    assert!(
        names.contains(
            "collectController.config.namespaces[0].names[0]: no glob expresses 'ci-keep-[0-9]+': [0-9]"
        ),
        "{names}"
    );
    assert!(names.contains("nothing is written for this entry"), "{names}");
    assert!(below.contains("actionController.config.namespaces[0].names[0]: no glob expresses"), "{below}");
    assert!(
        theirs.contains("collectController.config.namespaces[1]: nothing is written for this entry: it would govern namespaces of \
                         collectController.config.namespaces[0], which is not written"),
        "its shorter ttl would delete what is kept there: {theirs}"
    );
    let written: Vec<String> = specs(&ran).into_iter().map(|(name, _)| name).collect();
    assert_eq!(written, ["dev"], "what has no name in common with it is written");
}

#[test]
fn what_looks_like_a_glob_is_no_glob_there() {
    let ran = of("[{names: ['ci-*']}]", "[{names: ['ci-*']}]");
    assert_eq!((ran.code, &*ran.out), (3, ""), "{ran:?}");
    assert!(
        ran.err.contains("'ci-*': * repeats the one character before it (for any characters write .*)"),
        "{ran:?}"
    );
}

#[test]
fn which_entries_of_the_controllers_go_together_is_certain_or_nothing_is_written() {
    let deleted = |spec: &Value| spec["policies"].as_array().map_or(0, Vec::len);
    for (collect, action, expected) in [
        // One entry for several, and entries in another order.
        (
            "[{names: ['ci-a-.*'], ttl: 1h}, {names: ['ci-.*'], ttl: 2h}]",
            "[{names: ['ci-.*']}]",
            Some(vec![2, 2]),
        ),
        (
            "[{names: ['ci-a-.*'], ttl: 1h}, {names: ['ci-.*'], ttl: 2h}]",
            "[{names: ['ci-a-.*'], stale: {delete: false}, failed: {delete: false}}, {names: ['ci-.*']}]",
            Some(vec![0, 2]),
        ),
        // Nothing is done to what is in one list only.
        ("[{names: ['ci-.*'], ttl: 1h}]", "[{names: ['dev-.*']}]", Some(vec![0])),
        ("[{names: ['ci-.*'], ttl: 1h}]", "[]", Some(vec![0])),
        // Labels say that some of the namespaces are kept: which, no manager for all of them says.
        (
            "[{names: ['ci-.*'], ttl: 1h}]",
            "[{names: ['ci-.*']}, {all: [{labels: {tier: prod}}], stale: {delete: false}}]",
            None,
        ),
        ("[{names: ['ci-.*'], ttl: 1h}]", "[{names: ['ci-a-.*']}]", None),
        // Several kinds of selectors in one entry: its score differs.
        (
            "[{names: ['ci-.*'], all: [{labels: {a: b}}], ttl: 1h}, {any: [{labels: {c: d}}]}]",
            "[{names: ['.*']}]",
            None,
        ),
    ] {
        let ran = of(collect, action);
        let counts: Vec<usize> = specs(&ran).iter().map(|(_, spec)| deleted(spec)).collect();
        match expected {
            Some(expected) => assert_eq!((ran.code, counts), (0, expected), "{collect} {action}: {ran:?}"),
            None => assert_eq!((ran.code, counts), (3, vec![]), "{collect} {action}: {ran:?}"),
        }
    }
}

#[test]
fn selectors_of_an_entry_are_alternatives_as_there() {
    let entry = "{names: ['a-.*'], any: [{labels: {b: c}}, {annotations: {d: e}}], all: [{labels: {f: g}}, {labels: {h: i}}]}";
    let ran = of(&format!("[{entry}]"), &format!("[{entry}]"));
    let all = specs(&ran);
    let any_of = json!([
        { "names": ["a-*"] },
        { "labels": { "matchLabels": { "b": "c" } } },
        { "annotations": [{ "key": "d", "value": "e" }] },
        { "labels": { "matchLabels": { "f": "g", "h": "i" } } },
    ]);
    let expected = json!({ "anyOf": any_of, "exclude": ["ci-manager"] });
    assert_eq!(all.iter().map(|(_, spec)| &spec["selector"]).collect::<Vec<_>>(), [&expected], "{ran:?}");

    let never = of("[{all: [{labels: {a: b}}, {labels: {a: c}}]}]", "[]");
    assert!(
        never.code == 0 && never.out.is_empty() && never.err.contains("contradict each other"),
        "{never:?}"
    );
    let every = of("[{any: [{labels: {a: b}}, {}]}]", "[]");
    assert_eq!((every.code, &*every.out), (3, ""), "{every:?}");
    assert!(every.err.contains(
        "namespaces[0].any[1]: a condition without labels and annotations holds for every namespace"
    ));
    let number = of("[{any: [{labels: {a: 1}}]}]", "[]");
    assert!(
        number.code == 1 && number.err.contains("any[0].labels.a: must be a string: write \"1\" in quotes"),
        "{number:?}"
    );
}

#[test]
fn the_higher_score_has_the_higher_priority_and_the_first_of_equals() {
    let collect = "[{names: ['a-.*']}, {names: ['b-.*', 'a-.*']}, {any: [{labels: {x: y}}]}, \
                   {all: [{labels: {x: y, z: z}}]}, {names: ['a-1']}]";
    let ran = of(collect, collect);
    let all = specs(&ran);
    let priorities: Vec<_> =
        all.iter().map(|(name, spec)| (&**name, spec["priority"].as_i64().unwrap())).collect();
    assert_eq!(priorities, [("a", 30), ("a-2", 20), ("ska", 40), ("ska-2", 50)], "{ran:?}");
    assert!(
        ran.err.contains("namespaces[4]: collectController.config.namespaces[0] wins all of its namespaces"),
        "the first of equal scores wins: {ran:?}"
    );
}

#[test]
fn defaults_of_that_system_are_written_out_where_ours_differ() {
    let (ran, spec) = one("ttl: null", "");
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(
        (&spec["health"]["settlingPeriod"], &spec["health"]["gracePeriod"], &spec["ttl"]),
        (&json!("5m"), &json!("1m"), &Value::Null)
    );
    assert_eq!(
        spec["policies"].as_array().map(Vec::len),
        Some(1),
        "without a ttl nothing becomes stale: {spec}"
    );
    assert_eq!(spec["notify"]["on"], json!(["Unstable", "Failing", "Deleted"]));
    assert_eq!(spec["notify"]["undelivered"], json!({ "after": "30m", "then": "Proceed" }));
}

#[test]
fn a_block_that_is_written_in_part_means_what_it_means_there() {
    let (ran, spec) = one("ttl: 1h", "failing: {notify_on_delete: false}");
    assert_eq!(
        spec["notify"]["on"],
        json!(["Unstable", "Deleted"]),
        "the message for Failing is off, too: {ran:?}"
    );
    assert!(
        ran.err.contains("namespaces[0].failing: what it leaves out is not the default of failing there, but notify_on_status: false"),
        "{ran:?}"
    );
    let (ran, spec) = one("ttl: 1h", "failing: {delete: true, notify_on_status: true}");
    assert_eq!(
        spec["policies"].as_array().map(Vec::len),
        Some(2),
        "nothing that is failing is deleted: {ran:?}"
    );
    assert!(ran.err.contains("failing: delete never had an effect there"), "{ran:?}");
}

#[test]
fn deletions_are_announced_where_owners_are_notified_of_them() {
    let notices = |spec: &Value| -> Vec<String> {
        let all = spec["policies"].as_array().unwrap().iter();
        all.map(|policy| policy["then"]["delete"]["notice"].as_str().unwrap().to_owned()).collect()
    };
    let silent = "{delete: true, notify_on_delete: false, notify_on_status: false}";
    let (_, spec) = one("ttl: 1h", &format!("failed: {silent}"));
    assert_eq!(notices(&spec), ["5m", "0s"]);
    let on = json!(["Unstable", "Failing"]);
    assert_eq!(
        spec["notify"]["on"], on,
        "an owner who is not to be notified of each deletion is notified of none afterwards"
    );
    let (_, spec) = one(
        "ttl: 1h",
        &format!(
            "stale: {silent}, failed: {silent}, failing: {silent}, unstable: {silent}, superseded: {silent}"
        ),
    );
    assert_eq!((notices(&spec), &spec["notify"]), (vec!["0s".to_owned(), "0s".to_owned()], &Value::Null));
    let without_token = fixture("ska/values.yaml").replace("{token: xoxb-secret}", "{token: null}");
    let ran = import(&without_token);
    assert!(
        !ran.out.contains("notify") && !ran.out.contains("notice: 5m") && !ran.out.starts_with('#'),
        "{}",
        ran.out
    );
    assert!(ran.err.contains("notifier.token is not there"), "{}", ran.err);
}

#[test]
fn what_has_no_counterpart_is_a_warning() {
    let text = "collectController: {config: {namespaces: [{names: ['ci-.*'], checks: {cancelled: true}}],
        gitlab: {enabled: true, private_token: glpat-secret},
        prometheus: {whitelisted_alerts: [KubeJobFailed, KubePodNotReady, KubeQuotaExceeded, CPUThrottlingHigh, OurOwn]}}}
actionController: {config: {namespaces: [{names: ['ci-.*']}]}}
";
    let ran = import(text);
    assert_eq!(ran.code, 3, "{ran:?}");
    let ignored = json!([
        { "kind": "Job", "reason": "JobFailed" }, { "reason": "ImagePullBackOff" }, { "reason": "CreateContainerError" },
        { "reason": "Unschedulable" }, { "reason": "VolumePending" }, { "reason": "PodFailed" }, { "reason": "PodsNotReady" },
        { "reason": "PodsNotCreated" },
    ]);
    assert_eq!(specs(&ran)[0].1["health"]["ignore"], ignored);
    for expected in [
        "warning: prometheus: the health is judged by the workloads",
        "what they are about is no failure here: CPUThrottlingHigh",
        "warning: collectController.config.prometheus.whitelisted_alerts: left out, because it is not known which failure they are about: \
         OurOwn",
    ] {
        assert!(ran.err.contains(expected), "{expected}: {}", ran.err);
    }
    assert!(!ran.all().contains("glpat-secret"));
    let null = "prometheus: {enabled: true, whitelisted_alerts: null}\nnamespaces: [{names: [a], ttl: 1h}]\n";
    let said =
        "prometheus.whitelisted_alerts: null makes the check of every namespace with an alert fail there";
    for text in [
        null.to_owned(),
        fixture("ska/values.yaml").replacen("      enabled: false\n", "      enabled: true\n", 1),
    ] {
        let ran = import(&text);
        assert!(ran.code == 3 && ran.err.contains(said), "{text}: {ran:?}");
    }
}

#[test]
fn settings_of_one_controller_alone_do_as_much_as_they_say() {
    let ran = import("prometheus: {enabled: false}\nnamespaces: [{names: ['ci-.*'], ttl: 1h}]\n");
    assert_eq!(ran.code, 3, "{ran:?}");
    assert!(ran.err.contains("warning: there are no settings of the action controller"), "{ran:?}");
    assert_eq!(specs(&ran)[0].1["policies"], Value::Null);
    let ran = import("notifier: {token: t}\nnamespaces: [{names: ['ci-.*']}]\n");
    assert!(ran.code == 1 && ran.err.contains("there are no settings of the collect controller"), "{ran:?}");
}

#[test]
fn later_files_are_laid_over_earlier_ones_as_there() {
    let base = "prometheus: {enabled: true}\nnamespaces: [{names: ['ci-.*'], ttl: 1h}]\n";
    let over = "prometheus: {enabled: false, url: null}\nnamespaces: [{names: ['dev-.*'], ttl: 2h}]\n";
    let ran = import(&format!("{base}---\n{over}"));
    assert!(
        ran.err.contains("its namespaces take the place of those of standard input, document 1"),
        "{ran:?}"
    );
    let all = specs(&ran);
    assert_eq!(
        (all.len(), &*all[0].0, ran.err.contains("warning: prometheus")),
        (1, "dev", false),
        "{ran:?}"
    );
}

#[test]
fn nonsense_is_an_error_that_says_where_and_what_to_do_and_nothing_is_written() {
    let entry = |fields: &str| {
        format!(
            "collectController: {{config: {{namespaces: [{{names: ['ci-.*'], {fields}}}]}}}}\nactionController: {{config: {{namespaces: []}}}}\n"
        )
    };
    for (text, expected) in [
        (String::new(), "there are no settings of the collect controller"),
        ("- a".to_owned(), "expected an object"),
        ("a: [".to_owned(), "cannot be read"),
        (
            "a: 1".to_owned(),
            "a: unknown field, which was never read: take it out, or correct it; known here: context, leader_election",
        ),
        (
            "namespaces: [{names: [a]}]".to_owned(),
            "nothing here says whether these are settings of the collect controller",
        ),
        (
            "heartbeat: {}\nnotifier: {}".to_owned(),
            "heartbeat is a setting of the collect controller and notifier of the action controller",
        ),
        (entry("ttl: 300"), "namespaces[0].ttl: \"300\" has no unit, and that system takes it for zero"),
        (entry("ttl: ''"), "namespaces[0].ttl: \"\" has no unit"),
        (entry("ttl: 0s"), "namespaces[0].ttl: zero makes every namespace stale at once"),
        (entry("ttl: 1y"), "namespaces[0].ttl: \"1y\" is no duration"),
        (entry("grace_period: [1m]"), "namespaces[0].grace_period: "),
        (entry("settling_period: null"), "null makes every check of that system fail"),
        (entry("checks: {superseded: maybe}"), "namespaces[0].checks.superseded: must be true or false"),
        (
            entry("actions: {check-namespace: {schedule: 60}}"),
            "actions.check-namespace.schedule: must be a string",
        ),
        (entry("actions: 5"), "namespaces[0].actions: must be an object"),
        (entry("any: [1]"), "namespaces[0].any[0]: must be an object"),
        (entry("all: {labels: {}}"), "namespaces[0].all: must be a list"),
        (entry("tasks: {}"), "namespaces[0].tasks: unknown field"),
        (
            "collectController: {config: {prometheus: {}}}".to_owned(),
            "collectController.config.namespaces: missing, so that what the chart has by default applies",
        ),
        (
            "collectController: {config: {namespaces: []}}".to_owned(),
            "actionController.config.namespaces: missing, so that what the chart has by default applies",
        ),
        ("gitlab: {}".to_owned(), "namespaces: missing: that system does not start without it"),
        (
            "{apiVersion: v1, kind: Secret, metadata: {name: a-collect-ctl-config}, data: {b.yml: '%'}}"
                .to_owned(),
            "Secret a-collect-ctl-config: data.b.yml is not base64",
        ),
    ] {
        let ran = import(&text);
        assert!(ran.code == 1 && ran.out.is_empty(), "{text}: {ran:?}");
        assert!(ran.err.contains(expected), "{text}: {expected}: {}", ran.err);
    }
}

#[test]
fn a_command_line_that_makes_no_sense_is_a_mistake_of_usage() {
    for line in [
        "coppice import ska",
        "coppice import ska --mode Enforce -",
        "coppice import ska -n A_b -",
        "coppice import",
    ] {
        assert_eq!(run(line, "").code, 2, "{line}");
    }
    let gone = run("coppice import ska no-such-file.yaml", "");
    assert!(gone.code == 1 && gone.err.contains("no-such-file.yaml cannot be read"), "{gone:?}");
}
