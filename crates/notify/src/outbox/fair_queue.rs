//! Whose turn it is. Namespaces take turns, so that one with much to send delays another by one attempt at most, and a request whose
//! host is busy is passed over by the others of its namespace.

use std::collections::{HashMap, VecDeque};

use tokio::time::Instant;

use super::{OutboxLimits, SubmitError};
use crate::webhook::WebhookRequest;

/// A request that was accepted.
pub(super) struct QueuedRequest<K> {
    /// The object to wake.
    pub(super) key: K,
    pub(super) namespace: String,
    pub(super) host: String,
    pub(super) request: WebhookRequest,
    pub(super) submitted: Instant,
}

/// What waits, and what is being attempted.
pub(super) struct FairQueue<K> {
    queues: HashMap<String, NamespaceQueue<K>>,
    /// The namespaces in which something waits; the one whose last turn was longest ago comes first.
    order: VecDeque<String>,
    /// How many attempts are being made at each host.
    hosts: HashMap<String, usize>,
    running: usize,
}

/// The requests of one namespace.
struct NamespaceQueue<K> {
    waiting: VecDeque<QueuedRequest<K>>,
    running: usize,
}

impl<K> Default for FairQueue<K> {
    fn default() -> Self {
        Self { queues: HashMap::new(), order: VecDeque::new(), hosts: HashMap::new(), running: 0 }
    }
}

impl<K> NamespaceQueue<K> {
    fn in_flight(&self) -> usize {
        self.waiting.len() + self.running
    }
}

impl<K> FairQueue<K> {
    /// Whether the namespace may have one more.
    pub(super) fn admits(&self, namespace: &str, limits: &OutboxLimits) -> Result<(), SubmitError> {
        let capacity = limits.capacity_per_namespace;
        if self.of(namespace) < capacity {
            return Ok(());
        }
        Err(SubmitError::NamespaceFull { namespace: namespace.to_owned(), capacity })
    }

    /// Takes a request behind those of its namespace.
    pub(super) fn add(&mut self, accepted: QueuedRequest<K>) {
        let queue = self
            .queues
            .entry(accepted.namespace.clone())
            .or_insert_with(|| NamespaceQueue { waiting: VecDeque::new(), running: 0 });
        if queue.waiting.is_empty() {
            self.order.push_back(accepted.namespace.clone());
        }
        queue.waiting.push_back(accepted);
    }

    /// Takes the request that is to be attempted now, if one is: it counts as running until [`Self::done`].
    pub(super) fn next(&mut self, limits: &OutboxLimits) -> Option<QueuedRequest<K>> {
        if self.running >= limits.concurrency {
            return None;
        }
        let (place, position) = self.order.iter().enumerate().find_map(|(place, namespace)| {
            let queue = self.queues.get(namespace).filter(|queue| queue.running < limits.per_namespace)?;
            let free = |a: &QueuedRequest<K>| self.hosts.get(&a.host).is_none_or(|n| *n < limits.per_host);
            Some((place, queue.waiting.iter().position(free)?))
        })?;
        let namespace = self.order.remove(place)?;
        let queue = self.queues.get_mut(&namespace)?;
        let next = queue.waiting.remove(position)?;
        queue.running += 1;
        self.running += 1;
        *self.hosts.entry(next.host.clone()).or_default() += 1;
        if !queue.waiting.is_empty() {
            self.order.push_back(namespace);
        }
        Some(next)
    }

    /// An attempt is over.
    pub(super) fn done(&mut self, namespace: &str, host: &str) {
        self.running = self.running.saturating_sub(1);
        if let Some(running) = self.hosts.get_mut(host) {
            *running = running.saturating_sub(1);
            if *running == 0 {
                self.hosts.remove(host);
            }
        }
        if let Some(queue) = self.queues.get_mut(namespace) {
            queue.running = queue.running.saturating_sub(1);
        }
        self.remove_if_empty(namespace);
    }

    /// Takes the newest waiting request of the namespace that has the most, if that leaves it no worse off than `namespace`, which asks
    /// for the room.
    pub(super) fn evict_for(&mut self, namespace: &str) -> Option<QueuedRequest<K>> {
        let waiting = self.queues.iter().filter(|(_, queue)| !queue.waiting.is_empty());
        let (has, crowded) =
            waiting.map(|(namespace, queue)| (queue.in_flight(), namespace.clone())).max()?;
        if has <= self.of(namespace) + 1 {
            return None;
        }
        let evicted = self.queues.get_mut(&crowded)?.waiting.pop_back();
        if self.queues.get(&crowded).is_some_and(|queue| queue.waiting.is_empty()) {
            self.order.retain(|waiting| *waiting != crowded);
        }
        self.remove_if_empty(&crowded);
        evicted
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
        self.queues.values().map(NamespaceQueue::in_flight).sum()
    }

    fn of(&self, namespace: &str) -> usize {
        self.queues.get(namespace).map_or(0, NamespaceQueue::in_flight)
    }

    fn remove_if_empty(&mut self, namespace: &str) {
        if self.of(namespace) == 0 {
            self.queues.remove(namespace);
        }
    }
}
