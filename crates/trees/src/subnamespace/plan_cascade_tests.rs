use super::*;
use crate::context::Below;
use coppice_api::condition::DELETION_PENDING;
use coppice_api::config::TreeBudget;

const DELETED: &str = "2026-01-01T00:00:00Z";

/// A Subnamespace below the one that is being deleted, with its namespace unless that is gone.
fn below(parent: &str, name: &str, terminating: bool, own: Option<NamespaceFacts>) -> Below {
    let mut metadata = json!({"name": name, "namespace": parent, "uid": format!("u-of-{name}")});
    if terminating {
        metadata["deletionTimestamp"] = json!(DELETED);
    }
    (object("1", &metadata, &json!({"namespaceUid": format!("uid-of-{name}")})), own.map(Arc::new))
}

/// One that nothing is done about yet.
pub(in crate::subnamespace) fn living(parent: &str, name: &str) -> Below {
    below(parent, name, false, Some(namespace(name, &[])))
}

/// The Subnamespace while it is being deleted, with consent until then and with these below it.
fn cascading(until: &str, below: Vec<Below>) -> Observation {
    let seen = deleted();
    let object = SubnamespaceObject::clone(&seen.object);
    let spec = json!({"quota": {"hard": {"pods": "4"}}, "cascadeUntil": until});
    let spec = Ok(Arc::new(serde_json::from_value(spec).unwrap()));
    let children = vec![living("shop-web", "shop-web-a").0].into();
    Observation { object: Arc::new(SubnamespaceObject { spec, ..object }), children, below, ..seen }
}

/// In an hour.
pub(in crate::subnamespace) fn soon(below: Vec<Below>) -> Observation {
    cascading("2026-01-01T01:00:00Z", below)
}

/// Which one is deleted now.
#[track_caller]
fn deletes(seen: &Observation) -> String {
    let planned = plan(seen);
    let Step::DeleteBelow(lowest) = planned.step else { panic!("{:?}: {:?}", planned.step, why(&planned)) };
    let name = lowest.0.name.to_string();
    let [event] = &planned.events[..] else { panic!("{:?}", planned.events) };
    assert!(event.message.contains(&format!("{name} was deleted, since shop-web is")), "{}", event.message);
    name
}

#[test]
fn those_below_go_first_from_the_bottom_up_and_one_after_another() {
    let (a, deep) = (living("shop-web", "shop-web-a"), living("shop-web-a", "shop-web-a-b"));
    let c = living("shop-web", "shop-web-c");
    let seen = soon(vec![deep.clone(), c.clone(), a.clone()]);
    assert_eq!(deletes(&seen), "shop-web-a-b");
    assert_eq!(plan(&seen).next_check, Some("2026-01-01T01:00:00Z".parse().unwrap()), "consent ends then");
    // The next one not before the namespace of this one is being deleted.
    let begun = below("shop-web-a", "shop-web-a-b", true, deep.1.as_deref().cloned());
    let words = "is deleted after the 3 below it, from the bottom up, which spec.cascadeUntil allows until 2026-01-01T01:00:00Z: \
                 shop-web-a-b is next";
    refused(&soon(vec![begun, c.clone(), a.clone()]), Reason::CascadingDeletion, words);
    let going = NamespaceFacts { terminating: true, ..namespace("shop-web-a-b", &[]) };
    for namespace in [Some(going), None] {
        let going = below("shop-web-a", "shop-web-a-b", true, namespace);
        assert_eq!(deletes(&soon(vec![going.clone(), c.clone(), a.clone()])), "shop-web-c");
        // The one above it only once it is gone.
        let words = "the lowest of these are being deleted";
        refused(&soon(vec![going, a.clone()]), Reason::CascadingDeletion, words);
    }
    assert_eq!(deletes(&soon(vec![a])), "shop-web-a");
}

#[test]
fn one_that_somebody_has_deleted_waits_for_those_below_it_and_does_not_stop_them() {
    let deleted = below("shop-web", "shop-web-a", true, Some(namespace("shop-web-a", &[])));
    assert_eq!(deletes(&soon(vec![living("shop-web-a", "shop-web-a-b"), deleted])), "shop-web-a-b");
}

#[test]
fn a_subnamespace_without_a_namespace_goes_and_is_above_none() {
    // There is a namespace of its name elsewhere, with others below it.
    let mut refused = living("shop-web", "shop-web-a-b");
    refused.0 =
        object("1", &json!({"name": "shop-web-a-b", "namespace": "shop-web", "uid": "u"}), &json!({}));
    refused.1 = None;
    let other = below("shop-web-a-b", "shop-web-a-b-c", true, None);
    assert_eq!(deletes(&soon(vec![other, refused])), "shop-web-a-b");
}

