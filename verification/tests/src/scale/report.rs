//! The figures, for people and for programs.
#![allow(clippy::print_stdout, reason = "this is what the benchmark is for")]

use serde::Serialize;

use super::process::Sample;

/// One run of the operator.
#[derive(Debug, Serialize)]
pub(super) struct Run {
    /// What was on the plane.
    pub(super) what: &'static str,
    /// The moments at which it was looked at.
    pub(super) samples: Vec<(&'static str, Sample)>,
    /// Objects in its caches at the end: namespaces, managers, pods.
    pub(super) objects: [f64; 3],
    /// The same under cluster managers: records, Deployments, `ReplicaSets`.
    pub(super) governed: [f64; 3],
    /// Requests that it made.
    pub(super) requests: f64,
    /// Statuses that it wrote.
    pub(super) status_writes: f64,
    /// Watches that had to list again.
    pub(super) relists: f64,
    /// In a minute without anything to do: requests, and those that write anything but the Lease; none if not measured.
    pub(super) idle: Option<[f64; 2]>,
}

/// Everything, in the order of the runs.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    /// `release` or `debug`; only figures of a release build count.
    pub(super) build: &'static str,
    /// How long a pod's JSON is, about.
    pub(super) pod_bytes: usize,
    /// The runs.
    pub(super) runs: Vec<Run>,
    /// What one more pod costs when the operator has just become ready, in KiB; none without pods.
    pub(super) kib_per_pod: Option<f64>,
}

impl Run {
    pub(super) fn sample(&self, name: &str) -> Option<&Sample> {
        self.samples.iter().find(|(n, _)| *n == name).map(|(_, sample)| sample)
    }
}

#[allow(clippy::cast_precision_loss, reason = "memory of one process in KiB is far below 2^52")]
fn mib(kib: u64) -> f64 {
    kib as f64 / 1024.0
}

/// Prints the readable table, then one line of JSON.
pub(super) fn print(report: &Report) -> anyhow::Result<()> {
    println!("\n{} build, pods of {} bytes; MiB", report.build, report.pod_bytes);
    println!(
        "{:<34} {:<22} {:>7} {:>7} {:>7} {:>7} {:>7}",
        "on the plane", "when", "s", "RSS", "own", "peak", "CPU s"
    );
    for run in &report.runs {
        for (name, sample) in &run.samples {
            println!(
                "{:<34} {name:<22} {:>7.1} {:>7.1} {:>7.1} {:>7.1} {:>7.1}",
                run.what,
                sample.at,
                mib(sample.rss),
                mib(sample.anonymous),
                mib(sample.peak),
                sample.cpu
            );
        }
        let [namespaces, managers, pods] = run.objects;
        println!(
            "  {namespaces} namespaces, {managers} managers, {pods} pods; {} requests, {} status writes, listed {} times again",
            run.requests, run.status_writes, run.relists
        );
        if let Some([requests, writes]) = run.idle {
            println!("  idle for 60 s: {requests} requests, {writes} writes but for the Lease");
        }
    }
    if let Some([records, deployments, replica_sets]) =
        report.runs.last().map(|run| run.governed).filter(|n| n[0] > 0.0)
    {
        println!("  at the end {records} records, {deployments} Deployments, {replica_sets} ReplicaSets");
    }
    if let Some(cost) = report.kib_per_pod {
        println!("one pod costs {cost:.2} KiB of memory");
    }
    println!("{}", serde_json::to_string(report)?);
    Ok(())
}
