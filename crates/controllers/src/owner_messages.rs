//! Hands messages to owners to the outbox, which delivers them in the background and enqueues their record after each attempt.

use std::collections::BTreeMap;

use coppice_actions::webhook::delivery_of;
use coppice_api::channel::Channel;
use coppice_api::names::MANAGED_NAMESPACE_NAME;
use coppice_api::notify::{MessageDelivery, MessageState, SupersededMessage};
use coppice_destination::Destination;
use coppice_kinds::{DeletedNamespaces, ManagedNamespaces};
use coppice_lifecycle::PlatformSettings;
use coppice_lifecycle::message::{MessageContent, OwnerMessage};
use coppice_lifecycle::plan::Delivery;
use coppice_notify::channel::{ChannelError, EmailRequest, Headline, SlackRequest, WebhookChannelRequest};
use coppice_notify::outbox::{AttemptState, Outbox};
use coppice_notify::request::DeliveryRequest;
use coppice_notify::webhook::WebhookRequest;
use coppice_runtime::error::chain;
use coppice_runtime::read;
use jiff::Timestamp;
use serde::Serialize;

use crate::context::{ControllerContext, WebhookSubject};
use crate::webhook::when_there_is_room;

/// Why a mail cannot be sent.
const NO_ADDRESS: Problem = Problem::Message(
    "there is no address for the message: the owner had none any more, or the operator had no signing key to seal it with, or has another \
     one by now",
);
const FOREIGN_DOMAIN: Problem =
    Problem::Message("the owner's address is of a domain that recipientDomains of the channel does not list");

/// Why an attempt cannot be made.
enum Problem {
    /// Of the channel: an administrator can put it right.
    Channel(&'static str),
    /// Of this one message.
    Message(&'static str),
}

/// What is known of the attempts to tell an owner. The outbox drops those whose outcome is in the record.
pub(crate) fn deliveries(
    shared: &ControllerContext,
    notices: &[MessageDelivery],
) -> BTreeMap<String, Delivery> {
    let Some(outboxes) = shared.outboxes().filter(|_| !notices.is_empty()) else { return BTreeMap::new() };
    let outbox = outboxes.messages;
    let mut known = BTreeMap::new();
    for message in notices {
        let Some(attempt) = outbox.state(&message.key) else { continue };
        // What came of an attempt counts once.
        let recorded =
            message.state != MessageState::Pending || outbox.attempt(&message.key) != Some(message.attempts);
        if let AttemptState::Done(result) = &attempt
            && recorded
        {
            let result = if result.is_ok() { "delivered" } else { "failed" };
            if let Some(channel) = kind_of(shared, &message.channel) {
                shared.lifecycle_metrics.notice_attempt(channel, result);
            }
            outbox.acknowledge(&message.key);
            continue;
        }
        known.insert(message.key.clone(), delivery_of(attempt));
    }
    known
}

/// The kind of a channel of the settings, for metrics.
fn kind_of(shared: &ControllerContext, name: &str) -> Option<&'static str> {
    let settings = shared.settings().0;
    let channel = settings.config.channels.iter().find(|channel| channel.name == name)?;
    let Channel { name: _, webhook, slack, email } = channel;
    let kinds = [("webhook", webhook.is_some()), ("slack", slack.is_some()), ("email", email.is_some())];
    kinds.into_iter().find_map(|(kind, is)| is.then_some(kind))
}

/// Makes one attempt at each of these messages about a namespace. Returns when to try again, if some could not be begun.
pub(crate) async fn submit(
    shared: &ControllerContext,
    namespace: &str,
    messages: &[OwnerMessage],
) -> Option<Timestamp> {
    let subject = WebhookSubject::of_record(namespace);
    submit_all(shared, subject, messages, async || {
        let reads = &shared.clients.reads;
        let record = read::get::<ManagedNamespaces>(reads, namespace, MANAGED_NAMESPACE_NAME).await?;
        Ok(record.map(|record| record.status.notices.clone()))
    })
    .await
}

/// The same for messages about a namespace that is gone, which its record of this name has.
pub(crate) async fn submit_notification(
    shared: &ControllerContext,
    decision: &str,
    messages: &[OwnerMessage],
) -> Option<Timestamp> {
    let subject = WebhookSubject::of_deletion(decision);
    submit_all(shared, subject, messages, async || {
        let record = read::get::<DeletedNamespaces>(&shared.clients.reads, "", decision).await?;
        Ok(record.map(|record| record.status.notices.clone()))
    })
    .await
}

/// Drops messages that wait for their channel and are not to be sent any more.
pub(crate) fn withdraw<'a>(
    shared: &ControllerContext,
    superseded: impl IntoIterator<Item = &'a SupersededMessage>,
) {
    let Some(outboxes) = shared.outboxes() else { return };
    for message in superseded {
        outboxes.messages.withdraw(&message.key);
    }
}

