//! What a cluster manager asks for, checked once where it is read: the planner has no arm for what cannot be.

use coppice_api::cluster_manager::{
    Approval, ClusterNamespaceManagerSpec, ClusterPolicy, ClusterThen, ClusterWebhook, ClusterWhen, Delete,
    Mode, NamespaceTtl, PhaseCondition, PodsSucceed, PolicyPhase, ScaleDown, WebhookFormat,
};
use coppice_api::identity::{IdentityKeys, LinkKeys};
use coppice_api::notify::Notify;
use coppice_api::owner::OwnerSource;
use coppice_api::steps::Action;
use coppice_destination::Destination;
use coppice_quantity::Duration;
use serde::{Deserialize, Serialize};

use super::hours::{InvalidHours, ValidHours};
use super::identity::{SupersedeError, ValidSupersede};
use super::limits::{InvalidLimits, ValidLimits};
use super::ttl::ValidTtl;
use super::valid_health::{HealthError, ValidHealth};
use super::valid_selector::{InvalidSelector, ValidSelector};
use crate::annotations::is_annotation_key;
use crate::digest;
use crate::valid_spec::{PolicyError, TtlEnd, ValidWebhook};

/// The spec of a cluster manager, validated, with its digest.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "ClusterNamespaceManagerSpec")]
pub struct ValidClusterManager {
    /// Whether its policies may act.
    pub mode: Mode,
    /// While true nothing is done.
    pub suspend: bool,
    /// Consent to act upon more namespaces than the hourly budget.
    pub approval: Option<Approval>,
    /// Of several that select a namespace, the highest comes first.
    pub priority: i32,
    /// Which namespaces it is about.
    pub selector: ValidSelector,
    /// Nothing is done to a namespace that it has not governed for so long.
    pub settle: Duration,
    /// When namespaces become stale, from their creation on.
    pub ttl: Option<ValidTtl>,
    /// When they are unstable, failing and failed; none: their workloads are not looked at.
    pub health: Option<ValidHealth>,
    /// When a namespace takes the place of an older one; none: never.
    pub supersede: Option<ValidSupersede>,
    /// How far the users of its namespaces may go.
    pub limits: ValidLimits,
    /// How they say who owns them.
    pub owner: Option<OwnerSource>,
    /// Annotations with links for the owner.
    pub links: Option<LinkKeys>,
    /// What owners are notified of; none: nothing.
    pub notify: Option<Notify>,
    /// When owners are notified; none for at any time.
    pub hours: Option<ValidHours>,
    policies: Vec<ValidClusterPolicy>,
    digest: String,
    enforcing_digest: String,
}

/// A policy: one condition and one action.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(into = "ClusterPolicy")]
pub struct ValidClusterPolicy {
    /// Its name, unique in its manager.
    pub name: String,
    /// Whether it acts: it and its manager enforce.
    pub enforces: bool,
    /// Whether it acts, or would if its manager enforced.
    pub would_enforce: bool,
    /// When it is true.
    pub condition: ClusterCondition,
    /// What is done then.
    pub action: ClusterAction,
    /// A digest of all of this but the mode of the manager.
    pub digest: String,
}

/// When a policy is true.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterCondition {
    /// The namespace has been in one of these phases for so long.
    Phase {
        /// The phases; at least one.
        phases: Vec<PolicyPhase>,
        /// For how long.
        lasting: Duration,
    },
    /// A time has passed.
    Ttl(TtlEnd),
    /// Its pods have succeeded.
    PodsSucceed(PodsSucceed),
}

/// What a policy does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterAction {
    /// The namespace is deleted.
    Delete {
        /// How long before it is announced.
        notice: Duration,
    },
    /// Workloads are scaled to zero.
    ScaleDown(ScaleDown),
    /// A document is posted to a URL.
    Webhook(ValidWebhook),
}

impl ClusterCondition {
    /// Whether it waits for a phase that is one of the health.
    pub fn is_of_health(&self) -> bool {
        match self {
            Self::Phase { phases, .. } => phases.iter().any(|phase| phase.is_of_health()),
            Self::Ttl(_) | Self::PodsSucceed(_) => false,
        }
    }

    /// Whether it waits for a later namespace.
    pub fn is_of_successors(&self) -> bool {
        matches!(self, Self::Phase { phases, .. } if phases.contains(&PolicyPhase::Superseded))
    }
}

impl ClusterAction {
    /// Which action it is.
    pub const fn kind(&self) -> Action {
        match self {
            Self::Delete { .. } => Action::Delete,
            Self::ScaleDown(_) => Action::ScaleDown,
            Self::Webhook(_) => Action::Webhook,
        }
    }

