//! `coppice-bench`: see `make bench` and verification/bench/README.md.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::{Args, Parser, Subcommand, ValueEnum};
use coppice_bench::engine::{self, Fleet, Shape, Work};
use coppice_bench::live::access::{self, AccessArgs};
use coppice_bench::live::notices::{self, NoticesArgs, NoticesReport};
use coppice_bench::live::trees::{self, TreesArgs};
use coppice_bench::live::{self, Lease, Programs, Sizes};
use coppice_bench::report::{Machine, Report, ReportWriter};
use coppice_bench::{Benchmark, Group};
use coppice_tests::test_cluster::{binary, repository};

/// The operator's own allocator, so that the engine is timed with it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measures the decision engine, and the operator beside its Go peer on control planes of its own.
#[derive(Parser)]
#[command(name = "coppice-bench", args_conflicts_with_subcommands = true)]
struct BenchArgs {
    #[command(subcommand)]
    apart: Option<Apart>,
    /// Only these; by default all of them.
    #[arg(value_enum)]
    only: Vec<Benchmark>,
    /// How often everything is measured; failovers and dates have numbers of their own.
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// Small sizes, to see whether everything works. Such figures are no results.
    #[arg(long)]
    quick: bool,
    /// Namespaces for memory, start and idle [default: 10000, quick: 300].
    #[arg(long)]
    namespaces: Option<usize>,
    /// Pods for memory and start [default: 100000, quick: 1000].
    #[arg(long)]
    pods: Option<usize>,
    /// Reactions in each run [default: 200, quick: 20].
    #[arg(long)]
    reactions: Option<usize>,
    /// Namespaces that are due, 50 a second, and as many at once [default: 10000, quick: 200].
    #[arg(long)]
    due: Option<usize>,
    /// Failovers of each kind [default: 20, quick: 1].
    #[arg(long)]
    failovers: Option<usize>,
    /// Pairs of replicas that fail over at the same time [default: 5, quick: 1].
    #[arg(long)]
    pairs: Option<usize>,
    /// Each group may take so many times its limit; with 1 all limits together are 34 minutes.
    #[arg(long, default_value_t = 1)]
    limit_factor: u32,
    /// Where the report goes [default: docs/benchmarks; quick: bench/results, which is not committed].
    #[arg(long)]
    out: Option<PathBuf>,
    /// The operator [default: the one beside this program].
    #[arg(long)]
    operator: Option<PathBuf>,
    /// The Go peer [default: built from verification/bench/peer-go].
    #[arg(long)]
    peer: Option<PathBuf>,
    /// Measure Coppice alone.
    #[arg(long, conflicts_with = "peer")]
    no_peer: bool,
    #[command(flatten)]
    drive: Drive,
}

/// What is measured by itself, and is in no report.
#[derive(Subcommand)]
enum Apart {
    /// Very many namespaces that are due with a notice to their owners, evenly over a time, beside a controller that polls.
    Notices(NoticesArgs),
    /// Trees of namespaces: how soon those that many create at once are ready, and how soon all have what is copied down.
    Trees(TreesArgs),
    /// Credentials for other clusters: how soon very many are issued, what the program costs then, and what it asks when it starts again.
    Access(AccessArgs),
}

/// The engine's work and nothing else, for callgrind.
#[derive(Args)]
struct Drive {
    #[arg(long, hide = true, value_enum)]
    drive: Option<Work>,
    #[arg(long, hide = true, default_value_t = 1)]
    times: usize,
}

