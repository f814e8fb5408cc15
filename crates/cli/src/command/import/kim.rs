//! `coppice import kim`.

use anyhow::Result;
use clap::Args;
use coppice_quantity::Duration;

use super::{InputArgs, print_remarks};
use crate::args::{object_name, positive_duration};
use crate::kim::{self, Options};
use crate::{Exit, Io};

/// Translate objects of Kyma Infrastructure Manager (infrastructuremanager.kyma-project.io/v1)
///
/// Reads a dump: GardenerClusters, Runtimes, Kymas, the Secrets with their kubeconfigs, Shoots, and the ClusterAccesses that exist already.
/// Writes a ClusterAccess for each GardenerCluster, and for each Kyma without one whose Shoot is known, to standard output, with the name and the
/// labels of its Secret, and suspended: no Secret is touched. What exists already is left out. Of Secrets only names, labels and keys are read; nothing that they hold is written anywhere.
/// Standard error says what is different: a note what Coppice does in its own way, a warning what is left for you. With the ClusterAccesses in
/// the dump it says the next step for each.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  kubectl get gardenercluster,runtime,kyma,secret,clusteraccess -A -o yaml | coppice import kim - > accesses.yaml
  coppice import kim kcp.yaml shoots.yaml > accesses.yaml && kubectl diff -f accesses.yaml
  coppice import kim --ttl 12h --rotate-at 50 kcp.yaml > accesses.yaml
  coppice import kim --managed-clusters kcp.yaml shoots.yaml > all.yaml

Exit codes: 0 everything is carried over, 3 something is left for you (see the warnings), 1 error (nothing is written), 2 usage.")]
pub(super) struct KimArgs {
    /// The ClusterProvider that has, or will have, the kubeconfig of the Gardener project
    #[arg(long, value_name = "NAME", value_parser = object_name, default_value = "gardener")]
    provider: String,
    /// For how long credentials are asked for; there the flag kubeconfig-expiration-time says it [default: a day, as there]
    #[arg(long, value_name = "TIME", value_parser = positive_duration)]
    ttl: Option<Duration>,
    /// After how many percent of that they are replaced; there the flag minimal-rotation-time says it, as a fraction [default: 60, as there]
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(10..=90))]
    rotate_at: Option<u32>,
    /// Also write a ManagedCluster for each Runtime whose Shoot is in the dump
    #[arg(long)]
    managed_clusters: bool,
    #[command(flatten)]
    input: InputArgs,
}

pub(super) fn run(args: &KimArgs, io: &mut Io<'_>) -> Result<Exit> {
    let documents = args.input.read(io)?;
    let options = Options {
        provider: args.provider.clone(),
        ttl: args.ttl,
        rotate_at: args.rotate_at,
        managed_clusters: args.managed_clusters,
    };
    let imported = kim::import(&documents, &options)?;
    let mut exit = Exit::Ok;
    for (about, remarks) in &imported.remarks {
        if print_remarks(about, remarks, args.input.quiet, io)? {
            exit = Exit::Attention;
        }
    }
    for line in &imported.head {
        writeln!(io.out, "# {line}")?;
    }
    for yaml in &imported.objects {
        writeln!(io.out, "---\n{}", yaml.trim_end())?;
    }
    Ok(exit)
}
