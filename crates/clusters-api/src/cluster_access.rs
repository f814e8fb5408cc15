//! `ClusterAccess`: a credential for another cluster, with rights of its own, that is always fresh.

#![allow(clippy::duplicated_attributes, reason = "printer columns of one type")]

use coppice_api::{Reason, schema as shared};
use coppice_quantity::Duration;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cluster_source::ClusterSource;
use crate::superseded::{PendingRevocation, SupersededCertificate};
use crate::{Issuer, schema};

/// The shortest `spec.ttl`: API servers issue nothing for less.
pub const SHORTEST_TTL: Duration = Duration::from_secs(600);
/// The longest `spec.ttl`.
pub const LONGEST_TTL: Duration = Duration::from_secs(30 * 86_400);

/// How long it is tried to revoke what a deleted `ClusterAccess` has, unless it says otherwise.
pub const FORGET_AFTER: Duration = Duration::from_secs(7 * 86_400);
/// So many credentials may wait to be revoked: none that may be valid is forgotten, and no other is issued while all of them may be.
pub const MAX_SUPERSEDED: usize = 16;
/// So many namespaces of a target are named in status: twice as many as rights may have, so that those before are among them.
pub const MAX_NAMESPACES: usize = 64;
/// So many certificates that were replaced are listed in status until they expire.
pub const MAX_CERTIFICATES: usize = 32;

/// Of conditions: whether the target's API server answered the last request, as the cluster that credentials were issued in.
pub const REACHABLE: &str = "Reachable";
/// Of conditions: whether the credential was tried out, and has the rights that were asked for and no others.
pub const VERIFIED: &str = "Verified";
/// Of conditions: whether the Secret holds the credential.
pub const WRITTEN: &str = "Written";

