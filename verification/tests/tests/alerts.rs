//! The alert rules and the queries of the dashboard, by Prometheus's own checker: they are valid, and each alert fires when it
//! should and at no other time.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};
use coppice_tests::test_cluster::repository;
use serde_json::{Value, json};

type Test = anyhow::Result<()>;

/// What `promtool` says about a file; whether it accepts it. It computes for half a minute and nobody waits for it: control planes come first.
fn promtool(command: &[&str], folder: &Path, file: &str) -> anyhow::Result<(bool, String)> {
    let mut promtool = Command::new("nice");
    promtool.args(["-n", "19"]).arg(coppice_plane::promtool()?);
    let output = promtool.args(command).arg(file).current_dir(folder).output().context("run promtool")?;
    let text = [output.stdout, output.stderr].concat();
    Ok((output.status.success(), String::from_utf8_lossy(&text).into_owned()))
}

#[test]
fn alert_rules_are_valid_and_fire_when_they_should() -> Test {
    let folder = repository().join("deploy/monitoring");
    let (valid, said) = promtool(&["check", "rules"], &folder, "alerts.yaml")?;
    let names = std::fs::read_to_string(folder.join("alerts.yaml"))?;
    let count = names.lines().filter(|line| line.starts_with("  - alert: ")).count();
    ensure!(valid && count > 0 && said.contains(&format!("{count} rules found")), "{count} rules: {said}");
    let (passed, said) = promtool(&["test", "rules"], &folder, "alerts_test.yaml")?;
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
    let (passed, said) = promtool(&tests, changed.path(), "alerts_test.yaml")?;
    ensure!(!passed && said.contains("CoppiceHasNoLeader"), "{said}");
    Ok(())
}

#[test]
fn queries_of_the_dashboard_are_valid() -> Test {
    let text = std::fs::read_to_string(repository().join("deploy/monitoring/dashboard.json"))?;
    let board: Value = serde_json::from_str(&text)?;
    let items = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let targets: Vec<Value> =
        items(&board["panels"]).iter().flat_map(|panel| items(&panel["targets"])).collect();
    let rule = |(at, target): (usize, &Value)| {
        // Grafana writes a duration in place of its variable.
        let expression = target["expr"].as_str().unwrap_or_default().replace("$__rate_interval", "5m");
        json!({"record": format!("query:{at}"), "expr": expression})
    };
    let rules: Vec<Value> = targets.iter().enumerate().map(rule).collect();
    let file = json!({"groups": [{"name": "dashboard", "rules": rules}]});
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("queries.yaml"), file.to_string())?;
    let (valid, said) = promtool(&["check", "rules"], folder.path(), "queries.yaml")?;
    let found = format!("{} rules found", targets.len());
    ensure!(valid && !targets.is_empty() && said.contains(&found), "{found}: {said}");
    Ok(())
}
