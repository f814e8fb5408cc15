//! Alerts, dashboard and the configuration of kube-state-metrics name only what there is: series and labels of the operator, and the few of
//! kube-state-metrics that alerts use, fields of the CRDs, sections of the runbooks.

pub(crate) mod exposed;
mod objects;
mod promql;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde_json::Value;

use self::exposed::Series;
use self::promql::{Named, named};
use crate::manifests::{Install, crds};
use crate::sources;

pub(crate) const ALERTS: &str = "deploy/monitoring/alerts.yaml";
const TESTS: &str = "deploy/monitoring/alerts_test.yaml";
const DASHBOARD: &str = "deploy/monitoring/dashboard.json";
const OBJECTS: &str = "deploy/monitoring/kube-state-metrics.yaml";
const RUNBOOKS: &str = "docs/runbooks.md";
const SEVERITIES: [&str; 3] = ["critical", "warning", "info"];
/// What Prometheus adds to every series that it reads of a pod.
const OF_TARGETS: [&str; 4] = ["instance", "job", "namespace", "pod"];

/// Series of kube-state-metrics about objects of Kubernetes that alerts use, with their labels.
const OF_KUBERNETES: [(&str, [&str; 2]); 2] = [
    ("kube_cronjob_created", ["namespace", "cronjob"]),
    ("kube_cronjob_status_last_successful_time", ["namespace", "cronjob"]),
];

/// What alerts, dashboard and configuration name that is not there.
pub(crate) fn check(root: &Path) -> Result<Vec<String>> {
    let read = |path: &str| fs::read_to_string(root.join(path)).with_context(|| format!("read {path}"));
    let yaml = |path: &str| -> Result<Value> { serde_yaml::from_str(&read(path)?).context(path.to_owned()) };
    let series = exposed::series()?;
    let words = words(root)?;
    let of_kubernetes: [(String, BTreeSet<String>); 2] =
        OF_KUBERNETES.map(|(name, labels)| (name.to_owned(), labels.map(str::to_owned).into()));
    let alerted: Series = series.clone().into_iter().chain(of_kubernetes).collect();
    let mut findings = alerts(&yaml(ALERTS)?, &Known { series: &alerted, words: &words });
    findings.extend(companions(&yaml(ALERTS)?, &read(TESTS)?, &read(RUNBOOKS)?));
    let (of_objects, wrong) = objects::read(&yaml(OBJECTS)?, &crds::objects(&Install::kubectl())?);
    findings.extend(wrong.into_iter().map(|wrong| format!("{OBJECTS}: {wrong}")));
    let both: Series = series.clone().into_iter().chain(of_objects).collect();
    let board: Value = serde_json::from_str(&read(DASHBOARD)?).context(DASHBOARD)?;
    findings.extend(dashboard(&board, &Known { series: &both, words: &words }));
    Ok(findings)
}

/// What an expression may name.
struct Known<'a> {
    series: &'a Series,
    /// Words of the product's sources: values of labels are among them.
    words: &'a BTreeSet<String>,
}

/// The words of the crates' sources.
fn words(root: &Path) -> Result<BTreeSet<String>> {
    let mut words = BTreeSet::new();
    for (path, text) in sources::files(&root.join("crates"))? {
        if path.extension().is_some_and(|extension| extension == "rs") {
            words.extend(text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').map(str::to_owned));
        }
    }
    Ok(words)
}

impl Known<'_> {
    /// What is wrong with an expression, and the labels that its result may have.
    fn judge(&self, expression: &str) -> (Vec<String>, BTreeSet<String>) {
        let named = match named(expression) {
            Ok(named) => named,
            Err(error) => return (vec![format!("{error:#}: {expression}")], BTreeSet::new()),
        };
        let mut findings = Vec::new();
        let mut labels: BTreeSet<String> = OF_TARGETS.map(str::to_owned).into();
        for selector in &named.selectors {
            let Some(known) = self.series.get(&selector.name) else {
                findings.push(format!("there is no series {}: see docs/metrics.md", selector.name));
                continue;
            };
            labels.extend(known.iter().cloned());
            for matcher in &selector.matchers {
                if !known.contains(&matcher.label) && !OF_TARGETS.contains(&matcher.label.as_str()) {
                    findings.push(format!("{} has no label {}", selector.name, matcher.label));
                }
                let values = matcher.value.split('|').filter(|value| !self.is_value(value));
                findings.extend(values.map(|value| {
                    format!("{}: no source has the word {value:?} for {}", selector.name, matcher.label)
                }));
            }
        }
        let unknown = named.labels.iter().filter(|label| !labels.contains(*label));
        findings.extend(unknown.map(|label| format!("no series of the expression has the label {label}")));
        (findings, of_result(&named, labels))
    }

    /// A word of the sources, a code of HTTP, or a regular expression, which is not looked at.
    fn is_value(&self, value: &str) -> bool {
        let plain = value.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        !plain || value.chars().all(|c| c.is_ascii_digit()) || self.words.contains(value)
    }
}

