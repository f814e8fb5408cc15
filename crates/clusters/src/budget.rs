//! How many credentials and changes of rights a minute are asked for by one `ClusterProvider`, and who goes first; also of one target to which
//! none leads, while that has too many requests.

use std::cmp::Ordering;
use std::collections::{BTreeMap, VecDeque};

use coppice_clusters_api::Cause;
use jiff::{SignedDuration, Timestamp};

use crate::observed::AccessObservation;
use crate::rotation::later;
use crate::status::validity;

const MINUTE: SignedDuration = SignedDuration::from_mins(1);
const SECOND: SignedDuration = SignedDuration::from_secs(1);
/// Who has waited for so long gets a call of those below, however much is more urgent.
const OLD_AFTER: SignedDuration = SignedDuration::from_mins(5);
/// Of so many calls that expiring credentials leave one is for who is as old: what is urgent in one namespace keeps nobody waiting for ever.
const ONE_OF: u32 = 10;
/// Who has not asked again so long after its time does not wait any more.
const GRACE: SignedDuration = SignedDuration::from_mins(1);
/// A credential of whose time less than this part is left is about to expire.
const EXPIRING: i32 = 5;

/// How urgent a credential is: the most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// The one before has expired, or a fifth of its time is left.
    Expiring,
    /// Somebody waits for it: it was asked for, the Secret does not hold what it is to hold, or its rights were changed.
    Forced,
    /// There was none before.
    New,
    /// The time of the one before has come, and some of it is left.
    Routine,
}

/// Whether a credential may be asked for, or other rights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Turn {
    /// In this reconcile nobody has asked yet.
    #[default]
    Unasked,
    /// Now; also where nobody has to be asked.
    Granted,
    /// Then it is to ask again: the calls of this minute are used up.
    NotBefore(Timestamp),
    /// The cluster, or the garden of the provider, has too many requests, or had them a moment ago.
    Throttled {
        /// Until when that is asked for nothing, revocations included. It may be over.
        until: Timestamp,
        /// When it is to ask again: those that are more urgent go first.
        asks_again: Timestamp,
    },
}

/// How urgent the credential is that is being issued, or else the change of its rights.
pub fn urgency(observed: &AccessObservation, now: Timestamp) -> Urgency {
    let expiring = validity(&observed.status).is_some_and(|validity| {
        let granted = validity.not_after.duration_since(validity.not_before);
        now >= later(validity.not_after, -(granted / EXPIRING))
    });
    match observed.status.intent.as_ref().map(|intent| intent.cause) {
        _ if expiring => Urgency::Expiring,
        Some(Cause::Requested | Cause::Lost | Cause::Moved) | None => Urgency::Forced,
        Some(Cause::First) => Urgency::New,
        Some(Cause::Due) => Urgency::Routine,
    }
}

/// The budget of one provider, or of one target. It is kept in memory: another leader begins with a whole one.
#[derive(Debug)]
pub struct Budget<K> {
    /// Those of the last minute, the oldest first.
    granted: VecDeque<Granted<K>>,
    waiting: BTreeMap<K, Waiting>,
    /// Since when those had waited who gave back what was granted to them then: they ask again, and are as old as before.
    given_back: BTreeMap<K, (Timestamp, Timestamp)>,
    /// How many were granted.
    turns: u64,
    /// Which of these each namespace had last, while somebody waits.
    last_turns: BTreeMap<Urgency, BTreeMap<Box<str>, u64>>,
    /// How many were granted since the last one that was for who is old; those of expiring credentials do not count.
    since_old: u32,
    /// Which of these each namespace had last, while somebody waits.
    last_old: BTreeMap<Box<str>, u64>,
    /// Until when nothing is granted, since the cluster or the garden of the provider has too many requests.
    throttled_until: Option<Timestamp>,
}

/// A call that was granted.
#[derive(Debug)]
struct Granted<K> {
    at: Timestamp,
    key: K,
    /// Since when it had waited.
    since: Timestamp,
    /// Whether it was for who is old.
    is_for_old: bool,
}

#[derive(Debug)]
struct Waiting {
    namespace: Box<str>,
    /// What it was when it asked last.
    urgency: Urgency,
    since: Timestamp,
    asks_again: Timestamp,
}

