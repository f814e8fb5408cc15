//! What is watched: every `ClusterAccess`, `ClusterProvider` and `ManagedCluster`, and the metadata of the Secrets that were written for them.

use coppice_clusters_api::managed_cluster::MAX_SPEC_BYTES;
use coppice_clusters_api::{
    ClusterAccessSpec, ClusterAccessStatus, ClusterProviderSpec, ClusterProviderStatus, ManagedClusterSpec,
    ManagedClusterStatus,
};
use coppice_runtime::decode::{ObjectRef, Unreadable};
use coppice_runtime::kind::{Kind, is_later};
use coppice_runtime::object::{NoAnnotations, Object, OwnKind};
use coppice_runtime::own_kind;
use serde::Deserialize;
use serde_json::Value;

/// A `ClusterAccess`.
pub type Access = Object<ClusterAccessSpec, ClusterAccessStatus>;

/// Every `ClusterAccess`.
#[derive(Debug)]
pub struct ClusterAccesses;

own_kind!(ClusterAccesses, "/apis/coppice.dev/v1alpha1", "clusteraccesses");

impl OwnKind for ClusterAccesses {
    type Spec = ClusterAccessSpec;
    type Status = ClusterAccessStatus;
    type Annotations = NoAnnotations;
    const KIND: &'static str = "ClusterAccess";
    const NAMESPACED: bool = true;
    /// 16 rules, each with four lists of 32 words.
    const MAX_SPEC_BYTES: usize = 768 << 10;
}

/// A `ClusterProvider`.
pub(crate) type Provider = Object<ClusterProviderSpec, ClusterProviderStatus>;

/// Every `ClusterProvider`.
#[derive(Debug)]
pub(crate) struct ClusterProviders;

own_kind!(ClusterProviders, "/apis/coppice.dev/v1alpha1", "clusterproviders");

impl OwnKind for ClusterProviders {
    type Spec = ClusterProviderSpec;
    type Status = ClusterProviderStatus;
    type Annotations = NoAnnotations;
    const KIND: &'static str = "ClusterProvider";
    const NAMESPACED: bool = false;
    /// 16 entries, each with 16 rules: more than an object may have.
    const MAX_SPEC_BYTES: usize = 1 << 20;
}

/// A `ManagedCluster`.
pub(crate) type ManagedClusterObject = Object<ManagedClusterSpec, ManagedClusterStatus>;

/// Every `ManagedCluster`.
#[derive(Debug)]
pub(crate) struct ManagedClusters;

own_kind!(ManagedClusters, "/apis/coppice.dev/v1alpha1", "managedclusters");

impl OwnKind for ManagedClusters {
    type Spec = ManagedClusterSpec;
    type Status = ManagedClusterStatus;
    type Annotations = NoAnnotations;
    const KIND: &'static str = "ManagedCluster";
    const NAMESPACED: bool = true;
    const MAX_SPEC_BYTES: usize = MAX_SPEC_BYTES;
}

