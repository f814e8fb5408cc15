//! A receiver on this machine, and the requests for it.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use coppice_destination::{AllowList, Destination};
use coppice_notify::key::{SigningKey, SystemRandom};
use coppice_notify::webhook::{Resolver, WebhookClient, WebhookRequest, WebhookSettings};
use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::Timestamp;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use tokio_rustls::TlsAcceptor;

pub(crate) fn now() -> Timestamp {
    "2026-10-01T12:00:00.7Z".parse().unwrap()
}

pub(crate) fn key() -> SigningKey {
    SigningKey::generate(&SystemRandom::new()).unwrap()
}

pub(crate) fn settings() -> WebhookSettings {
    WebhookSettings { timeout: Duration::from_secs(5), ..WebhookSettings::new(key()) }
}

pub(crate) fn webhook_client() -> WebhookClient {
    WebhookClient::new(settings()).unwrap()
}

pub(crate) fn request(url: &str, allow: &[&str]) -> WebhookRequest {
    let entries: Vec<String> = allow.iter().map(|entry| (*entry).to_owned()).collect();
    let (allow, errors) = AllowList::parse(&entries);
    assert_eq!(errors, []);
    WebhookRequest {
        id: "firing-1".to_owned(),
        destination: Destination::parse(url).unwrap(),
        allow: vec![allow],
        namespace: "team-a".to_owned(),
        body: br#"{"policy":"ttl"}"#.to_vec(),
        now: now(),
    }
}

/// Leads every name to the same addresses and counts how often it was asked.
#[derive(Default)]
pub(crate) struct FixedResolver {
    pub(crate) to: Mutex<Vec<SocketAddr>>,
    pub(crate) lookups: AtomicUsize,
}

impl FixedResolver {
    pub(crate) fn to(addresses: &[SocketAddr]) -> Arc<Self> {
        Arc::new(Self { to: Mutex::new(addresses.to_vec()), lookups: AtomicUsize::new(0) })
    }

    pub(crate) fn lookups(&self) -> usize {
        self.lookups.load(Ordering::SeqCst)
    }
}

impl Resolver for FixedResolver {
    fn lookup<'a>(&'a self, _host: &'a str, _port: u16) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        self.lookups.fetch_add(1, Ordering::SeqCst);
        std::future::ready(Ok(self.to.lock().unwrap().clone())).boxed()
    }
}

/// TLS with this certificate, and the PEM of its authority.
pub(crate) fn acceptor(leaf: &CertificateParams) -> (TlsAcceptor, String) {
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let leaf = leaf.signed_by(&key, &authority).unwrap();
    let config = ServerConfig::builder_with_provider(rustls::crypto::ring::default_provider().into())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![leaf.der().clone()], PrivateKeyDer::try_from(key.serialize_der()).unwrap())
        .unwrap();
    (TlsAcceptor::from(Arc::new(config)), authority.pem())
}
