//! Taking over objects as another API server has them.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use super::store::{ObjectKey, Verb};
use super::write::{Caller, Target};
use super::{Body, SYSTEM, Server, meta};

/// What a create would not take from its body.
const SERVER_SET_FIELDS: [&str; 5] =
    ["uid", "creationTimestamp", "generation", "deletionTimestamp", "deletionGracePeriodSeconds"];

/// Why an object is not taken over.
#[derive(Debug, thiserror::Error)]
pub enum AdoptError {
    /// There is no such kind here.
    #[error("{kind} of {version} is not known here")]
    UnknownKind {
        /// Its `kind`.
        kind: String,
        /// Its `apiVersion`.
        version: String,
    },
    /// A create would be refused, with this message.
    #[error("{0}")]
    Refused(String),
}

impl Server {
    /// Keeps an object as it is elsewhere: with its uid, its times, its generation and its status, as far as it says them.
    /// What was kept under its name is replaced. Built-in kinds are not checked; for the others it answers why a create would be refused.
    pub fn adopt(&mut self, now: Timestamp, object: &Value) -> Result<(), AdoptError> {
        let text = |field: &str| object[field].as_str().unwrap_or_default();
        let (version, name) = (text("apiVersion"), text("kind"));
        let Some(kind) = self.kinds.find(version, name).cloned() else {
            return Err(AdoptError::UnknownKind { kind: name.to_owned(), version: version.to_owned() });
        };
        let caller =
            Caller { now, user: SYSTEM, verb: Verb::Create, subresource: "", manager: "", dry_run: true };
        let namespace = if kind.namespaced { meta::namespace(object) } else { "" };
        let target = Target { kind: &kind, namespace, name: meta::name(object) };
        let mut bare = object.clone();
        for field in ["resourceVersion", "managedFields"] {
            meta::unset(&mut bare, field);
        }
        let key = ObjectKey::new(namespace, meta::name(object));
        let mut taken = match self.store.get(kind.store, key.as_str()) {
            Some(_) => bare,
            None => match self.create(&caller, target, bare.clone()) {
                Ok(created) => Arc::unwrap_or_clone(created),
                Err(failure) if kind.custom.is_some() => {
                    return Err(AdoptError::Refused(message(&failure.into_response().body)));
                }
                // Another API server took it, or a part of it is enough: a pod that is left out would be a pod that is not there.
                Err(_) => {
                    meta::set(&mut bare, "uid", self.store.issue_uid());
                    meta::set(&mut bare, "creationTimestamp", meta::seconds(now));
                    bare
                }
            },
        };
        for field in SERVER_SET_FIELDS {
            if let Some(value) = object["metadata"].get(field).filter(|value| !value.is_null()) {
                meta::set(&mut taken, field, value.clone());
            }
        }
        if let (Some(status), Some(taken)) = (object.get("status"), taken.as_object_mut()) {
            taken.insert("status".to_owned(), status.clone());
        }
        self.keep(&caller, &kind, key, taken);
        Ok(())
    }
}

fn message(body: &Body) -> String {
    let status: Value = serde_json::from_slice(&body.to_bytes()).unwrap_or_default();
    status["message"].as_str().unwrap_or_default().to_owned()
}
