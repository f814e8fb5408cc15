//! What a namespace of a tree may still use, and what was refused there.

use anyhow::Result;
use coppice_api::condition::{DELETION_PENDING, READY, find};
use coppice_api::names::{
    ANNOTATION_PATH, FIELD_MANAGER, LABEL_PARENT, LABEL_ROOT, LABEL_TREE, TREE_QUOTA_NAME,
};
use coppice_api::{NamespaceTree, SubnamespacePhase};
use coppice_hierarchy::ResourceName;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, Namespace, ResourceQuota};
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};
use serde::Serialize;

use super::text::heading;
use crate::Io;
use crate::args::Target;
use crate::command::quota::OtherLimit;
use crate::connect::failed;
use crate::live::list;
use crate::print::{self, WARNING};
use crate::refused_pods::{self, RefusedPods};
use crate::terminal::Screen;
use crate::trees::{self, NamespaceQuota};

/// As many refusals are shown.
const MAX_REFUSED: usize = 3;
/// So many Events are looked at.
const MOST_EVENTS: u32 = 500;

/// What is known of it.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct QuotaExplanation {
    namespace: String,
    /// The names from the root down to it.
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    tree: Option<String>,
    /// Why the tree is not ready; absent if it is, or who asks may not read `NamespaceTree`s.
    #[serde(skip_serializing_if = "Option::is_none")]
    tree_not_ready: Option<String>,
    /// Of a root, or where it cannot be read, none.
    #[serde(skip_serializing_if = "Option::is_none")]
    subnamespace: Option<SubnamespaceState>,
    /// Where that cannot be read, what Coppice said last in the namespace itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_said: Option<LastSaid>,
    /// What the tree limits.
    resources: Vec<FreeResource>,
    /// Why that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    unknown: Option<String>,
    other_quotas: Vec<OtherLimit>,
    /// Pods that a quota refused, the latest first.
    refused_pods: Vec<RefusedPods>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct SubnamespaceState {
    namespace: String,
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    phase: Option<SubnamespacePhase>,
    /// Why it is not ready.
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    message: String,
    /// That it will be deleted with a namespace above it, and how to prevent that.
    #[serde(skip_serializing_if = "Option::is_none")]
    deletion_pending: Option<String>,
}

/// An Event about the namespace, by Coppice.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct LastSaid {
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<Timestamp>,
    reason: String,
    message: String,
}

#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct FreeResource {
    resource: ResourceName,
    /// What the namespace and all below it have,
    allotted: String,
    /// and what of that those below it have, or are being given.
    #[serde(skip_serializing_if = "Option::is_none")]
    given: Option<String>,
    own: String,
    used: String,
    /// By its own quota and by all others.
    free: String,
    /// The one that leaves less than its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    limited_by: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    overdraft: Option<String>,
}

/// Of a namespace that is in no tree, nothing.
pub(super) async fn of_namespace(
    client: &Client,
    namespace: &Namespace,
    io: &mut Io<'_>,
) -> Result<Option<QuotaExplanation>> {
    if !namespace.labels().contains_key(LABEL_ROOT) {
        return Ok(None);
    }
    let name = namespace.name_any();
    let path = namespace.annotations().get(ANNOTATION_PATH).unwrap_or(&name).clone();
    let mut explanation = QuotaExplanation { path, ..QuotaExplanation::default() };
    match list(&Api::<ResourceQuota>::namespaced(client.clone(), &name), None).await {
        Ok(quotas) => explanation.add(&quotas)?,
        Err(error) => {
            let why = failed(&format!("the quotas in namespace {name} cannot be read"), &error);
            explanation.unknown = Some(format!("{why:#}"));
        }
    }
    if let Some(tree) = &explanation.tree {
        explanation.tree_not_ready = tree_not_ready(client, tree).await;
    }
    if let Some(parent) = namespace.labels().get(LABEL_PARENT) {
        let target = Target { namespace: parent.clone(), name: name.clone() };
        match subnamespace(client, target).await {
            Ok(state) => explanation.subnamespace = state,
            Err(why) => {
                explanation.last_said = last_said(client, &name).await;
                io.print_note(&format!("note: {why:#}; whether it is ready is not shown"))?;
            }
        }
    }
    match refused_pods::of_namespace(client, &name).await {
        Ok(events) => explanation.refused_pods = refused_pods::beyond_quota(events, MAX_REFUSED),
        Err(why) => io.print_note(&format!("note: {why:#}; what a quota refused is not shown"))?,
    }
    explanation.namespace = name;
    Ok(Some(explanation))
}

