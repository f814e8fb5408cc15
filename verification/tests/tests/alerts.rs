//! The alert rules and the queries of the dashboard, by Prometheus's own checker: they are valid, and each alert fires when it
//! should and at no other time.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};
use coppice_tests::test_cluster::repository;
use serde_json::{Value, json};

type Test = anyhow::Result<()>;

/// What `promtool` says about files; whether it accepts them.
fn promtool(command: &[&str], folder: &Path, files: &[&str]) -> anyhow::Result<(bool, String)> {
    let mut promtool = Command::new(coppice_plane::promtool()?);
    let output = promtool.args(command).args(files).current_dir(folder).output().context("run promtool")?;
    let text = [output.stdout, output.stderr].concat();
    Ok((output.status.success(), String::from_utf8_lossy(&text).into_owned()))
}

/// What is in a list; nothing if it is none.
fn items(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// The alerts that a test of rules asks about by name; none if it asks about others, too.
fn asked_about(test: &Value) -> Option<BTreeSet<String>> {
    let mut alerts = BTreeSet::new();
    for asked in items(&test["promql_expr_test"]) {
        let (_, from_name) = asked["expr"].as_str()?.split_once("ALERTS{alertname=\"")?;
        let (name, rest) = from_name.split_once('"')?;
        if rest.contains("ALERTS") {
            return None;
        }
        alerts.insert(name.to_owned());
    }
    for asked in items(&test["alert_rule_test"]) {
        alerts.insert(asked["alertname"].as_str()?.to_owned());
    }
    (!alerts.is_empty()).then_some(alerts)
}

/// Writes the tests of alerts into a folder, each beside the rules that it asks about: all rules at each minute of the days that some tests
/// take are minutes of a processor. The names of the files with tests.
fn split_tests(rules: &Value, tests: &Value, folder: &Path) -> anyhow::Result<Vec<String>> {
    let mut by_alerts: BTreeMap<Option<BTreeSet<String>>, Vec<&Value>> = BTreeMap::new();
    for test in items(&tests["tests"]) {
        by_alerts.entry(asked_about(test)).or_default().push(test);
    }
    let mut files = Vec::new();
    for (number, (alerts, of_these)) in by_alerts.into_iter().enumerate() {
        let mut rules = rules.clone();
        if let Some(alerts) = alerts {
            let group = rules["groups"][0]["rules"].as_array_mut().context("no rules")?;
            group.retain(|rule| rule["alert"].as_str().is_some_and(|name| alerts.contains(name)));
            ensure!(group.len() == alerts.len(), "not each of {alerts:?} is one rule");
        }
        let (rules_file, tests_file) = (format!("rules-{number}.yaml"), format!("tests-{number}.yaml"));
        let mut split = tests.clone();
        split["rule_files"] = json!([rules_file]);
        split["tests"] = json!(of_these);
        std::fs::write(folder.join(&rules_file), rules.to_string())?;
        std::fs::write(folder.join(&tests_file), split.to_string())?;
        files.push(tests_file);
    }
    Ok(files)
}

#[test]
fn alert_rules_are_valid_and_fire_when_they_should() -> Test {
    let folder = repository().join("deploy/monitoring");
    let (valid, said) = promtool(&["check", "rules"], &folder, &["alerts.yaml"])?;
    let text = std::fs::read_to_string(folder.join("alerts.yaml"))?;
    let count = text.lines().filter(|line| line.starts_with("  - alert: ")).count();
    ensure!(valid && count > 0 && said.contains(&format!("{count} rules found")), "{count} rules: {said}");
    let rules: Value = serde_yaml::from_str(&text)?;
    ensure!(items(&rules["groups"]).len() == 1, "the rules are in one group, in which they are evaluated");
    ensure!(items(&rules["groups"][0]["rules"]).len() == count, "each rule of the group is an alert");
    let tests: Value = serde_yaml::from_str(&std::fs::read_to_string(folder.join("alerts_test.yaml"))?)?;
    ensure!(tests["rule_files"] == json!(["alerts.yaml"]), "{}", tests["rule_files"]);
    let split = tempfile::tempdir()?;
    let files = split_tests(&rules, &tests, split.path())?;
    ensure!(!files.is_empty(), "there are no tests");
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    let (passed, said) = promtool(&["test", "rules"], split.path(), &files)?;
    ensure!(passed, "{said}");
    Ok(())
}

#[test]
fn an_alert_that_fires_too_late_is_found() -> Test {
    let (folder, changed) = (repository().join("deploy/monitoring"), tempfile::tempdir()?);
    let rules = std::fs::read_to_string(folder.join("alerts.yaml"))?;
    let late = rules.replacen("    for: 2m\n", "    for: 20m\n", 1);
    ensure!(late != rules, "the rule that waits for two minutes is gone: change another one here");
    std::fs::write(changed.path().join("alerts.yaml"), late)?;
    std::fs::copy(folder.join("alerts_test.yaml"), changed.path().join("alerts_test.yaml"))?;
    let tests = ["test", "rules", "--run", "^no leader for two minutes"];
    let (passed, said) = promtool(&tests, changed.path(), &["alerts_test.yaml"])?;
    ensure!(!passed && said.contains("CoppiceHasNoLeader"), "{said}");
    Ok(())
}

#[test]
fn queries_of_the_dashboard_are_valid() -> Test {
    let text = std::fs::read_to_string(repository().join("deploy/monitoring/dashboard.json"))?;
    let board: Value = serde_json::from_str(&text)?;
    let targets: Vec<&Value> =
        items(&board["panels"]).iter().flat_map(|panel| items(&panel["targets"])).collect();
    let rule = |(at, target): (usize, &&Value)| {
        // Grafana writes a duration in place of its variable.
        let expression = target["expr"].as_str().unwrap_or_default().replace("$__rate_interval", "5m");
        json!({"record": format!("query:{at}"), "expr": expression})
    };
    let rules: Vec<Value> = targets.iter().enumerate().map(rule).collect();
    let file = json!({"groups": [{"name": "dashboard", "rules": rules}]});
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("queries.yaml"), file.to_string())?;
    let (valid, said) = promtool(&["check", "rules"], folder.path(), &["queries.yaml"])?;
    let found = format!("{} rules found", targets.len());
    ensure!(valid && !targets.is_empty() && said.contains(&found), "{found}: {said}");
    Ok(())
}
