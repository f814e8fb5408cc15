//! Messages about a namespace that is gone: they are sent by the record of its deletion.

use std::collections::BTreeMap;

use coppice_api::Losses;
use coppice_api::notify::{
    DeletionNotification, MessageAbout, MessageDelivery, MessageState, NotificationMessage,
};
use jiff::Timestamp;

use crate::cluster::{RecordedRecipient, ValidHours};
use crate::delivery::{pending, record_attempt};
use crate::message::{DeletionContent, MessageContent, MessagesWhenGone, OwnerMessage};
use crate::plan::Delivery;

/// A deletion that has been carried out, as its record has it.
#[derive(Clone, Copy, Debug)]
pub struct CompletedDeletion<'a> {
    /// The namespace's name.
    pub namespace: &'a str,
    /// Its uid.
    pub uid: &'a str,
    /// The cluster manager.
    pub manager: &'a str,
    /// The policy.
    pub policy: &'a str,
    /// Why: an enumerated reason.
    pub reason: &'a str,
    /// What was lost with it; none if that was not looked at.
    pub losses: Option<&'a Losses>,
    /// When the namespace was gone.
    pub at: Timestamp,
}

/// What the record of a deletion keeps of messages that are to be sent once the namespace is gone; none if there are none. Whom each
/// goes to is hidden by `message`.
pub fn kept(
    notification: &MessagesWhenGone,
    message: impl FnMut(&OwnerMessage) -> NotificationMessage,
) -> Option<DeletionNotification> {
    let first = &notification.messages.first()?.content;
    Some(DeletionNotification {
        owner: first.owner.clone(),
        why: first.why.clone(),
        successor: first.successor.clone(),
        expires_at: first.expires_at,
        links: first.links.clone(),
        working_hours: notification.working_hours.clone(),
        messages: notification.messages.iter().map(message).collect(),
        superseded: notification.superseded.clone(),
    })
}

/// What a message says that the namespace is gone: as [`MessageSource::content`](crate::message::MessageSource::content) had it before.
pub fn content(gone: CompletedDeletion<'_>, notification: &DeletionNotification) -> MessageContent {
    let deletion = DeletionContent {
        policy: gone.policy.to_owned(),
        at: gone.at,
        reason: gone.reason.to_owned(),
        losses: gone.losses.filter(|losses| !losses.is_empty()).cloned(),
    };
    MessageContent {
        about: MessageAbout::Deleted,
        namespace: gone.namespace.to_owned(),
        uid: gone.uid.to_owned(),
        manager: gone.manager.to_owned(),
        owner: notification.owner.clone(),
        given_at: gone.at,
        why: notification.why.clone(),
        deletion: Some(deletion),
        expires_at: notification.expires_at,
        failing: Vec::new(),
        advice: BTreeMap::new(),
        successor: notification.successor.clone(),
        observing: false,
        links: notification.links.clone(),
        keep: None,
        limit_reached: false,
    }
}

/// What becomes of messages now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotificationPlan {
    /// What is known of the delivery: to be written down before anything is sent.
    pub notices: Vec<MessageDelivery>,
    /// The keys of those to make an attempt at, once that is durable.
    pub due: Vec<String>,
    /// When time alone can change the plan.
    pub next_check: Option<Timestamp>,
}

/// What is to be sent about a namespace that was seen to be gone at `gone_at`.
pub fn begin(notification: &DeletionNotification, gone_at: Timestamp) -> Vec<MessageDelivery> {
    let about = (MessageAbout::Deleted, gone_at);
    // Its address is sealed: nobody needs to tell it from others.
    let to = |one: &NotificationMessage| RecordedRecipient { to: one.to.clone(), digest: None };
    notification.messages.iter().map(|one| pending(one.key.clone(), about, &one.channel, to(one))).collect()
}

/// Records what came of attempts, and says which are due.
pub fn go_on(
    notification: &DeletionNotification,
    notices: &[MessageDelivery],
    deliveries: &BTreeMap<String, Delivery>,
    now: Timestamp,
) -> NotificationPlan {
    // Hours that another version understands are no reason to say nothing.
    let hours = notification.working_hours.as_ref().and_then(|hours| ValidHours::try_from(hours).ok());
    let begin = hours.and_then(|hours| hours.begin_after(now));
    let mut plan = NotificationPlan { notices: notices.to_vec(), due: Vec::new(), next_check: None };
    for notice in &mut plan.notices {
        let delivery = deliveries.get(&notice.key);
        if let Some(delivery) = delivery.filter(|_| notice.state == MessageState::Pending) {
            record_attempt(notice, delivery, now);
        }
        if notice.state != MessageState::Pending || delivery == Some(&Delivery::InFlight) {
            continue;
        }
        match notice.next_attempt.filter(|at| now < *at).max(begin) {
            Some(at) => plan.next_check = plan.next_check.into_iter().chain([at]).min(),
            None => plan.due.push(notice.key.clone()),
        }
    }
    plan
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn each_message_is_delivered_or_a_dead_letter() {
        let message = |key: &str, to: Option<&str>| NotificationMessage {
            key: key.to_owned(),
            channel: key.to_owned(),
            to: to.map(str::to_owned),
            sealed_to: None,
        };
        let notification = DeletionNotification {
            owner: None,
            why: String::new(),
            successor: None,
            expires_at: None,
            links: Vec::new(),
            working_hours: serde_json::from_str(r#"{"timeZone": "UTC"}"#).unwrap(),
            superseded: Vec::new(),
            messages: vec![message("mail", Some("a***@b")), message("hook", None)],
        };
        let (sunday, monday) = (at("2026-03-01T12:00:00Z"), at("2026-03-02T08:00:00Z"));
        let notices = begin(&notification, sunday);
        let plan = go_on(&notification, &notices, &BTreeMap::new(), sunday);
        assert_eq!((plan.due, plan.next_check), (vec![], Some(monday)), "it is Sunday");
        let plan = go_on(&notification, &notices, &BTreeMap::new(), monday);
        assert_eq!((&*plan.due.join(" "), &plan.notices), ("mail hook", &notices));
        let failed = |permanent| Delivery::Failed {
            error: "no".to_owned(),
            permanent,
            retry_after: None,
            by_channel: false,
        };
        let ends = [("mail".to_owned(), failed(true)), ("hook".to_owned(), Delivery::InFlight)].into();
        let plan = go_on(&notification, &notices, &ends, monday);
        assert_eq!(plan.notices[0].state, MessageState::Failed);
        assert_eq!((plan.notices[1].state, plan.due.len()), (MessageState::Pending, 0));
        // The channel itself has refused: it is tried again, for a day of attempts.
        let (mut notices, mut now, mut attempts) = (plan.notices, monday, 0);
        while notices[1].state == MessageState::Pending {
            let ends = [("hook".to_owned(), failed(true))].into();
            notices = go_on(&notification, &notices, &ends, now).notices;
            (now, attempts) = (now + jiff::SignedDuration::from_secs(4400), attempts + 1);
        }
        assert_eq!((attempts, notices[1].state), (34, MessageState::Failed));
        let ends = [("hook".to_owned(), Delivery::Delivered("200".to_owned()))].into();
        assert_eq!(
            go_on(&notification, &notices, &ends, now).notices,
            notices,
            "a late answer changes nothing"
        );
        let anytime = DeletionNotification { working_hours: None, ..notification };
        let fresh = begin(&anytime, sunday);
        let plan = go_on(&anytime, &fresh, &ends, sunday);
        assert_eq!(plan.notices[1].state, MessageState::Delivered);
        assert_eq!(plan.notices[1].delivered_at, Some(sunday));
    }
}
