//! `coppice crds`: the definitions of our kinds.

use anyhow::Result;
use clap::Args;
use coppice_api::names::installation_labels;

use crate::{Exit, Io};

/// Print the definitions of Coppice's kinds (CRDs) as YAML
#[derive(Debug, Args)]
#[command(after_help = "Example:
  coppice crds | kubectl apply --server-side -f -")]
pub(crate) struct CrdsArgs {}

pub(crate) fn run(_: &CrdsArgs, io: &mut Io<'_>) -> Result<Exit> {
    for mut crd in coppice_api::crds().into_iter().chain(coppice_clusters_api::crds()) {
        // As in the manifests: who applies both in turn changes nothing.
        let labels = installation_labels("kubectl", env!("CARGO_PKG_VERSION"));
        crd.metadata.labels = Some(labels.map(|(name, value)| (name.to_owned(), value)).into());
        write!(io.out, "---\n{}", crate::yaml::to_string(&crd)?)?;
    }
    Ok(Exit::Ok)
}