/// For who may not read the Subnamespace. Kubernetes keeps Events for an hour.
async fn last_said(client: &Client, namespace: &str) -> Option<LastSaid> {
    let about = format!("involvedObject.kind=Namespace,involvedObject.name={namespace}");
    let events: Api<Event> = Api::namespaced(client.clone(), namespace);
    let found = events.list(&ListParams::default().fields(&about).limit(MOST_EVENTS)).await.ok()?;
    let ours = |event: &Event| event.reporting_component.as_deref() == Some(FIELD_MANAGER);
    let said = found.items.into_iter().filter(ours).filter_map(|event| {
        let series = event.series.and_then(|series| series.last_observed_time);
        let at = series.or(event.event_time).map(|at| at.0);
        Some(LastSaid { at, reason: event.reason?, message: event.message? })
    });
    said.max_by_key(|said| said.at)
}

/// Most who ask may not read `NamespaceTree`s.
async fn tree_not_ready(client: &Client, name: &str) -> Option<String> {
    let tree = Api::<NamespaceTree>::all(client.clone()).get_opt(name).await.ok().flatten()?;
    let conditions = tree.status?.conditions;
    let ready = find(&conditions, READY).filter(|ready| ready.status == "False")?;
    Some(format!("{} [{}]", ready.message, ready.reason))
}

async fn subnamespace(client: &Client, target: Target) -> Result<Option<SubnamespaceState>> {
    let Some(found) = trees::subnamespace(client, &target).await? else { return Ok(None) };
    let phase = found.status.phase;
    let pending = find(&found.status.conditions, DELETION_PENDING).map(|pending| pending.message.clone());
    let mut state = SubnamespaceState {
        namespace: target.namespace,
        name: target.name,
        phase,
        reason: String::new(),
        message: found.status_error.map(|error| error.to_string()).unwrap_or_default(),
        deletion_pending: pending,
    };
    let ready = find(&found.status.conditions, READY).filter(|_| phase != Some(SubnamespacePhase::Ready));
    if let Some(ready) = ready {
        (state.reason, state.message) = (ready.reason.clone(), ready.message.clone());
    }
    Ok(Some(state))
}

impl QuotaExplanation {
    /// Takes in the quotas of the namespace.
    fn add(&mut self, quotas: &[ResourceQuota]) -> Result<()> {
        let is_own = |quota: &&ResourceQuota| {
            quota.name_any() == TREE_QUOTA_NAME && quota.labels().contains_key(LABEL_TREE)
        };
        let others = quotas.iter().filter(|quota| !is_own(quota));
        self.other_quotas = others.flat_map(|quota| OtherLimit::of(quota, &[])).collect();
        let Some(own) = quotas.iter().find(is_own) else {
            self.unknown = Some("it has no quota of its tree yet".to_owned());
            return Ok(());
        };
        self.tree = own.labels().get(LABEL_TREE).cloned();
        match NamespaceQuota::of(&serde_json::to_value(own)?) {
            Ok(own) => self.resources = free(&own, &self.other_quotas),
            Err(why) => self.unknown = Some(why.to_string()),
        }
        Ok(())
    }
}

