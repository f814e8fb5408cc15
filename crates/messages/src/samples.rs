//! Messages to try templates with: of every kind, with and without everything that there may be.

use std::collections::BTreeMap;

use coppice_api::health::{FailingObject, HealthSource};
use coppice_api::losses::{ForeignFinalizer, Losses, LostLoadBalancer, LostVolume, MAX_LISTED};
use coppice_api::notify::MessageAbout;
use coppice_lifecycle::message::{DeletionContent, MessageContent, MessageLink};
use jiff::Timestamp;

use crate::context::Context;

const NOW: Timestamp = Timestamp::constant(1_767_283_440, 0);
const LATER: Timestamp = Timestamp::constant(1_767_366_240, 0);

/// What a message may have or not have, as bits.
const DELETION: u16 = 1 << 0;
const LOSSES: u16 = 1 << 1;
const VOLUMES: u16 = 1 << 2;
const FAILING: u16 = 1 << 3;
const SUCCESSOR: u16 = 1 << 4;
const LINKS: u16 = 1 << 5;
const OBSERVING: u16 = 1 << 6;
const TIMES: u16 = 1 << 7;
const NAMED: u16 = 1 << 8;
const ALL: u16 = (1 << 9) - 1;

/// Messages of every kind: with nothing, with everything and as long as can be, with one thing alone, with all but one.
pub(crate) fn all() -> impl Iterator<Item = (MessageAbout, Context)> {
    let single = (0..9).map(|bit| 1 << bit);
    let combinations: Vec<u16> =
        [0, ALL].into_iter().chain(single.clone()).chain(single.map(|bit| ALL ^ bit)).collect();
    std::iter::successors(Some(MessageAbout::DeletionAnnounced), |about| next(*about))
        .flat_map(move |about| combinations.clone().into_iter().map(move |has| (about, sample(about, has))))
}

/// Every kind in its turn, so that none can be forgotten.
const fn next(about: MessageAbout) -> Option<MessageAbout> {
    match about {
        MessageAbout::DeletionAnnounced => Some(MessageAbout::NoticeWithdrawn),
        MessageAbout::NoticeWithdrawn => Some(MessageAbout::Unstable),
        MessageAbout::Unstable => Some(MessageAbout::Failing),
        MessageAbout::Failing => Some(MessageAbout::Failed),
        MessageAbout::Failed => Some(MessageAbout::Stale),
        MessageAbout::Stale => Some(MessageAbout::Superseded),
        MessageAbout::Superseded => Some(MessageAbout::Recovered),
        MessageAbout::Recovered => Some(MessageAbout::Expiring),
        MessageAbout::Expiring => Some(MessageAbout::Deleted),
        MessageAbout::Deleted => None,
    }
}

fn sample(about: MessageAbout, has: u16) -> Context {
    let cluster = (has & NAMED != 0).then_some("prod-1");
    Context::new(&content(about, has), NOW, cluster)
}

/// What a message says, with everything that there may be.
#[cfg(test)]
pub(crate) fn full(about: MessageAbout) -> MessageContent {
    content(about, ALL)
}

fn content(about: MessageAbout, has: u16) -> MessageContent {
    let with = |bits: u16| has & bits != 0;
    let text = |text: &str| text.to_owned();
    let link = MessageLink { name: text("pipeline"), url: text("https://ci.example.org/pipelines/1") };
    let count = if has == ALL { MAX_LISTED } else { 2 };
    MessageContent {
        about,
        namespace: text("ci-1"),
        uid: text("5f0c9a35-7d3e-4b7f-9f2b-1d2c3b4a5f60"),
        manager: text("cleanup"),
        owner: with(NAMED).then(|| text("team-shop")),
        given_at: NOW,
        why: text("its time to live ends at 2026-01-02T15:04:00Z"),
        deletion: with(DELETION | LOSSES | VOLUMES).then(|| DeletionContent {
            policy: text("delete the forgotten"),
            at: LATER,
            reason: text("TtlElapsed"),
            losses: with(LOSSES | VOLUMES).then(|| losses(has, count)),
        }),
        expires_at: with(TIMES).then_some(LATER),
        failing: if with(FAILING) { failing(count) } else { Vec::new() },
        advice: if with(FAILING) { advice() } else { BTreeMap::new() },
        successor: with(SUCCESSOR).then(|| text("ci-2")),
        observing: with(OBSERVING),
        links: if with(LINKS) { vec![link; count] } else { Vec::new() },
        keep: with(TIMES).then(|| text("coppice extend ci-1 --by 24h")),
        limit_reached: !with(TIMES),
    }
}

/// A text that is as long as the API server lets it be, and longer when it is escaped.
fn long(length: usize) -> String {
    "<".repeat(length)
}

/// The first with all that is optional, the others without.
fn losses(has: u16, count: usize) -> Losses {
    let mut losses = Losses::default();
    if has & VOLUMES != 0 {
        losses.volumes.extend((0..count).map(|at| LostVolume {
            claim: long(253),
            volume: long(253),
            capacity: (at == 0).then(|| "20Gi".to_owned()),
            reclaim_policy: (at == 0).then(|| "Delete".to_owned()),
        }));
        losses.load_balancers.extend((0..count).map(|at| LostLoadBalancer {
            service: long(63),
            addresses: if at == 0 { vec![long(253); 4] } else { Vec::new() },
        }));
    }
    if has & LOSSES != 0 {
        let one = ForeignFinalizer { finalizer: long(512), kind: long(253), name: long(253) };
        losses.finalizers = vec![one; count];
        losses.more = Some(3);
        losses.unknown = vec![long(1024); count];
    }
    losses
}

/// The first with advice, the others without.
fn failing(count: usize) -> Vec<FailingObject> {
    let one = |at: usize| FailingObject {
        kind: "Deployment".to_owned(),
        name: long(253),
        reason: if at == 0 { "CrashLoopBackOff" } else { "Other" }.to_owned(),
        message: long(512),
        source: HealthSource::Workloads,
        since: NOW,
    };
    (0..count).map(one).collect()
}

/// Of the first that fails.
fn advice() -> BTreeMap<String, String> {
    BTreeMap::from([("CrashLoopBackOff".to_owned(), long(512))])
}