/// Makes one attempt at each of these messages that an object has, whose notices `fresh` reads.
async fn submit_all(
    shared: &ControllerContext,
    subject: WebhookSubject,
    messages: &[OwnerMessage],
    fresh: impl AsyncFnOnce() -> Result<Option<Vec<MessageDelivery>>, kube::Error>,
) -> Option<Timestamp> {
    let Some(outboxes) = shared.outboxes() else { return shared.in_one_second() };
    if messages.iter().all(|message| outboxes.messages.has_room(&message.channel).is_err()) {
        return when_there_is_room(shared, &messages.first()?.key);
    }
    // The cache may be behind: what has been delivered already must not be sent again.
    let notices = match fresh().await {
        Ok(Some(notices)) => notices,
        // It enqueues its namespace when it is there again.
        Ok(None) => return None,
        Err(error) => {
            tracing::warn!(?subject, error = %chain(&error), "messages to the owner wait");
            return shared.in_one_second();
        }
    };
    let submit = |message| submit_one(shared, &outboxes.messages, &subject, &notices, message);
    messages.iter().filter_map(submit).min()
}

fn submit_one(
    shared: &ControllerContext,
    outbox: &Outbox<WebhookSubject>,
    subject: &WebhookSubject,
    notices: &[MessageDelivery],
    message: &OwnerMessage,
) -> Option<Timestamp> {
    let pending = |one: &&MessageDelivery| one.key == message.key && one.state == MessageState::Pending;
    let attempts = notices.iter().find(pending)?.attempts;
    let settings = shared.settings().0;
    let channel = settings.config.channels.iter().find(|channel| channel.name == message.channel);
    let request = channel
        .ok_or(Problem::Channel("CoppiceConfig/coppice has no such channel"))
        .and_then(|channel| request(shared, (&message.content.namespace, &settings), channel, message));
    // The attempt says why it cannot be made.
    let request = request.unwrap_or_else(|problem| {
        let (what, permanent) = match problem {
            Problem::Channel(what) => (what, false),
            Problem::Message(what) => (what, true),
        };
        DeliveryRequest::Invalid { id: message.key.clone(), error: ChannelError::Invalid { what, permanent } }
    });
    match outbox.submit(&message.channel, subject.clone(), attempts, request) {
        Ok(_) => None,
        // The outbox is full: others are served first.
        Err(error) => {
            tracing::warn!(?subject, channel = message.channel, %error, "a message to the owner waits");
            when_there_is_room(shared, &message.key)
        }
    }
}

/// One attempt at a message by a channel.
///
/// # Errors
/// Why it cannot be made.
fn request(
    shared: &ControllerContext,
    (namespace, settings): (&str, &PlatformSettings),
    channel: &Channel,
    message: &OwnerMessage,
) -> Result<DeliveryRequest, Problem> {
    let Channel { name: _, webhook, slack, email } = channel;
    if let Some(channel) = webhook {
        let destination = Destination::parse(&channel.url)
            .map_err(|_| Problem::Channel("url of the channel is no URL of a webhook: write it as https://ci.example.org/hook, without user and fragment"))?;
        // The platform has written where it goes; special addresses are permitted by its settings alone.
        let allow = settings.hosts.clone().permitting(&destination);
        let webhook = WebhookRequest {
            id: message.key.clone(),
            destination,
            allow: vec![allow],
            namespace: namespace.to_owned(),
            body: body(message),
            now: shared.now(),
        };
        let channel = channel.clone();
        return Ok(DeliveryRequest::ChannelWebhook(Box::new(WebhookChannelRequest { webhook, channel })));
    }
    let bot = slack.as_ref().is_some_and(|slack| slack.token_file.is_some());
    match (email, &message.to) {
        (_, None) if bot || email.is_some() => return Err(NO_ADDRESS),
        (Some(channel), Some(to)) if !channel.permits(to) => return Err(FOREIGN_DOMAIN),
        _ => {}
    }
    let now = shared.now();
    let rendered = shared.texts.render(settings.config.messages.as_ref(), &message.content, now);
    let rendered = rendered
        .inspect_err(|error| tracing::error!(namespace, %error, "a message to the owner cannot be written"))
        .map_err(|_| Problem::Message("the message cannot be written; the operator's log has the cause"))?;
    let headline = Headline { subject: rendered.subject.clone(), keep: message.content.keep.clone() };
    let id = message.key.clone();
    match (slack, email, message.to.clone()) {
        (Some(channel), _, to) => {
            let channel = channel.clone();
            let text = rendered.slack;
            Ok(DeliveryRequest::Slack(Box::new(SlackRequest { id, channel, to, text, headline })))
        }
        (None, Some(channel), Some(to)) => Ok(DeliveryRequest::Email(Box::new(EmailRequest {
            id,
            channel: channel.clone(),
            to,
            subject: rendered.subject,
            text: rendered.text,
            html: rendered.html,
            headline,
            now,
        }))),
        (None, Some(_), None) => Err(NO_ADDRESS),
        (None, None, _) => Err(Problem::Channel(
            "the channel has none of webhook, slack and email, as this version of the operator knows them",
        )),
    }
}

/// The body of a webhook.
fn body(message: &OwnerMessage) -> Vec<u8> {
    #[derive(Serialize)]
    struct Body<'a> {
        /// The kind of event, as Standard Webhooks suggests.
        #[serde(rename = "type")]
        kind: &'static str,
        notice: &'a str,
        #[serde(flatten)]
        content: &'a MessageContent,
    }
    // Maps with string keys and plain values, which serde_json cannot fail to write.
    serde_json::to_vec(&Body { kind: "owner.notice", notice: &message.key, content: &message.content })
        .unwrap_or_default()
}
