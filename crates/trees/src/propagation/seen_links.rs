//! What was seen of the Subnamespaces that very many are right below: most changes of one concern nobody below it.

use coppice_kinds::{SubnamespaceObject, Subnamespaces};
use coppice_runtime::store::Store;

use crate::index::SubnamespaceName;
use crate::last_seen::LastSeen;

/// What of each makes the namespaces below it be there, by its namespace and name.
#[derive(Debug, Default)]
pub(super) struct SeenLinks(LastSeen<SubnamespaceName, Link>);

#[derive(Debug, PartialEq, Eq)]
struct Link {
    uid: Box<str>,
    namespace_uid: Option<String>,
    understood: bool,
}

impl Link {
    fn of(object: &SubnamespaceObject) -> Self {
        Self {
            uid: object.uid.clone(),
            namespace_uid: object.status.namespace_uid.clone(),
            understood: object.status_error.is_none(),
        }
    }
}

impl SeenLinks {
    /// Whether those below a Subnamespace may be elsewhere since this was asked last.
    pub(super) fn changed(&self, all: &Store<Subnamespaces>, namespace: &str, name: &str) -> bool {
        let now = all.get(namespace, name).map(|object| Link::of(&object));
        self.0.changed((namespace.into(), name.into()), now)
    }

    /// Nobody asks about it any more.
    pub(super) fn remove_link(&self, namespace: &str, name: &str) {
        self.0.replace((namespace.into(), name.into()), None);
    }
}

#[cfg(test)]
mod tests {
    use coppice_runtime::read;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn that_more_are_below_changes_nothing_for_them() {
        let (seen, all) = (SeenLinks::default(), Store::<Subnamespaces>::default());
        let put = |status: Value| {
            let metadata = json!({"name": "shop-web", "namespace": "shop", "uid": "u"});
            let written = json!({"metadata": metadata, "spec": {}, "status": status}).to_string();
            all.upsert("shop", read::decoded::<Subnamespaces>(written.as_bytes(), &()).unwrap());
            seen.changed(&all, "shop", "shop-web")
        };
        let changed = [
            put(json!({})),
            put(json!({"namespaceUid": "n", "children": 1})),
            put(json!({"namespaceUid": "n", "children": 2, "phase": "Ready"})),
            put(json!({"namespaceUid": 1})),
            put(json!({"namespaceUid": "n", "children": 2})),
        ];
        assert_eq!(changed, [true, true, false, true, true]);
        seen.remove_link("shop", "shop-web");
        assert!(seen.changed(&all, "shop", "shop-web"));
        all.remove_if("shop", "shop-web", |_| true);
        assert_eq!([(); 2].map(|()| seen.changed(&all, "shop", "shop-web")), [true, false]);
    }
}
