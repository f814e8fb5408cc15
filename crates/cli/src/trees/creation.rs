//! A namespace that is to be created below another one: what stands against it, and how it goes.

use anyhow::{Result, anyhow, bail};
use coppice_api::condition::{PROPAGATED, READY, find};
use coppice_api::metadata::NamespaceMetadata;
use coppice_api::{SubnamespacePhase, SubnamespaceStatus};
use coppice_hierarchy::{
    NewNamespace, Parent as QuotaParent, Quota, Resources, Rules, ValidTree, refused_to_new,
};
use coppice_quantity::Duration;
use kube::api::{ApiResource, DynamicObject, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::{NamespaceQuota, NamespaceTree, subnamespace, subnamespaces};
use crate::args::Target;
use crate::connect::{code, failed};
use crate::transfers::{NoRoute, path};
use crate::write::FIELD_MANAGER;
use crate::{Exit, live, transfers, wait};

/// What is known of the namespace above.
#[derive(Default)]
pub(crate) struct Parent {
    /// The names from the root down to it.
    pub(crate) path: Option<Vec<String>>,
    pub(crate) quota: Option<NamespaceQuota>,
    tree: Option<NamespaceTree>,
    /// What stands against it whatever is asked for.
    refused: Option<String>,
    /// What this user may not read, and so is decided only when it is created.
    pub(crate) unknown: Vec<String>,
}

/// What is asked for.
#[derive(Default)]
pub(crate) struct Asked {
    pub(crate) quota: Resources,
    pub(crate) metadata: NamespaceMetadata,
}

/// Creates a `Subnamespace`.
pub(crate) async fn create(client: &Client, target: &Target, asked: &Asked, dry_run: bool) -> Result<()> {
    let Target { namespace, name } = target;
    let hard = asked.quota.iter().map(|(name, amount)| (name.as_str().to_owned(), json!(amount)));
    let hard: serde_json::Map<_, _> = hard.collect();
    let mut spec = json!({});
    if !hard.is_empty() {
        spec["quota"] = json!({"hard": hard});
    }
    if !asked.metadata.is_empty() {
        spec["metadata"] = json!(asked.metadata);
    }
    let resource = ApiResource::erase::<coppice_api::Subnamespace>(&());
    let object = DynamicObject::new(name, &resource).within(namespace).data(json!({ "spec": spec }));
    let params = PostParams { dry_run, field_manager: Some(FIELD_MANAGER.to_owned()) };
    match subnamespaces(client, Some(namespace)).create(&params, &object).await {
        Ok(_) => Ok(()),
        Err(error) if code(&error) == Some(409) && is_there(&error) => bail!(
            "Subnamespace {target} exists already: `coppice tree {name}` shows what it has; for another quota change its \
             spec.quota.hard (kubectl edit sns {name} -n {namespace})"
        ),
        Err(error) => Err(failed(&format!("Subnamespace {target} cannot be created"), &error)),
    }
}

fn is_there(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.reason == "AlreadyExists")
}

impl Parent {
    /// As far as this user may read it.
    pub(crate) async fn read(client: &Client, name: &str) -> Self {
        let mut parent = Self::default();
        match live::namespace(client, name).await {
            Ok(Some(namespace)) => match path(&namespace) {
                Ok(path) => parent.path = Some(path),
                Err(NoRoute::Outside(_)) => {
                    let advice = "`coppice tree` shows the namespaces of trees";
                    parent.refused = Some(format!("namespace {name} belongs to no tree: {advice}"));
                }
                Err(unclear) => parent.unknown.push(unclear.to_string()),
            },
            Ok(None) => parent.refused = Some(format!("there is no namespace {name}")),
            Err(error) => parent.cannot_read(&format!("namespace {name}"), &error),
        }
        if parent.refused.is_some() {
            return parent;
        }
        match transfers::live::quota(client, name).await {
            Ok(quota) => parent.quota = Some(quota),
            Err(error) => parent.unknown.push(format!("{error:#}: whether it has enough is not known")),
        }
        let Some(root) = parent.path.as_ref().and_then(|path| path.first()).cloned() else { return parent };
        let trees = ApiResource::erase::<coppice_api::NamespaceTree>(&());
        match live::list(&Api::<DynamicObject>::all_with(client.clone(), &trees), None).await {
            Ok(trees) => {
                let trees = trees.into_iter().filter_map(|tree| {
                    NamespaceTree::from_json(serde_json::to_value(tree).unwrap_or(Value::Null)).ok()
                });
                let is_of = |tree: &NamespaceTree| tree.spec.as_ref().is_ok_and(|spec| spec.root == root);
                parent.tree = trees.into_iter().find(is_of);
            }
            Err(error) => parent.cannot_read("the rules of the tree about names and depth", &error),
        }
        parent
    }

