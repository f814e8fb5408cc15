//! Finding out that there is nothing to do and nothing to say, without writing a plan to compare: most looks end so.

use std::fmt::{self, Write as _};

use coppice_api::manager::{
    Action, NamespaceManagerSpec, NamespaceManagerStatus, Next, Phase, Policy, PolicyStatus, Verdict,
};
use jiff::Timestamp;

use super::decide::{earlier, nearest};
use super::status::READY;
use super::{MAX_MANAGERS, Observed, settles};
use crate::condition::{Text, judge};
use crate::digest::Comparison;
use crate::facts::World;
use crate::time::ServerTime;

/// Nothing is to be done, and status says all there is to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rest {
    /// When time alone can change that.
    pub look_at: Option<Timestamp>,
}

/// Whether the manager rests: then [`plan`](super::plan) would give its very status back, without an effect and without
/// notes, to be looked at again at the same instant. None says nothing: ask for the plan. Allocates nothing.
pub fn rest(observed: &Observed<'_>, now: ServerTime) -> Option<Rest> {
    let (manager, world) = (&observed.manager, observed.world.as_ref()?);
    let (spec, status) = (manager.spec.ok()?, manager.status);
    let (now, time) = (now.now(), now);
    // Whatever is under way, announced, over, refused or held is for the plan.
    let watches = status.phase == Some(Phase::Active)
        && status.observed_generation == Some(manager.generation)
        && status.intent.is_none()
        && status.notice.is_none()
        && !manager.terminating
        && !world.namespace.terminating
        && !spec.suspend
        && spec.hold.as_ref().is_none_or(|hold| now >= hold.until)
        && (spec.wake != Some(status.firings) || status.scaled_down.is_empty())
        && status
            .last_firing
            .as_ref()
            .is_none_or(|firing| spec.compare(&firing.digest) == Comparison::Changed)
        && status.policies_digest.as_deref().is_some_and(|stored| spec.compare(stored) == Comparison::Same)
        && spec.policies.iter().all(asks_little)
        && observed.before < MAX_MANAGERS
        && observed.law.refusal(world.namespace, spec).is_none();
    if !watches || status.policies.len() != spec.policies.len() {
        return None;
    }
    let mut look_at: Option<Timestamp> = None;
    for (n, policy) in spec.policies.iter().enumerate() {
        let (before, others) = status.policies[..=n].split_last()?;
        if settles(policy) || before.name != policy.name || others.iter().any(|p| p.name == policy.name) {
            return None;
        }
        let at = waits(policy, before, spec, world, time)?;
        look_at = at.map(|at| look_at.map_or(at, |other| other.min(at))).or(look_at);
    }
    let next = status.next.as_ref()?;
    if !is_next(next, spec, status) || !is_ready(status, next, manager.generation) {
        return None;
    }
    Some(Rest { look_at })
}

/// Whether it can be told without an allocation that the law permits it.
fn asks_little(policy: &Policy) -> bool {
    let selects = policy.then.scale_down.as_ref().is_some_and(|scale_down| scale_down.selectors.is_some());
    policy.then.webhook.is_none() && !selects
}

/// Whether the policy is false, as its status says; if so, when time alone can change what is to be done.
#[expect(clippy::option_option, reason = "whether it waits, and whether for a time")]
fn waits(
    policy: &Policy,
    before: &PolicyStatus,
    spec: &NamespaceManagerSpec,
    world: &World<'_>,
    time: ServerTime,
) -> Option<Option<Timestamp>> {
    let now = time.now();
    let judged = judge(policy, spec, world, Some(before), now);
    let same = judged.verdict == Verdict::False
        && before.result == Verdict::False
        && judged.since.is_none()
        && before.reason == judged.reason.as_str()
        && before.due == judged.due
        && says(&before.message, &judged.text);
    if !same || judged.look_at.is_some_and(|at| time.may_have_come(at)) {
        return None;
    }
    let look_at = judged.look_at.map(|at| time.when_it_may_have_come(at));
    // A deletion is announced ahead of its date.
    let notice = policy.then.delete.as_ref().map(|delete| delete.notice).filter(|notice| !notice.is_zero());
    match (notice, judged.due) {
        (Some(notice), Some(due)) => {
            let from = earlier(due, notice);
            (now < from).then(|| Some(look_at.map_or(from, |at| at.min(from))))
        }
        _ => Some(look_at),
    }
}

/// Whether status tells of the next step what [`watch`](super::decide) would.
fn is_next(next: &Next, spec: &NamespaceManagerSpec, status: &NamespaceManagerStatus) -> bool {
    let judged = || spec.policies.iter().zip(&status.policies);
    let Some((policy, chosen)) = nearest(judged, |p| p.due) else { return false };
    let action = policy.then.action();
    next.action.as_deref() == action.map(Action::as_str)
        && next.policy.as_deref() == Some(&policy.name)
        && next.due == chosen.due
        && next.reason == chosen.reason
        && tells_all(&next.message, spec, status)
}

/// Whether the message is that of the only policy, or of all of them with their actions.
fn tells_all(message: &str, spec: &NamespaceManagerSpec, status: &NamespaceManagerStatus) -> bool {
    if let [only] = status.policies.as_slice() {
        return message == only.message;
    }
    let mut left = Left(Some(message));
    for (n, (policy, told)) in spec.policies.iter().zip(&status.policies).enumerate() {
        left.take(if n == 0 { "" } else { "; " });
        left.take(policy.then.action().map_or("nothing", Action::as_str));
        left.take(": ");
        left.take(&told.message);
    }
    left.0 == Some("")
}

/// Whether the condition says that all is well, about this generation, and stands where a plan would put it.
fn is_ready(status: &NamespaceManagerStatus, next: &Next, generation: i64) -> bool {
    let Some((last, others)) = status.conditions.split_last() else { return false };
    last.type_ == READY
        && others.iter().all(|condition| condition.type_ != READY)
        && last.status == "True"
        && last.observed_generation == Some(generation)
        && last.reason == next.reason
        && last.message == next.message
}

/// Whether a text is written so, found out without writing it anywhere.
fn says(written: &str, text: &Text<'_>) -> bool {
    let mut left = Left(Some(written));
    // An error is a difference, which is seen in what is left.
    let _ = write!(left, "{text}");
    left.0 == Some("")
}

/// What is left of a text after what it began with; nothing if it began otherwise.
struct Left<'a>(Option<&'a str>);

impl Left<'_> {
    fn take(&mut self, beginning: &str) {
        self.0 = self.0.and_then(|text| text.strip_prefix(beginning));
    }
}

impl fmt::Write for Left<'_> {
    fn write_str(&mut self, beginning: &str) -> fmt::Result {
        self.take(beginning);
        if self.0.is_some() { Ok(()) } else { Err(fmt::Error) }
    }
}
