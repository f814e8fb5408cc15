//! The kinds that are served: a table of built-in ones, and what the definitions add.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::crd::Custom;

/// A text that is either from the table or from a definition.
pub type KindText = Cow<'static, str>;

/// Number of a collection of objects. Kinds that show the same objects, such as the two of Events, share it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StoreId(pub(super) usize);

/// One served resource: a kind in one version.
#[derive(Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent traits, each as the API server's source names it"
)]
pub struct ServedKind {
    /// Where its objects are.
    pub store: StoreId,
    /// The API group; empty for core.
    pub group: KindText,
    /// The version, such as `v1`.
    pub version: KindText,
    /// The resource in URLs, such as `pods`.
    pub plural: KindText,
    /// The singular name.
    pub singular: KindText,
    /// The kind, such as `Pod`.
    pub kind: KindText,
    /// The kind of a list.
    pub list_kind: KindText,
    /// Short names for people, such as `po`.
    pub short_names: Vec<KindText>,
    /// Categories, such as `all`.
    pub categories: Vec<KindText>,
    /// Whether objects live in namespaces.
    pub namespaced: bool,
    /// What may be done.
    pub verbs: Verbs,
    /// Subresources, such as `status`.
    pub subresources: Vec<&'static str>,
    /// Whether `metadata.generation` counts changes of the spec.
    pub generation: bool,
    /// Whether a PUT of an object that is not there creates it.
    pub create_on_update: bool,
    /// Whether an update has to name the revision.
    pub conditional_update: bool,
    /// Whether DELETE answers with the object that is gone.
    pub returns_deleted: bool,
    /// What a definition says, for custom resources.
    pub custom: Option<Custom>,
}

/// Which verbs a resource has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verbs {
    /// All of them.
    All,
    /// Only `create`: reviews, which are answered and not kept.
    Create,
}

impl ServedKind {
    /// `apiVersion` of its objects.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_string()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// Whether it has a subresource.
    pub fn has(&self, subresource: &str) -> bool {
        self.subresources.contains(&subresource)
    }

    /// Verbs as discovery lists them.
    pub(super) fn verb_names(&self) -> &'static [&'static str] {
        match self.verbs {
            Verbs::All if self.plural == "namespaces" && self.group.is_empty() => {
                &["create", "delete", "get", "list", "patch", "update", "watch"]
            }
            Verbs::All => {
                &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
            }
            Verbs::Create => &["create"],
        }
    }
}

/// Traits of a row of the table.
const GENERATION: u8 = 1;
const CREATES: u8 = 2;
const CONDITIONAL: u8 = 4;
const RETURNS: u8 = 8;
const CLUSTER: u8 = 16;
const REVIEW: u8 = 32;