/// A credential for another cluster. It is kept as a kubeconfig in a Secret of the same namespace, is replaced before it expires, and
/// is revoked when the ClusterAccess is deleted.
#[derive(CustomResource, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "coppice.dev",
    version = "v1alpha1",
    kind = "ClusterAccess",
    plural = "clusteraccesses",
    shortname = "clacc",
    category = "coppice",
    namespaced,
    status = "ClusterAccessStatus",
    derive = "PartialEq",
    doc = "A credential for another cluster, with rights of its own, as a kubeconfig in a Secret: replaced before it expires, and revoked when this is deleted.",
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Secret", type_ = "string", json_path = ".spec.output.secret"),
    printcolumn(name = "Expires", type_ = "string", json_path = ".status.notAfter"),
    printcolumn(name = "Rotates", type_ = "string", json_path = ".status.nextRotation", priority = 1),
    printcolumn(
        name = "Why",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].message",
        priority = 1
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!has(self.cluster.kubeconfigSecret) || self.output.secret != self.cluster.kubeconfigSecret.name",
    "message": "output.secret: write the name of another Secret than cluster.kubeconfigSecret.name, which holds the kubeconfig that credentials are issued with"
}, {
    "rule": "(has(self.issuer) ? self.issuer : 'TokenRequest') == (has(oldSelf.issuer) ? oldSelf.issuer : 'TokenRequest')",
    "message": "the issuer of a ClusterAccess cannot be changed: delete it, which revokes its credentials or takes their rights, and create another one"
}, {
    "rule": "!has(self.cluster.clusterAPI) || self.output.secret != self.cluster.clusterAPI.name + '-kubeconfig'",
    "message": "output.secret: write the name of another Secret than the one with the kubeconfig of Cluster API, which credentials are issued with"
}, {
    "rule": "!has(self.cluster.managedCluster) || self.output.secret != self.cluster.managedCluster.name + '-kubeconfig'",
    "message": "output.secret: write the name of another Secret than NAME-kubeconfig of the ManagedCluster, which credentials are issued with"
}, {
    "rule": "!has(self.issuer) || !(self.issuer in ['GardenerAdmin', 'GardenerViewer']) || has(self.cluster.gardener) || has(self.cluster.managedCluster)",
    "message": "issuer: write TokenRequest or ClientCertificate, since GardenerAdmin and GardenerViewer issue for Shoots of Gardener alone: cluster.gardener, or a ManagedCluster that Gardener makes"
}, {
    "rule": "has(self.rights) != (has(self.issuer) && self.issuer in ['GardenerAdmin', 'GardenerViewer'])",
    "message": "rights: write what the credential permits; with the issuers GardenerAdmin and GardenerViewer leave it out, since their rights cannot be narrowed: write the issuer TokenRequest for fewer"
}]))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClusterAccessSpec {
    /// The cluster that the credential is for. It cannot be changed: what was issued in one cluster has to be revoked there.
    #[schemars(extend("x-kubernetes-validations" = [{
        "rule": "self == oldSelf",
        "message": "the cluster of a ClusterAccess cannot be changed: delete it, which revokes its credential there, and create another one"
    }, {
        "rule": "[has(self.kubeconfigSecret), has(self.clusterAPI), has(self.gardener), has(self.provider), has(self.managedCluster)].exists_one(given, given)",
        "message": "write exactly one of: kubeconfigSecret (a kubeconfig in a Secret), clusterAPI (a Cluster of Cluster API), gardener (a Shoot of Gardener), provider (a ClusterProvider), managedCluster (a ManagedCluster)"
    }]))]
    pub cluster: ClusterSource,
    /// Who issues the credential. `TokenRequest`: the target's API server, as a token of a service account that is bound to a Secret
    /// there: deleting that Secret revokes this token and no other. `ClientCertificate`: the target, as a client certificate with a key
    /// that is made here; it cannot be revoked, and is valid until it expires. `GardenerAdmin` and `GardenerViewer`: Gardener, for
    /// `cluster.gardener` or a ManagedCluster that it makes, as a client certificate of an administrator, or of somebody who may read everything but Secrets; neither can be
    /// revoked, and each is valid for a day at most. It cannot be changed: each issuer has a user of its own. Default: `TokenRequest`, which
    /// every cluster has.
    #[serde(default, skip_serializing_if = "Issuer::is_default")]
    #[schemars(default)]
    pub issuer: Issuer,
    /// What the credential permits in the target. A change takes effect within seconds, without another credential. Default: none, which is
    /// refused but of the issuers `GardenerAdmin` and `GardenerViewer`, whose rights are Gardener's and cannot be narrowed.
    #[serde(default, skip_serializing_if = "Rights::is_empty")]
    #[schemars(default, extend("x-kubernetes-validations" = [{
        "rule": "[has(self.role), has(self.clusterRole), has(self.bind)].exists_one(given, given)",
        "message": "write exactly one of: role (rules in one namespace), clusterRole (rules in the whole cluster), bind (a role of the target)"
    }]))]
    pub rights: Rights,
    /// For how long credentials are asked for, 10m to 30d. The target may grant less; `status.notAfter` says what it granted. Default:
    /// a day, so that a stolen credential is worth little the next one.
    #[serde(default = "ttl")]
    #[schemars(schema_with = "schema::ttl", default = "ttl")]
    pub ttl: Duration,
    /// After how many percent of the time that was granted the credential is replaced; up to a tenth of that time earlier, by the uid, so
    /// that many of them are not replaced at once. Default: 60, which leaves time for a target that is away.
    #[serde(default = "rotate_at")]
    #[schemars(schema_with = "schema::rotate_at", default = "rotate_at")]
    pub rotate_at: u32,
    /// The Secret in the namespace of the ClusterAccess that the kubeconfig is written to. It cannot be changed, so that no credential
    /// is left behind in another one.
    #[schemars(extend("x-kubernetes-validations" = [{
        "rule": "self == oldSelf",
        "message": "the output of a ClusterAccess cannot be changed: delete it, which deletes that Secret, and create another one"
    }]))]
    pub output: Output,
    /// An id, such as a date. Whenever it is another one than `status.rotated`, the credential is replaced at once. Default: none, and
    /// the credential is replaced by time alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::rotation_id")]
    pub rotate: Option<String>,
    /// If true, nothing is issued or replaced, and the credential may expire; deletion still revokes it. Default: false, so that
    /// a ClusterAccess does what it says.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub suspend: bool,
    /// How long after the deletion of the ClusterAccess it is tried to revoke its credential in a target that cannot be reached; then
    /// it is given up, with the Event `RevocationSkipped`, and the credential lives until it expires. 1m to 90d. Default: a week,
    /// which outlasts most failures.
    #[serde(default = "forget_after")]
    #[schemars(schema_with = "schema::forget_after", default = "forget_after")]
    pub forget_after: Duration,
}

