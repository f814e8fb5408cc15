//! A webhook of a manager in a namespace that is about to be deleted: its receiver is to hear first, if it can within minutes.

use coppice_api::Reason;
use coppice_api::steps::{Action, Steps};
use coppice_mutants::{Mutant, active};
use coppice_quantity::Duration;
use jiff::Timestamp;

use crate::condition::later;
use crate::governor::Denied;

/// A deletion waits for so long after its time, whoever sends webhooks and how often: no tenant can keep a namespace by one.
const WAITED_FOR: Duration = Duration::from_secs(600);
/// Statuses that change enqueue nobody else: who waits looks again after this time.
const AGAIN: Duration = Duration::from_secs(5);

/// A webhook that has been decided and is not delivered yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingWebhook {
    /// Whose it is.
    by: String,
    policy: String,
    decided_at: Timestamp,
}

impl PendingWebhook {
    /// The one that the status of an object says is under way for the namespace with this uid; none if none is.
    pub fn of(by: impl Into<String>, steps: &Steps, namespace_uid: &str) -> Option<Self> {
        let intent = steps.intent.as_ref()?;
        let is = intent.action == Action::Webhook && intent.uid == namespace_uid;
        is.then(|| Self { by: by.into(), policy: intent.policy.clone(), decided_at: intent.decided_at })
    }

    /// Why a deletion waits now that has this date, if it does; without a date, for so long after the webhook was decided.
    pub(crate) fn before(&self, date: Option<Timestamp>, now: Timestamp) -> Option<Denied> {
        let until = later(date.unwrap_or(self.decided_at), WAITED_FOR);
        if until <= now || active(Mutant::WebhooksLost) {
            return None;
        }
        let Self { by, policy, decided_at: _ } = self;
        let message = format!(
            "the webhook of {by} (policy {policy:?}) is delivered first; from {until:.0} on nothing waits for it"
        );
        Some(Denied { reason: Reason::WebhookPending, message, retry_at: Some(later(now, AGAIN).min(until)) })
    }
}
