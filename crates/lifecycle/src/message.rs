//! What owners of namespaces are notified of: the facts, from which each channel makes its text.

mod keep;

use std::collections::{BTreeMap, BTreeSet};

use coppice_api::health::HealthReason;
use coppice_api::identity::LinkKeys;
pub use coppice_api::notify::MessageLink;
use coppice_api::notify::{MessageAbout, SupersededMessage, WorkingHours};
use coppice_api::steps::Notice;
use coppice_api::text::acts_on_terminal;
use coppice_api::{FailingObject, Losses, ManagedNamespaceStatus, NamespacePhase, Reason};
use jiff::Timestamp;
use serde::Serialize;

use keep::Keep;

use crate::cluster::{ValidClusterManager, ValidHealth};
use crate::condition::{later, whole_second_after};
use crate::digest::id_of;
use crate::facts::NamespaceFacts;

/// The longest URL that is shown.
const MAX_URL: usize = 2048;
/// So many of what is failing are named in a text.
const NAMED: usize = 3;

/// A message to the owner of a namespace, due by a channel.
#[derive(Clone, Debug, PartialEq)]
pub struct OwnerMessage {
    /// Its id, the same in every attempt.
    pub key: String,
    /// The channel, by its name in the settings.
    pub channel: String,
    /// To whom; none where the channel itself says that.
    pub to: Option<String>,
    /// What it says.
    pub content: MessageContent,
}

/// The id of a message that joins those with these ids: the same for the same ones, whatever their order, and another one for any others.
pub fn joined_key<'a>(keys: impl IntoIterator<Item = &'a str>) -> String {
    let keys: BTreeSet<&str> = keys.into_iter().collect();
    let [first, last] = [keys.first(), keys.last()].map(|key| key.copied().unwrap_or_default());
    id_of(&format!("{first}-to-{last}"), keys.iter().copied())
}

/// What the owner of a namespace is notified of once it is gone.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MessagesWhenGone {
    /// One message for each channel.
    pub messages: Vec<OwnerMessage>,
    /// What was still to be sent by these channels, and is not any more.
    pub superseded: Vec<SupersededMessage>,
    /// When it is sent; none for at any time.
    pub working_hours: Option<WorkingHours>,
}

/// What a message says. Templates have these names, and so has the body of a webhook.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MessageContent {
    /// What it is about.
    #[serde(rename = "for")]
    pub about: MessageAbout,
    /// The namespace's name.
    pub namespace: String,
    /// Its uid.
    pub uid: String,
    /// The cluster manager.
    pub manager: String,
    /// Who owns the namespace, as its record has it; none if nothing says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// When this was written down.
    pub given_at: Timestamp,
    /// Why, in a sentence without a full stop.
    pub why: String,
    /// The deletion that it announces, withdraws or reports.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion: Option<DeletionContent>,
    /// When its time to live ends; none if it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// What is failing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failing: Vec<FailingObject>,
    /// What to do about each reason of these, in the words of the cluster manager if it has some.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub advice: BTreeMap<String, String>,
    /// The namespace that has taken its place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub successor: Option<String>,
    /// Whether nothing will be deleted, whatever this says: the cluster manager observes, or has no policy that deletes.
    pub observing: bool,
    /// Where to read more, such as at the CI job that made the namespace. Only `https`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<MessageLink>,
    /// The command that keeps the namespace, as far as the limits of its cluster manager let it; none where nothing does any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep: Option<String>,
    /// Whether there is no such command because these limits are reached.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub limit_reached: bool,
}

/// What a message says of a deletion.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DeletionContent {
    /// The policy.
    pub policy: String,
    /// Not before this instant; of one that has happened, when it was decided.
    pub at: Timestamp,
    /// Why: an enumerated reason.
    pub reason: String,
    /// What is lost with the namespace; none if that was not looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub losses: Option<Losses>,
}

