//! The report while it grows: written again whenever there is something new, so that nothing is lost when a later part
//! fails.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{Part, Report};

/// A report and the folder that it is written to.
#[derive(Debug)]
pub struct ReportWriter {
    report: Report,
    folder: PathBuf,
}

impl ReportWriter {
    /// A report that goes to this folder.
    pub const fn new(report: Report, folder: PathBuf) -> Self {
        Self { report, folder }
    }

    /// Begins a part; one of the same name is begun again.
    pub fn begin(&mut self, part: Part) {
        self.report.parts.retain(|p| p.name != part.name);
        self.report.parts.push(part);
    }

    /// The part of this name, begun without a word if need be.
    pub fn part(&mut self, name: &'static str) -> &mut Part {
        let parts = &mut self.report.parts;
        let at = parts.iter().position(|p| p.name == name).unwrap_or_else(|| {
            parts.push(Part { name, title: name, ..Part::default() });
            parts.len() - 1
        });
        &mut parts[at]
    }

    /// Writes what there is.
    pub fn save(&mut self) -> anyhow::Result<()> {
        self.report.machine.measure_load_after();
        self.report.write(&self.folder)
    }

    /// Notes how a part ended, and writes what there is. What it had measured before it failed stays.
    pub fn end(&mut self, name: &'static str, took: Duration, broken: Option<&str>) -> anyhow::Result<()> {
        let part = self.part(name);
        part.seconds = took.as_secs();
        match broken.filter(|_| !part.whole) {
            Some(why) => part.fails(why),
            None => part.whole = part.broken.is_none(),
        }
        self.save()
    }

    /// The names of the parts that are not whole.
    pub fn broken(&self) -> Vec<&'static str> {
        self.report.parts.iter().filter(|p| p.broken.is_some()).map(|p| p.name).collect()
    }

    /// Where it is written to.
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Machine, Subject};
    use super::*;

    #[test]
    fn a_part_that_fails_keeps_its_figures_and_spoils_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let report = Report { machine: Machine::default(), runs: 1, quick: false, parts: Vec::new() };
        let mut writer = ReportWriter::new(report, folder.path().to_owned());
        writer.begin(Part { name: "ttl", title: "Dates", ..Part::default() });
        writer.part("ttl").add("p99", "ms", Subject::Coppice, None, 7.0);
        writer.end("ttl", Duration::from_secs(3), Some("the plane is gone")).unwrap();
        writer.part("idle").add("writes", "", Subject::Coppice, None, 0.0);
        writer.part("idle").whole = true;
        writer.end("idle", Duration::from_secs(1), Some("another part took too long")).unwrap();
        writer.end("start", Duration::from_secs(2), None).unwrap();
        assert_eq!(writer.broken(), ["ttl"]);
        let json = std::fs::read_to_string(folder.path().join("report.json")).unwrap();
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        let whole = json["parts"].as_array().unwrap().iter().map(|part| part["whole"].as_bool().unwrap());
        assert_eq!(whole.collect::<Vec<_>>(), [false, true, true], "the JSON says the same as the page");
        let text = std::fs::read_to_string(folder.path().join("report.md")).unwrap();
        assert!(text.contains("the plane is gone") && text.contains("| p99, ms | 7 |"), "{text}");
        assert!(text.contains("| writes | 0 |"), "{text}");
        writer.begin(Part { name: "ttl", ..Part::default() });
        assert_eq!(writer.broken(), [""; 0], "begun again");
    }
}