fn main() -> ExitCode {
    let settings = BenchArgs::parse();
    let done = match (&settings.apart, settings.drive.drive) {
        (Some(Apart::Notices(args)), _) => measure_notices(args).map(|()| Vec::new()),
        (Some(Apart::Trees(args)), _) => measure_trees(args).map(|()| Vec::new()),
        (Some(Apart::Access(args)), _) => measure_access(args),
        (None, Some(work)) => drive(&settings, work).map(|()| Vec::new()),
        (None, None) => measure(&settings),
    };
    match done {
        Ok(broken) if broken.is_empty() => ExitCode::SUCCESS,
        Ok(broken) => {
            eprintln!("not whole: {}", broken.join(", "));
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("the benchmark has failed: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn drive(settings: &BenchArgs, work: Work) -> anyhow::Result<()> {
    let (namespaces, pods) = (settings.namespaces.unwrap_or(1), settings.pods.unwrap_or(0));
    let mut fleet = Fleet::new(Shape { namespaces, pods, due: false })?;
    engine::drive(&mut fleet, work, settings.drive.times);
    Ok(())
}

/// Writes and prints where and by which command it was measured, and the figures side by side.
fn measure_notices(args: &NoticesArgs) -> anyhow::Result<()> {
    let operator = args.operator().map_or_else(|| binary("coppice-operator"), |path| Ok(path.to_owned()))?;
    let programs = Programs { operator, peer: None };
    let machine = Machine::detect(builds(Some(&programs))?, &repository(), now());
    let mut report = NoticesReport::new(machine, args.out())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let measured = runtime.block_on(notices::run(args, &programs.operator, &mut report));
    report.machine.measure_load_after();
    let incomplete = measured.as_ref().err().map(|error| format!("{error:#}"));
    report.save(incomplete.as_deref())?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", report.text(incomplete.as_deref())?)?;
    eprintln!("written: {}", report.folder().join("notices.md").display());
    measured
}

/// Prints the same of trees.
fn measure_trees(args: &TreesArgs) -> anyhow::Result<()> {
    let programs = Programs { operator: binary("coppice-operator")?, peer: None };
    let mut machine = Machine::detect(builds(Some(&programs))?, &repository(), now());
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let text = runtime.block_on(trees::run(args, &mut machine))?;
    writeln!(std::io::stdout().lock(), "{text}")?;
    Ok(())
}

/// Writes and prints a report of credentials for other clusters.
fn measure_access(args: &AccessArgs) -> anyhow::Result<Vec<&'static str>> {
    let program = binary("coppice-access")?;
    let own = std::env::current_exe()?;
    let builds = format!("this program {}, coppice-access {}", build(&own), build(&program));
    let machine = Machine::detect(builds, &repository(), now());
    let report = Report { machine, runs: args.starts(), quick: false, parts: Vec::new() };
    let mut writer = ReportWriter::new(report, args.out());
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let since = Instant::now();
    let measured = runtime.block_on(access::run(args, &program, &mut writer));
    let broken = measured.err().map(|error| format!("{error:#}"));
    writer.end(access::PART, since.elapsed(), broken.as_deref())?;
    let path = writer.folder().join("report.md");
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    writeln!(std::io::stdout().lock(), "{text}")?;
    eprintln!("written: {}", path.display());
    let missed = writer.part(access::PART).missed();
    anyhow::ensure!(!args.is_strict() || missed.is_empty(), "goals are missed: {}", missed.join("; "));
    Ok(writer.broken())
}

/// Returns the names of what could not be measured as a whole.
fn measure(settings: &BenchArgs) -> anyhow::Result<Vec<&'static str>> {
    let wanted = if settings.only.is_empty() { Benchmark::value_variants() } else { &settings.only };
    let folder = settings.out.clone().unwrap_or_else(|| {
        repository().join(if settings.quick { "verification/bench/results" } else { "docs/benchmarks" })
    });
    // The engine alone needs neither plane nor programs.
    let live = wanted.iter().any(|benchmark| *benchmark != Benchmark::Engine);
    let built = tempfile::tempdir()?;
    let programs = if live { Some(programs(settings, built.path())?) } else { None };
    let machine = Machine::detect(builds(programs.as_ref())?, &repository(), now());
    let report = Report { machine, runs: settings.runs, quick: settings.quick, parts: Vec::new() };
    let mut writer = ReportWriter::new(report, folder);
    writer.save()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let sizes = sizes(settings);
    // What a group leaves of its time is for those after it.
    let mut spare = Duration::ZERO;
    for group in Group::ALL {
        let names: Vec<Benchmark> =
            group.benchmarks().iter().copied().filter(|one| wanted.contains(one)).collect();
        let Some(first) = names.first() else { continue };
        eprintln!("== {}", names.iter().map(|one| one.word()).collect::<Vec<_>>().join(", "));
        let (since, limit) = (Instant::now(), group.limit() * settings.limit_factor + spare);
        let result = match &programs {
            Some(programs) if group != Group::Engine => runtime.block_on(within(limit, async {
                live::run(group, programs, &sizes, &names, &mut writer).await
            })),
            _ => run_engine(settings, since + limit, &mut writer),
        };
        let broken = result.err().map(|error| format!("{error:#}"));
        if let Some(why) = &broken {
            eprintln!("{}: {why}", first.word());
        }
        for name in names {
            writer.part(name.word()).tried = tried(name)?;
            writer.end(name.word(), since.elapsed(), broken.as_deref())?;
        }
        eprintln!("== done after {} s", since.elapsed().as_secs());
        spare = limit.saturating_sub(since.elapsed());
        if broken.as_deref() == Some(INTERRUPTED) {
            break;
        }
    }
    eprintln!("written: {}", writer.folder().join("report.md").display());
    Ok(writer.broken())
}

const INTERRUPTED: &str = "interrupted";

/// On Ctrl-C, and when the time is over, everything that was started ends with the work.
async fn within(limit: Duration, work: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    tokio::select! {
        result = tokio::time::timeout(limit, work) => {
            result.with_context(|| format!("its {} s were over", limit.as_secs()))?
        }
        _ = tokio::signal::ctrl_c() => anyhow::bail!(INTERRUPTED),
    }
}

fn run_engine(settings: &BenchArgs, until: Instant, writer: &mut ReportWriter) -> anyhow::Result<()> {
    let allocations = binary("coppice-bench-allocations")?;
    let baseline = repository().join("verification/bench/instructions.json");
    let instruments = engine::Instruments { allocations: &allocations, baseline: &baseline, until };
    engine::run(settings.runs, settings.quick, &instruments, writer)
}

/// What was tried where goals are missed: written by people, and a part of the report.
fn tried(benchmark: Benchmark) -> anyhow::Result<String> {
    let path = repository().join(format!("verification/bench/notes/{}.md", benchmark.word()));
    if !path.exists() {
        return Ok(String::new());
    }
    std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))
}

