//! A real control plane with Coppice installed on it, and words to write tests with.
//!
//! Every wait is for a state, with a deadline; nothing sleeps for a fixed time and hopes.

pub mod change_feed;
pub mod cluster_api;
pub mod demo;
pub mod fault_injection;
pub mod mail_server;
pub mod memory;
pub mod operator;
pub mod program;
pub mod proxy;
pub mod receiver;
pub mod requests;
pub mod scale;
pub mod shoot;
pub mod slack;
pub mod test_cluster;

pub use mail_server::MailServer;
pub use memory::InMemory;
pub use operator::Operator;
pub use slack::Slack;
pub use test_cluster::TestCluster;

use std::sync::LazyLock;

use tokio::runtime::Runtime;
use tokio::sync::OnceCell;

#[allow(clippy::expect_used, reason = "there is no test without a runtime")]
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    // No HTTP client can be made without one, be it for plain HTTP. It may be there already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime")
});
static SHARED: OnceCell<(TestCluster, Operator)> = OnceCell::const_new();

/// A kind that has its replicas in a place of its own, and the rights that the chart's `scaleKinds` would give.
const WIDGETS: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
    subresources:
      scale: {specReplicasPath: .spec.workers.count, statusReplicasPath: .status.workers}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: scale-widgets}
rules:
- {apiGroups: [example.com], resources: [widgets], verbs: [list]}
- {apiGroups: [example.com], resources: [widgets/scale], verbs: [get, patch]}
- {apiGroups: [apiextensions.k8s.io], resources: [customresourcedefinitions], resourceNames: [widgets.example.com], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: scale-widgets}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: scale-widgets}
subjects: [{kind: ServiceAccount, name: coppice, namespace: coppice-system}]
";

/// The condition of this type, null if there is none.
pub fn condition(object: &serde_json::Value, type_: &str) -> serde_json::Value {
    let conditions = object["status"]["conditions"].as_array();
    conditions.and_then(|all| all.iter().find(|c| c["type"] == type_)).cloned().unwrap_or_default()
}

/// Runs a test with a plane of its own.
pub fn on_own_plane(test: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    RUNTIME.block_on(test)
}

/// Runs a test on the plane, with the operator, that all tests of this binary share: each has namespaces of its own.
pub fn on_shared_plane(
    test: impl AsyncFnOnce(&TestCluster, &Operator) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    RUNTIME.block_on(async {
        let (test_cluster, operator) = SHARED
            .get_or_try_init(async || {
                let test_cluster = TestCluster::start_at_once().await?;
                // Tests destroy much in a short time; the budget has tests of its own.
                let config = r#"{apiVersion: coppice.dev/v1alpha1, kind: CoppiceConfig, metadata: {name: coppice},
                    spec: {governor: {perMinute: 100000, perHour: 100000, maxShare: 100%, atLeast: 100000},
                           protected: {names: ["guarded-*"]},
                           tenants: {webhookHosts: ["*.svc", "127.0.0.1"]}}}"#;
                test_cluster.apply(config).await?;
                test_cluster.apply(WIDGETS).await?;
                // The lease has tests of its own. Nobody starts this operator again if it ends because the machine had so
                // much to do that the API server did not answer for the time of a lease.
                let args = [
                    "--scale-kind=example.com/v1/Widget/widgets",
                    "--lease-duration=120s",
                    "--lease-renew-deadline=90s",
                ];
                let operator = Operator::spawn(&test_cluster, &args).await?;
                operator.ready(&test_cluster).await?;
                anyhow::Ok((test_cluster, operator))
            })
            .await?;
        test(test_cluster, operator).await
    })
}
