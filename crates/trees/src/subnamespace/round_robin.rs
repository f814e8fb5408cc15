//! Which of many Subnamespaces that wait for the quota of one namespace are looked at when that changes. All of them each time would be
//! millions of decisions while thousands are created in one namespace, of which each changes it twice.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

/// Of no more than that all are looked at.
const ALL: usize = 64;
/// Of more, so many at least,
const LEAST: usize = 16;
/// and so many for each change that may begin: not everyone has something to change.
const FOR_EACH_CHANGE: usize = 2;

/// Where it goes on the next time, by namespace.
#[derive(Debug, Default)]
pub(super) struct RoundRobin(Mutex<BTreeMap<Box<str>, Box<str>>>);

impl RoundRobin {
    /// Of these that wait in a namespace, in the order of their names, those that are looked at while so many changes may begin there.
    /// The next time it is those that follow.
    pub(super) fn next<'a>(&self, namespace: &str, waiting: &[&'a str], changes: usize) -> BTreeSet<&'a str> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.len() <= ALL {
            last.remove(namespace);
            return waiting.iter().copied().collect();
        }
        let after = last.get(namespace);
        let begin = after.map_or(0, |after| waiting.partition_point(|name| *name <= &**after));
        let (before, rest) = waiting.split_at(begin);
        let some = LEAST + FOR_EACH_CHANGE * changes;
        let chosen: Vec<&str> = rest.iter().chain(before).copied().take(some).collect();
        if let Some(name) = chosen.last() {
            last.insert(namespace.into(), (*name).into());
        }
        chosen.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Those that are looked at of so many, by their numbers.
    fn next(robin: &RoundRobin, of: usize, changes: usize) -> Vec<usize> {
        let names: Vec<String> = (0..of).map(|number| format!("shop-{number:04}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let numbers = robin.next("shop", &names, changes);
        numbers.into_iter().map(|name| name[5..].parse().unwrap()).collect()
    }

    #[test]
    fn of_few_all_are_looked_at() {
        let robin = RoundRobin::default();
        for of in [0, 1, ALL] {
            assert_eq!(next(&robin, of, 0), (0..of).collect::<Vec<_>>());
        }
    }

    #[test]
    fn of_many_some_are_looked_at_and_everyone_in_turn() {
        let robin = RoundRobin::default();
        assert_eq!(next(&robin, 100, 0), (0..16).collect::<Vec<_>>());
        assert_eq!(next(&robin, 100, 8), (16..48).collect::<Vec<_>>());
        assert_eq!(next(&robin, 100, 17), (48..98).collect::<Vec<_>>());
        // The last, and then from the beginning: in the order of names.
        assert_eq!(next(&robin, 100, 0), (0..14).chain(98..100).collect::<Vec<_>>());
        assert_eq!(next(&robin, 100, 0), (14..30).collect::<Vec<_>>());
        assert_eq!(next(&robin, 100, 64).len(), 100, "there is room for all");
        assert_eq!(next(&robin, 20, 0).len(), 20, "only few are left");
        assert_eq!(next(&robin, 5000, 0), (0..16).collect::<Vec<_>>());
    }
}
