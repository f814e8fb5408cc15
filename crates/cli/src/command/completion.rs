//! `coppice completion`: scripts by which a shell completes commands.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use anyhow::Result;
use clap::{Args, ValueEnum};
use clap_complete::Shell;

use crate::{Exit, Io};

/// Print the completion script of a shell
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  source <(coppice completion bash)
  coppice completion zsh > \"${fpath[1]}/_coppice\"
  coppice completion fish > ~/.config/fish/completions/coppice.fish

For `kubectl coppice`, kubectl asks a program of the name kubectl_complete-coppice on the PATH:
  coppice completion kubectl > ~/bin/kubectl_complete-coppice && chmod +x ~/bin/kubectl_complete-coppice")]
pub(crate) struct CompletionArgs {
    /// The shell, or kubectl for its plugin mechanism
    #[arg(value_enum)]
    shell: For,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum For {
    Bash,
    Zsh,
    Fish,
    Powershell,
    Kubectl,
}

pub(crate) fn run(args: &CompletionArgs, io: &mut Io<'_>) -> Result<Exit> {
    let shell = match args.shell {
        For::Bash => Shell::Bash,
        For::Zsh => Shell::Zsh,
        For::Fish => Shell::Fish,
        For::Powershell => Shell::PowerShell,
        For::Kubectl => {
            write!(io.out, "{}", plugin_script()?)?;
            return Ok(Exit::Ok);
        }
    };
    // Into memory first: the generator takes a failed write, such as a closed pipe, for a bug.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut crate::clap_command(), "coppice", &mut script);
    io.out.write_all(&script)?;
    Ok(Exit::Ok)
}

/// What kubectl runs as `kubectl_complete-coppice` with the words typed so far: candidates, one a line, and last a
/// directive in the form of the Go library cobra (`:4`, no file names; `:0`, file names).
fn plugin_script() -> Result<String> {
    let mut command = crate::clap_command();
    command.build();
    let mut script =
        "#!/bin/sh\n# Completion of `kubectl coppice`, printed by `coppice completion kubectl`.\n".to_owned();
    let names = |command: &clap::Command| {
        let visible = command.get_subcommands().filter(|c| !c.is_hide_set());
        visible.map(|c| c.get_name().to_owned()).collect::<Vec<_>>().join(" ")
    };
    writeln!(script, "commands='{}'", names(&command))?;
    script.push_str("last=\nfor last in \"$@\"; do :; done\nif [ $# -le 1 ]; then\n  printf '%s\\n' $commands\n  echo :4\n  exit 0\nfi\ncase \"$1\" in\n");
    for sub in command.get_subcommands() {
        let flags: BTreeSet<String> =
            sub.get_arguments().filter_map(|a| Some(format!("--{}", a.get_long()?))).collect();
        let flags = flags.into_iter().collect::<Vec<_>>().join(" ");
        writeln!(script, "  {}) flags='{flags}' ;;", sub.get_name())?;
    }
    script.push_str("  *) flags= ;;\nesac\ncase \"$last\" in\n  -*) printf '%s\\n' $flags; echo :4 ;;\n  *) echo :0 ;;\nesac\n");
    Ok(script)
}
