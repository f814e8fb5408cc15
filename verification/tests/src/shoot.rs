//! What stands in for the controllers of Gardener: a Shoot that looks created, and whose cluster is a plane.

use std::sync::{Mutex, PoisonError};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use coppice_plane::{ADMIN, ClientAuthority};
use serde_json::{Value, json};

use crate::TestCluster;

/// The namespace of the project `dev`.
pub const PROJECT_NAMESPACE: &str = "garden-dev";
/// A project, and a profile by which there may be Shoots without machines.
const PROJECT: &str = "
apiVersion: v1
kind: Namespace
metadata:
  name: garden-dev
  labels: {gardener.cloud/role: project, project.gardener.cloud/name: dev}
---
apiVersion: core.gardener.cloud/v1beta1
kind: Project
metadata: {name: dev}
spec:
  namespace: garden-dev
  owner: {apiGroup: rbac.authorization.k8s.io, kind: User, name: owner}
---
apiVersion: core.gardener.cloud/v1beta1
kind: CloudProfile
metadata: {name: plane}
spec:
  type: plane
  kubernetes: {versions: [{version: 1.34.0}]}
  machineImages:
  - name: os
    versions: [{version: 1.0.0, architectures: [amd64], cri: [{name: containerd}]}]
  machineTypes: [{name: small, architecture: amd64, cpu: '1', gpu: '0', memory: 1Gi}]
  regions: [{name: here}]
";
/// A cloud with two zones, by which there may be Shoots with machines: what Gardener has to know of it.
const CLOUD: &str = "
apiVersion: core.gardener.cloud/v1beta1
kind: ControllerRegistration
metadata: {name: cloud}
spec:
  resources:
  - {kind: ControlPlane, type: aws}
  - {kind: Infrastructure, type: aws}
  - {kind: Worker, type: aws}
  - {kind: Network, type: calico}
  - {kind: OperatingSystemConfig, type: os}
---
apiVersion: core.gardener.cloud/v1beta1
kind: CloudProfile
metadata: {name: cloud}
spec:
  type: aws
  kubernetes: {versions: [{version: 1.33.4}, {version: 1.34.0}]}
  machineImages:
  - name: os
    versions:
    - {version: 1.0.0, architectures: [amd64], cri: [{name: containerd}]}
    - {version: 1.1.0, architectures: [amd64], cri: [{name: containerd}]}
  machineTypes: [{name: small, architecture: amd64, cpu: '2', gpu: '0', memory: 8Gi}]
  volumeTypes: [{name: gp3, class: standard}]
  regions: [{name: here, zones: [{name: a}, {name: b}]}]
---
apiVersion: v1
kind: Secret
metadata: {name: cloud, namespace: garden-dev}
---
apiVersion: security.gardener.cloud/v1alpha1
kind: CredentialsBinding
metadata: {name: cloud, namespace: garden-dev}
provider: {type: aws}
credentialsRef: {apiVersion: v1, kind: Secret, name: cloud, namespace: garden-dev}
";
/// What can be made by it.
const SHOOT: &str = "
apiVersion: core.gardener.cloud/v1beta1
kind: Shoot
metadata: {name: probe, namespace: garden-dev}
spec:
  cloudProfile: {kind: CloudProfile, name: cloud}
  credentialsBindingName: cloud
  region: here
  kubernetes: {version: 1.34.0}
  networking: {type: calico}
  provider:
    type: aws
    workers: [{name: a, machine: {type: small}, minimum: 1, maximum: 1, zones: [a]}]
";
/// In a Shoot: what Gardener binds the groups of its certificates to.
const GROUPS: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: 'gardener.cloud:project:admins'}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: 'gardener.cloud:project:admins'}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: 'gardener.cloud:system:read-only'}
rules: [{apiGroups: [''], resources: [namespaces, configmaps, pods], verbs: [get, list, watch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: 'gardener.cloud:project:viewers'}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: 'gardener.cloud:system:read-only'}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: 'gardener.cloud:project:viewers'}]
";

/// Creates the project `dev` in a garden.
pub async fn create_project(garden: &TestCluster) -> anyhow::Result<()> {
    apply(garden, PROJECT).await
}

