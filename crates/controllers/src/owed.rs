//! Messages about namespaces that are gone: how the records of deletions keep them.

use std::collections::BTreeMap;

use coppice_api::channel::{Channel, RecipientKind};
use coppice_api::notify::{NoticeAbout, OwedMessage, OwedMessages};
use coppice_kinds::DeletionRecord;
use coppice_lifecycle::cluster::masked;
use coppice_lifecycle::message::{DeletionContent, MessageContent, OwedWhenGone, OwnerMessage};

use crate::context::ControllerContext;

/// What the record of a deletion says of messages that are to be sent once the namespace is gone; none if there are none.
pub(crate) fn owed(shared: &ControllerContext, owed: &OwedWhenGone) -> Option<OwedMessages> {
    let first = &owed.messages.first()?.content;
    let seal = shared.outboxes().map(|outboxes| outboxes.seal);
    let settings = shared.settings().0;
    let messages = owed.messages.iter().map(|message| {
        let channel = settings.config.channels.iter().find(|channel| channel.name == message.channel);
        let kind = channel.map_or(RecipientKind::None, Channel::recipient_kind);
        // Without a key to seal it there is no address, which the attempt says.
        let sealed_to = message.to.as_deref().and_then(|to| seal.as_ref()?.seal(&message.key, to));
        let to = message.to.as_deref().map(|to| masked(kind, to));
        OwedMessage { key: message.key.clone(), channel: message.channel.clone(), to, sealed_to }
    });
    Some(OwedMessages {
        owner: first.owner.clone(),
        why: first.why.clone(),
        successor: first.successor.clone(),
        working_hours: owed.working_hours.clone(),
        messages: messages.collect(),
    })
}

/// The message about a namespace that is gone which the record of its deletion owes under this key.
pub(crate) fn owed_message(
    shared: &ControllerContext,
    record: &DeletionRecord,
    owed: &OwedMessages,
    key: &str,
) -> Option<OwnerMessage> {
    let fields = record.spec.as_deref().ok()?;
    let message = owed.messages.iter().find(|message| message.key == key)?;
    let open = |sealed: &str| shared.outboxes()?.seal.open(key, sealed);
    let gone_at = record.status.deleted_at.unwrap_or(fields.attempted_at);
    let deletion = DeletionContent {
        policy: fields.policy.to_string(),
        at: gone_at,
        reason: fields.reason.to_string(),
        losses: None,
    };
    let content = MessageContent {
        about: NoticeAbout::Deleted,
        namespace: fields.namespace.to_string(),
        uid: fields.uid.to_string(),
        manager: fields.manager().to_owned(),
        owner: owed.owner.clone(),
        given_at: gone_at,
        why: owed.why.clone(),
        deletion: Some(deletion),
        expires_at: None,
        failing: Vec::new(),
        advice: BTreeMap::new(),
        successor: owed.successor.clone(),
        observing: false,
        links: Vec::new(),
        keep: None,
    };
    // Without its address the attempt fails, and says so.
    let to = message.sealed_to.as_deref().and_then(open);
    Some(OwnerMessage { key: key.to_owned(), channel: message.channel.clone(), to, content })
}
