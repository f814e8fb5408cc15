//! `coppice-plane`: builds the local control plane's binaries, or runs a control plane in the foreground.
#![allow(clippy::print_stdout, reason = "what it prints is its output")]

use std::{path::PathBuf, process::ExitCode, time::Duration};

use anyhow::Result;
use clap::{Parser, Subcommand};
use coppice_plane::{ADMIN, ALICE, BOB, Binaries, OPERATOR, Options, Plane, VIEWER};
use tokio::signal::unix::{SignalKind, signal};

/// A real Kubernetes control plane on loopback: etcd, API server, controllers, scheduler, and a fake node.
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Build the binaries unless they are there, and print their folder.
    Build {
        /// Build Helm instead, and print its path.
        #[arg(long)]
        helm: bool,
        /// Build promtool instead, and print its path.
        #[arg(long, conflicts_with = "helm")]
        promtool: bool,
        /// Build the mail server instead, and print its path.
        #[arg(long, conflicts_with_all = ["helm", "promtool"])]
        mail_server: bool,
        /// Build Gardener's API server and `shoot-authority` instead, and print their folder.
        #[arg(long, conflicts_with_all = ["helm", "promtool", "mail_server"])]
        gardener: bool,
        /// Make the file with Cluster API's kinds instead, and print its path.
        #[arg(long, conflicts_with_all = ["helm", "promtool", "mail_server", "gardener"])]
        cluster_api: bool,
    },
    /// Run a control plane until Ctrl-C.
    Start {
        /// Keep all files in this folder, which must be absent or empty [default: a temporary folder, removed at the end].
        #[arg(long)]
        dir: Option<PathBuf>,
        /// Write an audit log.
        #[arg(long)]
        audit: bool,
        /// Write to the disk before answering: slower, needed for honest latencies.
        #[arg(long)]
        fsync: bool,
    },
}

fn main() -> ExitCode {
    match act(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn act(action: Action) -> Result<()> {
    match action {
        Action::Build { helm: true, .. } => println!("{}", coppice_plane::helm()?.display()),
        Action::Build { promtool: true, .. } => println!("{}", coppice_plane::promtool()?.display()),
        Action::Build { mail_server: true, .. } => println!("{}", coppice_plane::mail_server()?.display()),
        Action::Build { gardener: true, .. } => println!("{}", coppice_plane::gardener()?.display()),
        Action::Build { cluster_api: true, .. } => println!("{}", coppice_plane::cluster_api()?.display()),
        Action::Build { .. } => println!("{}", Binaries::locate()?.dir().display()),
        Action::Start { dir, audit, fsync } => {
            // Before the signals are caught, so that Ctrl-C ends a long build.
            let binaries = Some(Binaries::locate()?.dir().to_owned());
            let options = Options { audit, fsync, keep_dir: dir, binaries, ..Options::default() };
            tokio::runtime::Runtime::new()?.block_on(run(options))?;
        }
    }
    Ok(())
}

async fn run(options: Options) -> Result<()> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hangup = signal(SignalKind::hangup())?;
    let stop = async {
        tokio::select! {
            biased;
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
    };
    tokio::pin!(stop);
    println!("starting ...");
    let audit = options.audit;
    let mut plane = tokio::select! {
        biased;
        plane = Plane::start(options) => plane?,
        () = &mut stop => return Ok(()),
    };
    describe(&plane, audit)?;
    let mut tick = tokio::time::interval(Duration::from_secs(1));
    loop {
        tokio::select! {
            biased;
            () = &mut stop => break,
            _ = tick.tick() => {
                if let Err(error) = plane.check() {
                    plane.keep();
                    return Err(error.into());
                }
            }
        }
    }
    println!("stopping ...");
    plane.stop().await?;
    Ok(())
}

fn describe(plane: &Plane, audit: bool) -> Result<()> {
    println!("API server  {}", plane.url());
    println!("etcd        {}", plane.etcd_url());
    println!("files       {} (logs in log/)", plane.dir().display());
    if audit {
        println!("audit log   {}", plane.dir().join("audit.log").display());
    }
    println!("kubectl     {}", plane.kubectl().display());
    println!("users, each with its kubeconfig:");
    for user in [ADMIN, OPERATOR, ALICE, BOB, VIEWER] {
        println!("  {user:<46} {}", plane.kubeconfig(user)?.display());
    }
    println!();
    println!("export KUBECONFIG={}", plane.admin_kubeconfig().display());
    println!();
    println!("Ready. Ctrl-C stops it.");
    Ok(())
}
