//! Messages in Slack, against a server that answers as Slack documents it, and mail that cannot be sent.
#![allow(clippy::unwrap_used, reason = "the helpers of a test fail it by a panic")]

use crate::support;

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::serve::Listener;
use coppice_api::channel::{EmailChannel, EmailTls, SlackChannel};
use coppice_notify::channel::{Deliverer, EmailRequest, Headline, SlackRequest};
use coppice_notify::credentials::Credentials;
use coppice_notify::outbox::Deliver as _;
use coppice_notify::request::{DeliverError, DeliveryRequest};
use coppice_notify::webhook::Delivered;
use rcgen::CertificateParams;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::support::{now, settings};

type Received = Arc<Mutex<Vec<(String, HeaderMap, Value)>>>;

/// A status code, headers and a body.
type ResponseParts<'a> = (u16, &'a [(&'static str, &'static str)], &'a str);

/// Answers with these in turn, and remembers what it was asked.
async fn slack(answers: &[ResponseParts<'_>]) -> (String, Received) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    (url, serve(listener, answers))
}

/// The same wherever connections come from.
fn serve<L: Listener<Addr = SocketAddr>>(listener: L, answers: &[ResponseParts<'_>]) -> Received {
    let received = Received::default();
    let answers: Vec<_> =
        answers.iter().map(|(code, headers, body)| (*code, headers.to_vec(), (*body).to_owned())).collect();
    let known = Arc::clone(&received);
    let answer = move |uri: Uri, headers: HeaderMap, body: Bytes| async move {
        let mut known = known.lock().unwrap();
        let (code, with, text) = answers[known.len().min(answers.len() - 1)].clone();
        known.push((uri.to_string(), headers, serde_json::from_slice(&body).unwrap_or_default()));
        let mut response = HeaderMap::new();
        for (name, value) in with {
            response.insert(name, value.parse().unwrap());
        }
        (StatusCode::from_u16(code).unwrap(), response, text)
    };
    tokio::spawn(async move { axum::serve(listener, Router::new().fallback(answer)).await });
    received
}

/// Takes connections under TLS alone.
struct TlsListener {
    listener: TcpListener,
    acceptor: TlsAcceptor,
}

impl Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            let (connection, address) = Listener::accept(&mut self.listener).await;
            // Whoever does not trust the certificate ends the handshake.
            if let Ok(stream) = self.acceptor.accept(connection).await {
                return (stream, address);
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// By https, with a certificate of a private authority for 127.0.0.1; also the PEM of that authority.
async fn private_slack(answers: &[ResponseParts<'_>]) -> (String, String, Received) {
    let leaf = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let (acceptor, authority) = support::acceptor(&leaf);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    (url, authority, serve(TlsListener { listener, acceptor }, answers))
}

fn deliverer(credentials: &Path) -> Deliverer {
    Deliverer::new(settings(), Credentials::of_directory(Some(credentials.to_owned()))).unwrap()
}

async fn send(
    deliverer: &Deliverer,
    channel: SlackChannel,
    to: Option<&str>,
) -> Result<Delivered, DeliverError> {
    let request = SlackRequest {
        id: "notice-1".to_owned(),
        channel,
        to: to.map(str::to_owned),
        text: "*gone*".to_owned(),
        headline: Headline::default(),
    };
    deliverer.deliver(DeliveryRequest::Slack(Box::new(request))).await
}

#[tokio::test]
async fn a_bot_posts_with_its_token_and_what_slack_says_is_understood() {
    let (api, received) = slack(&[
        (200, &[], r#"{"ok":true}"#),
        (429, &[("retry-after", "7")], "ratelimited"),
        (200, &[], r#"{"ok":false,"error":"invalid_auth"}"#),
        (302, &[("location", "http://127.0.0.1:1/")], ""),
    ])
    .await;
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("slack-token"), "xoxb-1\n").unwrap();
    let deliverer = deliverer(folder.path());
    let channel = SlackChannel {
        token_file: Some("slack-token".to_owned()),
        api_url: Some(format!("{api}/api/")),
        ..SlackChannel::default()
    };
    assert_eq!(send(&deliverer, channel.clone(), Some("U024BE7LH")).await.map(|done| done.status), Ok(200));
    let limited = send(&deliverer, channel.clone(), Some("U024BE7LH")).await.unwrap_err();
    assert_eq!(limited.retry_after(), Some(Duration::from_secs(7)));
    std::fs::write(folder.path().join("slack-token"), "xoxb-2").unwrap();
    let refused = send(&deliverer, channel.clone(), Some("#ci")).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "Slack refuses the message (invalid_auth): replace the token in the file that tokenFile of the channel names"
    );
    assert!(!refused.is_permanent(), "a token can be replaced");
    let redirected = send(&deliverer, channel, Some("#ci")).await.unwrap_err();
    assert_eq!(
        redirected.to_string(),
        "Slack refuses the message (status 302)",
        "the token goes nowhere else"
    );
    let received = received.lock().unwrap();
    let (path, headers, body) = &received[0];
    assert_eq!(
        (path.as_str(), &headers["authorization"]),
        ("/api/chat.postMessage", &"Bearer xoxb-1".parse().unwrap())
    );
    assert_eq!(
        body,
        &json!({"channel": "U024BE7LH", "text": "*gone*", "unfurl_links": false, "unfurl_media": false})
    );
    assert_eq!(received[2].1["authorization"], "Bearer xoxb-2", "a rotated token is used at once");
    assert_eq!(received.len(), 4);
}

#[tokio::test]
async fn an_incoming_webhook_is_a_secret_and_goes_through_the_proxy_of_its_channel() {
    let (proxy, received) = slack(&[(200, &[], "ok"), (404, &[], "no_service")]).await;
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("hook"), "http://127.0.0.9/services/T0/B0/secret").unwrap();
    std::fs::write(folder.path().join("open"), "http://hooks.slack.example/services/T0/B0/secret").unwrap();
    std::fs::write(folder.path().join("nonsense"), "not a URL").unwrap();
    let deliverer = deliverer(folder.path());
    let channel = SlackChannel {
        webhook_url_file: Some("hook".to_owned()),
        proxy: Some(proxy),
        ..SlackChannel::default()
    };
    assert_eq!(send(&deliverer, channel.clone(), None).await.map(|done| done.status), Ok(200));
    let gone = send(&deliverer, channel.clone(), None).await.unwrap_err();
    assert!(
        gone.to_string().starts_with("Slack refuses the message (no_service): make a new incoming webhook"),
        "{gone}"
    );
    assert_eq!(received.lock().unwrap()[0].0, "http://127.0.0.9/services/T0/B0/secret");
    let unreachable = SlackChannel { proxy: Some("http://127.0.0.1:1".to_owned()), ..channel.clone() };
    let error = send(&deliverer, unreachable, None).await.unwrap_err();
    let shown = format!("{error} {error:?}");
    assert!(shown.starts_with("no connection to Slack: it is refused; check host and port"), "{shown}");
    assert!(!shown.contains("secret"), "the URL is a credential: {shown}");
    for (file, sentence) in [
        ("nonsense", "the file that webhookUrlFile of the channel names holds no URL of an incoming webhook"),
        ("open", "the URL in the file that webhookUrlFile of the channel names begins with http://"),
    ] {
        let channel = SlackChannel { webhook_url_file: Some(file.to_owned()), ..channel.clone() };
        let error = send(&deliverer, channel, None).await.unwrap_err();
        assert!(error.to_string().starts_with(sentence) && !error.is_permanent(), "{error}");
    }
    assert_eq!(received.lock().unwrap().len(), 2, "nothing else was sent");
}

#[tokio::test]
async fn a_token_is_never_sent_where_it_could_be_read() {
    let (proxy, received) = slack(&[(200, &[], r#"{"ok":true}"#)]).await;
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("token"), "xoxb-1").unwrap();
    let deliverer = deliverer(folder.path());
    let open = SlackChannel {
        token_file: Some("token".to_owned()),
        api_url: Some("http://slack.example/api".to_owned()),
        proxy: Some(proxy),
        ..SlackChannel::default()
    };
    let error = send(&deliverer, open, Some("U024BE7LH")).await.unwrap_err();
    let sentence = "apiUrl of the channel begins with http://, where the bot's token could be read on its way: write https://";
    assert!(error.to_string().starts_with(sentence) && !error.is_permanent(), "{error}");
    assert!(received.lock().unwrap().is_empty(), "nothing was sent");
}

#[tokio::test]
async fn a_slack_with_a_private_authority_is_trusted_by_its_ca_file_alone() {
    let (api, authority, received) = private_slack(&[(200, &[], r#"{"ok":true}"#)]).await;
    let (_, another, _) = private_slack(&[(200, &[], "")]).await;
    let folder = tempfile::tempdir().unwrap();
    for (name, content) in [("token", "xoxb-1"), ("ca", &*authority), ("another-ca", &*another)] {
        std::fs::write(folder.path().join(name), content).unwrap();
    }
    let deliverer = deliverer(folder.path());
    let trusting = |ca_file: Option<&str>| SlackChannel {
        token_file: Some("token".to_owned()),
        api_url: Some(format!("{api}/api")),
        ca_file: ca_file.map(str::to_owned),
        ..SlackChannel::default()
    };
    for ca_file in [None, Some("another-ca")] {
        let error = send(&deliverer, trusting(ca_file), Some("U024BE7LH")).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "no connection to Slack: its certificate is from an authority that is not trusted; name the authority in caFile of the \
             channel",
            "{ca_file:?}"
        );
        assert!(!error.is_permanent(), "an administrator can name the authority");
    }
    assert!(received.lock().unwrap().is_empty(), "the token was sent to nobody");
    let sent = send(&deliverer, trusting(Some("ca")), Some("U024BE7LH")).await;
    assert_eq!(sent.map(|done| done.status), Ok(200));
    let received = received.lock().unwrap();
    let (path, headers, _) = &received[0];
    assert_eq!(
        (path.as_str(), &headers["authorization"]),
        ("/api/chat.postMessage", &"Bearer xoxb-1".parse().unwrap())
    );
    assert_eq!(received.len(), 1);
}

fn mail(channel: EmailChannel, to: &str) -> DeliveryRequest {
    DeliveryRequest::Email(Box::new(EmailRequest {
        id: "notice-1".to_owned(),
        channel,
        to: to.to_owned(),
        subject: "Namespace ci-1 will be deleted".to_owned(),
        text: "It will be deleted.".to_owned(),
        html: "<p>It will be deleted.</p>".to_owned(),
        headline: Headline::default(),
        now: now(),
    }))
}

fn relay() -> EmailChannel {
    EmailChannel {
        recipient_domains: None,
        host: "127.0.0.1".to_owned(),
        port: 1,
        tls: EmailTls::StartTls,
        from: "Coppice <coppice@example.org>".to_owned(),
        username_file: None,
        password_file: None,
        ca_file: None,
    }
}

#[tokio::test]
async fn mail_that_cannot_be_sent_says_why() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("ca"), "no certificate").unwrap();
    let deliverer = deliverer(folder.path());
    let error =
        async |channel: EmailChannel, to: &str| deliverer.deliver(mail(channel, to)).await.unwrap_err();
    let authority = EmailChannel { ca_file: Some("ca".to_owned()), ..relay() };
    let authority = error(authority, "a@example.org").await.to_string();
    assert_eq!(authority, "caFile of the channel has no certificates that can be used");
    let refused = error(relay(), "a@example.org").await;
    assert_eq!(
        refused.to_string(),
        "no connection to the mail server 127.0.0.1:1: it is refused; check host and port"
    );
    assert!(!refused.is_permanent());
    let nobody = error(relay(), "nobody").await;
    assert_eq!(
        (nobody.to_string().as_str(), nobody.is_permanent()),
        ("the owner's address is no mail address", true)
    );
    let missing = EmailChannel {
        username_file: Some("user".to_owned()),
        password_file: Some("password".to_owned()),
        ..relay()
    };
    let missing = error(missing, "a@example.org").await.to_string();
    assert!(missing.contains("has no file \"user\": add the key to the mounted Secret"), "{missing}");
    let odd = error(EmailChannel { from: "nobody".to_owned(), ..relay() }, "a@example.org").await;
    assert!(
        odd.to_string().starts_with("from of the channel is no mail address") && !odd.is_permanent(),
        "{odd}"
    );
}
