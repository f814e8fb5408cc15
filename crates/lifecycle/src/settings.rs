//! What the platform allows: `CoppiceConfig` and the built-in settings, compiled.

use coppice_api::config::CoppiceConfigSpec;
use coppice_api::manager::WorkloadSelector;
use coppice_api::steps::Action;
use coppice_api::{Reason, names};
use coppice_destination::AllowList;

use crate::facts::NamespaceFacts;
use crate::glob;
use crate::valid_spec::{PolicyAction, ValidPolicy, ValidSpec};
use coppice_mutants::{Mutant, active};

/// The platform settings in force, compiled.
#[derive(Clone, Debug)]
pub struct PlatformSettings {
    /// The settings that they come from.
    pub config: CoppiceConfigSpec,
    /// Where webhooks may go.
    pub hosts: AllowList,
    /// Entries of the settings that could not be understood: each permits nothing.
    pub problems: Vec<String>,
    /// Whether there are no settings: then nothing is done.
    pub missing: bool,
    own_namespace: String,
    scale_kinds: Vec<ScaleKind>,
}

/// A kind that tenants may scale down besides the built-in ones, as the installation grants it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScaleKind {
    /// Group and version, such as `argoproj.io/v1alpha1`.
    pub api_version: String,
    /// The kind, such as `Rollout`.
    pub kind: String,
    /// The resource in URLs, such as `rollouts`.
    pub plural: String,
}

/// Why something that a manager or a Subnamespace asks for is impossible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecRefusal {
    /// The enumerated reason.
    pub reason: Reason,
    /// The message: what, why, and who can change it.
    pub message: String,
}

impl PlatformSettings {
    /// Compiles these settings, for an operator that lives in `own_namespace`.
    pub fn new(config: CoppiceConfigSpec, own_namespace: &str, scale_kinds: Vec<ScaleKind>) -> Self {
        let (hosts, errors) = AllowList::parse(&config.tenants.webhook_hosts);
        let mut problems: Vec<String> =
            errors.iter().map(|e| format!("spec.tenants.webhookHosts: {e}")).collect();
        if config.protected.names.iter().any(|n| n.chars().any(|c| !is_name(c))) {
            problems.push(
                "spec.protected.names: a name has lower-case letters, digits and '-'; '*' stands for any of them"
                    .to_owned(),
            );
        }
        Self { config, hosts, problems, missing: false, own_namespace: own_namespace.to_owned(), scale_kinds }
    }

    /// Where the settings do not exist. Managers are judged by the defaults, and nothing is done: what the platform had
    /// protected, and whether it had paused everything, is not known.
    pub fn missing(own_namespace: &str, scale_kinds: Vec<ScaleKind>) -> Self {
        Self { missing: true, ..Self::new(CoppiceConfigSpec::default(), own_namespace, scale_kinds) }
    }

    /// Why this must not be done to the namespace, whoever asks for it, if so. Checked when deciding, and again on a fresh read
    /// before acting.
    pub fn forbids(&self, action: Action, namespace: &NamespaceFacts) -> Option<SpecRefusal> {
        if !action.is_destructive() {
            return None;
        }
        let children = || has_children(namespace).filter(|_| action == Action::Delete);
        self.protection(namespace).or_else(children)
    }

