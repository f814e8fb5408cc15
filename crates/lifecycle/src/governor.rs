//! The budget of destructive steps, as arithmetic over a ledger.
//!
//! The ledger is the status of `CoppiceConfig/coppice`; the runtime books by compare-and-swap, so that the budget holds
//! for all replicas together and across restarts. A booking is made before its step and never taken back: after a
//! crash in between the budget is spent, not exceeded.

use coppice_api::Reason;
use coppice_api::config::{Booked, Governor, GovernorStatus, Tripped};
use jiff::{SignedDuration, Timestamp};

use crate::mutants::{Mutant, active};
use crate::time::ClockDoubt;

const MINUTE: SignedDuration = SignedDuration::from_secs(60);
const HOUR: SignedDuration = SignedDuration::from_secs(3600);

/// Why no step may be taken now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denied {
    /// `Paused` or `BudgetSpent`.
    pub reason: Reason,
    /// The same for people.
    pub message: String,
    /// When asking again is worthwhile; none if only a change of the settings helps.
    pub retry_at: Option<Timestamp>,
}

/// Why no step can be booked while it is not known what time it is.
pub fn doubted(doubt: ClockDoubt) -> Denied {
    let (reason, message) = doubt.tell();
    Denied { reason, message, retry_at: None }
}

/// How many steps an hour are allowed with that many managed namespaces.
pub fn hourly_limit(settings: &Governor, managed: u64) -> u32 {
    let share = settings.max_share.of(managed).max(u64::from(settings.at_least));
    let share = u32::try_from(share).ok().filter(|_| !active(Mutant::ShareIgnored)).unwrap_or(u32::MAX);
    if active(Mutant::PerHourIgnored) { share } else { settings.per_hour.min(share) }
}

/// Whether one more step may be taken now.
pub fn allow(
    settings: &Governor,
    ledger: &GovernorStatus,
    managed: u64,
    now: Timestamp,
) -> Result<(), Denied> {
    free(settings, ledger, managed, now).map(drop)
}

/// How many more steps may be taken now: at least one, otherwise why none.
fn free(settings: &Governor, ledger: &GovernorStatus, managed: u64, now: Timestamp) -> Result<u32, Denied> {
    if settings.paused && !active(Mutant::PauseIgnored) {
        return Err(Denied {
            reason: Reason::Paused,
            message: "the kill switch is on (spec.governor.paused of CoppiceConfig/coppice)".to_owned(),
            retry_at: None,
        });
    }
    let hourly = hourly_limit(settings, managed);
    let minutely = if active(Mutant::PerMinuteIgnored) { u32::MAX } else { settings.per_minute };
    let mut free = u32::MAX;
    for (limit, window, what) in
        [(minutely, MINUTE, "a minute (perMinute)"), (hourly, HOUR, "an hour (perHour, maxShare, atLeast)")]
    {
        match room(ledger, limit, window, now) {
            Room::Free(steps) => free = free.min(steps),
            Room::Full(retry_at) => {
                return Err(Denied {
                    reason: Reason::BudgetSpent,
                    message: format!("the budget of {limit} destructive steps {what} is spent"),
                    retry_at,
                });
            }
        }
    }
    Ok(free)
}

/// What came of asking for steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The ledger to write: with the steps that were granted, and with a note of why the others were not.
    pub ledger: GovernorStatus,
    /// How many steps were granted.
    pub granted: u32,
    /// Why no more than that, if more were asked for.
    pub denied: Option<Denied>,
}

/// Asks for so many steps at once (at least one), as one entry of the ledger. As many are granted as the budget has.
pub fn book(
    settings: &Governor,
    ledger: &GovernorStatus,
    managed: u64,
    now: Timestamp,
    steps: u32,
) -> Answer {
    let granted = match free(settings, ledger, managed, now) {
        Ok(free) => steps.min(free),
        Err(denied) => {
            return Answer { ledger: trip(ledger, &denied, now), granted: 0, denied: Some(denied) };
        }
    };
    let mut booked: Vec<Booked> = Vec::with_capacity(ledger.booked.len() + 1);
    let at = round_up(now, 1);
    let past = ledger.booked.iter().filter(|b| in_window(b.at, HOUR, now)).cloned();
    let new = Some(Booked { at, steps: granted }).filter(|_| !active(Mutant::BookingForgotten));
    for mut entry in past.chain(new) {
        // Older entries only count for the hour: one a minute is enough, and late is on the safe side. Not so late that
        // they would count for this minute again.
        let late = round_up(entry.at, 60);
        if !in_window(late, MINUTE, now) {
            entry.at = late;
        }
        match booked.last_mut() {
            Some(last) if last.at == entry.at => last.steps = last.steps.saturating_add(entry.steps),
            _ => booked.push(entry),
        }
    }
    let last_hour = booked.iter().map(|b| b.steps).fold(0, u32::saturating_add);
    let ledger =
        GovernorStatus { hourly_limit: hourly_limit(settings, managed), last_hour, tripped: None, booked };
    let denied = if granted < steps { allow(settings, &ledger, managed, now).err() } else { None };
    match &denied {
        Some(why) => Answer { ledger: trip(&ledger, why, now), granted, denied },
        None => Answer { ledger, granted, denied },
    }
}

/// The ledger as it stands now: what is allowed and spent, and whether steps are stopped.
pub fn review(settings: &Governor, ledger: &GovernorStatus, managed: u64, now: Timestamp) -> GovernorStatus {
    let within = ledger.booked.iter().filter(|b| in_window(b.at, HOUR, now));
    let reviewed = GovernorStatus {
        hourly_limit: hourly_limit(settings, managed),
        last_hour: within.map(|b| b.steps).fold(0, u32::saturating_add),
        ..ledger.clone()
    };
    match allow(settings, ledger, managed, now) {
        Ok(()) => GovernorStatus { tripped: None, ..reviewed },
        Err(denied) => trip(&reviewed, &denied, now),
    }
}

