//! The API server's audit log, as far as tests read it.

use std::{
    fs::File,
    io::{Read as _, Seek as _, SeekFrom},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use crate::error::{Error, Result, io};

/// One stage of one request.
#[derive(Clone, Debug, Deserialize)]
#[serde(from = "Line")]
pub struct AuditEvent {
    /// The same in every stage of a request.
    pub id: String,
    /// `ResponseComplete`; for watches `ResponseStarted` as well; `Panic`.
    pub stage: String,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete` or `deletecollection`.
    pub verb: String,
    /// Path and query of the request.
    pub uri: String,
    /// Name of the user.
    pub user: String,
    /// What the client calls itself.
    pub user_agent: String,
    /// API group; empty for the core group.
    pub group: String,
    /// Plural name of the resource.
    pub resource: String,
    /// Such as `status`; empty if none.
    pub subresource: String,
    /// Namespace; empty if none.
    pub namespace: String,
    /// Name of the object; empty if the request names none, as lists do.
    pub name: String,
    /// HTTP status; none as long as there is no answer.
    pub code: Option<u16>,
    /// What the server said to a refused request; else empty.
    pub message: String,
    /// Body of a write: the object, the patch, or the options of a delete.
    pub request: Option<Value>,
    /// Body of the answer to a write by a user or the operator.
    pub response: Option<Value>,
    /// When the request arrived.
    pub received: Timestamp,
    /// When this stage was reached.
    pub at: Timestamp,
}

impl AuditEvent {
    /// True for a request that may change something.
    pub fn is_write(&self) -> bool {
        !matches!(self.verb.as_str(), "get" | "list" | "watch")
    }

    /// True for an answer of the 2xx kind.
    pub fn succeeded(&self) -> bool {
        self.code.is_some_and(|code| (200..300).contains(&code))
    }

    /// A precondition of a delete: `uid` or `resourceVersion`.
    pub fn precondition(&self, field: &str) -> Option<&str> {
        self.request.as_ref()?.get("preconditions")?.get(field)?.as_str()
    }
}

/// An audit log that is read again and again: only what is new is parsed.
#[derive(Debug)]
pub(crate) struct Log {
    file: PathBuf,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    events: Vec<Arc<AuditEvent>>,
    /// Bytes of the complete lines so far.
    length: u64,
}

impl Log {
    pub(crate) fn new(file: PathBuf) -> Self {
        Self { file, known: Mutex::default() }
    }

    /// All complete lines; the server may be writing the last.
    pub(crate) fn read(&self) -> Result<Vec<Arc<AuditEvent>>> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let new = since(&self.file, known.length).map_err(io(format!("read {}", self.file.display())))?;
        let complete = new.rfind('\n').map_or("", |end| &new[..=end]);
        for line in complete.lines() {
            let event = serde_json::from_str(line).map_err(|reason| Error::Audit {
                file: self.file.clone(),
                line: known.events.len() + 1,
                reason,
            })?;
            known.events.push(Arc::new(event));
            known.length += line.len() as u64 + 1;
        }
        Ok(known.events.clone())
    }
}

/// The text of a file from a place on.
fn since(file: &Path, place: u64) -> std::io::Result<String> {
    let mut file = File::open(file)?;
    file.seek(SeekFrom::Start(place))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    // The last character may be half written as well.
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The event as `audit.k8s.io/v1` has it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    #[serde(rename = "auditID")]
    audit_id: String,
    stage: String,
    #[serde(rename = "requestURI")]
    request_uri: String,
    verb: String,
    user: Person,
    #[serde(default)]
    user_agent: String,
    #[serde(default)]
    object_ref: Reference,
    response_status: Option<Status>,
    request_object: Option<Value>,
    response_object: Option<Value>,
    request_received_timestamp: Timestamp,
    stage_timestamp: Timestamp,
}

#[derive(Deserialize)]
struct Person {
    #[serde(default)]
    username: String,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Reference {
    api_group: String,
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
}

#[derive(Deserialize)]
struct Status {
    code: Option<u16>,
    #[serde(default)]
    message: String,
}

impl From<Line> for AuditEvent {
    fn from(line: Line) -> Self {
        let (code, message) =
            line.response_status.map_or((None, String::new()), |status| (status.code, status.message));
        Self {
            id: line.audit_id,
            stage: line.stage,
            verb: line.verb,
            uri: line.request_uri,
            user: line.user.username,
            user_agent: line.user_agent,
            group: line.object_ref.api_group,
            resource: line.object_ref.resource,
            subresource: line.object_ref.subresource,
            namespace: line.object_ref.namespace,
            name: line.object_ref.name,
            code,
            message,
            request: line.request_object,
            response: line.response_object,
            received: line.request_received_timestamp,
            at: line.stage_timestamp,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const DELETE: &str = r#"{"kind":"Event","auditID":"1","stage":"ResponseComplete","requestURI":"/api/v1/namespaces/x",
        "verb":"delete","user":{"username":"alice"},"objectRef":{"resource":"namespaces","namespace":"x","name":"x"},
        "responseStatus":{"metadata":{},"code":409,"message":"no"},"requestObject":{"preconditions":{"uid":"u"}},
        "requestReceivedTimestamp":"2026-01-02T03:04:05.000006Z","stageTimestamp":"2026-01-02T03:04:05.100006Z"}"#;

    #[test]
    fn a_half_written_line_is_left_for_later() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("audit.log");
        let line = DELETE.replace('\n', "");
        fs::write(&file, format!("{line}\n{}", &line[..40])).unwrap();
        let log = Log::new(file.clone());
        let events = log.read().unwrap();
        let [event] = events.as_slice() else { panic!("{events:?}") };
        assert_eq!((event.user.as_str(), event.code), ("alice", Some(409)));
        assert_eq!((event.precondition("uid"), event.precondition("resourceVersion")), (Some("u"), None));
        assert!(event.is_write() && !event.succeeded());
        fs::write(&file, format!("{line}\n{line}\n")).unwrap();
        assert_eq!(log.read().unwrap().len(), 2);
    }

    #[test]
    fn a_broken_line_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("audit.log");
        fs::write(&file, format!("{}\n{{}}\n", DELETE.replace('\n', ""))).unwrap();
        assert!(
            Log::new(file).read().unwrap_err().to_string().contains("audit.log line 2 is not an audit event")
        );
    }
}
