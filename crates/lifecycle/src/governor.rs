//! The budget of destructive steps, as arithmetic over a ledger.
//!
//! The ledger is the status of `CoppiceConfig/coppice`; the runtime reserves by compare-and-swap, so that the budget
//! holds for all replicas together and across restarts. A reservation is made before its step and never taken back:
//! after a crash in between the budget is spent, not exceeded. What users delete one by one in a tree of namespaces has a
//! budget for each tree, in the same ledger.

use coppice_api::Reason;
use coppice_api::config::{Blocked, GovernorSpec, GovernorStatus, ReservationEntry, TreeBudget};
use jiff::{SignedDuration, Timestamp};

use crate::breaker;
use coppice_mutants::{Mutant, active};
use coppice_quantity::count;
use coppice_quantity::time::ClockUncertainty;

const MINUTE: SignedDuration = SignedDuration::from_secs(60);
const HOUR: SignedDuration = SignedDuration::from_secs(3600);
/// So many trees have budgets of their own at a time: the ledger is one object, whose size is limited.
const MAX_TREE_BUDGETS: usize = 100;

/// Why a step may not be taken now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denied {
    /// Of the governor `Paused`, `BreakerOpen`, `BudgetSpent` or `TreeBudgetSpent`, and of a reservation also `ClockSkew`;
    /// [circumstances](crate::circumstances) and [steps](crate::steps) have others.
    pub reason: Reason,
    /// The message.
    pub message: String,
    /// When to ask again; none if only a change helps.
    pub retry_at: Option<Timestamp>,
}

impl Denied {
    /// When the step can go on, if that is known. It is no such date when something is just looked at again, which would be another
    /// one each time.
    pub fn date(&self) -> Option<Timestamp> {
        let looks_again = matches!(self.reason, Reason::DeletedByAnother | Reason::WebhookPending);
        self.retry_at.filter(|_| !looks_again)
    }

    /// The same to the minute, and never earlier: for a status that is not written again for each step that others take.
    pub fn minute(&self) -> Option<Timestamp> {
        self.date().map(|at| round_up(at, 60))
    }

    /// Not before something changes.
    pub fn until_changed((reason, message): (Reason, String)) -> Self {
        Self { reason, message, retry_at: None }
    }
}

/// Why no step can be reserved while it is not known what time it is.
pub fn uncertain(uncertainty: ClockUncertainty) -> Denied {
    Denied::until_changed(clock_skew(uncertainty))
}

/// The reason and the message for status. Without figures, which change with every evaluation.
pub(crate) fn clock_skew(uncertainty: ClockUncertainty) -> (Reason, String) {
    let wrong = match uncertainty {
        ClockUncertainty::NoServerTime => "have not been compared lately: its answers carry no Date",
        ClockUncertainty::Differs => "differ by more than 5 seconds: correct the clocks",
    };
    (Reason::ClockSkew, format!("the API server's clock and Coppice's {wrong}"))
}

/// Whose steps they are, and how many namespaces these look after: what they may take an hour is a share of that number. No share is
/// spent by another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share<'a> {
    /// Those of managers and cluster managers.
    Managers(u64),
    /// Those that trees of namespaces have in common: of a namespace that is deleted with all below it. The limits in numbers hold for
    /// these and those of managers together.
    Trees(u64),
    /// What users delete one by one in a tree: every limit holds for the tree alone.
    Tree {
        /// The name of the tree.
        name: &'a str,
        /// How many namespaces it has.
        namespaces: u64,
        /// How many all trees have, of which it takes a share with the others where the ledger has no room for a budget of its own.
        all_trees: u64,
    },
}

