//! `NamespaceTree`.

use coppice_api::NamespaceTreeStatus;
use coppice_hierarchy::ValidTree;
use coppice_runtime::object::{NoAnnotations, Object, OwnKind};
use coppice_runtime::own_kind;

/// A `NamespaceTree`.
pub type Tree = Object<ValidTree, NamespaceTreeStatus>;

/// Every `NamespaceTree`.
#[derive(Debug)]
pub struct NamespaceTrees;

own_kind!(NamespaceTrees, "/apis/coppice.dev/v1alpha1", "namespacetrees");

impl OwnKind for NamespaceTrees {
    type Spec = ValidTree;
    type Status = NamespaceTreeStatus;
    type Annotations = NoAnnotations;
    const KIND: &'static str = "NamespaceTree";
    const NAMESPACED: bool = false;
    /// 64 amounts, 32 patterns, 32 names of roles and 128 keys, each as long as it may be.
    const MAX_SPEC_BYTES: usize = 104 << 10;
}
