//! How far a record and annotations go under the limits of a cluster manager.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use coppice_api::condition::{self, WITHIN_LIMITS};
use coppice_api::managed_namespace::{Extension, Held, RecordHold, RecordLimits};
use coppice_api::{ClusterNamespaceManagerSpec, NamespacePhase, Reason};
use coppice_lifecycle::cluster::{NamespaceStep, ValidClusterManager};
use coppice_lifecycle::facts::{AnnotationKeys, Annotations};
use coppice_quantity::Duration;
use jiff::Timestamp;

use crate::support::cluster::{Scene, at};

const HOUR: i64 = 3600;

/// A ttl, ten seconds to settle, and these limits.
fn under(ttl: &str, limits: &str) -> Scene {
    Scene::new(&format!(
        "{{mode: Enforce, selector: {{names: ['ci-*']}}, settle: 10s, ttl: {{after: {ttl}, fromAnnotation: example.org/ttl}}, \
         limits: {limits}, policies: [{{name: end, when: {{phase: {{in: [Stale]}}}}, then: {{delete: {{}}}}}}]}}"
    ))
}

fn scene(ttl: &str, limits: &str) -> Scene {
    let mut scene = under(ttl, limits);
    scene.namespace.annotations = annotations(None);
    scene
}

fn annotations(ttl: Option<&'static str>) -> Annotations {
    Annotations::of(
        &AnnotationKeys::named(["example.org/ttl"]),
        ttl.into_iter().map(|ttl| ("example.org/ttl", ttl)),
    )
}

fn hold(scene: &mut Scene, until: Option<i64>) {
    let hold = |until| RecordHold { until: at(until), reason: None, by: Some("ann".to_owned()) };
    scene.spec.hold = until.map(hold);
}

fn held(since: i64, until: i64) -> Held {
    Held { since: at(since), until: at(until) }
}

/// Status, reason and message of the condition.
fn within(scene: &Scene) -> Option<(String, String, String)> {
    let known = condition::find(&scene.status().conditions, WITHIN_LIMITS)?;
    Some((known.status.clone(), known.reason.clone(), known.message.clone()))
}

#[test]
fn holds_that_follow_each_other_count_as_one_until_the_limit() {
    // It was due long before it is governed, which the counts have to show, too.
    let mut scene = scene("100s", "{maxHold: 1h}");
    hold(&mut scene, Some(9 * HOUR));
    assert_eq!(scene.says(1000), "Held: held by ann until 2026-03-01T13:16:40Z");
    assert_eq!(scene.status().held, Some(held(1000, 9 * HOUR)));
    let said = "spec.hold asks for 2026-03-01T21:00:00Z, and counts until 2026-03-01T13:16:40Z: at most 1h after the \
                first hold, of 2026-03-01T12:16:40Z (maxHold) (spec.limits of ClusterNamespaceManager ci)";
    let exceeded = ("False".to_owned(), "LimitExceeded".to_owned(), said.to_owned());
    assert_eq!(within(&scene), Some(exceeded));
    assert_eq!(scene.events, [Reason::LimitExceeded]);
    assert_eq!(scene.settled(1001).next_check, Some(at(1000 + HOUR)));
    // Renewed, and removed and set again: it is the same one, and one that ends before the limit is not limited.
    hold(&mut scene, Some(4000));
    assert_eq!(scene.says(3000), "Held: held by ann until 2026-03-01T13:06:40Z");
    assert_eq!(within(&scene).unwrap().0, "True");
    hold(&mut scene, Some(99 * HOUR));
    assert_eq!(scene.says(3999), "Held: held by ann until 2026-03-01T13:16:40Z");
    assert_eq!(scene.reason(1000 + HOUR - 1), "Held");
    assert_eq!(scene.says(1000 + HOUR), "delete");
}

