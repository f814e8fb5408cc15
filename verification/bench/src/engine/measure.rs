//! Times passes and changes, and asks the other two instruments.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use super::{Fleet, GovernedFleet, Shape, instructions};
use crate::report::{Goal, Part, ReportWriter, Subject};
use crate::stats::{Spread, count};

/// So many passes are made for one value; of them the fastest counts, since what others do can only add.
const PASSES: usize = 5;
/// For a change it is the mean of so many, for the same reason the best of [`PASSES`] series.
const CHANGES: usize = 20_000;
/// Under callgrind everything is fifty times slower, and exact: fewer namespaces tell the same.
const COUNTED_NAMESPACES: usize = 500;

/// What the driver does, for tools that look at it from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Work {
    /// Plans every namespace.
    Pass,
    /// Changes a pod of each namespace in turn, and plans that namespace.
    Change,
}

impl Work {
    /// As the command line has it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Change => "change",
        }
    }
}

/// Allocations for one namespace or one change, as `coppice-bench-allocations` prints them.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub struct Allocations {
    /// Allocations and growths.
    pub count: f64,
    /// Bytes asked for.
    pub bytes: f64,
}

/// Does the work so many times, each time for every namespace of the fleet.
pub fn drive(fleet: &mut Fleet, work: Work, times: usize) {
    for _ in 0..times {
        match work {
            Work::Pass => {
                std::hint::black_box(fleet.pass());
            }
            Work::Change => {
                for n in 0..fleet.len() {
                    std::hint::black_box(fleet.change(n));
                }
            }
        }
    }
}

/// What the engine is measured with, beside the clock.
#[derive(Clone, Copy, Debug)]
pub struct Instruments<'a> {
    /// The program that counts allocations.
    pub allocations: &'a Path,
    /// A file with the instructions that were counted when somebody last looked at them.
    pub baseline: &'a Path,
    /// What has not begun by then is left out.
    pub until: Instant,
}

impl Instruments<'_> {
    fn in_time(&self) -> anyhow::Result<()> {
        anyhow::ensure!(Instant::now() < self.until, "its time was over");
        Ok(())
    }
}

/// The name of the part.
const ENGINE: &str = "engine";

/// The benchmark of the engine; `quick` means fewer namespaces.
pub fn run(
    runs: usize,
    quick: bool,
    instruments: &Instruments<'_>,
    writer: &mut ReportWriter,
) -> anyhow::Result<()> {
    let namespaces = if quick { 1_000 } else { 10_000 };
    writer.begin(Part {
        name: ENGINE,
        title: "Decision engine",
        method: method(namespaces),
        bars: [0, 10, 100].map(pass_of).to_vec(),
        ..Part::default()
    });
    for run in 1..=runs {
        for pods in [0, 10, 100] {
            instruments.in_time()?;
            eprintln!("engine, run {run}: time with {pods} pods ...");
            time(writer.part(ENGINE), Shape { namespaces, pods, due: true })?;
        }
        eprintln!("engine, run {run}: time under cluster managers ...");
        time_governed(writer.part(ENGINE), namespaces)?;
        writer.save()?;
    }
    for pods in [0, 10, 100] {
        let shape = Shape { namespaces: COUNTED_NAMESPACES, pods, due: false };
        for work in [Work::Pass, Work::Change] {
            instruments.in_time()?;
            eprintln!("engine: allocations and instructions of a {} with {pods} pods ...", work.word());
            print_counts(writer.part(ENGINE), instruments, shape, work)?;
        }
        writer.save()?;
    }
    let path = instruments.baseline;
    let text = std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    let baseline = serde_json::from_str(&text).with_context(|| path.display().to_string())?;
    let part = writer.part(ENGINE);
    part.remarks.dedup();
    part.remarks.extend(compared(part, &baseline));
    Ok(())
}

fn method(namespaces: usize) -> String {
    format!(
        "{namespaces} namespaces, each with one manager of 1 to 5 policies (ttl and podsSucceed), and with 0, 10 or 100 \
         running pods; one in a hundred is due. For each namespace what the operator does: `coppice_lifecycle::steady`, and where \
         that does not say that there is nothing to do, `coppice_lifecycle::plan`; its pods are borrowed from the cache. On one \
         thread, with the operator's allocator. *Under cluster managers*: the namespaces are counted once, and each is planned, with 10 \
         pods that are well and the health looked at. *Full pass*: every namespace in turn. \
         *Change*: a pod changes its phase, and its namespace is planned. Each run's time is the best of {PASSES}. \
         Allocations are counted by a program of its own on the same fleet with nothing due, instructions by callgrind on \
         {COUNTED_NAMESPACES} namespaces: the difference between three passes and one, so that building the fleet does not count."
    )
}

