//! The id of this installation, which everything that it makes in a target has: several may use one target, and what a `ClusterAccess` of
//! another cluster has there is none of ours to remove.

use std::sync::Arc;

use coppice_runtime::client::Clients;
use coppice_runtime::read;
use serde::Deserialize;
use tokio::sync::OnceCell;

/// The namespace that this cluster has for as long as it exists.
const OLDEST_NAMESPACE: &str = "kube-system";

/// The id, read once. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Installation(Arc<OnceCell<Arc<str>>>);

#[derive(Default, Deserialize)]
#[serde(default)]
struct Namespace {
    metadata: Meta,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Meta {
    uid: String,
}

impl Installation {
    /// The uid of the namespace `kube-system` of this cluster: each `ClusterAccess` of this cluster is one of this installation. Empty if
    /// that is no value of a label.
    ///
    /// # Errors
    /// If it could not be read.
    pub(crate) async fn id(&self, clients: &Clients) -> Result<Arc<str>, kube::Error> {
        self.0.get_or_try_init(|| uid_of_oldest(clients)).await.cloned()
    }
}

async fn uid_of_oldest(clients: &Clients) -> Result<Arc<str>, kube::Error> {
    let request = read::request(&format!("/api/v1/namespaces/{OLDEST_NAMESPACE}"))?;
    let found: Namespace = clients.reads.request(request).await?;
    let uid = found.metadata.uid;
    let is_value = uid.len() <= 63 && uid.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    Ok(if is_value { uid.into() } else { "".into() })
}

#[cfg(test)]
mod tests {
    use coppice_scripted::{Answer, scripted};
    use serde_json::json;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_is_read_once_and_is_none_where_it_is_not_known() {
        let of = |uid: &'static str| {
            scripted(move |_, path, _| {
                assert_eq!(path, "/api/v1/namespaces/kube-system");
                Answer::Object(200, json!({"metadata": {"uid": uid}}))
            })
        };
        let (clients, requests) = of("0a-1");
        let installation = Installation::default();
        for _ in 0..2 {
            assert_eq!(&*installation.id(&clients).await.unwrap(), "0a-1");
        }
        assert_eq!(requests.lock().unwrap().len(), 1);
        let (clients, _) = of("no value");
        assert_eq!(&*Installation::default().id(&clients).await.unwrap(), "");
        let (clients, _) = scripted(|_, _, _| Answer::Refused(403));
        assert!(Installation::default().id(&clients).await.is_err());
    }
}
