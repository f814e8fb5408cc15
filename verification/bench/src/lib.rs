//! Benchmarks (`make bench`): the decision engine by itself, and the operator beside its Go peer.
//!
//! Nothing here is a test: figures are reported with their spread and compared with goals, and a goal that is missed is
//! written down. A benchmark fails only if what it measured is not what it meant to measure, or if its time is over; what
//! it had measured by then stays, and the others go on.

pub mod engine;
pub mod live;
pub mod report;
pub mod stats;

use std::time::Duration;

/// What can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Benchmark {
    /// Time, allocations and instructions of the decision engine, without a plane.
    Engine,
    /// Resident memory.
    Memory,
    /// From the last pod's success to DELETE.
    Reaction,
    /// Lateness of deletions by date.
    Ttl,
    /// Time until ready.
    Start,
    /// From the loss of a leader to the next.
    Failover,
    /// What an operator costs that has nothing to do.
    Idle,
    /// Deletions and phases under a cluster manager.
    Governed,
}

/// Benchmarks that are measured together, with a limit of their time. All limits together are 34 minutes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Without a plane.
    Engine,
    /// On a small plane.
    Reaction,
    /// Operators that live among very many objects.
    LargeCluster,
    /// Pairs of replicas.
    Failover,
    /// Dates.
    Ttl,
    /// Under a cluster manager.
    Governed,
}

impl Group {
    /// In the order in which they are measured.
    pub const ALL: [Self; 6] =
        [Self::Engine, Self::Reaction, Self::LargeCluster, Self::Failover, Self::Ttl, Self::Governed];

    /// What is measured together.
    pub const fn benchmarks(self) -> &'static [Benchmark] {
        match self {
            Self::Engine => &[Benchmark::Engine],
            Self::Reaction => &[Benchmark::Reaction],
            Self::LargeCluster => &[Benchmark::Memory, Benchmark::Start, Benchmark::Idle],
            Self::Failover => &[Benchmark::Failover],
            Self::Ttl => &[Benchmark::Ttl],
            Self::Governed => &[Benchmark::Governed],
        }
    }

    /// How long it may take.
    pub const fn limit(self) -> Duration {
        Duration::from_secs(match self {
            Self::Engine => 120,
            Self::Reaction => 180,
            Self::LargeCluster => 660,
            Self::Failover => 300,
            Self::Ttl => 540,
            Self::Governed => 240,
        })
    }
}

impl Benchmark {
    /// The name of its part of the report: the word of the command line.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Engine => "engine",
            Self::Memory => "memory",
            Self::Reaction => "reaction",
            Self::Ttl => "ttl",
            Self::Start => "start",
            Self::Failover => "failover",
            Self::Idle => "idle",
            Self::Governed => "governed",
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum as _;

    use super::*;

    #[test]
    fn every_benchmark_is_in_one_group_and_all_of_them_have_a_limit() {
        for benchmark in Benchmark::value_variants() {
            let groups = Group::ALL.iter().filter(|group| group.benchmarks().contains(benchmark));
            assert_eq!(groups.count(), 1, "{benchmark:?}");
            let word = benchmark.to_possible_value().unwrap();
            assert_eq!(word.get_name(), benchmark.word());
        }
        let all: Duration = Group::ALL.iter().map(|group| group.limit()).sum();
        assert_eq!(all, Duration::from_mins(34));
    }
}
