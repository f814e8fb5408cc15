//! Records the outcome of a step in status.

use coppice_api::managed_namespace::FiredPolicy;
use coppice_api::manager::{NamespaceManagerStatus, NextStep, Phase};
use coppice_api::steps::{Action, Firing, Intent};
use coppice_api::{ManagedNamespaceStatus, Reason, ScaledDown, Steps};
use coppice_quantity::count;
use coppice_quantity::time::in_milliseconds;
use jiff::{SignedDuration, Timestamp};

use crate::backoff::backoff;
use crate::plan::PlannedEvent;

/// A webhook is given up after this many failed attempts: after about 8.5 minutes, which is the sum of the backoffs, if each is
/// answered at once. Slow answers and a receiver that asks for longer waits make it longer.
pub const WEBHOOK_ATTEMPTS: u32 = 10;

/// The message where a namespace that was to be deleted is going or gone already.
pub(crate) const ALREADY_GONE: &str = "the namespace is being deleted, by this decision or by somebody else";

/// The outcome of an effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepOutcome {
    /// The API server accepted the namespace's deletion.
    Deleted,
    /// The namespace is being deleted or gone, and it is not known by whose request.
    AlreadyGone,
    /// Everything selected is scaled down.
    ScaledDown {
        /// How many workloads were changed.
        workloads: usize,
    },
    /// Something has scaled workloads up again after each of several scale-downs: it is left at that.
    Reverted {
        /// Which workloads, what has done it as far as is known, and what to do.
        message: String,
    },
    /// All original replicas are restored.
    Woken {
        /// How many workloads were changed.
        workloads: usize,
        /// Workloads that were left alone, and why.
        skipped: Vec<String>,
    },
    /// The receiver answered with success.
    WebhookDelivered {
        /// What it answered, in short.
        response: String,
    },
    /// The policy's action is impossible at present: retried like a failure.
    Refused {
        /// Why: an enumerated reason.
        reason: Reason,
        /// The message: what is wrong and what to do.
        message: String,
    },
    /// The attempt failed.
    Failed {
        /// The error.
        error: String,
        /// Whether another attempt would fail in the same way. Destructive steps are retried all the same: the state of
        /// the cluster stops them, and that changes.
        permanent: bool,
        /// How long to wait at least before the next attempt.
        min_delay: std::time::Duration,
    },
}

impl StepOutcome {
    /// The attempt failed, and another may succeed.
    pub fn failed(error: String) -> Self {
        Self::Failed { error, permanent: false, min_delay: std::time::Duration::ZERO }
    }
}

/// Writes the outcome of an attempt at `intent` into the status of a manager that holds this intent; returns the Events
/// to publish. Once a policy has fired the manager is dormant.
pub fn apply_to_manager(
    status: &mut NamespaceManagerStatus,
    intent: &Intent,
    outcome: &StepOutcome,
    now: Timestamp,
) -> Vec<PlannedEvent> {
    let firings = status.steps.firings;
    let events = apply(&mut status.steps, intent, outcome, now);
    if status.steps.firings != firings {
        let result = status.steps.last_firing.as_ref().and_then(|firing| firing.message.as_deref());
        status.phase = Some(Phase::Fired);
        status.next = Some(NextStep {
            reason: Reason::Dormant.to_string(),
            message: format!("policy {:?} fired: {}", intent.policy, result.unwrap_or_default()),
            ..NextStep::default()
        });
    }
    events
}

/// In the evidence of what a policy does besides deleting the namespace: the digest of that policy.
pub(crate) const POLICY_DIGEST: &str = "policyDigest";

/// Remembers that the policy of an intent has fired, unless it deletes the namespace.
pub(crate) fn remember(fired: &mut Vec<FiredPolicy>, intent: &Intent, now: Timestamp) {
    let Some(digest) = intent.evidence.get(POLICY_DIGEST) else { return };
    fired.retain(|other| other.policy != intent.policy);
    let (policy, digest) = (intent.policy.clone(), digest.clone());
    fired.push(FiredPolicy { policy, digest, at: in_milliseconds(now) });
    fired.sort_unstable_by(|a, b| a.policy.cmp(&b.policy));
}

/// The same for the record of a namespace: a policy that has fired and did not delete it is remembered.
pub fn apply_to_record(
    status: &mut ManagedNamespaceStatus,
    intent: &Intent,
    outcome: &StepOutcome,
    now: Timestamp,
) -> Vec<PlannedEvent> {
    let firings = status.steps.firings;
    let events = apply(&mut status.steps, intent, outcome, now);
    if status.steps.firings != firings {
        remember(&mut status.fired, intent, now);
    }
    match intent.action {
        Action::ScaleDown if status.steps.firings != firings => {
            status.wakes_from = Some(status.steps.firings);
        }
        Action::Wake if status.steps.intent.is_none() => status.wakes_from = None,
        _ => {}
    }
    events
}

/// In the message of `Woken`, before the workloads that were left alone.
const LEFT_ALONE: &str = "; left alone: ";

