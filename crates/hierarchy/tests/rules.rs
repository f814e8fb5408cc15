//! What a tree permits besides its quota.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use coppice_api::Reason;
use coppice_api::metadata::NamespaceMetadata;
use coppice_hierarchy::{NewNamespace, Resources, Rules, ValidTree, partition_between};
use serde_json::{Value, json};

fn spec(more: &Value) -> ValidTree {
    let mut spec = json!({"root": "shop", "quota": {"hard": {"pods": "10", "cpu": "4"}}});
    for (key, value) in more.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    serde_json::from_value(spec).unwrap()
}

fn rules(spec: &ValidTree) -> Rules<'_> {
    Rules { tree: "the-shop", spec }
}

const NEW: NewNamespace<'_> =
    NewNamespace { root: "shop", parent: "shop-web", name: "shop-web-test", depth: 2, namespaces: 2 };

#[test]
fn what_keeps_every_rule_is_permitted() {
    assert_eq!(rules(&spec(&json!({}))).against(&NEW), []);
    let narrow = spec(&json!({"maxDepth": 2, "maxNamespaces": 3, "names": ["x", "{root}-*-test"]}));
    assert_eq!(rules(&narrow).against(&NEW), []);
}

#[test]
fn each_rule_that_is_broken_is_named_with_its_field() {
    let narrow = spec(&json!({"maxDepth": 1, "maxNamespaces": 2, "names": ["{parent}-x", "{root}-y"]}));
    let broken: Vec<_> =
        rules(&narrow).against(&NEW).into_iter().map(|rule| (rule.reason, rule.message)).collect();
    let expected = [
        (
            Reason::NameNotAllowed,
            "NamespaceTree the-shop permits no namespace shop-web-test in shop-web: name it by one of spec.names, here shop-web-x, shop-y",
        ),
        (
            Reason::TooDeep,
            "namespace shop-web-test would be 2 below the root, and NamespaceTree the-shop permits 1 (spec.maxDepth): create it further up",
        ),
        (
            Reason::TooManyNamespaces,
            "NamespaceTree the-shop has 2 namespaces and permits 2 (spec.maxNamespaces): delete a Subnamespace that nobody needs",
        ),
    ];
    assert_eq!(broken, expected.map(|(reason, message)| (reason, message.to_owned())));
}

#[test]
fn what_the_tree_requires_has_to_be_named_under_any_of_its_names() {
    let strict = spec(&json!({"quota": {"hard": {"pods": "10", "cpu": "4"}, "required": ["pods", "cpu"]}}));
    let against = |asked: &[(&str, u32)]| {
        let asked = asked.iter().map(|(name, amount)| (*name, amount.to_string().parse().unwrap()));
        rules(&strict).against_request(&Resources::parse(asked).unwrap())
    };
    assert_eq!(against(&[("pods", 0), ("requests.cpu", 1)]), None);
    let broken = against(&[("pods", 1)]).unwrap();
    assert_eq!(broken.reason, Reason::InvalidSpec);
    assert_eq!(
        broken.message,
        "spec.quota.hard does not name cpu, which NamespaceTree the-shop requires (spec.quota.required): write an amount of each, 0 for \
         none of it"
    );
}

#[test]
fn labels_and_annotations_have_to_be_allowed_each_by_its_own_list() {
    let some = spec(&json!({"metadata": {"allowed": {"labels": ["team", "tier"]}}}));
    let against = |asked: Value| {
        let asked: NamespaceMetadata = serde_json::from_value(asked).unwrap();
        rules(&some).against_metadata(&asked).map(|rule| (rule.reason, rule.message))
    };
    assert_eq!(against(json!({})), None);
    assert_eq!(against(json!({"labels": {"team": "web", "tier": ""}})), None);
    let refused = |message: &str| Some((Reason::MetadataNotAllowed, message.to_owned()));
    assert_eq!(
        against(json!({"labels": {"team": "web", "owner": "me", "Team": "x"}})),
        refused(
            "spec.metadata.labels names Team, owner, which NamespaceTree the-shop does not allow (spec.metadata.allowed.labels: team, \
             tier): leave it out, or ask the platform to allow it"
        )
    );
    assert_eq!(
        against(json!({"annotations": {"team": "web"}})),
        refused(
            "spec.metadata.annotations names team, which NamespaceTree the-shop does not allow (spec.metadata.allowed.annotations: none): \
             leave it out, or ask the platform to allow it"
        )
    );
}

#[test]
fn a_partition_is_between_its_branch_and_every_other_but_not_the_root() {
    let partitions = ["shop-gpu".to_owned(), "shop-arm".to_owned()];
    let between = |one: &[&str], other: &[&str]| {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        partition_between(&owned(one), &owned(other), &partitions).map(str::to_owned)
    };
    let gpu = Some("shop-gpu".to_owned());
    assert_eq!(between(&["shop", "shop-gpu", "x"], &["shop", "shop-web"]), gpu);
    assert_eq!(between(&["shop", "shop-web", "x"], &["shop", "shop-gpu"]), gpu);
    assert_eq!(between(&["shop", "shop-gpu"], &["shop", "shop-arm"]), gpu);
    assert_eq!(between(&["shop", "shop-gpu", "x"], &["shop", "shop-gpu", "y"]), None);
    assert_eq!(between(&["shop", "shop-web"], &["shop", "shop-api", "shop-gpu"]), None);
    assert_eq!(between(&["shop"], &["shop", "shop-gpu"]), None);
}
