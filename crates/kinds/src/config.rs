//! `CoppiceConfig`, the settings.

use coppice_api::{CoppiceConfigSpec, CoppiceConfigStatus};
use coppice_runtime::object::{NoAnnotations, Object, OwnKind};
use coppice_runtime::own_kind;

/// A `CoppiceConfig`.
pub type Config = Object<CoppiceConfigSpec, CoppiceConfigStatus>;

/// Every `CoppiceConfig`; one of them counts.
#[derive(Debug)]
pub struct Configs;

own_kind!(Configs, "/apis/coppice.dev/v1alpha1", "coppiceconfigs");

impl OwnKind for Configs {
    type Spec = CoppiceConfigSpec;
    type Status = CoppiceConfigStatus;
    type Annotations = NoAnnotations;
    const KIND: &'static str = "CoppiceConfig";
    const NAMESPACED: bool = false;
    /// The platform writes it.
    const MAX_SPEC_BYTES: usize = 1 << 20;
}
