//! Counts the allocations of the decision engine. A program of its own, since counting slows down what is timed.
#![allow(clippy::print_stdout, reason = "what it prints is its output")]

use std::alloc::System;

use clap::Parser;
use coppice_bench::engine::{Allocations, Fleet, Shape, Work, drive};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Prints how much one plan allocates when nothing is due, as one line of JSON.
#[derive(Parser)]
struct Args {
    #[arg(long)]
    namespaces: usize,
    #[arg(long)]
    pods: usize,
    #[arg(long, value_enum)]
    work: Work,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let mut fleet = Fleet::new(Shape { namespaces: args.namespaces, pods: args.pods, due: false })?;
    let region = Region::new(ALLOCATOR);
    drive(&mut fleet, args.work, 1);
    let stats = region.change();
    #[expect(clippy::cast_precision_loss, reason = "counts of one pass are far below 2^52")]
    let [count, bytes, each] =
        [stats.allocations + stats.reallocations, stats.bytes_allocated, args.namespaces].map(|n| n as f64);
    println!("{}", serde_json::to_string(&Allocations { count: count / each, bytes: bytes / each })?);
    Ok(())
}
