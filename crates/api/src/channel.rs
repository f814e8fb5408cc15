//! The channels by which owners of namespaces are notified: part of `CoppiceConfig`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema;

/// A channel by which owners of namespaces are notified. Cluster managers name it in `spec.notify.channels`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "(has(self.webhook) ? 1 : 0) + (has(self.slack) ? 1 : 0) + (has(self.email) ? 1 : 0) == 1",
    "message": "write exactly one of webhook, slack and email, such as webhook: {url: 'https://ci.example.org/hook'}"
}]))]
pub struct Channel {
    /// Its name, by which cluster managers name it.
    #[schemars(length(min = 1, max = 63), regex(pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,
    /// Signed JSON documents to a URL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook: Option<WebhookChannel>,
    /// Messages in Slack.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slack: Option<SlackChannel>,
    /// Mail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub email: Option<EmailChannel>,
}

/// POST of a JSON document, signed as the webhooks of policies are (`status.webhookKey` has the public key). Its recipient is
/// the server at that URL, no matter who owns the namespace: the document names the owner.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WebhookChannel {
    /// Where to. Its host need not be in `tenants.webhookHosts`; a loopback, link-local or otherwise special address has to be.
    #[schemars(schema_with = "schema::receiver_url")]
    pub url: String,
    /// The HTTP proxy through which it is reached, such as `http://proxy.example.org:3128`. It resolves the host of `url`, so that
    /// the address is not checked. Default: none, so that it is checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::proxy_url")]
    pub proxy: Option<String>,
    /// The file with certificates of further authorities to trust, besides those of `--webhook-ca-file`. Default: none, since most
    /// receivers have certificates of public authorities.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::credential_file")]
    pub ca_file: Option<String>,
}

/// Messages in Slack, by a bot (`tokenFile`), to the member or channel that owns the namespace; or by an incoming webhook
/// (`webhookUrlFile`), to the one channel that this was made for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.tokenFile) != has(self.webhookUrlFile)",
    "message": "write exactly one of tokenFile (a bot, which can write to every owner) and webhookUrlFile (an incoming webhook, which writes to one channel)"
}]))]
pub struct SlackChannel {
    /// The file with the bot's token (`xoxb-...`). The bot needs the scope `chat:write`. Default: none, for an incoming webhook.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::credential_file")]
    pub token_file: Option<String>,
    /// The file with the URL of an incoming webhook. Default: none, for a bot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::credential_file")]
    pub webhook_url_file: Option<String>,
    /// Where Slack's API is. Default: `https://slack.com/api`, so that only a gateway has to be named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::api_url")]
    pub api_url: Option<String>,
    /// The HTTP proxy through which it is reached, such as `http://proxy.example.org:3128`. Default: none, for clusters that
    /// reach Slack directly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::proxy_url")]
    pub proxy: Option<String>,
    /// The file with certificates of further authorities to trust. Default: none, since most servers have certificates of public
    /// authorities.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::credential_file")]
    pub ca_file: Option<String>,
}

/// Mail by SMTP.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.usernameFile) == has(self.passwordFile)",
    "message": "write usernameFile and passwordFile together, or neither where the server asks for none"
}, {
    "rule": "!has(self.passwordFile) || self.tls != 'None'",
    "message": "a password is sent only under TLS: write tls: STARTTLS or tls: TLS"
}]))]
pub struct EmailChannel {
    /// The host of the SMTP server.
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[A-Za-z0-9:]([-.:A-Za-z0-9]*[A-Za-z0-9])?$"))]
    pub host: String,
    /// Its port. Default: 587, where mail is submitted.
    #[serde(default = "submission")]
    #[schemars(range(min = 1, max = 65535))]
    pub port: u16,
    /// How the connection is encrypted. Default: `STARTTLS`, without which nothing is sent.
    #[serde(default)]
    pub tls: EmailTls,
    /// The sender address of messages, such as `Coppice <coppice@example.org>`.
    #[schemars(
        length(min = 3, max = 320),
        regex(pattern = r"^([^<>@\s]+@[^<>@\s]+|[^<>@]* ?<[^<>@\s]+@[^<>@\s]+>)$")
    )]
    pub from: String,
    /// The file with the name to log in with. Default: no login, for servers that know their senders by their addresses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::credential_file")]
    pub username_file: Option<String>,
    /// The file with the password. Default: no login, as without a name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::credential_file")]
    pub password_file: Option<String>,
    /// The file with certificates of further authorities to trust. Default: none, since most servers have certificates of public
    /// authorities.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::credential_file")]
    pub ca_file: Option<String>,
    /// The domains that mail is sent to, with those below them: anyone who may annotate a namespace names its owner. Default:
    /// every domain, since only the platform knows where owners have their mail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 64),
        inner(length(min = 1, max = 253)),
        extend("x-kubernetes-list-type" = "set", "x-kubernetes-validations" = [{
            "rule": "self.all(domain, domain.matches('^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$'))",
            "message": "write domains in lower case, without '@' and '*', such as example.org: those below it are permitted, too"
        }])
    )]
    pub recipient_domains: Option<Vec<String>>,
}