/// The ledger with a note of what stopped a step; the same ledger if that is known already.
pub fn trip(ledger: &GovernorStatus, denied: &Denied, now: Timestamp) -> GovernorStatus {
    let mut ledger = ledger.clone();
    let known = ledger.tripped.as_ref().is_some_and(|t| t.reason == denied.reason.as_str());
    if !known {
        ledger.tripped = Some(Tripped {
            reason: denied.reason.to_string(),
            message: denied.message.clone(),
            since: round_up(now, 1),
        });
    }
    ledger
}

/// Whether the window holds `limit` steps or more.
enum Room {
    /// So many more have room.
    Free(u32),
    /// Full, until the first of its steps leaves it (never, for a limit of zero).
    Full(Option<Timestamp>),
}

fn room(ledger: &GovernorStatus, limit: u32, window: SignedDuration, now: Timestamp) -> Room {
    if limit == 0 {
        return Room::Full(None);
    }
    // From the newest back: the step that has `limit - 1` newer ones has to leave the window.
    let mut count = 0u32;
    for entry in ledger.booked.iter().rev().filter(|b| in_window(b.at, window, now)) {
        count = count.saturating_add(entry.steps);
        if count >= limit {
            return Room::Full(entry.at.checked_add(window).ok());
        }
    }
    Room::Free(limit - count)
}

/// Also true for entries in the future: another replica's clock may be ahead of ours.
fn in_window(at: Timestamp, window: SignedDuration, now: Timestamp) -> bool {
    now.duration_since(at) < window
}

fn round_up(at: Timestamp, seconds: i64) -> Timestamp {
    let whole = at.as_second() + i64::from(at.subsec_nanosecond() > 0);
    let up = whole + (seconds - whole.rem_euclid(seconds)) % seconds;
    Timestamp::from_second(up).unwrap_or(at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millisecond(1_790_000_000_000 + millis).unwrap()
    }

    fn settings(per_minute: u32, per_hour: u32) -> Governor {
        Governor { per_minute, per_hour, at_least: 1_000_000, ..Governor::default() }
    }

    #[test]
    fn the_share_limits_large_installations_and_at_least_protects_small_ones() {
        let governor = Governor::default();
        assert_eq!(hourly_limit(&governor, 0), 10);
        assert_eq!(hourly_limit(&governor, 100), 20);
        assert_eq!(hourly_limit(&governor, 1_000_000), 300);
    }

    #[test]
    fn paused_and_zero_stop_everything_without_a_date() {
        let paused = Governor { paused: true, ..settings(9, 9) };
        let denied = allow(&paused, &GovernorStatus::default(), 0, at(0)).unwrap_err();
        assert_eq!((denied.reason, denied.retry_at), (Reason::Paused, None));
        let denied = allow(&settings(0, 9), &GovernorStatus::default(), 0, at(0)).unwrap_err();
        assert_eq!((denied.reason, denied.retry_at), (Reason::BudgetSpent, None));
    }

    #[test]
    fn who_asks_all_the_time_gets_what_the_budget_says() {
        let (mut ledger, mut taken) = (GovernorStatus::default(), 0);
        for second in 0..3600 {
            loop {
                let answer = book(&settings(30, 1_000_000), &ledger, 0, at(second * 1000), 1);
                ledger = answer.ledger;
                taken += answer.granted;
                assert!(ledger.booked.is_sorted_by_key(|b| b.at));
                if answer.granted == 0 {
                    break;
                }
            }
        }
        assert!(taken >= 1740, "{taken} of 1800 an hour");
    }

    proptest! {
        /// Whatever the times of asking, and however many steps are asked for at once, no window of a minute or an hour ever
        /// holds more than its limit; nobody is denied while there is budget, and the date given with a refusal is one at
        /// which asking succeeds.
        #[test]
        fn no_window_exceeds_its_limit(
            asked in prop::collection::vec((0i64..120_000, 1u32..8), 1..200),
            per_minute in 1u32..9,
            per_hour in 1u32..30,
        ) {
            let settings = settings(per_minute, per_hour);
            let (mut ledger, mut now, mut taken) = (GovernorStatus::default(), 0, Vec::new());
            for (gap, steps) in asked {
                now += gap;
                let one_by_one = (0..steps).fold((ledger.clone(), 0), |(ledger, granted), _| {
                    let answer = book(&settings, &ledger, 0, at(now), 1);
                    (answer.ledger, granted + answer.granted)
                });
                let answer = book(&settings, &ledger, 0, at(now), steps);
                prop_assert_eq!((&answer.ledger, answer.granted), (&one_by_one.0, one_by_one.1), "together as one by one");
                ledger = answer.ledger;
                taken.extend((0..answer.granted).map(|_| now));
                prop_assert_eq!(answer.denied.is_some(), answer.granted < steps);
                prop_assert_eq!(ledger.tripped.is_some(), answer.denied.is_some());
                if let Some(denied) = answer.denied {
                    let retry = denied.retry_at.unwrap();
                    prop_assert!(retry > at(now));
                    if let Err(again) = allow(&settings, &ledger, 0, retry) {
                        prop_assert!(again.retry_at.unwrap() > retry);
                    }
                }
                prop_assert!(ledger.booked.len() <= 125);
            }
            for (i, start) in taken.iter().enumerate() {
                let within = |window: i64| taken[i..].iter().filter(|t| **t - start < window).count();
                prop_assert!(within(60_000) <= per_minute as usize);
                prop_assert!(within(3_600_000) <= per_hour as usize);
            }
        }
    }
}
