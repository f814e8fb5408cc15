//! What an Event about one of our own objects refers to.

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