/// What a message is made from.
#[derive(Clone, Copy, Debug)]
pub struct MessageSource<'a> {
    /// The status of the record of the namespace.
    pub status: &'a ManagedNamespaceStatus,
    /// The name of the cluster manager.
    pub manager: &'a str,
    /// Its spec.
    pub spec: &'a ValidClusterManager,
    /// The namespace.
    pub namespace: &'a NamespaceFacts,
}

impl MessageSource<'_> {
    /// What a message says that was written down at an instant and is sent now.
    pub fn content(&self, about: MessageAbout, given_at: Timestamp, now: Timestamp) -> MessageContent {
        let Self { status, manager, spec, namespace } = *self;
        let is_gone = about == MessageAbout::Deleted;
        let of_deletion = is_gone || about == MessageAbout::DeletionAnnounced;
        let announced = status.steps.notice.as_ref().filter(|_| of_deletion);
        let observing = !spec.policies().iter().any(|policy| policy.enforces && policy.action.deletes());
        let fails = matches!(
            status.phase,
            Some(NamespacePhase::Unstable | NamespacePhase::Failing | NamespacePhase::Failed)
        );
        // Of what is gone nothing fails, and what failed is why; the message is sent by what `notification` keeps.
        let fails = fails && !is_gone;
        let kept = Keep::of(self, about, announced, now);
        MessageContent {
            about,
            namespace: namespace.name.clone(),
            uid: namespace.uid.clone(),
            manager: manager.to_owned(),
            owner: status.owner.clone(),
            given_at,
            why: self.why(about, announced),
            deletion: announced.map(|notice| DeletionContent {
                policy: notice.policy.clone(),
                at: if is_gone { now } else { self.deletion_at(notice, now) },
                reason: notice.reason.clone().unwrap_or_default(),
                losses: notice.losses.clone().filter(|losses| !losses.is_empty()),
            }),
            expires_at: status.expires_at,
            advice: if fails { advice(spec.health.as_ref(), &status.failing) } else { BTreeMap::new() },
            failing: if fails { status.failing.clone() } else { Vec::new() },
            successor: status.superseded_by.as_ref().map(|by| by.namespace.clone()),
            observing: observing && !is_gone,
            links: self.links(),
            limit_reached: kept == Keep::LimitReached,
            keep: kept.command(),
        }
    }

    /// When a deletion that is announced now takes place at the earliest: its notice runs from there, also where it was to be announced earlier.
    fn deletion_at(&self, notice: &Notice, now: Timestamp) -> Timestamp {
        let policy = self.spec.policies().iter().find(|policy| policy.name == notice.policy);
        policy.map_or(notice.not_before, |policy| {
            notice.not_before.max(later(whole_second_after(now), policy.action.notice()))
        })
    }

    /// What is to be said when the namespace is gone, for this reason.
    pub fn when_gone(&self, reason: &str, given_at: Timestamp) -> MessageContent {
        let content = self.content(MessageAbout::Deleted, given_at, given_at);
        MessageContent { why: self.why_deleted(Reason::parse(reason)), ..content }
    }

    /// Those of the annotations that are `https` URLs.
    fn links(&self) -> Vec<MessageLink> {
        let keys = self.spec.links.iter().flat_map(LinkKeys::keys);
        let links = keys.filter_map(|(name, key)| {
            // What was not read yet is missing in one message; nothing rests on it.
            let url = self.namespace.annotations.get(key).ok()??;
            is_link(url).then(|| MessageLink { name: name.to_owned(), url: url.to_owned() })
        });
        links.collect()
    }

    fn expires(&self) -> String {
        match self.status.expires_at {
            Some(at) => format!("its time to live ends at {at:.0}"),
            None => "its time to live is over".to_owned(),
        }
    }

    fn replaced(&self) -> String {
        match &self.status.superseded_by {
            Some(by) => format!("namespace {} has taken its place", by.namespace),
            None => "a later namespace has taken its place".to_owned(),
        }
    }

    fn fails(&self) -> String {
        match failing_text(self.status) {
            text if text.is_empty() => "it does not work as it should".to_owned(),
            text => format!("it does not work as it should: {text}"),
        }
    }

    /// Why it is deleted, in words for the owner.
    fn why_deleted(&self, reason: Option<Reason>) -> String {
        match reason {
            Some(Reason::TtlElapsed) => self.expires(),
            Some(Reason::Superseded) => self.replaced(),
            Some(Reason::PodsSucceeded) => "its pods have succeeded".to_owned(),
            Some(Reason::Unhealthy) => self.fails(),
            // A notice that an earlier version gave has no reason.
            _ => match self.status.phase {
                Some(NamespacePhase::Stale) => self.expires(),
                Some(NamespacePhase::Superseded) => self.replaced(),
                _ => self.fails(),
            },
        }
    }

    /// Why, in words for the owner.
    fn why(&self, about: MessageAbout, announced: Option<&Notice>) -> String {
        let reason = || Reason::parse(announced?.reason.as_deref()?);
        match about {
            MessageAbout::DeletionAnnounced | MessageAbout::Deleted => self.why_deleted(reason()),
            MessageAbout::NoticeWithdrawn => "what it was announced for is no longer so".to_owned(),
            MessageAbout::Unstable | MessageAbout::Failing | MessageAbout::Failed => self.fails(),
            MessageAbout::Stale | MessageAbout::Expiring => self.expires(),
            MessageAbout::Superseded => self.replaced(),
            MessageAbout::Recovered => "nothing fails any more".to_owned(),
        }
    }
}

