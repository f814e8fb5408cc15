//! Slack: `chat.postMessage` by a bot, and incoming webhooks.
//!
//! Its answers are documented at <https://docs.slack.dev/reference/methods/chat.postMessage>,
//! <https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks> and <https://docs.slack.dev/apis/web-api/rate-limits>.

use std::net::IpAddr;
use std::time::Duration;

use coppice_api::channel::SlackChannel;
use reqwest::{Client, Response, StatusCode, Url};
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, timeout_at};

use super::{ChannelError, Deliverer, SlackRequest, proxy_of};
use crate::credentials::Secret;
use crate::webhook::{Delivered, client_builder, innermost, no_connection, read, retry_after};

/// Where Slack's API is, unless a channel says otherwise.
const API: &str = "https://slack.com/api";
/// The longest wait for a connection, TLS included.
const CONNECT: Duration = Duration::from_secs(5);
/// The longest wait for everything.
const TIMEOUT: Duration = Duration::from_secs(15);
/// How much of an answer is read, in bytes.
const MAX_ANSWER_BYTES: usize = 1024 * 1024;
/// How messages name the other side.
const SERVER: &str = "Slack";

/// What is wrong with an `apiUrl` or a file.
const NO_API: &str =
    "apiUrl of the channel is no URL of an API: write it as https://slack.com/api, or leave it out";
const OPEN_API: &str = "apiUrl of the channel begins with http://, where the bot's token could be read on its way: write https:// (http:// is only for a loopback address, without a proxy elsewhere)";
const NO_WEBHOOK: &str =
    "the file that webhookUrlFile of the channel names holds no URL of an incoming webhook";
const OPEN_WEBHOOK: &str = "the URL in the file that webhookUrlFile of the channel names begins with http://, where it could be read on its way: write https:// (http:// is only for a loopback address, without a proxy elsewhere)";

/// What is posted.
#[derive(Serialize)]
struct SlackMessage<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    channel: Option<&'a str>,
    text: &'a str,
    /// Links are to be followed by people, not by Slack.
    unfurl_links: bool,
    unfurl_media: bool,
}

/// What a method of the API answers.
#[derive(Deserialize)]
struct SlackResponse {
    ok: bool,
    #[serde(default)]
    error: Option<String>,
}

impl Deliverer {
    pub(super) async fn send_to_slack(&self, request: SlackRequest) -> Result<Delivered, ChannelError> {
        let deadline = Instant::now() + TIMEOUT;
        let late = |_| ChannelError::Timeout { server: SERVER.to_owned(), after: TIMEOUT };
        let by_bot = request.channel.token_file.is_some();
        let response = timeout_at(deadline, Box::pin(self.post(&request))).await.map_err(late)??;
        let (status, retry_after) = (response.status(), retry_after(&response));
        // The answer repeats the message.
        let body = read(response, MAX_ANSWER_BYTES, deadline).await;
        judge(status, retry_after, &body, by_bot)
    }

    async fn post(&self, request: &SlackRequest) -> Result<Response, ChannelError> {
        let client = self.client(request).await?;
        let body = SlackMessage {
            channel: request.to.as_deref(),
            text: &request.text,
            unfurl_links: false,
            unfurl_media: false,
        };
        let (url, token) = self.destination(&request.channel).await?;
        let post = match token {
            Some(token) => client.post(url).bearer_auth(token.expose()),
            None => client.post(url),
        };
        // Plain values, which serde_json cannot fail to write.
        let body = serde_json::to_vec(&body).unwrap_or_default();
        let post = post.header("content-type", "application/json; charset=utf-8").body(body);
        post.send().await.map_err(|error| {
            let (server, error) = (SERVER.to_owned(), error.without_url());
            let cause = innermost(&error);
            match no_connection(&error) {
                Some(why) => ChannelError::Connect { server, why, cause },
                None => ChannelError::Broken { server, cause },
            }
        })
    }

