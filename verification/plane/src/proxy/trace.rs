//! What passed through the proxy, in order.

use std::{
    fs::File,
    future::pending,
    io::Write as _,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use serde::{Serialize, Serializer};
use tokio::sync::watch;

use crate::error::{Result, io};

/// One request, or one event of a watch.
///
/// Entries have the order in which they came to the proxy. What is known only later is filled in later.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TraceEntry {
    /// Number, from 1.
    pub seq: u64,
    /// When it came to the proxy, since the start of the trace. In microseconds in JSON.
    #[serde(serialize_with = "micros")]
    pub at: Duration,
    /// When the whole answer, or the event, had been passed on, or the client had left; none as long as it is held, and
    /// for what is never passed on. In microseconds in JSON.
    #[serde(serialize_with = "some_micros")]
    pub done: Option<Duration>,
    /// For an event of a watch: of which watch, and which kind.
    pub event: Option<WatchEvent>,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete` or `deletecollection`; for what is no resource the
    /// method in lower case.
    pub verb: String,
    /// API group; empty for the core group.
    pub group: String,
    /// Plural name of the resource; empty for what is no resource, as discovery.
    pub resource: String,
    /// Such as `status`; empty if none.
    pub subresource: String,
    /// Namespace; empty if none. That of a namespace is its own name.
    pub namespace: String,
    /// Name of the object, also if only a field selector or the body has it; empty if none.
    pub name: String,
    /// Path and query of the request; of an event, those of its watch.
    pub target: String,
    /// The object's, from the answer, or else from the body of the request; empty if none.
    pub uid: String,
    /// That of the object or list in the answer, or else of the body of the request; empty if none.
    pub resource_version: String,
    /// HTTP status of the answer, whether it reached the client or not.
    pub status: Option<u16>,
    /// Names of the faults that were applied; see [`ProxyFault::name`](super::ProxyFault::name).
    pub faults: Vec<&'static str>,
    /// Why there is no answer, if that was not a fault's doing.
    pub error: Option<String>,
}

/// Place of an event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WatchEvent {
    /// Number of the watch's request.
    pub watch: u64,
    /// `ADDED`, `MODIFIED`, `DELETED`, `BOOKMARK` or `ERROR`.
    pub kind: String,
}

impl TraceEntry {
    /// True for a request that may change something: no read, and no access review.
    pub fn is_write(&self) -> bool {
        matches!(self.verb.as_str(), "create" | "update" | "patch" | "delete" | "deletecollection")
            && !self.resource.ends_with("reviews")
    }

    /// How long it took from its coming to its having been passed on; none as long as it is not.
    pub fn took(&self) -> Option<Duration> {
        self.done?.checked_sub(self.at)
    }

    /// The first value of a parameter of the query.
    pub fn query(&self, parameter: &str) -> Option<String> {
        let (_, query) = self.target.split_once('?')?;
        let mut pairs = form_urlencoded::parse(query.as_bytes());
        pairs.find(|(name, _)| name == parameter).map(|(_, value)| value.into_owned())
    }
}

/// A growing list of entries. Clones are the same list.
#[derive(Clone, Debug)]
pub struct Trace {
    start: Instant,
    log: Arc<watch::Sender<Log>>,
}

#[derive(Debug, Default)]
struct Log {
    entries: Vec<TraceEntry>,
    file: Option<Lines>,
}

/// One JSON line for each entry, as soon as nothing changes in it any more.
#[derive(Debug)]
struct Lines {
    file: File,
    /// For each entry, whether it is written.
    written: Vec<bool>,
    failure: Option<std::io::Error>,
}

impl Trace {
    pub(super) fn create(path: Option<&Path>) -> Result<Self> {
        let file = match path {
            Some(path) => {
                let file = File::create(path).map_err(io(format!("create {}", path.display())))?;
                Some(Lines { file, written: Vec::new(), failure: None })
            }
            None => None,
        };
        let log = Arc::new(watch::Sender::new(Log { entries: Vec::new(), file }));
        Ok(Self { start: Instant::now(), log })
    }

    /// What there is so far.
    pub fn entries(&self) -> Vec<TraceEntry> {
        self.log.borrow().entries.clone()
    }

    /// Number of the last entry; 0 if there is none.
    pub fn last(&self) -> u64 {
        self.log.borrow().entries.last().map_or(0, |entry| entry.seq)
    }

    /// Waits for the first entry of which `wanted` is true, now or later. Has no deadline of its own.
    pub async fn wait_for(&self, mut wanted: impl FnMut(&TraceEntry) -> bool) -> TraceEntry {
        self.wait_until(|entries| entries.iter().find(|entry| wanted(entry)).cloned()).await
    }

    /// Waits until `look` finds something in all that there is. It is asked at once, and after each change. Has no
    /// deadline of its own.
    pub async fn wait_until<T>(&self, mut look: impl FnMut(&[TraceEntry]) -> Option<T>) -> T {
        let mut changes = self.log.subscribe();
        loop {
            let found = look(&changes.borrow_and_update().entries);
            if let Some(found) = found {
                return found;
            }
            if changes.changed().await.is_err() {
                // Not before `self` is gone.
                pending::<()>().await;
            }
        }
    }

    /// Writes to the file, if there is one, also what may still change, and tells of any failure to write so far.
    pub fn flush(&self) -> Result<()> {
        let mut failure = None;
        self.log.send_if_modified(|log| {
            if let Some(lines) = &mut log.file {
                log.entries.iter().for_each(|entry| lines.write(entry));
                failure = lines.failure.take();
            }
            false
        });
        failure.map_or(Ok(()), |failure| Err(io("write the trace")(failure)))
    }

    /// Adds an entry, which came right now, and returns its number.
    pub(super) fn add(&self, mut entry: TraceEntry) -> u64 {
        let mut seq = 0;
        self.log.send_modify(|log| {
            seq = log.entries.last().map_or(0, |last| last.seq) + 1;
            (entry.seq, entry.at) = (seq, self.start.elapsed());
            log.entries.push(std::mem::take(&mut entry));
        });
        seq
    }

    pub(super) fn update(&self, seq: u64, change: impl FnOnce(&mut TraceEntry)) {
        self.log.send_modify(|log| {
            log.entry(seq).map(change);
        });
    }

    /// Nothing will change in the entry after this. `passed` if it is all passed on, and that right now.
    pub(super) fn finish(&self, seq: u64, passed: bool) {
        self.log.send_modify(|log| {
            let now = self.start.elapsed();
            let Some(entry) = log.entry(seq) else { return };
            if passed {
                entry.done = Some(now);
            }
            let entry = entry.clone();
            if let Some(lines) = &mut log.file {
                lines.write(&entry);
            }
        });
    }
}

impl Log {
    fn entry(&mut self, seq: u64) -> Option<&mut TraceEntry> {
        let index = usize::try_from(seq.checked_sub(1)?).ok()?;
        self.entries.get_mut(index)
    }
}

impl Lines {
    /// Writes an entry unless it is written.
    fn write(&mut self, entry: &TraceEntry) {
        let Ok(count) = usize::try_from(entry.seq) else { return };
        if self.written.len() < count {
            self.written.resize(count, false);
        }
        if std::mem::replace(&mut self.written[count - 1], true) {
            return;
        }
        let line = serde_json::to_string(entry).map_err(std::io::Error::from);
        if let Err(error) = line.and_then(|line| writeln!(self.file, "{line}")) {
            self.failure.get_or_insert(error);
        }
    }
}

fn micros<S: Serializer>(value: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u128(value.as_micros())
}

#[allow(clippy::ref_option, reason = "the signature that serde calls")]
fn some_micros<S: Serializer>(value: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    value.map(|value| value.as_micros()).serialize(serializer)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> TraceEntry {
        TraceEntry { name: name.to_owned(), ..TraceEntry::default() }
    }

    #[tokio::test]
    async fn who_waits_sees_what_was_and_what_comes() {
        let trace = Trace::create(None).unwrap();
        let first = trace.add(named("first"));
        assert_eq!(trace.wait_for(|entry| entry.name == "first").await.seq, first);
        let waiting = trace.wait_for(|entry| entry.status == Some(200));
        let acting = async {
            let second = trace.add(named("second"));
            trace.update(second, |entry| entry.status = Some(200));
        };
        let (found, ()) = tokio::join!(waiting, acting);
        assert_eq!((found.name.as_str(), found.seq), ("second", first + 1));
        assert_eq!(trace.last(), 2);
    }

    #[test]
    fn each_entry_is_one_line_of_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("trace.jsonl");
        let trace = Trace::create(Some(&path)).unwrap();
        let (first, second) = (trace.add(named("first")), trace.add(named("second")));
        trace.finish(second, true);
        trace.flush().unwrap();
        trace.finish(first, true);
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 2);
        assert_eq!((&lines[0]["seq"], &lines[0]["name"]), (&2.into(), &"second".into()));
        assert!(lines[0]["done"].is_u64() && lines[1]["done"].is_null());
    }
}