    /// How long before it is done it is announced; zero unless it is a deletion.
    pub const fn notice(&self) -> Duration {
        match self {
            Self::Delete { notice } => *notice,
            Self::ScaleDown(_) | Self::Webhook(_) => Duration::ZERO,
        }
    }

    /// Whether the namespace is deleted.
    pub const fn deletes(&self) -> bool {
        matches!(self, Self::Delete { .. })
    }

    /// Whether it takes something away from the namespace.
    pub const fn is_destructive(&self) -> bool {
        self.kind().is_destructive()
    }
}

/// What is wrong with a spec, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidClusterManager {
    /// Something about the selector is wrong.
    #[error("selector{0}")]
    Selector(#[from] InvalidSelector),
    /// Every namespace would expire at once.
    #[error("ttl.after must be at least 1s")]
    ZeroTtl,
    /// What names the annotation of a ttl is no key.
    #[error("ttl.fromAnnotation is {0:?}: write an annotation's key, such as example.com/ttl")]
    TtlAnnotation(String),
    /// What names the annotation of an owner is no key.
    #[error("owner.annotations has the key {0:?}: write an annotation's key, such as example.com/owner")]
    OwnerAnnotation(String),
    /// What a mistake selects would be acted upon at once.
    #[error("settle must be at least 1s")]
    ZeroSettle,
    /// What names the label or annotation of an identity is no key.
    #[error("identity has the key {0:?}: write the key of a label or annotation, such as example.com/branch")]
    IdentityKey(String),
    /// Something about superseding is wrong.
    #[error("{0}")]
    Supersede(SupersedeError),
    /// Something about the health is wrong.
    #[error("health.{0}")]
    Health(HealthError),
    /// Something about the limits is wrong.
    #[error("limits: {0}")]
    Limits(#[from] InvalidLimits),
    /// Something about the working hours is wrong.
    #[error("notify.workingHours: {0}")]
    Hours(#[from] InvalidHours),
    /// Two policies have one name.
    #[error("two policies are called {0:?}: each needs a name of its own")]
    SameName(String),
    /// A policy is wrong.
    #[error("policy {policy:?}: {problem}")]
    Policy {
        /// Its name.
        policy: String,
        /// What is wrong with it.
        problem: ClusterPolicyError,
    },
}

/// What is wrong with a policy of a cluster manager, and what to write instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClusterPolicyError {
    /// There is no condition, or more than one.
    #[error("write exactly one condition in when: phase, ttl or podsSucceed")]
    Conditions,
    /// It waits for no phase.
    #[error("when.phase.in is empty: write at least one phase")]
    NoPhase,
    /// It waits for a phase of superseding.
    #[error(
        "it waits for Superseded, which no namespace is without spec.supersede: write it, such as {{by: [Branch]}}"
    )]
    NothingSupersedes,
    /// It waits for a phase of health.
    #[error(
        "it waits for Unstable, Failing or Failed, which no namespace is unless its health is looked at: write spec.health, such as \
         {{}}"
    )]
    NoHealth,
    /// Its ttl is wrong.
    #[error(transparent)]
    Ttl(#[from] PolicyError),
    /// Its selector of pods has nothing in it.
    #[error("when.podsSucceed.selector is empty: leave it out to mean all pods")]
    EmptyPodSelector,
    /// There is no action, or more than one.
    #[error("write exactly one action in then: delete, scaleDown or webhook")]
    Actions,
    /// Its list of workloads has nothing in it.
    #[error("then.scaleDown.selectors is empty: leave it out to scale down every Deployment and StatefulSet")]
    EmptyWorkloadSelectors,
    /// Its body has no place for a phase.
    #[error(
        "the format consol of a webhook has no words for phases: write format coppice, or wait for ttl or podsSucceed"
    )]
    ConsolFormat,
}

impl ValidClusterManager {
    /// The policies; the digest is theirs, too.
    pub fn policies(&self) -> &[ValidClusterPolicy] {
        &self.policies
    }

    /// The digest of all fields that decide.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// The digest that it has once it enforces: approvals name it, so that one can be given together with the switch.
    pub fn enforcing_digest(&self) -> &str {
        &self.enforcing_digest
    }

    /// The annotations of namespaces that it names: what it decides rests on these being read.
    pub fn annotation_keys(&self) -> impl Iterator<Item = &str> {
        let of_ttl = self.ttl.as_ref().and_then(|ttl| ttl.from_annotation.as_deref());
        let of_owner = self.owner.iter().flat_map(|owner| owner.annotations.iter().flatten());
        let of_identity = self.supersede.iter().flat_map(ValidSupersede::keys);
        let of_owner = of_owner.map(|one| one.key.as_str());
        let of_links = self.links.iter().flat_map(LinkKeys::keys).map(|(_, key)| key);
        self.selector.annotation_keys().chain(of_ttl).chain(of_identity).chain(of_owner).chain(of_links)
    }