/// Creates the CloudProfile and the CredentialsBinding `cloud` in the project `dev`, of the type `aws`, and waits until Shoots can be made by them.
pub async fn create_cloud(garden: &TestCluster) -> anyhow::Result<()> {
    apply(garden, CLOUD).await?;
    accepted(garden, &["create", "--dry-run=server", "--validate=false", "-f", "-"], SHOOT).await
}

/// Applies objects in a garden as soon as they are accepted.
async fn apply(garden: &TestCluster, objects: &str) -> anyhow::Result<()> {
    accepted(garden, &["apply", "--validate=false", "-f", "-"], objects).await
}

/// Asks a garden until it accepts these objects: what kinds it has, and the project and the profile of a Shoot, it knows a moment after they
/// are there.
async fn accepted(garden: &TestCluster, args: &[&str], objects: &str) -> anyhow::Result<()> {
    let last = Mutex::new(None);
    let asked = async || {
        let error = garden.kubectl_stdin(ADMIN, args, objects).await.err();
        let accepted = error.is_none().then_some(());
        *last.lock().unwrap_or_else(PoisonError::into_inner) = error;
        accepted
    };
    let accepted = garden.until("the garden accepts it", asked).await;
    let last = last.into_inner().unwrap_or_else(PoisonError::into_inner);
    accepted.map_err(|error| last.unwrap_or(error))
}

/// Creates a Shoot in the project `dev`, and makes it look created: `there` is its cluster.
pub async fn create_shoot(
    garden: &TestCluster,
    name: &str,
    there: &TestCluster,
    authority: &ClientAuthority,
) -> anyhow::Result<()> {
    let shoot = json!({
        "apiVersion": "core.gardener.cloud/v1beta1", "kind": "Shoot",
        "metadata": {"name": name, "namespace": PROJECT_NAMESPACE},
        "spec": {
            "cloudProfile": {"kind": "CloudProfile", "name": "plane"}, "region": "here",
            "kubernetes": {"version": "1.34.0"}, "provider": {"type": "plane"}
        }
    });
    apply(garden, &shoot.to_string()).await?;
    let created = json!({"lastOperation": {
        "type": "Create", "state": "Succeeded", "progress": 100, "description": "created",
        "lastUpdateTime": "2026-01-01T00:00:00Z"
    }});
    status(garden, name, &created).await?;
    give_cluster(garden, name, there, authority).await
}

/// Gives a Shoot of the project `dev` its cluster, which `there` is: where that is, by which authority it is known, and by which one it knows
/// clients, which its API server has to trust.
pub async fn give_cluster(
    garden: &TestCluster,
    name: &str,
    there: &TestCluster,
    authority: &ClientAuthority,
) -> anyhow::Result<()> {
    let metadata = |what: &str| json!({"name": format!("{name}.{what}"), "namespace": PROJECT_NAMESPACE});
    let encoded = |pem: &str| BASE64_STANDARD.encode(pem);
    let clients = json!({
        "apiVersion": "core.gardener.cloud/v1beta1", "kind": "InternalSecret", "metadata": metadata("ca-client"),
        "data": {"ca.crt": encoded(&authority.certificate), "ca.key": encoded(&authority.key)}
    });
    let server = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata("ca-cluster"),
        "data": {"ca.crt": there.plane.ca_pem()}
    });
    for object in [clients, server] {
        apply(garden, &object.to_string()).await?;
    }
    let addresses = json!({"advertisedAddresses": [{"name": "external", "url": there.plane.url()}]});
    status(garden, name, &addresses).await?;
    there.kubectl_stdin(ADMIN, &["apply", "-f", "-"], GROUPS).await.map(drop)
}

/// Writes these fields of the status of a Shoot of the project `dev`.
pub async fn status(garden: &TestCluster, name: &str, fields: &Value) -> anyhow::Result<()> {
    let patch = json!({"status": fields}).to_string();
    let args =
        ["patch", "shoot", name, "-n", PROJECT_NAMESPACE, "--subresource=status", "--type=merge", "-p"];
    garden.kubectl(ADMIN, &[&args[..], &[patch.as_str()]].concat()).await.map(drop)
}
