//! Operators that live on a plane with very many objects: how soon they are ready, what memory they take, and what they
//! cost when there is nothing to do.

use std::collections::{BTreeMap, BTreeSet};

use coppice_plane::{AuditEvent, OPERATOR};
use coppice_tests::scale::process::Sample;
use jiff::Timestamp;
use serde_json::json;

use super::testbed::pause;
use super::{Programs, Running, Sizes, Testbed, audit, now, progress, seconds};
use crate::Benchmark;
use crate::report::{Goal, Part, RatioGoal, ReportWriter, Subject};
use crate::stats::{count, mib};

/// What one subject showed with what was on the plane.
#[derive(Clone, Debug)]
struct SubjectRun {
    /// The first start, when no manager has a status.
    first: Start,
    /// Starts with nothing to write.
    again: Vec<Start>,
    idle: Option<Idle>,
}

#[derive(Clone, Copy, Debug)]
struct Start {
    ready: f64,
    settled: f64,
    sample: Sample,
    /// The kind that was listed most often: so often.
    lists: usize,
    /// Deletions and scalings before it was ready.
    destroyed: usize,
}

#[derive(Clone, Copy, Debug)]
struct Idle {
    /// Seconds that it was watched.
    time: f64,
    writes: usize,
    requests: usize,
    cpu: f64,
}

/// The names of the parts.
const MEMORY: &str = "memory";
const START: &str = "start";
const IDLE: &str = "idle";

pub(super) async fn run(
    programs: &Programs,
    sizes: &Sizes,
    wanted: &[Benchmark],
    writer: &mut ReportWriter,
) -> anyhow::Result<()> {
    let wants = |benchmark: Benchmark| wanted.contains(&benchmark);
    for part in parts(sizes) {
        if wanted.iter().any(|benchmark| benchmark.word() == part.name) {
            writer.begin(part);
        }
    }
    progress("memory, start, idle: starting a control plane ...");
    let testbed = Testbed::start().await?;
    progress(&format!("seeding {} namespaces ...", sizes.namespaces));
    testbed.seed((0..sizes.namespaces).map(|n| testbed.objects.namespace(n))).await?;
    // Without pods, by the second start; what a pod costs is the difference to it.
    let mut before: Vec<f64> = Vec::new();
    for pods in [false, true] {
        if pods {
            if sizes.pods == 0 || !wants(Benchmark::Memory) && !wants(Benchmark::Start) {
                break;
            }
            progress(&format!("seeding {} pods ...", sizes.pods));
            let each = |n: usize| testbed.objects.pod(n % sizes.namespaces, n / sizes.namespaces, 0);
            testbed.seed((0..sizes.pods).map(each)).await?;
        }
        for &subject in if pods { programs.subjects() } else { programs.unstripped() } {
            let watched = !pods && wants(Benchmark::Idle);
            let measured = match live(&testbed, programs, sizes, subject, (pods, watched)).await {
                Ok(measured) => measured,
                Err(error) => {
                    let what = if pods { "with pods" } else { "without pods" };
                    let why = format!("{}, {what}: {error:#}", subject.label());
                    for benchmark in wanted {
                        writer.part(benchmark.word()).fails(&why);
                    }
                    writer.save()?;
                    continue;
                }
            };
            if wants(Benchmark::Start) {
                report_start(writer.part(START), subject, &measured, pods);
            }
            if wants(Benchmark::Memory) {
                let each = (subject == Subject::Coppice && pods).then_some(before.as_slice());
                report_memory(
                    writer.part(MEMORY),
                    subject,
                    &measured,
                    pods,
                    each.map(|each| (each, sizes.pods)),
                );
            }
            if subject == Subject::Coppice && !pods {
                before = measured.again.iter().map(|start| mib(start.sample.rss)).collect();
            }
            if let Some(found) = measured.idle {
                report_idle(writer.part(IDLE), subject, found);
            }
            writer.save()?;
        }
        if !pods && wants(Benchmark::Idle) {
            let idle = writer.part(IDLE);
            idle.whole = idle.broken.is_none();
        }
    }
    Ok(())
}

