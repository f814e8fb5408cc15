//! What an Event refers to.

pub use coppice_runtime::object::reference;
use k8s_openapi::api::core::v1::ObjectReference;

/// The reference to a namespace from an Event in it, which is for its users.
pub fn reference_inside(namespace: &str, uid: Option<&str>) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Namespace".to_owned()),
        namespace: Some(namespace.to_owned()),
        name: Some(namespace.to_owned()),
        uid: uid.map(str::to_owned),
        ..ObjectReference::default()
    }
}
