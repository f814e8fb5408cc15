//! The audit log, read as it grows. It becomes large: nothing is read twice, and bodies are not kept.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::PathBuf;

use anyhow::Context as _;
use coppice_plane::{ADMIN, AuditEvent, OPERATOR};

/// A reader of one plane's audit log.
#[derive(Debug)]
pub(super) struct Tail {
    path: PathBuf,
    offset: u64,
    events: Vec<AuditEvent>,
    keep: fn(&AuditEvent) -> bool,
}

impl Tail {
    /// Reads the log from its beginning.
    pub(super) const fn new(path: PathBuf) -> Self {
        Self { path, offset: 0, events: Vec::new(), keep: |_| true }
    }

    /// From now on keeps only these.
    pub(super) fn keep(&mut self, keep: fn(&AuditEvent) -> bool) {
        self.keep = keep;
    }

    /// Everything that the operator and the benchmark asked for and got an answer to, since the last
    /// [`Tail::skip_existing`].
    pub(super) fn events(&mut self) -> anyhow::Result<&[AuditEvent]> {
        let mut file = File::open(&self.path).with_context(|| format!("open {}", self.path.display()))?;
        file.seek(SeekFrom::Start(self.offset))?;
        let mut text = Vec::new();
        file.read_to_end(&mut text)?;
        // The server may be writing the last line.
        let complete = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        for line in text[..complete].split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let event: AuditEvent = serde_json::from_slice(line).context("a line of the audit log")?;
            if wanted(&event) && (self.keep)(&event) {
                self.events.push(AuditEvent { request: None, response: None, ..event });
            }
        }
        self.offset += complete as u64;
        Ok(&self.events)
    }

    /// Leaves out what is in the log by now.
    pub(super) fn skip_existing(&mut self) -> anyhow::Result<()> {
        self.events()?;
        self.events.clear();
        Ok(())
    }
}

fn wanted(event: &AuditEvent) -> bool {
    let whose = event.user == ADMIN || event.user == OPERATOR && !event.user_agent.starts_with("kubectl");
    whose && (event.stage == "ResponseComplete" || event.verb == "watch")
}

/// The operator's successful deletion of a namespace.
pub(super) fn deletes(event: &AuditEvent) -> bool {
    event.user == OPERATOR && event.verb == "delete" && event.resource == "namespaces" && event.succeeded()
}

/// A write by the operator that is not about its Lease.
pub(super) fn writes(event: &AuditEvent) -> bool {
    event.user == OPERATOR && event.is_write() && event.resource != "leases"
}

/// The beginning of a list of everything there is of a kind, by the operator; its further pages are not.
pub(super) fn begins_list(event: &AuditEvent) -> bool {
    let listed = event.verb == "list" || event.uri.contains("sendInitialEvents=true");
    event.user == OPERATOR && listed && event.namespace.is_empty() && !event.uri.contains("continue=")
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn line(user: &str, verb: &str, resource: &str, uri: &str) -> String {
        format!(
            r#"{{"auditID":"1","stage":"ResponseComplete","requestURI":"{uri}","verb":"{verb}","user":{{"username":"{user}"}},"objectRef":{{"resource":"{resource}","name":"x"}},"responseStatus":{{"code":200}},"requestReceivedTimestamp":"2026-01-02T03:04:05.000006Z","stageTimestamp":"2026-01-02T03:04:05.100006Z"}}"#
        )
    }

    #[test]
    fn a_growing_log_is_read_once_and_a_half_written_line_later() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let mut file = File::create(&path).unwrap();
        let mut tail = Tail::new(path);
        let whole = line(OPERATOR, "delete", "namespaces", "/api/v1/namespaces/x");
        write!(file, "{whole}\n{}", &whole[..30]).unwrap();
        assert_eq!(tail.events().unwrap().len(), 1);
        writeln!(file, "{}\n{}", &whole[30..], line("alice", "get", "pods", "/x")).unwrap();
        assert_eq!(tail.events().unwrap().len(), 2, "what others do is not kept");
        assert!(tail.events().unwrap().iter().all(deletes));
        tail.skip_existing().unwrap();
        assert!(tail.events().unwrap().is_empty());
        tail.keep(writes);
        writeln!(file, "{}", line(OPERATOR, "get", "namespaces", "/api/v1/namespaces/x")).unwrap();
        assert!(tail.events().unwrap().is_empty(), "what is not asked for is not kept");
        writeln!(file, "not an event").unwrap();
        assert!(tail.events().is_err());
    }

    #[test]
    fn requests_are_classified() {
        let event = |line: String| serde_json::from_str::<AuditEvent>(&line).unwrap();
        let first = event(line(OPERATOR, "list", "pods", "/api/v1/pods?limit=100"));
        let next = event(line(OPERATOR, "list", "pods", "/api/v1/pods?limit=100&continue=abc"));
        let streamed =
            event(line(OPERATOR, "watch", "pods", "/api/v1/pods?sendInitialEvents=true&watch=true"));
        assert_eq!([&first, &next, &streamed].map(begins_list), [true, false, true]);
        let lease = event(line(OPERATOR, "update", "leases", "/x"));
        let status = event(line(OPERATOR, "update", "namespacemanagers", "/x"));
        assert_eq!([&first, &lease, &status].map(writes), [false, false, true]);
    }
}
