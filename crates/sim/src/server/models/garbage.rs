//! The garbage collector: in the background, in the foreground, orphaning; absent owners; owners in other namespaces
//! count as absent.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use super::super::delete::{DeleteOptions, FOREGROUND, ORPHAN};
use super::super::kinds::ServedKind;
use super::super::store::Change;
use super::super::{Server, meta};
use super::support::ControllerUser;
use super::{ControllerStep, Requeue};

const USER: &str = "system:serviceaccount:kube-system:generic-garbage-collector";

/// Who depends on whom, by uid.
#[derive(Clone, Debug, Default)]
pub(super) struct Graph {
    dependents: BTreeMap<String, BTreeSet<String>>,
}

/// An owner reference, judged.
enum Owner {
    /// It is there, and means to stay.
    Present,
    /// It is gone, or was never there.
    Dangling,
    /// It waits for its dependents to go.
    Waiting,
    /// A cluster-wide object cannot be owned by one in a namespace: nothing is done.
    Unresolvable,
}

fn owner_uids(object: &Value) -> impl Iterator<Item = &str> {
    meta::owners(object).filter_map(|o| o["uid"].as_str())
}

impl Graph {
    /// Takes in a change; returns what to check because of it.
    pub(super) fn observe(&mut self, change: &Change) -> Vec<ControllerStep> {
        let uid = change.uid.as_ref();
        for owner in change.before.iter().flat_map(|o| owner_uids(o)) {
            if let Some(dependents) = self.dependents.get_mut(owner) {
                dependents.remove(uid);
                if dependents.is_empty() {
                    self.dependents.remove(owner);
                }
            }
        }
        let mut steps = Vec::new();
        if let Some(object) = &change.after {
            for owner in owner_uids(object) {
                self.dependents.entry(owner.to_owned()).or_default().insert(uid.to_owned());
            }
            if owner_uids(object).next().is_some() {
                steps.push(ControllerStep::Collect(uid.to_owned()));
            }
            if meta::deleting(object) && meta::finalizers(object).any(|f| matches!(f, FOREGROUND | ORPHAN)) {
                steps.push(ControllerStep::Release(uid.to_owned()));
            }
        } else {
            let orphaned = self.dependents.get(uid).into_iter().flatten();
            steps.extend(orphaned.map(|dependent| ControllerStep::Collect(dependent.clone())));
            // Owners that wait may have waited for this one.
            let owners = change.before.iter().flat_map(|o| owner_uids(o));
            steps.extend(owners.map(|owner| ControllerStep::Release(owner.to_owned())));
        }
        steps
    }

    fn dependents(&self, server: &Server, uid: &str) -> Vec<(Arc<ServedKind>, Arc<Value>)> {
        let uids = self.dependents.get(uid).into_iter().flatten();
        uids.filter_map(|uid| by_uid(server, uid)).collect()
    }

    /// Deletes an object whose owners are gone, or drops the references to those that are.
    pub(super) fn collect(&self, server: &mut Server, now: Timestamp, uid: &str) -> Requeue {
        let who = ControllerUser::new(USER, now);
        let Some((kind, object)) = by_uid(server, uid) else { return Requeue::No };
        let waits = meta::finalizers(&object).any(|f| f == FOREGROUND);
        if meta::deleting(&object) {
            return if waits { self.release(server, now, uid) } else { Requeue::No };
        }
        let (mut solid, mut gone, mut waiting) = (0, Vec::new(), 0);
        for reference in meta::owners(&object) {
            let owner = reference["uid"].as_str().unwrap_or_default().to_owned();
            match resolve_owner(server, &kind, &object, reference) {
                Owner::Present | Owner::Unresolvable => solid += 1,
                Owner::Dangling => gone.push(owner),
                Owner::Waiting => {
                    waiting += 1;
                    gone.push(owner);
                }
            }
        }
        if gone.is_empty() {
            return Requeue::No;
        }
        let done = if solid > 0 {
            who.update(server, &kind, &object, |object| drop_owners(object, &gone)).map(|_| ())
        } else {
            let has_dependents = self.dependents.contains_key(uid);
            let policy = if waiting > 0 && has_dependents {
                "Foreground"
            } else if meta::finalizers(&object).any(|f| f == ORPHAN) {
                "Orphan"
            } else if waits {
                "Foreground"
            } else {
                "Background"
            };
            let options = DeleteOptions {
                uid: Some(uid.to_owned()),
                propagation: Some(policy.to_owned()),
                ..DeleteOptions::background()
            };
            who.delete_with(server, &kind, &object, &options)
        };
        match done {
            Ok(()) => Requeue::No,
            Err(failure) if failure.code() == 404 => Requeue::No,
            Err(_) => Requeue::AfterFailure,
        }
    }

