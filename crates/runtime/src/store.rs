//! What a watch has seen, held small: only the fields used, one list per namespace.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

/// A watch that has shown neither event nor bookmark for this long is not believed any more (bookmarks come about once
/// a minute, and no watch lasts longer than a minute).
pub const FRESH: Duration = Duration::from_secs(90);

/// Something held in a [`Store`].
pub trait Named: Send + Sync + 'static {
    /// The object's name, unique in its namespace.
    fn name(&self) -> &str;
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
    namespaces: HashMap<Box<str>, Vec<Arc<T>>>,
    since: Option<Timestamp>,
    seen: Option<Instant>,
    problem: Option<Problem>,
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
    /// It follows the API server; without a gap since that instant.
    Fresh(Timestamp),
    /// The first list has not been completed.
    NotSynced(Option<Problem>),
    /// It was complete, but nothing has been heard for longer than [`FRESH`], or the API server refuses us.
    Stale(Option<Problem>),
}

impl<T: Named + PartialEq> Default for Store<T> {
    fn default() -> Self {
        Self {
            inner: Arc::new(RwLock::new(Inner {
                namespaces: HashMap::new(),
                since: None,
                seen: None,
                problem: None,
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
            (Some(since), Some(seen), _) if seen.elapsed() < FRESH => Freshness::Fresh(since),
            (Some(_), _, problem) => Freshness::Stale(problem.clone()),
        })
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

    /// Puts an object in; true if that changed anything.
    pub(crate) fn upsert(&self, namespace: &str, object: T) -> bool {
        self.write(|inner| {
            let list = inner.namespaces.entry(namespace.into()).or_default();
            match list.binary_search_by(|t| t.name().cmp(object.name())) {
                Ok(at) if *list[at] == object => false,
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

    pub(crate) fn remove(&self, namespace: &str, name: &str) {
        self.write(|inner| {
            let Some(list) = inner.namespaces.get_mut(namespace) else { return };
            list.retain(|t| t.name() != name);
            if list.is_empty() {
                inner.namespaces.remove(namespace);
            }
        });
    }

    /// Replaces everything in one step by a complete list; `since` is its instant if anything may have been missed before
    /// it. Returns the keys that existed before and do not any more.
    pub(crate) fn replace(
        &self,
        objects: Vec<(Box<str>, T)>,
        since: Option<Timestamp>,
    ) -> Vec<(Box<str>, Box<str>)> {
        let mut namespaces: HashMap<Box<str>, Vec<Arc<T>>> = HashMap::new();
        for (namespace, object) in objects {
            namespaces.entry(namespace).or_default().push(Arc::new(object));
        }
        for list in namespaces.values_mut() {
            list.sort_by(|a, b| a.name().cmp(b.name()));
            list.shrink_to_fit();
        }
        self.write(|inner| {
            let old = std::mem::replace(&mut inner.namespaces, namespaces);
            inner.since = since.or(inner.since);
            inner.seen = Some(Instant::now());
            inner.problem = None;
            let exists = |ns: &str, name: &str| {
                let list = inner.namespaces.get(ns);
                list.is_some_and(|l| l.binary_search_by(|t| t.name().cmp(name)).is_ok())
            };
            old.iter()
                .flat_map(|(ns, list)| list.iter().map(move |t| (ns, t)))
                .filter(|(ns, t)| !exists(ns, t.name()))
                .map(|(ns, t)| (ns.clone(), t.name().into()))
                .collect()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq)]
    struct Thing(&'static str, u8);

    impl Named for Thing {
        fn name(&self) -> &str {
            self.0
        }
    }

    #[tokio::test(start_paused = true)]
    async fn believed_only_while_synced_and_heard_of() {
        let store = Store::<Thing>::default();
        assert_eq!(store.freshness(), Freshness::NotSynced(None));
        let since = Timestamp::UNIX_EPOCH;
        store.replace(vec![], Some(since));
        assert_eq!(store.freshness(), Freshness::Fresh(since));
        tokio::time::advance(FRESH).await;
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
    fn a_relist_names_what_is_gone() {
        let store = Store::default();
        store.upsert("a", Thing("x", 1));
        store.upsert("b", Thing("y", 1));
        let gone = store.replace(
            vec![("b".into(), Thing("y", 2)), ("c".into(), Thing("z", 1))],
            Some(Timestamp::UNIX_EPOCH),
        );
        assert_eq!(gone, [("a".into(), "x".into())]);
        assert_eq!(store.len(), 2);
    }
}
