//! What holds for every plan, whatever was observed. Every plan of every test is checked, since builds with debug
//! assertions check the plans that they make.
//!
//! Nothing here is needed for a decision: the rules are said a second time, by what a plan looks like and not by how it
//! is made, so that a mistake has to be made twice.

use coppice_api::manager::{Action, Intent, Notice};
use coppice_quantity::time::ServerTime;

use super::{Observed, Plan, Step};
use crate::condition::later;
use crate::governor;
use crate::valid_spec::PolicyAction;

/// A rule that a plan breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    /// A step without the intent that was observed, or a plan that drops the intent of its step.
    StepWithoutIntent,
    /// An intent, of a step or new, without an id, a reason or the digest of the policies.
    Unexplained,
    /// An intent, of a step or new, that does not name the namespace's uid: its requests would have no precondition.
    NoPrecondition,
    /// An intent whose action is not that of its policy.
    NotOfItsPolicy,
    /// A destructive intent, of a step or new, in a namespace that is protected.
    Protected,
    /// A destructive step while something says that there is none: spec, namespace, facts, settings or budget.
    Forbidden,
    /// A deletion before its notice has run.
    BeforeNotice,
    /// A notice with an earlier date than before.
    NoticeMovedEarlier,
    /// A notice of a policy that does not delete.
    NoticeOfNothing,
    /// What has been done is not what status says: firings, or workloads that are scaled down.
    HistoryChanged,
    /// Nothing is done, and status does not say why.
    Silent,
}

/// The rules that this plan breaks; [`plan`](super::plan) breaks none.
pub fn lint(observed: &Observed<'_>, time: ServerTime, plan: &Plan) -> Vec<Finding> {
    if coppice_mutants::any_active() {
        // A bug on purpose is to be found by what the operator does.
        return Vec::new();
    }
    let linter = Linter { observed, time };
    let mut findings = Vec::new();
    if let Some(step) = &plan.step {
        findings.extend(linter.step(step, plan));
    }
    let known = observed.manager.status.steps.intent.as_ref();
    if let Some(intent) = plan.status.steps.intent.as_ref().filter(|new| known.is_none_or(|k| k.id != new.id))
    {
        findings.extend(linter.intent(intent));
    }
    if let Some(notice) = &plan.status.steps.notice {
        findings.extend(linter.notice(notice));
    }
    let (before, after) = (observed.manager.status, &plan.status);
    let fired = after.steps.firings - before.steps.firings;
    if !(0..=1).contains(&fired) || after.steps.scaled_down != before.steps.scaled_down {
        findings.push(Finding::HistoryChanged);
    }
    let says_why =
        |next: &coppice_api::manager::NextStep| !next.reason.is_empty() && !next.message.is_empty();
    if after != before && !after.next.as_ref().is_some_and(says_why) {
        findings.push(Finding::Silent);
    }
    findings
}

struct Linter<'a> {
    observed: &'a Observed<'a>,
    time: ServerTime,
}

impl Linter<'_> {
    fn step(&self, step: &Step, plan: &Plan) -> Vec<Finding> {
        let intent = step.intent();
        let mut findings = self.intent(intent);
        let durable = self.observed.manager.status.steps.intent.as_ref() == Some(intent);
        if !durable || plan.status.steps.intent.as_ref() != Some(intent) {
            findings.push(Finding::StepWithoutIntent);
        }
        let kind = match step {
            Step::Delete(_) => Action::Delete,
            Step::ScaleDown(..) => Action::ScaleDown,
            Step::Webhook(..) => Action::Webhook,
            Step::Wake(_) => Action::Wake,
        };
        if kind != intent.action {
            findings.push(Finding::NotOfItsPolicy);
        }
        if kind.is_destructive() {
            findings.extend(self.destructive(intent));
        }
        findings
    }

    fn intent(&self, intent: &Intent) -> Vec<Finding> {
        let mut findings = Vec::new();
        let (Ok(spec), Some(snapshot)) = (self.observed.manager.spec, &self.observed.snapshot) else {
            return vec![Finding::Forbidden];
        };
        if intent.id.is_empty() || intent.reason.is_empty() || intent.digest.is_empty() {
            findings.push(Finding::Unexplained);
        }
        if intent.uid.is_empty() || intent.uid != snapshot.namespace.uid {
            findings.push(Finding::NoPrecondition);
        }
        let mut policies = spec.policies().iter();
        let policy = policies.find(|p| p.name == intent.policy).map(|p| p.action.kind());
        let expected = if intent.action == Action::Wake { None } else { Some(intent.action) };
        if policy != expected {
            findings.push(Finding::NotOfItsPolicy);
        }
        if self.observed.settings.forbids(intent.action, snapshot.namespace).is_some() {
            findings.push(Finding::Protected);
        }
        findings
    }

    fn destructive(&self, intent: &Intent) -> Vec<Finding> {
        let Observed { manager, snapshot, settings, limits, budget, managed, stale, .. } = self.observed;
        let (Ok(spec), Some(snapshot)) = (manager.spec, snapshot) else { return vec![Finding::Forbidden] };
        let spec = limits.apply(spec);
        let now = self.time.now();
        let mut findings = Vec::new();
        let held = spec.hold.as_ref().is_some_and(|hold| now < hold.until);
        let forbidden = manager.terminating
            || spec.suspend
            || held
            || snapshot.namespace.terminating
            || stale.is_some()
            || limits.why_unknown().is_some()
            || limits.refusal(snapshot.namespace, &spec).is_some()
            || self.time.uncertainty().is_some()
            || settings.missing
            || governor::allow(&settings.config.governor, budget, *managed, now).is_err();
        if forbidden {
            findings.push(Finding::Forbidden);
        }
        let needed = spec.policies().iter().find(|p| p.name == intent.policy).and_then(|p| p.action.notice());
        let notice = manager.status.steps.notice.as_ref();
        let run = |n: &Notice| n.policy == intent.policy && n.uid == intent.uid && n.not_before <= now;
        let long_enough = |n: &Notice| needed.is_none_or(|needed| later(n.given_at, needed) <= now);
        if needed.is_some() && !notice.is_some_and(|n| run(n) && long_enough(n)) {
            findings.push(Finding::BeforeNotice);
        }
        findings
    }

    fn notice(&self, notice: &Notice) -> Vec<Finding> {
        let mut findings = Vec::new();
        let before = self.observed.manager.status.steps.notice.as_ref();
        if before.is_some_and(|b| {
            b.policy == notice.policy && b.uid == notice.uid && notice.not_before < b.not_before
        }) {
            findings.push(Finding::NoticeMovedEarlier);
        }
        let Ok(spec) = self.observed.manager.spec else { return findings };
        let deletes = |p: &&crate::ValidPolicy| {
            p.name == notice.policy && matches!(p.action, PolicyAction::Delete { .. })
        };
        let new = before != Some(notice);
        if new && !spec.policies().iter().any(|p| deletes(&p)) {
            findings.push(Finding::NoticeOfNothing);
        }
        findings
    }
}
