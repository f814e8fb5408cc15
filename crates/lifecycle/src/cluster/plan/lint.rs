//! What holds for every plan for a namespace under a cluster manager: the rules of [`plan::lint`](crate::plan::lint), for records. The
//! tests of cluster managers check the plans that they make by them.

use coppice_api::ManagedNamespaceStatus;
use coppice_api::manager::{Action, Intent, Notice};
use coppice_quantity::time::ServerTime;

use super::{ClusterObserved, NamespacePlan, NamespaceStep};
use crate::cluster::RecordFacts;
use crate::cluster::selection::contest;
use crate::facts::NamespaceFacts;
use crate::governor;
use crate::plan::lint::Finding;

/// The rules that this plan breaks; [`plan`](super::plan) breaks none.
pub fn lint(observed: &ClusterObserved<'_>, time: ServerTime, plan: &NamespacePlan) -> Vec<Finding> {
    if coppice_mutants::any_active() {
        // A bug on purpose is to be found by what the operator does.
        return Vec::new();
    }
    let Some(record) = observed.record else {
        let harmless = matches!(plan.step, NamespaceStep::Nothing | NamespaceStep::Create);
        return if harmless { Vec::new() } else { vec![Finding::StepWithoutIntent] };
    };
    let (intent, kind) = match &plan.step {
        NamespaceStep::Nothing | NamespaceStep::Create => return Vec::new(),
        NamespaceStep::WriteStatus(after) => return written(record.status, after),
        NamespaceStep::Delete(intent) => (intent, Action::Delete),
        NamespaceStep::ScaleDown(intent, _) => (intent, Action::ScaleDown),
        NamespaceStep::Webhook(intent, _) => (intent, Action::Webhook),
        NamespaceStep::Wake(intent) => (intent, Action::Wake),
    };
    let mut findings = step(record, intent, kind);
    let Ok(namespace) = &observed.namespace else {
        findings.push(Finding::Forbidden);
        return findings;
    };
    if intent.uid.is_empty() || intent.uid != namespace.uid {
        findings.push(Finding::NoPrecondition);
    }
    if kind.is_destructive() {
        findings.extend(destructive(observed, (record, namespace), intent, time));
    }
    findings
}

/// What a status says of notice only moves later, and it says why nothing is done.
fn written(before: &ManagedNamespaceStatus, after: &ManagedNamespaceStatus) -> Vec<Finding> {
    let mut findings = Vec::new();
    let same = |old: &Notice, new: &Notice| {
        old.policy == new.policy && old.uid == new.uid && old.given_at == new.given_at
    };
    if let (Some(old), Some(new)) = (&before.steps.notice, &after.steps.notice)
        && same(old, new)
        && new.not_before < old.not_before
    {
        findings.push(Finding::NoticeMovedEarlier);
    }
    if !after.next.as_ref().is_some_and(|next| !next.reason.is_empty() && !next.message.is_empty()) {
        findings.push(Finding::Silent);
    }
    findings
}

/// A step is that of the intent in the record, which explains it.
fn step(record: RecordFacts<'_>, intent: &Intent, kind: Action) -> Vec<Finding> {
    let mut findings = Vec::new();
    if record.status.steps.intent.as_ref() != Some(intent) {
        findings.push(Finding::StepWithoutIntent);
    }
    // Nobody may govern the namespace whose workloads are woken.
    let by_nobody = intent.digest.is_empty() && kind != Action::Wake;
    if intent.id.is_empty() || intent.reason.is_empty() || by_nobody {
        findings.push(Finding::Unexplained);
    }
    if intent.action != kind {
        findings.push(Finding::NotOfItsPolicy);
    }
    findings
}

/// What must not be done to a namespace in these circumstances, or not yet.
fn destructive(
    observed: &ClusterObserved<'_>,
    (record, namespace): (RecordFacts<'_>, &NamespaceFacts),
    intent: &Intent,
    time: ServerTime,
) -> Vec<Finding> {
    let ClusterObserved { settings, budget, managed, stale, .. } = observed;
    let now = time.now();
    let mut findings = Vec::new();
    if settings.forbids(intent.action, namespace).is_some() {
        findings.push(Finding::Protected);
    }
    let governing = contest(observed.managers.iter().copied(), namespace).ok().and_then(|known| known.winner);
    let policy = governing.and_then(|manager| {
        let mut policies = manager.spec.policies().iter();
        policies.find(|policy| policy.name == intent.policy && policy.enforces)
    });
    let forbidden = record.terminating
        || namespace.terminating
        || stale.is_some()
        || time.uncertainty().is_some()
        || settings.missing
        || governing.is_none_or(|manager| manager.spec.suspend)
        || governor::allow(&settings.config.governor, budget, *managed, now).is_err();
    if forbidden {
        findings.push(Finding::Forbidden);
    }
    match policy.map(|policy| &policy.action) {
        Some(action) if action.kind() == intent.action => {
            let notice = record.status.steps.notice.as_ref();
            let run = |n: &Notice| n.policy == intent.policy && n.uid == intent.uid && n.not_before <= now;
            if !action.notice().is_zero() && !notice.is_some_and(run) {
                findings.push(Finding::BeforeNotice);
            }
        }
        Some(_) | None => findings.push(Finding::NotOfItsPolicy),
    }
    findings
}
