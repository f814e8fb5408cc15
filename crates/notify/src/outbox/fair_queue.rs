//! Whose turn it is. Groups take turns, so that one with much to send delays another by one attempt at most, and a request whose
//! host is busy is passed over by the others of its group.

use std::collections::{HashMap, VecDeque};

use tokio::time::Instant;

use super::digest::HeldKey;
use super::{OutboxLimits, SubmitError};
use crate::request::DeliveryRequest;

/// A request that was accepted, or several that were joined.
pub(super) struct QueuedRequest<K> {
    /// The ids of what was submitted, each with the key of its object.
    pub(super) parts: Vec<(String, K)>,
    pub(super) group: String,
    pub(super) host: String,
    pub(super) request: DeliveryRequest,
    pub(super) submitted: Instant,
}

impl<K> QueuedRequest<K> {
    /// The ids of what was submitted.
    pub(super) fn ids(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().map(|(id, _)| &**id)
    }

    /// Where its parts are held if they come again; none if it is no more than what was submitted.
    pub(super) fn held_key(&self) -> Option<HeldKey> {
        let id = self.request.id();
        let joined = self.ids().any(|part| part != id);
        let recipient = self.request.recipient().filter(|_| joined)?;
        Some(HeldKey::of_digest((self.group.clone(), recipient.to_owned()), id.to_owned()))
    }

    /// Several of one group as one, or as they were if they cannot be joined.
    pub(super) fn joined(
        mut several: Vec<Self>,
        join: fn(&[DeliveryRequest]) -> Option<DeliveryRequest>,
    ) -> Vec<Self> {
        if several.len() < 2 {
            return several;
        }
        let requests: Vec<_> = several.iter().map(|one| one.request.clone()).collect();
        let Some(request) = join(&requests) else { return several };
        let parts = several.iter_mut().flat_map(|one| one.parts.drain(..)).collect();
        // Its time is that of the message that has waited longest.
        let first = several.swap_remove(0);
        vec![Self { parts, request, ..first }]
    }
}

/// What waits, and what is being attempted.
pub(super) struct FairQueue<K> {
    queues: HashMap<String, GroupQueue<K>>,
    /// The groups in which something waits; the one whose last turn was longest ago comes first.
    order: VecDeque<String>,
    /// How many attempts are being made at each host.
    hosts: HashMap<String, usize>,
    running: usize,
}

/// The requests of one group.
struct GroupQueue<K> {
    waiting: VecDeque<QueuedRequest<K>>,
    running: usize,
}

impl<K> Default for FairQueue<K> {
    fn default() -> Self {
        Self { queues: HashMap::new(), order: VecDeque::new(), hosts: HashMap::new(), running: 0 }
    }
}

impl<K> GroupQueue<K> {
    fn in_flight(&self) -> usize {
        self.waiting.len() + self.running
    }
}

impl<K> FairQueue<K> {
    /// Whether the group, of which so many are held, may have one more.
    pub(super) fn admits(&self, group: &str, held: usize, limits: &OutboxLimits) -> Result<(), SubmitError> {
        let capacity = limits.capacity_per_group;
        if self.of(group) + held < capacity {
            return Ok(());
        }
        Err(SubmitError::GroupFull { group: group.to_owned(), capacity })
    }

    /// Takes a request behind those of its group.
    pub(super) fn add(&mut self, accepted: QueuedRequest<K>) {
        let queue = self
            .queues
            .entry(accepted.group.clone())
            .or_insert_with(|| GroupQueue { waiting: VecDeque::new(), running: 0 });
        if queue.waiting.is_empty() {
            self.order.push_back(accepted.group.clone());
        }
        queue.waiting.push_back(accepted);
    }

    /// Takes the request that is to be attempted now, if one is: it counts as running until [`Self::done`].
    pub(super) fn next(
        &mut self,
        limits: &OutboxLimits,
        permits: impl Fn(&str, usize) -> bool,
    ) -> Option<QueuedRequest<K>> {
        if self.running >= limits.concurrency {
            return None;
        }
        let (place, position) = self.order.iter().enumerate().find_map(|(place, group)| {
            let queue = self.queues.get(group)?;
            if queue.running >= limits.per_group || !permits(group, queue.running) {
                return None;
            }
            let free = |a: &QueuedRequest<K>| self.hosts.get(&a.host).is_none_or(|n| *n < limits.per_host);
            Some((place, queue.waiting.iter().position(free)?))
        })?;
        let group = self.order.remove(place)?;
        let queue = self.queues.get_mut(&group)?;
        let next = queue.waiting.remove(position)?;
        queue.running += 1;
        self.running += 1;
        *self.hosts.entry(next.host.clone()).or_default() += 1;
        if !queue.waiting.is_empty() {
            self.order.push_back(group);
        }
        Some(next)
    }

    /// An attempt is over.
    pub(super) fn done(&mut self, group: &str, host: &str) {
        self.running = self.running.saturating_sub(1);
        if let Some(running) = self.hosts.get_mut(host) {
            *running = running.saturating_sub(1);
            if *running == 0 {
                self.hosts.remove(host);
            }
        }
        if let Some(queue) = self.queues.get_mut(group) {
            queue.running = queue.running.saturating_sub(1);
        }
        self.remove_if_empty(group);
    }

    /// Takes the newest waiting request of the group that has the most, if that leaves it no worse off than `group`, which asks
    /// for the room.
    pub(super) fn evict_for(&mut self, group: &str) -> Option<QueuedRequest<K>> {
        let waiting = self.queues.iter().filter(|(_, queue)| !queue.waiting.is_empty());
        let (has, crowded) = waiting.map(|(group, queue)| (queue.in_flight(), group.clone())).max()?;
        if has <= self.of(group) + 1 {
            return None;
        }
        let evicted = self.queues.get_mut(&crowded)?.waiting.pop_back();
        if self.queues.get(&crowded).is_some_and(|queue| queue.waiting.is_empty()) {
            self.order.retain(|waiting| *waiting != crowded);
        }
        self.remove_if_empty(&crowded);
        evicted
    }

    /// Drops the request with this id, if it waits, and by itself. Returns whether it did.
    pub(super) fn remove(&mut self, id: &str) -> bool {
        let is = |one: &QueuedRequest<K>| one.parts.len() == 1 && one.ids().any(|part| part == id);
        let found = self.queues.iter_mut().find_map(|(group, queue)| {
            let position = queue.waiting.iter().position(is)?;
            queue.waiting.remove(position);
            Some((group.clone(), queue.waiting.is_empty()))
        });
        let Some((group, nothing_waits)) = found else { return false };
        if nothing_waits {
            self.order.retain(|waiting| *waiting != group);
        }
        self.remove_if_empty(&group);
        true
    }

    /// Drops everything that waits.
    pub(super) fn clear(&mut self) -> Vec<QueuedRequest<K>> {
        self.order.clear();
        let dropped = self.queues.values_mut().flat_map(|queue| queue.waiting.drain(..)).collect();
        self.queues.retain(|_, queue| queue.running > 0);
        dropped
    }

    /// How many are waiting or being attempted.
    pub(super) fn in_flight(&self) -> usize {
        self.queues.values().map(GroupQueue::in_flight).sum()
    }

    fn of(&self, group: &str) -> usize {
        self.queues.get(group).map_or(0, GroupQueue::in_flight)
    }

    fn remove_if_empty(&mut self, group: &str) {
        if self.of(group) == 0 {
            self.queues.remove(group);
        }
    }
}
