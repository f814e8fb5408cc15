//! `coppice crds`: the definitions of our kinds.

use anyhow::Result;
use clap::Args;

use crate::{Exit, Io};

/// Print the definitions of Coppice's kinds (CRDs) as YAML
#[derive(Debug, Args)]
#[command(after_help = "Example:
  coppice crds | kubectl apply --server-side -f -")]
pub(crate) struct CrdsArgs {}

pub(crate) fn run(_: &CrdsArgs, io: &mut Io<'_>) -> Result<Exit> {
    for crd in coppice_api::crds().into_iter().chain(coppice_clusters_api::crds()) {
        write!(io.out, "---\n{}", crate::yaml::to_string(&crd)?)?;
    }
    Ok(Exit::Ok)
}
