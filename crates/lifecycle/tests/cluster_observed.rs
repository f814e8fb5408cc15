//! What policies that observe would have done, and how that is counted.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use coppice_api::ManagedNamespaceSpec;
use coppice_api::managed_namespace::Extension;
use coppice_api::observed::{ObservedCounts, ObservedOutcome};
use coppice_lifecycle::cluster::ValidClusterManager;
use coppice_lifecycle::cluster::observed::{NotedOutcomes, NotedPolicy, counts};
use jiff::Timestamp;

use crate::support::cluster::{Scene, at};

/// Observes for ten seconds, and would delete after 100 with this notice.
const OBSERVES: &str = "{selector: {names: ['ci-*']}, settle: 10s, ttl: {after: 100s}, policies: [\
                        {name: end, when: {phase: {in: [Stale]}}, then: {delete: {notice: 20s}}}]}";

fn noted(scene: &Scene) -> Vec<(&str, Timestamp, Option<ObservedOutcome>)> {
    let noted = scene.status().would_have_acted.iter();
    noted.map(|one| (&*one.reason, one.at, one.outcome)).collect()
}

#[test]
fn what_observes_remembers_when_it_would_have_acted_and_what_came_of_it() {
    let mut scene = Scene::new(OBSERVES);
    assert_eq!((scene.reason(1), noted(&scene)), ("Observing".to_owned(), vec![]));
    let plan = scene.settled(100);
    assert_eq!((plan.next_check, noted(&scene)), (Some(at(101)), vec![]), "notice ran while it would have");
    assert_eq!(scene.reason(101), "Observing");
    assert_eq!(noted(&scene), [("TtlElapsed", at(101), None)]);
    assert_eq!(
        (scene.reason(900), noted(&scene)),
        ("Observing".to_owned(), vec![("TtlElapsed", at(101), None)])
    );
    // Its users want more time, and what came first counts.
    scene.spec.extend_until = Some(Extension { at: at(2000), by: None });
    assert_eq!(scene.reason(901), "Observing");
    assert_eq!(noted(&scene), [("TtlElapsed", at(101), Some(ObservedOutcome::Extended))]);
    assert_eq!(scene.status().would_have_acted[0].outcome_at, Some(at(901)));
    assert_eq!(scene.reason(5000), "Observing");
    assert_eq!(noted(&scene).len(), 1);
    // Another spec begins again.
    scene.manager(&OBSERVES.replace("100s", "10000s"));
    assert_eq!((scene.reason(5001), noted(&scene)), ("Observing".to_owned(), vec![]));
}

#[test]
fn what_is_held_would_not_have_been_acted_upon_and_what_is_held_later_is_said() {
    let hold = || serde_yaml::from_str("{hold: {until: '2026-03-01T12:05:00Z'}}").unwrap();
    let mut scene = Scene::new(OBSERVES);
    scene.spec = hold();
    assert_eq!((scene.reason(150), noted(&scene)), ("Held".to_owned(), vec![]));
    scene.spec = ManagedNamespaceSpec::default();
    assert_eq!((scene.reason(151), noted(&scene)), ("Observing".to_owned(), vec![]), "it has to settle");
    assert_eq!(scene.reason(200), "Observing");
    assert_eq!(noted(&scene), [("TtlElapsed", at(200), None)]);
    scene.spec = hold();
    assert_eq!(scene.reason(201), "Held");
    assert_eq!(noted(&scene), [("TtlElapsed", at(200), Some(ObservedOutcome::Held))]);
}

/// What is counted of the only policy: would have acted, recovered, extended, held, deleted by others, not governed.
const fn numbers(counts: &ObservedCounts) -> [u32; 6] {
    let [one] = counts.policies.as_slice() else { panic!() };
    [one.would_have_acted, one.recovered, one.extended, one.held, one.deleted_by_others, one.not_governed]
}

fn observes() -> ValidClusterManager {
    serde_yaml::from_str(OBSERVES).unwrap()
}

fn acted(second: i64) -> NotedPolicy {
    NotedPolicy { at: at(second), outcome: None, left: None }
}

fn became(second: i64, outcome: ObservedOutcome, then: i64) -> NotedPolicy {
    NotedPolicy { outcome: Some((outcome, at(then))), ..acted(second) }
}

fn left(second: i64, then: i64) -> NotedPolicy {
    NotedPolicy { left: Some(at(then)), ..acted(second) }
}

fn of_policy(all: &[NotedPolicy]) -> NotedOutcomes {
    [("end".to_owned(), all.to_vec())].into()
}

