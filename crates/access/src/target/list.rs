//! What a target lists: page by page, and of the objects of one access what is used.

use coppice_api::Reason;
use coppice_clusters::rights::{Owner, TargetKind};
use coppice_clusters_api::names::{TARGET_NAMESPACE, account};
use coppice_runtime::client::LengthLimitError;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Failure, Target, described, encoded};

/// So many objects are in one page of a list, where they are not very large.
const PAGE: usize = 100;
/// So many objects of a kind are listed for one access. One access has far fewer: where there are more, others have its label, and nothing is
/// said to be removed.
pub(super) const MAX_OBJECTS: usize = 2_000;
/// No name and no uid of an object is longer.
const MAX_NAME: usize = 256;

/// The namespaces that may have roles and bindings of an access; none if it may be any of them.
pub(super) type Within<'a> = Option<&'a [String]>;

#[derive(Default, Deserialize)]
#[serde(default)]
struct List {
    metadata: ListMeta,
    items: Vec<Value>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ListMeta {
    #[serde(rename = "continue")]
    more: String,
}

/// The pages of a list. After one that is longer than any answer that is read it is asked again for fewer objects, and then for more again.
pub(super) struct Pages {
    /// Of the first page, with a query.
    path: String,
    /// The continue token, as a parameter; empty at the start.
    from: String,
    /// How many objects the next page is asked for.
    limit: usize,
    /// How many objects may be asked for in the pages that are left.
    left: usize,
    /// Whether the last page was read.
    is_done: bool,
}

impl Pages {
    /// Of what is at a path with a query, so many objects at most.
    pub(super) const fn new(path: String, most: usize) -> Self {
        Self { path, from: String::new(), limit: PAGE, left: most, is_done: false }
    }

    /// Whether the last page was read.
    pub(super) const fn is_done(&self) -> bool {
        self.is_done
    }

    /// The next page; none after the last one, or if as many objects were asked for as may be. A target may answer with more or fewer.
    pub(super) async fn next_page(&mut self, target: &Target) -> Result<Option<Vec<Value>>, kube::Error> {
        if self.is_done || self.left == 0 {
            return Ok(None);
        }
        loop {
            let path = format!("{}&limit={}{}", self.path, self.limit, self.from);
            match target.get::<List>(&path).await {
                Err(kube::Error::Service(error)) if error.is::<LengthLimitError>() && self.limit > 1 => {
                    self.limit = (self.limit / 8).max(1);
                }
                Err(error) => return Err(error),
                Ok(List { metadata, items }) => {
                    self.left = self.left.saturating_sub(self.limit);
                    self.limit = (self.limit * 2).min(PAGE);
                    self.is_done = metadata.more.is_empty();
                    self.from = format!("&continue={}", encoded(&metadata.more));
                    return Ok(Some(items));
                }
            }
        }
    }
}

impl Target {
    /// Those of a kind that are this access's, within these namespaces where the kind is in others than that of the accounts.
    pub(super) async fn list_ours(
        &self,
        kind: TargetKind,
        owner: Owner<'_>,
        within: Within<'_>,
    ) -> Result<Vec<Value>, Failure> {
        let (ours, too_many) = self.list_some(kind, owner, within).await?;
        too_many.map_or(Ok(ours), Err)
    }

    /// The same; where there are more than one access has, some of them, and that.
    pub(super) async fn list_some(
        &self,
        kind: TargetKind,
        owner: Owner<'_>,
        within: Within<'_>,
    ) -> Result<(Vec<Value>, Option<Failure>), Failure> {
        let namespaces: Vec<&str> = match (kind, within) {
            (TargetKind::Secret | TargetKind::ServiceAccount, _) => vec![TARGET_NAMESPACE],
            (TargetKind::Role | TargetKind::RoleBinding, Some(within)) => {
                within.iter().map(String::as_str).collect()
            }
            _ => vec![""],
        };
        let (mut ours, mut too_many) = (Vec::new(), None);
        for namespace in namespaces {
            let (found, more) = self.list_some_in(namespace, kind, owner).await?;
            ours.extend(found);
            too_many = too_many.or(more);
        }
        Ok((ours, too_many))
    }

    /// The same in one namespace or (empty) in all, page by page. What others have labeled, or the target shows beside what it was asked for,
    /// is not among them.
    async fn list_some_in(
        &self,
        namespace: &str,
        kind: TargetKind,
        owner: Owner<'_>,
    ) -> Result<(Vec<Value>, Option<Failure>), Failure> {
        let what = format!("list {}s", described(kind));
        let selector = encoded(&owner.selector());
        let name = match kind {
            TargetKind::Secret | TargetKind::SigningRequest => String::new(),
            // What gives rights has one name.
            _ => format!("&fieldSelector=metadata.name%3D{}", account(owner.uid)),
        };
        let path = format!("{}?labelSelector={selector}{name}", kind.collection(namespace));
        let (mut pages, mut ours) = (Pages::new(path, MAX_OBJECTS), Vec::new());
        while let Some(page) = pages.next_page(self).await.map_err(|error| Failure::of(&what, &error))? {
            ours.extend(page.iter().filter(|object| owner.is_ours(kind, object)).map(kept));
            // A target may answer with more than it was asked for.
            if ours.len() > MAX_OBJECTS {
                break;
            }
            if pages.is_done() {
                return Ok((ours, None));
            }
        }
        let message = format!(
            "more than {MAX_OBJECTS} {}s of the target have the label {}: take it off those that this ClusterAccess did not make",
            described(kind),
            owner.selector()
        );
        Ok((ours, Some(Failure::new(Reason::TargetRefused, message))))
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
    let text = |at: &str| object.pointer(at).and_then(name).map_or(Value::Null, |text| json!(text));
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

/// A name, a namespace or a uid; none if it is longer than any of an API server.
pub(super) fn name(value: &Value) -> Option<&str> {
    value.as_str().filter(|text| text.len() <= MAX_NAME)
}
