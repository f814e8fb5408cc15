//! What users delete one by one: each tree has its own budget.

use coppice_api::config::Breaker;

use super::*;
use proptest::prelude::*;

fn at(millis: i64) -> Timestamp {
    Timestamp::from_millisecond(1_790_000_000_000 + millis).unwrap()
}

fn settings(per_minute: u32, per_hour: u32, at_least: u32) -> GovernorSpec {
    GovernorSpec { per_minute, per_hour, at_least, ..GovernorSpec::default() }
}

fn tree(name: &str) -> Share<'_> {
    Share::Tree { name, namespaces: 0, all_trees: 0 }
}

#[test]
fn who_has_spent_a_budget_delays_nobody_else() {
    let settings = settings(30, 300, 4);
    let mut budget = GovernorStatus::default();
    for spends in [tree("a"), Share::Managers(0), Share::Trees(0)] {
        let grant = reserve(&settings, &budget, spends, at(0), 9);
        assert_eq!(grant.granted, 4, "{spends:?}");
        budget = grant.budget;
    }
    let denied = reserve(&settings, &budget, tree("a"), at(1000), 1).denied.unwrap();
    assert_eq!((denied.reason, denied.retry_at), (Reason::TreeBudgetSpent, Some(at(3_600_000))));
    assert_eq!(
        denied.message,
        "the budget of tree a, 4 destructive steps an hour (perHour, maxShare, atLeast), is spent"
    );
    let denied = reserve(&settings, &budget, Share::Trees(0), at(1000), 1).denied.unwrap();
    assert_eq!(denied.reason, Reason::BudgetSpent);
    assert_eq!(
        denied.message,
        "the budget that trees have in common, 4 destructive steps an hour (perHour, maxShare, atLeast), is spent"
    );
    let other = reserve(&settings, &budget, tree("b"), at(1000), 9);
    assert_eq!(other.granted, 4, "another tree has its own");
    let shown = |budget: &GovernorStatus| (budget.hourly_limit, budget.last_hour, budget.blocked.clone());
    assert_eq!(shown(&other.budget), shown(&budget), "what is shown is about managers");
    // Also where the numbers in common are spent.
    let few = GovernorSpec { per_minute: 4, per_hour: 4, ..settings };
    assert_eq!(allow(&few, &budget, Share::Managers(0), at(1000)).unwrap_err().reason, Reason::BudgetSpent);
    assert_eq!(reserve(&few, &budget, tree("b"), at(1000), 1).granted, 1);
}

#[test]
fn a_share_is_of_the_namespaces_of_the_tree() {
    let spends = |namespaces| {
        let share = Share::Tree { name: "a", namespaces, all_trees: 0 };
        reserve(&settings(1000, 300, 10), &GovernorStatus::default(), share, at(0), 1000).granted
    };
    assert_eq!([spends(0), spends(50), spends(100), spends(5000)], [10, 10, 20, 300]);
}

#[test]
fn in_a_tree_whose_share_is_less_than_one_an_hour_users_may_delete_one() {
    let grants = |settings: &GovernorSpec, share| {
        let grant = reserve(settings, &GovernorStatus::default(), share, at(0), 9);
        (grant.granted, grant.denied.map(|denied| (denied.reason, denied.retry_at)))
    };
    let small = Share::Tree { name: "a", namespaces: 4, all_trees: 4 };
    let later = (Reason::TreeBudgetSpent, Some(at(3_600_000)));
    assert_eq!(grants(&settings(30, 300, 0), small), (1, Some(later)));
    // Of what goes by itself, or with all below it, the share is as it is written; and 0 an hour, or a minute, stops every step.
    let never = |reason: Reason| (0_u32, Some((reason, None::<Timestamp>)));
    for share in [Share::Managers(4), Share::Trees(4)] {
        assert_eq!(grants(&settings(30, 300, 0), share), never(Reason::BudgetSpent), "{share:?}");
    }
    for stopped in [settings(30, 0, 0), settings(30, 0, 10), settings(0, 300, 0)] {
        assert_eq!(grants(&stopped, small), never(Reason::TreeBudgetSpent));
    }
}

#[test]
fn paused_and_an_open_breaker_stop_what_users_delete() {
    let paused = GovernorSpec { paused: true, ..GovernorSpec::default() };
    let denied = allow(&paused, &GovernorStatus::default(), tree("a"), at(0)).unwrap_err();
    assert_eq!((denied.reason, denied.retry_at), (Reason::Paused, None));
    let breaker = Breaker {
        id: "pods-1".to_owned(),
        source: "pods".to_owned(),
        message: "the list is empty".to_owned(),
        since: at(0),
    };
    let open = GovernorStatus { breaker: Some(breaker), ..GovernorStatus::default() };
    let denied = allow(&GovernorSpec::default(), &open, tree("a"), at(0)).unwrap_err();
    assert_eq!(denied.reason, Reason::BreakerOpen);
}