    fn cannot_read(&mut self, what: &str, error: &kube::Error) {
        self.unknown.push(format!("{:#}", failed(&format!("{what} cannot be read"), error)));
    }

    /// Why a namespace with this quota would not be created, as the controller says it; nothing if it would.
    pub(crate) fn refusals(&self, target: &Target, asked: &Asked) -> Vec<String> {
        let mut refusals: Vec<String> = self.refused.iter().cloned().collect();
        refusals.extend(self.rules(target, asked));
        if let Some(NamespaceQuota { own, used, ledger, .. }) = &self.quota {
            let quota = Quota {
                hard: own.clone(),
                enforced: own.clone(),
                used: used.clone(),
                ledger: ledger.clone(),
            };
            let parent = QuotaParent { name: &target.namespace, quota: &quota, siblings: &[] };
            refusals.extend(
                refused_to_new(&parent, &target.name, &asked.quota).map(|refusal| refusal.to_string()),
            );
        }
        refusals
    }

    /// What the tree does not permit.
    fn rules(
        &self,
        Target { namespace, name }: &Target,
        Asked { quota: asked, metadata }: &Asked,
    ) -> Vec<String> {
        let (Some(path), Some(tree)) = (&self.path, &self.tree) else { return Vec::new() };
        let Ok(spec) = &tree.spec else { return Vec::new() };
        let root = path.first().map_or("", |root| root);
        let spec = ValidTree::from(spec.clone());
        let rules = Rules { tree: tree.name(), spec: &spec };
        let new = NewNamespace {
            root,
            parent: namespace,
            name,
            depth: u32::try_from(path.len()).unwrap_or(u32::MAX),
            namespaces: tree.status.namespaces,
        };
        let broken = rules.against(&new).into_iter();
        let broken = broken.chain(rules.against_request(asked)).chain(rules.against_metadata(metadata));
        broken.map(|rule| rule.message).collect()
    }
}

/// Waits until a namespace is ready or refused: how it went, and in which words.
pub(crate) async fn wait(client: &Client, target: &Target, most: Duration) -> Result<(Exit, String)> {
    let mut last = SubnamespaceStatus::default();
    if let Some(exit) = wait::until(most, async || look(client, target, &mut last).await).await? {
        return Ok((exit, state(&last)));
    }
    let goes_on = format!("`coppice tree {}` shows how it goes on", target.namespace);
    Ok((Exit::Attention, format!("{} after {most}; {goes_on}", state(&last))))
}

/// How it went; none while it goes on.
async fn look(client: &Client, target: &Target, last: &mut SubnamespaceStatus) -> Result<Option<Exit>> {
    let found = subnamespace(client, target).await?;
    let Some(object) = found else { bail!("Subnamespace {target} was deleted meanwhile") };
    let generation = object.meta.generation;
    if let Some(error) = object.status_error {
        return Err(anyhow!("Subnamespace {target}: {error}"));
    }
    *last = object.status;
    Ok(end(last).filter(|_| last.observed_generation == generation))
}

/// How it went; none while it goes on. Rights in a namespace are what is copied into it last.
fn end(status: &SubnamespaceStatus) -> Option<Exit> {
    match status.phase {
        Some(SubnamespacePhase::Refused | SubnamespacePhase::Deleting | SubnamespacePhase::Detached) => {
            Some(Exit::Attention)
        }
        Some(SubnamespacePhase::Ready) => match find(&status.conditions, PROPAGATED)?.status.as_str() {
            "True" => Some(Exit::Ok),
            "False" => Some(Exit::Attention),
            _ => None,
        },
        Some(SubnamespacePhase::Pending) | None => None,
    }
}

/// The phase, and why it is not ready.
fn state(status: &SubnamespaceStatus) -> String {
    let Some(phase) = status.phase else {
        return "not looked at yet: see whether coppice-trees runs (kubectl -n coppice-system get deployment coppice-trees)"
            .to_owned();
    };
    let ready = phase == SubnamespacePhase::Ready;
    let why = find(&status.conditions, if ready { PROPAGATED } else { READY });
    match why {
        Some(why) if !ready || why.status != "True" => format!("{}: {}", phase.as_str(), why.message),
        None if ready => "Ready, and nothing is copied into it yet".to_owned(),
        _ => phase.as_str().to_owned(),
    }
}
