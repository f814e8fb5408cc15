//! The certificate authority that the API server trusts for webhooks: what it consists of, and when a part of it is renewed. Pure.
//!
//! A renewal keeps everybody connected: the next certificate is trusted beside the one that signs before anything is signed by it, and
//! the one before stays trusted until it expires.

use std::collections::BTreeMap;
use std::net::IpAddr;

use jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, SanType,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use time::OffsetDateTime;
use x509_parser::parse_x509_certificate;
use x509_parser::time::ASN1Time;

/// How long an authority is valid.
const LIFETIME: SignedDuration = SignedDuration::from_hours(365 * 24);
/// How long what it signs is valid.
const LEAF_LIFETIME: SignedDuration = SignedDuration::from_hours(30 * 24);
/// So long the next one is trusted before it signs: by then every API server has it.
const TRUSTED_BEFORE: SignedDuration = SignedDuration::from_hours(1);
/// Certificates are valid from so long ago on: clocks differ.
const BACKDATED: SignedDuration = SignedDuration::from_hours(1);
/// Of an authority that expires so soon another one takes the place at once.
const TOO_LATE: SignedDuration = SignedDuration::from_hours(24);

/// The fields of the Secret.
const CURRENT: [&str; 2] = ["ca.crt", "ca.key"];
const NEXT: [&str; 2] = ["next.crt", "next.key"];
const PREVIOUS: &str = "previous.crt";

/// Why no certificate could be made.
#[derive(Debug, thiserror::Error)]
#[error("no certificate could be made for {names}: {source}")]
pub struct IssueError {
    names: String,
    source: rcgen::Error,
}

/// Why the fields of a Secret are no authority.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthorityError {
    /// It lacks one.
    #[error("there is no field {0:?}")]
    NoField(&'static str),
    /// One is not what it has to be.
    #[error("the field {field:?} cannot be understood: {why}")]
    Invalid {
        /// Which.
        field: &'static str,
        /// Why.
        why: String,
    },
}

/// A certificate with its key, both as PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issued {
    /// The certificate.
    pub certificate: String,
    /// Its key.
    pub key: String,
    /// When it is to be replaced.
    pub renew_at: Timestamp,
}

/// The authority, as its Secret has it.
#[derive(Debug)]
pub struct Authority {
    current: Signer,
    next: Option<Signer>,
    previous: Option<Trusted>,
}

/// What can sign.
#[derive(Debug)]
struct Signer {
    trusted: Trusted,
    key_pem: String,
    key: KeyPair,
}

/// What is trusted.
#[derive(Debug)]
struct Trusted {
    pem: String,
    from: Timestamp,
    until: Timestamp,
}

/// What becomes of an authority.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuthorityChange {
    /// It is too old to go on with, or will be at once: another one takes its place.
    Replace,
    /// The next one is made, and trusted.
    AddNext,
    /// The next one signs from now on.
    Promote,
    /// The one before has expired: it is not trusted any more.
    DropPrevious,
}

impl Authority {
    /// Another one, from now on.
    ///
    /// # Errors
    /// If the system has no randomness.
    pub fn new(now: Timestamp) -> Result<Self, IssueError> {
        Ok(Self { current: Signer::new(now)?, next: None, previous: None })
    }

    /// What the fields of a Secret say.
    ///
    /// # Errors
    /// If one is missing or cannot be understood.
    pub fn read(fields: &BTreeMap<String, Vec<u8>>) -> Result<Self, AuthorityError> {
        let current = Signer::read(fields, CURRENT)?.ok_or(AuthorityError::NoField(CURRENT[0]))?;
        let next = Signer::read(fields, NEXT)?;
        let previous = text(fields, PREVIOUS)?.map(|pem| Trusted::read(pem, PREVIOUS)).transpose()?;
        Ok(Self { current, next, previous })
    }

    /// The fields of a Secret that say it.
    pub fn fields(&self) -> BTreeMap<String, Vec<u8>> {
        let mut fields = BTreeMap::new();
        let mut put = |name: &str, text: &str| fields.insert(name.to_owned(), text.as_bytes().to_vec());
        let signers = [Some((&self.current, CURRENT)), self.next.as_ref().map(|next| (next, NEXT))];
        for (signer, [certificate, key]) in signers.into_iter().flatten() {
            put(certificate, &signer.trusted.pem);
            put(key, &signer.key_pem);
        }
        if let Some(previous) = &self.previous {
            put(PREVIOUS, &previous.pem);
        }
        fields
    }

    /// What the API server has to trust, as PEM.
    pub fn bundle(&self) -> String {
        let trusted = [
            Some(&self.current.trusted),
            self.next.as_ref().map(|next| &next.trusted),
            self.previous.as_ref(),
        ];
        trusted.into_iter().flatten().map(|trusted| trusted.pem.as_str()).collect()
    }

    /// What is due; `published` is what the API server trusts.
    pub fn due(&self, published: &str, now: Timestamp) -> Option<AuthorityChange> {
        let current = &self.current.trusted;
        if now > ago(current.until, TOO_LATE) {
            return Some(AuthorityChange::Replace);
        }
        match &self.next {
            None if now >= current.renew_at() => return Some(AuthorityChange::AddNext),
            Some(next) => {
                let long_enough = now >= after(after(next.trusted.from, BACKDATED), TRUSTED_BEFORE);
                if long_enough && published.contains(next.trusted.pem.trim()) {
                    return Some(AuthorityChange::Promote);
                }
            }
            None => {}
        }
        self.previous.as_ref().filter(|previous| now > previous.until).map(|_| AuthorityChange::DropPrevious)
    }

