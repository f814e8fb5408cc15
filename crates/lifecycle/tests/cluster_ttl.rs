//! A namespace whose creator gives it a time to live, by an annotation.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use coppice_api::condition::{self, TTL_UNDERSTOOD};
use coppice_api::{NamespacePhase, Reason};
use coppice_lifecycle::cluster::{
    EffectiveTtl, NamespaceStep, TtlSource, ValidClusterManager, ValidTtl, ttl_of,
};
use coppice_lifecycle::facts::{AnnotationKeys, Annotations};
use coppice_quantity::Duration;

use crate::support::cluster::{Scene, at};

const KEY: &str = "example.org/ttl";

/// A ttl of 1000 s unless the namespace says otherwise, ten seconds to settle, and a notice of 50 s.
fn under(ttl: &str) -> Scene {
    let mut scene = Scene::new(
        "{mode: Enforce, selector: {names: ['ci-*']}, settle: 10s, ttl: {after: 1000s, fromAnnotation: example.org/ttl}, \
         policies: [{name: end, when: {phase: {in: [Stale]}}, then: {delete: {notice: 50s}}}]}",
    );
    annotate(&mut scene, &[(KEY, ttl)]);
    scene
}

fn annotate(scene: &mut Scene, annotations: &[(&str, &str)]) {
    scene.namespace.annotations = Annotations::of(&AnnotationKeys::named([KEY]), annotations.iter().copied());
}

/// Status, reason and message of the condition.
fn understood(scene: &Scene) -> Option<(String, String, String)> {
    let known = condition::find(&scene.status().conditions, TTL_UNDERSTOOD)?;
    Some((known.status.clone(), known.reason.clone(), known.message.clone()))
}

#[test]
fn what_is_no_duration_is_the_managers_ttl_and_says_what_to_write() {
    let written = ValidTtl {
        after: Duration::from_secs(7200),
        from_annotation: Some("example.org/ttl".to_owned()),
        max: None,
    };
    let of = |annotations: &[(&str, &str)]| {
        let mut scene = under("1s");
        annotate(&mut scene, annotations);
        ttl_of(&written, &scene.namespace).unwrap()
    };
    for (text, seconds) in [("90s", 90), ("1h30m", 5400), ("2w", 1_209_600), ("36525d", 3_155_760_000)] {
        let expected = EffectiveTtl {
            after: Duration::from_secs(seconds),
            source: Some(TtlSource::Annotation),
            asked: None,
        };
        assert_eq!(of(&[(KEY, text)]), expected, "{text}");
    }
    assert_eq!(of(&[]), EffectiveTtl { after: written.after, source: Some(TtlSource::Manager), asked: None });
    let megabyte = "9".repeat(1 << 20);
    let nul = "2h\u{0}";
    for (text, why) in [
        ("0s", "\"0s\" would expire the namespace at once: write at least 1s"),
        ("0h0m", "\"0h0m\" would expire the namespace at once"),
        ("-1h", "\"-1h\" is not a duration: write numbers with the units w, d, h, m, s"),
        ("2", "\"2\" has no unit: write 2s for seconds, 2m for minutes, 2h for hours or 2d for days"),
        ("1 fortnight", "\"1 fortnight\" is not a duration: write numbers with the units"),
        (" 2h", "\" 2h\" is not a duration"),
        (nul, "\"2h\\0\" is not a duration"),
        ("1m1h", "\"1m1h\" repeats a unit or has them out of order"),
        ("", "a duration is missing: write a number with a unit"),
        ("36526d", "\"36526d\" is too long: at most 36525d"),
        ("99999999999999999999s", "\"99999999999999999999s\" is too long"),
        (&megabyte, "it has more than 32 characters: write a duration, such as 90s, 2h or 7d"),
        (&"\u{1F333}".repeat(33), "it has more than 32 characters"),
    ] {
        let ttl = of(&[(KEY, text)]);
        assert_eq!(ttl.after, written.after, "{why}");
        let Some(TtlSource::NotUnderstood(said)) = ttl.source else { panic!("{text:?} is understood") };
        assert!(said.to_string().starts_with(why), "{said}");
    }
    let unread = under("1s").namespace;
    let other = ValidTtl { from_annotation: Some("example.org/other".to_owned()), ..written.clone() };
    assert_eq!(ttl_of(&other, &unread).unwrap_err().key, "example.org/other", "not read is not absent");
    let none = ValidTtl { from_annotation: None, ..written };
    assert_eq!(
        ttl_of(&none, &unread).unwrap(),
        EffectiveTtl { after: none.after, source: None, asked: None }
    );
}

