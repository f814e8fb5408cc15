//! Where a namespace is in its tree. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use coppice_api::names::{LABEL_CHILDREN, LABEL_DEPTH_SUFFIX, LABEL_PARENT, LABEL_ROOT, LABEL_SUBNAMESPACE};
use coppice_api::{DeletionPolicy, Labels};
use coppice_hierarchy::ValidTree;
use coppice_kinds::{SubnamespaceObject, Tree};
use coppice_lifecycle::facts::NamespaceFacts;

/// Where a namespace is.
#[derive(Clone, Debug)]
pub(crate) struct Position {
    pub(crate) tree: Arc<Tree>,
    /// What the tree says.
    pub(crate) spec: Arc<ValidTree>,
    /// The names from the root down to the namespace.
    path: Vec<Box<str>>,
}

/// Whether a namespace is in a tree.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    /// There.
    In(Position),
    /// In none.
    Out,
    /// It is not known: nothing that rests on it is done or undone.
    Unknown(String),
}

/// What is above a namespace.
pub(crate) enum Above {
    /// The namespace with the Subnamespace that created it.
    Namespace(Box<str>),
    /// Nothing: no Subnamespace created it.
    Nothing,
    /// It is not known.
    Unknown(String),
}

/// What is above a namespace. `named`: the Subnamespace that its labels name, if there is one; its uid says whether it is the one.
pub(crate) fn above(namespace: &NamespaceFacts, named: Option<&SubnamespaceObject>) -> Above {
    let Some(named) = named else { return Above::Nothing };
    if let Some(error) = &named.status_error {
        return Above::Unknown(format!("Subnamespace {}/{}: {error}", named.namespace, named.name));
    }
    match named.status.namespace_uid.as_deref() {
        Some(uid) if uid == namespace.uid => Above::Namespace(named.namespace.clone()),
        Some(_) => Above::Nothing,
        None => Above::Unknown(format!(
            "Subnamespace {}/{} has not taken up its namespace yet",
            named.namespace, named.name
        )),
    }
}

impl Place {
    /// Of a namespace that is not there, or (with why) cannot be understood, as are the last above those of the path.
    pub(crate) fn without(path: &[Box<str>], name: &str, unreadable: Option<String>) -> Self {
        match (unreadable, path.is_empty()) {
            (Some(why), _) => Self::Unknown(format!("a namespace is not known: {why}")),
            (None, true) => Self::Out,
            (None, false) => Self::Unknown(format!("namespace {name}, which is above, is missing")),
        }
    }

    /// Of a namespace right below one of this place, which is there.
    pub(crate) fn below(&self, name: &str) -> Self {
        match self {
            Self::In(position) => Self::In(position.below(name)),
            Self::Out => Self::Out,
            Self::Unknown(why) => Self::Unknown(why.clone()),
        }
    }

    /// Of the lowest namespace of a path that ends with a namespace which no Subnamespace created, and that is the root of this tree.
    pub(crate) fn at_root(tree: Option<Arc<Tree>>, root: &NamespaceFacts, mut path: Vec<Box<str>>) -> Self {
        let Some(tree) = tree else { return Self::Out };
        let known = tree.status.root_uid.as_deref();
        // What was in a root that is another one now comes apart as the rest does.
        let comes_apart = known.is_some() && is_detaching(&tree);
        if known != Some(root.uid.as_str()) && !comes_apart {
            let why = format!("NamespaceTree {} is not set up yet: its condition Ready says why", tree.name);
            return Self::Unknown(why);
        }
        path.reverse();
        match tree.decoded_shared() {
            Ok(spec) => Self::In(Position::new(&tree, spec, path)),
            Err(why) => Self::Unknown(format!("NamespaceTree {}: {why}", tree.name)),
        }
    }
}

impl Place {
    /// Of a path that ends with a namespace which was right below the root of this tree.
    pub(crate) fn below_lost_root(tree: &Arc<Tree>, mut path: Vec<Box<str>>) -> Self {
        match tree.decoded_shared() {
            Ok(spec) => {
                path.push(spec.root.as_str().into());
                path.reverse();
                Self::In(Position::new(tree, spec, path))
            }
            Err(why) => Self::Unknown(format!("NamespaceTree {}: {why}", tree.name)),
        }
    }
}

impl Position {
    /// The names of the namespaces above, the nearest first.
    pub(crate) fn ancestors(&self) -> impl Iterator<Item = &str> {
        self.path.iter().rev().skip(1).map(|name| &**name)
    }

    /// Of a namespace in the tree that has this spec, by the names from the root on.
    pub(crate) fn new(tree: &Arc<Tree>, spec: &Arc<ValidTree>, path: Vec<Box<str>>) -> Self {
        Self { tree: Arc::clone(tree), spec: Arc::clone(spec), path }
    }

    /// Of a namespace right below this one.
    pub(crate) fn below(&self, name: &str) -> Self {
        let path = self.path.iter().cloned().chain([name.into()]).collect();
        Self { tree: Arc::clone(&self.tree), spec: Arc::clone(&self.spec), path }
    }

    /// How far the namespace is below the root.
    pub(crate) fn depth(&self) -> u32 {
        u32::try_from(self.path.len().saturating_sub(1)).unwrap_or(u32::MAX)
    }

    /// The names from the root down to the namespace.
    pub(crate) fn names(&self) -> &[Box<str>] {
        &self.path
    }

    /// The name of the root.
    pub(crate) fn root(&self) -> &str {
        self.path.first().map_or("", |name| name)
    }

    /// Whether its namespaces are being taken out of the tree.
    pub(crate) fn is_detaching(&self) -> bool {
        is_detaching(&self.tree)
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

/// Whether the namespaces of a tree are being taken out of it. Nobody can take a deletion back, so this holds until the tree is gone.
pub(crate) fn is_detaching(tree: &Tree) -> bool {
    tree.terminating && tree.decoded().is_ok_and(|spec| spec.deletion_policy == DeletionPolicy::Detach)
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
