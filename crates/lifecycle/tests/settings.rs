//! What is impossible, protected or not allowed is refused, said so once, and not done.

#![allow(clippy::items_after_statements, reason = "tables of cases")]

use crate::support::{Scene, yaml};
use coppice_api::manager::Phase;

#[test]
fn impossible_policies_are_refused_with_the_reason() {
    let webhook = "{webhook: {url: 'http://evil.example.org/'}}";
    type Change = fn(&mut Scene);
    let cases: &[(&str, Change, &str)] = &[
        ("{delete: {}}", |s| s.namespace.name = "kube-system".to_owned(), "NamespaceProtected"),
        ("{delete: {}}", |s| s.namespace.name = "default".to_owned(), "NamespaceProtected"),
        ("{delete: {}}", |s| s.namespace.name = "coppice-system".to_owned(), "NamespaceProtected"),
        ("{scaleDown: {}}", |s| s.config.protected.names = vec!["team-a".to_owned()], "NamespaceProtected"),
        (
            "{delete: {}}",
            |s| s.namespace.labels = [("coppice.dev/protected", "true")].into_iter().collect(),
            "NamespaceProtected",
        ),
        (
            "{delete: {}}",
            |s| s.namespace.labels = [("coppice.dev/has-children", "uid")].into_iter().collect(),
            "HasChildren",
        ),
        ("{delete: {}}", |s| s.config.tenants.actions = vec![], "ActionNotAllowed"),
        (webhook, |_| {}, "HostNotAllowed"),
        ("{webhook: {url: 'http://hook.team-b.svc/'}}", |_| {}, "HostNotAllowed"),
        (
            "{delete: {}}",
            |s| s.config.tenants.namespace_selector = Some(yaml("{matchLabels: {team: a}}")),
            "NamespaceNotSelected",
        ),
        (
            "{scaleDown: {selectors: [{apiVersion: argoproj.io/v1alpha1, kind: Rollout}]}}",
            |_| {},
            "KindNotAllowed",
        ),
    ];
    for (then, change, reason) in cases {
        let mut scene = Scene::policy("{ttl: {after: 40s}}", then);
        change(&mut scene);
        assert_eq!(scene.settle(100).step, None, "{reason}");
        assert_eq!((scene.phase(), scene.next_reason(), scene.ready().0), (Phase::Refused, *reason, "False"));
        assert_eq!(scene.events.len(), 1, "one Event");
        scene.settle(200);
        assert_eq!(scene.events.len(), 1, "and not again");
    }
    let mut protected = Scene::policy("{ttl: {after: 40s}}", "{webhook: {url: 'http://r.default.svc/'}}");
    protected.namespace.name = "default".to_owned();
    assert!(protected.settle(41).step.is_some(), "a webhook takes nothing away");
}

#[test]
fn a_namespace_with_subnamespaces_is_scaled_down_and_not_deleted() {
    let parent = |then: &str| {
        let mut scene = Scene::policy("{ttl: {after: 40s}}", then);
        // Any value counts.
        scene.namespace.labels = [("coppice.dev/has-children", "")].into_iter().collect();
        scene
    };
    assert!(parent("{scaleDown: {}}").settle(41).step.is_some(), "scaling down takes no namespace away");
    let mut scene = parent("{delete: {}}");
    assert_eq!((scene.settle(100).step, scene.next_reason()), (None, "HasChildren"));
    let message = "namespace team-a has subnamespaces: it is not deleted before they are (kubectl get subnamespaces -n team-a)";
    let said = &scene.status.next.as_ref().unwrap().message;
    assert!(said.ends_with(message), "{said}");
    // The last of them is gone.
    scene.namespace.labels = coppice_api::Labels::default();
    assert!(scene.settle(200).step.is_some());
}

#[test]
fn every_kind_of_protection_protects() {
    let protected: &[fn(&mut Scene)] = &[
        |s| s.namespace.name = "kube-node-lease".to_owned(),
        |s| s.namespace.name = "kube-anything".to_owned(),
        |s| s.namespace.name = "operators-own".to_owned(),
        // Any value counts: whoever writes "yes" or "1" means the same, and "false" is no permission to delete.
        |s| s.namespace.labels = [("coppice.dev/protected", "yes")].into_iter().collect(),
        |s| s.namespace.labels = [("coppice.dev/protected", "")].into_iter().collect(),
        |s| s.namespace.labels = [("coppice.dev/protected", "false")].into_iter().collect(),
        |s| {
            s.config.protected.selector = Some(yaml("{matchLabels: {tier: production}}"));
            s.namespace.labels = [("tier", "production")].into_iter().collect();
        },
    ];
    for protect in protected {
        for action in ["{delete: {}}", "{scaleDown: {}}"] {
            let mut scene = Scene::policy("{ttl: {after: 40s}}", action);
            scene.own_namespace = "operators-own".to_owned();
            protect(&mut scene);
            assert_eq!((scene.settle(100).step, scene.next_reason()), (None, "NamespaceProtected"));
        }
    }
}
