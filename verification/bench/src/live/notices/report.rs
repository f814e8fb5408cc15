//! The report of everything that was measured, in files that are whole at any time.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::json;

use super::figures::{ProgramFigures, table};
use super::measured::Measured;
use crate::report::Machine;

/// A report that is written again and again.
pub struct NoticesReport {
    /// Where and by which command it is measured.
    pub machine: Machine,
    folder: PathBuf,
    outcomes: Vec<ProgramFigures>,
}

impl NoticesReport {
    /// One that goes into `notices.md` and `notices.json` of a folder.
    pub fn new(machine: Machine, folder: PathBuf) -> anyhow::Result<Self> {
        std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        Ok(Self { machine, folder, outcomes: Vec::new() })
    }

    /// Where it is.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Writes it while something is being measured.
    pub(super) fn save_meanwhile(&mut self, measured: &Measured) -> anyhow::Result<()> {
        self.outcomes.push(ProgramFigures::of(measured));
        let saved = self.save(Some("it is being measured"));
        self.outcomes.pop();
        saved
    }

    /// Adds what was measured of one program, as a whole or until that happened.
    pub(super) fn add(&mut self, measured: &Measured, incomplete: Option<&str>) -> anyhow::Result<()> {
        self.outcomes.push(ProgramFigures::of(measured));
        self.save(incomplete)
    }

    /// Writes it; if it is incomplete, with the reason.
    pub fn save(&self, incomplete: Option<&str>) -> anyhow::Result<()> {
        let json = json!({"machine": self.machine, "incomplete": incomplete, "outcomes": self.outcomes});
        self.write("notices.json", &format!("{json}\n"))?;
        self.write("notices.md", &self.text(incomplete)?)
    }

    /// The report as text; if it is incomplete, with the reason.
    pub fn text(&self, incomplete: Option<&str>) -> anyhow::Result<String> {
        let machine = serde_json::to_string(&self.machine)?;
        let why = incomplete.map(|why| format!("**incomplete**: {why}\n\n")).unwrap_or_default();
        Ok(format!("{why}{machine}\n\n{}", table(&self.outcomes)))
    }

    /// A reader never sees half of it, and a full disk leaves the one before.
    fn write(&self, name: &str, text: &str) -> anyhow::Result<()> {
        let (path, part) = (self.folder.join(name), self.folder.join(format!("{name}.part")));
        std::fs::write(&part, text)
            .and_then(|()| std::fs::rename(&part, &path))
            .with_context(|| path.display().to_string())
    }
}
