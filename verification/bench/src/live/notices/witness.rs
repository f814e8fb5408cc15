//! What the audit log says of one program: counted while it is read, since it becomes large.

use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};
use std::path::PathBuf;

use anyhow::Context as _;
use coppice_plane::AuditEvent;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// So much of a line that cannot be read is shown.
const SHOWN: usize = 300;
/// So much is read at once to find the end of a line.
const BLOCK: u64 = 64 * 1024;

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
    /// Lines that could not be read.
    pub(super) unreadable: usize,
    /// Why, of the first of them, and where it is.
    pub(super) first_unreadable: Option<String>,
}

/// What changes something.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub(super) enum Fact {
    /// A namespace was deleted.
    Deleted { deleted: String, at: Timestamp },
    /// A notice was written down.
    Given { given: String, at: Timestamp, recorded: Timestamp },
}

/// As much of a line as tells whether it counts: the others are not read any further.
#[derive(Deserialize)]
struct Whose {
    stage: String,
    #[serde(default)]
    user: Whom,
}

#[derive(Default, Deserialize)]
struct Whom {
    #[serde(default)]
    username: String,
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
        let mut file = std::fs::File::open(&path).with_context(|| path.display().to_string())?;
        let offset = end_of_lines(&mut file).with_context(|| path.display().to_string())?;
        Ok(Self { path, offset, user: user.to_owned(), seen: Seen::default() })
    }

    /// Reads on; returns what is new since the last time.
    pub(super) fn read(&mut self) -> anyhow::Result<Vec<Fact>> {
        let mut file = std::fs::File::open(&self.path)?;
        file.seek(SeekFrom::Start(self.offset))?;
        let (mut reader, mut line, mut facts) = (BufReader::new(file), Vec::new(), Vec::new());
        loop {
            line.clear();
            let read = reader.read_until(b'\n', &mut line)?;
            // The server may be writing the last line.
            if line.last() != Some(&b'\n') {
                return Ok(facts);
            }
            match self.event(&line) {
                Ok(event) => facts.extend(event.and_then(|event| self.seen.take(event))),
                Err(error) => {
                    // Everything else is still worth knowing; the report says that this is missing.
                    self.seen.unreadable += 1;
                    let text: String = String::from_utf8_lossy(&line).chars().take(SHOWN).collect();
                    let (path, offset) = (self.path.display(), self.offset);
                    let why = || format!("{path}, the line at byte {offset}: {error}: {}", text.trim_end());
                    self.seen.first_unreadable.get_or_insert_with(why);
                }
            }
            self.offset += read as u64;
        }
    }

    /// What a line says, if it is about an answer to this user.
    fn event(&self, line: &[u8]) -> serde_json::Result<Option<AuditEvent>> {
        let whose: Whose = serde_json::from_slice(line)?;
        let counts = whose.user.username == self.user && whose.stage == "ResponseComplete";
        counts.then(|| serde_json::from_slice(line)).transpose()
    }
}

/// Where the last whole line of a file ends: the server may be writing the next one.
fn end_of_lines(file: &mut std::fs::File) -> std::io::Result<u64> {
    let (mut end, mut block) = (file.seek(SeekFrom::End(0))?, Vec::new());
    while end > 0 {
        let start = end.saturating_sub(BLOCK);
        file.seek(SeekFrom::Start(start))?;
        block.clear();
        file.by_ref().take(end - start).read_to_end(&mut block)?;
        if let Some(at) = block.iter().rposition(|byte| *byte == b'\n') {
            return Ok(start + at as u64 + 1);
        }
        end = start;
    }
    Ok(0)
}

