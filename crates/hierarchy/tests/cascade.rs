//! In which order namespaces go that are deleted with one above them.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use coppice_api::Labels;
use coppice_api::config::CoppiceConfigSpec;
use coppice_api::names::LABEL_PROTECTED;
use coppice_hierarchy::{CascadeStep, Descendant, bottom_up, next_below, order};
use coppice_lifecycle::PlatformSettings;
use coppice_lifecycle::facts::{Annotations, NamespaceFacts};
use proptest::prelude::*;

/// A namespace below another one, which is here before it.
struct Below {
    parent: String,
    namespace: NamespaceFacts,
}

/// One for each: the place of the one above, if that is not the top, and whether it is protected.
fn tree(shape: &[(Option<usize>, bool)]) -> Vec<Below> {
    let name = |at: usize| format!("n{at:02}");
    let one = |(at, (above, protected)): (usize, &(Option<usize>, bool))| {
        let labels: &[(&str, &str)] = if *protected { &[(LABEL_PROTECTED, "true")] } else { &[] };
        let namespace = NamespaceFacts {
            name: name(at),
            uid: format!("uid-{at}"),
            resource_version: "1".to_owned(),
            created: "2026-01-01T00:00:00Z".parse().unwrap(),
            labels: labels.iter().copied().collect::<Labels>(),
            annotations: Annotations::default(),
            terminating: false,
        };
        Below { parent: above.map_or_else(|| "top".to_owned(), name), namespace }
    };
    shape.iter().enumerate().map(one).collect()
}

fn descendant(below: &Below) -> Descendant<'_> {
    let namespace = Some(&below.namespace);
    Descendant {
        parent: &below.parent,
        name: &below.namespace.name,
        created: true,
        terminating: false,
        namespace,
    }
}

fn all_below(tree: &[Below]) -> Vec<Descendant<'_>> {
    let children =
        |name: &str| tree.iter().filter(|below| below.parent == name).map(descendant).collect::<Vec<_>>();
    bottom_up("top", children, |below| Some(below.name.to_owned()))
}

fn settings() -> PlatformSettings {
    PlatformSettings::new(CoppiceConfigSpec::default(), "coppice-system", Vec::new())
}

fn names(below: &[Descendant<'_>], settings: &PlatformSettings) -> Vec<String> {
    order(below, settings).into_iter().map(|at| below[at].name.to_owned()).collect()
}

#[test]
fn each_goes_after_all_below_it_and_what_is_protected_stays_with_all_above_it() {
    // n00 above n01 above n02, n03 above n04, and n05 alone.
    let shape = |protected: usize| {
        let above = [None, Some(0), Some(1), None, Some(3), None];
        let shape = above.into_iter().enumerate().map(|(at, above)| (above, at == protected));
        tree(&shape.collect::<Vec<_>>())
    };
    let all = shape(usize::MAX);
    assert_eq!(names(&all_below(&all), &settings()), ["n02", "n04", "n01", "n05", "n03", "n00"]);
    let one_stays = shape(4);
    assert_eq!(names(&all_below(&one_stays), &settings()), ["n02", "n01", "n05", "n00"]);
}

#[test]
fn all_below_are_found_however_many_have_no_namespace_and_once_each() {
    // What a tree has no room for is not counted among its namespaces, and is there all the same.
    let children = |name: &str| -> Vec<String> {
        match name {
            "top" => (0..20_000).map(|n| format!("refused-{n}")).chain(["team".to_owned()]).collect(),
            "team" => vec!["lowest".to_owned()],
            _ => Vec::new(),
        }
    };
    let all = bottom_up("top", children, |name| (!name.starts_with("refused")).then(|| name.clone()));
    assert_eq!((all.len(), &*all[0]), (20_002, "lowest"));
    let circle = |name: &str| vec![if name == "a" { "b".to_owned() } else { "a".to_owned() }];
    assert_eq!(bottom_up("top", circle, |name| Some(name.clone())), ["a", "b", "a"]);
}

proptest! {
    /// What is said beforehand is what is done, one step after another.
    #[test]
    fn the_order_is_that_of_the_steps(shape in prop::collection::vec((any::<prop::sample::Index>(), prop::bool::weighted(0.2)), 0..12)) {
        let shape: Vec<_> = shape
            .iter()
            .enumerate()
            .map(|(at, (above, protected))| (above.index(at + 1).checked_sub(1), *protected))
            .collect();
        let (tree, settings) = (tree(&shape), settings());
        let mut left = all_below(&tree);
        let expected = names(&left, &settings);
        let mut done = Vec::new();
        loop {
            match next_below(&left, &settings) {
                CascadeStep::Delete(at) => done.push(left.remove(at).name.to_owned()),
                CascadeStep::Protected(_) => break,
                other => {
                    prop_assert!(left.is_empty(), "{other:?}");
                    break;
                }
            }
        }
        prop_assert_eq!(done, expected);
    }
}
