//! How a record says that the date on which a namespace expires has changed.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use coppice_api::managed_namespace::{Extension, RecordHold};
use coppice_api::{ManagedNamespaceSpec, Reason};
use coppice_lifecycle::cluster::NamespaceStep;
use coppice_lifecycle::facts::{AnnotationKeys, Annotations};
use jiff::Timestamp;

use crate::support::cluster::{Scene, at};

const KEY: &str = "example.org/ttl";

/// A ttl of 1000 s unless the namespace says otherwise, and these fields besides.
fn spec(ttl: u32, more: &str) -> String {
    format!(
        "{{mode: Enforce, selector: {{names: ['ci-*']}}, settle: 10s, ttl: {{after: {ttl}s, fromAnnotation: {KEY}}}, {more} \
         policies: [{{name: end, when: {{phase: {{in: [Stale]}}}}, then: {{delete: {{}}}}}}]}}"
    )
}

fn annotate(scene: &mut Scene, ttl: Option<&str>) {
    scene.namespace.annotations =
        Annotations::of(&AnnotationKeys::named([KEY]), ttl.into_iter().map(|ttl| (KEY, ttl)));
}

fn governed(more: &str) -> Scene {
    let mut scene = Scene::new(&spec(1000, more));
    annotate(&mut scene, None);
    scene
}

fn extend(scene: &mut Scene, until: i64, by: &str) {
    scene.spec.extend_until = Some(Extension { at: at(until), by: Some(by.to_owned()) });
}

type Change<'a> = (Option<Timestamp>, Option<Timestamp>, Timestamp, &'a str, &'a str, Option<&'a str>);

fn changes(scene: &Scene) -> Vec<Change<'_>> {
    let changes = scene.status().expiry_changes.iter();
    changes.map(|one| (one.from, one.to, one.at, &*one.reason, &*one.message, one.by.as_deref())).collect()
}

/// The last change at an instant, by which the date becomes another one; and nothing more is written then.
fn last(scene: &mut Scene, seconds: i64) -> Change<'_> {
    let before = scene.status().expires_at;
    let plan = scene.settled(seconds);
    assert!(!matches!(plan.step, NamespaceStep::WriteStatus(_)), "it comes to rest");
    let last = changes(scene)[0];
    assert_eq!((last.0, last.1), (before, scene.status().expires_at));
    assert_eq!(last.2, at(seconds));
    last
}

#[test]
fn the_first_date_of_a_manager_is_no_change_and_that_of_an_extension_names_who_asked() {
    let mut scene = governed("");
    scene.settled(1);
    assert_eq!((scene.status().expires_at, changes(&scene)), (Some(at(1001)), vec![]));
    let mut scene = governed("");
    extend(&mut scene, 2000, "ann");
    let first = last(&mut scene, 1);
    let expected = (None, Some(at(2000)), at(1), "Extended", "spec.extendUntil of the record", Some("ann"));
    assert_eq!(first, expected);
    // Of one that ends before the ttl nobody needs to know.
    let mut scene = governed("");
    extend(&mut scene, 500, "ann");
    scene.settled(1);
    assert_eq!((scene.status().expires_at, changes(&scene)), (Some(at(1001)), vec![]));
}

#[test]
fn each_change_says_what_made_it_and_who_asked_where_that_is_proved() {
    let mut scene = governed("");
    scene.settled(1);
    extend(&mut scene, 2000, "ann");
    let extended = last(&mut scene, 20);
    let by = "spec.extendUntil of the record";
    assert_eq!(extended, (Some(at(1001)), Some(at(2000)), at(20), "Extended", by, Some("ann")));
    extend(&mut scene, 3000, "bob");
    assert_eq!(last(&mut scene, 21).5, Some("bob"));
    scene.spec = ManagedNamespaceSpec::default();
    let (from, to, _, reason, message, by) = last(&mut scene, 30);
    assert_eq!((from, to, reason, by), (Some(at(3000)), Some(at(1001)), "TtlByManager", None));
    assert_eq!(
        message,
        "the extension was removed: the namespace has no annotation example.org/ttl: the ttl is 16m40s, that of \
         ClusterNamespaceManager ci"
    );
    // A longer ttl by the annotation counts at once, and a shorter one when it has settled.
    annotate(&mut scene, Some("1h"));
    let (.., reason, message, by) = last(&mut scene, 40);
    let said = "the ttl is 1h, by annotation example.org/ttl of the namespace";
    assert_eq!((reason, message, by), ("TtlByAnnotation", said, None));
    annotate(&mut scene, Some("30m"));
    scene.settled(50);
    assert_eq!(changes(&scene).len(), 4);
    extend(&mut scene, 9000, "ann");
    assert_eq!(last(&mut scene, 51).3, "Extended");
    extend(&mut scene, 60, "ann");
    let (_, to, _, reason, message, _) = last(&mut scene, 52);
    let said = "the extension does not go beyond the ttl: the ttl is 1h until a shorter one has settled";
    assert_eq!((to, reason, message), (Some(at(3601)), "TtlByAnnotation", said));
    assert_eq!(last(&mut scene, 60).1, Some(at(1801)));
    annotate(&mut scene, Some("soon"));
    scene.settled(61);
    assert_eq!(changes(&scene).len(), 7, "the manager's is shorter, and settles");
    scene.settled(71);
    let (_, to, _, reason, message, _) = changes(&scene)[0];
    assert_eq!((to, reason), (Some(at(1001)), "TtlNotUnderstood"));
    assert!(
        message.starts_with("annotation example.org/ttl of the namespace is not understood: "),
        "{message}"
    );
}