    /// Where a message is posted to, and a bot's token. Either is a credential: an error must show nothing of it.
    async fn destination(&self, channel: &SlackChannel) -> Result<(Url, Option<Secret>), ChannelError> {
        let invalid = |what| ChannelError::Invalid { what, permanent: false };
        let (url, token, no_url, not_private) = match (&channel.token_file, &channel.webhook_url_file) {
            (Some(file), _) => {
                let api = channel.api_url.as_deref().unwrap_or(API).trim_end_matches('/');
                let token = self.credentials.read(file).await?;
                (format!("{api}/chat.postMessage"), Some(token), NO_API, OPEN_API)
            }
            (None, Some(file)) => {
                let url = self.credentials.read(file).await?;
                (url.expose().to_owned(), None, NO_WEBHOOK, OPEN_WEBHOOK)
            }
            (None, None) => {
                return Err(invalid("the channel has neither tokenFile nor webhookUrlFile"));
            }
        };
        let url = Url::parse(&url).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
        let url = url.ok_or_else(|| invalid(no_url))?;
        if is_private(&url, channel.proxy.as_deref()) { Ok((url, token)) } else { Err(invalid(not_private)) }
    }

    async fn client(&self, request: &SlackRequest) -> Result<Client, ChannelError> {
        let tls = self.tls(request.channel.ca_file.as_deref(), &[]).await?;
        let builder = client_builder(tls, CONNECT);
        let builder = match proxy_of(request.channel.proxy.as_deref())? {
            Some(proxy) => builder.proxy(proxy),
            None => builder,
        };
        builder
            .build()
            .map_err(|error| ChannelError::Broken { server: SERVER.to_owned(), cause: innermost(&error) })
    }
}

/// Whether nobody on the way can read a request: it is encrypted, or does not leave the machine.
fn is_private(url: &Url, proxy: Option<&str>) -> bool {
    let is_loopback = |url: &Url| {
        let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
        host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
    };
    let is_near = |proxy: &str| proxy.parse().is_ok_and(|proxy| is_loopback(&proxy));
    url.scheme() == "https" || is_loopback(url) && proxy.is_none_or(is_near)
}

/// What an answer means. The API answers 200 to what it refuses; incoming webhooks answer with a status and a word.
fn judge(
    status: StatusCode,
    retry_after: Option<Duration>,
    body: &[u8],
    by_bot: bool,
) -> Result<Delivered, ChannelError> {
    let delivered = Delivered { status: status.as_u16(), address: None };
    let refused = |error: &str| ChannelError::Slack { error: error.to_owned(), retry_after };
    if !status.is_success() {
        let word = std::str::from_utf8(body).ok().map(str::trim).filter(|word| is_word(word));
        return Err(refused(word.unwrap_or(&format!("status {}", status.as_u16()))));
    }
    if !by_bot {
        // A page of a proxy, or of another host, has delivered nothing.
        let took = body.trim_ascii() == b"ok";
        let other = || ChannelError::Broken { server: SERVER.to_owned(), cause: "no ok".to_owned() };
        return if took { Ok(delivered) } else { Err(other()) };
    }
    match serde_json::from_slice::<SlackResponse>(body) {
        Ok(SlackResponse { ok: true, .. }) => Ok(delivered),
        Ok(SlackResponse { error, .. }) => {
            Err(refused(error.as_deref().filter(|error| is_word(error)).unwrap_or("no reason")))
        }
        Err(error) => Err(ChannelError::Broken { server: SERVER.to_owned(), cause: error.to_string() }),
    }
}

/// One of Slack's words, such as `channel_not_found`: nothing else of an answer is shown to anybody.
fn is_word(text: &str) -> bool {
    matches!(text.len(), 1..=64) && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
}

/// Whether an error is of this recipient or this message, so that another attempt is pointless. A bot can be invited, a token
/// replaced: those are not.
pub(super) fn is_permanent(error: &str) -> bool {
    matches!(
        error,
        "is_archived"
            | "channel_is_archived"
            | "cannot_dm_bot"
            | "user_not_found"
            | "msg_too_long"
            | "no_text"
    )
}

