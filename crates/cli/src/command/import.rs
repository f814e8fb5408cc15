//! `coppice import`: the manifests of other systems as ours.
#![allow(clippy::doc_markdown, reason = "comments on arguments are the help that people read in a terminal")]

mod consol;
mod kim;
mod ska;

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, Subcommand};

use crate::files::{self, Document};
use crate::import::Remark;
use crate::{Exit, Io};

/// Translate the manifests or settings of another system into ours
#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    #[command(subcommand)]
    system: System,
}

#[derive(Debug, Subcommand)]
enum System {
    Consol(consol::ConsolArgs),
    Kim(kim::KimArgs),
    Ska(ska::SkaArgs),
}

/// What every import reads.
#[derive(Debug, Args)]
struct InputArgs {
    /// Files, directories, or - for standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Also directories below directories
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Warnings only, no notes
    #[arg(short, long)]
    quiet: bool,
}

impl InputArgs {
    fn read(&self, io: &mut Io<'_>) -> Result<Vec<Document>> {
        files::read(&self.files, self.recursive, io.stdin)
    }
}

pub(crate) fn run(args: &ImportArgs, io: &mut Io<'_>) -> Result<Exit> {
    match &args.system {
        System::Consol(args) => consol::run(args, io),
        System::Kim(args) => kim::run(args, io),
        System::Ska(args) => ska::run(args, io),
    }
}

/// Reports the differences; returns whether one of them can change what happens.
fn print_remarks(about: &str, remarks: &[Remark], quiet: bool, io: &mut Io<'_>) -> Result<bool> {
    let mut differs = false;
    for remark in remarks {
        differs |= remark.differs;
        let word = if remark.differs { "warning" } else { "note" };
        if remark.differs || !quiet {
            io.print_note(&format!("{word}: {about}{}", remark.text))?;
        }
    }
    Ok(differs)
}
