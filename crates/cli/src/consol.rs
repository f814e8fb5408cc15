//! Managers of the ConSol k8s-namespace-manager (`k8s.consol.de/v1beta1`) as ours.
//!
//! What that operator did, not what its manual says, is carried over; every difference is reported, and those that can
//! change what happens are marked.

mod policy;
mod read;

use std::collections::BTreeSet;

use coppice_api::manager::{NamespaceManagerSpec, Policy};
use serde::Serialize;
use serde_json::Value;

use crate::validate;
use policy::ConvertedPolicy;
use read::{FieldError, Fields};

/// The group and version of that operator's objects.
pub(crate) const API_VERSION: &str = "k8s.consol.de/v1beta1";
/// Its annotations begin with this; they are its memory and mean nothing to ours.
const CONSOL_ANNOTATIONS: &str = "namespacemanagers.k8s.consol.de/";
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// The most policies that a manager of ours has.
const MAX_POLICIES: usize = 10;

/// A remark on an import.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Remark {
    /// Whether what happens can differ from what happened there.
    pub(crate) differs: bool,
    /// What is different.
    pub(crate) text: String,
}

/// One of that operator's managers as ours.
#[derive(Debug)]
pub(crate) struct Imported {
    /// What it was called there, for messages.
    pub(crate) name: String,
    /// Our object as YAML; none if nothing of it can be carried over.
    pub(crate) yaml: Option<String>,
    pub(crate) remarks: Vec<Remark>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ConvertedManager<'a> {
    api_version: &'static str,
    kind: &'static str,
    metadata: Metadata<'a>,
    spec: Spec<'a>,
}

#[derive(Serialize)]
struct Metadata<'a> {
    name: &'a str,
    namespace: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    labels: Option<&'a serde_json::Map<String, Value>>,
    #[serde(skip_serializing_if = "serde_json::Map::is_empty")]
    annotations: serde_json::Map<String, Value>,
}

#[derive(Serialize)]
struct Spec<'a> {
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    suspend: bool,
    policies: &'a [Policy],
}

/// Remarks in the making.
#[derive(Default)]
struct Remarks(Vec<Remark>);

impl Remarks {
    /// Something that cannot change what happens, or is only better.
    fn note(&mut self, text: impl Into<String>) {
        self.add(false, text.into());
    }

    /// Something that cannot be carried over exactly.
    fn differs(&mut self, text: impl Into<String>) {
        self.add(true, text.into());
    }

    fn add(&mut self, differs: bool, text: String) {
        let remark = Remark { differs, text };
        if !self.0.contains(&remark) {
            self.0.push(remark);
        }
    }
}

/// Translates one manager. `taken` holds the names given so far, since managers of several namespaces may land in one.
pub(crate) fn import(object: &Value, taken: &mut BTreeSet<(String, String)>) -> Result<Imported, FieldError> {
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
    let moved = lived.as_deref() != Some(governed.as_str());
    match lived.as_deref() {
        Some(lived) if moved => remarks.note(format!(
            "it lived in namespace {lived} and lands in {governed}, the namespace that it governed: whoever may edit \
             managers there can edit it, it ends with the namespace, and the namespace must exist when it is applied"
        )),
        _ => {}
    }
    let all = spec.list("policies")?.ok_or_else(|| spec.wrong("policies", "required"))?;
    if all.is_empty() {
        return Err(spec.wrong("policies", "has no entry; at least 1 is needed"));
    }
    let mut carried = Vec::new();
    for (index, policy) in all.iter().enumerate() {
        carried.push(policy::import(policy, &governed, &format!("spec.policies[{index}]"), &mut remarks)?);
    }
    multiple_policies(&carried, &mut remarks);
    let mut policies: Vec<Policy> = carried.into_iter().filter_map(|c| c.policy).collect();
    let renamed = unique_names(&mut policies, &mut remarks);
    body_differs(&policies, moved && lived.is_some(), &renamed, &mut remarks);
    if policies.len() > MAX_POLICIES {
        remarks.differs(format!(
            "it has {} policies and at most {MAX_POLICIES} are accepted: split it into several managers",
            policies.len()
        ));
        policies.clear();
    }
    let suspend = spec.boolean("deactivated")?.unwrap_or(false);
    let ours = free_name(&name, &governed, taken, &mut remarks);
    let yaml = write(object, &ours, &governed, suspend, &policies, &mut remarks)?;
    Ok(Imported { name, yaml, remarks: remarks.0 })
}

