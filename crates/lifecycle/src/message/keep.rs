//! The command that keeps a namespace, within the limits of its cluster manager.

use coppice_api::Reason;
use coppice_api::notify::MessageAbout;
use coppice_api::steps::Notice;
use coppice_quantity::Duration;
use jiff::Timestamp;

use super::MessageSource;
use crate::cluster::hold_left;

/// For how long a namespace is kept, where nothing limits that.
const DAY: Duration = Duration::from_secs(24 * 3600);
/// Less than this is not worth a command: it would be over before somebody has read about it.
const SHORTEST: Duration = Duration::from_secs(5 * 60);

/// What keeps a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Keep {
    /// There is nothing to keep it from.
    NotNeeded,
    /// This command, as it can be run when the message is sent.
    Command(String),
    /// No command does: the limits of its cluster manager are reached.
    LimitReached,
}

impl Keep {
    /// For a message about this.
    pub(super) fn of(
        source: &MessageSource<'_>,
        about: MessageAbout,
        announced: Option<&Notice>,
        now: Timestamp,
    ) -> Self {
        let by_ttl =
            announced.is_some_and(|notice| notice.reason.as_deref() == Some(Reason::TtlElapsed.as_str()));
        // A later end of the ttl changes nothing about anything but the ttl; a hold stops every policy.
        let command = match about {
            MessageAbout::NoticeWithdrawn | MessageAbout::Recovered | MessageAbout::Deleted => {
                return Self::NotNeeded;
            }
            MessageAbout::Expiring | MessageAbout::Stale => extend(source, now).or_else(|| hold(source, now)),
            MessageAbout::DeletionAnnounced if by_ttl => extend(source, now).or_else(|| hold(source, now)),
            MessageAbout::DeletionAnnounced
            | MessageAbout::Unstable
            | MessageAbout::Failing
            | MessageAbout::Failed
            | MessageAbout::Superseded => hold(source, now),
        };
        command.map_or(Self::LimitReached, Self::Command)
    }

    /// The command, if there is one.
    pub(super) fn command(self) -> Option<String> {
        match self {
            Self::Command(command) => Some(command),
            Self::NotNeeded | Self::LimitReached => None,
        }
    }
}

fn extend(source: &MessageSource<'_>, now: Timestamp) -> Option<String> {
    let status = source.status;
    let latest = status.limits.as_ref().and_then(|limits| limits.latest_end);
    // From when it ends; from now, if that has passed.
    let from = status.expires_at.map_or(now, |at| at.max(now));
    let left = latest.map(|latest| u64::try_from(latest.duration_since(from).as_secs()).unwrap_or(0));
    let by = time(left.map(Duration::from_secs))?;
    Some(format!("coppice extend {} --by {by}", source.namespace.name))
}

fn hold(source: &MessageSource<'_>, now: Timestamp) -> Option<String> {
    let status = source.status;
    let left = hold_left(status.limits.as_ref(), status.held.as_ref(), source.spec, now);
    let by = time(left)?;
    Some(format!("coppice hold {} --for {by} --reason \"still needed\"", source.namespace.name))
}

/// A day or as much as is left of a limit, in whole minutes; none if that is too little.
fn time(left: Option<Duration>) -> Option<String> {
    match left {
        None => Some("24h".to_owned()),
        Some(left) if left >= DAY => Some("24h".to_owned()),
        Some(left) if left >= SHORTEST => Some(Duration::from_secs(left.as_secs() / 60 * 60).to_string()),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_or_what_is_left_in_whole_minutes_or_nothing() {
        let left = |seconds| time(Some(Duration::from_secs(seconds)));
        assert_eq!(time(None).as_deref(), Some("24h"));
        assert_eq!(left(90_000).as_deref(), Some("24h"));
        assert_eq!(left(5_459).as_deref(), Some("1h30m"));
        assert_eq!(left(300).as_deref(), Some("5m"));
        assert_eq!(left(299), None);
    }
}
