//! Objects, and the log of everything that ever happened to them.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

use coppice_runtime::clock::SeededRng;
use jiff::Timestamp;
use serde_json::Value;

use super::kinds::{ServedKind, StoreId};
use super::meta;

/// Counts writes to all kinds.
pub type Revision = u64;

/// Namespace and name of an object. Ordered as the real storage orders them: by the text `namespace/name`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectKey(Arc<str>);

impl ObjectKey {
    /// The key of an object; the namespace of cluster-wide objects is empty.
    pub fn new(namespace: &str, name: &str) -> Self {
        if namespace.is_empty() {
            return Self(name.into());
        }
        let mut key = String::with_capacity(namespace.len() + name.len() + 1);
        for part in [namespace, "/", name] {
            key.push_str(part);
        }
        Self(key.into())
    }

    /// The namespace; empty for cluster-wide objects.
    pub fn namespace(&self) -> &str {
        self.0.split_once('/').map_or("", |(namespace, _)| namespace)
    }

    /// The name.
    pub fn name(&self) -> &str {
        self.0.split_once('/').map_or(&self.0, |(_, name)| name)
    }

    /// `namespace/name`, or the name of a cluster-wide object.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for ObjectKey {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What was asked for by the request that made a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verb {
    /// POST.
    Create,
    /// PUT.
    Update,
    /// PATCH that is not an apply.
    Patch,
    /// PATCH of type apply.
    Apply,
    /// DELETE of one object.
    Delete,
    /// DELETE of a collection.
    DeleteCollection,
}

impl Verb {
    /// The verb as authorization knows it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch | Self::Apply => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
        }
    }
}

/// One change of one object.
#[derive(Clone, Debug)]
pub struct Change {
    /// The revision that it made.
    pub revision: Revision,
    /// When.
    pub at: Timestamp,
    /// Who.
    pub user: Arc<str>,
    /// Under which name fields are owned that the change set.
    pub manager: Arc<str>,
    /// What was asked for.
    pub verb: Verb,
    /// On which subresource; empty if on none.
    pub subresource: &'static str,
    /// The kind that was asked for.
    pub kind: Arc<ServedKind>,
    /// Which object.
    pub key: ObjectKey,
    /// Its uid.
    pub uid: Arc<str>,
    /// The object before; none if it was made.
    pub before: Option<Arc<Value>>,
    /// The object after; none if it is gone.
    pub after: Option<Arc<Value>>,
}

impl Change {
    /// What there was before, with the revision of the change: how watches know what is gone, or no longer selected.
    pub(super) fn last_state(&self) -> Option<Arc<Value>> {
        let mut object = self.before.as_deref()?.clone();
        meta::set(&mut object, "resourceVersion", self.revision.to_string());
        Some(Arc::new(object))
    }

    /// The namespace; empty for cluster-wide objects.
    pub fn namespace(&self) -> &str {
        self.key.namespace()
    }

    /// The name.
    pub fn name(&self) -> &str {
        self.key.name()
    }
}

/// Objects of one kind.
#[derive(Clone, Debug, Default)]
struct Collection {
    objects: BTreeMap<ObjectKey, Arc<Value>>,
    /// Revisions of its changes, rising.
    log: Vec<Revision>,
}

/// Who writes, when and how: what a change records of the request.
#[derive(Clone, Debug)]
pub(super) struct Origin<'a> {
    pub(super) now: Timestamp,
    pub(super) user: &'a str,
    pub(super) manager: &'a str,
    pub(super) verb: Verb,
    pub(super) subresource: &'static str,
}

/// All objects and their history.
#[derive(Clone, Debug)]
pub(super) struct Store {
    /// The revision before the first change that is kept.
    base: Revision,
    /// What happened before this revision is no longer served.
    compacted: Revision,
    changes: Vec<Change>,
    collections: Vec<Collection>,
    /// Where an object with a uid is.
    uids: HashMap<Arc<str>, (StoreId, ObjectKey)>,
    /// Names of users and managers, each kept once.
    words: BTreeSet<Arc<str>>,
    issued: u64,
}

