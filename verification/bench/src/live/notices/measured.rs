//! What is measured of one program, from the first moment at which something is to be done: kept here as long as it is measured, and
//! written as it is seen, so that no end of anything loses it.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::time::Instant;

use anyhow::Context as _;
use coppice_tests::scale::process::Sample;
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use super::fleet::Fleet;
use super::kept::End;
use super::slack::{Message, Posted, Slack};
use super::witness::{Fact, Witness};
use crate::live::now;

/// One program's.
pub(super) struct Measured {
    /// Whose.
    pub(super) subject: &'static str,
    pub(super) fleet: Fleet,
    /// A message is due so long before its namespace is.
    pub(super) lead: SignedDuration,
    /// The first moment at which something is to be done.
    pub(super) begins: Timestamp,
    pub(super) witness: Witness,
    pub(super) looks: Vec<Look>,
    pub(super) ends: Vec<End>,
    slack: Slack,
    journal: Journal,
}

/// Memory at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    pub(super) at: Timestamp,
    /// The program's.
    pub(super) program: Sample,
    /// That of this program, resident, in KiB.
    pub(super) own: u64,
}

/// A line of the file.
#[derive(Serialize)]
#[serde(untagged)]
enum Line<'a> {
    Fact(&'a Fact),
    Message {
        message: &'a Message,
    },
    End {
        end: &'a End,
    },
    Look {
        at: Timestamp,
        memory_kib: u64,
        peak_kib: u64,
        cpu_s: f64,
        own_memory_kib: u64,
        deleted: usize,
        requests: usize,
    },
}

impl Measured {
    /// Nothing yet; `path` is where it is written to.
    pub(super) fn new(
        subject: &'static str,
        (fleet, lead): (Fleet, SignedDuration),
        begins: Timestamp,
        (witness, slack): (Witness, Slack),
        path: &Path,
    ) -> anyhow::Result<Self> {
        let journal = Journal::new(path)?;
        let (looks, ends) = (Vec::new(), Vec::new());
        Ok(Self { subject, fleet, lead, begins, witness, looks, ends, slack, journal })
    }

    /// Reads on in the audit log and in what was posted; returns the namespaces that were deleted since the last time.
    pub(super) fn read(&mut self) -> anyhow::Result<Vec<String>> {
        let facts = self.witness.read()?;
        for fact in &facts {
            self.journal.write(&Line::Fact(fact))?;
        }
        for message in self.slack.since(self.journal.messages) {
            self.journal.write(&Line::Message { message: &message })?;
            self.journal.messages += 1;
        }
        let deleted = |fact| if let Fact::Deleted { deleted, .. } = fact { Some(deleted) } else { None };
        Ok(facts.into_iter().filter_map(deleted).collect())
    }

    /// Adds a look at the program's memory, and the end that it had before.
    pub(super) fn look(&mut self, (program, end): (Sample, Option<End>)) -> anyhow::Result<()> {
        if let Some(end) = end {
            self.journal.write(&Line::End { end: &end })?;
            self.ends.push(end);
        }
        let look = Look { at: now(), program, own: Sample::of(std::process::id(), Instant::now())?.rss };
        self.looks.push(look);
        self.journal.write(&Line::Look {
            at: look.at,
            memory_kib: program.rss,
            peak_kib: program.peak,
            cpu_s: program.cpu,
            own_memory_kib: look.own,
            deleted: self.witness.seen.deleted.len(),
            requests: self.witness.seen.requests.values().sum(),
        })?;
        self.journal.flush()
    }

    /// How far it is, of so many namespaces.
    pub(super) fn state(&self, all: usize) -> String {
        let (deleted, messages) = (self.witness.seen.deleted.len(), self.journal.messages);
        let memory = |of: fn(&Look) -> u64| self.looks.last().map_or(0, of) / 1024;
        let (theirs, own) = (memory(|look| look.program.rss), memory(|look| look.own));
        let ends = self.ends.len();
        format!(
            "{deleted} of {all} are deleted, {messages} messages; it has {theirs} MiB and ended {ends} times, this program has {own} MiB ..."
        )
    }

    /// Everything that was posted.
    pub(super) fn posted(&self) -> Posted {
        self.slack.posted()
    }
}

/// A file of JSON lines.
struct Journal {
    file: BufWriter<File>,
    /// So many messages are in it.
    messages: usize,
}

impl Journal {
    fn new(path: &Path) -> anyhow::Result<Self> {
        let file = File::create(path).with_context(|| format!("write {}", path.display()))?;
        Ok(Self { file: BufWriter::new(file), messages: 0 })
    }

    fn write(&mut self, line: &Line<'_>) -> anyhow::Result<()> {
        serde_json::to_writer(&mut self.file, line)?;
        self.file.write_all(b"\n").context("write what is measured")
    }

    fn flush(&mut self) -> anyhow::Result<()> {
        self.file.flush().context("write what is measured")
    }
}
