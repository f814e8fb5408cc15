//! `coppice probe`: whether access to a cluster works, from the first request to the last revocation.
#![allow(clippy::doc_markdown, reason = "comments on arguments are the help that people read in a terminal")]

mod cluster;
mod own;
mod requests;
mod signals;

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, ValueEnum};
use coppice_clusters_api::{
    CapiCluster, ClusterSource, GardenerShoot, Issuer, ManagedClusterName, ProviderName, SecretKey,
};
use coppice_quantity::Duration;
use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

use self::cluster::{NewCluster, Template, template};
use self::requests::{Probe, own_accesses};
use crate::args::{ArgumentError, ConnectionArgs, namespace_name, object_name, positive_duration};
use crate::connect::connect;
use crate::print::{self, Cell, ERROR, HEADING, OK, Table};
use crate::probe::{ProbeReport, Step, spec};
use crate::terminal::PLAIN;
use crate::{Exit, Io, with_progress};

/// Try out access to another cluster: create, use, rotate and delete a ClusterAccess
///
/// Creates a ClusterAccess of its own, waits for its credential, uses it for a request that it permits and for one that it does not, has
/// it replaced, and deletes it; the credentials that were replaced or revoked must not be valid any more. Before that it deletes what
/// earlier probes left behind, by the label coppice.dev/probe. Meant to run every hour: examples/access/probe.yaml is a CronJob with the
/// rights that it needs. In the target it asks for one ConfigMap, which need not exist.
///
/// With --new-cluster it makes a cluster for all that, as a ManagedCluster, waits until that is ready, and deletes it at the end, also after
/// a step that failed, and when it is stopped by SIGINT, SIGTERM or SIGHUP. A cluster costs money as long as it is there.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  coppice probe -n coppice-probe --provider shop-probe      with a ClusterProvider: the probe reads no kubeconfig of an administrator
  coppice probe -n team --kubeconfig-secret target/config   with the kubeconfig in key config of the Secret target
  coppice probe -n team --gardener gardener/shop            a Shoot, by the ClusterProvider gardener
  coppice probe -n team --cluster-api shop -o json
  coppice probe -n team --new-cluster probe.yaml            makes the ManagedCluster of that file, and deletes it

Steps: sweep, create, issue, use, rotate, replaced (the first credential is not valid any more), delete, revoked (nor is the second).
With a new cluster make and ready come after sweep, and remove at the end.
A certificate cannot be revoked: of one that was replaced it is said until when it is valid, and at the end it has no rights.

Exit codes: 0 all steps were done, 1 error, 2 usage, 3 a step failed: which one, why and what to do is printed; or it was stopped.")]
pub(crate) struct ProbeArgs {
    #[command(flatten)]
    cluster: ClusterArgs,
    /// The name of the ClusterAccess and of its Secret
    #[arg(long, value_name = "NAME", value_parser = object_name, default_value = "coppice-probe")]
    name: String,
    /// The namespace of the target that it asks for a ConfigMap in; it has to exist
    #[arg(long, value_name = "NAMESPACE", value_parser = namespace_name, default_value = "default")]
    target_namespace: String,
    /// Who issues the credential
    #[arg(long, value_enum, default_value_t, ignore_case = true)]
    issuer: IssuerArg,
    /// How long a new cluster may take until it is ready, and again until it is deleted
    #[arg(
        long,
        value_name = "DURATION",
        value_parser = positive_duration,
        default_value = "1h",
        conflicts_with_all = ["kubeconfig_secret", "cluster_api", "gardener", "provider", "managed_cluster"]
    )]
    cluster_timeout: Duration,
    /// How long all else may take: a minute or more, since an API server takes a token for ten seconds after it was revoked
    #[arg(long, value_name = "DURATION", value_parser = positive_duration, default_value = "5m")]
    timeout: Duration,
    /// How to print
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    output: Output,
    /// Without the line of column names
    #[arg(long)]
    no_headers: bool,
}

