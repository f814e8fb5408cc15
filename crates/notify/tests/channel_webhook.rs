//! Webhooks of channels: a receiver with a certificate of a private authority, reached directly and through a proxy.
#![allow(clippy::unwrap_used, clippy::panic, reason = "the helpers of a test fail it by a panic")]

use crate::support;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use coppice_api::channel::WebhookChannel;
use coppice_notify::channel::{Deliverer, WebhookChannelRequest};
use coppice_notify::credentials::Credentials;
use coppice_notify::outbox::Deliver as _;
use coppice_notify::request::{DeliverError, DeliveryRequest};
use coppice_notify::webhook::WebhookSettings;
use rcgen::CertificateParams;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};

use crate::support::{FixedResolver, request, settings};

const HOST: &str = "hook.team.svc";

/// What a server on this machine got, request by request.
type Received = Arc<Mutex<Vec<String>>>;

async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// The head of a request, and what came with it.
async fn head(stream: &mut (impl AsyncReadExt + Unpin)) -> String {
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        if stream.read_buf(&mut head).await.unwrap_or(0) == 0 {
            break;
        }
    }
    String::from_utf8_lossy(&head).into_owned()
}

/// Serves [`HOST`] by TLS; also the PEM of its authority.
async fn receiver() -> (SocketAddr, String, Received) {
    let leaf = CertificateParams::new(vec![HOST.to_owned()]).unwrap();
    let (acceptor, authority) = support::acceptor(&leaf);
    let (listener, address) = listen().await;
    let received = Received::default();
    let known = Arc::clone(&received);
    tokio::spawn(async move {
        while let Ok((connection, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(connection).await else { continue };
            let request = head(&mut stream).await;
            known.lock().unwrap().push(request);
            let _ = stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await;
            let _ = stream.shutdown().await;
        }
    });
    (address, authority, received)
}

/// A proxy that leads every `CONNECT` to this address, whatever name it asks for, answers anything else itself, and refuses everything
/// without an address.
async fn proxy(leads_to: Option<SocketAddr>) -> (String, Received) {
    let (listener, address) = listen().await;
    let received = Received::default();
    let known = Arc::clone(&received);
    tokio::spawn(async move {
        while let Ok((mut connection, _)) = listener.accept().await {
            let request = head(&mut connection).await;
            let connects = request.starts_with("CONNECT ");
            known.lock().unwrap().push(request);
            let Some(address) = leads_to else {
                let _ = connection.write_all(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n").await;
                continue;
            };
            if connects {
                let mut upstream = TcpStream::connect(address).await.unwrap();
                let _ = connection.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await;
                tokio::spawn(async move { copy_bidirectional(&mut connection, &mut upstream).await });
            } else {
                let _ = connection.write_all(b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n").await;
            }
        }
    });
    (format!("http://{address}"), received)
}

/// Delivers, with credentials of its own, and with a resolver that leads every name to one address.
struct Bench {
    folder: TempDir,
    resolver: Arc<FixedResolver>,
    deliverer: Deliverer,
}

impl Bench {
    fn new(address: SocketAddr, webhook_ca: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let resolver = FixedResolver::to(&[address]);
        let extra_roots_pem = webhook_ca.as_bytes().to_vec();
        let settings = WebhookSettings { lookup: resolver.clone(), extra_roots_pem, ..settings() };
        let credentials = Credentials::of_directory(Some(folder.path().to_owned()));
        Self { resolver, deliverer: Deliverer::new(settings, credentials).unwrap(), folder }
    }

    fn file(&self, name: &str, content: &str) -> String {
        std::fs::write(self.folder.path().join(name), content).unwrap();
        name.to_owned()
    }

    /// To a URL of which the settings list `allow`.
    async fn send(
        &self,
        url: &str,
        allow: &[&str],
        (proxy, ca_file): (Option<&str>, Option<String>),
    ) -> Result<u16, DeliverError> {
        let channel = WebhookChannel { url: url.to_owned(), proxy: proxy.map(str::to_owned), ca_file };
        let request = WebhookChannelRequest { webhook: request(url, allow), channel };
        let request = DeliveryRequest::ChannelWebhook(Box::new(request));
        self.deliverer.deliver(request).await.map(|delivered| delivered.status)
    }
}

const UNTRUSTED: &str = "no connection to the webhook receiver: its certificate is from an authority that is not trusted; name the authority in caFile of the channel";

#[tokio::test]
async fn a_channel_trusts_the_authorities_of_its_file_and_those_of_all_webhooks() {
    let (address, authority, received) = receiver().await;
    let (_, stranger, _) = receiver().await;
    let url = format!("https://{HOST}:{}/", address.port());
    let allow = ["*.svc", "127.0.0.1"];
    let bench = Bench::new(address, "");
    let sent = async |bench: &Bench, ca_file| bench.send(&url, &allow, (None, ca_file)).await;

    let ours = Some(bench.file("ca", authority.trim_end()));
    for (ca_file, why) in
        [(None, "without a file"), (Some(bench.file("other", &stranger)), "another authority")]
    {
        let error = sent(&bench, ca_file).await.unwrap_err();
        assert_eq!(error.to_string(), UNTRUSTED, "{why}");
        assert_eq!((error.is_permanent(), error.channel_works()), (false, Some(false)), "{why}");
    }
    assert!(received.lock().unwrap().is_empty(), "nothing is sent to whom nobody vouches for");
    assert_eq!(sent(&bench, ours.clone()).await, Ok(204));
    // What a channel trusts, webhooks of tenants do not.
    let tenants = bench.deliverer.deliver(request(&url, &allow).into()).await.unwrap_err();
    assert!(tenants.to_string().contains("is from an authority that is not trusted"), "{tenants}");

    for (ca_file, sentence) in [
        (Some("missing".to_owned()), "the operator's --credentials-dir has no file \"missing\""),
        (Some(bench.file("nonsense", "no certificate")), "caFile of the channel has no certificates"),
    ] {
        let error = sent(&bench, ca_file).await.unwrap_err();
        assert!(error.to_string().starts_with(sentence) && !error.is_permanent(), "{error}");
    }
    // The file adds to what is trusted for every webhook.
    let bench = Bench::new(address, &authority);
    let other = Some(bench.file("other", stranger.trim_end()));
    assert_eq!((sent(&bench, None).await, sent(&bench, other).await), (Ok(204), Ok(204)));
    assert_eq!(received.lock().unwrap().len(), 3);
}

#[tokio::test]
async fn a_proxy_resolves_the_host_and_sees_nothing_of_what_is_sent_by_tls() {
    let (address, authority, received) = receiver().await;
    let (proxy, asked) = proxy(Some(address)).await;
    // Our own resolver would lead to an address that no name may lead to.
    let bench = Bench::new("169.254.169.254:80".parse().unwrap(), "");
    let ca_file = Some(bench.file("ca", &authority));
    let sent = bench.send(&format!("https://{HOST}/x"), &["*.svc"], (Some(&proxy), ca_file)).await;
    assert_eq!(sent, Ok(204));
    assert_eq!(bench.resolver.lookups(), 0, "the proxy resolves the name");
    let tunnel = asked.lock().unwrap().concat();
    assert!(tunnel.starts_with("CONNECT hook.team.svc:443 HTTP/1.1\r\n"), "{tunnel}");
    assert!(!tunnel.contains("webhook-signature"), "{tunnel}");
    let post = received.lock().unwrap().concat();
    assert!(post.starts_with("POST /x HTTP/1.1\r\n") && post.contains("webhook-signature: "), "{post}");

    // What a tunnel leads to has to be who the URL names.
    let error = bench.send(&format!("https://{HOST}/x"), &["*.svc"], (Some(&proxy), None)).await.unwrap_err();
    let through = UNTRUSTED.replace("receiver", "receiver through proxy of the channel");
    assert_eq!(error.to_string(), through);
    let sent = bench.send(&format!("http://{HOST}/y"), &["*.svc"], (Some(&proxy), None)).await;
    assert_eq!(sent, Ok(202), "without TLS the proxy takes the request itself");
    let last = asked.lock().unwrap().last().unwrap().clone();
    assert!(last.starts_with("POST http://hook.team.svc/y HTTP/1.1\r\n"), "{last}");
    // Webhooks of tenants know no proxy.
    let tenants = bench.deliverer.deliver(request(&format!("http://{HOST}/"), &["*.svc"]).into()).await;
    assert!(tenants.unwrap_err().to_string().contains("169.254.169.254"));
    assert_eq!((bench.resolver.lookups(), asked.lock().unwrap().len()), (1, 3));
}

#[tokio::test]
async fn what_is_not_permitted_is_not_asked_of_a_proxy_either() {
    let (address, ..) = receiver().await;
    let (proxy, asked) = proxy(Some(address)).await;
    let bench = Bench::new(address, "");
    for (url, allow) in [
        ("https://other.example.org/", ["*.svc"]),
        ("http://127.0.0.1:8080/", ["*.svc"]),
        ("http://169.254.169.254/latest", ["10.0.0.0/8"]),
    ] {
        let error = bench.send(url, &allow, (Some(&proxy), None)).await.unwrap_err();
        assert!(error.is_permanent(), "{url}: {error}");
    }
    assert!(asked.lock().unwrap().is_empty(), "{asked:?}");
}

#[tokio::test]
async fn a_proxy_that_fails_is_named() {
    let (address, ..) = receiver().await;
    let (refuses, _) = proxy(None).await;
    let bench = Bench::new(address, "");
    let error = async |proxy: &str| {
        let sent = bench.send(&format!("https://{HOST}/"), &["*.svc"], (Some(proxy), None)).await;
        let error = sent.unwrap_err();
        assert_eq!((error.is_permanent(), error.channel_works()), (false, Some(false)), "{error}");
        error.to_string()
    };
    let through = "no connection to the webhook receiver through proxy of the channel: ";
    assert_eq!(
        error(&refuses).await,
        format!(
            "{through}the proxy does not connect to it; check what the proxy permits, and whether it asks for a login"
        )
    );
    assert_eq!(error("http://127.0.0.1:1").await, format!("{through}it is refused; check host and port"));
    assert_eq!(error("socks5://[").await, "proxy of the channel is no URL of a proxy");
}
