//! Channels to owners of namespaces, mail, Slack and webhooks: one message, one attempt.

use std::time::Duration;

use coppice_api::channel::{EmailChannel, SlackChannel, WebhookChannel};
use jiff::Timestamp;
use reqwest::Proxy;
use rustls::ClientConfig;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use thiserror::Error;

use crate::credentials::{CredentialError, Credentials};
use crate::outbox::Deliver;
use crate::request::{DeliverError, DeliveryRequest};
use crate::roots::{Roots, RootsError};
use crate::webhook::{Delivered, NoConnection, WebhookClient, WebhookRequest, WebhookSettings};
use futures::FutureExt as _;
use futures::future::BoxFuture;

mod email;
mod slack;
mod webhook;

/// A message in short, for a digest of many.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headline {
    /// One line.
    pub subject: String,
    /// The command that keeps the namespace, if one does.
    pub keep: Option<String>,
}

/// A message to one recipient by mail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EmailRequest {
    /// Its id, the same in every attempt: the left side of its `Message-ID`.
    pub id: String,
    /// How it is sent.
    pub channel: EmailChannel,
    /// The address.
    pub to: String,
    /// One line.
    pub subject: String,
    /// As plain text.
    pub text: String,
    /// The same as HTML.
    pub html: String,
    /// The same in short.
    pub headline: Headline,
    /// The time of this attempt.
    pub now: Timestamp,
}

/// A message in Slack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlackRequest {
    /// Its id, the same in every attempt.
    pub id: String,
    /// How it is sent.
    pub channel: SlackChannel,
    /// A member or channel; none where an incoming webhook decides that.
    pub to: Option<String>,
    /// In Slack's `mrkdwn`.
    pub text: String,
    /// The same in short.
    pub headline: Headline,
}

/// A message by the webhook of a channel.
#[derive(Clone, Debug)]
pub struct WebhookChannelRequest {
    /// What is sent, and where to.
    pub webhook: WebhookRequest,
    /// How it is sent.
    pub channel: WebhookChannel,
}

/// Why an attempt did not deliver. The texts are for people who may read the record of the namespace, and come from a fixed list: none
/// shows an address, which records have masked, or a credential. What servers said is for the operator's debug log alone.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ChannelError {
    /// A credential cannot be had.
    #[error(transparent)]
    Credential(#[from] CredentialError),
    /// The authorities of the channel's `caFile`, or the platform's.
    #[error("caFile of the channel has no certificates that can be used")]
    Roots {
        /// What is wrong with them, for the log.
        cause: String,
    },
    /// A part of the channel, or of the message, that cannot be sent so.
    #[error("{what}")]
    Invalid {
        /// What, and what to do.
        what: &'static str,
        /// Whether another attempt of the same message is pointless.
        permanent: bool,
    },
    /// No connection, or no TLS on it.
    #[error("no connection to {server}: {}", text_of(*why))]
    Connect {
        /// Which server.
        server: String,
        /// What is wrong.
        why: NoConnection,
        /// The innermost cause, for the log.
        cause: String,
    },
    /// The mail server offers no `STARTTLS`.
    #[error(
        "{server} offers no STARTTLS, without which nothing is sent: enable it there, or write tls: TLS or tls: None"
    )]
    NoStartTls {
        /// Which server.
        server: String,
    },
    /// The mail server refuses, for now or for good.
    #[error("the mail server refuses {step} ({code})")]
    Smtp {
        /// What it refuses.
        step: SmtpStep,
        /// Its code, with the enhanced one if there is one: `550 5.1.1`.
        code: String,
        /// Whether the code means for good.
        permanent: bool,
        /// What it said, for the log.
        cause: String,
    },
    /// Slack refuses, by one of its documented errors or a status code.
    #[error("Slack refuses the message ({error}){}", slack::advice(error))]
    Slack {
        /// Slack's error, such as `channel_not_found`, or `status 500`.
        error: String,
        /// How long it asks to wait.
        retry_after: Option<Duration>,
    },
    /// What came was no answer.
    #[error("{server} did not answer as it should")]
    Broken {
        /// Which server.
        server: String,
        /// What is wrong, for the log.
        cause: String,
    },
    /// No answer in time.
    #[error("{server} did not answer within {} s", after.as_secs())]
    Timeout {
        /// Which server.
        server: String,
        /// How long it had.
        after: Duration,
    },
}

/// What a mail server refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SmtpStep {
    /// The connection itself.
    #[error("the connection")]
    Greeting,
    /// The name or the password.
    #[error("the login; check usernameFile and passwordFile of the channel")]
    Login,
    /// Whom messages are from.
    #[error("the sender; check from of the channel")]
    Sender,
    /// Whom this one is to.
    #[error("the recipient")]
    Recipient,
    /// The message itself.
    #[error("the message")]
    Message,
}

/// Why there is no connection, in words about a channel.
const fn text_of(why: NoConnection) -> &'static str {
    match why {
        NoConnection::Refused => "it is refused; check host and port",
        NoConnection::Unreachable => "no network route leads there",
        NoConnection::TimedOut => {
            "there is no answer in time; check host and port, and that no NetworkPolicy is in the way"
        }
        NoConnection::Closed => "it is closed at once; check the port, and how it is encrypted",
        NoConnection::CertificateTime => "its certificate is not valid at this time",
        NoConnection::CertificateAuthority => {
            "its certificate is from an authority that is not trusted; name the authority in caFile of the channel"
        }
        NoConnection::CertificateHost => "its certificate is for another host",
        NoConnection::Certificate => "its certificate is not accepted",
        NoConnection::Tls => "no TLS can be agreed on",
        NoConnection::Proxy => {
            "the proxy does not connect to it; check what the proxy permits, and whether it asks for a login"
        }
        NoConnection::Other => "it fails; the operator's debug log has the cause",
    }
}

