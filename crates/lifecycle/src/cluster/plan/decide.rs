//! Deciding a step about a namespace that a cluster manager governs, and deciding it again.

use std::collections::BTreeMap;

use coppice_api::manager::Verdict;
use coppice_api::steps::Intent;
use coppice_api::{NamespacePhase, Reason};
use coppice_mutants::{Mutant, active};
use coppice_quantity::Duration;
use jiff::Timestamp;

use super::{Builder, ClusterObserved, Governed, Judged, RecordPlan, RecordStep};
use crate::circumstances::inhibition;
use crate::cluster::approval::{Approval, newly_due};
use crate::cluster::phase::PhaseFinding;
use crate::condition::{Evaluation, later};
use crate::governor::{Denied, hourly_limit};
use crate::plan::earlier;
use crate::steps::{self, Decided, Fired, Resumed};

/// What the rules say about a policy now, its notice and the budget apart.
pub(super) enum Ruling {
    /// Nothing is done, whatever its condition: why, and when that ends.
    Stopped(Reason, String, Option<Timestamp>),
    /// Not before this instant.
    Waits(Reason, String, Option<Timestamp>),
    /// Not at present; what was announced stands.
    Paused(Reason, String),
    /// It may be announced, and done from this instant on.
    Open(Timestamp),
}

/// How a deletion that was announced is prevented. A later end of the ttl changes nothing about the health.
const fn prevent(reason: Reason) -> &'static str {
    match reason {
        Reason::Unhealthy => "set spec.hold of ManagedNamespace coppice in it to prevent it",
        _ => "set spec.hold or spec.extendUntil of ManagedNamespace coppice in it to prevent it",
    }
}

/// Namespaces are counted this often, or less: then it may be known whether something is approved.
const UNCOUNTED: Duration = Duration::from_secs(5);