/// The workloads that a message of `Woken` says were left alone, each with why; none if there were none.
pub fn left_alone(message: &str) -> Option<&str> {
    message.split_once(LEFT_ALONE).map(|(_, workloads)| workloads)
}

/// What is done while so many workloads are woken.
pub(crate) fn giving_back(workloads: usize) -> String {
    let their = if workloads == 1 { "its" } else { "their" };
    format!("giving {} {their} replicas back", count(workloads, "workload"))
}

/// Writes the outcome of an attempt at `intent` into steps that hold this intent, of whatever kind their object is; returns
/// the Events to publish.
pub fn apply(steps: &mut Steps, intent: &Intent, outcome: &StepOutcome, now: Timestamp) -> Vec<PlannedEvent> {
    let note = |warning, reason, message: String| vec![PlannedEvent { warning, reason, message }];
    let about =
        if intent.policy.is_empty() { String::new() } else { format!("policy {:?}: ", intent.policy) };
    match outcome {
        StepOutcome::Deleted | StepOutcome::AlreadyGone => {
            let message = match outcome {
                StepOutcome::Deleted => "the API server accepted the deletion of the namespace",
                _ => ALREADY_GONE,
            };
            complete(steps, intent, Reason::NamespaceDeleted, message.to_owned(), now);
            note(false, Reason::NamespaceDeleted, format!("{about}{message} ({})", why(intent)))
        }
        StepOutcome::ScaledDown { workloads } => {
            let (are, their) = if *workloads == 1 { ("is", "its") } else { ("are", "their") };
            let number = count(*workloads, "workload");
            let message = format!("{number} {are} scaled down; status.scaledDown records {their} replicas");
            complete(steps, intent, Reason::ScaledDown, message.clone(), now);
            note(false, Reason::ScaledDown, format!("{about}{message}; `coppice wake` undoes it"))
        }
        StepOutcome::Reverted { message } => {
            complete(steps, intent, Reason::RevertedTooOften, message.clone(), now);
            note(true, Reason::RevertedTooOften, format!("{about}{message}"))
        }
        StepOutcome::Woken { workloads, skipped } => {
            steps.intent = None;
            steps.scaled_down = ScaledDown::default();
            let kept = if skipped.is_empty() {
                String::new()
            } else {
                format!("{LEFT_ALONE}{}", skipped.join(", "))
            };
            let have_their = if *workloads == 1 { "has its" } else { "have their" };
            let number = count(*workloads, "workload");
            note(!skipped.is_empty(), Reason::Woken, format!("{number} {have_their} replicas back{kept}"))
        }
        StepOutcome::WebhookDelivered { response } => {
            let message = format!("the receiver answered {response}");
            complete(steps, intent, Reason::WebhookDelivered, message.clone(), now);
            note(false, Reason::WebhookDelivered, format!("{about}{message} ({})", intent.id))
        }
        StepOutcome::Refused { reason, message } => {
            let wait = backoff(intent.attempts + 1);
            let mut events = failed(steps, intent, (message, wait, false), &about, now);
            for note in &mut events {
                note.reason = *reason;
            }
            events
        }
        StepOutcome::Failed { error, permanent, min_delay } => {
            let attempts = intent.attempts + 1;
            let wait = backoff(attempts).max(*min_delay);
            let last = *permanent || attempts >= WEBHOOK_ATTEMPTS;
            failed(steps, intent, (error, wait, last), &about, now)
        }
    }
}

/// The reason for a decision, in short, for Events: they may be all that remains.
pub(crate) fn why(intent: &Intent) -> String {
    let evidence = intent.evidence.iter().map(|(name, value)| format!(", {name} {value}"));
    format!("{}, {}{}", intent.id, intent.reason, evidence.collect::<String>())
}

fn failed(
    steps: &mut Steps,
    intent: &Intent,
    (error, wait, last): (&str, std::time::Duration, bool),
    about: &str,
    now: Timestamp,
) -> Vec<PlannedEvent> {
    let attempts = intent.attempts + 1;
    if intent.action == Action::Webhook && last {
        let message = format!("given up after {}, the last: {}", count(attempts, "attempt"), shorten(error));
        complete(steps, intent, Reason::WebhookGivenUp, message.clone(), now);
        return vec![PlannedEvent {
            warning: true,
            reason: Reason::WebhookGivenUp,
            message: format!("{about}{message}"),
        }];
    }
    let wait = SignedDuration::try_from(wait).unwrap_or(SignedDuration::from_secs(300));
    let next = now.checked_add(wait).unwrap_or(now);
    steps.intent = Some(Intent {
        attempts,
        next_attempt: Some(next),
        last_error: Some(shorten(error)),
        ..intent.clone()
    });
    let message =
        format!("{about}attempt {attempts} at {} failed, next at {next:.0}: {error}", intent.action);
    vec![PlannedEvent { warning: true, reason: Reason::ActionFailed, message }]
}

