//! What came of a step, written into status.

use coppice_api::Reason;
use coppice_api::manager::{Action, Firing, Intent, NamespaceManagerStatus, Next, Phase};
use jiff::{SignedDuration, Timestamp};

use crate::backoff::backoff;
use crate::plan::Note;

/// A webhook is given up after so many failed attempts (nine to ten minutes, by the backoff).
pub const WEBHOOK_ATTEMPTS: u32 = 10;

/// What came of carrying out an effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The API server accepted the namespace's deletion.
    Deleted,
    /// Everything selected has been scaled down.
    ScaledDown {
        /// How many workloads were changed.
        workloads: usize,
    },
    /// Everything remembered has been given back.
    Woken {
        /// How many workloads were changed.
        workloads: usize,
        /// Workloads that were left alone, and why.
        left: Vec<String>,
    },
    /// The receiver answered with success.
    WebhookDelivered {
        /// What it answered, in short.
        answer: String,
    },
    /// What the policy asks for cannot be done as things are: tried again like a failure.
    Refused {
        /// Why: an enumerated reason.
        reason: Reason,
        /// The same for people: what is wrong and what to do.
        message: String,
    },
    /// The attempt failed.
    Failed {
        /// How.
        error: String,
        /// Whether another attempt cannot end otherwise. Destructive steps are tried again all the same: what stops them
        /// is the world, which changes.
        permanent: bool,
        /// How long to wait at least before the next attempt.
        at_least: std::time::Duration,
    },
}

impl Outcome {
    /// The attempt failed, and another may succeed.
    pub fn failed(error: String) -> Self {
        Self::Failed { error, permanent: false, at_least: std::time::Duration::ZERO }
    }
}

/// Writes the outcome of an attempt at `intent` into a status that holds this intent; returns what to tell people.
pub fn apply(
    status: &mut NamespaceManagerStatus,
    intent: &Intent,
    outcome: &Outcome,
    now: Timestamp,
) -> Vec<Note> {
    let note = |warning, reason, message: String| vec![Note { warning, reason, message }];
    let about =
        if intent.policy.is_empty() { String::new() } else { format!("policy {:?}: ", intent.policy) };
    match outcome {
        Outcome::Deleted => {
            let message = "the API server accepted the deletion of the namespace".to_owned();
            complete(status, intent, Reason::NamespaceDeleted, message.clone(), now);
            note(false, Reason::NamespaceDeleted, format!("{about}{message} ({})", why(intent)))
        }
        Outcome::ScaledDown { workloads } => {
            let message = format!("{workloads} workloads are asleep, their sizes remembered");
            complete(status, intent, Reason::ScaledDown, message.clone(), now);
            note(false, Reason::ScaledDown, format!("{about}{message}; `coppice wake` undoes it"))
        }
        Outcome::Woken { workloads, left } => {
            status.intent = None;
            status.scaled_down.clear();
            let kept =
                if left.is_empty() { String::new() } else { format!("; left alone: {}", left.join(", ")) };
            note(
                !left.is_empty(),
                Reason::Woken,
                format!("{workloads} workloads have their replicas back{kept}"),
            )
        }
        Outcome::WebhookDelivered { answer } => {
            let message = format!("the receiver answered {answer}");
            complete(status, intent, Reason::WebhookDelivered, message.clone(), now);
            note(false, Reason::WebhookDelivered, format!("{about}{message} ({})", intent.id))
        }
        Outcome::Refused { reason, message } => {
            let wait = backoff(intent.attempts + 1);
            let mut notes = failed(status, intent, (message, wait, false), &about, now);
            for note in &mut notes {
                note.reason = *reason;
            }
            notes
        }
        Outcome::Failed { error, permanent, at_least } => {
            let attempts = intent.attempts + 1;
            let wait = backoff(attempts).max(*at_least);
            let last = *permanent || attempts >= WEBHOOK_ATTEMPTS;
            failed(status, intent, (error, wait, last), &about, now)
        }
    }
}