impl<K> Default for Budget<K> {
    fn default() -> Self {
        Self {
            granted: VecDeque::new(),
            waiting: BTreeMap::new(),
            given_back: BTreeMap::new(),
            turns: 0,
            last_turns: BTreeMap::new(),
            since_old: 0,
            last_old: BTreeMap::new(),
            throttled_until: None,
        }
    }
}

impl<K: Clone + Ord> Budget<K> {
    /// Asks for a credential in a namespace: in any minute so many are granted at most, and none to somebody while others wait for it that
    /// are more urgent. Among those that are as urgent the namespaces take turns, and within one goes first who has waited longest. Credentials
    /// that expire always go first; of ten calls that they leave, one is for who has waited for 5 minutes, and namespaces take turns at these.
    pub fn take(
        &mut self,
        (namespace, key): (&str, &K),
        urgency: Urgency,
        per_minute: usize,
        now: Timestamp,
    ) -> Turn {
        while self.granted.front().is_some_and(|granted| later(granted.at, MINUTE) <= now) {
            self.granted.pop_front();
        }
        self.waiting.retain(|_, waiting| now < later(waiting.asks_again, GRACE));
        if self.waiting.is_empty() {
            self.last_turns.clear();
            self.last_old.clear();
        }
        self.given_back.retain(|_, (_, granted)| now < later(*granted, GRACE));
        let before = self.given_back.remove(key).map(|(since, _)| since);
        let since = self.waiting.get(key).map(|waiting| waiting.since).or(before).unwrap_or(now);
        let old = self.first_of_old(now).filter(|_| urgency != Urgency::Expiring);
        let is_for_old = old.as_ref().is_some_and(|(of, _)| of == key);
        let before = match old {
            Some(_) if is_for_old => self.expiring(),
            // Its place is kept.
            Some((_, of)) => self.before((namespace, key), urgency, since) + usize::from(of >= urgency),
            None => self.before((namespace, key), urgency, since),
        };
        let waiting = |asks_again| Waiting { namespace: namespace.into(), urgency, since, asks_again };
        if let Some((until, asks_again)) = self.throttled(before, now) {
            self.waiting.insert(key.clone(), waiting(asks_again));
            return Turn::Throttled { until, asks_again };
        }
        let free = per_minute.saturating_sub(self.granted.len());
        if before < free {
            self.waiting.remove(key);
            self.granted.push_back(Granted { at: now, key: key.clone(), since, is_for_old });
            self.turns += 1;
            if is_for_old {
                self.since_old = 0;
                self.last_old.insert(namespace.into(), self.turns);
            } else if urgency != Urgency::Expiring {
                self.since_old = self.since_old.saturating_add(1);
            }
            self.last_turns.entry(urgency).or_default().insert(namespace.into(), self.turns);
            return Turn::Granted;
        }
        // When as many have left the last minute as go before it, and one more; or soon, if those that go before it have not come yet.
        let leaves = self.granted.get(before - free).or(self.granted.back());
        let free_at = leaves.map_or(now, |granted| later(granted.at, MINUTE));
        let asks_again = free_at.clamp(later(now, SignedDuration::from_secs(1)), later(now, MINUTE));
        self.waiting.insert(key.clone(), waiting(asks_again));
        Turn::NotBefore(asks_again)
    }

    /// The cluster or the garden of the provider has too many requests: until then nothing is granted. In the minute after that one a second is,
    /// the most urgent first, so that not all that have waited ask for theirs at once.
    pub fn throttle(&mut self, until: Timestamp) {
        self.throttled_until = Some(self.throttled_until.map_or(until, |known| known.max(until)));
    }

    /// Until when nothing is asked of it, revocations included; none if something may be.
    pub fn throttled_until(&self, now: Timestamp) -> Option<Timestamp> {
        self.throttled_until.filter(|until| now < *until)
    }

    /// Whether it has too many requests, or had them a moment ago: at most one a second is granted, the most urgent first.
    pub fn was_throttled(&self, now: Timestamp) -> bool {
        self.throttled_until.is_some_and(|until| now < later(until, MINUTE))
    }

