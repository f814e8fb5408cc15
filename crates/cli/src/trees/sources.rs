//! Where a namespace of a tree could get more quota from. Pure.

use coppice_api::NamespaceTreeSpec;
use coppice_hierarchy::{ResourceName, Resources, partition_between};
use coppice_quantity::Quantity;

use super::Node;

/// Where a namespace is, seen from the one that needs more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Relation {
    /// Right above it.
    Parent,
    /// Further up.
    Above,
    /// Right below it.
    Child,
    /// Further down.
    Below,
    /// Elsewhere in the tree.
    Elsewhere,
}

/// A namespace that does not use all that it has of a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct QuotaSource {
    pub(crate) namespace: String,
    pub(crate) relation: Relation,
    /// What it does not use.
    pub(crate) free: Quantity,
}

/// A namespace, and what is known of its tree.
pub(crate) struct Seen<'a> {
    pub(crate) node: &'a Node,
    /// The names from the root down to it.
    pub(crate) path: Vec<String>,
    others: Vec<(Vec<String>, &'a Resources)>,
}

impl Relation {
    /// As programs read it.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Parent => "Parent",
            Self::Above => "Above",
            Self::Child => "Child",
            Self::Below => "Below",
            Self::Elsewhere => "Elsewhere",
        }
    }

    fn of(this: &[String], other: &[String]) -> Self {
        let (this_len, other_len) = (this.len(), other.len());
        if this.starts_with(other) {
            if other_len + 1 == this_len { Self::Parent } else { Self::Above }
        } else if other.starts_with(this) {
            if this_len + 1 == other_len { Self::Child } else { Self::Below }
        } else {
            Self::Elsewhere
        }
    }
}

impl<'a> Seen<'a> {
    /// The namespace of this name among those of `top`; `above`: the names from the root down to that, without its own.
    pub(crate) fn find(top: &'a Node, above: &[String], name: &str) -> Option<Self> {
        let (mut found, mut others) = (None, Vec::new());
        top.walk(&above.join("/"), &mut |node, path| {
            let path: Vec<String> = path.split('/').map(str::to_owned).collect();
            if node.namespace == name && found.is_none() {
                found = Some((node, path));
            } else if let Some(free) = &node.free {
                others.push((path, free));
            }
        });
        let (node, path) = found?;
        Some(Self { node, path, others })
    }

    /// Who could give it something of a resource: those above and below first, then who has most. `tree`: what is known of its rules.
    pub(crate) fn sources(
        &self,
        resource: &ResourceName,
        tree: Option<&NamespaceTreeSpec>,
    ) -> Vec<QuotaSource> {
        let partitions = tree.map_or(&[][..], |tree| &tree.partitions);
        let mut sources: Vec<QuotaSource> = self
            .others
            .iter()
            .filter(|(path, _)| partition_between(&self.path, path, partitions).is_none())
            .filter_map(|(path, free)| {
                let source = QuotaSource {
                    namespace: path.last()?.clone(),
                    relation: Relation::of(&self.path, path),
                    free: free.get(resource),
                };
                (!source.free.is_zero()).then_some(source)
            })
            .collect();
        sources.sort_by(|a, b| (a.relation, b.free, &a.namespace).cmp(&(b.relation, a.free, &b.namespace)));
        sources
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, pods: &str, children: Vec<Node>) -> Node {
        let free = serde_json::from_value(serde_json::json!({ "pods": pods })).unwrap();
        Node { free: Some(free), children, ..Node::empty(name) }
    }

    fn top() -> Node {
        let web = node(
            "web",
            "0",
            vec![node("web-a", "3", vec![node("web-a-x", "1", vec![])]), node("web-b", "0", vec![])],
        );
        node(
            "shop",
            "2",
            vec![node("api", "5", vec![node("api-a", "7", vec![])]), node("gpu", "9", vec![]), web],
        )
    }

    fn sources(name: &str, partitions: &[&str]) -> Vec<String> {
        let top = top();
        let seen = Seen::find(&top, &[], name).unwrap();
        let tree = NamespaceTreeSpec {
            partitions: partitions.iter().map(|name| (*name).to_owned()).collect(),
            ..serde_json::from_value(serde_json::json!({"root": "shop", "quota": {"hard": {"pods": "40"}}}))
                .unwrap()
        };
        let sources = seen.sources(&"pods".parse().unwrap(), Some(&tree));
        sources.iter().map(|s| format!("{} {} {}", s.relation.as_str(), s.namespace, s.free)).collect()
    }

    #[test]
    fn who_is_near_comes_first_and_then_who_has_most() {
        assert_eq!(
            sources("web", &[]),
            [
                "Parent shop 2",
                "Child web-a 3",
                "Below web-a-x 1",
                "Elsewhere gpu 9",
                "Elsewhere api-a 7",
                "Elsewhere api 5"
            ]
        );
        assert_eq!(sources("web-a", &["web"]), ["Above shop 2", "Child web-a-x 1"]);
        assert_eq!(sources("api", &["gpu"])[..2], ["Parent shop 2", "Child api-a 7"]);
        assert!(!sources("api", &["gpu"]).iter().any(|source| source.contains("gpu")));
        // From and to the root everything leads.
        assert_eq!(sources("shop", &["gpu"])[0], "Child gpu 9");
        assert_eq!(sources("gpu", &["gpu"]), ["Parent shop 2"]);
    }

    #[test]
    fn what_is_above_may_be_known_by_name_alone() {
        let top = node("web", "1", vec![node("web-a", "0", vec![])]);
        let above = ["shop".to_owned()];
        let seen = Seen::find(&top, &above, "web-a").unwrap();
        assert_eq!(seen.path, ["shop", "web", "web-a"]);
        assert_eq!(seen.sources(&"pods".parse().unwrap(), None)[0].relation, Relation::Parent);
        assert!(Seen::find(&top, &above, "api").is_none());
    }
}