#[test]
fn a_hold_is_the_first_again_after_a_day_without_one() {
    for (away, again) in [(24 * HOUR - 1, false), (24 * HOUR, true)] {
        let mut scene = scene("300d", "{maxHold: 1h}");
        hold(&mut scene, Some(9 * HOUR));
        scene.settled(1000);
        hold(&mut scene, None);
        scene.settled(2000);
        assert_eq!(scene.status().held, Some(held(1000, 2000)), "it was removed then");
        assert_eq!(
            scene.settled(2001).next_check,
            Some(at(2000 + 24 * HOUR)),
            "not before the record changes"
        );
        hold(&mut scene, Some(2000 + away + 99 * HOUR));
        let says = scene.reason(2000 + away);
        assert_eq!(says, if again { "Held" } else { "TtlRunning" }, "{away}");
        let since = if again { 2000 + away } else { 1000 };
        assert_eq!(scene.status().held.unwrap().since, at(since));
    }
    // A hold that stays does not begin again, however long.
    let mut scene = scene("300d", "{maxHold: 1h}");
    hold(&mut scene, Some(200 * 24 * HOUR));
    assert_eq!(scene.reason(1000), "Held");
    assert_eq!(scene.reason(1000 + 100 * 24 * HOUR), "TtlRunning");
    // What is recorded goes after the day, with the limit, and with the namespace.
    hold(&mut scene, None);
    scene.settled(101 * 24 * HOUR);
    assert!(scene.status().held.is_some());
    scene.settled(102 * 24 * HOUR);
    assert_eq!(scene.status().held, None);
    for change in [
        |scene: &mut Scene| scene.namespace.uid = "ns-2".to_owned(),
        |scene: &mut Scene| scene.managers.clear(),
        |scene: &mut Scene| scene.manager("{mode: Enforce, selector: {names: ['ci-*']}, ttl: {after: 300d}}"),
    ] {
        let mut scene = self::scene("300d", "{maxHold: 1h}");
        hold(&mut scene, Some(9 * HOUR));
        scene.settled(1000);
        hold(&mut scene, None);
        change(&mut scene);
        scene.settled(1010);
        assert_eq!(scene.status().held, None);
    }
}

#[test]
fn no_hold_counts_where_none_is_permitted() {
    let mut scene = scene("100s", "{maxHold: 0s}");
    hold(&mut scene, Some(9 * HOUR));
    scene.settled(50);
    assert_eq!(scene.says(101), "delete");
    assert!(within(&scene).unwrap().2.contains("no hold counts (maxHold)"), "{:?}", within(&scene));
    // Not even for the rest of the second in which it is set, so that it withdraws no notice.
    let mut scene = self::scene("100s", "{maxHold: 0s}");
    scene.settled(50);
    assert_eq!(scene.reason(60), "TtlRunning");
    hold(&mut scene, Some(9 * HOUR));
    let now = at(60) + jiff::SignedDuration::from_millis(200);
    let NamespaceStep::WriteStatus(status) = scene.plan(now).step else {
        panic!("it says nothing of the hold")
    };
    assert_eq!(status.next.unwrap().reason, "TtlRunning");
}

#[test]
fn a_day_without_a_hold_does_not_count_while_a_long_notice_runs() {
    let mut scene = Scene::new(
        "{mode: Enforce, selector: {names: ['ci-*']}, settle: 10s, ttl: {after: 100s}, limits: {maxHold: 1h}, policies: \
         [{name: end, when: {phase: {in: [Stale]}}, then: {delete: {notice: 2d}}}]}",
    );
    let day = 24 * HOUR;
    hold(&mut scene, Some(9 * day));
    assert_eq!(scene.reason(1000), "Held");
    hold(&mut scene, None);
    assert_eq!(scene.reason(1060), "NoticeRunning");
    // More than a day later: it is no first hold, and keeps the namespace no more.
    hold(&mut scene, Some(9 * day));
    assert_eq!(scene.reason(1060 + day + 1), "NoticeRunning");
    assert_eq!(scene.reason(1060 + 2 * day - 1), "NoticeRunning");
    assert_eq!(scene.reason(1060 + 2 * day), "delete");
}

