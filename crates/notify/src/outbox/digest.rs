//! Messages to a recipient who gets many: they are held, and sent as one. Where that one has to be sent again, its parts are held until
//! all of them have come again, so that it is the same one: receivers recognize it by its id.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

use super::fair_queue::QueuedRequest;
use crate::request::DeliveryRequest;

/// When messages to one recipient are joined. What is joined is attempted once, and what comes of it holds for each part.
#[derive(Clone, Copy, Debug)]
pub struct DigestRule {
    /// So many are sent one by one ...
    pub one_by_one: usize,
    /// ... within this time. What exceeds that is held, for as long, and sent as one.
    pub within: Duration,
    /// At most so many are joined: they are sent as soon as there are so many.
    pub at_most: usize,
    /// Joins messages; none if they cannot be joined, and are sent one by one.
    pub join: fn(&[DeliveryRequest]) -> Option<DeliveryRequest>,
    /// For so long after an attempt it is known what was joined: longer than the time between two attempts.
    pub remembered: Duration,
}

/// A group and a recipient in it.
type RecipientKey = (String, String);

/// What is held, and released together.
#[derive(Clone, Debug)]
pub(super) struct HeldKey {
    recipient: RecipientKey,
    /// The id of what was sent before, whose parts come again; none for what is new.
    digest: Option<String>,
}

impl HeldKey {
    /// Where the parts of what was sent as one are held.
    pub(super) const fn of_digest(recipient: RecipientKey, id: String) -> Self {
        Self { recipient, digest: Some(id) }
    }
}

/// What each recipient was sent lately, and what is held for them.
pub(super) struct RecipientDigests<K> {
    rule: Option<DigestRule>,
    recipients: HashMap<RecipientKey, RecipientLog<K>>,
    /// At so many recipients those are removed who were sent nothing lately.
    sweep_at: usize,
}

struct RecipientLog<K> {
    /// When a message was sent first, and its id: another attempt at it is no further message.
    sent: VecDeque<(Instant, String)>,
    held: Vec<QueuedRequest<K>>,
    digests: Vec<SentDigest<K>>,
}

/// What was sent as one.
struct SentDigest<K> {
    id: String,
    /// The ids of its parts, in their order in the message. A part that is missing when it is sent again is none any more: if it comes
    /// later, who has got the rest under this id must not take it for known. So the parts become fewer, and never others.
    parts: Vec<String>,
    /// Those that have come again.
    again: Vec<QueuedRequest<K>>,
    /// Until when the others are waited for.
    until: Instant,
    /// When the last attempt ended; until it has, when it was handed out: one that is dropped before its turn ends nowhere.
    ended: Instant,
}

/// What becomes of a request.
pub(super) enum DigestAdmission<K> {
    /// It is sent by itself.
    Send(QueuedRequest<K>),
    /// It is held together with others.
    Held,
    /// It is held, and what is held is one message now: it is to be released.
    Full(HeldKey),
    /// It is held, as the first one: until this instant.
    HeldUntil(HeldKey, Instant),
}

impl<K> RecipientDigests<K> {
    pub(super) fn new(rule: Option<DigestRule>) -> Self {
        Self { rule, recipients: HashMap::new(), sweep_at: 1024 }
    }

    /// Takes a request that is to be held, and gives back any other one.
    pub(super) fn admit(&mut self, request: QueuedRequest<K>, now: Instant) -> DigestAdmission<K> {
        let recipient = request.request.recipient().map(ToOwned::to_owned);
        let (Some(rule), Some(recipient)) = (self.rule, recipient) else {
            return DigestAdmission::Send(request);
        };
        self.sweep(rule, now);
        let key = (request.group.clone(), recipient);
        let log = self.recipients.entry(key.clone()).or_insert_with(RecipientLog::empty);
        log.remove_old(rule, now);
        let id = request.request.id();
        // Nobody keeps others of the group out by what comes again, either.
        let crowded = log.in_flight() + 1 >= 2 * rule.at_most.max(1);
        if let Some(digest) = log.digests.iter_mut().find(|digest| digest.parts.iter().any(|part| part == id))
        {
            return digest.hold_again(request, key, rule, crowded, now);
        }
        if log.sent.iter().any(|(_, sent)| sent == id) {
            return DigestAdmission::Send(request);
        }
        if log.held.is_empty() && log.sent.len() < rule.one_by_one.max(1) {
            log.sent.push_back((now, id.to_owned()));
            return DigestAdmission::Send(request);
        }
        log.held.push(request);
        let key = HeldKey { recipient: key, digest: None };
        // Nobody keeps others of the group out by more.
        match log.held.len() {
            held if held >= rule.at_most.max(1) => DigestAdmission::Full(key),
            1 => DigestAdmission::HeldUntil(key, now + rule.within),
            _ => DigestAdmission::Held,
        }
    }

    /// What is held and whose time has come, joined; `wanted` says of an id whether somebody waits for it still.
    pub(super) fn release(
        &mut self,
        key: &HeldKey,
        now: Instant,
        wanted: impl FnMut(&str) -> bool,
    ) -> Vec<QueuedRequest<K>> {
        let (Some(rule), Some(log)) = (self.rule, self.recipients.get_mut(&key.recipient)) else {
            return Vec::new();
        };
        match &key.digest {
            None => log.release(rule, now, wanted),
            Some(id) => log.release_again(id, rule, now, wanted),
        }
    }

