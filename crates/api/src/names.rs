//! Names that users and other programs see: API group, labels, annotations, field managers, well-known objects.

/// The API group of every kind.
pub const GROUP: &str = "coppice.dev";
/// The field manager of everything the operator writes.
pub const FIELD_MANAGER: &str = "coppice";
/// The finalizer of objects of our own kinds that have to be cleaned up after.
pub const FINALIZER: &str = "coppice.dev/cleanup";
/// The namespace that the installation lives in, unless `--namespace` says otherwise.
pub const SYSTEM_NAMESPACE: &str = "coppice-system";
/// The service account that the operator runs as.
pub const SERVICE_ACCOUNT: &str = "coppice";
/// A namespace with this label is never deleted or scaled down, whatever its managers say and whatever the label's value is: also
/// with `"false"`. Anyone who writes the label means something by it, and only taking it off takes the protection off.
pub const LABEL_PROTECTED: &str = "coppice.dev/protected";
/// On every `DeletedNamespace`: the namespace's name, so that its records can be selected.
pub const LABEL_NAMESPACE: &str = "coppice.dev/namespace";
/// The one `CoppiceConfig` that is read.
pub const CONFIG_NAME: &str = "coppice";
/// The one `ManagedNamespace` of a namespace that counts.
pub const MANAGED_NAMESPACE_NAME: &str = "coppice";
/// The Lease that says which replica writes.
pub const LEASE_NAME: &str = "coppice-operator";
/// The Secret, in the operator's own namespace, that holds the key with which webhooks are signed.
pub const WEBHOOK_KEY_SECRET: &str = "coppice-webhook-key";
/// The label that Kubernetes itself puts on every namespace: its name.
pub const LABEL_NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";
/// The verb on `managednamespaces` that lets an account write what others asked for: `spec.hold.by` and
/// `spec.extendUntil.by` need not be its own name.
pub const VERB_SET_REQUESTER: &str = "set-requester";
/// The verb on `namespacetrees` that lets an account write what Coppice alone writes of a tree: to restore namespaces from a backup.
pub const VERB_SET_TREE: &str = "set-tree";

/// On every namespace that a `Subnamespace` created: the uid of that object.
pub const LABEL_SUBNAMESPACE: &str = "coppice.dev/subnamespace";
/// On every namespace of a tree but its root: the name of the namespace above it.
pub const LABEL_PARENT: &str = "coppice.dev/parent";
/// On every namespace of a tree: the name of the namespace at the top.
pub const LABEL_ROOT: &str = "coppice.dev/root";
/// On a namespace that other namespaces of its tree hang on: nobody but an administrator of trees deletes it. The value is the uid of
/// the `Subnamespace` that was created in it last, so that anyone who deletes the namespace as it was before that gets a conflict.
pub const LABEL_CHILDREN: &str = "coppice.dev/has-children";
/// With the name of a namespace in front of it, the key of a label: how far a namespace is below that one, `0` for itself.
pub const LABEL_DEPTH_SUFFIX: &str = ".tree.coppice.dev/depth";
/// On every namespace of a tree: the names from the root down to it, as `root/child/grandchild`.
pub const ANNOTATION_PATH: &str = "coppice.dev/path";
/// The native quota of every namespace of a tree.
pub const TREE_QUOTA_NAME: &str = "coppice";
/// On these quotas: the tree that they belong to.
pub const LABEL_TREE: &str = "coppice.dev/tree";
/// On these quotas: what the namespace was given, and what it gave.
pub const ANNOTATION_LEDGER: &str = "coppice.dev/ledger";
/// On a `Subnamespace` that takes a namespace over from another one, whose own namespace is going away: the uid of that one. It never
/// creates a namespace.
pub const ANNOTATION_MOVED_FROM: &str = "coppice.dev/moved-from";
/// On every copy of an object of a namespace further up in the tree: the name of that namespace.
pub const LABEL_PROPAGATED_FROM: &str = "coppice.dev/propagated-from";
/// On every such copy: the uid of the object that it is a copy of.
pub const ANNOTATION_PROPAGATED_UID: &str = "coppice.dev/propagated-uid";
/// On an object that is copied down a tree: a label selector of the namespaces that it is copied into, or `none`.
pub const ANNOTATION_PROPAGATE_TO: &str = "coppice.dev/propagate-to";
/// The ClusterRoles that the account of trees may bind: `RoleBinding`s to them are copied, unless a tree says otherwise.
pub const PROPAGATED_ROLES: [&str; 3] = ["admin", "edit", "view"];
/// Domains, with those below them, whose labels and annotations of a namespace nobody sets through a tree: by these Kubernetes,
/// OpenShift, Rancher, HNC and Coppice decide who may do what there.
pub const RESERVED_DOMAINS: [&str; 6] =
    ["kubernetes.io", "k8s.io", "x-k8s.io", "openshift.io", "cattle.io", GROUP];
/// The program, the service account, and the Lease of the controllers of trees.
pub const TREES_ACCOUNT: &str = "coppice-trees";
/// The Service of the admission webhook of trees, and the Secret, in Coppice's own namespace, that holds the certificate authority by
/// which the API server trusts it.
pub const TREES_ADMISSION: &str = "coppice-trees-admission";

/// A regular expression in the syntax of RE2, which matches the keys of [`RESERVED_DOMAINS`].
pub fn reserved_keys() -> String {
    let domains = RESERVED_DOMAINS.map(|domain| domain.replace('.', "[.]"));
    format!("^([^/]*[.])?({})/", domains.join("|"))
}

/// The labels of everything that an installation of this version consists of, by the tool that installs.
pub fn installation_labels(managed_by: &str, version: &str) -> [(&'static str, String); 4] {
    [
        ("app.kubernetes.io/managed-by", managed_by.to_owned()),
        ("app.kubernetes.io/name", "coppice".to_owned()),
        ("app.kubernetes.io/part-of", "coppice".to_owned()),
        ("app.kubernetes.io/version", version.to_owned()),
    ]
}
