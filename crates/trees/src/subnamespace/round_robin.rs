//! Which of many Subnamespaces that wait for the quota of one namespace are looked at when that changes. All of them each time would be
//! millions of decisions while thousands are created in one namespace, of which each changes it twice. So it is some each time; where
//! those have changed nothing, others follow them, until all were looked at once since the quota changed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::context::FEW;

/// Of more than [`FEW`], so many at least,
const LEAST: usize = 16;
/// and so many for each change that may begin: not everyone has something to change.
const FOR_EACH_CHANGE: usize = 2;

/// Where it goes on, by namespace.
#[derive(Debug, Default)]
pub(super) struct RoundRobin(Mutex<BTreeMap<Box<str>, Round>>);

/// The way around those that wait in a namespace.
#[derive(Debug, Default)]
struct Round {
    /// Who was chosen last.
    last: Box<str>,
    /// Those that were chosen with it, and that nobody has looked at yet.
    chosen: BTreeSet<Box<str>>,
    /// How many were not chosen since the quota changed.
    left: usize,
}

impl RoundRobin {
    /// Of these that wait in a namespace, in the order of their names, those that are looked at since its quota has changed, while so many
    /// changes may begin there. The next time it is those that follow.
    pub(super) fn next<'a>(&self, namespace: &str, waiting: &[&'a str], changes: usize) -> BTreeSet<&'a str> {
        choose(&mut self.rounds(), namespace, waiting, changes, waiting.len())
    }

    /// Those that follow without a further change of the quota; none if all were looked at since.
    pub(super) fn following<'a>(
        &self,
        namespace: &str,
        waiting: &[&'a str],
        changes: usize,
    ) -> BTreeSet<&'a str> {
        let mut rounds = self.rounds();
        let Some(left) = rounds.get(namespace).map(|round| round.left) else { return BTreeSet::new() };
        choose(&mut rounds, namespace, waiting, changes, left)
    }

    /// One was looked at. Whether it is the last one of those that were chosen with it, and others follow.
    pub(super) fn looked_at(&self, namespace: &str, name: &str) -> bool {
        let mut rounds = self.rounds();
        let Some(round) = rounds.get_mut(namespace) else { return false };
        round.chosen.remove(name) && round.chosen.is_empty() && round.left > 0
    }

    fn rounds(&self) -> MutexGuard<'_, BTreeMap<Box<str>, Round>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Chooses of those that wait, and that were not chosen since the quota changed.
fn choose<'a>(
    rounds: &mut BTreeMap<Box<str>, Round>,
    namespace: &str,
    waiting: &[&'a str],
    changes: usize,
    left: usize,
) -> BTreeSet<&'a str> {
    if waiting.len() <= FEW {
        rounds.remove(namespace);
        return waiting.iter().copied().collect();
    }
    let round = rounds.entry(namespace.into()).or_default();
    let begin = waiting.partition_point(|name| *name <= &*round.last);
    let (before, rest) = waiting.split_at(begin);
    let some = (LEAST + FOR_EACH_CHANGE * changes).min(left);
    let chosen: Vec<&str> = rest.iter().chain(before).copied().take(some).collect();
    if let Some(name) = chosen.last() {
        round.last = (*name).into();
    }
    round.left = left.saturating_sub(chosen.len());
    round.chosen = chosen.iter().map(|name| (*name).into()).collect();
    chosen.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: [usize; 0] = [];

    fn name(number: usize) -> String {
        format!("shop-{number:04}")
    }

    /// Those that are looked at of so many when the quota has changed, by their numbers.
    fn next(robin: &RoundRobin, of: usize, changes: usize) -> Vec<usize> {
        chosen(of, |names| robin.next("shop", names, changes))
    }

    /// Those that follow.
    fn following(robin: &RoundRobin, of: usize, changes: usize) -> Vec<usize> {
        chosen(of, |names| robin.following("shop", names, changes))
    }

    fn chosen(of: usize, choose: impl for<'a> Fn(&[&'a str]) -> BTreeSet<&'a str>) -> Vec<usize> {
        let names: Vec<String> = (0..of).map(name).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        choose(&names).into_iter().map(|name| name[5..].parse().unwrap()).collect()
    }

    /// Which of these is the last that is looked at before others follow.
    fn looked_at(robin: &RoundRobin, numbers: &[usize]) -> Vec<usize> {
        numbers.iter().copied().filter(|number| robin.looked_at("shop", &name(*number))).collect()
    }

    #[test]
    fn of_few_all_are_looked_at() {
        let robin = RoundRobin::default();
        for of in [0, 1, FEW] {
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

    #[test]
    fn others_follow_once_those_before_them_were_looked_at_and_each_once_for_a_change() {
        let robin = RoundRobin::default();
        assert_eq!(following(&robin, 100, 0), NONE, "the quota has not changed");
        let mut all = next(&robin, 100, 8);
        assert_eq!(looked_at(&robin, &all), [31], "after the last of them");
        assert_eq!(looked_at(&robin, &all), NONE, "and once");
        for expected in [32..64, 64..96, 96..100] {
            let more = following(&robin, 100, 8);
            assert_eq!(more, expected.collect::<Vec<_>>());
            all.extend(more);
            assert_eq!(looked_at(&robin, &all).is_empty(), all.len() == 100);
        }
        assert_eq!(following(&robin, 100, 8), NONE);
        // With a change of the quota it is all of them again, from where it stood.
        assert_eq!(next(&robin, 100, 0), (0..16).collect::<Vec<_>>());
        // Whoever was not chosen with them does not count.
        assert_eq!(looked_at(&robin, &[16, 99]), NONE);
        assert_eq!(following(&robin, 100, 50).len(), 84, "there is room for all that are left");
        assert_eq!(following(&robin, 100, 50), NONE);
        // Once few are left it is all of those, once.
        next(&robin, 100, 0);
        assert_eq!(following(&robin, 20, 0).len(), 20);
        assert_eq!(following(&robin, 20, 0), NONE);
    }
}
