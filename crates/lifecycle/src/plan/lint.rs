//! What holds for every plan of a manager ([`crate::lint`]). Every plan of every test is checked, since builds with debug
//! assertions check the plans that they make.

use coppice_api::manager::{Action, Intent, Notice};
use coppice_quantity::time::ServerTime;

use super::{Observed, Plan, Step};
use crate::condition::later;
use crate::lint::{self, Destructive, PlanViolation};
use crate::valid_spec::PolicyAction;

/// The rules that this plan breaks; [`plan`](super::plan) breaks none.
pub fn lint(observed: &Observed<'_>, time: ServerTime, plan: &Plan) -> Vec<PlanViolation> {
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
        findings.push(PlanViolation::HistoryChanged);
    }
    if after != before {
        findings.extend(lint::silent(after.next.as_ref()));
    }
    findings
}

struct Linter<'a> {
    observed: &'a Observed<'a>,
    time: ServerTime,
}

impl Linter<'_> {
    fn step(&self, step: &Step, plan: &Plan) -> Vec<PlanViolation> {
        let intent = step.intent();
        let kind = match step {
            Step::Delete(_) => Action::Delete,
            Step::ScaleDown(..) => Action::ScaleDown,
            Step::Webhook(..) => Action::Webhook,
            Step::Wake(_) => Action::Wake,
        };
        let mut findings = self.intent(intent);
        findings.extend(lint::step(intent, kind, self.observed.manager.status.steps.intent.as_ref()));
        if plan.status.steps.intent.as_ref() != Some(intent) {
            findings.push(PlanViolation::StepWithoutIntent);
        }
        if kind.is_destructive() {
            findings.extend(self.destructive(intent));
        }
        findings
    }

    fn intent(&self, intent: &Intent) -> Vec<PlanViolation> {
        let mut findings = Vec::new();
        let (Ok(spec), Some(snapshot)) = (self.observed.manager.spec, &self.observed.snapshot) else {
            return vec![PlanViolation::Forbidden];
        };
        findings.extend(lint::explained(intent, false));
        findings.extend(lint::precondition(intent, snapshot.namespace));
        let mut policies = spec.policies().iter();
        let policy = policies.find(|p| p.name == intent.policy).map(|p| p.action.kind());
        let expected = if intent.action == Action::Wake { None } else { Some(intent.action) };
        if policy != expected {
            findings.push(PlanViolation::NotOfItsPolicy);
        }
        findings.extend(lint::protected(intent, self.observed.settings, snapshot.namespace));
        findings
    }

    fn destructive(&self, intent: &Intent) -> Vec<PlanViolation> {
        let Observed { manager, snapshot, settings, limits, budget, managed, stale, .. } = self.observed;
        let (Ok(spec), Some(snapshot)) = (manager.spec, snapshot) else {
            return vec![PlanViolation::Forbidden];
        };
        let spec = limits.apply(spec);
        let now = self.time.now();
        let mut findings = Vec::new();
        let destructive = Destructive {
            namespace: snapshot.namespace,
            settings,
            budget,
            managed: *managed,
            stale: stale.is_some(),
            time: self.time,
        };
        let held = spec.hold.as_ref().is_some_and(|hold| now < hold.until);
        let forbidden = manager.terminating
            || spec.suspend
            || held
            || limits.why_unknown().is_some()
            || limits.refusal(snapshot.namespace, &spec).is_some()
            || destructive.is_forbidden();
        if forbidden {
            findings.push(PlanViolation::Forbidden);
        }
        let needed = spec.policies().iter().find(|p| p.name == intent.policy).and_then(|p| p.action.notice());
        let notice = manager.status.steps.notice.as_ref();
        let long_enough = |n: &Notice| needed.is_none_or(|needed| later(n.given_at, needed) <= now);
        let has_run = lint::notice_has_run(notice, intent, self.time) && notice.is_some_and(long_enough);
        if needed.is_some() && !has_run {
            findings.push(PlanViolation::BeforeNotice);
        }
        findings
    }

    fn notice(&self, notice: &Notice) -> Vec<PlanViolation> {
        let mut findings = Vec::new();
        let before = self.observed.manager.status.steps.notice.as_ref();
        findings.extend(lint::moved_earlier(before, notice));
        let Ok(spec) = self.observed.manager.spec else { return findings };
        let deletes = |p: &&crate::ValidPolicy| {
            p.name == notice.policy && matches!(p.action, PolicyAction::Delete { .. })
        };
        let new = before != Some(notice);
        if new && !spec.policies().iter().any(|p| deletes(&p)) {
            findings.push(PlanViolation::NoticeOfNothing);
        }
        findings
    }
}
