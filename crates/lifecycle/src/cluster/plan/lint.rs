//! What holds for every plan for a namespace under a cluster manager: the rules of [`crate::lint`], for records. Builds with debug
//! assertions check every plan that they make, so every plan of every test.

use coppice_api::ManagedNamespaceStatus;
use coppice_api::manager::{Action, Intent};
use coppice_quantity::time::ServerTime;

use super::{ClusterObserved, NamespacePlan, NamespaceStep};
use crate::cluster::selection::contest;
use crate::cluster::{RecordFacts, ValidClusterPolicy};
use crate::facts::NamespaceFacts;
use crate::lint::{self, Destructive, PlanViolation};

/// The rules that this plan breaks; [`plan`](super::plan) breaks none.
pub fn lint(observed: &ClusterObserved<'_>, time: ServerTime, plan: &NamespacePlan) -> Vec<PlanViolation> {
    if coppice_mutants::any_active() {
        // A bug on purpose is to be found by what the operator does.
        return Vec::new();
    }
    let Some(record) = observed.record else {
        let harmless = matches!(plan.step, NamespaceStep::Nothing | NamespaceStep::Create);
        return if harmless { Vec::new() } else { vec![PlanViolation::StepWithoutIntent] };
    };
    let (intent, kind) = match &plan.step {
        NamespaceStep::Nothing | NamespaceStep::Create => return Vec::new(),
        NamespaceStep::WriteStatus(after) => return written(observed, record.status, after),
        NamespaceStep::Delete(intent) => (intent, Action::Delete),
        NamespaceStep::ScaleDown(intent, _) => (intent, Action::ScaleDown),
        NamespaceStep::Webhook(intent, _) => (intent, Action::Webhook),
        NamespaceStep::Wake(intent) => (intent, Action::Wake),
    };
    let mut findings = step(record, intent, kind);
    let Ok(namespace) = &observed.namespace else {
        findings.push(PlanViolation::Forbidden);
        return findings;
    };
    findings.extend(lint::precondition(intent, namespace));
    if kind.is_destructive() {
        findings.extend(destructive(observed, (record, namespace), intent, time));
    }
    findings
}

/// What a status says of notice only moves later, it says why nothing is done, and what it decides may be done.
fn written(
    observed: &ClusterObserved<'_>,
    before: &ManagedNamespaceStatus,
    after: &ManagedNamespaceStatus,
) -> Vec<PlanViolation> {
    let moved = after.steps.notice.as_ref().and_then(|new| {
        let before = before.steps.notice.as_ref().filter(|old| old.given_at == new.given_at);
        lint::moved_earlier(before, new)
    });
    let known = before.steps.intent.as_ref();
    let decided = after.steps.intent.as_ref().filter(|new| known.is_none_or(|known| known.id != new.id));
    let decided = decided.map(|intent| new_intent(observed, intent)).unwrap_or_default();
    moved.into_iter().chain(lint::silent(after.next.as_ref())).chain(decided).collect()
}

/// What is decided explains itself, names the namespace, and is what a policy of the manager asks for.
fn new_intent(observed: &ClusterObserved<'_>, intent: &Intent) -> Vec<PlanViolation> {
    let Ok(namespace) = observed.namespace else { return vec![PlanViolation::Forbidden] };
    let wakes = intent.action == Action::Wake;
    let mut findings = Vec::new();
    findings.extend(lint::explained(intent, wakes));
    findings.extend(lint::precondition(intent, namespace));
    findings.extend(lint::protected(intent, observed.settings, namespace));
    let asks = |policy: &ValidClusterPolicy| policy.action.kind() == intent.action;
    if !wakes && !policy(observed, namespace, intent).is_some_and(asks) {
        findings.push(PlanViolation::NotOfItsPolicy);
    }
    findings
}

/// The policy that an intent is of, if the manager that governs the namespace has it and enforces it.
fn policy<'a>(
    observed: &ClusterObserved<'a>,
    namespace: &NamespaceFacts,
    intent: &Intent,
) -> Option<&'a ValidClusterPolicy> {
    let governing = contest(observed.managers.iter().copied(), namespace).ok()?.winner?;
    let mut policies = governing.spec.policies().iter();
    policies.find(|policy| policy.name == intent.policy && policy.enforces)
}

/// A step is that of the intent in the record, which explains it.
fn step(record: RecordFacts<'_>, intent: &Intent, kind: Action) -> Vec<PlanViolation> {
    let mut findings = lint::step(intent, kind, record.status.steps.intent.as_ref());
    // Nobody may govern the namespace whose workloads are woken.
    findings.extend(lint::explained(intent, kind == Action::Wake));
    findings
}

/// What must not be done to a namespace in these circumstances, or not yet.
fn destructive(
    observed: &ClusterObserved<'_>,
    (record, namespace): (RecordFacts<'_>, &NamespaceFacts),
    intent: &Intent,
    time: ServerTime,
) -> Vec<PlanViolation> {
    let ClusterObserved { settings, budget, managed, stale, .. } = observed;
    let mut findings = Vec::new();
    findings.extend(lint::protected(intent, settings, namespace));
    let governing = contest(observed.managers.iter().copied(), namespace).ok().and_then(|known| known.winner);
    let policy = policy(observed, namespace, intent);
    let destructive =
        Destructive { namespace, settings, budget, managed: *managed, stale: stale.is_some(), time };
    let forbidden = record.terminating
        || governing.is_none_or(|manager| manager.spec.suspend)
        || destructive.is_forbidden();
    if forbidden {
        findings.push(PlanViolation::Forbidden);
    }
    match policy.map(|policy| &policy.action) {
        Some(action) if action.kind() == intent.action => {
            let notice = record.status.steps.notice.as_ref();
            if !action.notice().is_zero() && !lint::notice_has_run(notice, intent, time) {
                findings.push(PlanViolation::BeforeNotice);
            }
        }
        Some(_) | None => findings.push(PlanViolation::NotOfItsPolicy),
    }
    findings
}
