//! `coppice preview`: what applying cluster managers would do to a cluster now.
#![allow(clippy::doc_markdown, reason = "comments on arguments are the help that people read in a terminal")]

mod compare;
mod text;

use std::path::PathBuf;

use anyhow::{Result, anyhow};
use clap::Args;
use jiff::Timestamp;
use serde::Serialize;

use crate::args::{ConnectionArgs, OutputArgs, OutputFormat, SourceArgs, TimeArg};
use crate::facts::ClusterManager;
use crate::lifecycle::{self, JudgedManagers, ManagerFilter, documents};
use crate::{Exit, Io, compute, files, print};
use compare::{ManagerPreview, NamespaceDue};

/// Show what applying ClusterNamespaceManagers would do to this cluster now
///
/// Puts those of the files into a copy of the cluster, in place of those of the same name, and decides as the operator does:
/// what each selects and governs, what it takes from others or leaves to them, what is due, when it would act, and whether the
/// budget suffices. Changes nothing. Due is what a policy is true for, and what is neither protected nor held, also while its
/// manager only observes.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  coppice preview -f manager.yaml                on the cluster as it is now
  coppice preview -f managers/ -o wide           with the names of all namespaces
  kubectl get ns,mns,cnsman,nsman,copcfg -A -o yaml > dump.yaml; coppice preview -f manager.yaml --from dump.yaml

Exit codes, for a CI pipeline that must not let anything become due unseen: 0 nothing becomes due, 3 something becomes due that is
not due without these files, or is acted upon that is only observed without them; 1 error, 2 usage.")]
pub(crate) struct PreviewArgs {
    /// Files or directories with ClusterNamespaceManagers (`-` for standard input); may be repeated
    #[arg(short = 'f', long = "filename", value_name = "FILE", num_args = 1.., required = true)]
    files: Vec<PathBuf>,
    /// Also directories below directories
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Read the cluster from files or directories instead: Namespaces, ManagedNamespaces, managers and CoppiceConfig
    #[arg(long, value_name = "FILE", num_args = 1..)]
    from: Vec<PathBuf>,
    /// As of another instant: RFC 3339, or +DURATION or -DURATION from now. Only the clock moves
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = TimeArg::parse)]
    at: Option<TimeArg>,
    /// The namespace that Coppice is installed in
    #[arg(long, value_name = "NAME", default_value = coppice_api::names::SYSTEM_NAMESPACE)]
    system_namespace: String,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Report<'a> {
    at: Timestamp,
    /// Each manager of the files, and others that govern other namespaces because of them.
    managers: &'a [ManagerPreview],
    /// What is due with these files and not without them.
    becomes_due: &'a [NamespaceDue],
    /// What would be deleted with these files, and is only observed without them.
    becomes_enforced: &'a [NamespaceDue],
}

pub(crate) async fn run(args: &PreviewArgs, connection: &ConnectionArgs, io: &mut Io<'_>) -> Result<Exit> {
    let documents = files::read(&args.files, args.recursive, io.stdin)?;
    let proposed = documents::cluster_managers(&documents)?;
    let source = SourceArgs {
        files: args.from.clone(),
        recursive: args.recursive,
        at: args.at,
        system_namespace: args.system_namespace.clone(),
        scale_kinds: Vec::new(),
    };
    let further_need_pods = proposed.iter().any(ClusterManager::needs_pods);
    let judged = JudgedManagers::Cluster { further_need_pods };
    let wanted = ManagerFilter { namespace: None, name: None, judged };
    let (snapshot, at) = lifecycle::read(&source, wanted, connection, io).await?;
    if let Err(why) = &snapshot.governed.managers {
        return Err(anyhow!("{why}: without them it is not known what would change"));
    }
    if proposed.iter().any(|manager| manager.spec.as_ref().is_ok_and(|spec| spec.supersede.is_some())) {
        io.print_note(
            "note: which namespaces are ready is known once their manager has looked at them; until then preview takes all that \
             do not fail for ready, and shows every namespace that could be superseded",
        )?;
    }
    let waits_for_failures = |manager: &ClusterManager| {
        let spec = manager.spec.as_ref().ok();
        spec.is_some_and(|spec| spec.policies().iter().any(|policy| policy.condition.is_of_health()))
    };
    if proposed.iter().any(waits_for_failures) {
        io.print_note(
            "note: what fails is known where a cluster manager with spec.health governs already, and preview takes it to fail on; another \
             spec begins its periods again, so that it is due later than shown, and not at all if it recovers within them",
        )?;
    }
    let preview = compute("comparing", io, move || compare::compare(snapshot, proposed, at)).await??;
    let report = Report {
        at,
        managers: &preview.managers,
        becomes_due: &preview.becomes_due,
        becomes_enforced: &preview.becomes_enforced,
    };
    match args.output.output {
        OutputFormat::Json => print::json(io.out, &report)?,
        OutputFormat::Yaml => print::yaml(io.out, &report)?,
        OutputFormat::Name => {
            for due in preview.becomes_due.iter().chain(&preview.becomes_enforced) {
                writeln!(io.screen(), "namespace/{}", due.namespace)?;
            }
        }
        OutputFormat::Table | OutputFormat::Wide => {
            text::write(&report, args.output.output == OutputFormat::Wide, &mut io.screen())?;
        }
    }
    let nothing = preview.becomes_due.is_empty() && preview.becomes_enforced.is_empty();
    Ok(if nothing { Exit::Ok } else { Exit::Attention })
}
