//! The clocks of a namespace's health, in virtual time: a test for each edge of the table, and one for each rule about time.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use coppice_api::health::{FailureBudget, HealthSeen};
use coppice_api::{HealthRecord, HealthState};
use coppice_lifecycle::health::{EDGES, Edge, EdgeCause, Health, HealthSettings, advance};
use coppice_quantity::Duration;
use jiff::{SignedDuration, Timestamp};

fn at(seconds: i64) -> Timestamp {
    "2026-03-01T12:00:00Z".parse::<Timestamp>().unwrap() + SignedDuration::from_secs(seconds)
}

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Five minutes to settle, two of grace, one to recover; twenty minutes of an hour to fail.
const SETTINGS: HealthSettings = HealthSettings {
    settling: seconds(300),
    grace: seconds(120),
    recovery: seconds(60),
    budget: FailureBudget { window: seconds(3600), max: seconds(1200) },
};

/// A namespace whose workloads are followed, and looked at whenever its clocks ask for it.
struct Namespace {
    record: Option<HealthRecord>,
    settings: HealthSettings,
    fails: bool,
    known: bool,
    followed: Timestamp,
    next: Option<Timestamp>,
    now: i64,
    edges: Vec<Edge>,
}

impl Namespace {
    fn new() -> Self {
        let mut namespace = Self {
            record: None,
            settings: SETTINGS,
            fails: false,
            known: true,
            followed: at(-1000),
            next: None,
            now: 0,
            edges: Vec::new(),
        };
        namespace.look();
        namespace
    }

    fn state(&self) -> HealthState {
        self.record.as_ref().unwrap().state
    }

    fn look(&mut self) {
        let before = self.record.as_ref().map_or(HealthState::Ok, |record| record.state);
        let health = if self.known {
            Health::Known { fails: self.fails, followed: self.followed }
        } else {
            Health::Unknown
        };
        let (record, next) = advance(self.record.as_ref(), &self.settings, health, at(self.now));
        let again = advance(Some(&record), &self.settings, health, at(self.now));
        assert_eq!(again, (record.clone(), next), "the same facts at the same time change nothing");
        let to = record.state;
        if to != before {
            let edge = EDGES.iter().find(|edge| (edge.from, edge.to) == (before, to));
            self.edges.extend(edge);
        }
        self.record = Some(record);
        self.next = next;
    }

    /// Lets time pass, and looks whenever the clocks ask for it. Returns the states with the second in which each began.
    fn pass(&mut self, until: i64) -> Vec<(i64, HealthState)> {
        let mut seen = Vec::new();
        while let Some(next) =
            self.next.map(|next| next.duration_since(at(0)).as_secs()).filter(|next| *next <= until)
        {
            assert!(next > self.now, "the clocks ask for {next} at {}", self.now);
            let before = self.state();
            self.now = next;
            self.look();
            if self.state() != before {
                seen.push((next, self.state()));
            }
        }
        self.now = until;
        let before = self.state();
        self.look();
        assert_eq!(self.state(), before, "nothing changes at {until} that was not asked for");
        seen
    }

    /// From now on something fails, or nothing does.
    fn fails(&mut self, fails: bool) -> &mut Self {
        self.fails = fails;
        self.look();
        self
    }

    fn known(&mut self, known: bool) -> &mut Self {
        self.known = known;
        self.look();
        self
    }

    /// The workloads were not followed until now.
    fn gap(&mut self) -> &mut Self {
        self.followed = at(self.now);
        self.look();
        self
    }
}

#[test]
fn what_fails_and_goes_on_to_fail_is_unstable_then_failing_then_failed() {
    let mut namespace = Namespace::new();
    assert_eq!(namespace.pass(100), []);
    namespace.fails(true);
    assert_eq!(namespace.state(), HealthState::Unstable);
    assert_eq!(namespace.pass(5000), [(400, HealthState::Failing), (520, HealthState::Failed)]);
    let record = namespace.record.unwrap();
    let since = [record.unstable_since, record.failing_since, record.failed_since];
    assert_eq!(since, [Some(at(100)), Some(at(400)), Some(at(520))]);
}

