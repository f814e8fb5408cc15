//! What records say of a policy.

use coppice_api::NamespacePhase;
use coppice_api::managed_namespace::Successor;

use super::{Governed, Judged};
use crate::cluster::ClusterCondition;

impl Governed<'_> {
    /// The namespace that has taken its place.
    pub(super) fn successor_text(&self) -> Option<String> {
        let Successor { namespace, uid, .. } = self.successor.as_ref()?;
        Some(format!("{namespace} (uid {uid})"))
    }

    /// The phase that makes a policy true.
    pub(super) fn phase_of(&self, judged: &Judged<'_>) -> NamespacePhase {
        if judged.by_health() { self.finding.by_health() } else { self.finding.phase }
    }
}

/// Says how far the condition of a policy is. Contains nothing that changes with time alone, but for the phase.
pub(super) fn condition_text(governed: &Governed<'_>, judged: &Judged<'_>) -> String {
    if let Some((_, message)) = governed.says_of_pods(judged) {
        return message;
    }
    if let Some(successor) = governed.successor_text().filter(|_| judged.by_successor()) {
        return format!("namespace {successor} has taken its place");
    }
    let phase = governed.phase_of(judged);
    let by_health =
        matches!(phase, NamespacePhase::Unstable | NamespacePhase::Failing | NamespacePhase::Failed);
    let ttl = match judged.policy.condition {
        ClusterCondition::Ttl(_) => judged.due.map(|due| due.at),
        ClusterCondition::Phase { .. } if by_health && !judged.by_ttl() => None,
        ClusterCondition::Phase { .. } | ClusterCondition::PodsSucceed(_) => governed.finding.expires_at,
    };
    match ttl {
        None if by_health => format!("the phase is {}: {}", phase.as_str(), governed.failing),
        None => format!("the phase is {}", phase.as_str()),
        Some(at) if at <= governed.now => format!("the ttl ended at {at:.0}"),
        Some(at) => format!("the ttl ends at {at:.0}"),
    }
}

pub(super) fn progress_text(governed: &Governed<'_>, judged: &Judged<'_>) -> String {
    format!("{}: {} is being carried out", condition_text(governed, judged), judged.policy.action.kind())
}

pub(super) fn observing_text(governed: &Governed<'_>, judged: &Judged<'_>) -> String {
    let (manager, policy) = (&governed.manager, judged.policy);
    let who = if manager.spec.enforces() {
        format!("policy {:?} of ClusterNamespaceManager {}", policy.name, manager.name)
    } else {
        format!("ClusterNamespaceManager {}", manager.name)
    };
    let then = judged.acts_at.map_or_else(
        || "no date leads to what its policy waits for".to_owned(),
        |at| format!("policy {:?} would {} at {at:.0}", policy.name, policy.action.kind()),
    );
    format!("{who} observes: {}; {then}", condition_text(governed, judged))
}
