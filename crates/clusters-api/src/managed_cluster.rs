//! `ManagedCluster`: a cluster that is made, kept as its spec says, and deleted, by Gardener or by Cluster API.

#![allow(clippy::duplicated_attributes, reason = "printer columns of one type")]

use std::collections::BTreeMap;

use coppice_api::schema as shared;
use coppice_quantity::Duration;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::managed_provider::ClusterMaker;
use crate::schema;

/// So many zones have addresses: a network is divided into no more.
pub const MAX_ZONES: usize = 8;

/// Bytes of a spec that are read, and so kept in memory. The longest spec that the schema accepts has no more, unless JSON has to escape its texts.
pub const MAX_SPEC_BYTES: usize = 128 << 10;

/// Of conditions: whether something is being done, as kstatus reads it.
pub const RECONCILING: &str = "Reconciling";
/// Of conditions: whether nothing goes on until somebody changes something, as kstatus reads it.
pub const STALLED: &str = "Stalled";

/// A cluster that is made by Gardener or Cluster API, changed as this spec changes, and deleted with it.
#[derive(CustomResource, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "coppice.dev",
    version = "v1alpha1",
    kind = "ManagedCluster",
    plural = "managedclusters",
    shortname = "mcl",
    category = "coppice",
    namespaced,
    status = "ManagedClusterStatus",
    derive = "PartialEq",
    doc = "A cluster that is made as a Cluster of Cluster API or as a Shoot of Gardener, changed as its spec changes, and deleted with it.",
    printcolumn(name = "State", type_ = "string", json_path = ".status.state"),
    printcolumn(name = "Version", type_ = "string", json_path = ".spec.version"),
    printcolumn(name = "Region", type_ = "string", json_path = ".spec.region", priority = 1),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(
        name = "Why",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].message",
        priority = 1
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!has(self.provider.gardener) || has(self.region) && has(self.networks) && has(self.networks.nodes) && has(self.workers) && self.workers.all(w, has(w.machine)) && self.workers.exists(w, w.max > 0)",
    "message": "write region, networks.nodes, and workers with a machine each, one of them with a max of at least 1: Gardener makes no cluster without them"
}, {
    "rule": "!has(self.provider.gardener) || !has(self.administrators) || size(self.administrators) == 0",
    "message": "leave out administrators, and write a ClusterAccess for each of them: a Shoot has no field for them"
}, {
    "rule": "!has(self.provider.clusterAPI) || !has(self.deletion) || !has(self.deletion.forceAfter)",
    "message": "leave out deletion.forceAfter: nothing forces the deletion of a Cluster of Cluster API"
}, {
    "rule": "!has(self.provider.gardener) || !(self.provider.gardener.infrastructure in ['aws', 'azure']) || !has(self.networks) || !has(self.networks.nodes) || !isCIDR(self.networks.nodes) || cidr(self.networks.nodes).prefixLength() >= 16 && cidr(self.networks.nodes).prefixLength() <= 24",
    "message": "write a networks.nodes of 16 to 24 bits, such as 10.250.0.0/16: on AWS and Azure it is divided among the zones"
}, {
    "rule": "!has(self.provider.gardener) || self.provider.gardener.infrastructure != 'azure' || !has(self.workers) || self.workers.all(w, !has(w.zones) || w.zones.all(z, z.matches('^[1-9][0-9]?$')))",
    "message": "write the numbers of zones of Azure into workers[].zones, such as '1'"
}, {
    "rule": "!has(self.provider.gardener) || !(self.provider.gardener.infrastructure in ['aws', 'gcp']) || has(self.workers) && self.workers.exists(w, has(w.zones) && size(w.zones) > 0)",
    "message": "write at least one zone into workers[].zones: AWS and Google Cloud need it"
}, {
    "rule": "has(self.region) == has(oldSelf.region) && (!has(self.region) || self.region == oldSelf.region)",
    "message": "the region of a cluster cannot be changed: write another ManagedCluster"
}, {
    "rule": "has(self.networks) == has(oldSelf.networks) && (!has(self.networks) || self.networks == oldSelf.networks)",
    "message": "the networks of a cluster cannot be changed: write another ManagedCluster"
}, {
    "rule": "!has(oldSelf.highAvailability) || has(self.highAvailability) && self.highAvailability == oldSelf.highAvailability",
    "message": "highAvailability cannot be changed or taken away again: write another ManagedCluster"
}]))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ManagedClusterSpec {
    /// Who makes the cluster, and as which object. It cannot be changed from one to the other.
    pub provider: ClusterMaker,
    /// The version of Kubernetes, such as `1.33.4`. The cluster is upgraded to a later one, and is never taken back to an earlier one
    /// than it has.
    #[schemars(schema_with = "schema::kubernetes_version")]
    pub version: String,
    /// The region of the provider, such as `eu-central-1`. It cannot be changed. Gardener needs it. Default: what the
    /// ClusterClass has, which may know one region alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::provider_word")]
    pub region: Option<String>,
    /// The networks. They cannot be changed. Default: those of the provider, which suit most clusters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub networks: Option<Networks>,
    /// The pools of workers. Those that are taken away here are deleted, with their machines. Default: none, and the cluster has what its
    /// provider gives every cluster.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"], "x-kubernetes-validations" = [{
        "rule": "self.map(w, (has(w.labels) ? size(w.labels) : 0) + (has(w.annotations) ? size(w.annotations) : 0) + (has(w.taints) ? size(w.taints) : 0)).sum() <= 128",
        "message": "write at most 128 labels, annotations and taints, of all pools together: an object keeps no more of them"
    }]))]
    pub workers: Vec<WorkerPool>,
    /// What the control plane survives: the failure of a node, or of a zone. It cannot be changed. Default: neither, which costs
    /// least.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub high_availability: Option<FailureTolerance>,
    /// By whose tokens users are known to the API server of the cluster. Default: nobody's, so that only who has a kubeconfig is
    /// known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oidc: Option<Oidc>,
    /// The name of the `ConfigMap` with the audit policy of the API server, beside the object that is made. Default: that of the
    /// provider, so that its clusters are audited alike.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::object_name")]
    pub audit_policy: Option<String>,
    /// The users that administer the cluster, in the variable `provider.clusterAPI.variables.administrators` of the ClusterClass.
    /// Default: nobody but whom the provider lets, so that each further one is a decision of its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::administrators")]
    pub administrators: Vec<String>,
    /// How the cluster is deleted. Default: gracefully, however long that takes. There is no word for that, since a field is either a text or an object:
    /// write `deletion: {}` or leave it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletion: Option<DeletionPolicy>,
}