/// Group and version, plural, kind, short names, subresources, traits.
type Row = (&'static str, &'static str, &'static str, &'static [&'static str], &'static [&'static str], u8);

const ROWS: &[Row] = &[
    ("v1", "configmaps", "ConfigMap", &["cm"], &[], 0),
    ("v1", "endpoints", "Endpoints", &["ep"], &[], CREATES),
    ("v1", "events", "Event", &["ev"], &[], CREATES),
    ("v1", "limitranges", "LimitRange", &["limits"], &[], CREATES),
    ("v1", "namespaces", "Namespace", &["ns"], &["status", "finalize"], CLUSTER | RETURNS),
    ("v1", "nodes", "Node", &["no"], &["status"], CLUSTER),
    ("v1", "persistentvolumeclaims", "PersistentVolumeClaim", &["pvc"], &["status"], RETURNS),
    ("v1", "persistentvolumes", "PersistentVolume", &["pv"], &["status"], CLUSTER | RETURNS),
    ("v1", "pods", "Pod", &["po"], &["status", "binding", "eviction"], RETURNS | GENERATION),
    ("v1", "podtemplates", "PodTemplate", &[], &[], RETURNS | GENERATION),
    ("v1", "replicationcontrollers", "ReplicationController", &["rc"], &["status", "scale"], GENERATION),
    ("v1", "resourcequotas", "ResourceQuota", &["quota"], &["status"], RETURNS),
    ("v1", "secrets", "Secret", &[], &[], 0),
    ("v1", "serviceaccounts", "ServiceAccount", &["sa"], &[], RETURNS),
    ("v1", "services", "Service", &["svc"], &["status"], CREATES | RETURNS),
    (
        "admissionregistration.k8s.io/v1",
        "mutatingwebhookconfigurations",
        "MutatingWebhookConfiguration",
        &[],
        &[],
        CLUSTER | CONDITIONAL | GENERATION,
    ),
    (
        "admissionregistration.k8s.io/v1",
        "validatingadmissionpolicies",
        "ValidatingAdmissionPolicy",
        &[],
        &["status"],
        CLUSTER | CONDITIONAL | GENERATION,
    ),
    (
        "admissionregistration.k8s.io/v1",
        "validatingadmissionpolicybindings",
        "ValidatingAdmissionPolicyBinding",
        &[],
        &[],
        CLUSTER | CONDITIONAL | GENERATION,
    ),
    (
        "admissionregistration.k8s.io/v1",
        "validatingwebhookconfigurations",
        "ValidatingWebhookConfiguration",
        &[],
        &[],
        CLUSTER | CONDITIONAL | GENERATION,
    ),
    (
        "apiextensions.k8s.io/v1",
        "customresourcedefinitions",
        "CustomResourceDefinition",
        &["crd", "crds"],
        &["status"],
        CLUSTER | CONDITIONAL | GENERATION,
    ),
    ("apiregistration.k8s.io/v1", "apiservices", "APIService", &[], &["status"], CLUSTER),
    ("apps/v1", "controllerrevisions", "ControllerRevision", &[], &[], 0),
    ("apps/v1", "daemonsets", "DaemonSet", &["ds"], &["status"], GENERATION),
    ("apps/v1", "deployments", "Deployment", &["deploy"], &["status", "scale"], GENERATION),
    ("apps/v1", "replicasets", "ReplicaSet", &["rs"], &["status", "scale"], GENERATION),
    ("apps/v1", "statefulsets", "StatefulSet", &["sts"], &["status", "scale"], GENERATION),
    ("authentication.k8s.io/v1", "selfsubjectreviews", "SelfSubjectReview", &[], &[], CLUSTER | REVIEW),
    (
        "authorization.k8s.io/v1",
        "selfsubjectaccessreviews",
        "SelfSubjectAccessReview",
        &[],
        &[],
        CLUSTER | REVIEW,
    ),
    (
        "authorization.k8s.io/v1",
        "selfsubjectrulesreviews",
        "SelfSubjectRulesReview",
        &[],
        &[],
        CLUSTER | REVIEW,
    ),
    (
        "autoscaling/v2",
        "horizontalpodautoscalers",
        "HorizontalPodAutoscaler",
        &["hpa"],
        &["status"],
        GENERATION,
    ),
    ("batch/v1", "cronjobs", "CronJob", &["cj"], &["status"], GENERATION),
    ("batch/v1", "jobs", "Job", &[], &["status"], GENERATION),
    (
        "certificates.k8s.io/v1",
        "certificatesigningrequests",
        "CertificateSigningRequest",
        &["csr"],
        &["status", "approval"],
        CLUSTER,
    ),
    ("coordination.k8s.io/v1", "leases", "Lease", &[], &[], CREATES | CONDITIONAL),
    ("networking.k8s.io/v1", "ingresses", "Ingress", &["ing"], &["status"], GENERATION),
    ("networking.k8s.io/v1", "networkpolicies", "NetworkPolicy", &["netpol"], &[], GENERATION),
    (
        "policy/v1",
        "poddisruptionbudgets",
        "PodDisruptionBudget",
        &["pdb"],
        &["status"],
        GENERATION | CONDITIONAL,
    ),
    (
        "rbac.authorization.k8s.io/v1",
        "clusterrolebindings",
        "ClusterRoleBinding",
        &[],
        &[],
        CLUSTER | CREATES,
    ),
    ("rbac.authorization.k8s.io/v1", "clusterroles", "ClusterRole", &[], &[], CLUSTER | CREATES),
    ("rbac.authorization.k8s.io/v1", "rolebindings", "RoleBinding", &[], &[], CREATES),
    ("rbac.authorization.k8s.io/v1", "roles", "Role", &[], &[], CREATES),
    ("scheduling.k8s.io/v1", "priorityclasses", "PriorityClass", &["pc"], &[], CLUSTER | GENERATION),
    ("storage.k8s.io/v1", "storageclasses", "StorageClass", &["sc"], &[], CLUSTER | RETURNS),
];

/// Kinds that are shown by `kubectl get all`.
const ALL: [&str; 9] = [
    "pods",
    "replicationcontrollers",
    "services",
    "daemonsets",
    "deployments",
    "replicasets",
    "statefulsets",
    "jobs",
    "cronjobs",
];

fn built_in(row: &Row, store: StoreId) -> ServedKind {
    let &(group_version, plural, kind, short_names, subresources, traits) = row;
    let (group, version) = group_version.rsplit_once('/').unwrap_or(("", group_version));
    let all = ALL.contains(&plural) || plural == "horizontalpodautoscalers";
    let extensions =
        matches!(group, "admissionregistration.k8s.io" | "apiextensions.k8s.io" | "apiregistration.k8s.io");
    let categories: &[&'static str] = match (all, extensions) {
        (true, _) => &["all"],
        (_, true) => &["api-extensions"],
        _ => &[],
    };
    ServedKind {
        store,
        group: group.into(),
        version: version.into(),
        plural: plural.into(),
        singular: kind.to_lowercase().into(),
        kind: kind.into(),
        list_kind: format!("{kind}List").into(),
        short_names: short_names.iter().map(|s| KindText::Borrowed(s)).collect(),
        categories: categories.iter().map(|s| KindText::Borrowed(s)).collect(),
        namespaced: traits & CLUSTER == 0,
        verbs: if traits & REVIEW == 0 { Verbs::All } else { Verbs::Create },
        subresources: subresources.to_vec(),
        generation: traits & GENERATION != 0,
        create_on_update: traits & CREATES != 0,
        conditional_update: traits & CONDITIONAL != 0,
        returns_deleted: traits & RETURNS != 0,
        custom: None,
    }
}

/// Every kind that is served now.
#[derive(Clone, Debug)]
pub(super) struct Registry {
    /// By `group/version/plural`.
    routes: BTreeMap<String, Arc<ServedKind>>,
    /// The kind in the version of storage, by store; those of deleted definitions stay.
    primary: Vec<Arc<ServedKind>>,
    namespaces: StoreId,
}

impl Registry {
    pub(super) fn new() -> Self {
        let mut registry = Self { routes: BTreeMap::new(), primary: Vec::new(), namespaces: StoreId(0) };
        for row in ROWS {
            let kind = Arc::new(built_in(row, StoreId(registry.primary.len())));
            registry.serve(&kind);
            if kind.plural == "namespaces" {
                registry.namespaces = kind.store;
            }
            if kind.plural == "events" {
                let mut twin = built_in(row, kind.store);
                twin.group = "events.k8s.io".into();
                registry.serve(&Arc::new(twin));
            }
            registry.primary.push(kind);
        }
        registry
    }

    /// How many stores there are.
    pub(super) fn stores(&self) -> usize {
        self.primary.len()
    }

    /// Opens a store for a new kind; the kind is made with its number.
    pub(super) fn add(&mut self, make: impl FnOnce(StoreId) -> ServedKind) -> StoreId {
        let store = StoreId(self.primary.len());
        self.primary.push(Arc::new(make(store)));
        store
    }

    /// The kind of namespaces.
    pub(super) fn namespaces(&self) -> &Arc<ServedKind> {
        &self.primary[self.namespaces.0]
    }

    /// Replaces the kind in the version of storage.
    pub(super) fn set_primary(&mut self, kind: Arc<ServedKind>) {
        let store = kind.store;
        self.primary[store.0] = kind;
    }

    /// Serves a kind at its path.
    pub(super) fn serve(&mut self, kind: &Arc<ServedKind>) {
        self.routes.insert(route(&kind.group, &kind.version, &kind.plural), kind.clone());
    }

    /// Serves no version of a store any longer.
    pub(super) fn withdraw(&mut self, store: StoreId) {
        self.routes.retain(|_, kind| kind.store != store);
    }

    /// The kind at a path.
    pub(super) fn at(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<ServedKind>> {
        self.routes.get(&route(group, version, plural))
    }

    /// Whether a group has a version.
    pub(super) fn has_version(&self, group: &str, version: &str) -> bool {
        let prefix = route(group, version, "");
        self.routes.range(prefix.clone()..).next().is_some_and(|(key, _)| key.starts_with(&prefix))
    }

    /// The kind in the version of storage.
    pub(super) fn primary(&self, store: StoreId) -> &Arc<ServedKind> {
        &self.primary[store.0]
    }

    /// The stores of built-in and custom kinds that are served, in a fixed order, each once.
    pub(super) fn served(&self) -> impl Iterator<Item = &Arc<ServedKind>> {
        self.routes.values()
    }

    /// The kind that an owner reference names.
    pub(super) fn find(&self, api_version: &str, kind: &str) -> Option<&Arc<ServedKind>> {
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
        let prefix = route(group, version, "");
        let mut of_version =
            self.routes.range(prefix.clone()..).take_while(|(key, _)| key.starts_with(&prefix));
        of_version.find(|(_, k)| k.kind == kind).map(|(_, k)| k)
    }
}

fn route(group: &str, version: &str, plural: &str) -> String {
    let mut route = String::with_capacity(group.len() + version.len() + plural.len() + 2);
    for part in [group, "/", version, "/", plural] {
        route.push_str(part);
    }
    route
}