impl Store {
    pub(super) fn new(stores: usize) -> Self {
        Self {
            base: 0,
            compacted: 0,
            changes: Vec::new(),
            collections: vec![Collection::default(); stores],
            uids: HashMap::new(),
            words: BTreeSet::new(),
            issued: 0,
        }
    }

    pub(super) fn grow(&mut self, stores: usize) {
        self.collections.resize_with(stores, Collection::default);
    }

    pub(super) fn revision(&self) -> Revision {
        self.base + self.changes.len() as Revision
    }

    pub(super) fn compacted(&self) -> Revision {
        self.compacted
    }

    pub(super) fn compact(&mut self, up_to: Revision) {
        self.compacted = self.compacted.max(up_to.min(self.revision()));
    }

    pub(super) fn changes_since(&self, revision: Revision) -> &[Change] {
        let from = usize::try_from(revision.saturating_sub(self.base)).unwrap_or(usize::MAX);
        self.changes.get(from..).unwrap_or_default()
    }

    pub(super) fn get(&self, store: StoreId, key: &str) -> Option<&Arc<Value>> {
        self.collections[store.0].objects.get(key)
    }

    /// Where the object with a uid is.
    pub(super) fn by_uid(&self, uid: &str) -> Option<(StoreId, &ObjectKey)> {
        self.uids.get(uid).map(|(store, key)| (*store, key))
    }

    pub(super) fn len(&self, store: StoreId) -> usize {
        self.collections[store.0].objects.len()
    }

