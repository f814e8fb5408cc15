//! What this installation has made in a target, whichever `ClusterAccess` it was for.

use coppice_clusters::rights::{TargetKind, owner_uid};
use coppice_clusters_api::names::{LABEL_INSTALLATION, TARGET_NAMESPACE};
use coppice_runtime::leader::Permit;
use serde_json::Value;

use super::list::{Pages, name};
use super::{Failure, Target, described, encoded};

/// So many objects of a kind are listed, living ones among them.
const MAX_LISTED: usize = 20_000;
/// So many objects of a kind are kept of these.
const MAX_KEPT: usize = 2_000;

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
    pub(crate) uid: String,
    /// The uid of the `ClusterAccess` that it was made for.
    pub(crate) access: String,
}

impl Made {
    fn new(installation: &str, kind: TargetKind, found: &Value) -> Option<Self> {
        // It is a part of the name.
        let access = owner_uid(installation, kind, found)?.to_owned();
        let metadata = &found["metadata"];
        // Of one that is being deleted nothing more can be done.
        if !metadata["deletionTimestamp"].is_null() {
            return None;
        }
        let of = |field: &str| name(&metadata[field]).map(str::to_owned);
        // Without a uid it could be another one by the time that it is deleted.
        let (name, uid) = (of("name")?, of("uid").filter(|uid| !uid.is_empty())?);
        // Some kinds have none.
        let namespace = if metadata["namespace"].is_null() { String::new() } else { of("namespace")? };
        Some(Self { kind, namespace, name, uid, access })
    }

    /// What it is, for the log.
    pub(crate) const fn described(&self) -> &'static str {
        described(self.kind)
    }
}

impl Target {
    /// What the installation of this id has made here and is left, of the kinds that the user of the kubeconfig may list: 2,000 objects of
    /// each at most, the others once these are gone.
    pub(crate) async fn left_by(
        &self,
        installation: &str,
        is_left: impl Fn(&Made) -> bool,
    ) -> Result<Vec<Made>, Failure> {
        let mut left = Vec::new();
        for kind in KINDS {
            let of_kind = |found: &Value| Made::new(installation, kind, found).filter(&is_left);
            match self.listed(kind, &format!("{LABEL_INSTALLATION}={installation}"), of_kind).await {
                Ok(found) => left.extend(found),
                Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404) => {}
                Err(error) => return Err(Failure::of(&format!("list {}s", described(kind)), &error)),
            }
        }
        Ok(left)
    }

    /// Page by page, so that what is in use takes neither memory nor the place of what is left.
    async fn listed(
        &self,
        kind: TargetKind,
        selector: &str,
        kept: impl Fn(&Value) -> Option<Made>,
    ) -> Result<Vec<Made>, kube::Error> {
        let namespace = match kind {
            TargetKind::Secret | TargetKind::ServiceAccount => TARGET_NAMESPACE,
            _ => "",
        };
        let path = format!("{}?labelSelector={}", kind.collection(namespace), encoded(selector));
        let (mut pages, mut found) = (Pages::new(path, MAX_LISTED), Vec::new());
        while found.len() < MAX_KEPT
            && let Some(page) = pages.next_page(self).await?
        {
            found.extend(page.iter().filter_map(&kept));
        }
        found.truncate(MAX_KEPT);
        Ok(found)
    }

    /// Deletes one as it was found.
    pub(crate) async fn delete_made(&self, permit: &Permit, made: &Made) -> Result<(), Failure> {
        let Made { kind, namespace, name, uid, .. } = made;
        self.delete(permit, *kind, (namespace, name), Some(uid)).await
    }
}
