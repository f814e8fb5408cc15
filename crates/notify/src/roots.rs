//! The certificate authorities that are trusted to certify receivers.

use rustls::ClientConfig;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use thiserror::Error;

/// Why the TLS settings could not be made.
#[derive(Debug, Error)]
pub enum RootsError {
    /// The extra authorities are not PEM.
    #[error("the extra certificate authorities for webhooks are not a PEM file: {0}")]
    Pem(rustls::pki_types::pem::Error),
    /// An extra authority is not a certificate.
    #[error("an extra certificate authority for webhooks cannot be used: {0}")]
    Certificate(rustls::Error),
    /// The TLS library does not work with its own defaults.
    #[error("TLS cannot be set up: {0}")]
    Protocol(rustls::Error),
}

/// Client settings that trust the platform's authorities and those in `extra`, a PEM bundle that may be empty.
///
/// A platform without authorities is no error, so that plain `http` works in an image without them; every `https` receiver then
/// fails with an unknown issuer.
pub(crate) fn client_config(extra: &[u8]) -> Result<ClientConfig, RootsError> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(extra) {
        roots.add(certificate.map_err(RootsError::Pem)?).map_err(RootsError::Certificate)?;
    }
    let native = rustls_native_certs::load_native_certs();
    for error in &native.errors {
        tracing::warn!(%error, "a certificate authority of the platform could not be read");
    }
    roots.add_parsable_certificates(native.certs);
    if roots.is_empty() {
        tracing::warn!("the platform has no certificate authorities: webhooks to https receivers will fail");
    }
    let config = ClientConfig::builder_with_provider(rustls::crypto::ring::default_provider().into())
        .with_safe_default_protocol_versions()
        .map_err(RootsError::Protocol)?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}