/// What is left of each resource. A quota with scopes counts some pods only, so it is not known what it leaves.
fn free(own: &NamespaceQuota, others: &[OtherLimit]) -> Vec<FreeResource> {
    let (unused, beyond) = (own.own.minus(&own.used), own.used.minus(&own.own));
    let of = |resource: &ResourceName| {
        let same = |other: &&OtherLimit| other.is_of(resource);
        let limits = others.iter().filter(same).filter_map(|other| Some((other.free()?, other.quota())));
        let tightest = limits.min_by_key(|(free, _)| *free).filter(|(free, _)| *free < unused.get(resource));
        let beyond = beyond.get(resource);
        let given = own.ledger.given.get(resource);
        FreeResource {
            resource: resource.clone(),
            allotted: own.ledger.allotment.get(resource).to_string(),
            given: (!given.is_zero()).then(|| given.to_string()),
            own: own.own.get(resource).to_string(),
            used: own.used.get(resource).to_string(),
            free: tightest.map_or_else(|| unused.get(resource), |(free, _)| free).to_string(),
            limited_by: tightest.map(|(_, quota)| quota.to_owned()),
            overdraft: (!beyond.is_zero()).then(|| beyond.to_string()),
        }
    };
    own.own.iter().map(|(resource, _)| of(resource)).collect()
}

/// For people.
pub(super) fn write(one: &QuotaExplanation, at: Timestamp, to: &mut Screen<'_>) -> Result<()> {
    heading(to, "Quota")?;
    let tree = one.tree.as_ref().map_or_else(String::new, |tree| format!(" in NamespaceTree {tree}"));
    writeln!(to, "  {}{tree}", one.path)?;
    if let Some(why) = &one.tree_not_ready {
        to.put("  the tree is not ready: ", WARNING)?;
        writeln!(to, "{why}")?;
    }
    if let Some(state) = &one.subnamespace {
        let SubnamespaceState { namespace, name, phase, reason, message, deletion_pending } = state;
        let phase = phase.map_or("not looked at yet", SubnamespacePhase::as_str);
        let why = match (&**reason, &**message) {
            (_, "") => String::new(),
            ("", message) => format!(": {message}"),
            (reason, message) => format!(": {message} [{reason}]"),
        };
        writeln!(to, "  Subnamespace {namespace}/{name} is {phase}{why}")?;
        if let Some(message) = deletion_pending {
            to.put("  DeletionPending", WARNING)?;
            writeln!(to, ": {message}")?;
        }
    }
    if let Some(LastSaid { at: seen, reason, message }) = &one.last_said {
        let seen = seen.map_or_else(String::new, |seen| format!(", {}", print::instant_from(seen, at)));
        writeln!(to, "  last said of it{seen}: {message} [{reason}]")?;
    }
    if let Some(why) = &one.unknown {
        to.put("  what is free is not known: ", WARNING)?;
        writeln!(to, "{why}")?;
    }
    for FreeResource { resource, allotted, given, own, used, free, limited_by, overdraft } in &one.resources {
        let below = given.as_ref().map_or_else(String::new, |given| {
            format!("; {given} of its {allotted} are given to the namespaces below it")
        });
        if let Some(beyond) = overdraft {
            to.put(&format!("  {resource}: {used} of {own} used, {beyond} beyond its quota"), WARNING)?;
            writeln!(to, ": nothing more starts until that much is gone, or it gets more{below}")?;
            continue;
        }
        let by = limited_by.as_ref().map_or_else(String::new, |quota| format!(" by ResourceQuota {quota}"));
        writeln!(to, "  {resource}: {free} free{by}, {used} of {own} used{below}")?;
    }
    for other in &one.other_quotas {
        writeln!(to, "  {other}")?;
    }
    writeln!(to, "  who could give it more: coppice quota {}", one.namespace)?;
    if one.refused_pods.is_empty() {
        return Ok(());
    }
    heading(to, "Pods that a quota refused")?;
    for RefusedPods { kind, name, at: seen, message } in &one.refused_pods {
        let seen = seen.map_or_else(String::new, |seen| format!(", {}", print::instant_from(seen, at)));
        writeln!(to, "  {kind}/{name}{seen}: {message}")?;
    }
    Ok(())
}
