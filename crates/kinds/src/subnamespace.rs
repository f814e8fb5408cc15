//! `Subnamespace`.

use coppice_api::{SubnamespaceSpec, SubnamespaceStatus};
use coppice_runtime::object::{Object, OwnKind};
use coppice_runtime::own_kind;

/// A `Subnamespace`.
pub type SubnamespaceObject = Object<SubnamespaceSpec, SubnamespaceStatus>;

/// Every `Subnamespace`.
#[derive(Debug)]
pub struct Subnamespaces;

own_kind!(Subnamespaces, "/apis/coppice.dev/v1alpha1", "subnamespaces");

impl OwnKind for Subnamespaces {
    type Spec = SubnamespaceSpec;
    type Status = SubnamespaceStatus;
    const KIND: &'static str = "Subnamespace";
    const NAMESPACED: bool = true;
    /// 64 amounts, 32 labels and 32 annotations, each with a name as long as it may be, and escaped.
    const MAX_SPEC_BYTES: usize = 96 << 10;
}