#[test]
fn from_every_state_it_recovers_only_after_the_whole_recovery_period() {
    for (until, state) in
        [(100, HealthState::Unstable), (400, HealthState::Failing), (600, HealthState::Failed)]
    {
        let mut namespace = Namespace::new();
        namespace.fails(true).pass(until);
        assert_eq!(namespace.state(), state);
        namespace.fails(false);
        assert_eq!(namespace.pass(until + 59), [], "not before the minute is over");
        namespace.fails(true);
        namespace.fails(false);
        assert_eq!(namespace.pass(until + 200), [(until + 119, HealthState::Ok)], "{state:?}");
        assert_eq!(namespace.record.unwrap().failed_since, None);
    }
}

#[test]
fn the_time_to_settle_begins_again_after_every_break() {
    let mut namespace = Namespace::new();
    namespace.fails(true).pass(299);
    namespace.fails(false).pass(309);
    namespace.fails(true);
    assert_eq!(namespace.pass(700), [(609, HealthState::Failing)]);
}

#[test]
fn the_grace_clock_stands_still_while_nothing_fails() {
    let mut namespace = Namespace::new();
    assert_eq!(namespace.fails(true).pass(360), [(300, HealthState::Failing)]);
    namespace.fails(false).pass(400);
    namespace.fails(true);
    assert_eq!(namespace.pass(600), [(460, HealthState::Failed)], "60 s before the break, and 60 s after it");
}

#[test]
fn what_fails_again_and_again_is_failing_once_its_budget_is_spent() {
    let mut namespace = Namespace::new();
    // 30 s of every 120 s something fails; with the minute of recovery it is not Ok for 90 s of them.
    let mut failing = None;
    for round in 0..20 {
        let begins = 120 * round;
        let states = [namespace.pass(begins), namespace.fails(true).pass(begins + 30)].concat();
        failing = failing.or(states.iter().find(|(_, state)| *state == HealthState::Failing).copied());
        namespace.fails(false);
    }
    // 13 rounds are 1170 s, and 30 s of the 14th.
    assert_eq!(failing, Some((13 * 120 + 30, HealthState::Failing)));
}

#[test]
fn what_was_spent_an_hour_ago_is_spent_no_more() {
    let mut namespace = Namespace::new();
    namespace.settings.settling = seconds(100_000);
    namespace.fails(true).pass(1100);
    namespace.fails(false).pass(1200);
    assert_eq!(namespace.state(), HealthState::Ok, "1160 of 1200 seconds are spent");
    namespace.pass(10_000);
    namespace.fails(true);
    assert_eq!(namespace.pass(11_300), [(11_200, HealthState::Failing)], "the whole budget is there again");
}

#[test]
fn what_is_unknown_moves_nothing_and_the_clocks_continue_after_it() {
    let mut namespace = Namespace::new();
    namespace.fails(true).pass(200);
    namespace.known(false);
    assert_eq!(namespace.record.as_ref().unwrap().seen, HealthSeen::Unknown);
    assert_eq!(namespace.pass(1000), []);
    namespace.known(true);
    assert_eq!(namespace.pass(1400), [(1300, HealthState::Failing)], "the time before does not count");
    namespace.known(false).pass(5000);
    assert_eq!(namespace.state(), HealthState::Failing);
    assert_eq!(namespace.known(true).pass(5200), [(5120, HealthState::Failed)], "nor of the grace");
    namespace.fails(false).pass(5230);
    namespace.known(false).pass(6000);
    assert_eq!(namespace.known(true).pass(6100), [(6060, HealthState::Ok)], "nor of the recovery");
}

#[test]
fn what_has_recovered_while_it_was_unknown_does_not_settle_by_the_time_before() {
    let mut namespace = Namespace::new();
    namespace.fails(true).pass(200);
    namespace.known(false).pass(300);
    namespace.fails = false;
    namespace.known(true).pass(310);
    assert_eq!(namespace.fails(true).pass(700), [(610, HealthState::Failing)]);
}

