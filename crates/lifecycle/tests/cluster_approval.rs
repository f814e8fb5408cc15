//! What waits for approval, and what is made again each time it is deleted.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use coppice_api::{ManagedNamespaceStatus, Reason};
use coppice_lifecycle::cluster::{NamespaceStep, ValidClusterManager};
use coppice_lifecycle::facts::{AnnotationKeys, Annotations};
use serde::Deserialize;

use crate::support::cluster::{Scene, at, enforcing, spec};

/// One destructive step an hour, and so much notice.
fn with_budget(manager: &str) -> Scene {
    let mut scene = Scene::new(manager);
    scene.config.governor.per_hour = 1;
    scene
}

/// What people copy from the guides is about the file that they apply, with `mode: Enforce`.
#[test]
fn the_guides_approve_the_digest_of_the_example() {
    #[derive(Deserialize)]
    struct Example {
        spec: ValidClusterManager,
    }
    let file = include_str!("../../../examples/ci/02-merge-requests.yaml");
    let Example { spec } = serde_yaml::from_str(file).unwrap();
    let expected = spec.enforcing_digest();
    for (guide, times) in [
        (include_str!("../../../docs/guides/cluster-managers.md"), 5),
        (include_str!("../../../docs/guides/gitops.md"), 1),
    ] {
        let words = guide.split(|c: char| !c.is_ascii_alphanumeric() && c != ':');
        let named: Vec<_> = words.filter(|word| word.starts_with("c1:")).collect();
        assert_eq!(named, vec![expected; times]);
    }
    let enforces: Example =
        serde_yaml::from_str(&file.replacen("mode: Observe", "mode: Enforce", 1)).unwrap();
    assert_eq!(enforces.spec.digest(), expected);
}

#[test]
fn more_than_the_hourly_budget_waits_for_approval_and_then_gets_its_full_notice() {
    let spec = enforcing().replace("delete: {}", "delete: {notice: 30s}");
    let mut scene = with_budget(&spec);
    scene.others = Some(1);
    assert_eq!(scene.reason(1000), "Settling");
    let says = scene.says(1010);
    let expected = "ApprovalNeeded: the ttl ended at 2026-03-01T12:01:41Z; more namespaces than the hourly budget were due before \
                    this spec of ClusterNamespaceManager ci had governed them for settle: its condition Approved says how to \
                    approve that";
    assert_eq!(says, expected);
    let next = scene.status().next.as_ref().unwrap();
    assert_eq!(
        (next.action.as_deref(), next.due, &scene.status().steps.notice),
        (Some("delete"), None, &None)
    );
    let digest = scene.managers[0].1.digest().to_owned();
    let approve = |scene: &mut Scene, namespaces: u32, until: &str| {
        let approval =
            format!("approval: {{digest: '{digest}', namespaces: {namespaces}, validUntil: '{until}'}},");
        scene.manager(&spec.replace("settle:", &format!("{approval} settle:")));
    };
    approve(&mut scene, 1, "2026-03-02T00:00:00Z");
    assert_eq!(scene.reason(1020), "ApprovalNeeded", "one is too few");
    assert_eq!(scene.status().manager.as_ref().unwrap().since, at(1000), "an approval decides nothing else");
    approve(&mut scene, 2, "2026-03-01T12:17:00Z");
    assert_eq!(scene.reason(1020), "ApprovalNeeded", "it was valid until then");
    approve(&mut scene, 2, "2026-03-02T00:00:00Z");
    assert_eq!(scene.reason(1030), "NoticeRunning");
    assert_eq!(scene.status().steps.notice.as_ref().unwrap().not_before, at(1060));
    assert_eq!(scene.reason(1060), "delete");
    assert_eq!(scene.events, [Reason::DeletionAnnounced, Reason::PolicyFired]);
    // Where the approval ends, or more become due, everything begins again: whoever approves it later gives full notice.
    scene.others = Some(2);
    assert_eq!(scene.reason(1061), "ApprovalNeeded");
    assert_eq!((&scene.status().steps.intent, &scene.status().steps.notice), (&None, &None));
    assert_eq!(scene.events.last(), Some(&Reason::Abandoned));
    scene.others = Some(1);
    assert_eq!(scene.reason(1070), "NoticeRunning");
    scene.others = Some(2);
    assert_eq!(scene.reason(1080), "ApprovalNeeded");
    assert_eq!(scene.events.last(), Some(&Reason::NoticeWithdrawn));
    scene.others = Some(1);
    assert_eq!(scene.reason(1090), "NoticeRunning");
    assert_eq!(scene.reason(1119), "NoticeRunning");
    assert_eq!(scene.reason(1120), "delete");
}

