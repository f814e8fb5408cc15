//! What a controller has seen of each tree. Its status says every second how large it is while it grows, which concerns nobody in it.

use coppice_kinds::{NamespaceTrees, Tree};
use coppice_runtime::store::Store;

use crate::last_seen::LastSeen;

/// What was seen of each tree last, as far as it concerns those in it, and how large it was.
#[derive(Debug, Default)]
pub(crate) struct SeenTrees(LastSeen<Box<str>, (Seen, u32)>);

/// What has become of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TreeChange {
    /// It is another for those in it.
    Changed,
    /// It has fewer namespaces, and is the same otherwise.
    Smaller,
    /// It is the same, or larger.
    Same,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    uid: Box<str>,
    generation: i64,
    terminating: bool,
    /// Whether its spec and its status are understood.
    understood: bool,
    root_uid: Option<String>,
}

impl Seen {
    fn of(tree: &Tree) -> Self {
        Self {
            uid: tree.uid.clone(),
            generation: tree.generation,
            terminating: tree.terminating,
            understood: tree.decoded().is_ok(),
            root_uid: tree.status.root_uid.clone(),
        }
    }
}

impl SeenTrees {
    /// What has become of a tree since this was asked last.
    pub(crate) fn change(&self, trees: &Store<NamespaceTrees>, name: &str) -> TreeChange {
        let now = trees.get("", name).map(|tree| (Seen::of(&tree), tree.status.namespaces));
        match (self.0.replace(name.into(), now.clone()), now) {
            (Some((before, size)), Some((now, size_now))) if before == now => {
                if size_now < size {
                    TreeChange::Smaller
                } else {
                    TreeChange::Same
                }
            }
            (None, None) => TreeChange::Same,
            _ => TreeChange::Changed,
        }
    }
}

#[cfg(test)]
mod tests {
    use coppice_runtime::read;
    use serde_json::{Value, json};

    use super::TreeChange::{Changed, Same, Smaller};
    use super::*;

    #[test]
    fn a_tree_that_is_larger_is_the_same_for_those_in_it() {
        let (seen, trees) = (SeenTrees::default(), Store::<NamespaceTrees>::default());
        let put = |metadata: Value, status: Value| {
            let mut written = json!({
                "metadata": {"name": "shop", "uid": "u", "generation": 1},
                "spec": {"root": "shop", "quota": {"hard": {"pods": "20"}}}, "status": status
            });
            for (key, value) in metadata.as_object().unwrap() {
                written["metadata"][key] = value.clone();
            }
            trees.upsert("", read::decoded::<NamespaceTrees>(written.to_string().as_bytes(), &()).unwrap());
            seen.change(&trees, "shop")
        };
        let deleted = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
        let ready = |namespaces: u32| json!({"rootUid": "r", "namespaces": namespaces});
        let changed = [
            put(json!({}), json!({})),
            put(json!({}), json!({})),
            put(json!({}), ready(1)),
            put(json!({}), ready(2)),
            put(json!({}), ready(1)),
            put(json!({"generation": 2}), ready(1)),
            put(deleted, ready(1)),
        ];
        assert_eq!(changed, [Changed, Same, Changed, Same, Smaller, Changed, Changed]);
        trees.remove_if("", "shop", |_| true);
        assert_eq!([seen.change(&trees, "shop"), seen.change(&trees, "shop")], [Changed, Same]);
    }
}
