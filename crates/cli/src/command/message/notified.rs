//! Who gets a message, and why nobody does.

use coppice_api::CoppiceConfigSpec;
use coppice_api::channel::{Channel, RecipientKind};
use coppice_api::notify::{MessageAbout, Notify, NotifyOn};
use coppice_lifecycle::cluster::{masked, recipients_of};
use serde::Serialize;

use super::{Part, Subject};

/// A channel that the cluster manager names.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Receiver {
    /// Its name.
    pub(super) channel: String,
    /// To whom, masked as records show it; none where the channel itself says that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) to: Option<String>,
    /// Why nobody gets anything by it, if so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) problem: Option<String>,
    /// What it sends of a message.
    #[serde(skip)]
    pub(super) part: Part,
}

impl Receiver {
    /// Whether somebody gets messages by it.
    pub(super) const fn receives(&self) -> bool {
        self.problem.is_none()
    }

    /// For people: `mail to j***@example.org`.
    fn text(&self) -> String {
        let to = self.to.as_ref().map_or_else(String::new, |to| format!(" to {to}"));
        format!("{}{to}", self.channel)
    }
}

/// The channels of a cluster manager, and who gets messages about a namespace by each of them.
pub(super) fn receivers(subject: &Subject, config: &CoppiceConfigSpec) -> Vec<Receiver> {
    let Some(notify) = &subject.spec.notify else { return Vec::new() };
    let find = |name: &String| config.channels.iter().find(|channel| channel.name == *name);
    let kinds: Vec<RecipientKind> =
        notify.channels.iter().filter_map(find).map(Channel::recipient_kind).collect();
    let source = subject.spec.owner.as_ref();
    // All annotations were read.
    let recipients = source.and_then(|source| recipients_of(source, &subject.facts).ok()).unwrap_or_default();
    let receiver = |name: &String| {
        let of = |part: Part, to: Option<String>, problem: Option<&str>| Receiver {
            channel: name.clone(),
            to,
            problem: problem.map(str::to_owned),
            part,
        };
        let Some(channel) = find(name) else {
            return of(Part::Content, None, Some("CoppiceConfig/coppice has no such channel"));
        };
        let Channel { name: _, webhook: _, slack, email } = channel;
        let part = match (slack, email) {
            (Some(_), _) => Part::Slack,
            (None, Some(_)) => Part::Mail,
            (None, None) => Part::Content,
        };
        let kind = channel.recipient_kind();
        let to = recipients.address(kind, &kinds).map(|to| masked(kind, to));
        let nobody = kind != RecipientKind::None && to.is_none();
        let nobody = nobody.then_some("neither the namespace nor owner.fallback has an address for it");
        of(part, to, nobody)
    };
    notify.channels.iter().map(receiver).collect()
}

/// Why nobody gets any message about a namespace, if so.
pub(super) fn nobody(subject: &Subject, receivers: &[Receiver]) -> Option<String> {
    if subject.spec.notify.is_none() {
        return Some(format!("{} has no spec.notify", subject.manager()));
    }
    if receivers.iter().any(Receiver::receives) {
        return None;
    }
    let problem =
        |one: &Receiver| format!("channel {}: {}", one.channel, one.problem.as_deref().unwrap_or_default());
    Some(receivers.iter().map(problem).collect::<Vec<_>>().join("; "))
}

/// Why nobody gets a message of this kind, if so.
pub(super) fn undelivered_reason(
    subject: &Subject,
    about: MessageAbout,
    receivers: &[Receiver],
) -> Option<String> {
    if let Some(why) = nobody(subject, receivers) {
        return Some(why);
    }
    let on = |on: &Notify, kind: NotifyOn| on.on.contains(&kind);
    let asked = |kind: NotifyOn| subject.spec.notify.as_ref().is_some_and(|notify| on(notify, kind));
    let kind = match about {
        MessageAbout::DeletionAnnounced | MessageAbout::NoticeWithdrawn => return unannounced(subject),
        MessageAbout::Unstable => NotifyOn::Unstable,
        MessageAbout::Failing => NotifyOn::Failing,
        MessageAbout::Failed => NotifyOn::Failed,
        MessageAbout::Stale => NotifyOn::Stale,
        MessageAbout::Superseded => NotifyOn::Superseded,
        MessageAbout::Recovered => NotifyOn::Recovered,
        MessageAbout::Expiring => NotifyOn::Expiring,
        MessageAbout::Deleted => NotifyOn::Deleted,
    };
    let never = undeleted(subject).filter(|_| kind == NotifyOn::Deleted);
    if never.is_some() {
        return never;
    }
    if !asked(kind) {
        return Some(format!("spec.notify.on of {} does not name {about}", subject.manager()));
    }
    let fails = [NotifyOn::Unstable, NotifyOn::Failing, NotifyOn::Failed];
    let never_notified = kind == NotifyOn::Recovered && !fails.into_iter().any(asked);
    never_notified.then(|| {
        format!(
            "spec.notify.on of {} names neither Unstable, Failing nor Failed: recovery is sent only to recipients of a failure message",
            subject.manager()
        )
    })
}

/// Why nothing is deleted.
fn undeleted(subject: &Subject) -> Option<String> {
    let mut deleting = subject.spec.policies().iter().filter(|policy| policy.action.deletes()).peekable();
    let manager = subject.manager();
    if deleting.peek().is_none() {
        return Some(format!("{manager} has no policy that deletes"));
    }
    (!deleting.any(|policy| policy.enforces)).then(|| {
        format!(
            "{manager} observes: nothing is announced or deleted before it and a policy that deletes enforce"
        )
    })
}

/// Why no deletion is announced.
fn unannounced(subject: &Subject) -> Option<String> {
    let never = undeleted(subject);
    if never.is_some() {
        return never;
    }
    let mut deleting =
        subject.spec.policies().iter().filter(|policy| policy.enforces && policy.action.deletes());
    let announces = deleting.any(|policy| !policy.action.notice().is_zero());
    (!announces)
        .then(|| format!("no policy of {} that deletes gives notice (then.delete.notice)", subject.manager()))
}
/// Why nobody gets this part of a message, if so.
pub(super) fn unsent(part: Part, receivers: &[Receiver]) -> Option<String> {
    let form = |part: Part| match part {
        // Both are parts of one mail.
        Part::Mail | Part::Html => Some(Part::Mail),
        Part::Slack => Some(Part::Slack),
        // These are for programs.
        Part::Content | Part::Json => None,
    };
    let wanted = form(part)?;
    let mut sent = receivers.iter().filter(|one| one.receives());
    if sent.any(|one| form(one.part) == Some(wanted)) {
        return None;
    }
    Some(format!("nobody gets it in this form; messages go by {}", to_whom(receivers)?))
}

/// To whom messages go; none if to nobody.
pub(super) fn to_whom(receivers: &[Receiver]) -> Option<String> {
    let all: Vec<String> = receivers.iter().filter(|one| one.receives()).map(Receiver::text).collect();
    (!all.is_empty()).then(|| all.join(", "))
}