impl Share<'_> {
    fn namespaces(self) -> u64 {
        match self {
            Self::Managers(namespaces) | Self::Trees(namespaces) | Self::Tree { namespaces, .. } => {
                namespaces
            }
        }
    }

    /// How many of its steps an hour are allowed. In a tree one at least, unless all are stopped (`perHour` of 0): users ask for each by
    /// itself, and with `atLeast` of 0 the share of a small tree would be none for ever.
    fn hourly_limit(self, settings: &GovernorSpec) -> u32 {
        let limit = hourly_limit(settings, self.namespaces());
        match self {
            Self::Managers(_) | Self::Trees(_) => limit,
            Self::Tree { .. } if active(Mutant::TreeBudgetIgnored) => u32::MAX,
            Self::Tree { .. } => limit.max(settings.per_hour.min(1)),
        }
    }

    /// What was reserved for these steps.
    fn reservations(self, budget: &GovernorStatus) -> &[ReservationEntry] {
        match self {
            Self::Managers(_) => &budget.reservations,
            Self::Trees(_) => &budget.tree_reservations,
            Self::Tree { name, .. } => {
                let own = budget.tree_budgets.iter().find(|own| own.tree == name);
                own.map(|own| own.reservations.as_slice()).unwrap_or_default()
            }
        }
    }

    /// The same; what trees have in common where the ledger has no room for the budget of one more tree.
    fn with_room(self, budget: &GovernorStatus, now: Timestamp) -> Self {
        let Self::Tree { name, all_trees, .. } = self else { return self };
        let others = budget.tree_budgets.iter().filter(|other| other.tree != name && is_used(other, now));
        let room = others.count() < MAX_TREE_BUDGETS && !active(Mutant::TreesShareBudget);
        if room { self } else { Self::Trees(all_trees) }
    }

    /// Why there is no more of it. `of_all`: a limit for managers and trees together.
    fn spent(self, limit: u32, what: &str, of_all: bool) -> (Reason, String) {
        let steps = count(limit, "destructive step");
        let of = match self {
            Self::Tree { name, .. } => format!("the budget of tree {name}, {steps} {what},"),
            Self::Trees(_) if !of_all => format!("the budget that trees have in common, {steps} {what},"),
            Self::Managers(_) | Self::Trees(_) => format!("the budget of {steps} {what}"),
        };
        let reason = match self {
            Self::Managers(_) | Self::Trees(_) => Reason::BudgetSpent,
            Self::Tree { .. } => Reason::TreeBudgetSpent,
        };
        (reason, format!("{of} is spent"))
    }
}

/// How many steps an hour are allowed with that many managed namespaces.
pub fn hourly_limit(settings: &GovernorSpec, managed: u64) -> u32 {
    let share = settings.max_share.of(managed).max(u64::from(settings.at_least));
    let share = u32::try_from(share).ok().filter(|_| !active(Mutant::ShareIgnored)).unwrap_or(u32::MAX);
    if active(Mutant::PerHourIgnored) { share } else { settings.per_hour.min(share) }
}

/// Whether one more step may be taken now, as far as this ledger says: a plan waits by it. The last word has [`reserve`], on the ledger as it
/// is when the step is written into it.
pub fn allow(
    settings: &GovernorSpec,
    budget: &GovernorStatus,
    share: Share<'_>,
    now: Timestamp,
) -> Result<(), Denied> {
    remaining(settings, budget, share, now).map(drop)
}

