//! From the loss of a leader to the next one's first deed.

use std::collections::BTreeMap;

use anyhow::Context as _;
use coppice_plane::OPERATOR;
use coppice_plane::proxy::Proxy;
use coppice_tests::scale::objects::namespace_name;
use serde_json::json;
use tokio::sync::mpsc;

use super::{Lease, Programs, Running, Sizes, Testbed, audit, now, progress, seconds};
use crate::report::{Goal, Part, ReportWriter, Subject};
use crate::stats::count;

/// What happens to a leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loss {
    /// kill -9.
    Kill,
    /// It stands still, and goes on when another leads.
    Stop,
    /// Its connections to the API server stay, and nothing comes through any more.
    BlackHole,
    /// It gets SIGTERM.
    Term,
}

impl Loss {
    const ALL: [Self; 4] = [Self::Kill, Self::Stop, Self::BlackHole, Self::Term];

    const fn label(self) -> &'static str {
        match self {
            Self::Kill => "kill -9",
            Self::Stop => "SIGSTOP",
            Self::BlackHole => "black hole",
            Self::Term => "SIGTERM",
        }
    }

    /// Seconds within which another replica has to lead.
    fn bound(self, lease: Lease) -> f64 {
        match self {
            Self::Kill | Self::Stop | Self::BlackHole => {
                lease.duration.as_secs_f64() + 4.4 * lease.retry.as_secs_f64() + 0.5
            }
            Self::Term => 2.0,
        }
    }
}

/// A replica with its own way to the API server.
struct Replica {
    running: Running,
    proxy: Proxy,
}

/// The name of the part.
const FAILOVER: &str = "failover";

/// What one loss has shown.
struct Shown {
    loss: Loss,
    leads: f64,
    deletes: f64,
}

pub(super) async fn run(programs: &Programs, sizes: &Sizes, writer: &mut ReportWriter) -> anyhow::Result<()> {
    let lease = sizes.lease;
    writer.begin(part(sizes));
    let (report, mut reports) = mpsc::unbounded_channel();
    let pairs: Vec<_> = (0..sizes.pairs.max(1))
        .map(|pair| {
            // The pairs share the failovers as evenly as it goes, each kind by itself.
            let (pairs, all) = (sizes.pairs.max(1), sizes.failovers);
            let each = all / pairs + usize::from(pair < all % pairs);
            fail_over(pair, each, programs, lease, report.clone())
        })
        .collect();
    drop(report);
    let mut pairs = std::pin::pin!(futures::future::join_all(pairs));
    // Until every pair has ended and nothing that it has reported is left.
    let mut ended = None;
    while ended.is_none() || !reports.is_empty() {
        tokio::select! {
            biased;
            Some(shown) = reports.recv() => write_down(writer, &shown, lease)?,
            results = &mut pairs, if ended.is_none() => ended = Some(results),
        }
    }
    let mut doubled = 0;
    for result in ended.unwrap_or_default() {
        match result {
            Ok(more) => doubled += more,
            Err(error) => writer.part(FAILOVER).fails(&format!("{error:#}")),
        }
    }
    let goal = Some(Goal::NeverAbove(0.0));
    writer.part(FAILOVER).add("deleted more than once", "", Subject::Coppice, goal, count(doubled));
    Ok(())
}

fn part(sizes: &Sizes) -> Part {
    let lease = sizes.lease;
    Part {
        name: FAILOVER,
        title: "Failover",
        method: format!(
            "Two replicas of Coppice, each behind a proxy of its own; the lease lasts {} s, is given up after {} s and asked for \
             every {} s. {} times each, the leader is killed, stopped (and continued once another leads), cut off without its \
             connections breaking, or ended by SIGTERM; at once the last pod of a namespace succeeds, which the other replica has to \
             delete. *Leads*: when the other's metrics say so. *Deletes*: when its DELETE arrives. A replica that lost the lease \
             has to end by itself; it is replaced. Deletions are counted by the audit log. {} such pairs fail over at the same \
             time, each on a control plane of its own: most of the time all of them wait for a lease to end.",
            lease.duration.as_secs_f64(),
            lease.renew.as_secs_f64(),
            lease.retry.as_secs_f64(),
            sizes.failovers,
            sizes.pairs.max(1),
        ),
        ..Part::default()
    }
}

fn write_down(writer: &mut ReportWriter, shown: &Shown, lease: Lease) -> anyhow::Result<()> {
    let (part, label) = (writer.part(FAILOVER), shown.loss.label());
    let goal = Some(Goal::NeverAbove(shown.loss.bound(lease)));
    part.add(&format!("{label}: the other leads"), "s", Subject::Coppice, goal, shown.leads);
    part.add(&format!("{label}: the other deletes"), "s", Subject::Coppice, None, shown.deletes);
    writer.save()
}

