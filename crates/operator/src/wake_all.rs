//! `coppice-operator wake-all`: gives every workload that was scaled down its replicas back, before Coppice is uninstalled.
//!
//! Only status records what was scaled down, and nobody wakes it once the operator is gone. So this takes the Lease:
//! the operator that leads finds it in other hands and ends, its successor follows, and nothing is scaled down
//! meanwhile. Once everything is woken it keeps the Lease for a while, in which the operator can be removed; otherwise
//! it gives it back, and the operator continues. It never takes the Lease from another running `wake-all`: two would
//! take turns at the Lease, and neither would finish.

use std::io::Write as _;
use std::time::Duration;

use anyhow::{Context as _, bail};
use coppice_api::CoppiceConfigSpec;
use coppice_controllers::wake_all::{self as pass, WakeError, WakePass};
use coppice_lifecycle::PlatformSettings;
use coppice_runtime::client::{Clients, Deadlines, load_config};
use coppice_runtime::clock::{Clock, SeededRng};
use coppice_runtime::leader::Gate;
use coppice_runtime::lease::{Election, identity, keep, take_over};
use coppice_runtime::metrics::Metrics;
use coppice_runtime::server_clock::ServerClock;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::args::Args;

/// The pause before what failed is tried again.
const PAUSE: Duration = Duration::from_secs(2);
/// After success no replica leads for this long.
const LEASE_HOLD: Duration = Duration::from_mins(5);
/// What the identity of each `wake-all` in the Lease begins with. A pod's name, which is the operator's, has no slash.
const PEER: &str = "wake-all/";
/// The longest time to give the Lease back.
const GRACE: Duration = Duration::from_secs(15);

/// Succeeds if nothing is left that Coppice has scaled down.
pub(crate) async fn run(args: Args, wait: Duration) -> anyhow::Result<()> {
    let deadline = Instant::now() + wait;
    let clock = Clock::system();
    let (metrics, server_clock) = (Metrics::new(env!("CARGO_PKG_VERSION")), ServerClock::new(clock.clone()));
    let config = load_config(args.kubeconfig.clone(), args.context.clone()).await?;
    let clients =
        Clients::new(config, &server_clock, &metrics).context("the API server's address or certificates")?;
    let mut rng = SeededRng::entropy();
    let me = identity(&name(args.identity.as_deref()), &mut rng);
    let lease = args.lease(&me, rng.next_u64());
    // The operator does not start with these. Here a write that is late still carries the revision that was read, and refusing
    // would stop an uninstallation.
    if let Err(risk) = lease.validate_writes(Deadlines::default().write) {
        tracing::warn!("{risk}; waking goes on");
    }
    let (election, gate) = Election::new(clients.clone(), lease.clone(), clock.clone(), metrics)?;
    let seized = timeout_at(deadline, take_over(&clients, &lease, &clock, is_peer)).await;
    seized.map_err(|_| {
        anyhow::anyhow!(
            "--wait is over, and the Lease {}/{} could not be taken: see the log for the reason, and start again with a longer \
             --wait",
            lease.namespace,
            lease.name
        )
    })??;
    let release = CancellationToken::new();
    let mut elections = JoinSet::new();
    elections.spawn(election.run(release.clone()));
    // Which kinds there are does not depend on the platform's settings.
    let settings =
        PlatformSettings::new(CoppiceConfigSpec::default(), &args.namespace, args.scale_kinds.clone());
    let woken = tokio::select! {
        woken = wake(&clients, &gate, &settings, deadline) => woken,
        ended = elections.join_next() => match ended {
            Some(Ok(Err(lost))) => Err(lost.into()),
            _ => Err(anyhow::anyhow!("the election ended before its time")),
        }
    };
    if woken.is_ok() {
        elections.shutdown().await;
        match keep(&clients, &lease, &clock, LEASE_HOLD).await {
            Ok(()) => print_line(&format!(
                "for {} minutes no replica of the operator leads: uninstall it now",
                LEASE_HOLD.as_secs() / 60
            )),
            Err(error) => tracing::warn!("the operator may go on before it is uninstalled: {error}"),
        }
    } else {
        release.cancel();
        let _ = tokio::time::timeout(GRACE, elections.join_next()).await;
    }
    woken
}

/// Passes over everything that scales workloads down until nothing is left, or only what nobody but its owner can wake, or until the deadline.
async fn wake(
    clients: &Clients,
    gate: &Gate,
    settings: &PlatformSettings,
    deadline: Instant,
) -> anyhow::Result<()> {
    leads(gate, deadline).await?;
    let mut total = WakePass::default();
    loop {
        let pass = timeout_at(deadline, pass::wake_all(clients, gate, settings)).await.ok();
        let (lines, done) = add(&mut total, pass)?;
        for line in &lines {
            print_line(line);
        }
        if done || Instant::now() + PAUSE >= deadline {
            return conclude(&total);
        }
        for line in &total.failed {
            tracing::warn!("not woken yet: {line}");
        }
        sleep(PAUSE.max(clients.backpressure.remaining())).await;
    }
}