#[test]
fn one_by_one_is_of_the_budget_of_the_tree_and_a_cascade_of_that_in_common() {
    let spent = || vec![ReservationEntry { at: now(), steps: 10 }];
    let own = |tree: &str| GovernorStatus {
        tree_budgets: vec![TreeBudget { tree: tree.to_owned(), reservations: spent() }],
        ..GovernorStatus::default()
    };
    let waits = |seen: Observation| plan(&seen).status.steps.intent.is_none().then(|| why(&plan(&seen)));
    let in_common = GovernorStatus { tree_reservations: spent(), reservations: spent(), ..own("another") };
    assert_eq!(waits(Observation { budget: in_common.clone(), ..deleted() }), None);
    let (reason, message) = waits(Observation { budget: own("shop"), ..deleted() }).unwrap();
    let words = "the budget of tree shop, 10 destructive steps an hour (perHour, maxShare, atLeast), is spent; tried again at \
                 2026-01-01T01:00:00Z";
    assert_eq!((reason, &*message), (Reason::TreeBudgetSpent, words));
    // With one above it, or with all below it.
    let with_one_above = |budget: GovernorStatus| {
        let above = vec![top("2026-01-01T01:00:00Z", &[])];
        waits(Observation { above, budget, ..deleted() })
    };
    assert_eq!(with_one_above(own("shop")), None);
    assert_eq!(with_one_above(in_common.clone()).unwrap().0, Reason::BudgetSpent);
    let all = || soon(vec![living("shop-web", "shop-web-a")]);
    assert_eq!(deletes(&Observation { budget: own("shop"), ..all() }), "shop-web-a");
    refused(&Observation { budget: in_common, ..all() }, Reason::BudgetSpent, "that trees have in common");
    // By hand again once the consent to that has ended, and before it counts.
    let early = "2026-01-03T00:00:00Z";
    for until in [DELETED, early] {
        let by_hand = Observation { above: vec![top(until, &[])], budget: own("shop"), ..deleted() };
        assert_eq!(waits(by_hand).unwrap().0, Reason::TreeBudgetSpent, "{until}");
    }
    let with_early_consent = cascading(early, Vec::new());
    let by_hand = Observation {
        children: crate::allotment::Children::default(),
        budget: own("shop"),
        ..with_early_consent
    };
    assert_eq!(waits(by_hand).unwrap().0, Reason::TreeBudgetSpent);
}

#[test]
fn what_waits_for_the_budget_of_an_hour_says_until_which_minute_and_says_it_once() {
    let at = |time: &str| ServerTime::certain(time.parse().unwrap());
    let spent = |reserved: &str, steps: u32| {
        let reservations = vec![ReservationEntry { at: reserved.parse().unwrap(), steps }];
        let tree_budgets = vec![TreeBudget { tree: "shop".to_owned(), reservations }];
        GovernorStatus { tree_budgets, ..GovernorStatus::default() }
    };
    let hour = || Observation { budget: spent("2025-12-31T23:30:20Z", 10), ..deleted() };
    let begun = plan(&hour());
    assert_eq!(begun.next_check, Some("2026-01-01T00:30:20Z".parse().unwrap()));
    let (reason, message) = why(&begun);
    assert_eq!(reason, Reason::TreeBudgetSpent);
    assert!(message.ends_with("is spent; tried again at 2026-01-01T00:31:00Z"), "{message}");
    let status = serde_json::to_value(&begun.status).unwrap();
    let metadata = json!({"deletionTimestamp": DELETED, "deletionGracePeriodSeconds": 0});
    for time in ["2026-01-01T00:10:00Z", "2026-01-01T00:30:00Z"] {
        let same = Observation { object: object("4", &metadata, &status), time: at(time), ..hour() };
        assert!(plan(&same).is_steady(&same.object.status), "{:?}", why(&plan(&same)));
    }
    // What waits for less than a minute says no minute.
    let soon = plan(&Observation { time: at("2026-01-01T00:30:00Z"), ..hour() });
    assert!(why(&soon).1.ends_with("is spent"), "{:?}", why(&soon));
    let spec = serde_json::from_value(json!({"governor": {"perMinute": 1}})).unwrap();
    let settings = Arc::new(PlatformSettings::new(spec, "coppice-system", Vec::new()));
    let minute = plan(&Observation { settings, budget: spent(DELETED, 1), ..deleted() });
    assert!(why(&minute).1.ends_with("a minute (perMinute), is spent"), "{:?}", why(&minute));
}

