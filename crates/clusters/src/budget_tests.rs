use coppice_clusters_api::IssueIntent;
use proptest::prelude::*;

use super::*;
use crate::plan::tests::{at, settled};

const ALL: [Urgency; 4] = [Urgency::Expiring, Urgency::Forced, Urgency::New, Urgency::Routine];

/// Who asks, by its key.
fn namespace(key: u32) -> &'static str {
    match key % 3 {
        0 => "one",
        1 => "two",
        _ => "three",
    }
}

#[test]
fn the_most_urgent_goes_first_and_then_who_has_waited_longest() {
    let mut budget = Budget::default();
    assert_eq!(budget.take(("other", &"first"), Urgency::Routine, 1, at(0)), Turn::Granted);
    let asked = [
        ("routine", Urgency::Routine),
        ("new", Urgency::New),
        ("new, later", Urgency::New),
        ("expiring", Urgency::Expiring),
        ("forced", Urgency::Forced),
    ];
    for (second, (key, urgency)) in (1..).zip(asked) {
        assert!(matches!(budget.take((key, &key), urgency, 1, at(second)), Turn::NotBefore(_)), "{key}");
    }
    assert_eq!(budget.waiting(at(5)), 5);
    let mut order = Vec::new();
    for second in 6..400 {
        // Each asks again when it is to, and not before.
        for (key, urgency) in asked {
            let is_time = budget.asks_again(&key, at(second)).is_none() && !order.contains(&key);
            if is_time && budget.take((key, &key), urgency, 1, at(second)) == Turn::Granted {
                order.push(key);
            }
        }
    }
    assert_eq!(order, ["expiring", "forced", "new", "new, later", "routine"]);
    assert_eq!(budget.waiting(at(400)), 0);
}

#[test]
fn while_the_target_has_too_many_requests_nothing_is_granted_and_then_one_a_second_the_most_urgent_first() {
    let mut budget = Budget::default();
    budget.throttle(at(30));
    budget.throttle(at(20));
    let asked = [
        ("routine", Urgency::Routine),
        ("new", Urgency::New),
        ("expiring", Urgency::Expiring),
        ("forced", Urgency::Forced),
    ];
    for (second, (key, urgency)) in (1..).zip(asked) {
        let turn = budget.take((key, &key), urgency, 60, at(second));
        let until = at(30);
        assert!(
            matches!(turn, Turn::Throttled { until: said, asks_again } if said == until && asks_again >= until),
            "{key}: {turn:?}"
        );
    }
    assert_eq!(budget.waiting(at(5)), 4);
    let mut order: Vec<(&str, i64)> = Vec::new();
    for second in 5..60 {
        for (key, urgency) in asked {
            let is_time = budget.asks_again(&key, at(second)).is_none();
            let is_waiting = !order.iter().any(|(of, _)| *of == key);
            if is_time && is_waiting && budget.take((key, &key), urgency, 60, at(second)) == Turn::Granted {
                order.push((key, second));
            }
        }
    }
    let keys: Vec<&str> = order.iter().map(|(key, _)| *key).collect();
    assert_eq!(keys, ["expiring", "forced", "new", "routine"]);
    assert!(order.iter().zip(&order[1..]).all(|(one, next)| one.1 < next.1), "{order:?}");
    assert!(order[0].1 >= 30 && order[3].1 <= 40, "{order:?}");
    // A minute later all of the budget is there again.
    assert!(budget.was_throttled(at(89)) && !budget.was_throttled(at(90)));
    for key in ["one", "two"] {
        assert_eq!(budget.take((key, &key), Urgency::New, 60, at(95)), Turn::Granted);
    }
}

#[test]
fn among_those_that_are_as_urgent_namespaces_take_turns() {
    let mut budget = Budget::default();
    assert_eq!(budget.take(("other", &0), Urgency::Forced, 1, at(0)), Turn::Granted);
    let asked = [("loud", 1), ("loud", 2), ("loud", 3), ("quiet", 11), ("quiet", 12)];
    for (second, (namespace, key)) in (1..).zip(asked) {
        let turn = budget.take((namespace, &key), Urgency::Forced, 1, at(second));
        assert!(matches!(turn, Turn::NotBefore(_)), "{key}");
    }
    let mut order = Vec::new();
    for second in 6..400 {
        for (namespace, key) in asked {
            let is_time = budget.asks_again(&key, at(second)).is_none() && !order.contains(&key);
            if is_time && budget.take((namespace, &key), Urgency::Forced, 1, at(second)) == Turn::Granted {
                order.push(key);
            }
        }
    }
    assert_eq!(order, [1, 11, 2, 12, 3]);
}

