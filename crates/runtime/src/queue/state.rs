//! What a queue knows about its keys. Synchronous, with the instant as an argument.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

use super::{Key, Next, SHORTEST_PAUSE};
use crate::clock::Dice;

/// How many keys a queue holds, by what they are waiting for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Depths {
    /// Waiting for their turn.
    pub ready: usize,
    /// Waiting for their due time.
    pub due: usize,
    /// In progress.
    pub running: usize,
}

/// The bounds of the pauses between attempts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pauses {
    pub(super) first: Duration,
    pub(super) longest: Duration,
}

impl Pauses {
    /// Doubles with each failure; anywhere in its upper half, so that what failed together is not tried again together.
    fn after(self, failures: u32, dice: &mut Dice) -> Duration {
        let doubled = 2_u32.saturating_pow(failures.saturating_sub(1));
        let full = self.first.saturating_mul(doubled).min(self.longest);
        dice.between(full / 2, full)
    }
}

#[derive(Debug)]
struct Entry {
    place: Place,
    /// How many runs failed in a row.
    failures: u32,
    /// It is left alone until then, whatever is asked for.
    rests: Option<Instant>,
}

#[derive(Debug)]
enum Place {
    /// In `due`.
    Due(Instant),
    /// In `ready`.
    Ready,
    /// Being processed. What was added meanwhile: at once, or at an instant.
    Running { again: bool, due: Option<Instant> },
}

/// Invariant: a key is in `ready` exactly if its entry says so, and in `due`, at that instant, exactly if its entry says so.
#[derive(Debug)]
pub(super) struct State<K> {
    entries: HashMap<K, Entry>,
    /// In the order in which they became ready, and when that was.
    ready: VecDeque<(Instant, K)>,
    due: BTreeSet<(Instant, K)>,
    pauses: Pauses,
    dice: Dice,
}

impl<K: Key> State<K> {
    pub(super) fn new(pauses: Pauses, seed: u64) -> Self {
        let dice = Dice::new(seed);
        Self { entries: HashMap::new(), ready: VecDeque::new(), due: BTreeSet::new(), pauses, dice }
    }

    pub(super) fn add(&mut self, key: K, now: Instant) {
        // Those that were due before now became ready before it; it may be one of them.
        self.promote(now);
        if let Some(rests) = self.resting(&key, now) {
            return self.add_at(key, rests, now);
        }
        match self.entries.get_mut(&key).map(|entry| &mut entry.place) {
            Some(Place::Ready) => return,
            Some(Place::Running { again, .. }) => {
                *again = true;
                return;
            }
            Some(Place::Due(_)) | None => {}
        }
        self.put(key, Place::Ready, now);
    }

    pub(super) fn add_at(&mut self, key: K, due: Instant, now: Instant) {
        let due = self.resting(&key, now).map_or(due, |rests| due.max(rests));
        if due <= now {
            return self.add(key, now);
        }
        match self.entries.get_mut(&key).map(|entry| &mut entry.place) {
            Some(Place::Ready) => return,
            Some(Place::Running { due: earlier, .. }) => {
                *earlier = Some(earlier.map_or(due, |earlier| earlier.min(due)));
                return;
            }
            Some(Place::Due(earlier)) if *earlier <= due => return,
            Some(Place::Due(_)) | None => {}
        }
        self.put(key, Place::Due(due), now);
    }

    /// Until when a key is left alone, if it is.
    fn resting(&self, key: &K, now: Instant) -> Option<Instant> {
        self.entries.get(key)?.rests.filter(|rests| *rests > now)
    }

    /// The next key to process; it is in progress until [`finish`](Self::finish).
    pub(super) fn start(&mut self, now: Instant) -> Option<K> {
        self.promote(now);
        let (_, key) = self.ready.pop_front()?;
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.place = Place::Running { again: false, due: None };
        }
        Some(key)
    }

    /// What was asked for during the run counts beside its answer; what was asked for before does not.
    pub(super) fn finish(&mut self, key: &K, next: &Next, now: Instant) {
        let Some((key, mut entry)) = self.entries.remove_entry(key) else { return };
        let Place::Running { again, due: added } = entry.place else {
            self.entries.insert(key, entry);
            return;
        };
        let answered = match next {
            Next::Done => None,
            Next::At(due) => Some((*due).max(now + SHORTEST_PAUSE)),
            Next::Retry { at_least, .. } if again && at_least.is_zero() => None,
            Next::Retry { at_least, .. } => {
                Some(now + self.pauses.after(entry.failures.saturating_add(1), &mut self.dice).max(*at_least))
            }
        };
        entry.rests =
            answered.filter(|_| matches!(next, Next::Retry { at_least, .. } if !at_least.is_zero()));
        let failures = if matches!(next, Next::Retry { .. }) { entry.failures.saturating_add(1) } else { 0 };
        let place = match [answered, added].into_iter().flatten().min() {
            _ if entry.rests.is_some() => answered.map_or(Place::Ready, Place::Due),
            _ if again => Place::Ready,
            Some(due) if due <= now => Place::Ready,
            Some(due) => Place::Due(due),
            None => return,
        };
        entry.failures = failures;
        self.entries.insert(key.clone(), entry);
        self.promote(now);
        self.put(key, place, now);
    }

    /// When the next key that waits for its time becomes ready.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.due.first().map(|(due, _)| *due)
    }

    pub(super) fn depths(&self) -> Depths {
        let (ready, due) = (self.ready.len(), self.due.len());
        Depths { ready, due, running: self.entries.len() - ready - due }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn lag(&self, now: Instant) -> Duration {
        let first =
            [self.ready.front().map(|(since, _)| *since), self.next_due()].into_iter().flatten().min();
        first.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }

    /// Moves the keys whose time has come to the ready ones, in the order of their times.
    fn promote(&mut self, now: Instant) {
        while self.next_due().is_some_and(|due| due <= now) {
            let Some((due, key)) = self.due.pop_first() else { return };
            if let Some(entry) = self.entries.get_mut(&key) {
                entry.place = Place::Ready;
            }
            self.ready.push_back((due, key));
        }
    }

    fn put(&mut self, key: K, place: Place, now: Instant) {
        match place {
            Place::Ready => self.ready.push_back((now, key.clone())),
            Place::Due(due) => {
                self.due.insert((due, key.clone()));
            }
            Place::Running { .. } => {}
        }
        let Some(entry) = self.entries.get_mut(&key) else {
            self.entries.insert(key, Entry { place, failures: 0, rests: None });
            return;
        };
        let before = std::mem::replace(&mut entry.place, place);
        if let Place::Due(due) = before {
            self.due.remove(&(due, key));
        }
    }
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
