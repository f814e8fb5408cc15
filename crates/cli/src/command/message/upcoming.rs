//! Which message comes next, and when: the operator's own plan, followed into the future as if nothing else happened.

use coppice_api::notify::{MessageAbout, MessageDelivery, MessageState};
use coppice_api::{ManagedNamespaceStatus, NamespacePhase};
use coppice_lifecycle::facts::NamespaceFacts;
use jiff::{SignedDuration, Timestamp};

use super::Subject;
use crate::facts::NamespaceRecord;
use crate::lifecycle::LifecycleSnapshot;

/// So many looks lead to what comes next, if anything does.
const MAX_LOOKS: usize = 100;
/// So far it is looked ahead.
const HORIZON: SignedDuration = SignedDuration::from_hours(366 * 24);

/// A message, and what is known when it is sent.
#[derive(Debug)]
pub(super) struct Chosen {
    pub(super) about: MessageAbout,
    /// What the record says then.
    pub(super) status: ManagedNamespaceStatus,
    /// When it is written down.
    pub(super) given_at: Timestamp,
    /// When it is sent; of one that was sent, when that was.
    pub(super) sent_at: Timestamp,
    /// Whether it was sent already.
    pub(super) is_sent: bool,
    /// What of it is made up, because it is not so.
    pub(super) made_up: Vec<String>,
}

impl Chosen {
    fn new(
        about: MessageAbout,
        status: &ManagedNamespaceStatus,
        given_at: Timestamp,
        sent_at: Timestamp,
    ) -> Self {
        let status = status.clone();
        Self { about, status, given_at, sent_at, is_sent: false, made_up: Vec::new() }
    }

    /// A message that the record lists.
    fn listed(one: &MessageDelivery, status: &ManagedNamespaceStatus, now: Timestamp) -> Self {
        let is_sent = one.state == MessageState::Delivered;
        let sent_at = one.delivered_at.filter(|_| is_sent).unwrap_or(now);
        Self { is_sent, ..Self::new(one.about, status, one.given_at, sent_at) }
    }
}

/// The message that is due next by a channel by which somebody gets it; or, while nothing is due but what was announced, the announcement.
pub(super) fn next(
    snapshot: &mut LifecycleSnapshot,
    subject: &Subject,
    at: Timestamp,
    receives: impl Fn(&str) -> bool,
) -> Option<Chosen> {
    follow(snapshot, subject, at, |status, now| {
        let listed = || status.notices.iter().filter(|one| receives(&one.channel));
        let pending = || listed().filter(|one| one.state == MessageState::Pending);
        let announces = |one: &&MessageDelivery| one.about == MessageAbout::DeletionAnnounced;
        let found = pending().find(announces).or_else(|| pending().next());
        // Which of those that were sent is about this notice their keys say; it is the last.
        let notice = status.steps.notice.as_ref();
        let sent = || listed().rev().find(announces).filter(|_| notice.is_some());
        found.or_else(sent).map(|one| Chosen::listed(one, status, now))
    })
}

