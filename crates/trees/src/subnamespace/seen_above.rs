//! What was seen of the namespaces that very many Subnamespaces are in. With each namespace that is created below one its label changes that
//! says so, which is nothing that those below it have.

use coppice_api::Labels;
use coppice_api::names::LABEL_CHILDREN;
use coppice_lifecycle::facts::{Annotations, NamespaceFacts};

use crate::last_seen::LastSeen;
use crate::position::Position;

/// What those in each namespace may have of it, by its name.
#[derive(Debug, Default)]
pub(super) struct SeenAbove(LastSeen<String, Above>);

#[derive(Debug, PartialEq, Eq)]
struct Above {
    uid: String,
    labels: Labels,
    annotations: Annotations,
    path: String,
    /// The uid and the generation of its tree.
    tree: (Box<str>, i64),
}

impl SeenAbove {
    /// Whether those in a namespace at this place may have other things of it than when this was asked last.
    pub(super) fn changed(&self, namespace: &NamespaceFacts, position: &Position) -> bool {
        let labels = namespace.labels.iter().filter(|(key, _)| *key != LABEL_CHILDREN);
        let now = Above {
            uid: namespace.uid.clone(),
            labels: labels.collect(),
            annotations: namespace.annotations.clone(),
            path: position.path(),
            tree: (position.tree.uid.clone(), position.tree.generation),
        };
        self.0.changed(namespace.name.clone(), Some(now))
    }

    /// Nobody asks about it any more.
    pub(super) fn remove_namespace(&self, name: &str) {
        self.0.replace(name.to_owned(), None);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::plan::tests::{namespace, tree};
    use super::*;

    #[test]
    fn that_more_are_in_a_namespace_changes_nothing_for_them() {
        let (seen, position) = (SeenAbove::default(), tree(&json!({})));
        let changed = |labels: &[(&str, &str)]| seen.changed(&namespace("shop", labels), &position);
        assert!(changed(&[("team", "a"), (LABEL_CHILDREN, "one")]));
        assert!(!changed(&[("team", "a"), (LABEL_CHILDREN, "other")]));
        assert!(!changed(&[("team", "a")]));
        assert!(changed(&[("team", "b")]));
        // Another spec of the tree has other things inherited, and another place has another path.
        let other = Position::new(&position.tree, &position.spec, vec!["shop".into(), "web".into()]);
        let shop = namespace("shop", &[("team", "b")]);
        assert!(
            seen.changed(&shop, &other) && seen.changed(&shop, &position) && !seen.changed(&shop, &position)
        );
        seen.remove_namespace("shop");
        assert!(seen.changed(&shop, &position));
    }
}
