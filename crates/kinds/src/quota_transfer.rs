//! `QuotaTransfer`.

use coppice_api::QuotaTransferStatus;
use coppice_hierarchy::ValidTransfer;
use coppice_runtime::object::{NoAnnotations, Object, OwnKind};
use coppice_runtime::own_kind;

/// A `QuotaTransfer`.
pub type QuotaTransferObject = Object<ValidTransfer, QuotaTransferStatus>;

/// Every `QuotaTransfer`.
#[derive(Debug)]
pub struct QuotaTransfers;

own_kind!(QuotaTransfers, "/apis/coppice.dev/v1alpha1", "quotatransfers");

impl OwnKind for QuotaTransfers {
    type Spec = ValidTransfer;
    type Status = QuotaTransferStatus;
    type Annotations = NoAnnotations;
    const KIND: &'static str = "QuotaTransfer";
    const NAMESPACED: bool = true;
    /// 64 amounts, each with a name as long as it may be.
    const MAX_SPEC_BYTES: usize = 32 << 10;
}
