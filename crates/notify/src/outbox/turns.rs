//! Whose turn it is. Namespaces take turns, so that one with much to send delays another by one attempt at most, and a request whose
//! host is busy is passed over by the others of its namespace.

use std::collections::{HashMap, VecDeque};

use tokio::time::Instant;

use super::{Limits, SubmitError};
use crate::webhook::WebhookRequest;

/// A request that was accepted.
pub(super) struct Accepted<K> {
    /// The object to wake.
    pub(super) key: K,
    pub(super) namespace: String,
    pub(super) host: String,
    pub(super) request: WebhookRequest,
    pub(super) submitted: Instant,
}

/// What waits, and what is being attempted.
pub(super) struct Turns<K> {
    lanes: HashMap<String, Lane<K>>,
    /// The namespaces in which something waits; the one whose last turn was longest ago comes first.
    order: VecDeque<String>,
    /// How many attempts are being made at each host.
    hosts: HashMap<String, usize>,
    running: usize,
}

/// The requests of one namespace.
struct Lane<K> {
    waiting: VecDeque<Accepted<K>>,
    running: usize,
}

impl<K> Default for Turns<K> {
    fn default() -> Self {
        Self { lanes: HashMap::new(), order: VecDeque::new(), hosts: HashMap::new(), running: 0 }
    }
}

impl<K> Lane<K> {
    fn in_flight(&self) -> usize {
        self.waiting.len() + self.running
    }
}

impl<K> Turns<K> {
    /// Whether the namespace may have one more.
    pub(super) fn admits(&self, namespace: &str, limits: &Limits) -> Result<(), SubmitError> {
        let capacity = limits.capacity_per_namespace;
        if self.of(namespace) < capacity {
            return Ok(());
        }
        Err(SubmitError::NamespaceFull { namespace: namespace.to_owned(), capacity })
    }

    /// Takes a request behind those of its namespace.
    pub(super) fn add(&mut self, accepted: Accepted<K>) {
        let lane = self
            .lanes
            .entry(accepted.namespace.clone())
            .or_insert_with(|| Lane { waiting: VecDeque::new(), running: 0 });
        if lane.waiting.is_empty() {
            self.order.push_back(accepted.namespace.clone());
        }
        lane.waiting.push_back(accepted);
    }

    /// Takes the request that is to be attempted now, if one is: it counts as running until [`Self::done`].
    pub(super) fn next(&mut self, limits: &Limits) -> Option<Accepted<K>> {
        if self.running >= limits.concurrency {
            return None;
        }
        let (place, position) = self.order.iter().enumerate().find_map(|(place, namespace)| {
            let lane = self.lanes.get(namespace).filter(|lane| lane.running < limits.per_namespace)?;
            let free = |a: &Accepted<K>| self.hosts.get(&a.host).is_none_or(|n| *n < limits.per_host);
            Some((place, lane.waiting.iter().position(free)?))
        })?;
        let namespace = self.order.remove(place)?;
        let lane = self.lanes.get_mut(&namespace)?;
        let next = lane.waiting.remove(position)?;
        lane.running += 1;
        self.running += 1;
        *self.hosts.entry(next.host.clone()).or_default() += 1;
        if !lane.waiting.is_empty() {
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
        if let Some(lane) = self.lanes.get_mut(namespace) {
            lane.running = lane.running.saturating_sub(1);
        }
        self.forget_if_empty(namespace);
    }

    /// Takes the newest waiting request of the namespace that has the most, if that leaves it no worse off than `namespace`, which asks
    /// for the room.
    pub(super) fn displace_for(&mut self, namespace: &str) -> Option<Accepted<K>> {
        let waiting = self.lanes.iter().filter(|(_, lane)| !lane.waiting.is_empty());
        let (has, crowded) = waiting.map(|(namespace, lane)| (lane.in_flight(), namespace.clone())).max()?;
        if has <= self.of(namespace) + 1 {
            return None;
        }
        let displaced = self.lanes.get_mut(&crowded)?.waiting.pop_back();
        if self.lanes.get(&crowded).is_some_and(|lane| lane.waiting.is_empty()) {
            self.order.retain(|waiting| *waiting != crowded);
        }
        self.forget_if_empty(&crowded);
        displaced
    }

    /// Drops everything that waits.
    pub(super) fn clear(&mut self) -> Vec<Accepted<K>> {
        self.order.clear();
        let dropped = self.lanes.values_mut().flat_map(|lane| lane.waiting.drain(..)).collect();
        self.lanes.retain(|_, lane| lane.running > 0);
        dropped
    }

    /// How many are waiting or being attempted.
    pub(super) fn in_flight(&self) -> usize {
        self.lanes.values().map(Lane::in_flight).sum()
    }

    fn of(&self, namespace: &str) -> usize {
        self.lanes.get(namespace).map_or(0, Lane::in_flight)
    }

    fn forget_if_empty(&mut self, namespace: &str) {
        if self.of(namespace) == 0 {
            self.lanes.remove(namespace);
        }
    }
}
