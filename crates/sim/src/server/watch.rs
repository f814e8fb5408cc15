//! Watches: cursors over the log of changes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::Server;
use super::kinds::ServedKind;
use super::selector::Selector;
use super::status::StatusError;
use super::store::{Change, Revision};
use super::view::View;
use super::zero;

/// The annotation of the bookmark that ends the initial events.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// An open watch. It costs nothing while it is idle; its holder asks the server for its [next event](Server::next).
#[derive(Clone, Debug)]
pub struct Watch {
    pub(super) kind: Arc<ServedKind>,
    pub(super) namespace: String,
    pub(super) selector: Selector,
    pub(super) view: View,
    /// Everything up to here was delivered, or is to be skipped.
    pub(super) position: Revision,
    /// What existed when the watch was opened and is still to be delivered.
    pub(super) initial: VecDeque<Arc<Value>>,
    /// Whether the bookmark that ends the initial events is still to come.
    pub(super) initial_end: bool,
    pub(super) bookmarks: bool,
    pub(super) timeout: Option<Duration>,
    pub(super) ended: bool,
    /// Why there will be no events, if that was clear from the start: delivered as the first event.
    pub(super) failure: Option<StatusError>,
}

impl Watch {
    /// The kind that is watched.
    pub fn kind(&self) -> &ServedKind {
        &self.kind
    }

    /// The namespace that is watched; empty for all.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The revision up to which everything was delivered.
    pub fn position(&self) -> Revision {
        self.position
    }

    /// Whether the client wants bookmarks.
    pub fn wants_bookmarks(&self) -> bool {
        self.bookmarks
    }

    /// When the client wants the watch to end, counted from its opening; the server's own limit if not said.
    pub fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    /// Whether it has delivered its last event, an error.
    pub fn ended(&self) -> bool {
        self.ended
    }
}

/// The type of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventType {
    /// The object is there now.
    Added,
    /// The object has changed.
    Modified,
    /// The object is gone, or no longer selected.
    Deleted,
    /// Nothing happened up to this revision.
    Bookmark,
    /// The watch is over; the object is a `Status`.
    Error,
}

impl EventType {
    /// The word in the event.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
            Self::Bookmark => "BOOKMARK",
            Self::Error => "ERROR",
        }
    }
}

/// One event of a watch.
#[derive(Clone, Debug)]
pub struct WatchEvent {
    /// What it says.
    pub event: EventType,
    /// The object, shared.
    pub object: Arc<Value>,
    /// The revision of the change; for objects that existed, that of the watch's beginning.
    pub revision: Revision,
}

impl WatchEvent {
    /// The event as one line of a stream, with its newline.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut line = format!("{{\"type\":\"{}\",\"object\":", self.event.as_str()).into_bytes();
        // Every key of a `Value` is a string, so that it always has a form in JSON.
        line.extend(serde_json::to_vec(self.object.as_ref()).unwrap_or_default());
        line.extend_from_slice(b"}\n");
        line
    }

    /// The event as JSON.
    pub fn to_value(&self) -> Value {
        json!({"type": self.event.as_str(), "object": self.object.as_ref()})
    }
}

impl Server {
    /// The next event of a watch that happened at or before a revision. None if there is none (yet), and after an error.
    /// A watch that lags behind what was compacted gets an error event with a `Status` of code 410.
    pub fn next(&self, watch: &mut Watch, up_to: Revision) -> Option<WatchEvent> {
        if watch.ended {
            return None;
        }
        if let Some(failure) = watch.failure.take() {
            return Some(end(watch, &failure));
        }
        if let Some(object) = watch.initial.pop_front() {
            let object = watch.view.object(self, &watch.kind, &object);
            return Some(WatchEvent { event: EventType::Added, object, revision: watch.position });
        }
        if watch.initial_end {
            watch.initial_end = false;
            if watch.bookmarks {
                return Some(bookmark(watch, true));
            }
        }
        let up_to = up_to.min(self.revision());
        if self.store.last_change(watch.kind.store) > watch.position {
            if watch.position < self.store.compacted() {
                return Some(end(watch, &too_old(watch.position, self.store.compacted())));
            }
            for change in self.store.changes_of(watch.kind.store, watch.position) {
                if change.revision > up_to {
                    break;
                }
                watch.position = change.revision;
                if let Some((event, object)) = seen(watch, change) {
                    let object = watch.view.object(self, &watch.kind, &object);
                    return Some(WatchEvent { event, object, revision: change.revision });
                }
            }
        }
        watch.position = watch.position.max(up_to);
        None
    }

    /// A bookmark: all changes up to the watch's position were delivered.
    pub fn bookmark(&self, watch: &Watch) -> WatchEvent {
        bookmark(watch, false)
    }
}

/// The last event.
fn end(watch: &mut Watch, failure: &StatusError) -> WatchEvent {
    watch.ended = true;
    WatchEvent {
        event: EventType::Error,
        object: Arc::new(failure.status().clone()),
        revision: watch.position,
    }
}

/// What is said of a revision from which changes are no longer known.
pub(super) fn too_old(revision: Revision, oldest: Revision) -> StatusError {
    StatusError::expired(format!("too old resource version: {revision} ({oldest})"))
}

fn bookmark(watch: &Watch, initial_end: bool) -> WatchEvent {
    let mut object = zero::fields(&watch.kind);
    object["kind"] = watch.kind.kind.as_ref().into();
    object["apiVersion"] = watch.kind.api_version().into();
    object["metadata"] = json!({"resourceVersion": watch.position.to_string()});
    if initial_end {
        object["metadata"]["annotations"] = json!({INITIAL_EVENTS_END: "true"});
    }
    let object = Arc::new(watch.view.bookmark(object));
    WatchEvent { event: EventType::Bookmark, object, revision: watch.position }
}

/// A change as the selector shows it.
fn seen(watch: &Watch, change: &Change) -> Option<(EventType, Arc<Value>)> {
    if !watch.namespace.is_empty() && change.namespace() != watch.namespace {
        return None;
    }
    let selected = |object: &Option<Arc<Value>>| object.as_ref().is_some_and(|o| watch.selector.matches(o));
    match (selected(&change.before), selected(&change.after)) {
        (false, false) => None,
        (false, true) => Some((EventType::Added, change.after.clone()?)),
        (true, true) => Some((EventType::Modified, change.after.clone()?)),
        (true, false) => Some((EventType::Deleted, change.last_state()?)),
    }
}
