//! Operators on a real control plane: Coppice and its Go peer, one after the other on the same state, with the API
//! server's audit log as the witness.

pub mod access;
mod audit;
mod failover;
mod governed;
mod large_cluster;
pub mod notices;
mod process;
mod quiet;
mod reaction;
mod testbed;
pub mod trees;
mod ttl;

use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;

pub use process::{Lease, Running};
pub use testbed::Testbed;

use crate::report::{ReportWriter, Subject};
use crate::{Benchmark, Group};

/// The programs that are measured.
#[derive(Clone, Debug)]
pub struct Programs {
    /// Coppice's operator.
    pub operator: PathBuf,
    /// The Go peer; without it Coppice is measured alone.
    pub peer: Option<PathBuf>,
}

impl Programs {
    /// Whom they allow to measure.
    pub fn subjects(&self) -> &'static [Subject] {
        if self.peer.is_some() {
            &[Subject::Coppice, Subject::Peer, Subject::PeerStripped]
        } else {
            &[Subject::Coppice]
        }
    }

    /// The same, where it does not matter what is stripped from a cache.
    pub fn unstripped(&self) -> &'static [Subject] {
        if self.peer.is_some() { &[Subject::Coppice, Subject::Peer] } else { &[Subject::Coppice] }
    }
}

/// How much is measured.
#[derive(Clone, Debug)]
pub struct Sizes {
    /// Repetitions of everything but failovers and dates.
    pub runs: usize,
    /// Namespaces with a manager, for memory, start and idle.
    pub namespaces: usize,
    /// Pods for memory and start.
    pub pods: usize,
    /// How long an idle operator is watched.
    pub idle: Duration,
    /// Namespaces with a manager around those that react.
    pub around: usize,
    /// Reactions of one run.
    pub reactions: usize,
    /// Namespaces that are due one after the other, and as many that are due together.
    pub due: usize,
    /// Namespaces under a cluster manager that are due one after the other.
    pub governed: usize,
    /// Failovers of each kind.
    pub failovers: usize,
    /// Pairs of replicas that fail over at the same time, each on a plane of its own.
    pub pairs: usize,
    /// The lease of failovers.
    pub lease: Lease,
}

/// Measures one group on planes of its own, and writes every figure into the book as it is made.
pub async fn run(
    group: Group,
    programs: &Programs,
    sizes: &Sizes,
    wanted: &[Benchmark],
    writer: &mut ReportWriter,
) -> anyhow::Result<()> {
    match group {
        Group::Engine => anyhow::bail!("the engine is measured without a plane"),
        Group::Reaction => reaction::run(programs, sizes, writer).await,
        Group::LargeCluster => large_cluster::run(programs, sizes, wanted, writer).await,
        Group::Failover => failover::run(programs, sizes, writer).await,
        Group::Ttl => ttl::run(programs, sizes, writer).await,
        Group::Governed => governed::run(programs, sizes, writer).await,
    }
}

/// Now, by the clock that the audit log of an API server on this machine has, too.
#[expect(
    clippy::disallowed_methods,
    reason = "a measurement, no decision: compared with the audit log's instants"
)]
fn now() -> Timestamp {
    Timestamp::now()
}

/// Seconds from one instant to a later one; negative if it is earlier.
fn seconds(from: Timestamp, to: Timestamp) -> f64 {
    to.duration_since(from).as_secs_f64()
}

/// Says what is going on, where figures are not written to.
fn progress(text: &str) {
    eprintln!("{text}");
}