/// As `spec.cluster` of the ClusterAccess.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct ClusterArgs {
    /// A Secret with a kubeconfig for the target, and the key in it [default: kubeconfig]
    #[arg(long, value_name = "SECRET[/KEY]", value_parser = secret_key)]
    kubeconfig_secret: Option<SecretKey>,
    /// A Cluster of Cluster API
    #[arg(long, value_name = "CLUSTER", value_parser = object_name)]
    cluster_api: Option<String>,
    /// A Shoot of Gardener, by the ClusterProvider of its project
    #[arg(long, value_name = "PROVIDER/SHOOT", value_parser = shoot)]
    gardener: Option<GardenerShoot>,
    /// A ClusterProvider
    #[arg(long, value_name = "PROVIDER", value_parser = object_name)]
    provider: Option<String>,
    /// A ManagedCluster that was ready
    #[arg(long, value_name = "CLUSTER", value_parser = object_name)]
    managed_cluster: Option<String>,
    /// A file with a ManagedCluster (- for standard input): it is made, and deleted at the end
    #[arg(long, value_name = "FILE")]
    new_cluster: Option<PathBuf>,
}

impl ClusterArgs {
    /// `made`: the name of the one that is made.
    fn source(&self, made: Option<&str>) -> ClusterSource {
        let managed = self.managed_cluster.as_deref().or(made);
        ClusterSource {
            kubeconfig_secret: self.kubeconfig_secret.clone(),
            cluster_api: self.cluster_api.clone().map(|name| CapiCluster { name }),
            gardener: self.gardener.clone(),
            provider: self.provider.clone().map(|name| ProviderName { name }),
            managed_cluster: managed.map(|name| ManagedClusterName { name: name.to_owned() }),
        }
    }
}

/// Reads `SECRET` or `SECRET/KEY`.
fn secret_key(text: &str) -> Result<SecretKey, ArgumentError> {
    let (name, key) = text.split_once('/').unwrap_or((text, "kubeconfig"));
    let name = object_name(name).map_err(|_| ArgumentError::SecretKey)?;
    if key.is_empty() || key.contains('/') {
        return Err(ArgumentError::SecretKey);
    }
    Ok(SecretKey { name, key: key.to_owned() })
}

