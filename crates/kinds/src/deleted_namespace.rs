//! `DeletedNamespace`, of which caches keep little: there are thousands.

use coppice_api::notify::DeletionNotification;
use coppice_api::{DeletedNamespaceStatus, Losses};
use coppice_lifecycle::cluster::recreated::PastDeletion;
use coppice_runtime::object::{NoAnnotations, Object, OwnKind};
use coppice_runtime::own_kind;
use jiff::Timestamp;
use serde::Deserialize;

use crate::{ClusterManagers, Managers};

/// A `DeletedNamespace`.
pub type DeletionRecord = Object<DeletedNamespaceFields, DeletedNamespaceStatus>;

/// What is kept of the spec of a `DeletedNamespace`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeletedNamespaceFields {
    /// The namespace's name.
    pub namespace: Box<str>,
    /// The namespace's uid.
    pub uid: Box<str>,
    /// The kind of the object that had it deleted, if it is said.
    #[serde(default)]
    manager_kind: Option<Box<str>>,
    /// That object.
    manager: Box<str>,
    /// The policy that fired.
    #[serde(default)]
    pub policy: Box<str>,
    /// When the operator last set out to delete the namespace.
    pub attempted_at: Timestamp,
    /// Why it was decided.
    #[serde(default)]
    pub reason: Box<str>,
    /// What was lost with it.
    #[serde(default)]
    pub losses: Option<Box<Losses>>,
    /// What its owner is notified of once it is gone.
    #[serde(default)]
    pub notification: Option<Box<DeletionNotification>>,
}

/// Where the decision to delete a namespace stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecidedIn<'a> {
    /// In the status of the `NamespaceManager` of this name in that namespace.
    NamespaceManager(&'a str),
    /// In the status of its `ManagedNamespace`: a cluster manager had it deleted.
    ManagedNamespace,
    /// In an object of a kind that this version does not know.
    Unknown,
}

/// What a record says of a deletion that a cluster manager decided, and that the API server has accepted.
pub fn past_deletion(record: &DeletionRecord) -> Option<PastDeletion<'_>> {
    let spec = record.spec.as_ref().ok()?;
    let of_manager = spec.decided_in() == DecidedIn::ManagedNamespace && record.status.phase.is_some();
    of_manager.then_some(PastDeletion { namespace: &spec.namespace, uid: &spec.uid, at: spec.attempted_at })
}

impl DeletedNamespaceFields {
    /// The object that had it deleted.
    pub fn manager(&self) -> &str {
        &self.manager
    }

    /// Where the decision stands.
    pub fn decided_in(&self) -> DecidedIn<'_> {
        match self.manager_kind.as_deref() {
            None | Some(Managers::KIND) => DecidedIn::NamespaceManager(&self.manager),
            Some(ClusterManagers::KIND) => DecidedIn::ManagedNamespace,
            Some(_) => DecidedIn::Unknown,
        }
    }
}

/// Every `DeletedNamespace`.
#[derive(Debug)]
pub struct DeletedNamespaces;

own_kind!(DeletedNamespaces, "/apis/coppice.dev/v1alpha1", "deletednamespaces");

impl OwnKind for DeletedNamespaces {
    type Spec = DeletedNamespaceFields;
    type Status = DeletedNamespaceStatus;
    type Annotations = NoAnnotations;
    const KIND: &'static str = "DeletedNamespace";
    const NAMESPACED: bool = false;
    /// The operator writes it; most of it is evidence.
    const MAX_SPEC_BYTES: usize = 1 << 20;
}
