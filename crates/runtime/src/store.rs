//! The cache of a watch, kept small: only the fields used, one list per namespace.

mod index;

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use coppice_api::Reason;
use tokio::sync::watch;
use tokio::time::Instant;

use self::index::Index;
pub use self::index::StoreIndex;
use crate::collapse::ListComparison;
use crate::decode::{Item, Unreadable};
use crate::intervals::ResyncIntervals;
use crate::kind::Kind;

/// A cache of one kind, filled by one watch. Clones share it.
#[derive(Debug)]
pub struct Store<K: Kind> {
    inner: Arc<RwLock<Inner<K>>>,
}

impl<K: Kind> Clone for Store<K> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

#[derive(Debug)]
struct Inner<K: Kind> {
    /// What decides how much is kept; the watch waits for it to change.
    context: watch::Sender<Arc<K::Context>>,
    /// Sorted, as the lists are, so that queries return objects in order.
    namespaces: Objects<K>,
    /// How many they are: read after every event.
    len: usize,
    /// What is there and cannot be understood, by namespace and name.
    unreadable: UnreadableObjects,
    /// What the last complete list was decoded with.
    listed: Option<Arc<K::Context>>,
    since: Option<Duration>,
    seen: Option<Instant>,
    problem: Option<WatchProblem>,
    /// Whether events may have been missed since the last list.
    interrupted: bool,
    /// For how long the watch is trusted without a sign of life.
    stale_after: Duration,
    index: Index<K::Object>,
}

/// Why a watch delivers nothing at present.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchProblem {
    /// Whether the API server refuses us (401, 403).
    pub forbidden: bool,
    /// What is wrong, for people.
    pub message: String,
}

/// How far a cache can be trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// It follows the API server; without a gap since that instant of the [monotonic](crate::clock::Clock::monotonic) clock.
    Fresh(Duration),
    /// The first list has not been completed, or none since more or less is [kept](Store::set_context).
    NotSynced(Option<WatchProblem>),
    /// It was complete, but nothing has arrived for longer than [`ResyncIntervals::fresh`], or the API server refuses
    /// us.
    Stale(Option<WatchProblem>),
}

impl<K: Kind> Default for Store<K> {
    fn default() -> Self {
        Self { inner: Arc::default() }
    }
}

impl<K: Kind> Default for Inner<K> {
    fn default() -> Self {
        Self {
            context: watch::Sender::default(),
            namespaces: BTreeMap::new(),
            len: 0,
            unreadable: UnreadableObjects::default(),
            listed: None,
            since: None,
            seen: None,
            problem: None,
            interrupted: false,
            stale_after: ResyncIntervals::default().fresh,
            index: Index::default(),
        }
    }
}

