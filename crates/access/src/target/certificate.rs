//! Client certificates of a target: asked for with a key that is made here, approved, and read back.
//!
//! The key is in memory, and in the Secret once the certificate was tried out. When the program ends in between, the key is lost, and with
//! it whatever was signed for it.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use coppice_api::Reason;
use coppice_clusters::Validity;
use coppice_clusters::kubeconfig::User;
use coppice_clusters::rights::{Owner, TargetKind};
use coppice_clusters_api::names::SIGNER;
use coppice_mutants::{Mutant, active};
use coppice_runtime::leader::Permit;
use http::Method;
use jiff::Timestamp;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;
use x509_parser::parse_x509_certificate;
use x509_parser::time::ASN1Time;

use super::{Failure, MAX_CREDENTIAL, Target};

/// Within this time an approved certificate has to be there: a controller of the target signs it.
const SIGNED_WITHIN: Duration = Duration::from_secs(20);
/// Between the first two looks; then twice as long each time.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// No user of a certificate has a longer name.
const MAX_USER: usize = 256;
/// The longest pause between two looks.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Makes the key of a certificate, in PEM (PKCS #8). For simulations, in which one seed decides everything: a key that anybody can make again
/// protects nothing.
pub type MakeKey = Arc<dyn Fn() -> String + Send + Sync>;

