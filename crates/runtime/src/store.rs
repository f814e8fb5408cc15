//! What a watch has seen, held small: only the fields used, one list per namespace.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use coppice_api::Reason;
use tokio::time::Instant;

use crate::decode::{Item, Unreadable};
use crate::pace::Pace;

/// Something held in a [`Store`].
pub trait Named: Send + Sync + 'static {
    /// The object's name, unique in its namespace.
    fn name(&self) -> &str;

    /// Whether this is a later state of the same object than `other`; false if that cannot be told.
    fn is_newer_than(&self, other: &Self) -> bool {
        let _ = other;
        false
    }
}

/// A cache of one kind, filled by one watch. Clones share it.
#[derive(Debug)]
pub struct Store<T> {
    inner: Arc<RwLock<Inner<T>>>,
}

impl<T> Clone for Store<T> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

#[derive(Debug)]
struct Inner<T> {
    /// Sorted, and so are the lists: what is asked in order is answered in order.
    namespaces: Objects<T>,
    /// What is there and cannot be understood, by namespace and name.
    unreadable: Unread,
    since: Option<Duration>,
    seen: Option<Instant>,
    problem: Option<Problem>,
    /// For how long the watch is believed without a sign of life.
    believed: Duration,
}

/// Why a watch does not deliver at present.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Whether the API server refuses us (401, 403).
    pub forbidden: bool,
    /// What is wrong, for people.
    pub message: String,
}

/// How far a cache can be believed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// It follows the API server; without a gap since that instant of the [monotonic](crate::clock::Clock::monotonic) clock.
    Fresh(Duration),
    /// The first list has not been completed.
    NotSynced(Option<Problem>),
    /// It was complete, but nothing has been heard for longer than [`Pace::fresh`], or the API server refuses us.
    Stale(Option<Problem>),
}

impl<T: Named + PartialEq> Default for Store<T> {
    fn default() -> Self {
        Self {
            inner: Arc::new(RwLock::new(Inner {
                namespaces: BTreeMap::new(),
                unreadable: BTreeMap::new(),
                since: None,
                seen: None,
                problem: None,
                believed: Pace::default().fresh,
            })),
        }
    }
}

