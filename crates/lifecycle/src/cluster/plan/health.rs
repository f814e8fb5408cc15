//! The health of a namespace in its record.

use coppice_api::health::{FailingObject, HealthSeen, IgnoreRule, ShortWorkload};
use coppice_api::managed_namespace::PastPhase;
use coppice_api::{HealthRecord, HealthState, NamespacePhase, Reason};
use coppice_mutants::{Mutant, active};
use coppice_quantity::Duration;
use jiff::Timestamp;

use super::decide::Ruling;
use super::{Builder, Governed, Judged, NamespacePlan};
use crate::cluster::ValidHealth;
use crate::cluster::phase::{DueCause, Unconfirmed};
use crate::condition::{later, whole_second_after};
use crate::health::{self, Failures, Health, HealthSettings, KnownFailures, Workloads};
use crate::message::failing_text;

/// So many phases before the present one are remembered.
const PAST_PHASES: usize = 10;
/// How long until to look again whether what is unknown has become known: nothing else says so where a namespace has no
/// workloads. A first list is soon complete.
const LOOK_AGAIN: [Duration; 2] = [Duration::from_secs(5), Duration::from_secs(30)];

/// Of what was followed with a gap until now: later than every time.
const NOT_FOLLOWED: Timestamp = Timestamp::MAX;

/// When to look again whether what is unknown for this reason has become known.
pub(super) fn look_again_at(reason: Reason, now: Timestamp) -> Timestamp {
    let [soon, rarely] = LOOK_AGAIN;
    later(now, if reason == Reason::NotSynced { soon } else { rarely })
}

impl Judged<'_> {
    /// Why a policy does something to the namespace: the ttl, also where its end is announced ahead, its pods, or the health.
    pub(super) fn reason(&self) -> Reason {
        self.due.map_or(Reason::Unhealthy, |due| due.cause.reason())
    }

    /// Whether it is another namespace, which has taken its place, that makes the policy true.
    pub(super) fn by_successor(&self) -> bool {
        self.due.is_some_and(|due| due.cause == DueCause::Superseded)
    }

    /// Whether it is what fails that makes the policy true.
    pub(super) fn by_health(&self) -> bool {
        self.reason() == Reason::Unhealthy
    }

    /// Whether it is a ttl that makes the policy true.
    pub(super) fn by_ttl(&self) -> bool {
        self.due.is_some_and(|due| due.cause == DueCause::Ttl)
    }
}

/// What is known of the workloads of a namespace.
#[derive(Clone, Debug)]
pub enum HealthFacts<'a> {
    /// Nothing, because no cluster manager looks at the health of namespaces.
    NotWatched,
    /// Everything.
    Known {
        /// The workloads.
        workloads: Workloads<'a>,
        /// Since when all of them have been followed without a gap.
        followed: Timestamp,
        /// Of workloads that were just read: what the watches had shown until then. Only they know for how long something has been
        /// failing.
        before: Option<Box<Workloads<'a>>>,
    },
    /// What the record says, as if nothing had changed since: for whoever does not watch them.
    AsRecorded,
    /// Not everything.
    Unknown {
        /// Why: `NotSynced`, `Stale`, `Forbidden`, `Undecodable` or `TooLarge`.
        reason: Reason,
        /// The message.
        message: String,
    },
}

