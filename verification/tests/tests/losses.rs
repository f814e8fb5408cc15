//! What is lost with a namespace: said before it is deleted, in the notice, and remembered afterwards.

use anyhow::{Context as _, ensure};
use coppice_plane::{ADMIN, ALICE};
use coppice_tests::{TestCluster, on_shared_plane};
use serde_json::{Value, json};

use super::cli::{coppice, tenant};
use super::cluster_managers::record;
use super::lifecycle::effective_delete;

type Test = anyhow::Result<()>;

const NAMESPACE: &str = "lost";

/// A claim and the volume for it with this reclaim policy, as a provisioner leaves them.
fn bound(claim: &str, policy: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: PersistentVolume, metadata: {{name: lost-{claim}}}, spec: {{capacity: {{storage: 1Gi}}, \
         accessModes: [ReadWriteOnce], persistentVolumeReclaimPolicy: {policy}, storageClassName: '', hostPath: {{path: \
         /nowhere}}, claimRef: {{namespace: {NAMESPACE}, name: {claim}}}}}}}\n---\n\
         {{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {{name: {claim}, namespace: {NAMESPACE}}}, spec: \
         {{accessModes: [ReadWriteOnce], storageClassName: '', volumeName: lost-{claim}, resources: {{requests: {{storage: \
         1Gi}}}}}}}}\n"
    )
}

/// Does what the controllers do that bind claims, which this plane has not; and adds a claim that asks for the volume of another.
async fn bind(test_cluster: &TestCluster) -> Test {
    for claim in ["data", "kept"] {
        let uid = ["get", "pvc", claim, "-n", NAMESPACE, "-o", "jsonpath={.metadata.uid}"];
        let uid = test_cluster.kubectl(ADMIN, &uid).await?;
        let of = json!({"spec": {"claimRef": {"uid": uid}}}).to_string();
        let volume = format!("lost-{claim}");
        test_cluster.kubectl(ADMIN, &["patch", "pv", &volume, "--type=merge", "-p", &of]).await?;
        let bound = r#"{"status":{"phase":"Bound","capacity":{"storage":"1Gi"}}}"#;
        let patch =
            ["patch", "pvc", claim, "-n", NAMESPACE, "--subresource=status", "--type=merge", "-p", bound];
        test_cluster.kubectl(ADMIN, &patch).await?;
    }
    // Whose volume it is, its claim decides, and not who asks for it.
    let asks = format!(
        "{{apiVersion: v1, kind: PersistentVolume, metadata: {{name: lost-other}}, spec: {{capacity: {{storage: 9Gi}}, accessModes: \
         [ReadWriteOnce], storageClassName: '', hostPath: {{path: /nowhere}}, claimRef: {{namespace: other, name: db}}}}}}\n---\n\
         {{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {{name: asks, namespace: {NAMESPACE}}}, spec: {{accessModes: \
         [ReadWriteOnce], storageClassName: '', volumeName: lost-other, resources: {{requests: {{storage: 1Gi}}}}}}}}\n"
    );
    test_cluster.kubectl_stdin(ADMIN, &["apply", "-f", "-"], &asks).await.map(drop)
}