#[test]
fn what_observing_policies_would_have_done_is_counted_once_also_after_its_namespaces_are_deleted() {
    let manager = observes();
    let two = of_policy(&[acted(100), acted(103)]);
    let first = counts(None, &manager, &two, at(111)).unwrap();
    assert_eq!(
        (numbers(&first), first.since),
        ([1, 0, 0, 0, 0, 0], at(111)),
        "what is not in every cache comes later"
    );
    assert_eq!(counts(Some(&first), &manager, &two, at(112)), Some(first.clone()), "nothing is written");
    let second = counts(Some(&first), &manager, &two, at(113)).unwrap();
    assert_eq!((numbers(&second), second.since, second.until), ([2, 0, 0, 0, 0, 0], at(111), at(103)));
    let came = of_policy(&[became(100, ObservedOutcome::Recovered, 120), acted(103)]);
    assert_eq!(counts(Some(&second), &manager, &came, at(129)), Some(second.clone()));
    let third = counts(Some(&second), &manager, &came, at(130)).unwrap();
    assert_eq!(numbers(&third), [2, 1, 0, 0, 0, 0]);
    // Both are deleted, a new one came, and nobody counted in between.
    let later = of_policy(&[became(500, ObservedOutcome::Held, 510)]);
    let last = counts(Some(&third), &manager, &later, at(600)).unwrap();
    assert_eq!(numbers(&last), [3, 1, 0, 1, 2, 0]);
    assert_eq!(counts(Some(&last), &manager, &later, at(1_000_000)), Some(last));
    let enforces: ValidClusterManager =
        serde_yaml::from_str(&OBSERVES.replacen('{', "{mode: Enforce, ", 1)).unwrap();
    assert_eq!(counts(None, &enforces, &later, at(600)), None);
}

#[test]
fn what_is_not_governed_any_more_is_not_counted_as_deleted() {
    let manager = observes();
    let both = of_policy(&[acted(100), acted(101), acted(102)]);
    let before = counts(None, &manager, &both, at(200)).unwrap();
    assert_eq!(numbers(&before), [3, 0, 0, 0, 0, 0]);
    // What has left is in no cache for certain yet, and neither deleted nor left.
    let one_left = of_policy(&[left(100, 300), acted(101), acted(102)]);
    assert_eq!(counts(Some(&before), &manager, &one_left, at(309)), Some(before.clone()));
    let after = counts(Some(&before), &manager, &one_left, at(310)).unwrap();
    assert_eq!(numbers(&after), [3, 0, 0, 0, 0, 1]);
    assert_eq!(
        counts(Some(&after), &manager, &one_left, at(5000)),
        Some(after.clone()),
        "it is counted once"
    );
    // Its namespace is deleted, and one that was governed to the end.
    let deleted = of_policy(&[acted(102)]);
    let last = counts(Some(&after), &manager, &deleted, at(6000)).unwrap();
    assert_eq!(numbers(&last), [3, 0, 0, 0, 1, 1]);
    // One that came and left while nobody counted.
    let passed = of_policy(&[acted(102), left(6100, 6200)]);
    assert_eq!(numbers(&counts(Some(&last), &manager, &passed, at(7000)).unwrap()), [4, 0, 0, 0, 1, 2]);
}

/// The numbers that a manager writes at an instant, going on from those before.
fn counted(scene: &Scene, before: Option<&ObservedCounts>, seconds: i64) -> ObservedCounts {
    let (name, manager) = &scene.managers[0];
    let noted = &scene.all_counts(seconds)[name].noted;
    counts(before, manager, noted, at(seconds)).unwrap()
}

#[test]
fn a_record_remembers_for_each_manager_that_governed_it_what_that_would_have_done() {
    let mut scene = Scene::new(OBSERVES);
    scene.settled(1);
    scene.settled(101);
    let first = counted(&scene, None, 150);
    assert_eq!(numbers(&first), [1, 0, 0, 0, 0, 0]);
    // Another one comes before it: until the record says so, nothing has become of the namespace.
    let other = OBSERVES.replacen('{', "{priority: 1, ", 1);
    scene.managers.push(("other".to_owned(), serde_yaml::from_str(&other).unwrap()));
    assert_eq!(counted(&scene, Some(&first), 199), first);
    scene.settled(200);
    let before = &scene.status().observed_before;
    let said = (&*before[0].manager_uid, before[0].until, &*before[0].acted.policy, before[0].acted.at);
    assert_eq!((before.len(), said), (1, ("ci", at(200), "end", at(101))));
    let left = counted(&scene, Some(&first), 210);
    assert_eq!(numbers(&left), [1, 0, 0, 0, 0, 1]);
    // Nobody governs it any more: the other one counts, too, and the first one nothing new.
    scene.settled(320);
    scene.managers.swap(0, 1);
    let of_other = counted(&scene, None, 340);
    assert_eq!(numbers(&of_other), [1, 0, 0, 0, 0, 0]);
    let managers = std::mem::take(&mut scene.managers);
    scene.settled(400);
    scene.managers = managers;
    assert_eq!(scene.status().observed_before.len(), 2);
    assert_eq!(numbers(&counted(&scene, Some(&of_other), 410)), [1, 0, 0, 0, 0, 1]);
    scene.managers.swap(0, 1);
    assert_eq!(counted(&scene, Some(&left), 410), left);
    // Another spec of the same manager begins again, and so does another namespace.
    scene.managers.truncate(1);
    scene.settled(500);
    scene.settled(600);
    scene.manager(&OBSERVES.replace("20s", "21s"));
    scene.settled(700);
    assert_eq!(scene.status().observed_before.len(), 2);
    scene.namespace.uid = "ns-2".to_owned();
    scene.settled(800);
    assert_eq!(scene.status().observed_before, []);
}