/// Governs the scene by this spec before, and from 1000 on by `spec`, of which another release may have written what records say.
fn governs(before: &str, spec: &str, other_release: bool, others: usize) -> Scene {
    let mut scene = with_budget(before);
    (scene.others, scene.others_alike) = (Some(others), true);
    scene.settled(1);
    scene.settled(20);
    if other_release {
        let manager = scene.record.as_mut().unwrap().manager.as_mut().unwrap();
        manager.digest = manager.digest.replacen("c1:", "c0:", 1);
        assert!(manager.digest.starts_with("c0:"), "{manager:?}");
    }
    scene.manager(spec);
    scene
}

#[test]
fn a_wider_selector_a_shorter_ttl_and_a_release_that_decides_differently_need_approval() {
    let spec = enforcing().replace("delete: {}", "delete: {notice: 30s}");
    let digest = serde_yaml::from_str::<ValidClusterManager>(&spec).unwrap().digest().to_owned();
    let approval =
        format!("approval: {{digest: '{digest}', namespaces: 2, validUntil: '2026-03-02T00:00:00Z'}},");
    let approved = spec.replace("settle:", &format!("{approval} settle:"));
    let (narrower, longer) = (spec.replace("'ci-*'", "'qa-*'"), spec.replace("after: 100s", "after: 5000s"));
    for (change, before, other_release) in [
        ("a wider selector", &narrower, false),
        ("a shorter ttl", &longer, false),
        ("another release", &spec, true),
    ] {
        let mut scene = governs(before, &spec, other_release, 1);
        for (seconds, reason) in [(1000, "Settling"), (1009, "Settling"), (1010, "ApprovalNeeded")] {
            assert_eq!(scene.reason(seconds), reason, "{change}, at {seconds}");
        }
        assert_eq!(scene.counts(1010).enforce.newly_due, 2, "{change}");
        assert_eq!(scene.reason(20_000), "ApprovalNeeded", "{change}: time approves nothing");
        let steps = &scene.status().steps;
        assert_eq!((&steps.notice, &steps.intent), (&None, &None), "{change}");
        let before_approval = scene.events.len();
        scene.manager(&approved);
        assert_eq!(scene.reason(30_000), "NoticeRunning", "{change}");
        assert_eq!(scene.status().steps.notice.as_ref().unwrap().not_before, at(30_030), "{change}");
        assert_eq!(scene.reason(30_029), "NoticeRunning", "{change}");
        assert_eq!(scene.reason(30_030), "delete", "{change}");
        let events = &scene.events[before_approval..];
        assert_eq!(events, [Reason::DeletionAnnounced, Reason::PolicyFired], "{change}");

        // What the hourly budget has room for needs none, and gets its full notice all the same.
        let mut scene = governs(before, &spec, other_release, 0);
        for (seconds, reason) in
            [(1000, "Settling"), (1010, "NoticeRunning"), (1039, "NoticeRunning"), (1040, "delete")]
        {
            assert_eq!(scene.reason(seconds), reason, "{change}, within the budget, at {seconds}");
        }
    }
    // The same spec, as this release wrote it down: what is due by it became so by time.
    let mut scene = governs(&spec, &spec, false, 1);
    assert_eq!(scene.reason(1000), "NoticeRunning");
}

#[test]
fn what_becomes_due_by_time_needs_no_approval() {
    // The namespaces are younger than two minutes when the manager begins to govern, or become due later.
    for (governs, due) in [(1, 101), (60, 101), (110, 120)] {
        let mut scene = with_budget(&enforcing());
        scene.others = Some(9);
        scene.settled(governs);
        assert_eq!(scene.reason(due), "delete", "governed from {governs} on");
    }
    let mut scene = with_budget(&enforcing().replace("after: 100s", "after: 200s"));
    scene.others = Some(9);
    scene.settled(150);
    assert_eq!(scene.reason(201), "delete", "due after it had settled");
}

