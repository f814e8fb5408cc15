//! What is read of trees of namespaces, at one instant: of a cluster or of files; and what there is of each namespace.

pub(crate) mod creation;
mod live;
pub(crate) mod picture;
pub(crate) mod pod_defaults;
pub(crate) mod sources;

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, bail};
use coppice_api::condition::{READY, find};
use coppice_api::names::{ANNOTATION_LEDGER, LABEL_TREE, TREE_QUOTA_NAME};
use coppice_api::{
    DecodeError, NamespaceTreeSpec, NamespaceTreeStatus, SubnamespaceSpec, SubnamespaceStatus,
};
use coppice_hierarchy::{Ledger, Resources};
use coppice_quantity::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::Value;
use thiserror::Error;

use crate::facts::Object;
use crate::files::Document;
use crate::terminal::Paragraph;
use crate::{print, validate};

pub(crate) use live::{live, subnamespace, subnamespaces};

/// A `NamespaceTree`.
pub(crate) type NamespaceTree = Object<NamespaceTreeSpec, NamespaceTreeStatus>;
/// A `Subnamespace`.
pub(crate) type Subnamespace = Object<SubnamespaceSpec, SubnamespaceStatus>;

/// What there is.
#[derive(Debug, Default)]
pub(crate) struct TreeSnapshot {
    /// By name.
    pub(crate) trees: Vec<NamespaceTree>,
    /// By the namespace that they are in, and name.
    subnamespaces: BTreeMap<(String, String), Subnamespace>,
    /// The quotas of trees by namespace; or why they cannot be understood.
    quotas: BTreeMap<String, Result<NamespaceQuota, QuotaError>>,
    /// Remarks on how the snapshot was made.
    pub(crate) warnings: Vec<String>,
}

/// What the native quota of a namespace says.
#[derive(Debug)]
pub(crate) struct NamespaceQuota {
    /// The name of its tree.
    pub(crate) tree: String,
    pub(crate) own: Resources,
    pub(crate) used: Resources,
    pub(crate) ledger: Ledger,
}

/// What of a quota cannot be understood.
#[derive(Debug, Error)]
pub(crate) enum QuotaError {
    #[error("{path}: {error}")]
    Amounts { path: &'static str, error: serde_json::Error },
    #[error("the annotation {ANNOTATION_LEDGER} of its ResourceQuota: {0}")]
    Ledger(serde_json::Error),
}

/// A namespace of a tree, with those below it.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) namespace: String,
    /// How far it is below the root.
    pub(crate) depth: usize,
    /// `Ready` or `NotReady` of a root; none where the object cannot be read.
    pub(crate) phase: Option<&'static str>,
    /// Why it is not ready.
    pub(crate) reason: String,
    pub(crate) message: String,
    /// What is asked for it.
    pub(crate) requested: Option<Resources>,
    /// What it and all below it have.
    pub(crate) allotted: Option<Resources>,
    /// What of that those below it have, or are being given.
    pub(crate) given: Option<Resources>,
    /// What its own workloads use,
    pub(crate) used: Option<Resources>,
    /// and may use besides.
    pub(crate) free: Option<Resources>,
    pub(crate) children: Vec<Self>,
}

impl Node {
    /// This one and all below it, each with its place: the names from the top down.
    pub(crate) fn walk<'a>(&'a self, above: &str, visit: &mut impl FnMut(&'a Self, &str)) {
        let path =
            if above.is_empty() { self.namespace.clone() } else { format!("{above}/{}", self.namespace) };
        visit(self, &path);
        for child in &self.children {
            child.walk(&path, visit);
        }
    }
}

impl TreeSnapshot {
    /// A snapshot of documents. All problems in objects of our kinds are reported at once.
    pub(crate) fn of_documents(documents: &[Document]) -> Result<Self> {
        let (mut snapshot, mut problems) = (Self::default(), Vec::new());
        for (place, object) in documents.iter().flat_map(Document::objects) {
            let kind = object["kind"].as_str().unwrap_or_default().to_owned();
            match (object["apiVersion"].as_str().unwrap_or_default(), kind.as_str()) {
                ("", _) | (_, "") => bail!("{place}: apiVersion or kind is missing"),
                ("coppice.dev/v1alpha1", "NamespaceTree" | "Subnamespace") => {
                    let name = object.pointer("/metadata/name").and_then(Value::as_str);
                    let name = name.unwrap_or("without a name").to_owned();
                    let found = validate::check(&object);
                    problems
                        .extend(found.iter().map(|problem| format!("{place} ({kind} {name}): {problem}")));
                    // What cannot be read has been reported.
                    let _ = snapshot.add_own(&kind, object);
                }
                ("v1", "ResourceQuota") => snapshot.add_quota(&object),
                _ => {}
            }
        }
        if problems.is_empty() {
            return Ok(snapshot);
        }
        let first = format!("{} found:", print::count(problems.len(), "problem"));
        Err(Paragraph { first, below: problems }.into())
    }