#[test]
fn the_record_says_what_the_ttl_comes_from() {
    let mut scene = under("200s");
    assert_eq!(scene.reason(1), "TtlRunning");
    assert_eq!(scene.status().expires_at, Some(at(201)));
    let (status, reason, message) = understood(&scene).unwrap();
    assert_eq!((&*status, &*reason), ("True", "TtlByAnnotation"));
    assert_eq!(message, "the ttl is 3m20s, by annotation example.org/ttl of the namespace");
    annotate(&mut scene, &[(KEY, "2")]);
    assert_eq!(scene.reason(2), "TtlRunning");
    assert_eq!(scene.status().expires_at, Some(at(1001)));
    let (status, reason, message) = understood(&scene).unwrap();
    assert_eq!((&*status, &*reason), ("False", "TtlNotUnderstood"));
    assert_eq!(
        message,
        "annotation example.org/ttl of the namespace is not understood: \"2\" has no unit: write 2s for seconds, 2m for \
         minutes, 2h for hours or 2d for days; until then the ttl is 16m40s, that of ClusterNamespaceManager ci"
    );
    annotate(&mut scene, &[]);
    assert_eq!(scene.reason(3), "TtlRunning");
    assert_eq!(understood(&scene).unwrap().1, "TtlByManager");
    // A manager that names no annotation says nothing of it.
    scene.manager("{mode: Enforce, selector: {names: ['ci-*']}, ttl: {after: 1000s}}");
    scene.settled(4);
    assert_eq!(understood(&scene), None);
}

#[test]
fn an_extension_by_the_annotation_withdraws_the_notice() {
    let mut scene = under("200s");
    assert_eq!(scene.reason(1), "TtlRunning");
    assert_eq!(scene.reason(160), "NoticeRunning");
    assert_eq!(
        scene.status().steps.notice.as_ref().unwrap().not_before,
        at(210),
        "its notice is not shortened"
    );
    annotate(&mut scene, &[(KEY, "400s")]);
    assert_eq!(scene.reason(161), "TtlRunning");
    let status = scene.status();
    assert_eq!((status.expires_at, status.steps.notice.as_ref()), (Some(at(401)), None));
    assert_eq!(status.manager.as_ref().unwrap().since, at(1), "the spec is the same: nothing settles again");
    assert_eq!(scene.events, [Reason::DeletionAnnounced, Reason::NoticeWithdrawn]);
    assert_eq!(scene.reason(350), "TtlRunning");
    assert_eq!(scene.reason(351), "NoticeRunning");
    assert_eq!(scene.reason(401), "delete");
    // Also when all but the request has been done.
    annotate(&mut scene, &[(KEY, "1h")]);
    assert_eq!(scene.reason(402), "TtlRunning");
    assert_eq!((scene.status().steps.intent.as_ref(), scene.events.last()), (None, Some(&Reason::Abandoned)));
}

/// The ttl that counts, and the shorter one with the second from which on it does.
fn recorded(scene: &Scene) -> (u64, Option<(u64, i64)>) {
    let ttl = scene.status().ttl.unwrap();
    let shorter = ttl.shorter.map(|one| (one.after.as_secs(), one.from.duration_since(at(0)).as_secs()));
    (ttl.after.as_secs(), shorter)
}

#[test]
fn a_shorter_ttl_settles_and_is_announced_for_as_long_as_any() {
    let mut scene = under("900s");
    assert_eq!(scene.reason(1), "TtlRunning");
    annotate(&mut scene, &[(KEY, "1s")]);
    assert_eq!(scene.reason(300), "TtlRunning");
    assert_eq!(recorded(&scene), (900, Some((1, 310))));
    assert_eq!(
        understood(&scene).unwrap().2,
        "the ttl is 1s, by annotation example.org/ttl of the namespace; it is shorter than before, and counts from \
         2026-03-01T12:05:10Z on (settle): until then it is 15m"
    );
    assert_eq!(scene.plan(at(300)).next_check, Some(at(310)));
    assert_eq!((scene.status().phase, scene.status().expires_at), (Some(NamespacePhase::Ok), Some(at(901))));
    assert_eq!(scene.reason(309), "TtlRunning");
    assert_eq!(scene.reason(310), "NoticeRunning");
    let status = scene.status();
    assert_eq!((status.phase, status.expires_at), (Some(NamespacePhase::Stale), Some(at(2))));
    assert_eq!(status.steps.notice.as_ref().unwrap().not_before, at(360));
    assert_eq!(recorded(&scene), (1, None));
    // A longer one that is over, too, changes nothing.
    annotate(&mut scene, &[(KEY, "2s")]);
    assert_eq!(scene.reason(320), "NoticeRunning");
    assert_eq!(scene.reason(359), "NoticeRunning");
    assert_eq!(scene.reason(360), "delete");
    assert_eq!(scene.events, [Reason::DeletionAnnounced, Reason::PolicyFired]);
    // Another spec settles by itself.
    scene.manager(
        "{mode: Enforce, selector: {names: ['ci-*']}, settle: 20s, ttl: {after: 1000s, fromAnnotation: example.org/ttl}}",
    );
    annotate(&mut scene, &[(KEY, "1s")]);
    scene.settled(370);
    assert_eq!(recorded(&scene), (1, None));
}

