//! The clocks that make of what fails the phases `Unstable`, `Failing` and `Failed`.
//!
//! They run while what is needed is known, and stand still while it is not. What they show is recorded when something
//! changes; how far they are now follows from that and from the time.

use coppice_api::health::{FailureBudget, HealthSeen};
use coppice_api::{HealthRecord, HealthState};
use coppice_mutants::{Mutant, active};
use coppice_quantity::Duration;
use jiff::Timestamp;

use super::budget::Spent;
use super::edges::{EDGES, EdgeCause};
use crate::condition::{later, whole_second_after};

/// The periods of the clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HealthSettings {
    /// From `Unstable` to `Failing`.
    pub settling: Duration,
    /// From `Failing` to `Failed`.
    pub grace: Duration,
    /// Back to `Ok`.
    pub recovery: Duration,
    /// How long a namespace may not be `Ok`.
    pub budget: FailureBudget,
}

/// What is known of the health of a namespace now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// Whether something fails.
    Known {
        /// Whether something fails.
        fails: bool,
        /// Since when the workloads have been followed without a gap.
        followed: Timestamp,
    },
    /// It is not known.
    Unknown,
}

/// Moves the clocks to now. Returns when time alone moves them over an edge. `record` is what was recorded before; none of
/// a namespace that this begins with.
pub fn advance(
    record: Option<&HealthRecord>,
    settings: &HealthSettings,
    health: Health,
    now: Timestamp,
) -> (HealthRecord, Option<Timestamp>) {
    let (fails, followed) = match health {
        Health::Known { fails, followed } => (fails, followed),
        Health::Unknown => {
            let mut record = record.cloned().unwrap_or_else(|| begun(HealthSeen::Unknown, now));
            pause_clocks(&mut record);
            return (record, None);
        }
    };
    let seen = if fails { HealthSeen::Failing } else { HealthSeen::Passing };
    let mut clocks =
        Clocks { record: record.cloned().unwrap_or_else(|| begun(seen, now)), settings, now, missed: false };
    clocks.see(seen, followed);
    while let Some(edge) = EDGES.iter().find(|edge| edge.from == clocks.record.state && clocks.is(edge.cause))
    {
        clocks.enter(edge.to);
    }
    let next_check = clocks.next_check();
    (clocks.record, next_check)
}

/// What is needed is not known any more: the clocks stand still. What ran since `seen_since` does not count, since nobody can
/// say until when it was so: the process may have stood still, too. `seen_since` stays, so that a gap after it is found.
pub const fn pause_clocks(record: &mut HealthRecord) {
    record.seen = HealthSeen::Unknown;
}

fn begun(seen: HealthSeen, now: Timestamp) -> HealthRecord {
    HealthRecord {
        state: HealthState::Ok,
        seen,
        seen_since: whole_second_after(now),
        failing_seconds: 0,
        recovery_seconds: 0,
        not_ok_since: None,
        unstable_since: None,
        failing_since: None,
        failed_since: None,
        spent: None,
        short: Vec::new(),
    }
}

struct Clocks<'a> {
    record: HealthRecord,
    settings: &'a HealthSettings,
    now: Timestamp,
    /// Whether the workloads were not followed for a time since the clocks were looked at.
    missed: bool,
}

