//! `coppice-operator wake-all`: gives every workload that was scaled down its replicas back, before Coppice is uninstalled.
//!
//! What was scaled down is remembered in status only, and nobody wakes it once the operator is gone. So this takes the Lease: the
//! operator that leads finds it in other hands and ends, its successor follows, and nothing is scaled down meanwhile. Where all is
//! awake it keeps the Lease for a while, in which the operator can be removed; otherwise it gives it back, and the operator goes on.

use std::io::Write as _;
use std::time::Duration;

use anyhow::{Context as _, bail};
use coppice_api::CoppiceConfigSpec;
use coppice_controllers::namespace_manager::{self, WakeError, WakePass};
use coppice_lifecycle::Law;
use coppice_runtime::client::{Clients, load_config};
use coppice_runtime::clock::{Clock, Dice};
use coppice_runtime::leader::Gate;
use coppice_runtime::lease::{Election, identity, keep, seize};
use coppice_runtime::metrics::Metrics;
use coppice_runtime::server_clock::ServerClock;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::args::Args;

/// The pause before what failed is tried again.
const PAUSE: Duration = Duration::from_secs(2);
/// After success no replica leads for so long.
const KEPT: Duration = Duration::from_mins(5);
/// Giving the Lease back, or keeping it, may take so long.
const GRACE: Duration = Duration::from_secs(15);

/// Ends well if nothing is left that Coppice has scaled down.
pub(crate) async fn run(args: Args, wait: Duration) -> anyhow::Result<()> {
    let deadline = Instant::now() + wait;
    let clock = Clock::system();
    let (metrics, server_clock) = (Metrics::new(env!("CARGO_PKG_VERSION")), ServerClock::new(clock.clone()));
    let config = load_config(args.kubeconfig.clone(), args.context.clone()).await?;
    let clients =
        Clients::new(config, &server_clock, &metrics).context("the API server's address or certificates")?;
    let mut dice = Dice::entropy();
    let me = identity(args.identity.as_deref().unwrap_or("coppice-wake-all"), &mut dice);
    let lease = args.lease(&me, dice.roll());
    let (election, gate) = Election::new(clients.clone(), lease.clone(), clock.clone(), metrics)?;
    let seized = timeout_at(deadline, seize(&clients, &lease, &clock)).await;
    seized
        .map_err(|_| anyhow::anyhow!("--wait is over, and the Lease could not be taken"))?
        .map_err(anyhow::Error::msg)?;
    let release = CancellationToken::new();
    let mut elections = JoinSet::new();
    elections.spawn(election.run(release.clone()));
    // Which kinds there are does not depend on the platform's settings.
    let law = Law::new(CoppiceConfigSpec::default(), &args.namespace, args.scale_kinds.clone());
    let woken = tokio::select! {
        woken = wake(&clients, &gate, &law, deadline) => woken,
        ended = elections.join_next() => match ended {
            Some(Ok(Err(lost))) => Err(lost.into()),
            _ => Err(anyhow::anyhow!("the election ended before its time")),
        }
    };
    if woken.is_ok() {
        elections.shutdown().await;
        let kept = tokio::time::timeout(GRACE, keep(&clients, &lease, &clock, KEPT)).await;
        match kept {
            Ok(Ok(())) => say(&format!(
                "for {} minutes no replica of the operator leads: uninstall it now",
                KEPT.as_secs() / 60
            )),
            Ok(Err(error)) => tracing::warn!("the operator may go on before it is uninstalled: {error}"),
            Err(_) => tracing::warn!(
                "the operator may go on before it is uninstalled: no answer from the API server"
            ),
        }
    } else {
        release.cancel();
        let _ = tokio::time::timeout(GRACE, elections.join_next()).await;
    }
    woken
}

/// Passes over all managers until nothing is left, or only what nobody but its owner can wake, or until the deadline.
async fn wake(clients: &Clients, gate: &Gate, law: &Law, deadline: Instant) -> anyhow::Result<()> {
    leads(gate, deadline).await?;
    let mut total = WakePass::default();
    loop {
        let done = match timeout_at(deadline, namespace_manager::wake_all(clients, gate, law)).await {
            Ok(Ok(pass)) => {
                for line in &pass.woken {
                    say(&format!("woken: {line}"));
                }
                for line in &pass.alone {
                    say(&format!("left alone: {line}"));
                }
                total.woken.extend(pass.woken);
                total.alone.extend(pass.alone);
                (total.stuck, total.failed) = (pass.stuck, pass.failed);
                total.failed.is_empty()
            }
            Ok(Err(error @ WakeError::List(_))) => {
                total.failed = vec![error.to_string()];
                false
            }
            Ok(Err(error @ WakeError::NotLeader(_))) => return Err(error.into()),
            Err(_) => {
                total.failed.push("--wait is over before every manager was looked at".to_owned());
                true
            }
        };
        if done || Instant::now() + PAUSE >= deadline {
            return conclude(&total);
        }
        for line in &total.failed {
            tracing::warn!("not woken yet: {line}");
        }
        sleep(PAUSE.max(clients.patience.remaining())).await;
    }
}

/// Waits until the Lease, which is ours already, is known to be so.
async fn leads(gate: &Gate, deadline: Instant) -> anyhow::Result<()> {
    let mut state = gate.subscribe();
    while !gate.is_leader() {
        let changed = timeout_at(deadline, state.changed()).await;
        changed
            .context("--wait is over, and the Lease could not be renewed")?
            .context("the election ended")?;
    }
    Ok(())
}

fn conclude(total: &WakePass) -> anyhow::Result<()> {
    let left = total.stuck.len() + total.failed.len();
    for line in total.stuck.iter().chain(&total.failed) {
        say(&format!("NOT WOKEN: {line}"));
    }
    say(&format!("{} woken, {} left alone, {left} not woken", total.woken.len(), total.alone.len()));
    if left > 0 {
        bail!(
            "{left} could not be woken: see the list; the operator goes on, and nothing that is listed is forgotten"
        );
    }
    Ok(())
}

/// What it prints is its output; that nobody reads it is no reason to stop.
fn say(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}
