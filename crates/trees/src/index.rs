//! What is known of all Subnamespaces in the cache together, counted while they change: nobody looks through all of them for one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use coppice_kinds::SubnamespaceObject;
use coppice_runtime::store::StoreIndex;

/// Of the Subnamespaces in the cache.
#[derive(Debug, Default)]
pub(crate) struct SubnamespaceIndex(Mutex<Indexed>);

/// Namespace and name of a Subnamespace.
pub(crate) type SubnamespaceName = (Box<str>, Box<str>);

#[derive(Debug, Default)]
struct Indexed {
    /// How many namespaces below its root each tree has.
    sizes: BTreeMap<Box<str>, u32>,
    /// Those that are being deleted.
    terminating: BTreeSet<SubnamespaceName>,
}

impl SubnamespaceIndex {
    /// How many namespaces Subnamespaces have created, in all trees.
    pub(crate) fn created(&self) -> u64 {
        self.indexed().sizes.values().copied().map(u64::from).sum()
    }

    /// How many of them are in this tree.
    pub(crate) fn size(&self, tree: &str) -> u32 {
        self.indexed().sizes.get(tree).copied().unwrap_or_default()
    }

    /// The Subnamespaces that are being deleted, in the order of their namespaces and names.
    pub(crate) fn terminating(&self) -> Vec<SubnamespaceName> {
        self.indexed().terminating.iter().cloned().collect()
    }

    fn indexed(&self) -> MutexGuard<'_, Indexed> {
        // Nothing that is done under it panics: a number that is wrong would stay so.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StoreIndex<SubnamespaceObject> for SubnamespaceIndex {
    fn changed(
        &self,
        before: &mut dyn Iterator<Item = &SubnamespaceObject>,
        after: &mut dyn Iterator<Item = &SubnamespaceObject>,
    ) {
        let mut indexed = self.indexed();
        for object in before {
            indexed.remove(object);
        }
        for object in after {
            indexed.add(object);
        }
    }
}

impl Indexed {
    fn add(&mut self, object: &SubnamespaceObject) {
        if object.terminating {
            self.terminating.insert(name_of(object));
        }
        if object.status.namespace_uid.is_some() {
            *self.sizes.entry(object.status.tree.as_str().into()).or_default() += 1;
        }
    }

    fn remove(&mut self, object: &SubnamespaceObject) {
        if object.terminating {
            self.terminating.remove(&name_of(object));
        }
        let tree = object.status.tree.as_str();
        if object.status.namespace_uid.is_some()
            && let Some(size) = self.sizes.get_mut(tree)
        {
            *size = size.saturating_sub(1);
            if *size == 0 {
                self.sizes.remove(tree);
            }
        }
    }
}

fn name_of(object: &SubnamespaceObject) -> SubnamespaceName {
    (object.namespace.clone(), object.name.clone())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use coppice_kinds::Subnamespaces;
    use coppice_runtime::read;
    use coppice_runtime::store::Store;
    use serde_json::json;

    use super::*;

    /// One in namespace `shop`, of this tree; `uid`: of the namespace that it created.
    fn object(name: &str, tree: &str, uid: Option<&str>, terminating: bool) -> SubnamespaceObject {
        let deleted = terminating.then_some("2026-01-01T00:00:00Z");
        let written = json!({
            "metadata": {"name": name, "namespace": "shop", "uid": format!("u-{name}"), "deletionTimestamp": deleted},
            "spec": {}, "status": {"tree": tree, "namespaceUid": uid}
        });
        read::decoded::<Subnamespaces>(written.to_string().as_bytes(), &()).unwrap()
    }

    #[test]
    fn namespaces_are_counted_in_their_trees_while_their_subnamespaces_come_change_and_go() {
        let (store, index) = (Store::<Subnamespaces>::default(), Arc::new(SubnamespaceIndex::default()));
        store.set_index(index.clone());
        let sizes = || (index.size("one"), index.size("other"), index.created());
        store.upsert("shop", object("a", "one", None, false));
        assert_eq!(sizes(), (0, 0, 0), "it has created none");
        store.upsert("shop", object("a", "one", Some("u"), false));
        store.upsert("shop", object("b", "one", Some("v"), false));
        store.upsert("shop", object("c", "other", Some("w"), false));
        assert_eq!((sizes(), index.terminating().len()), ((2, 1, 3), 0));
        // One moves to another tree.
        store.upsert("shop", object("b", "other", Some("v"), true));
        assert_eq!(sizes(), (1, 2, 3));
        let terminating: SubnamespaceName = ("shop".into(), "b".into());
        assert_eq!(index.terminating(), [terminating]);
        store.remove_if("shop", "b", |_| true);
        assert_eq!((sizes(), index.terminating().len()), ((1, 1, 2), 0));
    }
}