impl Clocks<'_> {
    /// Takes notice of what is known now.
    fn see(&mut self, seen: HealthSeen, followed: Timestamp) {
        let (before, now) = (self.record.seen, whole_second_after(self.now));
        if self.record.state == HealthState::Ok && seen == HealthSeen::Passing {
            // No clock runs, and none has to be set: what was missed is over.
            if before != seen {
                (self.record.seen, self.record.seen_since) = (seen, now);
            }
            return;
        }
        if followed > self.record.seen_since && !active(Mutant::GapIgnored) {
            self.missed = true;
            (self.record.failing_seconds, self.record.recovery_seconds) = (0, 0);
            self.begin_states_again();
        } else if before == HealthSeen::Unknown {
            self.begin_states_again();
        } else if before == seen {
            return;
        } else {
            self.stop();
        }
        match seen {
            HealthSeen::Failing => self.record.recovery_seconds = 0,
            // The time to settle is one without a break.
            HealthSeen::Passing if self.record.state == HealthState::Unstable => {
                self.record.failing_seconds = 0;
            }
            HealthSeen::Passing | HealthSeen::Unknown => {}
        }
        (self.record.seen, self.record.seen_since) = (seen, now);
    }

    /// What happened in a time that nobody has seen does not count.
    fn begin_states_again(&mut self) {
        let now = whole_second_after(self.now);
        let HealthRecord { not_ok_since, unstable_since, failing_since, failed_since, .. } = &mut self.record;
        // A record of before has no such date.
        *not_ok_since = not_ok_since.or(*unstable_since);
        for since in [unstable_since, failing_since, failed_since] {
            *since = since.map(|_| now);
        }
    }

    /// Adds up what the clocks show.
    fn stop(&mut self) {
        let (failing, recovering) = (self.failing(), self.recovering());
        (self.record.failing_seconds, self.record.recovery_seconds) = (failing, recovering);
    }

    fn is(&self, cause: EdgeCause) -> bool {
        let fails = self.record.seen == HealthSeen::Failing;
        let over = |seconds: u32, period: Duration| u64::from(seconds) >= period.as_secs();
        match cause {
            EdgeCause::SomethingFails => fails,
            EdgeCause::Settled | EdgeCause::GraceOver if active(Mutant::HealthClocksIgnored) => fails,
            EdgeCause::Settled => fails && over(self.failing(), self.settings.settling),
            EdgeCause::FailureBudgetSpent => fails && self.spent() >= self.settings.budget.max.as_secs_i64(),
            EdgeCause::GraceOver => fails && over(self.failing(), self.settings.grace),
            EdgeCause::Recovered => !fails && over(self.recovering(), self.settings.recovery),
            EdgeCause::Missed => self.missed,
        }
    }

    fn enter(&mut self, state: HealthState) {
        let now = whole_second_after(self.now);
        if state == HealthState::Ok {
            self.spend();
        }
        let record = &mut self.record;
        let not_ok_since = record.not_ok_since.or(record.unstable_since);
        let since = |entered: bool, kept: Option<Timestamp>| entered.then(|| kept.unwrap_or(now));
        record.not_ok_since = since(state >= HealthState::Unstable, not_ok_since);
        record.unstable_since = since(state >= HealthState::Unstable, record.unstable_since);
        record.failing_since = since(state >= HealthState::Failing, record.failing_since);
        record.failed_since = since(state >= HealthState::Failed, record.failed_since);
        record.state = state;
        (record.failing_seconds, record.recovery_seconds, record.seen_since) = (0, 0, now);
        self.missed = false;
    }

    /// Records the time in which it was not `Ok`.
    fn spend(&mut self) {
        let Some(since) = self.record.unstable_since.filter(|since| *since < self.now) else { return };
        let mut spent = self.recorded_budget();
        spent.add(since, self.now);
        self.record.spent = spent.recorded();
    }

    fn recorded_budget(&self) -> Spent {
        Spent::read(self.record.spent.as_ref(), self.settings.budget)
    }

    /// The seconds of the budget that are spent by now.
    fn spent(&self) -> i64 {
        let running = self.record.unstable_since.map_or(0, |since| seconds(since, self.now));
        self.recorded_budget().total(self.now).saturating_add(running.into())
    }

    /// How long something has been failing, for the period of the present state.
    fn failing(&self) -> u32 {
        self.clock(HealthSeen::Failing, self.record.failing_seconds)
    }

    /// How long nothing has failed.
    fn recovering(&self) -> u32 {
        self.clock(HealthSeen::Passing, self.record.recovery_seconds)
    }

    fn clock(&self, runs_while: HealthSeen, before: u32) -> u32 {
        let runs = self.record.seen == runs_while;
        before.saturating_add(if runs { seconds(self.record.seen_since, self.now) } else { 0 })
    }

    /// When time alone moves a clock over an edge, or may do so.
    fn next_check(&self) -> Option<Timestamp> {
        let HealthRecord { state, seen, seen_since, failing_seconds, recovery_seconds, .. } = self.record;
        let ends = |period: Duration, before: u32| {
            let left = period.as_secs().saturating_sub(before.into());
            later(seen_since, Duration::from_secs(left))
        };
        match (seen, state) {
            (HealthSeen::Unknown, _)
            | (HealthSeen::Passing, HealthState::Ok)
            | (HealthSeen::Failing, HealthState::Ok | HealthState::Failed) => None,
            (HealthSeen::Passing, _) => Some(ends(self.settings.recovery, recovery_seconds)),
            (HealthSeen::Failing, HealthState::Unstable) => {
                let left = self
                    .settings
                    .budget
                    .max
                    .as_secs_i64()
                    .saturating_sub(self.recorded_budget().total(self.now));
                let left = Duration::from_secs(u64::try_from(left).unwrap_or(0));
                let spent = self.record.unstable_since.map(|since| later(since, left));
                Some(ends(self.settings.settling, failing_seconds)).into_iter().chain(spent).min()
            }
            (HealthSeen::Failing, HealthState::Failing) => Some(ends(self.settings.grace, failing_seconds)),
        }
    }
}

/// The whole seconds between two instants; none if the second comes before the first.
fn seconds(from: Timestamp, until: Timestamp) -> u32 {
    u32::try_from(until.duration_since(from).as_secs().max(0)).unwrap_or(u32::MAX)
}