/// The networks of a cluster, as IPv4 prefixes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Networks {
    /// That of the nodes, such as `10.250.0.0/16`. On AWS and Azure it is divided among at most 8 zones, and has to be a /16 to a /24.
    /// Default: that of the ClusterClass, which knows its infrastructure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::cidr")]
    pub nodes: Option<String>,
    /// That of the pods, such as `10.96.0.0/13`. Default: that of the provider, which suits most clusters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::cidr")]
    pub pods: Option<String>,
    /// That of the Services, such as `10.104.0.0/13`. Default: that of the provider, which suits most clusters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::cidr")]
    pub services: Option<String>,
}

/// Workers of one form.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "self.min <= self.max",
    "message": "write a min that is not larger than max"
}, {
    "rule": "!has(self.zones) || size(self.zones) <= 1 || self.max == 0 || self.max >= size(self.zones)",
    "message": "write a max of at least one worker for each of the zones, or fewer zones"
}]))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WorkerPool {
    /// Its name, unique in the cluster: at most 15 characters, as Gardener has it.
    #[schemars(schema_with = "schema::pool_name")]
    pub name: String,
    /// The machine type of the provider, such as `m6i.large`. Gardener needs it. Default: that of the ClusterClass, which may
    /// know one type alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::provider_word")]
    pub machine: Option<String>,
    /// The image of the machines. A later version of the same image that the provider has given the pool is kept. Default: that
    /// of the provider, which knows what runs on its machines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<MachineImage>,
    /// The volume of each machine. Default: that of the provider, which suits most workers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<Volume>,
    /// How many there are at least.
    #[schemars(range(min = 0, max = 1000))]
    pub min: u32,
    /// How many there are at most. With the same number as `min` the pool is not scaled.
    #[schemars(range(min = 0, max = 1000))]
    pub max: u32,
    /// The zones, over which workers are spread. Gardener takes none away from a pool that is there. Default: as the provider
    /// has it, which knows its zones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::zones")]
    pub zones: Vec<String>,
    /// Labels of the nodes. Default: none but those of the provider, since no node needs others.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::pool_labels")]
    pub labels: BTreeMap<String, String>,
    /// Annotations of the nodes. Default: none but those of the provider, since no node needs others.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::pool_annotations")]
    pub annotations: BTreeMap<String, String>,
    /// Taints of the nodes. Default: none, so that every pod can run there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-validations" = [{
        "rule": "self.all(t, self.exists_one(u, u.key == t.key && u.effect == t.effect))",
        "message": "write a taint of a key and an effect once"
    }]))]
    pub taints: Vec<Taint>,
}