impl<T: Named + PartialEq> Store<T> {
    fn read<R>(&self, f: impl FnOnce(&Inner<T>) -> R) -> R {
        // A panic while the lock is held leaves valid data: every change is one assignment.
        f(&self.inner.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn write<R>(&self, f: impl FnOnce(&mut Inner<T>) -> R) -> R {
        f(&mut self.inner.write().unwrap_or_else(PoisonError::into_inner))
    }

    /// One object; cluster-scoped kinds have the namespace `""`.
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<T>> {
        self.read(|inner| {
            let list = inner.namespaces.get(namespace)?;
            let at = list.binary_search_by(|t| t.name().cmp(name)).ok()?;
            Some(Arc::clone(&list[at]))
        })
    }

    /// The objects of one namespace, by name.
    pub fn list(&self, namespace: &str) -> Vec<Arc<T>> {
        self.read(|inner| inner.namespaces.get(namespace).cloned().unwrap_or_default())
    }

    /// The namespace and name of every object.
    pub fn keys(&self) -> Vec<(Box<str>, Box<str>)> {
        self.read(|inner| {
            let lists = inner.namespaces.iter();
            lists.flat_map(|(ns, list)| list.iter().map(|t| (ns.clone(), t.name().into()))).collect()
        })
    }

    /// Calls back for every object, under the lock: keep it short.
    pub fn for_each(&self, mut f: impl FnMut(&T)) {
        self.read(|inner| inner.namespaces.values().flatten().for_each(|t| f(t)));
    }

    /// How many namespaces have at least one object.
    pub fn namespaces(&self) -> usize {
        self.read(|inner| inner.namespaces.len())
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.read(|inner| inner.namespaces.values().map(Vec::len).sum())
    }

    /// True if there is no object.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How far the content can be believed now.
    pub fn freshness(&self) -> Freshness {
        self.read(|inner| match (inner.since, inner.seen, &inner.problem) {
            (None, _, problem) => Freshness::NotSynced(problem.clone()),
            (Some(_), _, Some(problem)) if problem.forbidden => Freshness::Stale(Some(problem.clone())),
            (Some(since), Some(seen), _) if seen.elapsed() < inner.believed => Freshness::Fresh(since),
            (Some(_), _, problem) => Freshness::Stale(problem.clone()),
        })
    }

    /// For how long to believe the watch without a sign of life.
    pub(crate) fn believe_for(&self, time: Duration) {
        self.write(|inner| inner.believed = time);
    }

    /// A sign of life from the watch.
    pub(crate) fn seen(&self) {
        self.write(|inner| {
            inner.seen = Some(Instant::now());
            inner.problem = None;
        });
    }

    /// Notes what is wrong; true if that is news.
    pub(crate) fn trouble(&self, problem: Problem) -> bool {
        self.write(|inner| inner.problem.replace(problem.clone()) != Some(problem))
    }

    /// The objects of one namespace, by name, if all of them are understood; otherwise the first that is not.
    pub fn understood(&self, namespace: &str) -> Result<Vec<Arc<T>>, Unreadable> {
        self.read(|inner| match inner.unreadable(namespace) {
            Some(unreadable) => Err(unreadable.clone()),
            None => Ok(inner.namespaces.get(namespace).cloned().unwrap_or_default()),
        })
    }

    /// Why one object of a cluster-scoped kind cannot be understood, if so.
    pub fn unreadable_object(&self, name: &str) -> Option<Unreadable> {
        self.read(|inner| {
            let all = inner.unreadable.get("")?;
            all.get(name).or_else(|| all.get("")).cloned()
        })
    }

    /// Every namespace in which something cannot be understood, with the first that is not; of cluster-scoped kinds each
    /// object.
    pub(crate) fn unreadable(&self) -> BTreeMap<Box<str>, Unreadable> {
        self.read(|inner| {
            let first = |all: &BTreeMap<Box<str>, Unreadable>| all.values().next().cloned();
            let namespaces = inner.unreadable.iter().filter(|(namespace, _)| !namespace.is_empty());
            let firsts = namespaces.filter_map(|(namespace, all)| Some((namespace.clone(), first(all)?)));
            let objects = inner.unreadable.get("").into_iter().flatten();
            firsts.chain(objects.map(|(name, unreadable)| (name.clone(), unreadable.clone()))).collect()
        })
    }

    /// How many objects cannot be understood for this reason.
    pub(crate) fn count_unreadable(&self, reason: Reason) -> usize {
        self.read(|inner| {
            inner.unreadable.values().flat_map(BTreeMap::values).filter(|u| u.reason == reason).count()
        })
    }

    /// Puts in what was read of an object; true if that changed anything.
    pub(crate) fn put(&self, item: Item<T>) -> bool {
        let (namespace, name) = (&item.place.namespace, &item.place.name);
        match item.object {
            Ok(object) => {
                // In this order, so that at no time it seems not to be there.
                let changed = self.upsert(namespace, object);
                let unknown = self.write(|inner| forget_unreadable(&mut inner.unreadable, namespace, name));
                changed || unknown
            }
            Err(unreadable) => self.write(|inner| {
                // What was known of it is over.
                inner.remove(namespace, name);
                let all = inner.unreadable.entry(namespace.clone()).or_default();
                all.insert(name.clone(), unreadable.clone()) != Some(unreadable)
            }),
        }
    }

    /// Puts an object in; true if that changed anything.
    pub(crate) fn upsert(&self, namespace: &str, object: T) -> bool {
        self.write(|inner| {
            let list = inner.namespaces.entry(namespace.into()).or_default();
            match list.binary_search_by(|t| t.name().cmp(object.name())) {
                // The watch tells of what was learnt already.
                Ok(at) if *list[at] == object || list[at].is_newer_than(&object) => false,
                Ok(at) => {
                    list[at] = Arc::new(object);
                    true
                }
                Err(at) => {
                    list.insert(at, Arc::new(object));
                    true
                }
            }
        })
    }

    /// Takes over a state of an object that was just written or read, so that the watch is not waited for (H13). What the watch
    /// does not know, or knows to be gone, is not learnt.
    pub fn learn(&self, namespace: &str, object: T) {
        self.write(|inner| {
            let Some(list) = inner.namespaces.get_mut(namespace) else { return };
            if let Ok(at) = list.binary_search_by(|t| t.name().cmp(object.name()))
                && object.is_newer_than(&list[at])
            {
                list[at] = Arc::new(object);
            }
        });
    }

    /// Forgets an object that the API server says is gone, though the watch has not told so (yet). One of another uid stays.
    pub fn forget(&self, namespace: &str, name: &str, is_it: impl Fn(&T) -> bool) {
        if self.get(namespace, name).is_some_and(|known| is_it(&known)) {
            self.remove(namespace, name);
        }
    }

    pub(crate) fn remove(&self, namespace: &str, name: &str) {
        self.write(|inner| {
            inner.remove(namespace, name);
            forget_unreadable(&mut inner.unreadable, namespace, name);
        });
    }

    /// The start of a complete list, which [`Self::replace`] puts in the place of what there is.
    pub(crate) fn relist(&self) -> Relist<T> {
        Relist { store: self.clone(), namespaces: BTreeMap::new(), unreadable: BTreeMap::new() }
    }

    /// Replaces everything in one step by a complete list; `since` is its instant if anything may have been missed before
    /// it. Answers what differs from before: the keys of what is new, of what changed and of what is gone.
    pub(crate) fn replace(&self, list: Relist<T>, since: Option<Duration>) -> Vec<(Box<str>, Box<str>)> {
        let mut namespaces = list.namespaces;
        for list in namespaces.values_mut() {
            list.sort_by(|a, b| a.name().cmp(b.name()));
            list.shrink_to_fit();
        }
        self.write(|inner| {
            let old = std::mem::replace(&mut inner.namespaces, namespaces);
            let unread = std::mem::replace(&mut inner.unreadable, list.unreadable);
            inner.since = since.or(inner.since);
            inner.seen = Some(Instant::now());
            inner.problem = None;
            let mut keys = differing(&old, &inner.namespaces);
            keys.extend(only_in(&unread, &inner.unreadable).chain(only_in(&inner.unreadable, &unread)));
            keys
        })
    }
}

impl<T: Named> Inner<T> {
    /// What cannot be understood in a namespace, if anything: the first by name. What does not even say where it is counts
    /// everywhere.
    fn unreadable(&self, namespace: &str) -> Option<&Unreadable> {
        let all = self.unreadable.get(namespace).or_else(|| self.unreadable.get(""))?;
        all.values().next()
    }

    fn remove(&mut self, namespace: &str, name: &str) {
        let Some(list) = self.namespaces.get_mut(namespace) else { return };
        list.retain(|t| t.name() != name);
        if list.is_empty() {
            self.namespaces.remove(namespace);
        }
    }
}

/// The objects of one kind, by namespace and then by name.
type Objects<T> = BTreeMap<Box<str>, Vec<Arc<T>>>;

/// What cannot be understood of one kind, by namespace and then by name.
type Unread = BTreeMap<Box<str>, BTreeMap<Box<str>, Unreadable>>;

/// True if it was one that could not be understood.
fn forget_unreadable(unread: &mut Unread, namespace: &str, name: &str) -> bool {
    let Some(all) = unread.get_mut(namespace) else { return false };
    let was = all.remove(name).is_some();
    if all.is_empty() {
        unread.remove(namespace);
    }
    was
}

/// The keys of what cannot be understood in the one and not, or not for the same reason, in the other.
fn only_in(one: &Unread, other: &Unread) -> impl Iterator<Item = (Box<str>, Box<str>)> {
    one.iter().flat_map(move |(namespace, all)| {
        let there = other.get(namespace);
        let differing = all.iter().filter(move |(name, u)| there.and_then(|t| t.get(*name)) != Some(u));
        differing.map(move |(name, _)| (namespace.clone(), name.clone()))
    })
}

/// A list while its pages are read. What is as it was is not held twice.
pub(crate) struct Relist<T> {
    store: Store<T>,
    namespaces: Objects<T>,
    unreadable: Unread,
}

impl<T: Named + PartialEq> Relist<T> {
    pub(crate) fn push(&mut self, item: Item<T>) {
        let namespace = item.place.namespace;
        let object = match item.object {
            Ok(object) => object,
            Err(unreadable) => {
                self.unreadable.entry(namespace).or_default().insert(item.place.name, unreadable);
                return;
            }
        };
        let known = self.store.get(&namespace, object.name()).filter(|known| **known == object);
        self.namespaces.entry(namespace).or_default().push(known.unwrap_or_else(|| Arc::new(object)));
    }
}

/// The keys of what is only in one of them, or not the same object in both.
fn differing<T: Named>(old: &Objects<T>, new: &Objects<T>) -> Vec<(Box<str>, Box<str>)> {
    let found = |objects: &Objects<T>, namespace: &str, name: &str| {
        let list = objects.get(namespace)?;
        let at = list.binary_search_by(|t| t.name().cmp(name)).ok()?;
        Some(Arc::clone(&list[at]))
    };
    let each = |objects: &'_ Objects<T>, differs: &dyn Fn(&str, &Arc<T>) -> bool| {
        let all = objects.iter().flat_map(|(namespace, list)| list.iter().map(move |t| (namespace, t)));
        let differing = all.filter(|(namespace, t)| differs(namespace, t));
        differing.map(|(namespace, t)| (namespace.clone(), t.name().into())).collect::<Vec<_>>()
    };
    let mut keys = each(old, &|namespace, t| found(new, namespace, t.name()).is_none());
    keys.extend(each(new, &|namespace, t| {
        found(old, namespace, t.name()).is_none_or(|before| !Arc::ptr_eq(&before, t))
    }));
    keys
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::Place;

    #[derive(Clone, Debug, PartialEq)]
    struct Thing(&'static str, u8);

    fn item(namespace: &str, name: &str, object: Result<Thing, Unreadable>) -> Item<Thing> {
        Item { place: Place { namespace: namespace.into(), name: name.into(), revision: "".into() }, object }
    }

    fn odd(name: &str) -> Unreadable {
        Unreadable::undecodable(name.into(), "odd")
    }

    impl Named for Thing {
        fn name(&self) -> &str {
            self.0
        }

        /// From 10 on it is a counter.
        fn is_newer_than(&self, other: &Self) -> bool {
            self.1 > other.1 && other.1 >= 10
        }
    }

    #[test]
    fn what_was_learnt_is_not_undone_by_a_watch_that_is_behind() {
        let store = Store::default();
        store.learn("a", Thing("x", 12));
        assert_eq!(store.len(), 0, "it may be gone");
        assert!(store.upsert("a", Thing("x", 10)));
        store.learn("a", Thing("x", 12));
        assert!(!store.upsert("a", Thing("x", 11)));
        assert!(!store.upsert("a", Thing("x", 12)));
        store.learn("a", Thing("x", 11));
        assert_eq!(store.get("a", "x").unwrap().1, 12);
        assert!(store.upsert("a", Thing("x", 13)));
        store.remove("a", "x");
        store.learn("a", Thing("x", 14));
        assert_eq!(store.len(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn believed_only_while_synced_and_heard_of() {
        let store = Store::<Thing>::default();
        assert_eq!(store.freshness(), Freshness::NotSynced(None));
        let since = Duration::ZERO;
        store.replace(store.relist(), Some(since));
        assert_eq!(store.freshness(), Freshness::Fresh(since));
        tokio::time::advance(Pace::default().fresh).await;
        assert_eq!(store.freshness(), Freshness::Stale(None));
        store.seen();
        assert_eq!(store.freshness(), Freshness::Fresh(since));
        let problem = Problem { forbidden: true, message: "no".to_owned() };
        store.trouble(problem.clone());
        assert_eq!(store.freshness(), Freshness::Stale(Some(problem)));
        store.trouble(Problem { forbidden: false, message: "connection refused".to_owned() });
        assert_eq!(store.freshness(), Freshness::Fresh(since), "a short interruption is bridged");
    }

    #[test]
    fn upsert_tells_whether_anything_changed_and_lists_are_sorted() {
        let store = Store::default();
        assert!(store.upsert("a", Thing("y", 1)));
        assert!(!store.upsert("a", Thing("y", 1)));
        assert!(store.upsert("a", Thing("y", 2)));
        assert!(store.upsert("a", Thing("x", 1)));
        let names: Vec<_> = store.list("a").iter().map(|t| t.0).collect();
        assert_eq!(names, ["x", "y"]);
        store.remove("a", "x");
        store.remove("a", "y");
        store.remove("b", "z");
        assert_eq!((store.len(), store.namespaces()), (0, 0));
    }

    #[test]
    fn a_list_anew_names_what_differs_and_keeps_what_does_not() {
        let store = Store::default();
        for (namespace, thing) in [("a", Thing("x", 1)), ("b", Thing("y", 1)), ("b", Thing("same", 1))] {
            store.upsert(namespace, thing);
        }
        let same = store.get("b", "same").unwrap();
        let mut list = store.relist();
        for (namespace, thing) in [("b", Thing("y", 2)), ("b", Thing("same", 1)), ("c", Thing("z", 1))] {
            list.push(item(namespace, thing.0, Ok(thing.clone())));
        }
        assert_eq!(store.len(), 3, "nothing changes before the list is complete");
        let differing = store.replace(list, Some(Duration::ZERO));
        let keys = [("a", "x"), ("b", "y"), ("c", "z")].map(|(ns, name)| (ns.into(), name.into()));
        assert_eq!(differing, keys);
        assert!(Arc::ptr_eq(&same, &store.get("b", "same").unwrap()));
        assert_eq!(store.len(), 3);
    }

    #[test]
    fn what_cannot_be_understood_is_remembered_until_it_changes_or_is_gone() {
        let store = Store::default();
        let puts = |name: &str, object| store.put(item("a", name, object));
        assert!(puts("x", Ok(Thing("x", 1))));
        assert!(puts("x", Err(odd("x"))), "what was known of it is over");
        assert!(!puts("x", Err(odd("x"))), "nothing new");
        assert_eq!((store.len(), store.understood("b").unwrap().len()), (0, 0));
        assert_eq!(store.count_unreadable(Reason::Undecodable), 1);
        assert_eq!(store.understood("a"), Err(odd("x")));
        assert!(puts("x", Ok(Thing("x", 1))), "it can be understood again");
        assert_eq!(store.understood("a").unwrap().len(), 1);
        assert_eq!((store.len(), store.unreadable().len()), (1, 0));
        puts("y", Err(odd("y")));
        store.remove("a", "y");
        assert!(store.understood("a").is_ok());
        // What does not tell its namespace counts everywhere, until the next list does not have it any more.
        store.put(item("", "", Err(odd(""))));
        puts("x", Err(odd("x")));
        assert_eq!((store.understood("a"), store.understood("b")), (Err(odd("x")), Err(odd(""))));
        let mut list = store.relist();
        list.push(item("a", "x", Ok(Thing("x", 1))));
        list.push(item("c", "z", Err(odd("z"))));
        let keys = [("a", "x"), ("", ""), ("a", "x"), ("c", "z")].map(|(ns, name)| (ns.into(), name.into()));
        assert_eq!(store.replace(list, None), keys);
        assert_eq!((store.understood("a").is_ok(), store.understood("c")), (true, Err(odd("z"))));
        assert_eq!(store.unreadable(), BTreeMap::from([("c".into(), odd("z"))]));
        // Of a cluster-scoped kind each object counts by itself.
        store.put(item("", "q", Err(odd("q"))));
        assert_eq!((store.unreadable_object("q"), store.unreadable_object("r")), (Some(odd("q")), None));
        assert_eq!(store.unreadable().len(), 2);
    }
}