/// Whether other messages would fail alike, whoever they are to.
pub(super) fn is_of_channel(error: &str) -> bool {
    let of_message = matches!(error, "channel_not_found" | "not_in_channel" | "restricted_action");
    !of_message && !is_permanent(error)
}

/// What to do about an error, behind it.
pub(super) fn advice(error: &str) -> &'static str {
    match error {
        "not_in_channel" | "channel_not_found" => ": check the channel, and invite the bot to it",
        "is_archived" | "channel_is_archived" => ": the channel is archived; name another one",
        "invalid_auth" | "not_authed" | "account_inactive" | "token_revoked" | "token_expired" => {
            ": replace the token in the file that tokenFile of the channel names"
        }
        "missing_scope" => ": the bot needs the scope chat:write",
        "no_service" | "no_team" | "invalid_token" | "action_prohibited" | "team_disabled" => {
            ": make a new incoming webhook, and write its URL into the file that webhookUrlFile of the channel names"
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(status: u16, retry_after: Option<u64>, body: &str, by_bot: bool) -> Result<u16, (String, bool)> {
        let status = StatusCode::from_u16(status).unwrap();
        let judged = judge(status, retry_after.map(Duration::from_secs), body.as_bytes(), by_bot);
        judged.map(|delivered| delivered.status).map_err(|error| (error.to_string(), error.is_permanent()))
    }

    #[test]
    fn only_what_is_encrypted_or_stays_here_is_private() {
        let private = |url: &str, proxy| is_private(&url.parse().unwrap(), proxy);
        let (near, far) = (Some("http://127.0.0.1:3128"), Some("http://proxy.example.org:3128"));
        for proxy in [None, near, far] {
            assert!(private("https://slack.com/api", proxy), "TLS goes through a proxy");
            assert!(!private("http://slack.com/api", proxy), "{proxy:?}");
        }
        for url in ["http://127.0.0.1:8080/api", "http://[::1]/api"] {
            assert!(private(url, None) && private(url, near) && !private(url, far), "{url}");
        }
        for url in ["http://localhost/", "http://10.0.0.1/", "http://127.0.0.1.example.org/", "http://[::]/"]
        {
            assert!(!private(url, None), "{url}: a name leads where its resolver says");
        }
    }

    #[test]
    fn answers_are_understood_as_documented() {
        let refused = |text: &str, permanent| Err((text.to_owned(), permanent));
        assert_eq!(said(200, None, r#"{"ok":true,"ts":"1.2"}"#, true), Ok(200));
        assert_eq!(said(200, None, "ok", false), Ok(200));
        let page = "<html>sign in</html>";
        assert_eq!(said(200, None, page, false), refused("Slack did not answer as it should", false));
        assert_eq!(
            said(200, None, r#"{"ok":false,"error":"channel_not_found"}"#, true),
            refused(
                "Slack refuses the message (channel_not_found): check the channel, and invite the bot to it",
                false
            )
        );
        assert_eq!(
            said(200, None, r#"{"ok":false,"error":"is_archived"}"#, true),
            refused(
                "Slack refuses the message (is_archived): the channel is archived; name another one",
                true
            )
        );
        assert_eq!(
            said(410, None, "channel_is_archived", false),
            refused(
                "Slack refuses the message (channel_is_archived): the channel is archived; name another one",
                true
            )
        );
        assert_eq!(
            said(500, None, "<html>secret</html>", true),
            refused("Slack refuses the message (status 500)", false)
        );
        assert_eq!(
            said(200, None, r#"{"ok":false,"error":"<secret>"}"#, true),
            refused("Slack refuses the message (no reason)", false)
        );
        assert_eq!(said(200, None, "nonsense", true), refused("Slack did not answer as it should", false));
        let limited = judge(StatusCode::TOO_MANY_REQUESTS, Some(Duration::from_secs(30)), b"", true);
        assert_eq!(limited.unwrap_err().retry_after(), Some(Duration::from_secs(30)));
    }
}