/// The message of a kind, at the first instant from now on at which it is true; none if time alone leads to none.
pub(super) fn of_kind(
    snapshot: &mut LifecycleSnapshot,
    subject: &Subject,
    about: MessageAbout,
    at: Timestamp,
) -> Option<Chosen> {
    if about == MessageAbout::Expiring {
        let end = snapshot.governed_plan(&subject.facts.name, at)?.status.expires_at?;
        let at = reminder(subject, &subject.facts, end, at)?;
        let status = snapshot.governed_plan(&subject.facts.name, at)?.status;
        return Some(Chosen::new(about, &status, at, at));
    }
    if about == MessageAbout::Deleted {
        // Nothing is deleted here to see it: once its notice has run, if nobody prevents it.
        let announced = of_kind(snapshot, subject, MessageAbout::DeletionAnnounced, at)?;
        let gone_at = announced.status.steps.notice.as_ref()?.not_before.max(at);
        return Some(Chosen::new(about, &announced.status, gone_at, gone_at));
    }
    follow(snapshot, subject, at, |status, now| {
        let phase = |phase: NamespacePhase| status.phase == Some(phase);
        let is_true = match about {
            MessageAbout::DeletionAnnounced => status.steps.notice.is_some(),
            MessageAbout::Unstable => phase(NamespacePhase::Unstable),
            MessageAbout::Failing => phase(NamespacePhase::Failing),
            MessageAbout::Failed => phase(NamespacePhase::Failed),
            MessageAbout::Stale => phase(NamespacePhase::Stale),
            MessageAbout::Superseded => phase(NamespacePhase::Superseded),
            MessageAbout::Recovered
            | MessageAbout::NoticeWithdrawn
            | MessageAbout::Expiring
            | MessageAbout::Deleted => false,
        };
        let listed = status.notices.iter().rev().find(|one| one.about == about);
        let given_at = match &status.steps.notice {
            Some(notice) if about == MessageAbout::DeletionAnnounced => notice.given_at,
            _ => now,
        };
        is_true.then(|| match listed {
            Some(one) => Chosen::listed(one, status, now),
            None => Chosen::new(about, status, given_at, now),
        })
    })
}

/// The first reminder from now on of a ttl that ends then; now, where none is left before the end.
fn reminder(
    subject: &Subject,
    namespace: &NamespaceFacts,
    end: Timestamp,
    now: Timestamp,
) -> Option<Timestamp> {
    let before = subject.spec.notify.iter().flat_map(|notify| &notify.reminders);
    let dates =
        before.filter_map(|before| end.checked_sub(SignedDuration::from_secs(before.as_secs_i64())).ok());
    let next = dates.filter(|date| namespace.created < *date && now <= *date).min();
    (now < end).then(|| next.unwrap_or(now))
}

/// Follows the plan of a namespace until something is found in it. The snapshot is afterwards as it was before.
fn follow(
    snapshot: &mut LifecycleSnapshot,
    subject: &Subject,
    at: Timestamp,
    look: impl Fn(&ManagedNamespaceStatus, Timestamp) -> Option<Chosen>,
) -> Option<Chosen> {
    let namespace = &subject.facts.name;
    let record = snapshot.governed.records.get(namespace).cloned();
    let counted_at = snapshot.census.as_ref().map(|census| census.at);
    let found = looks(snapshot, subject, at, look);
    snapshot.governed.records.remove(namespace);
    snapshot.governed.records.extend(record.map(|record| (namespace.to_owned(), record)));
    if let Some((census, at)) = snapshot.census.as_mut().zip(counted_at) {
        census.at = at;
    }
    found
}

/// Looks at the plan at each instant at which time alone changes it.
fn looks(
    snapshot: &mut LifecycleSnapshot,
    subject: &Subject,
    at: Timestamp,
    look: impl Fn(&ManagedNamespaceStatus, Timestamp) -> Option<Chosen>,
) -> Option<Chosen> {
    let namespace = subject.facts.name.as_str();
    let horizon = at.checked_add(HORIZON).unwrap_or(Timestamp::MAX);
    let settle = SignedDuration::from_secs(subject.spec.settle.as_secs_i64());
    let mut now = at;
    for _ in 0..MAX_LOOKS {
        if let Some(census) = &mut snapshot.census {
            census.at = now;
        }
        let plan = snapshot.governed_plan(namespace, now)?;
        if let Some(found) = look(&plan.status, now) {
            return Some(found);
        }
        // What is done then is more than time that passes.
        if plan.now {
            return None;
        }
        // Nobody is notified before the manager has settled; the operator looks at every namespace often enough to see that.
        let settled = plan.status.manager.as_ref().and_then(|manager| manager.since.checked_add(settle).ok());
        let next = plan.next_check.into_iter().chain(settled).filter(|next| now < *next).min();
        let next = next.filter(|next| *next <= horizon)?;
        let new = || NamespaceRecord::assumed(namespace);
        snapshot.governed.records.entry(namespace.to_owned()).or_insert_with(new).status = plan.status;
        now = next;
    }
    None
}
