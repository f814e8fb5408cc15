//! What a manager asks for, checked once where it is read: the planner has no arm for what cannot be.
//!
//! The API server has checked most of it by the CRD's rules already; files that the command line reads, and objects that
//! were written while other rules were in force, have not been through them.

use std::borrow::Cow;

use coppice_api::manager::{
    self, Action, Delete, Hold, NamespaceManagerSpec, PodsSucceed, ScaleDown, Then, Ttl, Webhook,
    WebhookFormat, When,
};
use coppice_destination::{Destination, UrlError};
use coppice_quantity::Duration;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::digest::{DigestComparison, PolicyDigests};

/// A spec of any version, validated, with the digests of its policies. Those are made once, since they cost more than a
/// decision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "NamespaceManagerSpec", into = "NamespaceManagerSpec")]
pub struct ValidSpec {
    /// While true nothing is done.
    pub suspend: bool,
    /// No policy fires until the hold ends.
    pub hold: Option<Hold>,
    /// No ttl fires before this instant.
    pub extend_until: Option<Timestamp>,
    /// Fire again after this firing.
    pub rearm: Option<i64>,
    /// Undo the scale-down of this firing.
    pub wake: Option<i64>,
    policies: Vec<ValidPolicy>,
    digests: PolicyDigests,
}

/// A policy: one condition and one action.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(into = "manager::Policy")]
pub struct ValidPolicy {
    /// Its name, unique in its manager.
    pub name: String,
    /// When it fires.
    pub condition: PolicyCondition,
    /// What happens then.
    pub action: PolicyAction,
}

/// When a policy fires.
#[derive(Clone, Debug, PartialEq)]
pub enum PolicyCondition {
    /// A time has passed.
    Ttl(TtlEnd),
    /// The pods of the namespace have succeeded.
    PodsSucceed(PodsSucceed),
}

/// When a ttl ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TtlEnd {
    /// This long after the namespace was created; never zero.
    After(Duration),
    /// At this instant.
    Until(Timestamp),
}

/// What happens when a policy fires.
#[derive(Clone, Debug, PartialEq)]
pub enum PolicyAction {
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

/// A webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValidWebhook {
    /// The URL as it was written.
    pub url: String,
    /// Where that leads. The CRD's rules accept URLs that lead nowhere: the manager is refused then, and still understood, so
    /// that it can be woken and its intent is given up.
    pub destination: Result<Destination, UrlError>,
    /// What the body looks like.
    pub format: WebhookFormat,
}

/// What is wrong with a spec, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("policy {policy:?}: {problem}")]
pub struct InvalidPolicy {
    policy: String,
    problem: PolicyError,
}

/// What is wrong with a policy, and what to write instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// There is no condition, or more than one.
    #[error("write exactly one condition in when: ttl or podsSucceed")]
    Conditions,
    /// A ttl is over at once.
    #[error("when.ttl.after must be at least 1s")]
    ZeroTtl,
    /// A ttl has no end, or two.
    #[error("write exactly one of after and until in when.ttl")]
    TtlEnds,
    /// A selector of pods has nothing in it.
    #[error("an empty selector is not accepted: leave the selector out to select all pods")]
    EmptyPodSelector,
    /// There is no action, or more than one.
    #[error("write exactly one action in then: delete, scaleDown or webhook")]
    Actions,
    /// A list of workloads has nothing in it.
    #[error("selectors is empty: leave it out to scale down every Deployment and StatefulSet")]
    EmptyWorkloadSelectors,
}

impl ValidSpec {
    /// The policies, in order; the digests are theirs.
    pub fn policies(&self) -> &[ValidPolicy] {
        &self.policies
    }

    /// Whether a decision has to know the pods and Jobs of the namespace.
    pub fn needs_pods(&self) -> bool {
        self.policies.iter().any(|policy| matches!(policy.condition, PolicyCondition::PodsSucceed(_)))
    }

    /// The same, with deletions that are announced for so long at least; the digests stay as they are.
    pub(crate) fn announcing_for(&self, minimum: Duration) -> Cow<'_, Self> {
        let shorter = |policy: &ValidPolicy| matches!(policy.action, PolicyAction::Delete { notice } if notice < minimum);
        if !self.policies.iter().any(shorter) {
            return Cow::Borrowed(self);
        }
        let mut longer = self.clone();
        for policy in longer.policies.iter_mut().filter(|policy| shorter(policy)) {
            policy.action = PolicyAction::Delete { notice: minimum };
        }
        Cow::Owned(longer)
    }

    /// The digest of the policies, as it is written to status.
    pub fn digest(&self) -> &str {
        self.digests.current()
    }

    /// How a digest from a status relates to the policies.
    pub fn compare(&self, stored: &str) -> DigestComparison {
        self.digests.compare(stored)
    }
}

impl TryFrom<NamespaceManagerSpec> for ValidSpec {
    type Error = InvalidPolicy;