/// A kind of which whole objects are read and written, and none is watched.
macro_rules! whole_objects {
    ($(#[doc = $doc:literal] $kind:ident, $group_path:literal, $resource:literal;)+) => {
        $(
            #[doc = $doc]
            #[derive(Debug)]
            pub(crate) struct $kind;

            impl Kind for $kind {
                type Object = Value;
                type Wire = Value;
                type Context = ();
                const RESOURCE: &'static str = $resource;
                const GROUP_PATH: &'static str = $group_path;

                fn object_ref(wire: &Value) -> ObjectRef {
                    let text = |field: &str| wire["metadata"][field].as_str().unwrap_or_default().into();
                    ObjectRef { namespace: text("namespace"), name: text("name"), revision: text("resourceVersion") }
                }

                fn project(wire: Value, (): &()) -> Result<Value, Unreadable> {
                    Ok(wire)
                }

                fn name(object: &Value) -> &str {
                    object["metadata"]["name"].as_str().unwrap_or_default()
                }
            }
        )+
    };
}

whole_objects! {
    /// A `Cluster` of Cluster API.
    CapiClusters, "/apis/cluster.x-k8s.io/v1beta2", "clusters";
    /// A `Shoot` of Gardener.
    Shoots, "/apis/core.gardener.cloud/v1beta1", "shoots";
    /// A `ConfigMap`.
    ConfigMaps, "/api/v1", "configmaps";
}

/// The Secrets with our label, without what is in them.
#[derive(Debug)]
pub(crate) struct OutputSecrets;

/// What is kept of one.
#[derive(Debug, PartialEq)]
pub(crate) struct OutputMeta {
    pub(crate) name: Box<str>,
    pub(crate) uid: Box<str>,
    pub(crate) resource_version: Box<str>,
    /// The uid of the `ClusterAccess` that it was made for.
    pub(crate) access: Box<str>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct OutputWire {
    metadata: MetaWire,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct MetaWire {
    name: Box<str>,
    namespace: Box<str>,
    uid: Box<str>,
    resource_version: Box<str>,
    labels: LabelsWire,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct LabelsWire {
    #[serde(rename = "coppice.dev/access")]
    access: Box<str>,
}

impl Kind for OutputSecrets {
    type Object = OutputMeta;
    type Wire = OutputWire;
    type Context = ();
    const RESOURCE: &'static str = "secrets";
    const GROUP_PATH: &'static str = "/api/v1";
    const LABEL_SELECTOR: &'static str = "coppice.dev/access";
    const METADATA_ONLY: bool = true;
    /// A Secret that is not there is read again before anything is done, and written again.
    const CAN_COLLAPSE: bool = false;

    fn object_ref(wire: &OutputWire) -> ObjectRef {
        let MetaWire { name, namespace, resource_version, .. } = &wire.metadata;
        ObjectRef { namespace: namespace.clone(), name: name.clone(), revision: resource_version.clone() }
    }

    fn project(wire: OutputWire, (): &()) -> Result<OutputMeta, Unreadable> {
        let MetaWire { name, uid, resource_version, labels, .. } = wire.metadata;
        Ok(OutputMeta { name, uid, resource_version, access: labels.access })
    }

    fn name(object: &OutputMeta) -> &str {
        &object.name
    }

    fn is_newer(object: &OutputMeta, other: &OutputMeta) -> bool {
        object.uid == other.uid && is_later(&object.resource_version, &other.resource_version)
    }
}

#[cfg(test)]
mod tests {
    use coppice_runtime::clock::Clock;
    use coppice_runtime::server_clock::ServerClock;
    use coppice_runtime::store::Store;
    use coppice_scripted::{Answer, Followers, NOW, scripted};
    use serde_json::json;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn of_secrets_with_our_label_metadata_alone_is_asked_for_and_nothing_of_others_is_kept() {
        // Of a server that answers with whole objects, whatever it is asked for.
        let labels = json!({"coppice.dev/access": "u", "example.org/team": "one"});
        let metadata =
            json!({"name": "out", "namespace": "team", "uid": "s", "resourceVersion": "7", "labels": labels});
        let secret = json!({"metadata": metadata, "type": "Opaque", "data": {"kubeconfig": "c2VjcmV0"}});
        let list = json!({"metadata": {"resourceVersion": "9"}, "items": [secret]});
        let (clients, requests) = scripted(move |_, _, _| Answer::Object(200, list.clone()));
        let store = Store::<OutputSecrets>::default();
        let mut followers = Followers::new(&clients, &ServerClock::new(Clock::following_tokio(NOW)));
        followers.fill(&store).await;
        let [name, uid, resource_version, access] = ["out", "s", "7", "u"].map(Box::from);
        assert_eq!(*store.get("team", "out").unwrap(), OutputMeta { name, uid, resource_version, access });
        let requests = requests.lock().unwrap();
        assert!(!requests.is_empty(), "it was listed");
        for sent in requests.iter() {
            assert_eq!(sent.path, "/api/v1/secrets");
            assert!(sent.query.contains("labelSelector=coppice.dev%2Faccess"), "{}", sent.query);
            let accept = sent.headers[http::header::ACCEPT].to_str().unwrap();
            assert!(accept.starts_with("application/json;as=PartialObjectMetadataList;"), "{accept}");
        }
    }
}
