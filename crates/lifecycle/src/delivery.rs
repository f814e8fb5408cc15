//! Attempts to deliver one message: what came of one, and when the next one is.

use coppice_api::notify::{MessageAbout, MessageDelivery, MessageState};
use coppice_quantity::Duration;
use jiff::{SignedDuration, Timestamp};

use crate::cluster::RecordedRecipient;
use crate::condition::{later, whole_second_after};
use crate::plan::Delivery;
use crate::record::truncate_text;

/// So many attempts are made to deliver a message on which nothing rests: by the waits between them, in 24 hours. Those in which
/// messages are held back do not count.
const ATTEMPTS: u32 = 34;
/// Where attempts fail by the channel, they are made for at least so long: they are as close together as the channel lets them be.
const TRIED_FOR: Duration = Duration::from_secs(24 * 3600);
/// What a deletion waits for and was refused for good is tried again after this time: somebody may have put it right.
const TRIED_AGAIN_AFTER: Duration = Duration::from_secs(24 * 3600);
/// The first wait after an attempt that failed; each further one is twice as long.
const FIRST_WAIT: u64 = 5;
/// The longest.
const LONGEST_WAIT: u64 = 3600;

/// A message that is to be delivered.
pub(crate) fn pending(
    key: String,
    (about, given_at): (MessageAbout, Timestamp),
    channel: &str,
    to: RecordedRecipient,
) -> MessageDelivery {
    let RecordedRecipient { to, digest: to_digest } = to;
    MessageDelivery {
        key,
        about,
        channel: channel.to_owned(),
        to,
        to_digest,
        fallback: false,
        state: MessageState::Pending,
        attempts: 0,
        next_attempt: None,
        given_at,
        delivered_at: None,
        last_error: None,
    }
}

/// Attempts at a message begin again, as if none had been made.
pub(crate) fn begin_again(message: &mut MessageDelivery) {
    (message.state, message.attempts) = (MessageState::Pending, 0);
    (message.next_attempt, message.last_error) = (None, None);
}

/// Writes down what came of an attempt, if it has ended.
pub(crate) fn record_attempt(message: &mut MessageDelivery, delivery: &Delivery, now: Timestamp) {
    match delivery {
        Delivery::None | Delivery::InFlight => {}
        Delivery::Delivered(_) => {
            message.state = MessageState::Delivered;
            message.delivered_at = Some(whole_second_after(now));
            (message.next_attempt, message.last_error) = (None, None);
        }
        Delivery::Failed { error, permanent, retry_after, by_channel } => {
            let asked = retry_after.and_then(|asked| SignedDuration::try_from(asked).ok());
            let cause = match (permanent, by_channel) {
                (true, _) => FailureCause::Refused,
                (false, true) => FailureCause::Channel,
                (false, false) => FailureCause::Message,
            };
            failed(message, error, cause, asked.unwrap_or_default(), now);
        }
    }
}

/// Why an attempt has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailureCause {
    /// Another one would fail in the same way.
    Refused,
    /// The channel does not work at present. It paces attempts itself, so that a message need not be late when it works again.
    Channel,
    /// Anything else.
    Message,
}

/// An attempt has failed: when the next one is, if any.
pub(crate) fn failed(
    message: &mut MessageDelivery,
    error: &str,
    cause: FailureCause,
    asked: SignedDuration,
    now: Timestamp,
) {
    message.attempts += 1;
    let mut error = error.to_owned();
    truncate_text(&mut error, 1000);
    message.last_error = Some(error);
    let in_a_row = if cause == FailureCause::Channel { 1 } else { message.attempts };
    let wait = SignedDuration::from_millis(wait(&message.key, in_a_row)).max(asked);
    let next = now.checked_add(wait).unwrap_or(Timestamp::MAX);
    // What a deletion waits for is tried for as long as it waits.
    let rests_on_it = message.about == MessageAbout::DeletionAnnounced;
    // What a channel itself refuses, its administrator can put right.
    let refused = cause == FailureCause::Refused && message.to.is_some();
    let tried_for_long = cause != FailureCause::Channel || later(message.given_at, TRIED_FOR) <= now;
    if refused || (!rests_on_it && message.attempts >= ATTEMPTS && tried_for_long) {
        message.state = MessageState::Failed;
        message.next_attempt = rests_on_it.then(|| later(next, TRIED_AGAIN_AFTER));
    } else {
        message.next_attempt = Some(next);
    }
}

/// How long to wait after so many attempts that failed, in milliseconds: twice as long after each, and up to a fifth longer, by the
/// message, so that those which failed together are not tried again together.
fn wait(key: &str, attempts: u32) -> i64 {
    let doubled = FIRST_WAIT.checked_shl(attempts.saturating_sub(1)).unwrap_or(LONGEST_WAIT);
    let seconds = if attempts > 20 { LONGEST_WAIT } else { doubled.min(LONGEST_WAIT) };
    let spread = key.bytes().fold(u64::from(attempts), |sum, byte| (sum * 31 + u64::from(byte)) % 200);
    i64::try_from(seconds * (1000 + spread)).unwrap_or(i64::MAX)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;

    const HOUR: i64 = 3600;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + second).unwrap()
    }

    fn message(about: MessageAbout) -> MessageDelivery {
        let to = RecordedRecipient { to: Some("U02***".to_owned()), digest: None };
        pending("notice-1".to_owned(), (about, at(0)), "slack", to)
    }

    /// Attempts that fail, each as soon as it may be made; how long after the first the last one is, and how many there are.
    fn failures(one: &mut MessageDelivery, cause: FailureCause, most: u32) -> (i64, u32) {
        let mut now = at(0);
        for n in 1..=most {
            failed(one, "no", cause, SignedDuration::ZERO, now);
            match one.next_attempt.filter(|_| one.state == MessageState::Pending) {
                Some(next) => now = next,
                None => return (now.duration_since(at(0)).as_secs(), n),
            }
        }
        (now.duration_since(at(0)).as_secs(), most)
    }

    #[test]
    fn a_message_is_given_up_after_a_day_of_attempts_that_are_further_and_further_apart() {
        let (seconds, attempts) = failures(&mut message(MessageAbout::Stale), FailureCause::Message, 1000);
        assert_eq!(attempts, 34);
        assert!((24 * HOUR..29 * HOUR).contains(&seconds), "{seconds}");
    }

    #[test]
    fn what_fails_by_the_channel_is_tried_again_soon_and_given_up_after_a_day() {
        let mut one = message(MessageAbout::Stale);
        let (seconds, _) = failures(&mut one, FailureCause::Channel, 100);
        assert_eq!(one.state, MessageState::Pending, "34 attempts are over, a day is not");
        assert!((500..=600).contains(&seconds), "5 to 6 s each: {seconds}");
        let (seconds, _) = failures(&mut message(MessageAbout::Stale), FailureCause::Channel, 100_000);
        assert!((24 * HOUR..24 * HOUR + 10).contains(&seconds), "{seconds}");
    }

    #[test]
    fn what_a_deletion_waits_for_is_never_given_up() {
        for cause in [FailureCause::Message, FailureCause::Channel] {
            let mut one = message(MessageAbout::DeletionAnnounced);
            assert_eq!(failures(&mut one, cause, 20_000).1, 20_000);
        }
    }
}
