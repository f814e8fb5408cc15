//! The operator: arguments and wiring only.

mod args;
mod process;
mod trees;
mod wake_all;

use std::process::ExitCode;

use clap::Parser as _;
use coppice_serve::startup::{prepare, vital_runtime};
use tokio::runtime::Builder;

/// Gives the pages of a finished list back to the system.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let args = args::Args::parse();
    match start(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("coppice-operator ends: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn start(args: args::Args) -> anyhow::Result<()> {
    prepare("coppice-operator", args.log_format, args.log.as_deref())?;
    let runtime = Builder::new_multi_thread().enable_all().build()?;
    match args.command.clone() {
        None => runtime.block_on(process::run(args, vital_runtime()?.handle())),
        Some(args::Command::Trees(own)) => runtime.block_on(trees::run(args, own, vital_runtime()?.handle())),
        Some(args::Command::WakeAll { wait }) => runtime.block_on(wake_all::run(args, wait)),
    }
}