/// A certificate that was asked for.
pub(crate) struct RequestedCertificate {
    /// The key, in PEM.
    key: String,
    name: String,
    uid: String,
    /// What is sent to approve it: for what was asked for and nothing else.
    approval: Value,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Found {
    metadata: FoundMeta,
    status: FoundStatus,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct FoundMeta {
    uid: String,
    resource_version: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct FoundStatus {
    certificate: String,
    conditions: Vec<FoundCondition>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct FoundCondition {
    #[serde(rename = "type")]
    type_: String,
}

impl Target {
    /// Asks for a certificate of a key that is made for it, with the system's randomness unless a simulation makes it; a request of that name
    /// is deleted first.
    pub(crate) async fn request_certificate(
        &self,
        permit: &Permit,
        owner: Owner<'_>,
        (credential, seconds): (&str, u64),
        make_key: Option<&MakeKey>,
    ) -> Result<RequestedCertificate, Failure> {
        let (key, request) = key_and_request(&owner.identity(), make_key).ok_or_else(|| {
            Failure::new(Reason::WriteFailed, "no key could be made: the system has no randomness")
        })?;
        let object = owner.signing_request(credential, &BASE64_STANDARD.encode(request), seconds);
        let kind = TargetKind::SigningRequest;
        self.delete(permit, kind, ("", &object.name), None).await?;
        let created = self.write::<Found>(permit, Method::POST, &kind.collection(""), &object.body).await;
        let created =
            created.map_err(|error| Failure::of("create a CertificateSigningRequest", &error))?.metadata;
        let mut approval = object.body;
        approval["metadata"]["uid"] = json!(created.uid);
        approval["metadata"]["resourceVersion"] = json!(created.resource_version);
        approval["status"] = json!({"conditions": [{
            "type": "Approved", "status": "True", "reason": "ClusterAccess",
            "message": "Asked for and approved by Coppice for the ClusterAccess in the annotations."
        }]});
        Ok(RequestedCertificate { key, name: object.name, uid: created.uid, approval })
    }

    /// Approves it, waits until it is signed, and removes the request; the certificate with its key, and from when until when it is
    /// valid as it says itself.
    pub(crate) async fn issue_certificate(
        &self,
        permit: &Permit,
        requested: &RequestedCertificate,
    ) -> Result<(User, Validity), Failure> {
        let kind = TargetKind::SigningRequest;
        let path = format!("{}/{}", kind.collection(""), requested.name);
        let approved =
            self.write::<Found>(permit, Method::PUT, &format!("{path}/approval"), &requested.approval).await;
        let what = format!("approve the CertificateSigningRequest {}", requested.name);
        approved.map_err(|error| Failure::of(&what, &error))?;
        let certificate = self.signed(&path, requested).await?;
        if !active(Mutant::SigningRequestLeft) {
            self.delete(permit, kind, ("", &requested.name), None).await?;
        }
        let not_understood = || {
            let message = format!("what the signer {SIGNER} of the target made is no certificate");
            Failure::new(Reason::VerificationFailed, message)
        };
        let pem = BASE64_STANDARD.decode(&certificate).map_err(|_| not_understood())?;
        let validity = validity(&pem).ok_or_else(not_understood)?;
        Ok((User::Certificate { certificate, key: BASE64_STANDARD.encode(&requested.key) }, validity))
    }

    /// The certificate in PEM, in base64, when it is there.
    async fn signed(&self, path: &str, requested: &RequestedCertificate) -> Result<String, Failure> {
        let name = &requested.name;
        let refused = |why: &str| {
            Failure::new(Reason::TargetRefused, format!("the CertificateSigningRequest {name} {why}"))
        };
        let ends = Instant::now() + SIGNED_WITHIN;
        let mut pause = FIRST_PAUSE;
        loop {
            let found = self.get::<Found>(path).await;
            let what = format!("show the CertificateSigningRequest {name}");
            let Found { metadata, status } = found.map_err(|error| Failure::of(&what, &error))?;
            if metadata.uid != requested.uid {
                return Err(refused("was replaced by another one of that name: find out who does that"));
            }
            let is = |type_: &str| status.conditions.iter().any(|condition| condition.type_ == type_);
            if is("Denied") {
                return Err(refused(
                    "was denied in the target: ask those who deny requests there to let it be",
                ));
            }
            if is("Failed") {
                return Err(refused(
                    "could not be signed: look at its condition Failed in the target for why",
                ));
            }
            if status.certificate.len() > MAX_CREDENTIAL {
                return Err(refused("has a certificate that is too long"));
            }
            if !status.certificate.is_empty() {
                return Ok(status.certificate);
            }
            if Instant::now() + pause > ends {
                let within = SIGNED_WITHIN.as_secs();
                return Err(refused(&format!(
                    "was approved and not signed within {within} s: does a controller of the target sign for {SIGNER}? Some managed clusters have none; \
                     let another ClusterAccess use the issuer TokenRequest there"
                )));
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}

/// A key, and a request by it for a certificate of this user, who is in no group; both in PEM.
fn key_and_request(user: &str, make_key: Option<&MakeKey>) -> Option<(String, String)> {
    let made = make_key.map(|make_key| KeyPair::from_pem(&make_key()));
    let key = made.unwrap_or_else(KeyPair::generate).ok()?;
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, user);
    let request = params.serialize_request(&key).ok()?.pem().ok()?;
    Some((key.serialize_pem(), request))
}

/// The user that a certificate is of, as an API server reads it; none if it is no certificate.
pub(crate) fn user_of(user: &User) -> Option<String> {
    let User::Certificate { certificate, .. } = user else { return None };
    let pem = BASE64_STANDARD.decode(certificate).ok()?;
    let der = CertificateDer::from_pem_slice(&pem).ok()?;
    let (_, read) = parse_x509_certificate(&der).ok()?;
    let name = read.subject().iter_common_name().next()?.as_str().ok()?.to_owned();
    let is_plain = name.len() <= MAX_USER && !name.chars().any(char::is_control);
    is_plain.then_some(name)
}

/// From when until when a certificate is valid, as it says.
pub(super) fn validity(pem: &[u8]) -> Option<Validity> {
    let der = CertificateDer::from_pem_slice(pem).ok()?;
    let (_, read) = parse_x509_certificate(&der).ok()?;
    let at = |at: ASN1Time| Timestamp::from_second(at.timestamp()).ok();
    let validity = read.validity();
    Some(Validity { not_before: at(validity.not_before)?, not_after: at(validity.not_after)? })
}

#[cfg(test)]
#[path = "certificate_tests.rs"]
mod tests;