/// Whether a text is a URL that people can be led to.
fn is_link(url: &str) -> bool {
    let odd = |c: char| c.is_whitespace() || c.is_control() || acts_on_terminal(c) || "<>\"'`|\\".contains(c);
    url.len() <= MAX_URL
        && url
            .strip_prefix("https://")
            .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_alphanumeric()))
        && !url.contains(odd)
}

/// What to do about what is failing, by reason: in the words of the cluster manager that governs the namespace, if it has some.
pub fn advice(health: Option<&ValidHealth>, failing: &[FailingObject]) -> BTreeMap<String, String> {
    let reasons = failing.iter().filter_map(|one| HealthReason::parse(&one.reason));
    let advice = reasons.map(|reason| {
        let text = health.map_or_else(|| reason.advice(), |health| health.advice(reason));
        (reason.as_str().to_owned(), text.to_owned())
    });
    advice.collect()
}

/// What is failing, in short; empty if nobody looks at the health.
pub(crate) fn failing_text(status: &ManagedNamespaceStatus) -> String {
    if status.health.is_none() {
        return String::new();
    }
    let named = status.failing.iter().take(NAMED);
    let named: Vec<_> = named.map(|one| format!("{} {} ({})", one.kind, one.name, one.reason)).collect();
    let more = status.failing.len().saturating_sub(NAMED) + status.failing_more.unwrap_or(0) as usize;
    match (named.is_empty(), more) {
        (true, _) => "nothing fails at present".to_owned(),
        (false, 0) => named.join(", "),
        (false, more) => format!("{} and {more} more", named.join(", ")),
    }
}

/// What was said of each object that is failing; empty if nothing fails, or nobody looks at the health.
pub(crate) fn failing_messages(status: &ManagedNamespaceStatus) -> String {
    let failing = status.failing.iter().filter(|one| status.health.is_some() && !one.message.is_empty());
    let said: Vec<_> = failing.map(|one| format!("{} {}: {}", one.kind, one.name, one.message)).collect();
    said.join("; ")
}

#[cfg(test)]
mod tests {
    use super::joined_key;

    #[test]
    fn the_key_of_joined_messages_follows_from_which_they_are() {
        let key = joined_key(["notice-b", "notice-a", "notice-c"]);
        assert_eq!(key, joined_key(["notice-c", "notice-b", "notice-a"]));
        assert!(key.starts_with("notice-a-to-notice-c-"), "{key}");
        assert_ne!(key, joined_key(["notice-a", "notice-c"]));
        assert_ne!(key, joined_key(["notice-a", "notice-d", "notice-c"]));
    }
}