#[test]
fn however_many_looks_have_waited_for_long_what_expires_goes_first() {
    let (mut budget, looks) = (Budget::default(), 0..40_u32);
    let mut granted = 0;
    // One call a minute for 20 minutes: half of them wait for longer than a quarter of an hour.
    for minute in 0..20 {
        for look in looks.clone() {
            let turn = budget.take((namespace(look), &look), Urgency::Routine, 1, at(minute * 60));
            granted += usize::from(turn == Turn::Granted);
        }
    }
    assert_eq!(granted, 20);
    let (access, later) = (100, 19 * 60 + 1);
    assert_eq!(budget.take(("team", &access), Urgency::Expiring, 1, at(later)), Turn::NotBefore(at(20 * 60)));
    for look in looks {
        let turn = budget.take((namespace(look), &look), Urgency::Routine, 1, at(20 * 60));
        assert!(matches!(turn, Turn::NotBefore(_)), "{look}");
    }
    assert_eq!(budget.take(("team", &access), Urgency::Expiring, 1, at(20 * 60)), Turn::Granted);
}

#[test]
fn whoever_has_waited_for_long_gets_one_call_of_ten() {
    let (mut budget, mut turns, look) = (Budget::default(), Vec::new(), 100);
    // Three of one namespace ask again as soon as they have had a turn; a look of another namespace waits, and begins again as well.
    for second in 0..40 * 60 {
        let now = at(second);
        for (namespace, key, urgency) in [
            ("loud", 1, Urgency::Forced),
            ("loud", 2, Urgency::Forced),
            ("loud", 3, Urgency::Forced),
            ("quiet", look, Urgency::Routine),
        ] {
            let is_time = budget.asks_again(&key, now).is_none();
            if is_time && budget.take((namespace, &key), urgency, 1, now) == Turn::Granted {
                turns.push((second, key));
            }
        }
    }
    let looks: Vec<i64> = turns.iter().filter(|(_, key)| *key == look).map(|(second, _)| *second).collect();
    assert!(looks.len() >= 2, "{turns:?}");
    // It is no more urgent than the others are.
    assert!(looks.len() <= turns.len() / 10 + 1, "{turns:?}");
}

#[test]
fn who_does_not_come_back_holds_nobody_up() {
    let mut budget = Budget::default();
    assert_eq!(budget.take(("team", &1), Urgency::New, 1, at(0)), Turn::Granted);
    assert_eq!(budget.take(("team", &2), Urgency::Expiring, 1, at(1)), Turn::NotBefore(at(60)));
    assert!(matches!(budget.take(("team", &3), Urgency::Routine, 1, at(2)), Turn::NotBefore(_)));
    assert!(matches!(budget.take(("team", &3), Urgency::Routine, 1, at(70)), Turn::NotBefore(_)));
    assert_eq!(budget.take(("team", &3), Urgency::Routine, 1, at(121)), Turn::Granted);
    // A larger budget counts at once.
    assert!(matches!(budget.take(("team", &4), Urgency::New, 1, at(122)), Turn::NotBefore(_)));
    assert_eq!(budget.take(("team", &4), Urgency::New, 2, at(123)), Turn::Granted);
    // Nor does who is deleted.
    assert!(matches!(budget.take(("team", &5), Urgency::Expiring, 2, at(124)), Turn::NotBefore(_)));
    budget.stop_waiting(&5);
    assert_eq!(budget.waiting(at(125)), 0);
}

#[test]
fn what_was_not_asked_for_is_granted_to_others() {
    let mut budget = Budget::default();
    assert_eq!(budget.take(("team", &1), Urgency::New, 2, at(0)), Turn::Granted);
    assert_eq!(budget.take(("team", &2), Urgency::New, 2, at(1)), Turn::Granted);
    budget.give_back(&1);
    budget.give_back(&1);
    assert_eq!(budget.take(("team", &3), Urgency::New, 2, at(2)), Turn::Granted);
    assert_eq!(budget.take(("team", &1), Urgency::New, 2, at(3)), Turn::NotBefore(at(61)));
}

#[test]
fn who_gives_a_call_back_is_as_old_as_before() {
    let mut budget = Budget::default();
    assert_eq!(budget.take(("team", &0), Urgency::Forced, 1, at(0)), Turn::Granted);
    assert!(matches!(budget.take(("team", &1), Urgency::Forced, 1, at(1)), Turn::NotBefore(_)));
    assert!(matches!(budget.take(("team", &2), Urgency::Forced, 1, at(2)), Turn::NotBefore(_)));
    // There is no place in the target for the first one.
    assert_eq!(budget.take(("team", &1), Urgency::Forced, 1, at(60)), Turn::Granted);
    budget.give_back(&1);
    assert_eq!(budget.take(("team", &2), Urgency::Forced, 1, at(61)), Turn::Granted, "nobody waits for it");
    assert!(matches!(budget.take(("team", &1), Urgency::Forced, 1, at(62)), Turn::NotBefore(_)));
    assert_eq!(budget.waits_since(&1), Some(at(1)));
}