impl ChannelError {
    /// Whether another attempt of the same message is pointless: what is wrong is with the recipient or the message. What an
    /// administrator can put right is tried again.
    pub fn is_permanent(&self) -> bool {
        match self {
            Self::Invalid { permanent, .. }
            | Self::Smtp { step: SmtpStep::Recipient | SmtpStep::Message, permanent, .. } => *permanent,
            Self::Slack { error, .. } => slack::is_permanent(error),
            Self::Credential(_)
            | Self::Roots { .. }
            | Self::Connect { .. }
            | Self::NoStartTls { .. }
            | Self::Smtp { .. }
            | Self::Broken { .. }
            | Self::Timeout { .. } => false,
        }
    }

    /// Whether it shows that the channel works: where it does not, other messages would fail alike, and a refused login is not to be
    /// repeated for each of them. None if nothing was sent because of the message itself.
    pub fn channel_works(&self) -> Option<bool> {
        match self {
            Self::Invalid { permanent, .. } => (!permanent).then_some(false),
            // What a server puts off, such as a greylisted recipient, or refuses by a policy, is of this one message.
            Self::Smtp { step, .. } => Some(matches!(step, SmtpStep::Recipient | SmtpStep::Message)),
            Self::Slack { error, .. } => Some(!slack::is_of_channel(error)),
            Self::Credential(_)
            | Self::Roots { .. }
            | Self::Connect { .. }
            | Self::NoStartTls { .. }
            | Self::Broken { .. }
            | Self::Timeout { .. } => Some(false),
        }
    }

    /// How long the receiver asked to wait.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Slack { retry_after, .. } => *retry_after,
            Self::Credential(_)
            | Self::Roots { .. }
            | Self::Invalid { .. }
            | Self::Connect { .. }
            | Self::NoStartTls { .. }
            | Self::Smtp { .. }
            | Self::Broken { .. }
            | Self::Timeout { .. } => None,
        }
    }
}

/// Delivers by every kind of channel, and signed webhooks.
pub struct Deliverer {
    webhooks: WebhookClient,
    /// The authorities for every webhook, as a PEM bundle.
    webhook_roots_pem: Vec<u8>,
    credentials: Credentials,
    roots: Roots,
}

impl Deliverer {
    /// Reads the certificate authorities.
    ///
    /// # Errors
    /// If the further ones cannot be used.
    pub fn new(settings: WebhookSettings, credentials: Credentials) -> Result<Self, RootsError> {
        let roots = Roots::of_platform();
        let webhook_roots_pem = settings.extra_roots_pem.clone();
        let webhooks = WebhookClient::with_roots(settings, &roots)?;
        Ok(Self { webhooks, webhook_roots_pem, credentials, roots })
    }

    /// The certificates in a file of credentials, as PEM; empty without one.
    async fn authorities(&self, file: Option<&str>) -> Result<Vec<u8>, ChannelError> {
        match file {
            Some(file) => {
                let pem = self.credentials.read(file).await?.expose().as_bytes().to_vec();
                match CertificateDer::pem_slice_iter(&pem).next() {
                    Some(Ok(_)) => Ok(pem),
                    Some(Err(error)) => Err(ChannelError::Roots { cause: error.to_string() }),
                    None => Err(ChannelError::Roots { cause: "it is no PEM file".to_owned() }),
                }
            }
            None => Ok(Vec::new()),
        }
    }

    /// TLS that trusts the authorities of a channel's `caFile` as well, and these.
    async fn tls(&self, ca_file: Option<&str>, also: &[u8]) -> Result<ClientConfig, ChannelError> {
        // A line of its own for what follows a file without a newline at its end.
        let further = [&*self.authorities(ca_file).await?, also].join(&b'\n');
        self.roots.client_config(&further).map_err(|error| ChannelError::Roots { cause: error.to_string() })
    }
}

/// The proxy of a channel; none without one.
fn proxy_of(url: Option<&str>) -> Result<Option<Proxy>, ChannelError> {
    let invalid =
        |_| ChannelError::Invalid { what: "proxy of the channel is no URL of a proxy", permanent: false };
    url.map(Proxy::all).transpose().map_err(invalid)
}

impl Deliver for Deliverer {
    fn deliver(&self, request: DeliveryRequest) -> BoxFuture<'_, Result<Delivered, DeliverError>> {
        async move {
            match request {
                DeliveryRequest::Webhook(request) => Ok(self.webhooks.send(*request).await?),
                DeliveryRequest::ChannelWebhook(request) => self.send_by_webhook(*request).await,
                DeliveryRequest::Email(request) => Ok(self.send_email(*request).await?),
                DeliveryRequest::Slack(request) => Ok(self.send_to_slack(*request).await?),
                DeliveryRequest::Invalid { error, .. } => Err(error.into()),
            }
        }
        .boxed()
    }
}
