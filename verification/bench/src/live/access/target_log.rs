//! What the targets were asked, by their audit log. It becomes large: it is read once, line by line, and nothing of it is kept.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Seek as _, SeekFrom};
use std::path::PathBuf;

use anyhow::Context as _;
use coppice_plane::AuditEvent;

/// The accounts of the program in a target: that of its kubeconfig, and those of the credentials, which it tries out.
const ACCOUNTS: &str = "system:serviceaccount:coppice-access:";

/// The audit log of the API server that all targets are.
pub(super) struct TargetLog {
    path: PathBuf,
    offset: u64,
}

/// What the program has asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Requests of any kind.
    pub(super) requests: usize,
    /// Of these, the ones that have a token issued.
    pub(super) tokens: usize,
    /// Of these, the ones that read nothing: while all is fresh, the search for what is left of ended accesses only lists.
    pub(super) writes: usize,
}

impl TargetLog {
    /// Reads it from its beginning.
    pub(super) const fn new(path: PathBuf) -> Self {
        Self { path, offset: 0 }
    }

    /// What was answered since the last call.
    pub(super) fn since_last(&mut self) -> anyhow::Result<Counts> {
        let mut file = File::open(&self.path).with_context(|| format!("open {}", self.path.display()))?;
        file.seek(SeekFrom::Start(self.offset))?;
        let (mut lines, mut line, mut counts) = (BufReader::new(file), Vec::new(), Counts::default());
        loop {
            line.clear();
            let length = lines.read_until(b'\n', &mut line)?;
            // The server may be writing the last line.
            if line.last() != Some(&b'\n') {
                return Ok(counts);
            }
            self.offset += length as u64;
            let event: AuditEvent = serde_json::from_slice(&line).context("a line of the audit log")?;
            counts.add(&event);
        }
    }
}

impl Counts {
    fn add(&mut self, event: &AuditEvent) {
        if event.stage != "ResponseComplete" || !event.user.starts_with(ACCOUNTS) {
            return;
        }
        self.requests += 1;
        self.tokens += usize::from(event.resource == "serviceaccounts" && event.subresource == "token");
        self.writes += usize::from(!matches!(event.verb.as_str(), "get" | "list" | "watch"));
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn line(user: &str, resource: &str, subresource: &str) -> String {
        format!(
            r#"{{"auditID":"1","stage":"ResponseComplete","requestURI":"/x","verb":"create","user":{{"username":"{user}"}},"objectRef":{{"resource":"{resource}","subresource":"{subresource}"}},"responseStatus":{{"code":201}},"requestReceivedTimestamp":"2026-01-02T03:04:05.000006Z","stageTimestamp":"2026-01-02T03:04:05.100006Z"}}"#
        )
    }

    #[test]
    fn requests_of_the_program_are_counted_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let mut file = File::create(&path).unwrap();
        let mut log = TargetLog::new(path);
        let token =
            line("system:serviceaccount:coppice-access:coppice-bootstrap", "serviceaccounts", "token");
        let tried = line("system:serviceaccount:coppice-access:coppice-1", "selfsubjectreviews", "");
        let of_others = line("system:kube-controller-manager", "serviceaccounts", "token");
        write!(file, "{token}\n{of_others}\n{}", &tried[..30]).unwrap();
        assert_eq!(log.since_last().unwrap(), Counts { requests: 1, tokens: 1, writes: 1 });
        writeln!(file, "{}", &tried[30..]).unwrap();
        assert_eq!(log.since_last().unwrap(), Counts { requests: 1, tokens: 0, writes: 1 });
        let listed = line("system:serviceaccount:coppice-access:coppice-bootstrap", "secrets", "");
        writeln!(file, "{}", listed.replace(r#""verb":"create""#, r#""verb":"list""#)).unwrap();
        assert_eq!(log.since_last().unwrap(), Counts { requests: 1, tokens: 0, writes: 0 });
        assert_eq!(log.since_last().unwrap(), Counts::default());
    }
}
