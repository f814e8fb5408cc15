//! What the audit log says of one program: counted while it is read, since it becomes large.

use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead as _, BufReader, Seek as _, SeekFrom};
use std::path::PathBuf;

use anyhow::Context as _;
use coppice_plane::AuditEvent;
use jiff::Timestamp;
use serde_json::Value;

/// A reader that counts the requests of one user.
#[derive(Debug)]
pub(super) struct Witness {
    path: PathBuf,
    offset: u64,
    user: String,
    /// What has been counted.
    pub(super) seen: Seen,
}

/// What a user has asked for.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    /// Its requests that were answered, by verb and resource; without watches and what is about Leases.
    pub(super) requests: BTreeMap<String, usize>,
    /// When its deletion of a namespace arrived.
    pub(super) deleted: HashMap<String, Timestamp>,
    /// Of each namespace the notice that its record was given first.
    pub(super) given: HashMap<String, Given>,
}

/// A notice as it was written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Given {
    /// When it was given, as the record says: a whole second.
    pub(super) at: Timestamp,
    /// When it was in the record.
    pub(super) recorded: Timestamp,
}

impl Witness {
    /// Begins with what the log of a plane does not have yet.
    pub(super) fn new(path: PathBuf, user: &str) -> anyhow::Result<Self> {
        let offset = std::fs::metadata(&path).with_context(|| path.display().to_string())?.len();
        Ok(Self { path, offset, user: user.to_owned(), seen: Seen::default() })
    }

    /// Reads on; returns the namespaces that it has deleted since the last time.
    pub(super) fn read(&mut self) -> anyhow::Result<Vec<String>> {
        let mut file = std::fs::File::open(&self.path)?;
        file.seek(SeekFrom::Start(self.offset))?;
        let (mut reader, mut line, mut deleted) = (BufReader::new(file), Vec::new(), Vec::new());
        loop {
            line.clear();
            let read = reader.read_until(b'\n', &mut line)?;
            // The server may be writing the last line.
            if line.last() != Some(&b'\n') {
                return Ok(deleted);
            }
            self.offset += read as u64;
            let event: AuditEvent = serde_json::from_slice(&line).context("a line of the audit log")?;
            if event.user == self.user && event.stage == "ResponseComplete" {
                deleted.extend(self.seen.take(event));
            }
        }
    }
}

impl Seen {
    /// Counts a request; returns the namespace that it has deleted.
    fn take(&mut self, event: AuditEvent) -> Option<String> {
        if event.verb == "watch" || event.resource == "leases" {
            return None;
        }
        *self.requests.entry(format!("{} {}", event.verb, event.resource)).or_default() += 1;
        if !event.succeeded() {
            return None;
        }
        if event.resource == "managednamespaces" && event.subresource == "status" {
            if let Some(at) = event.request.as_ref().and_then(announced) {
                self.given.entry(event.namespace).or_insert(Given { at, recorded: event.at });
            }
            return None;
        }
        let new = event.verb == "delete" && event.resource == "namespaces";
        (new && self.deleted.insert(event.name.clone(), event.received).is_none()).then_some(event.name)
    }
}

/// When the notice of a deletion was given that a status, or a patch of one, has for its owner.
fn announced(object: &Value) -> Option<Timestamp> {
    let notices = object["status"]["notices"].as_array()?;
    let first = notices.iter().find(|one| one["for"] == "DeletionAnnounced")?;
    first["givenAt"].as_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn line(user: &str, verb: &str, resource: &str, body: &str) -> String {
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        format!(
            r#"{{"auditID":"1","stage":"ResponseComplete","requestURI":"/","verb":"{verb}","user":{{"username":"{user}"}},"objectRef":{{"resource":"{resource}","subresource":"{subresource}","namespace":"x","name":"x"}},"responseStatus":{{"code":200}},"requestObject":{body},"requestReceivedTimestamp":"2026-01-02T03:04:05.000006Z","stageTimestamp":"2026-01-02T03:04:05.100006Z"}}"#
        )
    }

    #[test]
    fn requests_of_one_user_are_counted_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let mut file = std::fs::File::create(&path).unwrap();
        writeln!(file, "{}", line("me", "get", "pods", "null")).unwrap();
        let mut witness = Witness::new(path, "me").unwrap();
        let status = r#"{"status":{"notices":[{"for":"Unstable"},{"for":"DeletionAnnounced","givenAt":"2026-01-02T03:04:04Z"}]}}"#;
        writeln!(file, "{}", line("me", "update", "managednamespaces/status", status)).unwrap();
        writeln!(file, "{}", line("other", "get", "pods", "null")).unwrap();
        writeln!(file, "{}", line("me", "update", "leases", "null")).unwrap();
        let delete = line("me", "delete", "namespaces", "null");
        write!(file, "{delete}\n{}", &delete[..30]).unwrap();
        assert_eq!(witness.read().unwrap(), ["x"]);
        writeln!(file, "{}", &delete[30..]).unwrap();
        assert!(witness.read().unwrap().is_empty(), "it is deleted once");
        let requests: Vec<_> = witness.seen.requests.iter().map(|(kind, n)| (kind.as_str(), *n)).collect();
        assert_eq!(requests, [("delete namespaces", 2), ("update managednamespaces", 1)]);
        let given = witness.seen.given["x"];
        assert_eq!(given.at.to_string(), "2026-01-02T03:04:04Z");
        assert_eq!(given.recorded.to_string(), "2026-01-02T03:04:05.100006Z");
    }
}
