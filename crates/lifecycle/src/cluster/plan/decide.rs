//! Deciding a step about a namespace that a cluster manager governs, and deciding it again.

use std::collections::BTreeMap;

use coppice_api::Reason;
use coppice_api::manager::Verdict;
use coppice_api::steps::{Action, Intent};
use coppice_mutants::{Mutant, active};
use coppice_quantity::Duration;
use jiff::Timestamp;

use super::text::{condition_text, observing_text, progress_text};
use super::wake::SCALED_DOWN_BEFORE;
use super::{Builder, Governed, Judged, NamespacePlan, NamespaceStep};
use crate::circumstances::inhibition;
use crate::cluster::ClusterAction;
use crate::condition::Evaluation;
use crate::governor::Denied;
use crate::message::{MessagesWhenGone, failing_messages};
use crate::plan::earlier;
use crate::record::POLICY_DIGEST;
use crate::steps::{self, Decided, DuePolicy, Resumed};
use crate::valid_spec::ValidWebhook;

/// What the rules say about a policy now, its notice and the budget apart.
pub(super) enum Ruling {
    /// Nothing is done, whatever its condition: why, and when that ends.
    Stopped(Reason, String, Option<Timestamp>),
    /// Not before this instant.
    Waits(Reason, String, Option<Timestamp>),
    /// Not at present; what was announced stands.
    Unconfirmed(Reason, String),
    /// It may be announced, and done from this instant on.
    Open(Timestamp),
}

/// How a deletion that was announced is prevented. A later end of the ttl changes nothing about the health or the pods.
const fn prevent(reason: Reason) -> &'static str {
    match reason {
        Reason::Unhealthy | Reason::PodsSucceeded | Reason::Superseded => {
            "set spec.hold of ManagedNamespace coppice in it to prevent it"
        }
        _ => "set spec.hold or spec.extendUntil of ManagedNamespace coppice in it to prevent it",
    }
}

/// Namespaces are counted this often, or less: then it may be known whether something is approved.
pub(super) const CENSUS_INTERVAL: Duration = Duration::from_secs(5);

/// In the evidence: the namespace that has taken its place.
const SUPERSEDED_BY: &str = "supersededBy";

/// In the evidence of a deletion: what was said of all that was failing, which goes with the record. The last by its name, since Events
/// have room for the first thousand characters.
const WORKLOAD_MESSAGES: &str = "workloadMessages";

/// What comes of looking at a policy.
pub(super) enum Considered {
    /// Its intent is in the status.
    Decided,
    /// It waits, or is stopped.
    Says(Said),
    /// It waits for the counts, and what the record says stays.
    Unchanged,
}

/// What a policy waits for.
pub(super) struct Said {
    /// Whether it is shown as what comes next.
    comes_next: bool,
    /// When, if that is known.
    due: Option<Timestamp>,
    reason: Reason,
    message: String,
    /// Whether its condition stands, and nothing is done by it at present.
    stands: bool,
}

/// Whether a policy just waits for its time.
const fn waits(considered: &Considered) -> bool {
    matches!(considered, Considered::Says(Said { reason: Reason::TtlRunning | Reason::Watching, .. }))
}

/// What becomes of a decided step, if it is not carried out now.
enum NotNow {
    GivenUp(Reason, String),
    Waits(Denied),
}