#[test]
fn what_is_about_to_expire_is_urgent_whatever_it_was_begun_for() {
    let mut observed = settled();
    // Its rights alone.
    assert_eq!(urgency(&observed, at(1)), Urgency::Forced);
    let intent = |cause| IssueIntent {
        credential: "u-2".to_owned(),
        cause,
        since: at(0),
        rotate: None,
        written_until: None,
        waits_until: None,
        throttled: false,
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

/// How many go before one: by the definition, with all of them in their order.
fn in_order(
    budget: &Budget<u32>,
    (namespace, key): (&str, &u32),
    urgency: Urgency,
    since: Timestamp,
) -> usize {
    let others = || budget.waiting.iter().filter(move |(of, _)| *of != key);
    let mut as_urgent = vec![(namespace, since, key)];
    let equal = others().filter(|(_, waiting)| waiting.urgency == urgency);
    as_urgent.extend(equal.map(|(of, waiting)| (&*waiting.namespace, waiting.since, of)));
    as_urgent.sort_unstable();
    let mut order = Vec::new();
    for of_one in as_urgent.chunk_by(|one, next| one.0 == next.0) {
        for (round, (namespace, since, of)) in of_one.iter().enumerate() {
            let last_turn = budget.last_turns.get(&urgency).and_then(|turns| turns.get(*namespace));
            order.push((round, last_turn, *since, *of));
        }
    }
    order.sort_unstable();
    let more_urgent = others().filter(|(_, waiting)| waiting.urgency < urgency).count();
    more_urgent + order.iter().take_while(|(.., of)| *of != key).count()
}

proptest! {
    #[test]
    fn those_that_go_before_are_as_many_as_in_their_order(
        asked in proptest::collection::vec((0..40_u32, 0..4_usize, 0..20_i64), 1..120), per_minute in 1..5_usize
    ) {
        let (mut budget, mut now) = (Budget::default(), 0);
        for (key, urgency, seconds) in asked {
            now += seconds;
            let (asks, urgency) = ((namespace(key), &key), ALL[urgency]);
            let since = budget.waiting.get(&key).map_or(at(now), |waiting| waiting.since);
            prop_assert_eq!(budget.before(asks, urgency, since), in_order(&budget, asks, urgency, since));
            budget.take(asks, urgency, per_minute, at(now));
        }
    }

    #[test]
    fn in_no_minute_more_are_granted_and_all_that_come_back_get_their_turn(
        asked in proptest::collection::vec((0..40_u32, 0..4_usize, 0..20_i64), 1..120), per_minute in 1..5_usize
    ) {
        let (mut budget, mut now, mut granted, mut open) = (Budget::default(), 0, Vec::new(), BTreeMap::new());
        let mut ask = |open: &mut BTreeMap<u32, Urgency>, now: i64| {
            for (key, urgency) in open.clone() {
                if budget.asks_again(&key, at(now)).is_none()
                    && budget.take((namespace(key), &key), urgency, per_minute, at(now)) == Turn::Granted
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
        // 40 of them, one a minute at least, a minute for each place that is kept, and 5 for whoever was not to ask earlier.
        for _ in 0..60 * 60 {
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// However much it asks for, unless that expires.
    #[test]
    fn one_namespace_keeps_no_other_waiting(
        loud in proptest::collection::vec(1..4_usize, 12),
        quiet in proptest::collection::vec((0..4_usize, 0..30_i64), 1..6),
        per_minute in 1..5_usize
    ) {
        let (mut budget, mut open) = (Budget::default(), quiet.into_iter().enumerate().collect::<Vec<_>>());
        // Every 10 seconds, for two hours: 5 minutes until all have begun to wait, 5 until all are old, and a turn for each of 6 namespaces
        // among 10 calls, one a minute.
        for step in 0..120 * 6 {
            let now = at(step * 10);
            for (n, urgency) in loud.iter().enumerate() {
                let key = 100 + n;
                if budget.asks_again(&key, now).is_none() {
                    // It begins again at once when it has got one.
                    budget.take(("loud", &key), ALL[*urgency], per_minute, now);
                }
            }
            open.retain(|(key, (urgency, begins))| {
                let asks = step >= *begins && budget.asks_again(key, now).is_none();
                let namespace = format!("quiet-{key}");
                !asks || budget.take((namespace.as_str(), key), ALL[*urgency], per_minute, now) != Turn::Granted
            });
        }
        prop_assert!(open.is_empty(), "{open:?}");
    }
}
