use serde::de::IgnoredAny;

use super::*;
use crate::decode::ObjectRef;

#[derive(Clone, Debug, PartialEq)]
struct Thing(&'static str, u8);

#[derive(Debug)]
struct Things;

fn item(namespace: &str, name: &str, object: Result<Thing, Unreadable>) -> Item<Thing> {
    Item {
        object_ref: ObjectRef { namespace: namespace.into(), name: name.into(), revision: "".into() },
        object,
    }
}

fn invalid(name: &str) -> Unreadable {
    Unreadable::undecodable(name.into(), "odd")
}

impl Kind for Things {
    type Object = Thing;
    type Wire = IgnoredAny;
    type Context = u8;
    const RESOURCE: &'static str = "things";
    const GROUP_PATH: &'static str = "/apis/example.com/v1";

    fn object_ref(_: &IgnoredAny) -> ObjectRef {
        ObjectRef::default()
    }

    fn project(_: IgnoredAny, _: &u8) -> Result<Thing, Unreadable> {
        Err(invalid(""))
    }

    fn name(object: &Thing) -> &str {
        object.0
    }

    /// From 10 on it is a counter.
    fn is_newer(object: &Thing, other: &Thing) -> bool {
        object.1 > other.1 && other.1 >= 10
    }

    /// Above 200 there is something that no cache needs.
    fn compact(object: &mut Thing) {
        object.1 = object.1.min(200);
    }
}

/// How many there are of each size; and how many changes there were.
#[derive(Debug, Default)]
struct Sizes(std::sync::Mutex<(BTreeMap<u8, i32>, usize)>);

impl StoreIndex<Thing> for Sizes {
    fn changed(&self, before: &mut dyn Iterator<Item = &Thing>, after: &mut dyn Iterator<Item = &Thing>) {
        let mut all = self.0.lock().unwrap();
        let (sizes, changes) = &mut *all;
        for thing in before {
            *sizes.entry(thing.1).or_default() -= 1;
        }
        for thing in after {
            *sizes.entry(thing.1).or_default() += 1;
        }
        sizes.retain(|_, count| *count != 0);
        *changes += 1;
    }
}

#[test]
fn an_index_follows_every_change_however_it_comes() {
    let (store, sizes) = (Store::<Things>::default(), Arc::new(Sizes::default()));
    let counted = |what: &str, expected: &[(u8, i32)]| {
        let all: i32 = expected.iter().map(|(_, count)| count).sum();
        assert_eq!(store.len(), usize::try_from(all).unwrap(), "{what}");
        let counted: Vec<(u8, i32)> =
            sizes.0.lock().unwrap().0.iter().map(|(size, count)| (*size, *count)).collect();
        assert_eq!(counted, expected, "{what}");
    };
    store.upsert("a", Thing("x", 1));
    store.set_index(sizes.clone());
    counted("what is there", &[(1, 1)]);
    store.upsert("a", Thing("x", 2));
    store.upsert("b", Thing("y", 2));
    store.upsert("b", Thing("y", 2));
    counted("another state, and one more", &[(2, 2)]);
    store.put(item("b", "y", Ok(Thing("y", 10))));
    store.update_if_newer("b", Thing("y", 12));
    store.update_if_newer("b", Thing("y", 11));
    counted("watched, then written", &[(2, 1), (12, 1)]);
    store.put(item("a", "x", Err(invalid("x"))));
    counted("not understood any more", &[(12, 1)]);
    let mut list = store.relist();
    list.push(item("b", "y", Ok(Thing("y", 12))));
    list.push(item("b", "z", Ok(Thing("z", 1))));
    let changes = || sizes.0.lock().unwrap().1;
    let before = changes();
    store.replace(list, None);
    counted("listed", &[(1, 1), (12, 1)]);
    assert_eq!(changes(), before + 1, "nobody sees half of a list");
    store.remove("b", "y");
    store.remove("b", "y");
    counted("gone", &[(1, 1)]);
    store.clear();
    counted("not watched", &[]);
    store.upsert("b", Thing("z", 3));
    counted("watched again", &[(3, 1)]);
}

#[test]
fn a_part_of_what_there_is_comes_in_order() {
    let store = Store::<Things>::default();
    for (namespace, name) in [("b", "z"), ("b", "x"), ("a", "x"), ("b", "y"), ("c", "w")] {
        store.upsert(namespace, Thing(name, 1));
    }
    let names = |most| store.first("b", most).iter().map(|thing| thing.0).collect::<Vec<_>>();
    assert_eq!((names(2), names(9), store.count("b")), (vec!["x", "y"], vec!["x", "y", "z"], 3));
    assert_eq!((store.first("d", 9).len(), store.count("d")), (0, 0));
    assert_eq!([store.named("x").len(), store.named("y").len(), store.named("a").len()], [2, 1, 0]);
    assert!(store.remove("b", "y") && !store.remove("b", "y"));
    assert_eq!((names(9), store.count("b")), (vec!["x", "z"], 2));
}

#[test]
fn what_no_cache_needs_is_dropped_however_it_comes() {
    let store = Store::<Things>::default();
    let kept = || store.get("a", "x").unwrap().1;
    let mut list = store.relist();
    list.push(item("a", "x", Ok(Thing("x", 201))));
    store.replace(list, None);
    assert_eq!(kept(), 200, "listed");
    store.put(item("a", "x", Ok(Thing("x", 1))));
    store.put(item("a", "x", Ok(Thing("x", 202))));
    assert_eq!(kept(), 200, "watched");
    store.put(item("a", "x", Ok(Thing("x", 10))));
    store.update_if_newer("a", Thing("x", 203));
    assert_eq!(kept(), 200, "written");
}

#[test]
fn what_was_learnt_is_not_undone_by_a_watch_that_is_behind() {
    let store = Store::<Things>::default();
    store.update_if_newer("a", Thing("x", 12));
    assert_eq!(store.len(), 0, "it may be gone");
    assert!(store.upsert("a", Thing("x", 10)));
    store.update_if_newer("a", Thing("x", 12));
    assert!(!store.upsert("a", Thing("x", 11)));
    assert!(!store.upsert("a", Thing("x", 12)));
    store.update_if_newer("a", Thing("x", 11));
    assert_eq!(store.get("a", "x").unwrap().1, 12);
    assert!(store.upsert("a", Thing("x", 13)));
    store.remove("a", "x");
    store.update_if_newer("a", Thing("x", 14));
    assert_eq!(store.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn facts_are_current_only_while_synced_and_watched() {
    let store = Store::<Things>::default();
    assert_eq!(store.freshness(), Freshness::NotSynced(None));
    let since = Duration::ZERO;
    store.replace(store.relist(), Some(since));
    assert_eq!(store.freshness(), Freshness::Fresh(since));
    tokio::time::advance(ResyncIntervals::default().fresh).await;
    assert_eq!(store.freshness(), Freshness::Stale(None));
    store.seen();
    assert_eq!(store.freshness(), Freshness::Fresh(since));
    let problem = WatchProblem { forbidden: true, message: "no".to_owned() };
    store.note_problem(problem.clone());
    assert_eq!(store.freshness(), Freshness::Stale(Some(problem)));
    store.note_problem(WatchProblem { forbidden: false, message: "connection refused".to_owned() });
    assert_eq!(store.freshness(), Freshness::Fresh(since), "a short interruption is bridged");
}

#[tokio::test]
async fn a_list_for_what_was_to_be_kept_before_does_not_sync() {
    let store = Store::<Things>::default();
    let before = store.relist();
    store.set_context(1);
    store.replace(before, Some(Duration::ZERO));
    assert_eq!(store.freshness(), Freshness::NotSynced(None));
    store.replace(store.relist(), Some(Duration::ZERO));
    assert_eq!(store.freshness(), Freshness::Fresh(Duration::ZERO));
    store.clear();
    assert_eq!(**store.context().borrow(), 1, "whoever watches next wants the same");
}

#[test]
fn upsert_returns_whether_anything_changed_and_lists_are_sorted() {
    let store = Store::<Things>::default();
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
fn a_relist_names_what_differs_and_keeps_what_does_not() {
    let store = Store::<Things>::default();
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
fn an_unreadable_object_is_kept_until_it_changes_or_is_deleted() {
    let store = Store::<Things>::default();
    let puts = |name: &str, object| store.put(item("a", name, object));
    assert!(puts("x", Ok(Thing("x", 1))));
    assert!(puts("x", Err(invalid("x"))), "what was known of it is over");
    assert!(!puts("x", Err(invalid("x"))), "nothing new");
    assert_eq!((store.len(), store.decoded("b").unwrap().len()), (0, 0));
    assert_eq!(store.count_unreadable(Reason::Undecodable), 1);
    assert_eq!(store.decoded("a"), Err(invalid("x")));
    assert!(puts("x", Ok(Thing("x", 1))), "it can be understood again");
    assert_eq!(store.decoded("a").unwrap().len(), 1);
    assert_eq!((store.len(), store.unreadable().len()), (1, 0));
    puts("y", Err(invalid("y")));
    store.remove("a", "y");
    assert!(store.decoded("a").is_ok());
    // An object whose namespace cannot be read counts everywhere, until the next list does not have it any more.
    store.put(item("", "", Err(invalid(""))));
    puts("x", Err(invalid("x")));
    assert_eq!((store.decoded("a"), store.decoded("b")), (Err(invalid("x")), Err(invalid(""))));
    let mut list = store.relist();
    list.push(item("a", "x", Ok(Thing("x", 1))));
    list.push(item("c", "z", Err(invalid("z"))));
    let keys = [("a", "x"), ("", ""), ("a", "x"), ("c", "z")].map(|(ns, name)| (ns.into(), name.into()));
    assert_eq!(store.replace(list, None), keys);
    assert_eq!((store.decoded("a").is_ok(), store.decoded("c")), (true, Err(invalid("z"))));
    assert_eq!(store.unreadable(), BTreeMap::from([("c".into(), invalid("z"))]));
    // Of a cluster-scoped kind each object counts by itself.
    store.put(item("", "q", Err(invalid("q"))));
    assert_eq!((store.unreadable_object("q"), store.unreadable_object("r")), (Some(invalid("q")), None));
    assert_eq!(store.unreadable().len(), 2);
}

proptest::proptest! {
    /// Whatever comes, goes, changes its reason or is listed again: the counts are those of what there is.
    #[test]
    fn the_counts_of_what_cannot_be_understood_are_right_at_all_times(
        steps in proptest::collection::vec((0_usize..3, 0_usize..3, 0_u8..5), 1..60)
    ) {
        let store = Store::<Things>::default();
        for (namespace, name, what) in steps {
            let (namespace, name) = (["", "a", "b"][namespace], ["x", "y", "z"][name]);
            let object = match what {
                0 => Ok(Thing(name, 1)),
                1 => Err(invalid(name)),
                _ => Err(Unreadable::too_large(name.into(), "labels")),
            };
            match what {
                0..=2 => drop(store.put(item(namespace, name, object))),
                3 => drop(store.remove(namespace, name)),
                _ => {
                    let mut list = store.relist();
                    list.push(item(namespace, name, object.clone()));
                    list.push(item(namespace, name, object));
                    drop(store.replace(list, None));
                }
            }
            for reason in [Reason::Undecodable, Reason::TooLarge] {
                let there = store.read(|inner| {
                    let all = inner.unreadable.places.values().flat_map(BTreeMap::values);
                    all.filter(|unreadable| unreadable.reason == reason).count()
                });
                proptest::prop_assert_eq!(store.count_unreadable(reason), there);
            }
        }
    }
}

#[test]
fn a_list_knows_how_much_it_lacks_of_what_there_is_understood_or_not() {
    let store = Store::<Things>::default();
    for (namespace, name) in [("a", "x"), ("a", "y"), ("b", "x")] {
        store.put(item(namespace, name, Ok(Thing(name, 1))));
    }
    store.put(item("b", "odd", Err(invalid("odd"))));
    store.put(item("c", "odd", Err(invalid("odd"))));
    let mut list = store.relist();
    let lacks = |before, missing, listed| ListComparison { before, missing, listed };
    assert_eq!(list.compare(), lacks(5, 5, 0));
    list.push(item("a", "x", Ok(Thing("x", 2))));
    list.push(item("b", "odd", Ok(Thing("odd", 1))));
    list.push(item("b", "x", Err(invalid("x"))));
    list.push(item("c", "new", Ok(Thing("new", 1))));
    assert_eq!(list.compare(), lacks(5, 2, 4), "a/y and c/odd");
}