#[test]
fn the_ledger_keeps_no_tree_for_longer_than_an_hour_and_not_more_than_it_has_room_for() {
    let settings = settings(30, 300, 10);
    let mut budget = GovernorStatus::default();
    let names: Vec<String> = (0..=MAX_TREE_BUDGETS).map(|n| format!("tree-{n:03}")).collect();
    for name in &names {
        let grant = reserve(&settings, &budget, tree(name), at(0), 1);
        assert_eq!(grant.granted, 1, "{name}");
        budget = grant.budget;
    }
    assert_eq!(budget.tree_budgets.len(), MAX_TREE_BUDGETS);
    assert!(budget.tree_budgets.is_sorted_by_key(|own| own.tree.clone()));
    assert_eq!(sum(&budget.tree_reservations), 1, "one more takes what trees have in common");
    let known = reserve(&settings, &budget, tree("tree-007"), at(1000), 1).budget;
    assert_eq!(sum(&known.tree_budgets[7].reservations), 2, "one that is there goes on with its own");
    let later = reserve(&settings, &known, tree("tree-100"), at(3_600_000), 1).budget;
    let left: Vec<_> = later.tree_budgets.iter().map(|own| own.tree.as_str()).collect();
    assert_eq!(left, ["tree-007", "tree-100"]);
    assert!(current_budget(&settings, &later, 0, at(8_000_000)).tree_budgets.is_empty());
}

#[test]
fn a_tree_without_room_takes_from_the_share_of_all_trees() {
    let settings = settings(1000, 300, 10);
    let used = |n| TreeBudget {
        tree: format!("tree-{n:03}"),
        reservations: vec![ReservationEntry { at: at(0), steps: 1 }],
    };
    let full = GovernorStatus {
        tree_budgets: (0..MAX_TREE_BUDGETS).map(used).collect(),
        ..GovernorStatus::default()
    };
    let cascade = reserve(&settings, &full, Share::Trees(1000), at(0), 50).budget;
    let small = Share::Tree { name: "small", namespaces: 5, all_trees: 1000 };
    let grant = reserve(&settings, &cascade, small, at(1000), 1000);
    assert_eq!(grant.granted, 150, "200 of 1000 namespaces, less what a cascade has taken");
    let denied = grant.denied.unwrap();
    assert_eq!(denied.reason, Reason::BudgetSpent);
    assert_eq!(
        denied.message,
        "the budget that trees have in common, 200 destructive steps an hour (perHour, maxShare, atLeast), is spent"
    );
}

proptest! {
    /// Trees, what they have in common, and managers ask in any order, with a ledger that is read again from its text before each
    /// request: no tree ever exceeds its own limits, the others exceed none of theirs, no request changes what others have reserved, and
    /// each is granted as much as it would have been if no other budget existed.
    #[test]
    fn each_tree_keeps_its_own_limits_whatever_the_others_do(
        asked in prop::collection::vec((0i64..120_000, 1u32..8, 0usize..4), 1..150),
        per_minute in 1u32..9,
        per_hour in 1u32..30,
        at_least in 1u32..20,
    ) {
        let settings = settings(per_minute, per_hour, at_least);
        let shares = [tree("a"), tree("b"), Share::Trees(0), Share::Managers(0)];
        let mut budget = GovernorStatus::default();
        let mut alone = [GovernorStatus::default(), GovernorStatus::default()];
        let (mut now, mut taken) = (0, Vec::new());
        for (gap, steps, who) in asked {
            now += gap;
            let stored = serde_json::to_string(&budget).unwrap();
            let before: GovernorStatus = serde_json::from_str(&stored).unwrap();
            let grant = reserve(&settings, &before, shares[who], at(now), steps);
            for (_, share) in shares.into_iter().enumerate().filter(|(other, _)| *other != who) {
                let counts = |budget: &GovernorStatus| {
                    let of = share.reservations(budget).iter().filter(|entry| in_window(entry.at, HOUR, at(now)));
                    of.cloned().collect::<Vec<_>>()
                };
                prop_assert_eq!(counts(&grant.budget), counts(&before));
            }
            if let Some(own) = alone.get_mut(who) {
                let without = reserve(&settings, own, shares[who], at(now), steps);
                prop_assert_eq!((grant.granted, &grant.denied), (without.granted, &without.denied));
                *own = without.budget;
            }
            taken.extend((0..grant.granted).map(|_| (now, who)));
            budget = grant.budget;
        }
        for (i, (start, first)) in taken.iter().enumerate() {
            let within = |window: i64, of: &[usize]| {
                let found = taken[i..].iter().filter(|(t, who)| t - start < window && of.contains(who));
                u32::try_from(found.count()).unwrap()
            };
            let together = if *first < 2 { vec![*first] } else { vec![2, 3] };
            prop_assert!(within(60_000, &together) <= per_minute);
            prop_assert!(within(3_600_000, &together) <= per_hour);
            prop_assert!(within(3_600_000, &[*first]) <= at_least.min(per_hour));
        }
    }
}
