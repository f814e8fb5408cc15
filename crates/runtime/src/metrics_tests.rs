use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::{ApiRequest, Metrics};
use crate::panic::Panicked;
use crate::queue::{Depths, QueueObserver, ReconcileResult, RunOutcome};

fn everything() -> Metrics {
    let metrics = Metrics::new("1.2.3");
    let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    metrics.leader("coppice-operator", true);
    let controller = metrics.controller("managers");
    let took = Duration::from_millis(20);
    QueueObserver::<u8>::finished(&controller, &1, &RunOutcome::Completed(ReconcileResult::Done), took);
    QueueObserver::<u8>::finished(
        &controller,
        &1,
        &RunOutcome::Completed(ReconcileResult::At(tokio::time::Instant::now())),
        took,
    );
    QueueObserver::<u8>::finished(
        &controller,
        &1,
        &RunOutcome::Panicked(Panicked { message: String::new() }),
        took,
    );
    QueueObserver::<u8>::depths(&controller, Depths { ready: 3, due: 4, running: 5 });
    metrics.watch_unsynced("jobs");
    metrics.watch_synced("pods", 7, now);
    metrics.watch_unreadable("pods", "TooLarge", 2);
    metrics.watch_restarted("pods", "expired");
    let request = ApiRequest { client: "reads", verb: "list", resource: "pods", code: "200" };
    metrics.api_request(&request, took);
    metrics.clock_skew(SignedDuration::from_millis(-1_500));
    metrics.event_written(true);
    metrics.status_written(false);
    metrics
}

#[test]
fn every_metric_has_its_name_and_value() {
    let text = everything().encode();
    let expected = [
        "coppice_build_info{version=\"1.2.3\"} 1",
        "coppice_leader{lease=\"coppice-operator\"} 1",
        "coppice_reconciles_total{controller=\"managers\",outcome=\"done\"} 1",
        "coppice_reconciles_total{controller=\"managers\",outcome=\"later\"} 1",
        "coppice_reconciles_total{controller=\"managers\",outcome=\"retry\"} 0",
        "coppice_reconciles_total{controller=\"managers\",outcome=\"panic\"} 1",
        "coppice_reconcile_duration_seconds_bucket{le=\"0.025\",controller=\"managers\"} 3",
        "coppice_reconcile_panics_total{controller=\"managers\"} 1",
        "coppice_queue_depth{controller=\"managers\"} 3",
        "coppice_queue_due{controller=\"managers\"} 4",
        "coppice_queue_running{controller=\"managers\"} 5",
        "coppice_watch_synced{kind=\"pods\"} 1",
        "coppice_watch_synced{kind=\"jobs\"} 0",
        "coppice_watch_last_activity_timestamp_seconds{kind=\"pods\"} 1767225600.0",
        "coppice_watch_restarts_total{kind=\"pods\",reason=\"expired\"} 1",
        "coppice_watch_restarts_total{kind=\"jobs\",reason=\"forbidden\"} 0",
        "coppice_watch_objects{kind=\"pods\"} 7",
        "coppice_watch_objects_unreadable{kind=\"pods\",reason=\"TooLarge\"} 2",
        "coppice_api_requests_total{client=\"reads\",verb=\"list\",resource=\"pods\",code=\"200\"} 1",
        "coppice_api_request_duration_seconds_count{client=\"reads\",verb=\"list\"} 1",
        "coppice_clock_skew_seconds -1.5",
        "coppice_events_total{result=\"ok\"} 1",
        "coppice_status_writes_total{result=\"error\"} 1",
    ];
    for line in expected {
        assert!(text.lines().any(|l| l == line), "{line} is missing in\n{text}");
    }
    assert!(text.ends_with("# EOF\n"));
}

#[test]
fn registries_are_apart() {
    let (one, other) = (Metrics::new("1"), Metrics::new("1"));
    one.clone().event_written(true);
    assert!(one.encode().contains("coppice_events_total{result=\"ok\"} 1\n"));
    assert!(other.encode().contains("coppice_events_total{result=\"ok\"} 0\n"));
}

#[test]
fn a_described_registry_shows_every_family_with_its_labels() {
    let shown = everything().encode();
    let described = Metrics::described().encode();
    let help = |text: &str| -> Vec<String> {
        text.lines().filter(|line| line.starts_with("# ")).map(str::to_owned).collect()
    };
    let missing: Vec<_> = help(&shown).into_iter().filter(|line| !help(&described).contains(line)).collect();
    assert_eq!(missing, [""; 0], "in\n{described}");
    for line in [
        "coppice_api_requests_total{client=\"\",verb=\"\",resource=\"\",code=\"\"} 0",
        "coppice_reconcile_duration_seconds_count{controller=\"\"} 0",
    ] {
        assert!(described.lines().any(|l| l == line), "{line} is missing in\n{described}");
    }
}
