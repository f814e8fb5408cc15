//! `NamespaceManager`.

use coppice_api::manager::NamespaceManagerStatus;
use coppice_lifecycle::ValidSpec;
use coppice_runtime::object::{NoAnnotations, Object, OwnKind};
use coppice_runtime::own_kind;

/// A `NamespaceManager`.
pub type Manager = Object<ValidSpec, NamespaceManagerStatus>;

/// Every `NamespaceManager`.
#[derive(Debug)]
pub struct Managers;

own_kind!(Managers, "/apis/coppice.dev/v1alpha1", "namespacemanagers");

impl OwnKind for Managers {
    type Spec = ValidSpec;
    type Status = NamespaceManagerStatus;
    type Annotations = NoAnnotations;
    const KIND: &'static str = "NamespaceManager";
    const NAMESPACED: bool = true;
    /// One that a person wrote has some hundreds.
    const MAX_SPEC_BYTES: usize = 128 << 10;

    /// A list of what is scaled down can have a mebibyte. Code that needs it reads the manager.
    fn compact_status(status: &mut NamespaceManagerStatus) {
        status.steps.scaled_down.count();
        // They were read into room for four at least.
        status.conditions.shrink_to_fit();
    }
}