fn parts(sizes: &Sizes) -> [Part; 3] {
    let Sizes { namespaces, pods, .. } = sizes;
    let seeded = format!(
        "{namespaces} namespaces, each with a manager of two policies (`podsSucceed`, `ttl`), and then {pods} running pods of \
         about 4 KB with `managedFields`, seeded into etcd; nothing but etcd and the API server runs beside the operator."
    );
    let memory = Part {
        name: MEMORY,
        title: "Memory",
        method: format!(
            "{seeded} Every operator is started when no manager has a status (first pass), and then {} times again when there is \
             nothing to write. *Steady*: resident memory when it has been still for 5 seconds. *Peak*: the most that ever was \
             resident in that process. A pod costs the difference of the steady figures with and without pods, of starts with \
             nothing to write. The operators run one after the other, so that a ratio is of starts that have the same number.",
            sizes.runs,
        ),
        ratio_goals: [(Subject::Peer, 0.15), (Subject::PeerStripped, 0.5)]
            .map(|(peer, at_most)| RatioGoal { what: STEADY.to_owned(), peer, at_most })
            .to_vec(),
        bars: vec![STEADY.to_owned(), PEAK.to_owned()],
        ..Part::default()
    };
    let start = Part {
        name: START,
        title: "Start",
        method: format!(
            "{seeded} *Ready*: from the start of the process to the first success of `/readyz`. Coppice is ready when it has also \
             looked at every manager, the peer when its caches are filled; *done* is the same for both: the last look at a manager \
             before it stood still. The goals are for a start with nothing to write."
        ),
        bars: vec![done_of(false), done_of(true)],
        ..Part::default()
    };
    let idle = Part {
        name: IDLE,
        title: "Idle",
        method: format!(
            "{namespaces} namespaces, each with a manager; nothing changes. After the operator has settled it is watched for {} s: \
             its requests by the audit log (reads, writes and renewals of the Lease; watches when they begin), its processor time by \
             the kernel.",
            sizes.idle.as_secs()
        ),
        ..Part::default()
    };
    [memory, start, idle]
}

const STEADY: &str = "with pods, steady";
const PEAK: &str = "with pods, peak of the first pass";

fn done_of(pods: bool) -> String {
    format!("{}: done", if pods { "with pods" } else { "without pods" })
}

fn report_start(part: &mut Part, subject: Subject, measured: &SubjectRun, pods: bool) {
    let (on, bound) = if pods { ("with pods", 30.0) } else { ("without pods", 5.0) };
    for again in &measured.again {
        part.add(&format!("{on}: ready"), "s", subject, Some(Goal::AtMost(bound)), again.ready);
        part.add(&done_of(pods), "s", subject, None, again.settled);
    }
    let first = &measured.first;
    part.add(&format!("{on}, first pass: ready"), "s", subject, None, first.ready);
    part.add(&format!("{on}, first pass: done"), "s", subject, None, first.settled);
    part.add(&format!("{on}, first pass: processor time"), "s", subject, None, first.sample.cpu);
    for start in measured.again.iter().chain([first]) {
        let (lists, destroyed) = (count(start.lists), count(start.destroyed));
        let what = format!("{on}: most lists of one kind");
        part.add(&what, "", subject, Some(Goal::NeverAbove(1.0)), lists);
        let what = format!("{on}: destroyed before ready");
        part.add(&what, "", subject, Some(Goal::NeverAbove(0.0)), destroyed);
    }
}

/// `each`: what was resident without pods, start by start, and how many pods there are.
fn report_memory(
    part: &mut Part,
    subject: Subject,
    measured: &SubjectRun,
    pods: bool,
    each: Option<(&[f64], usize)>,
) {
    let first = measured.first.sample;
    if !pods {
        for again in &measured.again {
            part.add("without pods, steady", "MiB", subject, None, mib(again.sample.rss));
        }
        part.add("without pods, peak of the first pass", "MiB", subject, None, mib(first.peak));
        return;
    }
    let (steady, peak) = (Some(Goal::AtMost(150.0)), Some(Goal::AtMost(300.0)));
    for again in &measured.again {
        part.add(STEADY, "MiB", subject, steady, mib(again.sample.rss));
        part.add("with pods, peak when started again", "MiB", subject, peak, mib(again.sample.peak));
    }
    part.add("with pods, steady after the first pass", "MiB", subject, steady, mib(first.rss));
    part.add(PEAK, "MiB", subject, peak, mib(first.peak));
    let Some((before, pods)) = each else { return };
    for (again, without) in measured.again.iter().zip(before) {
        let kib = (mib(again.sample.rss) - without) * 1024.0 / count(pods);
        part.add("one pod", "KiB", subject, Some(Goal::AtMost(0.5)), kib);
    }
}

