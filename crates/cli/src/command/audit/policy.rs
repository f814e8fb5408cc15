//! `coppice audit policy`.
#![allow(clippy::doc_markdown, reason = "comments on arguments are the help that people read in a terminal")]

use anyhow::Result;
use clap::Args;

use super::InstallationArgs;
use crate::args::namespace_name;
use crate::audit::policy::{PolicyOptions, text};
use crate::{Exit, Io};

/// Print the audit policy by which the API server logs what `coppice audit check` looks for
///
/// It logs edits of Coppice's objects of all kinds, edits and reads of Secrets, tokens of Coppice's accounts, and edits of its programs,
/// accounts, roles, admission policies and quotas of trees; on the level Metadata, so that no body is in the log and no Secret's value. Comments in it say what
/// no audit policy can do. It fits the cluster that Coppice runs in, and the clusters that credentials are for.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  coppice audit policy > audit-policy.yaml       kube-apiserver --audit-policy-file audit-policy.yaml --audit-log-path audit.log
  coppice audit policy --rules-only              rules to write in front of those of the policy that the API server has
  coppice audit policy --secrets-in team-a --secrets-in team-b   where the requests for all Secrets are too many

Exit codes: 0 printed, 1 error, 2 usage.")]
pub(super) struct PolicyArgs {
    /// Print only the rules: for the policy that the API server has, in front of its rules
    #[arg(long)]
    rules_only: bool,
    /// Log requests for Secrets of this namespace, of Coppice's own and of all namespaces at once, instead of all requests for Secrets; may be repeated
    #[arg(long, value_name = "NAMESPACE", value_parser = namespace_name)]
    secrets_in: Vec<String>,
    /// Log edits of Coppice's objects by others with what was written (level Request). None of them has a credential; webhook addresses
    /// of NamespaceManagers may
    #[arg(long)]
    with_bodies: bool,
    #[command(flatten)]
    installation: InstallationArgs,
}

pub(super) fn run(args: &PolicyArgs, io: &mut Io<'_>) -> Result<Exit> {
    let installation = args.installation.installation();
    let options = PolicyOptions {
        installation: &installation,
        secrets_in: &args.secrets_in,
        bodies: args.with_bodies,
        rules_only: args.rules_only,
    };
    write!(io.out, "{}", text(&options)?)?;
    Ok(Exit::Ok)
}
