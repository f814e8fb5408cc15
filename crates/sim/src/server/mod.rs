//! A Kubernetes API server as a pure state machine: no I/O, no clock, no randomness of its own. The same calls give the
//! same answers, byte for byte.
//!
//! [`Server::handle`] answers a request at an instant, in a user's name. A watch is a cursor that whoever holds it
//! moves with [`Server::next`], up to a revision of their choice: so events can be delayed, dropped, or delivered long
//! after. Everything that ever happened stays in [`Server::changes_since`], the ground truth for invariants; what
//! clients may still read of it ends where [`Server::compact`] says.
//!
//! What Kubernetes' own controllers do (namespaces, garbage collection, workloads, pods) is in [`models`].
//!
//! Differences from the real server, on purpose: `metadata.managedFields` is kept beside the objects and never shown;
//! bodies are JSON; every user may do everything; built-in kinds are checked far enough for tests, not field by field.

pub mod models;

mod admission;
mod adopt;
mod answer;
mod apply;
mod builtin;
mod convert;
mod crd;
mod decode;
mod delete;
mod discovery;
mod events;
mod jsonpatch;
mod kinds;
mod list;
pub(crate) mod meta;
mod names;
mod patch;
mod quota;
mod request;
mod rest;
mod reviews;
mod scale;
mod selector;
mod status;
mod store;
mod strategic;
mod table;
mod typed;
mod validate;
mod view;
mod watch;
mod write;
mod zero;

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

pub use admission::{Admission, AdmissionDenied, Operation, PendingWrite, Review};
pub use adopt::AdoptError;
pub use answer::{Body, List, Response, ServerReply};
pub use crd::Custom;
pub use kinds::{KindText, ServedKind, StoreId, Verbs};
pub use request::Request;
pub use store::{Change, ObjectKey, Revision, Verb};
pub use watch::{EventType, Watch, WatchEvent};

use apply::Managers;
use kinds::Registry;
use store::Store;

/// The user in whose name the server itself writes.
pub const SYSTEM: &str = "system:apiserver";

/// Namespaces that are there from the start and cannot be deleted, and one that can.
const NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

/// The API server. Cloning it is cheap for what it holds: objects are shared.
#[derive(Clone, Debug)]
pub struct Server {
    store: Store,
    kinds: Registry,
    managers: Managers,
    admission: Vec<Arc<dyn Admission>>,
    /// The instant of the last request: ages in tables count to here.
    last: Timestamp,
}

impl Server {
    /// A server with the built-in kinds and the namespaces that every cluster has.
    pub fn new(start: Timestamp) -> Self {
        let kinds = Registry::new();
        let mut server = Self {
            store: Store::new(kinds.stores()),
            kinds,
            managers: Managers::default(),
            admission: Vec::new(),
            last: start,
        };
        for name in NAMESPACES {
            let request = Request::post(
                "/api/v1/namespaces",
                &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}),
            );
            server.handle(start, SYSTEM, &request);
        }
        server
    }

    /// Answers a request of a user at an instant. Instants of later requests are not earlier.
    pub fn handle(&mut self, now: Timestamp, user: &str, request: &Request) -> ServerReply {
        self.last = self.last.max(now);
        self.answer(now, user, request).unwrap_or_else(|failure| ServerReply::Done(failure.into_response()))
    }

    /// The revision of the last write.
    pub fn revision(&self) -> Revision {
        self.store.revision()
    }

    /// Every change after a revision, oldest first; also those that clients can no longer read.
    pub fn changes_since(&self, revision: Revision) -> &[Change] {
        self.store.changes_since(revision)
    }

    /// Ends what clients can read of the past: watches from, and exact lists at, earlier revisions answer 410.
    pub fn compact(&mut self, up_to: Revision) {
        self.store.compact(up_to);
    }

    /// The oldest revision at which clients can still read and watch.
    pub fn compacted(&self) -> Revision {
        self.store.compacted()
    }

    /// Adds a call-out that is asked before each write.
    pub fn admit(&mut self, admission: Arc<dyn Admission>) {
        self.admission.push(admission);
    }

    /// An object as it is stored, without a request. The namespace of cluster-wide kinds is empty.
    pub fn object(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Option<&Arc<Value>> {
        let kind = self.kinds.served().find(|k| k.group == group && k.plural == plural)?;
        self.store.get(kind.store, ObjectKey::new(namespace, name).as_str())
    }

    /// All objects of a kind in a namespace, or in all of them if it is empty, in the order of their keys.
    pub fn objects(&self, group: &str, plural: &str, namespace: &str) -> impl Iterator<Item = &Arc<Value>> {
        let kind = self.kinds.served().find(|k| k.group == group && k.plural == plural);
        kind.into_iter()
            .flat_map(move |k| self.store.range(k.store, namespace, None))
            .map(|(_, object)| object)
    }

    /// The instant that ages in tables count to.
    fn shown_at(&self) -> Timestamp {
        self.last
    }
}
