//! A record, and what the caches know of its namespace and its manager.

use std::collections::BTreeMap;
use std::sync::Arc;

use coppice_api::{DeletionPhase, Steps};
use coppice_kinds::{DecidedIn, DeletionRecord};
use coppice_lifecycle::plan::Delivery;
use coppice_runtime::store::Freshness;
use jiff::Timestamp;

use super::RecordKey;
use super::plan::{MAX_RECORDS, OldestKept};
use crate::context::ControllerContext;
use crate::owner_messages;

/// What there is of the namespace that a record is about. One of the same name with another uid is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NamespaceState {
    /// It is there.
    Present,
    /// It is being deleted.
    Terminating,
    /// There is none.
    Gone,
    /// The cache is behind, or what it holds of the namespace cannot be understood.
    Unknown,
}

/// What there is.
pub(super) struct Observation {
    pub(super) record: Arc<DeletionRecord>,
    pub(super) namespace: NamespaceState,
    /// Whether whoever decided stands by the decision.
    pub(super) decided: bool,
    /// Whether it is one of the oldest, where there are too many.
    pub(super) surplus: bool,
    /// The attempts at its messages, by their keys.
    pub(super) deliveries: BTreeMap<String, Delivery>,
    pub(super) now: Timestamp,
}

/// None if there is no such record.
pub(super) fn observe(
    shared: &ControllerContext,
    key: &RecordKey,
    oldest_kept: Option<&OldestKept>,
) -> Option<Observation> {
    let record = shared.deleted_namespaces.get("", &key.0)?;
    let fields = record.spec.as_deref().ok();
    let namespace = fields.map_or(NamespaceState::Unknown, |f| namespace_state(shared, &f.namespace, &f.uid));
    let decided = fields.is_some_and(|fields| match fields.decided_in() {
        DecidedIn::NamespaceManager(name) => {
            let manager = shared.managers.get(&fields.namespace, name);
            manager.is_some_and(|m| m.status_error.is_some() || stands_by(&m.status.steps, &record.name))
        }
        DecidedIn::ManagedNamespace => {
            let governed = shared.record(&fields.namespace);
            governed.is_some_and(|r| r.status_error.is_some() || stands_by(&r.status.steps, &record.name))
        }
        // What another kind has decided, that kind's controller knows.
        DecidedIn::Unknown => true,
    });
    let surplus = oldest_kept.is_some_and(|oldest| oldest.is_after(&record));
    let deliveries = owner_messages::deliveries(shared, &record.status.notices);
    Some(Observation { namespace, decided, surplus, deliveries, now: shared.now(), record })
}

/// Whether a status has the intent of a decision, or says that it was carried out. One that another version wrote may have
/// it, too.
pub(super) fn stands_by(steps: &Steps, decision: &str) -> bool {
    let intent = steps.intent.as_ref().is_some_and(|intent| intent.id == decision);
    let fired = steps.last_firing.as_ref().is_some_and(|firing| firing.id == decision);
    intent || fired
}

fn namespace_state(shared: &ControllerContext, name: &str, uid: &str) -> NamespaceState {
    let fresh = matches!(shared.namespaces.freshness(), Freshness::Fresh(_));
    match shared.namespaces.get("", name) {
        _ if !fresh || shared.namespaces.unreadable_object(name).is_some() => NamespaceState::Unknown,
        Some(namespace) if namespace.uid != uid => NamespaceState::Gone,
        Some(namespace) if namespace.terminating => NamespaceState::Terminating,
        Some(_) => NamespaceState::Present,
        None => NamespaceState::Gone,
    }
}

/// The records of namespaces of this name that do not say `Deleted` yet.
pub(super) fn open_records(shared: &ControllerContext, namespace: &str) -> Vec<RecordKey> {
    let mut open = Vec::new();
    shared.deleted_namespaces.for_each(|record| {
        let of_it = record.spec.as_ref().is_ok_and(|fields| &*fields.namespace == namespace);
        if of_it && record.status.phase != Some(DeletionPhase::Deleted) {
            open.push(RecordKey(record.name.as_ref().into()));
        }
    });
    open
}

/// The oldest record that is kept; none while there are not too many.
pub(super) fn oldest_kept(shared: &ControllerContext) -> Option<OldestKept> {
    let surplus = shared.deleted_namespaces.len().checked_sub(MAX_RECORDS).filter(|surplus| *surplus > 0)?;
    let mut all = Vec::new();
    shared.deleted_namespaces.for_each(|record| all.push(OldestKept::of(record)));
    all.sort_unstable();
    all.into_iter().nth(surplus)
}
