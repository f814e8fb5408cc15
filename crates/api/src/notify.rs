//! What owners of namespaces are notified of, and what is known of the delivery.

use coppice_quantity::Duration;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema;

/// The most notices that a record lists.
pub const MAX_NOTICES: usize = 20;

/// What owners of namespaces are notified of, and by which channels. The announcement of a deletion is always one of it; a deletion that
/// was announced waits until somebody has been notified, and then for the policy's whole notice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Notify {
    /// The names of channels in `spec.channels` of `CoppiceConfig`: a message is sent by each of them for which the owner, or the
    /// fallback, has an address.
    #[schemars(length(min = 1, max = 4), inner(length(min = 1, max = 63)), extend("x-kubernetes-list-type" = "set"))]
    pub channels: Vec<String>,
    /// What else owners are notified of. Default: nothing, so that owners get only the messages that the platform chose.
    #[serde(default)]
    #[schemars(length(max = 8), extend("x-kubernetes-list-type" = "set"))]
    pub on: Vec<NotifyOn>,
    /// How long before a namespace expires its owner is reminded, where `on` has `Expiring`. Default: `[24h, 1h]`, which is in
    /// time for people who are away for a night; what is not less than the namespace's whole time to live is left out.
    #[serde(default = "reminders")]
    #[schemars(schema_with = "schema::reminders", default = "reminders")]
    pub reminders: Vec<Duration>,
    /// What becomes of a deletion whose announcement cannot be delivered. Default: it waits, so that owners are notified before anything is deleted.
    #[serde(default)]
    pub undelivered: Undelivered,
    /// When messages are sent. One that is held back is not delivered: the deletion that it announces waits. Default: at any time,
    /// so that no deletion waits for the morning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub working_hours: Option<WorkingHours>,
}

/// When people are at work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "self.from < self.to",
    "message": "workingHours.from must be before workingHours.to, such as from: '08:00', to: '18:00'"
}]))]
pub struct WorkingHours {
    /// The time zone, by its name in the IANA database, such as `Europe/Berlin`.
    #[schemars(length(min = 1, max = 64), extend("x-kubernetes-validations" = [{
        "rule": "self.matches('^[A-Za-z][A-Za-z0-9_+/-]*$')",
        "message": "write the name of a time zone in the IANA database, such as Europe/Berlin or UTC"
    }]))]
    pub time_zone: String,
    /// The start of working hours, as `HH:MM`. Default: `08:00`, when most people are at work.
    #[serde(default = "eight")]
    #[schemars(length(max = 5), extend("x-kubernetes-validations" = [{
        "rule": "self.matches('^([01][0-9]|2[0-3]):[0-5][0-9]$')",
        "message": "write a time of the day as HH:MM, from 00:00 to 23:59, such as '08:00'"
    }]))]
    pub from: String,
    /// The end of working hours, as `HH:MM`, that minute not included; `24:00` is the end of the day. Default: `18:00`, when
    /// most people have gone home.
    #[serde(default = "eighteen")]
    #[schemars(length(max = 5), extend("x-kubernetes-validations" = [{
        "rule": "self.matches('^(([01][0-9]|2[0-3]):[0-5][0-9]|24:00)$')",
        "message": "write a time of the day as HH:MM, from 00:00 to 24:00, such as '18:00'"
    }]))]
    pub to: String,
    /// The working days. Default: Monday to Friday, as in most countries.
    #[serde(default = "weekdays")]
    #[schemars(length(min = 1, max = 7), extend("x-kubernetes-list-type" = "set"))]
    pub days: Vec<Weekday>,
}

fn eight() -> String {
    "08:00".to_owned()
}

fn eighteen() -> String {
    "18:00".to_owned()
}

fn weekdays() -> Vec<Weekday> {
    use Weekday::{Friday, Monday, Thursday, Tuesday, Wednesday};
    vec![Monday, Tuesday, Wednesday, Thursday, Friday]
}

