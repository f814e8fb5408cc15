//! Finds out that a manager is steady without making a plan to compare: most evaluations end so.

use std::fmt::{self, Write as _};

use coppice_api::manager::{NamespaceManagerStatus, NextStep, Phase, PolicyStatus, Verdict};
use jiff::Timestamp;

use super::decide::{WatchingMessage, earlier, nearest};
use super::status::conditions_say_watching;
use super::{MAX_MANAGERS, Observed};
use crate::condition::evaluate_raw;
use crate::digest::DigestComparison;
use crate::facts::NamespaceSnapshot;
use crate::valid_spec::{PolicyAction, ValidPolicy, ValidSpec};
use coppice_quantity::time::ServerTime;

/// There is nothing to do, and nothing to write to status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steady {
    /// When time alone can change that.
    pub next_check: Option<Timestamp>,
}

/// Whether the manager is steady: then [`plan`](super::plan) would return the same status, without a step or Events,
/// and with the same next check. None is inconclusive: ask for the plan. Allocates nothing.
pub fn steady(observed: &Observed<'_>, now: ServerTime) -> Option<Steady> {
    let (manager, snapshot) = (&observed.manager, observed.snapshot.as_ref()?);
    let (spec, status) = (manager.spec.ok()?, manager.status);
    let (now, time) = (now.now(), now);
    // Anything under way, announced, over, refused or held needs the full plan.
    let watches = status.phase == Some(Phase::Active)
        && status.observed_generation == Some(manager.generation)
        && status.steps.intent.is_none()
        && status.steps.notice.is_none()
        && !manager.terminating
        && !snapshot.namespace.terminating
        && !spec.suspend
        && spec.hold.as_ref().is_none_or(|hold| now >= hold.until)
        && (spec.wake != Some(status.steps.firings) || status.steps.scaled_down.is_empty())
        && status
            .steps
            .last_firing
            .as_ref()
            .is_none_or(|firing| spec.compare(&firing.digest) == DigestComparison::Changed)
        && status
            .policies_digest
            .as_deref()
            .is_some_and(|stored| spec.compare(stored) == DigestComparison::Same)
        && spec.policies().iter().all(is_cheap_to_allow)
        && observed.before < MAX_MANAGERS
        && observed.settings.refusal(snapshot.namespace, spec).is_none()
        && observed.limits.change_nothing(snapshot.namespace, spec);
    if !watches || status.policies.len() != spec.policies().len() {
        return None;
    }
    let mut next_check: Option<Timestamp> = None;
    for (n, policy) in spec.policies().iter().enumerate() {
        let (before, others) = status.policies[..=n].split_last()?;
        if policy.condition.has_settle()
            || before.name != policy.name
            || others.iter().any(|p| p.name == policy.name)
        {
            return None;
        }
        let at = waiting_until(policy, before, spec, snapshot, time)?;
        next_check = at.map(|at| next_check.map_or(at, |other| other.min(at))).or(next_check);
    }
    let next = status.next.as_ref()?;
    if !is_next(next, spec, status) || !conditions_say_watching(status, manager.generation) {
        return None;
    }
    Some(Steady { next_check })
}

/// Whether it is known, without an allocation, that the settings permit it.
fn is_cheap_to_allow(policy: &ValidPolicy) -> bool {
    match &policy.action {
        PolicyAction::Delete { .. } => true,
        PolicyAction::ScaleDown(scale_down) => scale_down.selectors.is_none(),
        PolicyAction::Webhook(_) => false,
    }
}

/// Whether the policy is false, as its status says; if so, when time alone can change what is to be done.
#[expect(clippy::option_option, reason = "whether it waits, and whether for a time")]
fn waiting_until(
    policy: &ValidPolicy,
    before: &PolicyStatus,
    spec: &ValidSpec,
    snapshot: &NamespaceSnapshot<'_>,
    time: ServerTime,
) -> Option<Option<Timestamp>> {
    let now = time.now();
    let judged = evaluate_raw(policy, spec, snapshot, Some(before), now);
    let same = judged.verdict == Verdict::False
        && before.result == Verdict::False
        && judged.since.is_none()
        && before.reason == judged.reason.as_str()
        && before.due == judged.due
        && equals_rendered(&before.message, &judged.text);
    if !same || judged.next_check.is_some_and(|at| time.may_have_passed(at)) {
        return None;
    }
    let next_check = judged.next_check.map(|at| time.when_it_may_have_passed(at));
    // A deletion is announced ahead of its date.
    match (policy.action.notice(), judged.due) {
        (Some(notice), Some(due)) => {
            let from = earlier(due, notice);
            (now < from).then(|| Some(next_check.map_or(from, |at| at.min(from))))
        }
        _ => Some(next_check),
    }
}

/// Whether status describes the next step as the planner would.
fn is_next(next: &NextStep, spec: &ValidSpec, status: &NamespaceManagerStatus) -> bool {
    let judged = || spec.policies().iter().zip(&status.policies);
    let Some((policy, chosen)) = nearest(judged, |p| p.due) else { return false };
    let message = WatchingMessage { spec, verdicts: &status.policies, text: |p| &p.message };
    next.action.as_deref() == Some(policy.action.kind().as_str())
        && next.policy.as_deref() == Some(&policy.name)
        && next.due == chosen.due
        && next.reason == chosen.reason
        && equals_rendered(&next.message, &message)
}

/// Whether a message formats to this text; nothing is allocated for it.
fn equals_rendered(written: &str, text: &impl fmt::Display) -> bool {
    let mut remainder = Remainder(Some(written));
    // An error counts as a difference: it leaves a remainder.
    let _ = write!(remainder, "{text}");
    remainder.0 == Some("")
}

/// The rest of a text after its beginning; nothing if it began otherwise.
struct Remainder<'a>(Option<&'a str>);

impl fmt::Write for Remainder<'_> {
    fn write_str(&mut self, beginning: &str) -> fmt::Result {
        self.0 = self.0.and_then(|text| text.strip_prefix(beginning));
        if self.0.is_some() { Ok(()) } else { Err(fmt::Error) }
    }
}
