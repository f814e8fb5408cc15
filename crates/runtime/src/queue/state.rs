//! What a queue knows about its keys. Synchronous, with the instant as an argument.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

use super::{MIN_PAUSE, QueueKey, ReconcileResult};
use crate::clock::SeededRng;

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
pub(super) struct RetryPauses {
    pub(super) first: Duration,
    pub(super) max: Duration,
}

impl RetryPauses {
    /// Doubles with each failure; anywhere in its upper half, so that what failed together is not tried again together.
    fn after(self, failures: u32, rng: &mut SeededRng) -> Duration {
        let doubled = 2_u32.saturating_pow(failures.saturating_sub(1));
        let full = self.first.saturating_mul(doubled).min(self.max);
        rng.between(full / 2, full)
    }
}

#[derive(Debug)]
struct KeyEntry {
    state: KeyState,
    /// How many runs failed in a row.
    failures: u32,
    /// The key is not processed before then, whatever is requested.
    backoff_until: Option<Instant>,
}

#[derive(Debug)]
enum KeyState {
    /// In `due`.
    Due(Instant),
    /// In `ready`.
    Ready,
    /// Being processed. What was added meanwhile: at once, or at an instant.
    Running { again: bool, due: Option<Instant> },
}

/// Room for so many keys is kept once there was that much.
const KEPT_ROOM: usize = 256;

/// Invariant: a key is in `ready` exactly if its entry says so, and in `due`, at that instant, exactly if its entry says so.
#[derive(Debug)]
pub(super) struct State<K> {
    entries: HashMap<K, KeyEntry>,
    /// In the order in which they became ready, and when that was.
    ready: VecDeque<(Instant, K)>,
    due: BTreeSet<(Instant, K)>,
    pauses: RetryPauses,
    rng: SeededRng,
}

impl<K: QueueKey> State<K> {
    pub(super) fn new(pauses: RetryPauses, seed: u64) -> Self {
        let rng = SeededRng::new(seed);
        Self { entries: HashMap::new(), ready: VecDeque::new(), due: BTreeSet::new(), pauses, rng }
    }

    pub(super) fn add(&mut self, key: K, now: Instant) {
        // Those that were due before now became ready before it; it may be one of them.
        self.promote(now);
        if let Some(backoff_until) = self.backing_off_until(&key, now) {
            return self.add_at(key, backoff_until, now);
        }
        match self.entries.get_mut(&key).map(|entry| &mut entry.state) {
            Some(KeyState::Ready) => return,
            Some(KeyState::Running { again, .. }) => {
                *again = true;
                return;
            }
            Some(KeyState::Due(_)) | None => {}
        }
        self.put(key, KeyState::Ready, now);
    }

    pub(super) fn add_at(&mut self, key: K, due: Instant, now: Instant) {
        let due = self.backing_off_until(&key, now).map_or(due, |backoff_until| due.max(backoff_until));
        if due <= now {
            return self.add(key, now);
        }
        match self.entries.get_mut(&key).map(|entry| &mut entry.state) {
            Some(KeyState::Ready) => return,
            Some(KeyState::Running { due: earlier, .. }) => {
                *earlier = Some(earlier.map_or(due, |earlier| earlier.min(due)));
                return;
            }
            Some(KeyState::Due(earlier)) if *earlier <= due => return,
            Some(KeyState::Due(_)) | None => {}
        }
        self.put(key, KeyState::Due(due), now);
    }

    /// The end of a key's minimum pause, if it has one.
    fn backing_off_until(&self, key: &K, now: Instant) -> Option<Instant> {
        self.entries.get(key)?.backoff_until.filter(|backoff_until| *backoff_until > now)
    }

    /// The next key to process; it is in progress until [`finish`](Self::finish).
    pub(super) fn start(&mut self, now: Instant) -> Option<K> {
        self.promote(now);
        let (_, key) = self.ready.pop_front()?;
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.state = KeyState::Running { again: false, due: None };
        }
        Some(key)
    }

    /// Requests during the run count beside its result; requests before the run do not.
    pub(super) fn finish(&mut self, key: &K, next: &ReconcileResult, now: Instant) {
        self.finish_run(key, next, now);
        self.give_room_back();
    }

    /// Gives back most of the room that thousands of keys have left that came at once: a few times while they become fewer.
    fn give_room_back(&mut self) {
        let room = |keys: usize| (2 * keys).max(KEPT_ROOM);
        if self.entries.capacity() > 4 * room(self.entries.len()) {
            self.entries.shrink_to(room(self.entries.len()));
        }
        if self.ready.capacity() > 4 * room(self.ready.len()) {
            self.ready.shrink_to(room(self.ready.len()));
        }
    }

    fn finish_run(&mut self, key: &K, next: &ReconcileResult, now: Instant) {
        let Some((key, mut entry)) = self.entries.remove_entry(key) else { return };
        let KeyState::Running { again, due: added } = entry.state else {
            self.entries.insert(key, entry);
            return;
        };
        let answered = match next {
            ReconcileResult::Done => None,
            ReconcileResult::At(due) | ReconcileResult::Waits(due) => Some((*due).max(now + MIN_PAUSE)),
            ReconcileResult::Retry { at_least, .. } if again && at_least.is_zero() => None,
            ReconcileResult::Retry { at_least, .. } => {
                Some(now + self.pauses.after(entry.failures.saturating_add(1), &mut self.rng).max(*at_least))
            }
        };
        entry.backoff_until = answered
            .filter(|_| matches!(next, ReconcileResult::Retry { at_least, .. } if !at_least.is_zero()));
        let failures = match next {
            ReconcileResult::Done | ReconcileResult::At(_) => 0,
            ReconcileResult::Waits(_) => entry.failures,
            ReconcileResult::Retry { .. } => entry.failures.saturating_add(1),
        };
        let state = match [answered, added].into_iter().flatten().min() {
            _ if entry.backoff_until.is_some() => answered.map_or(KeyState::Ready, KeyState::Due),
            _ if again => KeyState::Ready,
            Some(due) if due <= now => KeyState::Ready,
            Some(due) => KeyState::Due(due),
            None => return,
        };
        entry.failures = failures;
        self.entries.insert(key.clone(), entry);
        self.promote(now);
        self.put(key, state, now);
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
                entry.state = KeyState::Ready;
            }
            self.ready.push_back((due, key));
        }
    }

    fn put(&mut self, key: K, state: KeyState, now: Instant) {
        match state {
            KeyState::Ready => self.ready.push_back((now, key.clone())),
            KeyState::Due(due) => {
                self.due.insert((due, key.clone()));
            }
            KeyState::Running { .. } => {}
        }
        let Some(entry) = self.entries.get_mut(&key) else {
            self.entries.insert(key, KeyEntry { state, failures: 0, backoff_until: None });
            return;
        };
        let before = std::mem::replace(&mut entry.state, state);
        if let KeyState::Due(due) = before {
            self.due.remove(&(due, key));
        }
    }
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