    /// The Subnamespaces alone.
    pub(crate) fn into_subnamespaces(self) -> Vec<Subnamespace> {
        self.subnamespaces.into_values().collect()
    }

    fn add_own(&mut self, kind: &str, object: Value) -> Result<(), serde_json::Error> {
        if kind == "NamespaceTree" {
            self.trees.push(NamespaceTree::from_json(object)?);
            self.trees.sort_by(|a, b| a.name().cmp(b.name()));
        } else {
            let object = Subnamespace::from_json(object)?;
            self.subnamespaces.insert((object.namespace().to_owned(), object.name().to_owned()), object);
        }
        Ok(())
    }

    /// Keeps a quota, if it is one of a tree.
    fn add_quota(&mut self, object: &Value) {
        let metadata = &object["metadata"];
        if metadata["name"] != TREE_QUOTA_NAME || metadata["labels"][LABEL_TREE].is_null() {
            return;
        }
        let namespace = metadata["namespace"].as_str().unwrap_or_default().to_owned();
        self.quotas.insert(namespace, NamespaceQuota::of(object));
    }

    /// The trees and namespaces of that name with all below them; of no name, every tree.
    pub(crate) fn nodes(&self, name: Option<&str>) -> Vec<(Option<&str>, Node)> {
        let root = |tree: &NamespaceTree| tree.spec.as_ref().map_or("", |spec| spec.root.as_str()).to_owned();
        let of_tree = |tree| (Some(NamespaceTree::name(tree)), self.root(tree));
        let Some(name) = name else { return self.trees.iter().map(of_tree).collect() };
        if let Some(tree) = self.trees.iter().find(|tree| tree.name() == name || root(tree) == name) {
            return vec![of_tree(tree)];
        }
        let created = |object: &&Subnamespace| object.status.namespace_uid.is_some();
        let named: Vec<&Subnamespace> = self.subnamespaces.values().filter(|o| o.name() == name).collect();
        // Where several ask for the name, one at most has created the namespace.
        let objects = match named.iter().find(|object| created(object)) {
            Some(object) => vec![*object],
            None => named,
        };
        let mut seen = BTreeSet::new();
        let found: Vec<_> = objects
            .into_iter()
            .map(|object| {
                let tree = Some(object.status.tree.as_str()).filter(|tree| !tree.is_empty());
                (tree, self.child(object, usize::try_from(object.status.depth).unwrap_or(0), &mut seen))
            })
            .collect();
        let below = || self.subnamespaces.keys().any(|(parent, _)| parent == name);
        if found.is_empty() && (self.quotas.contains_key(name) || below()) {
            // Its own object is in a namespace that cannot be read.
            return vec![(None, self.unknown(name, &mut seen))];
        }
        found
    }

    fn root(&self, tree: &NamespaceTree) -> Node {
        let spec = tree.spec.as_ref();
        let root = spec.map_or("", |spec| spec.root.as_str());
        let ready = find(&tree.status.conditions, READY);
        let is_ready = ready.is_some_and(|ready| ready.status == "True");
        let mut seen = BTreeSet::new();
        let mut node = self.unknown(root, &mut seen);
        node.children.extend(self.stranded(tree.name(), &mut seen));
        node.phase = Some(if is_ready { "Ready" } else { "NotReady" });
        node.requested = spec.ok().and_then(|spec| resources(&spec.quota.hard));
        node.allotted = node.allotted.or_else(|| Resources::recorded(&tree.status.allotment).ok());
        let error = tree.spec.as_ref().err().or(tree.status_error.as_ref());
        node.say(why(ready, is_ready, error, "NamespaceTree"));
        node
    }

    /// Those that have a quota of the tree and no Subnamespace, which went with the root.
    fn stranded(&self, tree: &str, seen: &mut BTreeSet<String>) -> Vec<Node> {
        let has_object = |of: &str| self.subnamespaces.keys().any(|(_, name)| name == of);
        let mut names = Vec::new();
        for (namespace, quota) in &self.quotas {
            let of_tree = quota.as_ref().is_ok_and(|quota| quota.tree == tree);
            if of_tree && !seen.contains(namespace) && !has_object(namespace) {
                names.push(namespace);
            }
        }
        let mut nodes = Vec::new();
        for name in names {
            let mut node = self.unknown(name, seen);
            node.deepen(1);
            nodes.push(node);
        }
        nodes
    }

