//! Reading and writing in a controller's name.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::super::delete::DeleteOptions;
use super::super::kinds::ServedKind;
use super::super::status::StatusError;
use super::super::store::{ObjectKey, Verb};
use super::super::write::{Caller, Expected, Target};
use super::super::{Server, meta};

/// One controller at one instant.
#[derive(Clone, Copy)]
pub(super) struct ControllerUser {
    user: &'static str,
    pub(super) now: Timestamp,
}

impl ControllerUser {
    pub(super) fn new(user: &'static str, now: Timestamp) -> Self {
        Self { user, now }
    }

    fn caller(self, verb: Verb, subresource: &'static str) -> Caller<'static> {
        Caller {
            now: self.now,
            user: self.user,
            verb,
            subresource,
            manager: "kube-controller-manager",
            dry_run: false,
        }
    }

    /// Makes an object.
    pub(super) fn create(
        self,
        server: &mut Server,
        kind: &Arc<ServedKind>,
        namespace: &str,
        object: Value,
    ) -> Result<Arc<Value>, StatusError> {
        server.create(&self.caller(Verb::Create, ""), Target { kind, namespace, name: "" }, object)
    }

    /// Changes an object that is known.
    pub(super) fn update(
        self,
        server: &mut Server,
        kind: &Arc<ServedKind>,
        object: &Value,
        change: impl FnOnce(&mut Value),
    ) -> Result<Arc<Value>, StatusError> {
        self.write(server, kind, object, "", change)
    }

    /// Changes the status of an object that is known.
    pub(super) fn status(
        self,
        server: &mut Server,
        kind: &Arc<ServedKind>,
        object: &Value,
        change: impl FnOnce(&mut Map<String, Value>),
    ) -> Result<Arc<Value>, StatusError> {
        self.write(server, kind, object, "status", |object| change(meta::field(object, "status")))
    }

    /// Changes an object through a subresource.
    pub(super) fn write(
        self,
        server: &mut Server,
        kind: &Arc<ServedKind>,
        object: &Value,
        subresource: &'static str,
        change: impl FnOnce(&mut Value),
    ) -> Result<Arc<Value>, StatusError> {
        let target = Target { kind, namespace: meta::namespace(object), name: meta::name(object) };
        server.update(&self.caller(Verb::Update, subresource), target, &Expected::default(), |_, old| {
            let mut object = old.as_ref().clone();
            change(&mut object);
            Ok(object)
        })
    }

    /// Deletes an object in the background.
    pub(super) fn delete(
        self,
        server: &mut Server,
        kind: &Arc<ServedKind>,
        object: &Value,
    ) -> Result<(), StatusError> {
        self.delete_with(server, kind, object, &DeleteOptions::background())
    }

    pub(super) fn delete_with(
        self,
        server: &mut Server,
        kind: &Arc<ServedKind>,
        object: &Value,
        options: &DeleteOptions,
    ) -> Result<(), StatusError> {
        let target = Target { kind, namespace: meta::namespace(object), name: meta::name(object) };
        server.delete(&self.caller(Verb::Delete, ""), target, options).map(|_| ())
    }

    /// Deletes an object as part of its collection.
    pub(super) fn sweep(
        self,
        server: &mut Server,
        kind: &Arc<ServedKind>,
        object: &Value,
    ) -> Result<(), StatusError> {
        let target = Target { kind, namespace: meta::namespace(object), name: meta::name(object) };
        let caller = self.caller(Verb::DeleteCollection, "");
        server.delete(&caller, target, &DeleteOptions::background()).map(|_| ())
    }
}

/// A built-in kind.
pub(super) fn kind(server: &Server, group: &str, plural: &str) -> Option<Arc<ServedKind>> {
    let version = if group == "autoscaling" { "v2" } else { "v1" };
    server.kinds.at(group, version, plural).cloned()
}

/// A built-in kind and one object of it.
pub(super) fn find(
    server: &Server,
    group: &str,
    plural: &str,
    key: &ObjectKey,
) -> Option<(Arc<ServedKind>, Arc<Value>)> {
    let kind = kind(server, group, plural)?;
    let object = server.store.get(kind.store, key.as_str())?.clone();
    Some((kind, object))
}

/// The objects that one object manages.
pub(super) fn managed(server: &Server, kind: &ServedKind, owner: &Value) -> Vec<Arc<Value>> {
    let uid = meta::uid(owner);
    let in_namespace = server.store.range(kind.store, meta::namespace(owner), None);
    in_namespace.filter(|(_, o)| meta::controller(o) == Some(uid)).map(|(_, o)| o.clone()).collect()
}

/// A pod as the template of a workload describes it.
pub(super) fn pod_of(owner: &Value, api_version: &str, kind: &str) -> Value {
    let template = &owner["spec"]["template"];
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {}, "spec": template["spec"]});
    for field in ["labels", "annotations", "finalizers"] {
        if let Some(value) = template["metadata"].get(field) {
            meta::set(&mut pod, field, value.clone());
        }
    }
    own(&mut pod, owner, api_version, kind);
    pod
}

/// Makes an owner the one that manages an object.
pub(super) fn own(object: &mut Value, owner: &Value, api_version: &str, kind: &str) {
    let reference = json!([{
        "apiVersion": api_version,
        "kind": kind,
        "name": meta::name(owner),
        "uid": meta::uid(owner),
        "controller": true,
        "blockOwnerDeletion": true,
    }]);
    meta::set(object, "ownerReferences", reference);
}

/// Whether a condition is true.
pub(super) fn is(object: &Value, condition: &str) -> bool {
    let mut conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions.any(|c| c["type"] == condition && c["status"] == "True")
}

/// Whether a pod has not ended.
pub(super) fn alive(pod: &Value) -> bool {
    !matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed")) && !meta::deleting(pod)
}

/// A number that is absent if it is zero, as Go leaves it out.
pub(super) fn count(status: &mut Map<String, Value>, field: &str, number: usize) {
    if number == 0 {
        status.remove(field);
    } else {
        status.insert(field.to_owned(), number.into());
    }
}

/// A short text that depends on a value alone: the hash in the names of replica sets.
pub(super) fn hash(value: &Value) -> String {
    const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut state = 0xcbf2_9ce4_8422_2325_u64;
    for byte in value.to_string().bytes() {
        state = (state ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    let mut text = String::with_capacity(10);
    for _ in 0..10 {
        text.push(char::from(LETTERS[usize::try_from(state % 27).unwrap_or_default()]));
        state /= 27;
    }
    text
}
