//! What a target lists of the objects of one access.

use coppice_api::Reason;
use coppice_clusters::rights::{Owner, TargetKind};
use coppice_clusters_api::names::{TARGET_NAMESPACE, account};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Failure, Target, described, encoded};

/// So many objects are in one page of a list.
pub(super) const PAGE: usize = 100;
/// So many pages of a kind are listed for one access. One access has far fewer objects: where there are more, others have its label, and
/// nothing is said to be removed.
pub(super) const MAX_PAGES: usize = 20;
/// No name and no uid of an object is longer.
const MAX_NAME: usize = 256;

/// The namespaces that may have roles and bindings of an access; none if it may be any of them.
pub(super) type Within<'a> = Option<&'a [String]>;

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct List {
    pub(super) metadata: ListMeta,
    pub(super) items: Vec<Value>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct ListMeta {
    #[serde(rename = "continue")]
    pub(super) more: String,
}

impl Target {
    /// Those of a kind that are this access's, within these namespaces where the kind is in others than that of the accounts.
    pub(super) async fn list_ours(
        &self,
        kind: TargetKind,
        owner: Owner<'_>,
        within: Within<'_>,
    ) -> Result<Vec<Value>, Failure> {
        let namespaces: Vec<&str> = match (kind, within) {
            (TargetKind::Secret | TargetKind::ServiceAccount, _) => vec![TARGET_NAMESPACE],
            (TargetKind::Role | TargetKind::RoleBinding, Some(within)) => {
                within.iter().map(String::as_str).collect()
            }
            _ => vec![""],
        };
        let mut ours = Vec::new();
        for namespace in namespaces {
            ours.extend(self.list_ours_in(namespace, kind, owner).await?);
        }
        Ok(ours)
    }

    /// The same in one namespace or (empty) in all, page by page. What others have labeled, or the target shows beside what it was asked for,
    /// is not among them.
    async fn list_ours_in(
        &self,
        namespace: &str,
        kind: TargetKind,
        owner: Owner<'_>,
    ) -> Result<Vec<Value>, Failure> {
        let what = format!("list {}s", described(kind));
        let selector = encoded(&owner.selector());
        let name = match kind {
            TargetKind::Secret | TargetKind::SigningRequest => String::new(),
            // What gives rights has one name.
            _ => format!("&fieldSelector=metadata.name%3D{}", account(owner.uid)),
        };
        let (mut ours, mut from) = (Vec::new(), String::new());
        for _ in 0..MAX_PAGES {
            let path =
                format!("{}?labelSelector={selector}{name}&limit={PAGE}{from}", kind.collection(namespace));
            let found = self.get::<List>(&path).await.map_err(|error| Failure::of(&what, &error))?;
            ours.extend(found.items.iter().filter(|object| owner.is_ours(kind, object)).map(kept));
            // A target may answer with more than it was asked for.
            if ours.len() > PAGE * MAX_PAGES {
                break;
            }
            if found.metadata.more.is_empty() {
                return Ok(ours);
            }
            from = format!("&continue={}", encoded(&found.metadata.more));
        }
        let message = format!(
            "more than {} {}s of the target have the label {}: take it off those that this ClusterAccess did not make",
            PAGE * MAX_PAGES,
            described(kind),
            owner.selector()
        );
        Err(Failure::new(Reason::TargetRefused, message))
    }

    /// The uid of a Secret beside the accounts, whatever labels it has; none if there is none of that name. It is listed: the user of the
    /// kubeconfig needs no right to read one.
    pub(super) async fn uid_of_secret(&self, name: &str) -> Result<Option<String>, Failure> {
        let collection = TargetKind::Secret.collection(TARGET_NAMESPACE);
        let path = format!("{collection}?fieldSelector=metadata.name%3D{name}&limit={PAGE}");
        let found = self.get::<List>(&path).await.map_err(|error| Failure::of("list Secrets", &error))?;
        let found = found.items.iter().map(kept).find(|secret| secret["metadata"]["name"] == *name);
        Ok(found.and_then(|secret| secret["metadata"]["uid"].as_str().map(str::to_owned)))
    }
}

/// What is used of an object of ours. A target may write anything else into it, and many of them are kept while they are worked on.
fn kept(object: &Value) -> Value {
    let text = |at: &str| {
        let text = object.pointer(at).and_then(Value::as_str);
        text.filter(|text| text.len() <= MAX_NAME).map_or(Value::Null, |text| json!(text))
    };
    let mut kept = json!({"metadata": {
        "namespace": text("/metadata/namespace"), "name": text("/metadata/name"), "uid": text("/metadata/uid")
    }});
    if object.get("roleRef").is_some() {
        kept["roleRef"] = json!({
            "apiGroup": text("/roleRef/apiGroup"), "kind": text("/roleRef/kind"), "name": text("/roleRef/name")
        });
    }
    kept
}