#[test]
fn what_is_lost_with_a_namespace_is_said_before_and_remembered() -> Test {
    on_shared_plane(async |test_cluster, _| {
        tenant(test_cluster, NAMESPACE).await?;
        let others = format!(
            "---\n{{apiVersion: v1, kind: Service, metadata: {{name: web, namespace: {NAMESPACE}, finalizers: \
             [example.com/dns]}}, spec: {{type: LoadBalancer, ports: [{{port: 80}}]}}}}\n---\n\
             {{apiVersion: v1, kind: ConfigMap, metadata: {{name: settings, namespace: {NAMESPACE}, finalizers: \
             [example.com/wait]}}}}\n"
        );
        let objects = format!("{}---\n{}{others}", bound("data", "Delete"), bound("kept", "Retain"));
        test_cluster.kubectl_stdin(ADMIN, &["apply", "-f", "-"], &objects).await?;
        bind(test_cluster).await?;
        let address = r#"{"status":{"loadBalancer":{"ingress":[{"ip":"192.0.2.7"}]}}}"#;
        let patch = ["patch", "service", "web", "-n", NAMESPACE, "--subresource=status", "-p", address];
        test_cluster.kubectl(ADMIN, &patch).await?;
        let manager = format!(
            "{{apiVersion: coppice.dev/v1alpha1, kind: ClusterNamespaceManager, metadata: {{name: lost}}, spec: {{selector: \
             {{names: [{NAMESPACE}]}}, settle: 1s, ttl: {{after: 1s}}, policies: [{{name: end, when: {{phase: {{in: \
             [Stale]}}}}, then: {{delete: {{notice: 3s}}}}}}]}}}}"
        );
        test_cluster.apply(&manager).await?;
        let is_due = |status: &Value| status["next"]["reason"] == "Observing";
        record(test_cluster, NAMESPACE, "that it would be deleted", is_due).await?;

        let (_, explained, err) = coppice(test_cluster, ADMIN, &["explain", NAMESPACE]).await?;
        let lost = explained.split_once("What is lost with the namespace\n").context("nothing is lost");
        let (_, lost) = lost.with_context(|| format!("{explained}{err}"))?;
        let expected = "  PersistentVolume lost-data (claim data, 1Gi) is lost (its reclaim policy is Delete)\n  \
                        PersistentVolume lost-kept (claim kept, 1Gi) stays without a claim (its reclaim policy is Retain)\n  \
                        the load balancer of Service web (192.0.2.7)\n  \
                        Service web has the finalizer example.com/dns: the namespace is not gone before its owner removes it\n  \
                        ConfigMap settings has the finalizer example.com/wait: the namespace is not gone before its owner \
                        removes it\n";
        ensure!(lost == expected, "{lost}");
        let plan = ["plan", "-n", NAMESPACE];
        let (_, planned, _) = coppice(test_cluster, ADMIN, &plan).await?;
        let said = "lost with it: 1 volume (data 1Gi) and 1 load balancer (web 192.0.2.7); 1 retained volume (kept 1Gi) stays \
                    without a claim; it is not gone before their owners remove 1 finalizer (example.com/dns of Service web)";
        ensure!(planned.contains(said), "{planned}");
        // What a tenant may not read is not known, and taken as lost.
        let (_, planned, _) = coppice(test_cluster, ALICE, &plan).await?;
        ensure!(
            planned.contains("kept 1Gi unless its reclaim policy, which is not known, is Retain"),
            "{planned}"
        );

        test_cluster.patch("cnsman", "", "lost", r#"{"spec":{"mode":"Enforce"}}"#).await?;
        let delete = effective_delete(test_cluster, NAMESPACE).await?;
        let announced = test_cluster.events("default", NAMESPACE, "DeletionAnnounced").await?;
        ensure!(announced.iter().any(|note| note.contains(said)), "{announced:?}");
        let decision = delete.user_agent.split_once("(decision ").map(|(_, id)| id.trim_end_matches(')'));
        let remains =
            test_cluster.get("delns", "", decision.context("the DELETE names no decision")?).await?;
        let remains = remains.context("there is no record of the deletion")?;
        let volume = |claim: &str, policy: &str| {
            let volume = format!("lost-{claim}");
            json!({"claim": claim, "volume": volume, "capacity": "1Gi", "reclaimPolicy": policy})
        };
        let expected = json!({
            "volumes": [volume("data", "Delete"), volume("kept", "Retain")],
            "loadBalancers": [{"service": "web", "addresses": ["192.0.2.7"]}],
            "finalizers": [{"finalizer": "example.com/dns", "kind": "Service", "name": "web"}],
        });
        ensure!(remains["spec"]["losses"] == expected, "{remains:#}");

        // Their owners let go.
        for object in ["service/web", "configmap/settings", "pvc/data", "pvc/kept", "pvc/asks"] {
            let none = r#"{"metadata":{"finalizers":null}}"#;
            let patch = ["patch", object, "-n", NAMESPACE, "--type=merge", "-p", none];
            if let Err(error) = test_cluster.kubectl(ADMIN, &patch).await {
                ensure!(error.to_string().contains("NotFound"), "{error}");
            }
        }
        test_cluster
            .kubectl(ADMIN, &["delete", "pv", "lost-data", "lost-kept", "lost-other", "--wait=false"])
            .await?;
        Ok(())
    })
}