/// One pair of replicas fails over so many times of each kind. Returns how many namespaces were deleted more than once.
async fn fail_over(
    pair: usize,
    each: usize,
    programs: &Programs,
    lease: Lease,
    tell: mpsc::UnboundedSender<Shown>,
) -> anyhow::Result<usize> {
    let trials = each * Loss::ALL.len();
    if trials == 0 {
        return Ok(0);
    }
    progress(&format!("failover, pair {}: starting a control plane ...", pair + 1));
    let testbed = Testbed::start().await?;
    let spec = json!({"policies": [{
        "name": "passed", "when": {"podsSucceed": {"initialDelay": "0s"}}, "then": {"delete": {}},
    }]});
    testbed.seed((0..trials).map(|n| testbed.objects.namespace(n))).await?;
    testbed.seed((0..trials).map(|n| testbed.pod(n, 0, "Running"))).await?;
    testbed.seed((0..trials).map(|n| testbed.manager(n, spec.clone()))).await?;
    testbed.skip_existing()?;
    let mut leader = start(&testbed, programs, lease).await?;
    leader.running.settled(trials).await?;
    let mut standby = start(&testbed, programs, lease).await?;
    for n in 0..trials {
        let loss = Loss::ALL[n % Loss::ALL.len()];
        progress(&format!("failover, pair {}, {} of {trials}: {} ...", pair + 1, n + 1, loss.label()));
        let next = lose(&testbed, &mut leader, &mut standby, loss, n).await;
        let [leads, deletes] = next.with_context(|| format!("{} of pair {}", loss.label(), pair + 1))?;
        // Nobody listens any more when the time is over.
        let _ = tell.send(Shown { loss, leads, deletes });
        leader = std::mem::replace(&mut standby, start(&testbed, programs, lease).await?);
    }
    leader.running.stop().await?;
    let mut deletions: BTreeMap<String, usize> = BTreeMap::new();
    testbed.audit(|events| {
        for event in events.iter().filter(|e| audit::deletes(e)) {
            *deletions.entry(event.name.clone()).or_default() += 1;
        }
    })?;
    anyhow::ensure!(deletions.len() == trials, "{} of {trials} namespaces were deleted", deletions.len());
    Ok(deletions.values().filter(|times| **times > 1).count())
}

async fn start(testbed: &Testbed, programs: &Programs, lease: Lease) -> anyhow::Result<Replica> {
    let proxy = Proxy::start(&testbed.test_cluster.plane, None).await?;
    let kubeconfig = proxy.kubeconfig(&testbed.test_cluster.plane.kubeconfig(OPERATOR)?)?;
    let mut running = Running::spawn_by(testbed, programs, Subject::Coppice, &kubeconfig, lease)?;
    running.ready().await?;
    Ok(Replica { running, proxy })
}

/// Takes the leader away and gives the standby something to do; seconds until it leads and until it has done it.
async fn lose(
    testbed: &Testbed,
    leader: &mut Replica,
    standby: &mut Replica,
    loss: Loss,
    n: usize,
) -> anyhow::Result<[f64; 2]> {
    anyhow::ensure!(leader.running.leads_now().await, "the leader does not lead");
    let since = now();
    match loss {
        Loss::Kill => leader.running.signal("KILL").await?,
        Loss::Stop => leader.running.signal("STOP").await?,
        Loss::BlackHole => leader.proxy.freeze(),
        Loss::Term => leader.running.signal("TERM").await?,
    }
    testbed.succeed(n, 0).await?;
    let leads = standby.running.leads().await?;
    let name = namespace_name(n);
    let deleted = testbed
        .until("the other deletes", |events| {
            events.iter().find(|e| audit::deletes(e) && e.name == name).map(|e| e.received)
        })
        .await?;
    match loss {
        Loss::Stop => leader.running.signal("CONT").await?,
        // What it asked for meanwhile is let through: it must not do anything any more.
        Loss::BlackHole => leader.proxy.heal(),
        Loss::Kill | Loss::Term => {}
    }
    leader.running.ended().await?;
    Ok([seconds(since, leads), seconds(since, deleted)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_is_lease_plus_retries_but_for_a_polite_end() {
        let bounds = Loss::ALL.map(|loss| loss.bound(Lease::SHIPPED));
        for (bound, expected) in bounds.into_iter().zip([24.3, 24.3, 24.3, 2.0]) {
            assert!((bound - expected).abs() < 1e-9, "{bound}");
        }
    }
}