pub(crate) const fn ttl() -> Duration {
    Duration::from_secs(86_400)
}

const fn rotate_at() -> u32 {
    60
}

const fn forget_after() -> Duration {
    FORGET_AFTER
}

/// What a credential permits: exactly one field.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Rights {
    /// Rules in one namespace of the target, as a Role that is made for this credential.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<RoleRights>,
    /// Rules in the whole target, as a ClusterRole that is made for this credential.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_role: Option<ClusterRights>,
    /// A role that the target has, in some of its namespaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bind: Option<Bind>,
}

impl Rights {
    /// Whether none were written, as with issuers that have rights of their own.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Rules in one namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RoleRights {
    /// The namespace of the target, which has to exist there.
    #[schemars(schema_with = "shared::namespace_name")]
    pub namespace: String,
    /// The rules, as those of a Role.
    #[schemars(schema_with = "schema::role_rules")]
    pub rules: Vec<Rule>,
}

/// Rules in the whole cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClusterRights {
    /// The rules, as those of a ClusterRole.
    #[schemars(schema_with = "schema::role_rules")]
    pub rules: Vec<Rule>,
}

/// A rule of a Role or ClusterRole.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Rule {
    /// The API groups.
    #[schemars(schema_with = "schema::api_groups")]
    pub api_groups: Vec<String>,
    /// The resources.
    #[schemars(schema_with = "schema::resources")]
    pub resources: Vec<String>,
    /// The verbs.
    #[schemars(schema_with = "schema::verbs")]
    pub verbs: Vec<String>,
    /// The names of the objects that the rule is about. Default: none, and it is about all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::resource_names")]
    pub resource_names: Vec<String>,
}

/// A role of the target, bound in namespaces: exactly one of `role` and `clusterRole`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.role) != has(self.clusterRole)",
    "message": "write exactly one of: role (a Role of that name in each of the namespaces), clusterRole (a ClusterRole)"
}]))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Bind {
    /// The Role, which each of the namespaces has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::role_name")]
    pub role: Option<String>,
    /// The ClusterRole, such as `view`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::role_name")]
    pub cluster_role: Option<String>,
    /// The namespaces of the target in which it is bound, which have to exist there.
    #[schemars(schema_with = "schema::namespaces")]
    pub namespaces: Vec<String>,
}

/// Where the kubeconfig is written to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Output {
    /// The Secret's name. One that was not made for this ClusterAccess is left alone, and the phase is `Refused`.
    #[schemars(schema_with = "schema::object_name")]
    pub secret: String,
    /// The key in its data. Default: `kubeconfig`, as most tools read it; `config` of the format `Kyma`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::data_key")]
    pub key: Option<String>,
    /// The form of the Secret. `Kyma`: it has also the labels of the ClusterAccess whose names are of `kyma-project.io`, and the labels
    /// and the annotation by which Kyma Infrastructure Manager marks such Secrets. Default: `Coppice`, without them, since only
    /// Kyma reads them.
    #[serde(default, skip_serializing_if = "OutputFormat::is_default")]
    #[schemars(default)]
    pub format: OutputFormat,
}

impl Output {
    /// The key in the Secret's data.
    pub fn data_key(&self) -> &str {
        let default = match self.format {
            OutputFormat::Coppice => "kubeconfig",
            OutputFormat::Kyma => "config",
        };
        self.key.as_deref().unwrap_or(default)
    }
}

/// The form of the Secret with the kubeconfig.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OutputFormat {
    /// With labels and annotations of Coppice alone.
    #[default]
    Coppice,
    /// Also with those of Kyma.
    Kyma,
}

impl OutputFormat {
    #[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// The state of a ClusterAccess.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum AccessPhase {
    /// No credential was issued yet.
    Pending,
    /// The Secret holds a credential that is valid.
    Ready,
    /// The Secret holds a credential, and another one is being issued.
    Rotating,
    /// Something failed and is tried again; the Secret holds the credential that it held before.
    Degraded,
    /// Nothing is issued: the condition `Ready` says why.
    Refused,
    /// The ClusterAccess was deleted, and its credential is being revoked.
    Revoking,
}

