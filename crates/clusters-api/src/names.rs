//! Names that others see: of the program, and of what it writes into this cluster and into others.

/// The program, its service account and its Lease.
pub const PROGRAM: &str = "coppice-access";
/// The namespace that the program lives in, unless `--namespace` says otherwise.
pub const SYSTEM_NAMESPACE: &str = "coppice-access-system";
/// The namespace in each target cluster that holds the service accounts and what their tokens are bound to. It is created where it is
/// missing, and never deleted.
pub const TARGET_NAMESPACE: &str = "coppice-access";
/// The signer in a target that signs client certificates for its API server.
pub const SIGNER: &str = "kubernetes.io/kube-apiserver-client";
/// On everything that is written for a `ClusterAccess`, on both sides: the uid of that object.
pub const LABEL_ACCESS: &str = "coppice.dev/access";
/// On everything that is written for a `ClusterAccess` into its target: the uid of the namespace `kube-system` of the cluster that has the
/// `ClusterAccess`. Several of these may use one target, and none of them knows the uids of another.
pub const LABEL_INSTALLATION: &str = "coppice.dev/installation";
/// The value of [`LABEL_ACCESS`] on a Secret with the kubeconfig of a target, which is only read: a change of one with this label is
/// noticed at once.
pub const KUBECONFIG: &str = "kubeconfig";
/// On the Secret with the kubeconfig: which credential it holds.
pub const ANNOTATION_CREDENTIAL: &str = "coppice.dev/credential";
/// On the Secret with the kubeconfig: from when that credential is valid.
pub const ANNOTATION_NOT_BEFORE: &str = "coppice.dev/not-before";
/// On the Secret with the kubeconfig: until when that credential is valid.
pub const ANNOTATION_NOT_AFTER: &str = "coppice.dev/not-after";
/// On the Secret with the kubeconfig: as [`LABEL_INSTALLATION`], which installation wrote it. A copy in another cluster is not for that one
/// to delete.
pub const ANNOTATION_INSTALLATION: &str = "coppice.dev/installation";
/// On what is made for a `ManagedCluster`: the uid of that.
pub const LABEL_MANAGED_CLUSTER: &str = "coppice.dev/managed-cluster";
/// On the same: the fields that were last written there, as JSON. Those that are not written any more are removed by it.
pub const ANNOTATION_APPLIED: &str = "coppice.dev/applied";
/// On the same: the digest of these fields.
pub const ANNOTATION_HASH: &str = "coppice.dev/desired-hash";
/// On a `Cluster` that is to be deleted: the uid of the `ManagedCluster` that it was made for, which is being deleted. Without it the account
/// of the program may not delete it.
pub const ANNOTATION_CONFIRM_DELETION: &str = "coppice.dev/confirm-deletion";
/// On a Shoot: the digest of the configuration by which its API server knows users, which is beside it.
pub const ANNOTATION_AUTHENTICATION: &str = "coppice.dev/authentication-hash";
/// The type of the Secrets that Cluster API keeps for a cluster.
pub const CAPI_SECRET_TYPE: &str = "cluster.x-k8s.io/secret";
/// On these Secrets: the name of the `Cluster`.
pub const CAPI_LABEL_CLUSTER: &str = "cluster.x-k8s.io/cluster-name";
/// The key in the Secret with the kubeconfig of a cluster of Cluster API.
pub const CAPI_KUBECONFIG_KEY: &str = "value";

/// The Secret with the kubeconfig of a cluster of Cluster API.
pub fn capi_kubeconfig(cluster: &str) -> String {
    format!("{cluster}-kubeconfig")
}

/// The name of the service account, the role and the bindings of a `ClusterAccess` in its target.
pub fn account(uid: &str) -> String {
    format!("coppice-{uid}")
}

/// The user that the target's API server sees, of tokens.
pub fn identity(uid: &str) -> String {
    format!("system:serviceaccount:{TARGET_NAMESPACE}:{}", account(uid))
}

/// The Secret in the target that a token is bound to: without it the token is not valid.
pub fn bound_secret(credential: &str) -> String {
    format!("coppice-{credential}")
}

/// The user of the client certificates of a `ClusterAccess`. By its uid alone: a common name has 64 characters at most.
pub fn certificate_user(uid: &str) -> String {
    format!("coppice-access:{uid}")
}

/// The `CertificateSigningRequest` in the target that a certificate is issued from.
pub fn signing_request(credential: &str) -> String {
    format!("coppice-{credential}")
}