    /// Whose a namespace is that belongs to Kubernetes or to Coppice, whatever the settings protect.
    pub fn owner_of_system_namespace(&self, name: &str) -> Option<&'static str> {
        if name == "default" || name.starts_with("kube-") {
            Some("it belongs to Kubernetes")
        } else if name == self.own_namespace || name == names::SYSTEM_NAMESPACE {
            Some("it is Coppice's own")
        } else {
            None
        }
    }

    /// Why this namespace is never deleted or scaled down, if so.
    pub fn protection(&self, namespace: &NamespaceFacts) -> Option<SpecRefusal> {
        if active(Mutant::ProtectionIgnored) {
            return None;
        }
        let protected = &self.config.protected;
        let name = namespace.name.as_str();
        let why = if let Some(owner) = self.owner_of_system_namespace(name) {
            owner.to_owned()
        } else if let Some(value) = namespace.labels.get(names::LABEL_PROTECTED) {
            format!("it has the label {}={value}", names::LABEL_PROTECTED)
        } else if let Some(pattern) = protected.names.iter().find(|p| glob::matches(p, name)) {
            format!("CoppiceConfig/coppice protects the name {pattern:?}")
        } else if protected.selector.as_ref().is_some_and(|s| s.matches(&namespace.labels)) {
            "CoppiceConfig/coppice protects namespaces with its labels".to_owned()
        } else {
            return None;
        };
        Some(SpecRefusal {
            reason: Reason::NamespaceProtected,
            message: format!("namespace {name} is protected: {why}; it is never deleted or scaled down"),
        })
    }

    /// Why this manager cannot be followed in this namespace, if so: the first impossible policy stops all of them.
    pub fn refusal(&self, namespace: &NamespaceFacts, spec: &ValidSpec) -> Option<SpecRefusal> {
        let tenants = &self.config.tenants;
        if tenants.namespace_selector.as_ref().is_some_and(|s| !s.matches(&namespace.labels)) {
            return Some(SpecRefusal {
                reason: Reason::NamespaceNotSelected,
                message: format!(
                    "managers are not allowed in namespace {}: spec.tenants.namespaceSelector of CoppiceConfig/coppice does not select it",
                    namespace.name
                ),
            });
        }
        spec.policies().iter().find_map(|policy| self.refuse_policy(policy, namespace))
    }

    fn refuse_policy(&self, policy: &ValidPolicy, namespace: &NamespaceFacts) -> Option<SpecRefusal> {
        let because = |reason, message: String| {
            Some(SpecRefusal { reason, message: format!("policy {:?}: {message}", policy.name) })
        };
        let action = policy.action.kind();
        if !self.config.tenants.actions.iter().any(|&permitted| action == permitted.into()) {
            return because(
                Reason::ActionNotAllowed,
                format!("the action {action} is not among spec.tenants.actions of CoppiceConfig/coppice"),
            );
        }
        if let Some(refusal) = self.forbids(action, namespace) {
            return because(refusal.reason, refusal.message);
        }
        match &policy.action {
            PolicyAction::Delete { .. } => None,
            PolicyAction::ScaleDown(scale_down) => {
                let mut selectors = scale_down.selectors.iter().flatten();
                selectors.find_map(|s| self.resource(s).err()).and_then(|r| because(r.reason, r.message))
            }
            PolicyAction::Webhook(webhook) => match &webhook.destination {
                Ok(destination) => {
                    let refusal = self.hosts.permits_host(destination, &namespace.name).err()?;
                    because(Reason::HostNotAllowed, refusal.to_string())
                }
                Err(error) => because(Reason::InvalidSpec, error.to_string()),
            },
        }
    }

    /// The kind that a workload selector names, if the installation scales it.
    pub fn resource(&self, selector: &WorkloadSelector) -> Result<ScaleKind, SpecRefusal> {
        let builtin = match selector.kind.as_str() {
            "Deployment" => Some(("apps/v1", "deployments")),
            "StatefulSet" => Some(("apps/v1", "statefulsets")),
            "ReplicaSet" => Some(("apps/v1", "replicasets")),
            "CronJob" => Some(("batch/v1", "cronjobs")),
            _ => None,
        };
        if let Some((api_version, plural)) = builtin
            && selector.api_version.as_deref().is_none_or(|v| v == api_version)
        {
            return Ok(ScaleKind {
                api_version: api_version.to_owned(),
                kind: selector.kind.clone(),
                plural: plural.to_owned(),
            });
        }
        let listed = self.scale_kinds.iter().find(|k| {
            k.kind == selector.kind && selector.api_version.as_deref() == Some(k.api_version.as_str())
        });
        listed.cloned().ok_or_else(|| SpecRefusal {
            reason: Reason::KindNotAllowed,
            message: format!(
                "kind {} ({}) is not scaled by this installation: an administrator can add it to scaleKinds of the chart",
                selector.kind,
                selector.api_version.as_deref().unwrap_or("no apiVersion")
            ),
        })
    }
}

/// Why a namespace that others of its tree are below is not deleted: they would be left without it.
fn has_children(namespace: &NamespaceFacts) -> Option<SpecRefusal> {
    if active(Mutant::ProtectionIgnored) || active(Mutant::ChildrenIgnored) {
        return None;
    }
    let name = &namespace.name;
    namespace.labels.get(names::LABEL_CHILDREN).map(|_| SpecRefusal {
        reason: Reason::HasChildren,
        message: format!(
            "namespace {name} has subnamespaces: it is not deleted before they are (kubectl get subnamespaces -n {name})"
        ),
    })
}

fn is_name(c: char) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '*'
}