/// Why something was decided, in short: it is told where nothing else is left to look at.
pub(crate) fn why(intent: &Intent) -> String {
    let evidence = intent.evidence.iter().map(|(name, value)| format!(", {name} {value}"));
    format!("{}, {}{}", intent.id, intent.reason, evidence.collect::<String>())
}

fn failed(
    status: &mut NamespaceManagerStatus,
    intent: &Intent,
    (error, wait, last): (&str, std::time::Duration, bool),
    about: &str,
    now: Timestamp,
) -> Vec<Note> {
    let attempts = intent.attempts + 1;
    if intent.action == Action::Webhook && last {
        let tried = if attempts == 1 { "1 attempt".to_owned() } else { format!("{attempts} attempts") };
        let message = format!("given up after {tried}, the last: {}", shorten(error));
        complete(status, intent, Reason::WebhookGivenUp, message.clone(), now);
        return vec![Note {
            warning: true,
            reason: Reason::WebhookGivenUp,
            message: format!("{about}{message}"),
        }];
    }
    let wait = SignedDuration::try_from(wait).unwrap_or(SignedDuration::from_secs(300));
    let next = now.checked_add(wait).unwrap_or(now);
    status.intent = Some(Intent {
        attempts,
        next_attempt: Some(next),
        last_error: Some(shorten(error)),
        ..intent.clone()
    });
    let message =
        format!("{about}attempt {attempts} at {} failed, next at {next:.0}: {error}", intent.action);
    vec![Note { warning: true, reason: Reason::ActionFailed, message }]
}

/// Writes down that a firing is complete: the manager is dormant from here on.
pub(crate) fn complete(
    status: &mut NamespaceManagerStatus,
    intent: &Intent,
    result: Reason,
    message: String,
    now: Timestamp,
) {
    status.firings += 1;
    status.intent = None;
    status.notice = None;
    status.phase = Some(Phase::Fired);
    status.next = Some(Next {
        reason: Reason::Dormant.to_string(),
        message: format!("policy {:?} fired: {message}", intent.policy),
        ..Next::default()
    });
    status.last_firing = Some(Firing {
        id: intent.id.clone(),
        policy: intent.policy.clone(),
        action: intent.action,
        at: Timestamp::from_millisecond(now.as_millisecond()).unwrap_or(now),
        reason: intent.reason.clone(),
        digest: intent.digest.clone(),
        result: result.to_string(),
        message: Some(message),
        evidence: intent.evidence.clone(),
    });
    bound(status);
}

/// Errors end up in status: bounded, on a character's border.
fn shorten(text: &str) -> String {
    let mut text = text.to_owned();
    cut(&mut text, 1000);
    text
}

/// So many characters of each text for people are kept in a status: the CRD accepts no text without bounds.
const LONGEST_TEXT: usize = 4096;

/// Cuts every text of a status whose length others decide.
pub(crate) fn bound(status: &mut NamespaceManagerStatus) {
    let next = status.next.iter_mut().map(|next| &mut next.message);
    let policies = status.policies.iter_mut().map(|policy| &mut policy.message);
    let conditions = status.conditions.iter_mut().map(|condition| &mut condition.message);
    let intent = status.intent.iter_mut();
    let intent = intent.flat_map(|intent| intent.last_error.iter_mut().chain(intent.evidence.values_mut()));
    let firing = status.last_firing.iter_mut();
    let firing = firing.flat_map(|firing| firing.message.iter_mut().chain(firing.evidence.values_mut()));
    for text in next.chain(policies).chain(conditions).chain(intent).chain(firing) {
        cut(text, LONGEST_TEXT);
    }
}

/// Cuts a text after so many characters, and says so. Cutting what has been cut changes nothing.
fn cut(text: &mut String, most: usize) {
    const MORE: &str = "...";
    if text.len() <= most || text.chars().count() <= most {
        return;
    }
    if let Some((at, _)) = text.char_indices().nth(most - MORE.len()) {
        text.truncate(at);
        text.push_str(MORE);
    }
}
