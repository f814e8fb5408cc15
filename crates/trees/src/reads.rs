//! Reads straight from the API server, for what must not be decided by caches: one of them may be behind another.

use std::sync::Arc;

use coppice_api::names::LABEL_PARENT;
use coppice_kinds::{NamespaceTrees, Namespaces, SubnamespaceObject, Subnamespaces, Tree};
use coppice_lifecycle::facts::NamespaceFacts;
use coppice_runtime::read::{self, ListError};

use crate::context::MAX_PATH;
use crate::position::{Above, Place, above};

/// A namespace, and where it is.
pub(crate) struct FreshPlace {
    /// The namespace, if it is there.
    pub(crate) namespace: Option<Arc<NamespaceFacts>>,
    pub(crate) place: Place,
    /// The Subnamespaces that created it and those above it, the nearest first.
    pub(crate) creators: Vec<Arc<SubnamespaceObject>>,
}

/// Reads a namespace, those above it, and their tree.
pub(crate) async fn place(client: &kube::Client, name: &str) -> Result<FreshPlace, ListError> {
    let (mut lowest, mut creators) = (None, Vec::new());
    let mut path: Vec<Box<str>> = Vec::new();
    let mut at: Box<str> = name.into();
    let place = loop {
        let Some(namespace) = read::get::<Namespaces>(client, "", &at).await? else {
            break Place::without(&path, &at, None);
        };
        if path.len() >= MAX_PATH {
            break Place::Unknown(format!(
                "there are more than {MAX_PATH} namespaces above namespace {name}"
            ));
        }
        let named = match namespace.labels.get(LABEL_PARENT) {
            Some(parent) => read::get::<Subnamespaces>(client, parent, &at).await?.map(Arc::new),
            None => None,
        };
        let next = above(&namespace, named.as_deref());
        path.push(at);
        let namespace = Arc::new(namespace);
        lowest.get_or_insert_with(|| Arc::clone(&namespace));
        match next {
            Above::Namespace(next) => {
                creators.extend(named);
                at = next;
            }
            Above::Nothing => {
                break Place::at_root(tree_of_root(client, &namespace.name).await?, &namespace, path);
            }
            Above::Unknown(why) => break Place::Unknown(why),
        }
    };
    Ok(FreshPlace { namespace: lowest, place, creators })
}

/// The tree that this namespace is the root of. Of several trees the oldest counts.
async fn tree_of_root(client: &kube::Client, root: &str) -> Result<Option<Arc<Tree>>, ListError> {
    let all = read::list::<NamespaceTrees>(client, "").await?;
    let of_root = all.into_iter().filter(|tree| tree.spec.as_ref().is_ok_and(|spec| spec.root == root));
    let oldest = of_root.min_by(|a, b| (a.created, &a.name).cmp(&(b.created, &b.name)));
    Ok(oldest.map(Arc::new))
}