/// Reads `PROVIDER/SHOOT`.
fn shoot(text: &str) -> Result<GardenerShoot, ArgumentError> {
    match text.split_once('/') {
        Some((provider, shoot)) if !provider.is_empty() && !shoot.is_empty() && !shoot.contains('/') => {
            Ok(GardenerShoot { provider: provider.to_owned(), shoot: shoot.to_owned() })
        }
        _ => Err(ArgumentError::Shoot),
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "PascalCase")]
enum IssuerArg {
    /// Tokens, which can be revoked
    #[default]
    TokenRequest,
    /// Certificates
    ClientCertificate,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Output {
    /// For people
    #[default]
    Table,
    /// For programs
    Json,
}

pub(crate) async fn run(args: &ProbeArgs, connection: &ConnectionArgs, io: &mut Io<'_>) -> Result<Exit> {
    let api = connect(connection, io).await?;
    let file = args.cluster.new_cluster.as_ref();
    let wanted = file.map(|file| template(file, &api.namespace, io)).transpose()?;
    let issuer = match args.issuer {
        IssuerArg::TokenRequest => Issuer::TokenRequest,
        IssuerArg::ClientCertificate => Issuer::ClientCertificate,
    };
    let source = args.cluster.source(wanted.as_ref().map(|wanted| wanted.name.as_str()));
    let most = args.most(wanted.as_ref());
    let ends = Instant::now().checked_add(most);
    let (now, until) = (io.now, later(io.now, most));
    let place = (&api.client, api.namespace.as_str());
    let cluster = wanted.map(|wanted| NewCluster::new(place, wanted, args.cluster_timeout, (now, until)));
    let mut probe = Probe {
        own: own_accesses(&api.client, &api.namespace),
        client: api.client.clone(),
        connection,
        namespace: api.namespace.clone(),
        name: args.name.clone(),
        spec: spec(source, issuer, &args.target_namespace, &args.name),
        target_namespace: args.target_namespace.clone(),
        timeout: args.timeout,
        deadline: Instant::now() + std::time::Duration::from(args.timeout),
        now,
        until,
    };
    let mut report = ProbeReport {
        namespace: probe.namespace.clone(),
        name: probe.name.clone(),
        last: Some(if cluster.is_some() { Step::Remove } else { Step::Revoked }),
        ..ProbeReport::default()
    };
    let mut created = Created::default();
    let end = tokio::select! {
        // A step that ends then says why.
        biased;
        done = Box::pin(steps(&mut probe, cluster.as_ref(), &mut report, &mut created, io)) => End::Steps(done),
        () = stopped(cluster.is_some()) => End::Stopped,
        () = passed(ends) => End::Late,
    };
    if !report.ok {
        report.cleanup = Box::pin(clean_up(&probe, cluster.as_ref(), &created, &end)).await;
    }
    match args.output {
        Output::Json => print::json(io.out, &report)?,
        Output::Table => write(&report, !args.no_headers, io)?,
    }
    // What is left is said before that.
    if let End::Steps(done) = end {
        done?;
    }
    Ok(if report.ok { Exit::Ok } else { Exit::Attention })
}

impl ProbeArgs {
    /// For how long a probe runs at most: what it has created is left to it until then.
    fn most(&self, wanted: Option<&Template>) -> std::time::Duration {
        // What others left is deleted, it is made, and it is deleted.
        let of_cluster = wanted.map_or(0, |_| self.cluster_timeout.as_secs().saturating_mul(3));
        std::time::Duration::from_secs(self.timeout.as_secs().saturating_add(of_cluster))
    }
}

/// That much later, or never.
fn later(now: Timestamp, most: std::time::Duration) -> Timestamp {
    SignedDuration::try_from(most).ok().and_then(|most| now.checked_add(most).ok()).unwrap_or(Timestamp::MAX)
}

/// How the steps ended.
enum End {
    /// By themselves.
    Steps(Result<()>),
    /// Somebody has stopped them.
    Stopped,
    /// All of its time is over: other probes delete what it has created.
    Late,
}

/// The uids of what a probe has created, as far as it knows them.
#[derive(Default)]
struct Created {
    cluster: Option<String>,
    access: Option<String>,
}

/// Deletes what a probe has created that failed or was stopped, without waiting; what came of it, none if there is nothing.
async fn clean_up(
    probe: &Probe<'_>,
    cluster: Option<&NewCluster>,
    created: &Created,
    end: &End,
) -> Option<String> {
    let mut said = Vec::new();
    said.extend(match end {
        End::Steps(_) => None,
        End::Stopped => Some("it was stopped".to_owned()),
        End::Late => {
            let more = if cluster.is_some() { "--timeout or --cluster-timeout" } else { "--timeout" };
            Some(format!("its time was over at {}: give it more by {more}", probe.until))
        }
    });
    said.extend(probe.give_up(created.access.as_deref()).await);
    if let Some(cluster) = cluster {
        said.extend(cluster.give_up(created.cluster.as_deref()).await);
    }
    (!said.is_empty()).then(|| said.join("; "))
}

/// Until somebody stops a probe that makes a cluster. Others are stopped as any command is: what they leave costs nothing, and the next one
/// deletes it.
async fn stopped(is_caught: bool) {
    if is_caught {
        signals::received().await;
    } else {
        std::future::pending::<()>().await;
    }
}

/// Until then; none: for ever.
async fn passed(ends: Option<Instant>) {
    match ends {
        Some(ends) => tokio::time::sleep_until(ends).await,
        None => std::future::pending().await,
    }
}

/// Does one step after another, until one fails.
async fn steps(
    probe: &mut Probe<'_>,
    cluster: Option<&NewCluster>,
    report: &mut ProbeReport,
    created: &mut Created,
    io: &mut Io<'_>,
) -> Result<()> {
    let Some(since) = step(Step::Sweep, report, io, sweep(probe, cluster)).await? else { return Ok(()) };
    let Some(cluster) = cluster else {
        return access_steps(probe, report, &mut created.access, io).await.map(drop);
    };
    created.cluster = step(Step::Make, report, io, cluster.make()).await?;
    let Some(uid) = created.cluster.as_deref() else { return Ok(()) };
    if step(Step::Ready, report, io, cluster.ready(uid)).await?.is_none() {
        return Ok(());
    }
    probe.not_counted_since(since);
    if access_steps(probe, report, &mut created.access, io).await?.is_some() {
        step(Step::Remove, report, io, cluster.removed(uid)).await?;
    }
    Ok(())
}

/// Deletes what probes left that have ended: accesses first, whose credentials are revoked in the clusters. Since when it is about clusters.
async fn sweep(probe: &Probe<'_>, cluster: Option<&NewCluster>) -> Result<(Instant, String)> {
    let left = probe.sweep().await;
    let since = Instant::now();
    let left = match (left, cluster) {
        (Ok(mut left), Some(cluster)) => {
            left.extend(cluster.sweep().await?);
            left
        }
        (Err(error), Some(cluster)) => {
            // Clusters cost money: they go although an access stays. What fails of that, the next probe finds.
            let _ = cluster.delete_left().await;
            return Err(error);
        }
        (left, None) => left?,
    };
    let said =
        if left.is_empty() { "nothing was left".to_owned() } else { format!("deleted {}", left.join(", ")) };
    Ok((since, said))
}

/// The steps with the `ClusterAccess`, until one fails: none. `created`: the uid of what was created.
async fn access_steps(
    probe: &Probe<'_>,
    report: &mut ProbeReport,
    created: &mut Option<String>,
    io: &mut Io<'_>,
) -> Result<Option<()>> {
    *created = step(Step::Create, report, io, probe.create()).await?;
    let Some(uid) = created.as_deref() else { return Ok(None) };
    let Some(first) = step(Step::Issue, report, io, probe.issued(None)).await? else { return Ok(None) };
    if step(Step::Use, report, io, probe.used(&first)).await?.is_none() {
        return Ok(None);
    }
    let Some(second) = step(Step::Rotate, report, io, probe.rotated(&first, uid)).await? else {
        return Ok(None);
    };
    if step(Step::Replaced, report, io, probe.replaced(&first, &second)).await?.is_none() {
        return Ok(None);
    }
    if step(Step::Delete, report, io, probe.deleted(uid)).await?.is_none() {
        return Ok(None);
    }
    step(Step::Revoked, report, io, probe.revoked(&second)).await
}

/// Does a step and reports it: what came of it, or none if it failed.
async fn step<T>(
    step: Step,
    report: &mut ProbeReport,
    io: &mut Io<'_>,
    work: impl Future<Output = Result<(T, String)>>,
) -> Result<Option<T>> {
    let began = Instant::now();
    let done = with_progress(step.doing(), io, work).await?;
    let (value, said) = match done {
        Ok((value, said)) => (Some(value), Ok(said)),
        Err(error) => (None, Err(error)),
    };
    report.add(step, began.elapsed().as_secs_f64(), &said);
    Ok(value)
}

fn write(report: &ProbeReport, with_headers: bool, io: &mut Io<'_>) -> Result<()> {
    let mut table = Table::new(&["STEP", "RESULT", "TOOK", "WHAT"]);
    for one in &report.steps {
        let result = if one.ok { Cell::styled("ok", OK) } else { Cell::styled("FAILED", ERROR) };
        let took = format!("{:.1}s", one.seconds);
        table.row(vec![one.step.as_str().into(), result, took.into(), one.message.as_str().into()]);
    }
    let mut to = io.screen();
    table.write(&mut to, with_headers)?;
    let advice = report.steps.iter().filter_map(|one| one.advice);
    for text in advice.chain(report.cleanup.as_deref()) {
        to.put("->", HEADING)?;
        to.put(" ", PLAIN)?;
        writeln!(to, "{text}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
