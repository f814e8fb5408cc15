//! The operator: arguments and wiring only.

mod args;
mod process;
mod trees;
mod wake_all;

use std::process::ExitCode;

use clap::Parser as _;
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
    let format = match args.log_format {
        args::LogFormat::Text => coppice_runtime::logging::LogFormat::Text,
        args::LogFormat::Json => coppice_runtime::logging::LogFormat::Json,
    };
    if let Err(error) = coppice_runtime::logging::init(format, args.log.as_deref()) {
        // There is no log to write this to.
        eprintln!("coppice-operator: --log: {error}");
        anyhow::bail!("--log: {error}");
    }
    coppice_runtime::panic::log_panics();
    // One provider for the whole process; installed once, here.
    if rustls::crypto::ring::default_provider().install_default().is_err() {
        anyhow::bail!("a TLS provider is installed already");
    }
    let runtime = Builder::new_multi_thread().enable_all().build()?;
    // The lease and the probes have a thread of their own: work that tenants cause can keep the others busy.
    let vital = || Builder::new_multi_thread().worker_threads(1).thread_name("vital").enable_all().build();
    match args.command.clone() {
        None => runtime.block_on(process::run(args, vital()?.handle())),
        Some(args::Command::Trees(own)) => runtime.block_on(trees::run(args, own, vital()?.handle())),
        Some(args::Command::WakeAll { wait }) => runtime.block_on(wake_all::run(args, wait)),
    }
}
