//! `coppice import ska`.

use anyhow::Result;
use clap::Args;

use super::{InputArgs, print_remarks};
use crate::args::namespace_name;
use crate::ska::{self, Options};
use crate::{Exit, Io};

/// Translate the settings of the SKA Namespace Manager (0.3.1 and later)
///
/// Reads the values of its chart (all of them: `helm get values RELEASE --all -o yaml`), or the configuration files of its collect
/// controller and its action controller, or the Secrets or ConfigMaps that hold these. Files and Secrets beside values are laid over
/// them, as there. Writes ClusterNamespaceManagers to standard output; those that delete observe until you set their mode to Enforce. An
/// entry that cannot be expressed exactly, such as a regular expression that no glob expresses, is reported and not written: a selector
/// that is too wide deletes. A field that is not known is an error. Standard error says what is different: a note what Coppice does in its
/// own way, a warning what is not carried over.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  helm get values namespace-manager -n ci-manager --all -o yaml | coppice import ska --namespace ci-manager - > managers.yaml
  coppice import ska collect.yml action.yml > managers.yaml; coppice preview -f managers.yaml
  kubectl get secrets -n ci-manager -o yaml | coppice import ska -
  coppice import ska --namespace ci-manager --without-notify values.yaml   while that system notifies owners, too

Exit codes: 0 everything is carried over, 3 something is not (see the warnings), 1 error (nothing is written), 2 usage.")]
pub(super) struct SkaArgs {
    /// The namespace that the SKA Namespace Manager runs in, which it never deletes: no manager selects it [default: what the files say]
    // The flag of all commands, with a meaning of its own.
    #[arg(short, long, value_name = "NAME", value_parser = namespace_name)]
    namespace: Option<String>,
    /// Leave spec.notify out, and nothing else: while that system runs, too, owners would get the messages of both
    #[arg(long)]
    without_notify: bool,
    #[command(flatten)]
    input: InputArgs,
}

pub(super) fn run(args: &SkaArgs, io: &mut Io<'_>) -> Result<Exit> {
    let documents = args.input.read(io)?;
    let options = Options { namespace: args.namespace.clone(), without_notify: args.without_notify };
    let imported = ska::import(&documents, &options)?;
    let differs = print_remarks("", &imported.remarks, args.input.quiet, io)?;
    for line in &imported.head {
        writeln!(io.out, "# {line}")?;
    }
    for (comment, yaml) in &imported.objects {
        writeln!(io.out, "---")?;
        for line in comment {
            writeln!(io.out, "# {line}")?;
        }
        writeln!(io.out, "{}", yaml.trim_end())?;
    }
    Ok(if differs { Exit::Attention } else { Exit::Ok })
}
