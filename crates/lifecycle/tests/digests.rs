//! Whether a manager is armed: by digests of its policies, whichever version of Coppice wrote them.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::support::{Scene, at, yaml};
use coppice_api::manager::{Phase, Policy};
use coppice_lifecycle::facts::PodPhase;
use coppice_lifecycle::plan::Step;
use coppice_lifecycle::record::StepOutcome;
use coppice_lifecycle::{DigestComparison, PolicyDigests};

#[test]
fn digests_stay_the_same_across_versions() {
    // A manager that has fired is dormant while its digest is the same. If this fails, an upgrade would re-fire every
    // manager: encode a new field only where it has another value than its default.
    let scene = Scene::new(
        "policies: [{name: a, when: {ttl: {after: 40s}}, then: {delete: {}}}, \
         {name: b, when: {podsSucceed: {}}, then: {scaleDown: {}}}, \
         {name: c, when: {podsSucceed: {}}, then: {webhook: {url: 'http://r.x.svc/'}}}]",
    );
    let digests = PolicyDigests::of(&scene.spec.policies);
    assert_eq!(digests.current(), "v2:bb42b096153bcb53");
    assert_eq!(digests.compare("0a980469279d6e6c"), DigestComparison::Same);
}

#[test]
fn a_digest_says_whether_policies_changed_in_the_form_that_it_names() {
    let of = |policies: &str| PolicyDigests::of(&yaml::<Vec<Policy>>(policies));
    let plain = "[{name: p, when: {podsSucceed: {}}, then: {scaleDown: {}}}]";
    let digests = of(plain);
    // A default that is written down changes nothing; anything else does.
    let defaults = "{initialDelay: 1m, minPods: 1, settle: 0h, ignoreRetried: true}";
    assert_eq!(of(&plain.replace("podsSucceed: {}", &format!("podsSucceed: {defaults}"))), digests);
    let mut all = vec![digests.current().to_owned()];
    for when in [
        "podsSucceed: {initialDelay: 2m}",
        "podsSucceed: {minPods: 0}",
        "podsSucceed: {settle: 1m}",
        "podsSucceed: {ignoreRetried: false}",
        "podsSucceed: {selector: {matchLabels: {a: b}}}",
        "podsSucceed: {selector: {matchLabels: {ab: ''}}}",
        "podsSucceed: {selector: {matchExpressions: [{key: a, operator: Exists}]}}",
        "podsSucceed: {selector: {matchExpressions: [{key: a, operator: In, values: [b]}]}}",
        "podsSucceed: {selector: {matchExpressions: [{key: a, operator: NotIn, values: [b]}]}}",
        "podsSucceed: {selector: {matchExpressions: [{key: a, operator: In, values: [b, c]}]}}",
        "ttl: {after: 1m}",
        "ttl: {until: '2026-03-01T12:00:00Z'}",
    ] {
        all.push(of(&plain.replace("podsSucceed: {}", when)).current().to_owned());
    }
    for then in [
        "delete: {}",
        "delete: {notice: 1m}",
        "scaleDown: {selectors: [{kind: Deployment}]}",
        "scaleDown: {selectors: [{kind: Deployment, apiVersion: apps/v1}]}",
        "scaleDown: {selectors: [{kind: Deployment, selector: {matchLabels: {a: b}}}]}",
        "webhook: {url: 'http://a.b/'}",
        "webhook: {url: 'http://a.b/', format: consol}",
    ] {
        all.push(of(&plain.replace("scaleDown: {}", then)).current().to_owned());
    }
    all.push(of(&plain.replace("name: p", "name: q")).current().to_owned());
    for (n, text) in all.iter().enumerate() {
        assert!(!all[..n].contains(text), "number {n} is the same as another");
        assert_eq!(
            digests.compare(text),
            if n == 0 { DigestComparison::Same } else { DigestComparison::Changed }
        );
    }
    for other in
        ["", "d", "v1:0a980469279d6e6c", "v3:0a980469279d6e6c", "0A980469279D6E6C", "+a980469279d6e6c"]
    {
        assert_eq!(digests.compare(other), DigestComparison::NotUnderstood, "{other}");
    }
}

#[test]
fn a_manager_that_another_version_has_fired_is_dormant_until_it_is_rearmed() {
    let mut scene = Scene::policy("{ttl: {after: 40s}}", "{webhook: {url: 'http://hook.team-a.svc/'}}");
    scene.settle(41);
    scene.outcome(&StepOutcome::WebhookDelivered { response: "200".to_owned() }, 42);
    scene.status.steps.last_firing.as_mut().unwrap().digest = "v9:0123".to_owned();
    scene.settle(43);
    assert_eq!((scene.phase(), scene.next_reason()), (Phase::Fired, "UnsupportedDigest"));
    assert!(scene.status.next.as_ref().unwrap().message.contains("dormant until spec.rearm is 1"));
    scene.edit(|spec| spec.policies[0].name.push('!'));
    assert_eq!((scene.settle(44).step, scene.next_reason()), (None, "UnsupportedDigest"));
    scene.edit(|spec| spec.rearm = Some(1));
    let Some(Step::Webhook(intent, _)) = scene.settle(45).step else { panic!("it is armed") };
    assert_eq!(intent.digest, coppice_lifecycle::digest(&scene.spec.policies));
    scene.outcome(&StepOutcome::WebhookDelivered { response: "200".to_owned() }, 46);
    assert_eq!((scene.settle(47).step, scene.next_reason()), (None, "Dormant"));
}

#[test]
fn a_step_that_another_version_decided_is_neither_taken_nor_decided_again() {
    for (then, is_given_up_by_suspend) in [
        ("{delete: {}}", true),
        ("{scaleDown: {}}", true),
        ("{webhook: {url: 'http://hook.team-a.svc/'}}", false),
    ] {
        let mut scene = Scene::policy("{ttl: {after: 40s}}", then);
        assert!(scene.settle(41).step.is_some());
        scene.status.steps.intent.as_mut().unwrap().digest = "v9:0123".to_owned();
        let intent = scene.status.steps.intent.clone();
        for seconds in [42, 4000] {
            let plan = scene.settle(seconds);
            assert_eq!(
                (plan.step, plan.next_check, &scene.status.steps.intent),
                (None, None, &intent),
                "{then}"
            );
            assert_eq!((scene.phase(), scene.next_reason()), (Phase::Pending, "UnsupportedDigest"), "{then}");
        }
        scene.edit(|spec| spec.suspend = true);
        assert_eq!(scene.settle(4001).step, None);
        assert_eq!(scene.status.steps.intent.is_none(), is_given_up_by_suspend, "{then}");
    }
}

#[test]
fn a_verdict_of_another_version_settles_from_the_beginning() {
    let mut scene = Scene::policy("{podsSucceed: {settle: 10m}}", "{scaleDown: {}}");
    scene.pod("a", PodPhase::Succeeded);
    scene.settle(61);
    scene.status.policies_digest = Some("v9:0123".to_owned());
    scene.settle(600);
    assert_eq!(scene.verdict().since, at(600));
    assert_eq!(scene.status.policies_digest, Some(coppice_lifecycle::digest(&scene.spec.policies)));
}
