//! A receiver with a certificate of a private authority.
#![allow(clippy::unwrap_used, clippy::panic, reason = "the helpers of a test fail it by a panic")]

use crate::support;

use std::net::SocketAddr;

use coppice_notify::webhook::{NoConnection, SendError, WebhookClient, WebhookSettings};
use rcgen::{CertificateParams, SanType};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::support::{FixedResolver, request, settings};

/// Serves `hook.team.svc` and returns the address and the authority's PEM.
async fn receiver() -> (SocketAddr, String) {
    receiver_of(|_| {}).await
}

/// The same, with another certificate.
async fn receiver_of(change: impl FnOnce(&mut CertificateParams)) -> (SocketAddr, String) {
    let mut leaf = CertificateParams::new(vec!["hook.team.svc".to_owned()]).unwrap();
    change(&mut leaf);
    let (acceptor, authority) = support::acceptor(&leaf);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((connection, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(connection).await else { continue };
            let _ = stream.read(&mut [0; 1024]).await;
            let _ = stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await;
            let _ = stream.shutdown().await;
        }
    });
    (address, authority)
}

#[tokio::test]
async fn an_authority_from_the_settings_is_trusted_and_an_unknown_one_is_not() {
    let (address, authority) = receiver().await;
    let lookup = FixedResolver::to(&[address]);
    let url = |host: &str| request(&format!("https://{host}:{}/", address.port()), &["*.svc", "127.0.0.1"]);

    let stranger = WebhookClient::new(WebhookSettings { lookup: lookup.clone(), ..settings() }).unwrap();
    let error = stranger.send(url("hook.team.svc")).await.unwrap_err();
    assert_eq!(why(&error), NoConnection::CertificateAuthority);

    let extra_roots_pem = authority.into_bytes();
    let webhook_client =
        WebhookClient::new(WebhookSettings { lookup, extra_roots_pem, ..settings() }).unwrap();
    assert_eq!(webhook_client.send(url("hook.team.svc")).await.map(|delivered| delivered.status), Ok(204));
    // The certificate is checked against the name of the URL, not against the address.
    let error = webhook_client.send(url("other.team.svc")).await.unwrap_err();
    assert_eq!(why(&error), NoConnection::CertificateHost);
}

/// Why there is no connection; the text says that, and nothing of what the certificate says.
fn why(error: &SendError) -> NoConnection {
    let SendError::Connect { why, cause } = error else { panic!("{error:?}") };
    assert_eq!(error.to_string(), format!("no connection to the webhook receiver: {why}"));
    assert!(!cause.is_empty());
    *why
}

#[tokio::test]
async fn tls_errors_have_fixed_messages() {
    let said = async |(address, authority): (SocketAddr, String), scheme: &str| {
        let lookup = FixedResolver::to(&[address]);
        let settings = WebhookSettings { lookup, extra_roots_pem: authority.into_bytes(), ..settings() };
        let url = format!("{scheme}://hook.team.svc:{}/", address.port());
        let sent = WebhookClient::new(settings).unwrap().send(request(&url, &["*.svc", "127.0.0.1"])).await;
        why(&sent.unwrap_err())
    };
    let other = receiver_of(|leaf| {
        leaf.subject_alt_names = vec![SanType::DnsName("inner.secret.svc".try_into().unwrap())];
    });
    assert_eq!(said(other.await, "https").await, NoConnection::CertificateHost);
    let expired = receiver_of(|leaf| leaf.not_after = rcgen::date_time_ymd(2020, 1, 1));
    assert_eq!(said(expired.await, "https").await, NoConnection::CertificateTime);
    // A receiver that closes what it does not understand.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { while listener.accept().await.is_ok() {} });
    let (_, authority) = receiver().await;
    assert_eq!(said((address, authority), "https").await, NoConnection::Closed);
}

#[test]
fn no_sentence_holds_anything_of_the_receivers() {
    let mut texts: Vec<String> = NoConnection::ALL.iter().map(ToString::to_string).collect();
    for why in NoConnection::ALL {
        let error = SendError::Connect { why, cause: "inner.secret.svc".to_owned() };
        assert!(!error.to_string().contains("secret"), "{error}");
    }
    texts.sort_unstable();
    texts.dedup();
    assert_eq!(texts.len(), NoConnection::ALL.len());
}

#[test]
fn authorities_that_are_none_are_refused_at_the_start() {
    let pem = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".to_vec();
    let error = WebhookClient::new(WebhookSettings { extra_roots_pem: pem, ..settings() }).err().unwrap();
    assert!(error.to_string().starts_with("a further certificate authority cannot be used"), "{error}");
}