#[test]
fn without_consent_nothing_below_is_deleted() {
    let all = || vec![living("shop-web", "shop-web-a")];
    let none = Observation { below: all(), ..soon(Vec::new()) };
    let none = Observation { object: deleted().object, ..none };
    refused(
        &none,
        Reason::HasChildren,
        "or all below it with it (coppice tree delete shop/shop-web --cascade)",
    );
    let ended = cascading("2026-01-01T00:00:00Z", all());
    refused(&ended, Reason::HasChildren, "the consent of spec.cascadeUntil ended at 2026-01-01T00:00:00Z");
    let early = cascading("2026-01-03T00:00:00Z", all());
    let words = "spec.cascadeUntil counts for its last 24 hours alone, from 2026-01-02T00:00:00Z";
    refused(&early, Reason::HasChildren, words);
    assert_eq!(plan(&early).next_check, Some("2026-01-02T00:00:00Z".parse().unwrap()));
    // Nobody has asked for it where it goes with the namespace above.
    let above = NamespaceFacts { terminating: true, ..namespace("shop", &[]) };
    for parent in [None, Some(Arc::new(above))] {
        let moving = Some(MoveTarget::Nowhere((Reason::NotInTree, "the root is being deleted".to_owned())));
        let gone = Observation { parent, moving, ..soon(all()) };
        refused(&gone, Reason::NamespaceTerminating, "stays until somebody deletes it");
    }
    // Before it is deleted itself, consent does nothing.
    let mut there = soon(all());
    Arc::get_mut(&mut there.object).unwrap().terminating = false;
    assert!(!matches!(plan(&there).step, Step::DeleteBelow(_)));
}

#[test]
fn what_stops_other_deletions_stops_those_below_before_they_begin() {
    let all = || vec![living("shop-web", "shop-web-a")];
    let stale = Some((Reason::Stale, "the cache is old".to_owned()));
    let old = Observation { stale, ..soon(all()) };
    assert_eq!(plan(&old).step, Step::Nothing);
    let spec = serde_json::from_value(json!({"governor": {"paused": true}})).unwrap();
    let paused = Arc::new(PlatformSettings::new(spec, "coppice-system", Vec::new()));
    refused(&Observation { settings: paused, ..soon(all()) }, Reason::Paused, "paused");
    let protected =
        below("shop-web", "shop-web-a", false, Some(namespace("shop-web-a", &[(LABEL_PROTECTED, "")])));
    refused(
        &soon(vec![protected]),
        Reason::NamespaceProtected,
        "below namespace shop-web: namespace shop-web-a",
    );
    let mut own = soon(all());
    own.namespace = Some(Arc::new(namespace("shop-web", &[(LABEL_PROTECTED, "")])));
    refused(&own, Reason::NamespaceProtected, "namespace shop-web");
}

/// One below whose namespace is protected.
fn protected(parent: &str, name: &str, terminating: bool) -> Below {
    below(parent, name, terminating, Some(namespace(name, &[(LABEL_PROTECTED, "")])))
}

#[test]
fn a_protected_namespace_stays_with_all_above_it_while_the_other_branches_go() {
    let (a, deep) = (living("shop-web", "shop-web-a"), protected("shop-web-a", "shop-web-a-b", false));
    let (c, deep_in_c) = (living("shop-web", "shop-web-c"), living("shop-web-c", "shop-web-c-d"));
    let seen = soon(vec![deep.clone(), deep_in_c.clone(), c.clone(), a.clone()]);
    assert_eq!(deletes(&seen), "shop-web-c-d");
    let words = "those below namespace shop-web are deleted from the bottom up, which spec.cascadeUntil allows until \
                 2026-01-01T01:00:00Z: shop-web-c-d is next; what is protected stays, and all above it: shop-web-a-b";
    assert_eq!(why(&plan(&seen)), (Reason::CascadingDeletion, words.to_owned()));
    // Still one after another, also where somebody has deleted the Subnamespace of the protected one.
    let marked = below("shop-web-c", "shop-web-c-d", true, deep_in_c.1.as_deref().cloned());
    refused(
        &soon(vec![deep.clone(), marked, c.clone(), a.clone()]),
        Reason::CascadingDeletion,
        "c-d is next",
    );
    let deleted = protected("shop-web-a", "shop-web-a-b", true);
    assert_eq!(deletes(&soon(vec![deleted, c.clone(), a.clone()])), "shop-web-c");
    let going = below("shop-web", "shop-web-c", true, None);
    let words = "the lowest of these are being deleted; what is protected stays";
    refused(&soon(vec![deep.clone(), going, a.clone()]), Reason::CascadingDeletion, words);
    // Nothing else is left, and the one above it is not the next.
    let words = "below namespace shop-web: namespace shop-web-a-b is protected";
    refused(&soon(vec![deep, a]), Reason::NamespaceProtected, words);
    let many: Vec<Below> =
        (1..=7).map(|at| protected("shop-web", &format!("shop-web-{at}"), false)).collect();
    let seen = soon(many.into_iter().chain([c]).collect());
    assert_eq!(deletes(&seen), "shop-web-c");
    let (_, message) = why(&plan(&seen));
    let named = "all above it: shop-web-1, shop-web-2, shop-web-3, shop-web-4, shop-web-5 and 2 more";
    assert!(message.ends_with(named), "{message}");
}

