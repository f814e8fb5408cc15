//! What the owner of a namespace is notified of, in its record: written down before it is sent, and kept until it is delivered.

use coppice_api::channel::RecipientKind;
use coppice_api::notify::{
    MAX_NOTICES, MessageAbout, MessageDelivery, MessageState, Notify, NotifyOn, UndeliveredThen,
};
use coppice_api::steps::Notice;
use coppice_api::{ManagedNamespaceStatus, NamespacePhase, Reason};
use coppice_mutants::{Mutant, active};
use jiff::{SignedDuration, Timestamp};

use super::{Builder, Governed};
use crate::cluster::recipient::{AddressKey, Recipients, RecordedRecipient, recipients_of};
use crate::cluster::selection::SelectingManager;
use crate::condition::{later, whole_second_after};
use crate::delivery::{FailureCause, begin_again, failed, pending, record_attempt};
use crate::digest::id_of;
use crate::facts::NamespaceFacts;
use crate::message::{MessageSource, OwnerMessage};
use crate::plan::{Delivery, earlier};
use crate::steps::NoticeDelivery;

mod when_gone;

/// The `lastError` of a message that waits for working hours. A record has no other field that says so: the text does not change, so
/// that the next version knows it.
const HELD_FOR_WORKING_HOURS: &str = "held back until working hours";

fn is_held_for_working_hours(message: &MessageDelivery) -> bool {
    message.last_error.as_deref() == Some(HELD_FOR_WORKING_HOURS)
}

/// Who is notified, by what, under a cluster manager that has a namespace's owner notified.
#[derive(Clone, Debug)]
pub(super) struct NotificationTargets<'a> {
    manager: SelectingManager<'a>,
    notify: &'a Notify,
    namespace: &'a NamespaceFacts,
    recipients: Recipients,
    /// Nobody is notified before.
    settled_at: Timestamp,
    /// By name, what each channel needs to know of a recipient; none if there is no such channel.
    channels: Vec<(&'a str, Option<RecipientKind>)>,
    address_key: Option<&'a AddressKey>,
}

/// To whom a message goes.
#[derive(Clone, Copy)]
enum Recipient<'a> {
    /// There is no address for it.
    Nobody,
    /// To whom the channel says.
    OfChannel,
    /// To this address.
    At(RecipientKind, &'a str),
}

impl<'a> NotificationTargets<'a> {
    /// None where nobody is notified, or where it is not known at present who would be.
    pub(super) fn of(builder: &Builder<'a>, governed: &Governed<'a>) -> Option<Self> {
        let Governed { manager, namespace, settled_at, .. } = *governed;
        let notify = manager.spec.notify.as_ref()?;
        let owner = manager.spec.owner.as_ref();
        let recipients = owner.map(|source| recipients_of(source, namespace)).transpose().ok()?;
        let known = &builder.observed.settings.config.channels;
        let channels = notify.channels.iter().map(|name| {
            let channel = known.iter().find(|channel| channel.name == *name);
            (&**name, channel.map(coppice_api::channel::Channel::recipient_kind))
        });
        let (recipients, channels) = (recipients.unwrap_or_default(), channels.collect());
        let address_key = builder.observed.address_key;
        Some(Self { manager, notify, namespace, recipients, settled_at, channels, address_key })
    }

    /// To whom a message goes by a channel of this kind.
    fn recipient(&self, kind: RecipientKind) -> Recipient<'_> {
        if kind == RecipientKind::None {
            return Recipient::OfChannel;
        }
        let kinds: Vec<_> = self.channels.iter().filter_map(|(_, kind)| *kind).collect();
        self.recipients.address(kind, &kinds).map_or(Recipient::Nobody, |to| Recipient::At(kind, to))
    }

    /// To whom this message goes by its channel.
    fn recipient_of(&self, message: &MessageDelivery, kind: RecipientKind) -> Recipient<'_> {
        match self.recipients.fallback(kind).filter(|_| message.fallback) {
            Some(to) => Recipient::At(kind, to),
            None => self.recipient(kind),
        }
    }

    /// As records have it.
    fn recorded(&self, recipient: Recipient<'_>) -> RecordedRecipient {
        match recipient {
            Recipient::Nobody | Recipient::OfChannel => RecordedRecipient::default(),
            Recipient::At(kind, to) => {
                RecordedRecipient::at((kind, to), &self.namespace.uid, self.address_key)
            }
        }
    }

    /// The kind of a channel, by its name; none if there is none that the manager names.
    fn kind(&self, channel: &str) -> Option<RecipientKind> {
        self.channels.iter().find(|(name, _)| *name == channel)?.1
    }

    fn notifies(&self, on: NotifyOn) -> bool {
        self.notify.on.contains(&on)
    }
}

