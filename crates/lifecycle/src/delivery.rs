//! Attempts to deliver one message: what came of one, and when the next one is.

use coppice_api::notify::{NoticeAbout, NoticeState, OwnerNotice};
use coppice_quantity::Duration;
use jiff::{SignedDuration, Timestamp};

use crate::condition::{later, whole_second_after};
use crate::plan::Delivery;
use crate::record::truncate_text;

/// So many attempts are made to deliver a message on which nothing rests: by the waits between them, in 24 hours. Those in which
/// messages are held back do not count.
const ATTEMPTS: u32 = 34;
/// What a deletion waits for and was refused for good is tried again after this time: somebody may have put it right.
const TRIED_AGAIN_AFTER: Duration = Duration::from_secs(24 * 3600);
/// The first wait after an attempt that failed; each further one is twice as long.
const FIRST_WAIT: u64 = 5;
/// The longest.
const LONGEST_WAIT: u64 = 3600;

/// A message that is to be delivered.
pub(crate) fn pending(
    key: String,
    (about, given_at): (NoticeAbout, Timestamp),
    channel: &str,
    to: Option<String>,
) -> OwnerNotice {
    OwnerNotice {
        key,
        about,
        channel: channel.to_owned(),
        to,
        fallback: false,
        state: NoticeState::Pending,
        attempts: 0,
        next_attempt: None,
        given_at,
        delivered_at: None,
        last_error: None,
    }
}

/// Attempts at a message begin again, as if none had been made.
pub(crate) fn begin_anew(notice: &mut OwnerNotice) {
    (notice.state, notice.attempts) = (NoticeState::Pending, 0);
    (notice.next_attempt, notice.last_error) = (None, None);
}

/// Writes down what came of an attempt, if it has ended.
pub(crate) fn record_attempt(notice: &mut OwnerNotice, delivery: &Delivery, now: Timestamp) {
    match delivery {
        Delivery::None | Delivery::InFlight => {}
        Delivery::Delivered(_) => {
            notice.state = NoticeState::Delivered;
            notice.delivered_at = Some(whole_second_after(now));
            (notice.next_attempt, notice.last_error) = (None, None);
        }
        Delivery::Failed { error, permanent, retry_after } => {
            let asked = retry_after.and_then(|asked| SignedDuration::try_from(asked).ok());
            failed(notice, error, *permanent, asked.unwrap_or_default(), now);
        }
    }
}

/// An attempt has failed: when the next one is, if any.
pub(crate) fn failed(
    notice: &mut OwnerNotice,
    error: &str,
    permanent: bool,
    asked: SignedDuration,
    now: Timestamp,
) {
    notice.attempts += 1;
    let mut error = error.to_owned();
    truncate_text(&mut error, 1000);
    notice.last_error = Some(error);
    let wait = SignedDuration::from_millis(wait(&notice.key, notice.attempts)).max(asked);
    let next = now.checked_add(wait).unwrap_or(Timestamp::MAX);
    // What a deletion waits for is tried for as long as it waits.
    let rests_on_it = notice.about == NoticeAbout::DeletionAnnounced;
    // What a channel itself refuses, its administrator can put right.
    let refused = permanent && notice.to.is_some();
    if refused || (!rests_on_it && notice.attempts >= ATTEMPTS) {
        notice.state = NoticeState::Failed;
        notice.next_attempt = rests_on_it.then(|| later(next, TRIED_AGAIN_AFTER));
    } else {
        notice.next_attempt = Some(next);
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
