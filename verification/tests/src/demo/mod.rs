//! The examples on an API server of their own, then namespaces under a cluster manager, then a tree of namespaces, and then a credential for
//! another cluster, followed until every expected outcome was seen on the API servers.
#![allow(clippy::print_stdout, reason = "this is what the demo is for")]

mod cluster;
mod cluster_managers;
pub mod credentials;
mod expected_outcomes;
pub mod screen;
pub mod superseded;
mod table;
mod trees;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context as _;

use crate::on_own_plane;
use crate::receiver::Receiver;
use crate::test_cluster::{binary, repository};
use cluster::Cluster;
use expected_outcomes::ExpectedOutcome;
use screen::Screen;
use superseded::StandIns;
use table::Table;

/// The examples, in the order in which they are applied.
const EXAMPLES: [&str; 6] = [
    "01-ttl-delete",
    "02-pods-succeed-delete",
    "03-pods-succeed-scale-down",
    "04-webhook",
    "05-hold",
    "06-extend",
];
/// The receiver of the webhook example, as the example names it.
const RECEIVER: &str = "http://webhooky.example-04.svc/api/hook";
/// The examples take little more than a minute, what comes after them three, and each outcome of the superseded one seconds; whatever takes
/// longer than this has failed.
const TIMEOUT: Duration = Duration::from_mins(4);
/// How often the API server is looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Runs the demo; whether every expected outcome was seen.
pub fn run() -> anyhow::Result<bool> {
    // Ends the process on Ctrl-C: what it started ends with it.
    let mut seen = false;
    on_own_plane(async {
        tokio::select! {
            result = demo() => seen = result?,
            _ = tokio::signal::ctrl_c() => println!("\ninterrupted: everything that the demo started is stopped"),
        }
        Ok(())
    })?;
    Ok(seen)
}

async fn demo() -> anyhow::Result<bool> {
    let screen = Screen::default();
    let cluster = Cluster::start().await?;
    let stand_ins = StandIns::start().await?;
    let receiver = Receiver::start(&[]).await?;
    cluster.apply(&settings()).await?;
    let operator = cluster.operator().await?;
    println!("  the operator is ready: http://{}/metrics", operator.address);
    cluster_managers::prepare(&cluster).await?;
    for example in EXAMPLES {
        apply(&cluster, example, &receiver).await?;
    }
    println!(
        "  applied {} examples; there is no cluster DNS here, so the receiver of 04 is {}\n",
        EXAMPLES.len(),
        receiver.url
    );
    let finished = follow(&cluster, &receiver, &screen).await?
        && cluster_managers::run(&cluster, &operator, &stand_ins, &screen).await?
        && trees::run(&cluster, &screen).await?
        && credentials::run(&cluster, &screen).await?;
    if finished {
        println!("Every expected outcome was seen on the API server.");
    }
    drop(operator);
    cluster.stop().await?;
    Ok(finished)
}

/// The default settings, but for the receiver's address, which is a loopback address here.
fn settings() -> String {
    "{apiVersion: coppice.dev/v1alpha1, kind: CoppiceConfig, metadata: {name: coppice}, \
      spec: {tenants: {webhookHosts: ['*.svc', '127.0.0.1']}}}"
        .to_owned()
}

async fn apply(cluster: &Cluster, example: &str, receiver: &Receiver) -> anyhow::Result<()> {
    let path = repository().join("examples").join(format!("{example}.yaml"));
    let yaml =
        std::fs::read_to_string(&path).with_context(|| format!("{} cannot be read", path.display()))?;
    apply_until_taken(cluster, &yaml.replace(RECEIVER, &receiver.url)).await
}

async fn apply_until_taken(cluster: &Cluster, yaml: &str) -> anyhow::Result<()> {
    // A namespace's service account is made a moment after the namespace: pods are applied again until they are taken.
    let deadline = Instant::now() + TIMEOUT;
    loop {
        match cluster.apply(yaml).await {
            Ok(()) => return Ok(()),
            Err(error) if Instant::now() > deadline => return Err(error),
            Err(_) => pause().await,
        }
    }
}

/// Runs the command line, which has to succeed, and prints what it says.
async fn coppice(kubeconfig: &Path, args: &[&str], screen: &Screen) -> anyhow::Result<()> {
    let mut coppice = tokio::process::Command::new(binary("coppice")?);
    let output = coppice.args(args).env("KUBECONFIG", kubeconfig).output().await?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let quoted = |arg: &&str| if arg.contains(' ') { format!("'{arg}'") } else { (*arg).to_owned() };
    let line = format!("coppice {}", args.iter().map(quoted).collect::<Vec<_>>().join(" "));
    let said = text(&output.stdout);
    anyhow::ensure!(output.status.success(), "{line}: {said}{}", text(&output.stderr));
    screen.quote(&format!("$ {line}"), &said);
    screen.say("");
    Ok(())
}

/// Until the API server is looked at again.
async fn pause() {
    tokio::time::sleep(POLL_INTERVAL).await;
}

/// Prints what happens until every outcome was seen.
async fn follow(cluster: &Cluster, receiver: &Receiver, screen: &Screen) -> anyhow::Result<bool> {
    let client = cluster.client().await?;
    let mut table = Table::new(screen, "example-");
    let mut open = ExpectedOutcome::all();
    let deadline = Instant::now() + TIMEOUT;
    while !open.is_empty() && Instant::now() < deadline {
        table.update(&client).await?;
        let mut still = Vec::new();
        for outcome in open {
            if outcome.seen(&client, receiver).await? {
                table.row(outcome.namespace, "as expected", outcome.what);
            } else {
                still.push(outcome);
            }
        }
        open = still;
        pause().await;
    }
    println!();
    for outcome in &open {
        println!("NOT SEEN  {}: {}", outcome.namespace, outcome.what);
    }
    Ok(open.is_empty())
}
