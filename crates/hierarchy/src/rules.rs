//! What a tree permits besides its quota: names, depth, number, what requests have to name, labels and annotations.

use std::collections::BTreeMap;

use coppice_api::Reason;
use coppice_api::metadata::NamespaceMetadata;
use coppice_lifecycle::glob::permits;
use coppice_lifecycle::settings::SpecRefusal;
use coppice_quantity::count;

use crate::resource_name::ResourceName;
use crate::resources::Resources;
use crate::valid_spec::ValidTree;

/// The rules of a tree.
#[derive(Clone, Copy, Debug)]
pub struct Rules<'a> {
    /// The name of the `NamespaceTree`.
    pub tree: &'a str,
    /// What it says.
    pub spec: &'a ValidTree,
}

/// A namespace that is to be created.
#[derive(Clone, Copy, Debug)]
pub struct NewNamespace<'a> {
    /// The root of the tree.
    pub root: &'a str,
    /// The namespace right above.
    pub parent: &'a str,
    /// Its name.
    pub name: &'a str,
    /// How far below the root it would be.
    pub depth: u32,
    /// How many namespaces the tree has without it, its root included.
    pub namespaces: u32,
}

impl Rules<'_> {
    /// Why a namespace may not be created, whatever quota it asks for; nothing if it may.
    pub fn against(&self, new: &NewNamespace<'_>) -> Vec<SpecRefusal> {
        let Self { tree, spec } = self;
        let NewNamespace { root, parent, name, depth, namespaces } = *new;
        let mut broken = Vec::new();
        if !permits(&spec.names, (root, parent), name) {
            let patterns = spec.names.join(", ").replace("{parent}", parent).replace("{root}", root);
            broken.push(SpecRefusal {
                reason: Reason::NameNotAllowed,
                message: format!(
                    "NamespaceTree {tree} permits no namespace {name} in {parent}: name it by one of spec.names, here {patterns}"
                ),
            });
        }
        if depth > spec.max_depth {
            broken.push(SpecRefusal {
                reason: Reason::TooDeep,
                message: format!(
                    "namespace {name} would be {depth} below the root, and NamespaceTree {tree} permits {} (spec.maxDepth): create it \
                     further up",
                    spec.max_depth
                ),
            });
        }
        if namespaces >= spec.max_namespaces {
            broken.push(SpecRefusal {
                reason: Reason::TooManyNamespaces,
                message: format!(
                    "NamespaceTree {tree} has {} and permits {} (spec.maxNamespaces): delete a Subnamespace that \
                     nobody needs",
                    count(namespaces, "namespace"),
                    spec.max_namespaces
                ),
            });
        }
        broken
    }

    /// Whether a request leaves out what the tree requires of every one.
    pub fn against_request(&self, asked: &Resources) -> Option<SpecRefusal> {
        let required = self.spec.required.iter();
        let missing: Vec<&str> =
            required.filter(|name| !asked.names(name)).map(ResourceName::as_str).collect();
        let message = format!(
            "spec.quota.hard does not name {}, which NamespaceTree {} requires (spec.quota.required): write an amount of each, 0 for none \
             of it",
            missing.join(", "),
            self.tree
        );
        (!missing.is_empty()).then_some(SpecRefusal { reason: Reason::InvalidSpec, message })
    }

    /// Whether labels or annotations are asked for that the tree does not allow.
    pub fn against_metadata(&self, asked: &NamespaceMetadata) -> Option<SpecRefusal> {
        let allowed = &self.spec.metadata.allowed;
        let kinds = [
            ("labels", &asked.labels, &allowed.labels),
            ("annotations", &asked.annotations, &allowed.annotations),
        ];
        let (field, keys, allowed) = kinds.into_iter().find_map(|(field, asked, allowed)| {
            let keys = not_among(asked, allowed);
            (!keys.is_empty()).then_some((field, keys, allowed))
        })?;
        let allowed = if allowed.is_empty() { "none".to_owned() } else { allowed.join(", ") };
        let message = format!(
            "spec.metadata.{field} names {}, which NamespaceTree {} does not allow (spec.metadata.allowed.{field}: {allowed}): leave it \
             out, or ask the platform to allow it",
            keys.join(", "),
            self.tree
        );
        Some(SpecRefusal { reason: Reason::MetadataNotAllowed, message })
    }
}

/// The partition that one of two namespaces is in, or is, and the other is not: no transfer leads from one to the other. None if one of
/// them is the root. Each is given by the names from the root down to it.
pub fn partition_between<'a, N: AsRef<str>>(
    one: &'a [N],
    other: &'a [N],
    partitions: &[String],
) -> Option<&'a str> {
    let (one, other) = (one.get(1)?.as_ref(), other.get(1)?.as_ref());
    let is_partition = |branch: &&str| partitions.iter().any(|name| name == branch);
    [one, other].into_iter().filter(|_| one != other).find(is_partition)
}

fn not_among<'a>(asked: &'a BTreeMap<String, String>, allowed: &[String]) -> Vec<&'a str> {
    asked.keys().filter(|key| !allowed.contains(key)).map(String::as_str).collect()
}