/// How many more steps may be taken now: at least one, otherwise why none. The rules that both [`allow`] and [`reserve`] go by.
fn remaining(
    settings: &GovernorSpec,
    budget: &GovernorStatus,
    share: Share<'_>,
    now: Timestamp,
) -> Result<u32, Denied> {
    if settings.paused && !active(Mutant::PauseIgnored) {
        return Err(Denied {
            reason: Reason::Paused,
            message: "Coppice is paused (spec.governor.paused of CoppiceConfig/coppice is true)".to_owned(),
            retry_at: None,
        });
    }
    if let Some(open) = breaker::open(settings, budget).filter(|_| !active(Mutant::BreakerIgnored)) {
        return Err(breaker::denied(open));
    }
    let share = share.with_room(budget, now);
    let hourly = share.hourly_limit(settings);
    let minutely = if active(Mutant::PerMinuteIgnored) { u32::MAX } else { settings.per_minute };
    let per_hour = if active(Mutant::PerHourIgnored) { u32::MAX } else { settings.per_hour };
    let own = share.reservations(budget).iter().rev();
    let (minute, hour) = ("a minute (perMinute)", "an hour (perHour, maxShare, atLeast)");
    let of_own = (capacity(own.clone(), hourly, HOUR, now), hourly, hour, false);
    let limits = if matches!(share, Share::Tree { .. }) {
        [Some((capacity(own, minutely, MINUTE, now), minutely, minute, false)), Some(of_own), None]
    } else {
        let minute = "a minute (perMinute), of managers and trees together,";
        let hour = "an hour (perHour), of managers and trees together,";
        [
            Some((capacity(newest_first(budget), minutely, MINUTE, now), minutely, minute, true)),
            Some(of_own),
            Some((capacity(newest_first(budget), per_hour, HOUR, now), per_hour, hour, true)),
        ]
    };
    let mut remaining = u32::MAX;
    for (capacity, limit, what, of_all) in limits.into_iter().flatten() {
        match capacity {
            Capacity::Free(steps) => remaining = remaining.min(steps),
            Capacity::Full(retry_at) => {
                let (reason, message) = share.spent(limit, what, of_all);
                return Err(Denied { reason, message, retry_at });
            }
        }
    }
    Ok(remaining)
}

/// The result of a request for steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The ledger to write: with the steps that were granted, and with a note of why the others were not.
    pub budget: GovernorStatus,
    /// How many steps were granted.
    pub granted: u32,
    /// Why no more were granted, if more were asked for.
    pub denied: Option<Denied>,
}

/// Asks for this many steps at once (at least one), as one entry of the ledger. Grants as many as the budget has.
pub fn reserve(
    settings: &GovernorSpec,
    budget: &GovernorStatus,
    share: Share<'_>,
    now: Timestamp,
    steps: u32,
) -> Grant {
    let share = share.with_room(budget, now);
    let granted = match remaining(settings, budget, share, now) {
        Ok(remaining) => steps.min(remaining),
        Err(denied) => {
            return Grant { budget: noted(budget, share, &denied, now), granted: 0, denied: Some(denied) };
        }
    };
    let reservations = with_reservation(share.reservations(budget), granted, now);
    let budget = match share {
        Share::Managers(managed) => GovernorStatus {
            hourly_limit: hourly_limit(settings, managed),
            last_hour: sum(&reservations),
            blocked: None,
            reservations,
            ..budget.clone()
        },
        Share::Trees(_) => GovernorStatus { tree_reservations: reservations, ..budget.clone() },
        Share::Tree { name, .. } => {
            let mut trees = used_by_trees(budget, now);
            trees.retain(|other| other.tree != name);
            let at = trees.partition_point(|other| other.tree.as_str() < name);
            trees.insert(at, TreeBudget { tree: name.to_owned(), reservations });
            GovernorStatus { tree_budgets: trees, ..budget.clone() }
        }
    };
    let denied = if granted < steps { allow(settings, &budget, share, now).err() } else { None };
    match &denied {
        Some(why) => Grant { budget: noted(&budget, share, why, now), granted, denied },
        None => Grant { budget, granted, denied },
    }
}

/// The ledger with a note of what stopped a step of managers; what stops one of trees, its Subnamespace says.
fn noted(budget: &GovernorStatus, share: Share<'_>, denied: &Denied, now: Timestamp) -> GovernorStatus {
    match share {
        Share::Managers(_) => with_block(budget, denied, now),
        Share::Trees(_) | Share::Tree { .. } => budget.clone(),
    }
}

/// Whether any of it counts for anything still.
fn is_used(own: &TreeBudget, now: Timestamp) -> bool {
    own.reservations.iter().any(|entry| in_window(entry.at, HOUR, now))
}

