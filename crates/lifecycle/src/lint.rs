//! What holds for every plan, whatever was observed: the rules that the plans of managers ([`plan::lint`](crate::plan::lint)), those
//! for the records of namespaces (`cluster::plan::lint`) and those of other kinds whose steps delete namespaces have in common.
//!
//! Nothing here is needed for a decision: the rules are said a second time, by what a plan looks like and not by how it
//! is made, so that a mistake has to be made twice.

use coppice_api::config::GovernorStatus;
pub use coppice_api::lint::PlanViolation;
use coppice_api::manager::{Action, Intent, NextStep, Notice};
use coppice_quantity::time::ServerTime;

use crate::PlatformSettings;
use crate::facts::NamespaceFacts;
use crate::governor::{self, Share};

/// A step is that of the intent that was observed, and of its action.
pub fn step(intent: &Intent, kind: Action, observed: Option<&Intent>) -> Vec<PlanViolation> {
    let mut findings = Vec::new();
    if observed != Some(intent) {
        findings.push(PlanViolation::StepWithoutIntent);
    }
    if kind != intent.action {
        findings.push(PlanViolation::NotOfItsPolicy);
    }
    findings
}

/// An intent says what it is and why. The policies are those of nobody only where `by_nobody` is admitted.
pub fn explained(intent: &Intent, by_nobody: bool) -> Option<PlanViolation> {
    let by_nobody = intent.digest.is_empty() && !by_nobody;
    (intent.id.is_empty() || intent.reason.is_empty() || by_nobody).then_some(PlanViolation::Unexplained)
}

/// An intent names the namespace that was observed.
pub fn precondition(intent: &Intent, namespace: &NamespaceFacts) -> Option<PlanViolation> {
    (intent.uid.is_empty() || intent.uid != namespace.uid).then_some(PlanViolation::NoPrecondition)
}

/// Nothing destructive is done to what is protected.
pub fn protected(
    intent: &Intent,
    settings: &PlatformSettings,
    namespace: &NamespaceFacts,
) -> Option<PlanViolation> {
    settings.forbids(intent.action, namespace).is_some().then_some(PlanViolation::Protected)
}

/// What every destructive step depends on, whoever asks for it.
pub(crate) struct Destructive<'a> {
    pub(crate) namespace: &'a NamespaceFacts,
    pub(crate) settings: &'a PlatformSettings,
    pub(crate) budget: &'a GovernorStatus,
    pub(crate) managed: u64,
    pub(crate) stale: bool,
    pub(crate) time: ServerTime,
}

impl Destructive<'_> {
    /// Whether the namespace, the facts, the settings or the budget say that there is none now.
    pub(crate) fn is_forbidden(&self) -> bool {
        let Self { namespace, settings, budget, managed, stale, time } = *self;
        namespace.terminating
            || stale
            || time.uncertainty().is_some()
            || settings.missing
            || governor::allow(&settings.config.governor, budget, Share::Managers(managed), time.now())
                .is_err()
    }
}

/// Whether the notice of this intent has run.
pub(crate) fn notice_has_run(notice: Option<&Notice>, intent: &Intent, time: ServerTime) -> bool {
    notice.is_some_and(|notice| {
        notice.policy == intent.policy && notice.uid == intent.uid && notice.not_before <= time.now()
    })
}

/// A notice only moves later.
pub(crate) fn moved_earlier(before: Option<&Notice>, after: &Notice) -> Option<PlanViolation> {
    let before = before.filter(|before| before.policy == after.policy && before.uid == after.uid)?;
    (after.not_before < before.not_before).then_some(PlanViolation::NoticeMovedEarlier)
}

/// A status says why nothing is done.
pub(crate) fn silent(next: Option<&NextStep>) -> Option<PlanViolation> {
    let says_why = next.is_some_and(|next| !next.reason.is_empty() && !next.message.is_empty());
    (!says_why).then_some(PlanViolation::Silent)
}