#[test]
fn annotations_and_extensions_count_up_to_the_longest_ttl() {
    let mut scene = scene("100s", "{maxTTL: 1h}");
    scene.namespace.annotations = annotations(Some("30d"));
    scene.settled(10);
    assert_eq!(scene.status().expires_at, Some(at(HOUR + 1)));
    let said = "its annotation asks for a ttl of 30d, and at most 1h counts (maxTTL) (spec.limits of ClusterNamespaceManager ci)";
    assert_eq!(within(&scene).unwrap().2, said);
    scene.spec.extend_until = Some(Extension { at: at(9 * HOUR), by: None });
    scene.settled(20);
    assert_eq!(scene.status().expires_at, Some(at(HOUR + 1)));
    assert!(
        within(&scene).unwrap().2.contains(
            "; spec.extendUntil asks for 2026-03-01T21:00:00Z, and counts until 2026-03-01T13:00:01Z: at most 1h after its \
             creation (maxTTL) ("
        ),
        "{:?}",
        within(&scene)
    );
    assert_eq!(scene.status().phase, Some(NamespacePhase::Ok));
    assert_eq!(scene.says(HOUR + 1), "delete");
    // What is within the limit counts as it is; the manager's own ttl is not limited.
    for (ttl, annotation, extended, expires) in [
        ("100s", Some("59m"), None, 59 * 60 + 1),
        ("100s", None, Some(HOUR), HOUR),
        ("2h", None, None, 2 * HOUR + 1),
        ("2h", None, Some(9 * HOUR), 2 * HOUR + 1),
        // Nobody shortens it by asking for more.
        ("2h", Some("9h"), None, 2 * HOUR + 1),
        ("2h", None, Some(HOUR + 1800), 2 * HOUR + 1),
    ] {
        let mut scene = self::scene(ttl, "{maxTTL: 1h}");
        scene.namespace.annotations = annotations(annotation);
        scene.spec.extend_until = extended.map(|seconds| Extension { at: at(seconds), by: None });
        scene.settled(10);
        assert_eq!(scene.status().expires_at, Some(at(expires)), "{ttl} {annotation:?} {extended:?}");
        let cut = annotation == Some("9h") || extended == Some(9 * HOUR);
        assert_eq!(within(&scene).unwrap().0 == "False", cut, "{ttl} {annotation:?} {extended:?}");
    }
}

#[test]
fn without_limits_the_record_says_nothing_of_them() {
    let mut scene = scene("100s", "{minNotice: 1h}");
    hold(&mut scene, Some(9 * HOUR));
    scene.settled(10);
    assert_eq!((within(&scene), scene.status().limits, scene.status().held), (None, None, None));
    scene.manager("{mode: Enforce, selector: {names: ['ci-*']}, limits: {maxHold: 1h, maxTTL: 1h}}");
    scene.settled(20);
    assert_eq!(within(&scene).unwrap().0, "False");
    let limits = RecordLimits { latest_end: Some(at(HOUR + 1)), max_hold: Some(Duration::from_secs(3600)) };
    assert_eq!(scene.status().limits, Some(limits));
    scene.managers.clear();
    scene.settled(30);
    assert_eq!(
        (within(&scene), scene.status().limits, scene.status().held),
        (None, None, None),
        "nobody governs it"
    );
}

#[test]
fn only_limits_of_records_are_part_of_the_digest() {
    let digest = |limits: &str| under("100s", limits).managers[0].1.digest().to_owned();
    let none = digest("{}");
    for tenants in ["{minNotice: 1h}", "{tenantActions: []}", "{webhookHosts: ['*.example.org']}"] {
        assert_eq!(digest(tenants), none, "{tenants}");
    }
    let all = [
        none,
        digest("{maxTTL: 1h}"),
        digest("{maxHold: 1h}"),
        digest("{maxTTL: 2h}"),
        digest("{maxHold: 0s}"),
    ];
    for (n, one) in all.iter().enumerate() {
        assert!(!all[..n].contains(one));
    }
}

#[test]
fn limits_that_make_no_sense_say_what_to_write() {
    let spec = |limits: &str| {
        let text = format!("{{selector: {{names: ['*']}}, limits: {limits}}}");
        serde_yaml::from_str::<ClusterNamespaceManagerSpec>(&text)
            .map_err(|error| error.to_string())
            .and_then(|spec| ValidClusterManager::try_from(spec).map_err(|error| error.to_string()))
    };
    for (limits, why) in [
        ("{maxTTL: 0s}", "limits: maxTTL must be at least 1s"),
        ("{webhookHosts: ['http://x']}", "limits: the entry \"http://x\" of webhookHosts"),
        (
            "{tenantActions: [destroy]}",
            "unknown variant `destroy`, expected one of `delete`, `scaleDown`, `webhook`",
        ),
        ("{maxTtl: 1h}", "unknown field `maxTtl`, expected one of `maxTTL`, `maxHold`"),
    ] {
        let said = spec(limits).unwrap_err();
        assert!(said.contains(why), "{limits}: {said}");
    }
}

#[test]
fn the_longest_times_do_not_overflow() {
    let mut scene = scene("36525d", "{maxTTL: 36525d, maxHold: 36525d}");
    scene.spec.hold = Some(RecordHold { until: Timestamp::MAX, reason: None, by: None });
    scene.spec.extend_until = Some(Extension { at: Timestamp::MAX, by: None });
    assert_eq!(scene.reason(10), "Held");
}