/// An image of machines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MachineImage {
    /// Its name, such as `gardenlinux`.
    #[schemars(schema_with = "schema::provider_word")]
    pub name: String,
    /// Its version. Default: the one that the provider takes, so that nobody has to follow its versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::provider_word")]
    pub version: Option<String>,
}

/// A volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Volume {
    /// Its type, such as `gp3`. Default: that of the provider, which knows what it has.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::provider_word")]
    pub type_: Option<String>,
    /// Its size, such as `50Gi`.
    #[schemars(schema_with = "schema::volume_size")]
    pub size: String,
}

/// A taint of nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Taint {
    /// Its key.
    #[schemars(schema_with = "schema::taint_key")]
    pub key: String,
    /// Its value. Default: none, since most taints differ by their keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::taint_value")]
    pub value: Option<String>,
    /// What it does to pods that do not tolerate it.
    pub effect: TaintEffect,
}

/// What a taint does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum TaintEffect {
    /// None is scheduled there.
    NoSchedule,
    /// None is scheduled there if there is another node.
    PreferNoSchedule,
    /// Those that are there are evicted.
    NoExecute,
}

/// What a control plane survives: the failure of a node, or of a zone. It cannot be changed. Default: neither, which costs least.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum FailureTolerance {
    /// The failure of a node.
    Node,
    /// The failure of a zone.
    Zone,
}

/// By whose tokens users are known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Oidc {
    /// The URL of the issuer.
    #[serde(rename = "issuerURL")]
    #[schemars(schema_with = "schema::issuer_url")]
    pub issuer_url: String,
    /// The audience that its tokens have to name.
    #[serde(rename = "clientID")]
    #[schemars(schema_with = "schema::client_id")]
    pub client_id: String,
    /// The claim with the name of the user. Default: `sub`, which every token has.
    #[serde(default = "username_claim")]
    #[schemars(schema_with = "schema::claim", default = "username_claim")]
    pub username_claim: String,
    /// What is put before that name, so that nobody gets the name of another. Default: `oidc:`, with which no name of
    /// Kubernetes' own begins.
    #[serde(default = "prefix")]
    #[schemars(schema_with = "schema::claim_prefix", default = "prefix")]
    pub username_prefix: String,
    /// The claim with the groups of the user. Default: none, and users have no groups by their tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::claim")]
    pub groups_claim: Option<String>,
    /// What is put before these. Default: `oidc:`, with which no name of Kubernetes' own begins.
    #[serde(default = "prefix")]
    #[schemars(schema_with = "schema::claim_prefix", default = "prefix")]
    pub groups_prefix: String,
}

fn username_claim() -> String {
    "sub".to_owned()
}

fn prefix() -> String {
    "oidc:".to_owned()
}

/// How a cluster is deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeletionPolicy {
    /// After so long, 1h to 30d, a deletion that has failed is forced, where the provider permits it: Gardener does for some of its errors alone,
    /// and then leaves in the account of the cloud what it has made there. Default: never, so that nothing is left behind
    /// without being asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::force_after")]
    pub force_after: Option<Duration>,
}

