//! What is kept of a `NamespaceExpiry`.

use coppice_api::Steps;
use coppice_api::manager::NextStep;
use coppice_controllers::SteppedKind;
use coppice_runtime::object::{NoAnnotations, Object, OwnKind};
use coppice_runtime::own_kind;

use crate::kind::{NamespaceExpirySpec, NamespaceExpiryStatus};

/// A `NamespaceExpiry`.
pub type Expiry = Object<NamespaceExpirySpec, NamespaceExpiryStatus>;

/// Every `NamespaceExpiry`.
#[derive(Debug)]
pub struct Expiries;

own_kind!(Expiries, "/apis/sample.coppice.dev/v1alpha1", "namespaceexpiries");

impl OwnKind for Expiries {
    type Spec = NamespaceExpirySpec;
    type Status = NamespaceExpiryStatus;
    type Annotations = NoAnnotations;
    const KIND: &'static str = "NamespaceExpiry";
    const NAMESPACED: bool = false;
    /// Two durations.
    const MAX_SPEC_BYTES: usize = 4096;
}

impl SteppedKind for Expiries {
    fn steps(status: &NamespaceExpiryStatus) -> &Steps {
        &status.steps
    }

    fn steps_mut(status: &mut NamespaceExpiryStatus) -> &mut Steps {
        &mut status.steps
    }

    fn next(_: &NamespaceExpiryStatus) -> Option<&NextStep> {
        None
    }
}