/// A Subnamespace above that is being deleted with all below it until then. Its namespace has these labels.
fn top(until: &str, labels: &[(&str, &str)]) -> Below {
    let object = SubnamespaceObject::clone(&cascading(until, Vec::new()).object);
    let object = SubnamespaceObject { name: "shop-top".into(), ..object };
    (Arc::new(object), Some(Arc::new(namespace("shop-top", labels))))
}

/// What is said of a deletion that comes.
fn announced(plan: &SubnamespacePlan) -> Option<String> {
    let found = condition::find(&plan.status.conditions, DELETION_PENDING)?;
    assert_eq!((&*found.status, &*found.reason), ("True", "DeletedWithAncestor"));
    Some(found.message.clone())
}

#[test]
fn those_below_hear_once_that_their_turn_comes_and_how_to_prevent_it() {
    const SOON: &str = "2026-01-01T01:00:00Z";
    let begun = plan(&Observation { above: vec![top(SOON, &[])], ..ready() });
    let message = announced(&begun).unwrap();
    for words in [
        "namespace shop-web will be deleted with namespace shop-top above it",
        "spec.cascadeUntil allows until 2026-01-01T01:00:00Z;",
        "(kubectl label namespace shop-web coppice.dev/protected=true)",
        "(kubectl patch sns shop-top -n shop --type=merge -p '{\"spec\":{\"cascadeUntil\":null}}')",
    ] {
        assert!(message.contains(words), "{words}: {message}");
    }
    let [event] = &begun.events[..] else { panic!("{:?}", begun.events) };
    assert_eq!((event.warning, event.reason), (true, Reason::DeletedWithAncestor));
    assert_eq!((why(&begun).0, begun.next_check), (Reason::Reconciled, Some(SOON.parse().unwrap())));
    let status = serde_json::to_value(&begun.status).unwrap();
    let stored = |above| Observation { object: object("4", &json!({}), &status), above, ..ready() };
    let same = stored(vec![top(SOON, &[])]);
    assert!(plan(&same).is_steady(&same.object.status) && plan(&same).events.is_empty());
    // It ends without an Event, with the consent or where something is protected.
    let gone = (top(SOON, &[]).0, None);
    let early = top("2026-01-03T00:00:00Z", &[]);
    for above in
        [None, Some(top(DELETED, &[])), Some(early), Some(top(SOON, &[(LABEL_PROTECTED, "")])), Some(gone)]
    {
        let ended = plan(&stored(above.into_iter().collect()));
        assert_eq!((announced(&ended), ended.events.len()), (None, 0));
    }
    // It stays where one below it does, until nothing protects that.
    let with_below = |below| Observation { below: vec![below], ..stored(vec![top(SOON, &[])]) };
    assert_eq!(announced(&plan(&with_below(protected("shop-web", "shop-web-a", false)))), None);
    assert!(announced(&plan(&with_below(living("shop-web", "shop-web-a")))).is_some());
    let mut kept = same;
    kept.namespace = Some(Arc::new(namespace("shop-web", &[(LABEL_PROTECTED, "")])));
    assert_eq!(announced(&plan(&kept)), None);
    // Of one that is being deleted itself nobody can prevent it; and what is not known ends nothing.
    let deleted = Observation { above: vec![top(SOON, &[])], ..deleted() };
    assert_eq!(announced(&plan(&deleted)), None);
    let stale = Some((Reason::Stale, "the cache is old".to_owned()));
    assert_eq!(announced(&plan(&Observation { stale, ..stored(Vec::new()) })), Some(message));
}