#[test]
fn a_gap_that_shows_only_after_something_was_unknown_is_a_gap() {
    let mut namespace = Namespace::new();
    namespace.fails(true).pass(310);
    let record = namespace.record.clone().unwrap();
    assert_eq!((record.state, record.seen_since), (HealthState::Failing, at(300)));
    // Nobody looked for two hours; then a pod could not be read; then everything is known since before that.
    let (paused, next) = advance(Some(&record), &SETTINGS, Health::Unknown, at(7500));
    assert_eq!((paused.failing_seconds, paused.seen_since, next), (0, at(300), None));
    let known = Health::Known { fails: true, followed: at(7490) };
    let (begun, _) = advance(Some(&paused), &SETTINGS, known, at(7510));
    assert_eq!((begun.state, begun.seen_since, begun.failing_seconds), (HealthState::Unstable, at(7510), 0));
}

#[test]
fn after_a_gap_every_clock_begins_again() {
    let mut namespace = Namespace::new();
    namespace.fails(true).pass(200);
    namespace.gap();
    assert_eq!(namespace.pass(550), [(500, HealthState::Failing)]);
    namespace.gap();
    assert_eq!(namespace.state(), HealthState::Unstable, "it may have been well meanwhile");
    assert_eq!(namespace.pass(900), [(850, HealthState::Failing)]);
    assert_eq!(namespace.pass(1000), [(970, HealthState::Failed)]);
    namespace.gap();
    assert_eq!(namespace.state(), HealthState::Unstable);
    assert_eq!(namespace.pass(1290), []);
    namespace.fails(false).pass(1330);
    namespace.gap();
    assert_eq!(namespace.pass(1400), [(1390, HealthState::Ok)]);
    let before = namespace.record.clone();
    namespace.gap();
    assert_eq!(namespace.record, before, "where no clock runs, there is nothing to write");
}

#[test]
fn every_edge_of_the_table_is_taken_for_its_cause_and_no_other() {
    let mut taken = Vec::new();
    for edge in EDGES {
        let mut namespace = Namespace::new();
        let fails = match edge.from {
            HealthState::Ok => 0,
            HealthState::Unstable => 200,
            HealthState::Failing => 350,
            HealthState::Failed => 500,
        };
        if fails > 0 {
            namespace.fails(true).pass(fails);
        }
        assert_eq!(namespace.state(), edge.from);
        match edge.cause {
            EdgeCause::SomethingFails => assert_eq!(namespace.fails(true).state(), edge.to),
            EdgeCause::Settled => assert_eq!(namespace.pass(310), [(300, edge.to)]),
            EdgeCause::GraceOver => assert_eq!(namespace.pass(430), [(420, edge.to)]),
            EdgeCause::Recovered => {
                assert_eq!(namespace.fails(false).pass(fails + 70), [(fails + 60, edge.to)]);
            }
            EdgeCause::Missed => assert_eq!(namespace.gap().state(), edge.to),
            EdgeCause::FailureBudgetSpent => {
                namespace.settings.budget.max = seconds(250);
                namespace.look();
                assert_eq!(namespace.pass(260), [(250, edge.to)]);
            }
        }
        taken.push((edge.from, edge.cause, edge.to));
        assert!(!edge.cause.as_str().is_empty());
    }
    taken.dedup();
    assert_eq!(taken.len(), EDGES.len(), "no edge twice");
}

#[test]
fn no_grace_means_failed_as_soon_as_it_is_failing() {
    let mut namespace = Namespace::new();
    namespace.settings.grace = Duration::ZERO;
    assert_eq!(namespace.fails(true).pass(400), [(300, HealthState::Failed)]);
    namespace.gap();
    assert_eq!(namespace.state(), HealthState::Unstable);
    assert_eq!(namespace.pass(800), [(700, HealthState::Failed)]);
}
