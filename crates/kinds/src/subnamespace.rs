//! `Subnamespace`.

use coppice_api::SubnamespaceStatus;
use coppice_hierarchy::ValidSubnamespace;
use coppice_runtime::object::{Object, OwnKind};
use coppice_runtime::own_kind;
use serde::{Deserialize, Deserializer};

/// A uid is no longer.
const MAX_UID: usize = 128;

/// A `Subnamespace`.
pub type SubnamespaceObject = Object<ValidSubnamespace, SubnamespaceStatus, SubnamespaceAnnotations>;

/// The annotations of a `Subnamespace` that are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct SubnamespaceAnnotations {
    /// The uid of the object that it takes over from, of those that do ([`ANNOTATION_MOVED_FROM`](coppice_api::names::ANNOTATION_MOVED_FROM)).
    #[serde(rename = "coppice.dev/moved-from", deserialize_with = "uid")]
    pub moved_from: Option<Box<str>>,
}

/// A uid: what is longer is somebody else's, and not kept.
fn uid<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Box<str>>, D::Error> {
    let uid = Option::<Box<str>>::deserialize(deserializer)?;
    Ok(uid.filter(|uid| uid.len() <= MAX_UID))
}

/// Every `Subnamespace`.
#[derive(Debug)]
pub struct Subnamespaces;

own_kind!(Subnamespaces, "/apis/coppice.dev/v1alpha1", "subnamespaces");

impl OwnKind for Subnamespaces {
    type Spec = ValidSubnamespace;
    type Status = SubnamespaceStatus;
    type Annotations = SubnamespaceAnnotations;
    const KIND: &'static str = "Subnamespace";
    const NAMESPACED: bool = true;
    /// 64 amounts, 32 labels and 32 annotations, each with a name as long as it may be, and escaped.
    const MAX_SPEC_BYTES: usize = 96 << 10;

    /// Conditions were read into room for four, of 128 bytes each, and most have one or two.
    fn compact_status(status: &mut SubnamespaceStatus) {
        status.conditions.shrink_to_fit();
    }
}