/// What differs because a manager has several policies.
fn multiple_policies(carried: &[ConvertedPolicy], remarks: &mut Remarks) {
    if carried.len() < 2 {
        return;
    }
    let twice = carried
        .iter()
        .enumerate()
        .any(|(i, c)| carried[..i].iter().any(|other| other.condition == c.condition));
    if twice {
        remarks.differs(
            "two policies have the same condition: that operator stumbled over it and never did anything for this \
             manager; here the first of them fires",
        );
    } else {
        remarks.differs(
            "it has several policies: there, all that were true at the same check fired, in no certain order; here the \
             first in the list fires, and the manager is dormant from then on",
        );
    }
}

/// What a webhook's receiver sees differently.
fn body_differs(policies: &[Policy], moved: bool, renamed: &[String], remarks: &mut Remarks) {
    for policy in policies.iter().filter(|p| p.then.webhook.is_some()) {
        if moved {
            remarks.differs(format!(
                "policy {:?}: the webhook's body names the manager's namespace, which is now the governed one",
                policy.name
            ));
        }
        if renamed.contains(&policy.name) {
            remarks
                .differs(format!("policy {:?}: the webhook's body has the policy's new name", policy.name));
        }
    }
}

/// Makes the names of policies differ; gives back the new ones.
fn unique_names(policies: &mut [Policy], remarks: &mut Remarks) -> Vec<String> {
    let mut renamed = Vec::new();
    for index in 1..policies.len() {
        let (before, rest) = policies.split_at_mut(index);
        let Some(policy) = rest.first_mut() else { continue };
        let is_taken = |name: &str| before.iter().any(|p| p.name == name);
        if !is_taken(&policy.name) {
            continue;
        }
        // Among one more candidates than there are policies, one is free.
        let candidates = (2..=index + 2).map(|n| format!("{} {n}", policy.name));
        let new = candidates.into_iter().find(|name| !is_taken(name)).unwrap_or_default();
        remarks.note(format!("two policies are named {:?}: the later one becomes {new:?}", policy.name));
        policy.name.clone_from(&new);
        renamed.push(new);
    }
    renamed
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
    if free != name {
        remarks.note(format!("namespace {namespace} has a manager {name} already: this one becomes {free}"));
    }
    taken.insert((namespace.to_owned(), free.clone()));
    free
}

fn write(
    object: &Value,
    name: &str,
    namespace: &str,
    suspend: bool,
    policies: &[Policy],
    remarks: &mut Remarks,
) -> Result<Option<String>, FieldError> {
    if policies.is_empty() {
        remarks.differs("nothing of it can be carried over: no manager is written");
        return Ok(None);
    }
    let metadata = &object["metadata"];
    let mut annotations = metadata["annotations"].as_object().cloned().unwrap_or_default();
    annotations.retain(|key, _| !key.starts_with(CONSOL_ANNOTATIONS) && key != LAST_APPLIED);
    let ours = ConvertedManager {
        api_version: "coppice.dev/v1alpha1",
        kind: "NamespaceManager",
        metadata: Metadata {
            name,
            namespace,
            labels: metadata["labels"].as_object().filter(|l| !l.is_empty()),
            annotations,
        },
        spec: Spec { suspend, policies },
    };
    let failed =
        |e: &dyn std::fmt::Display| FieldError { path: "metadata".to_owned(), message: e.to_string() };
    let value = serde_json::to_value(&ours).map_err(|e| failed(&e))?;
    // What our API server would refuse must not be handed out as if it were fine.
    for problem in validate::check(&value) {
        remarks.differs(format!("our API refuses the result: {problem}"));
    }
    // Reading it back is the last check that it says what it should.
    if let Err(error) = serde_json::from_value::<NamespaceManagerSpec>(value["spec"].clone()) {
        remarks.differs(format!("our API refuses the result: {error}"));
    }
    crate::yaml::to_string(&ours).map(Some).map_err(|e| failed(&e))
}