    /// Lets an owner go that is being deleted: when its dependents are gone, or after they were let go.
    pub(super) fn release(&self, server: &mut Server, now: Timestamp, uid: &str) -> Requeue {
        let who = ControllerUser::new(USER, now);
        let Some((kind, owner)) = by_uid(server, uid) else { return Requeue::No };
        if !meta::deleting(&owner) {
            return Requeue::No;
        }
        let orphan = meta::finalizers(&owner).any(|f| f == ORPHAN);
        let foreground = meta::finalizers(&owner).any(|f| f == FOREGROUND);
        let dependents = self.dependents(server, uid);
        if orphan {
            for (kind, dependent) in &dependents {
                let uid = [uid.to_owned()];
                if who.update(server, kind, dependent, |object| drop_owners(object, &uid)).is_err() {
                    return Requeue::AfterFailure;
                }
            }
            return remove_finalizer(server, who, &kind, &owner, ORPHAN);
        }
        if !foreground {
            return Requeue::No;
        }
        let blocks = |dependent: &Value| {
            meta::owners(dependent).any(|o| o["uid"] == uid && o["blockOwnerDeletion"] == true)
        };
        if !dependents.iter().any(|(_, dependent)| blocks(dependent)) {
            return remove_finalizer(server, who, &kind, &owner, FOREGROUND);
        }
        for (_, dependent) in dependents.iter().filter(|(_, d)| !meta::deleting(d)) {
            if self.collect(server, now, meta::uid(dependent)) == Requeue::AfterFailure {
                return Requeue::AfterFailure;
            }
        }
        Requeue::No
    }
}

fn by_uid(server: &Server, uid: &str) -> Option<(Arc<ServedKind>, Arc<Value>)> {
    let (store, key) = server.store.by_uid(uid)?;
    let object = server.store.get(store, key.as_str())?.clone();
    Some((server.kinds.primary(store).clone(), object))
}

fn resolve_owner(server: &Server, kind: &ServedKind, object: &Value, reference: &Value) -> Owner {
    let text = |field: &str| reference[field].as_str().unwrap_or_default();
    let Some(owner_kind) = server.kinds.find(text("apiVersion"), text("kind")) else {
        return Owner::Unresolvable;
    };
    if owner_kind.namespaced && !kind.namespaced {
        return Owner::Unresolvable;
    }
    let namespace = if owner_kind.namespaced { meta::namespace(object) } else { "" };
    match server.find(owner_kind, namespace, text("name")) {
        Ok(owner) if meta::uid(&owner) == text("uid") => {
            if meta::deleting(&owner) && meta::finalizers(&owner).any(|f| f == FOREGROUND) {
                Owner::Waiting
            } else {
                Owner::Present
            }
        }
        _ => Owner::Dangling,
    }
}

fn drop_owners(object: &mut Value, gone: &[String]) {
    let left: Vec<Value> =
        meta::owners(object).filter(|o| !gone.iter().any(|uid| o["uid"] == uid.as_str())).cloned().collect();
    if left.is_empty() {
        meta::unset(object, "ownerReferences");
    } else {
        meta::set(object, "ownerReferences", left);
    }
}

fn remove_finalizer(
    server: &mut Server,
    who: ControllerUser,
    kind: &Arc<ServedKind>,
    object: &Value,
    finalizer: &str,
) -> Requeue {
    let done = who.update(server, kind, object, |object| {
        let rest = meta::finalizers(object).filter(|f| *f != finalizer).map(Value::from).collect();
        meta::set_finalizers(object, rest);
    });
    match done {
        Ok(_) => Requeue::No,
        Err(failure) if failure.code() == 404 => Requeue::No,
        Err(_) => Requeue::AfterFailure,
    }
}
