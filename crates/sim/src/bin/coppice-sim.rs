//! The API server in memory, over HTTP on loopback: a cluster to try things on, where there is none.
#![allow(clippy::print_stdout, reason = "what it prints is its output")]

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, ensure};
use clap::Parser;
use coppice_runtime::clock::Clock;
use coppice_sim::http::Service;
use coppice_sim::server::{Request, SYSTEM, Server};
use tokio::signal::unix::{SignalKind, signal};

/// A Kubernetes API server in memory, until Ctrl-C
///
/// kubectl and operators can use it as any other. Namespaces, garbage collection, workloads, quotas and pods work; pods do
/// what their label plane.coppice.dev/outcome says. There is no authentication, and nothing is kept.
#[derive(Parser)]
#[command(name = "coppice-sim", version, after_help = EXAMPLES)]
struct Args {
    /// Where on loopback to listen; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0", value_parser = address)]
    listen: SocketAddr,
    /// Where to write the kubeconfig [default: a file in the folder for temporary files, removed at the end]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Install the definitions of the kinds of Coppice
    #[arg(long)]
    crds: bool,
}

const EXAMPLES: &str = "\
Examples:
  coppice-sim                                      # on a free port; prints what to do next
  coppice-sim --listen 127.0.0.1:8001 --kubeconfig sim.kubeconfig --crds
  KUBECONFIG=sim.kubeconfig kubectl get namespaces";

/// Every kubeconfig that is written here begins so.
const MARK: &str = "# Written by coppice-sim. It leads nowhere when that has ended.\n";

/// A text that is no address.
#[derive(Debug, thiserror::Error)]
#[error("an IP address and a port are needed, such as 127.0.0.1:8001")]
struct InvalidAddress;

fn address(text: &str) -> Result<SocketAddr, InvalidAddress> {
    text.parse().map_err(|_| InvalidAddress)
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(Args::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(args: Args) -> anyhow::Result<()> {
    let clock = Clock::system();
    let mut server = Server::new(clock.now());
    if args.crds {
        install(&mut server, &clock)?;
    }
    let service = Service::bind(args.listen, server, clock).await?;
    let address = service.address()?;
    let temporary = args.kubeconfig.is_none();
    let path = args
        .kubeconfig
        .unwrap_or_else(|| std::env::temp_dir().join(format!("coppice-sim-{}.kubeconfig", address.port())));
    write(&path, &kubeconfig(address))?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    greet(address, &path);
    let ended = tokio::select! {
        end = service.serve() => end.map_err(Into::into),
        _ = interrupt.recv() => Ok(()),
        _ = terminate.recv() => Ok(()),
    };
    if temporary {
        // It leads nowhere now; that it stays does no harm.
        let _ = std::fs::remove_file(&path);
    }
    ended
}

fn install(server: &mut Server, clock: &Clock) -> anyhow::Result<()> {
    for definition in coppice_api::crds() {
        let uri = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        let request = Request::post(uri, &serde_json::to_value(definition)?);
        let response = server.handle(clock.now(), SYSTEM, &request).done().context("no answer")?;
        ensure!(response.code == 201, "a definition was refused: {}", response.body.to_value());
    }
    Ok(())
}

/// Writes the kubeconfig, but over nobody else's: a wrong path would cost somebody the way to their clusters.
fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    let shown = path.display();
    let there = path.exists() && !std::fs::read_to_string(path).is_ok_and(|text| text.starts_with(MARK));
    ensure!(
        !there,
        "{shown} is there already and was not written by coppice-sim: name another file with --kubeconfig"
    );
    std::fs::write(path, text).with_context(|| format!("cannot write the kubeconfig to {shown}"))
}

fn kubeconfig(address: SocketAddr) -> String {
    format!(
        "{MARK}apiVersion: v1\nkind: Config\ncurrent-context: coppice-sim\n\
         clusters:\n- name: coppice-sim\n  cluster: {{server: \"http://{address}\"}}\n\
         users:\n- name: admin\n  user: {{token: admin}}\n\
         contexts:\n- name: coppice-sim\n  context: {{cluster: coppice-sim, user: admin, namespace: default}}\n"
    )
}

fn greet(address: SocketAddr, kubeconfig: &Path) {
    println!(
        "A Kubernetes API server in memory listens on http://{address}. It is not a cluster, and nothing is kept."
    );
    println!("In another shell:");
    println!("  export KUBECONFIG={}", kubeconfig.display());
    println!("  kubectl create namespace demo");
    println!("  kubectl get namespaces --watch");
    println!("Ctrl-C ends it.");
}
