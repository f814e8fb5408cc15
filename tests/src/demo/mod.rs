//! The examples on a plane of their own, followed until every expected outcome was seen on the API server.
#![allow(clippy::print_stdout, reason = "this is what the demo is for")]

mod outcomes;
mod table;

use std::time::{Duration, Instant};

use anyhow::Context as _;
use coppice_plane::ADMIN;
use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};

use crate::receiver::Receiver;
use crate::stage::repository;
use crate::{Operator, Stage, alone};
use outcomes::Outcome;
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
/// The examples take little more than a minute; whatever takes longer than this has failed.
const PATIENCE: Duration = Duration::from_mins(4);
/// How often the API server is looked at.
const LOOK: Duration = Duration::from_millis(250);

/// Runs the demo; whether every expected outcome was seen.
pub fn run() -> anyhow::Result<bool> {
    // Ends the process on Ctrl-C: what it started ends with it.
    let mut seen = false;
    alone(async {
        tokio::select! {
            result = demo() => seen = result?,
            _ = tokio::signal::ctrl_c() => println!("\ninterrupted: everything that the demo started is stopped"),
        }
        Ok(())
    })?;
    Ok(seen)
}

async fn demo() -> anyhow::Result<bool> {
    println!(
        "starting a control plane of its own (etcd, kube-apiserver, controller-manager, scheduler, KWOK) ..."
    );
    let stage = Stage::start().await?;
    println!("  up at {}; nothing else is touched", stage.plane.url());
    println!("  look at it yourself: export KUBECONFIG={}", stage.plane.admin_kubeconfig().display());
    println!(
        "  installed deploy/install.yaml; starting the operator as its service account, with its own rights ..."
    );
    let receiver = Receiver::start(&[]).await?;
    stage.apply(&settings()).await?;
    let operator = Operator::start(&stage).await?;
    println!("  the operator is ready: http://{}/metrics", operator.address);
    for example in EXAMPLES {
        apply(&stage, example, &receiver).await?;
    }
    println!(
        "  applied {} examples; there is no cluster DNS here, so the receiver of 04 is {}\n",
        EXAMPLES.len(),
        receiver.url
    );
    let finished = follow(&stage, &receiver).await?;
    stage.plane.stop().await?;
    Ok(finished)
}

/// The default settings, but for the receiver's address, which is a loopback address here.
fn settings() -> String {
    "{apiVersion: coppice.dev/v1alpha1, kind: CoppiceConfig, metadata: {name: coppice}, \
      spec: {tenants: {webhookHosts: ['*.svc', '127.0.0.1']}}}"
        .to_owned()
}

async fn apply(stage: &Stage, example: &str, receiver: &Receiver) -> anyhow::Result<()> {
    let path = repository().join("examples").join(format!("{example}.yaml"));
    let yaml =
        std::fs::read_to_string(&path).with_context(|| format!("{} cannot be read", path.display()))?;
    let yaml = yaml.replace(RECEIVER, &receiver.url);
    // A namespace's service account is made a moment after the namespace: pods are applied again until they are taken.
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        match stage.kubectl_stdin(ADMIN, &["apply", "-f", "-"], &yaml).await {
            Ok(_) => return Ok(()),
            Err(error) if Instant::now() > deadline => return Err(error),
            Err(_) => tokio::time::sleep(LOOK).await,
        }
    }
}

/// Prints what happens until every outcome was seen.
async fn follow(stage: &Stage, receiver: &Receiver) -> anyhow::Result<bool> {
    let kubeconfig = Kubeconfig::read_from(stage.plane.admin_kubeconfig())?;
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    let client = Client::try_from(config)?;
    let mut table = Table::new();
    let mut open = Outcome::all();
    let deadline = Instant::now() + PATIENCE;
    while !open.is_empty() && Instant::now() < deadline {
        table.look(&client).await?;
        let mut still = Vec::new();
        for outcome in open {
            if outcome.seen(&client, receiver).await? {
                table.row(outcome.namespace, "as expected", outcome.what);
            } else {
                still.push(outcome);
            }
        }
        open = still;
        tokio::time::sleep(LOOK).await;
    }
    println!();
    for outcome in &open {
        println!("NOT SEEN  {}: {}", outcome.namespace, outcome.what);
    }
    if open.is_empty() {
        println!("Every expected outcome was seen on the API server.");
    }
    Ok(open.is_empty())
}