impl Builder<'_> {
    /// Writes down what came of attempts to tell the owner, whatever has changed meanwhile.
    pub(super) fn record_deliveries(&mut self) {
        let (now, observed) = (self.now, self.observed);
        for message in self.status.notices.iter_mut().filter(|message| message.state == MessageState::Pending)
        {
            if let Some(delivery) = observed.deliveries.get(&message.key) {
                record_attempt(message, delivery, now);
            }
            let rests_on_it = message.about == MessageAbout::DeletionAnnounced;
            if active(Mutant::UnsentIsDelivered) && !rests_on_it && message.attempts > 0 {
                (message.state, message.next_attempt) = (MessageState::Delivered, None);
            }
        }
        if active(Mutant::FailedNoticeDropped) {
            let rests_on_it = |one: &MessageDelivery| one.about == MessageAbout::DeletionAnnounced;
            self.status.notices.retain(|one| one.attempts == 0 || rests_on_it(one));
        }
        let given_up = self.status.notices.iter().filter(|message| message.state == MessageState::Failed);
        let before = &self.record.status.notices;
        let new = given_up.filter(|message| {
            before.iter().any(|known| known.key == message.key && known.state == MessageState::Pending)
        });
        let texts: Vec<_> = new
            .map(|message| {
                let error = message.last_error.as_deref().unwrap_or_default();
                format!(
                    "the owner was not notified of {} by channel {}: {error}",
                    message.about, message.channel
                )
            })
            .collect();
        for text in texts {
            self.note(true, Reason::NoticeFailed, text);
        }
    }

    /// Whether somebody has been notified of the deletion that this policy has announced, so that its notice runs.
    pub(super) fn notice_delivery(&self, governed: &Governed<'_>, policy: &str) -> NoticeDelivery {
        let Some(notify) = governed.manager.spec.notify.as_ref() else { return NoticeDelivery::NotNeeded };
        if active(Mutant::DeletedUnnotified) {
            return NoticeDelivery::NotNeeded;
        }
        let notice = self.status.steps.notice.as_ref();
        let Some(notice) = notice.filter(|notice| notice.policy == policy) else {
            return NoticeDelivery::NotNeeded;
        };
        let notified = || self.status.notices.iter().filter(|one| announces(&self.status, one, notice));
        if let Some(at) = notified().filter_map(|one| one.delivered_at).min() {
            return NoticeDelivery::At(at);
        }
        // What is held back for working hours could not have been delivered before they begin.
        let hours = governed.manager.spec.hours.as_ref();
        let sendable = hours.and_then(|hours| hours.begin_after(notice.given_at)).unwrap_or(notice.given_at);
        let deadline = later(sendable, notify.undelivered.after);
        let proceeds = notify.undelivered.then == UndeliveredThen::Proceed;
        if proceeds && deadline <= self.now {
            return NoticeDelivery::At(deadline);
        }
        let errors: Vec<_> = notified()
            .map(|one| match &one.last_error {
                Some(error) if one.attempts == 0 => format!("channel {}: {error}", one.channel),
                Some(error) => format!("channel {}, attempt {}: {error}", one.channel, one.attempts),
                None => format!("channel {}: under way", one.channel),
            })
            .collect();
        let why = if errors.is_empty() && self.is_full() {
            format!(
                "nobody has been notified yet: {MAX_NOTICES} messages about the namespace wait already, and the announcement \
                 takes the place of the first that is delivered or given up"
            )
        } else if errors.is_empty() {
            "nobody can be notified: the namespace has no owner with an address for any channel of spec.notify"
                .to_owned()
        } else {
            format!("nobody has been notified yet ({})", errors.join("; "))
        };
        NoticeDelivery::Not(why, proceeds.then_some(deadline))
    }

    /// Writes down what the owner is to be notified of, and drops what nobody needs to be notified of any more; what is due now is in the plan.
    pub(super) fn update_messages(&mut self) -> Vec<OwnerMessage> {
        let Some(targets) = self.targets.clone() else { return Vec::new() };
        self.withdraw_announcements();
        if let Some(notice) = self.status.steps.notice.clone() {
            let about = MessageAbout::DeletionAnnounced;
            self.enqueue(&targets, about, &occasion_of(&notice.policy, notice.given_at), notice.given_at);
        }
        if targets.settled_at <= self.now && !targets.manager.spec.suspend {
            self.notify_phase(&targets);
            self.remind(&targets);
        }
        // Reminders whose time has come are sent then.
        self.check_no_later_than(Some(targets.settled_at).filter(|at| self.now < *at));
        self.drop_outdated_messages();
        self.notify_other_recipients(&targets);
        self.notify_fallback(&targets);
        let hours = targets.manager.spec.hours.as_ref().filter(|_| !active(Mutant::HoursIgnored));
        let begin = hours.and_then(|hours| hours.begin_after(self.now));
        let mut due = Vec::new();
        let mut checks = Vec::new();
        for message in &mut self.status.notices {
            let in_flight = self.observed.deliveries.get(&message.key) == Some(&Delivery::InFlight);
            if message.state != MessageState::Pending || in_flight {
                continue;
            }
            if is_held_for_working_hours(message) {
                // The hours may be others now.
                (message.next_attempt, message.last_error) = (None, None);
            }
            if let Some(at) = message.next_attempt.filter(|at| self.now < *at) {
                checks.push(at);
                continue;
            }
            if let Some(begin) = begin {
                (message.next_attempt, message.last_error) =
                    (Some(begin), Some(HELD_FOR_WORKING_HOURS.to_owned()));
                checks.push(begin);
                continue;
            }
            let problem = match targets.kind(&message.channel).map(|kind| targets.recipient_of(message, kind))
            {
                None => {
                    "CoppiceConfig/coppice has no such channel, or the cluster manager does not name it any more"
                }
                Some(Recipient::Nobody) => "there is no address of the owner for it any more",
                Some(to) => {
                    targets.recorded(to).write_to(message);
                    // An attempt is known by its number: it is written down before it is made.
                    let attempt = |one: &MessageDelivery| (one.state, one.attempts, one.fallback);
                    let known = self.record.status.notices.iter().find(|known| known.key == message.key);
                    let is_known = |known: &MessageDelivery| {
                        let same = RecordedRecipient::of(known).is_same(&RecordedRecipient::of(message));
                        attempt(known) == attempt(message) && same
                    };
                    if known.is_some_and(is_known) {
                        let to = if let Recipient::At(_, to) = to { Some(to.to_owned()) } else { None };
                        due.push((message.key.clone(), to));
                    }
                    continue;
                }
            };
            failed(message, problem, FailureCause::Message, SignedDuration::ZERO, self.now);
            checks.extend(message.next_attempt);
        }
        self.check_no_later_than(checks.into_iter().min());
        let messages = due.into_iter().filter_map(|(key, to)| self.message(&targets, &key, to));
        messages.collect()
    }

    /// What could not be delivered to one recipient is tried with another one, at once. What a deletion waits for is also tried again
    /// with the same one, a day later.
    fn notify_other_recipients(&mut self, targets: &NotificationTargets<'_>) {
        let (now, observed) = (self.now, self.observed);
        let announcing = self.announcing();
        let mut checks = Vec::new();
        for one in &mut self.status.notices {
            if observed.deliveries.contains_key(&one.key) {
                // What came of the last attempt must not be taken for what comes of the next one.
                continue;
            }
            let to = targets.kind(&one.channel).map(|kind| targets.recorded(targets.recipient_of(one, kind)));
            let other = to.is_some_and(|to| to.to.is_some() && !to.is_same(&RecordedRecipient::of(one)));
            let begins_again = match one.state {
                MessageState::Delivered => false,
                MessageState::Pending => other && one.attempts > 0,
                MessageState::Failed if !announcing.contains(&one.key) => false,
                MessageState::Failed => {
                    let due = one.next_attempt.is_some_and(|at| at <= now);
                    checks.extend(one.next_attempt.filter(|_| !due));
                    // The owner's own address comes first again, if there is one.
                    let own = targets.kind(&one.channel).map(|kind| targets.recipient(kind));
                    one.fallback &= !due || matches!(own, None | Some(Recipient::Nobody));
                    other || due
                }
            };
            if begins_again {
                begin_again(one);
            }
        }
        self.check_no_later_than(checks.into_iter().min());
    }

    /// Where every one of the owner's addresses was refused for good, the fallback is notified of a deletion.
    fn notify_fallback(&mut self, targets: &NotificationTargets<'_>) {
        let Some(notice) = self.status.steps.notice.clone() else { return };
        let announcing = self.announcing();
        let known = || self.status.notices.iter().filter(|one| announcing.contains(&one.key));
        let is_notified = known().any(|one| one.state == MessageState::Delivered);
        if known().any(|one| self.observed.deliveries.contains_key(&one.key)) {
            // As above.
            return;
        }
        // One that has nobody to go to any more is no hope.
        let is_addressed = |one: &&MessageDelivery| {
            let to = targets.kind(&one.channel).map(|kind| targets.recipient_of(one, kind));
            matches!(to, Some(Recipient::At(..)))
        };
        let mut addressed = known().filter(is_addressed).peekable();
        if is_notified || addressed.peek().is_none() || addressed.any(|one| one.state != MessageState::Failed)
        {
            return;
        }
        for (channel, kind) in &targets.channels {
            let Some((kind, to)) = kind.and_then(|kind| Some((kind, targets.recipients.fallback(kind)?)))
            else {
                continue;
            };
            let to = targets.recorded(Recipient::At(kind, to));
            let messages = &mut self.status.notices;
            match messages.iter_mut().find(|one| announcing.contains(&one.key) && one.channel == *channel) {
                Some(one) if one.fallback || to.is_same(&RecordedRecipient::of(one)) => {}
                Some(one) => {
                    one.fallback = true;
                    to.write_to(one);
                    begin_again(one);
                }
                None => {
                    let about = MessageAbout::DeletionAnnounced;
                    let occasion = occasion_of(&notice.policy, notice.given_at);
                    let key = key(&self.status, about, &occasion, channel);
                    let given_at = notice.given_at;
                    self.push(MessageDelivery {
                        fallback: true,
                        ..pending(key, (about, given_at), channel, to)
                    });
                }
            }
        }
    }

    /// The keys of the messages that announce the deletion of which notice is given.
    fn announcing(&self) -> Vec<String> {
        let status = &self.status;
        let Some(notice) = status.steps.notice.as_ref() else { return Vec::new() };
        let announcing = status.notices.iter().filter(|one| announces(status, one, notice));
        announcing.map(|one| one.key.clone()).collect()
    }

    /// Drops messages that were not delivered and are no longer true: whoever reads them on Monday is misled by what was so on Friday.
    fn drop_outdated_messages(&mut self) {
        let (status, now) = (&self.status, self.now);
        let phase = status.phase;
        let is_true = |one: &MessageDelivery| match one.about {
            // Messages that are sent once it is gone are not in its record.
            MessageAbout::DeletionAnnounced | MessageAbout::NoticeWithdrawn | MessageAbout::Deleted => true,
            MessageAbout::Unstable => phase == Some(NamespacePhase::Unstable),
            MessageAbout::Failing => phase == Some(NamespacePhase::Failing),
            MessageAbout::Failed => phase == Some(NamespacePhase::Failed),
            MessageAbout::Stale => phase == Some(NamespacePhase::Stale),
            MessageAbout::Superseded => phase == Some(NamespacePhase::Superseded),
            MessageAbout::Recovered => phase == Some(NamespacePhase::Ok),
            MessageAbout::Expiring => status.expires_at.is_some_and(|end| now < end),
        };
        let in_flight =
            |one: &MessageDelivery| self.observed.deliveries.get(&one.key) == Some(&Delivery::InFlight);
        // What is not known at present ends nothing.
        let unknown = matches!(phase, None | Some(NamespacePhase::Unknown));
        let dropped: Vec<_> = status
            .notices
            .iter()
            .filter(|one| one.state == MessageState::Pending && !unknown && !is_true(one) && !in_flight(one))
            .map(|one| one.key.clone())
            .collect();
        self.status.notices.retain(|one| !dropped.contains(&one.key));
    }

    /// What was announced and is not to happen any more: whoever was notified of it is notified of that, too.
    fn withdraw_announcements(&mut self) {
        let status = &self.status;
        let notice = status.steps.notice.as_ref();
        let stands = |one: &MessageDelivery| notice.is_some_and(|notice| announces(status, one, notice));
        let gone = |one: &&MessageDelivery| one.about == MessageAbout::DeletionAnnounced && !stands(one);
        let gone: Vec<_> = self.status.notices.iter().filter(gone).cloned().collect();
        for one in gone {
            let in_flight = self.observed.deliveries.get(&one.key) == Some(&Delivery::InFlight);
            if one.state == MessageState::Pending && in_flight {
                continue;
            }
            self.status.notices.retain(|other| other.key != one.key);
            if one.state != MessageState::Delivered {
                continue;
            }
            let about = MessageAbout::NoticeWithdrawn;
            let key = key(&self.status, about, &one.key, &one.channel);
            let given_at = whole_second_after(self.now);
            let twin = pending(key, (about, given_at), &one.channel, RecordedRecipient::of(&one));
            self.push(MessageDelivery { fallback: one.fallback, ..twin });
        }
    }

    /// A phase that has just begun.
    fn notify_phase(&mut self, targets: &NotificationTargets<'_>) {
        let (Some(phase), Some(since)) = (self.status.phase, self.status.phase_since) else { return };
        if self.record.status.phase == Some(phase) {
            return;
        }
        let (on, about) = match phase {
            NamespacePhase::Unstable => (NotifyOn::Unstable, MessageAbout::Unstable),
            NamespacePhase::Failing => (NotifyOn::Failing, MessageAbout::Failing),
            NamespacePhase::Failed => (NotifyOn::Failed, MessageAbout::Failed),
            NamespacePhase::Stale => (NotifyOn::Stale, MessageAbout::Stale),
            NamespacePhase::Superseded => (NotifyOn::Superseded, MessageAbout::Superseded),
            NamespacePhase::Ok if self.was_notified_it_fails(targets) => {
                (NotifyOn::Recovered, MessageAbout::Recovered)
            }
            NamespacePhase::Ok | NamespacePhase::Unknown | NamespacePhase::Terminating => return,
        };
        if targets.notifies(on) {
            // After a time that nobody has seen the clocks begin again, and with them the phases: that is no other failure.
            let failure = self.status.health.as_ref().and_then(|health| health.not_ok_since);
            let fails =
                matches!(about, MessageAbout::Unstable | MessageAbout::Failing | MessageAbout::Failed);
            let occasion = failure.filter(|_| fails).unwrap_or(since);
            self.enqueue(targets, about, &occasion_of("", occasion), since);
        }
    }

    /// Whether something failed before, and that is something owners are notified of. What was unknown in between is none, and what was
    /// written down and not delivered nobody was notified of.
    fn was_notified_it_fails(&self, targets: &NotificationTargets<'_>) -> bool {
        let fails = [MessageAbout::Unstable, MessageAbout::Failing, MessageAbout::Failed];
        let mut written =
            self.status.notices.iter().rev().filter(|one| fails.contains(&one.about)).peekable();
        if written.peek().is_some() && written.all(|one| one.state != MessageState::Delivered) {
            return false;
        }
        let past = self.status.past_phases.iter().map(|past| past.phase);
        match past.into_iter().find(|phase| *phase != NamespacePhase::Unknown) {
            Some(NamespacePhase::Unstable) => targets.notifies(NotifyOn::Unstable),
            Some(NamespacePhase::Failing) => targets.notifies(NotifyOn::Failing),
            Some(NamespacePhase::Failed) => targets.notifies(NotifyOn::Failed),
            _ => false,
        }
    }

    /// The latest reminder whose time has come.
    fn remind(&mut self, targets: &NotificationTargets<'_>) {
        let Some(end) = self.status.expires_at.filter(|end| self.now < *end) else { return };
        if !targets.notifies(NotifyOn::Expiring) {
            return;
        }
        let created = targets.namespace.created;
        let dates = targets.notify.reminders.iter().map(|before| earlier(end, *before));
        let dates: Vec<_> = dates.filter(|at| created < *at).collect();
        if let Some(at) = dates.iter().filter(|at| **at <= self.now).max() {
            self.enqueue(targets, MessageAbout::Expiring, &occasion_of(&end.to_string(), *at), *at);
        }
        self.check_no_later_than(dates.into_iter().filter(|at| self.now < *at).min());
    }

    /// Writes down a message for each channel by which somebody can be notified.
    fn enqueue(
        &mut self,
        targets: &NotificationTargets<'_>,
        about: MessageAbout,
        occasion: &str,
        given_at: Timestamp,
    ) {
        for (channel, kind) in &targets.channels {
            // A channel that there is not is shown as what fails.
            let to = kind.map_or(Recipient::OfChannel, |kind| targets.recipient(kind));
            let mut key = key(&self.status, about, occasion, channel);
            if active(Mutant::NoticeKeyChanges) {
                key = format!("{key}-{}", self.now.as_second());
            }
            if matches!(to, Recipient::Nobody) || self.status.notices.iter().any(|known| known.key == key) {
                continue;
            }
            self.push(pending(key, (about, given_at), channel, targets.recorded(to)));
        }
    }

    /// Whether the list has no room for a message on which a step rests.
    fn is_full(&self) -> bool {
        let pending = self.status.notices.iter().filter(|one| one.state == MessageState::Pending);
        pending.count() >= MAX_NOTICES
    }

    /// Adds a message to the list, which drops the oldest that has been delivered and that nothing rests on. Without room it is not added:
    /// what waits for it waits.
    fn push(&mut self, message: MessageDelivery) {
        if self.status.notices.len() >= MAX_NOTICES {
            let status = &self.status;
            let (notice, end) = (status.steps.notice.as_ref(), status.expires_at);
            let is_kept = |one: &MessageDelivery| {
                let announces = notice.is_some_and(|notice| announces(status, one, notice));
                let reminds =
                    one.about == MessageAbout::Expiring && end.is_some_and(|end| one.given_at <= end);
                one.state == MessageState::Pending || announces || reminds
            };
            let Some(at) = self.status.notices.iter().position(|one| !is_kept(one)) else { return };
            self.status.notices.remove(at);
        }
        self.status.notices.push(message);
    }

    /// Nobody is left to say by which channel: what was not delivered is given up.
    pub(super) fn give_up_messages(&mut self, why: &str) {
        for message in self.status.notices.iter_mut().filter(|message| message.state == MessageState::Pending)
        {
            message.state = MessageState::Failed;
            (message.next_attempt, message.last_error) = (None, Some(why.to_owned()));
        }
    }

    fn message(
        &self,
        targets: &NotificationTargets<'_>,
        key: &str,
        to: Option<String>,
    ) -> Option<OwnerMessage> {
        let one = self.status.notices.iter().find(|one| one.key == key)?;
        let (manager, spec) = (targets.manager.name, targets.manager.spec);
        let source = MessageSource { status: &self.status, manager, spec, namespace: targets.namespace };
        let content = source.content(one.about, one.given_at, self.now);
        Some(OwnerMessage { key: one.key.clone(), channel: one.channel.clone(), to, content })
    }
}

/// The id of a message about the namespace of a record: the same whoever writes it down.
fn key(status: &ManagedNamespaceStatus, about: MessageAbout, occasion: &str, channel: &str) -> String {
    let namespace = status.namespace_uid.as_deref().unwrap_or_default();
    let manager = status.manager.as_ref().map_or("", |manager| &manager.uid);
    id_of("notice", [namespace, manager, about.as_str(), occasion, channel])
}

/// What makes a message of a kind one of its own.
fn occasion_of(of: &str, given_at: Timestamp) -> String {
    format!("{of}|{given_at}")
}

/// Whether a message announces what this notice does.
fn announces(status: &ManagedNamespaceStatus, one: &MessageDelivery, notice: &Notice) -> bool {
    let about = MessageAbout::DeletionAnnounced;
    one.about == about
        && one.key.starts_with(&key(
            status,
            about,
            &occasion_of(&notice.policy, notice.given_at),
            &one.channel,
        ))
}