fn report_idle(part: &mut Part, subject: Subject, found: Idle) {
    let goal = |bound| Some(Goal::NeverAbove(bound));
    part.add("writes but the Lease", "", subject, goal(0.0), count(found.writes));
    part.add("requests a second", "", subject, goal(1.0), count(found.requests) / found.time);
    part.add("processor time", "% of a core", subject, goal(1.0), found.cpu / found.time * 100.0);
}

async fn live(
    testbed: &Testbed,
    programs: &Programs,
    sizes: &Sizes,
    subject: Subject,
    (pods, watched): (bool, bool),
) -> anyhow::Result<SubjectRun> {
    let what = if pods { "namespaces and pods" } else { "namespaces" };
    let tell = |step: &str| progress(&format!("{what}, {}: {step} ...", subject.label()));
    tell("seeding managers");
    // No status is from anybody else, so that everybody has the same to do.
    testbed.seed((0..sizes.namespaces).map(|n| testbed.manager(n, spec()))).await?;
    tell("first pass");
    let (first, operator) = start(testbed, programs, sizes, subject).await?;
    operator.stop().await?;
    let (mut again, mut idle) = (Vec::new(), None);
    for run in 1..=sizes.runs {
        tell(&format!("started again, {run} of {}", sizes.runs));
        let (found, operator) = start(testbed, programs, sizes, subject).await?;
        again.push(found);
        if watched && run == sizes.runs {
            tell(&format!("idle for {} s", sizes.idle.as_secs()));
            idle = Some(watch(testbed, &operator, sizes).await?);
        }
        operator.stop().await?;
    }
    Ok(SubjectRun { first, again, idle })
}

/// Waits for pods that never succeed, and in the end for a time far away. Without an initial delay, which would end in the
/// midst of a measurement and change every status.
fn spec() -> serde_json::Value {
    json!({"policies": [
        {"name": "tests have passed", "when": {"podsSucceed": {"initialDelay": "0s"}}, "then": {"delete": {}}},
        {"name": "ten months", "when": {"ttl": {"after": "300d"}}, "then": {"delete": {}}},
    ]})
}

async fn start(
    testbed: &Testbed,
    programs: &Programs,
    sizes: &Sizes,
    subject: Subject,
) -> anyhow::Result<(Start, Running)> {
    testbed.skip_existing()?;
    let mut operator = Running::spawn(testbed, programs, subject)?;
    let ready = operator.ready().await?;
    let settled = operator.settled(sizes.namespaces).await?;
    let sample = operator.sample()?;
    let (lists, destroyed) = testbed.audit(|events| (max_lists(events), destroyed(events, ready)))?;
    Ok((Start { ready: seconds(operator.at, ready), settled, sample, lists, destroyed }, operator))
}

/// How often the kind was listed that was listed most often.
fn max_lists(events: &[AuditEvent]) -> usize {
    let mut kinds: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for event in events.iter().filter(|e| audit::begins_list(e)) {
        // A watch is in the log twice: when it begins and when it ends.
        kinds.entry(&event.resource).or_default().insert(&event.id);
    }
    kinds.values().map(BTreeSet::len).max().unwrap_or_default()
}

/// Deletions and scalings before that instant.
fn destroyed(events: &[AuditEvent], before: Timestamp) -> usize {
    let destructive = |e: &&AuditEvent| {
        e.user == OPERATOR && (e.verb == "delete" || e.subresource == "scale" && e.is_write())
    };
    events.iter().filter(destructive).filter(|e| e.received < before).count()
}

async fn watch(testbed: &Testbed, operator: &Running, sizes: &Sizes) -> anyhow::Result<Idle> {
    testbed.skip_existing()?;
    let (from, before) = (now(), operator.sample()?);
    pause(sizes.idle).await;
    let (to, after) = (now(), operator.sample()?);
    let (writes, requests) = testbed.audit(|events| {
        let within = |e: &&AuditEvent| e.user == OPERATOR && from <= e.received && e.received < to;
        let once = |e: &&AuditEvent| e.verb != "watch" || e.stage == "ResponseStarted";
        let writes = events.iter().filter(within).filter(|e| audit::writes(e)).count();
        (writes, events.iter().filter(within).filter(once).count())
    })?;
    Ok(Idle { time: seconds(from, to), writes, requests, cpu: after.cpu - before.cpu })
}