    /// Objects after a key, in the order of keys; all of one namespace, or of all.
    pub(super) fn range<'a>(
        &'a self,
        store: StoreId,
        namespace: &str,
        after: Option<&str>,
    ) -> impl Iterator<Item = (&'a ObjectKey, &'a Arc<Value>)> + use<'a> {
        let (from, to) = bounds(namespace, after);
        let objects = &self.collections[store.0].objects;
        // An empty range, such as after the last object of a namespace, must not be asked for.
        let empty = matches!(&to, Bound::Excluded(to) if from_text(&from) >= to.as_str());
        let range = (!empty).then(|| {
            objects.range::<str, _>((from.as_ref().map(String::as_str), to.as_ref().map(String::as_str)))
        });
        range.into_iter().flatten()
    }

    /// The same, as it was at a revision.
    pub(super) fn range_at(
        &self,
        store: StoreId,
        namespace: &str,
        after: Option<&str>,
        revision: Revision,
    ) -> Vec<(ObjectKey, Arc<Value>)> {
        let current = self.range(store, namespace, after);
        if revision >= self.last_change(store) {
            return current.map(|(key, object)| (key.clone(), object.clone())).collect();
        }
        // What has changed since, as it was before the first such change.
        let mut then: BTreeMap<&ObjectKey, Option<&Arc<Value>>> = BTreeMap::new();
        let (from, to) = bounds(namespace, after);
        for change in self.changes_of(store, revision) {
            let key = change.key.as_str();
            let behind = from_text(&from) <= key && !matches!(&from, Bound::Excluded(f) if f == key);
            let before = !matches!(&to, Bound::Excluded(to) if key >= to.as_str());
            if behind && before {
                then.entry(&change.key).or_insert(change.before.as_ref());
            }
        }
        let mut merged: BTreeMap<&ObjectKey, &Arc<Value>> =
            current.filter(|(key, _)| !then.contains_key(key)).collect();
        merged.extend(then.into_iter().filter_map(|(key, object)| Some((key, object?))));
        merged.into_iter().map(|(key, object)| (key.clone(), object.clone())).collect()
    }

    /// Changes of one kind after a revision.
    pub(super) fn changes_of(&self, store: StoreId, after: Revision) -> impl Iterator<Item = &Change> {
        let log = &self.collections[store.0].log;
        let from = log.partition_point(|r| *r <= after);
        log[from..].iter().filter_map(|r| self.change(*r))
    }

    /// The revision of the last change of a kind.
    pub(super) fn last_change(&self, store: StoreId) -> Revision {
        self.collections[store.0].log.last().copied().unwrap_or(0)
    }

    fn change(&self, revision: Revision) -> Option<&Change> {
        self.changes.get(usize::try_from(revision.checked_sub(self.base + 1)?).ok()?)
    }

    /// A uid that was never given out before: the digits do not show the order.
    pub(super) fn issue_uid(&mut self) -> String {
        self.issued += 1;
        let (high, low) = (mix(self.issued), mix(!self.issued));
        // Of 128 bits, version and variant take 6: all of `high` fits, and what is left of `low`.
        let free = (u128::from(high) << 58) | u128::from(low >> 6);
        let part = |shift: u32, bits: u32| (free >> shift) & ((1 << bits) - 1);
        format!(
            "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
            part(90, 32),
            part(74, 16),
            part(62, 12),
            0x8000 | part(48, 14),
            part(0, 48)
        )
    }

    /// A number that appears random: for the suffixes of generated names.
    pub(super) fn issue_number(&mut self) -> u64 {
        self.issued += 1;
        mix(self.issued)
    }

    /// Keeps an object, with the next revision.
    pub(super) fn put(
        &mut self,
        kind: &Arc<ServedKind>,
        key: ObjectKey,
        mut object: Value,
        origin: &Origin<'_>,
    ) -> Arc<Value> {
        let revision = self.revision() + 1;
        meta::set(&mut object, "resourceVersion", revision.to_string());
        let uid: Arc<str> = meta::uid(&object).into();
        let object = Arc::new(object);
        let collection = &mut self.collections[kind.store.0];
        let before = collection.objects.insert(key.clone(), object.clone());
        if before.is_none() {
            self.uids.insert(uid.clone(), (kind.store, key.clone()));
        }
        let change = self.change_of(kind, key, uid, origin);
        self.log(Change { before, after: Some(object.clone()), ..change });
        object
    }

    /// Removes an object; its last state, with the revision of the removal.
    pub(super) fn remove(
        &mut self,
        kind: &Arc<ServedKind>,
        key: &ObjectKey,
        origin: &Origin<'_>,
    ) -> Option<Arc<Value>> {
        let before = self.collections[kind.store.0].objects.remove(key)?;
        let uid: Arc<str> = meta::uid(&before).into();
        self.uids.remove(&uid);
        let change = Change { before: Some(before), ..self.change_of(kind, key.clone(), uid, origin) };
        let last = change.last_state();
        self.log(change);
        last
    }

    /// The next change, before it is said what there was and what there is.
    fn change_of(
        &mut self,
        kind: &Arc<ServedKind>,
        key: ObjectKey,
        uid: Arc<str>,
        origin: &Origin<'_>,
    ) -> Change {
        Change {
            revision: self.revision() + 1,
            at: origin.now,
            user: self.word(origin.user),
            manager: self.word(origin.manager),
            verb: origin.verb,
            subresource: origin.subresource,
            kind: kind.clone(),
            key,
            uid,
            before: None,
            after: None,
        }
    }

    fn log(&mut self, change: Change) {
        self.collections[change.kind.store.0].log.push(change.revision);
        self.changes.push(change);
    }

    fn word(&mut self, name: &str) -> Arc<str> {
        if let Some(word) = self.words.get(name) {
            return word.clone();
        }
        let word: Arc<str> = name.into();
        self.words.insert(word.clone());
        word
    }
}

/// From and to where the keys of a namespace reach, after a key if one is given.
fn bounds(namespace: &str, after: Option<&str>) -> (Bound<String>, Bound<String>) {
    let (first, end) = if namespace.is_empty() {
        (Bound::Unbounded, Bound::Unbounded)
    } else {
        // '0' is the character after '/'.
        (Bound::Included(format!("{namespace}/")), Bound::Excluded(format!("{namespace}0")))
    };
    match after {
        Some(after) if after >= from_text(&first) => (Bound::Excluded(after.to_owned()), end),
        _ => (first, end),
    }
}

fn from_text(bound: &Bound<String>) -> &str {
    match bound {
        Bound::Included(text) | Bound::Excluded(text) => text,
        Bound::Unbounded => "",
    }
}

/// A permutation of 64-bit numbers without visible order.
fn mix(number: u64) -> u64 {
    SeededRng::new(0).nth(number.wrapping_sub(1))
}