    /// The same after this change.
    ///
    /// # Errors
    /// If the system has no randomness.
    pub fn after(self, change: AuthorityChange, now: Timestamp) -> Result<Self, IssueError> {
        Ok(match (change, self) {
            (AuthorityChange::Replace, Self { current, previous, .. }) => {
                let previous = if current.trusted.until > now { Some(current.trusted) } else { previous };
                Self { current: Signer::new(now)?, next: None, previous }
            }
            (AuthorityChange::AddNext, this) => Self { next: Some(Signer::new(now)?), ..this },
            (AuthorityChange::Promote, Self { current, next: Some(next), .. }) => {
                Self { current: next, next: None, previous: Some(current.trusted) }
            }
            (AuthorityChange::Promote, this) => this,
            (AuthorityChange::DropPrevious, this) => Self { previous: None, ..this },
        })
    }

    /// A certificate for a server of these names and addresses.
    ///
    /// # Errors
    /// If one of them is no name.
    pub fn issue(&self, names: &[String], now: Timestamp) -> Result<Issued, IssueError> {
        let error = |source| IssueError { names: names.join(", "), source };
        let until = after(now, LEAF_LIFETIME).min(self.current.trusted.until);
        let mut params = server(names, now, until).map_err(error)?;
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate().map_err(error)?;
        let issuer = Issuer::from_ca_cert_pem(&self.current.trusted.pem, &self.current.key).map_err(error)?;
        let certificate = params.signed_by(&key, &issuer).map_err(error)?;
        Ok(Issued {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
            renew_at: two_thirds(now, until),
        })
    }

    /// The certificate that signs, as PEM: another one after a change.
    pub fn signer(&self) -> &str {
        &self.current.trusted.pem
    }
}

/// A certificate for a server of these names and addresses that it has signed itself.
///
/// # Errors
/// If one of them is no name.
pub fn self_signed(names: &[String], lifetime: SignedDuration, now: Timestamp) -> Result<Issued, IssueError> {
    let error = |source| IssueError { names: names.join(", "), source };
    let until = after(now, lifetime);
    let key = KeyPair::generate().map_err(error)?;
    let certificate = server(names, now, until).and_then(|params| params.self_signed(&key)).map_err(error)?;
    Ok(Issued { certificate: certificate.pem(), key: key.serialize_pem(), renew_at: two_thirds(now, until) })
}

impl Signer {
    fn new(now: Timestamp) -> Result<Self, IssueError> {
        let error = |source| IssueError { names: "an authority".to_owned(), source };
        let mut params = CertificateParams::default();
        let until = after(now, LIFETIME);
        (params.not_before, params.not_after) = (date(ago(now, BACKDATED)), date(until));
        params.distinguished_name = DistinguishedName::new();
        // Two that are trusted at a time differ in their names, as some verifiers need it.
        params.distinguished_name.push(DnType::CommonName, format!("coppice webhooks {now:.0}"));
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate().map_err(error)?;
        let pem = params.self_signed(&key).map_err(error)?.pem();
        let trusted = Trusted { pem, from: ago(now, BACKDATED), until };
        Ok(Self { trusted, key_pem: key.serialize_pem(), key })
    }

    fn read(
        fields: &BTreeMap<String, Vec<u8>>,
        [certificate, key]: [&'static str; 2],
    ) -> Result<Option<Self>, AuthorityError> {
        let Some(pem) = text(fields, certificate)? else { return Ok(None) };
        let key_pem = text(fields, key)?.ok_or(AuthorityError::NoField(key))?;
        let invalid = |why: rcgen::Error| AuthorityError::Invalid { field: key, why: why.to_string() };
        let pair = KeyPair::from_pem(&key_pem).map_err(invalid)?;
        Ok(Some(Self { trusted: Trusted::read(pem, certificate)?, key_pem, key: pair }))
    }
}

impl Trusted {
    fn read(pem: String, field: &'static str) -> Result<Self, AuthorityError> {
        let invalid = |why: String| AuthorityError::Invalid { field, why };
        let der =
            CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|error| invalid(error.to_string()))?;
        let (_, read) = parse_x509_certificate(&der).map_err(|error| invalid(error.to_string()))?;
        let at =
            |at: ASN1Time| Timestamp::from_second(at.timestamp()).map_err(|error| invalid(error.to_string()));
        let validity = read.validity();
        Ok(Self { from: at(validity.not_before)?, until: at(validity.not_after)?, pem })
    }

    fn renew_at(&self) -> Timestamp {
        two_thirds(self.from, self.until)
    }
}

fn text(fields: &BTreeMap<String, Vec<u8>>, field: &'static str) -> Result<Option<String>, AuthorityError> {
    let Some(bytes) = fields.get(field) else { return Ok(None) };
    let text = String::from_utf8(bytes.clone());
    text.map(Some).map_err(|_| AuthorityError::Invalid { field, why: "it is not text".to_owned() })
}

fn server(names: &[String], now: Timestamp, until: Timestamp) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::default();
    (params.not_before, params.not_after) = (date(ago(now, BACKDATED)), date(until));
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "coppice");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    for name in names {
        params.subject_alt_names.push(match name.parse::<IpAddr>() {
            Ok(address) => SanType::IpAddress(address),
            Err(_) => SanType::DnsName(name.as_str().try_into()?),
        });
    }
    Ok(params)
}

fn after(at: Timestamp, time: SignedDuration) -> Timestamp {
    at.saturating_add(time).unwrap_or(Timestamp::MAX)
}

fn ago(at: Timestamp, time: SignedDuration) -> Timestamp {
    at.saturating_sub(time).unwrap_or(Timestamp::MIN)
}

fn two_thirds(from: Timestamp, until: Timestamp) -> Timestamp {
    after(from, until.duration_since(from) * 2 / 3)
}

fn date(at: Timestamp) -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp(at.as_second()).unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

#[cfg(test)]
#[path = "authority_tests.rs"]
mod tests;
