use std::collections::BTreeMap;

use serde_json::json;

use super::*;

/// The findings about one alert with this expression and summary.
fn alert(expression: &str, summary: &str) -> Vec<String> {
    let file = json!({"groups": [{"rules": [{
        "alert": "CoppiceTest", "expr": expression, "for": "5m", "labels": {"severity": "warning"},
        "annotations": {"summary": summary, "description": "Why.", "runbook": "docs/runbooks.md#coppicetest"},
    }]}]});
    judged(&file)
}

fn judged(file: &Value) -> Vec<String> {
    let words = ["Refused", "pods"].map(str::to_owned).into();
    let found = alerts(file, &Known { series: &exposed::series().unwrap(), words: &words });
    let prefix = format!("{ALERTS}: CoppiceTest: ");
    found.iter().map(|finding| finding.strip_prefix(&prefix).unwrap_or(finding).to_owned()).collect()
}

#[test]
fn an_alert_names_series_labels_and_values_that_there_are() {
    let right = r#"max by (phase) (coppice_managers{phase="Refused",instance=~"a.*"}) > 0"#;
    assert_eq!(alert(right, "{{ $labels.phase }}: {{ $value }}"), [""; 0]);
    assert_eq!(
        alert("coppice_manager > 0", "Wrong."),
        ["there is no series coppice_manager: see docs/metrics.md"]
    );
    assert_eq!(
        alert("coppice_firings > 0", "Without its suffix."),
        ["there is no series coppice_firings: see docs/metrics.md"]
    );
    assert_eq!(
        alert(r#"coppice_managers{state="Refused"} > 0"#, "Wrong."),
        ["coppice_managers has no label state"]
    );
    assert_eq!(
        alert(r#"coppice_managers{phase=~"Refused|Denied"} > 0"#, "Wrong."),
        ["coppice_managers: no source has the word \"Denied\" for phase"]
    );
    assert_eq!(
        alert("sum by (controller) (coppice_managers) > 0", "Wrong."),
        ["no series of the expression has the label controller"]
    );
    assert_eq!(
        alert("sum by (phase) (coppice_managers) > 0", "{{ $labels.instance }}"),
        ["summary shows the label instance, which the result does not have"]
    );
    assert_eq!(alert("sum({phase=\"Refused\"})", "Wrong.").len(), 1);
}

#[test]
fn an_alert_lasts_has_a_severity_texts_and_its_runbook() {
    let file =
        json!({"groups": [{"rules": [{"alert": "CoppiceTest", "expr": "coppice_leader", "for": "0m"}]}]});
    assert_eq!(
        judged(&file),
        [
            "write in `for` how long it has to last",
            "severity is one of critical, warning, info",
            "the annotation summary is missing",
            "the annotation description is missing",
            "the annotation runbook is docs/runbooks.md#coppicetest"
        ]
    );
}

#[test]
fn an_alert_without_section_or_tests_and_a_section_without_alert_are_found() {
    let file = json!({"groups": [{"rules": [{"alert": "CoppiceA"}]}]});
    let tests = "expr: ALERTS{alertname=\"CoppiceA\"}, exp_samples: []\n  alertname: CoppiceA\n";
    assert_eq!(companions(&file, tests, "# Runbooks\n## Before\n## CoppiceA\n"), [""; 0]);
    assert_eq!(
        companions(&file, "alertname: CoppiceAll\n", "## CoppiceB\n"),
        [
            "docs/runbooks.md: the section CoppiceA is missing",
            "deploy/monitoring/alerts_test.yaml: CoppiceA needs a case in which it fires and one in which it does not",
            "docs/runbooks.md: there is no alert CoppiceB"
        ]
    );
}

/// The findings about a dashboard with this panel beside a right one.
fn panel(panel: &Value) -> Vec<String> {
    let right = json!({"id": 1, "title": "A", "type": "stat", "description": "B.",
        "targets": [{"expr": "sum by (phase) (coppice_managers)", "legendFormat": "{{phase}}"}]});
    let board = json!({"panels": [right, panel]});
    let series = exposed::series().unwrap();
    let found = dashboard(&board, &Known { series: &series, words: &BTreeSet::new() });
    let prefix = format!("{DASHBOARD}: Wrong: ");
    found.iter().map(|finding| finding.strip_prefix(&prefix).unwrap_or(finding).to_owned()).collect()
}

#[test]
fn a_dashboard_names_series_and_labels_that_there_are() {
    assert_eq!(panel(&json!({"id": 2, "title": "Row", "type": "row"})), [""; 0]);
    let with = |expr: &str, legend: &str| {
        panel(&json!({"id": 2, "title": "Wrong", "type": "stat", "description": "B.",
            "targets": [{"expr": expr, "legendFormat": legend}]}))
    };
    assert_eq!(
        with("rate(coppice_reconcile_total[$__rate_interval])", ""),
        ["there is no series coppice_reconcile_total: see docs/metrics.md"]
    );
    assert_eq!(
        with("sum by (controller) (coppice_queue_depth)", "{{phase}}"),
        ["the legend shows the label phase, which the result does not have"]
    );
    assert_eq!(
        panel(&json!({"id": 1, "title": "Wrong", "type": "stat"})),
        ["a panel has an id of its own", "write in its description what it shows", "it has no query"]
    );
}

/// The series of a metric of records, and the findings.
fn of_records(metric: &Value) -> (Series, Vec<String>) {
    let kind = json!({"group": "coppice.dev", "version": "v1alpha1", "kind": "ManagedNamespace"});
    let resource = json!({"groupVersionKind": kind, "metricNamePrefix": "p",
        "labelsFromPath": {"namespace": ["metadata", "namespace"]}, "metrics": [metric]});
    let config = json!({"spec": {"resources": [resource]}});
    objects::read(&config, &crds::objects(&Install::kubectl()).unwrap())
}

#[test]
fn paths_lead_to_fields_of_the_schema() {
    let gauge = |details: Value| json!({"name": "a", "each": {"type": "Gauge", "gauge": details}});
    let labels = "customresource_group customresource_kind customresource_version namespace type";
    let labels: BTreeSet<String> = labels.split(' ').map(str::to_owned).collect();
    let conditions = json!({"path": ["status", "conditions"], "labelsFromPath": {"type": ["type"]}, "valueFrom": ["status"]});
    assert_eq!(of_records(&gauge(conditions)), (BTreeMap::from([("p_a".to_owned(), labels)]), vec![]));
    assert_eq!(of_records(&gauge(json!({"path": ["status", "expiresAt"]}))).1, [""; 0]);
    for (details, wrong) in [
        (json!({"path": ["status", "expires"]}), r#"p_a: there is no field ["status","expires"]"#),
        (json!({"path": ["status", "phase"]}), r#"p_a: ["status","phase"] null is no number or instant"#),
        (
            json!({"path": ["status", "conditions"], "valueFrom": ["state"]}),
            r#"p_a: there is no field ["state"]"#,
        ),
        (
            json!({"path": ["status", "next"], "valueFrom": ["due"]}),
            r#"p_a: write the path of the value itself: ["status","next"] is an object"#,
        ),
        (
            json!({"path": ["status", "expiresAt"], "labelsFromPath": {"x": ["metadata", "owner"]}}),
            r#"p_a: the label x: there is no field ["metadata","owner"]"#,
        ),
    ] {
        assert_eq!(of_records(&gauge(details)).1, [wrong]);
    }
    let states = json!({"name": "a", "each": {"type": "StateSet", "stateSet":
        {"labelName": "phase", "path": ["status", "phase"], "list": ["Ok", "Gone"]}}});
    assert!(of_records(&states).1[0].starts_with(r#"p_a: the values of ["status","phase"] are ["#));
    let kind = json!({"spec": {"resources": [{"groupVersionKind": {"group": "coppice.dev", "version": "v1", "kind": "X"}}]}});
    assert_eq!(objects::read(&kind, &[]).1.len(), 1);
}
