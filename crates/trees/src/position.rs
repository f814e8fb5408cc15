//! Where a namespace is in its tree. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use coppice_api::Labels;
use coppice_api::names::{LABEL_CHILDREN, LABEL_DEPTH_SUFFIX, LABEL_PARENT, LABEL_ROOT, LABEL_SUBNAMESPACE};
use coppice_kinds::Tree;
use coppice_lifecycle::glob;

/// Where a namespace is.
#[derive(Clone, Debug)]
pub(crate) struct Position {
    /// The tree, whose spec is understood.
    pub(crate) tree: Arc<Tree>,
    /// The names from the root down to the namespace.
    path: Vec<Box<str>>,
}

impl Position {
    /// Of a namespace below the root, by the names from the root on.
    pub(crate) fn new(tree: Arc<Tree>, path: Vec<Box<str>>) -> Self {
        Self { tree, path }
    }

    /// Of a namespace right below this one.
    pub(crate) fn below(&self, name: &str) -> Self {
        let path = self.path.iter().cloned().chain([name.into()]).collect();
        Self { tree: Arc::clone(&self.tree), path }
    }

    /// How far the namespace is below the root.
    pub(crate) fn depth(&self) -> u32 {
        u32::try_from(self.path.len().saturating_sub(1)).unwrap_or(u32::MAX)
    }

    /// The name of the root.
    pub(crate) fn root(&self) -> &str {
        self.path.first().map_or("", |name| name)
    }

    /// As the annotation has it.
    pub(crate) fn path(&self) -> String {
        self.path.join("/")
    }

    /// The labels of the namespace, but for that of its children. `created_by`: the uid of its Subnamespace; a root has none.
    pub(crate) fn labels(&self, created_by: Option<&str>) -> BTreeMap<String, String> {
        let distances = self.path.iter().rev().zip(0_u32..);
        let mut labels: BTreeMap<String, String> = distances
            .map(|(name, distance)| (format!("{name}{LABEL_DEPTH_SUFFIX}"), distance.to_string()))
            .collect();
        labels.insert(LABEL_ROOT.to_owned(), self.root().to_owned());
        if let Some(uid) = created_by {
            labels.insert(LABEL_SUBNAMESPACE.to_owned(), uid.to_owned());
            let parent = self.path.iter().rev().nth(1).map_or("", |name| name);
            labels.insert(LABEL_PARENT.to_owned(), parent.to_owned());
        }
        labels
    }
}

/// Whether a label says something about trees: only we write these.
fn is_ours(key: &str) -> bool {
    [LABEL_CHILDREN, LABEL_PARENT, LABEL_ROOT, LABEL_SUBNAMESPACE].contains(&key)
        || key.ends_with(LABEL_DEPTH_SUFFIX)
}

/// What has to change for a namespace to have these labels about trees, and no others; nothing if it has. `children`: how many
/// Subnamespaces are in it.
pub(crate) fn label_changes(
    now: &Labels,
    wanted: &BTreeMap<String, String>,
    children: usize,
) -> BTreeMap<String, Option<String>> {
    let mut changes: BTreeMap<String, Option<String>> = wanted
        .iter()
        .filter(|(key, value)| now.get(key) != Some(value.as_str()))
        .map(|(key, value)| (key.clone(), Some(value.clone())))
        .collect();
    let extra = now.iter().filter(|(key, _)| is_ours(key) && !wanted.contains_key(*key));
    // As long as there are children, whatever the label's value is: it changes with each of them.
    let extra = extra.filter(|(key, _)| *key != LABEL_CHILDREN || children == 0);
    changes.extend(extra.map(|(key, _)| (key.to_owned(), None)));
    if children > 0 && now.get(LABEL_CHILDREN).is_none() {
        changes.insert(LABEL_CHILDREN.to_owned(), Some("true".to_owned()));
    }
    changes
}

/// Whether one of these patterns permits a Subnamespace of this name.
pub(crate) fn permits(patterns: &[String], position: &Position, name: &str) -> bool {
    let parent = position.path.last().map_or("", |name| name);
    patterns.iter().any(|pattern| {
        let pattern = pattern.replace("{parent}", parent).replace("{root}", position.root());
        glob::matches(&pattern, name)
    })
}