/// Who groups keeps the labels by which it does.
fn of_result(named: &Named, labels: BTreeSet<String>) -> BTreeSet<String> {
    if named.labels.is_empty() { labels } else { named.labels.clone() }
}

/// The labels that a text shows: `{{ $labels.kind }}` in alerts, `{{kind}}` in dashboards.
fn shown(text: &str) -> impl Iterator<Item = &str> {
    let inside = text.split("{{").skip(1).filter_map(|rest| Some(rest.split_once("}}")?.0.trim()));
    inside.filter_map(|name| name.strip_prefix("$labels.").or((!name.starts_with('$')).then_some(name)))
}

fn texts<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    value[key].as_array().into_iter().flatten()
}

fn rules(alerts: &Value) -> impl Iterator<Item = &Value> {
    texts(alerts, "groups").flat_map(|group| texts(group, "rules"))
}

fn alerts(file: &Value, known: &Known<'_>) -> Vec<String> {
    let mut findings = Vec::new();
    for rule in rules(file) {
        let name = rule["alert"].as_str().unwrap_or_default();
        let mut add = |wrong: String| findings.push(format!("{ALERTS}: {name}: {wrong}"));
        let (wrong, labels) = known.judge(rule["expr"].as_str().unwrap_or_default());
        wrong.into_iter().for_each(&mut add);
        if rule["for"].as_str().is_none_or(|time| time.starts_with('0')) {
            add("write in `for` how long it has to last".to_owned());
        }
        if rule["labels"]["severity"].as_str().is_none_or(|severity| !SEVERITIES.contains(&severity)) {
            add(format!("severity is one of {}", SEVERITIES.join(", ")));
        }
        for key in ["summary", "description"] {
            let text = rule["annotations"][key].as_str().unwrap_or_default();
            if text.is_empty() {
                add(format!("the annotation {key} is missing"));
            }
            for label in shown(text).filter(|label| !labels.contains(*label)) {
                add(format!("{key} shows the label {label}, which the result does not have"));
            }
        }
        let runbook = format!("{RUNBOOKS}#{}", name.to_lowercase());
        if rule["annotations"]["runbook"] != runbook.as_str() {
            add(format!("the annotation runbook is {runbook}"));
        }
    }
    findings
}

/// Every alert has its section and its tests, and every section its alert.
fn companions(file: &Value, tests: &str, runbooks: &str) -> Vec<String> {
    let names: Vec<&str> = rules(file).filter_map(|rule| rule["alert"].as_str()).collect();
    let sections: Vec<&str> = runbooks.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    let mut findings = Vec::new();
    for name in &names {
        if !sections.contains(name) {
            findings.push(format!("{RUNBOOKS}: the section {name} is missing"));
        }
        let about = |line: &&str| {
            line.contains(&format!("alertname=\"{name}\"")) || line.contains(&format!("alertname: {name}"))
        };
        let cases: Vec<&str> = tests.lines().filter(about).collect();
        if cases.len() < 2 {
            findings
                .push(format!("{TESTS}: {name} needs a case in which it fires and one in which it does not"));
        }
    }
    for section in sections.into_iter().filter(|section| section.starts_with("Coppice")) {
        if !names.contains(&section) {
            findings.push(format!("{RUNBOOKS}: there is no alert {section}"));
        }
    }
    findings
}

fn dashboard(board: &Value, known: &Known<'_>) -> Vec<String> {
    let mut findings = Vec::new();
    let mut ids = BTreeSet::new();
    for panel in texts(board, "panels") {
        let title = panel["title"].as_str().unwrap_or_default();
        let mut add = |wrong: String| findings.push(format!("{DASHBOARD}: {title}: {wrong}"));
        if !panel["id"].as_u64().is_some_and(|id| ids.insert(id)) {
            add("a panel has an id of its own".to_owned());
        }
        let is_row = panel["type"] == "row";
        if !is_row && panel["description"].as_str().is_none_or(str::is_empty) {
            add("write in its description what it shows".to_owned());
        }
        if !is_row && texts(panel, "targets").next().is_none() {
            add("it has no query".to_owned());
        }
        for target in texts(panel, "targets") {
            let (wrong, labels) = known.judge(target["expr"].as_str().unwrap_or_default());
            wrong.into_iter().for_each(&mut add);
            let legend = target["legendFormat"].as_str().unwrap_or_default();
            for label in shown(legend).filter(|label| !labels.contains(*label)) {
                add(format!("the legend shows the label {label}, which the result does not have"));
            }
        }
    }
    // Queries of variables are not PromQL alone, and nothing here reads them.
    let queries = texts(&board["templating"], "list").filter(|variable| variable["type"] == "query");
    findings
        .extend(queries.map(|variable| format!("{DASHBOARD}: the variable {} is a query", variable["name"])));
    findings
}

#[cfg(test)]
mod tests;
