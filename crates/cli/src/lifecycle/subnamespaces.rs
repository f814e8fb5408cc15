//! What is read of trees of namespaces for their plans, beside what is read for those of managers.

use std::collections::{BTreeMap, BTreeSet};

use coppice_api::names::LABEL_PARENT;
use coppice_lifecycle::facts::NamespaceFacts;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::DynamicObject;
use kube::{Api, Client};

use super::LifecycleSnapshot;
use crate::args::Target;
use crate::connect::{code, failed};
use crate::trees::{self, Subnamespace};
use crate::{facts, live, print};

/// So many namespaces that could not be read are named.
const MAX_NAMED: usize = 5;

/// What there is of trees.
#[derive(Debug, Default)]
pub(crate) struct TreeObjects {
    /// The Subnamespaces that are known.
    pub(crate) subnamespaces: Vec<Subnamespace>,
    /// The namespaces that these are in or have created, as far as the snapshot itself does not have them.
    pub(crate) namespaces: BTreeMap<String, NamespaceFacts>,
    /// Those of them that a cluster has not let us read: nothing is known of them.
    pub(crate) unread: BTreeSet<String>,
}

impl TreeObjects {
    /// The namespaces that Subnamespaces are in or have created, with the uids of these.
    fn named(&self) -> BTreeMap<String, Option<String>> {
        let mut named: BTreeMap<String, Option<String>> = BTreeMap::new();
        for object in &self.subnamespaces {
            named.entry(object.namespace().to_owned()).or_default();
            if let Some(uid) = &object.status.namespace_uid {
                named.insert(object.name().to_owned(), Some(uid.clone()));
            }
        }
        named
    }

    /// Takes those that are not known for being there, without labels. Says so of those that Subnamespaces have created.
    pub(super) fn assume(
        &mut self,
        known: &BTreeMap<String, NamespaceFacts>,
        assumed: Timestamp,
    ) -> Option<String> {
        let mut missing = 0;
        for (name, uid) in self.named().into_iter().filter(|(name, _)| !known.contains_key(name)) {
            missing += usize::from(uid.is_some());
            let facts = facts::assumed_namespace(&name, uid.as_deref(), assumed);
            self.namespaces.insert(name, facts);
        }
        let missing = (missing > 0).then(|| print::count(missing, "namespace"))?;
        Some(format!("{missing} of trees cannot be seen: taken as there, without labels"))
    }

    /// Names the namespaces that could not be read.
    fn warn_of_unread(&self) -> Option<String> {
        let names: Vec<&str> = self.unread.iter().map(String::as_str).take(MAX_NAMED).collect();
        let more = self.unread.len() - names.len();
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        (!names.is_empty()).then(|| {
            format!(
                "{} of trees could not be read ({}{more}): whether they are there, are being deleted or are protected is not known; ask \
                 somebody who may get them",
                print::count(self.unread.len(), "namespace"),
                names.join(", ")
            )
        })
    }
}

impl LifecycleSnapshot {
    /// Reads the Subnamespaces of a cluster and their namespaces: all of them, or those of `namespace` and below it where no more may be
    /// read. Returns remarks on what was not read.
    pub(crate) async fn read_trees(&mut self, client: &Client, namespace: Option<&str>) -> Vec<String> {
        let mut warnings = Vec::new();
        let found = live::list(&trees::subnamespaces(client, None), None).await;
        self.trees.subnamespaces = match (found, namespace) {
            (Ok(found), _) => {
                let read = |object: DynamicObject| -> Option<Subnamespace> {
                    Subnamespace::from_json(serde_json::to_value(object).ok()?).ok()
                };
                found.into_iter().filter_map(read).collect()
            }
            // Trees are a component of their own, which is not installed.
            (Err(error), _) if code(&error) == Some(404) => Vec::new(),
            (Err(error), Some(namespace)) if code(&error) == Some(403) => {
                self.below(client, namespace, &mut warnings).await
            }
            (Err(error), _) => {
                let error = failed("Subnamespaces cannot be listed", &error);
                warnings.push(format!("{error:#}; what becomes of namespaces of trees is not shown"));
                Vec::new()
            }
        };
        if self.trees.subnamespaces.is_empty() {
            return warnings;
        }
        self.read_namespaces(client, namespace).await;
        warnings.extend(self.trees.warn_of_unread());
        warnings
    }

    /// The Subnamespaces below a namespace, and its own, as far as they may be read.
    async fn below(&self, client: &Client, namespace: &str, warnings: &mut Vec<String>) -> Vec<Subnamespace> {
        let mut found = match Box::pin(trees::live(client, Some(namespace))).await {
            Ok(mut snapshot) => {
                warnings.append(&mut snapshot.warnings);
                snapshot.into_subnamespaces()
            }
            Err(error) => {
                warnings.push(format!("{error:#}; what becomes of namespaces below it is not shown"));
                Vec::new()
            }
        };
        let parent = self.namespaces.get(namespace).and_then(|own| own.labels.get(LABEL_PARENT));
        if let Some(parent) = parent {
            let target = Target { namespace: parent.to_owned(), name: namespace.to_owned() };
            // Who may not read it sees what is below.
            found.extend(trees::subnamespace(client, &target).await.ok().flatten());
        }
        if !found.is_empty() {
            warnings.push(
                "only the Subnamespaces that you may read are counted: of budgets of trees more may be left than is said"
                    .to_owned(),
            );
        }
        found
    }

    /// Reads the namespaces of trees that the snapshot does not have: it may have one alone, or none since they may not be listed.
    async fn read_namespaces(&mut self, client: &Client, namespace: Option<&str>) {
        if namespace.is_some()
            && let Ok(all) = live::list(&Api::<Namespace>::all(client.clone()), None).await
        {
            let all = all.into_iter().map(|object| facts::namespace(object, Timestamp::MAX));
            self.trees.namespaces = all.map(|facts| (facts.name.clone(), facts)).collect();
            return;
        }
        // There may be thousands, and who may not list them may hardly read any.
        let unlisted = namespace.is_none() && self.namespaces.is_empty();
        for (name, uid) in self.trees.named() {
            if self.namespaces.contains_key(&name) {
                continue;
            }
            let read = if unlisted { Err(()) } else { live::namespace(client, &name).await.map_err(drop) };
            let facts = match read {
                Ok(Some(object)) => facts::namespace(object, Timestamp::MAX),
                Ok(None) => continue,
                Err(()) => {
                    self.trees.unread.insert(name.clone());
                    facts::assumed_namespace(&name, uid.as_deref(), Timestamp::MAX)
                }
            };
            self.trees.namespaces.insert(name, facts);
        }
    }
}
