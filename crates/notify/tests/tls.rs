//! A receiver with a certificate of a private authority.
#![allow(clippy::unwrap_used, reason = "the helpers of a test fail it by a panic")]

mod support;

use std::net::SocketAddr;
use std::sync::Arc;

use coppice_notify::webhook::{SendError, WebhookSender, WebhookSettings};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use support::{Leads, request, settings};

/// Serves `hook.team.svc` and returns the address and the authority's PEM.
async fn receiver() -> (SocketAddr, String) {
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new(vec!["hook.team.svc".to_owned()])
        .unwrap()
        .signed_by(&key, &authority)
        .unwrap();
    let config = ServerConfig::builder_with_provider(rustls::crypto::ring::default_provider().into())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![leaf.der().clone()], PrivateKeyDer::try_from(key.serialize_der()).unwrap())
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
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
    (address, authority.pem())
}

#[tokio::test]
async fn an_authority_from_the_settings_is_believed_and_an_unknown_one_is_not() {
    let (address, authority) = receiver().await;
    let lookup = Leads::to(&[address]);
    let url = |host: &str| request(&format!("https://{host}:{}/", address.port()), &["*.svc", "127.0.0.1"]);

    let stranger = WebhookSender::new(WebhookSettings { lookup: lookup.clone(), ..settings() }).unwrap();
    let error = stranger.send(url("hook.team.svc")).await.unwrap_err();
    assert!(matches!(&error, SendError::Connect { reason } if reason.contains("UnknownIssuer")), "{error:?}");

    let extra_roots_pem = authority.into_bytes();
    let sender = WebhookSender::new(WebhookSettings { lookup, extra_roots_pem, ..settings() }).unwrap();
    assert_eq!(sender.send(url("hook.team.svc")).await.map(|delivered| delivered.status), Ok(204));
    // The certificate is checked against the name of the URL, not against the address.
    let error = sender.send(url("other.team.svc")).await.unwrap_err();
    assert!(matches!(error, SendError::Connect { .. }), "{error:?}");
}

#[test]
fn authorities_that_are_none_are_refused_at_the_start() {
    let pem = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".to_vec();
    let error = WebhookSender::new(WebhookSettings { extra_roots_pem: pem, ..settings() }).err().unwrap();
    assert!(
        error.to_string().starts_with("an extra certificate authority for webhooks cannot be used"),
        "{error}"
    );
}