impl EmailChannel {
    /// Whether mail is sent to this address.
    pub fn permits(&self, address: &str) -> bool {
        let Some(domains) = &self.recipient_domains else { return true };
        let domain = address.rsplit_once('@').map_or("", |(_, domain)| domain).to_ascii_lowercase();
        domains.iter().any(|permitted| {
            domain.strip_suffix(permitted.as_str()).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        })
    }
}

const fn submission() -> u16 {
    587
}

/// How a connection to an SMTP server is encrypted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum EmailTls {
    /// By the command `STARTTLS`; a server that does not offer it gets no mail.
    #[default]
    #[serde(rename = "STARTTLS")]
    StartTls,
    /// From the beginning (port 465).
    #[serde(rename = "TLS")]
    Tls,
    /// Not at all: for a relay on the same machine or network alone.
    None,
}

/// The texts of messages to owners, by mail and in Slack. Each template that is not given is the built-in one. Templates are written in the
/// language of Jinja, as `MiniJinja` has it; `coppice message` shows what they make of a namespace. In place of one that cannot be
/// used, which the condition `Ready` names, the built-in one is used.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MessagesSpec {
    /// How messages name this cluster, such as `prod-eu`. Default: they do not, since only the platform knows its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 100))]
    pub cluster: Option<String>,
    /// The subject of a mail: one line. Default: the built-in one, so that every message says what is needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub subject: Option<String>,
    /// A mail as plain text. Default: the built-in one, so that every message says what is needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 16384))]
    pub text: Option<String>,
    /// A mail as HTML. Default: the built-in one, so that every message says what is needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 16384))]
    pub html: Option<String>,
    /// A message in Slack, in its `mrkdwn`. Default: the built-in one, so that every message says what is needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 16384))]
    pub slack: Option<String>,
}

/// What a channel needs to know of a recipient.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RecipientKind {
    /// Nothing: the channel itself says who gets its messages.
    None,
    /// A member or channel of Slack.
    Slack,
    /// A mail address.
    Email,
}

impl Channel {
    /// What it needs to know of a recipient. A channel that says nothing, which the API server refuses, needs nothing.
    pub fn recipient_kind(&self) -> RecipientKind {
        let Self { name: _, webhook: _, slack, email } = self;
        match (slack, email) {
            (Some(slack), _) if slack.token_file.is_some() => RecipientKind::Slack,
            (None, Some(_)) => RecipientKind::Email,
            (Some(_), _) | (None, None) => RecipientKind::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::EmailChannel;

    #[test]
    fn mail_goes_to_the_domains_that_are_listed_and_those_below() {
        let channel = |domains: &str| {
            let channel = format!(r#"{{"host": "smtp", "from": "a@b.c"{domains}}}"#);
            serde_json::from_str::<EmailChannel>(&channel).unwrap()
        };
        assert!(channel("").permits("grace@anywhere.example"));
        let ours = channel(r#", "recipientDomains": ["example.org", "example.com"]"#);
        for (address, permitted) in [
            ("grace@example.org", true),
            ("grace@Team.Example.ORG", true),
            ("grace@example.com", true),
            ("grace@badexample.org", false),
            ("grace@example.org.evil.example", false),
            ("grace", false),
        ] {
            assert_eq!(ours.permits(address), permitted, "{address}");
        }
    }
}