    /// Whether a decision has to know the pods and Jobs of its namespaces.
    pub fn needs_pods(&self) -> bool {
        self.policies.iter().any(|policy| matches!(policy.condition, ClusterCondition::PodsSucceed(_)))
    }

    /// Whether its policies may act.
    pub fn enforces(&self) -> bool {
        self.mode == Mode::Enforce
    }
}

impl TryFrom<ClusterNamespaceManagerSpec> for ValidClusterManager {
    type Error = InvalidClusterManager;

    fn try_from(spec: ClusterNamespaceManagerSpec) -> Result<Self, InvalidClusterManager> {
        let digest = digest::cluster::digest(&spec);
        let enforcing = ClusterNamespaceManagerSpec { mode: Mode::Enforce, ..spec.clone() };
        let enforcing_digest = digest::cluster::digest(&enforcing);
        let ClusterNamespaceManagerSpec {
            mode,
            suspend,
            approval,
            priority,
            selector,
            settle,
            ttl,
            health,
            identity,
            supersede,
            owner,
            notify,
            policies,
            limits,
        } = spec;
        let links = identity.as_ref().and_then(|identity| identity.links.clone());
        let of_links = links.iter().flat_map(LinkKeys::keys).map(|(_, key)| key);
        let keys: Vec<&str> = identity.iter().flat_map(IdentityKeys::keys).chain(of_links).collect();
        if let Some(bad) = keys.into_iter().find(|key| !is_annotation_key(key)) {
            return Err(InvalidClusterManager::IdentityKey(bad.to_owned()));
        }
        if let Some(bad) = owner
            .iter()
            .flat_map(|owner| owner.annotations.iter().flatten())
            .find(|one| !is_annotation_key(&one.key))
        {
            return Err(InvalidClusterManager::OwnerAnnotation(bad.key.clone()));
        }
        let selector = ValidSelector::try_from(selector)?;
        if settle.is_zero() {
            return Err(InvalidClusterManager::ZeroSettle);
        }
        let mut limits = limits.map(ValidLimits::try_from).transpose()?.unwrap_or_default();
        // Nobody's namespace ends earlier because they ask for more.
        limits.max_ttl = limits.max_ttl.map(|max| ttl.as_ref().map_or(max, |ttl| max.max(ttl.after)));
        let ttl = ttl.map(|ttl| valid_ttl(ttl, limits.max_ttl)).transpose()?;
        let health = health.map(ValidHealth::try_from).transpose().map_err(InvalidClusterManager::Health)?;
        let compare = |rule| ValidSupersede::new(identity.as_ref(), rule, health.is_some());
        let hours = notify.as_ref().and_then(|notify| notify.working_hours.as_ref());
        let hours = hours.map(ValidHours::try_from).transpose()?;
        let supersede = supersede.map(compare).transpose().map_err(InvalidClusterManager::Supersede)?;
        let mut valid: Vec<ValidClusterPolicy> = Vec::with_capacity(policies.len());
        for policy in policies {
            if valid.iter().any(|other| other.name == policy.name) {
                return Err(InvalidClusterManager::SameName(policy.name));
            }
            valid.push(valid_policy(policy, mode, (health.is_some(), supersede.is_some()))?);
        }
        Ok(Self {
            mode,
            suspend,
            approval,
            priority,
            selector,
            settle,
            ttl,
            health,
            supersede,
            limits,
            owner,
            links,
            notify,
            hours,
            policies: valid,
            digest,
            enforcing_digest,
        })
    }
}

fn valid_ttl(ttl: NamespaceTtl, max: Option<Duration>) -> Result<ValidTtl, InvalidClusterManager> {
    let NamespaceTtl { after, from_annotation } = ttl;
    if after.is_zero() {
        return Err(InvalidClusterManager::ZeroTtl);
    }
    match from_annotation {
        Some(key) if !is_annotation_key(&key) => Err(InvalidClusterManager::TtlAnnotation(key)),
        from_annotation => Ok(ValidTtl { after, from_annotation, max }),
    }
}

