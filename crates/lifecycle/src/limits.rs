//! Within which limits the managers of a namespace work: those of the cluster manager that governs it, besides the settings.

use std::borrow::Cow;

use coppice_api::Reason;
use coppice_api::steps::Action;
use coppice_destination::AllowList;
use coppice_mutants::{Mutant, active};

use crate::cluster::selection::contest;
use crate::cluster::{ClusterManagerFacts, TenantLimits, ValidClusterManager};
use crate::facts::NamespaceFacts;
use crate::settings::SpecRefusal;
use crate::valid_spec::{PolicyAction, ValidPolicy, ValidSpec};

/// The limits of the managers in one namespace.
#[derive(Clone, Debug)]
pub enum NamespaceLimits<'a> {
    /// None but the settings.
    None,
    /// Those of the cluster manager that governs it.
    Of {
        /// Its name.
        manager: &'a str,
        /// The limits.
        limits: &'a TenantLimits,
    },
    /// It is not known whether there are any: why.
    Unknown((Reason, String)),
}

impl<'a> NamespaceLimits<'a> {
    /// The limits of the cluster manager that governs a namespace, if it enforces: one that observes changes nothing.
    pub fn of(
        managers: impl Iterator<Item = ClusterManagerFacts<'a>> + Clone,
        namespace: &NamespaceFacts,
    ) -> Self {
        if active(Mutant::TenantLimitsIgnored) {
            return Self::None;
        }
        // One that observes comes after all that enforce, and limits nothing.
        let counts = |manager: &ClusterManagerFacts<'_>| {
            !manager.terminating && manager.spec.map_or(true, ValidClusterManager::enforces)
        };
        let managers = managers.filter(counts);
        let mut living = managers.clone();
        let has_none =
            |manager: ClusterManagerFacts<'_>| manager.spec.is_ok_and(|spec| spec.limits.tenants.is_none());
        if living.all(has_none) {
            return Self::None;
        }
        match contest(managers, namespace).map(|contest| contest.winner) {
            Ok(winner) => winner
                .and_then(|winner| Some((winner.name, winner.spec.limits.tenants.as_ref()?)))
                .map_or(Self::None, |(manager, limits)| Self::Of { manager, limits }),
            Err(unknown) => Self::unknown(&unknown.to_string()),
        }
    }

    /// It is not known whether there are any.
    pub fn unknown(why: &str) -> Self {
        let message = format!("which limits apply to managers in the namespace is not known: {why}");
        Self::Unknown((Reason::LimitsUnknown, message))
    }

    /// Why it is not known whether there are any, if so.
    pub const fn why_unknown(&self) -> Option<&(Reason, String)> {
        match self {
            Self::Unknown(why) => Some(why),
            Self::None | Self::Of { .. } => None,
        }
    }

    /// The spec of a manager as it counts: deletions are announced for as long as they have to be. Its digests stay those of what
    /// its user has written, so that a limit that comes or goes arms nothing.
    pub fn apply<'s>(&self, spec: &'s ValidSpec) -> Cow<'s, ValidSpec> {
        match self {
            Self::Of { limits, .. } => spec.announcing_for(limits.min_notice),
            Self::None | Self::Unknown(_) => Cow::Borrowed(spec),
        }
    }

    /// What the limits change about a spec that is accepted, for people; none if nothing.
    pub fn said(&self, spec: &ValidSpec) -> Option<String> {
        let Self::Of { manager, limits } = self else { return None };
        let Cow::Owned(_) = self.apply(spec) else { return None };
        let minimum = limits.min_notice;
        Some(format!(
            "deletions are announced for {minimum} at least (spec.limits.minNotice of ClusterNamespaceManager {manager})"
        ))
    }

    /// Why this manager cannot be followed, if so: the first impossible policy stops all of them.
    pub fn refusal(&self, namespace: &NamespaceFacts, spec: &ValidSpec) -> Option<SpecRefusal> {
        let Self::Of { manager, limits } = self else { return None };
        spec.policies().iter().find_map(|policy| refuse(manager, limits, policy, &namespace.name))
    }

    /// Whether a manager is followed as it would be without limits.
    pub fn change_nothing(&self, namespace: &NamespaceFacts, spec: &ValidSpec) -> bool {
        let same_spec = matches!(self.apply(spec), Cow::Borrowed(_));
        self.why_unknown().is_none() && same_spec && self.refusal(namespace, spec).is_none()
    }

    /// Where webhooks may go, besides what the settings say of it; none if anywhere.
    pub fn hosts(&self) -> Option<&'a AllowList> {
        match self {
            Self::Of { limits, .. } => limits.hosts.as_ref(),
            Self::None | Self::Unknown(_) => None,
        }
    }
}

fn refuse(
    manager: &str,
    limits: &TenantLimits,
    policy: &ValidPolicy,
    namespace: &str,
) -> Option<SpecRefusal> {
    let because = |reason, message: String| {
        let message =
            format!("policy {:?}: {message} (spec.limits of ClusterNamespaceManager {manager})", policy.name);
        Some(SpecRefusal { reason, message })
    };
    let action: Action = policy.action.kind();
    if limits.actions.as_ref().is_some_and(|permitted| !permitted.contains(&action)) {
        return because(Reason::ActionNotAllowed, format!("the action {action} is not among tenantActions"));
    }
    let PolicyAction::Webhook(webhook) = &policy.action else { return None };
    let (Some(hosts), Ok(destination)) = (&limits.hosts, &webhook.destination) else { return None };
    let refusal = hosts.permits_host(destination, namespace).err()?;
    because(Reason::HostNotAllowed, refusal.to_string())
}
