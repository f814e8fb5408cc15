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
    #[error("the further certificate authorities are not a PEM file: {0}")]
    Pem(rustls::pki_types::pem::Error),
    /// An extra authority is not a certificate.
    #[error("a further certificate authority cannot be used: {0}")]
    Certificate(rustls::Error),
    /// The TLS library does not work with its own defaults.
    #[error("TLS cannot be set up: {0}")]
    Protocol(rustls::Error),
}

/// The platform's certificate authorities, read once.
pub(crate) struct Roots(Vec<CertificateDer<'static>>);

impl Roots {
    /// Reads them. A platform without authorities is no error, so that plain `http` works in an image without them; every
    /// `https` receiver then fails with an unknown issuer.
    pub(crate) fn of_platform() -> Self {
        let native = rustls_native_certs::load_native_certs();
        for error in &native.errors {
            tracing::warn!(%error, "a certificate authority of the platform could not be read");
        }
        let mut usable = RootCertStore::empty();
        let certs =
            native.certs.into_iter().filter(|one| usable.add(one.clone()).is_ok()).collect::<Vec<_>>();
        if certs.is_empty() {
            tracing::warn!(
                "the platform has no certificate authorities: https and mail receivers need caFile"
            );
        }
        Self(certs)
    }

    /// Client settings that trust them and those in `extra`, a PEM bundle that may be empty.
    pub(crate) fn client_config(&self, extra: &[u8]) -> Result<ClientConfig, RootsError> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(extra) {
            roots.add(certificate.map_err(RootsError::Pem)?).map_err(RootsError::Certificate)?;
        }
        roots.add_parsable_certificates(self.0.iter().cloned());
        let config = ClientConfig::builder_with_provider(rustls::crypto::ring::default_provider().into())
            .with_safe_default_protocol_versions()
            .map_err(RootsError::Protocol)?;
        Ok(config.with_root_certificates(roots).with_no_client_auth())
    }
}