/// Writes down that a firing is complete.
pub(crate) fn complete(steps: &mut Steps, intent: &Intent, result: Reason, message: String, now: Timestamp) {
    steps.firings += 1;
    steps.intent = None;
    if intent.action == Action::Delete {
        steps.notice = None;
    }
    steps.last_firing = Some(Firing {
        id: intent.id.clone(),
        policy: intent.policy.clone(),
        action: intent.action,
        at: in_milliseconds(now),
        reason: intent.reason.clone(),
        digest: intent.digest.clone(),
        result: result.to_string(),
        message: Some(message),
        evidence: intent.evidence.clone(),
    });
    truncate_step_texts(steps);
}

/// Errors end up in status: bounded, on a character's border.
fn shorten(text: &str) -> String {
    let mut text = text.to_owned();
    truncate_text(&mut text, 1000);
    text
}

/// A status keeps this many characters of each message: the CRD accepts no unbounded text.
const MAX_TEXT_CHARS: usize = 4096;

/// And this many of what is one of several reasons.
const MAX_REASON_CHARS: usize = 1024;

/// Cuts every text of a status whose length Coppice does not decide.
pub(crate) fn truncate_texts(status: &mut NamespaceManagerStatus) {
    let next = status.next.iter_mut().map(|next| &mut next.message);
    let policies = status.policies.iter_mut().map(|policy| &mut policy.message);
    let conditions = status.conditions.iter_mut().map(|condition| &mut condition.message);
    for text in next.chain(policies).chain(conditions) {
        truncate_text(text, MAX_TEXT_CHARS);
    }
    truncate_step_texts(&mut status.steps);
}

/// The same for the record of a namespace.
pub(crate) fn truncate_record_texts(status: &mut ManagedNamespaceStatus) {
    let next = status.next.iter_mut().map(|next| &mut next.message);
    let conditions = status.conditions.iter_mut().map(|condition| &mut condition.message);
    for text in next.chain(conditions) {
        truncate_text(text, MAX_TEXT_CHARS);
    }
    for change in &mut status.expiry_changes {
        truncate_text(&mut change.message, MAX_REASON_CHARS);
    }
    truncate_step_texts(&mut status.steps);
}

fn truncate_step_texts(steps: &mut Steps) {
    let intent = steps.intent.iter_mut();
    let intent = intent.flat_map(|intent| intent.last_error.iter_mut().chain(intent.evidence.values_mut()));
    let firing = steps.last_firing.iter_mut();
    let firing = firing.flat_map(|firing| firing.message.iter_mut().chain(firing.evidence.values_mut()));
    for text in intent.chain(firing) {
        truncate_text(text, MAX_TEXT_CHARS);
    }
}

/// Cuts a text after this many characters, and says so. Cutting what has been cut changes nothing.
pub fn truncate_text(text: &mut String, most: usize) {
    const MORE: &str = "...";
    if text.len() <= most || text.chars().count() <= most {
        return;
    }
    if let Some((at, _)) = text.char_indices().nth(most - MORE.len()) {
        text.truncate(at);
        text.push_str(MORE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waking(now: Timestamp) -> Intent {
        Intent {
            id: "i".to_owned(),
            policy: String::new(),
            action: Action::Wake,
            uid: "u".to_owned(),
            digest: String::new(),
            decided_at: now,
            attempts: 0,
            next_attempt: None,
            last_error: None,
            reason: String::new(),
            evidence: std::collections::BTreeMap::new(),
        }
    }

    #[test]
    fn what_was_left_alone_is_found_in_the_message_that_says_so() {
        let now = Timestamp::UNIX_EPOCH;
        let message = |skipped: &[&str]| {
            let skipped = skipped.iter().map(|&workload| workload.to_owned()).collect();
            let outcome = StepOutcome::Woken { workloads: 1, skipped };
            apply(&mut Steps::default(), &waking(now), &outcome, now).remove(0).message
        };
        assert_eq!(left_alone(&message(&[])), None);
        let two = ["Deployment a (it is gone)", "CronJob b (it runs)"];
        assert_eq!(left_alone(&message(&two)), Some("Deployment a (it is gone), CronJob b (it runs)"));
    }

    #[test]
    fn one_workload_is_spoken_of_as_one() {
        let now = Timestamp::UNIX_EPOCH;
        let said = |outcome: StepOutcome| {
            apply(&mut Steps::default(), &waking(now), &outcome, now).remove(0).message
        };
        let woken = |workloads| said(StepOutcome::Woken { workloads, skipped: Vec::new() });
        assert_eq!(woken(1), "1 workload has its replicas back");
        assert_eq!(woken(2), "2 workloads have their replicas back");
        let scaled_down = |workloads| said(StepOutcome::ScaledDown { workloads });
        let undo = "; `coppice wake` undoes it";
        let single = format!("1 workload is scaled down; status.scaledDown records its replicas{undo}");
        assert_eq!(scaled_down(1), single);
        let none = format!("0 workloads are scaled down; status.scaledDown records their replicas{undo}");
        assert_eq!(scaled_down(0), none);
        assert_eq!(giving_back(1), "giving 1 workload its replicas back");
        assert_eq!(giving_back(3), "giving 3 workloads their replicas back");
    }
}
