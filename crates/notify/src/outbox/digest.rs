//! Messages to a recipient who gets many: they are held, and sent as one.

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
}

/// A group and a recipient in it.
pub(super) type RecipientKey = (String, String);

/// What each recipient was sent lately, and what is held for them.
pub(super) struct RecipientDigests<K> {
    rule: Option<DigestRule>,
    recipients: HashMap<RecipientKey, RecipientLog<K>>,
    /// At so many recipients those are forgotten who were sent nothing lately.
    sweep_at: usize,
}

struct RecipientLog<K> {
    /// When a message was sent first, and its id: another attempt at it is no further message.
    sent: VecDeque<(Instant, String)>,
    held: Vec<QueuedRequest<K>>,
}

/// What becomes of a request.
pub(super) enum DigestAdmission<K> {
    /// It is sent by itself.
    Send(QueuedRequest<K>),
    /// It is held together with others.
    Held,
    /// It is held, and what is held is one message now: it is to be released.
    Full(RecipientKey),
    /// It is held, as the first one: until this instant.
    HeldUntil(RecipientKey, Instant),
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
        let empty = || RecipientLog { sent: VecDeque::new(), held: Vec::new() };
        let log = self.recipients.entry(key.clone()).or_insert_with(empty);
        log.forget(rule, now);
        let id = request.request.id();
        if log.sent.iter().any(|(_, sent)| sent == id) {
            return DigestAdmission::Send(request);
        }
        if log.held.is_empty() && log.sent.len() < rule.one_by_one.max(1) {
            log.sent.push_back((now, id.to_owned()));
            return DigestAdmission::Send(request);
        }
        log.held.push(request);
        // Nobody keeps others of the group out by more.
        match log.held.len() {
            held if held >= rule.at_most.max(1) => DigestAdmission::Full(key),
            1 => DigestAdmission::HeldUntil(key, now + rule.within),
            _ => DigestAdmission::Held,
        }
    }

    /// What was held for a recipient, joined; `wanted` says of an id whether somebody waits for it still.
    pub(super) fn release(
        &mut self,
        key: &RecipientKey,
        now: Instant,
        mut wanted: impl FnMut(&str) -> bool,
    ) -> Vec<QueuedRequest<K>> {
        let (Some(rule), Some(log)) = (self.rule, self.recipients.get_mut(key)) else { return Vec::new() };
        let mut held: Vec<_> = log.held.drain(..).filter(|one| one.ids().any(&mut wanted)).collect();
        let mut released = Vec::new();
        while !held.is_empty() {
            let rest = held.split_off(held.len().min(rule.at_most.max(1)));
            // One message, whatever is in it.
            log.sent.extend(held.first().map(|first| (now, first.request.id().to_owned())));
            released.extend(QueuedRequest::joined(held, rule.join));
            held = rest;
        }
        released
    }

    /// How many are held.
    pub(super) fn held(&self) -> usize {
        self.recipients.values().map(|log| log.held.len()).sum()
    }

    /// How many of a group are held.
    pub(super) fn held_of(&self, group: &str) -> usize {
        let of_group = self.recipients.iter().filter(|((of, _), _)| of == group);
        of_group.map(|(_, log)| log.held.len()).sum()
    }

    /// Gives up everything that is held.
    pub(super) fn clear(&mut self) -> Vec<QueuedRequest<K>> {
        self.recipients.drain().flat_map(|(_, log)| log.held).collect()
    }

    /// Forgets recipients who were sent nothing lately, once there are many.
    fn sweep(&mut self, rule: DigestRule, now: Instant) {
        if self.recipients.len() < self.sweep_at {
            return;
        }
        self.recipients.retain(|_, log| {
            log.forget(rule, now);
            !(log.sent.is_empty() && log.held.is_empty())
        });
        self.sweep_at = (2 * self.recipients.len()).max(1024);
    }
}

impl<K> RecipientLog<K> {
    /// Forgets what was sent too long ago to count.
    fn forget(&mut self, rule: DigestRule, now: Instant) {
        while self.sent.front().is_some_and(|(sent, _)| *sent + rule.within <= now) {
            self.sent.pop_front();
        }
    }
}
