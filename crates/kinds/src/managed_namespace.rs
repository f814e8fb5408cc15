//! `ManagedNamespace`, the record of a namespace.

use coppice_api::{ManagedNamespaceSpec, ManagedNamespaceStatus};
use coppice_lifecycle::cluster::RecordFacts;
use coppice_runtime::object::{NoAnnotations, Object, OwnKind};
use coppice_runtime::own_kind;

/// A `ManagedNamespace`.
pub type NamespaceRecord = Object<ManagedNamespaceSpec, ManagedNamespaceStatus>;

/// Every `ManagedNamespace`; the one named `coppice` counts in each namespace.
#[derive(Debug)]
pub struct ManagedNamespaces;

own_kind!(ManagedNamespaces, "/apis/coppice.dev/v1alpha1", "managednamespaces");

impl OwnKind for ManagedNamespaces {
    type Spec = ManagedNamespaceSpec;
    type Status = ManagedNamespaceStatus;
    type Annotations = NoAnnotations;
    const KIND: &'static str = "ManagedNamespace";
    const NAMESPACED: bool = true;
    /// A hold and a date.
    const MAX_SPEC_BYTES: usize = 16 << 10;

    /// A list of what is scaled down can have a mebibyte. Code that needs it reads the record.
    fn compact_status(status: &mut ManagedNamespaceStatus) {
        status.steps.scaled_down.count();
        // They were read into room for four at least.
        status.conditions.shrink_to_fit();
    }
}

/// A record, as the pure planner takes it.
pub fn record_facts(record: &NamespaceRecord) -> RecordFacts<'_> {
    RecordFacts {
        uid: &record.uid,
        generation: record.generation,
        terminating: record.terminating,
        spec: record.decoded(),
        status: &record.status,
    }
}