/// Without the budgets of trees that have not used theirs for an hour.
fn used_by_trees(budget: &GovernorStatus, now: Timestamp) -> Vec<TreeBudget> {
    budget.tree_budgets.iter().filter(|own| is_used(own, now)).cloned().collect()
}

/// The reservations of the last hour, and a new one.
fn with_reservation(before: &[ReservationEntry], granted: u32, now: Timestamp) -> Vec<ReservationEntry> {
    let mut reservations: Vec<ReservationEntry> = Vec::with_capacity(before.len() + 1);
    let at = round_up(now, 1);
    let past = before.iter().filter(|b| in_window(b.at, HOUR, now)).cloned();
    let new =
        Some(ReservationEntry { at, steps: granted }).filter(|_| !active(Mutant::ReservationNotRecorded));
    for mut entry in past.chain(new) {
        // Older entries only count for the hour: one a minute is enough, and late is on the safe side. Not so late that
        // they would count for this minute again.
        let late = round_up(entry.at, 60);
        if !in_window(late, MINUTE, now) {
            entry.at = late;
        }
        match reservations.last_mut() {
            Some(last) if last.at == entry.at => last.steps = last.steps.saturating_add(entry.steps),
            _ => reservations.push(entry),
        }
    }
    reservations
}

fn sum<'a>(reservations: impl IntoIterator<Item = &'a ReservationEntry>) -> u32 {
    reservations.into_iter().map(|b| b.steps).fold(0, u32::saturating_add)
}

/// All that was reserved, but for what trees have alone. Asked for each step that is planned, so nothing is copied.
fn newest_first(budget: &GovernorStatus) -> impl Iterator<Item = &ReservationEntry> {
    let mut managers = budget.reservations.iter().rev().peekable();
    let mut trees = budget.tree_reservations.iter().rev().peekable();
    std::iter::from_fn(move || match (managers.peek(), trees.peek()) {
        (Some(one), Some(other)) if one.at < other.at => trees.next(),
        (None, _) => trees.next(),
        _ => managers.next(),
    })
}

/// The current ledger: what managers are allowed and have spent, and whether their steps are stopped.
pub fn current_budget(
    settings: &GovernorSpec,
    budget: &GovernorStatus,
    managed: u64,
    now: Timestamp,
) -> GovernorStatus {
    let within = budget.reservations.iter().filter(|b| in_window(b.at, HOUR, now));
    let share = Share::Managers(managed);
    let reviewed = GovernorStatus {
        hourly_limit: hourly_limit(settings, managed),
        last_hour: sum(within),
        tree_budgets: used_by_trees(budget, now),
        ..budget.clone()
    };
    match allow(settings, budget, share, now) {
        Ok(()) => GovernorStatus { blocked: None, ..reviewed },
        Err(denied) => with_block(&reviewed, &denied, now),
    }
}

/// The ledger with a note of what stopped a step; the same ledger if that is known already.
pub fn with_block(budget: &GovernorStatus, denied: &Denied, now: Timestamp) -> GovernorStatus {
    let mut budget = budget.clone();
    let known = budget.blocked.as_ref().is_some_and(|t| t.reason == denied.reason.as_str());
    if !known {
        budget.blocked = Some(Blocked {
            reason: denied.reason.to_string(),
            message: denied.message.clone(),
            since: round_up(now, 1),
        });
    }
    budget
}

/// Whether the window holds `limit` steps or more.
enum Capacity {
    /// This many more fit.
    Free(u32),
    /// Full, until the first of its steps leaves it (never, for a limit of zero).
    Full(Option<Timestamp>),
}

fn capacity<'a>(
    newest_first: impl Iterator<Item = &'a ReservationEntry>,
    limit: u32,
    window: SignedDuration,
    now: Timestamp,
) -> Capacity {
    if limit == 0 {
        return Capacity::Full(None);
    }
    // The step that has `limit - 1` newer ones has to leave the window.
    let mut count = 0u32;
    for entry in newest_first.filter(|b| in_window(b.at, window, now)) {
        count = count.saturating_add(entry.steps);
        if count >= limit {
            return Capacity::Full(entry.at.checked_add(window).ok());
        }
    }
    Capacity::Free(limit - count)
}