/// The state of a ManagedCluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum ClusterState {
    /// Nothing was made yet.
    Planning,
    /// It is being made.
    Creating,
    /// It is being changed.
    Updating,
    /// It is as its spec says.
    Ready,
    /// It is not, for a reason that `status.lastError` has.
    Failed,
    /// It is being deleted.
    Deleting,
}

impl ClusterState {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Planning, Self::Creating, Self::Updating, Self::Ready, Self::Failed, Self::Deleting];

    /// The state as written in status.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Planning => "Planning",
            Self::Creating => "Creating",
            Self::Updating => "Updating",
            Self::Ready => "Ready",
            Self::Failed => "Failed",
            Self::Deleting => "Deleting",
        }
    }
}

/// What was made, and what is under way. Only Coppice writes it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ManagedClusterStatus {
    /// The generation of the spec that the status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<ClusterState>,
    /// The digest of the desired state that was last written, as SHA-256. Whenever the spec makes another one, that is written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub hash: Option<String>,
    /// The object that was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<MadeCluster>,
    /// Which part of the nodes' network each zone has, in the order in which the zones came. Nothing of it is changed or taken away.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::zone_addresses")]
    pub addresses: Vec<ZoneAddresses>,
    /// When it was ready for the first time. Absent: it is still being made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shared::status_instant")]
    pub created: Option<Timestamp>,
    /// Since when it waits for what is under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shared::status_instant")]
    pub waiting_since: Option<Timestamp>,
    /// When its ClusterProvider is asked again, whose `callsPerMinute` are used up, or whose garden has too many requests (429); later, if others
    /// are more urgent. Absent: it does not wait for that, or only for a look at what is done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shared::status_instant")]
    pub asks_again: Option<Timestamp>,
    /// When the deletion was forced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shared::status_instant")]
    pub forced: Option<Timestamp>,
    /// What failed. Absent: nothing did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<ClusterError>,
    /// `Ready`: whether the cluster is as its spec says. `Reconciling`: whether it is being made, changed or deleted. `Stalled`: whether nothing
    /// goes on until somebody changes something.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "shared::conditions")]
    pub conditions: Vec<Condition>,
}

/// An object that was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MadeCluster {
    /// Its kind: `Cluster` or `Shoot`.
    #[schemars(length(max = 63))]
    pub kind: String,
    /// Its namespace.
    #[schemars(length(max = 63))]
    pub namespace: String,
    /// Its name.
    #[schemars(length(max = 253))]
    pub name: String,
    /// Its uid: another object of that name is not touched.
    #[schemars(length(max = 128))]
    pub uid: String,
    /// The uid of the Project of Gardener that it was made in: in another one, as in another garden, nothing is changed or deleted. Absent of a
    /// `Cluster`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub project: Option<String>,
}

/// Which part of the nodes' network a zone has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ZoneAddresses {
    /// The zone.
    #[schemars(length(max = 63))]
    pub zone: String,
    /// For its workers.
    #[schemars(length(max = 18))]
    pub workers: String,
    /// For load balancers that everybody reaches, on AWS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 18))]
    pub public: Option<String>,
    /// For internal load balancers, on AWS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 18))]
    pub internal: Option<String>,
}

/// What becomes of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum FailureClass {
    /// It is tried again, at first soon, then every 10 minutes.
    Transient,
    /// Somebody has to change what the message names. It is looked at again every 5 minutes.
    WaitingForInput,
    /// Nothing is done until the spec is changed.
    Permanent,
}

/// What failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterError {
    /// An enumerated reason.
    #[schemars(length(max = 63))]
    pub reason: String,
    /// What becomes of it.
    pub class: FailureClass,
    /// What happened and what to do, for people.
    #[schemars(length(max = 1024))]
    pub message: String,
    /// The generation of the spec that it was tried with: another one is tried at once.
    pub generation: i64,
    /// How many attempts have failed in a row.
    pub attempts: u32,
    /// When the last of them failed.
    #[schemars(schema_with = "shared::status_instant")]
    pub at: Timestamp,
}
