//! `cargo xtask`: writes what is generated and checks what must hold in the whole tree.
#![allow(clippy::print_stdout, reason = "what it prints is its output")]

mod architecture;
mod chart;
mod cli_docs;
mod dependencies;
mod fields;
mod generate;
mod hazards;
mod health;
mod manifests;
mod message_templates;
mod monitoring;
mod pages;
mod reason_places;
mod reasons;
mod report;
mod security;
mod sources;
mod yaml;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::{Parser, Subcommand};

use crate::report::Report;

/// Generated artefacts of Coppice, and the checks of its tree.
#[derive(Parser)]
#[command(name = "cargo xtask", version)]
struct Cli {
    #[command(subcommand)]
    command: Action,
}

#[derive(Clone, Copy, Subcommand)]
enum Action {
    /// Write deploy/, the generated parts of the chart, the reference pages, and the tables in docs/kinds.
    Generate,
    /// All checks.
    Check,
    /// The crates depend on each other as designed, on nothing that they do not use, and the pure ones are pure.
    CheckArchitecture,
    /// What is generated is what would be generated now.
    CheckGenerated,
    /// The chart is well-formed, refuses bad values, and installs what deploy/install.yaml installs.
    CheckChart,
    /// Nothing banned is written in the sources, and no file is too long.
    CheckSources,
    /// The tests that docs/security.md names exist.
    CheckSecurity,
    /// Hazards that are cited have an entry in docs/hazards.md.
    CheckHazards,
    /// Paths, links and names of the code that pages name are there.
    CheckPages,
    /// Alerts, dashboard, runbooks and the configuration of kube-state-metrics name what there is.
    CheckMonitoring,
}

fn main() -> ExitCode {
    match act(Cli::parse().command) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Whether all is well.
fn act(action: Action) -> Result<bool> {
    let root = root()?;
    let mut report = Report::default();
    let all = matches!(action, Action::Check);
    if matches!(action, Action::Generate) {
        let written = generate::write(&root)?;
        println!("{written} files written, the others were fresh");
        return Ok(true);
    }
    if all || matches!(action, Action::CheckArchitecture) {
        report.add("architecture", architecture::check(&root)?);
    }
    if all || matches!(action, Action::CheckSources) {
        report.add("sources", sources::check(&root)?);
    }
    if all || matches!(action, Action::CheckSecurity) {
        report.add("tests of the security model", security::check(&root)?);
    }
    if all || matches!(action, Action::CheckHazards) {
        report.add("hazards", hazards::check(&root)?);
    }
    if all || matches!(action, Action::CheckPages) {
        report.add("pages", pages::check(&root)?);
    }
    if all || matches!(action, Action::CheckMonitoring) {
        report.add("monitoring", monitoring::check(&root)?);
    }
    if all || matches!(action, Action::CheckGenerated) {
        report.add("generated files", generate::check(&root)?);
    }
    if all || matches!(action, Action::CheckChart) {
        report.add("chart", chart::check(&root)?);
    }
    println!("{}", report.summary());
    Ok(report.is_clean())
}

/// The root of the workspace that this runs for. Cargo names it at run time: where several checkouts share a target folder, the
/// one that this was compiled in may be another.
fn root() -> Result<PathBuf> {
    let here = std::env::var_os("CARGO_MANIFEST_DIR").context("run this as `cargo run -p xtask`")?;
    let here = Path::new(&here);
    Ok(here.parent().context("xtask lives in a workspace")?.to_owned())
}
