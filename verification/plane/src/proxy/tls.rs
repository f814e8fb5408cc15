//! Encrypted connections from clients, which may come with a certificate. Such a client has no token: its requests are forwarded by the
//! administrator, who impersonates it, so that the API server decides about its rights as without the proxy.

use std::{fs, sync::Arc};

use http::{HeaderMap, HeaderValue, header::AUTHORIZATION};
use rustls::{
    RootCertStore, ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::WebPkiClientVerifier,
};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use x509_parser::parse_x509_certificate;

use crate::{
    error::{Error, Result, io},
    plane::Plane,
};

const IMPERSONATE_USER: &str = "impersonate-user";
const IMPERSONATE_GROUP: &str = "impersonate-group";

/// How connections are encrypted.
#[derive(Clone, Debug)]
pub(super) struct Tls(Arc<ServerConfig>);

impl Tls {
    /// As those to the plane's API server, by its certificate and its key, with its authority for clients.
    pub(super) fn of(plane: &Plane) -> Result<Self> {
        let read = |name: &str| {
            let path = plane.dir().join("pki").join(name);
            fs::read(&path).map_err(io(format!("read {}", path.display())))
        };
        let wrong = |error: &dyn ToString| Error::Client(error.to_string());
        let chain = CertificateDer::pem_slice_iter(&read("server.crt")?)
            .collect::<std::result::Result<Vec<_>, _>>()
            .map_err(|error| wrong(&error))?;
        let key = PrivateKeyDer::from_pem_slice(&read("server.key")?).map_err(|error| wrong(&error))?;
        let mut roots = RootCertStore::empty();
        for authority in CertificateDer::pem_slice_iter(plane.ca_pem().as_bytes()) {
            let authority = authority.map_err(|error| wrong(&error))?;
            roots.add(authority).map_err(|error| wrong(&error))?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        // Who has none comes with a token.
        let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
            .allow_unauthenticated()
            .build()
            .map_err(|error| wrong(&error))?;
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| wrong(&error))?
            .with_client_cert_verifier(clients)
            .with_single_cert(chain, key)
            .map_err(|error| wrong(&error))?;
        Ok(Self(Arc::new(config)))
    }

    /// The connection of a client, encrypted, and who that is by its certificate, if it has one; none if it does not come about.
    pub(super) async fn accept(&self, stream: TcpStream) -> Option<(TlsStream<TcpStream>, Option<Name>)> {
        let stream = TlsAcceptor::from(Arc::clone(&self.0)).accept(stream).await.ok()?;
        let (_, connection) = stream.get_ref();
        let name = match connection.peer_certificates().and_then(<[_]>::first) {
            Some(certificate) => Some(Name::of(certificate)?),
            None => None,
        };
        Some((stream, name))
    }
}

/// Who a client is by its certificate, as an API server reads it.
#[derive(Debug)]
pub(super) struct Name {
    user: HeaderValue,
    groups: Vec<HeaderValue>,
}

impl Name {
    fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        let (_, read) = parse_x509_certificate(certificate).ok()?;
        let user = HeaderValue::from_str(read.subject().iter_common_name().next()?.as_str().ok()?).ok()?;
        let groups = read.subject().iter_organization();
        let groups = groups.map(|group| HeaderValue::from_str(group.as_str().ok()?).ok());
        Some(Self { user, groups: groups.collect::<Option<_>>()? })
    }

    /// Lets a request be one in this name, by somebody who may impersonate.
    pub(super) fn put_into(&self, headers: &mut HeaderMap, authorization: &HeaderValue) {
        headers.insert(AUTHORIZATION, authorization.clone());
        headers.insert(IMPERSONATE_USER, self.user.clone());
        headers.remove(IMPERSONATE_GROUP);
        for group in &self.groups {
            headers.append(IMPERSONATE_GROUP, group.clone());
        }
    }
}