    /// An attempt at this message has ended.
    pub(super) fn ended(&mut self, key: &HeldKey, now: Instant) {
        let Some(log) = self.recipients.get_mut(&key.recipient) else { return };
        let ended = log.digests.iter_mut().find(|digest| key.digest.as_ref() == Some(&digest.id));
        if let Some(digest) = ended {
            digest.ended = now;
        }
    }

    /// How many are held.
    pub(super) fn held(&self) -> usize {
        self.recipients.values().map(RecipientLog::in_flight).sum()
    }

    /// How many of a group are held.
    pub(super) fn held_of(&self, group: &str) -> usize {
        let of_group = self.recipients.iter().filter(|((of, _), _)| of == group);
        of_group.map(|(_, log)| log.in_flight()).sum()
    }

    /// Gives up everything that is held.
    pub(super) fn clear(&mut self) -> Vec<QueuedRequest<K>> {
        let again = |digests: Vec<SentDigest<K>>| digests.into_iter().flat_map(|digest| digest.again);
        self.recipients.drain().flat_map(|(_, log)| log.held.into_iter().chain(again(log.digests))).collect()
    }

    /// Removes recipients who were sent nothing lately, once there are many.
    fn sweep(&mut self, rule: DigestRule, now: Instant) {
        if self.recipients.len() < self.sweep_at {
            return;
        }
        self.recipients.retain(|_, log| {
            log.remove_old(rule, now);
            !(log.sent.is_empty() && log.held.is_empty() && log.digests.is_empty())
        });
        self.sweep_at = (2 * self.recipients.len()).max(1024);
    }
}

impl<K> RecipientLog<K> {
    const fn empty() -> Self {
        Self { sent: VecDeque::new(), held: Vec::new(), digests: Vec::new() }
    }

    /// How many are held.
    fn in_flight(&self) -> usize {
        self.held.len() + self.digests.iter().map(|digest| digest.again.len()).sum::<usize>()
    }

    /// Removes what was sent too long ago to count, and what was joined too long ago to come again.
    fn remove_old(&mut self, rule: DigestRule, now: Instant) {
        while self.sent.front().is_some_and(|(sent, _)| *sent + rule.within <= now) {
            self.sent.pop_front();
        }
        self.digests.retain(|digest| !digest.again.is_empty() || now < digest.ended + rule.remembered);
    }

    /// What is new.
    fn release(
        &mut self,
        rule: DigestRule,
        now: Instant,
        mut wanted: impl FnMut(&str) -> bool,
    ) -> Vec<QueuedRequest<K>> {
        let mut held: Vec<_> = self.held.drain(..).filter(|one| one.ids().any(&mut wanted)).collect();
        let mut released = Vec::new();
        while !held.is_empty() {
            let rest = held.split_off(held.len().min(rule.at_most.max(1)));
            for one in QueuedRequest::joined(held, rule.join) {
                // One message, whatever is in it.
                let id = one.request.id().to_owned();
                if one.parts.len() > 1 {
                    let parts = one.ids().map(ToOwned::to_owned).collect();
                    let (id, again) = (id.clone(), Vec::new());
                    self.digests.push(SentDigest { id, parts, again, until: now, ended: now });
                }
                self.sent.push_back((now, id));
                released.push(one);
            }
            held = rest;
        }
        released
    }

    /// What was sent as one and comes again, if all of it is there or the time for the rest is over. It is no further message.
    fn release_again(
        &mut self,
        id: &str,
        rule: DigestRule,
        now: Instant,
        mut wanted: impl FnMut(&str) -> bool,
    ) -> Vec<QueuedRequest<K>> {
        let Some(at) = self.digests.iter().position(|digest| digest.id == id) else { return Vec::new() };
        let digest = &mut self.digests[at];
        let is_over = digest.until <= now && !digest.again.is_empty();
        if !is_over && digest.again.len() < digest.parts.len() {
            return Vec::new();
        }
        let mut again: Vec<_> = digest.again.drain(..).filter(|one| one.ids().any(&mut wanted)).collect();
        again.sort_by_key(|one| digest.parts.iter().position(|part| part == one.request.id()));
        digest.parts = again.iter().map(|one| one.request.id().to_owned()).collect();
        digest.ended = now;
        let mut joined = QueuedRequest::joined(again, rule.join);
        match &mut *joined {
            [one] => one.request.set_id(id),
            // Nothing is left of it; or the parts cannot be joined any more, and are messages of their own.
            _ => drop(self.digests.remove(at)),
        }
        joined
    }
}

impl<K> SentDigest<K> {
    /// A part comes again. Where too much is held for the recipient, the others are not waited for.
    fn hold_again(
        &mut self,
        request: QueuedRequest<K>,
        recipient: RecipientKey,
        rule: DigestRule,
        crowded: bool,
        now: Instant,
    ) -> DigestAdmission<K> {
        self.again.push(request);
        let key = HeldKey::of_digest(recipient, self.id.clone());
        match self.again.len() {
            held if crowded || held >= self.parts.len() => {
                self.until = now;
                DigestAdmission::Full(key)
            }
            1 => {
                // The longer they wait for their next attempt, the further apart they come: by a fifth.
                self.until = now + rule.within + now.duration_since(self.ended) / 5;
                DigestAdmission::HeldUntil(key, self.until)
            }
            _ => DigestAdmission::Held,
        }
    }
}