#[test]
fn without_a_count_nothing_is_done_and_nothing_is_given_up() {
    let mut scene = with_budget(&enforcing());
    scene.others = None;
    scene.settled(1000);
    assert_eq!(scene.reason(1010), "NotCounted");
    assert_eq!(scene.settled(1010).next_check, Some(at(1015)));
    scene.others = Some(0);
    assert_eq!(scene.reason(1011), "delete");
    // Every start would write to every record otherwise.
    scene.others = None;
    let plan = scene.plan(at(1012));
    assert_eq!((plan.step, plan.next_check), (NamespaceStep::Nothing, Some(at(1017))));
    let mut scene = with_budget(&enforcing());
    scene.others = Some(1);
    scene.settled(1000);
    assert_eq!(scene.reason(1010), "ApprovalNeeded");
    scene.others = None;
    assert_eq!(scene.plan(at(1020)).step, NamespaceStep::Nothing);
}

#[test]
fn what_is_due_since_a_moment_waits_until_it_is_counted() {
    let mut scene = with_budget(&enforcing());
    scene.others = Some(3);
    scene.spec = serde_yaml::from_str("{hold: {until: '2026-03-01T12:33:20Z'}}").unwrap();
    scene.settled(1000);
    assert_eq!(scene.reason(1999), "Held");
    // The hold ends, and the count is of before: it does not have this namespace.
    scene.counted_at = Some(1999);
    assert_eq!(scene.reason(2000), "NotCounted");
    scene.counted_at = None;
    assert_eq!(scene.reason(2001), "ApprovalNeeded");
    let mut scene = with_budget(&enforcing());
    scene.others = Some(3);
    scene.config.protected.names = vec!["ci-*".to_owned()];
    scene.settled(1000);
    assert_eq!(scene.reason(2000), "NamespaceProtected");
    scene.counted_under = Some(scene.config.clone());
    scene.config.protected.names.clear();
    assert_eq!(scene.reason(2001), "NotCounted");
    scene.counted_under = None;
    assert_eq!(scene.reason(2002), "ApprovalNeeded");
}

#[test]
fn an_approval_can_be_given_together_with_the_switch() {
    let observing: ValidClusterManager = serde_yaml::from_str(&spec("", "")).unwrap();
    let enforces: ValidClusterManager = serde_yaml::from_str(&enforcing()).unwrap();
    assert_ne!(observing.digest(), enforces.digest());
    assert_eq!(observing.enforcing_digest(), enforces.digest());
    assert_eq!(enforces.enforcing_digest(), enforces.digest());
}

#[test]
fn what_is_made_again_each_time_is_left_alone_for_a_day() {
    const DAY: i64 = 24 * 3600;
    let mut scene = Scene::new(&enforcing());
    scene.settled(1);
    scene.deletions = vec![("ns-b", -200), ("ns-a", -5000), ("ns-1", 90)];
    assert_eq!(scene.reason(101), "delete", "two, and its own");
    scene.record = Some(ManagedNamespaceStatus::default());
    scene.settled(1);
    scene.deletions = vec![("ns-b", -200), ("ns-c", -100), ("ns-a", -5000)];
    let says = scene.says(101);
    assert_eq!(
        says,
        "RecreatedTooOften: namespace ci-1 was deleted 3 times within 24 hours and is made again each time (no label or \
         annotation of a known tool says by what): it is left alone until 2026-03-02T10:36:40Z; have it made no more, or exclude it from the \
         cluster manager"
    );
    assert_eq!(scene.status().next.as_ref().unwrap().due, Some(at(DAY - 5000)));
    assert_eq!(scene.events, [Reason::PolicyFired], "nothing is announced");
    scene.namespace.labels =
        [("argocd.argoproj.io/instance".to_owned(), "web".to_owned())].into_iter().collect();
    let says = scene.says(102);
    let by = "its labels and annotations say by what: argocd.argoproj.io/instance=web";
    assert!(says.contains(&format!("({by})")), "{says}");
    let tracking = ("argocd.argoproj.io/tracking-id", "web:/Namespace:/ci-1");
    scene.namespace.annotations = Annotations::of(&AnnotationKeys::default(), [tracking]);
    let says = scene.says(102);
    assert!(says.contains(&format!("({by}, argocd.argoproj.io/tracking-id)")), "{says}");
    scene.others = None;
    assert_eq!(
        scene.plan(at(103)).step,
        NamespaceStep::Nothing,
        "a start does not change what the record says"
    );
    scene.others = Some(0);
    assert_eq!(scene.reason(DAY - 5001), "RecreatedTooOften");
    assert_eq!(scene.reason(DAY - 5000), "delete");
}