impl AccessPhase {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Pending, Self::Ready, Self::Rotating, Self::Degraded, Self::Refused, Self::Revoking];

    /// The phase as written in status.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Ready => "Ready",
            Self::Rotating => "Rotating",
            Self::Degraded => "Degraded",
            Self::Refused => "Refused",
            Self::Revoking => "Revoking",
        }
    }
}

/// What was issued, and what is under way. Only Coppice writes it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterAccessStatus {
    /// The generation of the spec whose rights the target has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<AccessPhase>,
    /// The user that the target sees, as its audit log names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub identity: Option<String>,
    /// The id of the credential that the Secret holds. Absent: none yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub credential: Option<String>,
    /// From when it is valid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shared::status_instant")]
    pub not_before: Option<Timestamp>,
    /// Until when it is valid, as the target granted it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shared::status_instant")]
    pub not_after: Option<Timestamp>,
    /// When it was last tried out again, by the target's answer whose it is: once a day, where it is not replaced before that. Absent: not
    /// since it was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shared::status_instant")]
    pub verified_at: Option<Timestamp>,
    /// When it is replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shared::status_instant")]
    pub next_rotation: Option<Timestamp>,
    /// The last `spec.rotate` that was followed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub rotated: Option<String>,
    /// How many credentials were begun: the next one has the next number in its id.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub sequence: u64,
    /// The ManagedCluster of `spec.cluster`, written down before anything is issued for it. Another one of its name is not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub managed_cluster: Option<NamedCluster>,
    /// The cluster that credentials are issued in, written down before anything is done there. In another one nothing is issued,
    /// changed or revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<TargetIdentity>,
    /// The namespaces of the target in which there may be roles and bindings, written down before they are made there. Absent: it may be
    /// any of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::status_namespaces")]
    pub namespaces: Option<Vec<String>>,
    /// The credential that is being issued, written down before anything is done for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intent: Option<IssueIntent>,
    /// Credentials that are to be revoked, 16 at most. While all of these may be valid, no other is issued; one that has expired makes room.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::credentials")]
    pub superseded: Vec<String>,
    /// Since when those in `superseded` are to be revoked, and until when they are valid.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::pending_revocations")]
    pub pending_revocations: Vec<PendingRevocation>,
    /// Certificates that were replaced: each is listed until it expires, since it cannot be revoked; 32 of them at most, those that are
    /// valid for longest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::certificates")]
    pub superseded_certificates: Vec<SupersededCertificate>,
    /// The revision of the Secret that was checked last: as long as it is that one, nobody reads it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<OutputRevision>,
    /// How often the Secret was written again because somebody had deleted or edited it: after the third time within an hour with a
    /// growing pause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restored: Option<Restored>,
    /// What failed, until it succeeds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<LastError>,
    /// When what was issued is revoked, since the ClusterProvider does not allow it any more; its rights were removed at once. Absent: it is
    /// allowed, or nothing is left that could be revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shared::status_instant")]
    pub revokes_at: Option<Timestamp>,
    /// Since when it is tried to revoke everything, of a ClusterAccess that is being deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shared::status_instant")]
    pub revoking_since: Option<Timestamp>,
    /// `Ready`: whether the Secret holds a valid credential. `Reachable`: whether the target answered, and is the cluster that
    /// credentials were issued in. `Verified`: whether the
    /// credential was tried out, and has the rights that were asked for and no others. `Written`: whether the Secret holds it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "shared::conditions")]
    pub conditions: Vec<Condition>,
}

impl ClusterAccessStatus {
    /// Until when what the Secret holds is valid; none if it holds no credential of ours that is, as far as is known.
    pub fn held_until(&self) -> Option<Timestamp> {
        let left_by_crash = self.intent.as_ref().and_then(|intent| intent.written_until);
        let output = self.output.as_ref().filter(|_| !self.is_disproven());
        left_by_crash.or_else(|| output.and(self.not_after))
    }

    /// Whether what the Secret holds was tried out again and is not valid. While another one is being issued it is that one which failed.
    fn is_disproven(&self) -> bool {
        let has_failed = |error: &LastError| error.reason == Reason::VerificationFailed.as_str();
        self.intent.is_none() && self.last_error.as_ref().is_some_and(has_failed)
    }

    /// Every credential that may be valid: the one that the Secret holds, those that are to be revoked, and the one that is being issued.
    pub fn credentials(&self) -> Vec<&str> {
        let intent = self.intent.as_ref().map(|intent| &intent.credential);
        let all = self.credential.iter().chain(&self.superseded).chain(intent);
        all.map(String::as_str).collect()
    }