/// A day of the week.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[allow(missing_docs, reason = "they are what they are called")]
pub enum Weekday {
    Monday,
    Tuesday,
    Wednesday,
    Thursday,
    Friday,
    Saturday,
    Sunday,
}

fn reminders() -> Vec<Duration> {
    vec![Duration::from_secs(24 * 3600), Duration::from_secs(3600)]
}

/// What owners are notified of, besides the announcement of a deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum NotifyOn {
    /// Something fails.
    Unstable,
    /// Something has been failing for `settlingPeriod`, or again and again.
    Failing,
    /// It has been `Failing` for `gracePeriod`.
    Failed,
    /// The time to live is over.
    Stale,
    /// A later namespace has taken its place.
    Superseded,
    /// Nothing fails any more, after its owner was notified that something does.
    Recovered,
    /// Its time to live ends soon: see `reminders`.
    Expiring,
    /// It is gone: Coppice has deleted it. By a channel by which something else was still to be said, owners are notified of that in
    /// any case.
    Deleted,
}

/// What becomes of a deletion whose announcement is not delivered by any channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Undelivered {
    /// After this time `then` applies. Default: 30m, in which a mail server that was restarted is back.
    #[serde(default = "half_an_hour")]
    #[schemars(schema_with = "schema::positive_delivery_time", default = "half_an_hour")]
    pub after: Duration,
    /// What happens then. Default: `Wait`, so that owners are notified before anything is deleted.
    #[serde(default)]
    pub then: UndeliveredThen,
}

impl Default for Undelivered {
    fn default() -> Self {
        Self { after: half_an_hour(), then: UndeliveredThen::Wait }
    }
}

const fn half_an_hour() -> Duration {
    Duration::from_secs(30 * 60)
}

/// What becomes of a deletion whose announcement was not delivered in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum UndeliveredThen {
    /// It waits until somebody has been notified: indefinitely if no recipient exists.
    #[default]
    Wait,
    /// The policy's notice begins then.
    Proceed,
}

/// What an owner is notified of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum MessageAbout {
    /// The namespace will be deleted.
    DeletionAnnounced,
    /// It will not be deleted, as it was announced.
    NoticeWithdrawn,
    /// Something fails.
    Unstable,
    /// Something has been failing for long.
    Failing,
    /// It has been failing for too long.
    Failed,
    /// Its time to live is over.
    Stale,
    /// A later namespace has taken its place.
    Superseded,
    /// Nothing fails any more.
    Recovered,
    /// Its time to live ends soon.
    Expiring,
    /// It is gone.
    Deleted,
}

impl MessageAbout {
    /// Every one of them.
    pub const ALL: [Self; 10] = [
        Self::DeletionAnnounced,
        Self::NoticeWithdrawn,
        Self::Unstable,
        Self::Failing,
        Self::Failed,
        Self::Stale,
        Self::Superseded,
        Self::Recovered,
        Self::Expiring,
        Self::Deleted,
    ];

    /// As it is written.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::DeletionAnnounced => "DeletionAnnounced",
            Self::NoticeWithdrawn => "NoticeWithdrawn",
            Self::Unstable => "Unstable",
            Self::Failing => "Failing",
            Self::Failed => "Failed",
            Self::Stale => "Stale",
            Self::Superseded => "Superseded",
            Self::Recovered => "Recovered",
            Self::Expiring => "Expiring",
            Self::Deleted => "Deleted",
        }
    }
}

