//! Whether more was deleted in a tree than its own budget allows: what users delete there one by one, of their tree alone.

use std::collections::BTreeMap;
use std::time::Duration;

use coppice_api::names::LABEL_ROOT;
use serde_json::Value;

use super::super::ACCOUNT;
use super::consent::{RECENT, consents};
use super::rule::TREE_BUDGET;
use crate::oracle::{DestructiveAction, DestructiveStep, Findings, HOUR, History, MINUTE};

/// The root of the tree whose own budget a deletion takes from; none if the namespace goes with all below it, or with one above it.
pub(in crate::suite::trees) fn own_budget(history: &History, step: &DestructiveStep<'_>) -> Option<String> {
    if step.action != DestructiveAction::Delete || &*step.change.user != ACCOUNT {
        return None;
    }
    let revision = step.change.revision - 1;
    let since = step.change.at.checked_sub(RECENT).unwrap_or(step.change.at);
    let in_cascade = consents(history, step.namespace, since, revision);
    root_of(history, step.namespace, revision).filter(|_| !in_cascade).map(str::to_owned)
}

pub(super) fn check(history: &History, steps: &[DestructiveStep<'_>], found: &mut Findings) {
    let mut trees: BTreeMap<String, Vec<(Duration, u64)>> = BTreeMap::new();
    for step in steps {
        if let Some(root) = own_budget(history, step) {
            found.judges(TREE_BUDGET);
            trees.entry(root).or_default().push((step.done.sent, step.change.revision - 1));
        }
    }
    for (root, mut sent) in trees {
        sent.sort_unstable();
        for (n, (last, revision)) in sent.iter().enumerate() {
            for (window, limit) in limits(history, &root, *revision) {
                let within = sent[..=n].iter().filter(|(first, _)| last.saturating_sub(*first) < window);
                let count = within.count() as u64;
                if count > limit {
                    let what =
                        format!("{count} namespaces of {root} were deleted until {last:?}, of {limit}");
                    found.add(TREE_BUDGET, &what);
                }
            }
        }
    }
}

/// Whether people have deleted more in the tree of a namespace than may be deleted there in an hour, which no run lasts: some of it waits.
pub(super) fn is_overrun(history: &History, namespace: &str, revision: u64) -> bool {
    let Some(root) = root_of(history, namespace, revision) else { return false };
    let [_, (_, hourly)] = limits(history, root, revision);
    let is_going = |at: u64, object: &Value| {
        let metadata = &object["metadata"];
        metadata["deletionTimestamp"].is_string()
            && root_of(history, metadata["namespace"].as_str().unwrap_or_default(), at) == Some(root)
    };
    let deleted = history.all("subnamespaces").filter(|versions| {
        versions.iter().any(|(at, object)| object.as_deref().is_some_and(|object| is_going(*at, object)))
    });
    deleted.count() as u64 > hourly
}

/// How many namespaces of a tree may be deleted one by one in a minute and in an hour. Caches may be behind, and namespaces leave: it has
/// all that it ever had.
fn limits(history: &History, root: &str, revision: u64) -> [(Duration, u64); 2] {
    let governor = history.settings(revision).map_or(&Value::Null, |settings| &settings["spec"]["governor"]);
    let number = |field: &str, default: u64| governor[field].as_u64().unwrap_or(default);
    let percent = governor["maxShare"].as_str().unwrap_or("20%").trim_end_matches('%');
    let percent: u64 = percent.parse().unwrap_or(0);
    let namespaces = history.all("namespaces").filter(|versions| {
        let of_tree = |object: &Value| object["metadata"]["labels"][LABEL_ROOT] == root;
        let mut known = versions.iter().filter(|(at, _)| *at <= revision);
        known.any(|(_, object)| object.as_deref().is_some_and(of_tree))
    });
    let share = (namespaces.count() as u64 * percent / 100).max(number("atLeast", 10));
    let most = number("perHour", 300);
    [(MINUTE, number("perMinute", 30)), (HOUR, share.min(most).max(most.min(1)))]
}

/// The root of the tree that a namespace is in.
fn root_of<'a>(history: &'a History, namespace: &str, revision: u64) -> Option<&'a str> {
    history.at("namespaces", "", namespace, revision)?["metadata"]["labels"][LABEL_ROOT].as_str()
}
