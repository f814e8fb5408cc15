//! The certificate that a port shows: exchanged while connections are accepted, so that nothing has to be started again.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use coppice_runtime::clock::Clock;
use coppice_runtime::error::chain;
use jiff::{SignedDuration, Timestamp};
use rustls::ServerConfig;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::time::sleep;

use crate::authority::{IssueError, Issued, self_signed};

/// How often files are looked at, and how old certificates are.
const LOOK: Duration = Duration::from_mins(1);
/// How long a certificate that nobody has to trust is valid.
const LIFETIME: SignedDuration = SignedDuration::from_hours(365 * 24);
/// The files of a directory, as cert-manager and `kubernetes.io/tls` Secrets name them.
const FILES: [&str; 2] = ["tls.crt", "tls.key"];

/// What TLS shows; until something is set, no connection is agreed on. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Certificate(Arc<RwLock<Option<Arc<CertifiedKey>>>>);

/// Why a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// A file cannot be read.
    #[error("{} cannot be read", file.display())]
    Read {
        /// Which.
        file: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// It has no certificates or no key in it, or they do not belong together.
    #[error("the certificate and its key cannot be used: {0}")]
    Unusable(String),
    /// None could be made.
    #[error(transparent)]
    Issue(#[from] IssueError),
}

impl Certificate {
    /// From now on this is shown.
    ///
    /// # Errors
    /// If they do not belong together, or are none; what was shown before stays.
    pub fn set(&self, certificates_pem: &[u8], key_pem: &[u8]) -> Result<(), CertificateError> {
        let unusable =
            |what: &str, why: &dyn std::fmt::Display| CertificateError::Unusable(format!("{what}: {why}"));
        let chain = CertificateDer::pem_slice_iter(certificates_pem).collect::<Result<Vec<_>, _>>();
        let chain = chain.map_err(|error| unusable("certificates", &error))?;
        if chain.is_empty() {
            return Err(CertificateError::Unusable("there is no certificate".to_owned()));
        }
        let key = PrivateKeyDer::from_pem_slice(key_pem).map_err(|error| unusable("key", &error))?;
        let key = CertifiedKey::from_der(chain, key, &default_provider());
        let key = key.map_err(|error| CertificateError::Unusable(error.to_string()))?;
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(key));
        Ok(())
    }

    /// TLS that shows it. Who calls shows no certificate.
    ///
    /// # Errors
    /// If the TLS library offers no protocol, which is a bug.
    pub fn tls(&self) -> Result<Arc<ServerConfig>, rustls::Error> {
        let builder = ServerConfig::builder_with_provider(Arc::new(default_provider()));
        let builder = builder.with_safe_default_protocol_versions()?.with_no_client_auth();
        let mut config = builder.with_cert_resolver(Arc::new(self.clone()));
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A certificate from the files of a directory, which are read again when they change.
#[derive(Debug)]
pub struct FromDirectory {
    directory: PathBuf,
    certificate: Certificate,
    used: [Vec<u8>; 2],
}

impl FromDirectory {
    /// Reads them.
    ///
    /// # Errors
    /// If they cannot be used.
    pub fn read(directory: &Path, certificate: &Certificate) -> Result<Self, CertificateError> {
        let used = files(directory)?;
        certificate.set(&used[0], &used[1])?;
        Ok(Self { directory: directory.to_owned(), certificate: certificate.clone(), used })
    }

    /// Reads them again, and uses what has changed.
    ///
    /// # Errors
    /// If they cannot be used; what was used stays.
    pub fn refresh(&mut self) -> Result<(), CertificateError> {
        let now = files(&self.directory)?;
        if now != self.used {
            self.certificate.set(&now[0], &now[1])?;
            tracing::info!(directory = %self.directory.display(), "the certificate has changed");
            self.used = now;
        }
        Ok(())
    }

    /// The same again and again.
    pub async fn keep(mut self) {
        loop {
            sleep(LOOK).await;
            if let Err(error) = self.refresh() {
                tracing::warn!(directory = %self.directory.display(), error = %chain(&error), "the certificate stays the one before");
            }
        }
    }
}

fn files(directory: &Path) -> Result<[Vec<u8>; 2], CertificateError> {
    let read = |name: &str| {
        let file = directory.join(name);
        std::fs::read(&file).map_err(|source| CertificateError::Read { file, source })
    };
    Ok([read(FILES[0])?, read(FILES[1])?])
}

/// A certificate that it has signed itself, for callers who encrypt and do not ask whom they talk to.
#[derive(Debug)]
pub struct SelfSigned {
    names: Vec<String>,
    certificate: Certificate,
    clock: Clock,
    renew_at: Timestamp,
}

impl SelfSigned {
    /// Makes one for these names and addresses.
    ///
    /// # Errors
    /// If none can be made.
    pub fn make(
        names: Vec<String>,
        certificate: &Certificate,
        clock: Clock,
    ) -> Result<Self, CertificateError> {
        let mut this = Self { names, certificate: certificate.clone(), renew_at: clock.now(), clock };
        this.renew()?;
        Ok(this)
    }

    fn renew(&mut self) -> Result<(), CertificateError> {
        let Issued { certificate, key, renew_at } = self_signed(&self.names, LIFETIME, self.clock.now())?;
        self.certificate.set(certificate.as_bytes(), key.as_bytes())?;
        self.renew_at = renew_at;
        Ok(())
    }

    /// Makes another one in time, again and again.
    pub async fn keep(mut self) {
        loop {
            sleep(LOOK).await;
            if self.clock.now() >= self.renew_at
                && let Err(error) = self.renew()
            {
                tracing::warn!(error = %chain(&error), "the certificate stays the one before");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Certificate, CertificateError, FILES, FromDirectory};
    use crate::authority::self_signed;
    use coppice_runtime::clock::Clock;
    use jiff::SignedDuration;
    use std::path::Path;

    fn write(directory: &Path) -> String {
        let issued =
            self_signed(&["a".to_owned()], SignedDuration::from_hours(1), Clock::system().now()).unwrap();
        std::fs::write(directory.join(FILES[0]), &issued.certificate).unwrap();
        std::fs::write(directory.join(FILES[1]), &issued.key).unwrap();
        issued.certificate
    }

    fn shown(certificate: &Certificate) -> Vec<u8> {
        certificate.0.read().unwrap().as_ref().unwrap().cert[0].to_vec()
    }

    #[test]
    fn files_that_change_are_used_and_bad_ones_change_nothing() {
        let (directory, certificate) = (tempfile::tempdir().unwrap(), Certificate::default());
        let path = directory.path();
        let error = FromDirectory::read(path, &certificate).unwrap_err();
        assert_eq!(error.to_string(), format!("{} cannot be read", path.join("tls.crt").display()));
        write(path);
        let mut files = FromDirectory::read(path, &certificate).unwrap();
        let first = shown(&certificate);
        write(path);
        files.refresh().unwrap();
        let second = shown(&certificate);
        assert_ne!(first, second);
        // The key of another one.
        let key = std::fs::read(path.join(FILES[1])).unwrap();
        write(path);
        std::fs::write(path.join(FILES[1]), key).unwrap();
        assert!(matches!(files.refresh(), Err(CertificateError::Unusable(_))));
        std::fs::write(path.join(FILES[0]), "nonsense").unwrap();
        let error = files.refresh().unwrap_err().to_string();
        assert_eq!(error, "the certificate and its key cannot be used: there is no certificate");
        assert_eq!(shown(&certificate), second);
        assert!(certificate.tls().is_ok());
    }
}