#[test]
fn a_shorter_ttl_that_is_taken_back_before_it_has_settled_changes_nothing() {
    let mut scene = under("900s");
    for (now, ttl, expected) in [
        (1, "900s", (900, None)),
        (300, "1s", (900, Some((1, 310)))),
        (305, "2s", (900, Some((2, 315)))),
        (312, "1s", (900, Some((1, 322)))),
        (320, "900s", (900, None)),
        (321, "1s", (900, Some((1, 331)))),
        (330, "1000s", (1000, None)),
    ] {
        annotate(&mut scene, &[(KEY, ttl)]);
        assert_eq!(scene.reason(now), "TtlRunning");
        assert_eq!(recorded(&scene), expected, "{ttl} at {now}");
    }
    // What is due already stays so.
    assert_eq!(scene.reason(960), "NoticeRunning");
    annotate(&mut scene, &[(KEY, "1s")]);
    assert_eq!(scene.reason(1005), "NoticeRunning");
    assert_eq!(scene.reason(1010), "delete");
    assert_eq!(scene.events, [Reason::DeletionAnnounced, Reason::PolicyFired]);
}

/// What happens to a scene, in words.
type Change<'a> = (&'a str, &'a dyn Fn(&mut Scene));

#[test]
fn a_shorter_ttl_is_dropped_with_the_spec_under_which_it_was_seen() {
    let other = "{mode: Enforce, priority: 9, selector: {names: ['*']}, settle: 10s, ttl: {after: 1000s, fromAnnotation: \
                 example.org/ttl}, policies: [{name: end, when: {phase: {in: [Stale]}}, then: {delete: {notice: 50s}}}]}";
    let written =
        |ttl: &str| format!("{{mode: Enforce, selector: {{names: ['ci-*']}}, settle: 10s, ttl: {ttl}}}");
    let changes: [Change<'_>; 4] = [
        ("another manager governs it for a moment", &|scene| {
            scene.managers.push(("other".to_owned(), serde_yaml::from_str(other).unwrap()));
            scene.settled(304);
            scene.managers.pop();
        }),
        ("nobody governs it for a moment", &|scene| {
            let managers = std::mem::take(&mut scene.managers);
            scene.settled(304);
            assert_eq!(scene.status().ttl, None);
            scene.managers = managers;
        }),
        ("the manager names no annotation for a moment", &|scene| {
            let before = scene.managers[0].1.clone();
            scene.manager(&written("{after: 1000s}"));
            scene.settled(304);
            assert_eq!(scene.status().ttl, None);
            scene.managers[0].1 = before;
            scene.generation += 1;
        }),
        // The spec between the two may have been another one.
        ("the generation is two more", &|scene| scene.generation += 2),
    ];
    for (what, change) in changes {
        let mut scene = under("900s");
        scene.settled(1);
        annotate(&mut scene, &[(KEY, "1s")]);
        scene.settled(300);
        assert_eq!(recorded(&scene), (900, Some((1, 310))), "{what}");
        change(&mut scene);
        // Under the spec of now the ttl has been so from the beginning; the spec settles.
        scene.settled(305);
        assert_eq!(recorded(&scene), (1, None), "{what}");
        assert_eq!(scene.reason(314), "Settling", "{what}");
        assert_eq!(scene.reason(315), "NoticeRunning", "{what}");
        assert_eq!(scene.reason(364), "NoticeRunning", "{what}");
        assert_eq!(scene.reason(365), "delete", "{what}");
    }
}

#[test]
fn an_extension_outlasts_a_ttl_that_becomes_shorter() {
    let mut scene = under("900s");
    scene.spec.extend_until = Some(coppice_api::managed_namespace::Extension { at: at(2000), by: None });
    scene.settled(1);
    annotate(&mut scene, &[(KEY, "1s")]);
    scene.settled(300);
    assert_eq!(scene.reason(310), "TtlRunning");
    assert_eq!((recorded(&scene), scene.status().expires_at), ((1, None), Some(at(2000))));
    assert_eq!(scene.reason(1949), "TtlRunning");
    assert_eq!(scene.reason(1950), "NoticeRunning");
    assert_eq!(scene.reason(2000), "delete");
}