impl<K: Kind> Store<K> {
    fn read<R>(&self, f: impl FnOnce(&Inner<K>) -> R) -> R {
        // A panic while the lock is held leaves valid data: every change is one assignment.
        f(&self.inner.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn write<R>(&self, f: impl FnOnce(&mut Inner<K>) -> R) -> R {
        f(&mut self.inner.write().unwrap_or_else(PoisonError::into_inner))
    }

    /// Has an index follow every change from now on. What is there it gets at once.
    pub fn set_index(&self, index: Arc<dyn StoreIndex<K::Object>>) {
        self.write(|inner| {
            inner.index = Index(Some(index));
            inner.index.changed(None, all::<K>(&inner.namespaces));
        });
    }

    /// One object; cluster-scoped kinds have the namespace `""`.
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<K::Object>> {
        self.read(|inner| inner.get(namespace, name).cloned())
    }

    /// The objects of one namespace, by name.
    pub fn list(&self, namespace: &str) -> Vec<Arc<K::Object>> {
        self.read(|inner| inner.namespaces.get(namespace).cloned().unwrap_or_default())
    }

    /// The first of them, so many at most.
    pub fn first(&self, namespace: &str, most: usize) -> Vec<Arc<K::Object>> {
        self.read(|inner| {
            let list = inner.namespaces.get(namespace);
            list.into_iter().flatten().take(most).cloned().collect()
        })
    }

    /// How many objects of one namespace there are.
    pub fn count(&self, namespace: &str) -> usize {
        self.read(|inner| inner.namespaces.get(namespace).map_or(0, Vec::len))
    }

    /// The objects of this name, of each namespace that has one.
    pub fn named(&self, name: &str) -> Vec<Arc<K::Object>> {
        self.read(|inner| {
            let of_name = |list: &Vec<Arc<K::Object>>| {
                let at = list.binary_search_by(|t| K::name(t).cmp(name)).ok()?;
                Some(Arc::clone(&list[at]))
            };
            inner.namespaces.values().filter_map(of_name).collect()
        })
    }

    /// The namespace and name of every object.
    pub fn keys(&self) -> Vec<(Box<str>, Box<str>)> {
        self.read(|inner| {
            let lists = inner.namespaces.iter();
            lists.flat_map(|(ns, list)| list.iter().map(|t| (ns.clone(), K::name(t).into()))).collect()
        })
    }

    /// Calls back for every object, under the lock: keep it short.
    pub fn for_each(&self, mut f: impl FnMut(&K::Object)) {
        self.read(|inner| all::<K>(&inner.namespaces).for_each(&mut f));
    }

    /// How many namespaces have at least one object.
    pub fn namespaces(&self) -> usize {
        self.read(|inner| inner.namespaces.len())
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.read(|inner| inner.len)
    }

    /// True if there is no object.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How far the content can be trusted now.
    pub fn freshness(&self) -> Freshness {
        self.read(|inner| match (inner.since, inner.seen, &inner.problem) {
            (None, _, problem) => Freshness::NotSynced(problem.clone()),
            (Some(_), _, Some(problem)) if problem.forbidden => Freshness::Stale(Some(problem.clone())),
            (Some(since), Some(seen), _) if seen.elapsed() < inner.stale_after => Freshness::Fresh(since),
            (Some(_), _, problem) => Freshness::Stale(problem.clone()),
        })
    }

    /// Changes what decides how much is kept. Unless it stays the same, everything is listed again at once, and (if it
    /// [selects objects](Kind::CONTEXT_SELECTS)) nothing is synced until that list is complete: what is kept more was not looked
    /// at, and what is kept less may be in an event on its way. Collect changes: each one costs a list, and a list that is
    /// under way begins again.
    pub fn set_context(&self, context: K::Context) {
        self.write(|inner| {
            if **inner.context.borrow() != context {
                if K::CONTEXT_SELECTS {
                    inner.since = None;
                }
                inner.context.send_replace(Arc::new(context));
            }
        });
    }

    /// What decides how much is kept of what is read from now on.
    pub fn current_context(&self) -> Arc<K::Context> {
        self.read(|inner| Arc::clone(&inner.context.borrow()))
    }

    /// Whether everything was listed with the [context](Self::current_context) as it is.
    pub fn is_listed(&self) -> bool {
        self.read(|inner| {
            inner.listed.as_ref().is_some_and(|with| Arc::ptr_eq(with, &inner.context.borrow()))
        })
    }

    /// What the last complete list was decoded with; none before the first.
    pub fn listed_context(&self) -> Option<Arc<K::Context>> {
        self.read(|inner| inner.listed.clone())
    }

    /// What decides how much is kept, and each change of it.
    pub(crate) fn context(&self) -> watch::Receiver<Arc<K::Context>> {
        self.read(|inner| inner.context.subscribe())
    }

    /// For how long to trust the watch without a sign of life.
    pub(crate) fn set_stale_after(&self, time: Duration) {
        self.write(|inner| inner.stale_after = time);
    }

    /// How long ago anything was heard of the kind, a list or a sign of life from the watch; none if nothing was.
    pub fn heard_ago(&self) -> Option<Duration> {
        self.read(|inner| inner.seen.map(|seen| seen.elapsed()))
    }

    /// Whether no event can have been missed since the last list, as far as the watch knows. What was missed is known once everything
    /// is listed again; until then the content is still [trusted](Self::freshness) for a while.
    pub fn is_followed(&self) -> bool {
        self.read(|inner| inner.since.is_some() && !inner.interrupted)
    }

    /// The watch has ended in a way that lets events be missed.
    pub(crate) fn interrupted(&self) {
        self.write(|inner| inner.interrupted = true);
    }

    /// A sign of life from the watch.
    pub(crate) fn seen(&self) {
        self.write(|inner| {
            inner.seen = Some(Instant::now());
            inner.problem = None;
        });
    }

    /// Records what is wrong; true if that is new.
    pub(crate) fn note_problem(&self, problem: WatchProblem) -> bool {
        self.write(|inner| inner.problem.replace(problem.clone()) != Some(problem))
    }

    /// The objects of one namespace, by name, if all of them are understood; otherwise the first that is not.
    pub fn decoded(&self, namespace: &str) -> Result<Vec<Arc<K::Object>>, Unreadable> {
        self.read(|inner| match inner.unreadable(namespace) {
            Some(unreadable) => Err(unreadable.clone()),
            None => Ok(inner.namespaces.get(namespace).cloned().unwrap_or_default()),
        })
    }

    /// Why one object of a cluster-scoped kind cannot be understood, if so.
    pub fn unreadable_object(&self, name: &str) -> Option<Unreadable> {
        self.read(|inner| {
            let all = inner.unreadable.places.get("")?;
            all.get(name).or_else(|| all.get("")).cloned()
        })
    }

    /// Every namespace in which something cannot be understood, with the first that is not; of cluster-scoped kinds each
    /// object.
    pub(crate) fn unreadable(&self) -> BTreeMap<Box<str>, Unreadable> {
        self.read(|inner| {
            let first = |all: &BTreeMap<Box<str>, Unreadable>| all.values().next().cloned();
            let places = &inner.unreadable.places;
            let namespaces = places.iter().filter(|(namespace, _)| !namespace.is_empty());
            let firsts = namespaces.filter_map(|(namespace, all)| Some((namespace.clone(), first(all)?)));
            let objects = places.get("").into_iter().flatten();
            firsts.chain(objects.map(|(name, unreadable)| (name.clone(), unreadable.clone()))).collect()
        })
    }

    /// How many objects cannot be understood for this reason.
    pub(crate) fn count_unreadable(&self, reason: Reason) -> usize {
        self.read(|inner| inner.unreadable.counts.get(&reason).copied().unwrap_or(0))
    }

    /// Puts in what was read of an object; true if that changed anything.
    pub(crate) fn put(&self, item: Item<K::Object>) -> bool {
        let (namespace, name) = (&item.object_ref.namespace, &item.object_ref.name);
        match item.object {
            Ok(object) => {
                // In this order, so that at no time it seems not to be there.
                let changed = self.upsert(namespace, object);
                let unknown = self.write(|inner| inner.unreadable.remove(namespace, name));
                changed || unknown
            }
            Err(unreadable) => self.write(|inner| {
                // What was known of it is outdated.
                inner.remove(namespace, name);
                inner.unreadable.insert(namespace, name, unreadable)
            }),
        }
    }

    /// Puts an object in; true if that changed anything.
    pub fn upsert(&self, namespace: &str, mut object: K::Object) -> bool {
        K::compact(&mut object);
        self.write(|inner| {
            let Inner { namespaces, len, index, .. } = inner;
            let list = namespaces.entry(namespace.into()).or_default();
            match list.binary_search_by(|t| K::name(t).cmp(K::name(&object))) {
                // The watch reports what the cache has already.
                Ok(at) if *list[at] == object || K::is_newer(&list[at], &object) => false,
                Ok(at) => {
                    index.changed(Some(&*list[at]), Some(&object));
                    list[at] = Arc::new(object);
                    true
                }
                Err(at) => {
                    index.changed(None, Some(&object));
                    *len += 1;
                    list.insert(at, Arc::new(object));
                    true
                }
            }
        })
    }

    /// Takes over a state of an object that was just written or read, so that the watch is not waited for (H13). What the watch
    /// does not know, or knows to be gone, is not learnt. The watch's event about that state changes nothing any more and enqueues
    /// nobody: who else needs it looks again by itself.
    pub fn update_if_newer(&self, namespace: &str, mut object: K::Object) {
        K::compact(&mut object);
        self.write(|inner| {
            let Inner { namespaces, index, .. } = inner;
            let Some(list) = namespaces.get_mut(namespace) else { return };
            if let Ok(at) = list.binary_search_by(|t| K::name(t).cmp(K::name(&object)))
                && K::is_newer(&object, &list[at])
            {
                index.changed(Some(&*list[at]), Some(&object));
                list[at] = Arc::new(object);
            }
        });
    }

    /// Removes an object that the API server says is gone, though the watch has not reported so (yet). One of another uid stays.
    pub fn remove_if(&self, namespace: &str, name: &str, is_it: impl Fn(&K::Object) -> bool) {
        self.write(|inner| {
            if inner.get(namespace, name).is_some_and(|known| is_it(known)) {
                inner.remove(namespace, name);
            }
        });
    }

    /// True if it was there.
    pub(crate) fn remove(&self, namespace: &str, name: &str) -> bool {
        self.write(|inner| inner.remove(namespace, name) | inner.unreadable.remove(namespace, name))
    }

    /// The same for clones of one store, and no others.
    pub(crate) fn id(&self) -> usize {
        Arc::as_ptr(&self.inner).addr()
    }

    /// Nothing is known of the kind any more: nobody watches it.
    pub(crate) fn clear(&self) {
        self.write(|inner| {
            inner.index.changed(all::<K>(&inner.namespaces), None);
            let (context, index) = (inner.context.clone(), inner.index.clone());
            *inner = Inner { context, stale_after: inner.stale_after, index, ..Inner::default() };
        });
    }

    /// The start of a complete list, which [`Self::replace`] puts in the place of what there is.
    pub(crate) fn relist(&self) -> Relist<K> {
        Relist {
            store: self.clone(),
            context: Arc::clone(&self.context().borrow()),
            namespaces: BTreeMap::new(),
            unreadable: UnreadableObjects::default(),
            listed: 0,
            known: 0,
        }
    }

    /// Replaces everything in one step by a complete list; `since` is its instant if anything may have been missed before
    /// it. Answers what differs from before: the keys of what is new, of what changed and of what is gone.
    pub(crate) fn replace(&self, list: Relist<K>, since: Option<Duration>) -> Vec<(Box<str>, Box<str>)> {
        let mut namespaces = list.namespaces;
        for list in namespaces.values_mut() {
            list.sort_by(|a, b| K::name(a).cmp(K::name(b)));
            list.shrink_to_fit();
        }
        self.write(|inner| {
            let old = std::mem::replace(&mut inner.namespaces, namespaces);
            inner.len = inner.namespaces.values().map(Vec::len).sum();
            inner.index.changed(all::<K>(&old), all::<K>(&inner.namespaces));
            let unread = std::mem::replace(&mut inner.unreadable, list.unreadable);
            // Otherwise it was read for what was to be kept before.
            if Arc::ptr_eq(&list.context, &inner.context.borrow()) {
                inner.since = since.or(inner.since);
            }
            inner.listed = Some(list.context);
            inner.seen = Some(Instant::now());
            inner.problem = None;
            inner.interrupted = false;
            let mut keys = differing::<K>(&old, &inner.namespaces);
            keys.extend(unread.only_here(&inner.unreadable).chain(inner.unreadable.only_here(&unread)));
            keys
        })
    }
}

impl<K: Kind> Inner<K> {
    fn get(&self, namespace: &str, name: &str) -> Option<&Arc<K::Object>> {
        let list = self.namespaces.get(namespace)?;
        let at = list.binary_search_by(|t| K::name(t).cmp(name)).ok()?;
        list.get(at)
    }

    /// What cannot be understood in a namespace, if anything: the first by name. What does not even say where it is counts
    /// everywhere.
    fn unreadable(&self, namespace: &str) -> Option<&Unreadable> {
        let places = &self.unreadable.places;
        places.get(namespace).or_else(|| places.get(""))?.values().next()
    }

    /// Whether there is such an object, understood or not.
    fn has(&self, namespace: &str, name: &str) -> bool {
        self.get(namespace, name).is_some()
            || self.unreadable.places.get(namespace).is_some_and(|all| all.contains_key(name))
    }

    /// How many objects there are, understood or not.
    fn count(&self) -> usize {
        self.len + self.unreadable.places.values().map(BTreeMap::len).sum::<usize>()
    }

    /// True if it was there.
    fn remove(&mut self, namespace: &str, name: &str) -> bool {
        let Some(list) = self.namespaces.get_mut(namespace) else { return false };
        let Ok(at) = list.binary_search_by(|t| K::name(t).cmp(name)) else { return false };
        let removed = list.remove(at);
        self.len -= 1;
        if list.is_empty() {
            self.namespaces.remove(namespace);
        }
        self.index.changed(Some(&*removed), None);
        true
    }
}

/// The objects of one kind, by namespace and then by name.
type Objects<K> = BTreeMap<Box<str>, Vec<Arc<<K as Kind>::Object>>>;

/// All of them, in order.
fn all<K: Kind>(objects: &Objects<K>) -> impl Iterator<Item = &K::Object> {
    objects.values().flatten().map(|object| &**object)
}

/// What cannot be understood of one kind.
#[derive(Debug, Default)]
struct UnreadableObjects {
    /// By namespace and then by name.
    places: BTreeMap<Box<str>, BTreeMap<Box<str>, Unreadable>>,
    /// How many of them there are for each reason: read after every event, however many there are.
    counts: BTreeMap<Reason, usize>,
}

impl UnreadableObjects {
    /// True if that changed anything.
    fn insert(&mut self, namespace: &str, name: &str, unreadable: Unreadable) -> bool {
        let all = self.places.entry(namespace.into()).or_default();
        let before = all.insert(name.into(), unreadable.clone());
        *self.counts.entry(unreadable.reason).or_default() += 1;
        if let Some(before) = &before {
            self.uncount(before.reason);
        }
        before != Some(unreadable)
    }

    /// True if it was one that could not be understood.
    fn remove(&mut self, namespace: &str, name: &str) -> bool {
        let Some(all) = self.places.get_mut(namespace) else { return false };
        let was = all.remove(name);
        if all.is_empty() {
            self.places.remove(namespace);
        }
        if let Some(was) = &was {
            self.uncount(was.reason);
        }
        was.is_some()
    }

    fn uncount(&mut self, reason: Reason) {
        if let Some(count) = self.counts.get_mut(&reason) {
            *count = count.saturating_sub(1);
        }
    }

    /// The keys of what cannot be understood here and not, or not for the same reason, in the other.
    fn only_here(&self, other: &Self) -> impl Iterator<Item = (Box<str>, Box<str>)> {
        self.places.iter().flat_map(move |(namespace, all)| {
            let there = other.places.get(namespace);
            let differing = all.iter().filter(move |(name, u)| there.and_then(|t| t.get(*name)) != Some(u));
            differing.map(move |(name, _)| (namespace.clone(), name.clone()))
        })
    }
}

/// A list while its pages are read. Unchanged objects are not held twice.
pub(crate) struct Relist<K: Kind> {
    store: Store<K>,
    /// What its objects are decoded with.
    pub(crate) context: Arc<K::Context>,
    namespaces: Objects<K>,
    unreadable: UnreadableObjects,
    /// How many objects there are in it.
    listed: usize,
    /// How many of those the store has.
    known: usize,
}

impl<K: Kind> Relist<K> {
    pub(crate) fn push(&mut self, item: Item<K::Object>) {
        let namespace = item.object_ref.namespace;
        self.listed += 1;
        self.known += usize::from(self.store.read(|inner| inner.has(&namespace, &item.object_ref.name)));
        let mut object = match item.object {
            Ok(object) => object,
            Err(unreadable) => {
                self.unreadable.insert(&namespace, &item.object_ref.name, unreadable);
                return;
            }
        };
        K::compact(&mut object);
        let known = self.store.get(&namespace, K::name(&object)).filter(|known| **known == object);
        self.namespaces.entry(namespace).or_default().push(known.unwrap_or_else(|| Arc::new(object)));
    }

    /// How the list compares with what the store has, understood or not.
    pub(crate) fn compare(&self) -> ListComparison {
        let before = self.store.read(Inner::count);
        ListComparison { before, missing: before.saturating_sub(self.known), listed: self.listed }
    }
}

/// The keys of what is only in one of them, or not the same object in both.
fn differing<K: Kind>(old: &Objects<K>, new: &Objects<K>) -> Vec<(Box<str>, Box<str>)> {
    let found = |objects: &Objects<K>, namespace: &str, name: &str| {
        let list = objects.get(namespace)?;
        let at = list.binary_search_by(|t| K::name(t).cmp(name)).ok()?;
        Some(Arc::clone(&list[at]))
    };
    let each = |objects: &'_ Objects<K>, differs: &dyn Fn(&str, &Arc<K::Object>) -> bool| {
        let all = objects.iter().flat_map(|(namespace, list)| list.iter().map(move |t| (namespace, t)));
        let differing = all.filter(|(namespace, t)| differs(namespace, t));
        differing.map(|(namespace, t)| (namespace.clone(), K::name(t).into())).collect::<Vec<_>>()
    };
    let mut keys = each(old, &|namespace, t| found(new, namespace, K::name(t)).is_none());
    keys.extend(each(new, &|namespace, t| {
        found(old, namespace, K::name(t)).is_none_or(|before| !Arc::ptr_eq(&before, t))
    }));
    keys
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