    fn try_from(spec: NamespaceManagerSpec) -> Result<Self, InvalidPolicy> {
        let digests = PolicyDigests::of(&spec.policies);
        let policies = spec.policies.into_iter().map(ValidPolicy::try_from).collect::<Result<_, _>>()?;
        let NamespaceManagerSpec { suspend, hold, extend_until, rearm, wake, .. } = spec;
        Ok(Self { suspend, hold, extend_until, rearm, wake, policies, digests })
    }
}

impl TryFrom<manager::Policy> for ValidPolicy {
    type Error = InvalidPolicy;

    fn try_from(policy: manager::Policy) -> Result<Self, InvalidPolicy> {
        match condition(policy.when).and_then(|condition| Ok((condition, action(policy.then)?))) {
            Ok((condition, action)) => Ok(Self { name: policy.name, condition, action }),
            Err(problem) => Err(InvalidPolicy { policy: policy.name, problem }),
        }
    }
}

impl TryFrom<Ttl> for TtlEnd {
    type Error = PolicyError;

    fn try_from(ttl: Ttl) -> Result<Self, PolicyError> {
        match (ttl.after, ttl.until) {
            (Some(Duration::ZERO), None) => Err(PolicyError::ZeroTtl),
            (Some(after), None) => Ok(Self::After(after)),
            (None, Some(until)) => Ok(Self::Until(until)),
            _ => Err(PolicyError::TtlEnds),
        }
    }
}

/// As `v1alpha1` writes it.
impl From<TtlEnd> for Ttl {
    fn from(end: TtlEnd) -> Self {
        match end {
            TtlEnd::After(after) => Self { after: Some(after), until: None },
            TtlEnd::Until(until) => Self { after: None, until: Some(until) },
        }
    }
}

fn condition(when: When) -> Result<PolicyCondition, PolicyError> {
    match (when.ttl, when.pods_succeed) {
        (Some(ttl), None) => Ok(PolicyCondition::Ttl(TtlEnd::try_from(ttl)?)),
        (None, Some(pods)) if pods.selector.as_ref().is_some_and(coppice_api::Selector::is_empty) => {
            Err(PolicyError::EmptyPodSelector)
        }
        (None, Some(pods)) => Ok(PolicyCondition::PodsSucceed(pods)),
        _ => Err(PolicyError::Conditions),
    }
}

fn action(then: Then) -> Result<PolicyAction, PolicyError> {
    match (then.delete, then.scale_down, then.webhook) {
        (Some(delete), None, None) => Ok(PolicyAction::Delete { notice: delete.notice }),
        (None, Some(scale_down), None) if scale_down.selectors.as_ref().is_some_and(Vec::is_empty) => {
            Err(PolicyError::EmptyWorkloadSelectors)
        }
        (None, Some(scale_down), None) => Ok(PolicyAction::ScaleDown(scale_down)),
        (None, None, Some(webhook)) => {
            let destination = Destination::parse(&webhook.url);
            Ok(PolicyAction::Webhook(ValidWebhook { url: webhook.url, destination, format: webhook.format }))
        }
        _ => Err(PolicyError::Actions),
    }
}

impl PolicyAction {
    /// Which action it is.
    pub const fn kind(&self) -> Action {
        match self {
            Self::Delete { .. } => Action::Delete,
            Self::ScaleDown(_) => Action::ScaleDown,
            Self::Webhook(_) => Action::Webhook,
        }
    }

    /// How long before a deletion it is announced; none if it is not announced, or no deletion.
    pub fn notice(&self) -> Option<Duration> {
        match self {
            Self::Delete { notice } => Some(*notice).filter(|notice| !notice.is_zero()),
            Self::ScaleDown(_) | Self::Webhook(_) => None,
        }
    }
}

impl PolicyCondition {
    /// Whether it has to hold for a time.
    pub fn has_settle(&self) -> bool {
        matches!(self, Self::PodsSucceed(pods) if !pods.settle.is_zero())
    }
}

/// As `v1alpha1` writes it.
impl From<ValidSpec> for NamespaceManagerSpec {
    fn from(spec: ValidSpec) -> Self {
        let ValidSpec { suspend, hold, extend_until, rearm, wake, policies, .. } = spec;
        let policies = policies.into_iter().map(Into::into).collect();
        Self { suspend, policies, hold, extend_until, rearm, wake }
    }
}

/// As `v1alpha1` writes it: also in the body of webhooks.
impl From<ValidPolicy> for manager::Policy {
    fn from(policy: ValidPolicy) -> Self {
        let when = match policy.condition {
            PolicyCondition::Ttl(end) => When { ttl: Some(end.into()), pods_succeed: None },
            PolicyCondition::PodsSucceed(pods) => When { ttl: None, pods_succeed: Some(pods) },
        };
        let then = match policy.action {
            PolicyAction::Delete { notice } => Then { delete: Some(Delete { notice }), ..Then::default() },
            PolicyAction::ScaleDown(scale_down) => Then { scale_down: Some(scale_down), ..Then::default() },
            PolicyAction::Webhook(ValidWebhook { url, format, .. }) => {
                Then { webhook: Some(Webhook { url, format }), ..Then::default() }
            }
        };
        Self { name: policy.name, when, then }
    }
}