fn valid_policy(
    policy: ClusterPolicy,
    manager: Mode,
    looks_at: (bool, bool),
) -> Result<ValidClusterPolicy, InvalidClusterManager> {
    let digest = digest::cluster::policy_digest(&policy);
    let ClusterPolicy { name, mode, when, then } = policy;
    let parts = condition(when, looks_at).and_then(|when| Ok((action(then, &when)?, when)));
    match parts {
        Ok((action, condition)) => {
            let would_enforce = mode != Some(Mode::Observe);
            // An observing manager is not to act by a policy that somebody overlooked.
            let enforces = manager == Mode::Enforce && would_enforce;
            Ok(ValidClusterPolicy { name, enforces, would_enforce, condition, action, digest })
        }
        Err(problem) => Err(InvalidClusterManager::Policy { policy: name, problem }),
    }
}

fn condition(
    ClusterWhen { phase, ttl, pods_succeed }: ClusterWhen,
    (health, supersede): (bool, bool),
) -> Result<ClusterCondition, ClusterPolicyError> {
    match (phase, ttl, pods_succeed) {
        (Some(PhaseCondition { phases, .. }), None, None) if phases.is_empty() => {
            Err(ClusterPolicyError::NoPhase)
        }
        (Some(PhaseCondition { phases, .. }), None, None)
            if !supersede && phases.contains(&PolicyPhase::Superseded) =>
        {
            Err(ClusterPolicyError::NothingSupersedes)
        }
        (Some(PhaseCondition { phases, .. }), None, None)
            if !health && phases.iter().any(|phase| phase.is_of_health()) =>
        {
            Err(ClusterPolicyError::NoHealth)
        }
        (Some(PhaseCondition { phases, lasting }), None, None) => {
            Ok(ClusterCondition::Phase { phases, lasting })
        }
        (None, Some(ttl), None) => Ok(ClusterCondition::Ttl(TtlEnd::try_from(ttl)?)),
        (None, None, Some(pods)) if pods.selector.as_ref().is_some_and(coppice_api::Selector::is_empty) => {
            Err(ClusterPolicyError::EmptyPodSelector)
        }
        (None, None, Some(pods)) => Ok(ClusterCondition::PodsSucceed(pods)),
        _ => Err(ClusterPolicyError::Conditions),
    }
}

fn action(
    ClusterThen { delete, scale_down, webhook }: ClusterThen,
    condition: &ClusterCondition,
) -> Result<ClusterAction, ClusterPolicyError> {
    let by_phase = matches!(condition, ClusterCondition::Phase { .. });
    match (delete, scale_down, webhook) {
        (Some(delete), None, None) => Ok(ClusterAction::Delete { notice: delete.notice }),
        (None, Some(scale_down), None) if scale_down.selectors.as_ref().is_some_and(Vec::is_empty) => {
            Err(ClusterPolicyError::EmptyWorkloadSelectors)
        }
        (None, Some(scale_down), None) => Ok(ClusterAction::ScaleDown(scale_down)),
        (None, None, Some(ClusterWebhook { format: WebhookFormat::Consol, .. })) if by_phase => {
            Err(ClusterPolicyError::ConsolFormat)
        }
        (None, None, Some(ClusterWebhook { url, format })) => {
            let destination = Destination::parse(&url);
            Ok(ClusterAction::Webhook(ValidWebhook { url, destination, format }))
        }
        _ => Err(ClusterPolicyError::Actions),
    }
}

/// As `v1alpha1` writes it, for the body of webhooks.
impl From<ValidClusterPolicy> for ClusterPolicy {
    fn from(policy: ValidClusterPolicy) -> Self {
        let ValidClusterPolicy { name, would_enforce, condition, action, .. } = policy;
        let when = match condition {
            ClusterCondition::Phase { phases, lasting } => {
                ClusterWhen { phase: Some(PhaseCondition { phases, lasting }), ..ClusterWhen::default() }
            }
            ClusterCondition::Ttl(end) => ClusterWhen { ttl: Some(end.into()), ..ClusterWhen::default() },
            ClusterCondition::PodsSucceed(pods) => {
                ClusterWhen { pods_succeed: Some(pods), ..ClusterWhen::default() }
            }
        };
        let then = match action {
            ClusterAction::Delete { notice } => {
                ClusterThen { delete: Some(Delete { notice }), ..ClusterThen::default() }
            }
            ClusterAction::ScaleDown(what) => {
                ClusterThen { scale_down: Some(what), ..ClusterThen::default() }
            }
            ClusterAction::Webhook(ValidWebhook { url, format, .. }) => {
                ClusterThen { webhook: Some(ClusterWebhook { url, format }), ..ClusterThen::default() }
            }
        };
        let mode = (!would_enforce).then_some(Mode::Observe);
        Self { name, mode, when, then }
    }
}
