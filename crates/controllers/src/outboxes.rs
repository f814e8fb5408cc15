//! The outboxes: webhooks of policies, in which namespaces take turns, and messages to owners, in which channels do.

use std::sync::Arc;
use std::time::Duration;

use coppice_lifecycle::cluster::AddressKey;
use coppice_lifecycle::message::joined_key;
use coppice_messages::{DigestLine, Rendered, digest};
use coppice_mutants::{Mutant, active};
use coppice_notify::channel::{EmailRequest, Headline, SlackRequest};
use coppice_notify::outbox::{Deliver, DigestRule, GroupPauseRule, Outbox, OutboxLimits, OutboxRules};
use coppice_notify::request::DeliveryRequest;
use coppice_notify::seal::Seal;

use crate::context::WebhookSubject;

/// So many messages to one recipient are sent one by one ...
const ONE_BY_ONE: usize = 20;
/// ... within this time: what is more becomes one message.
const WITHIN: Duration = Duration::from_mins(5);
/// So many become one at most: their text is shorter than what Slack cuts off.
const JOINED: usize = 100;
/// For so long it is known which they were: longer than messages wait between two attempts (`lifecycle/src/delivery.rs`).
const REMEMBERED: Duration = Duration::from_hours(2);

/// What is sent in the background. Neither waits for the other.
#[derive(Clone)]
pub struct Outboxes {
    /// Webhooks of policies, in groups by namespace.
    pub webhooks: Outbox<WebhookSubject>,
    /// Messages to owners, in groups by channel.
    pub messages: Outbox<WebhookSubject>,
    /// Hides addresses in the records of deletions.
    pub seal: Arc<Seal>,
    /// Tells addresses apart that look the same in the records of namespaces.
    pub address_key: Arc<AddressKey>,
}

impl Outboxes {
    /// Both, empty. `enqueue` is called after each attempt.
    pub fn new(
        deliver: &Arc<dyn Deliver>,
        seal: Seal,
        enqueue: impl Fn(WebhookSubject) + Clone + Send + Sync + 'static,
    ) -> Self {
        let limits = OutboxLimits::default();
        let webhooks = Outbox::new(Arc::clone(deliver), limits, enqueue.clone());
        // A channel that hangs leaves room for the others.
        let by_channel = OutboxLimits { capacity: 4096, capacity_per_group: 1024, ..limits };
        let rules = OutboxRules {
            group_pause: Some(GroupPauseRule {
                first: Duration::from_secs(1),
                longest: Duration::from_mins(5),
            }),
            digest: (!active(Mutant::NothingJoined)).then_some(DigestRule {
                one_by_one: ONE_BY_ONE,
                within: WITHIN,
                at_most: JOINED,
                join: joined,
                remembered: if active(Mutant::JoinedDropped) { Duration::ZERO } else { REMEMBERED },
            }),
        };
        let messages = Outbox::with_rules(Arc::clone(deliver), by_channel, rules, enqueue);
        let address_key = Arc::new(AddressKey::new(seal.digest_secret()));
        Self { webhooks, messages, seal: Arc::new(seal), address_key }
    }

    /// Ends both, and gives attempts that are under way until `grace` has passed.
    pub async fn shutdown(&self, grace: Duration) {
        futures::future::join(self.webhooks.shutdown(grace), self.messages.shutdown(grace)).await;
    }
}

/// Messages to one recipient as one; none if they are not all mails, or all for Slack.
fn joined(several: &[DeliveryRequest]) -> Option<DeliveryRequest> {
    let first = several.first()?;
    let headlines: Vec<_> = several.iter().map(headline).collect::<Option<_>>()?;
    let Rendered { subject, text, html, slack } = digest(&headlines);
    let id = joined_key(several.iter().map(DeliveryRequest::id));
    match first {
        DeliveryRequest::Email(first) => Some(DeliveryRequest::Email(Box::new(EmailRequest {
            id,
            subject,
            text,
            html,
            ..(**first).clone()
        }))),
        DeliveryRequest::Slack(first) => {
            Some(DeliveryRequest::Slack(Box::new(SlackRequest { id, text: slack, ..(**first).clone() })))
        }
        DeliveryRequest::Webhook(_)
        | DeliveryRequest::ChannelWebhook(_)
        | DeliveryRequest::Invalid { .. } => None,
    }
}

fn headline(request: &DeliveryRequest) -> Option<DigestLine<'_>> {
    let Headline { subject, keep } = match request {
        DeliveryRequest::Email(request) => &request.headline,
        DeliveryRequest::Slack(request) => &request.headline,
        DeliveryRequest::Webhook(_)
        | DeliveryRequest::ChannelWebhook(_)
        | DeliveryRequest::Invalid { .. } => return None,
    };
    Some(DigestLine { subject, keep: keep.as_deref() })
}

#[cfg(test)]
mod tests {
    use coppice_api::channel::SlackChannel;

    use super::*;

    fn message(n: usize) -> DeliveryRequest {
        let keep = (n == 0).then(|| "coppice extend ci-0 --by 24h".to_owned());
        let headline = Headline { subject: format!("Namespace ci-{n} will be deleted"), keep };
        DeliveryRequest::Slack(Box::new(SlackRequest {
            id: format!("notice-{n}"),
            channel: SlackChannel::default(),
            to: Some("U024BE7LH".to_owned()),
            text: "a long text".to_owned(),
            headline,
        }))
    }

    #[test]
    fn messages_to_one_recipient_become_one_that_names_each() {
        let several: Vec<_> = (0..JOINED).map(message).collect();
        let Some(DeliveryRequest::Slack(one)) = joined(&several) else { panic!("not joined") };
        assert!(one.id.starts_with("notice-0-to-notice-99-"), "{}", one.id);
        assert_eq!(one.to.as_deref(), Some("U024BE7LH"));
        assert!(one.text.starts_with("*100 messages about your namespaces*\n"), "{}", one.text);
        assert!(
            one.text
                .contains("• Namespace ci-0 will be deleted – to keep it: `coppice extend ci-0 --by 24h`\n")
        );
        assert!((0..JOINED).all(|n| one.text.contains(&format!("Namespace ci-{n} will"))));
        let invalid = DeliveryRequest::Invalid {
            id: "x".to_owned(),
            error: coppice_notify::channel::ChannelError::Roots { cause: String::new() },
        };
        assert!(joined(&[message(0), invalid]).is_none(), "each is sent by itself");
    }
}
