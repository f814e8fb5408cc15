//! The `Cluster` of Cluster API whose kubeconfig is used: read before something is issued for it, and never watched.

use coppice_clusters::ClusterFact;
use coppice_runtime::client::Clients;
use coppice_runtime::read;
use serde::Deserialize;

/// The versions of its API, the newest first.
const VERSIONS: [&str; 2] = ["v1beta2", "v1beta1"];

#[derive(Default, Deserialize)]
#[serde(default)]
struct Found {
    metadata: FoundMeta,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct FoundMeta {
    deletion_timestamp: Option<String>,
}

/// Whether the `Cluster` stays. Where no version of its API is served, nothing is known of it, and its Secret decides alone.
pub(crate) async fn look(clients: &Clients, namespace: &str, name: &str) -> Result<ClusterFact, kube::Error> {
    for version in VERSIONS {
        let path = format!("/apis/cluster.x-k8s.io/{version}/namespaces/{namespace}/clusters/{name}");
        match clients.reads.request::<Found>(read::request(&path)?).await {
            Ok(found) if found.metadata.deletion_timestamp.is_some() => return Ok(ClusterFact::Deleting),
            Ok(_) => return Ok(ClusterFact::Stays),
            Err(kube::Error::Api(status)) if status.code == 404 => {
                // Of a kind that is not served the API server names no object.
                if status.details.as_ref().is_some_and(|details| details.name == name) {
                    return Ok(ClusterFact::Gone);
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(ClusterFact::Stays)
}

#[cfg(test)]
mod tests {
    use coppice_scripted::{Answer, scripted};
    use serde_json::json;

    use super::*;

    fn not_found() -> Answer {
        Answer::Object(
            404,
            json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 404,
                "message": "clusters.cluster.x-k8s.io \"c\" not found", "reason": "NotFound",
                "details": {"name": "c", "group": "cluster.x-k8s.io", "kind": "clusters"}
            }),
        )
    }

    #[tokio::test]
    async fn a_cluster_is_gone_where_its_kind_is_served_and_it_is_not_there() {
        let deleting = json!({"metadata": {"name": "c", "deletionTimestamp": "2026-01-01T00:00:00Z"}});
        let there = Answer::Object(200, json!({"metadata": {"name": "c"}}));
        let unserved = Answer::Refused(404);
        for (newer, older, expected) in [
            (there.clone(), unserved.clone(), Some(ClusterFact::Stays)),
            (Answer::Object(200, deleting), unserved.clone(), Some(ClusterFact::Deleting)),
            (not_found(), unserved.clone(), Some(ClusterFact::Gone)),
            (unserved.clone(), not_found(), Some(ClusterFact::Gone)),
            (unserved.clone(), there, Some(ClusterFact::Stays)),
            (unserved.clone(), unserved.clone(), Some(ClusterFact::Stays)),
            (Answer::Refused(500), unserved, None),
        ] {
            let (clients, ..) =
                scripted(
                    move |_, path, _| {
                        if path.contains("/v1beta2/") { newer.clone() } else { older.clone() }
                    },
                );
            assert_eq!(look(&clients, "team", "c").await.ok(), expected);
        }
    }
}