impl Builder<'_> {
    /// No step is under way: is there one to decide? Deleting the namespace comes first; what else is to be done to it does not
    /// wait for that while nothing of it is decided, nor that for it.
    pub(super) fn decide(mut self, governed: &Governed<'_>) -> NamespacePlan {
        if let Some(webhook) = self.webhook_first(governed) {
            return self.decided(governed, &webhook);
        }
        let (mut unchanged, mut says) = (false, None);
        for deletes in [true, false] {
            let Some((judged, considered)) = self.consider_all(governed, deletes) else { continue };
            match considered {
                Considered::Decided => return self.decided(governed, &judged),
                Considered::Unchanged => unchanged = true,
                Considered::Says(said) => {
                    // What has been announced, or else what acts first.
                    let announced = deletes && self.status.steps.notice.is_some();
                    let rank = (!announced, judged.rank());
                    says = says.into_iter().chain([(rank, judged, said)]).min_by_key(|(rank, ..)| *rank);
                }
            }
        }
        match says {
            _ if unchanged => self.unchanged(),
            Some((_, judged, said)) => self.says(&judged, said),
            None => self.dormant(governed),
        }
    }

    /// Looks at the policies that delete the namespace, or at the others: at those that act first. One that is not confirmed keeps no
    /// other waiting, unless it has announced something.
    pub(super) fn consider_all<'g>(
        &mut self,
        governed: &Governed<'g>,
        deletes: bool,
    ) -> Option<(Judged<'g>, Considered)> {
        let mut ranked = governed.ranked(deletes, &self.status.fired);
        if deletes && ranked.is_empty() {
            self.withdraw_notice("no policy announces it any more");
        }
        if deletes {
            self.withdraw_void_notice(governed);
        }
        if let Some(notice) = self.status.steps.notice.as_ref().filter(|_| deletes) {
            self.announced_first(governed, notice, &mut ranked);
        }
        let mut first_waiting = None;
        for judged in ranked {
            let considered = self.consider(governed, &judged);
            let stays = matches!(&considered, Considered::Says(said) if said.stands);
            let notice = self.status.steps.notice.as_ref().filter(|_| deletes);
            let date = notice.map(|notice| notice.not_before);
            if stays {
                // It may give way to another then.
                self.check_no_later_than(date.filter(|at| self.now < *at));
            }
            if !stays || date.is_some() {
                return first_waiting.filter(|_| waits(&considered)).or(Some((judged, considered)));
            }
            first_waiting = first_waiting.or(Some((judged, considered)));
        }
        first_waiting
    }

    /// For seconds after every start: what records say would be written twice. What is seen of the health is written, since it is by
    /// the record that it is counted.
    fn unchanged(self) -> NamespacePlan {
        let (now, before) = (&self.status, self.record.status);
        let same = (&now.health, &now.failing, now.failing_more, now.phase, &now.policies, &now.notices)
            == (
                &before.health,
                &before.failing,
                before.failing_more,
                before.phase,
                &before.policies,
                &before.notices,
            );
        if !same {
            return self.write();
        }
        NamespacePlan { next_check: self.next_check, ..NamespacePlan::NOTHING }
    }

    /// A step has just been decided.
    pub(super) fn decided(mut self, governed: &Governed<'_>, judged: &Judged<'_>) -> NamespacePlan {
        self.next_check = Some(self.now);
        self.finish(Some((judged, None)), Reason::InProgress, progress_text(governed, judged))
    }

    fn says(self, judged: &Judged<'_>, said: Said) -> NamespacePlan {
        let Said { comes_next, due, reason, message, stands: _ } = said;
        self.finish(comes_next.then_some((judged, due)), reason, message)
    }

    /// No policy is to act.
    fn dormant(self, governed: &Governed<'_>) -> NamespacePlan {
        let Some(fired) = self.status.fired.first() else {
            let message = format!("ClusterNamespaceManager {} has no policy", governed.manager.name);
            return self.waiting(Reason::Watching, message);
        };
        let again = "it fires again once its condition has been false in between";
        if let Some(last) = self.reverted() {
            let why = last.message.as_deref().unwrap_or_default();
            let message = format!("policy {:?}: {why}; {again}", last.policy);
            return self.waiting(Reason::RevertedTooOften, message);
        }
        let message = format!("policy {:?} fired at {:.0}; {again}", fired.policy, fired.at);
        self.waiting(Reason::Dormant, message)
    }

    /// Announces what a policy asks for, decides it, or says what it waits for.
    fn consider(&mut self, governed: &Governed<'_>, judged: &Judged<'_>) -> Considered {
        let deletes = judged.policy.action.deletes();
        let due = match self.ruling(governed, judged) {
            Ruling::Stopped(reason, message, ends) => {
                if deletes {
                    self.withdraw_notice(&message);
                }
                self.check_no_later_than(ends);
                // Whoever observes wants to know what would be done, and when.
                let comes_next = reason == Reason::Observing;
                // A webhook that leads nowhere keeps no other policy waiting.
                let stands = reason == Reason::InvalidSpec;
                return Considered::Says(Said { comes_next, due: judged.acts_at, reason, message, stands });
            }
            Ruling::Waits(reason, message, until) => {
                if deletes {
                    self.withdraw_notice("its policy is not due any more");
                }
                self.check_no_later_than(until);
                return Considered::Says(Said {
                    comes_next: true,
                    due: judged.acts_at,
                    reason,
                    message,
                    stands: false,
                });
            }
            // It is compared again in seconds: nothing is written about that.
            Ruling::Unconfirmed(Reason::NotCounted, _)
                if self
                    .record
                    .status
                    .next
                    .as_ref()
                    .is_some_and(|next| next.policy.as_ref() == Some(&judged.policy.name)) =>
            {
                return Considered::Unchanged;
            }
            Ruling::Unconfirmed(reason, message) => {
                return Considered::Says(Said { comes_next: true, due: None, reason, message, stands: true });
            }
            Ruling::Open(due) => due,
        };
        if let Some(denied) = self.counted(governed, judged) {
            if deletes && denied.reason == Reason::ApprovalNeeded {
                self.withdraw_notice(&denied.message);
            }
            return self.denied(judged, denied);
        }
        match self.fire(governed, judged, due) {
            Ok(()) => Considered::Decided,
            Err(denied) => self.denied(judged, denied),
        }
    }

    /// Puts the intent of a policy into the status, unless its notice or the circumstances are in the way.
    pub(super) fn fire(
        &mut self,
        governed: &Governed<'_>,
        judged: &Judged<'_>,
        due: Timestamp,
    ) -> Result<(), Denied> {
        let action = &judged.policy.action;
        let mut evidence = BTreeMap::from([
            ("due".to_owned(), due.to_string()),
            ("phase".to_owned(), governed.phase_of(judged).as_str().to_owned()),
        ]);
        if !governed.failing.is_empty() {
            evidence.insert("failing".to_owned(), governed.failing.clone());
        }
        if let Some(successor) = governed.successor_text().filter(|_| judged.by_successor()) {
            evidence.insert(SUPERSEDED_BY.to_owned(), successor);
        }
        if let ClusterAction::ScaleDown(_) = action {
            let before = self.status.steps.scaled_down.len();
            evidence.insert(SCALED_DOWN_BEFORE.to_owned(), before.to_string());
        }
        if !action.deletes() {
            evidence.insert(POLICY_DIGEST.to_owned(), judged.policy.digest.clone());
        }
        let said = failing_messages(&self.status);
        if action.deletes() && !said.is_empty() {
            evidence.insert(WORKLOAD_MESSAGES.to_owned(), said);
        }
        if let Some(owner) = &self.status.owner {
            evidence.insert("owner".to_owned(), owner.clone());
        }
        evidence.extend(self.evidence.get(&judged.policy.name).cloned().unwrap_or_default());
        let reason = judged.reason();
        let decided = Decided {
            object_uid: self.record.uid,
            action: action.kind(),
            policy: &judged.policy.name,
            digest: governed.manager.spec.digest(),
            namespace: governed.namespace,
            reason,
            evidence: &evidence,
        };
        let message = condition_text(governed, judged);
        let delivery = self.notice_delivery(governed, &judged.policy.name);
        let circumstances = self.circumstances();
        let (steps, events) = (&mut self.status.steps, &mut self.events);
        if !action.deletes() {
            let before = steps.firings;
            if governed.spec.wake == Some(before) && action.is_destructive() {
                // What was woken by that number was scaled down earlier: what this one scales down is woken by a later one.
                steps.firings += 1;
            }
            let fired = steps::fire_beside_notice(steps, decided, &message, circumstances, events);
            if fired.is_err() {
                steps.firings = before;
            }
            return fired;
        }
        let due_policy = DuePolicy {
            decided,
            message: &message,
            notice: Some(action.notice()),
            due,
            prevent: prevent(reason),
            delivery: &delivery,
        };
        steps::fire(steps, due_policy, circumstances, events)
    }

    /// A step that has been decided: carry it out, wait, or give it up. It is decided again before every attempt.
    pub(super) fn resume(mut self, governed: &Governed<'_>, intent: &Intent) -> NamespacePlan {
        if intent.action == Action::Wake {
            return self
                .deletion_instead(governed, intent)
                .unwrap_or_else(|builder| builder.wake_waits(intent));
        }
        if intent.uid != governed.namespace.uid {
            let why = format!("it was about another namespace of this name (uid {})", intent.uid);
            return self.abandon(intent, Reason::Replaced, &why);
        }
        let spec = governed.manager.spec;
        let policy = spec.policies().iter().find(|policy| policy.name == intent.policy);
        let policy = policy.filter(|policy| policy.action.kind() == intent.action);
        let Some(policy) = policy.filter(|_| intent.digest == spec.digest()) else {
            return self.abandon(intent, Reason::PoliciesChanged, "its policy has changed or is gone");
        };
        if let ClusterAction::Webhook(webhook) = &policy.action {
            return self.resume_webhook(governed, policy, webhook, intent);
        }
        let judged = governed.judge(policy);
        match self.decided_again(governed, &judged, intent) {
            Err(NotNow::GivenUp(reason, why)) => self.abandon(intent, reason, &why),
            Err(NotNow::Waits(denied)) if policy.action.deletes() => self.waits(&judged, denied),
            Err(NotNow::Waits(denied)) => {
                self.check_no_later_than(denied.retry_at);
                let instead = self.deletion_instead(governed, intent);
                instead.unwrap_or_else(|builder| builder.waits(&judged, denied))
            }
            Ok(()) => {
                self.next_check = None;
                let progress = progress_text(governed, &judged);
                let notification = if policy.action.deletes() {
                    self.messages_when_gone(intent)
                } else {
                    MessagesWhenGone::default()
                };
                let plan = self.finish(Some((&judged, None)), Reason::InProgress, progress);
                let mut plan = NamespacePlan { goes_on: true, notification, ..plan };
                if plan.step == NamespaceStep::Nothing {
                    let intent = Box::new(intent.clone());
                    plan.step = match &policy.action {
                        ClusterAction::Delete { .. } => NamespaceStep::Delete(intent),
                        ClusterAction::ScaleDown(what) => NamespaceStep::ScaleDown(intent, what.clone()),
                        // Resumed above.
                        ClusterAction::Webhook(_) => NamespaceStep::Nothing,
                    };
                }
                plan
            }
        }
    }

    /// Whether a step that has been decided is carried out now.
    fn decided_again(
        &mut self,
        governed: &Governed<'_>,
        judged: &Judged<'_>,
        intent: &Intent,
    ) -> Result<(), NotNow> {
        let policy = judged.policy;
        let condition = condition_text(governed, judged);
        // What is scaled down fails no more, and has no pods any more: what has begun for these goes on, unless pods run again.
        let by_time =
            [Reason::TtlElapsed, Reason::Superseded].iter().any(|one| intent.reason == one.as_str());
        let pods_gone = [Reason::PodsSucceeded, Reason::TooFewPods, Reason::PodTerminating];
        let pods_run = governed.says_of_pods(judged).is_some_and(|(reason, _)| !pods_gone.contains(&reason));
        let begun = !by_time && !pods_run && self.has_begun(intent);
        let (verdict, message) = match self.ruling(governed, judged) {
            Ruling::Open(due) if due <= self.now => (Verdict::True, condition),
            Ruling::Open(_) | Ruling::Waits(..) | Ruling::Unconfirmed(..) if begun => {
                (Verdict::True, condition)
            }
            Ruling::Open(_) => (Verdict::False, condition),
            // What was announced stands.
            Ruling::Unconfirmed(reason, why)
                if [Reason::PodsSucceeded, Reason::Superseded]
                    .iter()
                    .any(|one| intent.reason == one.as_str()) =>
            {
                return Err(NotNow::Waits(Denied::until_changed((reason, why))));
            }
            Ruling::Waits(_, why, _) | Ruling::Unconfirmed(_, why) => (Verdict::False, why),
            Ruling::Stopped(reason, why, _) => return Err(NotNow::GivenUp(reason, why)),
        };
        if verdict == Verdict::True && !begun && judged.reason().as_str() != intent.reason {
            // What was read again for it is not what the other reason needs.
            return Err(NotNow::GivenUp(Reason::NoLongerTrue, message));
        }
        let another =
            judged.by_successor() && intent.evidence.get(SUPERSEDED_BY) != governed.successor_text().as_ref();
        if verdict == Verdict::True && another {
            let why = "another namespace has taken its place since".to_owned();
            return Err(NotNow::GivenUp(Reason::NoLongerTrue, why));
        }
        let denied = judged.due.and_then(|_| self.counted(governed, judged));
        let evaluation = Evaluation { verdict, ..Evaluation::unknown(Reason::NoLongerTrue, message) };
        let notice = Some(policy.action.notice()).filter(|notice| !notice.is_zero());
        let delivery = self.notice_delivery(governed, &policy.name);
        let resumed =
            steps::resume(&self.status.steps, intent, &evaluation, (notice, &delivery), self.circumstances());
        // What has ended is given up, whatever stops it; what goes on waits for what either of them waits for.
        match (resumed, denied) {
            // Whoever approves it later gives every one of them its full notice.
            (_, Some(denied)) if denied.reason == Reason::ApprovalNeeded => {
                Err(NotNow::GivenUp(denied.reason, denied.message))
            }
            (Resumed::GivenUp(why), _) => Err(NotNow::GivenUp(Reason::NoLongerTrue, why)),
            (Resumed::GoesOn | Resumed::Waits(_), Some(denied)) | (Resumed::Waits(denied), None) => {
                Err(NotNow::Waits(denied))
            }
            (Resumed::GoesOn, None) => Ok(()),
        }
    }

    /// While another step waits, the namespace may be announced or deleted instead: then nobody needs that step.
    #[allow(clippy::result_large_err, reason = "the plan in the making goes on")]
    fn deletion_instead(mut self, governed: &Governed<'_>, intent: &Intent) -> Result<NamespacePlan, Self> {
        self.status.steps.intent = None;
        let Some((deletion, considered)) = self.consider_all(governed, true) else {
            self.status.steps.intent = Some(intent.clone());
            return Err(self);
        };
        if let Considered::Decided = considered {
            let mut decided = (self.status.steps.intent.take(), deletion);
            // What a receiver is to hear first is sent first.
            if let Some(webhook) = self.webhook_first(governed) {
                decided = (self.status.steps.intent.take(), webhook);
            }
            let why = "the namespace is deleted instead";
            steps::abandon(&mut self.status.steps, intent, why, &mut self.events);
            self.status.steps.intent = decided.0;
            return Ok(self.decided(governed, &decided.1));
        }
        self.status.steps.intent = Some(intent.clone());
        match considered {
            Considered::Says(said) if self.status.steps.notice.is_some() => Ok(self.says(&deletion, said)),
            Considered::Unchanged => Ok(self.unchanged()),
            Considered::Says(_) | Considered::Decided => Err(self),
        }
    }

    /// A decided step waits: why, and until when if that is known.
    fn waits(mut self, judged: &Judged<'_>, denied: Denied) -> NamespacePlan {
        match self.denied(judged, denied) {
            Considered::Says(said) => self.says(judged, said),
            Considered::Unchanged | Considered::Decided => self.unchanged(),
        }
    }

    /// Something is in the way of a policy.
    fn denied(&mut self, judged: &Judged<'_>, denied: Denied) -> Considered {
        let date = denied.date();
        let Denied { reason, message, retry_at } = denied;
        self.check_no_later_than(retry_at);
        let said =
            self.record.status.next.as_ref().filter(|next| next.policy.as_ref() == Some(&judged.policy.name));
        if reason == Reason::NotCounted && said.is_some_and(|next| next.reason != Reason::Settling.as_str()) {
            return Considered::Unchanged;
        }
        // Not what comes of looking again.
        let due = date.filter(|_| ![Reason::NotCounted, Reason::ApprovalNeeded].contains(&reason));
        Considered::Says(Said { comes_next: true, due, reason, message, stands: false })
    }

    /// What a policy may do now, by what stops it, in this order: suspended, protected, a destination that is not permitted, held,
    /// observing, not due, not confirmed, settling, before its notice. Approval, the budget and what else stops every step are asked after it:
    /// [`counted`](Self::counted), [`steps::fire`].
    pub(super) fn ruling(&self, governed: &Governed<'_>, judged: &Judged<'_>) -> Ruling {
        let Governed { manager, namespace, spec, hold_end, since, settled_at, .. } = governed;
        let policy = judged.policy;
        if manager.spec.suspend && !active(Mutant::SuspendIgnored) {
            let message = format!(
                "spec.suspend of ClusterNamespaceManager {} is true: nothing is done until it is false",
                manager.name
            );
            return Ruling::Stopped(Reason::Suspended, message, None);
        }
        if let Some(refusal) = self.observed.settings.forbids(policy.action.kind(), namespace) {
            return Ruling::Stopped(refusal.reason, refusal.message, None);
        }
        if let ClusterAction::Webhook(ValidWebhook { destination: Err(error), .. }) = &policy.action {
            return Ruling::Stopped(Reason::InvalidSpec, format!("policy {:?}: {error}", policy.name), None);
        }
        if let Some(held) = inhibition(false, spec.hold.as_ref().zip(*hold_end), self.now) {
            return Ruling::Stopped(held.reason, held.message, held.retry_at);
        }
        if !policy.enforces && !active(Mutant::ObserveIgnored) {
            return Ruling::Stopped(Reason::Observing, observing_text(governed, judged), None);
        }
        let (Some(due), Some(acts_at)) = (judged.due, judged.acts_at) else {
            let no_date = || format!("policy {:?} waits for a phase that no date leads to", policy.name);
            let of_pods = governed.says_of_pods(judged);
            let why =
                of_pods.or_else(|| self.unknown.clone()).unwrap_or_else(|| (Reason::Watching, no_date()));
            return Ruling::Waits(why.0, why.1, None);
        };
        if let Some(unconfirmed) = due.unconfirmed {
            return governed
                .pods_unconfirmed(judged)
                .unwrap_or_else(|| self.unconfirmed(governed, unconfirmed));
        }
        let announced_from = earlier(due.not_before, policy.action.notice());
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
            let message = format!(
                "{}; policy {:?} acts at {acts_at:.0}",
                condition_text(governed, judged),
                policy.name
            );
            let reason = if judged.by_ttl() { Reason::TtlRunning } else { Reason::Watching };
            return Ruling::Waits(reason, message, Some(announced_from));
        }
        Ruling::Open(due.not_before)
    }
}