#[expect(clippy::disallowed_methods, reason = "the date of the report, no decision")]
fn now() -> jiff::Timestamp {
    jiff::Timestamp::now()
}

fn sizes(settings: &BenchArgs) -> Sizes {
    let quick = settings.quick;
    let or = |given: Option<usize>, whole, small| given.unwrap_or(if quick { small } else { whole });
    Sizes {
        runs: settings.runs,
        namespaces: or(settings.namespaces, 10_000, 300),
        pods: or(settings.pods, 100_000, 1_000),
        idle: Duration::from_secs(if quick { 10 } else { 60 }),
        around: if quick { 100 } else { 1_000 },
        reactions: or(settings.reactions, 200, 20),
        due: or(settings.due, 10_000, 200),
        governed: or(settings.due, 10_000, 200).min(600),
        failovers: or(settings.failovers, 20, 1),
        pairs: or(settings.pairs, 5, 1),
        lease: Lease::SHIPPED,
    }
}

fn programs(settings: &BenchArgs, folder: &Path) -> anyhow::Result<Programs> {
    let operator = settings.operator.clone().map_or_else(|| binary("coppice-operator"), Ok)?;
    let peer = match (&settings.peer, settings.no_peer) {
        (Some(peer), _) => Some(peer.clone()),
        (None, true) => None,
        (None, false) => Some(build_peer(folder)?),
    };
    Ok(Programs { operator, peer })
}

fn build_peer(folder: &Path) -> anyhow::Result<PathBuf> {
    eprintln!("building the Go peer (the first time takes some minutes) ...");
    let program = folder.join("peer-go");
    let built = Command::new("go")
        .args(["build", "-trimpath", "-ldflags=-s -w", "-o"])
        .arg(&program)
        .arg(".")
        .current_dir(repository().join("verification/bench/peer-go"))
        .status()
        .context("run go (install Go 1.26 or later, or say --no-peer)")?;
    anyhow::ensure!(built.success(), "the Go peer could not be built");
    Ok(program)
}

/// How this program and the operator were built, by where cargo put them.
fn builds(programs: Option<&Programs>) -> anyhow::Result<String> {
    let own = build(&std::env::current_exe()?);
    let Some(programs) = programs else { return Ok(format!("this program {own}")) };
    Ok(format!(
        "this program {own}, the operator {}, the peer stripped as its README says",
        build(&programs.operator)
    ))
}

/// How one program was built.
fn build(program: &Path) -> &'static str {
    if program.components().any(|part| part.as_os_str() == "debug") {
        "**debug: no results**"
    } else {
        "release"
    }
}