    fn child(&self, object: &Subnamespace, depth: usize, seen: &mut BTreeSet<String>) -> Node {
        let status = &object.status;
        let mut node = match &status.namespace_uid {
            Some(_) => self.unknown(object.name(), seen),
            // A namespace of this name is somebody else's.
            None => Node::empty(object.name()),
        };
        node.deepen(depth);
        let quota = object.spec.as_ref().ok().map(|spec| spec.quota.as_ref());
        node.requested =
            quota.and_then(|quota| quota.map_or_else(|| Some(Resources::default()), |q| resources(&q.hard)));
        node.allotted =
            status.allotment.as_ref().and_then(|has| Resources::recorded(&has.hard).ok()).or(node.allotted);
        node.phase = status.phase.map(coppice_api::SubnamespacePhase::as_str);
        let ready = find(&status.conditions, READY);
        let error = object.spec.as_ref().err().or(object.status_error.as_ref());
        node.say(why(ready, node.phase == Some("Ready"), error, "Subnamespace"));
        node
    }

    /// A namespace of which its quota alone is known, and what is below it.
    fn unknown(&self, namespace: &str, seen: &mut BTreeSet<String>) -> Node {
        let mut node = Node::empty(namespace);
        match self.quotas.get(namespace) {
            Some(Ok(NamespaceQuota { own, used, ledger, .. })) => {
                node.allotted = Some(ledger.allotment.clone());
                node.given = Some(ledger.given.clone());
                node.free = Some(own.minus(used));
                node.used = Some(used.clone());
            }
            Some(Err(why)) => node.message = why.to_string(),
            None => {}
        }
        // Objects that name each other in a ring are no tree.
        if seen.insert(namespace.to_owned()) {
            let first = (namespace.to_owned(), String::new());
            let children =
                self.subnamespaces.range(first..).take_while(|((parent, _), _)| parent == namespace);
            node.children = children.map(|(_, object)| self.child(object, 1, seen)).collect();
        }
        node
    }
}

impl Node {
    fn empty(namespace: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            depth: 0,
            phase: None,
            reason: String::new(),
            message: String::new(),
            requested: None,
            allotted: None,
            given: None,
            used: None,
            free: None,
            children: Vec::new(),
        }
    }

    /// Its object says more than its quota.
    fn say(&mut self, (reason, message): (String, String)) {
        if !message.is_empty() {
            (self.reason, self.message) = (reason, message);
        }
    }

    fn deepen(&mut self, by: usize) {
        self.depth += by;
        for child in &mut self.children {
            child.deepen(by);
        }
    }
}

impl NamespaceQuota {
    /// Of a ResourceQuota.
    pub(crate) fn of(object: &Value) -> Result<Self, QuotaError> {
        let amounts = |path: &'static str| match object.pointer(path) {
            None => Ok(Resources::default()),
            Some(amounts) => {
                serde_json::from_value(amounts.clone()).map_err(|error| QuotaError::Amounts { path, error })
            }
        };
        let ledger = object["metadata"]["annotations"][ANNOTATION_LEDGER].as_str().unwrap_or("null");
        let ledger = serde_json::from_str(ledger).map_err(QuotaError::Ledger)?;
        let tree = object["metadata"]["labels"][LABEL_TREE].as_str().unwrap_or_default().to_owned();
        Ok(Self { tree, own: amounts("/spec/hard")?, used: amounts("/status/used")?, ledger })
    }
}

fn resources(hard: &BTreeMap<String, Quantity>) -> Option<Resources> {
    Resources::of(hard).ok()
}

/// Reason and message of what is not ready.
fn why(
    ready: Option<&Condition>,
    is_ready: bool,
    error: Option<&DecodeError>,
    kind: &str,
) -> (String, String) {
    match (ready, error) {
        (_, Some(error)) => (String::new(), error.to_string()),
        (_, None) if is_ready => (String::new(), String::new()),
        (Some(ready), None) => (ready.reason.clone(), ready.message.clone()),
        (None, None) => {
            let message = format!(
                "nobody has looked at this {kind} yet: see whether coppice-trees runs (kubectl -n coppice-system get deployment \
                 coppice-trees)"
            );
            (String::new(), message)
        }
    }
}