    /// Until when that is so, and when one that so many go before is to ask again because of it; none if it may be granted.
    fn throttled(&self, before: usize, now: Timestamp) -> Option<(Timestamp, Timestamp)> {
        let until = self.throttled_until.filter(|_| self.was_throttled(now))?;
        let places = i64::try_from(before).unwrap_or(i64::MAX).min(MINUTE.as_secs());
        if now < until {
            return Some((until, later(until, SignedDuration::from_secs(places))));
        }
        let is_lately = self.granted.back().is_some_and(|last| now < later(last.at, SECOND));
        (before > 0 || is_lately).then(|| (until, later(now, SignedDuration::from_secs(places.max(1)))))
    }

    /// Whom the next call is for that expiring credentials leave, with its urgency, if it is for somebody who is old.
    fn first_of_old(&self, now: Timestamp) -> Option<(K, Urgency)> {
        if self.since_old + 1 < ONE_OF {
            return None;
        }
        let is_old = |waiting: &Waiting| {
            waiting.urgency != Urgency::Expiring && now.duration_since(waiting.since) >= OLD_AFTER
        };
        let all = self.waiting.iter().filter(|(_, waiting)| is_old(waiting));
        let first =
            all.min_by_key(|(key, waiting)| (self.last_old.get(&waiting.namespace), waiting.since, *key));
        first.map(|(key, waiting)| (key.clone(), waiting.urgency))
    }

    /// How many wait whose credential expires.
    fn expiring(&self) -> usize {
        self.waiting.values().filter(|waiting| waiting.urgency == Urgency::Expiring).count()
    }

    /// How many go before one that has waited since then. They are counted, not sorted: thousands may wait, and each asks once a minute.
    fn before(&self, (namespace, key): (&str, &K), urgency: Urgency, since: Timestamp) -> usize {
        let (mut more_urgent, mut as_urgent) = (0_usize, BTreeMap::<&str, Vec<(Timestamp, &K)>>::new());
        for (of, waiting) in self.waiting.iter().filter(|(of, _)| *of != key) {
            match waiting.urgency.cmp(&urgency) {
                Ordering::Less => more_urgent += 1,
                Ordering::Equal => {
                    as_urgent.entry(&*waiting.namespace).or_default().push((waiting.since, of));
                }
                Ordering::Greater => {}
            }
        }
        // The first one of each namespace goes first, then the second one of each, and so on: this one is in the round with so many before it.
        let of_its_own = as_urgent.remove(namespace).unwrap_or_default();
        let round = of_its_own.iter().filter(|of| **of < (since, key)).count();
        let last_turns = self.last_turns.get(&urgency);
        let last_turn = |namespace: &str| last_turns.and_then(|turns| turns.get(namespace));
        let it = (last_turn(namespace), since, key);
        let of_others = as_urgent.into_iter().map(|(namespace, mut of_one)| {
            if of_one.len() <= round {
                return of_one.len();
            }
            let (_, &mut (since, of), _) = of_one.select_nth_unstable(round);
            round + usize::from((last_turn(namespace), since, of) < it)
        });
        more_urgent + round + of_others.sum::<usize>()
    }

    /// What was granted to it last was not asked for.
    pub fn give_back(&mut self, key: &K) {
        let last = self.granted.iter().rposition(|granted| granted.key == *key);
        let Some(Granted { at, since, is_for_old, .. }) = last.and_then(|last| self.granted.remove(last))
        else {
            return;
        };
        self.given_back.insert(key.clone(), (since, at));
        if is_for_old {
            self.since_old = ONE_OF;
        }
    }

    /// It waits no longer.
    pub fn stop_waiting(&mut self, key: &K) {
        self.waiting.remove(key);
        self.given_back.remove(key);
    }

    /// When it is to ask again; none if it does not wait, or that time has come.
    pub fn asks_again(&self, key: &K, now: Timestamp) -> Option<Timestamp> {
        self.waiting.get(key).map(|waiting| waiting.asks_again).filter(|at| now < *at)
    }

    /// Since when it waits; none if it does not.
    pub fn waits_since(&self, key: &K) -> Option<Timestamp> {
        self.waiting.get(key).map(|waiting| waiting.since)
    }

    /// How many wait.
    pub fn waiting(&self, now: Timestamp) -> usize {
        self.waiting.values().filter(|waiting| now < later(waiting.asks_again, GRACE)).count()
    }
}

#[cfg(test)]
#[path = "budget_tests.rs"]
mod tests;
