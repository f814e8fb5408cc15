//! Messages about namespaces that are gone: how the records of deletions keep them.

use coppice_api::channel::{Channel, RecipientKind};
use coppice_api::notify::{DeletionNotification, NotificationMessage};
use coppice_kinds::DeletionRecord;
use coppice_lifecycle::cluster::masked;
use coppice_lifecycle::deletion_notification::{self, CompletedDeletion};
use coppice_lifecycle::message::{MessagesWhenGone, OwnerMessage};

use crate::context::ControllerContext;

/// What the record of a deletion says of messages that are to be sent once the namespace is gone; none if there are none.
pub(crate) fn recorded(
    shared: &ControllerContext,
    notification: &MessagesWhenGone,
) -> Option<DeletionNotification> {
    let seal = shared.outboxes().map(|outboxes| outboxes.seal);
    let settings = shared.settings().0;
    deletion_notification::kept(notification, |message| {
        let channel = settings.config.channels.iter().find(|channel| channel.name == message.channel);
        let kind = channel.map_or(RecipientKind::None, Channel::recipient_kind);
        // Without a key to seal it there is no address, which the attempt says.
        let sealed_to = message.to.as_deref().and_then(|to| seal.as_ref()?.seal(&message.key, to));
        let to = message.to.as_deref().map(|to| masked(kind, to));
        NotificationMessage { key: message.key.clone(), channel: message.channel.clone(), to, sealed_to }
    })
}

/// The message about a namespace that is gone that the record of its deletion has under this key.
pub(crate) fn notification_message(
    shared: &ControllerContext,
    record: &DeletionRecord,
    notification: &DeletionNotification,
    key: &str,
) -> Option<OwnerMessage> {
    let fields = record.spec.as_deref().ok()?;
    let message = notification.messages.iter().find(|message| message.key == key)?;
    let open = |sealed: &str| shared.outboxes()?.seal.open(key, sealed);
    let gone = CompletedDeletion {
        namespace: &fields.namespace,
        uid: &fields.uid,
        manager: fields.manager(),
        policy: &fields.policy,
        reason: &fields.reason,
        losses: fields.losses.as_deref(),
        at: record.status.deleted_at.unwrap_or(fields.attempted_at),
    };
    // Without its address the attempt fails, and says so.
    let to = message.sealed_to.as_deref().and_then(open);
    let content = deletion_notification::content(gone, notification);
    Some(OwnerMessage { key: key.to_owned(), channel: message.channel.clone(), to, content })
}
