//! The API server in memory answers as the real one: generated requests to both, every answer compared.
//!
//! `COPPICE_CONFORMANCE_REQUESTS` says how many requests (2,000), `COPPICE_CONFORMANCE_SEED` with which seed to begin (1),
//! `COPPICE_CONFORMANCE_SHOWN` how many disagreements are made smaller, which takes time (3).

#[path = "conformance/real.rs"]
mod real;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, bail};
use coppice_conformance::{Mismatch, Sequence, SequenceStep, Simulated, compare, sequence, smaller};
use coppice_plane::{ADMIN, Options, Pods};
use coppice_tests::test_cluster::repository;
use coppice_tests::{TestCluster, on_own_plane};
use futures::stream::{self, StreamExt as _};
use real::Real;
use tokio::sync::Mutex;

/// Steps of a sequence: enough for objects to have a past, few enough to be read.
const LENGTH: usize = 30;
/// Sequences that are played at once on the real server.
const AT_ONCE: usize = 8;
/// How often a disagreement is played again to make it smaller.
const ATTEMPTS: usize = 60;
/// Disagreements that are made smaller; of others only the last request is shown.
const MAX_SHRUNK: u64 = 3;

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

struct Both {
    real: Real,
    simulated: Simulated,
    /// Held by sequences about what there is once in a cluster.
    single: Mutex<()>,
    /// Every play has a namespace of its own.
    played: AtomicU64,
    requests: AtomicUsize,
}

impl Both {
    async fn play(&self, steps: &[SequenceStep]) -> anyhow::Result<Option<Mismatch>> {
        let namespace = format!("conformance-{}", self.played.fetch_add(1, Ordering::Relaxed));
        let real = self.real.play(&namespace, steps).await?;
        let simulated = self.simulated.play(&namespace, steps);
        Ok(compare(steps, &real, &simulated))
    }

    async fn check(&self, sequence: &Sequence) -> anyhow::Result<Option<Mismatch>> {
        let _single = if sequence.exclusive { Some(self.single.lock().await) } else { None };
        let played = self.play(&sequence.steps).await?;
        let compared = played.as_ref().map_or(sequence.steps.len(), |found| found.steps.len());
        self.requests.fetch_add(compared, Ordering::Relaxed);
        Ok(played)
    }

    async fn smaller(&self, found: Mismatch) -> Mismatch {
        let _single = self.single.lock().await;
        smaller(found, ATTEMPTS, async |steps| self.play(steps).await.ok().flatten()).await
    }
}

#[test]
fn the_server_in_memory_answers_as_the_real_one() -> anyhow::Result<()> {
    on_own_plane(async {
        // Without the admission policies: they are the product's, not the API server's. And no pod is one that is scheduled.
        let options = Options { pods: Pods::Pending, ..Options::default() };
        let test_cluster = TestCluster::bare(options).await?;
        let definitions = repository().join("deploy/crds");
        let definitions = definitions.to_str().context("a path that is no text")?;
        test_cluster.kubectl(ADMIN, &["apply", "--server-side", "-f", definitions]).await?;
        test_cluster
            .kubectl(ADMIN, &["wait", "crd", "--all", "--for=condition=Established", "--timeout=300s"])
            .await?;
        let real = Real::new(&test_cluster.plane)?;
        for plural in ["namespacemanagers", "coppiceconfigs", "deletednamespaces"] {
            // A new kind is served before its cache is there.
            let uri = format!("/apis/coppice.dev/v1alpha1/{plural}?resourceVersion=0");
            test_cluster.until(plural, async || real.reads(&uri).await.then_some(())).await?;
        }
        let both = Both {
            real,
            simulated: Simulated::new("2026-01-01T00:00:00Z".parse()?),
            single: Mutex::new(()),
            played: AtomicU64::new(0),
            requests: AtomicUsize::new(0),
        };
        let wanted = setting("COPPICE_CONFORMANCE_REQUESTS", 2000);
        let first = setting("COPPICE_CONFORMANCE_SEED", 1);
        let sequences = first..first + wanted.div_ceil(LENGTH as u64);
        let begun = std::time::Instant::now();
        let found: Vec<_> = stream::iter(sequences)
            .map(async |seed| {
                let sequence = sequence(seed, LENGTH);
                (seed, both.check(&sequence).await)
            })
            .buffer_unordered(AT_ONCE)
            .collect()
            .await;
        report(&both, found, begun.elapsed()).await
    })
}

/// What was found, by the place of the difference and the request; those that are alike are reported once.
type Kinds = BTreeMap<String, (u64, Mismatch, usize)>;

async fn report(
    both: &Both,
    found: Vec<(u64, anyhow::Result<Option<Mismatch>>)>,
    took: Duration,
) -> anyhow::Result<()> {
    let requests = both.requests.load(Ordering::Relaxed);
    eprintln!("{requests} requests compared in {:.1} s", took.as_secs_f64());
    let mut kinds = Kinds::new();
    let mut broken = Vec::new();
    for (seed, result) in found {
        match result {
            Ok(None) => {}
            Ok(Some(mismatch)) => {
                let kind = format!("{} {}", request(&mismatch), mismatch.at);
                kinds.entry(kind).or_insert((seed, mismatch, 0)).2 += 1;
            }
            Err(error) => broken.push(format!("seed {seed} cannot be played: {error:#}")),
        }
    }
    if kinds.is_empty() && broken.is_empty() {
        return Ok(());
    }
    let unplayed = broken.len();
    // If the control plane has ended, one sequence is as good as another.
    broken.truncate(3);
    let (count, mut text) = (kinds.len(), broken.join("\n"));
    for (kind, (seed, _, times)) in &kinds {
        eprintln!("=== {kind}: {times} times, first with seed {seed}");
    }
    let shown = usize::try_from(setting("COPPICE_CONFORMANCE_SHOWN", MAX_SHRUNK))?;
    for (n, (kind, (_, mismatch, _))) in kinds.into_iter().enumerate() {
        let example = if n < shown { both.smaller(mismatch).await } else { mismatch.last() };
        writeln!(text, "\n=== {kind}\n{example}")?;
    }
    bail!("{count} disagreements, {unplayed} sequences cannot be played:\n{text}")
}

/// Method and path of the request that was answered differently.
fn request(mismatch: &Mismatch) -> String {
    let last = mismatch.steps.last().map(|step| step.call.to_string()).unwrap_or_default();
    let words: Vec<&str> = last.split(['?', ' ']).take(2).collect();
    format!("{} {}", words.join(" "), mismatch.real.code)
}