impl std::fmt::Display for MessageAbout {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A message to an owner, and what is known of its delivery. It is written down before the first attempt to deliver it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MessageDelivery {
    /// Its id: the same in every attempt, so that receivers recognize repetitions.
    #[schemars(length(max = 128))]
    pub key: String,
    /// What it is about.
    #[serde(rename = "for")]
    pub about: MessageAbout,
    /// The channel.
    #[schemars(length(max = 63))]
    pub channel: String,
    /// To whom, masked; absent where the channel itself says that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub to: Option<String>,
    /// Which address that is, where several look the same in `to`: a digest of it for messages about this namespace, by a key that
    /// follows from the operator's signing key. Absent where `to` is, and in what earlier versions have written, of which `to` has to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub to_digest: Option<String>,
    /// Whether it goes to the fallback, since each of the owner's own addresses was refused for good.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fallback: bool,
    /// Where its delivery stands.
    pub state: MessageState,
    /// Failed attempts so far.
    #[serde(default)]
    pub attempts: u32,
    /// No attempt before this instant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::status_instant")]
    pub next_attempt: Option<Timestamp>,
    /// When it was written down; of an announcement, when notice was given.
    #[schemars(schema_with = "schema::status_instant")]
    pub given_at: Timestamp,
    /// When it was delivered; absent if it was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::status_instant")]
    pub delivered_at: Option<Timestamp>,
    /// What went wrong at the last attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub last_error: Option<String>,
}

/// What the owner of a namespace is to be notified of once it is gone: written down before it is deleted, since nothing of it is left then.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeletionNotification {
    /// Who owned the namespace; absent if nothing said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub owner: Option<String>,
    /// Why it is deleted, in a sentence without a full stop.
    #[schemars(length(max = 2048))]
    pub why: String,
    /// The namespace that has taken its place; absent if none has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub successor: Option<String>,
    /// When its time to live ended, or would have; absent if it had none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::status_instant")]
    pub expires_at: Option<Timestamp>,
    /// Where to read more, as its annotations had it. Atomic, since it is written once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 2), extend("x-kubernetes-list-type" = "atomic"))]
    pub links: Vec<MessageLink>,
    /// When it is sent, as the cluster manager had it; absent for at any time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub working_hours: Option<WorkingHours>,
    /// One for each channel. Atomic, since it is written once.
    #[schemars(length(max = 4), extend("x-kubernetes-list-type" = "atomic"))]
    pub messages: Vec<NotificationMessage>,
    /// Messages about the namespace that were still to be delivered by these channels when its deletion was decided, and are superseded by
    /// `Deleted`: they are not sent any more, since that says what came of it. Default: none,
    /// where all were delivered. Atomic, since it is written once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20), extend("x-kubernetes-list-type" = "atomic"))]
    pub superseded: Vec<SupersededMessage>,
}

/// A message that is not sent any more, since its namespace is gone and another one says so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SupersededMessage {
    /// Its id.
    #[schemars(length(max = 128))]
    pub key: String,
    /// What it was about.
    #[serde(rename = "for")]
    pub about: MessageAbout,
    /// The channel.
    #[schemars(length(max = 63))]
    pub channel: String,
    /// Why it had not been delivered before, if an attempt says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub last_error: Option<String>,
}

/// A link in a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MessageLink {
    /// What it leads to: `job` or `pipeline`.
    #[schemars(length(max = 63))]
    pub name: String,
    /// An `https` URL.
    #[schemars(length(max = 2048))]
    pub url: String,
}

/// A message that is to be sent once a namespace is gone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NotificationMessage {
    /// Its id.
    #[schemars(length(max = 128))]
    pub key: String,
    /// The channel.
    #[schemars(length(max = 63))]
    pub channel: String,
    /// To whom, masked; absent where the channel itself says that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub to: Option<String>,
    /// To whom, sealed with a key that the operator alone has; absent where the channel itself says that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub sealed_to: Option<String>,
}

/// Where the delivery of a notice stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum MessageState {
    /// It is to be delivered, or tried again.
    Pending,
    /// The channel has taken it.
    Delivered,
    /// It could not be delivered, and no further attempt is made. The announcement that a deletion waits for is tried again once a day,
    /// and at once where the owner has another address.
    Failed,
}

impl MessageState {
    /// Every one of them.
    pub const ALL: [Self; 3] = [Self::Pending, Self::Delivered, Self::Failed];

    /// As it is written.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Delivered => "Delivered",
            Self::Failed => "Failed",
        }
    }
}
