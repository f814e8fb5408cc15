//! The breaker that a collapse of facts opens: it stops every destructive step until an administrator acknowledges it.
//!
//! One is open at a time, and it stands for everything that collapses while it is open. The replica that sees a collapse
//! notices the breaker in memory at once; the ledger has it as soon as the leader has written it.

use coppice_api::Reason;
use coppice_api::config::{Breaker, GovernorSpec, GovernorStatus};
use jiff::Timestamp;

use crate::governor::{Denied, round_up};

/// The breaker that a collapsed list of a resource opens: of `before` known objects it lacked `missing`. `after_gap`: in a
/// part of the time before the list no events were received.
pub fn opened(resource: &str, before: usize, missing: usize, after_gap: bool, now: Timestamp) -> Breaker {
    let since = round_up(now, 1);
    let unexplained = if after_gap {
        "after a time in which no events were received"
    } else {
        "and no event said that they were deleted"
    };
    Breaker {
        id: format!("{resource}-{since}"),
        source: resource.to_owned(),
        message: format!(
            "a list of {resource} lacked {missing} of the {before} that were known, {unexplained}"
        ),
        since,
    }
}

/// The breaker of the ledger, unless it has been acknowledged.
pub fn open<'a>(settings: &GovernorSpec, budget: &'a GovernorStatus) -> Option<&'a Breaker> {
    budget.breaker.as_ref().filter(|breaker| !is_acknowledged(settings, breaker))
}

/// Whether an administrator has looked at this very breaker.
pub fn is_acknowledged(settings: &GovernorSpec, breaker: &Breaker) -> bool {
    settings.acknowledge.as_ref() == Some(&breaker.id)
}

/// The ledger with the breaker that is open: its own, or else the first of those that are known besides and not
/// acknowledged.
#[must_use]
pub fn with_known(settings: &GovernorSpec, budget: GovernorStatus, known: &[Breaker]) -> GovernorStatus {
    let known = known.iter().find(|breaker| !is_acknowledged(settings, breaker));
    let breaker = open(settings, &budget).or(known).cloned();
    // What stopped a step may have been the breaker that is closed.
    let blocked = if breaker == budget.breaker { budget.blocked } else { None };
    GovernorStatus { breaker, blocked, ..budget }
}

/// Why no step may be taken while it is open.
pub(crate) fn denied(breaker: &Breaker) -> Denied {
    Denied {
        reason: Reason::BreakerOpen,
        message: format!(
            "the breaker is open since {}: {}; find out why, then run `coppice acknowledge {}`",
            breaker.since, breaker.message, breaker.id
        ),
        retry_at: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::governor::{Share, allow, current_budget, reserve};

    const MANAGERS: Share<'_> = Share::Managers(0);

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_790_000_000 + second).unwrap()
    }

    fn with(breaker: Breaker) -> GovernorStatus {
        GovernorStatus { breaker: Some(breaker), ..GovernorStatus::default() }
    }

    fn acknowledging(breaker: &Breaker) -> GovernorSpec {
        GovernorSpec { acknowledge: Some(breaker.id.clone()), ..GovernorSpec::default() }
    }

    #[test]
    fn an_open_breaker_stops_everything_without_a_date_and_says_how_to_close_it() {
        let breaker = opened("pods", 130, 120, false, at(0));
        let denied = allow(&GovernorSpec::default(), &with(breaker), MANAGERS, at(9)).unwrap_err();
        assert_eq!((denied.reason, denied.retry_at), (Reason::BreakerOpen, None));
        let message = "the breaker is open since 2026-09-21T14:13:20Z: a list of pods lacked 120 of the 130 that were \
                       known, and no event said that they were deleted; find out why, then run `coppice acknowledge \
                       pods-2026-09-21T14:13:20Z`";
        assert_eq!(denied.message, message);
        let after_gap = opened("pods", 130, 120, true, at(0));
        assert!(
            after_gap.message.ends_with("that were known, after a time in which no events were received")
        );
    }

    #[test]
    fn an_acknowledgment_closes_the_breaker_that_it_names_and_no_other() {
        let (first, next) = (opened("pods", 50, 50, true, at(0)), opened("pods", 50, 50, true, at(600)));
        let settings = acknowledging(&first);
        assert!(allow(&settings, &with(first.clone()), MANAGERS, at(1)).is_ok());
        assert!(allow(&settings, &with(next.clone()), MANAGERS, at(601)).is_err());
        let other = opened("jobs", 50, 50, true, at(0));
        assert!(
            allow(&settings, &with(other), MANAGERS, at(1)).is_err(),
            "another source at the same instant"
        );
        let closed = with_known(&settings, with(first.clone()), std::slice::from_ref(&first));
        assert_eq!(closed.breaker, None, "it does not open again under its id");
        assert_eq!(with_known(&settings, closed, &[first, next.clone()]).breaker, Some(next));
    }

    #[test]
    fn the_first_breaker_stays_until_it_is_acknowledged() {
        let (first, second) = (opened("pods", 50, 50, true, at(0)), opened("jobs", 90, 50, true, at(1)));
        let settings = GovernorSpec::default();
        let budget = with_known(&settings, GovernorStatus::default(), std::slice::from_ref(&first));
        assert_eq!(with_known(&settings, budget, &[second]).breaker, Some(first));
    }

    #[test]
    fn every_writer_of_the_ledger_keeps_it() {
        let (settings, breaker) = (GovernorSpec::default(), opened("pods", 50, 50, true, at(0)));
        let budget = with(breaker.clone());
        let denied = reserve(&settings, &budget, MANAGERS, at(1), 3);
        assert_eq!((denied.granted, denied.budget.breaker.as_ref()), (0, Some(&breaker)));
        assert_eq!(denied.budget.blocked.unwrap().reason, "BreakerOpen");
        let current = current_budget(&settings, &budget, 0, at(1));
        assert_eq!((current.breaker.as_ref(), current.blocked.is_some()), (Some(&breaker), true));
        // Who removes an acknowledged one, and says so, is the one who reviews the ledger.
        let granted = reserve(&acknowledging(&breaker), &budget, MANAGERS, at(1), 3);
        assert_eq!((granted.granted, granted.budget.breaker), (3, Some(breaker)));
    }

    #[test]
    fn what_stopped_a_step_is_dropped_with_the_breaker_that_did() {
        let (first, next) = (opened("pods", 50, 50, true, at(0)), opened("jobs", 50, 50, true, at(600)));
        let blocked = current_budget(&GovernorSpec::default(), &with(first.clone()), 0, at(1));
        let budget = with_known(&acknowledging(&first), blocked, std::slice::from_ref(&next));
        let current = current_budget(&acknowledging(&first), &budget, 0, at(601));
        assert!(current.blocked.unwrap().message.contains(&next.id), "not about the one before");
    }
}
