//! What the owner is notified of once the namespace is gone, which nothing of it is left to say then.

use coppice_api::notify::{MessageAbout, MessageDelivery, MessageState, NotifyOn, SupersededMessage};
use coppice_api::steps::Intent;
use coppice_mutants::{Mutant, active};

use super::{Builder, Recipient, key};
use crate::message::{MessageSource, MessagesWhenGone, OwnerMessage};

impl Builder<'_> {
    /// What the owner is notified of once a deletion has been carried out: by each channel, if that is asked for, and else by those by which
    /// something is still to be said that is not worth saying any more. It goes to whom the deletion was announced to, if it was.
    pub(in super::super) fn messages_when_gone(&self, intent: &Intent) -> MessagesWhenGone {
        let Some(targets) = self.targets.as_ref() else { return MessagesWhenGone::default() };
        let (manager, spec) = (targets.manager.name, targets.manager.spec);
        let source = MessageSource { status: &self.status, manager, spec, namespace: targets.namespace };
        let content = source.when_gone(&intent.reason, intent.decided_at);
        let announcing = self.announcing();
        let working_hours = targets.notify.working_hours.clone();
        let mut notification = MessagesWhenGone { working_hours, ..MessagesWhenGone::default() };
        for (channel, kind) in &targets.channels {
            let of_channel = || self.status.notices.iter().filter(|one| one.channel == *channel);
            let unsent: Vec<_> =
                of_channel().filter(|one| is_to_be_sent(one)).map(superseded_message).collect();
            if unsent.is_empty() && !targets.notifies(NotifyOn::Deleted) {
                continue;
            }
            let announced = of_channel().find(|one| announcing.contains(&one.key));
            let recipient = kind.map(|kind| {
                announced.map_or_else(|| targets.recipient(kind), |one| targets.recipient_of(one, kind))
            });
            let to = match recipient {
                Some(Recipient::At(_, to)) => Some(to.to_owned()),
                // What cannot be said any more has to be a dead letter that says so.
                None | Some(Recipient::Nobody) if unsent.is_empty() => continue,
                None | Some(Recipient::Nobody | Recipient::OfChannel) => None,
            };
            let key = key(&self.status, MessageAbout::Deleted, &intent.id, channel);
            let message = OwnerMessage { key, channel: (*channel).to_owned(), to, content: content.clone() };
            notification.messages.push(message);
            if !active(Mutant::SupersededUnlisted) {
                notification.superseded.extend(unsent);
            }
        }
        notification
    }
}

/// Whether a message would be tried, or tried again.
fn is_to_be_sent(message: &MessageDelivery) -> bool {
    message.state == MessageState::Pending || message.next_attempt.is_some()
}

/// That the message about the deletion takes the place of this one.
fn superseded_message(message: &MessageDelivery) -> SupersededMessage {
    let MessageDelivery { key, about, channel, last_error, .. } = message.clone();
    SupersededMessage { key, about, channel, last_error }
}