/// Also true for entries in the future: another replica's clock may be ahead of ours.
fn in_window(at: Timestamp, window: SignedDuration, now: Timestamp) -> bool {
    now.duration_since(at) < window
}

pub(crate) fn round_up(at: Timestamp, seconds: i64) -> Timestamp {
    let whole = at.as_second() + i64::from(at.subsec_nanosecond() > 0);
    let up = whole + (seconds - whole.rem_euclid(seconds)) % seconds;
    Timestamp::from_second(up).unwrap_or(at)
}

#[cfg(test)]
#[path = "governor_tree_tests.rs"]
mod tree_tests;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MANAGERS: Share<'_> = Share::Managers(0);

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millisecond(1_790_000_000_000 + millis).unwrap()
    }

    fn settings(per_minute: u32, per_hour: u32) -> GovernorSpec {
        GovernorSpec { per_minute, per_hour, at_least: 1_000_000, ..GovernorSpec::default() }
    }

    #[test]
    fn the_share_limits_large_installations_and_at_least_protects_small_ones() {
        let governor = GovernorSpec::default();
        assert_eq!(hourly_limit(&governor, 0), 10);
        assert_eq!(hourly_limit(&governor, 100), 20);
        assert_eq!(hourly_limit(&governor, 1_000_000), 300);
    }

    #[test]
    fn paused_and_zero_stop_everything_without_a_date() {
        let paused = GovernorSpec { paused: true, ..settings(9, 9) };
        let denied = allow(&paused, &GovernorStatus::default(), MANAGERS, at(0)).unwrap_err();
        assert_eq!((denied.reason, denied.retry_at), (Reason::Paused, None));
        let denied = allow(&settings(0, 9), &GovernorStatus::default(), MANAGERS, at(0)).unwrap_err();
        assert_eq!((denied.reason, denied.retry_at), (Reason::BudgetSpent, None));
    }

    #[test]
    fn who_asks_all_the_time_gets_what_the_budget_says() {
        let (mut budget, mut taken) = (GovernorStatus::default(), 0);
        for second in 0..3600 {
            loop {
                let grant = reserve(&settings(30, 1_000_000), &budget, MANAGERS, at(second * 1000), 1);
                budget = grant.budget;
                taken += grant.granted;
                assert!(budget.reservations.is_sorted_by_key(|b| b.at));
                if grant.granted == 0 {
                    break;
                }
            }
        }
        assert!(taken >= 1740, "{taken} of 1800 an hour");
    }

    #[test]
    fn trees_and_managers_have_shares_of_their_own_and_numbers_in_common() {
        let settings =
            GovernorSpec { per_minute: 1000, per_hour: 50, at_least: 10, ..GovernorSpec::default() };
        let trees = Share::Trees(20);
        let of_managers = reserve(&settings, &GovernorStatus::default(), Share::Managers(200), at(0), 100);
        assert_eq!((of_managers.granted, of_managers.budget.hourly_limit), (40, 40));
        assert!(of_managers.denied.unwrap().message.contains("budget of 40"));
        let before = of_managers.budget;
        let of_trees = reserve(&settings, &before, trees, at(1000), 4);
        assert_eq!(
            (of_trees.granted, of_trees.denied),
            (4, None),
            "managers have spent their share, not this one"
        );
        let known = |budget: &GovernorStatus| (budget.hourly_limit, budget.last_hour, budget.blocked.clone());
        assert_eq!(known(&of_trees.budget), known(&before), "what is shown is about managers");
        let more = reserve(&settings, &of_trees.budget, trees, at(2000), 20);
        assert_eq!(more.granted, 6, "50 an hour together, and 10 of these");
        assert_eq!(known(&more.budget), known(&before));
        let denied = more.denied.unwrap();
        assert_eq!((denied.reason, denied.retry_at), (Reason::BudgetSpent, Some(at(3_601_000))));
        let settings = GovernorSpec { per_hour: 45, ..settings };
        let of_trees = reserve(&settings, &of_trees.budget, trees, at(2000), 9);
        assert_eq!(of_trees.granted, 1);
        let spent =
            "the budget of 45 destructive steps an hour (perHour), of managers and trees together, is spent";
        assert_eq!(of_trees.denied.unwrap().message, spent);
    }

    proptest! {
        /// Managers and trees that ask in any order exceed no limit together, and none of its own; what one was denied by its share never
        /// follows from the other.
        #[test]
        fn both_together_exceed_no_number(
            asked in prop::collection::vec((0i64..120_000, 1u32..8, any::<bool>()), 1..150),
            per_minute in 1u32..9,
            per_hour in 1u32..30,
            at_least in 1u32..20,
        ) {
            let settings = GovernorSpec { at_least, ..settings(per_minute, per_hour) };
            let (mut budget, mut now, mut taken) = (GovernorStatus::default(), 0, Vec::new());
            for (gap, steps, trees) in asked {
                now += gap;
                let share = if trees { Share::Trees(0) } else { MANAGERS };
                let grant = reserve(&settings, &budget, share, at(now), steps);
                let (own, shown) = (grant.budget.clone(), |budget: &GovernorStatus| (budget.hourly_limit, budget.last_hour));
                if trees {
                    prop_assert_eq!((&own.reservations, shown(&own)), (&budget.reservations, shown(&budget)));
                } else {
                    prop_assert_eq!(&own.tree_reservations, &budget.tree_reservations);
                }
                budget = own;
                taken.extend((0..grant.granted).map(|_| (now, trees)));
            }
            for (i, (start, _)) in taken.iter().enumerate() {
                let within = |window: i64, of: &[bool]| {
                    taken[i..].iter().filter(|(t, trees)| t - start < window && of.contains(trees)).count()
                };
                prop_assert!(within(60_000, &[false, true]) <= per_minute as usize);
                prop_assert!(within(3_600_000, &[false, true]) <= per_hour as usize);
                prop_assert!(within(3_600_000, &[false]) <= at_least as usize);
                prop_assert!(within(3_600_000, &[true]) <= at_least as usize);
            }
        }

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
            let (mut budget, mut now, mut taken) = (GovernorStatus::default(), 0, Vec::new());
            for (gap, steps) in asked {
                now += gap;
                let one_by_one = (0..steps).fold((budget.clone(), 0), |(budget, granted), _| {
                    let grant = reserve(&settings, &budget, MANAGERS, at(now), 1);
                    (grant.budget, granted + grant.granted)
                });
                let grant = reserve(&settings, &budget, MANAGERS, at(now), steps);
                prop_assert_eq!((&grant.budget, grant.granted), (&one_by_one.0, one_by_one.1), "together as one by one");
                budget = grant.budget;
                taken.extend((0..grant.granted).map(|_| now));
                prop_assert_eq!(grant.denied.is_some(), grant.granted < steps);
                prop_assert_eq!(budget.blocked.is_some(), grant.denied.is_some());
                if let Some(denied) = grant.denied {
                    let retry = denied.retry_at.unwrap();
                    prop_assert!(retry > at(now));
                    if let Err(again) = allow(&settings, &budget, MANAGERS, retry) {
                        prop_assert!(again.retry_at.unwrap() > retry);
                    }
                }
                prop_assert!(budget.reservations.len() <= 125);
            }
            for (i, start) in taken.iter().enumerate() {
                let within = |window: i64| taken[i..].iter().filter(|t| **t - start < window).count();
                prop_assert!(within(60_000) <= per_minute as usize);
                prop_assert!(within(3_600_000) <= per_hour as usize);
            }
        }
    }
}