impl Builder<'_> {
    /// No step is under way: is there one to decide?
    pub(super) fn decide(mut self, governed: &Governed<'_>) -> RecordPlan {
        let Some(first) = governed.first() else {
            self.withdraw_notice("no policy announces it any more");
            let message = format!("ClusterNamespaceManager {} has no policy", governed.manager.name);
            return self.waiting(Reason::Watching, message);
        };
        let due = match self.ruling(governed, &first) {
            Ruling::Stopped(reason, message, ends) => {
                self.withdraw_notice(&message);
                self.check_no_later_than(ends);
                // Whoever observes wants to know what would be done, and when.
                let observes = reason == Reason::Observing;
                return self.finish(observes.then_some((&first, first.acts_at)), reason, message);
            }
            Ruling::Waits(reason, message, until) => {
                self.withdraw_notice("its policy is not due any more");
                self.check_no_later_than(until);
                return self.finish(Some((&first, first.acts_at)), reason, message);
            }
            Ruling::Paused(reason, message) => return self.finish(Some((&first, None)), reason, message),
            Ruling::Open(due) => due,
        };
        if let Some(denied) = self.counted(governed) {
            if denied.reason == Reason::ApprovalNeeded {
                self.withdraw_notice(&denied.message);
            }
            return self.denied(&first, denied);
        }
        let action = &first.policy.action;
        let mut evidence = BTreeMap::from([
            ("due".to_owned(), due.to_string()),
            ("phase".to_owned(), governed.finding.phase.as_str().to_owned()),
        ]);
        if !governed.failing.is_empty() {
            evidence.insert("failing".to_owned(), governed.failing.clone());
        }
        let decided = Decided {
            object_uid: self.record.uid,
            action: action.kind(),
            policy: &first.policy.name,
            digest: governed.manager.spec.digest(),
            namespace: governed.namespace,
            reason: governed.reason(),
            evidence: &evidence,
        };
        let message = condition_text(governed);
        let fired = Fired {
            decided,
            message: &message,
            notice: Some(action.notice()),
            due,
            prevent: prevent(governed.reason()),
        };
        let circumstances = self.circumstances();
        match steps::fire(&mut self.status.steps, fired, circumstances, &mut self.events) {
            Ok(()) => {
                self.next_check = Some(self.now);
                self.finish(Some((&first, None)), Reason::InProgress, progress_text(governed, &first))
            }
            Err(denied) => self.denied(&first, denied),
        }
    }

    /// A step that has been decided: carry it out, wait, or give it up. It is decided again before every attempt.
    pub(super) fn resume(mut self, governed: &Governed<'_>, intent: &Intent) -> RecordPlan {
        if intent.uid != governed.namespace.uid {
            let why = format!("it was about another namespace of this name (uid {})", intent.uid);
            return self.abandon(intent, Reason::Replaced, &why);
        }
        let spec = governed.manager.spec;
        let policy = spec.policies().iter().find(|policy| policy.name == intent.policy);
        let Some(policy) = policy.filter(|_| intent.digest == spec.digest()) else {
            return self.abandon(intent, Reason::PoliciesChanged, "its policy has changed or is gone");
        };
        let judged = governed.judge(policy);
        let condition = condition_text(governed);
        let (verdict, message) = match self.ruling(governed, &judged) {
            Ruling::Open(due) if due <= self.now => (Verdict::True, condition),
            Ruling::Open(_) => (Verdict::False, condition),
            Ruling::Waits(_, why, _) | Ruling::Paused(_, why) => (Verdict::False, why),
            Ruling::Stopped(reason, why, _) => return self.abandon(intent, reason, &why),
        };
        if verdict == Verdict::True && governed.reason().as_str() != intent.reason {
            // What was read again for it is not what the other reason needs.
            return self.abandon(intent, Reason::NoLongerTrue, &message);
        }
        let denied = judged.due.and_then(|_| self.counted(governed));
        let evaluation = Evaluation { verdict, ..Evaluation::unknown(Reason::NoLongerTrue, message) };
        let notice = Some(policy.action.notice()).filter(|notice| !notice.is_zero());
        let resumed = steps::resume(&self.status.steps, intent, &evaluation, notice, self.circumstances());
        let resumed = match (resumed, denied) {
            // Whoever approves it later gives every one of them its full notice.
            (_, Some(denied)) if denied.reason == Reason::ApprovalNeeded => {
                return self.abandon(intent, denied.reason, &denied.message);
            }
            (Resumed::GoesOn | Resumed::Waits(_), Some(denied)) => Resumed::Waits(denied),
            (resumed, _) => resumed,
        };
        match resumed {
            Resumed::GivenUp(why) => self.abandon(intent, Reason::NoLongerTrue, &why),
            Resumed::Waits(denied) => self.denied(&judged, denied),
            Resumed::GoesOn => {
                self.next_check = None;
                let progress = progress_text(governed, &judged);
                let mut plan = self.finish(Some((&judged, None)), Reason::InProgress, progress);
                if plan.step == RecordStep::Nothing {
                    plan.step = RecordStep::Delete(Box::new(intent.clone()));
                }
                plan
            }
        }
    }

    /// A step waits: why, and until when if that is known.
    fn denied(mut self, judged: &Judged<'_>, denied: Denied) -> RecordPlan {
        let Denied { reason, message, retry_at } = denied;
        self.check_no_later_than(retry_at);
        let said =
            self.record.status.next.as_ref().filter(|next| next.policy.as_ref() == Some(&judged.policy.name));
        if reason == Reason::NotCounted && said.is_some_and(|next| next.reason != Reason::Settling.as_str()) {
            // For seconds after every start: what records say would be written twice.
            return RecordPlan { next_check: self.next_check, ..RecordPlan::NOTHING };
        }
        // Not what comes of looking again.
        let due = retry_at.filter(|_| {
            ![Reason::NotCounted, Reason::ApprovalNeeded, Reason::DeletedByAnother].contains(&reason)
        });
        self.finish(Some((judged, due)), reason, message)
    }

    fn ruling(&self, governed: &Governed<'_>, judged: &Judged<'_>) -> Ruling {
        let Governed { manager, namespace, spec, since, settled_at, .. } = governed;
        let policy = judged.policy;
        if manager.spec.suspend && !active(Mutant::SuspendIgnored) {
            let message = format!(
                "spec.suspend of ClusterNamespaceManager {} is true: nothing is done until it is false",
                manager.name
            );
            return Ruling::Stopped(Reason::Suspended, message, None);
        }
        if let Some(refusal) = self.observed.settings.protection(namespace) {
            return Ruling::Stopped(refusal.reason, refusal.message, None);
        }
        if let Some(held) = inhibition(false, spec.hold.as_ref(), self.now) {
            return Ruling::Stopped(held.reason, held.message, held.retry_at);
        }
        if !policy.enforces && !active(Mutant::ObserveIgnored) {
            return Ruling::Stopped(Reason::Observing, observing_text(governed, judged), None);
        }
        let (Some(due), Some(acts_at)) = (judged.due, judged.acts_at) else {
            let no_date = || format!("policy {:?} waits for a phase that no date leads to", policy.name);
            let why = self.unknown.clone().unwrap_or_else(|| (Reason::Watching, no_date()));
            return Ruling::Waits(why.0, why.1, None);
        };
        if let Some(pause) = due.paused {
            return self.paused(governed, pause);
        }
        let announced_from = earlier(due.at, policy.action.notice());
        let settles = self.now < *settled_at && !active(Mutant::GovernedSettleIgnored);
        if settles && announced_from < *settled_at {
            let message = format!(
                "this spec of ClusterNamespaceManager {} governs the namespace since {since:.0}; nothing is done before \
                 {settled_at:.0} (settle)",
                manager.name
            );
            return Ruling::Waits(Reason::Settling, message, Some(*settled_at));
        }
        if self.now < announced_from {
            let message =
                format!("{}; policy {:?} acts at {acts_at:.0}", condition_text(governed), policy.name);
            let by_ttl = governed.finding.expires_at.is_some_and(|at| at <= due.at);
            let reason = if by_ttl { Reason::TtlRunning } else { Reason::Watching };
            return Ruling::Waits(reason, message, Some(announced_from));
        }
        Ruling::Open(due.at)
    }

    /// What of the counts of all namespaces is in the way of a deletion. Without figures, which would be written to every
    /// record when they change.
    fn counted(&self, governed: &Governed<'_>) -> Option<Denied> {
        let Governed { manager, namespace, since, .. } = governed;
        let Some(census) = self.observed.census else { return Some(self.not_counted(governed)) };
        let left_alone = match &census.recreated {
            Some(recreated) => recreated.left_alone(namespace, self.now).map(|(until, message)| Denied {
                reason: Reason::RecreatedTooOften,
                message,
                retry_at: Some(until),
            }),
            None => self.still(Reason::RecreatedTooOften),
        };
        if left_alone.is_some() {
            return left_alone;
        }
        let acting = manager.spec.policies().iter().filter(|policy| policy.enforces);
        let begun = governed.finding.begun(acting);
        if !begun.is_some_and(|begun| newly_due(manager.spec, namespace, *since, begun)) {
            return None;
        }
        let ClusterObserved { settings, managed, .. } = self.observed;
        let hourly = hourly_limit(&settings.config.governor, *managed);
        let counts = census.counts(manager.name, namespace);
        match Approval::of(manager.spec, counts, hourly, self.now) {
            Approval::NotNeeded | Approval::Given => None,
            Approval::NotCounted => Some(self.not_counted(governed)),
            Approval::Missing(_) => {
                let message = format!(
                    "{}; more namespaces than the hourly budget were due before this spec of ClusterNamespaceManager {} had \
                     governed them for settle: its condition Approved says how to approve that",
                    condition_text(governed),
                    manager.name
                );
                Some(Denied::until_changed((Reason::ApprovalNeeded, message)))
            }
        }
    }

    /// What the record says, if it is this reason, and its time is not over.
    fn still(&self, reason: Reason) -> Option<Denied> {
        let next = self.record.status.next.as_ref().filter(|next| next.reason == reason.as_str())?;
        let retry_at = next.due.unwrap_or_else(|| later(self.now, UNCOUNTED));
        (self.now < retry_at).then(|| Denied {
            reason,
            message: next.message.clone(),
            retry_at: Some(retry_at),
        })
    }

    /// Counts are missing for seconds after a start. What they were in the way of before is not known to be free.
    fn not_counted(&self, governed: &Governed<'_>) -> Denied {
        let before = self.still(Reason::RecreatedTooOften).or_else(|| self.still(Reason::ApprovalNeeded));
        if let Some(denied) = before {
            return denied;
        }
        let retry_at = Some(later(self.now, UNCOUNTED));
        let message = format!(
            "the namespaces of ClusterNamespaceManager {} are not counted yet, and so not whether this needs approval",
            governed.manager.name
        );
        Denied { reason: Reason::NotCounted, message, retry_at }
    }
}

/// Says how far the condition of policies is. Contains nothing that changes with time alone, but for the phase.
pub(super) fn condition_text(governed: &Governed<'_>) -> String {
    let PhaseFinding { phase, expires_at, .. } = governed.finding;
    match (phase, expires_at) {
        (NamespacePhase::Unstable | NamespacePhase::Failing | NamespacePhase::Failed, _) => {
            format!("the phase is {}: {}", phase.as_str(), governed.failing)
        }
        (NamespacePhase::Stale, Some(at)) => format!("the ttl ended at {at:.0}"),
        (_, Some(at)) => format!("the ttl ends at {at:.0}"),
        (phase, None) => format!("the phase is {}", phase.as_str()),
    }
}

fn progress_text(governed: &Governed<'_>, judged: &Judged<'_>) -> String {
    format!("{}: {} is being carried out", condition_text(governed), judged.policy.action.kind())
}

fn observing_text(governed: &Governed<'_>, judged: &Judged<'_>) -> String {
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
    format!("{who} observes: {}; {then}", condition_text(governed))
}