impl Builder<'_> {
    /// Moves the clocks of the health by what is failing now, if the cluster manager looks at it.
    pub(super) fn look_at_health(&mut self, settings: Option<&ValidHealth>) {
        let Some(ValidHealth { settings, ignore, .. }) = settings else { return self.clear_health() };
        let mut short = self.status.health.as_ref().map(|health| health.short.clone()).unwrap_or_default();
        let health = match &self.observed.health {
            HealthFacts::Known { workloads, followed, before } => {
                let behind = self.watches_are_behind(workloads, before.as_deref(), ignore, &short);
                let followed = if behind { NOT_FOLLOWED } else { *followed };
                // What was short before a gap may not have been since.
                short.retain(|one| followed <= one.since);
                let known = KnownFailures { failing: &self.status.failing, short: &short };
                let found = health::failing(workloads, ignore, known, self.now);
                let Failures { failing, more, short: now_short, next_check } = found;
                self.check_no_later_than(next_check);
                let fails = !failing.is_empty();
                self.status.failing = failing;
                self.status.failing_more = (more > 0).then_some(more);
                short = now_short;
                Health::Known { fails, followed }
            }
            HealthFacts::AsRecorded => self.recorded_health(),
            HealthFacts::NotWatched => {
                let message = "its workloads have not been listed yet".to_owned();
                self.health_unknown(Reason::NotSynced, message)
            }
            HealthFacts::Unknown { reason, message } => self.health_unknown(*reason, message.clone()),
        };
        self.advance_health(settings, short, health);
    }

    /// Whether what was just read lacks something that fails by what the watches have shown `before`: nobody can say since when
    /// that is over, so that it proves nothing of the time since.
    fn watches_are_behind(
        &self,
        workloads: &Workloads<'_>,
        before: Option<&Workloads<'_>>,
        ignore: &[IgnoreRule],
        short: &[ShortWorkload],
    ) -> bool {
        let Some(before) = before.filter(|_| !active(Mutant::GapsUnseen)) else { return false };
        let known = KnownFailures { failing: &self.status.failing, short };
        let [before, now] =
            [before, workloads].map(|workloads| health::failing(workloads, ignore, known, self.now));
        let is =
            |one: &FailingObject, other: &FailingObject| (&one.kind, &one.name) == (&other.kind, &other.name);
        let fails = |one: &FailingObject| now.failing.iter().any(|other| is(one, other));
        // Of more than are listed, it is not known which they are.
        if before.more + now.more > 0 { now.failing.is_empty() } else { !before.failing.iter().all(fails) }
    }

    fn advance_health(&mut self, settings: &HealthSettings, short: Vec<ShortWorkload>, health: Health) {
        let (mut record, next_check) =
            health::advance(self.status.health.as_ref(), settings, health, self.now);
        record.short = short;
        self.status.health = Some(record);
        self.check_no_later_than(next_check);
    }

    fn recorded_health(&mut self) -> Health {
        let seen = self.status.health.as_ref().map(|health| health.seen);
        let known = |fails| Health::Known { fails, followed: Timestamp::MIN };
        match seen {
            Some(HealthSeen::Failing) => known(true),
            Some(HealthSeen::Passing) | None => known(false),
            Some(HealthSeen::Unknown) => {
                let message = "its workloads were not known when its record was written".to_owned();
                self.health_unknown(Reason::NotSynced, message)
            }
        }
    }

    fn health_unknown(&mut self, reason: Reason, message: String) -> Health {
        self.check_no_later_than(Some(look_again_at(reason, self.now)));
        self.unknown = Some((reason, message));
        Health::Unknown
    }

    /// Nothing is known of the health any more, and nobody asks.
    pub(super) fn clear_health(&mut self) {
        self.status.health = None;
        self.status.failing.clear();
        self.status.failing_more = None;
    }

    /// Nothing is decided at present: the clocks stand still meanwhile. Where none runs there is nothing to write.
    pub(super) fn pause_health(&mut self) {
        let runs = |health: &&mut HealthRecord| {
            (health.state, health.seen) != (HealthState::Ok, HealthSeen::Passing)
        };
        if let Some(record) = self.status.health.as_mut().filter(runs) {
            health::pause_clocks(record);
        }
    }

    /// What has to be known to decide is not: why.
    pub(super) fn not_known(mut self, reason: Reason, message: String) -> NamespacePlan {
        self.pause_health();
        self.waiting(reason, message)
    }

    /// Why nothing is done for the health at present.
    pub(super) fn unconfirmed(&self, governed: &Governed<'_>, unconfirmed: Unconfirmed) -> Ruling {
        match (unconfirmed, &self.unknown) {
            (Unconfirmed::Unknown, Some((reason, message))) => {
                let message =
                    format!("the health of the namespace is unknown: {message}; no action is taken");
                Ruling::Unconfirmed(*reason, message)
            }
            (Unconfirmed::SuccessorUnknown, _) => {
                let message = "whether the namespace that has taken its place still exists is unknown at present; no action is \
                               taken";
                Ruling::Unconfirmed(Reason::NotCounted, message.to_owned())
            }
            (Unconfirmed::Unknown | Unconfirmed::Recovering, _) => {
                let message = format!(
                    "the phase is {}: {}; nothing is done unless something fails again before it has recovered",
                    governed.finding.by_health().as_str(),
                    governed.failing
                );
                Ruling::Unconfirmed(Reason::Recovering, message)
            }
        }
    }

    /// What is failing, in short.
    pub(super) fn failing_text(&self) -> String {
        failing_text(&self.status)
    }

    /// Writes down the phase; since when, if that is not known, is since now.
    pub(super) fn set_phase(&mut self, phase: NamespacePhase, since: Option<Timestamp>) {
        if active(Mutant::PhaseKept) && phase == NamespacePhase::Ok && self.status.phase.is_some() {
            return;
        }
        self.remember_phase(phase);
        let unchanged = self.status.phase_since.filter(|_| self.status.phase == Some(phase));
        self.status.phase = Some(phase);
        self.status.phase_since = since.or(unchanged).or_else(|| Some(whole_second_after(self.now)));
    }

    /// Remembers the phase before this one.
    fn remember_phase(&mut self, phase: NamespacePhase) {
        let status = &mut self.status;
        let before = status.phase.filter(|before| *before != phase).zip(status.phase_since);
        if let Some((phase, since)) = before {
            status.past_phases.insert(0, PastPhase { phase, since });
            status.past_phases.truncate(PAST_PHASES);
        }
    }
}
