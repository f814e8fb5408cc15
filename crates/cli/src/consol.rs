//! Managers of the ConSol k8s-namespace-manager (`k8s.consol.de/v1beta1`) as ours.
//!
//! What that operator did, not what its manual says, is carried over; every difference is reported, and those that can
//! change what happens are marked. A manager in the namespace that it governs is a `NamespaceManager`; one that lives elsewhere is
//! the platform's, and becomes a `ClusterNamespaceManager`.

mod elsewhere;
mod policy;

use std::collections::BTreeSet;

use coppice_api::manager::{NamespaceManagerSpec, Policy};
use coppice_destination::{AllowList, Destination};
use serde::Serialize;
use serde_json::Value;

use crate::import::fields::{FieldError, Fields};
use crate::import::{Remark, Remarks};
use crate::validate;
pub(crate) use elsewhere::merge;
use elsewhere::write_cluster_manager;
use policy::ConvertedPolicy;

/// The group and version of that operator's objects.
pub(crate) const API_VERSION: &str = "k8s.consol.de/v1beta1";
/// Its annotations begin with this; they are its memory and mean nothing to ours.
const CONSOL_ANNOTATIONS: &str = "namespacemanagers.k8s.consol.de/";
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// The most policies that a manager of ours has.
const MAX_POLICIES: usize = 10;

/// Which manager of ours a manager of that operator becomes.
#[derive(Clone, Copy, Debug)]
enum Counterpart<'a> {
    /// A `NamespaceManager` in this namespace, which it governs.
    Governed(&'a str),
    /// A `ClusterNamespaceManager` that governs this namespace.
    Elsewhere(&'a str),
}

impl Counterpart<'_> {
    /// Whether a webhook may go there by the default settings.
    fn permits(self, default_hosts: AllowList, destination: &Destination) -> bool {
        match self {
            Self::Governed(namespace) => default_hosts.permits_host(destination, namespace).is_ok(),
            Self::Elsewhere(namespace) => {
                default_hosts.permitting(destination).permits_host(destination, namespace).is_ok()
            }
        }
    }
}

/// One of that operator's managers, translated.
#[derive(Debug)]
pub(crate) struct Translated {
    /// What it was called there, for messages.
    pub(crate) name: String,
    pub(crate) remarks: Remarks,
    /// The name of ours.
    ours: String,
    governed: String,
    elsewhere: bool,
    suspend: bool,
    policies: Vec<TranslatedPolicy>,
    /// Whether it is said already why nothing is written for it.
    explained: bool,
    labels: serde_json::Map<String, Value>,
    annotations: serde_json::Map<String, Value>,
}

/// One of its policies.
#[derive(Clone, Debug)]
struct TranslatedPolicy {
    policy: Policy,
    /// Whether it observes where others of its manager may act: it comes from a manager that was deactivated.
    observes: bool,
}

/// A manager of ours as YAML; none if nothing of it can be carried over.
#[derive(Debug)]
pub(crate) struct ImportedManager {
    pub(crate) name: String,
    pub(crate) yaml: Option<String>,
    pub(crate) remarks: Vec<Remark>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ConvertedManager<'a, S> {
    api_version: &'static str,
    kind: &'static str,
    metadata: Metadata<'a>,
    spec: S,
}

#[derive(Serialize)]
struct Metadata<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    labels: Option<&'a serde_json::Map<String, Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    annotations: Option<&'a serde_json::Map<String, Value>>,
}

impl<'a> Metadata<'a> {
    fn of(manager: &'a Translated, namespace: Option<&'a str>) -> Self {
        let Translated { ours, labels, annotations, .. } = manager;
        let written = |map: &'a serde_json::Map<String, Value>| Some(map).filter(|map| !map.is_empty());
        Self { name: ours, namespace, labels: written(labels), annotations: written(annotations) }
    }
}

#[derive(Serialize)]
struct Spec<'a> {
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    suspend: bool,
    policies: Vec<&'a Policy>,
}