    /// Whether something may have been done in a target. Earlier versions did not write down in which.
    pub const fn has_touched_target(&self) -> bool {
        self.target.is_some()
            || self.credential.is_some()
            || self.observed_generation.is_some()
            || !self.superseded.is_empty()
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The ManagedCluster that a ClusterAccess is for, and who makes its cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NamedCluster {
    /// Its uid.
    #[schemars(length(max = 128))]
    pub uid: String,
    /// The ClusterProvider by which Gardener makes its Shoot. Absent: Cluster API makes its `Cluster`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub provider: Option<String>,
}

/// What a cluster is known by.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TargetIdentity {
    /// The uid of its namespace `kube-system`, which it has for as long as it exists.
    #[schemars(length(max = 64))]
    pub uid: String,
    /// The SHA-256 of the address and the certificate authorities that the kubeconfig in the Secret was written with. When those of
    /// `spec.cluster` are others, and lead to the same cluster, another credential is issued at once.
    #[schemars(length(max = 64))]
    pub endpoint: String,
}

/// How often the Secret was written again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Restored {
    /// So many times in a row, each within an hour of the one before.
    pub times: u32,
    /// When that was last decided.
    #[schemars(schema_with = "shared::status_instant")]
    pub at: Timestamp,
}

/// A credential that is being issued.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IssueIntent {
    /// Its id.
    #[schemars(length(max = 128))]
    pub credential: String,
    /// Why.
    pub cause: Cause,
    /// When it was decided.
    #[schemars(schema_with = "shared::status_instant")]
    pub since: Timestamp,
    /// The `spec.rotate` that it follows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub rotate: Option<String>,
    /// Until when it is valid, as the annotations of the Secret say, where that was found to hold it after a crash. Absent: it does not,
    /// as far as it was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shared::status_instant")]
    pub written_until: Option<Timestamp>,
    /// Until when it waits, since `callsPerMinute` of its ClusterProvider is used up, or for what `throttled` says. It waits longer if others
    /// are more urgent then. Absent: it does not wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shared::status_instant")]
    pub waits_until: Option<Timestamp>,
    /// Whether it waits since its cluster, or the garden that issues it, has too many requests (429), and not for `callsPerMinute`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub throttled: bool,
}

/// Why a credential is issued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum Cause {
    /// There was none.
    First,
    /// The time of the one before has come.
    Due,
    /// `spec.rotate` asks for it.
    Requested,
    /// The Secret was deleted, or does not hold what was written to it.
    Lost,
    /// `spec.cluster` has another address or other certificate authorities for the same cluster.
    Moved,
}

impl Cause {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::First, Self::Due, Self::Requested, Self::Lost, Self::Moved];

    /// The cause as written in status.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::First => "First",
            Self::Due => "Due",
            Self::Requested => "Requested",
            Self::Lost => "Lost",
            Self::Moved => "Moved",
        }
    }
}

/// A revision of the Secret, and what it holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OutputRevision {
    /// Its uid.
    #[schemars(length(max = 128))]
    pub uid: String,
    /// Its revision.
    #[schemars(length(max = 64))]
    pub resource_version: String,
    /// The SHA-256 of its value: whether somebody changed that is known without the credential.
    #[schemars(length(max = 64))]
    pub sha256: String,
}

/// What failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LastError {
    /// An enumerated reason.
    #[schemars(length(max = 63))]
    pub reason: String,
    /// What happened and what to do, for people.
    #[schemars(length(max = 1024))]
    pub message: String,
    /// The generation of the spec that it was tried with: another one is tried at once.
    pub generation: i64,
    /// How many attempts have failed in a row.
    pub attempts: u32,
    /// When the last of them failed: the next one is 1 to 30 minutes later.
    #[schemars(schema_with = "shared::status_instant")]
    pub at: Timestamp,
    /// What else failed in the last of them: while the Secret cannot be written, what failed in the target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other: Option<OtherError>,
}

/// What failed beside something more important.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OtherError {
    /// An enumerated reason.
    #[schemars(length(max = 63))]
    pub reason: String,
    /// What happened and what to do, for people.
    #[schemars(length(max = 1024))]
    pub message: String,
}
