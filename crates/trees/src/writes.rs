//! Writes of the objects of Kubernetes that trees consist of: quotas and namespaces. Caches learn of them by their watches, which wake
//! whoever else waits for them.

use std::collections::BTreeMap;

use coppice_api::metadata::NamespaceMetadata;
use coppice_api::names::{ANNOTATION_LEDGER, ANNOTATION_PATH, LABEL_CHILDREN, LABEL_TREE, TREE_QUOTA_NAME};
use coppice_hierarchy::{Ledger, Resources};
use coppice_kinds::{Namespaces, TreeQuota, TreeQuotas};
use coppice_lifecycle::facts::NamespaceFacts;
use coppice_runtime::leader::Permit;
use coppice_runtime::write::{self, Revision, WriteError};
use serde_json::{Value, json};

use crate::context::TreeContext;
use crate::metadata::NamespaceChanges;
use crate::position::Position;

fn ledger_text(ledger: &Ledger) -> Result<String, WriteError> {
    serde_json::to_string(ledger).map_err(|error| WriteError::refused(error.to_string()))
}

/// Writes limits and ledger of a namespace's quota, which is created if there is none, and otherwise is as it was read. Returns it as it
/// is then.
pub(crate) async fn quota(
    context: &TreeContext,
    permit: &Permit,
    (tree, namespace): (&str, &str),
    now: Option<&TreeQuota>,
    ledger: &Ledger,
) -> Result<TreeQuota, WriteError> {
    let (clients, own) = (&context.shared.clients, ledger.own());
    let annotations = json!({ANNOTATION_LEDGER: ledger_text(ledger)?});
    match now {
        None => {
            let object = json!({
                "apiVersion": "v1", "kind": "ResourceQuota",
                "metadata": {"name": TREE_QUOTA_NAME, "labels": {LABEL_TREE: tree}, "annotations": annotations},
                "spec": {"hard": own}
            });
            write::create_object::<TreeQuotas>(clients, permit, namespace, &object).await
        }
        Some(now) => {
            let known = now.quota.iter().flat_map(|quota| quota.hard.iter()).map(|(name, _)| name.as_str());
            // Under another name an amount would stay, and the quota would be written again for ever.
            let aliases = now.aliases.iter().map(|alias| &**alias);
            let hard = replaced(known.chain(aliases), &own);
            let mut fields = json!({"metadata": {"annotations": annotations}, "spec": {"hard": hard}});
            if !tree.is_empty() && now.tree.as_deref().is_some_and(|known| known != tree) {
                fields["metadata"]["labels"] = json!({LABEL_TREE: tree});
            }
            let revision = Revision { uid: &now.uid, resource_version: Some(&now.resource_version) };
            let target = (namespace, TREE_QUOTA_NAME);
            write::merge::<TreeQuotas>(clients, permit, target, revision, fields).await
        }
    }
}

/// Takes a quota out of its tree. It stays as it is, without its ledger.
pub(crate) async fn release_quota(
    context: &TreeContext,
    permit: &Permit,
    quota: &TreeQuota,
) -> Result<(), WriteError> {
    let fields =
        json!({"metadata": {"labels": {LABEL_TREE: null}, "annotations": {ANNOTATION_LEDGER: null}}});
    let revision = Revision { uid: &quota.uid, resource_version: Some(&quota.resource_version) };
    let target = (&*quota.namespace, TREE_QUOTA_NAME);
    write::merge::<TreeQuotas>(&context.shared.clients, permit, target, revision, fields).await.map(drop)
}

/// New amounts as a merge. `before`: the names that are there; what is not among the new ones is removed.
fn replaced<'a>(before: impl Iterator<Item = &'a str>, after: &'a Resources) -> Value {
    let mut hard: BTreeMap<&str, Value> = before.map(|name| (name, Value::Null)).collect();
    hard.extend(after.iter().map(|(name, amount)| (name.as_str(), json!(amount))));
    json!(hard)
}

/// Sets and removes labels and annotations of a namespace.
pub(crate) async fn metadata(
    context: &TreeContext,
    permit: &Permit,
    namespace: &NamespaceFacts,
    NamespaceChanges { labels, annotations }: &NamespaceChanges,
) -> Result<(), WriteError> {
    let revision = Revision { uid: &namespace.uid, resource_version: Some(&namespace.resource_version) };
    let mut fields = json!({"metadata": {"labels": labels}});
    if !annotations.is_empty() {
        fields["metadata"]["annotations"] = json!(annotations);
    }
    merge_namespace(context, permit, &namespace.name, revision, fields).await
}

/// Says on a namespace that there are namespaces below it: whoever has decided to delete it as it was before gets a conflict.
pub(crate) async fn mark_parent(
    context: &TreeContext,
    permit: &Permit,
    parent: &NamespaceFacts,
    child_uid: &str,
) -> Result<(), WriteError> {
    // Of whatever revision it is: the value is another for each child, so the revision changes.
    let revision = Revision { uid: &parent.uid, resource_version: None };
    let fields = json!({"metadata": {"labels": {LABEL_CHILDREN: child_uid}}});
    merge_namespace(context, permit, &parent.name, revision, fields).await
}

async fn merge_namespace(
    context: &TreeContext,
    permit: &Permit,
    name: &str,
    revision: Revision<'_>,
    fields: Value,
) -> Result<(), WriteError> {
    let clients = &context.shared.clients;
    write::merge::<Namespaces>(clients, permit, ("", name), revision, fields).await.map(drop)
}

/// Creates the namespace of a Subnamespace with this uid; as it is then. What is said of the tree counts over what else it is to have.
pub(crate) async fn create_namespace(
    context: &TreeContext,
    permit: &Permit,
    (name, uid): (&str, &str),
    (position, metadata): (&Position, &NamespaceMetadata),
) -> Result<NamespaceFacts, WriteError> {
    let NamespaceMetadata { mut labels, mut annotations } = metadata.clone();
    labels.extend(position.labels(Some(uid)));
    annotations.insert(ANNOTATION_PATH.to_owned(), position.path());
    let object = json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": name, "labels": labels, "annotations": annotations}
    });
    let kept = context.shared.namespaces.current_context();
    write::create_object_with::<Namespaces>(&context.shared.clients, permit, "", &object, &kept).await
}