#[test]
fn an_annotation_makes_no_approval_too_small() {
    // Three namespaces get a ttl that is over, and one step an hour is allowed.
    let mut scene = under("900s");
    scene.config.governor.per_hour = 1;
    (scene.others, scene.others_alike) = (Some(2), true);
    scene.settled(300);
    assert_eq!(scene.counts(300).enforce.newly_due, 0);
    annotate(&mut scene, &[(KEY, "1s")]);
    scene.settled(400);
    assert_eq!(scene.reason(410), "NoticeRunning", "it needs no approval itself");
    assert_eq!(scene.counts(410).enforce.newly_due, 0);
    // With the same ttl under a new spec it is due by that.
    scene.manager(
        "{mode: Enforce, selector: {names: ['ci-*']}, settle: 20s, ttl: {after: 1000s, fromAnnotation: example.org/ttl}, \
         policies: [{name: end, when: {phase: {in: [Stale]}}, then: {delete: {notice: 50s}}}]}",
    );
    scene.settled(420);
    assert_eq!(scene.counts(440).enforce.newly_due, 3);
    assert_eq!(scene.reason(440), "ApprovalNeeded");
    // One that would be due longer by now is not.
    annotate(&mut scene, &[(KEY, "1h")]);
    assert_eq!(scene.reason(441), "TtlRunning");
    assert_eq!(scene.counts(441).enforce.newly_due, 0);
    // What becomes shorter again is due by that.
    annotate(&mut scene, &[(KEY, "1s")]);
    assert_eq!(scene.reason(450), "TtlRunning");
    assert_eq!(scene.reason(470), "NoticeRunning");
    assert_eq!(scene.counts(470).enforce.newly_due, 0);
}

#[test]
fn while_the_annotation_was_not_read_nothing_is_decided_and_nothing_is_lost() {
    let mut scene = under("200s");
    assert_eq!(scene.reason(1), "TtlRunning");
    let known = scene.namespace.annotations.clone();
    // After a restart the first list knows no keys.
    scene.namespace.annotations = Annotations::default();
    assert_eq!(scene.plan(at(2)).step, NamespaceStep::Nothing, "what the record says is still true");
    scene.record.as_mut().unwrap().observed_generation = Some(0);
    assert_eq!(
        scene.plan(at(2)).step,
        NamespaceStep::Nothing,
        "and says nothing of what its users ask since"
    );
    scene.namespace.annotations = known.clone();
    assert_eq!(scene.reason(160), "NoticeRunning");
    scene.namespace.annotations = Annotations::default();
    let plan = scene.plan(at(161));
    assert_eq!((plan.step, plan.next_check), (NamespaceStep::Nothing, Some(at(240))), "a list takes seconds");
    assert_eq!(scene.plan(at(239)).step, NamespaceStep::Nothing);
    let says = scene.says(240);
    assert_eq!(
        says,
        "AnnotationsNotRead: when the namespace expires is not known: the annotation example.org/ttl of namespaces has not \
         been read yet"
    );
    assert_eq!(scene.status().steps.notice.as_ref().unwrap().not_before, at(210), "the notice stands");
    assert_eq!(scene.status().expires_at, Some(at(201)));
    scene.namespace.annotations = known;
    assert_eq!(scene.reason(5000), "delete");
    scene.namespace.annotations = Annotations::default();
    let plan = scene.settled(5001);
    assert_eq!(plan.step, NamespaceStep::Nothing, "a step that was decided waits, too");
    assert_eq!(scene.status().next.as_ref().unwrap().reason, "InProgress");
    assert_eq!(scene.reason(5030), "AnnotationsNotRead");
    assert!(scene.status().steps.intent.is_some());
}

#[test]
fn the_key_is_checked_and_is_a_part_of_the_digest() {
    let spec = |ttl: &str| {
        serde_yaml::from_str::<ValidClusterManager>(&format!("{{selector: {{names: ['*']}}, ttl: {ttl}}}"))
    };
    let error = spec("{after: 1h, fromAnnotation: 'a b'}").unwrap_err().to_string();
    assert!(error.starts_with("ttl.fromAnnotation is \"a b\": write an annotation's key"), "{error}");
    assert!(spec("{fromAnnotation: a}").unwrap_err().to_string().contains("missing field `after`"));
    let digests = ["{after: 1h}", "{after: 1h, fromAnnotation: a}", "{after: 1h, fromAnnotation: b}"]
        .map(|ttl| spec(ttl).unwrap().digest().to_owned());
    assert!(digests[0] != digests[1] && digests[1] != digests[2], "{digests:?}");
    let keys = spec("{after: 1h, fromAnnotation: a}").unwrap();
    assert_eq!(keys.annotation_keys().collect::<Vec<_>>(), ["a"]);
}
