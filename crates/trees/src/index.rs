//! What is known of all Subnamespaces in the cache together, counted while they change: nobody looks through all of them for one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use coppice_api::SubnamespacePhase;
use coppice_kinds::SubnamespaceObject;
use coppice_runtime::store::StoreIndex;

/// Of the Subnamespaces in the cache.
#[derive(Debug, Default)]
pub(crate) struct SubnamespaceIndex(Mutex<Indexed>);

/// Namespace and name of a Subnamespace.
pub(crate) type SubnamespaceName = (Box<str>, Box<str>);

/// Those that wait in one namespace: their uids by their names.
pub(crate) type Waiting = BTreeMap<Box<str>, Box<str>>;

#[derive(Debug, Default)]
struct Indexed {
    /// How many namespaces below its root each tree has.
    sizes: BTreeMap<Box<str>, u32>,
    /// Those that are being deleted, by the namespaces that they are in,
    terminating: BTreeMap<Box<str>, BTreeSet<Box<str>>>,
    /// and those of them that may take all below them with them.
    cascading: BTreeSet<SubnamespaceName>,
    /// Those that wait for something, by the namespaces that they are in.
    waiting: BTreeMap<Box<str>, Waiting>,
}

/// Whether it does not have what it asks for.
fn is_waiting(object: &SubnamespaceObject) -> bool {
    object.status.phase != Some(SubnamespacePhase::Ready)
}

/// Whether all below it may have to be deleted, too.
pub(crate) fn cascades(object: &SubnamespaceObject) -> bool {
    object.terminating && object.decoded().is_ok_and(|spec| spec.cascade_until.is_some())
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

    /// The namespaces that Subnamespaces are in which are being deleted, in order.
    pub(crate) fn with_terminating(&self) -> Vec<Box<str>> {
        self.indexed().terminating.keys().cloned().collect()
    }

    /// The names of those in this namespace, in order.
    pub(crate) fn terminating_in(&self, namespace: &str) -> Vec<Box<str>> {
        self.indexed().terminating.get(namespace).into_iter().flatten().cloned().collect()
    }

    /// The Subnamespaces that are being deleted and may take all below them with them, in the order of their namespaces and names.
    pub(crate) fn cascading(&self) -> Vec<SubnamespaceName> {
        self.indexed().cascading.iter().cloned().collect()
    }

    /// How many wait for something.
    pub(crate) fn count_waiting(&self) -> usize {
        self.indexed().waiting.values().map(BTreeMap::len).sum()
    }

    /// All of them, in the order of their namespaces and names.
    pub(crate) fn waiting(&self) -> Vec<SubnamespaceName> {
        let indexed = self.indexed();
        let all = indexed.waiting.iter();
        all.flat_map(|(namespace, names)| names.keys().map(move |name| (namespace.clone(), name.clone())))
            .collect()
    }

    /// What is made of those that wait in this namespace. Under the lock of the index: it must not ask for anything else of it.
    pub(crate) fn with_waiting<R>(&self, namespace: &str, of: impl FnOnce(&Waiting) -> R) -> R {
        match self.indexed().waiting.get(namespace) {
            Some(waiting) => of(waiting),
            None => of(&Waiting::new()),
        }
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
        let (namespace, name) = name_of(object);
        if is_waiting(object) {
            let waiting = self.waiting.entry(namespace.clone()).or_default();
            waiting.insert(name.clone(), object.uid.clone());
        }
        if object.terminating {
            self.terminating.entry(namespace.clone()).or_default().insert(name.clone());
        }
        if cascades(object) {
            self.cascading.insert((namespace, name));
        }
        if object.status.namespace_uid.is_some() {
            *self.sizes.entry(object.status.tree.as_str().into()).or_default() += 1;
        }
    }

    fn remove(&mut self, object: &SubnamespaceObject) {
        if let Some(waiting) = self.waiting.get_mut(&object.namespace) {
            waiting.remove(&object.name);
            if waiting.is_empty() {
                self.waiting.remove(&object.namespace);
            }
        }
        if let Some(terminating) = self.terminating.get_mut(&object.namespace) {
            terminating.remove(&object.name);
            if terminating.is_empty() {
                self.terminating.remove(&object.namespace);
            }
        }
        if cascades(object) {
            self.cascading.remove(&name_of(object));
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
        assert_eq!((sizes(), index.with_terminating().len()), ((2, 1, 3), 0));
        // One moves to another tree.
        store.upsert("shop", object("b", "other", Some("v"), true));
        assert_eq!(sizes(), (1, 2, 3));
        assert_eq!(
            (index.with_terminating(), index.terminating_in("shop")),
            (vec!["shop".into()], vec!["b".into()])
        );
        assert_eq!(index.cascading().len(), 0, "it takes nobody with it");
        store.remove_if("shop", "b", |_| true);
        assert_eq!((sizes(), index.with_terminating().len()), ((1, 1, 2), 0));
    }

    #[test]
    fn who_waits_and_who_takes_others_with_it_is_known_while_they_come_change_and_go() {
        let (store, index) = (Store::<Subnamespaces>::default(), Arc::new(SubnamespaceIndex::default()));
        store.set_index(index.clone());
        let put = |namespace: &str, name: &str, deleted: bool, phase: &str, until: Option<&str>| {
            let deleted = deleted.then_some("2026-01-01T00:00:00Z");
            let written = json!({
                "metadata": {"name": name, "namespace": namespace, "uid": format!("u-{name}"), "deletionTimestamp": deleted},
                "spec": {"quota": {"hard": {"pods": "1"}}, "cascadeUntil": until}, "status": {"phase": phase}
            });
            let object = read::decoded::<Subnamespaces>(written.to_string().as_bytes(), &()).unwrap();
            store.upsert(namespace, object);
        };
        let names = |found: Vec<SubnamespaceName>| -> Vec<String> {
            found.iter().map(|(namespace, name)| format!("{namespace}/{name}")).collect()
        };
        let (until, none) = (Some("2026-01-01T01:00:00Z"), Vec::<String>::new());
        put("shop", "a", false, "Pending", until);
        put("web", "b", false, "Refused", None);
        put("shop", "c", false, "Ready", None);
        assert_eq!(
            (names(index.waiting()), index.count_waiting()),
            (vec!["shop/a".into(), "web/b".into()], 2)
        );
        let in_shop = || -> Vec<String> {
            index.with_waiting("shop", |waiting| waiting.values().map(ToString::to_string).collect())
        };
        assert_eq!(in_shop(), ["u-a"]);
        // Consent does nothing before it is deleted.
        assert_eq!(names(index.cascading()), none);
        put("shop", "a", false, "Ready", until);
        assert_eq!((in_shop().len(), index.count_waiting()), (0, 1));
        put("shop", "a", true, "Deleting", until);
        assert_eq!((names(index.cascading()), in_shop().len()), (vec!["shop/a".into()], 1));
        put("shop", "a", true, "Deleting", None);
        assert_eq!(names(index.cascading()), none, "the consent was taken back");
        put("shop", "a", true, "Deleting", until);
        store.remove_if("shop", "a", |_| true);
        assert_eq!((names(index.cascading()), names(index.waiting())), (none, vec!["web/b".into()]));
    }
}