impl Seen {
    /// Counts a request; returns what is new by it.
    fn take(&mut self, event: AuditEvent) -> Option<Fact> {
        if event.verb == "watch" || event.resource == "leases" {
            return None;
        }
        *self.requests.entry(format!("{} {}", event.verb, event.resource)).or_default() += 1;
        if !event.succeeded() {
            return None;
        }
        if event.resource == "managednamespaces" && event.subresource == "status" {
            let (at, recorded) = (event.request.as_ref().and_then(announced)?, event.at);
            if self.given.contains_key(&event.namespace) {
                return None;
            }
            self.given.insert(event.namespace.clone(), Given { at, recorded });
            return Some(Fact::Given { given: event.namespace, at, recorded });
        }
        // Neither a second request for it nor one for no namespace changes anything.
        let deletes = event.verb == "delete" && event.resource == "namespaces" && !event.name.is_empty();
        if !deletes || self.deleted.contains_key(&event.name) {
            return None;
        }
        self.deleted.insert(event.name.clone(), event.received);
        Some(Fact::Deleted { deleted: event.name, at: event.received })
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
        let [Fact::Given { .. }, Fact::Deleted { deleted, .. }] = &*witness.read().unwrap() else {
            panic!("something else")
        };
        assert_eq!(deleted, "x");
        writeln!(file, "{}", &delete[30..]).unwrap();
        assert!(witness.read().unwrap().is_empty(), "it is deleted once");
        let requests: Vec<_> = witness.seen.requests.iter().map(|(kind, n)| (kind.as_str(), *n)).collect();
        assert_eq!(requests, [("delete namespaces", 2), ("update managednamespaces", 1)]);
        let given = witness.seen.given["x"];
        assert_eq!(given.at.to_string(), "2026-01-02T03:04:04Z");
        assert_eq!(given.recorded.to_string(), "2026-01-02T03:04:05.100006Z");
    }

    #[test]
    fn counting_begins_with_the_first_line_that_is_whole_then() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let get = line("me", "get", "pods", "null");
        std::fs::write(&path, format!("{get}\n{}", &get[..30])).unwrap();
        let mut witness = Witness::new(path.clone(), "me").unwrap();
        assert!(witness.read().unwrap().is_empty());
        std::fs::write(&path, format!("{get}\n{get}\n")).unwrap();
        witness.read().unwrap();
        assert_eq!((witness.seen.requests["get pods"], witness.seen.unreadable), (1, 0));
        std::fs::write(&path, &get[..30]).unwrap();
        assert_eq!(Witness::new(path, "me").unwrap().offset, 0, "no line is whole yet");
    }

    #[test]
    fn lines_that_cannot_be_read_are_counted_and_named_and_the_others_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let get = line("me", "get", "pods", "null");
        let without = |line: &str, field: &str| line.replace(field, "\"gone\"");
        // What others do needs no fields; this user's does. A list has no name, and its answer no code.
        let lines = [
            without(&line("other", "get", "pods", "null"), "\"requestReceivedTimestamp\""),
            get.clone(),
            without(&get, "\"stageTimestamp\""),
            format!("{}{get}", &get[..40]),
            without(&without(&get, "\"objectRef\""), "\"responseStatus\""),
            get.replace("ResponseComplete", "ResponseStarted"),
            line("me", "delete", "namespaces", "null"),
        ];
        std::fs::write(&path, "").unwrap();
        let mut witness = Witness::new(path.clone(), "me").unwrap();
        std::fs::write(&path, lines.map(|line| line + "\n").concat()).unwrap();
        let facts = witness.read().unwrap();
        assert!(matches!(&*facts, [Fact::Deleted { deleted, .. }] if deleted == "x"), "{facts:?}");
        let requests: Vec<_> = witness.seen.requests.iter().map(|(kind, n)| (kind.as_str(), *n)).collect();
        assert_eq!(requests, [("delete namespaces", 1), ("get ", 1), ("get pods", 1)]);
        assert_eq!(witness.seen.unreadable, 2);
        let first = witness.seen.first_unreadable.unwrap();
        assert!(
            first.contains("missing field `stageTimestamp`") && first.contains("audit.log, the line at byte"),
            "{first}"
        );
    }
}
