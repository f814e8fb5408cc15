//! What this installation has made in a target, whichever `ClusterAccess` it was for.

use coppice_clusters::rights::{TargetKind, made_for};
use coppice_clusters_api::names::{LABEL_INSTALLATION, TARGET_NAMESPACE};
use coppice_runtime::leader::Permit;
use jiff::Timestamp;
use serde_json::Value;

use super::{Failure, List, MAX_PAGES, PAGE, Target, described, encoded};

/// What credentials are issued from, and then what gives rights, in the order in which it is removed.
const KINDS: [TargetKind; 7] = [
    TargetKind::Secret,
    TargetKind::SigningRequest,
    TargetKind::RoleBinding,
    TargetKind::ClusterRoleBinding,
    TargetKind::Role,
    TargetKind::ClusterRole,
    TargetKind::ServiceAccount,
];

/// An object that this installation has made in a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Made {
    kind: TargetKind,
    namespace: String,
    name: String,
    uid: String,
    /// The uid of the `ClusterAccess` that it was made for.
    pub(crate) access: String,
    /// When; none if the target does not say so.
    pub(crate) created: Option<Timestamp>,
}

impl Made {
    fn new(installation: &str, kind: TargetKind, found: &Value) -> Option<Self> {
        let access = made_for(installation, kind, found)?.to_owned();
        let of = |field: &str| found["metadata"][field].as_str().unwrap_or_default();
        let created = of("creationTimestamp").parse().ok();
        let (namespace, name, uid) =
            (of("namespace").to_owned(), of("name").to_owned(), of("uid").to_owned());
        // Without a uid it could be another one by the time that it is deleted.
        (!uid.is_empty()).then_some(Self { kind, namespace, name, uid, access, created })
    }

    /// What it is, for the log.
    pub(crate) const fn described(&self) -> &'static str {
        described(self.kind)
    }
}

impl Target {
    /// Everything that the installation of this id has made here, of the kinds that the user of the kubeconfig may list: 2,000 objects of
    /// each at most, the others once these are gone.
    pub(crate) async fn made_by(&self, installation: &str) -> Result<Vec<Made>, Failure> {
        let mut made = Vec::new();
        for kind in KINDS {
            match self.listed(kind, &format!("{LABEL_INSTALLATION}={installation}")).await {
                Ok(found) => {
                    made.extend(found.iter().filter_map(|found| Made::new(installation, kind, found)));
                }
                Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404) => {}
                Err(error) => return Err(Failure::of(&format!("list {}s", described(kind)), &error)),
            }
        }
        Ok(made)
    }

    async fn listed(&self, kind: TargetKind, selector: &str) -> Result<Vec<Value>, kube::Error> {
        let namespace = match kind {
            TargetKind::Secret | TargetKind::ServiceAccount => TARGET_NAMESPACE,
            _ => "",
        };
        let (selector, mut found, mut from) = (encoded(selector), Vec::new(), String::new());
        for _ in 0..MAX_PAGES {
            let path = format!("{}?labelSelector={selector}&limit={PAGE}{from}", kind.collection(namespace));
            let page = self.get::<List>(&path).await?;
            found.extend(page.items);
            if page.metadata.more.is_empty() {
                break;
            }
            from = format!("&continue={}", encoded(&page.metadata.more));
        }
        Ok(found)
    }

    /// Deletes one as it was found.
    pub(crate) async fn delete_made(&self, permit: &Permit, made: &Made) -> Result<(), Failure> {
        let Made { kind, namespace, name, uid, .. } = made;
        self.delete(permit, *kind, (namespace, name), Some(uid)).await
    }
}