/// Translates one manager. `taken` holds the names given so far, by namespace, since managers of several namespaces may land in
/// one; those of the cluster are below the empty one.
pub(crate) fn import(
    object: &Value,
    taken: &mut BTreeSet<(String, String)>,
) -> Result<Translated, FieldError> {
    let mut remarks = Remarks::default();
    let metadata = Fields::of(&object["metadata"], "metadata")?;
    let name = metadata.text("name")?.ok_or_else(|| metadata.wrong("name", "required"))?;
    let spec = Fields::of(&object["spec"], "spec")?;
    spec.unknown(&["deactivated", "namespace", "policies"], &mut remarks);
    // That operator's default is the manager's own name, not the namespace that it lives in.
    let governed = spec.text("namespace")?.unwrap_or_else(|| name.clone());
    if !validate::is_dns_label(&governed) {
        let message = format!(
            "{governed:?} cannot be a namespace's name (without it, the manager's own name is meant)"
        );
        return Err(spec.wrong("namespace", &message));
    }
    let lived = metadata.text("namespace")?;
    // One without a namespace is applied wherever its user is: into the namespace that it governs.
    let elsewhere = lived.as_deref().is_some_and(|lived| lived != governed);
    let counterpart =
        if elsewhere { Counterpart::Elsewhere(&governed) } else { Counterpart::Governed(&governed) };
    if elsewhere {
        elsewhere::remark(lived.as_deref().unwrap_or_default(), &governed, &mut remarks);
    }
    let all = spec.list("policies")?.ok_or_else(|| spec.wrong("policies", "required"))?;
    if all.is_empty() {
        return Err(spec.wrong("policies", "has no entry; at least 1 is needed"));
    }
    let mut carried = Vec::new();
    for (index, policy) in all.iter().enumerate() {
        carried.push(policy::import(policy, counterpart, &format!("spec.policies[{index}]"), &mut remarks)?);
    }
    multiple_policies(&carried, elsewhere, &mut remarks);
    let policies = carried.into_iter().filter_map(|c| c.policy);
    let policies = policies.map(|policy| TranslatedPolicy { policy, observes: false }).collect();
    let (labels, annotations) = metadata_of(&object["metadata"]);
    let scope = if elsewhere { "" } else { &governed };
    let mut translated = Translated {
        ours: free_name(&name, scope, taken, &mut remarks),
        suspend: spec.boolean("deactivated")?.unwrap_or(false),
        name,
        remarks,
        governed,
        elsewhere,
        policies,
        explained: false,
        labels,
        annotations,
    };
    unique_names(&mut translated.policies, &mut translated.remarks);
    Ok(translated)
}

/// The object that a manager becomes, once those that go together are together.
pub(crate) fn write(mut manager: Translated) -> Result<ImportedManager, FieldError> {
    if manager.policies.len() > MAX_POLICIES {
        manager.remarks.differs(format!(
            "it has {} policies and at most {MAX_POLICIES} are accepted: split it into several managers",
            manager.policies.len()
        ));
        manager.policies.clear();
    }
    let yaml = match (manager.policies.is_empty(), manager.elsewhere) {
        (true, _) => {
            if !manager.explained {
                manager.remarks.differs("nothing of it can be carried over: no manager is written");
            }
            None
        }
        (false, true) => Some(write_cluster_manager(&mut manager)?),
        (false, false) => Some(write_manager(&mut manager)?),
    };
    Ok(ImportedManager { name: manager.name, yaml, remarks: manager.remarks.0 })
}

/// What differs because a manager has several policies.
fn multiple_policies(carried: &[ConvertedPolicy], elsewhere: bool, remarks: &mut Remarks) {
    if carried.len() < 2 {
        return;
    }
    let twice = carried
        .iter()
        .enumerate()
        .any(|(i, c)| carried[..i].iter().any(|other| other.condition == c.condition));
    let here = match (twice, elsewhere) {
        (true, false) => "here the first of them fires",
        (true, true) => "here each of them fires",
        (false, false) => "here the first in the list fires, and the manager is dormant from then on",
        (false, true) => {
            "and the manager was deactivated; here each fires once its condition is true, also after another one has fired"
        }
    };
    if twice {
        remarks.differs(format!(
            "two policies have the same condition: that operator stumbled over it and never did anything for this manager; {here}"
        ));
    } else {
        remarks.differs(format!(
            "it has several policies: there, all that were true at the same check fired, in no certain order; {here}"
        ));
    }
}

