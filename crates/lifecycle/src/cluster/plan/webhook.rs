//! Webhooks of cluster managers: sent before a deletion that is due at the same time, which waits for them.

use coppice_api::steps::{Action, Intent};
use coppice_api::{ManagedNamespaceStatus, Reason};
use coppice_mutants::{Mutant, active};
use coppice_quantity::{Duration, count};

use super::decide::{Considered, Ruling};
use super::{Builder, Governed, Judged, NamespacePlan, NamespaceStep};
use crate::body::{ManagerRef, body};
use crate::circumstances::inhibition;
use crate::cluster::{ClusterAction, ValidClusterPolicy};
use crate::condition::later;
use crate::governor::Denied;
use crate::plan::{Delivery, WebhookMessage};
use crate::record::{self, StepOutcome};
use crate::steps;
use crate::valid_spec::ValidWebhook;

/// So long attempts are made, at the most: a deletion waits for them, and other steps.
const FIRST: Duration = Duration::from_secs(600);

impl Builder<'_> {
    /// Writes down what came of an attempt at a webhook, whatever has changed meanwhile: the receiver has seen it. True if there is
    /// no further attempt.
    pub(super) fn record_attempt(&mut self) -> bool {
        let intent = self.status.steps.intent.clone();
        let Some(intent) = intent.filter(|intent| intent.action == Action::Webhook) else { return false };
        let outcome = match &self.observed.delivery {
            Delivery::None | Delivery::InFlight => return false,
            Delivery::Delivered(response) => StepOutcome::WebhookDelivered { response: response.clone() },
            Delivery::Failed { error, permanent, retry_after, by_channel: _ } => StepOutcome::Failed {
                error: error.clone(),
                permanent: *permanent,
                min_delay: retry_after.unwrap_or_default(),
            },
        };
        self.events.extend(record::apply_to_record(&mut self.status, &intent, &outcome, self.now));
        self.status.steps.intent.is_none()
    }

    /// A webhook has ended, which is written down by itself: what comes next is said, and decided afterwards.
    pub(super) fn after_attempt(self, governed: &Governed<'_>) -> NamespacePlan {
        let mut ended = self.clone();
        let plan = self.decide(governed);
        let decides = |status: &ManagedNamespaceStatus| status.steps.intent.is_some();
        if !matches!(&plan.step, NamespaceStep::WriteStatus(status) if decides(status)) {
            return plan;
        }
        ended.next_check = Some(ended.now);
        ended.waiting(Reason::Dormant, "a webhook has ended; what comes next is decided now".to_owned())
    }

    /// The first webhook that is due and may be sent, if any: its intent is in the status then. What the receiver should hear of is
    /// done afterwards.
    pub(super) fn webhook_first<'g>(&mut self, governed: &Governed<'g>) -> Option<Judged<'g>> {
        if active(Mutant::DeletedBeforeWebhooks) {
            return None;
        }
        let ranked = governed.ranked(false, &self.status.fired);
        let mut webhooks =
            ranked.into_iter().filter(|one| matches!(one.policy.action, ClusterAction::Webhook(_)));
        webhooks.find(|judged| match self.ruling(governed, judged) {
            Ruling::Open(due) if due <= self.now => self.fire(governed, judged, due).is_ok(),
            Ruling::Waits(_, _, until) | Ruling::Stopped(_, _, until) => {
                self.check_no_later_than(until);
                false
            }
            Ruling::Open(_) | Ruling::Unconfirmed(..) => false,
        })
    }

    /// A webhook that has been decided is decided only once: receivers may have seen it, so it is delivered even if its condition
    /// is not true any more.
    pub(super) fn resume_webhook(
        mut self,
        governed: &Governed<'_>,
        policy: &ValidClusterPolicy,
        webhook: &ValidWebhook,
        intent: &Intent,
    ) -> NamespacePlan {
        let in_flight = self.observed.delivery == Delivery::InFlight;
        let no_longer_at = later(intent.decided_at, FIRST);
        if no_longer_at <= self.now && !in_flight && intent.attempts > 0 {
            return self.give_up(governed, intent);
        }
        if let Some(Denied { reason, message, .. }) = self.webhook_stopped(governed).filter(|_| !in_flight) {
            // It is decided again afterwards, with a time of its own.
            return self.abandon(intent, reason, &message);
        }
        self.check_no_later_than(Some(no_longer_at).filter(|at| self.now < *at));
        self.announce_beside(governed, intent);
        let judged = governed.judge(policy);
        let progress = format!("attempt {} at the webhook", intent.attempts + 1);
        if in_flight {
            return self.finish(Some((&judged, None)), Reason::InProgress, progress);
        }
        if let Some(Denied { reason, message, retry_at }) = self.webhook_waits(webhook, intent) {
            self.check_no_later_than(retry_at);
            return self.finish(Some((&judged, retry_at)), reason, message);
        }
        let Ok(destination) = webhook.destination.clone() else {
            return self.finish(Some((&judged, None)), Reason::InvalidSpec, progress);
        };
        let manager = &governed.manager;
        let sender =
            ManagerRef { kind: Some("ClusterNamespaceManager"), namespace: None, name: manager.name };
        let body = body(sender, &governed.namespace.name, policy, webhook, intent);
        let message = WebhookMessage { destination, limits: None, body };
        let mut plan = self.finish(Some((&judged, None)), Reason::InProgress, progress);
        if plan.step == NamespaceStep::Nothing {
            plan.step = NamespaceStep::Webhook(Box::new(intent.clone()), message);
        }
        plan
    }

    /// Gives and withdraws notice while a webhook is under way. What it would decide waits.
    fn announce_beside(&mut self, governed: &Governed<'_>, intent: &Intent) {
        let (status, events) = (self.status.clone(), self.events.len());
        self.status.steps.intent = None;
        if let Some((_, Considered::Decided)) = self.consider_all(governed, true) {
            self.status = status;
            self.events.truncate(events);
        }
        self.status.steps.intent = Some(intent.clone());
    }

    /// Nothing waits any longer for a webhook: neither a deletion nor what its users ask for.
    fn give_up(mut self, governed: &Governed<'_>, intent: &Intent) -> NamespacePlan {
        let error = intent.last_error.as_deref().unwrap_or("it failed");
        let attempts = count(intent.attempts, "attempt");
        let message = format!("given up after ten minutes and {attempts}, the last: {error}");
        let note = format!("policy {:?}: {message}", intent.policy);
        record::complete(&mut self.status.steps, intent, Reason::WebhookGivenUp, message, self.now);
        record::remember(&mut self.status.fired, intent, self.now);
        self.note(true, Reason::WebhookGivenUp, note);
        self.after_attempt(governed)
    }

    /// Why no webhook is sent about the namespace at present, if so.
    fn webhook_stopped(&self, governed: &Governed<'_>) -> Option<Denied> {
        let Governed { manager, spec, hold_end, .. } = governed;
        inhibition(manager.spec.suspend, spec.hold.as_ref().zip(*hold_end), self.now)
    }

    /// Why there is no attempt at present, if so.
    fn webhook_waits(&self, webhook: &ValidWebhook, intent: &Intent) -> Option<Denied> {
        let invalid =
            || webhook.destination.as_ref().err().map(|error| (Reason::InvalidSpec, error.to_string()));
        invalid()
            .map(Denied::until_changed)
            .or_else(|| self.circumstances().block(Action::Webhook))
            .or_else(|| steps::wait_for_retry(intent, self.now))
    }
}
