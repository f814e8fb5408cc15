//! Messages about a namespace that is gone: they are sent by the record of its deletion.

use std::collections::BTreeMap;

use coppice_api::notify::{NoticeAbout, NoticeState, OwedMessages, OwnerNotice};
use jiff::Timestamp;

use crate::cluster::ValidHours;
use crate::delivery::{pending, record_attempt};
use crate::plan::Delivery;

/// What becomes of messages now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwedPlan {
    /// What is known of the delivery: to be written down before anything is sent.
    pub notices: Vec<OwnerNotice>,
    /// The keys of those to make an attempt at, once that is durable.
    pub due: Vec<String>,
    /// When time alone can change the plan.
    pub next_check: Option<Timestamp>,
}

/// What is to be sent about a namespace that was seen to be gone at `gone_at`.
pub fn begin(owed: &OwedMessages, gone_at: Timestamp) -> Vec<OwnerNotice> {
    let about = (NoticeAbout::Deleted, gone_at);
    owed.messages.iter().map(|one| pending(one.key.clone(), about, &one.channel, one.to.clone())).collect()
}

/// Records what came of attempts, and says which are due.
pub fn go_on(
    owed: &OwedMessages,
    notices: &[OwnerNotice],
    deliveries: &BTreeMap<String, Delivery>,
    now: Timestamp,
) -> OwedPlan {
    // Hours that another version understands are no reason to say nothing.
    let hours = owed.working_hours.as_ref().and_then(|hours| ValidHours::try_from(hours).ok());
    let begin = hours.and_then(|hours| hours.begin_after(now));
    let mut plan = OwedPlan { notices: notices.to_vec(), due: Vec::new(), next_check: None };
    for notice in &mut plan.notices {
        let delivery = deliveries.get(&notice.key);
        if let Some(delivery) = delivery.filter(|_| notice.state == NoticeState::Pending) {
            record_attempt(notice, delivery, now);
        }
        if notice.state != NoticeState::Pending || delivery == Some(&Delivery::InFlight) {
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
    use coppice_api::notify::OwedMessage;

    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn each_message_is_delivered_or_a_dead_letter() {
        let message = |key: &str, to: Option<&str>| OwedMessage {
            key: key.to_owned(),
            channel: key.to_owned(),
            to: to.map(str::to_owned),
            sealed_to: None,
        };
        let owed = OwedMessages {
            owner: None,
            why: String::new(),
            successor: None,
            working_hours: serde_json::from_str(r#"{"timeZone": "UTC"}"#).unwrap(),
            messages: vec![message("mail", Some("a***@b")), message("hook", None)],
        };
        let (sunday, monday) = (at("2026-03-01T12:00:00Z"), at("2026-03-02T08:00:00Z"));
        let notices = begin(&owed, sunday);
        let plan = go_on(&owed, &notices, &BTreeMap::new(), sunday);
        assert_eq!((plan.due, plan.next_check), (vec![], Some(monday)), "it is Sunday");
        let plan = go_on(&owed, &notices, &BTreeMap::new(), monday);
        assert_eq!((&*plan.due.join(" "), &plan.notices), ("mail hook", &notices));
        let failed = |permanent| Delivery::Failed {
            error: "no".to_owned(),
            permanent,
            retry_after: None,
            by_channel: false,
        };
        let ends = [("mail".to_owned(), failed(true)), ("hook".to_owned(), Delivery::InFlight)].into();
        let plan = go_on(&owed, &notices, &ends, monday);
        assert_eq!(plan.notices[0].state, NoticeState::Failed);
        assert_eq!((plan.notices[1].state, plan.due.len()), (NoticeState::Pending, 0));
        // The channel itself has refused: it is tried again, for a day of attempts.
        let (mut notices, mut now, mut attempts) = (plan.notices, monday, 0);
        while notices[1].state == NoticeState::Pending {
            let ends = [("hook".to_owned(), failed(true))].into();
            notices = go_on(&owed, &notices, &ends, now).notices;
            (now, attempts) = (now + jiff::SignedDuration::from_secs(4400), attempts + 1);
        }
        assert_eq!((attempts, notices[1].state), (34, NoticeState::Failed));
        let ends = [("hook".to_owned(), Delivery::Delivered("200".to_owned()))].into();
        assert_eq!(go_on(&owed, &notices, &ends, now).notices, notices, "a late answer changes nothing");
        let anytime = OwedMessages { working_hours: None, ..owed };
        let fresh = begin(&anytime, sunday);
        let plan = go_on(&anytime, &fresh, &ends, sunday);
        assert_eq!(plan.notices[1].state, NoticeState::Delivered);
        assert_eq!(plan.notices[1].delivered_at, Some(sunday));
    }
}