#[test]
fn another_spec_and_the_end_of_governing_are_changes_by_the_manager() {
    let mut scene = governed("");
    scene.settled(1);
    scene.manager("{mode: Enforce, selector: {names: ['ci-*']}, settle: 10s, ttl: {after: 2000s}}");
    let said = "the ttl is 33m20s, that of ClusterNamespaceManager ci";
    let change = last(&mut scene, 10);
    assert_eq!(change, (Some(at(1001)), Some(at(2001)), at(10), "TtlByManager", said, None));
    scene.manager("{mode: Enforce, selector: {names: ['ci-*']}, settle: 10s}");
    let change = last(&mut scene, 20);
    let said = "ClusterNamespaceManager ci has no ttl";
    assert_eq!(change, (Some(at(2001)), None, at(20), "NoTtl", said, None));
    scene.manager(&spec(500, ""));
    assert_eq!(last(&mut scene, 30).1, Some(at(501)));
    let managers = std::mem::take(&mut scene.managers);
    let change = last(&mut scene, 40);
    let said = "no cluster manager selects the namespace";
    assert_eq!(change, (Some(at(501)), None, at(40), "NotGoverned", said, None));
    scene.managers = managers;
    assert_eq!(last(&mut scene, 50).1, Some(at(501)));
    // Under a later namespace of this name everything begins again.
    scene.namespace.uid = "ns-2".to_owned();
    scene.settled(60);
    assert_eq!((scene.status().expires_at, changes(&scene)), (Some(at(501)), vec![]));
}

#[test]
fn an_extension_that_is_cut_says_what_was_asked_for() {
    let mut scene = governed("limits: {maxTTL: 2000s},");
    scene.settled(1);
    extend(&mut scene, 5000, "ann");
    let (_, to, _, reason, message, by) = last(&mut scene, 2);
    assert_eq!((to, reason, by), (Some(at(2001)), "Extended", Some("ann")));
    assert_eq!(
        message,
        "spec.extendUntil of the record, which asks for 2026-03-01T13:23:20Z, cut by maxTTL of ClusterNamespaceManager ci"
    );
    // Asking for more of what is cut changes nothing.
    extend(&mut scene, 6000, "bob");
    scene.settled(3);
    assert_eq!(changes(&scene).len(), 1);
}

#[test]
fn a_hold_does_not_move_the_date_and_ten_changes_are_kept() {
    let mut scene = governed("");
    scene.settled(1);
    scene.spec.hold = Some(RecordHold { until: at(5000), reason: None, by: Some("ann".to_owned()) });
    scene.settled(2);
    assert_eq!(changes(&scene), []);
    for second in 10..30 {
        extend(&mut scene, 2000 + second, "ann");
        assert_eq!(last(&mut scene, second).1, Some(at(2000 + second)));
    }
    let kept: Vec<_> = changes(&scene).iter().map(|change| change.2).collect();
    assert_eq!(kept, (20..30).rev().map(at).collect::<Vec<_>>());
    assert!(!scene.events.contains(&Reason::DeletionAnnounced));
}

#[test]
fn what_is_not_known_for_a_time_changes_no_date() {
    let mut scene = governed("");
    extend(&mut scene, 2000, "ann");
    scene.settled(1);
    let before = scene.status().expiry_changes.clone();
    scene.undecodable = true;
    scene.settled(2);
    scene.undecodable = false;
    scene.stale = Some((Reason::Stale, "no update has been received".to_owned()));
    scene.settled(3);
    scene.stale = None;
    scene.namespace.annotations = Annotations::default();
    scene.settled(4);
    annotate(&mut scene, None);
    scene.settled(5);
    assert_eq!(scene.status().expiry_changes, before);
}
