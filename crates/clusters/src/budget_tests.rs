use coppice_clusters_api::IssueIntent;
use proptest::prelude::*;

use super::*;
use crate::plan::tests::{at, settled};

const ALL: [Urgency; 4] = [Urgency::Expiring, Urgency::Forced, Urgency::New, Urgency::Routine];

#[test]
fn the_most_urgent_goes_first_and_then_who_has_waited_longest() {
    let mut budget = Budget::default();
    assert_eq!(budget.take(&"first", Urgency::Routine, 1, at(0)), Turn::Granted);
    let asked = [
        ("routine", Urgency::Routine),
        ("new", Urgency::New),
        ("new, later", Urgency::New),
        ("expiring", Urgency::Expiring),
        ("forced", Urgency::Forced),
    ];
    for (second, (key, urgency)) in (1..).zip(asked) {
        assert!(matches!(budget.take(&key, urgency, 1, at(second)), Turn::NotBefore(_)), "{key}");
    }
    assert_eq!(budget.waiting(at(5)), 5);
    let mut order = Vec::new();
    for second in 6..400 {
        // Each asks again when it is to, and not before.
        for (key, urgency) in asked {
            let is_time = budget.asks_again(&key, at(second)).is_none() && !order.contains(&key);
            if is_time && budget.take(&key, urgency, 1, at(second)) == Turn::Granted {
                order.push(key);
            }
        }
    }
    assert_eq!(order, ["expiring", "forced", "new", "new, later", "routine"]);
    assert_eq!(budget.waiting(at(400)), 0);
}

#[test]
fn who_does_not_come_back_holds_nobody_up() {
    let mut budget = Budget::default();
    assert_eq!(budget.take(&1, Urgency::New, 1, at(0)), Turn::Granted);
    assert_eq!(budget.take(&2, Urgency::Expiring, 1, at(1)), Turn::NotBefore(at(60)));
    assert!(matches!(budget.take(&3, Urgency::Routine, 1, at(2)), Turn::NotBefore(_)));
    assert!(matches!(budget.take(&3, Urgency::Routine, 1, at(70)), Turn::NotBefore(_)));
    assert_eq!(budget.take(&3, Urgency::Routine, 1, at(121)), Turn::Granted);
    // A larger budget counts at once.
    assert!(matches!(budget.take(&4, Urgency::New, 1, at(122)), Turn::NotBefore(_)));
    assert_eq!(budget.take(&4, Urgency::New, 2, at(123)), Turn::Granted);
    // Nor does who is deleted.
    assert!(matches!(budget.take(&5, Urgency::Expiring, 2, at(124)), Turn::NotBefore(_)));
    budget.stop_waiting(&5);
    assert_eq!(budget.waiting(at(125)), 0);
}

#[test]
fn what_was_not_asked_for_is_granted_to_others() {
    let mut budget = Budget::default();
    assert_eq!(budget.take(&1, Urgency::New, 2, at(0)), Turn::Granted);
    assert_eq!(budget.take(&2, Urgency::New, 2, at(1)), Turn::Granted);
    budget.give_back(&1);
    budget.give_back(&1);
    assert_eq!(budget.take(&3, Urgency::New, 2, at(2)), Turn::Granted);
    assert_eq!(budget.take(&1, Urgency::New, 2, at(3)), Turn::NotBefore(at(61)));
}

#[test]
fn what_is_about_to_expire_is_urgent_whatever_it_was_begun_for() {
    let mut observed = settled();
    let intent = |cause| IssueIntent {
        credential: "u-2".to_owned(),
        cause,
        since: at(0),
        rotate: None,
        written_until: None,
        waits_until: None,
    };
    for (cause, expected) in [
        (Cause::Due, Urgency::Routine),
        (Cause::Requested, Urgency::Forced),
        (Cause::Lost, Urgency::Forced),
        (Cause::Moved, Urgency::Forced),
        (Cause::First, Urgency::New),
    ] {
        observed.status.intent = Some(intent(cause));
        // Of a day.
        assert_eq!(urgency(&observed, at(69_119)), expected);
        assert_eq!(urgency(&observed, at(69_120)), Urgency::Expiring);
        assert_eq!(urgency(&observed, at(100_000)), Urgency::Expiring);
    }
}

proptest! {
    #[test]
    fn in_no_minute_more_are_granted_and_all_that_come_back_get_their_turn(
        asked in proptest::collection::vec((0..40_u32, 0..4_usize, 0..20_i64), 1..120), per_minute in 1..5_usize
    ) {
        let (mut budget, mut now, mut granted, mut open) = (Budget::default(), 0, Vec::new(), BTreeMap::new());
        let mut ask = |open: &mut BTreeMap<u32, Urgency>, now: i64| {
            for (key, urgency) in open.clone() {
                if budget.asks_again(&key, at(now)).is_none()
                    && budget.take(&key, urgency, per_minute, at(now)) == Turn::Granted
                {
                    granted.push(now);
                    open.remove(&key);
                }
            }
        };
        for (key, urgency, seconds) in asked {
            open.insert(key, ALL[urgency]);
            for _ in 0..seconds {
                now += 1;
                ask(&mut open, now);
            }
        }
        // 40 of them, one a minute at least, and 5 minutes for whoever was not to ask earlier.
        for _ in 0..46 * 60 {
            if open.is_empty() {
                break;
            }
            now += 1;
            ask(&mut open, now);
        }
        prop_assert!(open.is_empty(), "{open:?}");
        for (n, first) in granted.iter().enumerate() {
            let in_its_minute = granted[n..].iter().take_while(|second| **second < first + 60).count();
            prop_assert!(in_its_minute <= per_minute, "{granted:?}");
        }
    }
}
