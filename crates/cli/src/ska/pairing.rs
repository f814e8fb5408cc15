//! What goes with what: both controllers have a list of their own, and the entry with the highest score wins in each. Here one cluster
//! manager has both, and the one with the highest priority governs.

use super::entries::{ActionEntry, ActionSettings, CollectEntry};
use super::matcher::Matcher;
use super::problems::NotWritten;

/// What the action controller does to the namespaces of an entry.
pub(super) enum Paired<'a> {
    /// What this entry says.
    With(&'a ActionEntry),
    /// Nothing: none of its entries is about them.
    Nothing,
    /// That differs between the namespaces, or is not known.
    Unclear(NotWritten),
}

/// Which entry of the action controller decides about the namespaces that this entry of the collect controller wins.
pub(super) fn paired<'a>(
    entry: &CollectEntry,
    all: &[CollectEntry],
    action: &'a ActionSettings,
) -> Paired<'a> {
    let matcher = &entry.matcher;
    // What another entry of the collect controller takes away does not matter here.
    let elsewhere =
        |one: &Matcher| all.iter().any(|c| c.matcher.outranks(matcher) && c.matcher.contains(one));
    let candidates: Vec<&ActionEntry> = action
        .entries
        .iter()
        .filter(|one| one.matcher.overlaps(matcher) && !elsewhere(&one.matcher))
        .collect();
    let wins = |one: &&&ActionEntry| {
        let others = candidates.iter().filter(|other| other.path != one.path);
        one.matcher.contains(matcher) && others.clone().all(|other| one.matcher.outranks(&other.matcher))
    };
    match (candidates.is_empty(), candidates.iter().find(wins)) {
        (true, _) => Paired::Nothing,
        (false, Some(one)) => Paired::With(one),
        (false, None) => {
            let candidates = candidates.iter().map(|one| one.path.clone()).collect();
            Paired::Unclear(NotWritten::UnclearAction { candidates })
        }
    }
}

/// The entry that wins every namespace of this one, if there is such.
pub(super) fn winner<'a>(entry: &CollectEntry, all: &'a [CollectEntry]) -> Option<&'a CollectEntry> {
    all.iter().find(|other| other.matcher.outranks(&entry.matcher) && other.matcher.contains(&entry.matcher))
}

/// Why no priority makes this entry win the namespaces that it wins there, if so.
pub(super) fn unclear_rank(entry: &CollectEntry, all: &[CollectEntry]) -> Option<NotWritten> {
    let other = all.iter().find(|other| {
        let (one, two) = (&entry.matcher, &other.matcher);
        other.path != entry.path && one.overlaps(two) && !one.outranks(two) && !two.outranks(one)
    })?;
    Some(NotWritten::UnclearRank { other: other.path.clone() })
}

/// Adds to the entries that are not written those that would govern their namespaces instead: `failed[n]` says why number n is
/// not written.
pub(super) fn withhold(entries: &[CollectEntry], failed: &mut [Option<NotWritten>]) {
    loop {
        let loser = entries.iter().enumerate().find_map(|(at, entry)| {
            if failed.get(at)?.is_some() || entry.matcher.is_empty() {
                return None;
            }
            let blocks = |(other, why): &(&CollectEntry, &Option<NotWritten>)| {
                why.is_some()
                    && other.matcher.overlaps(&entry.matcher)
                    && !entry.matcher.outranks(&other.matcher)
            };
            let (winner, _) = entries.iter().zip(failed.iter()).find(blocks)?;
            Some((at, &winner.path))
        });
        let Some((at, winner)) = loser else { return };
        if let Some(reason) = failed.get_mut(at) {
            *reason = Some(NotWritten::WouldGovern { winner: winner.clone() });
        }
    }
}