fn print_counts(
    part: &mut Part,
    instruments: &Instruments<'_>,
    shape: Shape,
    work: Work,
) -> anyhow::Result<()> {
    let (pods, who) = (shape.pods, Subject::Coppice);
    let counted = count_allocations(instruments.allocations, shape, work)?;
    let per = if work == Work::Pass { "namespace, nothing due" } else { "change" };
    let goal = (work == Work::Pass).then_some(Goal::NeverAbove(0.0));
    part.add(&format!("allocations per {per}, {pods} pods"), "", who, goal, counted.count);
    part.add(&format!("bytes per {per}, {pods} pods"), "B", who, None, counted.bytes);
    let per = if work == Work::Pass { "namespace" } else { "change" };
    match instructions(shape, work) {
        Ok(n) => part.add(&format!("instructions per {per}, {pods} pods"), "", who, None, n),
        Err(error) => part.remarks.push(format!("Instructions were not counted: {error:#}.")),
    }
    Ok(())
}

fn pass_of(pods: usize) -> String {
    format!("full pass, per namespace, {pods} pods")
}

fn time(part: &mut Part, shape: Shape) -> anyhow::Result<()> {
    let mut fleet = Fleet::new(shape)?;
    fleet.check(shape)?;
    let pass = best(|| {
        std::hint::black_box(fleet.pass());
    });
    let nanoseconds = pass * 1e9 / count(shape.namespaces);
    part.add(&pass_of(shape.pods), "ns", Subject::Coppice, Some(Goal::AtMost(1_000.0)), nanoseconds);
    let change = best(|| {
        for n in 0..CHANGES {
            // A step that has no divisor in common with the number of namespaces: neighbours are not in the processor's cache.
            std::hint::black_box(fleet.change(n * 7_919));
        }
    });
    let what = format!("change, {} pods", shape.pods);
    part.add(&what, "ns", Subject::Coppice, Some(Goal::AtMost(200.0)), change * 1e9 / count(CHANGES));
    Ok(())
}

/// A whole pass, of which the processor's time is all of the time: nothing waits.
fn time_governed(part: &mut Part, namespaces: usize) -> anyhow::Result<()> {
    let fleet = GovernedFleet::new(namespaces)?;
    let pass = best(|| {
        std::hint::black_box(fleet.pass());
    });
    let what = format!("{namespaces} namespaces under three cluster managers, full pass");
    part.add(&what, "ms", Subject::Coppice, Some(Goal::AtMost(100.0)), pass * 1e3);
    Ok(())
}

/// The shortest of several times, in seconds.
fn best(mut work: impl FnMut()) -> f64 {
    let times = (0..PASSES).map(|_| {
        let since = Instant::now();
        work();
        since.elapsed().as_secs_f64()
    });
    times.fold(f64::INFINITY, f64::min)
}

fn count_allocations(program: &Path, shape: Shape, work: Work) -> anyhow::Result<Allocations> {
    let output = Command::new(program)
        .args(["--namespaces", &shape.namespaces.to_string(), "--pods", &shape.pods.to_string()])
        .args(["--work", work.word()])
        .output()
        .with_context(|| format!("run {}", program.display()))?;
    let said = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "{} failed: {}", program.display(), said.trim());
    serde_json::from_slice(&output.stdout).with_context(|| format!("what {} prints", program.display()))
}

/// How instructions differ from those of the baseline, by more than compilers and hash seeds explain.
fn compared(part: &Part, baseline: &BTreeMap<String, f64>) -> Vec<String> {
    /// In percent.
    const NOISE: f64 = 1.0;
    let counted = part.figures.iter().filter(|f| f.what.starts_with("instructions"));
    counted
        .filter_map(|figure| {
            let now = Spread::of(&figure.values)?.median;
            let Some(before) = baseline.get(&figure.what) else {
                return Some(format!("{}: not in the baseline.", figure.what));
            };
            let percent = (now / before - 1.0) * 100.0;
            let more = if percent > 0.0 { "more" } else { "fewer" };
            (percent.abs() > NOISE)
                .then(|| format!("{}: {:.1} % {more} than in the baseline.", figure.what, percent.abs()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_regression_of_more_than_one_percent_is_reported() {
        let mut part = Part::default();
        for (what, value) in [("same", 1_005.0), ("more", 1_011.0), ("fewer", 900.0), ("new", 1.0)] {
            part.add(&format!("instructions, {what}"), "", Subject::Coppice, None, value);
        }
        part.add("nanoseconds", "ns", Subject::Coppice, None, 2_000.0);
        let baseline = ["same", "more", "fewer"].map(|what| (format!("instructions, {what}"), 1_000.0));
        assert_eq!(
            compared(&part, &BTreeMap::from(baseline)),
            [
                "instructions, more: 1.1 % more than in the baseline.",
                "instructions, fewer: 10.0 % fewer than in the baseline.",
                "instructions, new: not in the baseline.",
            ]
        );
    }
}