/// Adds a pass, none if `--wait` ended during it. Returns what to report about it, and whether it is the last.
fn add(
    total: &mut WakePass,
    pass: Option<Result<WakePass, WakeError>>,
) -> Result<(Vec<String>, bool), WakeError> {
    let pass = match pass {
        Some(Ok(pass)) => pass,
        Some(Err(error @ WakeError::List { .. })) => {
            total.failed = vec![error.to_string()];
            return Ok((Vec::new(), false));
        }
        Some(Err(error)) => return Err(error),
        None => {
            let line = "--wait is over in the middle of a pass: what this pass has woken is awake, and not listed here; start again \
                        with a longer --wait for the rest";
            total.failed.push("--wait is over before every object was looked at".to_owned());
            return Ok((vec![line.to_owned()], true));
        }
    };
    let woken = pass.woken.iter().map(|line| format!("woken: {line}"));
    let lines = woken.chain(pass.not_scaled_down.iter().map(|line| format!("left alone: {line}"))).collect();
    total.woken.extend(pass.woken);
    total.not_scaled_down.extend(pass.not_scaled_down);
    (total.needs_user, total.failed) = (pass.needs_user, pass.failed);
    Ok((lines, total.failed.is_empty()))
}

/// The name in the Lease of a `wake-all` in this pod.
fn name(pod: Option<&str>) -> String {
    format!("{PEER}{}", pod.unwrap_or("coppice-wake-all"))
}

/// Whether another `wake-all` has this identity.
fn is_peer(holder: &str) -> bool {
    holder.starts_with(PEER)
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
    let left = total.needs_user.len() + total.failed.len();
    for line in total.needs_user.iter().chain(&total.failed) {
        print_line(&format!("NOT WOKEN: {line}"));
    }
    print_line(&format!(
        "{} woken, {} left alone, {left} not woken",
        total.woken.len(),
        total.not_scaled_down.len()
    ));
    if left > 0 {
        bail!(
            "{left} could not be woken: see the list; the operator goes on, and nothing that is listed is forgotten"
        );
    }
    Ok(())
}

/// What it prints is its output; that nobody reads it is no reason to stop.
fn print_line(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[test]
    fn each_wake_all_is_known_by_its_identity_and_no_operator_is_taken_for_one() {
        let mut rng = SeededRng::new(1);
        for pod in [None, Some("coppice-wake-all-x7k2p"), Some("coppice-operator-6f9d-abcde")] {
            assert!(is_peer(&identity(&name(pod), &mut rng)));
        }
        for pod in ["coppice-operator", "coppice-wake-all-x7k2p", "wake-all"] {
            assert!(!is_peer(&identity(pod, &mut rng)), "{pod}");
        }
    }

    #[tokio::test]
    async fn flags_of_the_lease_that_the_operator_refuses_keep_nothing_from_being_woken() {
        let mut kubeconfig = tempfile::NamedTempFile::new().unwrap();
        let clusters = "clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]";
        let contexts = "current-context: c, contexts: [{name: c, context: {cluster: c, user: c}}]";
        write!(kubeconfig, "{{{clusters}, {contexts}, users: [{{name: c, user: {{}}}}]}}").unwrap();
        let path = kubeconfig.path().to_str().unwrap();
        let flags = ["coppice-operator", "--kubeconfig", path, "--lease-renew-deadline", "14s"];
        let ended = run(Args::parse_from(flags), Duration::ZERO).await.unwrap_err().to_string();
        assert!(ended.starts_with("--wait is over, and the Lease"), "{ended}");
    }

    #[test]
    fn a_pass_that_is_cut_off_is_said_and_leaves_what_was_counted() {
        let mut total = WakePass::default();
        let line = |what: &str| vec![what.to_owned()];
        let first = WakePass {
            woken: line("a"),
            not_scaled_down: line("b"),
            needs_user: line("c"),
            failed: line("d"),
        };
        let (lines, last) = add(&mut total, Some(Ok(first))).unwrap();
        assert_eq!((lines, last), (vec!["woken: a".to_owned(), "left alone: b".to_owned()], false));
        let (lines, last) = add(&mut total, None).unwrap();
        assert!(
            last && lines.len() == 1 && lines[0].starts_with("--wait is over in the middle"),
            "{lines:?}"
        );
        assert_eq!((total.woken.len(), total.needs_user.len(), total.failed.len()), (1, 1, 2));
        assert!(conclude(&total).unwrap_err().to_string().starts_with("3 could not be woken"));
    }
}
