//! What an Event refers to.

use coppice_runtime::object::OwnKind;
use k8s_openapi::api::core::v1::ObjectReference;

/// The reference to an object.
pub fn reference<K: OwnKind>(object: &K::Object) -> ObjectReference {
    ObjectReference {
        api_version: Some(K::GROUP_PATH.trim_start_matches("/apis/").to_owned()),
        kind: Some(K::KIND.to_owned()),
        namespace: K::NAMESPACED.then(|| object.namespace.to_string()),
        name: Some(object.name.to_string()),
        uid: Some(object.uid.to_string()),
        ..ObjectReference::default()
    }
}

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