/// Makes the names of policies differ. The body of a webhook has the name.
fn unique_names(policies: &mut [TranslatedPolicy], remarks: &mut Remarks) {
    for index in 1..policies.len() {
        let (before, rest) = policies.split_at_mut(index);
        let Some(TranslatedPolicy { policy, .. }) = rest.first_mut() else { continue };
        let is_taken = |name: &str| before.iter().any(|p| p.policy.name == name);
        if !is_taken(&policy.name) {
            continue;
        }
        // Among one more candidates than there are policies, one is free.
        let candidates = (2..=index + 2).map(|n| format!("{} {n}", policy.name));
        let new = candidates.into_iter().find(|name| !is_taken(name)).unwrap_or_default();
        remarks.note(format!("two policies are named {:?}: the later one becomes {new:?}", policy.name));
        policy.name.clone_from(&new);
        if policy.then.webhook.is_some() {
            remarks.differs(format!("policy {new:?}: the webhook's body has the policy's new name"));
        }
    }
}

fn free_name(
    name: &str,
    namespace: &str,
    taken: &mut BTreeSet<(String, String)>,
    remarks: &mut Remarks,
) -> String {
    let is_free = |candidate: &String| !taken.contains(&(namespace.to_owned(), candidate.clone()));
    // Among one more candidates than there are names, one is free.
    let others = (2..=taken.len() + 2).map(|n| format!("{name}-{n}"));
    let free = std::iter::once(name.to_owned()).chain(others).find(is_free).unwrap_or_default();
    if free != name && namespace.is_empty() {
        remarks.note(format!("there is a cluster manager {name} already: this one becomes {free}"));
    } else if free != name {
        remarks.note(format!("namespace {namespace} has a manager {name} already: this one becomes {free}"));
    }
    taken.insert((namespace.to_owned(), free.clone()));
    free
}

/// Labels and annotations, except those that mean nothing to ours.
fn metadata_of(metadata: &Value) -> (serde_json::Map<String, Value>, serde_json::Map<String, Value>) {
    let of = |key: &str| metadata[key].as_object().cloned().unwrap_or_default();
    let mut annotations = of("annotations");
    annotations.retain(|key, _| !key.starts_with(CONSOL_ANNOTATIONS) && key != LAST_APPLIED);
    (of("labels"), annotations)
}

fn write_manager(manager: &mut Translated) -> Result<String, FieldError> {
    let ours = ConvertedManager {
        api_version: "coppice.dev/v1alpha1",
        kind: "NamespaceManager",
        metadata: Metadata::of(manager, Some(&manager.governed)),
        spec: Spec {
            suspend: manager.suspend,
            policies: manager.policies.iter().map(|one| &one.policy).collect(),
        },
    };
    let value = serde_json::to_value(&ours).map_err(|e| failed(&e))?;
    let yaml = crate::yaml::to_string(&ours).map_err(|e| failed(&e))?;
    // Reading it back is the last check that it says what it should.
    let read = serde_json::from_value::<NamespaceManagerSpec>(value["spec"].clone());
    refusals(&value, read.err(), &mut manager.remarks);
    Ok(yaml)
}

/// What our API server would refuse must not be handed out as if it were fine.
fn refusals(object: &Value, unreadable: Option<serde_json::Error>, remarks: &mut Remarks) {
    for problem in validate::check(object) {
        remarks.differs(format!("our API refuses the result: {problem}"));
    }
    if let Some(error) = unreadable {
        remarks.differs(format!("our API refuses the result: {error}"));
    }
}

fn failed(error: &dyn std::fmt::Display) -> FieldError {
    FieldError { path: "metadata".to_owned(), message: error.to_string() }
}
