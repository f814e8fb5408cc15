//! A throw-away certificate authority, made again for every plane.

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use ring::rand::{SecureRandom, SystemRandom};

use crate::error::{Error, Result};
use crate::workdir::Workdir;

/// Whom an API server behind that of the plane takes at its word about the user.
pub(crate) const PROXY: &str = "front-proxy";

/// Keys and certificates of one plane, in PEM.
///
/// Users have tokens: beside the authority's there are the certificate that all servers share, and that by which the API server calls another
/// one in a user's name.
pub(crate) struct Pki {
    pub(crate) ca_cert: String,
    pub(crate) ca_key: String,
    pub(crate) server_cert: String,
    pub(crate) server_key: String,
    pub(crate) proxy_cert: String,
    pub(crate) proxy_key: String,
    /// Signs service account tokens.
    pub(crate) account_key: String,
    pub(crate) account_public_key: String,
}

impl Pki {
    pub(crate) fn generate() -> Result<Self> {
        let ca_key = KeyPair::generate()?;
        let mut ca = CertificateParams::default();
        ca.distinguished_name.push(DnType::CommonName, "coppice plane");
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        ca.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let ca_cert = ca.self_signed(&ca_key)?.pem();
        let ca_key_pem = ca_key.serialize_pem();
        let issuer = Issuer::new(ca, ca_key);

        let server_key = KeyPair::generate()?;
        let names = ["127.0.0.1", "localhost"].map(str::to_owned);
        let mut server = CertificateParams::new(names)?;
        server.distinguished_name.push(DnType::CommonName, "localhost");
        server.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        server.use_authority_key_identifier_extension = true;

        let proxy_key = KeyPair::generate()?;
        let mut proxy = CertificateParams::default();
        proxy.distinguished_name.push(DnType::CommonName, PROXY);
        proxy.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        proxy.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        proxy.use_authority_key_identifier_extension = true;

        let account_key = KeyPair::generate()?;
        Ok(Self {
            ca_cert,
            ca_key: ca_key_pem,
            server_cert: server.signed_by(&server_key, &issuer)?.pem(),
            server_key: server_key.serialize_pem(),
            proxy_cert: proxy.signed_by(&proxy_key, &issuer)?.pem(),
            proxy_key: proxy_key.serialize_pem(),
            account_key: account_key.serialize_pem(),
            account_public_key: account_key.public_key_pem(),
        })
    }

    /// Writes them into the folder of a plane.
    pub(crate) fn write(&self, dir: &Workdir) -> Result<()> {
        dir.write("pki/ca.crt", &self.ca_cert)?;
        dir.write("pki/ca.key", &self.ca_key)?;
        dir.write("pki/server.crt", &self.server_cert)?;
        dir.write("pki/server.key", &self.server_key)?;
        dir.write("pki/proxy.crt", &self.proxy_cert)?;
        dir.write("pki/proxy.key", &self.proxy_key)?;
        dir.write("pki/account.key", &self.account_key)?;
        dir.write("pki/account.pub", &self.account_public_key)
    }

    /// Those that were written into a folder.
    pub(crate) fn read(dir: &Workdir) -> Result<Self> {
        Ok(Self {
            ca_cert: dir.read("pki/ca.crt")?,
            ca_key: dir.read("pki/ca.key")?,
            server_cert: dir.read("pki/server.crt")?,
            server_key: dir.read("pki/server.key")?,
            proxy_cert: dir.read("pki/proxy.crt")?,
            proxy_key: dir.read("pki/proxy.key")?,
            account_key: dir.read("pki/account.key")?,
            account_public_key: dir.read("pki/account.pub")?,
        })
    }
}

/// A fresh bearer token.
pub(crate) fn token() -> Result<String> {
    Ok(format!("{:032x}", u128::from_le_bytes(random()?)))
}

/// Random bytes from the system.
pub(crate) fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes).map_err(|_| Error::Random)?;
    Ok(bytes)
}
